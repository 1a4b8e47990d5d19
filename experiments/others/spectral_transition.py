"""Spectral estimators: the smallest number of samples with which they find the representation, against n and d.

`lf.find_smallest` finds the smallest m with which half of the estimates have a distance of at most 0.95 from B*, for
k = 4. With noise 1, n varies at d = 100, or n = d varies. At d = 100 the noise also grows with n, such that the
transition of the local averages stays at the same m. The experiment `estimators` has the distances.

Spectral estimators lose the weakest direction of ``Gamma = (1/n) sum_i w_i w_i'`` at a transition, which
`linfed.theory.spectral_floor` predicts (its `ratio` is 1 there). With lambda the smallest eigenvalue of Gamma and
``s^2 = ||w||^2 + sigma^2``, local averages need ``n m^2 lambda^2 > d s^4`` for large m (Niu et al. state this), and so
does the U-statistic. The moments need ``n m lambda^2 > (3/4) d s^4``: only the total number of samples counts. The
prediction of the distance has no fitted parameter. It assumes that the noise has the spectrum of a large matrix with
independent entries, which holds for large d and n/d.

**Deviations**: the sizes and the distance are ours. Heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``.

Figures
-------
"" : Smallest m with which half of the estimates have a distance of at most 0.95: against clients, against n = d, and
    against clients with growing noise. Bars: 95 % intervals; open triangles: bounds. Dotted: prediction without a
    fitted parameter; dashed: transition of the local averages and of the moments.

References: Niu, Su, Xu and Yang 2024; Duchi, Feldman, Hu and Talwar 2022; Tripuraneni, Jin and Jordan 2021;
Benaych-Georges and Nadakuditi 2011.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import linfed as lf
from linfed.figures.style import PAGE_WIDTH, same_scale
from linfed.plotting.panels import Figures, drawn_from
from linfed.statistics import judge_exponent
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge

from ..shared.smallest import FIXED
from ..shared.smallest_drawn import draw_measured, label_axes, legend_entries
from ..shared.smallest_judged import MARGIN, chosen, over
from ..shared.spectral import AVERAGES, COLOURS, MOMENTS, SPECTRAL, Estimates

SUMMARY = "spectral estimators: the smallest m with which they find B*, against n and d, and its predicted transition"
PICTURES = {"": 1400}
REDUCED = {"samples": {"without": ("margin", "reached", "count")}}

PANELS = {"n": "clients n", "d": "dimension d, with n = d", "noise": "clients n, with growing noise"}
NEAR = 1.25
"""The claimed accuracy of the predicted m, as a factor."""


def cells(quick: bool) -> dict[str, list[Estimates]]:
    """Return the searches of all estimators; quick: the moments and local averages, few trials and sizes."""
    base = Estimates(panel="n", samples=FIXED, n_clients=100, dim=100, rank=4, noise_std=1.0, delta=0.95, start=8)
    methods: tuple[str, ...] = SPECTRAL
    clients, dims, multiples = (25, 50, 100, 200, 400), (25, 50, 100, 200, 400), (1, 4, 16)
    if quick:
        base = replace(base, dim=60, trials=24, resolution=0.2)
        methods, clients, dims, multiples = (MOMENTS, AVERAGES), (20, 160), (60,), ()
    found = [replace(base, n_clients=n) for n in clients]
    found += [replace(base, panel="d", n_clients=d, dim=d) for d in dims]
    for multiple in multiples:
        noise = ((base.rank + base.noise_std**2) * multiple**0.5 - base.rank) ** 0.5
        found.append(replace(base, panel="noise", n_clients=multiple * base.dim, noise_std=noise))
    return {"samples": [replace(one, method=name) for one in found for name in methods]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest m against the clients, and against n = d."""
    import matplotlib.pyplot as plt

    table = tables["samples"]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(PAGE_WIDTH, 3.0), layout="constrained", sharey=True)
    for ax, (panel, text) in zip(axes, PANELS.items(), strict=True):
        for name, part in table.select(panel=panel).groupby("method"):
            rows = sorted(part.rows, key=lambda row: row["n_clients"])
            draw_measured(ax, rows, "n_clients", name, "predicted", "estimated", COLOURS[name])
            if name in (MOMENTS, AVERAGES):
                x, y = ([row[column] for row in rows] for column in ("n_clients", "transition"))
                ax.plot(x, y, "--", color=COLOURS[name], linewidth=0.8, label="transition")
        if not table.select(panel=panel):
            ax.text(0.5, 0.9, "not run", ha="center", transform=ax.transAxes)
        label_axes(ax, [row["n_clients"] for row in table.select(panel=panel).rows], text)
    same_scale(list(axes))
    axes[0].set_ylabel("smallest m")
    figure.legend(*legend_entries(axes), loc="outside upper center", ncols=4)
    return {"": drawn_from(figure, table)}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the exponents of the smallest m, and its predictions."""
    known = chosen(tables["samples"], lambda row: not row["censored"])
    return [*exponents(known.select(panel="n")), *predictions(known.select(panel=["d", "noise"]))]


def exponents(table: lf.Table) -> Iterator[Finding]:
    """Judge the exponent of the smallest m in the number of clients."""
    for name, part in table.groupby("method"):
        sizes = sorted(row["n_clients"] for row in part.rows)
        if len(sizes) < 2:
            continue
        claimed = -1.0 if name == MOMENTS else -0.5
        law = "one over the clients" if name == MOMENTS else "one over the root of the clients"
        yield judge_exponent(
            lf.fit_power_law("m ~ n^a", part).exponents["a"],
            claimed,
            kind="equal",
            margin=0.15,
            claim=f"{name.capitalize()}: the smallest m falls like {law}",
            setting=f"d = {part.rows[0]['dim']}, n = {sizes[0]} to {sizes[-1]}",
            source=OWN_PREDICTION.adding(MARGIN),
            theorem=False,
        )


def predictions(table: lf.Table) -> Iterator[Finding]:
    """Judge the predicted smallest m at the largest n = d, and at the largest n with growing noise."""
    for (name, _), part in table.groupby("method", "panel"):
        row: dict[str, Any] = max(part.rows, key=lambda row: row["n_clients"])
        yield judge(
            over(row, row["estimated"]),
            claim=f"{name.capitalize()}: the smallest m is the predicted one",
            setting=f"d = {row['dim']}, n = {row['n_clients']:,}, noise std {row['noise_std']:.2g}",
            statistic="smallest m divided by the predicted m",
            source=OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}"),
            claimed_low=1 / NEAR,
            claimed_high=NEAR,
            detail=f"{row['crossing']:.2f} against {row['estimated']:.2f}",
        )
