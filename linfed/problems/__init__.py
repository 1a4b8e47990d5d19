"""Problems: ground truths ``y_ij = x_ij' phi_i + noise`` and the families that generate them."""

from __future__ import annotations

from linfed.problems.base import Problem, Truth, check_problem, n_classes
from linfed.problems.classes import Classes, ClassTruth
from linfed.problems.given import GivenTruth
from linfed.problems.shared import SharedRepresentation
from linfed.problems.shortcuts import SharedWithShortcuts
from linfed.problems.similar import SimilarRepresentations
from linfed.problems.underparameterized import UnderParameterized

__all__ = [
    "ClassTruth",
    "Classes",
    "GivenTruth",
    "Problem",
    "SharedRepresentation",
    "SharedWithShortcuts",
    "SimilarRepresentations",
    "Truth",
    "UnderParameterized",
    "check_problem",
    "n_classes",
]
