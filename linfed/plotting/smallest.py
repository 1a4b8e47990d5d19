"""Figure of smallest sizes, with their intervals and predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from linfed._names import SYMBOLS, axis_label
from linfed._types import Array
from linfed.checks import check_instance, is_real, short_repr
from linfed.figures.style import label, line_style
from linfed.plotting.panels import panels
from linfed.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTERS = {column: letter for letter, column in SYMBOLS.items()}
"""Letters of columns on the axes."""


def plot_smallest(
    table: Table, x: str, *, by: str | None = None, width: float | str = "column", height: float = 2.4
) -> Figure:
    """Plot the smallest sizes of `lf.find_smallest` against a column, with their intervals and predictions.

    Parameters
    ----------
    table : Table
        Table of `lf.find_smallest`.
    x : str
        Column of positive numbers for the horizontal axis, such as ``"n_clients"``.
    by : str, optional
        Column that distinguishes the lines; by default there is one line.
    width : float or {"column", "page"}
        Width in inches, or of a column (3.35) or a page (6.9) of a paper with two columns.
    height : float
        Height in inches.

    Returns
    -------
    matplotlib Figure
        The smallest sizes, interpolated between integers, with bars for their confidence intervals. An open triangle is
        the bound of a size that is only known to be larger (upwards) or smaller (downwards). With ``predicted=True`` in
        `lf.find_smallest`, black lines are the predicted sizes, and grey bands their intervals. Both axes are
        logarithmic.

    Raises
    ------
    KeyError
        If a column is unknown.
    ValueError
        If the table is not one of `lf.find_smallest`, several rows of a line have the same x, or a value of x is not a
        positive number.

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9)), n_rounds=40,
    ...              problem=lf.SharedRepresentation(n_clients=50, dim=20, rank=2), data=lf.FreshSamples(8))
    >>> table = lf.find_smallest("data.n_samples", lf.grid(run, **{"problem.n_clients": (20, 40)}), trials=16,
    ...                          reaches=lf.below("subspace_distance", 0.01), predicted=True)
    >>> figure = lf.plot_smallest(table, "n_clients")
    >>> figure.axes[0].get_ylabel()
    'smallest $m$'
    """
    check_instance("table", table, Table, "a lf.Table")
    if not {"path", "crossing", "low", "high", "censored"} <= set(table.columns) or len(table.unique("path")) != 1:
        raise ValueError(f"table = {table!r} must be a table of lf.find_smallest, for one size")
    name = table.unique("path")[0].rpartition(".")[2]
    places = table.unique(x)
    if wrong := [place for place in places if not (is_real(place) and 0 < place < np.inf)]:
        raise ValueError(f"x = {x!r} must be a column of positive numbers, but holds {short_repr(wrong[0])}")
    places = sorted(places)
    with panels(table, width=width, height=height) as sheet:
        ax = sheet.axes[0, 0]
        for turn, (value, part) in enumerate(table.groupby(by) if by else [(None, table)]):
            if len(part.unique(x)) < len(part):
                raise ValueError(f"several rows have the same {x}; use select(), or set by= to the column that differs")
            text = label(value) if isinstance(value, str) else f"{_letter(by)} = {value}" if by else "measured"
            _draw(ax, _columns(part, x), text, line_style(value if isinstance(value, str) else "", turn))
        sheet.label(_letter(x), f"smallest {_letter(name)}")
        ax.set(xscale="log", yscale="log")
        if len(places) <= 8:
            ax.set_xticks(places, [f"{place:g}" for place in places])
            ax.xaxis.set_minor_locator(_no_ticks())
        sheet.legend()
    return sheet.figure


def _letter(column: str) -> str:
    """Return the letter of a column, or its name without underscores."""
    name = column.rpartition(".")[2]
    return LETTERS.get(name, axis_label(name))


def _columns(part: Table, x: str) -> dict[str, Array]:
    """Return the columns of a line, ordered by x; predicted ones only if they exist."""
    names = {"x": x, **{name: name for name in ("crossing", "low", "high", "censored")}}
    if "predicted_crossing" in part.columns:
        names |= {one: one for one in ("predicted_crossing", "predicted_low", "predicted_high")}
        names["missing_prediction"] = "missing_prediction"
    columns = {name: np.atleast_1d(np.asarray(part[column])) for name, column in names.items()}
    order = np.argsort(columns["x"])
    return {name: values[order] for name, values in columns.items()}


def _draw(ax: Axes, line: dict[str, Array], text: str, shape: dict[str, Any]) -> None:
    """Draw the measured and the predicted sizes of one line."""
    x, middle, low, high = (line[name] for name in ("x", "crossing", "low", "high"))
    known = np.isfinite(middle)
    bars = (middle - low, high - middle)
    shape = {"elinewidth": 0.8, "capsize": 2.0, **shape}
    ax.errorbar(x[known], middle[known], yerr=[bar[known] for bar in bars], label=text, **shape | {"linestyle": "none"})
    for side, marker, bounds in (("above", "^", low), ("below", "v", high)):
        beyond = line["censored"] == side
        ax.plot(x[beyond], bounds[beyond], marker, color=shape["color"], fillstyle="none", label=f"_{side}")
    if "predicted_crossing" in line:
        # Where smaller sizes have no prediction, the predicted size is only an upper bound.
        known = np.isfinite(line["predicted_crossing"]) & (line["missing_prediction"] == "")
        is_new = "predicted" not in ax.get_legend_handles_labels()[1]
        ends = (line["predicted_low"][known], line["predicted_high"][known])
        ax.fill_between(x[known], *ends, color="0.5", alpha=0.25, linewidth=0)
        ax.plot(
            x[known],
            line["predicted_crossing"][known],
            "k-",
            linewidth=0.7,
            zorder=3,
            label="predicted" if is_new else "_predicted",
        )


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()
