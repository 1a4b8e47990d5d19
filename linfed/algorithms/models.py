"""The two linear models that the averaging family trains, each as one vector of parameters.

One layer: ``theta`` in R^d. Two layers: ``(B, w)``, predictor ``B w``, where the family's algorithms need no more than
the gradient of a client's loss with respect to the vector that holds both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.base import Start, State
from linfed.algorithms.initial import Initial
from linfed.data.batch import Batch

Direction: TypeAlias = Callable[[Array, Array], Array]
"""From gradients and the parameters at which they were taken, both (T, p, P), to what is followed."""


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
        return cls(state.dim, 0 if state.B is None else state.B.shape[-1])

    @property
    def size(self) -> int:
        """Parameters P."""
        return self.dim * self.rank + self.rank if self.rank else self.dim

    def shared(self, state: State) -> Array:
        """Return the parameters that all clients share, (T, 1, P)."""
        return self.vector(state.array("B"), state.array("W")) if self.rank else state.array("S")

    def parts(self, vector: Array) -> dict[str, Any]:
        """Return shared parameters (T, 1, P) as the arrays of a state, for its `update`."""
        if self.rank == 0:
            return {"S": vector}
        B, W = self.layers(vector)
        return {"B": B[:, 0], "W": W}

    def vector(self, B: Array, heads: Array) -> Array:
        """Return the parameters of two layers as vectors, (T, c, P).

        From B (T, d, k), or of each client (T, c, d, k), and heads (T, c, k), or the one that all share (T, 1, k).
        """
        flat = B.reshape(len(B), -1, self.dim * self.rank)
        rows = max(flat.shape[1], heads.shape[1])
        parts = [np.broadcast_to(part, (len(B), rows, part.shape[-1])) for part in (flat, heads)]
        return np.concatenate(parts, axis=-1)

    def vector_of_units(self, units: Array) -> Array:
        """Return what each unit is given, (T, c, k) or (T, c, d), at every parameter that belongs to it, (T, c, P).

        Column j of B and entry j of w belong to unit j; with one layer every parameter is a unit.
        """
        if self.rank == 0:
            return units
        rows = np.broadcast_to(units[..., None, :], (*units.shape[:2], self.dim, self.rank))
        return np.concatenate([rows.reshape(*units.shape[:2], -1), units], axis=-1)

    def layers(self, vector: Array) -> tuple[Array, Array]:
        """Return B (T, c, d, k) and heads (T, c, k) of vectors (T, c, P)."""
        split = self.dim * self.rank
        return vector[..., :split].reshape(*vector.shape[:2], self.dim, self.rank), vector[..., split:]

    def predictors(self, vector: Array) -> Array:
        """Return the predictors theta (T, c, d) of vectors (T, c, P)."""
        if self.rank == 0:
            return vector
        B, w = self.layers(vector)
        return np.asarray((B @ w[..., None])[..., 0])

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
        g = batch.gradient(self.predictors(vector))
        outer = g[..., :, None] * w[..., None, :]
        inner = (g[..., None, :] @ B)[..., 0, :]
        return np.concatenate([outer.reshape(*g.shape[:2], -1), inner], axis=-1)

    def trained(
        self,
        batch: Batch,
        vector: Array,
        step_size: float,
        steps: int,
        direction: Direction | None = None,
    ) -> Array:
        """Return each participant's parameters after its local gradient steps, (T, p, P).

        Parameters
        ----------
        batch : Batch
        vector : ndarray (T, p, P) or (T, 1, P)
            Where they begin.
        step_size : float
        steps : int
            Full-gradient steps.
        direction : callable, optional
            What is followed in the place of a gradient (T, p, P), from it and the parameters: corrected, masked.
        """
        for _ in range(steps):
            gradient = self.gradient(batch, vector)
            vector = vector - step_size * (gradient if direction is None else direction(gradient, vector))
        return vector


def zero_model(start: Start, rank: int | None, init: Initial | str | npt.ArrayLike) -> dict[str, Any]:
    """Return the arrays of a shared model at its beginning: theta = 0; with a rank B from `init`, and the head 0."""
    if rank is None:
        return {"S": np.zeros((start.trials, 1, start.dim))}
    return {"B": start.representation(init, rank), "W": np.zeros((start.trials, 1, rank))}


def client_weights(batch: Batch, weights: str) -> Array:
    """Return each participant's share (T, p): equal ones, or proportional to the sample counts ("samples")."""
    counts = batch.counts if weights == "samples" else np.ones(batch.active.shape)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def weighted_mean(values: Array, shares: Array) -> Array:
    """Return ``sum_i shares_i values_i``, (T, 1, P), of values (T, p, P) with shares (T, p)."""
    return np.asarray(shares[:, None, :] @ values)
