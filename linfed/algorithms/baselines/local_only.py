"""Local baseline: every client fits its own samples in the full dimension, without federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from linfed._types import Array, Mask
from linfed._values import check_fields, non_negative, optional, positive
from linfed.algorithms.parts.base import Algorithm, Communication, InitContext, Requires, State
from linfed.algorithms.parts.overshooting import overshoots
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.data.rows import factor_floats
from linfed.numerics.layers import without_biases
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class LocalOnly(Algorithm):
    """Local least squares or ridge regression per client, without federation.

    Parameters
    ----------
    ridge : float, default 0.0
        Weight of the penalty ``(ridge / 2) ||theta||^2`` in the loss ``(1 / 2m) ||X_i theta - y_i||^2``; biases are not
        penalised.
    step_size : float, optional
        eta > 0: replace least squares by full-gradient steps from the client's last predictor, for any loss. Required
        for classification.
    local_steps : int
        Number of gradient steps in a round.

    Raises
    ------
    ValueError
        If a value is out of range, or `local_steps` is given without `step_size`; in `simulate` also for classification
        without a step size.

    Notes
    -----
    ``theta_i = argmin_theta f_i(theta)``, of minimum norm if m < d and there is no ridge. With fixed data one round
    with full participation is enough; with fresh data each participant is refitted on its latest batch. Cost of a round
    ``O(p m d min(m, d))``.

    With a step size, ``theta_i <- theta_i - eta (grad f_i(theta_i) + ridge theta_i)``, `local_steps` times per round,
    from 0. On fixed samples this converges to the predictor above if ``eta < 2 / (lambda_max(X_i'X_i / m) + ridge)``.
    For classification it converges, with small steps, to the minimiser of the regularised cross-entropy, if there is
    one.

    **Deviations**: gradient steps are an addition.

    References
    ----------
    FedRep paper, section 5.1 and Figure 1 ("Local Only").

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    >>> result = lf.simulate(lf.LocalOnly(), problem, data=lf.FixedSamples(20), n_rounds=1)
    >>> bool(result.metrics["parameter_error"][0, -1] < 0.5)
    True
    """

    ridge: float = 0.0
    step_size: float | None = None
    local_steps: int = 1

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "least squares or ridge regression per client, without federation"

    def __post_init__(self) -> None:
        check_fields(self, ridge=non_negative, step_size=optional(positive), local_steps=check_integer)
        if self.step_size is None and self.local_steps != 1:
            raise ValueError(f"local_steps = {self.local_steps} requires step_size=: without it the fits are exact")

    def check_loss(self, classes: int) -> None:
        """Raise for classification without a step size: least squares supports only regression."""
        if classes and self.step_size is None:
            raise ValueError(
                f"step_size = None (least squares) supports only regression, but the samples have {classes} classes: "
                "give step_size="
            )

    def initial_state(self, start: InitContext) -> State:
        """Return the state with all predictors at 0."""
        return State(S=start.zeros(start.n_clients, start.dim))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after the participants' least-squares fits or gradient steps."""
        if self.step_size is None:
            return state.update(S=batch.least_squares(self.ridge), active=batch.active)
        theta = state.take_clients("S", batch.active)
        for _ in range(self.local_steps):
            theta = theta - self.step_size * self._gradient(theta, batch)
        return state.update(S=theta, active=batch.active)

    def _gradient(self, theta: Array, batch: Batch) -> Array:
        """Return the gradients of the penalised losses at the participants' predictors."""
        return batch.gradient(theta) + self.ridge * without_biases(theta)

    def _loss(self, theta: Array, batch: Batch) -> Array:
        """Return the penalised losses, (T, p)."""
        squares = np.square(without_biases(theta)).reshape(*theta.shape[:2], -1).sum(axis=-1)
        return batch.loss(theta) + 0.5 * self.ridge * squares

    def overshoots(self, state: State, batch: Batch, share: float, variance: float | None) -> Mask | None:
        """Return the trials in which a step is too large for a participant's loss on fixed samples."""
        if self.step_size is None or variance is not None:
            return None
        step_size = self.step_size

        def look(theta: Array) -> tuple[Array, Array, Array]:
            slope = self._gradient(theta, batch)
            squares = np.square(slope).reshape(*slope.shape[:2], -1).sum(axis=-1)
            return self._loss(theta, batch), step_size * squares, theta - step_size * slope

        theta = state.take_clients("S", batch.active)
        return np.asarray(overshoots(theta, look, self._loss(np.zeros_like(theta), batch)).any(axis=-1))

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the least-squares predictors of new clients, from their own samples only, also with a step size."""
        return State(S=batch.least_squares(self.ridge))

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return 0 floats: clients learn locally."""
        return Communication(0.0, 0.0)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of S."""
        return n_clients * dim

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the factors of a block of clients' samples, or of its normal equations."""
        return factor_floats(participants, samples, dim, bool(self.ridge)) if self.step_size is None else 0
