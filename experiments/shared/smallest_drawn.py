"""Figures of searches for the smallest m, or the fewest rounds, against each size that varies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS, LOOKS, PAGE_WIDTH, line_style, same_scale
from linfed.plotting.panels import drawn_from

from .smallest import BEST, THEOREM
from .smallest_judged import covered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {THEOREM: LOOKS["FedRep"][0], BEST: KINDS[1][0]}
"""Colours of FedRep's step sizes."""
RATIOS = (0.6, 1.4)
"""Limits of the vertical axis for measured divided by predicted."""


def panels_page(
    table: lf.Table, panels: Any, ylabel: str, claim: str, claimed: Callable[[Any], float], near: str
) -> Any:
    """Return a figure with a panel for each size that varies."""
    import matplotlib.pyplot as plt

    shape: dict[str, Any] = {"layout": "constrained", "height_ratios": (3, 1, 3, 1), "sharey": "row"}
    figure, axes = plt.subplots(4, 4, figsize=(PAGE_WIDTH, 6.4), **shape)
    for ax, below, (panel, (field, *_, text)) in zip(axes[::2].flat, axes[1::2].flat, panels.items(), strict=True):
        below.sharex(ax)
        rows = sorted(table.select(panel=panels_on_axis(panel)).rows, key=lambda row: row[field])
        if not table.select(panel=panel):
            alone = "base setting alone" if rows else "not run"
            ax.text(0.5, 0.9, alone, ha="center", transform=ax.transAxes, fontsize=7)
        for step, colour in COLOURS.items():
            at_step = [row for row in rows if row["step"] == step]
            if step == THEOREM or any(row["panel"] == panel for row in at_step):  # not if only the base setting has it
                draw_measured(
                    ax, at_step, field, f"measured, {step}", f"lf.predict, {step}", "predicted_crossing", colour
                )
                draw_ratio(below, at_step, field, colour)
        claimed_rows = [row for row in rows if covered(row)]
        ax.plot(
            [row[field] for row in claimed_rows], [claimed(row) for row in claimed_rows], "--", color="0.5", label=claim
        )
        if near and panel == "T":
            ax.axhline(claimed_rows[0][near], color="0.35", linestyle="-.", label="the threshold near B*")
        for one, xlabel in ((ax, ""), (below, text)):
            label_axes(one, [row[field] for row in rows], xlabel)
        ax.tick_params(labelbottom=False)
        below.set(yscale="linear", ylim=RATIOS)
    same_scale(list(axes[::2].flat))
    for first in (0, 2):
        axes[first, 0].set_ylabel(ylabel)
        axes[first + 1, 0].set_ylabel("measured /\npredicted")
    figure.legend(*legend_entries(axes), loc="outside upper center", ncols=2)
    return drawn_from(figure, table)


def legend_entries(axes: Any) -> tuple[list[Any], list[str]]:
    """Return the handles and labels of all panels, without repetition."""
    found = [ax.get_legend_handles_labels() for ax in axes.ravel()]
    handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
    return list(handles.values()), list(handles)


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


def panels_on_axis(panel: str) -> list[str]:
    """Return the panels whose rows share an axis: the panel and the base setting, except for p, which has n = 100."""
    return [panel] if panel == "p" else ["base", panel]


def draw_measured(ax: Axes, rows: Sequence[Any], field: str, text: str, law: str, column: str, colour: str) -> None:
    """Draw crossings with their intervals, censored ones as arrows at their bounds, and the predictions."""
    reached = [row for row in rows if not row["censored"]]
    ends = np.array([[row["crossing"] - row["low"], row["high"] - row["crossing"]] for row in reached]).reshape(-1, 2).T
    shape = {**line_style("FedRep"), "color": colour, "linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    x, y = ([row[name] for row in reached] for name in (field, "crossing"))
    ax.errorbar(x, y, yerr=np.maximum(ends, 0), label=text, **shape)
    for row in rows:
        if row["censored"]:
            marker, at = ("^", row["low"]) if row["censored"] == "above" else ("v", row["high"])
            ax.plot(row[field], at, marker, color=colour, fillstyle="none", label="not reached up to here")
    ax.plot([row[field] for row in rows], [row[column] for row in rows], ":", color=colour, label=law)
    if column == "predicted_crossing":
        low, high = (np.array([row[name] for row in rows]) for name in ("predicted_low", "predicted_high"))
        seen = ax.dataLim.frozen()
        shape = {"color": colour, "alpha": 0.15, "linewidth": 0}
        within = [not row["predicted_censored"] for row in rows]  # elsewhere one end lies beyond the searched range
        ax.fill_between([row[field] for row in rows], low, np.minimum(high, 1e9), where=within, **shape)
        ax.dataLim.set(seen)  # a band that is open above ends at the top of the panel
        ax.autoscale_view()


def draw_ratio(ax: Axes, rows: Sequence[Any], field: str, colour: str) -> None:
    """Draw crossings divided by their predictions, with intervals, for rows whose every size has a prediction."""
    reached = [
        row for row in rows if not (row["censored"] or row["missing_prediction"]) and row["predicted_crossing"] > 0
    ]
    ratios = np.array(
        [[row[name] / row["predicted_crossing"] for name in ("crossing", "low", "high")] for row in reached]
    )
    middle, low, high = ratios.reshape(-1, 3).T
    shape = {**line_style("FedRep"), "color": colour, "linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    ax.errorbar([row[field] for row in reached], middle, yerr=np.maximum([middle - low, high - middle], 0), **shape)
    ax.axhline(1.0, color="black", linewidth=0.7, linestyle=":")
