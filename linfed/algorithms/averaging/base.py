"""Base class of the averaging family: model, local steps, server step and fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed._values import check_fields, converted, instance, one_of, optional, positive
from linfed.algorithms.initial import Initial, RandomSubspace, as_initial
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.fine_tuning import (
    EXAMPLES,
    FINE_TUNING,
    AllLayers,
    adapted,
    fine_tuned,
    prepared,
    tuned_floats,
)
from linfed.algorithms.parts.heads import HeadSolver, check_heads_loss, check_one_ridge
from linfed.algorithms.parts.models import Direction, LinearModel, client_weights, weighted_mean, zero_model
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size, last_value, step_at
from linfed.checks import check_integer, short_repr
from linfed.data.batch import Batch
from linfed.numerics.linalg import take_clients
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class WeightedState(State):
    """State with a shared model and each client's weight among all clients, ``shares`` (trials, n)."""

    shares: Array

    per_client: ClassVar[frozenset[str]] = State.per_client | {"shares"}

    def mean(self, values: Array, active: Indices | None = None) -> Array:
        """Return ``sum_i pi_i values_i``, (T, 1, P), over all clients, or over the clients `active`."""
        return weighted_mean(values, self.shares if active is None else take_clients(self.shares, active))


@dataclass(frozen=True, kw_only=True)
class Averaging(Scheduled):
    """Base class of the family; its fields are documented in `FedAvg`.

    A subclass implements `step`: it calls `local_change`, with its own direction if needed, and updates the model.
    """

    step_size: StepSize
    rank: int | None = None
    local_steps: int = 1
    local_epochs: int | None = None
    batch_size: int | None = None
    server_step_size: float = 1.0
    weights: Literal["uniform", "samples"] = "uniform"
    init: Initial | str | npt.ArrayLike = "random"
    fine_tune: HeadSolver | AllLayers | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            step_size=checked_step_size,
            server_step_size=positive,
            local_steps=check_integer,
            local_epochs=optional(check_integer),
            batch_size=optional(check_integer),
            weights=one_of("uniform", "samples"),
            init=converted(as_initial),
            rank=optional(check_integer),
            fine_tune=optional(instance(FINE_TUNING, f"{EXAMPLES}, or None")),
        )
        check_one_ridge("fine_tune", self.fine_tune)
        if (self.local_epochs is None) != (self.batch_size is None):
            given = {name: getattr(self, name) for name in ("local_epochs", "batch_size")}
            raise ValueError(f"local_epochs and batch_size must be given together, got {given}")
        if self.local_epochs is not None and self.local_steps != 1:
            raise ValueError(
                f"local_steps = {self.local_steps} (full-gradient steps) cannot be combined with local_epochs "
                "and batch_size"
            )
        if self.rank is None and self.init != RandomSubspace():
            raise ValueError(f"init = {short_repr(self.init)} requires rank=: the one-layer model has no B")
        if self.rank is None and isinstance(self.fine_tune, HeadSolver):
            raise ValueError(
                f"fine_tune = {short_repr(self.fine_tune)} requires rank=: the one-layer model has no head; use "
                "lf.AllLayers(steps=10)"
            )

    @property
    def requires(self) -> Requires:
        """Required of a batch: second moments for full gradients, the samples themselves for minibatches."""
        return Requires.QUADRATIC if self.local_epochs is None else Requires.ROWS

    @property
    def learned_rank(self) -> int:
        """Columns of B; 0 for one layer."""
        return self.rank or 0

    @property
    def finishes(self) -> bool:
        """Whether clients fine-tune the model after the last round."""
        return self.fine_tune is not None

    @property
    def initialization(self) -> Initial | None:
        """Initialisation of B; None for one layer."""
        return None if self.rank is None else as_initial(self.init)

    def check_loss(self, classes: int) -> None:
        """Raise if `fine_tune` is least squares and the task is classification."""
        check_heads_loss("fine_tune", self.fine_tune, classes)

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init` and the shared head at 0; for one layer theta at 0."""
        return State(**prepared(self.fine_tune, zero_model(start, self.rank, self.init)))

    def counted(self, start: InitContext) -> dict[str, Array]:
        """Return the arrays of the initial state with the clients' shares, for a `WeightedState`."""
        counts = start.counts if self.weights == "samples" else np.ones((start.trials, start.n_clients))
        shares = counts / counts.sum(axis=-1, keepdims=True)
        return {**prepared(self.fine_tune, zero_model(start, self.rank, self.init)), "shares": shares}

    def local_change(
        self, model: LinearModel, batch: Batch, begin: Array, rng: TrialRandom, direction: Direction | None = None
    ) -> tuple[Array, Array]:
        """Return the participants' changes of the parameters and their numbers of steps.

        Parameters
        ----------
        model : LinearModel
        batch : Batch
        begin : ndarray (T, 1, P) or (T, p, P)
            Parameters before the first step.
        rng : TrialRandom
            Draws the order of each client's samples, once per round.
        direction : callable, optional
            As in `LinearModel.trained`.

        Returns
        -------
        change : ndarray (T, p, P)
        steps : ndarray (T, p, 1)
        """
        step = self.step_in(batch)
        if self.local_epochs is None:
            local = model.trained(batch, begin, step, self.local_steps, direction)
            return local - begin, np.full((*batch.active.shape, 1), float(self.local_steps))
        assert self.batch_size is not None
        parts = list(batch.minibatches(self.batch_size, rng=rng))
        local, taken = begin, np.zeros((*batch.active.shape, 1))
        for _ in range(self.local_epochs):
            for part in parts:
                moves = part.counts[..., None] > 0  # clients with fewer samples have fewer batches
                local = np.where(moves, model.trained(part, local, step, 1, direction), local)
                taken += moves
        return local - begin, taken

    def average(self, batch: Batch, change: Array) -> Array:
        """Return ``sum_i p_i change_i`` over the participants, (T, 1, P)."""
        return weighted_mean(change, client_weights(batch, self.weights))

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after each client has fine-tuned its head, (T, n, k), or its model, on its own samples."""
        if self.fine_tune is None:
            return state
        return fine_tuned(self.fine_tune, state, batch, step_at(self.step_size, batch.round - 1))

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the models of new clients: exact heads at B, steps on all layers, or with one layer theta."""
        if self.fine_tune is None:
            return super().adapt(state, batch)
        return adapted(self.fine_tune, state, batch, last_value(self.step_size, "step_size"))

    def parameters(self, dim: int, classes: int = 0) -> int:
        """Return the number of parameters P of the model."""
        return LinearModel(dim, self.learned_rank, classes).size

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of the model (down) and of its change (up)."""
        size = float(self.parameters(dim, classes))
        return Communication(size, size)

    def memory(self, n_clients: int) -> int:
        """Return the number of parameter vectors that are stored in addition to the model."""
        return 0

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of the participants' parameters, of the stored vectors, and of fine-tuned heads or models."""
        tuned = tuned_floats(self.fine_tune, n_clients, rank=self.learned_rank, dim=dim)
        return (1 + participants + self.memory(n_clients)) * self.parameters(dim) + tuned

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of a round's minibatches, and of one that is being made."""
        return 0 if self.batch_size is None else participants * (samples + min(self.batch_size, samples)) * (dim + 1)
