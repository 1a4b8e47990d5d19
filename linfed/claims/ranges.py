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
    """

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False


def at_most(high: float) -> Range:
    """Return the range up to a number."""
    return Range(high=float(high))


def at_least(low: float) -> Range:
    """Return the range from a number on."""
    return Range(low=float(low))


def below(high: float) -> Range:
    """Return the range below a number."""
    return Range(high=float(high), strict=True)


def above(low: float) -> Range:
    """Return the range above a number."""
    return Range(low=float(low), strict=True)


def within(low: float, high: float) -> Range:
    """Return the range between two numbers."""
    return Range(low=float(low), high=float(high))


def near(value: float, margin: float) -> Range:
    """Return the range up to a margin around a number."""
    return Range(low=value - margin, high=value + margin)


MOST = above(0.5)
"""More than half."""
