"""FedRep on one fixed data set per client: how many samples a run needs, against n, d and k.

The smallest m with which half of the runs go from distance 0.9 to 0.01 in 100 rounds on fixed samples without noise, at
the theorem's step size, found by `lf.find_smallest`. It is compared with the prediction from the Marchenko-Pastur
distribution (`linfed.theory.fixed_samples_needed`), which has no fitted parameter, and with a count of equations and
unknowns.

**Deviations**: the FedRep paper draws fresh samples in every round.

Figures
-------
"" : Smallest m with which half of the runs go from distance 0.9 to 0.01 on fixed samples, against clients, dimension
    and rank. Dotted: prediction from the Marchenko-Pastur distribution; dashed: m with as many equations as unknowns.

References: Marchenko and Pastur 1967; Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import linfed as lf
from linfed.figures.style import PAGE_WIDTH, same_scale
from linfed.plotting.panels import Figures, drawn_from
from linfed.statistics.findings import Finding

from ..shared.smallest import FIXED, THEOREM, Need, base_setting, settings
from ..shared.smallest_drawn import COLOURS, draw_measured, label_axes, legend_entries, panels_on_axis
from ..shared.smallest_judged import judge_predicted

SUMMARY = "FedRep on fixed samples: the smallest m against n, d and k, with its Marchenko-Pastur prediction"
PICTURES = {"": 1400}
REDUCED = {"fixed": {"without": ("margin", "reached", "count")}}

FIXED_IN: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "n": ("n_clients", (10, 40, 80), 40, "clients n"),
    "d": ("dim", (20, 40, 160), 40, "dimension d"),
    "k": ("rank", (1, 4), 4, "rank k"),
}


def cells(quick: bool) -> dict[str, list[Need]]:
    """Return the searches; quick: the base setting and one other, at a low resolution."""
    base = replace(base_setting(quick), trials=32, samples=FIXED, n_clients=20, dim=60, rank=2, rounds=100, start=8)
    return {"fixed": settings(FIXED_IN, base, ("n",) if quick else None)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest m against each size, with its prediction and the count of unknowns."""
    import matplotlib.pyplot as plt

    table = tables["fixed"]
    figure, axes = plt.subplots(1, len(FIXED_IN), figsize=(PAGE_WIDTH, 2.6), layout="constrained", sharey=True)
    for ax, (panel, (field, *_, text)) in zip(axes, FIXED_IN.items(), strict=True):
        rows = sorted(table.select(panel=panels_on_axis(panel)).rows, key=lambda row: row[field])
        draw_measured(ax, rows, field, "measured", "predicted: Marchenko-Pastur law", "spectral", COLOURS[THEOREM])
        sizes = [row[field] for row in rows]
        counted = [row["rank"] + (row["dim"] - row["rank"]) * row["rank"] / row["p"] for row in rows]
        ax.plot(sizes, counted, "--", color="0.5", label="as many equations as unknowns")
        label_axes(ax, sizes, text)
    same_scale(list(axes))
    axes[0].set_ylabel(f"smallest m, {table.rows[0]['rounds']} rounds")
    figure.legend(*legend_entries(axes), loc="outside upper center", ncols=3)
    return {"": drawn_from(figure, table)}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge how far the prediction is off in the worst setting."""
    text = "The Marchenko-Pastur distribution predicts the smallest m on fixed samples"
    return [judge_predicted(tables["fixed"], "spectral", text=text, most=1.15)]
