"""Levels for a run to reach: a metric at or below, or at or above, a number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import Configuration, check_fields, one_of, positive, takes
from linfed.checks import check_bool, check_numbers, short_repr
from linfed.simulation.metrics import MetricFunction

BELOW, ABOVE = "below", "above"


@dataclass(frozen=True, kw_only=True)
class Level(Configuration):
    """Level that a metric must reach; `below` and `above` make it.

    Parameters
    ----------
    metric : str or callable
        A column of the cell's row, either a metric along rounds or an array (trials,), or a function
        ``f(state, truth)``.
    level : float
        The level, positive.
    side : "below" or "above"
        Side of the level on which the metric must be; a metric equal to the level has reached it.
    ever : bool
        If True, it is enough to reach the level in any recorded round; otherwise the last round counts.
    """

    metric: str | MetricFunction
    level: float
    side: str
    ever: bool

    def __post_init__(self) -> None:
        if callable(self.metric) and not takes(self.metric, 2):
            raise TypeError(f"metric = {short_repr(self.metric)} must be a function of two arguments: state and truth")
        if callable(self.metric) and not self.column:
            raise TypeError(f"metric = {short_repr(self.metric)} must have a name; define the function with def")
        if not self.column:
            raise TypeError(
                f"metric = {short_repr(self.metric)} must be the name of a column, e.g. 'subspace_distance'"
            )
        check_fields(self, level=positive, side=one_of(BELOW, ABOVE), ever=check_bool)

    @property
    def column(self) -> str:
        """The name of the column; for a function, its name."""
        name = getattr(self.metric, "__name__", "") if callable(self.metric) else self.metric
        return name if isinstance(name, str) else ""

    def __str__(self) -> str:
        return f"{self.column} {'<=' if self.side == BELOW else '>='} {self.level:g}"

    def shortfalls(self, values: npt.ArrayLike) -> Array:
        """Return by how many decades values miss the level; at most 0 if they reach it, infinity for NaN.

        Negative values count as 0.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            decades = np.log10(np.maximum(check_numbers("values", values), 0.0) / self.level)
        decades = np.where(np.isnan(decades), -np.inf if self.side == ABOVE else np.inf, decades)
        return decades if self.side == BELOW else -decades

    def misses(self, values: npt.ArrayLike) -> Array:
        """Return the shortfall of each trial, (trials,), for values of shape (trials,) or (trials, rounds)."""
        shortfalls = self.shortfalls(check_numbers("values", values, axes=1))
        if shortfalls.ndim > 2:
            raise ValueError(f"values has shape {shortfalls.shape}, expected (trials,) or (trials, rounds)")
        if shortfalls.ndim == 1:
            return shortfalls
        return np.asarray(shortfalls.min(axis=1) if self.ever else shortfalls[:, -1])


def below(metric: str | MetricFunction, level: float, *, ever: bool = False) -> Level:
    """Return the requirement that a metric is at or below a level, for `lf.find_smallest`.

    Parameters
    ----------
    metric : str or callable
        A metric of the run (``lf.METRICS``), a function ``f(state, truth)`` as in `simulate`, or a column of the row
        that a custom cell returns.
    level : float
        The level, positive, in the metric's units.
    ever : bool
        If True, it is enough to reach the level in any recorded round. By default the last round counts; for a metric
        that falls to a floor, the two are equivalent.

    Returns
    -------
    Level

    Raises
    ------
    TypeError
        If `metric` is neither a name nor a function.
    ValueError
        If `level` is not positive.

    Examples
    --------
    >>> import linfed as lf
    >>> print(lf.below("subspace_distance", 0.1))
    subspace_distance <= 0.1
    """
    return Level(metric=metric, level=level, side=BELOW, ever=ever)


def above(metric: str | MetricFunction, level: float, *, ever: bool = False) -> Level:
    """Return the requirement that a metric is at or above a level, for `lf.find_smallest`.

    Parameters
    ----------
    metric, level, ever
        As in `below`.

    Returns
    -------
    Level

    Raises
    ------
    TypeError, ValueError
        As in `below`.

    Examples
    --------
    >>> import linfed as lf
    >>> print(lf.above("accuracy", 0.9))
    accuracy >= 0.9
    """
    return Level(metric=metric, level=level, side=ABOVE, ever=ever)
