"""Plot of a scaling law: measurements, predictions, and the exponents of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from linfed._types import Array
from linfed.figures.style import line_style, plain_ticks
from linfed.statistics.fits import fit_exponent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_law(ax: Axes, x: Array, measured: Array, predicted: Array, *, method: str, below: Axes | None = None) -> None:
    """Plot measurements and predictions against sizes on logarithmic axes.

    Measurements are medians with 10-90 % bars over trials. A text gives their fitted exponent and, in brackets, the
    exponent of the predictions (`fit_exponent`).

    Parameters
    ----------
    ax : Axes
        Matplotlib axes to plot into.
    x : ndarray (P,)
        Sizes, positive. They are the ticks, every second one if there are more than five.
    measured, predicted : ndarray (trials, P)
        Measured and predicted values, positive.
    method : str
        Method whose look the measurements have.
    below : Axes, optional
        Axes for the measurements divided by the median prediction, on a linear axis.
    """
    median = np.median(predicted, axis=0)
    for panel, values in ((ax, measured), (below, measured / median)):
        if panel is not None:
            low, middle, high = np.quantile(values, (0.1, 0.5, 0.9), axis=0)
            panel.errorbar(
                x, middle, yerr=(middle - low, high - middle), label=f"{method}, measured", **line_style(method)
            )
            panel.set_xscale("log")
    ax.plot(x, median, color="black", linewidth=0.9, linestyle=":", zorder=3, label="predicted")
    ax.set_yscale("log")
    exponents = f"{fit_exponent(x, measured)[0]:.2f} ({fit_exponent(x, predicted)[0]:.2f})"
    ax.text(0.5, 0.97, exponents, transform=ax.transAxes, ha="center", va="top", fontsize=7)
    if below is not None:
        below.axhline(1.0, color="black", linewidth=0.9, linestyle=":", zorder=3)
    least, most = ax.get_ylim()
    ax.set_ylim(least, most * (most / least) ** 0.15)  # room for the text
    _sizes((ax, below) if below is not None else (ax,), x)
    plain_ticks(ax)


def _sizes(panels: Sequence[Axes], x: Array) -> None:
    """Set the ticks of all panels to the sizes, with labels only at the last panel."""
    from matplotlib.ticker import NullLocator

    ticks = x if len(x) < 6 else x[1::2]
    words = [f"{value:,g}" for value in ticks]
    for panel in panels:
        panel.set_xticks(ticks, words if panel is panels[-1] else [])
        panel.xaxis.set_minor_locator(NullLocator())
