"""Pictures of a sensible size: fewer pixels, and a palette of 256 colours where that shows nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

FAR, MANY = 20, 0.005
"""Of a colour of 0 to 255 what would show in a map, and the share of such pixels from which there is no palette."""


def shrunk(drawn: Path | BinaryIO, width: int) -> Image:
    """Return a picture at most so many pixels wide, with a palette unless that is far off.

    Parameters
    ----------
    drawn : Path or file
        PNG, as matplotlib has written it.
    width : int
    """
    from PIL import Image

    with Image.open(drawn) as opened:
        image = opened.convert("RGB")
    if width < image.width:
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    palette = image.quantize(256, dither=Image.Dither.NONE)
    off = np.abs(np.asarray(palette.convert("RGB"), dtype=int) - np.asarray(image)).max(axis=-1) > FAR
    return image if off.mean() > MANY else palette
