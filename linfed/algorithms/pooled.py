"""Pooled least squares: one model for all clients, a reference line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from linfed._values import check_fields, one_of
from linfed.algorithms.base import Algorithm, Asks, Communication, Start, State
from linfed.algorithms.models import client_weights
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class PooledLeastSquares(Algorithm):
    """One least-squares model for all clients: the minimiser that FedAvg with one local step has as its fixed point.

    Parameters
    ----------
    weights : "uniform" or "samples"
        Weights of the participants' losses: equal, or proportional to their sample counts (all samples in one pool).

    Raises
    ------
    ValueError
        For another name.

    Notes
    -----
    ``theta = argmin sum_i p_i (1/2m_i) ||X_i theta - y_i||^2`` over the round's participants, of minimum norm where it
    is not unique. Cost of a round ``O(p m d^2)``.

    **Deviations**: none.

    References
    ----------
    FedRep paper, problem (3), for the linear model.
    """

    weights: Literal["uniform", "samples"] = "uniform"

    asks: ClassVar[Asks] = Asks.QUADRATIC
    summary: ClassVar[str] = "one least-squares model for all clients: a reference line"

    def __post_init__(self) -> None:
        check_fields(self, weights=one_of("uniform", "samples"))

    def initial_state(self, start: Start) -> State:
        """Return theta at 0."""
        return State(S=np.zeros((start.trials, 1, start.dim)))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the pooled least squares of the participants."""
        return state.update(S=batch.pooled_least_squares(client_weights(batch, self.weights)))

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return theta down, and a client's normal equations up: what the least squares of all need, at most."""
        return Communication(float(dim), dim * (dim + 1) / 2.0 + dim)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of theta."""
        return dim
