"""Smaller picture files: fewer pixels, and a palette if the difference is invisible."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

FAR, MANY = 20, 0.005
"""Difference of a colour channel (0 to 255) that is visible, and the largest share of pixels that may differ so."""

DPI, COLORS = 150.0, 36
"""Largest resolution of a small picture in pixels per inch, and its number of colours."""


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


def small_picture(file: Path) -> tuple[bytes, int, int]:
    """Return a picture as a small WebP file: at most `DPI` pixels per inch and `COLORS` colours.

    A WebP file is returned as it is.

    Parameters
    ----------
    file : Path
        PNG file written by matplotlib, or WebP file.

    Returns
    -------
    data : bytes
    width, height : int
        Size in pixels.
    """
    from PIL import Image

    with Image.open(file) as opened:
        if opened.format == "WEBP":
            return file.read_bytes(), opened.width, opened.height
        resolution, image = float(opened.info.get("dpi", (DPI, DPI))[0]), opened.convert("RGB")
    image = image.reduce(max(1, round(resolution / DPI)))
    palette = image.quantize(COLORS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    into = io.BytesIO()
    palette.convert("RGB").save(into, format="webp", lossless=True, quality=80, method=4)
    return into.getvalue(), image.width, image.height
