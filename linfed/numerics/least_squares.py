"""Batched least squares for heads, for full-dimensional predictors, and for heads and shortcuts jointly.

As in `linfed.numerics.linalg`, an item's result never depends on the other items, and an item that is not finite gives
a result that is not finite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from linfed._types import Array, Mask
from linfed.numerics.linalg import RANK_TOLERANCE, TINY, eigh, finite_items, solve, svd

NULL_TOLERANCE = 1e-12
"""Eigenvalues below this share of the trace count as 0, with all columns in equal units."""

SAFE_SHARE = 1e-3
"""Smallest share of a sample outside the span of the previous ones at which m < d samples are factored directly."""

NEW_DIRECTION = 1e-8
"""Smallest part of a direction that columns of a smaller unit must add."""

STEP = 16
"""Units are powers of 2**16."""

RATIO = 2.0 ** (STEP // 2)
"""Columns whose lengths are within this factor have the same unit."""

PROBE = (20241127, 61)
"""Seed of the random vector that probes condition numbers; not used for data."""

SAFE_CONDITION = 1e5
"""Largest condition number, approximately, at which normal equations are solved directly."""

SAFE_DETERMINANT = 2e-3
"""Smallest determinant of the Gram matrix of features of length 1 at which heads use normal equations. The condition
number of this matrix is then at most ``e k / SAFE_DETERMINANT``."""


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
    HeadSolution
        `W` (k, C), `residual` ``Z w - y`` (m, C), `deficient` (C,). If there are fewer samples than k, or features are
        dependent, `W` has minimum norm. Without a ridge, the residual of a client whose number of samples does not
        exceed the rank of its features is exactly zero. `deficient` is True for clients with at least k samples and
        dependent features.

    Notes
    -----
    Clients with more than 2k samples and features far from dependent use normal equations, whose relative error is at
    most about 1e-12. The others, and all with a ridge or if `few`, use a QR factorisation of ``[Z, y]``, by modified
    Gram-Schmidt or by LAPACK. Gram-Schmidt is a loop over k with vector operations over the clients. It is as stable as
    Householder's method (Bjorck 1967) and gives the residual at no extra cost. The method for a client depends only on
    its samples. Cost O(C m k^2).
    """
    k, m, count = Z.shape
    if ridge > 0 or few or m <= 2 * k:
        return _orthogonal_heads(Z, y, counts, ridge, few)
    W, residual, safe = _normal_heads(Z, y)
    safe &= counts > 2 * k
    deficient = np.zeros(count, dtype=bool)
    if np.count_nonzero(safe) < count:
        rest = ~safe
        parts = _orthogonal_heads(Z[..., rest], y[:, rest], counts[rest])
        W[:, rest], residual[:, rest], deficient[rest] = parts
    return HeadSolution(W, residual, deficient)


def _normal_heads(Z: Array, y: Array) -> tuple[Array, Array, Mask]:
    """Return heads (k, C) and residuals (m, C) by normal equations, and a mask of the clients that they suit."""
    k, _, count = Z.shape
    if count == 1:  # a single client is computed twice, as NumPy sums a single column in another order
        W, residual, safe = _normal_heads(np.repeat(Z, 2, axis=-1), np.repeat(y, 2, axis=-1))
        return W[:, :1], residual[:, :1], safe[:1]
    Z, labels = np.ascontiguousarray(Z), np.ascontiguousarray(y)  # the order of sums depends on strides
    system = np.empty((k, k + 1, count))  # [Z'Z, Z'y]
    np.einsum("imc,jmc->ijc", Z, Z, out=system[:, :k])
    np.einsum("imc,mc->ic", Z, labels, out=system[:, k])
    pivots, W = system.diagonal()[:, :k].T, system[:, k]  # views (k, C)
    squares = pivots + TINY / SAFE_DETERMINANT  # columns of zeros are not safe
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # clients that are not safe
        for i in range(k - 1):
            factors = system[i + 1 :, i] / pivots[i]
            system[i + 1 :, i + 1 :] -= factors[:, None] * system[i, i + 1 :]
        for i in reversed(range(1, k)):
            W[i] /= pivots[i]
            W[:i] -= system[:i, i] * W[i]
        W[0] /= pivots[0]
        determinants = np.multiply.reduce(pivots / squares)
        residual = np.einsum("kmc,kc->mc", Z, W)
        residual -= labels
    return W, residual, (determinants > SAFE_DETERMINANT) & np.isfinite(W[0])


def _orthogonal_heads(Z: Array, y: Array, counts: Array, ridge: float = 0.0, few: bool = False) -> HeadSolution:
    """Return `head_least_squares` by QR factorisations."""
    k, m, _ = Z.shape
    factor = _householder if few and ridge == 0 and m > k else _gram_schmidt
    W, residual, dependent = factor(Z, y, counts * ridge if ridge > 0 else None)
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


def _units(lengths: Array) -> Array:
    """Return each column's unit, a power of 2**16 next to its length (..., d) as a share of the longest column.

    All decisions on rank compare a column with its own length, so that they do not depend on units of measurement.
    Columns that are shorter than the longest by less than a factor of `RATIO`, and columns of zeros, have unit 1.
    Division by a unit is exact.
    """
    if lengths.size == 0 or RATIO * lengths.min() >= lengths.max():  # as usual
        return np.ones(lengths.shape)
    exponents = np.where(lengths > 0, np.frexp(lengths)[1], np.iinfo(np.int32).min // 2)
    steps = (exponents - exponents.max(axis=-1, keepdims=True) + STEP // 2) // STEP
    return np.where(lengths > 0, np.ldexp(1.0, STEP * np.maximum(steps, -1000 // STEP)), 1.0)


def _shortest(rows: Array, units: Array, right: Array) -> tuple[Array, Array]:
    """Return the shortest solution of ``(rows * units) v = right``, and an orthonormal basis of these rows' span.

    Here `rows` (r, d) are orthonormal, `units` (d,) powers of two, and `right` is (r, n); v is (d, n), the basis (d,
    r). The system is rotated so that each equation has columns of one unit and of smaller ones only. Equations of
    smaller units come first in the factorisation, so that their large solutions do not meet the small ones of larger
    units.
    """
    if len(rows) == len(units):
        return rows.T @ right / units[:, None], np.eye(len(units))
    turn, sizes = np.zeros((len(rows), 0)), np.zeros(0)
    for unit in np.unique(units)[::-1]:
        rest = rows[:, units == unit]
        for _ in range(2):  # twice is enough
            rest = rest - turn @ (turn.T @ rest)
        directions, values, _ = svd(rest)
        new = directions[:, values > NEW_DIRECTION]
        turn, sizes = np.hstack([new, turn]), np.append(np.full(new.shape[1], unit), sizes)
    size, order = sizes[:, None], np.argsort(units, kind="stable")
    system = np.where(units > size, 0.0, turn.T @ rows) * (np.minimum(units, size) / size)
    Q, R = np.linalg.qr(system[:, order].T)
    basis = np.empty_like(Q)
    basis[order] = Q
    return basis @ solve(R.T, turn.T @ right / size), basis


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
        Numerical rank, in any units of the columns; NaN for an item that is not finite.
    """
    good = finite_items(X) & np.isfinite(y).all(axis=-1)
    units = _units(np.abs(X).max(axis=-2, initial=0.0))
    U, s, Vt = svd(X / units[:, None, :])
    kept = s > RANK_TOLERANCE * np.maximum(s[:, :1], np.finfo(float).tiny)
    inverse = np.where(kept, 1.0 / np.where(kept, s, 1.0), 0.0)
    coordinates = (y[:, None, :] @ U)[:, 0] * inverse
    solution = (coordinates[:, None, :] @ Vt)[:, 0]
    if units.min(initial=1.0) < 1.0:
        for item in np.flatnonzero(good & (units != 1.0).any(axis=-1)):
            some = kept[item]
            solution[item] = _shortest(Vt[item, some], units[item], coordinates[item, some, None])[0][:, 0]
    residual = (X @ solution[..., None])[..., 0] - y
    bad = ~good
    solution[bad], residual[bad] = np.nan, np.nan
    return solution, residual, np.where(good, kept.sum(axis=-1), np.nan)


class FullSolution(NamedTuple):
    """Least-squares vectors in the full dimension: `theta` (items, d), `deficient` (items,)."""

    theta: Array
    deficient: Mask


def full_least_squares(X: Array, y: Array, counts: Array, ridge: float = 0.0) -> FullSolution:
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
    FullSolution
        `theta` (items, d), the solution of minimum norm if it is not unique. `deficient` (items,) is True for clients
        with at least d samples and dependent features.

    Notes
    -----
    Normal equations are used if m >= d and their condition number leaves ten accurate digits. Other items use a QR
    factorisation of X_i (m >= d) or of its transpose (m < d); with a ridge, X_i is extended by the rows
    ``sqrt(ridge m_i) I``. Items without full rank use the SVD, and so do m < d nearly dependent samples. The method for
    an item depends only on its samples.
    """
    if X.shape[1] < X.shape[2]:
        theta, dependent = _orthogonal_least_squares(X, y, counts, ridge)
    else:
        theta, safe = _normal_least_squares(X, y, counts * ridge)
        dependent = np.zeros(len(X), dtype=bool)
        if not safe.all():
            rest = ~safe
            theta[rest], dependent[rest] = _orthogonal_least_squares(X[rest], y[rest], counts[rest], ridge)
    return FullSolution(theta, dependent & (counts >= X.shape[2]))


def _normal_least_squares(X: Array, y: Array, ridges: Array) -> tuple[Array, Mask]:
    """Return solutions of the normal equations, and a mask of those with ten accurate digits."""
    d = X.shape[-1]
    A = X.mT @ X
    diagonal = np.arange(d)
    A[:, diagonal, diagonal] += ridges[:, None]
    probe = np.random.default_rng(PROBE).standard_normal(d)  # a generic direction
    right = np.empty((*A.shape[:2], 2))
    right[..., 0], right[..., 1] = (y[:, None, :] @ X)[:, 0], probe
    solved = solve(A, right)
    # The probe estimates the smallest eigenvalue, to a factor of order sqrt(d); this bounds the condition number below.
    least = np.linalg.norm(probe) / np.linalg.norm(solved[..., 1], axis=-1)
    safe = np.trace(A, axis1=-2, axis2=-1) < SAFE_CONDITION * least
    return np.ascontiguousarray(solved[..., 0]), safe


def _orthogonal_least_squares(X: Array, y: Array, counts: Array, ridge: float) -> tuple[Array, Mask]:
    """Return solutions by orthogonal factorisations, and a mask of the items that are (nearly, if m < d) dependent."""
    if ridge > 0:
        X, y = _extended(X, y, counts * ridge)
    tall = X.shape[1] >= X.shape[2]
    Q, R = np.linalg.qr(X if tall else X.mT)
    size = np.abs(R)
    own = (RANK_TOLERANCE if tall else SAFE_SHARE) * size.max(axis=-2)  # of a column, or of a sample
    finite = finite_items(R)
    regular = finite & (size.diagonal(axis1=-2, axis2=-1) > own).all(axis=-1)
    safe = np.where(regular[:, None, None], R, np.eye(R.shape[-1]))
    if tall:
        solution = np.linalg.solve(safe, Q.mT @ y[..., None])[..., 0]
    else:
        solution = (Q @ np.linalg.solve(safe.mT, y[..., None]))[..., 0]
    if not regular.all():
        solution[~regular] = minimum_norm(X[~regular], y[~regular])[0]
    return np.asarray(solution), finite & ~regular


class Semidefinite(NamedTuple):
    """Parts of symmetric positive semi-definite matrices (..., d, d), from `semidefinite`.

    The pseudo-inverse is ``inverse diag(1 / values) inverse'``, and `basis` is orthonormal in the range. Values that
    count as 0 are 0, and so are their columns of `inverse` and `basis`, both (..., d, d).
    """

    values: Array
    inverse: Array
    basis: Array

    def pseudo_inverse(self) -> Array:
        """Return the pseudo-inverses, (..., d, d)."""
        reciprocal = np.where(self.values > 0, 1.0 / np.where(self.values > 0, self.values, 1.0), 0.0)
        return np.asarray((self.inverse * reciprocal[..., None, :]) @ self.inverse.mT)

    def projector(self) -> Array:
        """Return the projectors on the ranges, (..., d, d)."""
        return np.asarray(self.basis @ self.basis.mT)


def semidefinite(A: Array, squares: Array | None = None) -> Semidefinite:
    """Return the parts of symmetric positive semi-definite matrices, in any units of their columns.

    Parameters
    ----------
    A : ndarray (..., d, d)
    squares : ndarray (..., d), optional
        Scale of each diagonal entry, to which rounding errors are relative: for X'X the squared lengths of X's columns.
        By default the diagonal. Eigenvalues of at most `NULL_TOLERANCE` times their sum count as 0, with all columns in
        equal units.
    """
    squares = np.diagonal(A, axis1=-2, axis2=-1) if squares is None else squares
    units = np.sqrt(_units(squares))  # powers of 2**8
    odd = (units != 1.0).any(axis=-1)
    scaled = 0.5 * (A + A.mT)
    if odd.any():
        scaled, squares = scaled / units[..., :, None] / units[..., None, :], squares / units / units
    values, vectors = eigh(scaled)
    kept = values > NULL_TOLERANCE * squares.sum(axis=-1, keepdims=True)
    inverse = basis = vectors * kept[..., None, :]
    if odd.any():
        basis = inverse.copy()
        for item in map(tuple, np.argwhere(odd & finite_items(vectors))):
            some = kept[item]
            rows = vectors[item].T[some]
            inverse[item][:, some], basis[item][:, some] = _shortest(rows, units[item], np.eye(len(rows)))
    return Semidefinite(np.where(kept, values, 0.0), inverse, basis)


class JointSolution(NamedTuple):
    """Heads `W` (T, p, k), shortcuts `S` (T, p, d), and whether the features may be dependent, `doubtful` (T, p)."""

    W: Array
    S: Array
    doubtful: Mask


def joint_ridge(A: Array, b: Array, B: Array, ridge: float) -> JointSolution:
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
    JointSolution
        `doubtful` clients have features ``X_i B`` that are dependent, or nearly.

    Notes
    -----
    With ``P = (A + ridge I)^{-1}``, w solves ``B'A P B w = B'P b`` (with minimum norm if A does not determine w), and
    ``s = P (b - A B w)``. Cost O(p d^3).
    """
    trials, p, d = b.shape
    k = B.shape[-1]
    right = np.concatenate([np.broadcast_to(B[:, None], (trials, p, d, k)), b[..., None]], axis=-1)
    solved = solve((A + ridge * np.eye(d)).reshape(-1, d, d), right.reshape(-1, d, k + 1))
    solved = solved.reshape(trials, p, d, k + 1)
    across = B.mT[:, None]
    gram = across @ (A @ solved[..., :k])
    # B'A B determines the directions of w that affect the samples; in B'A P B rounding errors are divided by the ridge.
    parts = semidefinite(across @ (A @ B[:, None]), squares_of_features(A, B))
    seen = parts.projector()
    filler = np.maximum(np.trace(gram, axis1=-2, axis2=-1), TINY)[..., None, None] * (np.eye(k) - seen)
    moment = (seen @ (across @ solved[..., k:])).reshape(-1, k, 1)
    inside = solve((seen @ gram @ seen + filler).reshape(-1, k, k), moment)
    W = (seen @ inside.reshape(trials, p, k, 1))[..., 0]
    # P A B w = B w - ridge P B w
    S = solved[..., k] + ridge * (solved[..., :k] @ W[..., None])[..., 0] - W @ B.mT
    return JointSolution(W, S, (parts.values == 0).any(axis=-1))


def squares_of_features(A: Array, B: Array) -> Array:
    """Return the largest possible squared lengths of the columns of ``X_i B``, (T, p, k), for ``A_i = X_i'X_i/m_i``."""
    return np.square(np.sqrt(np.diagonal(A, axis1=-2, axis2=-1)) @ np.abs(B))


def smallest_shortcut(A: Array, b: Array, B: Array) -> JointSolution:
    """Return each client's least-squares head and shortest shortcut, the limit of `joint_ridge` as ridge -> 0.

    Parameters
    ----------
    A, b, B
        As in `joint_ridge`.

    Returns
    -------
    JointSolution
        `doubtful` clients have samples with dependent columns, or nearly.

    Notes
    -----
    With ``M = B'A B``, eliminating the head gives ``s = (A - A B M^+ B'A)^+ (b - A B M^+ B'b)``, and then
    ``w = M^+ B'(b - A s)``. Cost O(p d^3).
    """
    across, AB = B.mT[:, None], A @ B[:, None]
    M = across @ AB
    inverse = semidefinite(M, squares_of_features(A, B)).pseudo_inverse()
    projected = AB @ inverse  # A B M^+
    left = A - projected @ AB.mT
    rest = b[..., None] - projected @ (across @ b[..., None])
    # Rounding errors are small relative to A, but not relative to the part of A that remains without the head.
    S = semidefinite(left, np.diagonal(A, axis1=-2, axis2=-1)).pseudo_inverse() @ rest
    W = inverse @ (across @ (b[..., None] - A @ S))
    # Where M is nearly singular, rounding errors of its inverse are large: the shortcut explains what they leave.
    parts = semidefinite(A)
    S = S + parts.pseudo_inverse() @ (b[..., None] - A @ (B[:, None] @ W + S))
    return JointSolution(W[..., 0], S[..., 0], (parts.values == 0).any(axis=-1))
