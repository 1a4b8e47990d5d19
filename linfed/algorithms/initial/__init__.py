"""Initial representations, and initial factors: what a run begins with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed.algorithms.initial.base import ChunkSizes, Initial, InitialFactors, Initialisation, InitialStart
from linfed.algorithms.initial.given import GivenFactors, GivenSubspace
from linfed.algorithms.initial.moments import Moments
from linfed.algorithms.initial.random import RandomSubspace, SmallRandom
from linfed.algorithms.initial.truth import AtDistance, TrueSubspace
from linfed.errors import check_choice, shown

INITIALISATIONS: dict[str, type[Initialisation]] = {
    cls.__name__: cls
    for cls in (Moments, RandomSubspace, AtDistance, TrueSubspace, GivenSubspace, SmallRandom, GivenFactors)
}
"""Every initialisation by its name, for results read from files."""

NAMED: dict[str, Initial] = {"moments": Moments(), "random": RandomSubspace()}


def as_initial(value: Initial | str | npt.ArrayLike) -> Initial:
    """Return an initial representation from itself, from its name, or from an array."""
    if isinstance(value, Initial):
        return value
    if isinstance(value, str):
        return NAMED[check_choice("init", value, NAMED)]
    if value is None or np.isscalar(value) or isinstance(value, InitialFactors | type):
        raise ValueError(f"init = {shown(value)} must be 'moments', 'random', lf.AtDistance(delta) or an array (d, k)")
    return GivenSubspace(value)


def as_factors(value: InitialFactors | tuple[npt.ArrayLike, npt.ArrayLike]) -> InitialFactors:
    """Return initial factors from themselves, or from a pair of arrays (B, W)."""
    if isinstance(value, InitialFactors):
        return value
    if (
        isinstance(value, tuple | list)
        and len(value) == 2
        and not any(part is None or np.isscalar(part) for part in value)
    ):
        return GivenFactors(*value)
    raise ValueError(f"init = {shown(value)} must be lf.SmallRandom(alpha) or a pair of arrays, (B, W)")


__all__ = [
    "INITIALISATIONS",
    "AtDistance",
    "ChunkSizes",
    "GivenFactors",
    "GivenSubspace",
    "Initial",
    "InitialFactors",
    "InitialStart",
    "Initialisation",
    "Moments",
    "RandomSubspace",
    "SmallRandom",
    "TrueSubspace",
    "as_factors",
    "as_initial",
]
