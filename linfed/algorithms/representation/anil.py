"""ANIL (Raghu, Raghu, Bengio and Vinyals 2020; Collins, Mokhtari, Oh and Shakkottai 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import check_fields, converted, positive
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.heads import gradient_descent
from linfed.algorithms.parts.meta import gradients_after_step
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.checks import check_bool, check_integer
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class ANIL(Scheduled):
    r"""Representation and shared head from which one gradient step on the head leads to good personal heads.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        beta > 0, the step size for B and the shared head; or a schedule, as in `FedRep`.
    adaptation_step_size : float
        alpha > 0, the step size of the clients' own step on the head.
    hessian : bool
        If False, neglect the derivatives of the own step (first-order variant); if True, use them (exactly, for
        regression only).
    init : "random", "moments", Initial or array_like (d, k) or (trials, d, k)
        Initial B.
    disjoint_samples : bool
        If True, a client's own step uses the first half of its samples, and the gradients after it use the others. If
        False (default), both use all samples.

    Raises
    ------
    ValueError
        If a value is out of range; in `simulate` also if the rank exceeds d, for classification with ``hessian=True``,
        or for ``disjoint_samples=True`` with a single sample.

    Notes
    -----
    One round, with the server's B and w and data D, D' of a client (the same, or two halves):

    .. math::

        w_i &= w - \alpha \nabla_w f_i(B w; D) \\
        B &\leftarrow B - \beta\, \tfrac{1}{p} \sum_{i \in I} \nabla_B f_i(B w_i; D'), \qquad
        w \leftarrow w - \beta\, \tfrac{1}{p} \sum_{i \in I} \nabla_w f_i(B w_i; D')

    With ``hessian=True`` the round is a gradient step on ``(1/p) sum_i f_i(B w_i; D')``, where w_i depends on B and w
    (exact ANIL). Let ``g_i`` be the gradient of ``f_i(.; D)`` on the predictor at ``B w``, ``A_i = X_i'X_i/m`` of D,
    ``v_i`` the gradient on the head in the formula above, and ``h_i = A_i B v_i``. The gradient on B is then smaller by
    ``alpha (h_i w' + g_i v_i')``, and the gradient on w by ``alpha B'h_i``.

    The head starts at 0. Clients predict with the server's B and w during the run; after the last round each client
    takes its own step, on all its samples. New clients do the same. Cost of a round ``O(p m d k)``. As alpha goes to 0,
    both variants become two-layer `FedAvg` with one local step, which minimises the average loss.

    **Deviations**: a round's participants take the place of a batch of tasks; by default D' is D, in the source it is
    another batch.

    References
    ----------
    Collins, Mokhtari, Oh and Shakkottai 2022, "MAML and ANIL provably learn representations", section 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=10, rank=2)
    >>> algorithm = lf.ANIL(rank=2, step_size=0.3, adaptation_step_size=0.5)
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(n_samples=50), n_rounds=300)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 0.05)
    True
    """

    rank: int
    step_size: StepSize
    adaptation_step_size: float
    hessian: bool = False
    init: Initial | str | npt.ArrayLike = "random"
    disjoint_samples: bool = False

    description: ClassVar[str] = (
        "representation and head from which one gradient step on the head leads to personal heads"
    )

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=checked_step_size,
            adaptation_step_size=positive,
            hessian=check_bool,
            init=converted(as_initial),
            disjoint_samples=check_bool,
        )

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch."""
        if self.disjoint_samples:
            return Requires.ROWS
        return Requires.QUADRATIC if self.hessian else Requires.FEATURES

    @property
    def finishes(self) -> bool:
        """True: every client takes its own step after the last round."""
        return True

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def check_loss(self, classes: int) -> None:
        """Raise for classification with the Hessian."""
        if classes and self.hessian:
            raise ValueError(f"hessian = True supports only regression, but the samples have {classes} classes")

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init` and the shared head at 0."""
        W = start.zeros(1, self.rank)
        return State(B=start.representation(self.init, self.rank), W=W, shared=W)

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        B, W = state.array("B"), state.array("W")
        first, second = batch.split(rest=True) if self.disjoint_samples else (batch, batch)
        if self.hessian:
            of_B, of_head = gradients_after_step(
                first, second, B, W, self.adaptation_step_size, all_layers=False, hessian=True
            )
        else:
            of_B, of_head = self._first_order(first, second, B, W)
        beta = self.step_in(batch)
        W = W - beta * of_head
        return state.update(B=B - beta * of_B, W=W, shared=W)

    def _first_order(self, first: Batch, second: Batch, B: Array, W: Array) -> tuple[Array, Array]:
        """Return the mean gradients on B (T, d, k) and on the head (T, 1, k) at the clients' own heads."""
        features = first.project(B)
        own = gradient_descent(features, self._for_clients(W, first), self.adaptation_step_size, 1).W
        after = features if second is first else second.project(B)
        of_heads, of_B = after.gradients(own)
        return of_B, of_heads.mean(axis=1, keepdims=True)

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with each client's own head, (T, n, k)."""
        return state.update(W=self.adapt(state, batch).array("W"))

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the clients' heads after one step from the shared head."""
        B = state.array("B")
        heads = self._for_clients(state.array("shared"), batch)
        return State(B=B, W=gradient_descent(batch.project(B), heads, self.adaptation_step_size, 1).W)

    @staticmethod
    def _for_clients(W: Array, batch: Batch) -> Array:
        """Return the shared head (T, 1, k) once per participant."""
        return np.repeat(W, batch.active.shape[-1], axis=1)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B and the shared head (down) and of both gradients (up)."""
        head = classes * (self.rank + 1) if classes else self.rank
        size = float(dim * self.rank + head)
        return Communication(size, size)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of divided samples."""
        return participants * samples * (dim + 1) if self.disjoint_samples else 0
