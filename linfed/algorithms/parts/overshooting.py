"""Step sizes beyond the stability edge, of methods whose parameters stay finite all the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.parts.base import State
from linfed.algorithms.parts.heads import AtHeads
from linfed.data.batch import Batch, Fit
from linfed.data.explicit import ExplicitBatch
from linfed.numerics.layers import composed
from linfed.numerics.linalg import eigvalsh, finite_items, orthonormalize

SHARE = 1e-3
"""A step beyond the edge decreases the loss by less than this share of step size times squared gradient."""

EXCESS = 0.1
"""A step overshoots if a shorter one would decrease the loss by more than this share."""

AT_REST = 1e-10
"""A gradient counts as 0 if it promises less than this share of the loss at 0."""

STEPS = 4
"""Number of steps that are compared: beyond the edge a loss may fall by chance in some of them."""

EDGE = 4.0
"""Step size times curvature beyond which fresh samples are unstable: twice the edge, as the curvature is estimated."""


def overshot(before: Array, after: Array, promise: Array, at_zero: Array) -> Mask:
    """Return where a gradient step did not decrease a loss although a shorter one would, by a large share.

    `promise` is the step size times the squared gradient, and `at_zero` the loss at 0. Along the gradient, a quadratic
    loss falls by ``promise (1 - c/2)``, with c the step size times the curvature, and at most by ``promise / (2 c)``.
    """
    gain = before - after
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        possible = promise / (4.0 * (1.0 - gain / promise))
        return ~(gain >= SHARE * promise) & (possible > EXCESS * before) & (promise > AT_REST * at_zero)


def overshoots(start: Array, look: Callable[[Array], tuple[Array, Array, Array]], at_zero: Array) -> Mask:
    """Return where one of a few gradient steps overshoots.

    Parameters
    ----------
    start : ndarray
        Parameters.
    look : callable
        Function of parameters that returns the loss, the step size times the squared gradient, and the parameters after
        a step.
    at_zero : ndarray
        Loss at 0.
    """
    loss, promise, following = look(start)
    found = np.zeros(loss.shape, dtype=bool)
    for _ in range(STEPS):
        before, promised = loss, promise
        loss, promise, following = look(following)
        found |= overshot(before, loss, promised, at_zero)
    return found


def overshoots_on_representation(
    state: State, batch: Batch, weights: Array, variance: float | None, *, of_heads: Batch | None = None
) -> Mask | None:
    """Return the trials in which a step on an orthonormal B exceeds the stability edge, which QR hides.

    Parameters
    ----------
    state : State
        State after the last round, with heads for regression.
    batch : Batch
        Samples of the last round; for fixed samples a batch of all clients.
    weights : ndarray (T, p)
        The mean step over the participants of a round is
        ``B - (1/p) sum_i weights_i (1/m_i) X_i'(X_i B w_i - y_i) w_i'``, with the clients of the batch.
    variance : float or None
        Variance of fresh x outside the span of B, given its coordinates inside; None for fixed samples.
    of_heads : Batch, optional
        Other samples of the same clients, on which heads are fitted; by default those of the gradient.

    Notes
    -----
    On fixed samples a few steps at exact heads are compared with the losses that they leave: see `overshot`. Fresh
    samples are random, so only the mean step counts. Its curvature is at least the largest eigenvalue of the mean of
    ``w w'`` times the variance of x times ``1 - k/m``, the share of the samples' length that exact heads leave on the
    samples to which they are fitted. The smaller value of the last participants and of all clients decides.
    """
    B, W = state.array("B"), state.array("W")
    d, k = B.shape[-2:]
    if W.ndim == 4 or k == d:
        return None
    weights = weights / weights.shape[1]
    if variance is None:
        return _overshoots_on_fixed(B, batch, weights, of_heads) if isinstance(batch, ExplicitBatch) else None
    left = np.maximum(0.0, 1.0 - k / np.maximum(batch.counts, 1.0)) if of_heads is None else 1.0
    some = _largest_eigenvalue(state.take_clients("W", batch.active), weights * left)
    everyone = _largest_eigenvalue(W, weights.sum(axis=1, keepdims=True) / W.shape[1])
    return np.asarray(variance * np.minimum(some, everyone) > EDGE)


def _largest_eigenvalue(W: Array, weights: Array) -> Array:
    """Return the largest eigenvalue of ``sum_i weights_i w_i w_i'``, (T,), for heads (T, p, k); 0 if not finite."""
    outer = W.mT @ (W * weights[..., None])
    return np.where(finite_items(outer), eigvalsh(outer)[..., -1], 0.0)


def _overshoots_on_fixed(B: Array, batch: ExplicitBatch, weights: Array, of_heads: Batch | None) -> Mask:
    """Return where one of a few steps from B with exact heads overshoots."""

    def look(B: Array) -> tuple[Array, Array, Array]:
        if of_heads is None:
            fit: Fit | AtHeads = batch.project(B).fit()
        else:
            fit = AtHeads(batch.project(B), of_heads.project(B).fit().W)
        loss, step = batch.loss(composed(B, fit.W)), fit.representation_gradient(weights)
        return (weights * loss).sum(axis=1), np.square(step).sum(axis=(1, 2)), orthonormalize(B - step)

    at_zero = (weights * batch.loss(np.zeros((len(B), 1, B.shape[-2])))).sum(axis=1)
    return overshoots(B, look, at_zero)
