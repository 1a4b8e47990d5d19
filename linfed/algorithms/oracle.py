"""Oracle: exact heads on the true subspace, a reference line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from linfed._values import check_fields, non_negative
from linfed.algorithms.base import Algorithm, Asks, Communication, Start, State
from linfed.algorithms.initial import Initial, TrueSubspace
from linfed.data.batch import Batch
from linfed.errors import check_integer
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class Oracle(Algorithm):
    """Exact heads on the true subspace: what a client could do if the representation were known.

    Parameters
    ----------
    rank : int
        Columns k: the subspace is the span of ``B*``; where the truth's rank is above k, the one of least risk with
        heads of their own, which is ``U_k`` for isotropic x (`Truth.reference`).
    ridge : float, default 0.0
        Adds ``(ridge / 2) ||w||^2`` to each client's loss ``(1 / 2m) ||Z_i w - y_i||^2``.

    Raises
    ------
    ValueError
        For a rank below 1, a negative ridge; and in `simulate` without a truth that has such a subspace.

    Notes
    -----
    ``w_i = argmin_w (1/2m) ||X_i B* w - y_i||^2``, of minimum norm where m < k. With fixed data one round says all;
    with fresh data each participant is fitted anew on its latest batch. A reference, not a floor: with noise and few
    samples a ridge regression can be better. Cost of a round ``O(p m (d k + k^2))``.

    **Deviations**: an addition, a reference line.

    References
    ----------
    FedRep paper, problem (4) at ``B = B*``; FLUTE paper, section 3 (the truncation ``Phi_k``).
    """

    rank: int
    ridge: float = 0.0

    asks: ClassVar[Asks] = Asks.FEATURES
    summary: ClassVar[str] = "exact heads on the true subspace B* (or U_k): a reference line"

    def __post_init__(self) -> None:
        check_fields(self, rank=check_integer, ridge=non_negative)

    @property
    def initialisation(self) -> Initial:
        """The true subspace."""
        return TrueSubspace()

    def initial_state(self, start: Start) -> State:
        """Return the true subspace and all heads at 0."""
        B = start.representation(self.initialisation, self.rank)
        return State(B=B, W=start.zeros(start.n_clients, self.rank))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the participants' exact heads."""
        return state.update(W=batch.project(state.array("B")).fit(self.ridge).W, active=batch.active)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the exact heads of the batch's clients."""
        B = state.array("B")
        return State(B=B, W=batch.project(B).fit(self.ridge).W)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return nothing: clients fit their heads alone."""
        return Communication(0.0, 0.0)
