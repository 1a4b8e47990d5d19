"""Federated averaging (McMahan et al. 2017), on a linear model of one or of two layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from linfed._values import check_fields, converted, instance, one_of, optional, positive
from linfed.algorithms.base import Asks, Start, State
from linfed.algorithms.heads import Heads
from linfed.algorithms.initial import Initial, RandomSubspace, as_initial
from linfed.algorithms.models import LinearModel, client_weights, weighted_mean, zero_model
from linfed.algorithms.step_size import Scheduled, StepSize, checked_step_size, step_at
from linfed.data.batch import Batch
from linfed.errors import check_integer, shown
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class FedAvg(Scheduled):
    """One model for all clients: local gradient steps, averaged by the server.

    Parameters
    ----------
    step_size : float, array_like (rounds,) or callable
        eta > 0, the local step; or a schedule, as in `FedRep`: fine-tuning then takes the last round's.
    rank : int, optional
        Columns k of B in the two-layer model ``(B, w)``, one head w shared by all; without it the model has one layer,
        theta in R^d.
    local_steps : int
        K, full-gradient steps of each participant in a round.
    server_step_size : float
        eta_s > 0, the server's step along the averaged change.
    weights : "uniform" or "samples"
        Weights of the participants: equal (option 2), or proportional to their sample counts (option 1).
    init : "random", "moments", Initial or array_like (d, k) or (trials, d, k)
        Initial B of the two-layer model; w and theta start at 0.
    fine_tune : ExactHeads or GradientHeads, optional
        What each client does to the head, on its own samples, after the last round (FedAvg + FT): full-gradient steps
        from the shared head, ``lf.GradientHeads(steps=10)`` in the FedRep paper, or least squares. B stays.

    Raises
    ------
    ValueError
        For steps that are not positive, unknown names, a rank above d, and an `init` or `fine_tune` of one layer.

    Notes
    -----
    One round, with participants I, ``|I| = p``, and ``f_i(theta) = (1/2m) ||X_i theta - y_i||^2``::

        theta_i <- theta;   K times   theta_i <- theta_i - eta grad f_i(theta_i)
        theta   <- theta + eta_s sum_{i in I} p_i (theta_i - theta)

    with theta standing for ``(B, w)`` in the two-layer model, where ``grad_B = g w'`` and ``grad_w = B'g`` for
    ``g = X_i'(X_i B w - y_i)/m``. The server averages over participants. Cost of a round ``O(K p (m d + d k))``. With
    one layer, full participation and fixed data it has the fixed point of `linfed.theory.fedavg_fixed_point`; with two
    layers and K = 1 every limit ``B w`` with ``w != 0`` is the pooled least squares.

    **Deviations**: clients take full-gradient steps where the source takes minibatches. Fine-tuning by least squares
    and schedules are additions.

    References
    ----------
    McMahan, Moore, Ramage, Hampson and Aguera y Arcas 2017, Algorithm 1; FedRep paper, section 5, for the two-layer
    model and the fine-tuning.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
    >>> result = lf.simulate(lf.FedAvg(step_size=0.5), problem, data=lf.FixedSamples(100), rounds=50)
    >>> floor = lf.theory.single_model_floor(problem.truth(0, [0]))
    >>> bool(0 < result.metrics["risk"][0, -1] / floor[0] - 1 < 0.01)
    True
    """

    step_size: StepSize
    rank: int | None = None
    local_steps: int = 1
    server_step_size: float = 1.0
    weights: Literal["uniform", "samples"] = "uniform"
    init: Initial | str | npt.ArrayLike = "random"
    fine_tune: Heads | None = None

    asks: ClassVar[Asks] = Asks.QUADRATIC
    summary: ClassVar[str] = "one model for all, of one or two layers; optional fine-tuning of the head at the end"

    def __post_init__(self) -> None:
        check_fields(
            self,
            step_size=checked_step_size,
            server_step_size=positive,
            local_steps=check_integer,
            weights=one_of("uniform", "samples"),
            init=converted(as_initial),
            rank=optional(check_integer),
            fine_tune=optional(instance(Heads, "lf.ExactHeads(), lf.GradientHeads(steps=10), or None")),
        )
        if self.rank is None and self.init != RandomSubspace():
            raise ValueError(f"init = {shown(self.init)} is of B: the one-layer model has none, give rank=")
        if self.rank is None and self.fine_tune is not None:
            raise ValueError(
                f"fine_tune = {shown(self.fine_tune)} is of the head: the one-layer model has none, give rank="
            )

    @property
    def columns(self) -> int:
        """Columns of B; 0 for one layer."""
        return self.rank or 0

    @property
    def finishes(self) -> bool:
        """Whether heads are fine-tuned at the end."""
        return self.fine_tune is not None

    @property
    def initialisation(self) -> Initial | None:
        """How B begins; None for one layer."""
        return None if self.rank is None else as_initial(self.init)

    def initial_state(self, start: Start) -> State:
        """Return B from `init` and the shared head at 0; or theta at 0."""
        return State(**zero_model(start, self.rank, self.init))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        model = LinearModel.of(state)
        server = model.shared(state)
        local = model.trained(batch, server, self.step_in(batch), self.local_steps)
        change = weighted_mean(local - server, client_weights(batch, self.weights))
        return state.update(**model.parts(server + self.server_step_size * change))

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with each client's head fine-tuned on its own samples, (T, n, k)."""
        if self.fine_tune is None:
            return state
        W = np.repeat(state.array("W"), batch.active.shape[-1], axis=1)
        last = step_at(self.step_size, batch.round - 1)
        return replace(state, W=self.fine_tune.solve(batch.project(state.array("B")), W, last).W)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return new clients' exact heads at B, with the ridge of the fine-tuning; of one layer, theta."""
        if self.fine_tune is None:
            return super().adapt(state, batch)
        B = state.array("B")
        return State(B=B, W=self.fine_tune.adapt(batch.project(B)).W)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of the participants' parameters, and of fine-tuned heads."""
        heads = n_clients * self.columns if self.finishes else 0
        return (1 + participants) * (dim * max(1, self.columns) + self.columns) + heads
