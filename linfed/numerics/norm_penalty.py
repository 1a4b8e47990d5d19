"""Exact minimisers of least squares with a Euclidean norm, not squared, as penalty; and its proximal operator."""

from __future__ import annotations

import numpy as np

from linfed._types import Array
from linfed.numerics.least_squares import semidefinite, squares_of_features
from linfed.numerics.linalg import TINY, eigh


def shortened(vectors: Array, amount: float) -> Array:
    """Return vectors (..., d) whose lengths are decreased by `amount`, to at least 0; the prox of the norm."""
    lengths = np.sqrt(np.vecdot(vectors, vectors))
    return vectors * (np.maximum(lengths - amount, 0.0) / np.maximum(lengths, TINY))[..., None]


def norm_penalised(A: Array, b: Array, penalty: float) -> Array:
    """Return ``argmin_s s'A s / 2 - b's + penalty ||s||`` for each item.

    Parameters
    ----------
    A : ndarray (..., d, d)
        Positive semi-definite.
    b : ndarray (..., d)
        In the range of A, as for normal equations.
    penalty : float
        Weight > 0 of the norm.

    Returns
    -------
    ndarray (..., d)
        Exactly 0 if ``||b|| <= penalty``.

    Notes
    -----
    With ``t = ||s|| / penalty`` a solution that is not 0 is ``s = (A + I / t)^{-1} b``. With the eigenvalues a_j of A
    and the coordinates c_j of ``b / penalty`` in its eigenvectors, t is the root of
    ``q(t) = ||c_j / (a_j t + 1)|| = 1``. As in trust-region methods (More and Sorensen 1983), 1/q is concave and
    increasing, so Newton's iterations for ``1/q = 1`` from t = 0 increase to the root. They end when rounding errors
    stop the increase. Cost O(d^3).
    """
    values, vectors = eigh(0.5 * (A + A.mT))
    values = np.maximum(values, 0.0)
    c = (b[..., None, :] @ vectors)[..., 0, :] / penalty
    t = np.zeros(c.shape[:-1])
    larger = np.vecdot(c, c) > 1.0
    while larger.any():
        scale = values * t[..., None] + 1.0
        terms = np.square(c / scale)
        squares = terms.sum(axis=-1)  # q^2
        slope = np.maximum((terms * values / scale).sum(axis=-1), TINY)
        new = t + (squares * np.sqrt(squares) - squares) / slope
        larger &= new > t  # False for NaN
        t = np.where(larger, new, t)
    s = penalty * t[..., None] * c / (values * t[..., None] + 1.0)
    return np.asarray((vectors @ s[..., None])[..., 0])


def norm_penalised_next_to_heads(A: Array, b: Array, B: Array, penalty: float) -> Array:
    """Return the personal parts that minimise each client's ``loss(B w + s) + penalty ||s||`` together with its head.

    Parameters
    ----------
    A : ndarray (T, p, d, d)
        ``X_i'X_i/m_i``.
    b : ndarray (T, p, d)
        ``X_i'y_i/m_i``.
    B : ndarray (T, d, k)
    penalty : float
        Weight > 0 of the norm in the loss ``(1/2m_i) ||X_i (B w + s) - y_i||^2 + penalty ||s||``.

    Returns
    -------
    ndarray (T, p, d)

    Notes
    -----
    With ``M = B'A B``, the best head at s is ``M^+ B'(b - A s)``. This leaves `norm_penalised` with ``A - A B M^+ B'A``
    and ``b - A B M^+ B'b``. Cost O(p d^3).
    """
    across, AB = B.mT[:, None], A @ B[:, None]
    projected = AB @ semidefinite(across @ AB, squares_of_features(A, B)).pseudo_inverse()
    rest = b - (projected @ (across @ b[..., None]))[..., 0]
    return norm_penalised(A - projected @ AB.mT, rest, penalty)
