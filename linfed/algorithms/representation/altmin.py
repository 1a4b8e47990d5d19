"""Alternating minimisation (Thekumparampil, Jain, Netrapalli and Oh 2021): exact heads, then the exact B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import check_fields, converted, non_negative, one_of
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.parts.base import Algorithm, Communication, InitContext, Requires, State
from linfed.algorithms.parts.models import relative_weights
from linfed.checks import check_bool, check_integer
from linfed.data.batch import Batch
from linfed.numerics.least_squares import semidefinite
from linfed.numerics.linalg import RANK_TOLERANCE, qr_positive, solve
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class AltMin(Algorithm):
    r"""Alternating minimisation of the clients' mean loss over the heads and over B.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    init : "moments", "random", Initial or array_like (d, k) or (trials, d, k)
        Initial B.
    disjoint_samples : bool
        If True, heads are fitted on the first half of a client's samples, and B on the others.
    weights : "uniform" or "samples"
        Weights omega_i of the participants: equal, or proportional to their numbers of samples. Their mean is 1.
    ridge : float, default 0.0
        Weight of the penalty ``(ridge / 2) ||w||^2`` in the fit of each head.

    Raises
    ------
    ValueError
        If a value is out of range; in `simulate` also for classification, if the rank exceeds d, or with
        ``disjoint_samples=True`` if a client has a single sample.

    Notes
    -----
    One round, with participants I:

    .. math::

        w_i &\leftarrow \arg\min_w \tfrac{1}{2m_i} \|X_i B w - y_i\|^2 + \tfrac{\text{ridge}}{2} \|w\|^2 \\
        B &\leftarrow \arg\min_B \sum_{i \in I} \omega_i \tfrac{1}{2m_i} \|X_i B w_i - y_i\|^2

    Then B is replaced by its Q factor and every head w by ``R w``, which keeps the predictors ``B w``. So on fixed
    samples, with full participation and without `disjoint_samples`, the training loss, weighted by omega_i, never rises
    if there is no ridge. A ridge keeps heads short if a client's features are nearly dependent, as with a rare
    category.

    The second step solves a linear system of size ``d k``, which determines B only if ``p m >= d k``, with m the
    samples of this step. Otherwise the change of B has minimum norm, up to directions in which the eigenvalues of the
    normal equations are below 1e-12 of their trace. With m <= k the heads explain all samples, and without
    `disjoint_samples` B does not change. Cost of a round ``O(p m d^2 + p d^2 k^2 + (d k)^3)``, memory
    ``O(p d^2 + (d k)^2)``.

    **Deviations**: the source draws other samples in each half-round: fresh data with ``disjoint_samples=True``.
    `weights` and `ridge` are additions.

    References
    ----------
    Thekumparampil, Jain, Netrapalli and Oh 2021, "Sample efficient linear meta-learning by alternating minimization",
    Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=10, rank=2)
    >>> result = lf.simulate(lf.AltMin(rank=2), problem, data=lf.FixedSamples(n_samples=10), n_rounds=20)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 1e-10)
    True
    """

    rank: int
    init: Initial | str | npt.ArrayLike = "moments"
    disjoint_samples: bool = False
    weights: Literal["uniform", "samples"] = "uniform"
    ridge: float = 0.0

    description: ClassVar[str] = "exact heads, then the exact least squares for B"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            init=converted(as_initial),
            disjoint_samples=check_bool,
            weights=one_of("uniform", "samples"),
            ridge=non_negative,
        )

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch."""
        return Requires.ROWS if self.disjoint_samples else Requires.QUADRATIC

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init` and all heads at 0."""
        B = start.representation(self.init, self.rank)
        return State(B=B, W=start.zeros(start.n_clients, self.rank))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        B = state.array("B")
        first, second = batch.split(rest=True) if self.disjoint_samples else (batch, batch)
        W = first.project(B).fit(self.ridge).W
        weights = relative_weights(second, self.weights)
        inverse, R = _inverse(second.normal_equations()[0] * weights[..., None, None], W)
        for _ in range(2):  # the second step corrects the rounding errors of the normal equations
            gradient = solve(R.mT, second.project(B).representation_gradient(W, weights).mT)
            B = B - solve(R, (inverse @ gradient.reshape(len(B), -1, 1)).reshape(gradient.shape)).mT
        B, R = qr_positive(B)
        new = state.update(B=B, W=W, active=batch.active)
        return new.update(W=new.array("W") @ R.mT)  # also of the other clients: the factorisation keeps every B w

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the heads of the batch's clients at B, with the ridge."""
        B = state.array("B")
        return State(B=B, W=batch.project(B).fit(self.ridge).W)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of a client's head and normal equations (up)."""
        return Communication(float(dim * self.rank), self.rank + dim * (dim + 1) / 2.0 + dim)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B and W."""
        return self.rank * (n_clients + dim)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the participants' matrices, of the linear system, and of divided samples."""
        copies = participants * samples * (dim + 1) if self.disjoint_samples else 0
        return 2 * participants * dim * dim + 6 * (dim * self.rank) ** 2 + copies


def _inverse(A: Array, W: Array) -> tuple[Array, Array]:
    """Return the pseudo-inverse of ``V -> sum_i A_i V q_i q_i'`` for V' as a vector, (T, k d, k d), and R (T, k, k).

    Here A is (T, p, d, d) and W is (T, p, k), with ``w_i = R'q_i``. The q_i are orthonormal if the system is regular:
    nearly parallel heads then cost no digits. Otherwise R is the identity, as the shortest change of B depends on it.
    """
    trials, _, d = A.shape[:3]
    k = W.shape[-1]
    inverse, factors = np.empty((trials, k * d, k * d)), np.repeat(np.eye(k)[None], trials, axis=0)
    for trial in range(trials):  # one trial at a time, as a system has (k d)^2 entries
        Q, R = np.linalg.qr(W[trial])
        if len(R) == k and (np.abs(R.diagonal()) > RANK_TOLERANCE * np.abs(R).max(axis=0)).all():
            parts = semidefinite(_system(A[trial], Q))
            if (parts.values > 0).all():
                inverse[trial], factors[trial] = parts.pseudo_inverse(), R
                continue
        inverse[trial] = semidefinite(_system(A[trial], W[trial])).pseudo_inverse()
    return inverse, factors


def _system(A: Array, W: Array) -> Array:
    """Return the matrix (k d, k d) of ``V -> sum_i A_i V w_i w_i'``, for A (p, d, d) and W (p, k)."""
    (p, d, _), k = A.shape, W.shape[-1]
    outer = (W[:, :, None] * W[:, None, :]).reshape(p, k * k)
    blocks = (outer.T @ A.reshape(p, d * d)).reshape(k, k, d, d)
    return blocks.transpose(0, 2, 1, 3).reshape(k * d, k * d)
