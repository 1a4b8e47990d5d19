"""Tuning hyper-parameters over a grid, on trials of its own."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from linfed._types import Array, Indices
from linfed._values import Check, Configuration, check_fields, non_negative, optional
from linfed.algorithms.base import Algorithm, check_algorithm
from linfed.data.samples import Data
from linfed.errors import (
    EdgeWarning,
    check_bool,
    check_choice,
    check_integer,
    check_number,
    is_real,
    shown,
    suggestion,
)
from linfed.numerics.streams import Seed, check_seed
from linfed.problems import Problem
from linfed.simulation import simulate
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result
from linfed.study.along import Along
from linfed.study.choice import MARGIN, SCORES, area, at_edge, beyond, edge_message, smallest, within
from linfed.study.grid import at_path, changed, check_path, differing, plain

Grid: TypeAlias = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]

TUNING_SEED = 0x74756E65
"""Added to the seed's entropy: tuning never sees the trials that `simulate` runs with the same seed."""

EXTENSIONS = 10
"""How often `tune` widens a grid at most."""


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

    def columns(self, settings: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
        """Return what a table keeps: the chosen values, the fields at an edge, and along ``setting`` what was tried.

        Parameters
        ----------
        settings : sequence of mapping, optional
            The settings in terms of one's own, in their order; by default those of the algorithm's fields.
        """
        if settings is not None:
            told = [dict(setting) for setting in settings]
            return dataclasses.replace(self, settings=told, at_edge=at_edge(told, [self.best])).columns()
        chosen, numbers = self.settings[self.best], range(len(self.settings))
        tried = {name: _column([plain(setting[name]) for setting in self.settings]) for name in chosen}
        return {
            **{name: plain(value) for name, value in chosen.items()},
            "best": self.best,
            "at_edge": ", ".join(self.at_edge),
            "score": Along(self.scores, setting=numbers),
            **{f"tried_{name}": Along(values, setting=numbers) for name, values in tried.items()},
        }


def _column(values: list[Any]) -> list[Any]:
    """Return values of one kind, as an array takes them: None among numbers is NaN, and others are words."""
    numbers = [math.nan if value is None else value for value in values]
    plainly = all(isinstance(value, bool | int | float) for value in numbers)
    return numbers if plainly else [str(value) for value in values]


@dataclass(frozen=True, kw_only=True)
class Tuned(Configuration):
    """An algorithm that is tuned before it runs: the algorithm of a `lf.Run`.

    Parameters
    ----------
    base : Algorithm
        Its fields named in `grid` are replaced, the others stay.
    grid, metric, score, quantile, margin, extend, trials
        As in `tune`.
    rounds : int, optional
        Rounds of the tuning; those of the run by default.

    Notes
    -----
    Problem, data, participation, seed and engine are the run's; the trials are others (`tune`).

    **Deviations**: none.

    Examples
    --------
    >>> import linfed as lf
    >>> tuned = lf.Tuned(base=lf.FedRep(rank=2, step_size=1.0), grid={"step_size": (0.3, 1.0, 3.0)}, trials=5)
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=10, rank=2)
    >>> run = lf.Run(algorithm=tuned, problem=problem, data=lf.FreshSamples(n_samples=6), rounds=30)
    >>> lf.sweep([run])["step_size"]
    1.0
    """

    base: Algorithm
    grid: Grid
    metric: str | Callable[[Result], Array] = "subspace_distance"
    score: Literal["area", "final"] | Callable[[Indices, Array], float] = "area"
    quantile: float = 0.5
    margin: float = MARGIN
    extend: bool = False
    trials: int = 20
    rounds: int | None = None

    def __post_init__(self) -> None:
        check_algorithm(self.base)
        _settings(self.base, self.grid)
        check_fields(
            self,
            score=_check_score,
            quantile=_check_quantile,
            margin=non_negative,
            extend=lambda name, value: check_bool(name, value) and _check_extensible(self.grid),
            trials=check_integer,
            rounds=optional(partial(check_integer, minimum=0)),
        )

    def algorithms(self) -> list[Algorithm]:
        """Return the algorithm at every setting of the grid, in its order."""
        return [changed(self.base, setting) for setting in _settings(self.base, self.grid)]

    def tune(self, problem: Problem | None, *, rounds: int, **options: Any) -> Tuning:
        """Return what `tune` finds for a run's problem, rounds and other options."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("base", "rounds")}
        return tune(self.base, problem, rounds=rounds if self.rounds is None else self.rounds, **own, **options)


def tune(
    algorithm: Algorithm | Sequence[Algorithm],
    problem: Problem | None = None,
    *,
    grid: Grid | None = None,
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
    algorithm : Algorithm, or sequence of algorithms
        Its fields named in `grid` are replaced, the others stay; or the settings themselves, of one class, such as
        ``lf.grid(algorithm, step_size=(0.1, 0.3))``.
    problem, data, rounds, participation, trials, record_every, engine, workers
        As in `simulate`.
    grid : mapping of field name to values, or sequence of mappings of field name to value, optional
        Hyper-parameters, ``"heads.step_size"`` for one of a field's own, and the values to try: all combinations of a
        mapping, or the settings of a sequence one by one.
        To be left out with a sequence of algorithms.
    metric : str or callable
        What to make small: a name from ``lf.METRICS`` ("train_loss" and "test_loss" need no truth), or a function from
        a `Result` to one value per trial (e.g. from `Result.new_clients`), which is then measured once, at the end.
    score : "area", "final" or callable
        The mean over rounds of log10 of the curve (fast and low), or its last value alone; or a function of the
        recorded rounds and the curve, such as ``lf.RoundsTo(0.01)``. Smaller is better.
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
        For no `grid`, or one beside a sequence of algorithms; algorithms of several classes; a field that the algorithm
        does not have, an empty grid, `extend` of a grid that is a sequence or that holds other values than numbers; or
        when every setting diverged or has NaN for a score.

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
    algorithm, grid = _candidates(algorithm, grid)
    score = _check_score("score", score)
    judge = score if callable(score) else SCORES[score]
    settings, level = _settings(algorithm, grid), _check_quantile("quantile", quantile)
    seed = check_seed(seed)
    entropy = (*seed, TUNING_SEED) if isinstance(seed, tuple) else (seed, TUNING_SEED)
    margin = non_negative("margin", margin)
    extend = check_bool("extend", extend) and _check_extensible(grid)
    curves: list[Array] = []
    scores: list[float] = []
    for widened in range(EXTENSIONS + 1):
        for setting in settings[len(curves) :]:
            result = simulate(
                changed(algorithm, setting),
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
        ties = within(scores, margin, logarithmic=judge is area)
        if not ties:
            raise ValueError(f"every setting of the grid diverged or has no score: {grid!r}; try smaller steps")
        best = smallest(settings, ties)
        edges = at_edge(settings, [best])
        more = beyond(algorithm, settings, best, edges) if extend and widened < EXTENSIONS else []
        if not more:
            break
        settings = settings + more
    for name in at_edge(settings, ties):
        warnings.warn(edge_message(settings, name, settings[best][name]), EdgeWarning, stacklevel=2)
    return Tuning(
        algorithm=changed(algorithm, settings[best]),
        settings=settings,
        scores=np.array(scores),
        best=best,
        rounds=recorded,
        curves=np.array(curves),
        at_edge=edges,
    )


# --- its arguments -------------------------------------------------------------------------------------------


_check_quantile: Check = partial(check_number, minimum=0.0, maximum=1.0)


def _check_score(name: str, value: Any) -> Any:
    """Return a score if it is a function or has a name."""
    return value if callable(value) else check_choice(name, value, SCORES)


def _check_extensible(grid: Grid) -> bool:
    """Return True, or raise for a grid that has no next value."""
    if not isinstance(grid, Mapping):
        raise ValueError(f"extend = True needs a grid of fields and their values, not the settings {shown(grid)}")
    for name, values in grid.items():
        for value in values:
            if not is_real(value):
                raise ValueError(f"extend = True needs numbers: grid[{name!r}] holds {shown(value)}")
    return True


def _candidates(algorithm: Algorithm | Sequence[Algorithm], grid: Grid | None) -> tuple[Algorithm, Grid]:
    """Return an algorithm and its grid: of a sequence of algorithms the first, and the fields in which they differ."""
    if not isinstance(algorithm, Sequence) or isinstance(algorithm, str):
        check_algorithm(algorithm)
        if grid is None:
            raise ValueError("grid = None names no hyper-parameter; give at least one, or a sequence of algorithms")
        return algorithm, grid
    if grid is not None:
        raise ValueError(f"grid = {shown(grid)} goes with one algorithm; a sequence of algorithms is a grid itself")
    for one in algorithm:
        check_algorithm(one)
    if len({type(one) for one in algorithm}) != 1:
        raise ValueError(f"algorithm = {shown(algorithm)} must be algorithms of one class, at least one")
    names = differing(algorithm) or [dataclasses.fields(algorithm[0])[0].name]  # type: ignore[arg-type]
    return algorithm[0], [{name: at_path(one, name) for name in names} for one in algorithm]


def _measured(result: Result, metric: str | Callable[[Result], Array]) -> tuple[Array, Indices]:
    """Return what is to be made small, (trials, R), and the rounds at which it was measured."""
    if not callable(metric):
        return result.metrics[metric], result.rounds
    values = np.asarray(metric(result), dtype=float)
    if values.shape != (result.trials,):
        raise ValueError(f"metric returned shape {values.shape}, expected one value per trial, ({result.trials},)")
    return values[:, None], result.rounds[-1:]


def _settings(algorithm: Algorithm, grid: Grid) -> list[dict[str, Any]]:
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
    for setting in settings:
        for name in setting:
            _check_field(algorithm, name)
        if setting.keys() != settings[0].keys():
            raise ValueError(f"grid has settings of different fields: {sorted(settings[0])} and {sorted(setting)}")
    return settings


def _check_field(algorithm: Algorithm, name: str) -> None:
    """Raise unless a name of a grid is a field of the algorithm, or a dotted path to one of a field's."""
    first = name.partition(".")[0]
    names = [f.name for f in dataclasses.fields(algorithm)] if dataclasses.is_dataclass(algorithm) else list[str]()
    if first not in names:
        known = ", ".join(repr(field) for field in names)
        raise ValueError(f"grid names {name!r}, which is no field{suggestion(name, names)}; allowed: {known}")
    if "." in name:
        check_path(algorithm, name)
