"""What a run is to reach: a metric at most, or at least, at a level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import Configuration, check_fields, one_of, positive
from linfed.errors import check_bool, shown

BELOW, ABOVE = "below", "above"


@dataclass(frozen=True, kw_only=True)
class Level(Configuration):
    """A level that a metric is to reach: what `below` and `above` return.

    Parameters
    ----------
    metric : str
        A column of the cell's row: a metric along rounds, or an array (trials,).
    level : float
        Positive.
    side : "below" or "above"
        Where the metric is to be; the level itself counts.
    ever : bool
        Whether any recorded round will do; else the last one decides.
    """

    metric: str
    level: float
    side: str
    ever: bool

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str) or not self.metric:
            raise TypeError(f"metric = {shown(self.metric)} must be the name of a column, e.g. 'subspace_distance'")
        check_fields(self, level=positive, side=one_of(BELOW, ABOVE), ever=check_bool)

    def __str__(self) -> str:
        return f"{self.metric} {'<=' if self.side == BELOW else '>='} {self.level:g}"

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


def below(metric: str, level: float, *, ever: bool = False) -> Level:
    """Return what `lf.least` is to reach: a metric at or below a level.

    Parameters
    ----------
    metric : str
        A metric of the run (``lf.METRICS``), or a column of a cell's own row.
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


def above(metric: str, level: float, *, ever: bool = False) -> Level:
    """Return what `lf.least` is to reach: a metric at or above a level; arguments as `below` takes them."""
    return Level(metric=metric, level=level, side=ABOVE, ever=ever)
