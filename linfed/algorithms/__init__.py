"""Algorithms: each a frozen set of hyper-parameters with an initial state and a step."""

from __future__ import annotations

from linfed.algorithms.base import Algorithm
from linfed.algorithms.fedrep import FedRep
from linfed.algorithms.local_only import LocalOnly

ALGORITHMS: dict[str, type[Algorithm]] = {cls.__name__: cls for cls in (FedRep, LocalOnly)}
"""Every algorithm by its name, for the command line and for results read from files."""

__all__ = ["ALGORITHMS", "Algorithm", "FedRep", "LocalOnly"]
