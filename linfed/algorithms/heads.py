"""Personal heads at a shared representation, and the step that the representation takes at them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed.data.batch import Batch, Features, Fit


@dataclass(frozen=True)
class AtHeads:
    """Any heads W (T, p, k) at some features, asked as a fit is."""

    features: Features
    W: Array

    def representation_gradient(self, weights: Array | float | None = None) -> Array:
        """Return the gradient at these heads, (T, d, k)."""
        return self.features.representation_gradient(self.W, weights)

    def shifted(self) -> Batch:
        """Return the same samples with the labels that these heads leave."""
        return self.features.shifted(self.W)


def descended(features: Features, W: Array, step_size: float, steps: int) -> AtHeads:
    """Return the heads after gradient steps from W (T, p, k), as a fit."""
    for _ in range(steps):
        W = W - step_size * features.head_gradient(W)
    return AtHeads(features, W)


def moved_representation(B: Array, fit: Fit, step_size: float, steps: int, *, summed: bool = False) -> Array:
    """Return B after the participants' local steps at fixed heads and the server's mean (or sum), before any QR.

    Parameters
    ----------
    B : ndarray (T, d, k)
    fit : Fit
        The participants' heads at B.
    step_size : float
    steps : int
        Local steps: ``B_i = B - eta a_i w_i'``, so one vector a_i per client is enough.
    summed : bool
        Whether the server sums.
    """
    if steps == 1:
        return B - step_size * fit.representation_gradient(1.0 if summed else None)
    W, rest = fit.W, fit.shifted()  # so that a_i is exactly 0 for a client whose head explains its samples
    scale = step_size * np.vecdot(W, W)[..., None]
    a = np.zeros((*W.shape[:-1], B.shape[-2]))
    for _ in range(steps):
        a = a + rest.gradient(-scale * a)
    share = 1.0 if summed else 1.0 / W.shape[1]
    return B - step_size * share * (a.mT @ W)
