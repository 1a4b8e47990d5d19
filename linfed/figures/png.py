"""Smaller PNG files: fewer pixels, and a palette of 256 colours if the difference is invisible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

FAR, MANY = 20, 0.005
"""Difference of a colour channel (0 to 255) that is visible, and the largest share of pixels that may differ so."""


def shrink_png(picture: Path | BinaryIO, width: int) -> Image:
    """Return a smaller version of a picture.

    Parameters
    ----------
    picture : Path or file
        PNG file written by matplotlib.
    width : int
        Maximum width in pixels.

    Returns
    -------
    Image
        The picture, with a palette of 256 colours unless more than a share `MANY` of its pixels would change visibly.
    """
    from PIL import Image

    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    if width < image.width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    palette = image.quantize(256, dither=Image.Dither.NONE)
    off = np.abs(np.asarray(palette.convert("RGB"), dtype=int) - np.asarray(image)).max(axis=-1) > FAR
    return image if off.mean() > MANY else palette
