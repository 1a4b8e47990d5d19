"""What a run is to reach: a metric at most, or at least, at a level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import Configuration, check_fields, one_of, positive, takes
from linfed.errors import check_bool, shown
from linfed.simulation.metrics import Metric

BELOW, ABOVE = "below", "above"


@dataclass(frozen=True, kw_only=True)
class Level(Configuration):
    """A level that a metric is to reach: what `below` and `above` return.

    Parameters
    ----------
    metric : str or callable
        A column of the cell's row: a metric along rounds, or an array (trials,); or a function ``f(state, truth)``.
    level : float
        Positive.
    side : "below" or "above"
        Where the metric is to be; the level itself counts.
    ever : bool
        Whether any recorded round will do; else the last one decides.
    """

    metric: str | Metric
    level: float
    side: str
    ever: bool

    def __post_init__(self) -> None:
        if callable(self.metric) and not takes(self.metric, 2):
            raise TypeError(f"metric = {shown(self.metric)} must be a function of two arguments: state and truth")
        if callable(self.metric) and not self.column:
            raise TypeError(f"metric = {shown(self.metric)} has no name: define a function with def")
        if not self.column:
            raise TypeError(f"metric = {shown(self.metric)} must be the name of a column, e.g. 'subspace_distance'")
        check_fields(self, level=positive, side=one_of(BELOW, ABOVE), ever=check_bool)

    @property
    def column(self) -> str:
        """The name of the column: a function's own name."""
        name = getattr(self.metric, "__name__", "") if callable(self.metric) else self.metric
        return name if isinstance(name, str) else ""

    def __str__(self) -> str:
        return f"{self.column} {'<=' if self.side == BELOW else '>='} {self.level:g}"

    def margins(self, values: npt.ArrayLike) -> Array:
        """Return by how many decades values miss the level, at most 0 where they reach it; NaN misses it by far."""
        with np.errstate(divide="ignore", invalid="ignore"):
            decades = np.log10(np.asarray(values, dtype=float) / self.level)
        decades = np.where(np.isnan(decades), -np.inf if self.side == ABOVE else np.inf, decades)
        return decades if self.side == BELOW else -decades

    def misses(self, values: npt.ArrayLike) -> Array:
        """Return each trial's margin, (trials,), of values (trials,) or (trials, rounds)."""
        margins = self.margins(values)
        if margins.ndim == 1:
            return margins
        return np.asarray(margins.min(axis=1) if self.ever else margins[:, -1])


def below(metric: str | Metric, level: float, *, ever: bool = False) -> Level:
    """Return what `lf.least` is to reach: a metric at or below a level.

    Parameters
    ----------
    metric : str or callable
        A metric of the run (``lf.METRICS``), a function ``f(state, truth)`` as in `simulate`, or a column of a cell's
        own row.
    level : float
        Positive, in the metric's units.
    ever : bool
        Whether any recorded round will do; by default the last one decides, which says the same of a floor.

    Examples
    --------
    >>> import linfed as lf
    >>> print(lf.below("subspace_distance", 0.1))
    subspace_distance <= 0.1
    """
    return Level(metric=metric, level=level, side=BELOW, ever=ever)


def above(metric: str | Metric, level: float, *, ever: bool = False) -> Level:
    """Return what `lf.least` is to reach: a metric at or above a level; arguments as `below` takes them."""
    return Level(metric=metric, level=level, side=ABOVE, ever=ever)
