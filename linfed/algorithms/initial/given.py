"""Initialisations that are given as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import Check, check_fields
from linfed.algorithms.initial.base import Initial, InitialFactors, InitialStart
from linfed.checks import check_array
from linfed.numerics.linalg import column_rank


def _make_check(name: str, rows: str) -> Check:
    """Return a check for an array (rows, k) or (trials, rows, k), which the check makes read-only."""

    def check(_: str, value: object) -> Array:
        array = check_array(name, value, [(rows, "k"), ("trials", rows, "k")])
        array.setflags(write=False)
        return array

    return check


@dataclass(frozen=True)
class GivenSubspace(Initial):
    """Initial representation given as an array, which is not orthonormalised.

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)

    Raises
    ------
    ValueError
        If B has another number of axes or an entry is not finite; in `simulate` also if d, k or the number of trials
        differs from the run's.

    Notes
    -----
    **Deviations**: an addition, to replay other implementations.

    Examples
    --------
    >>> import linfed as lf, numpy as np
    >>> init = lf.GivenSubspace(np.eye(6, 2))
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=6, rank=2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5, init=init), problem, data=lf.FreshSamples(20), n_rounds=0)
    >>> bool((result.final.B == np.eye(6, 2)).all())
    True
    """

    B: npt.ArrayLike

    def __post_init__(self) -> None:
        check_fields(self, B=_make_check("init B", "d"))

    @property
    def array(self) -> Array:
        """The given array."""
        return np.asarray(self.B)

    @property
    def n_trials(self) -> int | None:
        """Number of trials of the array; None if it has no trial axis."""
        return _trials_of(self.array)

    def independent(self) -> bool:
        """Return whether the columns are linearly independent."""
        return bool((column_rank(self.array) == self.array.shape[-1]).all())

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise if the shape does not fit the run."""
        if self.array.shape[-2:] != (dim, rank):
            raise ValueError(
                f"init has shape {self.array.shape}, expected (d, k) = ({dim}, {rank}), with or without a leading "
                "trial axis"
            )

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the array."""
        return start.given(self.array)


@dataclass(frozen=True)
class GivenFactors(InitialFactors):
    """Initial representation and heads given as arrays.

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)
    W : array_like (n, k) or (trials, n, k)

    Raises
    ------
    ValueError
        As in `GivenSubspace`, for both arrays, or if their numbers of trials differ.

    Notes
    -----
    **Deviations**: an addition, to replay other implementations and to continue from a state.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=6, rank=2)
    >>> first = lf.simulate(lf.FLUTE(rank=2, step_size=0.03), problem, data=lf.FixedSamples(20), n_rounds=5)
    >>> init = lf.GivenFactors(first.final.B, first.final.W)
    >>> more = lf.simulate(lf.FLUTE(rank=2, step_size=0.03, init=init), problem, data=lf.FixedSamples(20), n_rounds=0)
    >>> bool((more.final.W == first.final.W).all())
    True
    """

    B: npt.ArrayLike
    W: npt.ArrayLike

    def __post_init__(self) -> None:
        check_fields(self, B=_make_check("init B", "d"), W=_make_check("init W", "n"))
        trials = {array.shape[0] for array in self.arrays if array.ndim == 3}
        if len(trials) > 1:
            raise ValueError(f"init has arrays for {sorted(trials)} trials; B and W must agree")

    @property
    def arrays(self) -> tuple[Array, Array]:
        """The given arrays B and W."""
        return np.asarray(self.B), np.asarray(self.W)

    @property
    def n_trials(self) -> int | None:
        """Number of trials of the arrays; None if they have no trial axis."""
        return _trials_of(*self.arrays)

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise if a shape does not fit the run."""
        for name, array, rows in zip(("B", "W"), self.arrays, (dim, n_clients), strict=True):
            if array.shape[-2:] != (rows, rank):
                raise ValueError(
                    f"init {name} has shape {array.shape}, expected ({rows}, {rank}), with or without a leading trial "
                    "axis"
                )

    def resolve(self, start: InitialStart, rank: int) -> tuple[Array, Array]:
        """Return the arrays."""
        B, W = self.arrays
        return start.given(B), start.given(W)


def _trials_of(*arrays: Array) -> int | None:
    """Return the number of trials of the first array with a trial axis, or None."""
    return next((array.shape[0] for array in arrays if array.ndim == 3), None)
