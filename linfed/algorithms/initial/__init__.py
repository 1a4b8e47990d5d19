"""Initialisations of a run: initial representations, and initial factors (B, W)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed.algorithms.initial.averages import TruncatedAverages
from linfed.algorithms.initial.base import ChunkSizes, Initial, InitialFactors, Initialization, InitialStart
from linfed.algorithms.initial.given import GivenFactors, GivenSubspace
from linfed.algorithms.initial.moments import Moments
from linfed.algorithms.initial.random import RandomSubspace, SmallRandom
from linfed.algorithms.initial.truth import AtDistance, TrueSubspace
from linfed.checks import check_choice, short_repr

INITIALISATIONS: dict[str, type[Initialization]] = {
    cls.__name__: cls
    for cls in (
        Moments,
        TruncatedAverages,
        RandomSubspace,
        AtDistance,
        TrueSubspace,
        GivenSubspace,
        SmallRandom,
        GivenFactors,
    )
}
"""All initialisations by name, for results read from files."""

NAMED: dict[str, Initial] = {"moments": Moments(), "random": RandomSubspace()}
"""Initial representations that can be given by name."""


def as_initial(value: Initial | str | npt.ArrayLike) -> Initial:
    """Convert an `Initial`, a name or an array (d, k) or (trials, d, k) to an `Initial`."""
    if isinstance(value, Initial):
        return value
    if isinstance(value, str):
        return NAMED[check_choice("init", value, NAMED)]
    if value is None or np.isscalar(value) or isinstance(value, InitialFactors | type):
        raise ValueError(
            f"init = {short_repr(value)} must be 'moments', 'random', lf.AtDistance(delta) or an array (d, k)"
        )
    return GivenSubspace(value)


def as_factors(value: InitialFactors | tuple[npt.ArrayLike, npt.ArrayLike]) -> InitialFactors:
    """Convert an `InitialFactors` or a pair of arrays (B, W) to an `InitialFactors`."""
    if isinstance(value, InitialFactors):
        return value
    if (
        isinstance(value, tuple | list)
        and len(value) == 2
        and not any(part is None or np.isscalar(part) for part in value)
    ):
        return GivenFactors(*value)
    raise ValueError(f"init = {short_repr(value)} must be lf.SmallRandom(alpha) or a pair of arrays, (B, W)")


__all__ = [
    "INITIALISATIONS",
    "AtDistance",
    "ChunkSizes",
    "GivenFactors",
    "GivenSubspace",
    "Initial",
    "InitialFactors",
    "InitialStart",
    "Initialization",
    "Moments",
    "RandomSubspace",
    "SmallRandom",
    "TrueSubspace",
    "TruncatedAverages",
    "as_factors",
    "as_initial",
]
