"""A scaling law in one panel: what was measured, what was predicted, and the exponents of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linfed._types import Array
from linfed.figures.style import look
from linfed.statistics.scaling import fit_exponent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_law(ax: Axes, x: Array, measured: Array, predicted: Array, *, method: str) -> None:
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
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    low, middle, high = np.quantile(measured, (0.1, 0.5, 0.9), axis=0)
    ax.errorbar(x, middle, yerr=(middle - low, high - middle), label="measured", **look(method))
    ax.plot(x, np.median(predicted, axis=0), color="black", linewidth=0.9, linestyle=":", label="predicted")
    ax.set(xscale="log", yscale="log")
    exponents = f"{fit_exponent(x, measured)[0]:.2f} ({fit_exponent(x, predicted)[0]:.2f})"
    ax.text(0.5, 0.97, exponents, transform=ax.transAxes, ha="center", va="top", fontsize=7)
    least, most = ax.get_ylim()
    ax.set_ylim(least, most * (most / least) ** 0.15)  # room for the text
    shown = x if len(x) < 6 else x[1::2]
    ax.set_xticks(shown, [f"{value:,g}" if value < 10_000 else f"{value:.0e}" for value in shown])
    ax.xaxis.set_minor_locator(NullLocator())
    if most / least < 3:
        ax.yaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
