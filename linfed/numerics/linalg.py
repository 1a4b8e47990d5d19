"""Batched kernels: every function acts on stacks of small matrices, trials (and clients) leading.

Two rules hold throughout. A result for one item of a stack never depends on the other items, bit for bit; and an
item that is not finite gives a result that is not finite, instead of an error for the whole stack.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from linfed._types import Array, Indices, Mask

CACHE_VALUES = 131_072
"""Numbers in one block of clients: a megabyte, so that a block stays in a core's cache."""

TINY = np.finfo(float).tiny

Found = TypeVar("Found", Array, tuple[Array, ...])
A = TypeVar("A", Array, Mask)

RANK_TOLERANCE = 1e-13
"""A column whose part outside the span of the columns before it is below this share of its length is dependent."""


@functools.cache
def _controller(with_scipy: bool) -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS runs one thread.

    Stacks of small matrices run many times slower with several, and results then do not depend on the machine's
    number of cores. The list of thread pools is found once, and once more when SciPy has brought its own; finding it
    anew would cost half a millisecond.
    """
    controller = _controller("scipy.linalg" in sys.modules)
    if all(pool.num_threads == 1 for pool in controller.lib_controllers if pool.user_api == "blas"):
        return nullcontext()  # as in worker processes, and within another such context
    limited: AbstractContextManager[object] = controller.limit(limits=1, user_api="blas")
    return limited


@contextmanager
def quiet() -> Iterator[None]:
    """Run with one BLAS thread and without warnings: divergence is an outcome, told by the numbers."""
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        yield


def finite_items(stack: Array) -> Mask:
    """Return which matrices of a stack (..., a, b) are wholly finite, (...)."""
    return np.asarray(np.isfinite(stack).all(axis=(-2, -1)))


def guarded(decompose: Callable[[Array], Found]) -> Callable[[Array], Found]:
    """Return a decomposition of each matrix of a stack that is NaN for one that is not finite.

    LAPACK's singular values and eigenvalues raise for the whole stack where one matrix holds NaN, and may never come
    back from one that holds infinity: they are not shown any.
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


def take_clients(values: A, active: Indices) -> A:
    """Return ``values[t, active[t, i]]``, (trials, p, ...); the array itself where every client is active."""
    if active.shape[-1] == values.shape[1]:  # distinct and ascending, so it is everybody in order
        return values
    return values[np.arange(len(active))[:, None], active]


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
    return _with_signs_of(R, Q), _with_signs_of(R, R.mT).mT


def _with_signs_of(R: Array, columns: Array) -> Array:
    """Return columns (..., d, k) with the signs of R's diagonal; 0 counts as positive."""
    return columns * np.copysign(1.0, np.diagonal(R, axis1=-2, axis2=-1) + 0.0)[..., None, :]


def orthonormalize(A: Array) -> Array:
    """Return the Q factor of `qr_positive`, (..., d, k)."""
    Q, R = np.linalg.qr(A)
    return _with_signs_of(R, Q)


def symmetric(A: Array) -> Array:
    """Return ``(A + A')/2``, of matrices (.., k, k)."""
    return 0.5 * (A + A.mT)


def spectral_norm(A: Array) -> Array:
    """Return the largest singular value of each matrix (..., d, k), d >= k, through the k x k Gram matrix.

    The largest eigenvalue of a Gram matrix has full relative accuracy, however small it is.
    """
    return np.sqrt(np.maximum(eigvalsh(A.mT @ A)[..., -1], 0.0))


def span_distance(B1: Array, B2: Array) -> Array:
    """Return the sine of the largest principal angle between column spaces, (...), of bases of full rank.

    It is computed as the residual ``||(I - Q1 Q1') Q2||_2``, never through cosines, which read 0 from about 1e-8 down.
    With unequal ranks the smaller space is held against the larger.
    """
    return distance_from(_orthonormal_span(B1), B2)


def distance_from(Q1: Array, B2: Array) -> Array:
    """Return the same as `span_distance` for a first basis that is orthonormal already.

    Columns of zeros in it do not count: the rank of such a basis is the number of the others.
    """
    Q2 = _orthonormal_span(B2)
    if Q1.shape[-1] < Q2.shape[-1]:
        Q1, Q2 = Q2, Q1
    elif Q1.shape == Q2.shape and not (full := np.asarray(Q1.any(axis=-2).all(axis=-1))).all():
        Q1, Q2 = (np.where(full[..., None, None], *pair) for pair in ((Q1, Q2), (Q2, Q1)))
    return np.minimum(spectral_norm(Q2 - Q1 @ (Q1.mT @ Q2)), 1.0)


def _orthonormal_span(B: Array) -> Array:
    """Return an orthonormal basis of each column space, the basis itself if it is one; columns of zeros stay."""
    gram = B.mT @ B
    good = np.abs(gram - np.eye(B.shape[-1])).max(axis=(-2, -1)) < 8 * np.finfo(float).eps
    if good.all():
        return B
    basis = np.where(B.any(axis=-2, keepdims=True), orthonormalize(B), 0.0)
    return np.where(good[..., None, None], B, basis)


def root_of_gram(gram: Array) -> Array:
    """Return F with ``F'F = gram`` for each positive semi-definite matrix (..., k, k); null directions stay null."""
    values, vectors = eigh(gram)
    kept = values > gram.shape[-1] * np.finfo(float).eps * values[..., -1:]
    return np.sqrt(np.where(kept, values, 0.0))[..., :, None] * vectors.mT


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
    import scipy.linalg

    d = M.shape[-1]
    out = np.full((*M.shape[:-1], k), np.nan)
    with one_blas_thread():
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
        part = R[..., start:stop] @ factor.mT
        same = parts.shape == part.shape
        parts = part if start == 0 else np.add(parts, part, out=parts if same else None)
        start = stop
    return np.square(parts, out=parts).sum(axis=-2)


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
