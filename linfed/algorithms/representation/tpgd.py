"""Two-phase gradient descent (Ding, Du and Fang 2026): on the loss alone, then with a balancing penalty."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy.typing as npt

from linfed._values import check_fields, converted
from linfed.algorithms.initial import InitialFactors, SmallRandom, as_factors
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.algorithms.representation.flute import FLUTE
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class TPGD(Scheduled):
    r"""Gradient descent on B and all heads: first on the loss alone, then with the penalty of `FLUTE`.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta > 0; or a schedule, as in `FedRep`.
    first_phase : int
        Number of rounds without the penalty.
    init : InitialFactors, or a pair of array_like (B, W)
        Small initial B and W, ``lf.SmallRandom(alpha)``; as in `FLUTE`.

    Raises
    ------
    ValueError
        If a value is out of range; in `simulate` also for classification, or if the rank exceeds d.

    Notes
    -----
    Gradient steps of size eta on ``sum_i (1/2m) ||X_i B w_i - y_i||^2``, and after `first_phase` rounds on the sum of
    it and ``(1/8) ||B'B - W'W||_F^2``. A round is one of `FLUTE` with ``gamma1 = 1/4``, ``gamma2 = 1/8``, and in the
    first phase with ``server_step_size = 0``. From small factors the difference ``B'B - W'W`` stays small without the
    penalty. Cost as `FLUTE`.

    **Deviations**: schedules and partial participation are additions.

    References
    ----------
    Ding, Du and Fang 2026, "Near-optimal and efficient first-order algorithm for multi-task learning with shared linear
    representation".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=30, dim=10, rank=2)
    >>> algorithm = lf.TPGD(rank=2, step_size=0.01, first_phase=200)
    >>> result = lf.simulate(algorithm, problem, data=lf.FixedSamples(n_samples=30), n_rounds=1000)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 1e-6)
    True
    """

    rank: int
    step_size: StepSize
    first_phase: int
    init: InitialFactors | tuple[npt.ArrayLike, npt.ArrayLike] = field(default_factory=SmallRandom)

    requires: ClassVar[Requires] = Requires.GRADIENTS
    description: ClassVar[str] = (
        "gradient descent on B and all heads: first on the loss alone, then with a balancing penalty"
    )

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=checked_step_size,
            first_phase=lambda name, value: check_integer(name, value, minimum=0),
            init=converted(as_factors),
        )

    @property
    def initialization(self) -> InitialFactors:
        """Initialisation of B and W."""
        return as_factors(self.init)

    def initial_state(self, start: InitContext) -> State:
        """Return B and W from `init`."""
        B, W = start.factors(self.init, self.rank)
        return State(B=B, W=W)

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        return self._of_round(batch).step(state, batch, rng)

    def _of_round(self, batch: Batch) -> FLUTE:
        """Return the algorithm of a round."""
        penalty = self.step_in(batch) if batch.round > self.first_phase else 0.0
        return FLUTE(rank=self.rank, step_size=self.step_in(batch), server_step_size=penalty)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B and the client's head (down) and of both gradients (up)."""
        size = float(self.rank * (dim + 1))
        return Communication(size, size)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B and W, and of the participants' predictors and gradients."""
        return self.rank * (n_clients + dim) + participants * dim
