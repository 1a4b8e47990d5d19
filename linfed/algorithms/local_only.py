"""Local only: every client fits its own samples in the full dimension, with no help from the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from linfed._values import check_fields, non_negative
from linfed.algorithms.base import Algorithm, Asks, Communication, Start, State
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class LocalOnly(Algorithm):
    """Least squares per client, of minimum norm where m < d, or ridge regression.

    Parameters
    ----------
    ridge : float, default 0.0
        Adds ``(ridge / 2) ||theta||^2`` to the loss ``(1 / 2m) ||X_i theta - y_i||^2``.

    Notes
    -----
    ``theta_i = argmin_theta f_i(theta)``: with fixed data one round says all; with fresh data each participant is
    fitted anew on its latest batch. Cost of a round ``O(p m d min(m, d))``.

    **Deviations**: none.

    References
    ----------
    FedRep paper, section 5.1 and Figure 1 ("Local Only").
    """

    ridge: float = 0.0

    asks: ClassVar[Asks] = Asks.QUADRATIC
    summary: ClassVar[str] = "least squares or ridge per client, no federation"

    def __post_init__(self) -> None:
        check_fields(self, ridge=non_negative)

    def initial_state(self, start: Start) -> State:
        """Return predictors at 0."""
        return State(S=np.zeros((start.trials, start.n_clients, start.dim)))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the participants' least-squares predictors."""
        return state.update(S=batch.least_squares(self.ridge), active=batch.active)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the least-squares predictors of new clients: they learn from their own samples alone."""
        return State(S=batch.least_squares(self.ridge))

    def communication(self, *, dim: int) -> Communication:
        """Return nothing: clients learn alone."""
        return Communication(0.0, 0.0)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of S."""
        return n_clients * dim
