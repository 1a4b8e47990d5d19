"""Where a success curve crosses a share: which size to try next, and what is known of the least one that serves.

A trial's *margin* at a size is by how many decades it misses its level, so that it succeeds where the margin is at most
0. Trials are paired: trial j has one seed at all sizes. What share of them succeeds is taken to grow with the size.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from linfed._types import Array

REPLICATES = 400
"""Bootstrap replicates of a crossing."""

DECADE = 1.0
"""Margins count up to here: what lies further off says no more of where the level is crossed."""

END, RESOLVED, TRIALS, BUDGET = "end", "resolved", "trials", "budget"
"""Why a search has stopped."""


def verdict(margins: Array, share: float, error: float) -> int:
    """Return whether the share of successes is surely at least `share` (1), surely below (-1), or neither (0).

    Parameters
    ----------
    margins : ndarray (trials,)
    share : float
    error : float
        Probability of each of the two mistakes, by the binomial tails (Clopper and Pearson).
    """
    return _verdict(int(np.sum(margins <= 0)), len(margins), share, error)


@lru_cache(maxsize=4096)
def _verdict(count: int, total: int, share: float, error: float) -> int:
    from scipy import special

    if special.bdtr(count, total, share) <= error:
        return -1
    return int(count > 0 and special.bdtrc(count - 1, total, share) <= error)


def crossing_of(
    margins: Mapping[float, Array], share: float, weights: Array | None = None, between: Array | float = 0.5
) -> tuple[Array, Array]:
    """Return where the share-quantile of the margins crosses 0, for one or for many weightings of the trials.

    Parameters
    ----------
    margins : mapping of size to ndarray (trials,)
        A size may have fewer trials than others, the first ones.
    share : float
    weights : ndarray (R, trials), optional
        Of each trial, the same at all sizes; equal ones, of a single row, by default.
    between : ndarray (R,) or float
        Where between two sizes a crossing is taken to lie of which margins beyond `DECADE` on both sides say nothing.

    Returns
    -------
    crossing : ndarray (R,)
        In the logarithm of the size interpolated; the least size where all quantiles are at most 0, infinite where none
        is.
    place : ndarray of int (R,)
        Which of the sizes is the first that succeeds; their number where none does.

    Notes
    -----
    The quantiles over sizes are first made to fall, by isotonic regression with the numbers of trials as weights: a
    crossing of the quantile is one of the success share, and falls between sizes where the share jumps from 0 to 1.
    """
    from scipy.optimize import isotonic_regression

    sizes = sorted(margins)
    counts = np.array([len(margins[size]) for size in sizes])
    if weights is None:
        weights = np.ones((1, counts.max()))
    middles = np.empty((len(weights), len(sizes)))
    for place, size in enumerate(sizes):
        order = np.argsort(margins[size], kind="stable")
        total = np.cumsum(weights[:, order], axis=1)
        first = np.argmax(total >= share * total[:, -1:] * (1.0 - 1e-12), axis=1)
        middles[:, place] = np.clip(margins[size][order][first], -DECADE, DECADE)
    falling = np.stack([isotonic_regression(row, weights=counts, increasing=False).x for row in middles])
    places = np.where(falling[:, -1] <= 0, np.argmax(falling <= 0, axis=1), len(sizes))
    at = np.array([*sizes, math.inf], dtype=float)
    inside = (places > 0) & (places < len(sizes))
    low, high = np.maximum(places - 1, 0), np.minimum(places, len(sizes) - 1)
    rows = np.arange(len(falling))
    above, below = falling[rows, low], -falling[rows, high]
    part = np.divide(above, above + below, out=np.ones(len(rows)), where=inside)
    part = np.where(np.minimum(above, below) >= DECADE, between, part)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = at[low] * (at[high] / at[low]) ** part
    even = at[low] + part * (at[high] - at[low])
    return np.where(inside, np.where(at[low] > 0, ratio, even), at[places]), places


def replicates_of(margins: Mapping[float, Array], share: float) -> Array:
    """Return bootstrap replicates of the crossing, (REPLICATES,): whole trials are weighted, at all sizes alike.

    The weights are exponential (Rubin's Bayesian bootstrap) and belong to the trial's number: settings whose trials
    share a seed are resampled together. Where margins do not say where between two sizes it crosses, it may be anywhere
    there. A replicate without a crossing among the sizes is the nearest end of them. Percentiles at 2.5 and 97.5 % of
    replicates cover with measured probability 0.91, 0.93 and 0.94 for 10, 20 and 50 lognormal trials.
    """
    trials = max(len(one) for one in margins.values())
    weights = np.random.default_rng(0).exponential(size=(trials, REPLICATES)).T
    own = zlib.crc32(b"".join(np.ascontiguousarray(margins[size]).tobytes() for size in sorted(margins)))
    between = np.random.default_rng((1, own)).uniform(size=REPLICATES)
    return np.minimum(crossing_of(margins, share, weights, between)[0], max(margins))


@dataclass(kw_only=True)
class Search:
    """A sequential search for the least size at which a share of the trials succeeds.

    Parameters
    ----------
    start, least, most : float
        Where to begin, and the ends of the range, positive.
    whole : bool
        Whether sizes are whole numbers.
    share, resolution, confidence : float
        See `linfed.least`.
    batch, trials, budget : int
        Trials of a first look at a size, most trials of one size, and of all sizes together.
    near : bool
        Whether the start is near the threshold: the search then leaves it by the resolution first.

    Notes
    -----
    It doubles or halves the size until it holds a bracket, halves that (in the logarithm) down to the resolution, then
    doubles the trials at both ends of the bracket until the binomial tails decide, and last moves outwards to sizes
    that they can decide. It may stop at any of ``L = 1 + log2(trials/batch)`` looks at a size, so that each of them may
    err with ``(1 - confidence)/(2 L)``. Sizes are not corrected for: with paired trials a mistake beyond the threshold
    is a mistake at the threshold.
    """

    start: float
    least: float
    most: float
    whole: bool
    share: float
    resolution: float
    confidence: float
    batch: int
    trials: int
    budget: int
    near: bool = False
    margins: dict[float, Array] = field(default_factory=dict)
    stopped: str = ""

    def wanted(self) -> tuple[float, int, int] | None:
        """Return which trials are to be run next, a size and the first and the last + 1 of them; None at the end."""
        if not self.margins:
            return self._more(self.start)
        if self.spent >= self.budget:
            self.stopped = BUDGET
            return None
        place = int(crossing_of(self.margins, self.share)[1][0])
        sizes = sorted(self.margins)
        if place == len(sizes):
            following = max(self._rounded(sizes[-1] * self._stride), sizes[-1] + self.whole)
            return self._towards(self.most, sizes[-1], min(self.most, following))
        if place == 0:
            following = min(self._rounded(sizes[0] / self._stride), sizes[0] - self.whole)
            return self._towards(self.least, sizes[0], max(self.least, following))
        return self._within(sizes[place - 1], sizes[place])

    def take(self, size: float, margins: npt.ArrayLike) -> None:
        """Take what came of the trials that were wanted."""
        known = self.margins.get(size, np.empty(0))
        self.margins[size] = np.append(known, np.asarray(margins, dtype=float))

    @property
    def spent(self) -> int:
        """Trials that have been run, over all sizes."""
        return sum(len(one) for one in self.margins.values())

    @property
    def interval(self) -> tuple[float, float]:
        """The largest size that surely falls short, 0 if there is none, and the least that surely serves, or infinity.

        Where the two are out of order (`violations`), the first is the largest before the second.
        """
        surely = self._surely()
        high = min((size for size, says in surely.items() if says > 0), default=math.inf)
        return max((size for size, says in surely.items() if says < 0 and size < high), default=0.0), high

    @property
    def violations(self) -> int:
        """Sizes that surely fall short although a smaller one surely serves: success does not grow with the size."""
        surely = self._surely()
        least = min((size for size, says in surely.items() if says > 0), default=math.inf)
        return sum(says < 0 and size > least for size, says in surely.items())

    def _surely(self) -> dict[float, int]:
        return {size: self._verdict(size) for size in self.margins}

    def _verdict(self, size: float) -> int:
        margins = self.margins[size]
        looks = 1 + max(0, math.ceil(math.log2(self.trials / self.batch)))
        return verdict(margins, self.share, (1.0 - self.confidence) / (2 * looks))

    @property
    def _stride(self) -> float:
        """The factor to the next size where there is no bracket yet."""
        first = math.log2(1.0 + self.resolution) if self.near else 1.0
        return 2.0 ** min(1.0, first * 2.0 ** (len(self.margins) - 1))

    def _towards(self, end: float, last: float, following: float) -> tuple[float, int, int] | None:
        """Go on beyond the last size, which is short of a bracket; at the end of the range make sure of it."""
        if last != end:
            return self._more(following)
        if self._open(end):
            return self._more(end)
        self.stopped = END
        return None

    def _within(self, low: float, high: float) -> tuple[float, int, int] | None:
        """Narrow a bracket."""
        least, most = self.interval
        if self._narrow(least, most):
            self.stopped = RESOLVED
            return None
        if not self._narrow(low, high):
            return self._more(self._between(low, high))
        for size in sorted((low, high), key=lambda size: len(self.margins[size])):
            if self._open(size):
                return self._more(size)
        for near, far in ((low, least), (high, most)):
            inner, outer = sorted((near, self._bounded(far, near)))
            between = [size for size in self.margins if inner < size < outer and self._open(size)]
            if between:
                return self._more(min(between, key=lambda size: len(self.margins[size])))
            if not self._verdict(near) and not self._narrow(inner, outer):
                middle = self._between(inner, outer)
                if middle not in self.margins:
                    return self._more(middle)
        self.stopped = TRIALS
        return None

    def _bounded(self, far: float, near: float) -> float:
        """Return the far end of what is uncertain: where nothing is sure, twice or half the near one."""
        if 0 < far < math.inf:
            return far
        return max(self.least, near / 2) if far == 0 else min(self.most, 2 * near)

    def _open(self, size: float) -> bool:
        """Return whether more trials may decide a size."""
        return not self._verdict(size) and len(self.margins[size]) < self.trials

    def _narrow(self, low: float, high: float) -> bool:
        if low <= 0:
            return False
        return high <= low * (1.0 + self.resolution) or (self.whole and high - low <= 1)

    def _between(self, low: float, high: float) -> float:
        middle = self._rounded(math.sqrt(low * high))
        return min(max(middle, low + 1), high - 1) if self.whole else middle

    def _rounded(self, size: float) -> float:
        return max(1, round(size)) if self.whole else size

    def _more(self, size: float) -> tuple[float, int, int]:
        known = len(self.margins.get(size, ()))
        last = min(max(self.batch, 2 * known), self.trials, known + self.budget - self.spent)
        return size, known, max(last, known + 1)
