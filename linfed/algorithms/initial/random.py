"""Random initialisations: a uniform subspace, and small Gaussian factors."""

from __future__ import annotations

from dataclasses import dataclass

from linfed._types import Array
from linfed._values import check_fields, optional, positive
from linfed.algorithms.initial.base import Initial, InitialFactors, InitialStart
from linfed.numerics.linalg import orthonormalize


@dataclass(frozen=True)
class RandomSubspace(Initial):
    """Uniformly random initial subspace: the column space of a standard Gaussian (d, k) matrix.

    Notes
    -----
    For a given seed it is the Q factor of the B that `SmallRandom` draws: FedRep(RI) in FLUTE's figures.

    **Deviations**: FLUTE's experiments start FedRep(RI) from FLUTE's Gaussian draw; here B is orthonormalised.

    Examples
    --------
    >>> import linfed as lf, numpy as np
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=6, rank=2)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.RandomSubspace())
    >>> B = lf.simulate(algorithm, problem, data=lf.FreshSamples(20), n_rounds=0).final.B[0]
    >>> np.allclose(B.T @ B, np.eye(2))
    True
    """

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the Q factor of the Gaussian matrix."""
        return orthonormalize(start.random().standard_normal((start.dim, rank)))


@dataclass(frozen=True)
class SmallRandom(InitialFactors):
    """Small Gaussian initial factors: all entries of B and W are independent N(0, alpha^2).

    Parameters
    ----------
    alpha : float, optional
        Standard deviation; ``1 / (10 d)`` by default.

    Raises
    ------
    ValueError
        If `alpha` is not positive.

    References
    ----------
    FLUTE paper, Algorithm 1, line 2; Theorem 5.1 and Appendix C.1 for alpha.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=6, rank=2)
    >>> algorithm = lf.FLUTE(rank=2, step_size=0.03, init=lf.SmallRandom(alpha=1e-3))
    >>> state = lf.simulate(algorithm, problem, data=lf.FreshSamples(20), n_rounds=0).final
    >>> bool(abs(state.B).max() < 0.01 and abs(state.W).max() < 0.01)
    True
    """

    alpha: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, alpha=optional(positive))

    def resolve(self, start: InitialStart, rank: int) -> tuple[Array, Array]:
        """Return the factors; B is drawn first, with the Gaussian numbers of `RandomSubspace`."""
        rng, alpha = start.random(), 1.0 / (10.0 * start.dim) if self.alpha is None else self.alpha
        B, W = (rng.standard_normal((rows, rank)) for rows in (start.dim, start.n_clients))
        B *= alpha
        W *= alpha
        return B, W
