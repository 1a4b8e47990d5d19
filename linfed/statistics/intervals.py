"""Confidence intervals over trials: exact for shares and quantiles, over clusters for shared data, or by bootstrap."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Generator, Mask
from linfed.checks import (
    check_array,
    check_bool,
    check_integer,
    check_number,
    check_numbers,
    check_shape,
    check_unmasked,
    check_whole,
    is_real,
    short_repr,
)
from linfed.errors import SizeError
from linfed.numerics.quantiles import quantiles

INFINITE = 1e150
"""Replacement for an infinite statistic, which resampling cannot average."""

HUGE = 1e9
"""Replacement for the error of a diverged trial: larger than errors of interest, but finite, as intervals require."""

FEWEST = 6
"""Smallest number of trials with a bootstrap interval at 95 %, see `fewest_trials`."""

MOST_RESAMPLES = 20_000
"""Largest number of resamples that are drawn for the sake of ends far out."""

TOGETHER = 2**20
"""Number of values of resampled curves that are held at a time."""

SMALLEST_FREEDOM = 0.1
"""With fewer degrees of freedom, an interval over clusters is the whole range."""

Measured: TypeAlias = tuple[float, float, float]
"""Estimate of a statistic and the two ends of its interval."""


def _level(confidence: object) -> float:
    """Return a confidence level from 0 to 1."""
    return check_number("confidence", confidence, minimum=0.0, maximum=1.0)


def _trials(name: str, values: object, *, some: bool = True) -> Array:
    """Return values of trials (trials,), if `some` at least one; NaN and infinity are allowed."""
    array = check_numbers(name, values)
    if array.ndim != 1 or (some and not array.size):
        raise ValueError(f"{name} has shape {array.shape}, expected (trials,)" + ", at least one" * some)
    return array


def fewest_trials(confidence: float = 0.95) -> float:
    """Return the smallest number of trials with a finite bootstrap interval.

    All trials lie on the same side of a median with probability ``2^-trials`` for each side. With fewer trials this is
    more than ``(1 - confidence) / 2``, so no order statistic bounds the median. Resamples bound nothing better.

    Examples
    --------
    >>> from linfed.statistics.intervals import fewest_trials
    >>> fewest_trials(), fewest_trials(1 - 0.05 / 10)
    (6, 9)
    """
    tail = (1.0 - _level(confidence)) / 2.0
    return max(FEWEST, math.ceil(-math.log2(tail))) if tail else math.inf


def for_each(confidence: float, number: int) -> float:
    """Return the confidence of each of some intervals that hold together with at least `confidence` (Bonferroni)."""
    return 1.0 - (1.0 - confidence) / number


def not_negative(name: str, values: npt.ArrayLike, axes: int = 0) -> Array:
    """Return values whose ratios have a meaning; NaN (a diverged trial) becomes infinite.

    Raises
    ------
    ValueError
        If a value is negative.
    """
    array = check_numbers(name, values, axes)
    if (array < 0).any():
        raise ValueError(f"{name} contains {array[array < 0].min():g}, but must not be negative: ratios have no sign")
    return np.where(np.isnan(array), np.inf, array)


def _pairs(first: object, second: object, *, some: bool = True) -> tuple[Array, Array]:
    """Return values of paired trials."""
    one, other = _trials("first", first, some=some), _trials("second", second, some=some)
    check_shape("second", other, one.shape, "the shape of first")
    return one, other


def checked_mask(name: str, values: npt.ArrayLike) -> Mask:
    """Return an array of truth values; raise if it contains other numbers than 0 and 1."""
    try:
        array = np.array(check_unmasked(name, values))
    except MemoryError:
        raise SizeError(f"{name} = {short_repr(values)} is too large: no memory is left for a copy") from None
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{name} = {short_repr(values)} must be an array: its parts have different sizes") from None
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} = {short_repr(values)} must contain only True and False")
    return array.astype(bool)


def first_round_below(rounds: npt.ArrayLike, values: Array, threshold: float) -> Array:
    """Return the first recorded round in which each trial is at or below a threshold, infinite if there is none.

    Parameters
    ----------
    rounds : ndarray (R,)
        Recorded rounds.
    values : ndarray (trials, R)
        Values in these rounds.
    threshold : float

    Returns
    -------
    ndarray (trials,)

    Examples
    --------
    >>> import numpy as np
    >>> from linfed.statistics import first_round_below
    >>> first_round_below(np.array([0, 10, 20]), np.array([[1.0, 0.1, 0.01], [1.0, 0.5, 0.2]]), 0.1).tolist()
    [10.0, inf]
    """
    recorded, curves = check_array("rounds", rounds, [("R",)]), check_numbers("values", values, axes=2)
    check_shape("values", curves, (len(curves), len(recorded)), "(trials, R)")
    hit = curves <= check_number("threshold", threshold)
    return np.where(hit.any(axis=1), recorded[hit.argmax(axis=1)], np.inf)


def nan_as_worst(errors: npt.ArrayLike) -> Array:
    """Return errors with NaN (diverged trials) and infinity replaced by `HUGE`."""
    return np.nan_to_num(np.asarray(errors, dtype=float), nan=HUGE, posinf=HUGE)


def binomial_share(count: int, total: int, *, confidence: float = 0.95) -> Measured:
    """Return the share ``count / total`` with its Clopper-Pearson interval.

    Parameters
    ----------
    count, total : int
        Number of successes and of trials, ``0 <= count <= total``.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    estimate, low, high : float
        (nan, 0, 1) if `total` is 0.

    Raises
    ------
    ValueError
        If a value is out of range.

    Examples
    --------
    >>> from linfed.statistics import binomial_share
    >>> [round(one, 3) for one in binomial_share(19, 20)]
    [0.95, 0.751, 0.999]
    """
    total, confidence = check_integer("total", total, minimum=0), _level(confidence)
    count = check_integer("count", count, minimum=0, maximum=total)
    if total == 0:
        return np.nan, 0.0, 1.0
    from scipy import special

    tail = (1.0 - confidence) / 2.0
    low = float(special.betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(special.betainccinv(count + 1, total - count, tail)) if count < total else 1.0
    return count / total, low, high


def largest_of(
    interval: Callable[..., Measured], samples: Sequence[tuple[Any, ...]], *, confidence: float = 0.95
) -> Measured:
    """Return the largest of several estimates, with an interval for the largest of the true values.

    Parameters
    ----------
    interval : callable
        Function of the parts of a sample and of the keyword `confidence` that returns an estimate with its interval,
        e.g. `median_ratio`.
    samples : sequence of tuple
        Samples, at least one.
    confidence : float
        Confidence level of the interval.

    Notes
    -----
    The upper end is the largest upper end. It needs no correction: the largest true value belongs to one sample, whose
    own upper end lies below it with probability at most ``(1 - confidence) / 2``. The lower end is the largest lower
    end of intervals that hold together (Bonferroni), because any sample may be the one with the largest lower end.

    If all ratios of medians equal a claimed limit, the lower end exceeds it in at most 0.03 of the cases. The upper end
    never lies below it. This was measured for 3 samples of 8 trials, and 3 and 10 samples of 20 lognormal or skewed
    trials, independent or correlated over samples.

    Examples
    --------
    >>> from linfed.statistics.intervals import largest_of, mean_interval
    >>> largest, low, high = largest_of(mean_interval, [([1.0, 1.1, 1.2],), ([0.7, 1.0, 1.3],)])
    >>> [round(one, 3) for one in (largest, low, high)]
    [1.1, 0.742, 1.745]
    """
    if not samples:
        raise ValueError("samples is empty; give at least one sample")
    own = np.array([interval(*sample, confidence=confidence) for sample in samples])
    together = for_each(confidence, len(samples))
    lows = own[:, 1] if len(samples) == 1 else [interval(*sample, confidence=together)[1] for sample in samples]
    return float(own[:, 0].max()), float(np.max(lows)), float(own[:, 2].max())


def as_factor(ratio: Measured) -> Measured:
    """Return the factor by which a positive ratio differs from 1, in either direction, with its interval.

    Examples
    --------
    >>> from linfed.statistics.intervals import as_factor
    >>> as_factor((0.5, 0.25, 0.8)), as_factor((1.0, 0.5, 1.25))
    ((2.0, 1.25, 4.0), (1.0, 1.0, 2.0))
    """
    estimate, *ends = (max(one, 1.0 / one) if one > 0 else math.inf for one in ratio)
    return estimate, 1.0 if ratio[1] <= 1.0 <= ratio[2] else min(ends), max(ends)


def mean_factor(values: npt.ArrayLike, predicted: float, *, confidence: float = 0.95) -> Measured:
    """Return the factor by which the mean over trials differs from a prediction, in either direction.

    Parameters
    ----------
    values : array_like (trials,)
        Values, as in `mean_interval`.
    predicted : float
        Predicted mean, a positive number.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    estimate, low, high : float
        Factor, at least 1, and its interval (`as_factor`).

    Examples
    --------
    >>> from linfed.statistics.intervals import mean_factor
    >>> mean_factor([0.5, 0.5, 0.5], 1.0)
    (2.0, 2.0, 2.0)
    """
    predicted = check_number("predicted", predicted, positive=True)
    return as_factor(mean_interval(_trials("values", values) / predicted, confidence=confidence))


def share_smaller(first: Array, second: Array, *, confidence: float = 0.95) -> tuple[Measured, str]:
    """Return the share of paired trials in which the first value is smaller, among the trials that differ.

    Parameters
    ----------
    first, second : ndarray (trials,)
        Paired values; infinities are allowed (two infinities tie), and NaN counts as infinity.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    (estimate, low, high) : tuple of float
        Share and its Clopper-Pearson interval; (nan, 0, 1) if all trials tie.
    detail : str
        Counts in words: among the trials that differ, and among all trials.

    Examples
    --------
    >>> import numpy as np
    >>> from linfed.statistics import share_smaller
    >>> (share, low, high), detail = share_smaller(np.arange(5.0), np.array([1.0, 2, 3, 4, 4]))
    >>> share, detail
    (1.0, '4 of 4 that differ; 4 of all 5 smaller, 0 larger, 1 tied')
    """
    first, second = (np.where(np.isnan(one), np.inf, one) for one in _pairs(first, second, some=False))
    smaller, larger = int(np.sum(first < second)), int(np.sum(first > second))
    differ, total = smaller + larger, len(first)
    detail = f"{smaller} of {differ}"
    if differ < total:
        detail += f" that differ; {smaller} of all {total} smaller, {larger} larger, {total - differ} tied"
    return binomial_share(smaller, differ, confidence=confidence), detail


def clustered_share(
    hits: npt.ArrayLike, clusters: npt.ArrayLike | None = None, *, confidence: float = 0.95
) -> Measured:
    """Return a share of points in clusters, with an interval over the clusters.

    Parameters
    ----------
    hits : array_like of bool (points,), or (clusters, points)
        True for the points that count as hits.
    clusters : array_like (points,), optional
        Cluster of each point, e.g. the data set that several runs share; the rows of `hits` by default.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    estimate, low, high : float
        (nan, 0, 1) without points. Up to three clusters of equal size give (estimate, 0, 1) at 95 %.

    Notes
    -----
    The interval is Student's interval of a ratio of cluster totals, after adding two pseudo-clusters: one in which all
    points are hits, and one without hits. This is Agresti and Coull's (1998) "plus four" rule with clusters as the
    units (derived here). The size of a pseudo-cluster is ``s = sum size^2 / sum size``, the mean size of a point's
    cluster. The degrees of freedom are the effective number of clusters, ``points / s``, minus one. The estimate is the
    plain share.

    The measured coverage of 95 % intervals is at least 0.99 with 5 clusters, 0.96 with 10, and 0.94 with 20 and 50. It
    was measured over beta-binomial points, with shares 0.5 to 0.99, intracluster correlations 0 to 1, clusters of 10 or
    100 points, and equal or unequal sizes (coefficients of variation 0, 0.5 and 1). The intervals are wide if clusters
    hardly differ, because the sample cannot exclude rare clusters with other shares. The percentile bootstrap has
    coverage 0.76 to 0.97, the effective sample size of Korn and Graubard (1998) 0.80 to 0.99.

    Examples
    --------
    >>> from linfed.statistics import clustered_share
    >>> hits = [[True, True, False], [True, True, True], [False, True, True], [True, True, True], [True, False, True]]
    >>> [round(float(one), 3) for one in clustered_share(hits)]
    [0.8, 0.34, 1.0]
    """
    from scipy import special

    confidence, values = _level(confidence), checked_mask("hits", hits)
    if values.ndim != (2 if clusters is None else 1):
        wanted = "(clusters, points)" if clusters is None else "(points,), as clusters is given"
        raise ValueError(f"hits has shape {values.shape}, expected {wanted}")
    if clusters is None:
        counts, sizes = values.sum(axis=1).astype(float), np.full(len(values), float(values.shape[1]))
    else:
        check_shape("clusters", np.asarray(clusters), values.shape, "the shape of hits")
        _, index = np.unique(np.asarray(clusters), return_inverse=True)
        counts, sizes = np.bincount(index.ravel(), weights=values), np.bincount(index.ravel()).astype(float)
    if not sizes.any():
        return np.nan, 0.0, 1.0
    size = float(sizes @ sizes / sizes.sum())
    estimate = float(counts.sum() / sizes.sum())
    freedom = float(sizes.sum()) / size - 1.0
    if freedom < SMALLEST_FREEDOM:
        return estimate, 0.0, 1.0
    counts, sizes = np.append(counts, [size, 0.0]), np.append(sizes, [size, size])
    centre = float(counts.sum() / sizes.sum())
    residuals = (counts - centre * sizes) / sizes.sum()
    number = len(residuals)
    error = math.sqrt(number / (number - 1) * (residuals @ residuals))
    reach = float(special.stdtrit(freedom, (1.0 + confidence) / 2.0)) * error
    return estimate, max(0.0, min(estimate, centre - reach)), min(1.0, max(estimate, centre + reach))


def probability_smaller(first: Array, second: Array, *, confidence: float = 0.95, seed: int = 0) -> Measured:
    """Return P(first < second) + P(tie)/2 for independent trials, with a bootstrap interval.

    Parameters
    ----------
    first : ndarray (a,)
    second : ndarray (b,)
        Values of the trials; only their order counts. Infinities are allowed, and NaN counts as the largest value.
    confidence : float
        Confidence level of the interval.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    estimate, low, high : float

    Notes
    -----
    The measured coverage of the percentile bootstrap is 0.93 to 0.97 for probabilities 0.6 and 0.8 and 10, 20 and 50
    normal trials. For probability 0.9 it is 0.92, 0.93 and 0.94 with 8, 20 and 50 trials, and most intervals that fail
    lie too near to 1. If all pairs have the same order, the interval's length is the upper end of the Clopper-Pearson
    interval for no exception in min(a, b) trials, also with few trials. It has the same length, around 1/2, if all
    pairs tie. Otherwise the interval is [0, 1] with fewer than six trials of a side.

    Examples
    --------
    >>> import numpy as np
    >>> from linfed.statistics import probability_smaller
    >>> [round(one, 3) for one in probability_smaller(np.arange(6.0), np.arange(6.0) + 10)]
    [1.0, 0.541, 1.0]
    """
    first, second = _trials("first", first), _trials("second", second)
    ranks = np.unique(np.concatenate([first, second]), return_inverse=True)[1]  # NaN is the largest
    below, above = ranks[: len(first), None], ranks[len(first) :]
    wins = (below < above) + 0.5 * (below == above)

    def statistic(i: Array, j: Array, axis: int = 0) -> Any:
        return np.sum((_counts(i, len(first), axis) @ wins) * _counts(j, len(second), axis), axis=-1) / wins.size

    places = np.arange(float(len(first))), np.arange(float(len(second)))
    estimate = float(wins.mean())
    if np.ptp(wins) == 0:  # the bootstrap interval would have length 0
        reach = binomial_share(0, min(len(first), len(second)), confidence=confidence)[2]
        if estimate == 0.5:
            return 0.5, 0.5 - reach / 2, 0.5 + reach / 2
        return (estimate, 1.0 - reach, 1.0) if estimate else (estimate, 0.0, reach)
    low, high = bootstrap_interval(statistic, places, vectorized=True, confidence=confidence, seed=seed)
    return estimate, max(low, 0.0), min(high, 1.0)


def _counts(chosen: Array, size: int, axis: int) -> Array:
    """Return how often each of the numbers 0 to size - 1 was chosen along an axis, (.., size)."""
    rows = np.moveaxis(chosen, axis, -1).reshape(-1, chosen.shape[axis]).astype(int)
    flat = rows + size * np.arange(len(rows))[:, None]
    counts = np.bincount(flat.ravel(), minlength=size * len(rows)).reshape(len(rows), size)
    return counts.reshape(*np.delete(chosen.shape, axis), size).astype(float)


def quantile_interval(values: npt.ArrayLike, level: float, *, confidence: float = 0.95) -> Measured:
    """Return a quantile over trials, with an interval between two order statistics.

    Parameters
    ----------
    values : array_like (trials,)
        Values; NaN (a diverged trial) counts as infinite.
    level : float
        Level of the quantile, from 0 to 1. The estimate is the smallest value with at least this share at or below it.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    estimate, low, high : float
        An end is infinite if there are too few trials for a finite one: at 95 % the median needs 6 trials, and the
        upper end of the 95 % quantile 72.

    Raises
    ------
    ValueError
        If there are no values, or a level is out of range.

    Notes
    -----
    The number of trials at or below the quantile is binomial for every distribution. So the coverage is at least
    `confidence`, and the quantile lies beyond either end with probability at most ``(1 - confidence) / 2`` (David and
    Nagaraja 2003, Order Statistics, section 7.1).

    Examples
    --------
    >>> from linfed.statistics import quantile_interval
    >>> quantile_interval(range(100), 0.9)
    (89.0, 83.0, 95.0)
    """
    from scipy import special

    level, confidence = check_number("level", level, minimum=0.0, maximum=1.0), _level(confidence)
    ordered = _trials("values", values)
    ordered = np.sort(np.where(np.isnan(ordered), np.inf, ordered))
    estimate = float(np.quantile(ordered, level, method="inverted_cdf"))
    below = special.bdtr(np.arange(len(ordered)), len(ordered), level)  # P(at most i trials at or below the quantile)
    short, beyond = np.flatnonzero(below <= (1 - confidence) / 2), np.flatnonzero(below >= (1 + confidence) / 2)
    low = float(ordered[short[-1]]) if short.size else -math.inf
    high = float(ordered[beyond[0]]) if beyond.size else math.inf
    return estimate, low, high


def median_interval(values: npt.ArrayLike) -> Measured:
    """Return the lower median over trials, with the interval of `quantile_interval`.

    Parameters
    ----------
    values : array_like (trials,)
        Values; NaN (a diverged trial) counts as infinite.

    Returns
    -------
    estimate, low, high : float
        An end is infinite with fewer than 6 trials.

    Raises
    ------
    ValueError
        If there are no values.

    Examples
    --------
    >>> from linfed.statistics import median_interval
    >>> median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    (3.0, 1.0, 6.0)
    """
    return quantile_interval(values, 0.5)


def median_ends(table: Array, confidence: float) -> tuple[Array, Array, Array]:
    """Return the lower median of each column of numbers that are not negative, with the ends of `quantile_interval`."""
    found = np.array([quantile_interval(column, 0.5, confidence=confidence) for column in table.T]).T
    return found[0], np.maximum(found[1], 0.0), found[2]


def mean_interval(values: npt.ArrayLike, *, confidence: float = 0.95) -> Measured:
    """Return the mean over trials, with Student's interval.

    Parameters
    ----------
    values : array_like (trials,)
        Values. If one is NaN (a diverged trial) or infinite, the mean is infinite and its interval is the whole line.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    estimate, low, high : float
        The ends are infinite with one trial.

    Raises
    ------
    ValueError
        If there are no values, or `confidence` is out of range.

    Notes
    -----
    The coverage is exact for normal trials. For skewed trials, such as errors over many decades, `median_interval` is
    safer: its coverage is at least 95 % for every distribution. If all trials are equal, the interval has length 0. So
    it covers the mean of a rare event only if the event occurs. For an event of probability 0.02 the coverage is 0.10,
    0.15, 0.33 and 0.64 with 5, 8, 20 and 50 trials. For shares use `binomial_share`.

    Examples
    --------
    >>> from linfed.statistics import mean_interval
    >>> [round(one, 3) for one in mean_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    from scipy import special

    array, confidence = _trials("values", values), _level(confidence)
    if not np.isfinite(array).all():
        return math.inf, -math.inf, math.inf
    mean = float(array.mean())
    if len(array) < 2:
        return mean, -math.inf, math.inf
    reach = float(special.stdtrit(len(array) - 1, (1 + confidence) / 2) * array.std(ddof=1) / math.sqrt(len(array)))
    return mean, mean - reach, mean + reach


def _median(values: Array, axis: int = 0) -> Array:
    return quantiles(np.moveaxis(values, axis, 0))[0]


def quotient(above: Array, below: Array, unknown: float = np.nan) -> Array:
    """Return a ratio of numbers that are not negative; `unknown` if both are 0 or both are infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(above) / np.asarray(below)
    return np.where(np.isnan(ratio), unknown, ratio)


def median_ratio(first: Array, second: Array, *, confidence: float = 0.95) -> Measured:
    """Return the lower median of the first divided by that of the second, over paired trials, with its interval.

    Parameters
    ----------
    first, second : ndarray (trials,)
        Values that are not negative; NaN (a diverged trial) counts as infinite.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    estimate, low, high : float
        Ratio and its percentile bootstrap interval; 0 to infinity with fewer than six trials. The ratio is NaN if both
        medians are 0, or both are infinite.

    Raises
    ------
    ValueError
        If a value is negative, or the shapes differ.

    Notes
    -----
    A resample in which both medians are infinite, or both are 0, counts as 0 for the lower end, and as infinite for the
    upper end. The measured coverage is 0.96 to 0.99 with 10, 20 and 50 lognormal trials, independent or correlated. If
    the second does not vary over trials, it is 0.87 to 0.97; then use `median_interval` of the ratios, which is exact.

    Examples
    --------
    >>> import numpy as np
    >>> from linfed.statistics import median_ratio
    >>> ratio, low, high = median_ratio(np.array([2.0, 2.2, 1.8, 2.1, 1.9, 2.0]), np.ones(6))
    >>> ratio, low, high
    (2.0, 1.8, 2.1)
    """
    first, second = _pairs(first, second)
    first, second = not_negative("first", first), not_negative("second", second)

    def ratio(above: Array, below: Array, axis: int = 0, *, unknown: float = np.nan) -> Array:
        return quotient(_median(above, axis), _median(below, axis), unknown)

    def interval(unknown: float) -> tuple[float, float]:
        statistic = partial(ratio, unknown=unknown)
        return bootstrap_interval(statistic, (first, second), paired=True, vectorized=True, confidence=confidence)

    low, high = interval(0.0)
    if any((first == value).any() and (second == value).any() for value in (0.0, np.inf)):
        high = interval(np.inf)[1]
    return float(ratio(first, second)), max(low, 0.0), high


def mean_ratio(first: Array, second: Array | float, *, confidence: float = 0.95) -> Measured:
    """Return the mean of the first divided by that of the second, over paired trials, with its bootstrap interval.

    Parameters
    ----------
    first : array_like (trials,)
        Values.
    second : array_like (trials,) or float
        Values of the same trials, or a number without an error, such as a prediction.
    confidence : float
        Confidence level of the interval.

    Returns
    -------
    estimate, low, high : float
        Ratio and its percentile bootstrap interval; the whole line with fewer than six trials. If a value is NaN (a
        diverged trial) or infinite, the ratio is NaN and the interval is the whole line.

    Examples
    --------
    >>> import numpy as np
    >>> from linfed.statistics.intervals import mean_ratio
    >>> ratio, low, high = mean_ratio(np.array([2.0, 2.2, 1.8, 2.1, 1.9, 2.0]), 2.0)
    >>> ratio, low < 1.0 < high
    (1.0, True)
    """
    samples = (_trials("first", first),) if is_real(second) else _pairs(first, second)
    if not np.isfinite(samples).all():
        return math.nan, -math.inf, math.inf

    def ratio(*means: Array, axis: int = 0) -> Any:
        return means[0].mean(axis=axis) / (means[1].mean(axis=axis) if means[1:] else second)

    ends = bootstrap_interval(ratio, samples, paired=True, vectorized=True, confidence=confidence)
    return (float(ratio(*samples)), *ends)


def largest_factor(measured: Array, predicted: Array) -> Measured:
    """Return the largest factor between the median curve over trials and the median prediction.

    Parameters
    ----------
    measured, predicted : ndarray (trials, R)
        Curves that are not negative; NaN (a diverged trial) counts as infinite. A trial's prediction may depend on its
        ground truth, so both are resampled together.

    Returns
    -------
    estimate, low, high : float
        Factor in the worst round, at least 1 (the larger median divided by the smaller), and its interval; NaN if both
        medians of a round are 0, or both are infinite.

    Raises
    ------
    ValueError
        If a value is negative, or the shapes differ.

    Notes
    -----
    The ends are percentiles of the bootstrap. The upper end takes the largest factor of each resample, which is biased
    upwards. The lower end, at least 1, takes the ratio in the round (and the direction) that is worst in the data. As
    the data choose among R rounds and two directions, its tail is divided by 2 R (Bonferroni), and then widened as in
    `bootstrap_interval`. It is 1 with fewer trials than `fewest_trials` gives, e.g. 11 for 20 rounds.

    `tests/statistics/verdict_rates.py` measures how often an end lies on the wrong side of the largest true factor.
    """
    measured, predicted = not_negative("measured", measured, 2), not_negative("predicted", predicted, 2)
    check_shape("predicted", predicted, measured.shape, "the shape of measured")
    together = max(1, TOGETHER // np.size(measured))

    def factors(i: Array, rounds: slice = slice(None)) -> Array:  # trials are the last axis
        k = np.atleast_2d(i.astype(int))
        pieces = [k[start : start + together] for start in range(0, len(k), together)]
        found = [quotient(np.median(measured[k, rounds], 1), np.median(predicted[k, rounds], 1)) for k in pieces]
        return np.concatenate(found).reshape(*np.shape(i)[:-1], -1)

    def largest(i: Array, axis: int = -1) -> Array:
        each = factors(i)
        return np.asarray(np.maximum(each, quotient(np.ones(1), each)).max(axis=-1))

    def of_worst(i: Array, axis: int = -1) -> Array:
        each = factors(i, slice(worst, worst + 1))[..., 0]
        return np.nan_to_num(each if is_above else quotient(np.ones(1), each), nan=1.0, posinf=np.inf)

    def known_largest(i: Array, axis: int = -1) -> Array:
        return np.nan_to_num(largest(i), nan=np.inf, posinf=np.inf)

    everyone = np.arange(float(len(measured)))
    known = np.nan_to_num(factors(everyone), nan=1.0, posinf=np.inf)
    worst = int(np.argmax(np.maximum(known, quotient(np.ones(1), known))))
    is_above = bool(known[worst] > 1.0)
    each = for_each(0.95, 2 * measured.shape[1])
    low = bootstrap_interval(of_worst, (everyone,), vectorized=True, confidence=each, widened=True)[0]
    high = bootstrap_interval(known_largest, (everyone,), vectorized=True)[1]
    return float(largest(everyone)), max(1.0, low), high


def smallest_constant(ratios: npt.ArrayLike, *, allowed: float = 0.1) -> Measured:
    """Return the smallest constant for which a bound holds in all but a share of the trials.

    Parameters
    ----------
    ratios : array_like (trials,)
        For each trial, the largest ratio of the bounded quantity to the bound with constant 1; not negative.
    allowed : float
        Share of trials that may fail.

    Returns
    -------
    estimate, low, high : float
        Constant and the interval of `quantile_interval`. The upper end is infinite with fewer than 36 trials for
        `allowed` = 0.1, with fewer than 72 for 0.05, and always for 0.
    """
    level = 1.0 - check_number("allowed", allowed, minimum=0.0, maximum=1.0)
    if np.size(ratios) == 0:
        raise ValueError("ratios is empty; give at least one trial")
    return quantile_interval(not_negative("ratios", ratios), level)


def least_passing(
    samples: npt.ArrayLike, failures: npt.ArrayLike, trials: int, *, allowed: float, confidence: float = 0.95
) -> Measured:
    """Return the smallest number of samples for which a bound holds in all but a share of the trials.

    Parameters
    ----------
    samples : array_like of int (M,)
        Tested numbers of samples, in any order.
    failures : array_like of int (M,)
        Number of trials that failed, for each tested number.
    trials : int
        Number of independent trials for each tested number.
    allowed : float
        Share of trials that may fail.
    confidence : float
        Confidence level of each Clopper-Pearson interval.

    Returns
    -------
    estimate, low, high : float
        The estimate is the smallest tested number from which on all shares of failures are at most `allowed`. `low` is
        the largest tested number whose Clopper-Pearson interval lies above `allowed` (0 if there is none). `high` is
        the smallest one from which on all intervals lie below `allowed` (infinite if there is none).
    """
    allowed = check_number("allowed", allowed, minimum=0.0, maximum=1.0)
    trials = check_integer("trials", trials)
    tried, counts = check_array("samples", samples, [("M",)]), check_array("failures", failures, [("M",)])
    check_shape("failures", counts, tried.shape, "the shape of samples")
    check_whole("failures", counts, 0.0, trials, f"from 0 to trials = {trials}")
    order = np.argsort(tried)
    tried, counts = tried[order], counts[order]
    shares = [binomial_share(int(count), trials, confidence=confidence) for count in counts]
    low = max([0.0, *(m for m, share in zip(tried, shares, strict=True) if share[1] > allowed)])

    def onwards(passes: list[bool]) -> float:
        """Return the first number from which on all numbers pass."""
        found = np.inf
        for m, passed in zip(tried[::-1], passes[::-1], strict=True):
            if not passed:
                break
            found = float(m)
        return found

    return onwards([s[0] <= allowed for s in shares]), low, onwards([s[2] <= allowed for s in shares])


def bootstrap_interval(
    statistic: Callable[..., Any],
    samples: Sequence[Array],
    *,
    paired: bool = False,
    vectorized: bool = False,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
    widened: bool = False,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic.

    Parameters
    ----------
    statistic : callable
        Function of one array per sample that returns a number, which may be infinite.
    samples : sequence of ndarray
        Samples of the statistic.
    paired : bool
        If True, the same position in all samples is one trial (trials that share a seed), and trials are resampled
        together. If False, each sample is resampled independently.
    vectorized : bool
        If True, the statistic supports stacks of samples, with the trials along the keyword ``axis``. This is about
        thirty times as fast.
    confidence : float
        Confidence level of the interval.
    seed : int
        Seed of the resampling.
    resamples : int
        Number of resamples; more, up to `MOST_RESAMPLES`, if fewer than five would lie beyond an end.
    widened : bool
        If True, the percentiles are those at which the interval of a normal mean is as long as Student's (Hesterberg
        2015, What teachers should know about the bootstrap).

    Returns
    -------
    low, high : float
        Minus infinity and infinity if a sample has fewer trials than `fewest_trials` gives: six at 95 %, or if the
        widened level rounds to 1. With two or three trials the coverage would be 0.55 to 0.79.

    Notes
    -----
    The interval is too short with few trials: the measured coverage of 95 % intervals of a normal mean is 0.91, 0.91
    and 0.95 for 10, 20 and 50 trials. For quantiles use `quantile_interval` instead.

    Examples
    --------
    >>> import numpy as np
    >>> from linfed.statistics import bootstrap_interval
    >>> values = np.random.default_rng(0).normal(size=50)
    >>> low, high = bootstrap_interval(np.mean, [values], vectorized=True)
    >>> bool(low < values.mean() < high)
    True
    """
    from scipy import stats

    if not callable(statistic):
        raise TypeError(f"statistic = {short_repr(statistic)} must be a function of one array per sample")
    if not isinstance(samples, Sequence) or not samples:
        raise ValueError(f"samples = {short_repr(samples)} must be a sequence of arrays (trials,)")
    arrays = [_trials(f"samples[{number}]", sample) for number, sample in enumerate(samples)]
    paired, vectorized = check_bool("paired", paired), check_bool("vectorized", vectorized)
    widened = check_bool("widened", widened)
    rng: Generator = np.random.default_rng(check_integer("seed", seed, minimum=0))
    confidence, resamples = _level(confidence), check_integer("resamples", resamples)
    trials = min(map(len, arrays))
    if trials < fewest_trials(confidence):
        return -math.inf, math.inf
    if widened:
        from scipy import special

        length = math.sqrt(trials / (trials - 1)) * special.stdtrit(trials - 1, (1.0 + confidence) / 2.0)
        confidence = 2.0 * float(special.ndtr(length)) - 1.0
        if confidence == 1.0:
            return -math.inf, math.inf
    resamples = max(resamples, min(MOST_RESAMPLES, math.ceil(10.0 / (1.0 - confidence))))

    def finite(*resample: Array, **along: int) -> Any:
        return np.clip(np.asarray(statistic(*resample, **along), dtype=float), -INFINITE, INFINITE)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # its words are about other intervals
        found = stats.bootstrap(
            arrays,
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
