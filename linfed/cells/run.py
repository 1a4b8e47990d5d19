"""Cell for one run of `simulate`, which a sweep can split into tasks of about one second."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from linfed._values import ByValue, Configuration, check_fields, converted, owned
from linfed.algorithms.parts.base import Algorithm
from linfed.checks import check_instance, is_several
from linfed.data.samples import Data
from linfed.numerics.streams import Seed
from linfed.problems import Problem
from linfed.search.tuning import Tuned
from linfed.simulation.job import Job, check_joined, checked_job, seconds_of_a_trial, trials_of_a_second
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result
from linfed.simulation.run import simulate, simulate_job, simulate_trials
from linfed.simulation.status import Status
from linfed.tables.grid import Cell, Row
from linfed.tables.labeled_array import LabeledArray


@dataclass(frozen=True, kw_only=True)
class Run(ByValue):
    """Cell for one run of `simulate`, with its arguments as fields; `grid` copies it and `sweep` runs it.

    Parameters
    ----------
    algorithm : Algorithm or Tuned
        The algorithm; ``lf.Tuned(base=..., grid=...)`` is tuned first, on separate trials.
    problem, data, rounds, participation, trials, seed, metrics, record_every, engine
        As in `simulate`. They are checked when the cell is run, not when it is created.

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
    ...     rounds=40,
    ...     trials=5,
    ... )
    >>> table = lf.sweep(lf.grid(run, **{"problem.n_clients": (50, 100), "data.n_samples": (6, 12)}))
    >>> table.select(n_clients=100, n_samples=12)["subspace_distance"].shape      # (trials, rounds + 1)
    (5, 41)
    """

    algorithm: Algorithm | Tuned
    problem: Problem | None = None
    data: Data
    rounds: int
    participation: Participation = 1.0
    trials: int | None = None
    seed: Seed = 0
    metrics: Sequence[Any] | None = None
    record_every: int = 1
    engine: str = "auto"

    def __post_init__(self) -> None:
        check_instance("algorithm", self.algorithm, (Algorithm, Tuned), "an algorithm, or lf.Tuned(base=..., grid=...)")
        check_fields(
            self, **dict.fromkeys(("participation", "seed"), converted(owned)), metrics=converted(_owned_names)
        )

    def check(self) -> None:
        """Raise if `simulate` would not accept the arguments; the options of a tuning are checked when it runs."""
        check_joined(self._job(), 0.0)

    def simulate(self) -> Result:
        """Run `simulate`, after tuning if the algorithm is `Tuned`, and return its result."""
        return simulate(self._tuned()[0], **self._options())

    def run(self) -> Row:
        """Run `simulate`, after tuning if the algorithm is `Tuned`, and return the row."""
        algorithm, tuned = self._tuned()
        return _merge(tuned, self._row(simulate_job(checked_job(algorithm, **self._options()))))

    def stages(self) -> Generator[Sequence[Cell], Sequence[Row], Row] | None:
        """Split a run of more than one second into tasks of about one second.

        Returns
        -------
        generator or None
            Yields lists of cells, first for the tuning, then for the run's trials. It receives their rows and returns
            the row of the run. None if the run is short, or a subclass replaces `run` or `Tuned.tune`.
        """
        tuned = isinstance(self.algorithm, Tuned) and type(self.algorithm).tune is not Tuned.tune
        if type(self).run is not Run.run or tuned:  # a subclass may run something else
            return None
        return self._stages() if self.seconds() > 1.0 else None

    def seconds(self) -> float:
        """Estimate the run time in seconds from the sizes, including the tuning."""
        job = self._job()
        seconds = job.trials * seconds_of_a_trial(job)
        if not isinstance(self.algorithm, Tuned):
            return seconds
        return seconds + self.algorithm.tries(self.problem, rounds=self.rounds, **self._shared()).seconds()

    def _stages(self) -> Generator[Sequence[Cell], Sequence[Row], Row]:
        algorithm, columns = self.algorithm, dict[str, Any]()
        if isinstance(algorithm, Tuned):
            tuning = yield from algorithm.stages(self.problem, rounds=self.rounds, **self._shared())
            algorithm, columns = tuning.algorithm, tuning.columns()
        run = dataclasses.replace(self, algorithm=algorithm)
        chunks = trials_of_a_second(run._job())
        rows = yield [Part(part_of=run, part_first=trials.start, part_last=trials.stop) for trials in chunks]
        return _merge(columns, {name: _joined(name, [row[name] for row in rows]) for name in rows[0]})

    def _row(self, result: Result) -> Row:
        """Return the columns for a result."""
        metrics = {name: LabeledArray(values, round=result.rounds) for name, values in result.metrics.items()}
        status = np.array([status.name for status in result.status])
        columns = {"trials": result.trials, "participants": result.participants, "engine": result.engine}
        columns["floats_sent"] = LabeledArray(result.floats_sent, round=result.rounds)
        names = {*columns, "status", "diverged", "round", *(field.name for field in fields(self))}
        _merge(dict.fromkeys(names), metrics)
        return {**columns, "status": status, "diverged": status == Status.DIVERGED.name, **metrics}

    def _tuned(self) -> tuple[Algorithm, Row]:
        """Return the algorithm, after tuning if it is `Tuned`, and the columns of the tuning."""
        if not isinstance(self.algorithm, Tuned):
            return self.algorithm, {}
        tuning = self.algorithm.tune(self.problem, rounds=self.rounds, **self._shared())
        return tuning.algorithm, tuning.columns()

    def _shared(self) -> dict[str, Any]:
        """Return the arguments that a tuning shares with the run."""
        return {name: getattr(self, name) for name in ("data", "participation", "seed", "engine")}

    def _options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(Run) if field.name != "algorithm"}

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


def _owned_names(metrics: Any) -> Any:
    """Return several metrics as a tuple, so that equal cells have one key; a single one and None stay."""
    return tuple(metrics) if is_several(metrics) else metrics


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
