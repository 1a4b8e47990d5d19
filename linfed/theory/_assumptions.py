"""Checks that the distribution of x is one for which a result holds."""

from __future__ import annotations

from linfed.checks import check_instance, short_repr
from linfed.problems import Truth
from linfed.problems.designs import LAWS, Gaussian


def check_truth(truth: Truth) -> None:
    """Raise unless `truth` is a `Truth`; a problem is an easy mistake."""
    check_instance("truth", truth, Truth, "a ground truth, such as problem.truth(seed=0, trials=[0])")


def check_isotropic(truth: Truth, requirement: str) -> None:
    """Raise unless the covariance of x is a multiple of the identity; `requirement`: "the floor requires"."""
    check_truth(truth)
    if truth.design.variance is None:
        raise ValueError(f"truth has design = {short_repr(truth.design)}; {requirement} isotropic x")


def check_covariance(truth: Truth, requirement: str) -> None:
    """Raise unless the covariance of x is the identity."""
    check_truth(truth)
    if truth.design.variance != 1.0:
        raise ValueError(f"truth has design = {short_repr(truth.design)}; {requirement} isotropic x of variance 1")


def check_sub_gaussian(truth: Truth, requirement: str) -> None:
    """Raise unless x is sub-Gaussian, as it is known to be for the built-in designs."""
    check_truth(truth)
    if type(truth.design) not in LAWS.values():
        names = ", ".join(f"lf.{design.__name__}" for design in LAWS.values())
        raise ValueError(f"truth has design = {short_repr(truth.design)}; {requirement} sub-Gaussian x: one of {names}")


def check_gaussian(truth: Truth, requirement: str) -> None:
    """Raise unless x is standard Gaussian."""
    check_truth(truth)
    if not isinstance(truth.design, Gaussian) or truth.design.variance != 1.0:
        raise ValueError(f"truth has design = {short_repr(truth.design)}; {requirement} standard Gaussian x")
