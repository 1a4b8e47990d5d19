"""Shapes of a client's parameters, and the chain rule between a predictor and its two layers.

For regression a client's head ``w`` has shape (k,), and its predictor (d,). For classification the head has shape
(c, k + 1), one row per class with the bias last, and the predictor (c, d + 1).
"""

from __future__ import annotations

import numpy as np

from linfed._types import Array


def shape_of_client(columns: int, classes: int) -> tuple[int, ...]:
    """Return the shape of a client's parameters for `columns` inputs: (columns,), or (classes, columns + 1)."""
    return (classes, columns + 1) if classes else (columns,)


def composed(B: Array, W: Array) -> Array:
    """Return the predictors ``B w_i`` of heads, (T, p, d) or (T, p, c, d + 1).

    Parameters
    ----------
    B : ndarray (T, d, k) or (T, p, d, k)
        One representation for all clients, or one per client.
    W : ndarray (T, p, k) or (T, p, c, k + 1)
        Heads; biases are not changed.
    """
    k = B.shape[-1]
    if W.ndim == 4:
        each = B if B.ndim == 4 else B[:, None]
        return np.concatenate([W[..., :k] @ each.mT, W[..., k:]], axis=-1)
    return W @ B.mT if B.ndim == 3 else (B @ W[..., None])[..., 0]


def pulled_back(g: Array, B: Array, W: Array) -> tuple[Array, Array]:
    """Return each client's gradients on B and on its head, given the gradient on its predictor.

    Parameters
    ----------
    g : ndarray (T, p, d) or (T, p, c, d + 1)
        Gradients on ``B_i w_i``.
    B : ndarray (T, p, d, k)
    W : ndarray (T, p, k) or (T, p, c, k + 1)

    Returns
    -------
    on_B : ndarray (T, p, d, k)
    on_W : ndarray, shaped like W
    """
    if W.ndim == 4:
        d, k = B.shape[-2:]
        return g[..., :d].mT @ W[..., :k], np.concatenate([g[..., :d] @ B, g[..., d:]], axis=-1)
    return g[..., :, None] * W[..., None, :], (g[..., None, :] @ B)[..., 0, :]


def without_biases(theta: Array) -> Array:
    """Return classifiers or heads (T, p, c, s + 1) with biases of 0; those of regression (T, p, s) have none."""
    if theta.ndim < 4:
        return theta
    return np.concatenate([theta[..., :-1], np.zeros_like(theta[..., -1:])], axis=-1)


def head_gram(W: Array) -> Array:
    """Return the Gram matrices of the clients' heads without biases, (T, p, 1) or (T, p, c, c)."""
    if W.ndim == 4:
        return W[..., :-1] @ W[..., :-1].mT
    return np.vecdot(W, W)[..., None]


def scaled_by(gram: Array, a: Array) -> Array:
    """Multiply messages a (T, p, d) or (T, p, c, d + 1) by `head_gram`: ``|w|^2 a`` or ``HH' a``, with biases 0."""
    if a.ndim == 4:
        out = gram @ a
        out[..., -1] = 0.0
        return out
    return gram * a


def summed_outer(a: Array, W: Array) -> Array:
    """Return ``sum_i a_i w_i'``, (T, d, k), for messages (T, p, d) or (T, p, c, d + 1) and heads, without biases."""
    if a.ndim == 4:
        trials, p, c, k = W.shape
        rows = a[..., :-1].reshape(trials, p * c, -1)
        return rows.mT @ W[..., :-1].reshape(trials, p * c, k - 1)
    return a.mT @ W
