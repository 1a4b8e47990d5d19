"""The two linear models that the averaging family trains, each as one vector of parameters.

One layer: ``theta`` in R^d. Two layers: ``(B, w)``, predictor ``B w``, where the family's algorithms need no more than
the gradient of a client's loss with respect to the vector that holds both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed.algorithms.base import State
from linfed.data.batch import Batch


@dataclass(frozen=True)
class LinearModel:
    """A predictor linear in x: one layer (`rank` 0) or two.

    Parameters
    ----------
    dim : int
        Ambient dimension d.
    rank : int
        Columns k of B; 0 for one layer.

    Notes
    -----
    The parameter vector is theta, or B (row by row) followed by w: ``P = d`` or ``P = d k + k`` numbers.
    """

    dim: int
    rank: int

    @classmethod
    def of(cls, state: State) -> LinearModel:
        """Return the model whose parameters a state holds."""
        if state.B is not None:
            return cls(*state.B.shape[1:])
        assert state.S is not None
        return cls(state.S.shape[-1], 0)

    def vector(self, B: Array | None, heads: Array | None, theta: Array | None = None) -> Array:
        """Return the parameters as vectors, (T, c, P), from B (T, d, k) and heads (T, c, k), or theta (T, c, d)."""
        if self.rank == 0:
            assert theta is not None
            return theta
        assert B is not None
        assert heads is not None
        flat = B.reshape(len(B), 1, -1)
        return np.concatenate([np.broadcast_to(flat, (*heads.shape[:2], flat.shape[-1])), heads], axis=-1)

    def layers(self, vector: Array) -> tuple[Array, Array]:
        """Return B (T, c, d, k) and heads (T, c, k) of vectors (T, c, P)."""
        split = self.dim * self.rank
        return vector[..., :split].reshape(*vector.shape[:2], self.dim, self.rank), vector[..., split:]

    def gradient(self, batch: Batch, vector: Array) -> Array:
        """Return the gradient of each participant's loss ``(1/2m)||X_i theta_i - y_i||^2``, (T, p, P).

        Parameters
        ----------
        batch : Batch
        vector : ndarray (T, p, P) or (T, 1, P)
            Parameters of each participant, or of all.
        """
        if self.rank == 0:
            return batch.gradient(vector)
        B, w = self.layers(vector)
        g = batch.gradient((B @ w[..., None])[..., 0])
        outer = g[..., :, None] * w[..., None, :]
        inner = (g[..., None, :] @ B)[..., 0, :]
        return np.concatenate([outer.reshape(*g.shape[:2], -1), inner], axis=-1)


def client_weights(batch: Batch, weights: str) -> Array:
    """Return each participant's share (T, p): equal ones, or proportional to the sample counts ("samples")."""
    counts = batch.counts if weights == "samples" else np.ones(batch.active.shape)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def weighted_mean(values: Array, shares: Array) -> Array:
    """Return ``sum_i shares_i values_i``, (T, 1, P), of values (T, p, P) with shares (T, p)."""
    return np.asarray(shares[:, None, :] @ values)
