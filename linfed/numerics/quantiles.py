"""Quantiles over trials. This module must import only NumPy, because every run imports it."""

from __future__ import annotations

import numpy as np

from linfed._types import Array


def quantiles(values: Array) -> tuple[Array, Array, Array]:
    """Return the median and the 10 and 90 % quantiles over trials (the first axis); NaN (diverged) is infinite."""
    worst = np.where(np.isnan(values), np.inf, values)
    median, low, high = np.quantile(worst, [0.5, 0.1, 0.9], axis=0, method="inverted_cdf")
    return median, low, high
