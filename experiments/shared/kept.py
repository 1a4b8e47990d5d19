"""Levels that a curve keeps to its end, where noise or a large step size takes some curves across a level and back."""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Indices
from linfed.statistics.intervals import nan_as_worst


def worst_from(curves: Array) -> Array:
    """Return the largest value from each round to the last one, (trials, rounds); NaN counts as a huge one."""
    return np.asarray(np.maximum.accumulate(nan_as_worst(curves)[..., ::-1], axis=-1)[..., ::-1])


def mostly_kept(rounds: Array | Indices, curves: Array, level: float, share: float = 0.9) -> Array:
    """Return the first round from which on a share of the rounds is at most the level, (trials,); infinite without one.

    With noise in every round, single later rounds are above any level near the final distance.
    """
    below = curves <= level  # NaN is not
    later = np.arange(below.shape[1], 0, -1)
    found = below & (np.cumsum(below[:, ::-1], axis=1)[:, ::-1] >= share * later)
    return np.where(found.any(axis=1), np.asarray(rounds, dtype=float)[found.argmax(axis=1)], np.inf)
