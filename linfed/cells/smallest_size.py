"""Cell that searches for the smallest size at which a run reaches a level, for `linfed.find_smallest`."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from linfed._types import Array
from linfed._values import Configuration, check_fields, converted, instance, optional, positive, takes
from linfed.algorithms.parts.base import Algorithm
from linfed.cells.run import Part, Run, edge_notes
from linfed.checks import (
    check_bool,
    check_integer,
    check_number,
    check_text,
    is_integer,
    is_real,
    short_repr,
)
from linfed.errors import NoPredictionError, SizeError
from linfed.prediction import predict
from linfed.search.levels import Level
from linfed.search.parts import run_parts
from linfed.search.tuning import Tuned
from linfed.simulation.participation import check_participants, n_participants
from linfed.statistics.crossings import ThresholdSearch, crossing_of, replicates_of
from linfed.tables.grid import Cell, Row, at_path, changed, check_path, checked_cells, unwrapped
from linfed.tables.labeled_array import LabeledArray

STEP_SIZE = "algorithm.step_size"
"""Path of the field that a rule for the step size sets."""

ROUND = "round"
"""Path that stands for the number of rounds, which a single run is enough to find."""

UNBOUNDED = 2**62
"""Budget of a search over predictions, which stops at the number of measured trials."""

RANGE = 1024
"""By default, sizes are searched up to ``start * RANGE``: real-valued ones from ``start / RANGE``, integers from 1."""

Predictions: TypeAlias = tuple[ThresholdSearch, dict[float, str]]
"""A search over predictions, and the reasons why there is no prediction, by size."""


@dataclass(frozen=True, kw_only=True)
class SmallestSize(Configuration):
    """Cell that searches for the smallest size at which one base cell reaches a level.

    Parameters
    ----------
    base : Run, or a cell with a field ``trials``
        The base cell. In a custom cell, no trial may depend on the number of trials.
    path, reaches, share, start, lower, upper, resolution, confidence, batch, trials, budget, step_size, predicted
        As in `lf.find_smallest`.
    """

    divides = True
    keeps_parts = True  # a search with another level or budget reuses the runs
    overrides_fields = True  # the row has the step size, and the predicted size
    notes = staticmethod(edge_notes)

    base: Any
    path: str
    reaches: Level
    share: float = 0.5
    start: float | None = None
    lower: float | None = None
    upper: float | None = None
    resolution: float = 0.05
    confidence: float = 0.95
    batch: int = 8
    trials: int = 64
    budget: int | None = None
    step_size: Callable[..., float] | None = None
    predicted: bool = False

    def __post_init__(self) -> None:
        checked_cells([self.base])
        check_fields(
            self,
            reaches=instance(Level, "a level, e.g. lf.below(metric, level)"),
            share=_inside,
            confidence=_inside,
            start=optional(_size),
            lower=optional(_size),
            upper=optional(_size),
            resolution=positive,
            batch=check_integer,
            trials=check_integer,
            budget=optional(check_integer),
            predicted=check_bool,
            path=converted(unwrapped),
        )
        if self.batch > self.trials:
            raise ValueError(f"batch = {self.batch} must be at most trials = {self.trials}")
        if self.step_size is not None:
            self._check_rule()
        if self.predicted and (self.share != 0.5 or self.reaches.metric != "subspace_distance" or not self._is_run):
            raise ValueError(
                "predicted = True requires lf.Run cells, the metric subspace_distance and share = 0.5, because "
                "lf.predict gives medians"
            )
        self._check_path()

    def _check_rule(self) -> None:
        """Raise unless `step_size` is a function, and sets a field of the cell that nothing else sets."""
        if not callable(self.step_size) or isinstance(getattr(self.base, "algorithm", None), Tuned):
            raise ValueError(
                f"step_size = {short_repr(self.step_size)} must be a function, and cannot be combined with lf.Tuned"
            )
        if self.path == STEP_SIZE:
            raise ValueError(f"step_size = {short_repr(self.step_size)} cannot be combined with path = {STEP_SIZE!r}")
        check_path(self.base, STEP_SIZE)

    def _check_path(self) -> None:
        if check_text("path", self.path) == ROUND and self._is_run:
            return
        check_path(self.base, self.path)
        if not self._is_run and "trials" not in {field.name for field in dataclasses.fields(self.base)}:
            raise TypeError(f"{short_repr(self.base)} must have a field 'trials', which find_smallest sets")
        if self.start is None and not is_real(at_path(self.base, self.path)):
            raise ValueError(
                f"{self.path} = {short_repr(at_path(self.base, self.path))} must be a number to start "
                "from; otherwise set start="
            )
        low, start, high = self._range
        for name, size in (("start", start), ("lower", low), ("upper", high)):
            if self._whole and not float(size).is_integer():
                raise ValueError(f"{name} = {size:g} must be an integer, as {self.path} is")
        if not low <= start <= high:
            raise ValueError(f"start = {start:g} must be between lower = {low:g} and upper = {high:g}")
        for name, size in (("start", start), ("lower", low), ("upper", high)):
            try:
                self._check_at(size)
            except (SizeError, TypeError, ValueError) as error:
                error.add_note(f"at the {'start' if name == 'start' else 'end of the range'}, {name} = {size:g}")
                raise

    @property
    def seed(self) -> Any:
        """The seed of the base cell."""
        return getattr(self.base, "seed", None)

    @property
    def _is_run(self) -> bool:
        return isinstance(self.base, Run)

    @property
    def _whole(self) -> bool:
        value = at_path(self.base, self.path)
        return is_integer(value if is_real(value) else self.start)

    @property
    def _range(self) -> tuple[float, float, float]:
        start = unwrapped(at_path(self.base, self.path)) if self.start is None else self.start
        least = self._least(start) if self.lower is None else self.lower
        return least, start, start * RANGE if self.upper is None else self.upper

    def _least(self, start: float) -> float:
        """Return the default of `lower`, or the smallest size at which a run is possible if that is larger."""
        low, high = (1, start) if self._whole else (start / RANGE, start)
        if low >= high or self._possible(low):
            return low
        while high - low > 1 if self._whole else high > 1.01 * low:  # larger sizes than a possible one are possible
            middle = (low + high) // 2 if self._whole else math.sqrt(low * high)
            low, high = (low, middle) if self._possible(middle) else (middle, high)
        return high

    def _possible(self, size: float) -> bool:
        try:
            self._check_at(size)
        except (SizeError, TypeError, ValueError):
            return False
        return True

    def _check_at(self, size: float) -> None:
        """Raise if no cell, step size or run is possible at a size."""
        cell = self._at(size)
        if isinstance(cell, Run):
            cell.check()

    # --- the search ------------------------------------------------------------------------------------------

    def run(self) -> Row:
        """Run the search, one batch of trials at a time, and return its row."""
        row = self._rounds() if self.path == ROUND else self._sizes()
        return row | self._predicted(row) if self.predicted else row

    def _rounds(self) -> dict[str, Any]:
        """Search over the rounds of a single run."""
        run, columns = self._ready(self.base)
        (row,) = run_parts([self._trials_of(run, 0, self.trials)])
        search = self._of_rounds(row)
        return {**self._search_columns(search), **columns}

    def _of_rounds(self, row: Row, **other: Any) -> ThresholdSearch:
        found: LabeledArray = self._column(row)
        shortfalls = np.minimum.accumulate(self.reaches.shortfalls(found.values), axis=1)
        rounds = [int(one) for one in found.axes["round"]]
        ends: dict[str, Any] = {"start": rounds[0], "lower": rounds[0], "upper": rounds[-1]}
        search = self._search(**ends | {"batch": self.trials} | other)
        for place, number in enumerate(rounds):
            search.take(number, shortfalls[:, place])
        search.stop_reason = "trials"
        return search

    def _sizes(self) -> dict[str, Any]:
        search = self._search()
        chosen: dict[float, Row] = {}
        ready: dict[float, Any] = {}
        while (wanted := search.wanted()) is not None:
            size, first, last = wanted
            if size not in ready:
                ready[size], chosen[size] = self._ready(self._at(size))
            (row,) = run_parts([self._trials_of(ready[size], first, last)])
            search.take(size, self._shortfalls(row, first, last))
        found = self._search_columns(search)
        near = min(chosen, key=lambda size: (size < min(found["crossing"], max(chosen)), size))
        return {**found, **chosen[near]}

    def _search(self, **other: Any) -> ThresholdSearch:
        options: dict[str, Any] = (
            dict(zip(("lower", "start", "upper"), self._range, strict=True)) if self.path != ROUND else {}
        )
        options |= {"batch": self.batch, "trials": self.trials}
        options |= {"budget": 16 * self.trials if self.budget is None else self.budget}
        return ThresholdSearch(
            whole=True if self.path == ROUND else self._whole,
            share=self.share,
            resolution=self.resolution,
            confidence=self.confidence,
            **options | other,
        )

    def _at(self, size: float) -> Any:
        """Return the base cell at a size, with the step size that the rule gives."""
        cell = changed(self.base, {self.path: int(size) if self._whole else float(size)})
        return cell if self.step_size is None else changed(cell, {STEP_SIZE: _by_rule(self.step_size, cell)})

    def _ready(self, cell: Any) -> tuple[Any, Row]:
        """Return a cell with a tuned algorithm and the required metric, and columns with the chosen step size."""
        if not isinstance(cell, Run):
            return cell, {}
        if self.path == ROUND and self.step_size is not None:
            cell = changed(cell, {STEP_SIZE: _by_rule(self.step_size, cell)})
        wanted: dict[str, Any] = {}
        if cell.metrics is None:
            wanted["metrics"] = (self.reaches.metric,)
        if self.path != ROUND and not self.reaches.ever:
            wanted["record_every"] = max(1, cell.n_rounds)
        algorithm, columns = cell.algorithm, dict[str, Any]()
        if isinstance(algorithm, Tuned):
            tuning = algorithm.tune(cell.problem, n_rounds=cell.n_rounds, **cell._shared())
            algorithm = tuning.algorithm
            columns = {name: one for name, one in tuning.columns().items() if not isinstance(one, LabeledArray)}
        elif is_real(step := getattr(algorithm, "step_size", None)):
            columns = {"step_size": float(step)}
        return dataclasses.replace(cell, algorithm=algorithm, **wanted), columns

    def _trials_of(self, cell: Any, first: int, last: int) -> Cell:
        whole = dataclasses.replace(cell, trials=last)
        return Part(part_of=whole, part_first=first, part_last=last) if isinstance(cell, Run) else whole

    def _column(self, row: Row) -> Any:
        if self.reaches.column not in row:
            columns = ", ".join(map(repr, row))
            raise ValueError(
                f"reaches = {self.reaches} requires a column {self.reaches.column!r}, but the run's row has {columns}"
            )
        return row[self.reaches.column]

    def _shortfalls(self, row: Row, first: int, last: int) -> Array:
        value = self._column(row)
        shortfalls = self.reaches.misses(value.values if isinstance(value, LabeledArray) else value)
        shortfalls = shortfalls if self._is_run else shortfalls[first:]
        if shortfalls.shape != (last - first,):
            raise ValueError(f"{self.reaches.column} must have {last} trials, got {len(shortfalls) + first}")
        return shortfalls

    def _search_columns(self, search: ThresholdSearch) -> dict[str, Any]:
        crossing = float(crossing_of(search.shortfalls, self.share)[0][0])
        sizes = sorted(search.shortfalls)
        low, high = search.interval
        censored = "above" if crossing > sizes[-1] else "below" if crossing == sizes[0] and sizes[0] > 0 else ""
        shortfalls = np.full((max(map(len, search.shortfalls.values())), len(sizes)), np.nan)
        for place, size in enumerate(sizes):
            shortfalls[: len(search.shortfalls[size]), place] = search.shortfalls[size]
        counted = ~np.isnan(shortfalls)
        return {
            self.path.rpartition(".")[2]: math.nan if censored else self._round_up(crossing),
            "crossing": math.nan if censored else crossing,
            "low": low,
            "high": high,
            "censored": censored,
            "stop_reason": search.stop_reason,
            "violations": search.violations,
            "total_trials": search.total_trials if self.path != ROUND else self.trials,
            "shortfall": LabeledArray(shortfalls, tried=sizes),
            "count": LabeledArray(counted.sum(axis=0), tried=sizes),
            "reached": LabeledArray(np.sum(shortfalls <= 0, axis=0), tried=sizes),
            "replicates": LabeledArray(
                reps := replicates_of(search.shortfalls, self.share), replicate=range(len(reps))
            ),
        }

    def _round_up(self, crossing: float) -> float:
        return math.ceil(crossing - 1e-9) if self.path == ROUND or self._whole else crossing

    # --- predictions -----------------------------------------------------------------------------------------

    def _predicted(self, row: Row) -> dict[str, Any]:
        """Search over predictions for the ground truths of the measured trials, as over runs, in batches."""
        predicted_of = int(row["count"].values.max())
        options = {"batch": min(self.batch, predicted_of), "trials": predicted_of, "near": True, "budget": UNBOUNDED}
        search, missing = (
            self._predicted_rounds(options) if self.path == ROUND else self._predicted_sizes(row["crossing"], options)
        )
        found = self._search_columns(search)
        failing = [size for size in missing if not size >= found["crossing"]]
        columns = {f"predicted_{name}": found[name] for name in ("crossing", "low", "high", "censored")}
        columns["predicted_trials"] = max(map(len, search.shortfalls.values()))
        reason = missing[max(failing, default=min(missing))]
        return {"predicted": found[self.path.rpartition(".")[2]], **columns, "missing_prediction": reason}

    def _predicted_sizes(self, measured: float, options: dict[str, Any]) -> Predictions:
        """Search over predictions at several sizes, starting at the measured size unless it is censored."""
        least, start, most = self._range
        start = start if math.isnan(measured) else min(max(self._round_up(measured), least), most)
        search = self._search(**options | {"start": start})
        missing: dict[float, str] = {}
        while (wanted := search.wanted()) is not None:
            size, first, last = wanted
            run, _ = self._ready(self._at(size))
            (row,) = run_parts([PredictedRun(of=run, trials=last)])
            search.take(size, self.reaches.misses(row["subspace_distance"].values)[first:])
            missing[size] = row["missing_prediction"]
        return search, missing

    def _predicted_rounds(self, options: dict[str, Any]) -> Predictions:
        """Predict all rounds, for more and more trials until the interval is narrow enough or all trials are used."""
        run, _ = self._ready(self.base)
        trials = options["batch"]
        while True:
            (row,) = run_parts([PredictedRun(of=run, trials=trials)])
            search = self._of_rounds(row, **options)
            wanted = search.wanted()
            if wanted is None or trials == options["trials"]:
                return search, dict.fromkeys(search.shortfalls, str(row["missing_prediction"]))
            trials = wanted[2]


@dataclass(frozen=True, kw_only=True)
class PredictedRun(Configuration):
    """Cell for the predictions of `lf.predict` for the first trials of a run."""

    of: Run
    trials: int

    @property
    def seed(self) -> Any:
        """The seed of the run."""
        return self.of.seed

    def run(self) -> Row:
        """Return the predicted distances along ``round``, NaN if no prediction is available, and the reason why not."""
        arguments = {name: getattr(self.of, name) for name in ("problem", "data", "n_rounds", "participation", "seed")}
        rounds = np.arange(self.of.n_rounds + 1)
        assert isinstance(self.of.algorithm, Algorithm)
        try:
            distance = np.atleast_2d(predict(self.of.algorithm, **arguments, trials=self.trials).distance)
            missing = ""
        except NoPredictionError as error:
            distance, missing = np.full((self.trials, len(rounds)), np.nan), str(error)
        return {"subspace_distance": LabeledArray(distance, round=rounds), "missing_prediction": missing}


def _size(name: str, value: Any) -> Any:
    """Return the value as an int if it is an integer, else as a float; raise unless it is positive."""
    number = check_number(name, value, positive=True)
    return int(value) if is_integer(value) else number


def _inside(name: str, value: Any) -> float:
    """Return the value as a float; raise unless it is above 0 and below 1."""
    number = check_number(name, value, positive=True)
    if number >= 1:
        raise ValueError(f"{name} = {short_repr(value)} must be above 0 and below 1")
    return number


def _by_rule(rule: Callable[..., float], cell: Any) -> float:
    """Return the step size that a rule gives for a cell."""
    names = inspect.signature(rule).parameters
    quantities = {"dim", "rank", "n_clients", "n_samples", "participants", "noise_std"}
    if not names.keys() <= quantities:
        if not takes(rule, 1):
            raise TypeError(
                f"step_size = {short_repr(rule)} must be a function of the cell, or of any of {sorted(quantities)}"
            )
        return float(rule(cell))
    problem, data = getattr(cell, "problem", None), getattr(cell, "data", None)
    sizes = data if problem is None else problem
    values = {
        "dim": getattr(sizes, "dim", None),
        "rank": getattr(cell.algorithm, "learned_rank", None),
        "n_clients": getattr(sizes, "n_clients", None),
        "n_samples": getattr(data, "n_samples", None),
        "noise_std": getattr(problem, "noise_std", None),
    }
    if "participants" in names:
        values["participants"] = _n_participants(cell, values["n_clients"])
    if missing := [name for name in names if values[name] is None]:
        raise ValueError(f"step_size = {short_repr(rule)} must not use {', '.join(missing)}, which the cell lacks")
    return float(rule(**{name: values[name] for name in names}))


def _n_participants(cell: Any, n_clients: int | None) -> int | None:
    """Return the number of participants in a round of a cell; None if the cell does not say it."""
    participation = getattr(cell, "participation", None)
    if n_clients is None or participation is None:
        return None
    if is_real(participation):
        return n_participants(participation, n_clients)
    return int(check_participants(participation, n_clients, cell.n_rounds, cell.trials or 1).shape[-1])
