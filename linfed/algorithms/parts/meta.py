"""One gradient step of each client on a shared model of two layers, and the gradients after it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from linfed._types import Array
from linfed.data.batch import Batch
from linfed.numerics.layers import composed, summed_outer


class OwnStep(NamedTuple):
    """Models of the clients after one gradient step: predictors ``B w_i + s_i`` with heads (T, p, k)."""

    slopes: Array
    """Gradients ``g_i = X_i'(X_i B w - y_i)/m_i`` on the predictors before the step, (T, p, d)."""

    heads: Array
    """Heads ``w_i = w - alpha B'g_i``, (T, p, k)."""

    offsets: Array | None
    """``s_i = -alpha g_i w'w_i``, (T, p, d): the step on B in the predictor. None if B does not move."""


def own_step(batch: Batch, B: Array, w: Array, step_size: float, *, all_layers: bool) -> OwnStep:
    """Return the clients' models after one gradient step on the head, or on both layers.

    Parameters
    ----------
    batch : Batch
    B : ndarray (T, d, k)
    w : ndarray (T, 1, k)
        Shared head.
    step_size : float
        alpha, the step size.
    all_layers : bool
        If True, also B moves: ``B_i = B - alpha g_i w'``.
    """
    slopes = batch.gradient(composed(B, w))
    heads = w - step_size * (slopes @ B)
    return OwnStep(slopes, heads, -step_size * np.vecdot(heads, w)[..., None] * slopes if all_layers else None)


def gradients_after_step(
    first: Batch, second: Batch, B: Array, w: Array, step_size: float, *, all_layers: bool, hessian: bool
) -> tuple[Array, Array]:
    """Return the mean gradients on B (T, d, k) and on the shared head (T, 1, k) of the losses after one own step.

    Parameters
    ----------
    first, second : Batch
        Samples of the own step, and samples of the loss after it; they may be the same.
    B, w, step_size, all_layers
        As in `own_step`.
    hessian : bool
        If True, differentiate through the own step; if False, neglect its derivatives.

    Notes
    -----
    Let ``V_i = r_i w_i'`` and ``v_i = B_i'r_i`` be the gradients on both layers at the adapted model. The gradient at
    the shared model is ``(V, v) - alpha H_i P (V, v)``, with the Hessian H_i of the first loss. P is the identity, or
    the projector on the head. For the squared loss, H_i maps ``(P V, v)`` to ``(h w' + g v', (P V)'g + B'h)`` with
    ``h = A (P V w + B v)`` and ``A = X_i'X_i/m_i``. All matrices have rank one, so no matrix per client is formed.
    """
    g, own, offsets = own_step(first, B, w, step_size, all_layers=all_layers)
    r = second.gradient(composed(B, own) if offsets is None else composed(B, own) + offsets)
    v = r @ B
    if all_layers:
        v = v - step_size * np.vecdot(g, r)[..., None] * w
    on_B, on_w = summed_outer(r, own), v
    if hessian:
        direction = composed(B, v)
        if all_layers:
            direction = direction + np.vecdot(own, w)[..., None] * r
        h = first.gradient(composed(B, w) + direction) - g
        on_B = on_B - step_size * (summed_outer(h, np.broadcast_to(w, own.shape)) + summed_outer(g, v))
        on_w = on_w - step_size * (h @ B)
        if all_layers:
            on_w = on_w - step_size * np.vecdot(r, g)[..., None] * own
    return on_B / own.shape[1], on_w.mean(axis=1, keepdims=True)
