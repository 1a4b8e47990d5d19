"""Levels that a curve keeps to its end, where noise or a large step size takes some curves across a level and back."""

from __future__ import annotations

import numpy as np

from linfed._types import Array
from linfed.statistics.intervals import nan_as_worst


def worst_from(curves: Array) -> Array:
    """Return the largest value from each round to the last one, (trials, rounds); NaN counts as infinite."""
    return np.asarray(np.maximum.accumulate(nan_as_worst(curves)[..., ::-1], axis=-1)[..., ::-1])
