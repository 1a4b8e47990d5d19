"""Robust centres of the clients' vectors: the coordinatewise and the geometric median."""

from __future__ import annotations

import numpy as np

from linfed._types import Array
from linfed.numerics.linalg import TINY, solve

ITERATIONS = 1000
"""Largest number of iterations of the geometric median."""

TOLERANCE = 1e-14
"""Length of the last step, and distance of equal points, relative to the points' mean distance."""

MEDIANS = ("median", "geometric median")
"""Names of the centres."""


def centre(points: Array, name: str) -> Array:
    """Return the "median" of each coordinate, or the "geometric median", (T, 1, P), of points (T, p, P)."""
    if name == "median":
        return np.asarray(np.median(points, axis=1, keepdims=True))
    return geometric_median(points)


def geometric_median(points: Array) -> Array:
    """Return the point with the smallest sum of distances to given points, (T, 1, P).

    Parameters
    ----------
    points : ndarray (T, p, P)

    Notes
    -----
    The iterations begin at the mean. Each takes the better of Newton's step and Weiszfeld's, until steps are rounding
    errors, in each trial by itself. A given point is the median if the unit vectors to the others have a sum of at most
    its multiplicity (Vardi and Zhang 2000). The nearest point is checked in every iteration, because steps would
    approach it slowly. If the points are on a line and p is even, the median is not unique, and the result depends on
    the mean. Cost of an iteration ``O(p P^2 + P^3)``.
    """
    found = points.mean(axis=1, keepdims=True)
    moving = np.ones((len(points), 1, 1), dtype=bool)
    for _ in range(ITERATIONS):
        here = _Pull(points, found)
        there = _Pull(points, here.nearest)
        reached = _length(there.pull) <= there.count
        share = np.maximum(0.0, 1.0 - here.count / np.maximum(_length(here.pull), 1e-100))
        slow = found + share * here.pull / np.maximum(here.total, TINY)
        fast = found + solve(here.curvature, here.pull.mT).mT
        new = np.where(_sum(points, fast) < _sum(points, slow), fast, slow)  # False for NaN
        new = np.where(reached, here.nearest, new)
        step = _length(new - found)
        found = np.where(moving, new, found)
        moving &= ~reached & (step > TOLERANCE * here.scale)  # False for NaN
        if not moving.any():
            break
    return np.asarray(found)


class _Pull:
    """Derivatives of the sum of distances at a point (T, 1, P), without the points that are equal to it.

    `pull` (T, 1, P) is minus the gradient, and `curvature` (T, P, P) the Hessian; `total` is the sum of inverse
    distances, `scale` the mean distance and `count` the number of equal points, all (T, 1, 1). `nearest` (T, 1, P) is
    the nearest point.
    """

    def __init__(self, points: Array, at: Array) -> None:
        offsets = points - at
        distances = _length(offsets)
        self.scale = distances.mean(axis=1, keepdims=True)
        equal = distances <= TOLERANCE * self.scale
        inverse = np.where(equal, 0.0, 1.0 / np.maximum(distances, TINY))
        self.count, self.total = equal.sum(axis=1, keepdims=True), inverse.sum(axis=1, keepdims=True)
        units = offsets * inverse
        self.pull = units.sum(axis=1, keepdims=True)
        self.curvature = self.total * np.eye(points.shape[-1]) - units.mT @ (units * inverse)
        self.nearest = np.take_along_axis(points, distances.argmin(axis=1, keepdims=True), axis=1)


def _length(vectors: Array) -> Array:
    """Return the lengths of vectors (.., P), as (.., 1)."""
    return np.asarray(np.sqrt(np.vecdot(vectors, vectors))[..., None])


def _sum(points: Array, at: Array) -> Array:
    """Return the sum of distances (T, 1, 1) from points (T, p, P) to `at` (T, 1, P)."""
    return np.asarray(_length(points - at).sum(axis=1, keepdims=True))
