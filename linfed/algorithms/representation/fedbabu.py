"""FedBABU (Oh, Kim and Yun 2022): a representation learned at a fixed random head, heads fitted at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from linfed._values import check_fields, converted, instance
from linfed.algorithms.initial import Initial, as_initial
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
from linfed.algorithms.parts.heads import ExactHeads, HeadSolver, check_heads_loss, check_one_ridge
from linfed.algorithms.parts.models import LinearModel, client_weights, weighted_mean, zero_model
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size, last_value, step_at
from linfed.checks import check_array, check_integer, short_repr
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class FedBABU(Scheduled):
    r"""Shared representation by averaging at one fixed head; every client fits its own head after the last round.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the local step size for B; or a schedule, as in `FedRep`.
    local_steps : int
        K, full-gradient steps of each participant in a round.
    head : "random" or array_like (k,)
        The fixed head w_0, for regression not 0. "random" draws it from N(0, I/k), for classification with biases of 0.
    init : "random", "moments", Initial or array_like (d, k) or (trials, d, k)
        Initial B.
    fine_tune : ExactHeads, GradientHeads or AllLayers
        Fit of the heads after the last round, at the server's B, or gradient steps on (B, w), as in the source.
        Gradient steps start at w_0.

    Raises
    ------
    TypeError
        If `fine_tune` has another type.
    ValueError
        If a value is out of range or the head is 0; in `simulate` also for classification with a given head or with
        exact heads.

    Notes
    -----
    One round, with participants I, ``|I| = p``:

    .. math::

        B_i \leftarrow B_i - \eta\, \tfrac{1}{m} X_i^\top (X_i B_i w_0 - y_i)\, w_0^\top \text{ (K times, from } B
            \text{)}, \qquad B \leftarrow \tfrac{1}{p} \sum_{i \in I} B_i

    All changes of B have the form ``v w_0'``. In regression a round therefore learns one direction, ``B w_0``, which
    converges to the fixed point of one-layer `FedAvg` with step size ``eta ||w_0||^2``. With classes w_0 has a row per
    class. Before the fit all clients predict with w_0. A new client's head is fitted exactly (with
    ``fine_tune=AllLayers`` by its steps). Cost of a round ``O(K p (m d + d k))``.

    **Deviations**: all participants have equal weights, in the source in proportion to their samples. Full-gradient
    steps replace minibatches; by default only the heads are fine-tuned, exactly (the source fine-tunes all layers); a
    given head is an addition.

    References
    ----------
    Oh, Kim and Yun 2022, "FedBABU: toward enhanced representation for federated image classification", Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    >>> result = lf.simulate(lf.FedBABU(rank=2, step_size=0.3), problem, data=lf.FixedSamples(10), n_rounds=100)
    >>> result.final.W.shape, bool(result.metrics["risk"][0, -1] < result.metrics["risk"][0, -2])
    ((1, 20, 2), True)
    """

    rank: int
    step_size: StepSize
    local_steps: int = 1
    head: npt.ArrayLike = "random"
    init: Initial | str | npt.ArrayLike = "random"
    fine_tune: HeadSolver | AllLayers = field(default_factory=ExactHeads)

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "representation by averaging at a fixed random head; heads fitted after the last round"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=checked_step_size,
            local_steps=check_integer,
            head=self._checked_head,
            init=converted(as_initial),
            fine_tune=instance(FINE_TUNING, EXAMPLES),
        )
        check_one_ridge("fine_tune", self.fine_tune)

    def _checked_head(self, name: str, value: object) -> str | tuple[float, ...]:
        if isinstance(value, str) and value == "random":
            return value
        head = check_array(name, value, [("k",)])
        if len(head) != self.rank or not head.any():
            raise ValueError(f"{name} = {short_repr(value)} must have k = {self.rank} values, not all of them 0")
        return tuple(head.tolist())

    @property
    def finishes(self) -> bool:
        """True: heads are fitted after the last round."""
        return True

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def check_loss(self, classes: int) -> None:
        """Raise for classification with heads by least squares, or with a given head."""
        check_heads_loss("fine_tune", self.fine_tune, classes)
        if classes and self.head != "random":
            raise ValueError(f"head = {short_repr(self.head)} supports only regression: use head='random'")

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init` and the fixed head, (T, 1, k)."""
        arrays = prepared(self.fine_tune, zero_model(start, self.rank, self.init))
        if self.head != "random":
            return State(**arrays | {"W": np.broadcast_to(np.array(self.head), arrays["W"].shape).copy()})
        W = arrays["W"]
        W[..., : self.rank] = start.rng.standard_normal((*W.shape[1:-1], self.rank)) / np.sqrt(self.rank)
        return State(**arrays)

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round; the head does not change."""
        model = LinearModel.of(state)
        server = model.shared(state)
        of_B = np.arange(model.size) < model.dim * model.rank
        local = model.trained(batch, server, self.step_in(batch), self.local_steps, lambda g, _: g * of_B)
        new = server + weighted_mean(local - server, client_weights(batch, "uniform"))
        return state.update(B=model.layers(new)[0][:, 0])

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with each client's head fitted, or its model fine-tuned."""
        return fine_tuned(self.fine_tune, state, batch, step_at(self.step_size, batch.round - 1))

    def adapt(self, state: State, batch: Batch) -> State:
        """Return new clients' exact heads at the server's B, or their models after the steps on all layers."""
        return adapted(self.fine_tune, state, batch, last_value(self.step_size, "step_size"))

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of its change (up)."""
        return Communication(float(dim * self.rank), float(dim * self.rank))

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of the participants' models, and of all fitted heads or models."""
        tuned = tuned_floats(self.fine_tune, n_clients, rank=self.rank, dim=dim)
        return (1 + 3 * participants) * self.rank * (dim + 1) + tuned
