"""Neural collapse (NC) of linear heads: the distance of their Gram matrix from a simplex, and its gradient.

A client's heads are the rows of H (c, k), one for each of all c classes; the papers write the transpose. `holds` is u,
the indicator of the client's classes. All functions accept leading axes, and those of H and `holds` are broadcast.

The target is the simplex restricted to the client's classes::

    T = (u u') o (I - 11'/s) / sqrt(s - 1)        s = c for the global structure, s = sum(u) for the local one

For s = c, T restricted to the client's c_i classes has the eigenvalue ``1/sqrt(c-1)``, c_i - 1 times, and the
eigenvalue ``(1 - c_i/c)/sqrt(c-1)``. It is positive semi-definite with rank c_i for c_i < c, and rank c - 1 for
c_i = c.

For unit ``X = HH'/||HH'||``, ``||X - T||^2 = 1 + ||T||^2 - 2 <X, T> >= (1 - ||T||)^2``, with equality only at
X = T/||T||. This minimum requires k >= rank T columns; there the rows of other classes are zero, and the rows of the
client's classes have cosines -1/(c-1). With fewer columns ``<X, T> <= ||T_k||``, where T_k consists of T's k largest
eigenvalues and their eigenvectors.
"""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Mask
from linfed.numerics.linalg import quiet

ROUNDING = 4 * np.finfo(float).eps
"""Tolerance divided by c: a penalty of at most c times this value is a rounding error without a direction."""


def nc2(H: Array, holds: Mask, *, local: bool = False) -> Array:
    """Return the metric NC2 of each client's heads, global or local.

    Parameters
    ----------
    H : ndarray (..., c, k)
        Heads, a row for each of all c >= 2 classes.
    holds : ndarray of bool (..., c)
        The client's classes, u.
    local : bool, default False
        If True, c is replaced by the number of the client's classes.

    Returns
    -------
    ndarray (...)
        Global NC2 is the penalty ``NC(H) = ||HH'/||HH'||_F - T||_F`` with ``T = (u u') o (I - 11'/c)/sqrt(c-1)``. Its
        minimum is 0 for a client with all classes, and ``1 - ||T||_F`` for a client with fewer. Local NC2 is 0 if the
        heads of the client's classes form a simplex and all other heads are zero. It is NaN for a client with one
        class, for which no simplex exists. Neither depends on the scale of H. Both are NaN for H = 0, where they have
        no limit.
    """
    with quiet():
        X, *_ = _normalized(H)
        return _norm(X - _target(holds, local))


def nc_gradient(H: Array, target: Array) -> Array:
    """Return the gradient of the penalty NC, which is global NC2 (`nc2`), with respect to H.

    Parameters
    ----------
    H : ndarray (..., c, k)
        Heads, a row for each of all c >= 2 classes.
    target : ndarray (..., c, c)
        T of the clients' classes (`nc_target`).

    Returns
    -------
    ndarray (..., c, k)
        ``2 (D - <D, X> X) H / (||HH'|| ||D||)`` with ``X = HH'/||HH'||`` and ``D = X - T``; orthogonal to H. If the
        penalty is 0 up to rounding errors, the result is 0, which is a subgradient. For H = 0 it is 0 by definition.

    Notes
    -----
    The penalty is a norm, not a squared norm. For a client with all classes the gradient therefore does not become
    small near the minimum, and iterates with a constant step size stay about one step away. Cost: two products of
    (c, c) and (c, k) per client.
    """
    with quiet():
        X, rows, scale, length = _normalized(H)
        D = X - target
        norm = _norm(D)[..., None, None]
        X *= _inner(D, X)[..., None, None]
        D -= X
        gradient = D @ rows
        gradient *= 2.0 / (length * norm * scale)
        nothing = (scale == 0) | (norm <= ROUNDING * H.shape[-2])
        if nothing.any():
            gradient[np.broadcast_to(nothing, gradient.shape)] = 0.0
        return gradient


def nc_target(holds: Mask) -> Array:
    """Return the target T, (..., c, c), of clients with these classes (..., c)."""
    return _target(holds, local=False)


def _normalized(H: Array) -> tuple[Array, Array, Array, Array]:
    """Return ``HH'/||HH'||``, ``H/s``, s and ``||HH'||/s^2``, where s is the largest absolute entry of H.

    The last two have shape (..., 1, 1). H is divided by s first, because products of heads overflow and underflow much
    earlier than heads.
    """
    scale = np.abs(_flat(H)).max(axis=-1)[..., None, None]
    rows = H / scale
    gram = rows @ np.ascontiguousarray(rows.mT)  # a copy, as NumPy uses a slower product for an array with itself
    length = _norm(gram)[..., None, None]
    gram *= 1.0 / length
    return gram, rows, scale, length


def _target(holds: Mask, local: bool) -> Array:
    """Return the target T (..., c, c); NaN if its simplex has fewer than two classes."""
    indicator = np.asarray(holds, dtype=float)
    size = indicator.sum(axis=-1)[..., None, None] if local else np.full((1, 1), indicator.shape[-1])
    factor = np.where(size > 1, 1.0 / np.sqrt(np.maximum(size - 1.0, 1.0)), np.nan)
    both = indicator[..., :, None] * indicator[..., None, :]
    return factor * both * (np.eye(indicator.shape[-1]) - 1.0 / np.maximum(size, 1.0))


def _norm(A: Array) -> Array:
    """Return the Frobenius norm of each matrix (..., c, c)."""
    return np.sqrt(_inner(A, A))


def _inner(A: Array, B: Array) -> Array:
    """Return ``<A, B>`` of matrices (..., c, c)."""
    return np.asarray(np.vecdot(_flat(A), _flat(B)))


def _flat(A: Array) -> Array:
    """Return matrices (..., a, b) as vectors, (..., ab)."""
    return A.reshape(*A.shape[:-2], -1)
