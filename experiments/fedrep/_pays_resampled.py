"""Statistics of resampled trials: medians, and the sizes from which a curve of medians is negative."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from linfed._types import Array
from linfed.statistics.intervals import Measured

RESAMPLES = 2000

TIE = 1e-3
"""Logarithms of ratios up to this size are ties: with at most k clients FedRep is least squares without federation."""

Resampled: TypeAlias = Array
"""A statistic of the trials, then of each bootstrap resample, (1 + RESAMPLES,)."""


def medians(values: Iterable[Array]) -> Array:
    """Return medians over the trials and over bootstrap resamples of them, (1 + RESAMPLES, len(values))."""
    stacked = np.stack(list(values), axis=-1)
    trials = len(stacked)
    resamples = np.random.default_rng(0).integers(trials, size=(RESAMPLES, trials))
    picks = np.vstack([np.arange(trials), resamples])
    return np.stack([np.median(column[picks], axis=1) for column in stacked.T], axis=1)


def interval(resampled: Resampled, low: Resampled | None = None, high: Resampled | None = None) -> Measured:
    """Return a statistic with its 95 % percentile interval; infinite resamples are allowed.

    `low` and `high` are bounds of resamples that are known only between bounds; by default `resampled`.
    """
    ends = ((resampled if low is None else low, 0.025), (resampled if high is None else high, 0.975))
    least, most = (float(np.quantile(bound[1:], share, method="inverted_cdf")) for bound, share in ends)
    return float(resampled[0]), least, most


def lower(size: Resampled, smallest: float) -> Resampled:
    """Return a lower bound of a size from `crossing`: 0 at the smallest of the sizes, which is only an upper bound."""
    return np.where(size <= smallest, 0.0, size)


def crossing(sizes: Iterable[float], values: Array) -> Array:
    """Return the size from which logarithms (.., sizes) are negative, interpolated linearly in the log of the size.

    It is the smallest size if all values are negative (see `lower`), and infinite if the last one is not. Ties are not
    negative.
    """
    values = np.where(np.abs(values) <= TIE, 0.0, values)
    places, above = np.array(list(sizes), dtype=float), values >= 0
    last = above.shape[-1] - 1 - np.argmax(above[..., ::-1], axis=-1)
    after = np.minimum(last + 1, above.shape[-1] - 1)
    first, second = (np.take_along_axis(values, at[..., None], axis=-1)[..., 0] for at in (last, after))
    with np.errstate(all="ignore"):  # without a crossing
        part = first / (first - second)
        between = np.exp(np.log(places)[last] + part * np.log(places[after] / places[last]))
    return np.where(~above.any(axis=-1), places[0], np.where(above[..., -1], np.inf, between))
