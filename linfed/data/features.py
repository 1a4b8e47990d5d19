"""Features of an explicit batch at one B, and closed-form heads with the gradient on B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from linfed._types import Array
from linfed._values import readonly
from linfed.errors import check_number

if TYPE_CHECKING:
    from linfed.data.explicit import ExplicitBatch


@dataclass(frozen=True, kw_only=True)
class ExplicitFit:
    """Closed-form heads W (T, p, k), residuals r_i (T, p, m), gradient ``sum_i (1/m_i) X_i' r_i w_i'`` (T, d, k)."""

    batch: ExplicitBatch
    W: Array
    residual: Array
    gradient: Array

    def representation_gradient(self, weights: Array | float | None = None) -> Array:
        """Return the gradient at these heads, (T, d, k); free unless weights differ between clients."""
        share = 1.0 / self.W.shape[1] if weights is None else weights
        if np.ndim(share) == 0:
            return np.asarray(share * self.gradient)
        return self.batch.weighted_messages(self.W, self.residual, share)

    def shifted(self) -> ExplicitBatch:
        """Return the batch with these heads' residuals as labels, exactly zero for heads that interpolate."""
        return self.batch.with_labels(-self.residual)


class ExplicitFeatures:
    """Features ``Z_i = X_i B`` of an explicit batch, computed at the first access.

    A fit does not need them: it computes heads and the gradient on B block by block, in one pass.

    Parameters
    ----------
    batch : ExplicitBatch
    B : ndarray (T, d, k)
    """

    def __init__(self, batch: ExplicitBatch, B: Array) -> None:
        self._batch, self._B = batch, B
        self._held: Array | None = None
        self._gram: tuple[Array, Array] | None = None

    @property
    def _Z(self) -> Array:
        """Features with the k columns before the clients, (T, k, p, m)."""
        if self._held is None:
            trials, p, m, _ = self._batch.shape
            self._held = np.empty((trials, self._B.shape[-1], p, m))
            for t, c, rows, Z, _ in self._batch.pass_over(self._B):
                self._held[t, :, c] = Z.reshape(-1, m, *rows.shape[:2]).transpose(2, 0, 3, 1)
        return self._held

    @property
    def Z(self) -> Array:
        """Features client by client, (T, p, m, k), read-only."""
        return readonly(np.moveaxis(self._Z, 1, -1))

    def fit(self, ridge: float = 0.0) -> ExplicitFit:
        """Return the closed-form heads and their residuals; cost O(p m (d k + k^2))."""
        check_number("ridge", ridge, minimum=0.0)
        return self._batch.fit(self._B, ridge)

    def head_gradient(self, W: Array) -> Array:
        """Return ``(1/m_i) Z_i'(Z_i w_i - y_i)``, (T, p, k); cost O(p m k^2) once, then O(p k^2) per call."""
        if self._gram is None:
            Z, m = self._Z, self._batch.positive_counts[:, None, :]
            k = Z.shape[1]
            gram = np.empty((k, Z.shape[0], k, Z.shape[2]))
            for column in range(k):
                gram[column] = np.vecdot(Z[:, column, None], Z) / m
            self._gram = gram, np.vecdot(Z, self._batch.y[:, None]) / m
        gram, moment = self._gram
        heads = np.ascontiguousarray(W.mT)
        out = -moment
        for column in range(heads.shape[1]):
            out += gram[column] * heads[:, column, None]
        return np.ascontiguousarray(out.mT)

    def _residual(self, W: Array) -> Array:
        """Return ``Z_i w_i - y_i``, (T, p, m)."""
        residual = -self._batch.y
        for column in range(self._B.shape[-1]):
            residual += self._Z[:, column] * W[..., column, None]
        return residual

    def shifted(self, W: Array) -> ExplicitBatch:
        """Return the batch with labels ``y_i - Z_i w_i``."""
        return self._batch.with_labels(-self._residual(W))

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i (1/m_i) X_i'(Z_i w_i - y_i) w_i'``, (T, d, k); cost O(p m d k)."""
        share = 1.0 / W.shape[1] if weights is None else weights
        return self._batch.weighted_messages(W, self._residual(W), share)

    def gradients(self, W: Array, weights: Array | float | None = None) -> tuple[Array, Array]:
        """Return the gradients on heads (T, p, k) and representation (T, d, k) at W; cost O(p m d) for any k.

        Both follow from one message per client, ``g_i = X_i'(X_i B w_i - y_i)/m_i``: they are ``B'g_i`` and ``sum_i
        weights_i g_i w_i'``. In Gram form (fixed samples, m > d) the cost is O(p d^2).
        """
        messages = self._batch.messages(W @ self._B.mT, once=True)
        share = 1.0 / W.shape[1] if weights is None else weights
        if isinstance(share, np.ndarray) and share.ndim:
            representation = messages.mT @ (W * share[..., None])
        else:
            representation = messages.mT @ W
            if share != 1.0:
                representation *= share
        return messages @ self._B, representation
