"""The linear models of the averaging family, with one or two layers, as one vector of parameters.

The model is ``theta`` in R^d with one layer, and ``(B, w)`` with predictor ``B w`` with two layers. The algorithms of
the family use only the gradient of a client's loss with respect to the parameter vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.initial import Initial
from linfed.algorithms.parts.base import InitContext, State
from linfed.data.batch import Batch
from linfed.data.classes import of_classes
from linfed.numerics.layers import composed, pulled_back, shape_of_client

Direction: TypeAlias = Callable[[Array, Array], Array]
"""Function of gradients and of the parameters at which they were computed, both (T, p, P); returns the directions."""


@dataclass(frozen=True)
class LinearModel:
    """Linear predictor with one layer (`rank` 0) or two layers.

    Parameters
    ----------
    dim : int
        Ambient dimension d.
    rank : int
        Columns k of B; 0 for one layer.
    classes : int, default 0
        Number of classes c, each with a row and a bias; 0 for regression.
    kept : bool, default False
        Whether a state has the parameters of one layer also as ``shared``.

    Notes
    -----
    The parameter vector is theta, or B (row by row) followed by w: ``P = d`` or ``P = d k + k`` entries. With classes
    theta has ``c (d + 1)`` entries and w has ``c (k + 1)``, class by class.
    """

    dim: int
    rank: int
    classes: int = 0
    kept: bool = False

    @classmethod
    def of(cls, state: State) -> LinearModel:
        """Return the model of a state's arrays."""
        if state.B is None:
            return cls(state.dim, 0, state.classes, kept=state.shared is not None)
        return cls(state.dim, state.B.shape[-1], state.classes)

    @property
    def head(self) -> tuple[int, ...]:
        """Shape of a client's head, or of its predictor with one layer."""
        return shape_of_client(self.rank or self.dim, self.classes)

    @property
    def size(self) -> int:
        """Number of parameters P."""
        return self.dim * self.rank + math.prod(self.head)

    def shared(self, state: State) -> Array:
        """Return the parameters that all clients share, (T, 1, P)."""
        if self.rank:
            return self.vector(state.array("B"), state.array("W"))
        return flat(state.array("shared" if self.kept else "S"))

    def parts(self, vector: Array) -> dict[str, Any]:
        """Return shared parameters (T, 1, P) as the arrays of a state, for its `update`."""
        if self.rank == 0:
            theta = self._shaped(vector)
            return {"S": theta, "shared": theta} if self.kept else {"S": theta}
        B, W = self.layers(vector)
        return {"B": B[:, 0], "W": W}

    def _shaped(self, vector: Array) -> Array:
        """Return flat heads or predictors reshaped to (T, r, *head)."""
        return vector.reshape(*vector.shape[:2], *self.head)

    def vector(self, B: Array, heads: Array) -> Array:
        """Return the parameters of two layers as vectors, (T, r, P).

        B is shared (T, d, k) or has one copy per client (T, r, d, k); heads are those of r clients, or one shared head.
        """
        parts = B.reshape(len(B), -1, self.dim * self.rank), flat(heads)
        rows = max(part.shape[1] for part in parts)
        return np.concatenate([np.broadcast_to(part, (len(B), rows, part.shape[-1])) for part in parts], axis=-1)

    def vector_of_units(self, units: Array) -> Array:
        """Expand values per unit, (T, r, k) or (T, r, d), to values per parameter, (T, r, P).

        Column j of B and entry j of w belong to unit j; with one layer every coordinate of x is a unit. Each class has
        an entry j. Biases belong to no unit and get the value 1.
        """
        given = units
        if self.classes:
            each = np.broadcast_to(units[..., None, :], (*units.shape[:2], self.classes, units.shape[-1]))
            given = flat(np.concatenate([each, np.ones((*each.shape[:-1], 1))], axis=-1))
        if self.rank == 0:
            return given
        rows = np.broadcast_to(units[..., None, :], (*units.shape[:2], self.dim, self.rank))
        return np.concatenate([rows.reshape(*units.shape[:2], -1), given], axis=-1)

    def layers(self, vector: Array) -> tuple[Array, Array]:
        """Split vectors (T, r, P) into B (T, r, d, k) and heads (T, r, k), with classes (T, r, c, k + 1)."""
        split = self.dim * self.rank
        return vector[..., :split].reshape(*vector.shape[:2], self.dim, self.rank), self._shaped(vector[..., split:])

    def predictors(self, vector: Array) -> Array:
        """Return the predictors theta (T, r, d), with classes (T, r, c, d + 1), of vectors (T, r, P)."""
        return composed(*self.layers(vector)) if self.rank else self._shaped(vector)

    def gradient(self, batch: Batch, vector: Array) -> Array:
        """Return the gradient of each participant's loss, (T, p, P): squared loss, or cross-entropy with classes.

        Parameters
        ----------
        batch : Batch
        vector : ndarray (T, p, P) or (T, 1, P)
            Parameters of each participant, or shared parameters.
        """
        if self.rank == 0:
            return flat(batch.gradient(self._shaped(vector)))
        B, w = self.layers(vector)
        if self.classes:
            out = np.empty((*batch.active.shape, self.size))
            inner, outer = self.layers(out)
            features = of_classes(batch, "the model").project(B if B.shape[1] > 1 else B[:, 0])
            features.gradients_of_clients(w, out=(outer, inner))
            return out
        inner, outer = pulled_back(batch.gradient(composed(B, w)), B, w)
        return np.concatenate([flat(inner), flat(outer)], axis=-1)

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
            Parameters before the first step.
        step_size : float
        steps : int
            Number of full-gradient steps.
        direction : callable, optional
            Function of the gradient and the parameters, both (T, p, P), that returns the direction to follow instead of
            the gradient, e.g. a corrected or masked one.
        """
        for _ in range(steps):
            change = self.gradient(batch, vector)
            if direction is None:
                change *= -step_size
            else:
                change = -step_size * direction(change, vector)
            change += vector
            vector = change
        return vector


def flat(values: Array) -> Array:
    """Return each client's values as a vector, (T, r, P)."""
    return values.reshape(*values.shape[:2], -1)


def zero_model(start: InitContext, rank: int | None, init: Initial | str | npt.ArrayLike) -> dict[str, Any]:
    """Return the arrays of the initial shared model: theta = 0, or (with a rank) B from `init` and the head at 0."""
    if rank is None:
        return {"S": start.zeros(1, start.dim)}
    return {"B": start.representation(init, rank), "W": start.zeros(1, rank)}


def client_weights(batch: Batch, weights: str) -> Array:
    """Return the participants' weights (T, p): equal ("uniform"), or proportional to sample counts ("samples")."""
    counts = batch.counts if weights == "samples" else np.ones(batch.active.shape)
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def relative_weights(batch: Batch, weights: str) -> Array:
    """Return `client_weights` divided by their mean, (T, p): ones for "uniform"."""
    if weights == "uniform":
        return np.ones(batch.active.shape)
    return batch.active.shape[-1] * client_weights(batch, weights)


def weighted_mean(values: Array, shares: Array) -> Array:
    """Return ``sum_i shares_i values_i``, (T, 1, P), of values (T, p, P) with shares (T, p)."""
    return np.asarray(shares[:, None, :] @ values)
