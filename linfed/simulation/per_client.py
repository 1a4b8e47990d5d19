"""What the clients of a run came to, each by itself: the metrics that are means over clients, before the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from linfed._types import Array
from linfed.data.classes import ClassBatch
from linfed.errors import check_choice
from linfed.numerics.linalg import quiet
from linfed.problems import n_classes
from linfed.simulation.class_metrics import class_values
from linfed.simulation.engines import open_source
from linfed.simulation.job import Job, checked_job
from linfed.simulation.measured import measured_samples
from linfed.simulation.metrics import LOSSES, METRICS, client_losses, client_risks, squared_errors
from linfed.simulation.new_clients import known_problem

if TYPE_CHECKING:
    from linfed.simulation.results import Result

NO_MEANS = ("subspace_distance", "parameter_error", "mean_truncation_error")
"""Metrics that are of all clients together, or to another reference."""


def client_values(result: Result, metric: str) -> Array:
    """Return each client's value of a metric of the final predictors, (trials, n); see `Result.clients`."""
    check_choice("metric", metric, [name for name in METRICS if name not in NO_MEANS])
    if metric in ("mean_client_error", "risk") and not n_classes(result.problem, result.data):
        truth = known_problem(result.problem, f"clients({metric!r}) needs the truth").truth(
            result.seed, range(result.trials)
        )
        with quiet():
            state = result.final.served()
            return client_risks(state, truth) if metric == "risk" else np.sqrt(squared_errors(state, truth))
    rounds = int(result.rounds[-1]) - result.finished
    engine = "explicit" if metric in LOSSES else result.engine
    who = (result.problem, result.data, rounds, result.participation, result.trials, result.seed)
    job = checked_job(result.algorithm, *who, [metric], max(1, rounds), engine)
    parts = [_of_trial(result, job, metric, trial) for trial in range(result.trials)]  # samples of one trial at a time
    return np.concatenate(parts)


def _of_trial(result: Result, job: Job, metric: str, trial: int) -> Array:
    """Return the values of one trial's clients, (1, n)."""
    state = result.final.served().trials(slice(trial, trial + 1))
    trials: Sequence[int] = range(trial, trial + 1)
    with quiet():
        truth = None if job.problem is None else job.problem.truth(job.seed, trials)
        columns = job.algorithm.columns
        source = open_source(job.engine, job.data, truth, job.sizes, columns, job.seed, trials)
        ((which, batch),) = measured_samples(job, truth, source, range(trial, trial + 1)).items()
        if isinstance(batch, ClassBatch):
            return class_values(state, batch, (metric,), which)[metric]
        return np.where(batch.counts > 0, client_losses(state, batch), np.nan)
