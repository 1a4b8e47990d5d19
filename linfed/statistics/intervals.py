"""Confidence intervals over trials: exact for shares, bootstrapped for the rest, by cluster where trials share data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Generator
from linfed.errors import check_number
from linfed.statistics.quantiles import quantiles

INFINITE = 1e150
"""Stands for an infinite statistic, which resampling cannot average."""

HUGE = 1e9
"""Stands for the error of a diverged trial: worse than any other, yet finite, as intervals need it."""

TOGETHER = 2**20
"""Values of resampled curves that are held at a time."""

Measured: TypeAlias = tuple[float, float, float]
"""A statistic's value and the two ends of its interval."""


def first_round_below(rounds: Array, values: Array, threshold: float) -> Array:
    """Return the first recorded round at which each trial is at or below a threshold, infinite if it never is.

    Parameters
    ----------
    rounds : ndarray (R,)
    values : ndarray (trials, R)
    threshold : float

    Returns
    -------
    ndarray (trials,)
    """
    hit = values <= threshold
    return np.where(hit.any(axis=1), np.asarray(rounds, dtype=float)[hit.argmax(axis=1)], np.inf)


def worst(errors: npt.ArrayLike) -> Array:
    """Return errors with those of diverged trials (NaN) as the worst."""
    return np.nan_to_num(np.asarray(errors, dtype=float), nan=HUGE, posinf=HUGE)


def binomial_share(count: int, total: int, *, confidence: float = 0.95) -> Measured:
    """Return the share ``count / total`` with its Clopper-Pearson interval; (nan, 0, 1) of nothing."""
    if total == 0:
        return np.nan, 0.0, 1.0
    from scipy import stats

    interval = stats.binomtest(count, total).proportion_ci(confidence, method="exact")
    return count / total, float(interval.low), float(interval.high)


def share_smaller(first: Array, second: Array, *, confidence: float = 0.95) -> tuple[Measured, str]:
    """Return the share of paired trials in which the first is smaller, among those that differ.

    Parameters
    ----------
    first, second : ndarray (trials,)
        Paired values; infinities are allowed (two of them are a tie).
    confidence : float

    Returns
    -------
    (estimate, low, high) : tuple of float
        With a Clopper-Pearson interval; (nan, 0, 1) where all trials tie.
    detail : str
        The counts in words: of the trials that differ, and of all.
    """
    smaller, larger = int(np.sum(first < second)), int(np.sum(first > second))
    differ, total = smaller + larger, len(first)
    detail = f"{smaller} of {differ}"
    if differ < total:
        detail += f" that differ; {smaller} of all {total} smaller, {larger} larger, {total - differ} tied"
    return binomial_share(smaller, differ, confidence=confidence), detail


def clustered_share(
    hits: npt.ArrayLike, clusters: npt.ArrayLike | None = None, *, confidence: float = 0.95, seed: int = 0
) -> Measured:
    """Return a share of points that come in clusters, with a bootstrap interval over the clusters.

    Parameters
    ----------
    hits : array_like of bool (points,), or (clusters, points)
        Whether a point counts.
    clusters : array_like (points,), optional
        Each point's cluster, e.g. the data set that several runs share; the rows of `hits` by default.
    confidence : float
    seed : int
        Seed of the bootstrap.

    Notes
    -----
    Where all clusters have the same share no resample differs, and the bootstrap would claim to know it exactly: the
    interval then reaches as far as a share of which none of so many clusters was seen could (Clopper and Pearson).
    """
    values = np.asarray(hits, dtype=float)
    if clusters is None:
        counts, sizes = values.sum(axis=1), np.full(len(values), float(values.shape[1]))
    else:
        _, index = np.unique(np.asarray(clusters), return_inverse=True)
        counts, sizes = np.bincount(index.ravel(), weights=values), np.bincount(index.ravel()).astype(float)
    if len(counts) == 0:
        return np.nan, 0.0, 1.0

    def share(i: Array, axis: int = 0) -> Array:
        k = i.astype(int)
        return counts[k].sum(axis=axis) / sizes[k].sum(axis=axis)

    everyone = np.arange(float(len(counts)))
    estimate = float(share(everyone))
    if np.ptp(counts / sizes) == 0:
        reach = binomial_share(0, len(counts), confidence=confidence)[2]
        return estimate, max(0.0, estimate - reach), min(1.0, estimate + reach)
    return (estimate, *bootstrap_interval(share, (everyone,), vectorized=True, confidence=confidence, seed=seed))


def clustered_difference(
    first: tuple[npt.ArrayLike, npt.ArrayLike],
    second: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[Measured, str]:
    """Return the difference of two shares of points that come in the same clusters, with an interval over the clusters.

    Parameters
    ----------
    first, second : pair of array_like of bool (clusters, points)
        Whether a point hits, and whether it counts at all. The two may have different points.
    confidence : float
    seed : int
        Seed of the bootstrap, which resamples clusters whole: both shares see the same ones.

    Returns
    -------
    (estimate, low, high) : tuple of float
        NaN where no point of a share counts; without an interval if there is one cluster.
    detail : str
        Both shares in words.
    """
    masks = [(np.asarray(hits, dtype=bool), np.asarray(counted, dtype=bool)) for hits, counted in (first, second)]
    counts = [part.sum(axis=1).astype(float) for hits, counted in masks for part in (hits & counted, counted)]

    def difference(*counts: Array, axis: int = 0) -> Array:
        a, of_a, b, of_b = (count.sum(axis=axis) for count in counts)
        return a / np.maximum(1.0, of_a) - b / np.maximum(1.0, of_b)

    shares = [f"{100 * (hit.sum() / of.sum()):.0f} %" if of.sum() else "-" for hit, of in (counts[:2], counts[2:])]
    detail = " against ".join(shares)
    if "-" in shares:
        return (np.nan, np.nan, np.nan), detail
    ends = np.nan, np.nan
    if len(counts[0]) > 1:
        ends = bootstrap_interval(difference, counts, paired=True, vectorized=True, confidence=confidence, seed=seed)
    return (float(difference(*counts)), *ends), detail


def probability_smaller(first: Array, second: Array, *, confidence: float = 0.95, seed: int = 0) -> Measured:
    """Return P(first < second) + P(tie)/2 for independent trials, with a bootstrap interval.

    Parameters
    ----------
    first : ndarray (a,)
    second : ndarray (b,)
        Infinities are allowed: only the order counts.
    confidence : float
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    estimate, low, high : float
    """

    def statistic(a: Array, b: Array) -> float:
        below = np.searchsorted(np.sort(b), a, side="left"), np.searchsorted(np.sort(b), a, side="right")
        return float(1.0 - (below[0].mean() + below[1].mean()) / (2.0 * len(b)))

    estimate = statistic(first, second)
    if estimate in (0.0, 1.0):  # no overlap at all: the bootstrap is degenerate, the exact bound is not
        reach = binomial_share(0, min(len(first), len(second)), confidence=confidence)[2]
        return (estimate, 1.0 - reach, 1.0) if estimate else (estimate, 0.0, reach)
    low, high = bootstrap_interval(statistic, (first, second), confidence=confidence, seed=seed)
    return estimate, low, high


def median_interval(values: Array) -> Measured:
    """Return the lower median over trials, diverged ones (NaN) as the worst, with its bootstrap interval."""
    return (float(_median(values)), *bootstrap_interval(_median, (values,), vectorized=True))


def _median(values: Array, axis: int = 0) -> Array:
    return quantiles(np.moveaxis(values, axis, 0))[0]


def median_ratio(first: Array, second: Array) -> Measured:
    """Return the ratio of two lower medians over paired trials, the first's over the second's, with its interval.

    Parameters
    ----------
    first, second : ndarray (trials,)
        Positive values; those of diverged trials (NaN) are the worst.
    """

    def ratio(above: Array, below: Array, axis: int = 0) -> Array:
        return _median(above, axis) / _median(below, axis)

    return (float(ratio(first, second)), *bootstrap_interval(ratio, (first, second), paired=True, vectorized=True))


def largest_factor(measured: Array, predicted: Array) -> Measured:
    """Return the largest factor by which the median curve over trials differs from the median prediction.

    Parameters
    ----------
    measured, predicted : ndarray (trials, R)
        Positive; a trial's prediction may depend on its truth, so that both are resampled together.

    Returns
    -------
    estimate, low, high : float
        At least 1: in the worst round, whichever of the two is the larger. With a percentile bootstrap interval.
    """
    together = max(1, TOGETHER // np.size(measured))

    def factors(k: npt.NDArray[np.int64]) -> Array:
        ratios = _median(measured[k], 1) / np.median(predicted[k], axis=1)
        return np.maximum(ratios, 1 / ratios).max(axis=-1)

    def factor(i: Array, axis: int = -1) -> Array:  # where the trials lie: last
        k = np.atleast_2d(i.astype(int))
        found = [factors(k[start : start + together]) for start in range(0, len(k), together)]
        return np.concatenate(found).reshape(np.shape(i)[:-1])

    everyone = np.arange(float(len(measured)))
    return (float(factor(everyone)), *bootstrap_interval(factor, (everyone,), vectorized=True))


def smallest_constant(ratios: npt.ArrayLike, *, allowed: float = 0.1) -> Measured:
    """Return the smallest constant with which a bound would hold in all but a share of the trials.

    Parameters
    ----------
    ratios : array_like (trials,)
        For each trial the largest ratio of what is bounded to the bound with constant 1.
    allowed : float
        Share of trials that may fail.

    Returns
    -------
    estimate, low, high : float
        With a percentile bootstrap interval over trials.
    """
    values = np.where(np.isnan(ratios), np.inf, np.asarray(ratios, dtype=float))
    level = 1.0 - check_number("allowed", allowed, minimum=0.0, maximum=1.0)
    if len(values) < 2:
        raise ValueError(f"ratios has {len(values)} value; an interval over trials needs two")

    def statistic(sample: Array, axis: int = 0) -> Array:
        return np.quantile(sample, level, axis=axis, method="inverted_cdf")

    return (float(statistic(values)), *bootstrap_interval(statistic, (values,), vectorized=True))


def bootstrap_interval(
    statistic: Callable[..., Any],
    samples: Sequence[Array],
    *,
    paired: bool = False,
    vectorized: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic of samples.

    Parameters
    ----------
    statistic : callable
        From one array per sample to a number, which may be infinite.
    samples : sequence of ndarray
    paired : bool
        Whether the samples have a trial's values at the same place, and are resampled together: of trials that share a
        seed. Independent samples are resampled by themselves.
    vectorized : bool
        Whether the statistic takes stacks of samples and the keyword ``axis``, along which the trials lie: some thirty
        times as fast.
    confidence : float
    seed : int
    resamples : int
    """
    from scipy import stats

    rng: Generator = np.random.default_rng(seed)

    def finite(*resample: Array, **along: int) -> Any:
        return np.clip(np.asarray(statistic(*resample, **along), dtype=float), -INFINITE, INFINITE)

    found = stats.bootstrap(
        tuple(samples),
        finite,
        paired=paired,
        confidence_level=confidence,
        n_resamples=resamples,
        method="percentile",
        vectorized=vectorized,
        rng=rng,
    ).confidence_interval
    low, high = (math.copysign(math.inf, end) if abs(end) >= INFINITE else float(end) for end in found)
    return low, high
