"""Base class of the personalised algorithms: one layer, full-gradient steps, a state with a model of the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed._values import check_fields
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.models import LinearModel, client_weights, flat, weighted_mean
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.data.batch import Batch
from linfed.numerics.linalg import solve


@dataclass(frozen=True, kw_only=True)
class PersonalModels(Scheduled):
    """Base class of algorithms with a full-dimensional predictor per client and a model of the server."""

    step_size: StepSize

    requires: ClassVar[Requires] = Requires.QUADRATIC

    def __post_init__(self) -> None:
        check_fields(self, step_size=checked_step_size)

    def check_loss(self, classes: int) -> None:
        """Accept regression and classification: the steps use only gradients."""

    def initial_state(self, start: InitContext) -> State:
        """Return the state with the server's model and all predictors at 0."""
        zeros = start.zeros(start.n_clients, start.dim)
        return State(S=zeros, shared=zeros[:, :1].copy())

    def average(self, batch: Batch, values: Array) -> Array:
        """Return the mean of the participants' values (T, p, P), as (T, 1, P)."""
        return weighted_mean(values, client_weights(batch, "uniform"))

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of the model (down) and of its change (up)."""
        size = float(LinearModel(dim, 0, classes).size)
        return Communication(size, size)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of all predictors, and of the participants' temporary models."""
        return (n_clients + 3 * participants + 1) * dim


def vectors(state: State, batch: Batch) -> tuple[LinearModel, Array, Array]:
    """Return the model, the server's parameters (T, 1, P) and the participants' predictors (T, p, P)."""
    own = state.take_clients("S", batch.active)
    return LinearModel.of(state), flat(state.array("shared")), flat(own)


def ridge_towards(batch: Batch, centre: Array, penalty: Array | float) -> Array:
    """Return ``argmin_v f_i(v) + (penalty/2) ||v - centre_i||^2`` for the participants, (T, p, d); regression only."""
    A, b = batch.normal_equations()
    return np.asarray(solve(A + penalty * np.eye(A.shape[-1]), (b + penalty * centre)[..., None])[..., 0])
