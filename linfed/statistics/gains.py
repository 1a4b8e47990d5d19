"""Gains in rounds: by which factor one method is faster than another, where some runs never arrive.

Rounds of a trial are infinite where a run does not reach its level, and NaN where the trial has none. A median that is
never reached lies beyond the last round, so that a gain may be known between bounds only.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from linfed._types import Array, Indices
from linfed.statistics.intervals import Measured

Bounds: TypeAlias = tuple[Array, Array]
"""A quantity that is known between bounds, which are the same where it is known."""


def lower_median(values: Array) -> Array:
    """Return the lower median along the last axis; infinities are allowed."""
    return np.quantile(values, 0.5, axis=-1, method="inverted_cdf")


def resampled(trials: int) -> Indices:
    """Return 2,000 bootstrap samples of the trials' indices, (2000, trials)."""
    return np.random.default_rng(0).integers(trials, size=(2000, trials))


def log_gain(rounds: Array, last: int, *, signed: bool = True) -> Bounds:
    """Return bounds of the log of a rival's median rounds over one's own.

    Parameters
    ----------
    rounds : ndarray (2, .., trials)
        One's own and the rival's.
    last : int
        The last round.
    signed : bool
        Whether to tell who is faster; else it is the log of the larger median over the smaller.

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
    """Return the ratio of the gains in two settings whose trials are paired, and why there is none.

    Parameters
    ----------
    first, second : ndarray (2, trials)
        Rounds of one's own and of the rival in each setting.
    last : int
        The last round.
    signed : bool
        As in `log_gain`.

    Returns
    -------
    measured : tuple of float
        Estimate, NaN where the ratio is known between bounds only, and a bootstrap interval that covers both.
    reason : str
        Empty where two trials or more have a level to reach.
    """
    known = ~np.isnan([first, second]).any(axis=(0, 1))
    trials = int(known.sum())
    if trials < 2:
        return (math.nan, 0.0, math.inf), "too few trials have a level to reach"

    def bounds(index: Indices) -> Bounds:
        one, other = (log_gain(rounds[:, known][:, index], last, signed=signed) for rounds in (first, second))
        with np.errstate(invalid="ignore"):
            low, high = one[0] - other[1], one[1] - other[0]
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    drawn = zip(bounds(resampled(trials)), (0.025, 0.975), strict=True)
    low, high = (float(np.exp(np.quantile(part, q, method="inverted_cdf"))) for part, q in drawn)
    least, most = bounds(np.arange(trials))
    return (float(np.exp(least)) if least == most else math.nan, low, high), ""


def gain_told(rounds: Array, last: int) -> str:
    """Return the gain of rounds (2, trials) in words: a number, or the bound that is known of it."""
    known = ~np.isnan(rounds).any(axis=0)
    if not known.any():
        return "-"
    low, high = (float(bound) for bound in log_gain(rounds[:, known], last))
    if low == high or (math.isinf(high) and high > 0 and low > -math.inf):
        return f"{'' if low == high else '> '}{math.exp(low):.2g}"
    return f"< {math.exp(high):.2g}" if high < math.inf else "?"
