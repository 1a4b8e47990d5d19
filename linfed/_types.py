"""Array types used throughout."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]
Mask: TypeAlias = npt.NDArray[np.bool_]
Generator: TypeAlias = np.random.Generator
Json: TypeAlias = Any
FloatOrArray: TypeAlias = float | Any
"""A float for one argument, and an array for several: type checkers then accept its use as either."""
MaybeNone: TypeAlias = Any
"""None, in the type of an array that most objects have: type checkers then accept its use without a check for None."""
