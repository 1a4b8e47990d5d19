"""Batched least squares for heads, for full-dimensional predictors, and for heads and shortcuts jointly.

As in `linfed.numerics.linalg`, an item's result never depends on the other items, and an item that is not finite gives
a result that is not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from linfed._types import Array, Mask
from linfed.numerics.linalg import RANK_TOLERANCE, TINY, eigh, finite_items, svd

NULL_TOLERANCE = 1e-12
"""Eigenvalues below this share of the trace count as 0."""

PROBE = (20241127, 61)
"""Seed of the random vector that probes condition numbers; not used for data."""

SAFE_CONDITION = 1e5
"""Largest condition number, approximately, at which normal equations are solved directly."""


class HeadSolution(NamedTuple):
    """Least-squares heads of a block, with clients last: `W` (k, C), `residual` (m, C), `deficient` (C,)."""

    W: Array
    residual: Array
    deficient: Mask


def head_least_squares(Z: Array, y: Array, counts: Array, ridge: float = 0.0, *, few: bool = False) -> HeadSolution:
    """Solve one small least-squares problem per client, for all clients of a block at once.

    Parameters
    ----------
    Z : ndarray (k, m, C)
        Features, clients last; rows beyond a client's count are zero.
    y : ndarray (m, C)
        Labels.
    counts : ndarray (C,)
        Number of samples m_i per client.
    ridge : float
        Weight of the penalty ``(ridge / 2) ||w||^2`` in client i's loss ``(1 / 2 m_i) ||Z_i w - y_i||^2``.
    few : bool
        If True, blocks contain few clients with many samples, and LAPACK factors them one by one.

    Returns
    -------
    Heads
        `W` (k, C), `residual` ``Z w - y`` (m, C), `deficient` (C,). If there are fewer samples than k, or features are
        dependent, `W` has minimum norm. Without a ridge, the residual of a client whose number of samples does not
        exceed the rank of its features is exactly zero. `deficient` is True for clients with at least k samples and
        dependent features.

    Notes
    -----
    The method is a QR factorisation of ``[Z, y]``, by modified Gram-Schmidt or by LAPACK. Gram-Schmidt is a loop over k
    with vector operations over the clients. It is as stable as Householder's method (Bjorck 1967) and gives the
    residual at no extra cost. Cost O(C m k^2).
    """
    k, m, _ = Z.shape
    solve = _householder if few and ridge == 0 and m > k else _gram_schmidt
    W, residual, dependent = solve(Z, y, counts * ridge if ridge > 0 else None)
    irregular = deficient = dependent
    if counts.min() <= k:
        short = counts < k
        deficient = dependent & ~short
        if ridge == 0:
            irregular = short | dependent
            residual[:, counts <= k] = 0.0
    if np.count_nonzero(irregular):
        samples, labels = np.moveaxis(Z[:, :, irregular], -1, 0).mT, y[:, irregular].T
        if ridge > 0:  # a ridge below the rounding errors
            samples, labels = _extended(samples, labels, counts[irregular] * ridge)
        solved, rest, rank = minimum_norm(samples, labels)
        explained = (counts[irregular] <= rank) & (ridge == 0)
        W[:, irregular] = solved.T
        residual[:, irregular] = np.where(explained, 0.0, rest[:, :m].T)
    return HeadSolution(W, residual, deficient)


def _gram_schmidt(Z: Array, y: Array, ridges: Array | None) -> tuple[Array, Array, Mask]:
    """Return heads (k, C), residuals (m, C) and a mask of the clients with dependent features."""
    k, m, count = Z.shape
    rows = m if ridges is None else m + k
    width = max(count, 2)  # a single client is computed twice, as NumPy sums a single column in another order
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
        np.sqrt(np.maximum(square, TINY, out=square), out=R[j, j])  # a column of zeros stays zero
        column /= R[j, j]
        np.einsum("lmc,mc->lc", later, column, out=R[j, j + 1 :])
        later -= np.multiply(R[j, j + 1 :, None], column, out=product)
    squares = np.square(R[:, :k])
    diagonal = squares.diagonal()  # (width, k)
    dependent = (diagonal <= RANK_TOLERANCE**2 * squares.sum(axis=0).T + TINY).any(axis=-1)
    W = np.empty((k, width))
    for j in reversed(range(k)):
        value = R[j, k]
        for later_column in range(j + 1, k):
            value = value - R[j, later_column] * W[later_column]
        np.divide(value, R[j, j], out=W[j])
    return W[:, :count], -work[k, :m, :count], dependent[:count]


def _householder(Z: Array, y: Array, ridges: Array | None) -> tuple[Array, Array, Mask]:
    """Return the results of `_gram_schmidt` by Householder reflections, for more samples than features."""
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
    """Return rows and labels whose least-squares solution is the ridge solution with weights `ridges` (items,)."""
    items, _, d = X.shape
    extra = np.sqrt(ridges)[:, None, None] * np.eye(d)
    return np.concatenate([X, extra], axis=1), np.concatenate([y, np.zeros((items, d))], axis=1)


def minimum_norm(X: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return the least-squares solution of minimum norm for each item of a stack, by SVD.

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
    U, s, Vt = svd(X)
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
        Number of samples m_i per client.
    ridge : float
        Weight of the penalty ``(ridge / 2) ||theta||^2`` in the loss ``(1 / 2 m_i) ||X_i theta - y_i||^2``.

    Returns
    -------
    ndarray (items, d)
        The solution of minimum norm if it is not unique (m_i < d).

    Notes
    -----
    Normal equations are used if m >= d and their condition number leaves ten accurate digits. Other items use a QR
    factorisation of X_i (m >= d) or of its transpose (m < d); with a ridge, X_i is extended by the rows
    ``sqrt(ridge m_i) I``. Items without full rank use the SVD. The method for an item depends only on its samples.
    """
    if X.shape[1] < X.shape[2]:
        return _orthogonal_least_squares(X, y, counts, ridge)
    solution, safe = _normal_least_squares(X, y, counts * ridge)
    if not safe.all():
        rest = ~safe
        solution[rest] = _orthogonal_least_squares(X[rest], y[rest], counts[rest], ridge)
    return solution


def _normal_least_squares(X: Array, y: Array, ridges: Array) -> tuple[Array, Mask]:
    """Return solutions of the normal equations, and a mask of those with ten accurate digits."""
    d = X.shape[-1]
    A = X.mT @ X
    diagonal = np.arange(d)
    A[:, diagonal, diagonal] += ridges[:, None]
    probe = np.random.default_rng(PROBE).standard_normal(d)  # a generic direction
    right = np.empty((*A.shape[:2], 2))
    right[..., 0], right[..., 1] = (y[:, None, :] @ X)[:, 0], probe
    solved = _solve_each(A, right)
    # The probe estimates the smallest eigenvalue, to a factor of order sqrt(d); this bounds the condition number below.
    least = np.linalg.norm(probe) / np.linalg.norm(solved[..., 1], axis=-1)
    safe = np.trace(A, axis1=-2, axis2=-1) < SAFE_CONDITION * least
    return np.ascontiguousarray(solved[..., 0]), safe


def _solve_each(A: Array, right: Array) -> Array:
    """Return ``A^{-1} right`` for each item, NaN for an item that is singular or not finite."""
    good = finite_items(A) & finite_items(right)
    safe = A if good.all() else np.where(good[:, None, None], A, np.eye(A.shape[-1]))
    try:
        solved = np.linalg.solve(safe, right)
    except np.linalg.LinAlgError:  # an item is exactly singular: solve one by one
        solved = np.empty_like(right)
        for item, (matrix, columns) in enumerate(zip(safe, right, strict=True)):
            try:
                solved[item] = np.linalg.solve(matrix, columns)
            except np.linalg.LinAlgError:
                good[item] = False
    solved[~good] = np.nan
    return np.asarray(solved)


def _orthogonal_least_squares(X: Array, y: Array, counts: Array, ridge: float) -> Array:
    """Return the results of `full_least_squares` by orthogonal factorisations."""
    if ridge > 0:
        X, y = _extended(X, y, counts * ridge)
    tall = X.shape[1] >= X.shape[2]
    Q, R = np.linalg.qr(X if tall else X.mT)
    diagonal = np.abs(np.diagonal(R, axis1=-2, axis2=-1))
    largest = diagonal.max(axis=-1)
    regular = np.isfinite(largest) & (diagonal.min(axis=-1) > RANK_TOLERANCE * largest)
    safe = np.where(regular[:, None, None], R, np.eye(R.shape[-1]))
    if tall:
        solution = np.linalg.solve(safe, Q.mT @ y[..., None])[..., 0]
    else:
        solution = (Q @ np.linalg.solve(safe.mT, y[..., None]))[..., 0]
    if not regular.all():
        solution[~regular] = minimum_norm(X[~regular], y[~regular])[0]
    return np.asarray(solution)


def pseudo_inverse(A: Array, threshold: Array) -> Array:
    """Return the pseudo-inverse of symmetric positive semi-definite matrices (..., d, d).

    Eigenvalues of at most `threshold` (...) count as 0.
    """
    return _of_eigenvalues(A, threshold, np.reciprocal)


def _range_of(A: Array, threshold: Array) -> Array:
    """Return the projectors on the ranges of symmetric positive semi-definite matrices (..., d, d)."""
    return _of_eigenvalues(A, threshold, np.ones_like)


def _of_eigenvalues(A: Array, threshold: Array, function: Callable[[Array], Array]) -> Array:
    """Apply a function to the eigenvalues above a threshold, and set the others to 0; returns matrices (..., d, d)."""
    values, vectors = eigh(0.5 * (A + A.mT))
    kept = values > threshold[..., None]
    changed = np.where(kept, function(np.where(kept, values, 1.0)), 0.0)
    return (vectors * changed[..., None, :]) @ vectors.mT


def joint_ridge(A: Array, b: Array, B: Array, ridge: float) -> tuple[Array, Array]:
    """Return the heads and shortcuts that jointly minimise each client's loss with a ridge on the shortcut.

    Parameters
    ----------
    A : ndarray (T, p, d, d)
        ``X_i'X_i/m_i``.
    b : ndarray (T, p, d)
        ``X_i'y_i/m_i``.
    B : ndarray (T, d, k)
    ridge : float
        Weight > 0 of the penalty ``(ridge / 2) ||s||^2`` in the loss ``(1/2m_i) ||X_i (B w + s) - y_i||^2``.

    Returns
    -------
    W : ndarray (T, p, k)
    S : ndarray (T, p, d)

    Notes
    -----
    With ``P = (A + ridge I)^{-1}``, w solves ``B'A P B w = B'P b`` (with minimum norm if A does not determine w), and
    ``s = P (b - A B w)``. Cost O(p d^3).
    """
    trials, p, d = b.shape
    k = B.shape[-1]
    right = np.concatenate([np.broadcast_to(B[:, None], (trials, p, d, k)), b[..., None]], axis=-1)
    solved = _solve_each((A + ridge * np.eye(d)).reshape(-1, d, d), right.reshape(-1, d, k + 1))
    solved = solved.reshape(trials, p, d, k + 1)
    across = B.mT[:, None]
    gram = across @ (A @ solved[..., :k])
    # B'A B determines the directions of w that affect the samples; in B'A P B rounding errors are divided by the ridge.
    length = (B**2).sum(axis=-2).max(axis=-1)[:, None]  # squared length of the longest column
    seen = _range_of(across @ (A @ B[:, None]), NULL_TOLERANCE * length * np.trace(A, axis1=-2, axis2=-1))
    filler = np.maximum(np.trace(gram, axis1=-2, axis2=-1), TINY)[..., None, None] * (np.eye(k) - seen)
    moment = (seen @ (across @ solved[..., k:])).reshape(-1, k, 1)
    inside = _solve_each((seen @ gram @ seen + filler).reshape(-1, k, k), moment)
    W = (seen @ inside.reshape(trials, p, k, 1))[..., 0]
    # P A B w = B w - ridge P B w
    S = solved[..., k] + ridge * (solved[..., :k] @ W[..., None])[..., 0] - W @ B.mT
    return W, S


def smallest_shortcut(A: Array, b: Array, B: Array) -> tuple[Array, Array]:
    """Return each client's least-squares head and shortest shortcut, the limit of `joint_ridge` as ridge -> 0.

    Parameters
    ----------
    A, b, B
        As in `joint_ridge`.

    Returns
    -------
    W : ndarray (T, p, k)
    S : ndarray (T, p, d)

    Notes
    -----
    With ``M = B'A B``, eliminating the head gives ``s = (A - A B M^+ B'A)^+ (b - A B M^+ B'b)``, and then ``w = M^+
    B'(b - A s)``. Cost O(p d^3).
    """
    across, AB = B.mT[:, None], A @ B[:, None]
    M = across @ AB
    inverse = pseudo_inverse(M, NULL_TOLERANCE * np.trace(M, axis1=-2, axis2=-1))
    projected = AB @ inverse  # A B M^+
    left = A - projected @ AB.mT
    rest = b[..., None] - projected @ (across @ b[..., None])
    # Rounding errors are small relative to A, but not relative to the part of A that remains without the head.
    S = pseudo_inverse(left, NULL_TOLERANCE * np.trace(A, axis1=-2, axis2=-1)) @ rest
    W = inverse @ (across @ (b[..., None] - A @ S))
    return W[..., 0], S[..., 0]
