"""FLUTE at the step of Theorem 5.5: how fast the error falls and where it ends, beside predictions that are not fitted.

The runs are those of `experiments._flute_followed`, without the two that are there to be found out. What stands beside
them has no free parameter: the derivative's rate ``1 - eta Delta / 2`` (`linfed.theory.flute_local_rate`) and the floor
to first order (`linfed.theory.truncation_floor`). The theorem's bound is drawn with the least constant that passes; its
proof takes fresh samples in every round, which are held against the reused ones of Algorithm 1.

References: Liu, Shen and Yang 2024, Theorem 5.5, Appendix A.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, judge
from linfed.statistics.intervals import median_interval
from linfed.study.pages import Figures
from linfed.theory import flute

from ._flute_followed import (
    BASE,
    FEW,
    FIXED,
    FRESH,
    LARGE_STEP,
    POPULATION,
    Followed,
    least_constant,
    settings,
    trace_of,
)

SUMMARY = "FLUTE at Theorem 5.5's step: the rate and the floor of its error, predicted, and fresh against reused data"

COLOURS = {0: "black", 100: "#0072B2", 1_000: "#009E73", 10_000: "#E69F00", 1_000_000: "#D55E00"}
"""Of each number of samples; 0 at the population."""
KINDS = {FIXED: "one fixed data set (the algorithm)", FRESH: "fresh samples every round (the proof)"}


def cells(quick: bool) -> dict[str, list[Followed]]:
    """Return the runs in which the theorem's conditions hold and m is not too small."""
    return {"runs": [run for run in settings(quick) if run.name not in (LARGE_STEP, FEW)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return the errors against the theorem."""
    base = tables["runs"].where(name=BASE)
    with lf.page(base.where(data=[FIXED, FRESH]), column="data", title=KINDS.get, height=3.3, sharey=True) as sheet:
        last = base.where(data=FIXED)["round"][-1]
        sheet.label("round", "mean distance from the truncation", yscale="log", ylim=(1e-8, 2), xlim=(0, last))
        for ax, part in sheet:
            _errors(ax, base.where(data=POPULATION), part, last)
        sheet.legend(f"median and 10-90 % of {base.rows[0]['trials']} trials", ncols=4)
    return {"": sheet.figure}


def _errors(ax: Any, population: lf.Table, part: lf.Table, last: int) -> None:
    """Draw the errors on one kind of data beside those at the population, the bound, the predicted rate and floors."""
    for one in population + part:
        told = f"m = {one['n_samples']:,}" if one["n_samples"] else POPULATION
        low, middle, high = np.quantile(one["error"], (0.1, 0.5, 0.9), axis=0)
        ax.plot(one["round"], middle, color=COLOURS[one["n_samples"]], label=told)
        ax.fill_between(one["round"], low, high, color=COLOURS[one["n_samples"]], alpha=0.2, linewidth=0)
        if one["data"] == FIXED:
            ends, level = np.array([0.62, 1.0]) * one["round"][-1], float(np.median(one["floor"]))
            told = "floor, predicted" if one["n_samples"] == 100 else "_floor"
            ax.plot(ends, [level] * 2, color="black", linewidth=0.8, linestyle=(0, (2, 1.5)), label=told)
    trace, grey = trace_of(population), {"color": "0.45", "linewidth": 1.0}
    spectrum, entry, middle = trace.spectrum[0], trace.entry.min(), float(np.median(trace.entry))
    after = trace.rounds[trace.rounds > entry]
    bound = flute.flute_bound(spectrum, trace.rank, trace.step_size, trace.n_clients, after)
    ax.plot(after, least_constant(population)[0] * bound, label="the bound, least constant", **grey)
    t = np.linspace(entry, last, 50)
    start = float(np.interp(t[0], trace.rounds, np.median(trace.error, axis=0)))
    local = start * flute.flute_local_rate(spectrum, trace.rank, trace.step_size) ** (t - t[0])
    ax.plot(t, local, linestyle=":", label="rate $1-\\eta\\Delta/2$, predicted", **grey)
    ax.axvline(middle, color="0.7", linewidth=0.8, zorder=0)
    ax.annotate("$T_R$", (middle, 1.0), xytext=(3, 0), textcoords="offset points")


def claims(tables: dict[str, lf.Table]) -> list[lf.Finding]:
    """Return the rates and the floors against their predictions, and fresh samples against reused ones."""
    table = tables["runs"]
    fixed = {one["n_samples"]: one for one in table.where(name=BASE, data=FIXED)}
    fresh = [one for one in table.where(data=FRESH) if one["n_samples"] in fixed]
    return [
        *(_local_rate(one) for one in table.where(data=POPULATION) if near(one).any()),
        *(_floor(one) for one in table.where(data=FIXED)),
        *(_fresh(one, fixed[one["n_samples"]]) for one in fresh),
    ]


def near(one: lf.Table) -> Any:
    """Return where the error is small, yet above rounding; nowhere if some trial never comes there."""
    share = one["error"] / one["error"][:, :1]
    found = (share < 1e-3) & (share > 1e-8)
    return found & (found.sum(axis=1) > 2).all()


def _local_rate(one: lf.Table) -> lf.Finding:
    """Compare the measured rate at the population with the derivative's."""
    setting = one["singular_value"], one["rank"], one["step_size"]
    predicted, promised = (math.log(rate(*setting)) for rate in (flute.flute_local_rate, flute.flute_rate))
    runs = zip(near(one), one["error"], strict=True)
    slopes = np.array([stats.linregress(one["round"][mask], np.log(error[mask])).slope for mask, error in runs])
    return judge(
        median_interval(slopes / predicted),
        least=0.99,
        most=1.01,
        theorem=True,
        source=f"{OWN_PREDICTION}; the 1 % is an {OWN_THRESHOLD}",
        text="Near the truncation the error falls by 1 - eta Delta / 2 a round",
        where=one["setting"],
        statistic="measured log rate over the predicted one, median over trials",
        detail=f"{predicted / promised:.1f} times faster than the theorem's 1 - eta Delta/16",
    )


def _floor(one: lf.Table) -> lf.Finding:
    """Compare the floor on fixed data with the first-order prediction."""
    return judge(
        median_interval(one["final"] / one["floor"]),
        least=0.8,
        most=1.1,
        theorem=True,
        source=f"{OWN_PREDICTION}; the range is an {OWN_THRESHOLD}",
        note="a mean of norms is below their root mean square",
        text="With m fixed the error ends at a floor that the perturbation of the truncation predicts",
        where=one["setting"],
        statistic="final error over predicted root mean square, median over trials",
    )


def _fresh(one: lf.Table, fixed: lf.Table) -> lf.Finding:
    """Compare fresh with reused samples, after as many rounds."""
    reused = fixed["error"][:, np.searchsorted(fixed["round"][:-1], one["round"][-1])]
    averaged = math.sqrt(one["step_size"] * float(flute.flute_gap(one["singular_value"], one["rank"])) / 4.0)
    return judge(
        median_interval(one["final"] / reused),
        least=1.0,
        theorem=True,
        source="FLUTE paper, proof of Theorem 5.5, which treats the samples of Algorithm 1 as fresh",
        text="Reused samples cost no more than fresh ones (the proof treats them as fresh)",
        where=one["setting"],
        statistic="error with fresh samples over error with one data set, median over trials",
        detail=f"averaging over 4 / (eta Delta) rounds would give {averaged:.2g}",
    )
