"""FLUTE at the step size of Theorem 5.5: rate and floor of its error, against predictions without fitted parameters.

The runs are those of `experiments.flute._flute_followed`, without the negative controls. The predictions are the rate
of the derivative, ``1 - eta Delta / 2`` (`linfed.theory.flute_local_rate`), and the floor to first order
(`linfed.theory.truncation_floor`), on one data set and on fresh samples. The floor is a root mean square over clients,
and is compared with the measured root mean square; the theorem's error is a mean over clients. The theorem's bound is
drawn with the smallest constant with which it holds. Its proof takes fresh samples in every round; they are compared
with the reused samples of Algorithm 1. The competitor of the predicted gain is the rule that the error is averaged over
``4 / (eta Delta)`` rounds.

References: Liu, Shen and Yang 2024, Theorem 5.5, Appendix A.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import shades
from linfed.plotting.panels import Figures
from linfed.theory import flute

from ._flute_followed import ALLOWED, BASE, FIXED, FRESH, POPULATION, RECORDED, SPOILT, Followed, settings, trace_of

SUMMARY = "FLUTE at Theorem 5.5's step size: predicted rate and floor of its error, and fresh against reused samples"
HEADLINES = ({"claim": "Reused samples cost no more than fresh ones (the proof treats them as fresh)"},)
CAPTIONS = {
    "": "Error against rounds on fixed and on fresh samples, and on the population. Dotted: predicted rate; short "
    "dashes: predicted floors, which are root mean squares over clients; long dashes: the theorem's bound with each "
    "run's own smallest constant, up to the round that its m covers. Lines: median over trials; shaded: 10-90 %. "
    "Noise std 0.5."
}
PICTURES = {"": 1400}
FOLLOWED = (*RECORDED, *flute.Region._fields)
REDUCED = {
    "runs": {  # the figures show the errors of the base runs, and all columns of the population
        "without": lambda row: (
            ()
            if (row["name"], row["data"]) == (BASE, POPULATION)
            else [one for one in FOLLOWED if row["name"] != BASE or one != "error"]
        )
    }
}


def data_title(kind: str) -> str:
    """Return the title of a kind of data."""
    return "one fixed data set (the algorithm)" if kind == FIXED else "fresh samples every round (the proof)"


def cells(quick: bool) -> dict[str, list[Followed]]:
    """Return the runs without the negative controls; quick: few and short, but long enough to reach the floor."""
    runs = [run for run in settings(quick) if run.name not in SPOILT]
    return {"runs": [replace(run, n_rounds=3 * run.n_rounds) for run in runs if run.name == BASE] if quick else runs}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the errors on each kind of data and on the population, with the bound, the predicted rate and floors."""
    base = tables["runs"].select(name=BASE)
    looks = shades(sorted({m for m in base.unique("n_samples") if m}))
    population, last = base.select(data=POPULATION), base.select(data=FIXED)["round"][-1]
    trace = trace_of(population)
    spectrum, entry, entered = trace.spectrum[0], trace.entry.min(), float(np.median(trace.entry))
    t = np.linspace(entry, last, 50)
    start = float(np.interp(t[0], trace.rounds, np.median(trace.error, axis=0)))
    local = start * flute.flute_local_rate(spectrum, trace.rank, trace.step_size) ** (t - t[0])
    with lf.panels(base.select(data=[FIXED, FRESH]), column="data", title=data_title, height=3.3, sharey=True) as sheet:
        sheet.label("round", "mean distance from the truncation", yscale="log", ylim=(1e-8, 2), xlim=(0, last))
        for ax, part in sheet:
            for one in population + part:
                size = f"m = {one['n_samples']:,}" if one["n_samples"] else POPULATION
                colour = looks[one["n_samples"]][0] if one["n_samples"] else "black"
                low, middle, high = np.quantile(one["error"], (0.1, 0.5, 0.9), axis=0)
                ax.plot(one["round"], middle, color=colour, label=size)
                ax.fill_between(one["round"], low, high, color=colour, alpha=0.2, linewidth=0)
                text = "_bound" if one["n_samples"] else "the bound"
                ax.plot(*bound(one, trace), label=text, color=colour, linewidth=0.7, linestyle=(0, (6, 2)))
                if one["data"] != POPULATION and "floor" in one.columns:
                    ends, level = np.array([0.62, 1.0]) * one["round"][-1], float(np.median(one["floor"]))
                    text = "floor (root mean square), predicted"
                    ax.plot(ends, [level] * 2, label=text, color="black", linewidth=0.8, linestyle=(0, (2, 1.5)))
            ax.plot(t, local, linestyle=":", label="rate $1-\\eta\\Delta/2$, predicted", color="0.45", linewidth=1.0)
            ax.axvline(entered, color="0.7", linewidth=0.8, zorder=0)
            ax.annotate("$T_R$", (entered, 1.0), xytext=(3, 0), textcoords="offset points")
        caption = "the bound: with each run's own least constant, up to the round that its m covers"
        sheet.legend(f"median and 10-90 % of {base.rows[0]['trials']} trials; {caption}", ncols=4)
    return {"": sheet.figure}


def bound(one: lf.Table, population: flute.FluteTrace) -> tuple[Any, Any]:
    """Return the rounds that the theorem covers, and its bound with the smallest constant that holds in them.

    The run has the setting of the population's, whose trace supplies everything except rounds, error and entry time.
    """
    trace = replace(population, rounds=one["round"], error=one["error"], entry=one["entry"])
    rounds = trace.rounds[(trace.rounds > trace.entry.min()) & (trace.rounds <= one["covered"])]
    scale = flute.flute_bound(trace.spectrum[0], trace.rank, trace.step_size, trace.n_clients, rounds)
    constant, _, _ = flute.least_constant(trace, allowed=ALLOWED, until=one["covered"])
    return rounds, constant * scale


# --- claims --------------------------------------------------------------------------------------------------


def judge_local_rate(row: lf.Table, **fields: Any) -> c.Finding | None:
    """Judge the rate near the truncation; runs that do not come near it do not count."""
    trace = trace_of(row)
    return flute.judge_local_rate(trace, **fields) if trace.near.any() else None


def judge_floor(row: lf.Table, **fields: Any) -> c.Finding:
    """Judge the final error against the predicted floor."""
    return flute.judge_floor(row["rms"], row["floor"], fresh=row["data"] == FRESH, **fields)


def judge_fresh(fresh: lf.Table, reused: lf.Table, **fields: Any) -> c.Finding:
    """Judge whether reused samples cost more than fresh ones."""
    return flute.judge_fresh(trace_of(fresh), trace_of(reused), **fields)


def judge_gain(fresh: lf.Table, reused: lf.Table, **fields: Any) -> c.Finding:
    """Judge the gain of fresh samples against the ratio of the predicted floors."""
    return flute.judge_gain(trace_of(fresh), trace_of(reused), reused["floor"] / fresh["floor"], **fields)


def judge_rule(fresh: lf.Table, reused: lf.Table, **fields: Any) -> c.Finding:
    """Judge the gain of fresh samples against an average over ``4 / (eta Delta)`` rounds."""
    trace = trace_of(fresh)
    averaged = 2.0 / np.sqrt(trace.step_size * flute.flute_gap(trace.spectrum, trace.rank))
    return flute.judge_gain(trace, trace_of(reused), averaged, **fields)


def fresh_and_reused(table: lf.Table) -> Iterator[tuple[lf.Table, lf.Table]]:
    """Yield each run on fresh samples with the run on one data set of the same size."""
    for fresh in table.select(data=FRESH):
        reused = table.select(name=BASE, data=FIXED, n_samples=fresh["n_samples"])
        if len(reused):
            yield fresh, reused


RATE = "measured log rate divided by the predicted one, median over trials"
FLOOR = "root mean square of the final error, over clients and trials, divided by the predicted one"
GAIN = "ratio of the root mean squares, over clients and trials, divided by the predicted one"
REUSED = "error with fresh samples divided by error with one data set, median over trials"
Predicted = partial(c.Claim, over=c.each_row, setting="{setting}", theorem=True)
Compared = partial(c.Claim, over=fresh_and_reused, setting="{setting}")
CLAIMS = (
    Predicted(
        "Near the truncation the error falls by the factor 1 - eta Delta / 2 a round",
        c.OWN_PREDICTION.adding(f"the 1 % is {c.OWN_THRESHOLD}"),
        c.Statistic(RATE, judge_local_rate),
        c.within(0.99, 1.01),
        where=c.of(data=POPULATION),
    ),
    Predicted(
        "With m fixed the final error is the floor that perturbation of the truncation predicts",
        c.OWN_PREDICTION.adding(f"the range is {c.OWN_THRESHOLD}"),
        c.Statistic(FLOOR, judge_floor),
        c.within(0.95, 1.05),
        where=c.of(data=FIXED),
    ),
    Predicted(
        "On fresh samples the final error is the predicted stationary one",
        c.OWN_PREDICTION.adding(f"the range is {c.OWN_THRESHOLD}"),
        c.Statistic(FLOOR, judge_floor),
        c.within(0.95, 1.05),
        where=c.of(data=FRESH),
    ),
    Compared(
        "Fresh samples reduce FLUTE's final error by the ratio of the two predicted floors",
        c.OWN_PREDICTION.adding(f"the 7 % is {c.OWN_THRESHOLD}"),
        c.Statistic(GAIN, judge_gain),
        c.within(0.93, 1.07),
    ),
    Compared(
        "Fresh samples reduce FLUTE's final error by sqrt(4 / (eta Delta)), the average over 4 / (eta Delta) rounds",
        c.Source("not claimed: the simplest rival of the claim above", c.OWN_CONJECTURE.origin).adding(
            f"the 7 % is {c.OWN_THRESHOLD}"
        ),
        c.Statistic(GAIN, judge_rule),
        c.within(0.93, 1.07),
    ),
    Compared(
        "Reused samples cost no more than fresh ones (the proof treats them as fresh)",
        c.Source(
            "not claimed: the proof of the FLUTE paper's Theorem 5.5 only treats samples as fresh",
            c.OWN_CONJECTURE.origin,
        ),
        c.Statistic(REUSED, judge_fresh),
        c.at_least(1.0),
    ),
)
