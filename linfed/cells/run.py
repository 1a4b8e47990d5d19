"""The plain cell, a run of `simulate` as a value, whole or in pieces of about a second."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from linfed._values import Configuration
from linfed.algorithms.base import Algorithm
from linfed.data.samples import Data
from linfed.errors import check_instance
from linfed.numerics.streams import Seed
from linfed.problems import Problem
from linfed.search.tuning import Tuned
from linfed.simulation.job import Job, check_joined, checked_job, seconds_of_a_trial, trials_of_a_second
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result
from linfed.simulation.run import simulate, simulate_trials
from linfed.simulation.status import Status
from linfed.tables.grid import Cell, Row
from linfed.tables.labeled_array import Along


@dataclass(frozen=True, kw_only=True)
class Run(Configuration):
    """The arguments of `simulate` as a value: a cell, to be copied by `grid` and run by `sweep`.

    Parameters
    ----------
    algorithm : Algorithm or Tuned
        What learns; ``lf.Tuned(base=..., grid=...)`` tunes it first, on trials of its own.
    problem, data, rounds, participation, trials, seed, metrics, record_every, engine
        As in `simulate`. Wrong ones are found when it runs.

    Notes
    -----
    Its row has a column for each field, ``problem.n_clients`` and so on, and of the run: each metric along ``round``,
    ``status`` of each trial ("COMPLETED", "DIVERGED" or "SINGULAR_HEAD", see `Status`), ``diverged`` (whether it is
    "DIVERGED"), the number of ``participants``, the ``engine``; of a tuned algorithm the chosen setting by its name
    (``step_size``), ``at_edge``, and what was tried (`Tuning.columns`).

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
    >>> table.where(n_clients=100, n_samples=12)["subspace_distance"].shape      # (trials, rounds + 1)
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

    def check(self) -> None:
        """Raise for arguments that `simulate` would not take; what a tuning is told is found when it runs."""
        check_joined(self._job(), 0.0)

    def simulate(self) -> Result:
        """Return the result of the run, tuned before if it is to be."""
        return simulate(self._tuned()[0], **self._options())

    def run(self) -> Row:
        """Return the run's row: metrics along the rounds, and how it went."""
        algorithm, tuned = self._tuned()
        return _beside(tuned, self._row(simulate(algorithm, **self._options())))

    def stages(self) -> Generator[Sequence[Cell], Sequence[Row], Row] | None:
        """Return, where a run is long, what yields its pieces of about a second, takes their rows, and returns its own.

        First come those of the tuning, then the run's trials.
        """
        tuned = isinstance(self.algorithm, Tuned) and type(self.algorithm).tune is not Tuned.tune
        if type(self).run is not Run.run or tuned:  # a class of one's own, which says otherwise what a run is
            return None
        return self._stages() if self.seconds() > 1.0 else None

    def seconds(self) -> float:
        """Return about how long it takes, the tuning before it too: a matter of sizes alone."""
        job = self._job()
        own = job.trials * seconds_of_a_trial(job)
        if not isinstance(self.algorithm, Tuned):
            return own
        return own + self.algorithm.tries(self.problem, rounds=self.rounds, **self._shared()).seconds()

    def _stages(self) -> Generator[Sequence[Cell], Sequence[Row], Row]:
        algorithm, columns = self.algorithm, dict[str, Any]()
        if isinstance(algorithm, Tuned):
            tuning = yield from algorithm.stages(self.problem, rounds=self.rounds, **self._shared())
            algorithm, columns = tuning.algorithm, tuning.columns()
        run = dataclasses.replace(self, algorithm=algorithm)
        chunks = trials_of_a_second(run._job())
        rows = yield [Part(part_of=run, part_first=trials.start, part_last=trials.stop) for trials in chunks]
        return _beside(columns, {name: _joined(name, [row[name] for row in rows]) for name in rows[0]})

    def _row(self, result: Result) -> Row:
        """Return what a table keeps of a result."""
        metrics = {name: Along(values, round=result.rounds) for name, values in result.metrics.items()}
        status = np.array([status.name for status in result.status])
        told = {"trials": result.trials, "participants": result.participants, "engine": result.engine}
        told["floats_sent"] = Along(result.floats_sent, round=result.rounds)
        own = {*told, "status", "diverged", "round", *(field.name for field in fields(self))}
        _beside(dict.fromkeys(own), metrics)
        return {**told, "status": status, "diverged": status == Status.DIVERGED.name, **metrics}

    def _tuned(self) -> tuple[Algorithm, Row]:
        """Return the algorithm, tuned where it is to be, and the columns of the tuning."""
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
    """Some of a run's trials, from `part_first` up to `part_last`: a cell too."""

    part_of: Run
    part_first: int
    part_last: int

    @property
    def seed(self) -> Seed:
        """The run's."""
        return self.part_of.seed

    def run(self) -> Row:
        """Return the row of these trials."""
        return self.part_of._row(simulate_trials(self.part_of._job(), range(self.part_first, self.part_last)))


def _beside(columns: Row, row: Row) -> Row:
    """Return both, or raise where a metric of one's own has the name of a column."""
    for name in columns.keys() & row.keys():
        raise ValueError(f"metrics holds a function {name!r}, which is the name of a column already: rename it")
    return {**columns, **row}


def _joined(name: str, values: list[Any]) -> Any:
    """Return a column of all trials from that of some of them each."""
    if name == "trials":
        return sum(values)
    if isinstance(values[0], Along) and values[0].trials:
        return Along(np.concatenate([value.values for value in values]), **values[0].axes)
    return np.concatenate(values) if isinstance(values[0], np.ndarray) else values[0]
