"""Initialisations that use the ground truth: its subspace, and subspaces at a given distance from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from linfed._types import Array
from linfed._values import check_fields
from linfed.algorithms.initial.base import Initial, InitialStart
from linfed.checks import check_number
from linfed.numerics.linalg import orthonormalize


@dataclass(frozen=True)
class AtDistance(Initial):
    """Initial subspace at a given distance from the true one: all k principal angles have the sine `delta`.

    Parameters
    ----------
    delta : float, 0 <= delta <= 1
        Sine of every principal angle to the reference subspace; requires ``dim >= 2 rank`` and a ground truth.

    Raises
    ------
    ValueError
        If `delta` is out of range; in `simulate` also if ``dim < 2 rank`` or without a ground truth.

    Notes
    -----
    ``B = sqrt(1 - delta^2) B* O + delta P`` with O a uniformly distributed orthogonal (k, k) matrix and P uniform among
    the orthonormal (d, k) matrices orthogonal to B*.

    **Deviations**: an addition, for experiments on rates.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=6, rank=2)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.3))
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(20), n_rounds=0)
    >>> round(float(result.metrics["subspace_distance"][0, 0]), 12)
    0.3
    """

    delta: float

    needs_truth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_fields(self, delta=partial(check_number, minimum=0.0, maximum=1.0))

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise if the orthogonal complement of the reference subspace is too small."""
        if dim < 2 * rank:
            raise ValueError(f"init = {self!r} requires dim >= 2 rank; got dim = {dim}, rank = {rank}")

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return B at distance `delta` from the true subspace."""
        rng, reference = start.random(), start.true_subspace(rank)
        random = rng.standard_normal((start.dim, rank))
        # Two projections are enough: the second removes the rounding error of the first.
        for _ in range(2):
            random = orthonormalize(random - reference @ (reference.mT @ random))
        turn = orthonormalize(rng.standard_normal((rank, rank)))
        return math.sqrt(1.0 - self.delta**2) * (reference @ turn) + self.delta * random


@dataclass(frozen=True)
class TrueSubspace(Initial):
    """Initial B at the true subspace: ``B*``, or its top-k left singular subspace ``U_k`` if its rank exceeds k.

    Notes
    -----
    `Oracle` uses this subspace. `Truth.reference` defines ``U_k`` under a covariance of x. Without a ground truth
    `simulate` raises a ValueError.

    **Deviations**: an addition, for references.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=6, rank=2)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.TrueSubspace())
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(20), n_rounds=0)
    >>> bool(result.metrics["subspace_distance"][0, 0] < 1e-12)
    True
    """

    needs_truth: ClassVar[bool] = True

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the subspace of the ground truth."""
        return start.true_subspace(rank)
