"""Beginnings that know nothing: Gaussian factors, and the subspace of one of them."""

from __future__ import annotations

from dataclasses import dataclass

from linfed._types import Array
from linfed._values import check_fields, optional, positive
from linfed.algorithms.initial.base import Initial, InitialFactors, InitialStart
from linfed.numerics.linalg import orthonormalize


@dataclass(frozen=True)
class RandomSubspace(Initial):
    """The column space of a standard Gaussian (d, k) matrix: uniform over subspaces.

    Notes
    -----
    With one seed it is the Q factor of the B that `SmallRandom` draws: FedRep(RI) of FLUTE's figures.

    **Deviations**: FLUTE's experiments start FedRep(RI) at FLUTE's own Gaussian draw; here it is orthonormalised.
    """

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the Q factor of the Gaussian matrix."""
        return orthonormalize(start.random().standard_normal((start.dim, rank)))


@dataclass(frozen=True)
class SmallRandom(InitialFactors):
    """Small Gaussian factors: all entries of B and W are independent N(0, alpha^2).

    Parameters
    ----------
    alpha : float, optional
        Standard deviation; ``1 / (10 d)`` by default.

    Notes
    -----
    **Deviations**: none.

    References
    ----------
    FLUTE paper, Algorithm 1, line 2; Theorem 5.1 and Appendix C.1 for alpha.
    """

    alpha: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, alpha=optional(positive))

    def resolve(self, start: InitialStart, rank: int) -> tuple[Array, Array]:
        """Return the factors; B comes first, so that it is what `RandomSubspace` draws."""
        rng, alpha = start.random(), 1.0 / (10.0 * start.dim) if self.alpha is None else self.alpha
        B, W = (rng.standard_normal((rows, rank)) for rows in (start.dim, start.n_clients))
        B *= alpha
        W *= alpha
        return B, W
