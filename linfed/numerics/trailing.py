"""Products, factors and inverses of many small matrices, stacked along the last axis: (trials, a, b, draws).

NumPy's inner loops then run along the draws. For matrices with few rows this is several times faster than stacking
along the first axis. The result for one trial does not depend on the other trials, bit for bit.
"""

from __future__ import annotations

import numpy as np

from linfed._types import Array
from linfed.numerics.linalg import eigh


def times(A: Array, B: Array) -> Array:
    """Return ``A B``, (trials, a, c, draws)."""
    return np.asarray(np.einsum("tabn,tbcn->tacn", A, B))


def left_times(A: Array, B: Array) -> Array:
    """Return ``A B`` for one matrix A (trials, a, k) and all draws of B (trials, k, c, draws)."""
    trials, k, c, draws = B.shape
    return (A @ B.reshape(trials, k, c * draws)).reshape(trials, A.shape[1], c, draws)


def gram(A: Array) -> Array:
    """Return ``A'A``, (trials, b, b, draws)."""
    return np.asarray(np.einsum("tabn,tacn->tbcn", A, A))


def outer(A: Array) -> Array:
    """Return ``A A'``, (trials, a, a, draws)."""
    return np.asarray(np.einsum("tabn,tcbn->tacn", A, A))


def mean_gram(A: Array) -> Array:
    """Return the mean of ``A'A`` over the draws, (trials, b, b)."""
    return np.asarray(np.einsum("tabn,tacn->tbc", A, A)) / A.shape[-1]


def inner(A: Array, B: Array) -> Array:
    """Return ``tr A'B``, (trials, draws)."""
    return np.asarray(np.einsum("tabn,tabn->tn", A, B))


def transposed(A: Array) -> Array:
    """Return ``A'``, (trials, b, a, draws), a view."""
    return A.swapaxes(1, 2)


def symmetric(A: Array) -> Array:
    """Return ``(A + A')/2``."""
    return 0.5 * (A + A.swapaxes(1, 2))


def inverse(A: Array) -> Array:
    """Return the inverse of each matrix (trials, k, k, draws), by Gauss-Jordan elimination without pivoting.

    The result is accurate if no leading minor is near 0, e.g. for positive definite matrices and matrices near the
    identity. A pivot of 0 gives values that are not finite.
    """
    if A.shape[1] == 2:
        a, b, c, d = A[:, 0, 0], A[:, 0, 1], A[:, 1, 0], A[:, 1, 1]
        determinant, found = a * d - b * c, np.empty_like(A)
        np.divide(d, determinant, out=found[:, 0, 0])
        np.divide(-b, determinant, out=found[:, 0, 1])
        np.divide(-c, determinant, out=found[:, 1, 0])
        np.divide(a, determinant, out=found[:, 1, 1])
        return found
    A = A.copy()
    for j in range(A.shape[1]):
        pivot, column = 1.0 / A[:, j, j], A[:, :, j, None].copy()
        row = A[:, j] * pivot[:, None]
        row[:, j] = pivot
        A[:, :, j] = 0.0
        A -= column * row[:, None]
        A[:, j] = row
    return A


def cholesky(A: Array, share: float = 1e-15) -> Array:
    """Return Cholesky factors (trials, k, k, draws) after adding `share` of the mean diagonal to the diagonal.

    Raises
    ------
    LinAlgError
        If a matrix is not positive definite.
    """
    k = A.shape[1]
    added = share / k * np.einsum("taan->tn", A)
    L = np.zeros_like(A)
    for j in range(k):
        column = A[:, j:, j] - np.einsum("tabn,tbn->tan", L[:, j:, :j], L[:, j, :j]) if j else A[:, :, 0].copy()
        column[:, 0] += added
        np.divide(column, np.sqrt(column[:, :1]), out=L[:, j:, j])
    if not (np.einsum("taan->tan", L) > 0).all():
        raise np.linalg.LinAlgError("a matrix is not positive definite")
    return L


def largest_eigenpair(A: Array) -> tuple[Array, Array]:
    """Return the largest eigenvalue (trials, draws) and its unit eigenvector (trials, k, draws) of symmetric matrices.

    The eigenvector of a multiple of the identity is the last unit vector. A matrix that is not finite gives NaN.
    """
    if A.shape[1] != 2:
        values, vectors = eigh(np.ascontiguousarray(np.moveaxis(A, -1, 1)))
        return values[..., -1], np.ascontiguousarray(vectors[..., -1].swapaxes(1, 2))
    half, off = 0.5 * (A[:, 0, 0] - A[:, 1, 1]), A[:, 1, 0]
    long = np.hypot(half, off)
    scale = long if long.all() else np.where(long > 0, long, 1.0)  # squares of small entries would underflow
    far, off, first = np.abs(half) / scale + 1.0, off / scale, half > 0
    length, vector = np.sqrt(far * far + off * off), np.empty_like(A[:, 0])
    far, off = far / length, off / length
    vector[:, 0], vector[:, 1] = np.where(first, far, off), np.where(first, off, far)
    return 0.5 * (A[:, 0, 0] + A[:, 1, 1]) + long, vector
