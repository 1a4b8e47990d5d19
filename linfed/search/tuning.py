"""Tuning hyper-parameters over a grid, on trials of its own."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from linfed._types import Array, Indices
from linfed._values import Check, Configuration, check_fields, non_negative, optional, takes
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
from linfed.search.grid_search import Search, Tries, Tuning, attempts, measured, recorded
from linfed.search.selection import MARGIN, SCORES, check_made_small, of_results
from linfed.simulation.participation import Participation
from linfed.simulation.run import simulate
from linfed.tables.grid import Row, at_path, changed, check_count, check_path, differing

Grid: TypeAlias = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]

SAY_EDGES: ContextVar[bool] = ContextVar("SAY_EDGES", default=True)
"""Whether `tune` warns of a value at the edge of its grid; a sweep does so once for all its cells."""

TUNING_SEED = 0x74756E65
"""Added to the seed's entropy: tuning never sees the trials that `simulate` runs with the same seed."""


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
    metric: str | Callable[..., Array] = "subspace_distance"
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
        check_made_small(self.metric)

    def algorithms(self) -> list[Algorithm]:
        """Return the algorithm at every setting of the grid, in its order."""
        return [changed(self.base, setting) for setting in _settings(self.base, self.grid)]

    def tune(self, problem: Problem | None, *, rounds: int, **options: Any) -> Tuning:
        """Return what `tune` finds for a run's problem, rounds and other options."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("base", "rounds")}
        return tune(self.base, problem, rounds=rounds if self.rounds is None else self.rounds, **own, **options)

    def tries(self, problem: Problem | None, *, rounds: int, seed: Seed, **options: Any) -> Tries:
        """Return the cell that tries all settings of the grid, for a run's problem, rounds and other options."""
        return Tries(
            algorithms=tuple(self.algorithms()),
            problem=problem,
            rounds=rounds if self.rounds is None else self.rounds,
            trials=self.trials,
            seed=tuning_seed(seed),
            metric=self.metric,
            record_every=1,
            first=0,
            last=self.trials,
            **options,
        )

    def stages(self, problem: Problem | None, **options: Any) -> Generator[list[Tries], Sequence[Row], Tuning]:
        """Yield the pieces of what `tune` would do, batch by batch, take their rows, and return what it finds."""
        every = self.tries(problem, **options)
        steps = _search(self.base, self.grid, self.score, self.quantile, self.margin, self.extend).steps()
        tried = next(steps)
        while True:
            pieces = dataclasses.replace(every, algorithms=tuple(tried)).divided()
            rows = yield pieces
            try:
                tried = steps.send(attempts(pieces, rows))
            except StopIteration as end:
                found: Tuning = end.value[0]
                return found


def tune(
    algorithm: Algorithm | Sequence[Algorithm],
    problem: Problem | None = None,
    *,
    grid: Grid | None = None,
    data: Data,
    rounds: int,
    metric: str | Callable[..., Array] = "subspace_distance",
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
        What to make small: a name from ``lf.METRICS`` ("train_loss" and "test_loss" need no truth), or a function
        ``f(state, truth)`` that returns one value per trial, as in `simulate`. A function of one argument takes the
        `Result` instead (e.g. for `Result.new_clients`) and is measured once, at the end. An accuracy is refused: it is
        best where it is largest.
    score : "area", "final" or callable
        The mean over rounds of log10 of the curve (fast and low), or only its last value; or a function of the
        recorded rounds and the curve that returns a number, such as ``lf.RoundsTo(0.01)``. Smaller is better.
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
        If `algorithm` is not an algorithm, if `metric` or `score` cannot be called with these arguments, or if `score`
        does not return a number.
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

    Examples
    --------
    >>> import linfed as lf
    >>> problem, data = lf.SharedRepresentation(n_clients=30, dim=10, rank=2), lf.FreshSamples(n_samples=10)
    >>> fedrep = lf.FedRep(rank=2, step_size=1.0)
    >>> tuning = lf.tune(fedrep, problem, grid={"step_size": (0.5, 1.5, 4.5)}, data=data, rounds=30, trials=5)
    >>> tuning.algorithm.step_size, tuning.at_edge
    (1.5, ())
    >>> result = lf.simulate(tuning.algorithm, problem, data=data, rounds=30, trials=5)      # on trials of its own
    """
    algorithm, grid = _candidates(algorithm, grid)
    check_made_small(metric)
    steps = _search(algorithm, grid, score, quantile, margin, extend).steps()
    wanted: dict[str, Any] = {"data": data, "rounds": rounds, "participation": participation, "trials": trials}
    wanted |= {"seed": tuning_seed(seed), "engine": engine, "workers": workers}
    wanted |= {"metrics": recorded(metric)}
    wanted |= {"record_every": rounds if of_results(metric) and rounds else record_every}
    tried = next(steps)
    while True:
        found = [measured(simulate(one, problem, **wanted), metric) for one in tried]
        try:
            tried = steps.send(found)
        except StopIteration as end:
            tuning: Tuning = end.value[0]
            for message in end.value[1] if SAY_EDGES.get() else ():
                warnings.warn(message, EdgeWarning, stacklevel=2)
            return tuning


def tuning_seed(seed: Seed) -> Seed:
    """Return the seed of a tuning, whose trials are others than those of a run with this seed."""
    seed = check_seed(seed)
    return (*seed, TUNING_SEED) if isinstance(seed, tuple) else (seed, TUNING_SEED)


# --- its arguments -------------------------------------------------------------------------------------------


_check_quantile: Check = partial(check_number, minimum=0.0, maximum=1.0)


def _search(algorithm: Algorithm, grid: Grid, score: Any, quantile: float, margin: float, extend: bool) -> Search:
    """Return a search, after checking what it is told."""
    score = _check_score("score", score)
    return Search(
        algorithm=algorithm,
        settings=_settings(algorithm, grid),
        judge=score if callable(score) else SCORES[score],
        quantile=_check_quantile("quantile", quantile),
        margin=non_negative("margin", margin),
        extend=check_bool("extend", extend) and _check_extensible(grid),
    )


def _check_score(name: str, value: Any) -> Any:
    """Return a score if it is a function or has a name."""
    if callable(value) and not takes(value, 2):
        raise TypeError(f"{name} = {shown(value)} must be a function of two arguments: the rounds and the curve")
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


def _settings(algorithm: Algorithm, grid: Grid) -> list[dict[str, Any]]:
    """Return the settings to try, after checking that they name fields of the algorithm."""
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                raise ValueError(f"grid[{name!r}] = {shown(values)} must be a sequence of values to try")
            if len(values) == 0:
                raise ValueError(f"grid[{name!r}] is empty; give at least one value")
        check_count({name: len(values) for name, values in grid.items()})
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
