"""A scaling law in one panel: what was measured, what was predicted, and the exponents of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from linfed._types import Array
from linfed.figures.style import look, plain_ticks
from linfed.statistics.fits import fit_exponent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_law(ax: Axes, x: Array, measured: Array, predicted: Array, *, method: str, below: Axes | None = None) -> None:
    """Draw measurements against sizes on logarithmic axes: medians with 10-90 % over trials, beside a prediction.

    Parameters
    ----------
    ax : Axes
    x : ndarray (P,)
        Positive sizes; they are the ticks, every other one if there are more than five.
    measured, predicted : ndarray (trials, P)
        Positive. Above them stands the exponent of the first, and in brackets that of the second (`fit_exponent`).
    method : str
        Whose look the measurements have.
    below : Axes, optional
        For the first over the median of the second, on a linear axis.
    """
    said = np.median(predicted, axis=0)
    for panel, values in ((ax, measured), (below, measured / said)):
        if panel is not None:
            low, middle, high = np.quantile(values, (0.1, 0.5, 0.9), axis=0)
            panel.errorbar(x, middle, yerr=(middle - low, high - middle), label="measured", **look(method))
            panel.set_xscale("log")
    ax.plot(x, said, color="black", linewidth=0.9, linestyle=":", zorder=3, label="predicted")
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
    """Label the sizes, below the last of the panels alone."""
    from matplotlib.ticker import NullLocator

    shown = x if len(x) < 6 else x[1::2]
    words = [f"{value:,g}" if value < 10_000 else f"{value:.0e}".replace("e+0", "e") for value in shown]
    for panel in panels:
        panel.set_xticks(shown, words if panel is panels[-1] else [])
        panel.xaxis.set_minor_locator(NullLocator())
