"""FLUTE paper, Theorem 5.5: recursion, region, entry time T_R, growth and bound, at the theorem's own step size.

The runs are those of `experiments._flute_followed`. The theorem requires m to grow like ``(1 - eta Delta/16)^(-2T)``;
for a fixed m it covers rounds up to ``T(m) = log m / (-2 log(1 - eta Delta/16))`` (without its other factors). With the
constant of its proof the bound is trivial there: it stays above the error of predicting 0. Therefore the smallest
constant with which the bound holds up to T(m) is reported. It hardly varies with m, but this follows from the
definition of T(m): there the bound has fallen to ``m^-1/2`` of its scale, and so has the floor. The actual behaviour of
the error is the subject of `experiments.flute_rate_and_floor`.

Two lemmas bound the growth before the entry: Lemma A.16 the growth of Theta_k from below, Lemma A.17 the growth of
Theta_res from above. On the population, Lemma A.17 is also judged without its term for the noise of samples.

**Deviations**: Lemma A.16 is judged in the form of its proof, with an additive term
(`linfed.theory.ThetaCoordinates.growth_bound`), because its own form is false where ``sigma_k^2(Theta_k)`` is small.
The fraction in Lemma A.17 follows from its proof, because the text that we have lost it.

Figures
-------
"region" : The three quantities that the theorem's region bounds, against rounds, on the population and on fixed samples
    of the base setting. Lines: median over trials; dashed: the region's bounds; shaded: outside the region. Noise std
    0.5.
"constants" : Smallest constant with which the bound holds in 95 % of the trials up to the round that m covers, for each
    setting, with 95 % intervals. Noise std 0.5.

References: Liu, Shen and Yang 2024, Theorem 5.5, Appendix A.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

import linfed as lf
from linfed.figures.style import PAGE_WIDTH, draw_level, line_style, plain_ticks, shades
from linfed.plotting.panels import Figures, drawn_from
from linfed.theory import flute

from ._flute_followed import (
    ALLOWED,
    BASE,
    FIXED,
    POPULATION,
    RECORDED,
    SPOILT,
    Followed,
    least_constant,
    settings,
    trace_of,
)

SUMMARY = "FLUTE paper, Theorem 5.5: recursion, region, entry, growth and bound, with the smallest constants that hold"
HEADLINES = (
    {
        "claim": "The error stays below 1,600 x the bound of Theorem 5.5 after T_R",
        "wording": "with constants c1, c2 the error falls exponentially for T_R < t <= T; judged with its proof's",
    },
    {"claim": "The constant of Theorem 5.5's proof, 4 x 400, is tight to a factor of 10"},
)
PICTURES = {"region": 1400, "constants": 1400}
REGION = flute.Region._fields  # drawn for the base runs, as deciles along an axis; other columns keep the trials
REDUCED = {
    "runs": {
        "without": lambda row: (
            RECORDED if row["name"] == BASE and row["data"] in (POPULATION, FIXED) else (*RECORDED, *REGION)
        ),
        "deciles": REGION,
        "quantile_axis": True,
    }
}

TITLES = {
    "largest": "$\\sigma_1^2(\\Theta)$ $\\leq 2\\lambda_1'$",
    "rest": "$\\sigma_1^2(\\Theta_{res})$ $\\leq \\lambda_k'-\\Delta/2$",
    "smallest": "$\\sigma_k^2(\\Theta_k)$ $\\geq \\Delta/4$",
}
"""Titles of the panels, with the bounds of the region."""
RANGE = (3e-6, 20.0)
"""Limits of the vertical axes of the three panels."""


def cells(quick: bool) -> dict[str, list[Followed]]:
    """Return the runs, with the negative controls; quick: as many trials, fewer rounds and settings."""
    runs = settings(quick)
    if quick:
        runs = [replace(run, trials=80) for run in runs if run.name != "k = 4" or run.data == POPULATION]
    return {"runs": runs}


def region_bounds(one: lf.Table) -> dict[str, float]:
    """Return the bounds of the region in a setting, from its singular values: ``lambda' = 2 lambda``."""
    values, gap = 2.0 * one["singular_value"], one["gap"]
    return {"largest": 2.0 * values[0], "rest": values[one["rank"] - 1] - gap / 2.0, "smallest": gap / 4.0}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the region, and the smallest constants."""
    import matplotlib.pyplot as plt

    table = tables["runs"]
    base = table.select(name=BASE, data=[POPULATION, FIXED])
    looks = shades(sorted({m for m in base.unique("n_samples") if m}))
    last = max(one["round"][-1] for one in base)
    region, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.5), layout="constrained")
    bounds = region_bounds(next(iter(base)))
    for ax, (name, title) in zip(axes, TITLES.items(), strict=True):
        bound = bounds[name]
        for one in base:
            shape = {"color": looks[one["n_samples"]][0]} if one["n_samples"] else {"color": "black", "zorder": 3}
            line = "-" if one["n_samples"] else ":"
            ax.plot(one["round"], np.median(one[name], axis=0), line, label=one["setting"], linewidth=1.2, **shape)
        draw_level(ax, bound, label="the region's bound")
        ax.axhspan(*((bound, 1e9) if name != "smallest" else (1e-9, bound)), color="0.94", zorder=0)
        ax.set(yscale="log", xscale="log", xlabel="round", title=title, xlim=(30, last), ylim=RANGE)
        ax.tick_params(labelleft=ax is axes[0])
        plain_ticks(ax)
    shape = {"loc": "outside upper center", "title": f"median of {base.rows[0]['trials']} trials; shaded: outside"}
    region.legend(*axes[0].get_legend_handles_labels(), ncols=3, **shape)
    rows = list(table.select(step_factor=1.0))
    constants, ax = plt.subplots(figsize=(PAGE_WIDTH, 0.5 + 0.17 * len(rows)), layout="constrained")
    for position, one in enumerate(reversed(rows)):
        estimate, low, high = least_constant(one)
        above = math.isinf(high)  # too few trials: an arrow
        reach = estimate if above else max(0.0, high - estimate)
        shape = line_style("FLUTE") | {"linestyle": "none", "capsize": 2}
        ax.errorbar([estimate], [position], xerr=[[max(0.0, estimate - low)], [reach]], xlolims=above, **shape)
    ax.set_yticks(range(len(rows)), [one["setting"] for one in reversed(rows)])
    xlabel = "least constant with which the bound holds up to the covered round, in 95 % of trials"
    ax.set(xscale="log", xlabel=xlabel)
    plain_ticks(ax)
    return {"region": drawn_from(region, base), "constants": drawn_from(constants, table.select(step_factor=1.0))}


def claims(tables: dict[str, lf.Table]) -> list[lf.Finding]:
    """Judge the theorem's statements."""
    table = tables["runs"]
    found, beyond, constants = [], [], []
    for one in table:
        trace, until = trace_of(one), one["covered"]
        start = flute.init_hypothesis(one["alpha"], one["dim"])
        fields = {"setting": one["setting"], "allowed": ALLOWED, "hypotheses": (start,)}
        note = "" if until == math.inf else "up to the round that m covers"
        region = fields | {"theorem": one["data"] == POPULATION}
        found += [
            flute.judge_rate(trace, constant=4.0 * flute.PROOF_CONSTANT, until=until, note=note, **fields),
            flute.judge_recursion(trace, one["setting"]),
            flute.judge_entry(trace, **region),
            flute.judge_staying(trace, **region),
            flute.judge_growth(trace, one["setting"]),
            flute.judge_rest(trace, one["setting"], allowed=ALLOWED),
        ]
        if one["data"] == POPULATION:
            found.append(flute.judge_rest(trace, one["setting"], allowed=ALLOWED, extra=False))
        if one["name"] == BASE and one["data"] == FIXED and until < trace.rounds[-1]:
            coverage = f"m = {one['n_samples']:,} covers {until:,.0f} rounds"
            beyond.append(flute.judge_beyond(trace, until=until, note=coverage, **fields))
        if one["name"] not in SPOILT:
            constants.append(flute.judge_constant(trace, until=until, **fields))
    least = [finding.estimate for finding in constants]
    moved = (
        f"it moves from {min(least):.2g} to {max(least):.2g} over these settings; that it hardly moves with m "
        "is by the definition of the covered round: the bound falls to m^-1/2 of its scale there, as the floor does"
    )
    return found + beyond + [replace(finding, note=moved) for finding in constants]
