"""Initial representations. What needs data or the truth is resolved by the loop, never by an algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_array, check_choice, check_integer, check_number, shown


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Method of moments: top-k eigenvectors of ``(1/n) sum_i (1/m) sum_j y_ij^2 x_ij x_ij'``.

    Parameters
    ----------
    clients : int, optional
        Use the first so many clients only; all by default.

    Notes
    -----
    Fresh data give it a batch of its own, from streams of their own; fixed or given data are used as they are. Cost
    O(n m d^2), streamed in blocks of clients.

    **Deviations**: the subset of clients is an addition.

    References
    ----------
    FedRep paper, Algorithm 2; Tripuraneni, Jin and Jordan 2021.
    """

    clients: int | None = None

    def __post_init__(self) -> None:
        if self.clients is not None:
            object.__setattr__(self, "clients", check_integer("clients", self.clients))


@dataclass(frozen=True)
class RandomSubspace:
    """The column space of a standard Gaussian (d, k) matrix: uniform over subspaces.

    Notes
    -----
    With one seed it is the Q factor of the B that `SmallRandom` draws: FedRep(RI) of FLUTE's figures.

    **Deviations**: FLUTE's experiments start FedRep(RI) at FLUTE's own Gaussian draw; here it is orthonormalised.
    """


@dataclass(frozen=True)
class AtDistance:
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", check_number("delta", self.delta, minimum=0.0, maximum=1.0))


@dataclass(frozen=True)
class TrueSubspace:
    """The truth's own subspace: ``B*``, or its top-k left singular subspace ``U_k`` where its rank is above k.

    Notes
    -----
    Resolved by the loop (`Truth.reference`, which says what ``U_k`` is under a covariance of x); what `Oracle` uses.

    **Deviations**: an addition, a reference line.
    """


@dataclass(frozen=True, eq=False)
class GivenSubspace:
    """A representation given as an array, used as it is (not orthonormalised).

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)

    Notes
    -----
    **Deviations**: an addition, to replay other implementations.
    """

    B: npt.ArrayLike

    def __post_init__(self) -> None:
        value = check_array("init", self.B, [("d", "k"), ("trials", "d", "k")])
        value.setflags(write=False)
        object.__setattr__(self, "B", value)

    @property
    def array(self) -> Array:
        """The array itself."""
        return np.asarray(self.B)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GivenSubspace) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.array.shape, (self.array + 0.0).tobytes()))


@dataclass(frozen=True)
class SmallRandom:
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
        if self.alpha is not None:
            object.__setattr__(self, "alpha", check_number("alpha", self.alpha, positive=True))


@dataclass(frozen=True, eq=False)
class GivenFactors:
    """Representation and heads given as arrays.

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)
    W : array_like (n, k) or (trials, n, k)

    Notes
    -----
    **Deviations**: an addition, to replay other implementations and to go on from a state.
    """

    B: npt.ArrayLike
    W: npt.ArrayLike

    def __post_init__(self) -> None:
        for name, rows in (("B", "d"), ("W", "n")):
            value = check_array(f"init {name}", getattr(self, name), [(rows, "k"), ("trials", rows, "k")])
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        trials = {array.shape[0] for array in self.arrays if array.ndim == 3}
        if len(trials) > 1:
            raise ValueError(f"init has arrays for {sorted(trials)} trials; B and W must agree")

    @property
    def arrays(self) -> tuple[Array, Array]:
        """B and W."""
        return np.asarray(self.B), np.asarray(self.W)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GivenFactors) and all(
            np.array_equal(mine, its) for mine, its in zip(self.arrays, other.arrays, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple((array + 0.0).tobytes() for array in self.arrays))


Factors: TypeAlias = SmallRandom | GivenFactors
Initial: TypeAlias = Moments | RandomSubspace | AtDistance | TrueSubspace | GivenSubspace
NAMED: dict[str, Initial] = {"moments": Moments(), "random": RandomSubspace()}


def as_initial(value: Initial | str | npt.ArrayLike) -> Initial:
    """Return an initial representation from itself, from its name, or from an array."""
    if isinstance(value, Initial):
        return value
    if isinstance(value, str):
        return NAMED[check_choice("init", value, NAMED)]
    if value is None or np.isscalar(value) or isinstance(value, SmallRandom | GivenFactors):
        raise ValueError(f"init = {shown(value)} must be 'moments', 'random', lf.AtDistance(delta) or an array (d, k)")
    return GivenSubspace(value)


def as_factors(value: Factors | tuple[npt.ArrayLike, npt.ArrayLike]) -> Factors:
    """Return initial factors from themselves, or from a pair of arrays (B, W)."""
    if isinstance(value, Factors):
        return value
    if (
        isinstance(value, tuple | list)
        and len(value) == 2
        and not any(part is None or np.isscalar(part) for part in value)
    ):
        return GivenFactors(*value)
    raise ValueError(f"init = {shown(value)} must be lf.SmallRandom(alpha) or a pair of arrays, (B, W)")


def check_factors(rank: int, init: Factors, n_clients: int, dim: int) -> None:
    """Raise if factors of `rank` columns do not fit the sizes, or given ones have other shapes."""
    if rank > dim:
        raise ValueError(f"rank = {rank} must be at most dim = {dim}")
    if isinstance(init, GivenFactors):
        for name, array, rows in zip(("B", "W"), init.arrays, (dim, n_clients), strict=True):
            if array.shape[-2:] != (rows, rank):
                raise ValueError(
                    f"init {name} has shape {array.shape}, expected ({rows}, {rank}), with or without a leading trial "
                    "axis"
                )


def given_trials(init: object) -> int | None:
    """Return the number of trials that a given init has arrays for; None if it serves any number."""
    arrays = (init.array,) if isinstance(init, GivenSubspace) else init.arrays if isinstance(init, GivenFactors) else ()
    return next((array.shape[0] for array in arrays if array.ndim == 3), None)


def check_representation(rank: int, init: object, dim: int) -> None:
    """Raise if a representation of `rank` columns does not fit the dimension, or a given init has another shape."""
    if rank > dim:
        raise ValueError(f"rank = {rank} must be at most dim = {dim}")
    if isinstance(init, GivenSubspace) and init.array.shape[-2:] != (dim, rank):
        raise ValueError(
            f"init has shape {init.array.shape}, expected (d, k) = ({dim}, {rank}), with or without a leading trial "
            "axis"
        )
