"""Batched linear algebra on stacks of small matrices, with trials (and clients) first.

Two rules hold for all functions. The result for one item of a stack never depends on the other items, bit for bit. An
item that is not finite gives a result that is not finite, instead of an error for the whole stack.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from linfed._types import Array, Indices, Mask

CACHE_VALUES = 131_072
"""Number of floats in one block of clients: a megabyte, so that a block fits into a core's cache."""

FEWEST_ROWS, FEWEST_UNCOPIED = 500, 200
"""Fewest rows of a product in `tall_product`, and fewest of one whose factors BLAS does not copy."""

UNCOPIED = 1_000_000
"""Most multiplications of a product whose factors BLAS does not copy."""

AVX512 = "SkylakeX", "Cooperlake", "SapphireRapids"
"""OpenBLAS's names of the processors for which it uses AVX-512."""

NARROW = 1200
"""Largest product of the number of rows and the matrix's smaller side in a single product of `narrow_product`."""

FEW_VALUES = 10
"""Largest k m at which the messages of all clients are one product in `weighted_messages`."""

SMALL_DIM = 128
"""Largest dimension at which all eigenvectors are computed where few are needed: faster than loading SciPy."""

TINY = np.finfo(float).tiny

Found = TypeVar("Found", Array, tuple[Array, ...])
A = TypeVar("A", Array, Mask)

RANK_TOLERANCE = 1e-13
"""Tolerance for linear dependence: smallest allowed share of a column outside the span of the previous columns."""


@functools.cache
def _controller(with_scipy: bool) -> ThreadpoolController:
    """Return the controller of the loaded thread pools; SciPy may load further ones."""
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS uses one thread.

    Stacks of small matrices are many times slower with several threads. With one thread, results do not depend on the
    number of cores either. The list of thread pools is cached, because finding it takes half a millisecond.
    """
    controller = _controller("scipy.linalg" in sys.modules)
    if all(pool.num_threads == 1 for pool in controller.lib_controllers if pool.user_api == "blas"):
        return nullcontext()  # as in worker processes, and within another such context
    limited: AbstractContextManager[object] = controller.limit(limits=1, user_api="blas")
    return limited


@contextmanager
def quiet() -> Iterator[None]:
    """Return a context with one BLAS thread and without floating-point warnings, as diverged trials are expected."""
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        yield


def finite_items(stack: Array) -> Mask:
    """Return a mask (...) of the matrices of a stack (..., a, b) whose entries are all finite."""
    return np.asarray(np.isfinite(stack).all(axis=(-2, -1)))


def guarded(decompose: Callable[[Array], Found]) -> Callable[[Array], Found]:
    """Return a version of a stacked decomposition that returns NaN for matrices that are not finite.

    If one matrix contains NaN, LAPACK's singular values and eigenvalues raise for the whole stack; with infinity they
    may never return. Matrices that are not finite are therefore replaced by zeros.
    """

    @functools.wraps(decompose)
    def checked(stack: Array) -> Found:
        good = finite_items(stack)
        if good.all():
            return decompose(stack)
        found = decompose(np.where(good[..., None, None], stack, 0.0))
        for array in found if isinstance(found, tuple) else (found,):
            array[~good] = np.nan
        return found

    return checked


@guarded
def svd(A: Array) -> tuple[Array, ...]:
    """Return the thin singular value decomposition U, s, V' of each matrix."""
    return np.linalg.svd(A, full_matrices=False)


@guarded
def singular_values(A: Array) -> Array:
    """Return the singular values of each matrix, largest first."""
    return np.asarray(np.linalg.svd(A, compute_uv=False))


@guarded
def eigh(A: Array) -> tuple[Array, ...]:
    """Return eigenvalues, ascending, and eigenvectors of each symmetric matrix."""
    return np.linalg.eigh(A)


@guarded
def eigvalsh(A: Array) -> Array:
    """Return the eigenvalues of each symmetric matrix, ascending."""
    return np.asarray(np.linalg.eigvalsh(A))


def solve(matrices: Array, right: Array) -> Array:
    """Return ``A^{-1} b`` for each matrix A (..., s, s) and right side b (..., s, r).

    The result is NaN for an item that is singular to the last bit, or not finite.
    """
    items = np.broadcast_shapes(matrices.shape[:-2], right.shape[:-2])
    good = np.array(np.broadcast_to(finite_items(matrices) & finite_items(right), items))
    safe = matrices if good.all() else np.where(good[..., None, None], matrices, np.eye(matrices.shape[-1]))
    try:
        solved = np.linalg.solve(safe, right)
    except np.linalg.LinAlgError:  # an item is singular: solve one by one
        safe, right = (np.broadcast_to(array, (*items, *array.shape[-2:])) for array in (safe, right))
        solved = np.full(right.shape, np.nan)
        for item in np.ndindex(items):
            with suppress(np.linalg.LinAlgError):
                solved[item] = np.linalg.solve(safe[item], right[item])
    solved[~good] = np.nan
    return np.asarray(solved)


def take_clients(values: A, active: Indices) -> A:
    """Return ``values[t, active[t, i]]``, (trials, p, ...); without a copy if all clients are active."""
    if active.shape[-1] == values.shape[1]:  # `active` is distinct and ascending, so it is all clients in order
        return values
    if not values.flags.c_contiguous:  # e.g. an array that all trials share: flattening would copy it for each
        return values[np.arange(len(active))[:, None], active]
    trials, clients = values.shape[:2]
    if trials == 1:
        return values[0].take(active[0], axis=0)[None]
    flat = values.reshape(trials * clients, *values.shape[2:])
    return flat.take(active + clients * np.arange(trials)[:, None], axis=0)


def put_clients(values: Array, active: Indices, new: Array) -> Array:
    """Return a copy of `values` (trials, n, ...) with the active clients' rows replaced."""
    if active.shape[-1] == values.shape[1]:
        return new
    kept = values.copy()
    kept[np.arange(len(active))[:, None], active] = new
    return kept


# --- orthonormal bases and distances -------------------------------------------------------------------------


def qr_positive(A: Array) -> tuple[Array, Array]:
    """Return the thin QR factorisation of each matrix with a non-negative diagonal of R.

    Parameters
    ----------
    A : ndarray (..., d, k), d >= k

    Returns
    -------
    Q : ndarray (..., d, k)
        Orthonormal columns; a continuous function of A at matrices of full rank.
    R : ndarray (..., k, k)
        Upper triangular with a non-negative diagonal.
    """
    Q, R = np.linalg.qr(A)
    return _with_signs_of(R, Q), _with_signs_of(R, R.mT).mT


def _with_signs_of(R: Array, columns: Array) -> Array:
    """Return columns (..., d, k) with the signs of R's diagonal; 0 counts as positive."""
    return columns * np.copysign(1.0, R.diagonal(axis1=-2, axis2=-1) + 0.0)[..., None, :]


def orthonormalize(A: Array) -> Array:
    """Return the Q factor of `qr_positive`, (..., d, k)."""
    Q, R = np.linalg.qr(A)
    return _with_signs_of(R, Q)


def symmetric(A: Array) -> Array:
    """Return ``(A + A')/2`` for matrices (.., k, k)."""
    return 0.5 * (A + A.mT)


def spectral_norm(A: Array) -> Array:
    """Return the largest singular value of each matrix (..., d, k), d >= k, by the k x k Gram matrix.

    The largest eigenvalue of a Gram matrix has full relative accuracy, however small it is.
    """
    return np.sqrt(np.maximum(eigvalsh(A.mT @ A)[..., -1], 0.0))


def span_distance(B1: Array, B2: Array) -> Array:
    """Return the sine of the largest principal angle between the column spaces of two bases of full rank, (...).

    It is the norm of the residual, ``||(I - Q1 Q1') Q2||_2``; computed by cosines, sines below about 1e-8 would be 0.
    With unequal ranks the result is 0 if the larger space contains the smaller one.
    """
    return distance_from(_orthonormal_span(B1), B2)


def distance_from(Q1: Array, B2: Array) -> Array:
    """Return `span_distance` for a first basis Q1 that is orthonormal.

    Q1 may contain columns of zeros, which do not count for its rank.
    """
    Q2 = _orthonormal_span(B2)
    if Q1.shape[-1] < Q2.shape[-1]:
        Q1, Q2 = Q2, Q1
    elif Q1.shape == Q2.shape and not (full := np.asarray(Q1.any(axis=-2).all(axis=-1))).all():
        Q1, Q2 = (np.where(full[..., None, None], *pair) for pair in ((Q1, Q2), (Q2, Q1)))
    return np.minimum(spectral_norm(Q2 - Q1 @ (Q1.mT @ Q2)), 1.0)


def _orthonormal_span(B: Array) -> Array:
    """Return an orthonormal basis of each column space, or B if it is orthonormal; columns of zeros stay zero."""
    gram = B.mT @ B
    good = np.abs(gram - np.eye(B.shape[-1])).max(axis=(-2, -1)) < 8 * np.finfo(float).eps
    if good.all():
        return B
    basis = np.where(B.any(axis=-2, keepdims=True), orthonormalize(B), 0.0)
    return np.where(good[..., None, None], B, basis)


def column_rank(B: Array) -> Indices:
    """Return the rank of each matrix (..., d, k), for columns of any lengths."""
    lengths = np.abs(B).max(axis=-2, keepdims=True)
    return np.asarray(np.linalg.matrix_rank(np.divide(B, lengths, out=np.zeros_like(B), where=lengths > 0)))


def root_of_gram(gram: Array) -> Array:
    """Return F with ``F'F = gram`` for each positive semi-definite matrix (..., k, k); null spaces are preserved."""
    values, vectors = eigh(gram)
    kept = values > gram.shape[-1] * np.finfo(float).eps * values[..., -1:]
    return np.sqrt(np.where(kept, values, 0.0))[..., :, None] * vectors.mT


def symmetric_root(A: Array) -> Array:
    """Return the symmetric square root of each positive semi-definite matrix; eigenvalues below 0 count as 0."""
    values, vectors = eigh(A)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ vectors.mT)


def top_eigenvectors(M: Array, k: int) -> Array:
    """Return the eigenvectors of the k largest eigenvalues, largest first, of each symmetric matrix.

    Parameters
    ----------
    M : ndarray (trials, d, d)
    k : int, 1 <= k <= d

    Returns
    -------
    ndarray (trials, d, k)
        Orthonormal columns, whose largest absolute entry is positive.
    """
    d = M.shape[-1]
    if d <= SMALL_DIM:
        with one_blas_thread():
            out = eigh(M)[1][..., ::-1][..., :k]
    else:
        out = _leading_eigenvectors(M, k)
    largest = np.take_along_axis(out, np.abs(out).argmax(axis=-2)[..., None, :], axis=-2)
    return out * np.where(largest < 0, -1.0, 1.0)


def _leading_eigenvectors(M: Array, k: int) -> Array:
    """Return the eigenvectors of the k largest eigenvalues, without computing the others."""
    import scipy.linalg

    d = M.shape[-1]
    out = np.full((*M.shape[:-1], k), np.nan)
    with one_blas_thread():  # entered after the import, which brings SciPy's BLAS
        for matrix, basis in zip(M, out, strict=True):
            if np.isfinite(matrix).all():
                basis[:] = scipy.linalg.eigh(matrix, subset_by_index=[d - k, d - 1])[1][:, ::-1]
    return out


def factored_squared_lengths(stacked: Array, coordinates: Sequence[Array]) -> Array:
    """Return the squared length of each client's sum of factored vectors, without computing the vectors.

    Parameters
    ----------
    stacked : ndarray (..., d, k_1 + k_2 + ..)
        Bases side by side.
    coordinates : sequence of ndarray (..., n, k_j) or (..., 1, k_j)
        The vector of client i is ``sum_j basis_j coordinates_j[i]``; a single row is shared by all clients.

    Returns
    -------
    ndarray (..., n)
        ``||R [c_1; c_2; ..]||^2`` with ``[basis_1, basis_2, ..] = Q R``. No array has size (n, d), and a difference of
        nearly equal vectors loses no digits.
    """
    R = np.asarray(np.linalg.qr(stacked, mode="r"))
    start, parts = 0, np.zeros(())
    for factor in coordinates:
        stop = start + factor.shape[-1]
        part = R[..., start:stop] @ factor.mT
        same = parts.shape == part.shape
        parts = part if start == 0 else np.add(parts, part, out=parts if same else None)
        start = stop
    return np.square(parts, out=parts).sum(axis=-2)


def tall_product(rows: Array, basis: Array) -> Array:
    """Return ``rows @ basis`` of rows (t, c, m, d) and bases (t, d, r), as (t, c m, r).

    The rows are multiplied in pieces of about `CACHE_VALUES` floats: BLAS copies longer factors before it multiplies.
    Pieces have at least `FEWEST_ROWS` rows, because threads that make shorter products wait for each other. If
    `FEWEST_UNCOPIED` rows need at most `UNCOPIED` multiplications, pieces may be that short: with AVX-512, OpenBLAS
    then copies nothing, and takes half of the time.
    """
    (t, c, m, d), r = rows.shape, basis.shape[-1]
    fewest = FEWEST_UNCOPIED if FEWEST_UNCOPIED * d * r <= UNCOPIED else -(-FEWEST_ROWS // max(1, m)) * m
    piece = max(CACHE_VALUES // max(1, m * d) * m, fewest)
    flat = rows.reshape(t, c * m, d)
    if c * m <= piece:
        return flat @ basis
    out = np.empty((t, c * m, r))
    for start in range(0, c * m, piece):
        np.matmul(flat[:, start : start + piece], basis, out=out[:, start : start + piece])
    return out


def narrow_product(few: Array, many: Array) -> Array:
    """Return ``few @ many`` of few rows (t, k, a) and a large matrix (t, a, b), as (t, k, b).

    OpenBLAS for AVX-512 reads the matrix once for all rows, if ``k min(a, b)`` is at most `NARROW`. In other cases BLAS
    copies the matrix first, and a product of its own for each row is faster.
    """
    if few.shape[-2] * min(many.shape[-2:]) <= NARROW and _has_avx512():
        return np.asarray(few @ many)
    return np.asarray((many.mT[:, None] @ few[..., None])[..., 0])


@functools.cache
def _has_avx512() -> bool:
    """Return whether NumPy's BLAS is OpenBLAS with AVX-512."""
    pools = ThreadpoolController().lib_controllers
    return any(getattr(pool, "architecture", None) in AVX512 for pool in pools)


def weighted_messages(rows: Array, residual: Array, W: Array) -> Array:
    """Return ``sum_i w_i (X_i'r_i)'`` of rows (t, c, m, d), residuals (t, c, m) and weights (t, k, c), as (t, k, d).

    One message per client reads its rows once. All clients in one product need k times the operations, which is faster
    for up to `FEW_VALUES` residuals and weights per client.
    """
    t, c, m, d = rows.shape
    k = W.shape[1]
    if k * m <= FEW_VALUES:
        scaled = W[..., None] * residual[:, None]
        return np.asarray(scaled.reshape(t, k, c * m) @ rows.reshape(t, c * m, d))
    return np.asarray(W @ (residual[..., None, :] @ rows)[..., 0, :])


def is_one_block(clients: int, values: int) -> bool:
    """Return True if all clients of a trial share a block. Two blocks are merged: fewer calls outweigh the cache."""
    return clients * values <= 2 * CACHE_VALUES


def block_width(clients: int, values: int, few: int = 1) -> int:
    """Return the number of clients in a block of `client_blocks`."""
    fitting, largest = CACHE_VALUES // max(1, values), 8 * CACHE_VALUES // max(1, values)
    return clients if is_one_block(clients, values) else min(clients, max(1, fitting, min(few, largest)))


def client_blocks(trials: int, clients: int, values: int, few: int = 1) -> Iterator[tuple[slice, slice]]:
    """Yield slices (trials, clients) of blocks of about `CACHE_VALUES` floats, with `values` floats per client.

    Blocks of up to `few` clients may be eight times as large. The blocks of a trial depend only on its size, so that a
    sum over blocks does not depend on other trials.
    """
    width = block_width(clients, values, few)
    together = max(1, CACHE_VALUES // max(1, clients * values)) if width == clients else 1
    for t in range(0, trials, together):
        for c in range(0, clients, width):
            yield slice(t, min(t + together, trials)), slice(c, min(c + width, clients))
