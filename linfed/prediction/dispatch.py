"""The function `predict`, which asks the laws of an algorithm for the prediction of a run."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import overload

from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.parts.base import Algorithm
from linfed.algorithms.personal.base import PersonalModels
from linfed.checks import short_repr
from linfed.data.samples import Data, FixedSamples
from linfed.errors import NoPredictionError
from linfed.numerics.streams import Seed
from linfed.prediction.averaging import AVERAGING
from linfed.prediction.fedrep import FEDREP
from linfed.prediction.flute import FreshTruncation, Truncation
from linfed.prediction.law import Law, Run, first_prediction, table
from linfed.prediction.others import LeastSquares, Minimizer, SpectralFloor, TrueSubspace
from linfed.prediction.personal import PERSONAL
from linfed.prediction.prediction import Prediction
from linfed.prediction.simplest import simplest
from linfed.problems import Problem
from linfed.simulation.job import Job, checked_job
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result
from linfed.system.memory import check_fits

LAWS: tuple[type[Law[Run[Algorithm]]], ...] = (
    *FEDREP,
    Minimizer,
    FreshTruncation,
    Truncation,
    *AVERAGING,
    *PERSONAL,
    SpectralFloor,
    LeastSquares,
    TrueSubspace,
)
"""All laws, in the order in which they are asked and shown."""

METHODS = ("initial_state", "step", "estimate", "finish")
"""Methods that define what an algorithm computes: a subclass that overrides one of them has no prediction."""


def _check_size(job: Job) -> None:
    """Raise a `SizeError` if ground truths, curves or the required fixed samples do not fit into memory."""
    sizes, n, d = job.sizes, job.sizes.n_clients, job.sizes.dim
    truth = 0.0
    if job.problem is not None:
        truth = float(job.problem.floats_per_trial())
        name = f"a ground truth with n_clients = {n} and dim = {d}"
        check_fits(4.0 * truth, name, "predict for fewer clients")
    every = job.trials * (truth + 3.0 * (job.n_rounds + 1))
    check_fits(every, f"trials = {job.trials} with n_rounds = {job.n_rounds}", "predict fewer trials")
    if isinstance(job.data, FixedSamples) and isinstance(job.algorithm, Averaging | PersonalModels):
        m = job.data.n_samples
        name = f"n_clients = {n} with {m} samples of dimension {sizes.dim} each"
        check_fits(float(n) * (m * (d + 1) + d * (d + 1)), name, "predict for fewer clients or samples")


@overload
def predict(algorithm: Result, *, trials: int | None = None) -> Prediction: ...


@overload
def predict(
    algorithm: Algorithm,
    problem: Problem | None = None,
    *,
    data: Data,
    n_rounds: int,
    participation: Participation = 1.0,
    trials: int | None = None,
    seed: Seed = 0,
) -> Prediction: ...


def predict(
    algorithm: Algorithm | Result,
    problem: Problem | None = None,
    *,
    data: Data | None = None,
    n_rounds: int | None = None,
    participation: Participation | None = None,
    trials: int | None = None,
    seed: Seed | None = None,
) -> Prediction:
    """Predict a run's distance from the ground truth, floor, rate, stability edge and best step, without running it.

    Parameters
    ----------
    algorithm : Algorithm or Result
        Algorithm, or the result of a run, which contains all arguments of the run.
    problem, data, n_rounds, participation, seed
        As in `simulate`; with an algorithm, data and rounds are required.
    trials : int, optional
        Number of trials to predict, from the first one on, each with its own ground truth and initialisation. The
        prediction then has a trial axis. By default, all trials of a given result, or of given arrays with a trial
        axis; otherwise only the first trial, without a trial axis.

    Returns
    -------
    Prediction

    Raises
    ------
    NoPredictionError
        If there is no prediction for the run; the message names the reason. If only some quantities can be predicted,
        accessing another one raises the error.
    ValueError, TypeError
        As in `simulate`.

    Notes
    -----
    ``seed`` and trial give heads and initialisation, as in a run. The prediction of a trial is for runs
    with its ground truth and initialisation. Other trials may be far from it: compare the median over the trials of a
    run with the median over the predictions of these trials. Predicting a trial costs many times as much as simulating
    it among others, and the more, the larger k is.

    The method of moments draws its samples, at a cost of O(n m d^2), and ``lf.AtDistance(delta)`` has no cost.
    Predicted quantities for each kind of run, of which the first that fits applies::

        {table}

    FedRep's predictions on fresh samples hold for isotropic Gaussian x, any noise level, any number of participants
    drawn at random, and step-size schedules; floor and rate require a constant step size. A predicted distance
    continues to fall below the rounding error of runs, near 1e-15. Equal numbers of all clients or rounds, given as an
    array, are one number. FedRep also stands for PrivateFedRep without noise whose clip is never reached, and for
    CompressedFedRep that keeps whole messages. Predictions have no fitted parameters. With exact
    heads and a given initial distance, the cost per round does not depend on d and m (see
    `linfed.theory.second_order_evolution`). Predictions for averaging and personalised algorithms draw the fixed
    samples.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=200, rank=5)
    >>> algorithm = lf.FedRep(rank=5, step_size=0.8, init=lf.AtDistance(0.9))
    >>> prediction = lf.predict(algorithm, problem, data=lf.FreshSamples(20), n_rounds=30)
    >>> prediction.distance.shape, bool(prediction.distance[-1] < 1e-7)
    ((31,), True)
    >>> float(prediction.floor), bool(prediction.stability_edge > 2)
    (0.0, True)

    Predict the trials of a run:

    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(20), n_rounds=30, trials=4)
    >>> found = lf.predict(result)
    >>> found.distance.shape, float(np.median(found.distance / result.metrics["subspace_distance"]).round(1))
    ((4, 31), 1.0)

    Some runs have no prediction:

    >>> lf.predict(algorithm, problem, data=lf.FixedSamples(20), n_rounds=30).distance  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    linfed.errors.NoPredictionError: no prediction of FedRep's distance is available for FixedSamples: ...
    """
    if isinstance(algorithm, Result):
        run = {"problem": problem, "data": data, "n_rounds": n_rounds, "participation": participation, "seed": seed}
        if given := [name for name, value in run.items() if value is not None]:
            raise TypeError(f"predict(result) takes {', '.join(given)} from the result: only trials= can be given")
        result = algorithm
        return predict(
            result.algorithm,
            result.problem,
            data=result.data,
            n_rounds=int(result.rounds[-1]) - result.has_final_step,
            participation=result.participation,
            trials=result.trials if trials is None else trials,
            seed=result.seed,
        )
    if data is None or n_rounds is None:
        missing = "data" if data is None else "n_rounds"
        raise TypeError(f"{missing} = None must be given with an algorithm; only a result contains {missing}")
    participation, seed = 1.0 if participation is None else participation, 0 if seed is None else seed
    job = simplest(checked_job(algorithm, problem, data, n_rounds, participation, trials, seed, [], 1, "auto"))
    if job.sizes.classes:
        raise NoPredictionError(
            f"no prediction is available for {job.sizes.classes} classes: predictions require regression"
        )
    _check_size(job)
    laws = laws_for(job.algorithm)
    found = first_prediction(laws[0].run_of(job), laws)
    return replace(found, trials=None if trials is None and job.trials == 1 else job.trials)


def laws_for(algorithm: Algorithm) -> list[type[Law[Run[Algorithm]]]]:
    """Return the laws of an algorithm, or raise a NoPredictionError."""
    kind = type(algorithm)
    known = dict.fromkeys(each for law in LAWS for each in law.algorithms)
    base = next((each for each in kind.__mro__ if each in known), None)
    if base is None or any(getattr(kind, name, None) is not getattr(base, name, None) for name in METHODS):
        names = ", ".join(each.__name__ for each in known)
        raise NoPredictionError(f"no prediction is available for algorithm = {short_repr(algorithm)}, only for {names}")
    return [law for law in LAWS if issubclass(base, law.algorithms)]


if predict.__doc__:  # none with python -OO
    predict.__doc__ = predict.__doc__.replace("{table}", textwrap.indent(table(LAWS), " " * 8).strip())
