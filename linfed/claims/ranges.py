"""Ranges that a claim requires of its statistic."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

from linfed.checks import check_bool, check_number, is_real


class _Ends(NamedTuple):
    low: float
    high: float
    strict: bool


class Range(_Ends):
    """Range of a statistic.

    Parameters
    ----------
    low, high : float
        Ends; infinite on a side without a bound.
    strict : bool
        If True, the ends do not belong to the range.

    Raises
    ------
    ValueError
        If an end is not a number, or the range is empty or unbounded.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> c.Range(low=0.5, strict=True) == c.above(0.5)
    True
    """

    __slots__ = ()

    def __new__(cls, low: float = -math.inf, high: float = math.inf, strict: bool = False) -> Self:
        """Return the range between two ends, each of which may be infinite on its side."""
        low = low if is_real(low) and low == -math.inf else check_number("low", low)
        high = high if is_real(high) and high == math.inf else check_number("high", high)
        strict = check_bool("strict", strict)
        if low > high or (strict and low == high):
            raise ValueError(f"low = {low:g} must be {'below' if strict else 'at most'} high = {high:g}")
        if math.isinf(low) and math.isinf(high):
            raise ValueError("low = -inf and high = inf must not both be infinite")
        return super().__new__(cls, low, high, strict)


def at_most(high: float) -> Range:
    """Return the range up to a number.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.at_most(0.1)
    Range(low=-inf, high=0.1, strict=False)
    """
    return Range(high=high)


def at_least(low: float) -> Range:
    """Return the range from a number on.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.at_least(0.9)
    Range(low=0.9, high=inf, strict=False)
    """
    return Range(low=low)


def below(high: float) -> Range:
    """Return the range below a number.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.below(1)
    Range(low=-inf, high=1.0, strict=True)
    """
    return Range(high=high, strict=True)


def above(low: float) -> Range:
    """Return the range above a number.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.above(1)
    Range(low=1.0, high=inf, strict=True)
    """
    return Range(low=low, strict=True)


def within(low: float, high: float) -> Range:
    """Return the range between two numbers; raise ValueError if the first one is larger.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.within(0.8, 1.25)
    Range(low=0.8, high=1.25, strict=False)
    """
    return Range(low, high)


def near(value: float, tolerance: float) -> Range:
    """Return the range up to a tolerance, at least 0, around a number.

    Examples
    --------
    >>> from linfed import claims as c
    >>> c.near(-0.5, 0.1)
    Range(low=-0.6, high=-0.4, strict=False)
    """
    value, tolerance = check_number("value", value), check_number("tolerance", tolerance, minimum=0.0)
    return Range(low=value - tolerance, high=value + tolerance)


MOST = above(0.5)
"""More than half."""
