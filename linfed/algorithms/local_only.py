"""Local only: every client fits its own samples in the full dimension, with no help from the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from linfed._values import check_fields, non_negative, optional, positive
from linfed.algorithms.base import Algorithm, Asks, Communication, Start, State
from linfed.data.batch import Batch
from linfed.errors import check_integer
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class LocalOnly(Algorithm):
    """Least squares per client, of minimum norm where m < d, or ridge regression.

    Parameters
    ----------
    ridge : float, default 0.0
        Adds ``(ridge / 2) ||theta||^2`` to the loss ``(1 / 2m) ||X_i theta - y_i||^2``; biases are free.
    step_size : float, optional
        eta > 0: full-gradient steps of any loss in the place of least squares, from the client's last predictor.
        Classes need it.
    local_steps : int
        How many of them in a round.

    Raises
    ------
    ValueError
        For values out of range; and in `simulate` for classes without a step.

    Notes
    -----
    ``theta_i = argmin_theta f_i(theta)``: with fixed data one round says all; with fresh data each participant is
    fitted anew on its latest batch. Cost of a round ``O(p m d min(m, d))``. With a step ``theta_i <- theta_i - eta
    (grad f_i(theta_i) + ridge theta_i)``, `local_steps` times a round, from 0: on fixed samples towards the same
    predictor, on classes towards that of the regularised cross-entropy.

    **Deviations**: gradient steps are an addition.

    References
    ----------
    FedRep paper, section 5.1 and Figure 1 ("Local Only").
    """

    ridge: float = 0.0
    step_size: float | None = None
    local_steps: int = 1

    asks: ClassVar[Asks] = Asks.QUADRATIC
    summary: ClassVar[str] = "least squares or ridge per client, no federation"

    def __post_init__(self) -> None:
        check_fields(self, ridge=non_negative, step_size=optional(positive), local_steps=check_integer)

    def check_loss(self, classes: int) -> None:
        """Raise for classes without a step: they have no least squares."""
        if classes and self.step_size is None:
            raise ValueError(
                f"step_size = None is least squares, and the samples are of {classes} classes: give step_size="
            )

    def initial_state(self, start: Start) -> State:
        """Return predictors at 0."""
        return State(S=start.zeros(start.n_clients, start.dim))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the participants' least-squares predictors, or those after their gradient steps."""
        if self.step_size is None:
            return state.update(S=batch.least_squares(self.ridge), active=batch.active)
        theta = state.of_clients("S", batch.active)
        shrunk = np.ones(theta.shape[-1])
        if theta.ndim == 4:
            shrunk[-1] = 0.0
        for _ in range(self.local_steps):
            theta = theta - self.step_size * (batch.gradient(theta) + self.ridge * shrunk * theta)
        return state.update(S=theta, active=batch.active)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the least-squares predictors of new clients: they learn from their own samples alone."""
        return State(S=batch.least_squares(self.ridge))

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return nothing: clients learn alone."""
        return Communication(0.0, 0.0)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of S."""
        return n_clients * dim
