"""Figures of searches for the smallest m, or the fewest rounds, against each size that varies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS, LOOKS, same_scale
from linfed.plotting.panels import SIZE_LABELS, intervals

from .smallest import BEST, THEOREM, Panels
from .smallest_judged import covered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {THEOREM: LOOKS["FedRep"][0], BEST: KINDS[1][0]}
"""Colours of FedRep's step sizes."""
RATIOS = (0.6, 1.4)
"""Limits of the vertical axis for measured divided by predicted."""
AXES = SIZE_LABELS | {
    "n_clients": "clients n = p",
    "participants": "participants p of n = 100",
    "kappa": "condition number $\\kappa$",
    "eta": "step $\\eta$",
    "start": "samples m",
}
"""Texts of the horizontal axes by field."""


def panels_page(
    table: lf.Table, panels: Panels, ylabel: str, claim: str, claimed: Callable[[dict[str, Any]], float], near: str = ""
) -> Figure:
    """Return a figure with a panel for each size that varies, above its measured values divided by the predictions.

    Parameters
    ----------
    table : Table
        Searches at one or both step sizes.
    panels : mapping
        The eight sizes that vary.
    ylabel : str
        Text of the vertical axes.
    claim : str
        Label of the theorem's line.
    claimed : function
        Value of the theorem's line for a row.
    near : str, optional
        Column with the threshold near B*, which is drawn in the panel of the rounds.
    """
    with lf.panels(table, row=4, column=4, height=6.4, height_ratios=(3, 1, 3, 1), sharey="row") as sheet:
        sheet.label("", *[ylabel, "measured /\npredicted"] * 2)
        upper, lower = sheet.axes[::2], sheet.axes[1::2]
        for ax, below, (panel, (field, *_)) in zip(upper.flat, lower.flat, panels.items(), strict=True):
            below.sharex(ax)
            rows = rows_of(table, panel, field)
            if not table.select(panel=panel):
                alone = "base setting alone" if rows else "not run"
                ax.text(0.5, 0.9, alone, ha="center", transform=ax.transAxes, fontsize=7)
            for step, colour in COLOURS.items():
                at_step = [row for row in rows if row["step"] == step]
                if step == THEOREM or any(row["panel"] == panel for row in at_step):  # not if only the base has it
                    draw_measured(
                        ax, at_step, field, f"measured, {step}", f"lf.predict, {step}", "predicted_crossing", colour
                    )
                    draw_ratio(below, at_step, field, colour)
            stated = [row for row in rows if covered(row)]
            ax.plot([row[field] for row in stated], [claimed(row) for row in stated], "--", color="0.5", label=claim)
            if near and panel == "T":
                ax.axhline(stated[0][near], color="0.35", linestyle="-.", label="the threshold near B*")
            for one, xlabel in ((ax, ""), (below, AXES[field])):
                label_axes(one, [row[field] for row in rows], xlabel)
            ax.tick_params(labelbottom=False)
            below.set(yscale="linear", ylim=RATIOS)
        same_scale(list(upper.flat))
        sheet.legend(ncols=2)
    return sheet.figure


def panels_row(
    table: lf.Table, panels: Iterable[str], draw: Callable[[Axes, str], None], ylabel: str, *, height: float, ncols: int
) -> Figure:
    """Return a figure with one row of panels of the same vertical scale; `draw` draws and labels a panel by its key."""
    keys = list(panels)
    with lf.panels(table, column=len(keys), height=height, sharey=True) as sheet:
        (axes,) = sheet.axes
        axes[0].set_ylabel(ylabel)
        for ax, panel in zip(axes, keys, strict=True):
            draw(ax, panel)
        same_scale(list(axes))
        sheet.legend(ncols=ncols)
    return sheet.figure


def label_axes(ax: Axes, sizes: Sequence[float], text: str) -> None:
    """Label logarithmic axes, with ticks at some of the sizes."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    sizes = sorted({size for size in sizes if size > 0})
    ax.set(xscale="log" if sizes else "linear", yscale="log", xlabel=text)
    if len(sizes) == 1:
        ax.set_xlim(sizes[0] / 2, sizes[0] * 2)
    ticks = sizes if len(sizes) < 5 else sizes[:: -(-len(sizes) // 4)]
    ax.set_xticks(ticks, [f"{size:,g}" for size in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def rows_of(table: lf.Table, panel: str, field: str) -> list[dict[str, Any]]:
    """Return the rows of a panel in the order of its field, with the base setting except for p, which has n = 100."""
    return sorted(table.select(panel=[panel] if panel == "p" else ["base", panel]).rows, key=lambda row: row[field])


def draw_measured(
    ax: Axes,
    rows: Sequence[dict[str, Any]],
    field: str,
    text: str,
    law: str,
    column: str,
    colour: str,
    marker: str = "o",
) -> None:
    """Draw crossings with their intervals, censored ones as arrows at their bounds, and the predictions."""
    draw_ends(ax, [row for row in rows if not row["censored"]], field, text, colour, marker=marker)
    for row in rows:
        if row["censored"]:
            marker, at = ("^", row["low"]) if row["censored"] == "above" else ("v", row["high"])
            ax.plot(row[field], at, marker, color=colour, fillstyle="none", label="not reached up to here")
    x = [row[field] for row in rows]
    ax.plot(x, [row[column] for row in rows], ":", color=colour, label=law)
    if column == "predicted_crossing":
        low, high = (np.array([row[name] for row in rows]) for name in ("predicted_low", "predicted_high"))
        within = [not row["predicted_censored"] for row in rows]  # elsewhere one end lies beyond the searched range
        seen = ax.dataLim.frozen()
        ax.fill_between(x, low, np.minimum(high, 1e9), where=within, color=colour, alpha=0.15, linewidth=0)
        ax.dataLim.set(seen)  # a band that is open above ends at the top of the panel
        ax.autoscale_view()


def draw_ratio(ax: Axes, rows: Sequence[dict[str, Any]], field: str, colour: str) -> None:
    """Draw crossings divided by their predictions, with intervals, for rows whose every size has a prediction."""
    reached = [row for row in rows if not (row["censored"] or row["missing_prediction"])]
    known = [row for row in reached if row["predicted_crossing"] > 0]
    draw_ends(ax, known, field, "_ratio", colour, law="predicted_crossing")
    ax.axhline(1.0, color="black", linewidth=0.7, linestyle=":")


def draw_ends(
    ax: Axes,
    rows: Sequence[dict[str, Any]],
    field: str,
    text: str,
    colour: str,
    law: str | None = None,
    marker: str = "o",
) -> None:
    """Draw crossings, divided by a prediction if one is given, with their intervals."""
    ends = [[row[name] / (row[law] if law else 1.0) for name in ("crossing", "low", "high")] for row in rows]
    intervals(ax, [row[field] for row in rows], ends, "FedRep", label=text, color=colour, marker=marker)
