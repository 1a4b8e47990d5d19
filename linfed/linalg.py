"""Batched kernels: every function acts on stacks of small matrices, trials (and clients) leading.

Two rules hold throughout. A result for one item of a stack never depends on the other items, bit for bit; and an
item that is not finite gives a result that is not finite, instead of an error for the whole stack.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import scipy.linalg
from threadpoolctl import ThreadpoolController

from linfed._types import Array, Indices, Mask

CACHE_VALUES = 131_072
"""Numbers in one block of clients: a megabyte, so that a block stays in a core's cache."""

TINY = np.finfo(float).tiny

RANK_TOLERANCE = 1e-13
"""A column whose part outside the span of the columns before it is below this share of its length is dependent."""


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS runs one thread.

    Stacks of small matrices run many times slower with several, and results then do not depend on the machine's
    number of cores. The list of thread pools is found once; finding it anew would cost half a millisecond.
    """
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


def finite_items(stack: Array) -> Mask:
    """Return which matrices of a stack (..., a, b) are wholly finite, (...)."""
    return np.asarray(np.isfinite(stack).all(axis=(-2, -1)))


def take_clients(values: Array, active: Indices) -> Array:
    """Return ``values[t, active[t, i]]``, (trials, p, ...); the array itself where every client is active."""
    if active.shape[-1] == values.shape[1]:  # distinct and ascending, so it is everybody in order
        return values
    return np.asarray(values[np.arange(len(active))[:, None], active])


def put_clients(values: Array, active: Indices, new: Array) -> Array:
    """Return a copy of `values` (trials, n, ...) with the active clients' rows replaced."""
    if active.shape[-1] == values.shape[1]:
        return new
    kept = values.copy()
    kept[np.arange(len(active))[:, None], active] = new
    return kept


# --- orthonormal bases and distances -------------------------------------------------------------------------


def qr_positive(A: Array) -> tuple[Array, Array]:
    """Return the thin QR factorisation of each matrix, normalised to a positive diagonal of R.

    Parameters
    ----------
    A : ndarray (..., d, k), d >= k

    Returns
    -------
    Q : ndarray (..., d, k)
        Orthonormal columns: a continuous function of A while A has full rank.
    R : ndarray (..., k, k)
        Upper triangular with a non-negative diagonal.
    """
    Q, R = np.linalg.qr(A)
    return _with_signs_of(R, Q), np.swapaxes(_with_signs_of(R, np.swapaxes(R, -1, -2)), -1, -2)


def _with_signs_of(R: Array, columns: Array) -> Array:
    """Return columns (..., d, k) with the signs of R's diagonal; 0 counts as positive."""
    return columns * np.copysign(1.0, np.diagonal(R, axis1=-2, axis2=-1) + 0.0)[..., None, :]


def orthonormalize(A: Array) -> Array:
    """Return the Q factor of `qr_positive`, (..., d, k)."""
    Q, R = np.linalg.qr(A)
    return _with_signs_of(R, Q)


def spectral_norm(A: Array) -> Array:
    """Return the largest singular value of each matrix (..., d, k), d >= k, through the k x k Gram matrix.

    The largest eigenvalue of a Gram matrix has full relative accuracy, however small it is.
    """
    gram = np.swapaxes(A, -1, -2) @ A
    good = finite_items(gram)
    values = np.linalg.eigvalsh(np.where(good[..., None, None], gram, 0.0))[..., -1]
    return np.where(good, np.sqrt(np.maximum(values, 0.0)), np.nan)


def span_distance(B1: Array, B2: Array) -> Array:
    """Return the sine of the largest principal angle between column spaces, (...), of bases of full rank.

    It is computed as the residual ``||(I - Q1 Q1') Q2||_2``, never through cosines, which read 0 from about 1e-8 down.
    With unequal ranks the smaller space is held against the larger.
    """
    return distance_from(_orthonormal_span(B1), B2)


def distance_from(Q1: Array, B2: Array) -> Array:
    """Return the same as `span_distance` for a first basis that is orthonormal already."""
    Q2 = _orthonormal_span(B2)
    if Q1.shape[-1] < Q2.shape[-1]:
        Q1, Q2 = Q2, Q1
    return np.minimum(spectral_norm(Q2 - Q1 @ (np.swapaxes(Q1, -1, -2) @ Q2)), 1.0)


def _orthonormal_span(B: Array) -> Array:
    """Return an orthonormal basis of each column space: the basis itself where it is one already."""
    gram = np.swapaxes(B, -1, -2) @ B
    good = np.abs(gram - np.eye(B.shape[-1])).max(axis=(-2, -1)) < 8 * np.finfo(float).eps
    return B if good.all() else np.where(good[..., None, None], B, orthonormalize(B))


def root_of_gram(gram: Array) -> Array:
    """Return F with ``F'F = gram`` for each positive semi-definite matrix (..., k, k); null directions stay null."""
    good = finite_items(gram)
    values, vectors = np.linalg.eigh(np.where(good[..., None, None], gram, 0.0))
    kept = values > gram.shape[-1] * np.finfo(float).eps * values[..., -1:]
    scale = np.sqrt(np.where(kept, values, 0.0))
    root = scale[..., :, None] * np.swapaxes(vectors, -1, -2)
    return np.asarray(np.where(good[..., None, None], root, np.nan))


def top_eigenvectors(M: Array, k: int) -> Array:
    """Return the eigenvectors of the k largest eigenvalues, largest first, of each symmetric matrix.

    Parameters
    ----------
    M : ndarray (trials, d, d)
    k : int, 1 <= k <= d

    Returns
    -------
    ndarray (trials, d, k)
        Orthonormal columns, each with its largest entry positive.
    """
    d = M.shape[-1]
    out = np.full((*M.shape[:-1], k), np.nan)
    for matrix, basis in zip(M, out, strict=True):
        if np.isfinite(matrix).all():
            basis[:] = scipy.linalg.eigh(matrix, subset_by_index=[d - k, d - 1])[1][:, ::-1]
    largest = np.take_along_axis(out, np.abs(out).argmax(axis=-2)[..., None, :], axis=-2)
    return out * np.where(largest < 0, -1.0, 1.0)


def factored_squared_lengths(stacked: Array, coordinates: Sequence[Array]) -> Array:
    """Return the squared length of a sum of factored vectors, for each client, without forming them.

    Parameters
    ----------
    stacked : ndarray (..., d, k_1 + k_2 + ..)
        Bases side by side.
    coordinates : sequence of ndarray (..., n, k_j) or (..., 1, k_j)
        The vector of client i is ``sum_j basis_j coordinates_j[i]``; a single row serves every client.

    Returns
    -------
    ndarray (..., n)
        With ``[basis_1, basis_2, ..] = Q R`` it is ``||R [c_1; c_2; ..]||^2``: nothing of size (n, d), and a
        difference of nearly equal vectors loses no digits.
    """
    R = np.asarray(np.linalg.qr(stacked, mode="r"))
    start, parts = 0, np.zeros(())
    for factor in coordinates:
        stop = start + factor.shape[-1]
        part = R[..., start:stop] @ np.swapaxes(factor, -1, -2)
        same = parts.shape == part.shape
        parts = part if start == 0 else np.add(parts, part, out=parts if same else None)
        start = stop
    return np.asarray(np.square(parts, out=parts).sum(axis=-2))


# --- least squares -------------------------------------------------------------------------------------------


class Heads(NamedTuple):
    """Least-squares heads of a block of clients, the clients last: `W` (k, C), `residual` (m, C), `deficient` (C,)."""

    W: Array
    residual: Array
    deficient: Mask


def head_least_squares(Z: Array, y: Array, counts: Array, ridge: float = 0.0, *, few: bool = False) -> Heads:
    """Solve one small least-squares problem per client, all clients of a block at once.

    Parameters
    ----------
    Z : ndarray (k, m, C)
        Features, clients last; rows beyond a client's count are zero.
    y : ndarray (m, C)
        Labels.
    counts : ndarray (C,)
        Samples per client m_i.
    ridge : float
        Adds ``(ridge / 2) ||w||^2`` to client i's loss ``(1 / 2 m_i) ||Z_i w - y_i||^2``.
    few : bool
        Whether blocks hold few clients of many samples: LAPACK then factors them one by one.

    Returns
    -------
    Heads
        `W` (k, C), `residual` ``Z w - y`` (m, C), `deficient` (C,). Where there are fewer samples than k, or dependent
        features, the solution of minimum norm. Where a client has at most as many samples as the rank of its features
        the residual is exactly zero. `deficient` marks dependent features among clients with at least k samples.

    Notes
    -----
    QR of ``[Z, y]``: by modified Gram-Schmidt, a loop over k in which every operation is one long vector over the
    clients, and which is as stable as Householder's (Bjorck 1967) and gives the residual for nothing; or by LAPACK.
    Cost O(C m k^2).
    """
    k, m, _ = Z.shape
    solve = _householder if few and ridge == 0 and m > k else _gram_schmidt
    W, residual, dependent = solve(Z, y, counts * ridge if ridge > 0 else None)
    short, irregular = counts < k, dependent
    if ridge == 0 and counts.min() <= k:
        irregular = short | dependent
        residual[:, counts <= k] = 0.0
    if irregular.any():
        samples, labels = np.moveaxis(Z[:, :, irregular], -1, 0).mT, y[:, irregular].T
        if ridge > 0:  # so small that it is lost in rounding
            samples, labels = _extended(samples, labels, counts[irregular] * ridge)
        solved, rest, rank = minimum_norm(samples, labels)
        explained = (counts[irregular] <= rank) & (ridge == 0)
        W[:, irregular] = solved.T
        residual[:, irregular] = np.where(explained, 0.0, rest[:, :m].T)
    return Heads(W, residual, dependent & ~short)


def _gram_schmidt(Z: Array, y: Array, ridges: Array | None) -> tuple[Array, Array, Mask]:
    """Return heads (k, C), residual (m, C) and which clients' features are dependent."""
    k, m, count = Z.shape
    rows = m if ridges is None else m + k
    width = max(count, 2)  # a single client is computed twice: NumPy sums a lone column in another order
    work, products = np.empty((k + 1, rows, width)), np.empty((k, rows, width))
    work[:k, :m], work[k, :m] = Z, y
    if ridges is not None:
        work[:, m:] = 0.0
        for j in range(k):
            work[j, m + j] = np.sqrt(ridges)
    R = np.zeros((k, k + 1, width))
    for j in range(k):
        column, later, product = work[j], work[j + 1 :], products[: k - j]
        square = np.einsum("mc,mc->c", column, column)
        np.sqrt(np.maximum(square, TINY, out=square), out=R[j, j])  # a column of zeros stays one
        column /= R[j, j]
        np.einsum("lmc,mc->lc", later, column, out=R[j, j + 1 :])
        later -= np.multiply(R[j, j + 1 :, None], column, out=product)
    squares = np.square(R[:, :k])
    diagonal = np.diagonal(squares)  # (width, k)
    dependent = (diagonal <= RANK_TOLERANCE**2 * squares.sum(axis=0).T + TINY).any(axis=-1)
    W = np.empty((k, width))
    for j in reversed(range(k)):
        value = R[j, k]
        for later_column in range(j + 1, k):
            value = value - R[j, later_column] * W[later_column]
        np.divide(value, R[j, j], out=W[j])
    return W[:, :count], -work[k, :m, :count], dependent[:count]


def _householder(Z: Array, y: Array, ridges: Array | None) -> tuple[Array, Array, Mask]:
    """Return the same as `_gram_schmidt`, for more samples than features."""
    k = Z.shape[0]
    samples, labels = np.ascontiguousarray(Z.transpose(2, 1, 0)), y.T[..., None]
    R = np.asarray(np.linalg.qr(np.concatenate([samples, labels], axis=-1), mode="r"))
    triangle, diagonal = R[:, :k, :k], np.abs(np.diagonal(R, axis1=-2, axis2=-1)[:, :k])
    lengths = np.sqrt(np.square(triangle).sum(axis=-2))
    dependent = (diagonal <= RANK_TOLERANCE * lengths).any(axis=-1)
    safe = np.where(dependent[:, None, None], np.eye(k), triangle)
    W = np.linalg.solve(safe, R[:, :k, k:])
    return W[..., 0].T, (samples @ W - labels)[..., 0].T, dependent


def _extended(X: Array, y: Array, ridges: Array) -> tuple[Array, Array]:
    """Return rows and labels whose plain least squares is the ridge regression with the weights `ridges` (items,)."""
    items, _, d = X.shape
    extra = np.sqrt(ridges)[:, None, None] * np.eye(d)
    return np.concatenate([X, extra], axis=1), np.concatenate([y, np.zeros((items, d))], axis=1)


def client_blocks(trials: int, clients: int, values: int) -> Iterator[tuple[slice, slice]]:
    """Yield (trials, clients) in blocks of about `CACHE_VALUES` numbers, where one client needs `values` of them.

    How a trial is cut depends on its own size alone, so that a sum over blocks does not depend on other trials.
    """
    # Two blocks' worth is taken at once: the calls saved are worth more than the cache.
    whole = clients * values <= 2 * CACHE_VALUES
    width = clients if whole else max(1, CACHE_VALUES // max(1, values))
    together = max(1, CACHE_VALUES // max(1, clients * values)) if width == clients else 1
    for t in range(0, trials, together):
        for c in range(0, clients, width):
            yield slice(t, min(t + together, trials)), slice(c, min(c + width, clients))


def minimum_norm(X: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return the least-squares solution of minimum norm for each item of a stack, by its SVD.

    Parameters
    ----------
    X : ndarray (items, m, d)
    y : ndarray (items, m)

    Returns
    -------
    solution : ndarray (items, d)
    residual : ndarray (items, m)
        ``X solution - y``.
    rank : ndarray of float (items,)
        Numerical rank; NaN for an item that is not finite.
    """
    good = finite_items(X) & np.isfinite(y).all(axis=-1)
    U, s, Vt = np.linalg.svd(np.where(good[:, None, None], X, 0.0), full_matrices=False)
    kept = s > RANK_TOLERANCE * np.maximum(s[:, :1], np.finfo(float).tiny)
    inverse = np.where(kept, 1.0 / np.where(kept, s, 1.0), 0.0)
    projected = (y[:, None, :] @ U)[:, 0]
    solution = ((projected * inverse)[:, None, :] @ Vt)[:, 0]
    residual = (X @ solution[..., None])[..., 0] - y
    bad = ~good
    solution[bad], residual[bad] = np.nan, np.nan
    return solution, residual, np.where(good, kept.sum(axis=-1), np.nan)


def full_least_squares(X: Array, y: Array, counts: Array, ridge: float = 0.0) -> Array:
    """Return each client's least-squares vector in the full dimension.

    Parameters
    ----------
    X : ndarray (items, m, d)
        Rows beyond a client's count are zero.
    y : ndarray (items, m)
    counts : ndarray (items,)
        Samples m_i.
    ridge : float
        Adds ``(ridge / 2) ||theta||^2`` to the loss ``(1 / 2 m_i) ||X_i theta - y_i||^2``.

    Returns
    -------
    ndarray (items, d)
        The solution of minimum norm where it is not unique (m_i < d).

    Notes
    -----
    QR of X_i (m >= d) or of its transpose (m < d); with a ridge, QR of the rows extended by
    ``sqrt(ridge m_i) I``. Items without full rank go through the SVD.
    """
    if ridge > 0:
        X, y = _extended(X, y, counts * ridge)
    tall = X.shape[1] >= X.shape[2]
    Q, R = np.linalg.qr(X if tall else np.swapaxes(X, -1, -2))
    diagonal = np.abs(np.diagonal(R, axis1=-2, axis2=-1))
    largest = diagonal.max(axis=-1)
    regular = np.isfinite(largest) & (diagonal.min(axis=-1) > RANK_TOLERANCE * largest)
    safe = np.where(regular[:, None, None], R, np.eye(R.shape[-1]))
    if tall:
        solution = np.linalg.solve(safe, np.swapaxes(Q, -1, -2) @ y[..., None])[..., 0]
    else:
        solution = (Q @ np.linalg.solve(np.swapaxes(safe, -1, -2), y[..., None]))[..., 0]
    if not regular.all():
        solution[~regular] = minimum_norm(X[~regular], y[~regular])[0]
    return np.asarray(solution)
