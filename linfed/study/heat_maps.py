"""Heat maps of shares by column and row, and lines over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from linfed.statistics.quantiles import quantiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage


def heat_map(ax: Axes, values: Any, columns: Sequence[str], rows: Sequence[str], **options: Any) -> AxesImage:
    """Draw shares (rows, columns) from 0 to 1, evenly spaced whatever their labels say, and return the image."""
    shape = {"origin": "lower", "aspect": "auto", "cmap": "Blues", "vmin": 0, "vmax": 1, **options}
    image = ax.imshow(values, **shape)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(visible=False)
    return image


def place(labels: Sequence[float], values: Any) -> Any:
    """Return where values lie between the labels of a heat map's rows or columns, (median, 10 %, 90 %) over trials."""
    places = np.interp(values, labels, np.arange(len(labels)))
    return np.array(quantiles(places)) if np.ndim(places) else np.full(3, places)


def level(ax: Axes, x: Any, places: Any, **shape: Any) -> None:
    """Draw a line over a heat map, in a white halo: medians with 10-90 % bars, (points, 3) as `place` returns them."""
    from matplotlib import patheffects

    middle, low, high = np.transpose(places)
    halo = [patheffects.withStroke(linewidth=3.0, foreground="white")]
    ax.plot(x, middle, path_effects=halo, **shape)
    if (high > low).any():
        ax.errorbar(x, middle, yerr=[middle - low, high - middle], fmt="none", color=shape["color"], capsize=1.5)
