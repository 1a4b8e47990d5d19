"""FedRoD (Chen and Chao 2022): an averaged generic model plus a personal head per client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, instance, optional
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.parts.base import InitContext, State
from linfed.algorithms.parts.heads import GradientHeads, HeadSolver, check_heads_loss, check_one_ridge
from linfed.algorithms.parts.models import LinearModel, zero_model
from linfed.algorithms.parts.step_size import step_at
from linfed.checks import check_bool, check_integer
from linfed.data.batch import Batch, Features
from linfed.data.classes import ClassBatch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class FedRoDState(State):
    """State with a shared B, the generic head W (trials, 1, k), and personal heads V (trials, n, k)."""

    V: Array

    per_client: ClassVar[frozenset[str]] = State.per_client | {"V"}

    def for_prediction(self) -> State:
        """Return the predictors ``B (w + v_i)``."""
        return State(B=self.B, W=self.array("W") + self.V)


@dataclass(frozen=True, kw_only=True)
class FedRoD(Averaging):
    r"""Two-layer averaging whose clients also fit a personal head to the residual of the averaged model.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the local step size for (B, w); or a schedule, as in `FedRep` (fine-tuning then uses the last round's
        step size).
    personal : GradientHeads or ExactHeads
        Update of a participant's personal head: gradient steps from its last one (with step size eta unless they have
        one), or the closed form. A ridge penalises v_i, which keeps the client near the generic head.
    balanced : bool
        If True, (B, w) is trained with the balanced softmax for classification, as in the source: logits plus the
        logarithm of the client's share of each class. Has no effect on regression.
    fine_tune : ExactHeads or GradientHeads, optional
        Fine-tuning of the personal heads after the last round, at the learned B and w.
    local_steps, local_epochs, batch_size, server_step_size, weights, init
        Averaging of (B, w), as in `FedAvg`.

    Raises
    ------
    TypeError
        If `personal` is neither `GradientHeads` nor `ExactHeads`, or the rank is missing.
    ValueError
        As in `FedAvg`, and if the rank is below 1; in `simulate` also for exact heads in classification.

    Notes
    -----
    One round, from the server's (B, w), with participants I, their `weights` p_i of sum 1, and ``Z_i = X_i B``:

    .. math::

        v_i &\leftarrow \arg\min_v \tfrac{1}{2m} \|Z_i v - (y_i - Z_i w)\|^2,
            \qquad \text{or gradient steps on it from } v_i \\
        (B, w) &\leftarrow (B, w) + \eta_s \sum_{i \in I} p_i \bigl( (B_i, w_i) - (B, w) \bigr),
            \qquad (B_i, w_i) \text{ by local steps on } f_i(B w)

    The second line is two-layer `FedAvg`: (B, w) does not depend on the v_i, which stay with the clients and start at
    0. Clients predict with ``B (w + v_i)``. Like the heads of `FedRep`, the v_i are fitted at the B and w from before
    the round. The server's update of B and w then changes the predictor. A client that takes no part keeps its v_i.
    `fine_tune` refits the v_i after the last round.

    With exact heads, m >= k and no ridge ``w + v_i`` is FedRep's head at that B; with m < k it is the solution nearest
    to w. A new client's head is fitted exactly, with the ridge of `fine_tune` if given, else of `personal`. Cost of a
    round as in `FedAvg`, plus ``O(p m (d k + k^2))`` for the heads; memory O(n k).

    **Deviations**: the source updates the personal head together with the local model, on that model's features; here
    the personal head is updated at the server's B and w. Full-gradient steps, exact heads, `fine_tune`, schedules and
    the fit of new clients are additions.

    References
    ----------
    Chen and Chao 2022, "On bridging generic and personalized federated learning for image classification", with a
    linear personal head; called FedRoD in the FLUTE paper's Table 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, noise_std=0.1)
    >>> run = {"data": lf.FixedSamples(n_samples=10), "n_rounds": 200}
    >>> generic = lf.simulate(lf.FedAvg(rank=2, step_size=0.1), problem, **run)
    >>> both = lf.simulate(lf.FedRoD(rank=2, step_size=0.1, personal=lf.ExactHeads()), problem, **run)
    >>> bool((both.final.B == generic.final.B).all() and (both.final.W == generic.final.W).all())
    True
    >>> both.final.array("V").shape, bool(both.metrics["risk"][0, -1] < generic.metrics["risk"][0, -1])
    ((1, 50, 2), True)
    """

    rank: int = field()  # required; without `field()` it would inherit the default None of `Averaging`
    personal: HeadSolver = field(default_factory=GradientHeads)
    balanced: bool = True

    requires = Averaging.requires
    description: ClassVar[str] = "two-layer averaging plus a personal head per client"

    def __post_init__(self) -> None:
        personal = instance(HeadSolver, "lf.GradientHeads(steps=1) or lf.ExactHeads()")
        heads = optional(instance(HeadSolver, "lf.ExactHeads(), lf.GradientHeads(steps=10), or None"))
        check_fields(self, rank=check_integer, personal=personal, balanced=check_bool, fine_tune=heads)
        check_one_ridge("personal", self.personal)
        super().__post_init__()

    def check_loss(self, classes: int) -> None:
        """Raise if heads are fitted by least squares and the task is classification."""
        super().check_loss(classes)
        check_heads_loss("personal", self.personal, classes)

    def initial_state(self, start: InitContext) -> FedRoDState:
        """Return B from `init` and all heads at 0."""
        shared = zero_model(start, self.rank, self.init)
        return FedRoDState(**shared, V=np.repeat(shared["W"], start.n_clients, axis=1))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        V = self._fitted(self.personal, state, batch, self.step_in(batch))
        model = LinearModel.of(state)
        server = model.shared(state)
        generic = batch.balanced() if self.balanced and isinstance(batch, ClassBatch) else batch
        change, _ = self.local_change(model, generic, server, rng)
        parts = model.parts(server + self.server_step_size * self.average(batch, change))
        return state.update(**parts, V=V, active=batch.active)

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with each client's personal head fine-tuned at the learned B and w."""
        if self.fine_tune is None:
            return state
        assert isinstance(self.fine_tune, HeadSolver)
        last = step_at(self.step_size, batch.round - 1)
        return state.update(V=self._fitted(self.fine_tune, state, batch, last), active=batch.active)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return new clients' heads at B: the generic head plus an exactly fitted personal head."""
        heads = self.personal if self.fine_tune is None else self.fine_tune
        assert isinstance(heads, HeadSolver)
        return State(B=state.B, W=state.array("W") + heads.adapt(_residual(state, batch)).W)

    def _fitted(self, heads: HeadSolver, state: State, batch: Batch, step_size: float) -> Array:
        """Return the updated personal heads of the batch's clients."""
        return heads.solve(_residual(state, batch), state.take_clients("V", batch.active), step_size).W

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size for averaging, and of the personal heads before and after adding the generic head."""
        averaging = super().floats_per_trial(n_clients=n_clients, dim=dim, participants=participants)
        return averaging + 2 * n_clients * self.rank


def _residual(state: State, batch: Batch) -> Features:
    """Return the features at B, with the residuals of the generic model as labels."""
    model = LinearModel.of(state)
    return batch.shifted(model.predictors(model.shared(state))).project(state.array("B"))
