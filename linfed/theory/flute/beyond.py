"""Judges of what FLUTE's Theorem 5.5 leaves open or is silent about, over a run.

Its constant and the rounds beyond those that m covers; the rate near the truncation and the floor, beside predictions
without a free parameter; and fresh samples, which its proof takes, against reused ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from linfed.statistics.findings import (
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    Hypothesis,
    joined,
    judge,
    judge_failures,
)
from linfed.statistics.intervals import Measured, median_interval, smallest_constant
from linfed.theory.flute.judges import PROOF_CONSTANT, bound_ratios, step_hypothesis
from linfed.theory.flute.theorems import flute_gap, flute_local_rate, flute_rate
from linfed.theory.flute.trace import FluteTrace


def least_constant(trace: FluteTrace, *, allowed: float, until: float = np.inf) -> Measured:
    """Return the least constant with which Theorem 5.5's bound holds in all but a share of trials, up to `until`."""
    return smallest_constant(bound_ratios(trace, until=until), allowed=allowed)


def judge_constant(
    trace: FluteTrace,
    where: str,
    *,
    allowed: float,
    until: float = np.inf,
    hypotheses: Iterable[Hypothesis] = (),
    note: str = "",
) -> Finding:
    """Judge how tight the proof's constant is, by the least constant that passes up to round `until`.

    The theorem does not say that it is tight. Whether its bound holds with that constant is `judge_rate`'s question:
    most runs are too short for it to say anything, and a least constant below it is then no confirmation.
    """
    return judge(
        least_constant(trace, allowed=allowed, until=until),
        least=4.0 * PROOF_CONSTANT / 10.0,
        most=4.0 * PROOF_CONSTANT,
        source=f"{OWN_THRESHOLD}: the theorem says that there is a constant, not that its proof's is tight",
        text=f"The constant of Theorem 5.5's proof, 4 x {PROOF_CONSTANT:g}, is tight to a factor of 10",
        where=where,
        statistic=(
            f"least constant with which its bound holds in {100 * (1 - allowed):g} % of trials, up to the covered round"
        ),
        hypotheses=(step_hypothesis(trace), *hypotheses),
        note=note,
    )


def judge_beyond(
    trace: FluteTrace,
    where: str,
    *,
    until: float,
    allowed: float,
    hypotheses: Iterable[Hypothesis] = (),
    note: str = "",
) -> Finding:
    """Judge whether the bound holds beyond round `until`, with the least constant that passes up to there."""
    constant = least_constant(trace, allowed=allowed, until=until)[0]
    return judge_failures(
        bound_ratios(trace) > constant,
        theorem=False,
        text="The bound goes on holding beyond the round that m covers (the theorem does not say so)",
        source="nobody: what the theorem leaves open",
        where=where,
        allowed=allowed,
        hypotheses=(step_hypothesis(trace), *hypotheses),
        note=joined(note, f"its least constant up to there is {constant:.2g}"),
    )


def judge_local_rate(trace: FluteTrace, where: str) -> Finding:
    """Judge the rate near the truncation (`FluteTrace.near`), at population; VACUOUS where runs do not come near."""
    from scipy import stats

    setting = trace.spectrum, trace.rank, trace.step_size
    predicted, promised = (np.array([math.log(r) for r in rate(*setting)]) for rate in (flute_local_rate, flute_rate))
    measured: Measured = (np.nan, np.nan, np.nan)
    if trace.near.any():
        runs = zip(trace.near, trace.error, strict=True)
        slopes = [stats.linregress(trace.rounds[near], np.log(error[near])).slope for near, error in runs]
        measured = median_interval(np.array(slopes) / predicted)
    return judge(
        measured,
        least=0.99,
        most=1.01,
        theorem=True,
        source=f"{OWN_PREDICTION}; the 1 % is an {OWN_THRESHOLD}",
        text="Near the truncation the error falls by 1 - eta Delta / 2 a round",
        where=where,
        statistic="measured log rate over the predicted one, median over trials",
        detail=f"{np.median(predicted / promised):.1f} times faster than the theorem's 1 - eta Delta/16",
    )


def judge_floor(error: npt.ArrayLike, predicted: npt.ArrayLike, where: str) -> Finding:
    """Judge the error (trials,) at which runs on fixed data end by `truncation_floor`, (trials,)."""
    return judge(
        median_interval(np.asarray(error) / np.asarray(predicted)),
        least=0.8,
        most=1.1,
        theorem=True,
        source=f"{OWN_PREDICTION}; the range is an {OWN_THRESHOLD}",
        note="a mean of norms is below their root mean square",
        text="With m fixed the error ends at a floor that the perturbation of the truncation predicts",
        where=where,
        statistic="final error over predicted root mean square, median over trials",
    )


def judge_fresh(fresh: FluteTrace, reused: FluteTrace, where: str) -> Finding:
    """Judge whether one data set costs no more than fresh samples in every round, where the fresh run ends."""
    after = np.searchsorted(reused.rounds[:-1], fresh.rounds[-1])
    averaged = math.sqrt(fresh.step_size * float(np.median(flute_gap(fresh.spectrum, fresh.rank))) / 4.0)
    return judge(
        median_interval(fresh.error[:, -1] / reused.error[:, after]),
        least=1.0,
        source="own reading of the proof of the FLUTE paper's Theorem 5.5, which treats samples as fresh",
        text="Reused samples cost no more than fresh ones (the proof treats them as fresh)",
        where=where,
        statistic="error with fresh samples over error with one data set, median over trials",
        detail=f"averaging over 4 / (eta Delta) rounds would give {averaged:.2g}",
    )
