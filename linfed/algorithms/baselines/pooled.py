"""Pooled least squares or ridge regression: one model for all clients, a reference for plots and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from linfed._values import check_fields, non_negative, one_of
from linfed.algorithms.parts.base import Algorithm, Communication, InitContext, Requires, State
from linfed.algorithms.parts.models import client_weights
from linfed.data.batch import Batch
from linfed.numerics.linalg import block_width
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class PooledLeastSquares(Algorithm):
    """One least-squares model for all clients, the fixed point of FedAvg with one local step; or a ridge regression.

    Parameters
    ----------
    weights : "uniform" or "samples"
        Weights of the participants' losses: equal, or proportional to their sample counts (all samples in one pool).
    ridge : float, default 0.0
        Weight of the penalty ``(ridge / 2) ||theta||^2``.

    Raises
    ------
    ValueError
        If `weights` is unknown, or the ridge is negative; in `simulate` also for classification.

    Notes
    -----
    ``theta = argmin sum_i p_i (1/2m_i) ||X_i theta - y_i||^2 + (ridge/2) ||theta||^2`` over the round's participants,
    with weights p_i of sum 1, of minimum norm if it is not unique. Cost of a round ``O(p m d^2)``.

    References
    ----------
    FedRep paper, problem (4), the model that all clients share.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2)
    >>> run = {"data": lf.FixedSamples(30)}
    >>> pooled = lf.simulate(lf.PooledLeastSquares(), problem, n_rounds=1, **run)
    >>> fedavg = lf.simulate(lf.FedAvg(step_size=0.5), problem, n_rounds=200, **run)
    >>> bool(abs(pooled.final.S - fedavg.final.S).max() < 1e-9)
    True
    """

    weights: Literal["uniform", "samples"] = "uniform"
    ridge: float = 0.0

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "one least-squares or ridge model for all clients: a reference"

    def __post_init__(self) -> None:
        check_fields(self, weights=one_of("uniform", "samples"), ridge=non_negative)

    def initial_state(self, start: InitContext) -> State:
        """Return the state with theta at 0."""
        return State(S=np.zeros((start.trials, 1, start.dim)))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with the pooled least-squares model of the participants."""
        return state.update(S=batch.pooled_least_squares(client_weights(batch, self.weights), self.ridge))

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of theta (down) and of a client's normal equations (up), which suffice for the fit."""
        return Communication(float(dim), dim * (dim + 1) / 2.0 + dim)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of theta."""
        return dim

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of a block's scaled samples, with copies, and of the normal equations."""
        return 4 * (block_width(participants, samples * dim) * samples + dim) * (dim + 1)
