"""Wishart matrices."""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Generator


def gram_roots(rng: Generator, draws: int, k: int, rows: int) -> Array:
    """Return triangular T (draws, k, k) with ``T'T`` of the law of the Gram matrix of so many Gaussian rows, k or more.

    They are Bartlett's factors.
    """
    T = np.triu(rng.standard_normal((draws, k, k)), 1)
    T[:, range(k), range(k)] = np.sqrt(rng.chisquare(rows - np.arange(k), (draws, k)))
    return T
