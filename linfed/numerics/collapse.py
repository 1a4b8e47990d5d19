"""Neural collapse of linear heads: how far their Gram matrix is from a simplex, and the gradient of that.

A client's heads are the rows of H (c, k), one for each of all c classes; the papers write its transpose. `holds` is u,
the classes that the client has. Every function takes any leading axes, and those of H and `holds` are broadcast.

The target is the simplex cut to the client's classes::

    T = (u u') o (I - 11'/s) / sqrt(s - 1)        s = c for the global structure, s = sum(u) for the local one

On the client's c_i classes, with s = c, T has the eigenvalues ``1/sqrt(c-1)``, c_i - 1 times, and
``(1 - c_i/c)/sqrt(c-1)``: it is positive semi-definite of rank c_i for c_i < c, and c - 1 for c_i = c. For unit
``X = HH'/||HH'||``, ``||X - T||^2 = 1 + ||T||^2 - 2 <X, T> >= (1 - ||T||)^2``, with equality at X = T/||T|| alone:
k >= rank T columns reach it, rows of other classes are zero there, and own ones have cosines -1/(c-1). With fewer
columns ``<X, T> <= ||T_k||``, T_k being T's k largest eigenvalues and their vectors.
"""

from __future__ import annotations

import numpy as np

from linfed._types import Array, Mask
from linfed.numerics.linalg import quiet

ROUNDING = 4 * np.finfo(float).eps
"""Times c: a penalty that is not larger is rounding, and its direction is noise."""


def nc2(H: Array, holds: Mask, *, local: bool = False) -> Array:
    """Return the metric NC2 of each client's heads, global or local.

    Parameters
    ----------
    H : ndarray (..., c, k)
        Heads, a row for each of all c >= 2 classes.
    holds : ndarray of bool (..., c)
        The client's classes, u.
    local : bool, default False
        Whether the number of the client's classes stands in place of c.

    Returns
    -------
    ndarray (...)
        Global NC2 is the penalty ``NC(H) = ||HH'/||HH'||_F - T||_F``, ``T = (u u') o (I - 11'/c)/sqrt(c-1)``: at least
        0 for a client with all classes, and ``1 - ||T||_F`` for one with fewer. Local NC2 is 0 where the heads of the
        client's classes are a simplex of their own and all others are zero; NaN for a client with one class, which has
        no such structure. Neither depends on the scale of H; both are NaN for H = 0, where they have no limit.
    """
    with quiet():
        X, *_ = _normalised(H)
        return _norm(X - _target(holds, local))


def nc_gradient(H: Array, target: Array) -> Array:
    """Return the gradient of the penalty NC, which is Global NC2 (`nc2`), with respect to H.

    Parameters
    ----------
    H : ndarray (..., c, k)
        Heads, a row for each of all c >= 2 classes.
    target : ndarray (..., c, c)
        T of the clients' classes (`nc_target`).

    Returns
    -------
    ndarray (..., c, k)
        ``2 (D - <D, X> X) H / (||HH'|| ||D||)`` with ``X = HH'/||HH'||`` and ``D = X - T``; orthogonal to H. It is 0, a
        subgradient, where the penalty is 0 up to rounding, and 0 by definition for H = 0. The penalty is a norm, not
        its square: for a client with all classes the gradient does not become small near the minimum, and constant
        steps stay about one step away.

    Notes
    -----
    Two products of (c, c) and (c, k) per client.
    """
    with quiet():
        X, rows, scale, length = _normalised(H)
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
    """Return T, (..., c, c), of clients with these classes (..., c)."""
    return _target(holds, local=False)


def _normalised(H: Array) -> tuple[Array, Array, Array, Array]:
    """Return ``HH'/||HH'||``, ``H/s``, s, the largest entry of H in size, and ``||HH'||/s^2``, (..., 1, 1) both.

    H is divided by s first: a product of heads would vanish or overflow long before they do.
    """
    scale = np.abs(_flat(H)).max(axis=-1)[..., None, None]
    rows = H / scale
    gram = rows @ np.ascontiguousarray(rows.mT)  # of one array with itself NumPy calls a slower product
    length = _norm(gram)[..., None, None]
    gram *= 1.0 / length
    return gram, rows, scale, length


def _target(holds: Mask, local: bool) -> Array:
    """Return T (..., c, c); NaN where there is less than two of the classes whose simplex it is."""
    own = np.asarray(holds, dtype=float)
    size = own.sum(axis=-1)[..., None, None] if local else np.full((1, 1), own.shape[-1])
    factor = np.where(size > 1, 1.0 / np.sqrt(np.maximum(size - 1.0, 1.0)), np.nan)
    both = own[..., :, None] * own[..., None, :]
    return factor * both * (np.eye(own.shape[-1]) - 1.0 / np.maximum(size, 1.0))


def _norm(A: Array) -> Array:
    """Return the Frobenius norm of each matrix (..., c, c)."""
    return np.sqrt(_inner(A, A))


def _inner(A: Array, B: Array) -> Array:
    """Return ``<A, B>`` of matrices (..., c, c)."""
    return np.asarray(np.vecdot(_flat(A), _flat(B)))


def _flat(A: Array) -> Array:
    """Return matrices (..., a, b) as vectors, (..., ab)."""
    return A.reshape(*A.shape[:-2], -1)
