"""FedRep with shortcuts (the shortcut draft): shared representation plus a personal full-dimensional part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from linfed._types import Mask
from linfed._values import check_fields, converted, instance, non_negative, optional
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.parts.base import InitContext, Requires, State
from linfed.algorithms.parts.heads import AtHeads, update_representation
from linfed.algorithms.parts.overshooting import overshoots_on_representation
from linfed.algorithms.parts.solvers import ClosedForm, GradientSteps, Solver
from linfed.algorithms.parts.step_size import (
    Schedule,
    Scheduled,
    StepSize,
    checked_ridge,
    checked_step_size,
    last_value,
    value_at,
    values_of_rounds,
)
from linfed.checks import check_bool, check_inside, check_integer
from linfed.data.batch import Batch
from linfed.data.rows import factor_floats
from linfed.numerics.linalg import orthonormalize
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class FedRepShortcut(Scheduled):
    r"""Shared representation B with a head and a shortcut per client: ``theta_i = B w_i + s_i``.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the step size for B; or a schedule, as in `FedRep`.
    solver : GradientSteps or ClosedForm
        Update of head and shortcut in a round: gradient steps (the draft's Algorithm 1), or least squares (its (2) and
        (3)). Both have a parameter `order`.
    representation_steps : int
        Local steps on B before the server averages.
    mixing : float, optional
        alpha in (0, 1): the predictor is ``(1 - alpha) B w_i + alpha s_i`` (Lemma 2); a plain sum by default.
    ridge : float, array_like (n_rounds,) or callable
        Weight of the penalty ``(ridge / 2) ||s_i||^2`` in every client's loss; or a schedule, as for `step_size`. New
        clients have the ridge of the last round, or none with `refit`.
    refit : bool
        If True, refit head and shortcut without the ridge after the last round, choosing the least-squares solution
        with the shortest shortcut.
    init : "moments", "random", Initial or array_like (d, k) or (trials, d, k)
        Initial B; heads and shortcuts start at 0.

    Raises
    ------
    TypeError
        If `solver` is neither `GradientSteps` nor `ClosedForm`.
    ValueError
        If a value is out of range, or for ``lf.ClosedForm(order="joint")`` without a ridge; in `simulate` also for
        classification, or if the rank exceeds d.

    Notes
    -----
    One round for a participant, with ``Z_i = X_i B`` and everything on the right at its last values (order "jacobi"):

    .. math::

        w_i &\leftarrow \arg\min_w \tfrac{1}{2m} \|Z_i w + X_i s_i - y_i\|^2 \qquad \text{(2), or gradient steps} \\
        s_i &\leftarrow \arg\min_s \tfrac{1}{2m} \|Z_i w_i + X_i s - y_i\|^2 + \tfrac{\text{ridge}}{2} \|s\|^2
            \qquad \text{(3), or gradient steps} \\
        B &\leftarrow \operatorname{qr}\Bigl(B - \eta \tfrac{1}{p} \sum_i
            \tfrac{1}{m} X_i^\top (Z_i w_i + X_i s_i - y_i) w_i^\top\Bigr) \qquad \text{(4), (5), at the new } w, s

    If a solution is not unique, the one of minimum norm is used. The server averages over participants; the other
    clients keep head and shortcut. Without a ridge the closed form cannot learn B: once s_i solves its least-squares
    problem, the gradient on B has no component towards B* (docs/shortcut.md). As in `FedRep`, the recorded heads and
    shortcuts were computed before B moved.

    The state stores the contributions to the predictor: with `mixing`, ``W`` is ``(1 - alpha) w_i`` and ``S`` is
    ``alpha s_i``. The head's step size is therefore multiplied by ``(1 - alpha)^2``, the shortcut's by ``alpha^2`` and
    the ridge by ``1 / alpha^2``; the step size for B is unchanged. Cost of a round ``O(p (m d^2 + d^3))`` for the
    closed form, ``O(p m d)`` per gradient step.

    **Deviations**: `ridge`, `refit`, schedules and the orders "gauss-seidel" and "joint" are additions. B is normalised
    as in the draft's analysis (5); Algorithm 1 does not mention it.

    References
    ----------
    Shortcut draft, Algorithm 1, (1) to (5), Lemma 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=40, dim=12, rank=2, shortcut_norm=0.3)
    >>> algorithm = lf.FedRepShortcut(rank=2, step_size=0.3, solver=lf.GradientSteps(shortcut_step_size=0.01))
    >>> result = lf.simulate(algorithm, problem, data=lf.FixedSamples(n_samples=60), n_rounds=300, seed=0)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 0.1)
    True
    """

    rank: int
    step_size: StepSize
    solver: Solver = field(default_factory=GradientSteps)
    representation_steps: int = 1
    mixing: float | None = None
    ridge: Schedule = 0.0
    refit: bool = False
    init: Initial | str | npt.ArrayLike = "moments"

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "shared representation, personal heads, and a personal full-dimensional shortcut"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=checked_step_size,
            init=converted(as_initial),
            solver=instance(Solver, "lf.GradientSteps(...) or lf.ClosedForm(order=...)"),
            representation_steps=check_integer,
            mixing=optional(check_inside),
            ridge=checked_ridge,
            refit=check_bool,
        )
        values = (self.ridge,) if isinstance(self.ridge, float) else () if callable(self.ridge) else self.ridge
        if self.solver == ClosedForm(order="joint") and 0 in values:
            raise ValueError(f"solver = {self.solver} requires ridge > 0: without it head and shortcut are not unique")

    @property
    def finishes(self) -> bool:
        """Whether head and shortcut are refitted after the last round."""
        return self.refit

    @property
    def _scales(self) -> tuple[float, float]:
        """Factors of head and shortcut in the predictor."""
        return (1.0, 1.0) if self.mixing is None else (1.0 - self.mixing, self.mixing)

    def ridge_in(self, batch: Batch) -> float:
        """Return the ridge in a batch's round."""
        return value_at(self.ridge, batch.round, "ridge", non_negative)

    def for_rounds(self, n_rounds: int) -> Self:
        """Return the algorithm with one step size and one ridge per round instead of functions."""
        found, ridge = super().for_rounds(n_rounds), values_of_rounds(self.ridge, n_rounds, "ridge", non_negative)
        return found if ridge is self.ridge else replace(found, ridge=ridge)

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init`, all heads and shortcuts at 0."""
        B = start.representation(self.init, self.rank)
        shape = start.trials, start.n_clients
        return State(B=B, W=np.zeros((*shape, self.rank)), S=np.zeros((*shape, start.dim)))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        B = state.array("B")
        W, S = state.take_clients("W", batch.active), state.take_clients("S", batch.active)
        step_size = self.step_in(batch)
        ridge = self.ridge_in(batch) / self._scales[1] ** 2  # on the shortcut's contribution to the predictor
        W, S = self.solver.solve(batch, B, W, S, ridge=ridge, step_size=step_size, scales=self._scales)
        features = batch.shifted(S).project(B)
        moved = update_representation(B, AtHeads(features, W), step_size, self.representation_steps)
        return state.update(B=orthonormalize(moved), W=W, S=S, active=batch.active)

    def overshoots(self, state: State, batch: Batch, share: float, variance: float | None) -> Mask | None:
        """Return the trials whose last step size for B exceeds the stability edge on fixed samples, which QR hides."""
        if variance is not None:
            return None
        weights = np.full(batch.active.shape, self.step_in(batch))
        rest = batch.shifted(state.take_clients("S", batch.active))
        return overshoots_on_representation(state, rest, weights, variance)

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with heads and shortcuts refitted at B, without the ridge."""
        W, S = batch.joint_least_squares(state.array("B"))
        return state.update(W=W, S=S)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return new clients' heads and shortcuts, fitted at B with the ridge; without a ridge as in `refit`."""
        B = state.array("B")
        ridge = 0.0 if self.refit else last_value(self.ridge, "ridge") / self._scales[1] ** 2
        W, S = batch.joint_least_squares(B, ridge)
        return State(B=B, W=W, S=S)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B, W and S."""
        return self.rank * (n_clients + dim) + 2 * n_clients * dim

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the participants' normal equations, of all clients at the end, or of a block's factors."""
        if self.refit:
            return 6 * n_clients * dim * dim
        if not isinstance(self.solver, ClosedForm):
            return 0
        return max(participants * dim * dim, factor_floats(participants, samples, dim, bool(self.ridge)))
