"""Ranges that a claim requires of its statistic."""

from __future__ import annotations

import math
from typing import NamedTuple


class Range(NamedTuple):
    """Range of a statistic.

    Parameters
    ----------
    low, high : float
        Ends; infinite on a side without a bound.
    strict : bool
        If True, the ends do not belong to the range.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> c.Range(low=0.5, strict=True) == c.above(0.5)
    True
    """

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False


def at_most(high: float) -> Range:
    """Return the range up to a number.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.at_most(0.1)
    Range(low=-inf, high=0.1, strict=False)
    """
    return Range(high=float(high))


def at_least(low: float) -> Range:
    """Return the range from a number on.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.at_least(0.9)
    Range(low=0.9, high=inf, strict=False)
    """
    return Range(low=float(low))


def below(high: float) -> Range:
    """Return the range below a number.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.below(1)
    Range(low=-inf, high=1.0, strict=True)
    """
    return Range(high=float(high), strict=True)


def above(low: float) -> Range:
    """Return the range above a number.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.above(1)
    Range(low=1.0, high=inf, strict=True)
    """
    return Range(low=float(low), strict=True)


def within(low: float, high: float) -> Range:
    """Return the range between two numbers; raise ValueError if the first one is larger.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.within(0.8, 1.25)
    Range(low=0.8, high=1.25, strict=False)
    """
    if not low <= high:
        raise ValueError(f"low = {low:g} must be at most high = {high:g}")
    return Range(low=float(low), high=float(high))


def near(value: float, tolerance: float) -> Range:
    """Return the range up to a tolerance around a number.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.near(-0.5, 0.1)
    Range(low=-0.6, high=-0.4, strict=False)
    """
    return Range(low=value - tolerance, high=value + tolerance)


MOST = above(0.5)
"""More than half."""
