"""Oracle: exact heads on the true subspace, a reference for plots and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from linfed._values import check_fields, non_negative
from linfed.algorithms.initial import Initial, TrueSubspace
from linfed.algorithms.parts.base import Algorithm, Communication, InitContext, Requires, State
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class Oracle(Algorithm):
    """Exact heads on the true subspace, as if the representation were known.

    Parameters
    ----------
    rank : int
        Columns k. The subspace is the span of ``B*``. If the rank of the ground truth exceeds k, it is the subspace of
        smallest risk with personal heads (`Truth.reference`), which is ``U_k`` for isotropic x.
    ridge : float, default 0.0
        Weight of the penalty ``(ridge / 2) ||w||^2`` in each client's loss ``(1 / 2m) ||Z_i w - y_i||^2``.

    Raises
    ------
    ValueError
        If the rank is below 1, or the ridge is negative; in `simulate` also for classification, or if the ground truth
        has no such subspace.

    Notes
    -----
    ``w_i = argmin_w (1/2m) ||X_i B* w - y_i||^2``, of minimum norm if m < k. With fixed data one round with full
    participation is enough; with fresh data each participant is refitted on its latest batch. The risk is a reference,
    not a lower bound: with noise and few samples a ridge regression can be better. Cost of a round
    ``O(p m (d k + k^2))``.

    **Deviations**: not in the paper.

    References
    ----------
    FedRep paper, problem (3) at ``B = B*``; FLUTE paper, section 3 (the truncation ``Phi_k``).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=10, rank=2)
    >>> result = lf.simulate(lf.Oracle(rank=2), problem, data=lf.FixedSamples(5), n_rounds=1)
    >>> bool(result.metrics["parameter_error"][0, -1] < 1e-12)
    True
    """

    rank: int
    ridge: float = 0.0

    requires: ClassVar[Requires] = Requires.FEATURES
    description: ClassVar[str] = "exact heads on the true subspace B* (or U_k): a reference"

    def __post_init__(self) -> None:
        check_fields(self, rank=check_integer, ridge=non_negative)

    @property
    def initialization(self) -> Initial:
        """Initialisation at the true subspace."""
        return TrueSubspace()

    def initial_state(self, start: InitContext) -> State:
        """Return the true subspace and all heads at 0."""
        B = start.representation(self.initialization, self.rank)
        return State(B=B, W=start.zeros(start.n_clients, self.rank))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the participants' exact heads."""
        return state.update(W=batch.project(state.array("B")).fit(self.ridge).W, active=batch.active)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the exact heads of the batch's clients."""
        B = state.array("B")
        return State(B=B, W=batch.project(B).fit(self.ridge).W)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return 0 floats: clients fit their heads locally."""
        return Communication(0.0, 0.0)
