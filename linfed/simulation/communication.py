"""What a run has sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linfed._types import Array
from linfed.algorithms.base import Algorithm
from linfed.problems import n_classes

if TYPE_CHECKING:
    from linfed.simulation.results import Result


def floats_sent(result: Result) -> Array:
    """Return the floats that the server and all participants have exchanged up to each recorded round, (R,).

    ``Algorithm.communication`` times participants times rounds; NaN where an algorithm, or the dimension, is not known.
    """
    dim = getattr(result.problem, "dim", None) or getattr(result.data, "dim", None)
    if dim is None or not isinstance(result.algorithm, Algorithm):
        return np.full(len(result.rounds), np.nan)
    classes = n_classes(result.problem, result.data)
    model = {"dim": int(dim), "classes": classes} if classes else {"dim": int(dim)}  # one's own may know d alone
    last = result.rounds[-1] - result.finished  # what is done once at the end sends nothing
    return np.minimum(result.rounds, last) * (result.participants * sum(result.algorithm.communication(**model)))
