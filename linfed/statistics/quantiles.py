"""Quantiles over trials, by a module that every run may load: it needs NumPy alone."""

from __future__ import annotations

import numpy as np

from linfed._types import Array


def quantiles(values: Array) -> tuple[Array, Array, Array]:
    """Return the median, 10 % and 90 % over trials (the first axis), with diverged trials (NaN) as the worst."""
    worst = np.where(np.isnan(values), np.inf, values)
    median, low, high = np.quantile(worst, [0.5, 0.1, 0.9], axis=0, method="inverted_cdf")
    return median, low, high
