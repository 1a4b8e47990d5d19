"""Random factors of Wishart matrices."""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Generator


def gram_roots(rng: Generator, draws: int, k: int, rows: int) -> Array:
    """Draw Bartlett's triangular factors T (draws, k, k) of Wishart matrices ``T'T`` of at least k Gaussian rows."""
    T = np.triu(rng.standard_normal((draws, k, k)), 1)
    T[:, range(k), range(k)] = np.sqrt(rng.chisquare(rows - np.arange(k), (draws, k)))
    return T
