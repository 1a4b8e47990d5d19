"""Tuning hyper-parameters over a grid, on trials of its own."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from linfed._types import Array, Indices
from linfed.algorithms.base import Algorithm, check_algorithm
from linfed.data.samples import Data
from linfed.errors import check_choice, check_number, shown, suggestion
from linfed.problems import Problem
from linfed.results import Result
from linfed.simulation import simulate
from linfed.streams import Participation, Seed, check_seed

TUNING_SEED = 0x74756E65
"""Added to the seed's entropy: tuning never sees the trials that `simulate` runs with the same seed."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What `tune` found; the median of an even number of trials is the lower middle one, as in every figure.

    Parameters
    ----------
    algorithm : Algorithm
        The best setting, ready to run.
    settings : list of dict
        Every setting of the grid.
    scores : ndarray (settings,)
        Score of each; smaller is better, infinite where too many trials diverged (more than half, for the median).
    best : int
        Index of the chosen setting.
    rounds : ndarray of int (R,)
        Recorded rounds.
    curves : ndarray (settings, R)
        The metric's quantile over the tuning trials, the median unless told otherwise.
    at_edge : tuple of str
        Hyper-parameters whose chosen value is the first or the last of its grid: the optimum may lie outside.
    """

    algorithm: Algorithm
    settings: list[dict[str, Any]]
    scores: Array
    best: int
    rounds: Indices
    curves: Array
    at_edge: tuple[str, ...]


def _area(rounds: Indices, curve: Array) -> float:
    logs = np.log10(np.maximum(curve, np.finfo(float).tiny))
    return float(logs[1:].mean()) if len(logs) > 1 else float(logs[0])


def _final(rounds: Indices, curve: Array) -> float:
    return float(curve[-1])


_SCORES: dict[str, Callable[[Indices, Array], float]] = {"area": _area, "final": _final}


def tune(
    algorithm: Algorithm,
    problem: Problem | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    data: Data,
    rounds: int,
    metric: str | Callable[[Result], Array] = "subspace_distance",
    score: Literal["area", "final"] | Callable[[Indices, Array], float] = "area",
    quantile: float = 0.5,
    participation: Participation = 1.0,
    trials: int = 20,
    seed: Seed = 0,
    record_every: int = 1,
    engine: str = "auto",
    workers: int = 1,
) -> Tuning:
    """Try every setting of a grid on the same separate trials and return the best one and the whole curve.

    Parameters
    ----------
    algorithm : Algorithm
        Its fields named in `grid` are replaced, the others stay.
    problem, data, rounds, participation, trials, record_every, engine, workers
        As in `simulate`.
    grid : mapping of field name to values, or sequence of mappings of field name to value
        Hyper-parameters and the values to try: all combinations of a mapping, or the settings of a sequence one by one.
    metric : str or callable
        What to make small: a name from ``lf.METRICS`` ("train_loss" and "test_loss" need no truth), or a function from
        a `Result` to one value per trial (e.g. from `Result.new_clients`), which is then measured once, at the end.
    score : "area", "final" or callable
        The mean over rounds of log10 of the curve (fast and low), or its last value alone; or a function of the
        recorded rounds and the curve. Smaller is better.
    quantile : float
        The curve is this quantile of the metric over trials, with diverged trials as the worst: the median by default;
        0.9 asks for a setting that serves nearly every trial.
    seed : int or tuple of int
        The run's seed; tuning uses trials of its own, independent of those of ``simulate(seed=seed)``.

    Returns
    -------
    Tuning

    Raises
    ------
    TypeError
        For something that is no algorithm.
    ValueError
        For a field that the algorithm does not have, an empty grid, or when every setting diverged.

    Notes
    -----
    All settings see the same truths, data and participants.

    **Deviations**: the papers do not say how they chose their steps.
    """
    check_algorithm(algorithm)
    judge = score if callable(score) else _SCORES[check_choice("score", score, _SCORES)]
    settings, level = _settings(algorithm, grid), check_number("quantile", quantile, minimum=0.0, maximum=1.0)
    seed = check_seed(seed)
    entropy = (*seed, TUNING_SEED) if isinstance(seed, tuple) else (seed, TUNING_SEED)
    curves = []
    for setting in settings:
        result = simulate(
            dataclasses.replace(algorithm, **setting),  # type: ignore[type-var]
            problem,
            data=data,
            rounds=rounds,
            participation=participation,
            trials=trials,
            seed=entropy,
            metrics=[] if callable(metric) else [metric],
            record_every=rounds if callable(metric) and rounds else record_every,
            engine=engine,
            workers=workers,
        )
        values, recorded = _measured(result, metric)
        curves.append(np.quantile(np.where(np.isnan(values), np.inf, values), level, axis=0, method="inverted_cdf"))
    table = np.array(curves)
    scores = np.array([judge(recorded, curve) if np.isfinite(curve[-1]) else np.inf for curve in table])
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        raise ValueError(f"every setting of the grid diverged: {grid!r}; try smaller steps")
    chosen = settings[best]
    tried: dict[str, list[float]] = {}
    for name in chosen:
        tested = [setting[name] for setting in settings]
        if all(isinstance(value, int | float | np.number) for value in tested):
            tried[name] = sorted(set(tested))
    return Tuning(
        algorithm=dataclasses.replace(algorithm, **chosen),  # type: ignore[type-var]
        settings=settings,
        scores=scores,
        best=best,
        rounds=recorded,
        curves=table,
        at_edge=tuple(
            name for name, values in tried.items() if len(values) > 1 and chosen[name] in (values[0], values[-1])
        ),
    )


def _measured(result: Result, metric: str | Callable[[Result], Array]) -> tuple[Array, Indices]:
    """Return what is to be made small, (trials, R), and the rounds at which it was measured."""
    if not callable(metric):
        return result.metrics[metric], result.rounds
    values = np.asarray(metric(result), dtype=float)
    if values.shape != (result.trials,):
        raise ValueError(f"metric returned shape {values.shape}, expected one value per trial, ({result.trials},)")
    return values[:, None], result.rounds[-1:]


def _settings(
    algorithm: Algorithm, grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the settings to try, after checking that they name fields of the algorithm."""
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                raise ValueError(f"grid[{name!r}] = {shown(values)} must be a sequence of values to try")
            if len(values) == 0:
                raise ValueError(f"grid[{name!r}] is empty; give at least one value")
        settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    else:
        settings = [dict(setting) for setting in grid]
    if not settings or not settings[0]:
        raise ValueError(f"grid = {grid!r} names no hyper-parameter; give at least one")
    names = [f.name for f in dataclasses.fields(algorithm)] if dataclasses.is_dataclass(algorithm) else list[str]()
    for setting in settings:
        for name in setting:
            if name not in names:
                known = ", ".join(repr(field) for field in names)
                raise ValueError(f"grid names {name!r}, which is no field{suggestion(name, names)}; allowed: {known}")
        if setting.keys() != settings[0].keys():
            raise ValueError(f"grid has settings of different fields: {sorted(settings[0])} and {sorted(setting)}")
    return settings
