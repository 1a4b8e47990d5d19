"""ARMUL (Duan and Wang 2023): personal models near a common model or a shared subspace, with an unsquared penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy.typing as npt

from linfed._types import Array
from linfed._values import check_fields, converted, non_negative, one_of, optional, positive
from linfed.algorithms.initial import Initial, Moments, as_initial
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.heads import AtHeads
from linfed.algorithms.parts.models import client_weights, weighted_mean
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.checks import check_integer, short_repr
from linfed.data.batch import Batch
from linfed.numerics.linalg import orthonormalize
from linfed.numerics.norm_penalty import norm_penalised, norm_penalised_next_to_heads, shortened
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class ARMULState(State):
    """State with a common model ``shared`` (trials, 1, d) and personal parts ``parts`` (trials, n, d)."""

    shared: Array
    parts: Array

    per_client: ClassVar[frozenset[str]] = State.per_client | {"parts"}

    def for_prediction(self) -> State:
        """Return the predictors ``theta + s_i``."""
        return State(S=self.shared + self.parts)


@dataclass(frozen=True, kw_only=True)
class ARMUL(Scheduled):
    r"""Adaptive and robust multi-task learning: a penalty on the distance from a common model, or from a subspace.

    Parameters
    ----------
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the server's step size for theta or B; or a schedule, as in `FedRep`.
    penalty : float
        lambda >= 0, the weight of the penalty ``lambda ||s_i||``, which is not squared.
    rank : int, optional
        Columns k of B in low-rank ARMUL. Without it there is a common model theta (vanilla ARMUL).
    init : "moments", "random", Initial or array_like (d, k) or (trials, d, k)
        Initial B; theta, heads and personal parts start at 0.
    personal_steps : int, optional
        Proximal steps on the personal part in a round; by default its exact minimiser.
    personal_step_size : float, optional
        Step size of the proximal steps; eta by default.
    weights : "uniform" or "samples"
        Weights p_i of the participants' losses: equal, or proportional to their sample counts, as in the source.

    Raises
    ------
    ValueError
        If a value is out of range, `init` is given without a rank, or `personal_step_size` without `personal_steps`; in
        `simulate` also for classification, or if the rank exceeds d.

    Notes
    -----
    A client predicts with ``theta + s_i``, or with ``B w_i + s_i``. The algorithm minimises

    .. math::

        \sum_i p_i \bigl( f_i(\theta + s_i) + \lambda \|s_i\| \bigr), \text{ or }
        \sum_i p_i \bigl( f_i(B w_i + s_i) + \lambda \|s_i\| \bigr)

    One round for the participants, with the server's theta or B:

    .. math::

        s_i &\leftarrow \arg\min_s f_i(\theta + s) + \lambda \|s\|,
            \text{ or } w_i, s_i \leftarrow \arg\min_{w, s} f_i(B w + s) + \lambda \|s\| \\
        \theta &\leftarrow \theta - \eta \sum_i p_i \nabla f_i(\theta + s_i), \text{ or }
        B \leftarrow \operatorname{qr}\bigl(B - \eta \sum_i p_i \nabla f_i(B w_i + s_i) w_i^\top\bigr)

    With `personal_steps`, w_i is the exact head at the last s_i, and then every proximal step is
    ``s_i <- shorten(s_i - eta_s grad f_i(theta + s_i), eta_s lambda)``, where shorten(v, a) decreases the length of v
    by a, to at least 0. As in the source, clients predict with the new theta or B and the s_i of before.

    With a common model the objective is convex, and the steps of theta are gradient steps on a sum of Huber-like
    losses: far clients have an influence of at most lambda. A client whose loss has a gradient of length at most lambda
    at theta has ``s_i = 0``, so it equals the common model exactly. A large lambda gives `PooledLeastSquares`, or
    `FedRep` with exact heads, and lambda = 0 gives `LocalOnly`, of minimum norm from theta, or from the span of B. New
    clients are fitted exactly. Cost of a round ``O(p (m d^2 + d^3))``, or ``O(p m d)`` for each proximal step.

    **Deviations**: exact personal parts and heads, and QR of B, are additions. Lambda is the same for all clients; the
    source recommends one proportional to ``sqrt(d / m_i)``. The source's public code begins low-rank ARMUL at the
    singular vectors of the local fits, takes a gradient step on heads, and in its step on B multiplies the sum of all
    heads by the sum of all gradients. That is not the gradient, which is used here. The clustered form is missing.

    References
    ----------
    Duan and Wang 2023, "Adaptive and robust multi-task learning", Annals of Statistics 51(5); our reading of the
    estimators and of the authors' public code (kw2934/ARMUL).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SimilarRepresentations(
    ...     n_clients=40, dim=10, rank=1, heterogeneity=0.0, outliers=0.1, noise_std=0.5
    ... )
    >>> run = {"data": lf.FixedSamples(n_samples=20), "n_rounds": 50}
    >>> near = lf.simulate(lf.ARMUL(step_size=0.5, penalty=0.5), problem, **run)
    >>> pooled = lf.simulate(lf.PooledLeastSquares(), problem, **run)
    >>> alone = lf.simulate(lf.LocalOnly(), problem, **run)
    >>> best = min(pooled.metrics["risk"][0, -1], alone.metrics["risk"][0, -1])
    >>> bool(near.metrics["risk"][0, -1] < best)
    True
    """

    step_size: StepSize
    penalty: float
    rank: int | None = None
    init: Initial | str | npt.ArrayLike = "moments"
    personal_steps: int | None = None
    personal_step_size: float | None = None
    weights: Literal["uniform", "samples"] = "uniform"

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "personal models near a common model or a subspace, with an unsquared penalty"

    def __post_init__(self) -> None:
        check_fields(
            self,
            step_size=checked_step_size,
            penalty=non_negative,
            rank=optional(check_integer),
            init=converted(as_initial),
            personal_steps=optional(check_integer),
            personal_step_size=optional(positive),
            weights=one_of("uniform", "samples"),
        )
        if self.rank is None and self.init != Moments():
            raise ValueError(f"init = {short_repr(self.init)} requires rank=: without it there is no B")
        if self.personal_steps is None and self.personal_step_size is not None:
            raise ValueError(
                f"personal_step_size = {self.personal_step_size:g} requires personal_steps=: without it the personal "
                "parts are exact"
            )

    @property
    def learned_rank(self) -> int:
        """Columns of B; 0 with a common model."""
        return self.rank or 0

    @property
    def initialization(self) -> Initial | None:
        """Initialisation of B; None with a common model."""
        return None if self.rank is None else as_initial(self.init)

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init`, or theta at 0; heads and personal parts are 0."""
        parts = start.zeros(start.n_clients, start.dim)
        if self.rank is None:
            return ARMULState(shared=parts[:, :1].copy(), parts=parts)
        B = start.representation(self.init, self.rank)
        return State(B=B, W=start.zeros(start.n_clients, self.rank), S=parts)

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        eta, weights = self.step_in(batch), client_weights(batch, self.weights)
        if self.rank is None:
            theta = state.array("shared")
            rest = batch.shifted(theta)
            parts = self._exact(rest) if self.personal_steps is None else self._steps(rest, "parts", state, eta)
            slope = weighted_mean(rest.gradient(parts), weights)
            return state.update(shared=theta - eta * slope, parts=parts, active=batch.active)
        B = state.array("B")
        if self.personal_steps is None:
            W, S = self._jointly(B, batch)
        else:
            W = batch.shifted(state.take_clients("S", batch.active)).project(B).fit().W
            S = self._steps(batch.shifted(W @ B.mT), "S", state, eta)
        slope = AtHeads(batch.shifted(S).project(B), W).representation_gradient(weights)
        return state.update(B=orthonormalize(B - eta * slope), W=W, S=S, active=batch.active)

    def _exact(self, rest: Batch) -> Array:
        """Return the minimisers of ``f_i(s) + penalty ||s||``, (T, p, d)."""
        return norm_penalised(*rest.normal_equations(), self.penalty) if self.penalty else rest.least_squares()

    def _jointly(self, B: Array, batch: Batch) -> tuple[Array, Array]:
        """Return the heads and the personal parts that minimise ``f_i(B w + s) + penalty ||s||``."""
        if self.penalty == 0:
            return batch.joint_least_squares(B)
        S = norm_penalised_next_to_heads(*batch.normal_equations(), B, self.penalty)
        return batch.shifted(S).project(B).fit().W, S

    def _steps(self, rest: Batch, name: str, state: State, eta: float) -> Array:
        """Return the participants' personal parts after their proximal steps, (T, p, d)."""
        assert self.personal_steps is not None
        S, size = state.take_clients(name, rest.active), self.personal_step_size or eta
        for _ in range(self.personal_steps):
            S = shortened(S - size * rest.gradient(S), size * self.penalty)
        return S

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the minimisers of the new clients' losses with the penalty."""
        if self.rank is None:
            theta = state.array("shared")
            return State(S=theta + self._exact(batch.shifted(theta)))
        B = state.array("B")
        W, S = self._jointly(B, batch)
        return State(B=B, W=W, S=S)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of theta or B (down) and of a gradient on it (up)."""
        size = float(dim * (self.rank or 1))
        return Communication(size, size)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B, the heads, the personal parts and their changes."""
        return self.learned_rank * (n_clients + dim) + (n_clients + 3 * participants + 1) * dim

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the participants' normal equations and their decompositions."""
        return 6 * participants * dim * dim if self.personal_steps is None else 0
