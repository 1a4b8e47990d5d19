"""Tune hyper-parameters over a grid, on separate trials."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from linfed._types import Array, Indices
from linfed._values import ByValue, Check, check_fields, converted, non_negative, optional, owned, takes
from linfed.algorithms.parts.base import Algorithm, check_algorithm
from linfed.checks import (
    check_bool,
    check_choice,
    check_integer,
    check_number,
    check_progress,
    is_real,
    is_several,
    short_repr,
    suggestion,
)
from linfed.data.samples import Data, GivenSamples
from linfed.errors import ValidationWarning
from linfed.numerics.streams import Seed, check_seed
from linfed.problems import Problem
from linfed.search.grid_search import Attempt, Search, Tries, TuningResult, attempts, measured
from linfed.search.parts import is_in_cell, parts_are_spread, run_parts
from linfed.search.race import race_of
from linfed.search.selection import SCORES, TIES_WITHIN, check_made_small, of_results
from linfed.simulation.job import given_trials
from linfed.simulation.participation import Participation
from linfed.simulation.run import format_identical, format_unprepared, simulate_job, with_progress
from linfed.tables.grid import at_path, changed, check_count, check_path, differing, unwrapped

Grid: TypeAlias = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]

REUSED = (
    "metric = 'test_loss' chooses the setting by its loss on the test samples, so the test loss of the chosen setting "
    "is too small: hold out training samples with validation_share=0.25, or set validation_share=0 if the test samples "
    "are a validation set"
)
"""Message of a `ValidationWarning`."""

TUNING_SEED = 0x74756E65
"""Number added to the seed, so that tuning never uses the trials that `simulate` runs with the same seed."""


@dataclass(frozen=True, kw_only=True)
class Tuned(ByValue):
    """Algorithm of an `lf.Run` that is tuned before it runs.

    Parameters
    ----------
    base : Algorithm
        The algorithm; its fields that `grid` names are replaced, the others stay.
    grid, metric, score, quantile, ties_within, extend, trials, validation_share
        As in `tune`. Given arrays with an axis of trials have as many tuning trials.
    n_rounds : int, optional
        Number of rounds of the tuning runs; by default as many as the run has.

    Raises
    ------
    TypeError, ValueError
        As in `tune`.

    Notes
    -----
    The tuning uses the problem, data, participation, seed and engine of the run, but separate trials (see `tune`).

    Examples
    --------
    >>> import linfed as lf
    >>> tuned = lf.Tuned(base=lf.FedRep(rank=2, step_size=1.0), grid={"step_size": (0.3, 1.0, 3.0)}, trials=5)
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=10, rank=2)
    >>> run = lf.Run(algorithm=tuned, problem=problem, data=lf.FreshSamples(n_samples=6), n_rounds=30)
    >>> lf.sweep([run])["step_size"]
    1.0
    """

    base: Algorithm
    grid: Grid
    metric: str | Callable[..., Array] = "subspace_distance"
    score: Literal["area", "final"] | Callable[[Indices, Array], float] = "area"
    quantile: float = 0.5
    ties_within: float = TIES_WITHIN
    extend: bool = False
    trials: int = 20
    n_rounds: int | None = None
    validation_share: float | None = None

    def __post_init__(self) -> None:
        check_algorithm(self.base, "base")
        check_fields(self, grid=converted(lambda grid: unwrapped(owned(grid))), metric=converted(unwrapped))
        _settings(self.base, self.grid)
        check_fields(
            self,
            score=_check_score,
            quantile=_check_quantile,
            ties_within=non_negative,
            extend=lambda name, value: check_bool(name, value) and _check_extensible(self.grid),
            trials=check_integer,
            n_rounds=optional(partial(check_integer, minimum=0)),
            validation_share=optional(_check_share),
        )
        check_made_small(self.metric)

    def algorithms(self) -> list[Algorithm]:
        """Return the algorithm with each setting of the grid, in order."""
        return [changed(self.base, setting) for setting in _settings(self.base, self.grid)]

    def tune(self, problem: Problem | None, *, n_rounds: int, **options: Any) -> TuningResult:
        """Call `tune` with a run's problem, rounds and other options."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("base", "n_rounds")}
        fields["trials"] = self._trials(problem, options["data"])
        return tune(
            self.base, problem, n_rounds=n_rounds if self.n_rounds is None else self.n_rounds, **fields, **options
        )

    def reuses_test(self, data: Data) -> bool:
        """Return whether the tuning with these data chooses the setting by its loss on the test samples."""
        return _reuses_test(data, self.metric, self.validation_share)

    def tries(self, problem: Problem | None, *, n_rounds: int, seed: Seed, data: Data, **options: Any) -> Tries:
        """Return the cell that a tuning divides and runs first: all settings of the grid, with a run's options."""
        return Tries(
            algorithms=tuple(self.algorithms()),
            problem=problem,
            data=_tuning_data(data, self.validation_share, seed, trials := self._trials(problem, data)),
            n_rounds=n_rounds if self.n_rounds is None else self.n_rounds,
            trials=trials,
            seed=tuning_seed(seed),
            metric=self.metric,
            record_every=1,
            first=0,
            last=trials,
            **options,
        )

    def _trials(self, problem: Problem | None, data: Data) -> int:
        """Return the number of trials of given arrays, or `trials` if they have no axis of trials."""
        return next(iter(given_trials(self.base, problem, data).values()), self.trials)


def tune(
    algorithm: Algorithm | Sequence[Algorithm],
    problem: Problem | None = None,
    *,
    grid: Grid | None = None,
    data: Data,
    n_rounds: int,
    metric: str | Callable[..., Array] = "subspace_distance",
    score: Literal["area", "final"] | Callable[[Indices, Array], float] = "area",
    quantile: float = 0.5,
    ties_within: float = TIES_WITHIN,
    extend: bool = False,
    participation: Participation = 1.0,
    trials: int | None = None,
    seed: Seed = 0,
    record_every: int = 1,
    engine: str = "auto",
    workers: int = 1,
    validation_share: float | None = None,
    progress: bool | None = False,
) -> TuningResult:
    """Tune the hyper-parameters of an algorithm: run every setting of a grid on separate trials and choose the best.

    Parameters
    ----------
    algorithm : Algorithm, or sequence of algorithms
        The algorithm; its fields that `grid` names are replaced, the others stay. Or all settings, as algorithms of one
        class, such as ``lf.grid(algorithm, step_size=(0.1, 0.3))``.
    problem, data, n_rounds, participation, record_every, engine, workers
        As in `simulate`.
    trials : int, optional
        Number of tuning trials; by default 20, or the number of trials of given arrays.
    grid : mapping of field name to values, or sequence of mappings of field name to value, optional
        Hyper-parameters and the values to try. A dotted path names a field of a field, such as ``"heads.step_size"``. A
        mapping stands for all combinations of its values, a sequence lists the settings one by one. Omit `grid` if
        `algorithm` is a sequence.
    metric : str or callable
        The metric to minimise: a name from ``lf.METRICS`` ("train_loss" and "test_loss" need no ground truth), or a
        function ``f(state, truth)`` that returns one value per trial, as in `simulate`. A function of one argument gets
        the `Result` instead (e.g. for `Result.new_clients`) and is measured once, at the end. Accuracies are not
        allowed, because larger values are better.
    score : "area", "final" or callable
        The score of a curve, smaller is better. "area" is the mean of log10 of the curve over the recorded rounds after
        the initial state, which rewards fast and accurate runs; "final" is its last value. A function of the recorded
        rounds and the curve must return a number, such as ``lf.RoundsTo(0.01)``.
    quantile : float
        The curve is this quantile of the metric over trials, with diverged trials as the worst. The default is the
        median; 0.9 chooses a setting that is good for nearly every trial.
    ties_within : float, default 0.01
        Scores within this share of the best score are ties. For "area", a mean of log10, these are the scores within
        ``log10(1 + ties_within)``.
    extend : bool, default False
        If True, widen the grid on the same trials while the chosen value of a field is at its edge, at most 10 times.
        `grid` must then be a mapping from fields to numbers.
    seed : int or tuple of int
        Seed of the run. The tuning trials are independent of the trials of ``simulate(seed=seed)``.
    validation_share : float, optional
        For `GivenSamples` and `GivenClasses`: the share of each client's training samples that the tuning holds out,
        other ones in each trial. "test_loss" is then the loss on these samples, the test samples of `data` are not
        used, and prepared samples are prepared again without the ones that are held out. With 0 the test
        samples of `data` are used: set 0 if they are a validation set. None (default) also uses them, with a
        `ValidationWarning` if `metric` is "test_loss".
    progress : bool or None
        If True, show a progress bar of the settings on standard error; None shows it only on a terminal.

    Returns
    -------
    TuningResult
        The algorithm with the chosen setting, and the scores and curves of all settings.

    Raises
    ------
    TypeError
        If `algorithm` is not an algorithm, if `metric` or `score` cannot be called with these arguments, or if `score`
        does not return a number.
    ValueError
        If `grid` is missing or empty, is combined with a sequence of algorithms, or names a field that the algorithm
        does not have. If the algorithms have several classes. If `extend` is True and the grid is a sequence or
        contains values that are not numbers. If every setting diverged or has a NaN score.

    Warns
    -----
    GridEdgeWarning
        If the best value of a field is the smallest or the largest one tried, and no other value ties with it.
    UserWarning
        If no setting reaches the level of ``score=lf.RoundsTo(level)`` in any trial.
    UserWarning
        If all trials are identical, because they share given samples and nothing else is random, or the samples need
        an intercept or a scale, as in `simulate`.
    ValidationWarning
        If `metric` is "test_loss" on given samples, and `validation_share` is None.

    Notes
    -----
    All settings see the same ground truths and participants, and the same samples unless an engine is exact only in
    distribution.

    Many step sizes may converge to the same point (e.g. with exact heads on fixed data), so that only rounding errors
    would decide between them. Therefore the smallest setting that ties with the best one is chosen. Settings are
    compared by the grid's first field, then by the second field, and so on. Fields that are not numbers are ignored,
    and equal settings keep the grid's order. NaN scores are never chosen. If the final values are rounding errors that
    differ by more than `ties_within`, use "area", which scores the whole curve.

    Trials that are ``Status.UNSTABLE`` count as diverged. If all settings of an extended grid diverge, smaller ones are
    tried. The grid is extended by its last ratio. It is extended by its last difference if it contains 0 or a negative
    number, or if the field is an integer and the ratio does not give one.

    With ``score=lf.RoundsTo(level)`` all settings run in turns. Once the best score, ties included, is smaller than
    the number of rounds, only the settings that may be chosen run to the end; the others are stopped. The choice and
    its score are as in complete runs, and the scores of stopped settings are lower bounds (`TuningResult`). With
    several workers, or if the settings do not fit in memory together, each one runs to the end, and the result is
    equal. For complete curves, use ``score=lambda rounds, curve: lf.RoundsTo(0.01)(rounds, curve)``.

    **Deviations**: the papers do not report how they chose their step sizes.

    Examples
    --------
    >>> import linfed as lf
    >>> problem, data = lf.SharedRepresentation(n_clients=30, dim=10, rank=2), lf.FreshSamples(n_samples=10)
    >>> fedrep = lf.FedRep(rank=2, step_size=1.0)
    >>> tuning = lf.tune(fedrep, problem, grid={"step_size": (0.5, 1.5, 4.5)}, data=data, n_rounds=30, trials=5)
    >>> tuning.algorithm.step_size, tuning.at_grid_edge
    (1.5, ())
    >>> result = lf.simulate(tuning.algorithm, problem, data=data, n_rounds=30, trials=5)      # on other trials
    """
    algorithm, grid = _candidates(algorithm, grid)
    check_made_small(metric)
    validation_share = optional(_check_share)("validation_share", validation_share)
    if not is_in_cell() and _reuses_test(data, metric, validation_share):
        warnings.warn(REUSED, ValidationWarning, stacklevel=2)
    if not is_in_cell() and (unprepared := format_unprepared(algorithm, problem, data)):
        warnings.warn(unprepared, stacklevel=2)
    search = _search(algorithm, grid, score, quantile, ties_within, extend)
    given = given_trials(algorithm, problem, data)
    trials = next(iter(given.values()), TRIALS) if trials is None else check_integer("trials", trials)
    disable = check_progress(progress)
    tries = Tries(
        algorithms=(),
        problem=problem,
        data=_tuning_data(data, validation_share, seed, trials),
        n_rounds=n_rounds,
        participation=participation,
        trials=trials,
        seed=tuning_seed(seed),
        metric=metric,
        record_every=record_every,
        engine=engine,
        first=0,
        last=trials,
    )

    can_race = search.is_race and not of_results(metric) and check_integer("workers", workers) == 1

    seen: list[Array] = []

    def attempt(tried: list[Algorithm], best: float) -> list[Attempt]:
        cell = dataclasses.replace(tries, algorithms=tuple(tried))
        if can_race and (race := race_of(cell, search, best)).fits():
            parts: Sequence[Tries] = [race]
        elif parts_are_spread():
            parts = cell.divided()
        else:
            shown = with_progress(tried, "setting", disable)
            found = [measured(simulate_job(cell.job(one), workers), metric) for one in shown]
            seen.extend(values for values, _ in found)
            return found
        return attempts(parts, run_parts(parts))

    tuning, notes = search.run(attempt)
    if identical := format_identical(tries.data, seen):
        notes.append(UserWarning(identical))
    for note in [] if is_in_cell() else notes:  # a cell's row has the column `at_grid_edge`
        warnings.warn(note, stacklevel=2)
    return tuning


TRIALS = 20
"""Default number of tuning trials."""


def _reuses_test(data: Data, metric: Any, validation_share: float | None) -> bool:
    """Return whether a setting is chosen by its loss on given test samples without a request for it."""
    return isinstance(data, GivenSamples) and metric == "test_loss" and validation_share is None


def _tuning_data(data: Data, validation_share: float | None, seed: Seed, trials: int) -> Data:
    """Return the data for the tuning runs; each trial holds out its own samples."""
    if validation_share is None:
        return data
    if not isinstance(data, GivenSamples):
        raise ValueError(
            f"validation_share = {validation_share:g} requires given samples (lf.GivenSamples or lf.GivenClasses), got "
            f"{short_repr(data)}: leave it out"
        )
    if not validation_share:
        return data
    several = trials if data.X.ndim == 3 else None
    return data.hold_out(validation_share, trials=several, seed=tuning_seed(seed))


def tuning_seed(seed: Seed) -> Seed:
    """Return the seed for the tuning trials, which are independent of the trials of a run with `seed`."""
    seed = check_seed(seed)
    if isinstance(seed, tuple):
        return (*seed, TUNING_SEED)
    # An integer above 2^94, whose words of 32 bits are 2, the seed and `TUNING_SEED`: published numbers rest on it.
    words = max(1, -(-seed.bit_length() // 32))
    return (((TUNING_SEED << 32 * words) + seed) << 32) + 2


# --- checks of arguments -------------------------------------------------------------------------------------


_check_quantile: Check = partial(check_number, minimum=0.0, maximum=1.0)
_check_share: Check = partial(check_number, minimum=0.0, maximum=1.0)


def _search(algorithm: Algorithm, grid: Grid, score: Any, quantile: float, ties_within: float, extend: bool) -> Search:
    """Check the arguments and return the search."""
    score = _check_score("score", score)
    return Search(
        algorithm=algorithm,
        settings=_settings(algorithm, grid),
        judge=score if callable(score) else SCORES[score],
        quantile=_check_quantile("quantile", quantile),
        ties_within=non_negative("ties_within", ties_within),
        extend=check_bool("extend", extend) and _check_extensible(grid),
    )


def _check_score(name: str, value: Any) -> Any:
    """Return the score; raise unless it is a function of two arguments or a name in `SCORES`."""
    if callable(value) and not takes(value, 2):
        raise TypeError(f"{name} = {short_repr(value)} must be a function of two arguments: the rounds and the curve")
    return value if callable(value) else check_choice(name, value, SCORES)


def _check_extensible(grid: Grid) -> bool:
    """Return True; raise if the grid cannot be extended."""
    if not isinstance(grid, Mapping):
        raise ValueError(f"extend = True requires a grid that maps fields to values, got {short_repr(grid)}")
    for name, values in grid.items():
        for value in values:
            if not is_real(value):
                raise ValueError(f"extend = True requires numbers, but grid[{name!r}] contains {short_repr(value)}")
    return True


def _candidates(algorithm: Algorithm | Sequence[Algorithm], grid: Grid | None) -> tuple[Algorithm, Grid]:
    """Return the algorithm and the grid; for a sequence of algorithms, the first and the fields that differ."""
    if not isinstance(algorithm, Sequence) or isinstance(algorithm, str):
        check_algorithm(algorithm)
        if grid is None:
            raise ValueError("grid = None must name at least one hyper-parameter; or pass a sequence of algorithms")
        return algorithm, grid
    if grid is not None:
        raise ValueError(
            f"grid = {short_repr(grid)} cannot be combined with a sequence of algorithms, which is the grid"
        )
    for one in algorithm:
        check_algorithm(one)
    if len({type(one) for one in algorithm}) != 1:
        raise ValueError(f"algorithm = {short_repr(algorithm)} must be one or more algorithms of the same class")
    names = differing(algorithm) or [dataclasses.fields(algorithm[0])[0].name]  # type: ignore[arg-type]
    return algorithm[0], [{name: at_path(one, name) for name in names} for one in algorithm]


def _settings(algorithm: Algorithm, grid: Grid) -> list[dict[str, Any]]:
    """Return the settings to try; raise unless they name fields of the algorithm."""
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if not is_several(values):
                raise ValueError(f"grid[{name!r}] = {short_repr(values)} must be a sequence of values to try")
            if len(values) == 0:
                raise ValueError(f"grid[{name!r}] must have at least one value")
        check_count({name: len(values) for name, values in grid.items()})
        settings = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    else:
        if not isinstance(grid, Sequence) or not all(isinstance(setting, Mapping) for setting in grid):
            raise ValueError(
                f"grid = {short_repr(grid)} must map fields to the values to try, such as {{'step_size': [0.1, 0.3]}}, "
                "or be a sequence of mappings from fields to one value each"
            )
        settings = [dict(setting) for setting in grid]
    if not settings or not settings[0]:
        raise ValueError(f"grid = {short_repr(grid)} must name at least one hyper-parameter")
    for setting in settings:
        for name in setting:
            _check_field(algorithm, name)
        if setting.keys() != settings[0].keys():
            raise ValueError(
                f"all settings of grid must have the same fields, got {sorted(settings[0])} and {sorted(setting)}"
            )
    return settings


def _check_field(algorithm: Algorithm, name: Any) -> None:
    """Raise unless a name in a grid is a field of the algorithm or a dotted path to a field of a field."""
    names = [f.name for f in dataclasses.fields(algorithm)] if dataclasses.is_dataclass(algorithm) else list[str]()
    if not isinstance(name, str) or name.partition(".")[0] not in names:
        allowed = ", ".join(repr(field) for field in names)
        raise ValueError(f"grid names {name!r}, which is not a field{suggestion(name, names)}; allowed: {allowed}")
    if "." in name:
        check_path(algorithm, name)
