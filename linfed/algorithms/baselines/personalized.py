"""Personal ridge fit after the last round of any algorithm that learns a representation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from linfed._types import Array, Mask
from linfed._values import check_fields, positive
from linfed.algorithms.initial import Initialization
from linfed.algorithms.parts.base import Algorithm, Communication, InitContext, Requires, State, requires_of
from linfed.checks import check_instance, short_repr
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class Personalized(Algorithm):
    r"""Another algorithm, followed by one ridge fit of a head and a full-dimensional part per client.

    Parameters
    ----------
    base : Algorithm
        Algorithm that learns B.
    ridge : float
        Weight > 0 of the penalty ``(ridge / 2) ||s_i||^2`` in every client's loss of the fit.

    Raises
    ------
    TypeError
        If `base` is not an algorithm.
    ValueError
        If `base` learns no B, or the ridge is not positive; in `simulate` also for classification, if the predictors of
        `base` are not ``B w_i + s_i`` (as in `FedRoD`), or if `base` raises.

    Notes
    -----
    All rounds are rounds of `base`. After the last one (and after the final step of `base`, if it has one) every client
    solves, at the learned B,

    .. math::

        w_i, s_i \leftarrow \arg\min_{w, s} \tfrac{1}{2m} \|X_i (B w + s) - y_i\|^2 + \tfrac{\text{ridge}}{2} \|s\|^2

    with the shortest w if it is not unique (m < k), and predicts with ``B w_i + s_i``. A new client does the same.
    For ``ridge -> infinity`` this is `base` with exact heads. The fit is local: it sends nothing and does not change B.
    It costs ``O(n (m d^2 + d^3))`` once.

    **Deviations**: an addition, the baseline for shortcuts during training (`FedRepShortcut`).

    References
    ----------
    The joint form of `FedRepShortcut`, ``solver=lf.ClosedForm(order="joint")``, for the fit.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=40, dim=12, rank=2, shortcut_norm=0.3, noise_std=0.1)
    >>> plain = lf.FedRep(rank=2, step_size=0.5)
    >>> setting = {"data": lf.FixedSamples(n_samples=8), "n_rounds": 100}
    >>> one = lf.simulate(plain, problem, **setting)
    >>> two = lf.simulate(lf.Personalized(base=plain, ridge=0.1), problem, **setting)
    >>> bool(two.metrics["parameter_error"][0, -1] < 0.9 * one.metrics["parameter_error"][0, -1])
    True
    """

    base: Algorithm
    ridge: float

    description: ClassVar[str] = "any algorithm with a B, followed by one personal ridge fit per client"

    def __post_init__(self) -> None:
        check_instance("base", self.base, Algorithm, "an algorithm, e.g. lf.FedRep(rank=2, step_size=0.5)")
        if self.base.learned_rank == 0:
            raise ValueError(
                f"base = {short_repr(self.base)} must be an algorithm that learns a representation B, e.g. lf.FedRep"
            )
        check_fields(self, ridge=positive)

    @property
    def requires(self) -> Requires:
        """Operations that the base requires of a batch, and the second moments for the fit."""
        return max(requires_of(self.base), Requires.QUADRATIC)

    @property
    def learned_rank(self) -> int:
        """Columns of the base's B."""
        return self.base.learned_rank

    @property
    def initialization(self) -> Initialization | None:
        """Initialisation of the base."""
        return self.base.initialization

    @property
    def finishes(self) -> bool:
        """True: the fit follows the last round."""
        return True

    def for_rounds(self, n_rounds: int) -> Personalized:
        """Return the algorithm whose base is the one for a run of `n_rounds` rounds."""
        base = self.base.for_rounds(n_rounds)
        return self if base is self.base else replace(self, base=base)

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if the base's hyper-parameters do not fit a problem of this size."""
        self.base.check(n_clients=n_clients, dim=dim)

    def check_loss(self, classes: int) -> None:
        """Raise for classification, or if the base does not support regression."""
        super().check_loss(classes)
        self.base.check_loss(classes)

    def initial_state(self, start: InitContext) -> State:
        """Return the base's initial state, with a personal part equal to 0 if it has none."""
        state = self.base.initial_state(start)
        if type(state).for_prediction is not State.for_prediction:
            raise ValueError(
                f"base = {short_repr(self.base)} cannot be personalised: its predictors "
                f"({type(state).__name__}.for_prediction) are not B w_i + s_i; use an algorithm with plain heads, "
                "e.g. lf.FedRep"
            )
        return state if state.S is not None else state.update(S=np.zeros((start.trials, 1, start.dim)))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the base's state after one round."""
        new = self.base.step(state, batch, rng)
        return new if new.S is not None or state.S is None else new.update(S=state.S)  # the base may drop S

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the base's last state with every client's head and personal part replaced by its fit."""
        if self.base.finishes:
            state = self.base.finish(state, batch, rng)
        W, S = self._fit(state, batch)
        return state.update(W=W, S=S)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the fits of new clients at B."""
        W, S = self._fit(state, batch)
        return State(B=state.B, W=W, S=S)

    def overshoots(self, state: State, batch: Batch, share: float, variance: float | None) -> Mask | None:
        """Return the trials in which the base's last step size exceeds the stability edge."""
        return self.base.overshoots(state, batch, share, variance)

    def unfinished(self, state: State) -> Mask | None:
        """Return the trials in which a minimiser of the base stopped at its largest number of iterations."""
        return self.base.unfinished(state)

    def _fit(self, state: State, batch: Batch) -> tuple[Array, Array]:
        """Return the heads and the full-dimensional parts of the batch's clients at B."""
        return batch.joint_least_squares(state.array("B"), self.ridge)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the communication of the base."""
        return self.base.communication(dim=dim, classes=classes)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of the base's state, and of every client's fit."""
        base = self.base.floats_per_trial(n_clients=n_clients, dim=dim, participants=participants)
        return base + n_clients * (self.learned_rank + dim)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of a step of the base, or of the normal equations of all clients if they are larger."""
        sizes = {"n_clients": n_clients, "dim": dim, "participants": participants, "samples": samples}
        return max(self.base.floats_per_step(**sizes), 5 * n_clients * dim * dim // 2)
