"""Figures of FLUTE beside FedRep, from tables of `experiments._flute.Comparison`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import plain_ticks
from linfed.study.pages import steps

from ._flute import FLUTE_STEP, TUNED


def curves_figure(table: lf.Table, row: str, told: Callable[[Any], str] = str) -> Any:
    """Return the curves and reference lines: a column for each rank, a row for each value of a column of the table."""
    values = table.values(row)
    with lf.page(table, column="rank", row=row, title="k = {}", height=0.9 + 1.35 * len(values), sharex=True) as sheet:
        for ax, part in sheet:
            lf.curves(ax, part, "round", "error", at=slice(1, None))  # three "trials" whose quantiles are the saved
            for name, line, style in (
                ("oracle", "oracle (exact heads on $U_k$)", (0, (1, 1))),
                ("truncation", "truncation $\\Phi_k$", (0, (5, 2))),
            ):
                shape = {"color": "0.25", "linewidth": 0.8, "linestyle": style, "zorder": 1.5}
                ax.axhline(float(np.median(part.rows[0][name])), label=line, **shape)
            ax.set_xscale("log")
            plain_ticks(ax)
        sheet.label("round", *(f"{told(value)}\nmean client error" for value in values))
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials")
    return sheet.figure


def tuning_figure(table: lf.Table, row: str) -> Any:
    """Return the tuning curves: a row for each value of a column of the table, a column for each of its ranks."""
    tuned = table.where(speed=TUNED)
    ranks = {value: part.values("rank") for value, part in tuned.by(row)}
    turns = tuned.assign(turn=lambda one: ranks[one[row]].index(one["rank"]))
    with lf.page(turns, column="turn", row=row, height=0.9 + 1.35 * len(ranks), sharex=True) as sheet:
        for ax, part in sheet:
            steps(ax, part)
            ax.axvline(FLUTE_STEP, color="0.6", linewidth=0.6, zorder=0)
            ax.set_title(f"k = {part.rows[0]['rank']}")
        sheet.label("step size", *(f"{value}\nscore" for value in ranks))
        told = "mean of $\\log_{10}$ error over rounds, 90 % of the tuning trials lie below"
        sheet.legend(f"{told}; circled: the chosen step; thin line: 0.03")
    return sheet.figure
