"""Tests of Theorems 5.1 and 5.5 of the FLUTE paper on runs, and of predictions that go beyond Theorem 5.5.

`experiments.flute.flute_theorem55` and `flute_rate_and_floor` declare the claims; their texts and ranges are
fields of the judges. Theorem 5.5 does not specify its constant, the behaviour after the rounds that m covers, the rate
near the truncation, or the floor. Its proof assumes fresh samples, so the effect of reused samples is open too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.statistics.findings import (
    Finding,
    Hypothesis,
    join_notes,
    judge,
    judge_failures,
    judge_identity,
)
from linfed.statistics.intervals import (
    Measured,
    bootstrap_interval,
    mean_interval,
    median_interval,
    smallest_constant,
)
from linfed.theory.flute.theorems import (
    STEP_CONSTANTS,
    flute_bound,
    flute_gap,
    flute_local_rate,
    flute_rate,
    flute_step_limit,
)
from linfed.theory.flute.trace import FluteTrace

PROOF_CONSTANT = 400.0
"""Constant of Proposition A.12, in front of ``lambda_1'^2 sqrt(k) / (eta Delta^2)``."""

IDENTITY_TOLERANCE = 1e-10


def step_hypothesis(trace: FluteTrace, *, constant: str = "appendix") -> Hypothesis:
    """Return the step-size condition of the theorems, evaluated at the trial closest to violating it."""
    limit = float(np.min(flute_step_limit(trace.spectrum, trace.rank, constant=constant)))
    return Hypothesis(
        text=f"eta <= Delta^2 / ({STEP_CONSTANTS[constant]:g} lambda_1^3)", left=trace.step_size, right=limit
    )


def init_hypothesis(alpha: float, dim: int) -> Hypothesis:
    """Return Theorem 5.1's condition on the initial scale, ``alpha <= 1 / (10 d)``."""
    return Hypothesis(text="alpha <= 1 / (10 d)", left=alpha, right=1.0 / (10.0 * dim))


def judge_entry(trace: FluteTrace, *, allowed: float, hypotheses: Iterable[Hypothesis] = (), **fields: Any) -> Finding:
    """Judge Proposition A.2, that Theta enters R by round T_R; runs that end earlier outside R do not count.

    Parameters
    ----------
    trace : FluteTrace
    allowed : float
        Failure probability delta.
    hypotheses : iterable of Hypothesis
        Further hypotheses.
    **fields
        Other fields of `Finding`, as in `linfed.statistics.judge_failures`.
    """
    # The entry is known only up to the interval between recorded rounds.
    due = np.array([trace.rounds[trace.rounds >= entry].min(initial=np.iinfo(int).max) for entry in trace.entry])
    return judge_failures(
        trace.entered > due,
        premise=np.isfinite(trace.entered) | (due <= trace.rounds[-1]),
        allowed=allowed,
        hypotheses=(step_hypothesis(trace), *hypotheses),
        **fields,
    )


def judge_staying(
    trace: FluteTrace, *, allowed: float, hypotheses: Iterable[Hypothesis] = (), **fields: Any
) -> Finding:
    """Judge Lemmas A.6 to A.9, that Theta does not leave the region R, over the trials that enter it.

    Parameters
    ----------
    trace, allowed, hypotheses, **fields
        As in `judge_entry`.
    """
    entered = np.maximum.accumulate(trace.inside, axis=1)
    return judge_failures(
        (entered & ~trace.inside).any(axis=1),
        premise=entered.any(axis=1),
        allowed=allowed,
        hypotheses=(step_hypothesis(trace), *hypotheses),
        **fields,
    )


def judge_growth(trace: FluteTrace, **fields: Any) -> Finding:
    """Judge the smallest growth of ``sigma_k^2(Theta_k)`` in every evaluated round of every trial.

    The bound is `ThetaCoordinates.growth_bound`, from the proof of Lemma A.16. The lemma's own form is false for small
    ``sigma_k^2(Theta_k)``.
    """
    top, gap = 2.0 * trace.spectrum[:, 0], flute_gap(trace.spectrum, trace.rank)
    largest = np.nanmax(trace.region[:, :-1, 0] / top[:, None])
    return judge_identity(
        trace.growth,
        tolerance=IDENTITY_TOLERANCE,
        hypotheses=(
            Hypothesis(
                text="eta <= Delta^2 / (16 lambda_1'^3)",
                left=trace.step_size,
                right=float((gap**2 / top**3).min()) / 16,
            ),
            Hypothesis(text="sigma_1^2(Theta) <= 2 lambda_1', in units of lambda_1'", left=float(largest), right=2.0),
        ),
        **fields,
    )


def judge_rest(trace: FluteTrace, *, allowed: float, extra: bool = True, **fields: Any) -> Finding:
    """Judge Lemma A.17, ``sigma_1(Theta_res) <= factor^t sigma_1(Theta_res at t = 0)``.

    The factor is ``1 + eta (lambda_{k+1}'/2 + Delta/8)``, from the lemma's proof, because the extract of the paper lost
    the fraction. The proof needs ``sigma_1(R) <= eta Delta/8 sigma_1(Theta_res)``, with Theta_res at t = 0, in every
    round before. This takes the place of the lemma's condition on m, which has an unnamed constant. A trial counts if
    a recorded round satisfies it, and the bound is below the region's ``lambda_k' - Delta/2`` there.

    Parameters
    ----------
    trace : FluteTrace
    allowed : float
        Failure probability delta.
    extra : bool
        If False, judge the factor without ``Delta/8``, the part for the noise of samples. The lemma does not claim it.
    **fields
        Other fields of `Finding`, as in `linfed.statistics.judge_failures`.
    """
    top, kth = 2.0 * trace.spectrum[:, 0], 2.0 * trace.spectrum[:, trace.rank - 1]
    gap = flute_gap(trace.spectrum, trace.rank)
    rate = 0.5 * (kth - gap) + (gap / 8.0 if extra else 0.0)  # lambda_{k+1}' = lambda_k' - Delta
    start, rest = trace.region[:, 0, 0], trace.region[:, :, 1]
    with np.errstate(over="ignore"):
        bound = rest[:, :1] * (1.0 + trace.step_size * rate)[:, None] ** (2.0 * trace.rounds)
    with np.errstate(invalid="ignore"):
        noisy = trace.remainder > (trace.step_size * gap / 8.0)[:, None] * np.sqrt(rest[:, :1])
    covered = ~np.maximum.accumulate(noisy | np.isnan(trace.remainder) & (trace.rounds > 0), axis=1)
    binding = (bound < (kth - gap / 2.0)[:, None]) & (trace.rounds > 0) & covered
    fields["note"] = join_notes(
        f"the condition of its proof covers {int(np.median(covered.sum(axis=1)) - 1)} of {len(trace.rounds) - 1} "
        "recorded rounds",
        fields.get("note", ""),
    )
    return judge_failures(
        (binding & ~(rest <= bound * (1.0 + 1e-10))).any(axis=1),
        premise=binding.any(axis=1),
        allowed=allowed,
        hypotheses=(
            Hypothesis(text="eta <= 1 / (6 lambda_1')", left=trace.step_size, right=float((1.0 / top).min()) / 6.0),
            Hypothesis(text="sigma_1^2(Theta) <= 2 lambda_1' at the start", left=float((start / top).max()), right=2.0),
        ),
        **fields,
    )


def bound_ratios(trace: FluteTrace, *, until: float = np.inf) -> Array:
    """Return for each trial the smallest constant with which Theorem 5.5's bound holds after T_R, (trials,).

    Parameters
    ----------
    trace : FluteTrace
    until : float
        Last round that is compared with the bound. With fixed m the theorem covers only the first rounds.

    Notes
    -----
    Errors up to 1e-12 of the largest singular value are due to rounding and count as within every bound.
    """
    bound = flute_bound(trace.spectrum, trace.rank, trace.step_size, trace.n_clients, trace.rounds)
    covered = (trace.rounds > trace.entry[:, None]) & (trace.rounds <= until)
    error = np.where(np.isnan(trace.error), np.inf, trace.error)
    covered &= error > 1e-12 * trace.spectrum[:, :1]
    with np.errstate(divide="ignore"):
        return np.where(covered, error / bound, 0.0).max(axis=1)


def judge_rate(
    trace: FluteTrace,
    *,
    constant: float,
    allowed: float,
    until: float = np.inf,
    hypotheses: Iterable[Hypothesis] = (),
    **fields: Any,
) -> Finding:
    """Judge whether Theorem 5.5's bound holds with a given constant in every round after T_R, up to round `until`.

    A trial counts if the bound falls below the error of predicting 0 in one of these rounds, or if the trial exceeds
    the bound. (A diverged run exceeds every bound.) No other trial could violate the bound. Without such trials the
    finding is VACUOUS.
    """
    bound = constant * flute_bound(trace.spectrum, trace.rank, trace.step_size, trace.n_clients, trace.rounds)
    covered = (trace.rounds > trace.entry[:, None]) & (trace.rounds <= until)
    trivial = trace.error[:, :1]  # error of the small initial state, as of predicting 0
    is_binding = (covered & (bound < trivial)).any(axis=1)
    failed = bound_ratios(trace, until=until) > constant
    return judge_failures(
        failed,
        premise=is_binding | failed,
        allowed=allowed,
        hypotheses=(step_hypothesis(trace), *hypotheses),
        vacuous="" if (is_binding | failed).any() else "the bound is nowhere below the error of predicting 0",
        **fields,
    )


# --- predictions beyond Theorem 5.5 --------------------------------------------------------------------------


def least_constant(trace: FluteTrace, *, allowed: float, until: float = np.inf) -> Measured:
    """Return the smallest constant with which Theorem 5.5's bound fails in at most a share of trials, up to `until`."""
    return smallest_constant(bound_ratios(trace, until=until), allowed=allowed)


def judge_beyond(
    trace: FluteTrace, *, until: float, allowed: float, hypotheses: Iterable[Hypothesis] = (), **fields: Any
) -> Finding:
    """Judge whether the bound holds after round `until`, with the smallest constant that holds up to this round.

    Only the trials in which it holds up to this round count.
    """
    constant = least_constant(trace, allowed=allowed, until=until)[0]
    fields["note"] = join_notes(fields.get("note", ""), f"its smallest constant up to there is {constant:.2g}")
    return judge_failures(
        bound_ratios(trace) > constant,
        premise=bound_ratios(trace, until=until) <= constant,
        allowed=allowed,
        hypotheses=(step_hypothesis(trace), *hypotheses),
        **fields,
    )


def judge_local_rate(trace: FluteTrace, **fields: Any) -> Finding:
    """Judge the rate near the truncation at population; VACUOUS if runs do not come near it (`FluteTrace.near`)."""
    from scipy import stats

    at = trace.spectrum, trace.rank, trace.step_size
    predicted, promised = (np.array([math.log(r) for r in rate(*at)]) for rate in (flute_local_rate, flute_rate))
    measured: Measured = (np.nan, np.nan, np.nan)
    if trace.near.any():
        runs = zip(trace.near, trace.error, strict=True)
        slopes = [stats.linregress(trace.rounds[near], np.log(error[near])).slope for near, error in runs]
        measured = median_interval(np.array(slopes) / predicted)
    return judge(
        measured,
        detail=f"{np.median(predicted / promised):.1f} times faster than the theorem's 1 - eta Delta/16",
        **fields,
    )


STILL_FALLING = 0.02
"""Largest fall of the error over the last quarter of the rounds of a run at its floor."""


STILL_FALLING_FRESH = 0.1
"""The same for fresh samples, from the first to the second half of the last quarter, where errors fluctuate."""


def _last_quarter(curves: Array) -> Array:
    """Return the last quarter of the rounds of curves (trials, rounds)."""
    return curves[:, (3 * curves.shape[1]) // 4 :]


def _root_mean_square(values: Array, axis: int = -1) -> Array:
    """Return the root mean square along an axis."""
    return np.sqrt(np.square(values).mean(axis=axis))


def _over_trials(ratios: Array) -> Measured:
    """Return the root mean square over trials with its interval; infinite if a trial has diverged."""
    if not np.isfinite(ratios).all():
        return math.inf, math.inf, math.inf
    mean, low, high = mean_interval(np.square(ratios))
    return math.sqrt(mean), math.sqrt(max(low, 0.0)), math.sqrt(high)


def judge_floor(rms: npt.ArrayLike, predicted: npt.ArrayLike, *, fresh: bool = False, **fields: Any) -> Finding:
    """Compare the final root mean square error of runs with `truncation_floor`, (trials,).

    `rms` is `FluteTrace.rms`, (trials, rounds). The verdict is VACUOUS if the median error falls by more than
    `STILL_FALLING` over the last quarter of the rounds: the runs then have not reached a floor. On fresh samples, where
    errors fluctuate, the final error is the root mean square over this quarter, and the verdict is VACUOUS if the
    median of the mean errors falls by more than `STILL_FALLING_FRESH` from its first to its second half.
    """
    error = np.asarray(rms)
    quarter = _last_quarter(error)
    last = error[:, -1]
    fallen = 1.0 - float(np.median(last / quarter[:, 0]))
    if fresh:
        half = max(1, quarter.shape[1] // 2)
        last = _root_mean_square(quarter)
        fallen = 1.0 - float(np.median(quarter[:, -half:].mean(axis=1)) / np.median(quarter[:, :half].mean(axis=1)))
    falling = fallen > (STILL_FALLING_FRESH if fresh else STILL_FALLING)
    return judge(
        _over_trials(last / np.asarray(predicted)),
        vacuous=f"the error fell by {fallen:.0%} over the last quarter of the rounds" if falling else "",
        **fields,
    )


def judge_fresh(fresh: FluteTrace, reused: FluteTrace, **fields: Any) -> Finding:
    """Judge whether reused samples give no larger error than fresh samples, in the last round of the fresh run."""
    after = np.searchsorted(reused.rounds[:-1], fresh.rounds[-1])
    averaged = math.sqrt(fresh.step_size * float(np.median(flute_gap(fresh.spectrum, fresh.rank))) / 4.0)
    return judge(
        median_interval(fresh.error[:, -1] / reused.error[:, after]),
        detail=f"averaging over 4 / (eta Delta) rounds would give {averaged:.2g}",
        **fields,
    )


def judge_gain(fresh: FluteTrace, reused: FluteTrace, predicted: Array, **fields: Any) -> Finding:
    """Compare the gain of fresh over reused samples with a prediction.

    Parameters
    ----------
    fresh, reused : FluteTrace
        Runs on fresh samples in every round and on one data set, of the same trials. The error on fresh samples is the
        root mean square over the last quarter of the rounds.
    predicted : ndarray (trials,)
        Predicted ratio of the error on one data set to that on fresh samples.
    **fields
        Other fields of `Finding`, as in `linfed.statistics.judge`.
    """

    def ratio_of_means(ratios: Array, others: Array, axis: int = -1) -> Array:
        return _root_mean_square(ratios, axis) / _root_mean_square(others, axis)

    both = reused.rms[:, -1] / predicted, _root_mean_square(_last_quarter(fresh.rms))
    measured: Measured = math.nan, 0.0, math.inf  # a trial has diverged
    if np.isfinite(both).all():
        interval = bootstrap_interval(ratio_of_means, both, paired=True, vectorized=True)
        measured = float(ratio_of_means(*both)), *interval
    return judge(measured, detail=f"predicted gain {float(np.median(predicted)):.3g}", **fields)
