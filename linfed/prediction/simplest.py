"""The simplest form of a run: equal numbers as one number, so that no prediction mistakes them for different ones."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from linfed.algorithms.parts.heads import ExactHeads
from linfed.algorithms.representation.fedrep import FedRep
from linfed.data.samples import FreshSamples
from linfed.simulation.job import Job


def simplest(job: Job) -> Job:
    """Return the run with one number in place of equal numbers of all clients or of all rounds."""
    algorithm, problem, data = job.algorithm, job.problem, job.data
    algorithm = _reduced(algorithm, "step_size", "model_share")
    if isinstance(algorithm, FedRep):
        if algorithm.weights is not None and np.ptp(algorithm.weights) == 0:
            algorithm = replace(algorithm, weights=None)  # only their ratios matter
        if isinstance(algorithm.heads, ExactHeads):
            algorithm = replace(algorithm, heads=_reduced(algorithm.heads, "ridge"))
    if isinstance(data, FreshSamples):
        data = _reduced(data, "n_samples")
    if problem is not None:
        problem = _reduced(problem, "noise_std")
        covariance = np.asarray(problem.design.covariance)
        if covariance.ndim == 3 and np.ptp(covariance, axis=0).max() == 0 and "design" in _fields(problem):
            problem = _with(problem, design=_with(problem.design, covariance=covariance[0]))
    return replace(job, algorithm=algorithm, problem=problem, data=data)


def _reduced(configuration: Any, *names: str) -> Any:
    """Return a dataclass with one number in place of equal numbers, in the fields with these names."""
    given = {name: getattr(configuration, name) for name in names if name in _fields(configuration)}
    equal = {name: values for name, values in given.items() if np.ndim(values) == 1 and len(set(values)) == 1}
    return _with(configuration, **{name: values[0] for name, values in equal.items()}) if equal else configuration


def _fields(configuration: object) -> set[str]:
    """Return the names of the fields of a dataclass; no names for another object, which stays as it is."""
    return {each.name for each in fields(configuration) if each.init} if is_dataclass(configuration) else set()


def _with(configuration: Any, **changes: Any) -> Any:
    """Return a dataclass with other values."""
    return replace(configuration, **changes)
