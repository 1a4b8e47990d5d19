"""The subspace distance, the sine of the largest principal angle, of Gaussian tangents of B at B*.

`typical_distance` is its median over runs and `mean_distance` its mean, both from fixed draws and for tangents of any
covariance. `largest_sine` is the mean in closed form, for tangents of equal variance in all directions.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_array, check_integer
from linfed.theory.fedrep.wishart import gram_roots

MEDIAN_DRAWS = 2001
"""Fixed draws behind `typical_distance`: they are worth 0.4 % at d = 20, 0.1 % at d = 200."""

MEAN_DRAWS, MEAN_SEED = 400, (20260111, 71)
"""Fixed draws behind `mean_distance`, and their seed; no data are drawn with it."""

LARGEST_MEAN, LARGEST_VARIANCE = -1.2065336, 1.6077810
"""Mean and variance of the Tracy-Widom law of real matrices."""


def typical_distance(X: npt.ArrayLike, *, dim: int) -> float | Array:
    """Return the median sine of the largest angle where the d - k rows of the tangents are Gaussian.

    Parameters
    ----------
    X : array_like (k, k) or (trials, k, k)
        Their second moment ``E D'D``, e.g. of `local_floor`.
    dim : int
        d > k.

    Returns
    -------
    float, or ndarray (trials,) if X has a trial axis
        Median of ``sqrt(t/(1 + t))``, t the largest eigenvalue of a Wishart matrix of d - k degrees of freedom and mean
        X, over fixed draws.

    Raises
    ------
    ValueError
        For a matrix that is not positive semidefinite, or d <= k.

    Notes
    -----
    **Deviations**: an addition.
    """
    X = check_array("X", X, [("k", "k"), ("trials", "k", "k")])
    k = X.shape[-1]
    rows = check_integer("dim", dim, minimum=k + 1) - k
    values, vectors = np.linalg.eigh(X) if X.shape[-2] == k else (np.array(-1.0), X)
    if values.min() < -1e-9 * abs(values).max():
        raise ValueError(f"X of shape {X.shape} must hold positive semidefinite matrices (k, k)")
    drawn = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])[..., None, :, :] @ _wishart_roots(rows, k)
    t = np.linalg.eigvalsh(drawn @ drawn.mT)[..., -1] / rows
    found = np.median(np.sqrt(t / (1.0 + t)), axis=-1)
    return found if X.ndim == 3 else float(found)


@functools.lru_cache(maxsize=8)
def _wishart_roots(rows: int, k: int) -> Array:
    """Return fixed draws F (MEDIAN_DRAWS, k, min(k, rows)) for which F F' is a Wishart matrix of so many rows."""
    rng = np.random.default_rng(0)
    if rows < k:
        return rng.standard_normal((MEDIAN_DRAWS, k, rows))
    factors = np.tril(rng.standard_normal((MEDIAN_DRAWS, k, k)), -1)
    factors[:, range(k), range(k)] = np.sqrt(rng.chisquare(rows - np.arange(k), size=(MEDIAN_DRAWS, k)))
    return factors


def mean_distance(C: Array, rows: int) -> Array:
    """Return the mean sine of the largest angle if the tangents are `rows` Gaussian rows of covariance C/rows.

    C is (k, k) or (trials, k, k); NaN where C is not finite.
    """
    k = C.shape[-1]
    R = gram_roots(np.random.default_rng(MEAN_SEED), MEAN_DRAWS, k, rows)
    good = np.asarray(np.isfinite(C).all(axis=(-2, -1)))
    values, vectors = np.linalg.eigh(np.where(good[..., None, None], C, np.eye(k)))
    root = vectors * np.sqrt(np.maximum(values, 0.0) / rows)[..., None, :]
    tangent = np.linalg.norm(R @ root[..., None, :, :], ord=2, axis=(-2, -1))
    return np.asarray(np.where(good, (tangent / np.hypot(1.0, tangent)).mean(axis=-1), np.nan))


def largest_sine(squared_sine: npt.ArrayLike, *, dim: int, rank: int) -> Array:
    """Return the mean sine of the largest principal angle, the subspace distance, where angles are made by noise.

    Parameters
    ----------
    squared_sine : array_like
        Mean squared sines q, such as those of `mean_squared_sine`.
    dim, rank : int
        d >= 2k and k.

    Returns
    -------
    ndarray
        As many.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    The tangents are then near a Gaussian (d-k, k) matrix G of the variance ``q/((1-q)(d-k))``, and the largest near
    ``sqrt(q/((1-q)(d-k))) E s_max(G)``. For k = 1 the mean is that of a chi variable, else that of the Tracy-Widom law
    at the finite centre and scale: within 0.2 % for d >= 100, 1.5 % for d = 20. A start at equal angles
    (`linfed.AtDistance`) has a largest sine of sqrt(q) instead.

    **Deviations**: an addition.

    References
    ----------
    Johnstone 2001, "On the distribution of the largest eigenvalue in principal components analysis"; Ma 2012, for the
    halves in its centre and scale.
    """
    k = check_integer("rank", rank)
    d = check_integer("dim", dim, minimum=2 * k)
    q = np.asarray(squared_sine, dtype=float)
    if not ((q >= 0.0) & (q < 1.0)).all():
        raise ValueError("squared_sine holds values outside of [0, 1)")
    if k == 1:
        mean = math.sqrt(2.0) * math.exp(math.lgamma((d - k + 1) / 2.0) - math.lgamma((d - k) / 2.0))
    else:
        rows, columns = math.sqrt(d - k - 0.5), math.sqrt(k - 0.5)
        scale = (rows + columns) * (1.0 / rows + 1.0 / columns) ** (1.0 / 3.0)
        square = (rows + columns) ** 2 + LARGEST_MEAN * scale
        mean = math.sqrt(square) * (1.0 - LARGEST_VARIANCE * scale**2 / (8.0 * square**2))
    tangent = np.sqrt(q / ((1.0 - q) * (d - k))) * mean
    return np.asarray(tangent / np.hypot(1.0, tangent))
