"""Beginnings that know the truth: its subspace, and those at a given distance from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from linfed._types import Array
from linfed._values import check_fields
from linfed.algorithms.initial.base import Initial, InitialStart
from linfed.errors import check_number
from linfed.numerics.linalg import orthonormalize


@dataclass(frozen=True)
class AtDistance(Initial):
    """A subspace at a given distance from the truth's: all k principal angles have the sine `delta`.

    Parameters
    ----------
    delta : float, 0 <= delta <= 1
        Sine of every principal angle to the reference subspace; needs ``dim >= 2 rank`` and a truth.

    Notes
    -----
    ``B = sqrt(1 - delta^2) B* O + delta P`` with O a uniform rotation and P uniform among the orthonormal (d, k)
    matrices orthogonal to B*.

    **Deviations**: an addition, for experiments on rates.
    """

    delta: float

    needs_truth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, delta=partial(check_number, minimum=0.0, maximum=1.0))

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise if there is no room beside the reference subspace."""
        if dim < 2 * rank:
            raise ValueError(f"init = {self!r} needs dim >= 2 rank; got dim = {dim}, rank = {rank}")

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return B at its distance from the truth's subspace."""
        rng, reference = start.random(), start.true_subspace(rank)
        random = rng.standard_normal((start.dim, rank))
        # Twice is enough: the second projection removes what rounding left of the first.
        for _ in range(2):
            random = orthonormalize(random - reference @ (reference.mT @ random))
        turn = orthonormalize(rng.standard_normal((rank, rank)))
        return math.sqrt(1.0 - self.delta**2) * (reference @ turn) + self.delta * random


@dataclass(frozen=True)
class TrueSubspace(Initial):
    """The truth's own subspace: ``B*``, or its top-k left singular subspace ``U_k`` where its rank is above k.

    Notes
    -----
    What `Oracle` uses; `Truth.reference` says what ``U_k`` is under a covariance of x.

    **Deviations**: an addition, a reference line.
    """

    needs_truth: ClassVar[bool] = True

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the truth's subspace."""
        return start.true_subspace(rank)
