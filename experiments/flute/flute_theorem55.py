"""FLUTE paper, Theorem 5.5: recursion, region, entry time T_R, growth and bound, at the theorem's own step size.

The runs are those of `experiments.flute._flute_followed`. The theorem requires m to grow like
``(1 - eta Delta/16)^(-2T)``; for a fixed m it covers rounds up to ``T(m) = log m / (-2 log(1 - eta Delta/16))``
(without its other factors). The proof's constant is 4 x 400 if rounds are counted from T_R, and larger by
``(1 - eta Delta/16)^(-T_R)`` from round 0. Already with 4 x 400 from round 0 the bound is trivial up to T(m): it stays
above the error of predicting 0. Therefore the smallest constant with which the bound holds up to T(m) is reported. It
hardly varies with m, but this follows from the definition of T(m): there the bound has fallen to ``m^-1/2`` of its
scale, and so has the floor. The actual behaviour of the error is the subject of
`experiments.flute.flute_rate_and_floor`.

Two lemmas bound the growth before the entry: Lemma A.16 the growth of Theta_k from below, Lemma A.17 the growth of
Theta_res from above. On the population, Lemma A.17 is also judged without its term for the noise of samples.

**Deviations**: Lemma A.16 is judged in the form of its proof, with an additive term
(`linfed.theory.ThetaCoordinates.growth_bound`), because its own form is false where ``sigma_k^2(Theta_k)`` is small.
The fraction in Lemma A.17 follows from its proof, because the text that we have lost it.

References: Liu, Shen and Yang 2024, Theorem 5.5, Appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import draw_level, line_style, shades
from linfed.plotting.panels import Figures
from linfed.statistics import Origin
from linfed.theory import flute

from ._flute_followed import (
    ALLOWED,
    BASE,
    FIXED,
    FRESH,
    NAMES,
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
        "wording": "with constants c1, c2 the error falls exponentially for T_R < t <= T; judged with less than its "
        "proof's",
    },
    {"claim": "Theta enters the region R by round T_R"},
)
CAPTIONS = {
    "region": "The three quantities that the theorem's region bounds, against rounds, on the population and on fixed "
    "samples of the base setting. Lines: median over trials; dashed: the region's bounds; shaded: outside the region. "
    "Noise std 0.5.",
    "constants": "Smallest constant with which the bound holds in 95 % of the trials up to the round that m covers, "
    "for each setting, with 95 % intervals. Noise std 0.5.",
}
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

RATE = c.reading("FLUTE paper, Theorem 5.5")
RECURSION = c.reading("FLUTE paper, Appendix A.1, equation (13)")
ENTERS = c.cite(
    "FLUTE paper, Proposition A.2", "will enter region R for some t [...] T_R", asked_of="an alpha of Theorem 5.1"
)
"""The proposition assumes an alpha so small that Claim A.3 holds; see `experiments.flute.flute_start`."""
STAYS = c.cite("FLUTE paper, proof of Theorem 5.5, step 2", "once Theta_t enters this region, it will stay in it")
FEWER = "with m samples this is not claimed: the proof requires more, by a factor with an unnamed constant"
GROWS = c.reading("FLUTE paper, proof of Lemma A.8, intermediate result of Lemma A.16")
REST = c.reading("FLUTE paper, Lemma A.17, with the factor of its proof")

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
    base = tables["runs"].select(name=BASE, data=[POPULATION, FIXED])
    looks = shades(sorted({m for m in base.unique("n_samples") if m}))
    last, bounds = max(one["round"][-1] for one in base), region_bounds(next(iter(base)))
    with lf.panels(base, column=3, height=2.5) as region:
        for ax, (name, title) in zip(region.axes[0], TITLES.items(), strict=True):
            bound = bounds[name]
            for one in base:
                shape = {"color": looks[one["n_samples"]][0]} if one["n_samples"] else {"color": "black", "zorder": 3}
                line = "-" if one["n_samples"] else ":"
                ax.plot(one["round"], np.median(one[name], axis=0), line, label=one["setting"], linewidth=1.2, **shape)
            draw_level(ax, bound, label="the region's bound")
            ax.axhspan(*((bound, 1e9) if name != "smallest" else (1e-9, bound)), color="0.94", zorder=0)
            ax.set_title(title)
            ax.tick_params(labelleft=ax is region.axes[0, 0])
        region.label("round", yscale="log", xscale="log", xlim=(30, last), ylim=RANGE)
        region.legend(f"median of {base.rows[0]['trials']} trials; shaded: outside", ncols=3)
    judged = tables["runs"].select(step_factor=1.0)
    with lf.panels(judged, height=0.5 + 0.17 * len(judged)) as constants:
        ax, rows = constants.axes[0, 0], list(judged)[::-1]
        for position, one in enumerate(rows):
            estimate, low, high = least_constant(one)
            above = math.isinf(high)  # too few trials: an arrow
            reach = estimate if above else max(0.0, high - estimate)
            shape = line_style("FLUTE") | {"linestyle": "none", "capsize": 2}
            ax.errorbar([estimate], [position], xerr=[[max(0.0, estimate - low)], [reach]], xlolims=above, **shape)
        ax.set_yticks(range(len(rows)), [one["setting"] for one in rows])
        xlabel = "smallest constant with which the bound holds up to the covered round, in 95 % of trials"
        constants.label(xlabel, xscale="log")
    return {"region": region.figure, "constants": constants.figure}


# --- claims --------------------------------------------------------------------------------------------------


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return the runs except the negative controls, with the range of their smallest constants."""
    runs = tables["runs"].select(name=[name for name in NAMES if name not in SPOILT])
    found = [least_constant(one)[0] for one in runs]
    return {"constants": runs.assign(least=lambda _: min(found), most=lambda _: max(found))}


def failing(judge: Callable[..., c.Finding], *, covered: bool = False, **options: Any) -> c.Statistic:
    """Return the share of trials that fail, by a judge that may need the round that m covers."""

    def judged(row: lf.Table, **fields: Any) -> c.Finding:
        until = {"until": row["covered"]} if covered else {}
        return judge(trace_of(row), allowed=ALLOWED, **until, **options, **fields)

    return c.Statistic("share of trials that fail", judged, c.at_most(ALLOWED))


def start(row: lf.Table) -> tuple[c.Hypothesis, ...]:
    """Return the hypothesis on the initialisation."""
    return (flute.init_hypothesis(row["alpha"], row["dim"]),)


def range_note(row: lf.Table) -> str:
    """Return the range of the smallest constants."""
    return (
        f"it moves from {row['least']:.2g} to {row['most']:.2g} over these settings; that it hardly moves with m "
        "is by the definition of the covered round: the bound falls to m^-1/2 of its scale there, as the floor does"
    )


Asked = partial(c.Claim, table="runs", over=c.each_row, setting="{setting}")
SAMPLES = c.of(data=[FIXED, FRESH])
ON_POPULATION = c.of(data=POPULATION)
CLAIMS = (
    *(
        Asked(
            f"The error stays below {4.0 * flute.PROOF_CONSTANT:,g} x the bound of Theorem 5.5 after T_R",
            RATE if where is ON_POPULATION else c.Source(f"{RATE}; {FEWER}", Origin.CONJECTURE),
            failing(flute.judge_rate, covered=True, constant=4.0 * flute.PROOF_CONSTANT),
            where=where,
            hypotheses=start,
            note=lambda row: "" if row["covered"] == math.inf else "up to the round that m covers",
            theorem=where is ON_POPULATION,
        )
        for where in (ON_POPULATION, SAMPLES)
    ),
    Asked(
        "The Theta recursion (13) is an identity",
        RECURSION,
        c.identity(
            lambda row: row["identity"], "largest relative difference of its two sides", flute.IDENTITY_TOLERANCE
        ),
    ),
    *(
        Asked(
            sentence,
            source if where is ON_POPULATION else c.Source(f"{source}; {FEWER}", Origin.CONJECTURE),
            failing(judge),
            where=where,
            hypotheses=start,
            theorem=where is ON_POPULATION and source is STAYS,
        )
        for sentence, source, judge in (
            ("Theta enters the region R by round T_R", ENTERS, flute.judge_entry),
            ("Once entered, the region R is not left", STAYS, flute.judge_staying),
        )
        for where in (ON_POPULATION, SAMPLES)
    ),
    Asked(
        "After a round sigma_k^2(Theta_k) is at least the lower bound from the proof of Lemma A.16",
        GROWS,
        c.Statistic(
            "largest excess of the lower bound, relative to sigma_k^2 before the round",
            lambda row, **fields: flute.judge_growth(trace_of(row), **fields),
            c.at_most(flute.IDENTITY_TOLERANCE),
        ),
    ),
    Asked("sigma_1(Theta_res) grows at most by the factor of Lemma A.17 a round", REST, failing(flute.judge_rest)),
    Asked(
        "sigma_1(Theta_res) grows at most by the factor of Lemma A.17 a round, even without its term for samples",
        c.OWN_PREDICTION.adding("Lemma A.17 of the FLUTE paper has Delta/8 more, for the noise of samples", ": "),
        failing(flute.judge_rest, extra=False),
        where=ON_POPULATION,
        theorem=False,
    ),
    Asked(
        "The bound continues to hold beyond the round that m covers (not claimed by the theorem)",
        c.Source("not claimed: beyond the theorem", Origin.CONJECTURE),
        failing(flute.judge_beyond, covered=True),
        where=(c.of(name=BASE, data=FIXED), c.only(lambda row: row["covered"] < row["round"][-1])),
        hypotheses=start,
        note=lambda row: (
            f"m = {row['n_samples']:,} covers {row['covered']:,.0f} rounds; every error above 0 ends above "
            "a bound that tends to 0"
        ),
        theorem=False,
    ),
    c.Claim(
        f"The constant 4 x {flute.PROOF_CONSTANT:g} in Theorem 5.5's bound is tight to a factor of 10",
        c.OWN_THRESHOLD.adding(
            "the theorem says that there is a constant, not that its proof's is tight, which is even larger", ": "
        ),
        c.measured(
            f"smallest constant with which the bound holds in {100 * (1 - ALLOWED):g} % of trials, "
            "to the covered round",
            least_constant,
            c.within(0.4 * flute.PROOF_CONSTANT, 4.0 * flute.PROOF_CONSTANT),
        ),
        table="constants",
        over=c.each_row,
        setting="{setting}",
        hypotheses=lambda row: (flute.step_hypothesis(trace_of(row)), *start(row)),
        note=range_note,
    ),
)
