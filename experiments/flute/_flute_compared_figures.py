"""FLUTE against FedRep and FedRep (RI), for Figures 1 and 3 of the FLUTE paper: the figures."""

from __future__ import annotations

from typing import Any

import numpy as np

import linfed as lf
from linfed.plotting.panels import steps

from ._flute import FEDREP, FLUTE, FLUTE_STEP, TUNED

NOT_DRAWN = ("least", "least_round", "rounds_to_0.8", "rounds_to_0.99", "length", "diverged")
"""Columns that no figure shows."""


def curves_figure(table: lf.Table, row: str, sharey: str) -> Any:
    """Return the curves and reference lines: a column for each rank, a row for each value of a column of the table.

    The panels of each "row" or "col" have the same vertical axis.
    """
    values = table.unique(row)
    height = 0.9 + 1.35 * len(values)
    with lf.panels(table, column="rank", row=row, title="k = {}", height=height, sharex=True, sharey=sharey) as sheet:
        for ax, part in sheet:
            for method in part.unique("method"):  # three "trials" with the saved quantiles
                band = method in (FLUTE, FEDREP)
                lf.plot_curves(ax, part, "round", "error", at=slice(1, None), order=[method], band=band)
            for name, line, style in (
                ("oracle", "oracle (exact heads on $U_k$)", (0, (1, 1))),
                ("truncation", "truncation $\\Phi_k$", (0, (5, 2))),
            ):
                value = float(np.median(part.rows[0][name]))
                ax.axhline(value, label=line, color="0.25", linewidth=0.8, linestyle=style, zorder=1.5)
            ax.set_xscale("log")
        sheet.label("round", *(f"{value}\nmean client error" for value in values))
        sheet.legend(f"{common(table)}; median of {table.rows[0]['trials']} trials, 10-90 % of FLUTE and FedRep")
    return sheet.figure


def common(table: lf.Table) -> str:
    """Return the sizes that all rows of a table share, without the rank, as text."""
    names = {"d": "dim", "n": "n_clients", "m": "n_samples", "noise variance": "noise_variance"}
    found = {name: table.unique(column) for name, column in names.items()}
    return ", ".join(f"{name} = {values[0]:g}" for name, values in found.items() if len(values) == 1)


def tuning_figure(table: lf.Table, row: str) -> Any:
    """Return the tuning curves: a row for each value of a column of the table, a column for each of its ranks."""
    tuned = table.select(speed=TUNED)
    ranks = {value: part.unique("rank") for value, part in tuned.groupby(row)}
    turns = tuned.assign(turn=lambda one: ranks[one[row]].index(one["rank"]))
    with lf.panels(turns, column="turn", row=row, height=0.9 + 1.35 * len(ranks), sharex=True) as sheet:
        for ax, part in sheet:
            steps(ax, part)
            ax.axvline(FLUTE_STEP, color="0.6", linewidth=0.6, zorder=0)
            ax.set_title(f"k = {part.rows[0]['rank']}")
        sheet.label("step size", *(f"{value}\nscore" for value in ranks))
        caption = "mean of $\\log_{10}$ error over rounds, 90 % of the tuning trials lie below"
        sheet.legend(f"{caption}; circled: the chosen step size; thin line: 0.03")
    return sheet.figure
