"""Beginnings that are given as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import Check, check_fields
from linfed.algorithms.initial.base import Initial, InitialFactors, InitialStart
from linfed.errors import check_array


def _held(told: str, rows: str) -> Check:
    """Return a check for an array (rows, k) or (trials, rows, k), which is then read-only."""

    def check(_: str, value: object) -> Array:
        array = check_array(told, value, [(rows, "k"), ("trials", rows, "k")])
        array.setflags(write=False)
        return array

    return check


@dataclass(frozen=True)
class GivenSubspace(Initial):
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
        check_fields(self, B=_held("init", "d"))

    @property
    def array(self) -> Array:
        """The array itself."""
        return np.asarray(self.B)

    @property
    def n_trials(self) -> int | None:
        """Number of trials that the array is given for; None if it serves any number."""
        return _trials_of(self.array)

    def independent(self) -> bool:
        """Return whether the columns are linearly independent."""
        return bool((np.linalg.matrix_rank(self.array) == self.array.shape[-1]).all())

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise for another shape."""
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
        check_fields(self, B=_held("init B", "d"), W=_held("init W", "n"))
        trials = {array.shape[0] for array in self.arrays if array.ndim == 3}
        if len(trials) > 1:
            raise ValueError(f"init has arrays for {sorted(trials)} trials; B and W must agree")

    @property
    def arrays(self) -> tuple[Array, Array]:
        """B and W."""
        return np.asarray(self.B), np.asarray(self.W)

    @property
    def n_trials(self) -> int | None:
        """Number of trials that the arrays are given for; None if they serve any number."""
        return _trials_of(*self.arrays)

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise for other shapes."""
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
    return next((array.shape[0] for array in arrays if array.ndim == 3), None)
