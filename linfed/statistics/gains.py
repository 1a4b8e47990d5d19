"""Comparison of two methods on paired trials: which is faster and by what factor, and which ends with a lower error.

The rounds of a trial are infinite if the run does not reach its level, and NaN if the trial has no level. If a median
is infinite, the true median lies beyond the last round, so a gain may be known only between bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from linfed._types import Array, Indices
from linfed.statistics.findings import Finding, join_notes, judge, judge_smaller
from linfed.statistics.intervals import (
    FEWEST,
    Measured,
    bootstrap_interval,
    first_round_below,
    nan_as_worst,
    quotient,
    share_smaller,
)

Bounds: TypeAlias = tuple[Array, Array]
"""Lower and upper bound of a quantity; equal if the quantity is known."""


EXTREMES = (1e-9, 1e9)
"""Replacements for ratios of 0 and infinity, for resampling."""


def lower_median(values: Array) -> Array:
    """Return the lower median along the last axis; infinities are allowed."""
    return np.quantile(values, 0.5, axis=-1, method="inverted_cdf")


def resampled(trials: int) -> Indices:
    """Return 2,000 bootstrap samples of the trials' indices, (2000, trials)."""
    return np.random.default_rng(0).integers(trials, size=(2000, trials))


def log_gain(rounds: Array, last: int, *, signed: bool = True) -> Bounds:
    """Return bounds of the gain in rounds: log of the competitor's median divided by the method's median.

    Parameters
    ----------
    rounds : ndarray (2, .., trials)
        Rounds of the method and of its competitor.
    last : int
        Number of the last round.
    signed : bool
        If True, the gain is negative if the competitor is faster. If False, it is the log of the larger median divided
        by the smaller.

    Returns
    -------
    low, high : ndarray (..,)
    """
    mine, other = lower_median(rounds)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.log(np.minimum(other, last)) - np.log(mine)
        high = np.log(other) - np.log(np.minimum(mine, last))
    if signed:
        return low, high
    least, most = np.minimum(np.abs(low), np.abs(high)), np.maximum(np.abs(low), np.abs(high))
    return np.where((low <= 0) & (high >= 0), 0.0, least), most


def gain_ratio(first: Array, second: Array, last: int, *, signed: bool = True) -> tuple[Measured, str]:
    """Return the ratio of the gains in two settings with paired trials.

    Parameters
    ----------
    first, second : ndarray (2, trials)
        Rounds of the method and of its competitor in each setting.
    last : int
        Number of the last round.
    signed : bool
        As in `log_gain`.

    Returns
    -------
    measured : tuple of float
        Estimate, NaN if the ratio is known only between bounds, and a bootstrap interval that covers both bounds.
    reason : str
        Reason why the ratio is not available; empty if at least six trials have a level to reach.

    Notes
    -----
    The measured coverage of the interval for lognormal rounds is 0.97 to 0.99 with 10, 20 and 50 trials. It is the same
    for `factor_ratio`, and for `judge_more_reduction` with normal reductions.
    """
    has_levels = ~np.isnan([first, second]).any(axis=(0, 1))
    trials = int(has_levels.sum())
    if trials < FEWEST:
        return (math.nan, 0.0, math.inf), "too few trials have a level to reach"

    def bounds(index: Indices) -> Bounds:
        one, other = (log_gain(rounds[:, has_levels][:, index], last, signed=signed) for rounds in (first, second))
        with np.errstate(invalid="ignore"):
            low, high = one[0] - other[1], one[1] - other[0]
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    ends = zip(bounds(resampled(trials)), (0.025, 0.975), strict=True)
    low, high = (float(np.exp(np.quantile(part, q, method="inverted_cdf"))) for part, q in ends)
    least, most = bounds(np.arange(trials))
    return (float(np.exp(least)) if least == most else math.nan, low, high), ""


def factor_ratio(mine: Sequence[Array], other: Sequence[Array], last: int) -> tuple[Measured, str]:
    """Return the ratio of the factors by which the median rounds of two methods fall from one setting to another.

    Parameters
    ----------
    mine, other : pair of ndarray (trials,)
        Rounds of the method and of its competitor, before and after the change of the setting. The trials of the two
        methods are paired; the trials before and after are independent.
    last : int
        Number of the last round.

    Returns
    -------
    measured : tuple of float
        Ratio of the factors, NaN if it is known only between bounds, and a bootstrap interval that covers both bounds.
    note : str
        Name of the statistic, and a remark if a median is not reached.
    """
    before, after = (np.stack([mine[i], other[i]]) for i in (0, 1))

    def bounds(i: Array, j: Array, axis: int = -1) -> Bounds:
        (b0, b1), (a0, a1) = (
            np.maximum(lower_median(part[:, np.moveaxis(k, axis, -1).astype(int)]), 1.0)
            for part, k in ((before, i), (after, j))
        )
        with np.errstate(divide="ignore"):  # the ratio is unbounded if the competitor never reaches its level
            least = (np.minimum(b0, last) / a0) / (b1 / np.minimum(a1, last))
            largest = (b0 / np.minimum(a0, last)) / (np.minimum(b1, last) / a1)
        return np.clip(least, *EXTREMES), np.clip(largest, *EXTREMES)

    both = np.arange(float(before.shape[1])), np.arange(float(after.shape[1]))
    low = bootstrap_interval(lambda i, j, axis: bounds(i, j, axis)[0], both, vectorized=True)[0]
    high = bootstrap_interval(lambda i, j, axis: bounds(i, j, axis)[1], both, vectorized=True)[1]
    least, largest = map(float, bounds(*both))
    between = f"a median is not reached in {last} rounds, so the ratio is known between bounds only"
    note = join_notes("medians of rounds over bootstrapped trials", "" if least == largest else between)
    ends = 0.0 if low <= EXTREMES[0] else low, math.inf if high >= EXTREMES[1] else high
    return (least if least == largest else math.nan, *ends), note


def format_gain(rounds: Array, last: int) -> str:
    """Return the gain for rounds (2, trials) as text: a number, or a bound such as "> 2"."""
    has_levels = ~np.isnan(rounds).any(axis=0)
    if not has_levels.any():
        return "-"
    low, high = (float(bound) for bound in log_gain(rounds[:, has_levels], last))
    if low == high or (math.isinf(high) and high > 0 and low > -math.inf):
        return f"{'' if low == high else '> '}{math.exp(low):.2g}"
    return f"< {math.exp(high):.2g}" if high < math.inf else "?"


def rounds_to_share(curve: Array, start: Array, end: Array, share: float) -> Array:
    """Return the rounds until each trial has covered a share of the way down from one value to another.

    Parameters
    ----------
    curve : ndarray (trials, n_rounds + 1)
        Values from round 0 on; NaN once a trial has diverged.
    start, end : ndarray (trials,)
        The two values.
    share : float
        Share of the way, from 0 to 1.

    Returns
    -------
    ndarray (trials,)
        Rounds; infinite if a run does not reach the level, NaN if `end` is not below `start`.
    """
    level = end + (1 - share) * (start - end)
    above = np.nan_to_num(curve, nan=np.inf) - level[:, None]
    return np.where(end < start, first_round_below(np.arange(float(curve.shape[1])), above, 0.0), np.nan)


# --- judges --------------------------------------------------------------------------------------------------


def judge_fewer_rounds(rounds: Array, **fields: Any) -> Finding:
    """Judge that a method needs fewer rounds than its competitor in most paired trials.

    Trials that tie or have no level to reach do not count.

    Parameters
    ----------
    rounds : ndarray (2, trials)
        Rounds of the method and of its competitor.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`. The verdict is SUPPORTED or NOT
        SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.
    """
    pairs = rounds[:, ~np.isnan(rounds).any(axis=0)]
    found, detail = share_smaller(*pairs)
    if pairs.size:
        medians = (f"{middle:g}" if np.isfinite(middle) else "never" for middle in lower_median(pairs))
        detail = f"{detail}; medians {' and '.join(medians)}"
    defaults = {
        "claimed_low": 0.5,
        "strict": True,
        "vacuous": "no trial has a level to reach, or all tie" if math.isnan(found[0]) else "",
        "detail": detail if pairs.size else "no trial has a level to reach",
    }
    return judge(found, **defaults | fields)


def judge_lower_end(finals: Array, *, tie: float, **fields: Any) -> Finding:
    """Judge that a method ends with a lower error than its competitor in most paired trials that do not tie.

    Parameters
    ----------
    finals : ndarray (2, trials)
        Final errors of the method and of its competitor; NaN (a diverged trial) counts as the largest error.
    tie : float
        Errors within this relative distance tie, as do two zeros.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`. The verdict is SUPPORTED or NOT
        SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.
    """
    mine, other = nan_as_worst(finals)
    equal = np.abs(mine - other) <= tie * np.minimum(mine, other)
    found = judge_smaller(np.where(equal, other, mine), other, **fields)
    change = float(lower_median(quotient(mine, other, 1.0) - 1))
    change_text = "diverges more" if abs(change) > 100 else f"{100 * change:+.2f} %"
    return replace(found, detail=f"{found.detail}; median difference {change_text}")


def judge_more_speed(
    rounds: Mapping[int, Array], last: int, *, name: str, signed: bool = True, **fields: Any
) -> Finding:
    """Judge that the gain in rounds over a competitor is larger at the smallest of some sizes than at the largest.

    Parameters
    ----------
    rounds : mapping of int to ndarray (2, trials)
        For each size, rounds of the method and of its competitor; all trials are paired.
    last : int
        Number of the last round.
    name : str
        Name of the size, e.g. "n".
    signed : bool
        As in `log_gain`.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`. The verdict is SUPPORTED or NOT
        SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.
    """
    found, vacuous = gain_ratio(rounds[min(rounds)], rounds[max(rounds)], last, signed=signed)
    gains = ", ".join(format_gain(each, last) for each in rounds.values())
    detail = f"gains {gains} at {name} = {', '.join(map(str, rounds))}"
    return judge(found, **{"claimed_low": 1.0, "strict": True, "vacuous": vacuous, "detail": detail} | fields)


def judge_more_reduction(finals: Mapping[int, Array], *, name: str, tie: float, **fields: Any) -> Finding:
    """Judge that a competitor's final error is reduced more at the smallest of some sizes than at the largest.

    Parameters
    ----------
    finals : mapping of int to ndarray (2, trials)
        For each size, final errors of the method and of its competitor. All trials are paired; NaN (a diverged trial)
        counts as the largest error.
    name : str
        Name of the size, e.g. "n".
    tie : float
        Relative differences up to this size count as no reduction, as does a pair of zeros.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`. The verdict is SUPPORTED or NOT
        SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.

    Returns
    -------
    Finding
        Finding for the median reduction in per cent at the smallest size minus the reduction at the largest size. The
        bootstrap interval is unbounded with fewer than six trials.
    """
    ends = {size: nan_as_worst(pair) for size, pair in finals.items()}
    reductions = {size: 1 - quotient(mine, other, 1.0) for size, (mine, other) in ends.items()}
    per_cent = {size: 100 * np.where(np.abs(each) <= tie, 0.0, each) for size, each in reductions.items()}
    few, many = per_cent[min(per_cent)], per_cent[max(per_cent)]
    low, high = -np.inf, np.inf
    if len(few) >= FEWEST:
        index = resampled(len(few))
        low, high = np.quantile(lower_median(few[index]) - lower_median(many[index]), (0.025, 0.975))
    values = ", ".join(f"{float(lower_median(each)):.2g}" for each in per_cent.values())
    detail = f"{values} % at {name} = {', '.join(map(str, per_cent))}"
    measured = float(lower_median(few) - lower_median(many)), float(low), float(high)
    return judge(measured, **{"claimed_low": 0.0, "strict": True, "detail": detail} | fields)
