"""Checks that the distribution of x is one for which a result holds."""

from __future__ import annotations

from linfed.errors import short_repr
from linfed.problems import Truth
from linfed.problems.designs import Gaussian


def check_isotropic(truth: Truth, requirement: str) -> None:
    """Raise unless the covariance of x is a multiple of the identity; `requirement`: "the floor requires"."""
    if truth.design.variance is None:
        raise ValueError(f"truth has design = {short_repr(truth.design)}; {requirement} isotropic x")


def check_covariance(truth: Truth, requirement: str) -> None:
    """Raise unless the covariance of x is the identity."""
    if truth.design.variance != 1.0:
        raise ValueError(f"truth has design = {short_repr(truth.design)}; {requirement} isotropic x of variance 1")


def check_gaussian(truth: Truth, requirement: str) -> None:
    """Raise unless x is standard Gaussian."""
    if not isinstance(truth.design, Gaussian) or truth.design.variance != 1.0:
        raise ValueError(f"truth has design = {short_repr(truth.design)}; {requirement} standard Gaussian x")
