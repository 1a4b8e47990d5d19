"""Curves over rounds: medians over trials with bands, and predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from linfed._names import axis_label
from linfed._types import Array, Indices
from linfed.figures.style import COLUMN_WIDTH, Look, line_style, style
from linfed.numerics.quantiles import quantiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_curve(
    rounds: Array | Indices,
    values: Array,
    *,
    ax: Axes | None = None,
    label: str,
    ylabel: str,
    log: bool = True,
    band: bool = True,
    method: str | Look | None = None,
    options: Mapping[str, Any] | None = None,
) -> Axes:
    """Plot the median over trials with a 10-90 % band.

    Parameters
    ----------
    rounds : ndarray (R,)
        Rounds, or other values of the horizontal axis.
    values : ndarray (trials, R)
        The values, NaN if a trial has diverged.
    ax : Axes, optional
        Axes to plot into; a new figure by default.
    label, ylabel : str
        Label of the line, and of the vertical axis.
    log : bool, default True
        If True, the vertical axis is logarithmic, unless no median is positive.
    band : bool, default True
        If True, draw the band.
    method : str or tuple, optional
        Method whose look to use, or a look; `label` by default.
    options : mapping, optional
        Properties of the matplotlib line, which take precedence over the look.

    Returns
    -------
    Axes
    """
    median, low, high = quantiles(values)
    lines = len(ax.lines) if ax is not None else 0
    shape = line_style(method or label, lines) | dict(options or {})
    with style():
        if ax is None:
            import matplotlib.pyplot as plt

            from linfed.figures.figure import StyledFigure

            size = (COLUMN_WIDTH, 0.75 * COLUMN_WIDTH)
            ax = plt.figure(FigureClass=StyledFigure, figsize=size, layout="constrained").subplots()
            ax.set_xlabel("round")
            ax.set_ylabel(axis_label(ylabel))
            if band and values.shape[0] > 1:
                ax.set_title(f"median and 10-90 % of {values.shape[0]} trials")
        every = max(1, len(rounds) // 8)
        shift = (3 * lines) % every  # markers of different methods do not cover each other
        finite = np.isfinite(median)
        (line,) = ax.plot(rounds[finite], median[finite], label=label, **{"markevery": (shift, every)} | shape)
        if band and values.shape[0] > 1:
            in_band = np.isfinite(low)
            top = np.minimum(high[in_band], values[np.isfinite(values)].max())  # diverged trials are infinite
            ax.fill_between(rounds[in_band], low[in_band], top, color=line.get_color(), alpha=0.2, linewidth=0)
        if log and np.any(median[finite] > 0):
            ax.set_yscale("log")
    return ax


@runtime_checkable
class PredictedCurve(Protocol):
    """A predicted curve that figures can draw, such as a `linfed.prediction.Prediction`."""

    @property
    def rounds(self) -> Indices: ...  # noqa: D102
    @property
    def trials(self) -> int | None: ...  # noqa: D102
    @property
    def distance(self) -> Array: ...  # noqa: D102
    @property
    def low(self) -> Array | None: ...  # noqa: D102
    @property
    def high(self) -> Array | None: ...  # noqa: D102
    @property
    def warnings(self) -> tuple[str, ...]: ...  # noqa: D102


def describe_trials(trials: int | None) -> str:
    """Return which trials are predicted: the first one if `trials` is None."""
    return "trial 0" if trials is None or trials == 1 else f"trials 0 to {trials - 1}"


def draw_prediction(
    ax: Axes,
    rounds: Array | Indices,
    distance: Array,
    low: Array | None = None,
    high: Array | None = None,
    *,
    of: str = "",
    uncertain: bool = False,
) -> None:
    """Plot a prediction as thin black lines: the medians over trials of the distance and of the ends of its band.

    Parameters
    ----------
    ax : Axes
        Matplotlib axes to plot into.
    rounds : ndarray (R,)
        Rounds, or other values of the horizontal axis.
    distance, low, high : ndarray (R,) or (trials, R)
        Predicted distance, and the ends of its band.
    of : str, default ""
        What is predicted, for the legend.
    uncertain : bool, default False
        If True, the prediction comes with warnings. Its line is dashed and has a separate entry in the legend.
    """
    name = ", ".join(filter(None, ("predicted", of, "with warnings" if uncertain else "")))
    for values, line in ((low, ":"), (high, ":"), (distance, "-")):
        if values is not None:
            is_new = line == "-" and name not in [each.get_label() for each in ax.lines]
            middle = np.median(np.atleast_2d(values), axis=0)
            text = name if is_new else f"_{name}"
            line = "--" if uncertain and line == "-" else line
            ax.plot(rounds, middle, color="black", linewidth=0.7, linestyle=line, zorder=3, label=text)
