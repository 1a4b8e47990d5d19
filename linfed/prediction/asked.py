"""`predict`: the arguments of a run, and what theory knows of it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from linfed._values import says_last
from linfed.algorithms.averaging import SCAFFOLD, ClusterFedVARP, FedAvg, FedProx, FedRolex, FedSCAVAR, FedVARP
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.base import Algorithm
from linfed.algorithms.fedrep import FedRep
from linfed.algorithms.flute import FLUTE
from linfed.algorithms.local_only import LocalOnly
from linfed.algorithms.oracle import Oracle
from linfed.data.samples import Data, FixedSamples
from linfed.errors import LawError, shown
from linfed.numerics.streams import Seed
from linfed.prediction import averaging, fedrep, others
from linfed.prediction.answers import Prediction
from linfed.prediction.table import ENTRIES, table
from linfed.problems import Problem
from linfed.simulation.job import Job, checked_job
from linfed.simulation.participation import Participation
from linfed.system.memory import check_fits

LAWS: dict[type[Algorithm], Callable[[Job, Any], Prediction]] = {
    FedRep: fedrep.predicted,
    FLUTE: others.of_flute,
    **dict.fromkeys((FedAvg, FedProx, SCAFFOLD, FedVARP, ClusterFedVARP, FedSCAVAR, FedRolex), averaging.of_averaging),
    LocalOnly: others.of_local_only,
    Oracle: others.of_oracle,
}
"""What is known of each algorithm."""


def _check_size(job: Job) -> None:
    """Raise a `SizeError` if the truth of a trial, or the fixed samples that a law is of, would not fit the memory."""
    sizes, n, d = job.sizes, job.sizes.n_clients, job.sizes.dim
    if job.problem is not None:
        told = f"a truth of n_clients = {n} and dim = {d}"
        check_fits(4.0 * job.problem.floats_per_trial(), told, "predict for fewer clients")
    if isinstance(job.data, FixedSamples) and isinstance(job.algorithm, Averaging):
        m = job.data.n_samples
        told = f"n_clients = {n} with {m} samples of dimension {sizes.dim} each"
        check_fits(float(n) * (m * (d + 1) + d * (d + 1)), told, "predict for fewer clients or samples")


def predict(
    algorithm: Algorithm,
    problem: Problem | None = None,
    *,
    data: Data,
    rounds: int,
    participation: Participation = 1.0,
    trials: int | None = None,
    seed: Seed = 0,
) -> Prediction:
    """Predict a run's distance from the ground truth, floor, rate, stability edge and best step, without running it.

    Parameters
    ----------
    algorithm, problem, data, rounds, participation, seed
        As in `simulate`.
    trials : int, optional
        Predict each trial by its own truth and start, with a trial axis; by default the first trial alone, without
        (where given arrays have trials: all of them).

    Returns
    -------
    Prediction

    Raises
    ------
    LawError
        If nothing is known of such a run; one line says which law is missing. What is missing of a run of which
        something is known raises when it is asked for.
    ValueError, TypeError
        As in `simulate`.

    Notes
    -----
    Heads and start are those of the run itself (``seed``, trial): the method of moments draws its samples, O(n m d^2),
    and ``lf.AtDistance(delta)`` costs nothing. What is predicted for which runs::

        {table}

    FedRep's predictions hold for isotropic Gaussian x, and for any participation, noise and schedule of steps. They go
    on falling where a run stops at its rounding error, near 1e-15. Compared with runs, a prediction has no fitted
    parameters and gives the band over runs, the floor, the stability edge and the best step; its cost does not depend
    on d and m. The cost of the second-order prediction is in `linfed.theory.second_order_evolution`.

    **Deviations**: an addition.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=200, rank=5)
    >>> algorithm = lf.FedRep(rank=5, step_size=0.8, init=lf.AtDistance(0.9))
    >>> prediction = lf.predict(algorithm, problem, data=lf.FreshSamples(20), rounds=30)
    >>> prediction.distance.shape, bool(prediction.distance[-1] < 1e-7)
    ((31,), True)
    >>> float(prediction.floor), bool(prediction.stability_edge > 2)
    (0.0, True)
    >>> lf.predict(algorithm, problem, data=lf.FixedSamples(20), rounds=30).distance
    Traceback (most recent call last):
    linfed.errors.LawError: no law of FedRep's distance is known for FixedSamples: rounds share their samples
    """
    job = checked_job(algorithm, problem, data, rounds, participation, trials, seed, [], 1, "auto")
    if job.sizes.classes:
        raise LawError(f"no law is known for {job.sizes.classes} classes: all laws are of squares")
    _check_size(job)
    base = next((known for known in LAWS if isinstance(algorithm, known)), None)
    if base is None or not says_last(type(algorithm), "asks", ("step", "finish", "initial_state")):
        known = dict.fromkeys(each.__name__ for entry in ENTRIES for each in entry.algorithms)
        raise LawError(f"no law is known for algorithm = {shown(algorithm)}: {', '.join(known)} have one")
    found = LAWS[base](job, job.algorithm)
    return found.of_first() if trials is None and job.trials == 1 else found


if predict.__doc__:  # none with python -OO
    predict.__doc__ = predict.__doc__.replace("{table}", textwrap.indent(table(), " " * 8).strip())
