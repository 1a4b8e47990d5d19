"""Tuning hyper-parameters over a grid, on trials of its own."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from linfed._types import Array, Indices
from linfed.algorithms.base import Algorithm, check_algorithm
from linfed.data.samples import Data
from linfed.errors import check_bool, check_choice, check_number, is_real, shown, suggestion
from linfed.numerics.streams import Seed, check_seed
from linfed.problems import Problem
from linfed.simulation import simulate
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result

TUNING_SEED = 0x74756E65
"""Added to the seed's entropy: tuning never sees the trials that `simulate` runs with the same seed."""

MARGIN = 0.01
"""Scores that differ by no more than this share of the best are taken as equal: the smallest setting has it."""

EXTENSIONS = 10
"""How often `tune` widens a grid at most."""


class EdgeWarning(UserWarning):
    """The best value of a hyper-parameter is an end of its grid: the optimum may lie outside."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What `tune` found; the median of an even number of trials is the lower middle one, as in every figure.

    Parameters
    ----------
    algorithm : Algorithm
        The chosen setting, ready to run.
    settings : list of dict
        Every setting that was tried: the grid's, then those that widened it.
    scores : ndarray (settings,)
        Score of each; smaller is better, infinite where too many trials diverged (more than half, for the median).
    best : int
        Index of the chosen setting: the smallest within the margin of the least score.
    rounds : ndarray of int (R,)
        Recorded rounds.
    curves : ndarray (settings, R)
        The metric's quantile over the tuning trials, the median unless told otherwise.
    at_edge : tuple of str
        Hyper-parameters whose chosen value is the least or the largest of those tried.
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
    margin: float = MARGIN,
    extend: bool = False,
    participation: Participation = 1.0,
    trials: int = 20,
    seed: Seed = 0,
    record_every: int = 1,
    engine: str = "auto",
    workers: int = 1,
) -> Tuning:
    """Try every setting of a grid on the same separate trials; return the smallest that is nearly best, and all curves.

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
    margin : float, default 0.01
        Scores within this share of the best are ties: of the best score itself, whatever its units; for "area", a mean
        of log10, they are those within ``log10(1 + margin)``.
    extend : bool, default False
        Widen the grid on the same trials while the chosen value of a field is an end of it, at most `EXTENSIONS` (10)
        times: for a mapping of fields to numbers.
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
        For a field that the algorithm does not have, an empty grid, `extend` of a grid that is a sequence or that holds
        other values than numbers, or when every setting diverged or has NaN for a score.

    Warns
    -----
    EdgeWarning
        Where the best value of a field is the least or the largest that was tried, and no other ties with it.

    Notes
    -----
    All settings see the same truths, data and participants.

    Many steps may end at one point (exact heads on fixed data do), and rounding alone would choose between them. Of the
    settings within the margin the smallest is chosen: the one with the least value of the grid's first field, among
    these the least of the second, and so on; fields that do not hold numbers do not count, and what is still equal
    keeps the grid's order. Scores that are NaN never win. Where scores are themselves of the size of rounding, more
    than a margin apart, ask for "area", which looks at the way there.

    A grid goes on beyond its end by its last ratio; by its last difference if it holds 0 or a negative number, or for a
    field of whole numbers where the ratio leaves them.

    **Deviations**: the papers do not say how they chose their steps.
    """
    check_algorithm(algorithm)
    judge = score if callable(score) else _SCORES[check_choice("score", score, _SCORES)]
    settings, level = _settings(algorithm, grid), check_number("quantile", quantile, minimum=0.0, maximum=1.0)
    seed = check_seed(seed)
    entropy = (*seed, TUNING_SEED) if isinstance(seed, tuple) else (seed, TUNING_SEED)
    margin = check_number("margin", margin, minimum=0.0)
    extend = check_bool("extend", extend) and _check_extensible(grid)
    curves: list[Array] = []
    scores: list[float] = []
    for widened in range(EXTENSIONS + 1):
        for setting in settings[len(curves) :]:
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
            values = np.where(np.isnan(values), np.inf, values)
            curve = np.quantile(values, level, axis=0, method="inverted_cdf")
            curves.append(curve)
            scores.append(judge(recorded, curve) if np.isfinite(curve[-1]) else np.inf)
        ties = within(scores, margin, logarithmic=judge is _area)
        if not ties:
            raise ValueError(f"every setting of the grid diverged or has no score: {grid!r}; try smaller steps")
        best = smallest(settings, ties)
        edges = at_edge(settings, [best])
        more = _beyond(algorithm, settings, best, edges) if extend and widened < EXTENSIONS else []
        if not more:
            break
        settings = settings + more
    for name in at_edge(settings, ties):
        warnings.warn(_edge_message(settings, name, settings[best][name]), EdgeWarning, stacklevel=2)
    return Tuning(
        algorithm=dataclasses.replace(algorithm, **settings[best]),  # type: ignore[type-var]
        settings=settings,
        scores=np.array(scores),
        best=best,
        rounds=recorded,
        curves=np.array(curves),
        at_edge=edges,
    )


# --- the rule ------------------------------------------------------------------------------------------------


def within(scores: Sequence[float] | Array, margin: float = MARGIN, *, logarithmic: bool = False) -> list[int]:
    """Return the settings whose scores lie within a margin of the least one; none where no score is a number.

    Parameters
    ----------
    scores : array_like (settings,)
        Smaller is better; NaN and infinity never win.
    margin : float
        A share of the least score.
    logarithmic : bool
        Scores are log10 of what the share is meant of.
    """
    table = np.asarray(scores, dtype=float)
    found = table[table < np.inf]
    if not found.size:
        return []
    least = float(found.min())
    slack = math.log10(1.0 + margin) if logarithmic else margin * abs(least)
    limit = least + slack if math.isfinite(least) else least
    return [int(index) for index in np.flatnonzero(table <= limit)]


def smallest(settings: Sequence[Mapping[str, Any]], ties: Sequence[int]) -> int:
    """Return which of the tied settings is the smallest, numbers compared field by field in their order."""
    names = _numeric(settings)
    return min(ties, key=lambda index: ([settings[index][name] for name in names], index))


def at_edge(settings: Sequence[Mapping[str, Any]], chosen: Sequence[int]) -> tuple[str, ...]:
    """Return the fields in which all the chosen settings have the least value tried, or all have the largest."""
    edges = []
    for name in _numeric(settings):
        tried = {setting[name] for setting in settings}
        held = {settings[index][name] for index in chosen}
        if len(tried) > 1 and held in ({min(tried)}, {max(tried)}):
            edges.append(name)
    return tuple(edges)


def _numeric(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fields that hold numbers in every setting."""
    return [name for name in settings[0] if all(is_real(setting[name]) for setting in settings)]


def _edge_message(settings: Sequence[Mapping[str, Any]], name: str, value: Any) -> str:
    tried = sorted({setting[name] for setting in settings})
    end = "least" if value == tried[0] else "largest"
    listed = ", ".join(f"{float(one):g}" for one in tried)
    return (
        f"the best {name} = {float(value):g} is the {end} of its grid [{listed}]: the optimum may lie outside; widen "
        "the grid, or tune with extend=True"
    )


def _check_extensible(grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> bool:
    """Return True, or raise for a grid that has no next value."""
    if not isinstance(grid, Mapping):
        raise ValueError(f"extend = True needs a grid of fields and their values, not the settings {shown(grid)}")
    for name, values in grid.items():
        for value in values:
            if not is_real(value):
                raise ValueError(f"extend = True needs numbers: grid[{name!r}] holds {shown(value)}")
    return True


def _beyond(
    algorithm: Algorithm, settings: Sequence[Mapping[str, Any]], best: int, edges: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the settings that widen the grid by one value beyond each of the edges."""
    grid = {name: sorted({setting[name] for setting in settings}) for name in settings[0]}
    for name in edges:
        values = grid[name]
        end, before = (values[0], values[1]) if settings[best][name] == values[0] else (values[-1], values[-2])
        try:
            whole = isinstance(getattr(dataclasses.replace(algorithm, **settings[best]), name), int)  # type: ignore[type-var]
            value = _next(end, before, whole=whole, geometric=values[0] > 0)
            dataclasses.replace(algorithm, **{**settings[best], name: value})  # type: ignore[type-var]
        except ValueError:  # the field ends where the grid does
            continue
        grid[name] = [*values, value]
    wider = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [setting for setting in wider if setting not in settings]


def _next(end: Any, before: Any, *, whole: bool, geometric: bool) -> Any:
    """Return the value after `end` in a grid that comes to it from `before`."""
    if whole:
        ratio, rest = divmod(int(end) ** 2, int(before)) if geometric else (0, 1)
        return int(2 * end - before) if rest or ratio == 0 else ratio
    return float(end) * (float(end) / float(before)) if geometric else float(2 * end - before)


# --- its arguments -------------------------------------------------------------------------------------------


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
