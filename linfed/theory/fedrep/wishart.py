"""Random factors of Wishart matrices."""

from __future__ import annotations

import functools

import numpy as np

from linfed._types import Array, Generator


def gram_roots(rng: Generator, draws: int, k: int, rows: int) -> Array:
    """Draw Bartlett's triangular factors T (draws, k, k) of Wishart matrices ``T'T`` of at least k Gaussian rows."""
    T = np.triu(rng.standard_normal((draws, k, k)), 1)
    T[:, range(k), range(k)] = np.sqrt(rng.chisquare(rows - np.arange(k), (draws, k)))
    return T


@functools.lru_cache(maxsize=16)
def fixed_factors(size: int, rows: int, draws: int) -> Array:
    """Return fixed lower triangular factors L (draws, size, size) of Wishart matrices ``L L'``, from Sobol's sequence.

    They are sorted by one more coordinate: consecutive factors have nearly the distribution of all factors.
    """
    from scipy import special
    from scipy.stats import qmc

    i, (below, columns) = np.arange(size), np.tril_indices(size, -1)
    points = qmc.Sobol(1 + len(i) + len(below), scramble=False).random_base2(draws.bit_length())
    points = points[1 : draws + 1]  # the first is 0
    points = points[np.argsort(points[:, 0]), 1:]
    L = np.zeros((draws, size, size))
    L[:, i, i] = np.sqrt(2.0 * special.gammaincinv((rows - i) / 2.0, points[:, :size]))
    L[:, below, columns] = special.ndtri(points[:, size:])
    L.setflags(write=False)
    return L
