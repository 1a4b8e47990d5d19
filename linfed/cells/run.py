"""Cell for one run of `simulate`, which a sweep can divide into parts of about one second."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from linfed._types import Array
from linfed._values import COLUMN, ByValue, Configuration, check_fields, converted, owned
from linfed.algorithms.parts.base import Algorithm
from linfed.checks import check_instance, check_text, is_several
from linfed.data.samples import Data
from linfed.errors import GridEdgeWarning, ValidationWarning, diverged_warning
from linfed.numerics.streams import Seed
from linfed.problems import Problem
from linfed.search.parts import parts_are_spread, run_parts
from linfed.search.tuning import REUSED, Tuned
from linfed.simulation.job import Job, check_joined, checked_job, seconds_of_a_trial, trials_of_a_second
from linfed.simulation.participation import Participation, plain_participation
from linfed.simulation.results import Result
from linfed.simulation.run import format_identical, format_unprepared, simulate, simulate_job, simulate_trials
from linfed.simulation.status import Status
from linfed.tables.export import format_diverged
from linfed.tables.grid import Cell, Row, unwrapped
from linfed.tables.labeled_array import LabeledArray
from linfed.tables.table import Table


@dataclass(frozen=True, kw_only=True)
class Run(ByValue):
    """Cell for one run of `simulate`, with its arguments as fields; `grid` copies it and `sweep` runs it.

    Parameters
    ----------
    algorithm : Algorithm or Tuned
        The algorithm; ``lf.Tuned(base=..., grid=...)`` is tuned first, on separate trials.
    problem, data, n_rounds, participation, trials, seed, metrics, record_every, engine
        As in `simulate`. They are checked when the cell is run, not when it is created.
    name : str, optional
        Name of the method in tables and figures: the column ``method``, which a run without a name does not have.

    Notes
    -----
    The row of a run has a column for each field, such as ``problem.n_clients``, and the columns

    - the name of each metric: its values along ``round``;
    - ``status``: the name of each trial's `Status`, such as "COMPLETED"; ``diverged``: whether it is "DIVERGED";
    - ``participants``: the number of participants per round;
    - ``floats_sent``: the number of floats that server and participants have exchanged so far, along ``round``;
    - ``engine``: the engine used;
    - for a tuned algorithm, the chosen value of each hyper-parameter (e.g. ``step_size``), ``at_grid_edge``, and the
      settings tried (`TuningResult.columns`).

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.Run(
    ...     algorithm=lf.FedRep(rank=2, step_size=0.5),
    ...     problem=lf.SharedRepresentation(n_clients=50, dim=10, rank=2),
    ...     data=lf.FreshSamples(n_samples=6),
    ...     n_rounds=40,
    ...     trials=5,
    ... )
    >>> table = lf.sweep(lf.grid(run, **{"problem.n_clients": (50, 100), "data.n_samples": (6, 12)}))
    >>> table.select(n_clients=100, n_samples=12)["subspace_distance"].shape      # (trials, n_rounds + 1)
    (5, 41)
    >>> named = lf.grid(run, **{"name, algorithm": [
    ...     ("small steps", lf.FedRep(rank=2, step_size=0.1)), ("large steps", lf.FedRep(rank=2, step_size=0.5))]})
    >>> table = lf.sweep(named)
    >>> table.unique("method"), table.select(method="large steps")["step_size"]
    (['small steps', 'large steps'], 0.5)
    """

    overrides_fields = True  # the row has the trials and the engine that were used

    algorithm: Algorithm | Tuned
    problem: Problem | None = None
    data: Data
    n_rounds: int
    participation: Participation = 1.0
    trials: int | None = None
    seed: Seed = 0
    metrics: Sequence[Any] | None = None
    record_every: int = 1
    engine: str = "auto"
    name: str = field(default="", metadata={COLUMN: "method"})

    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_instance("algorithm", self.algorithm, (Algorithm, Tuned), "an algorithm, or lf.Tuned(base=..., grid=...)")
        check_fields(
            self,
            **dict.fromkeys(("n_rounds", "trials", "record_every", "engine", "name"), converted(unwrapped)),
            **dict.fromkeys(("seed", "metrics"), converted(_owned_parts)),
            participation=converted(lambda value: owned(plain_participation(value))),
        )

    def check(self) -> None:
        """Raise if `simulate` would not accept the arguments; the options of a tuning are checked when it runs."""
        check_joined(self._job(), 0.0)

    def simulate(self) -> Result:
        """Run `simulate`, after tuning if the algorithm is `Tuned`, and return its result."""
        return simulate(self._tuned()[0], **self._options())

    def run(self) -> Row:
        """Run `simulate`, after tuning if the algorithm is `Tuned`, and return the row."""
        algorithm, columns = self._tuned()
        if not parts_are_spread():
            return _merge(columns, self._row(simulate_job(checked_job(algorithm, **self._options()))))
        run = dataclasses.replace(self, algorithm=algorithm)
        chunks = trials_of_a_second(run._job())
        rows = run_parts([Part(part_of=run, part_first=trials.start, part_last=trials.stop) for trials in chunks])
        return _merge(columns, {name: _joined(name, [row[name] for row in rows]) for name in rows[0]})

    @property
    def cost(self) -> float:
        """Estimated run time in seconds, from the sizes, including the tuning; a sweep starts long runs first."""
        job = self._job()
        seconds = job.trials * seconds_of_a_trial(job)
        if not isinstance(self.algorithm, Tuned):
            return seconds
        return seconds + self.algorithm.tries(self.problem, n_rounds=self.n_rounds, **self._shared()).seconds()

    @property
    def divides(self) -> bool:
        """Whether a sweep divides the run: if it takes more than a second, and no subclass has another ``run``."""
        tuned = isinstance(self.algorithm, Tuned) and type(self.algorithm).tune is not Tuned.tune
        return type(self).run is Run.run and not tuned and self.cost > 1.0

    @staticmethod
    def notes(done: Sequence[tuple[Cell, Table]]) -> list[Warning]:
        """Return the warnings of a sweep: reused test samples, diverged or identical trials, edges, raw samples."""
        rows, found = [row for _, table in done for row in table.rows], list[Warning]()
        runs = [(cell, table) for cell, table in done if isinstance(cell, Run)]
        if any(isinstance(run.algorithm, Tuned) and run.algorithm.reuses_test(run.data) for run, _ in runs):
            found.append(ValidationWarning(REUSED))
        if diverged := format_diverged(rows):
            found.append(diverged_warning(diverged))
        identical = [format_identical(run.data, _metrics(row)) for run, table in runs for row in table.rows]
        unprepared = [
            format_unprepared(one.base if isinstance(one, Tuned) else one, run.problem, run.data)
            for run, _ in runs
            for one in (run.algorithm,)
        ]
        others = dict.fromkeys([*identical, *unprepared])
        return [*found, *edge_notes(done), *(UserWarning(note) for note in others if note)]

    def _row(self, result: Result) -> Row:
        """Return the columns for a result."""
        metrics = {name: LabeledArray(values, round=result.rounds) for name, values in result.metrics.items()}
        status = np.array([status.name for status in result.status])
        columns = {"trials": result.trials, "participants": result.participants, "engine": result.engine}
        columns["floats_sent"] = LabeledArray(result.floats_sent, round=result.rounds)
        names = {*columns, "status", "diverged", "round", *(one.name for one in fields(self))}
        _merge(dict.fromkeys(names), metrics)
        return {**columns, "status": status, "diverged": status == Status.DIVERGED.name, **metrics}

    def _tuned(self) -> tuple[Algorithm, Row]:
        """Return the algorithm, after tuning if it is `Tuned`, and the columns of the tuning."""
        if not isinstance(self.algorithm, Tuned):
            return self.algorithm, {}
        tuning = self.algorithm.tune(self.problem, n_rounds=self.n_rounds, **self._shared())
        return tuning.algorithm, tuning.columns()

    def _shared(self) -> dict[str, Any]:
        """Return the arguments that a tuning shares with the run."""
        return {name: getattr(self, name) for name in ("data", "participation", "seed", "engine")}

    def _options(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(Run) if one.name not in ("algorithm", "name")}

    def _job(self) -> Job:
        algorithm = self.algorithm.base if isinstance(self.algorithm, Tuned) else self.algorithm
        return checked_job(algorithm, **self._options())


@dataclass(frozen=True, kw_only=True)
class Part(Configuration):
    """Cell for some of a run's trials, from `part_first` to `part_last` (exclusive)."""

    part_of: Run
    part_first: int
    part_last: int

    @property
    def seed(self) -> Seed:
        """The seed of the run."""
        return self.part_of.seed

    def run(self) -> Row:
        """Run these trials and return their row."""
        return self.part_of._row(simulate_trials(self.part_of._job(), range(self.part_first, self.part_last)))


def _owned_parts(value: Any) -> Any:
    """Return several metrics, or the parts of a seed, as a tuple, so that equal cells have one key; others stay."""
    return unwrapped(tuple(value) if is_several(value) else value)


def edge_notes(done: Sequence[tuple[Cell, Table]]) -> list[Warning]:
    """Return a warning if the chosen values of tuned hyper-parameters are at the edge of their grids."""
    rows = [row for _, table in done for row in table.rows]
    edges = [str(row["at_grid_edge"]) for row in rows if row.get("at_grid_edge")]
    if not edges:
        return []
    return [
        GridEdgeWarning(
            f"the best {', '.join(dict.fromkeys(edges))} is at the edge of its grid in {len(edges)} of {len(rows)} "
            "rows (column 'at_grid_edge'): the optimum may lie outside; widen the grid"
        )
    ]


def _metrics(row: Row) -> list[Array]:
    return [value.values for value in row.values() if isinstance(value, LabeledArray) and value.trials]


def _merge(columns: Row, row: Row) -> Row:
    """Merge two mappings of columns; raise if a user's metric has the name of another column."""
    for name in columns.keys() & row.keys():
        raise ValueError(f"metrics contains a function named {name!r}, which is a column already; rename the function")
    return {**columns, **row}


def _joined(name: str, values: list[Any]) -> Any:
    """Join the values of a column over parts of the trials."""
    if name == "trials":
        return sum(values)
    if isinstance(values[0], LabeledArray) and values[0].trials:
        return LabeledArray(np.concatenate([value.values for value in values]), **values[0].axes)
    return np.concatenate(values) if isinstance(values[0], np.ndarray) else values[0]
