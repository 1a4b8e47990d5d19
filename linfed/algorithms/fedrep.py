"""FedRep for linear regression (Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import numpy.typing as npt

from linfed._types import Array
from linfed._values import check_fields, converted, instance, one_of
from linfed.algorithms.base import InitContext, Requires, State
from linfed.algorithms.heads import ExactHeads, HeadSolver, check_heads_loss, update_representation
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.step_size import Scheduled, StepSize, checked_step_size
from linfed.data.batch import Batch, Fit
from linfed.errors import check_bool, check_integer
from linfed.numerics.linalg import orthonormalize, qr_positive
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class FedRep(Scheduled):
    r"""Shared representation B with a personal head per client.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (rounds,) or callable
        eta > 0, the step size for B; or a schedule: one value per round, or a function of the round number, from 1.
    init : "moments", "random", Initial or array_like (d, k) or (trials, d, k)
        Initial B; an array is used without orthonormalisation.
    heads : ExactHeads or GradientHeads
        Closed-form heads, or gradient steps from the client's last head: ``lf.GradientHeads(steps=1)`` and 10 are GD-GD
        and 10GD-GD of the paper's Figure 3.
    representation_steps : int
        Local steps on B at fixed heads before the server averages (Algorithm 1).
    orthonormalize : bool
        If True, replace B by its Q factor after each round.
    aggregate : "mean" or "sum"
        Aggregation of the participants' gradients on B; steps on heads do not depend on it.
    rotate_heads : bool
        If True, also replace every head w by ``R w`` when B is replaced by its Q factor, which keeps the predictors
        ``B w``; requires ``orthonormalize=True``. If False (default), heads do not change. With exact heads this option
        changes the predictors, but not B.

    Raises
    ------
    TypeError
        If `heads` is neither `ExactHeads` nor `GradientHeads`.
    ValueError
        If the rank is below 1, a step size is not positive, a name is unknown, or `rotate_heads` is True without
        `orthonormalize`. `simulate` also raises if the rank exceeds d, or a schedule does not have one value per round.

    Notes
    -----
    One round, with ``Z_i = X_i B`` and participants I, ``|I| = p``:

    .. math::

        w_i &\leftarrow \arg\min_w \tfrac{1}{2m} \|Z_i w - y_i\|^2 \qquad \text{(exact heads)} \\
        G &\leftarrow \tfrac{1}{p} \sum_{i \in I} \tfrac{1}{m} X_i^\top (Z_i w_i - y_i) w_i^\top \\
        B &\leftarrow \operatorname{qr}(B - \eta G)

    Gradients have no factor 2; the server averages over participants. Heads start at 0. Cost of a round
    ``O(p m (d k + k^2))``. With exact heads and m <= k the residual is zero, so the gradient is exactly zero and B does
    not change.

    **Deviations**: Algorithm 2 as printed, and the paper's experiments, do not normalise B. The paper's analysis does,
    and it is the default here; ``orthonormalize=False`` switches it off, which is not equivalent. R has a positive
    diagonal. Schedules, a ridge on heads, `aggregate` and `rotate_heads` are additions.

    References
    ----------
    FedRep paper, Algorithms 1 and 2, section 4.1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(n_samples=10),
    ...                      rounds=100, trials=3, seed=0)
    >>> bool((result.metrics["subspace_distance"][:, -1] < 1e-6).all())
    True
    """

    rank: int
    step_size: StepSize
    init: Initial | str | npt.ArrayLike = "moments"
    heads: HeadSolver = field(default_factory=ExactHeads)
    representation_steps: int = 1
    orthonormalize: bool = True
    aggregate: Literal["mean", "sum"] = "mean"
    rotate_heads: bool = False

    summary: ClassVar[str] = "shared representation B, personal heads: exact or gradient heads, QR-normalised B"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=checked_step_size,
            init=converted(as_initial),
            heads=instance(HeadSolver, "lf.ExactHeads() or lf.GradientHeads(steps=..., step_size=...)"),
            aggregate=one_of("mean", "sum"),
            representation_steps=check_integer,
            orthonormalize=check_bool,
            rotate_heads=check_bool,
        )
        if self.rotate_heads and not self.orthonormalize:
            raise ValueError("rotate_heads = True requires orthonormalize = True, whose QR factorisation gives R")

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch."""
        return Requires.FEATURES if self.representation_steps == 1 else Requires.QUADRATIC

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def check_loss(self, classes: int) -> None:
        """Raise if heads are exact or rotated and the task is classification."""
        check_heads_loss("heads", self.heads, classes)
        if classes and self.rotate_heads:
            raise ValueError(f"rotate_heads = True supports only regression, but the samples have {classes} classes")

    def for_rounds(self, rounds: int) -> Self:
        """Return the algorithm with one step size and one ridge per round instead of functions."""
        found, heads = super().for_rounds(rounds), self.heads.for_rounds(rounds)
        return found if heads is self.heads else replace(found, heads=heads)

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init` and all heads at 0."""
        B = start.representation(self.init, self.rank)
        return State(B=B, W=start.zeros(start.n_clients, self.rank))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round (Algorithm 2; Algorithm 1 with gradient heads and local steps)."""
        B = state.array("B")
        step_size = self.step_in(batch)
        heads = self.heads.in_round(batch)
        fit = heads.solve(batch.project(B), state.take_clients("W", batch.active), step_size)
        moved = self._server_update(B, fit, step_size, rng)
        if not self.orthonormalize:
            return state.update(B=moved, W=fit.W, active=batch.active)
        if not self.rotate_heads:
            return state.update(B=orthonormalize(moved), W=fit.W, active=batch.active)
        B, R = qr_positive(moved)
        new = state.update(B=B, W=fit.W, active=batch.active)
        return new.update(W=new.array("W") @ R.mT)

    def _server_update(self, B: Array, fit: Fit, step_size: float, rng: TrialRandom) -> Array:
        """Return B after the server's aggregation, before any QR."""
        return update_representation(B, fit, step_size, self.representation_steps, summed=self.aggregate == "sum")

    def adapt(self, state: State, batch: Batch) -> State:
        """Return new clients' exact heads at B, with the ridge of the last round."""
        B = state.array("B")
        return State(B=B, W=self.heads.adapt(batch.project(B)).W)
