"""The plain cell, a run of `simulate` as a value, and the sweep that runs any cells and fills their table."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from linfed._values import Configuration
from linfed.algorithms.base import Algorithm
from linfed.data.samples import Data
from linfed.errors import EdgeWarning, check_instance, check_integer, shown
from linfed.numerics.streams import Seed
from linfed.problems import Problem
from linfed.simulation import simulate
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result, Status
from linfed.study.along import Along
from linfed.study.grid import Cell, Row
from linfed.study.store import run_cells
from linfed.study.table import Table
from linfed.study.tuning import Tuned


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
    ``diverged`` for each trial, the number of ``participants``, the ``engine``; of a tuned algorithm the chosen setting
    by its name (``step_size``), ``at_edge``, and what was tried (`Tuning.columns`).

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

    def simulate(self) -> Result:
        """Return the result of the run, tuned before if it is to be."""
        return self._simulated()[0]

    def run(self) -> Row:
        """Return the run's row: metrics along the rounds, and how it went."""
        result, tuned = self._simulated()
        metrics = {name: Along(values, round=result.rounds) for name, values in result.metrics.items()}
        diverged = np.array([status is Status.DIVERGED for status in result.status])
        told = {"trials": result.trials, "participants": result.participants, "engine": result.engine}
        own = {**tuned, **told, "diverged": diverged, "round": None, **{field.name: None for field in fields(self)}}
        for name in metrics.keys() & own.keys():
            raise ValueError(f"metrics holds a function {name!r}, which is the name of a column already: rename it")
        return {**tuned, **told, "diverged": diverged, **metrics}

    def _simulated(self) -> tuple[Result, Row]:
        """Return the result, and the columns of the tuning before it."""
        options: dict[str, Any] = {name: getattr(self, name) for name in ("data", "participation", "seed", "engine")}
        algorithm, columns = self.algorithm, dict[str, Any]()
        if isinstance(algorithm, Tuned):
            tuning = algorithm.tune(self.problem, rounds=self.rounds, **options)
            algorithm, columns = tuning.algorithm, tuning.columns()
        result = simulate(
            algorithm,
            self.problem,
            rounds=self.rounds,
            trials=self.trials,
            metrics=self.metrics,
            record_every=self.record_every,
            **options,
        )
        return result, columns


def _folder(store: str | os.PathLike[str]) -> Path:
    """Return the folder of a store, made if it is not there."""
    folder = Path(store).expanduser()
    try:
        if not os.fspath(store):
            raise NotADirectoryError(errno.ENOTDIR, "it has no name")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"store = {shown(os.fspath(store))} is no folder to write in: {error.strerror}") from None
    return folder


def sweep(
    cells: Sequence[Cell],
    *,
    store: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    progress: bool | None = None,
) -> Table:
    """Run cells, here or in other processes, and return their table.

    Parameters
    ----------
    cells : sequence of cells
        `Run`, or frozen dataclasses of one's own with ``run()``, e.g. from `grid`. A cell with an attribute ``cost``
        starts before those of less.
    store : path, optional
        A folder that keeps every finished cell: a sweep that is stopped goes on from there. A cell is computed anew
        when it, linfed, or the modules of its classes and functions have changed, or what these import beside them.
    executor : concurrent.futures.Executor, optional
        Runs the cells; it is not shut down.
    workers : int
        Worker processes; 1 runs here. (A script that asks for more needs the usual ``if __name__ == "__main__":``
        guard.)
    progress : bool or None
        Show a progress bar on standard error; None shows it on a terminal only.

    Returns
    -------
    Table
        A row for each cell in their order, or several where its run returns several.

    Raises
    ------
    TypeError
        For something that is no cell.
    WorkerError
        If a worker process dies.

    Warns
    -----
    EdgeWarning
        Where the chosen value of a tuned hyper-parameter is an end of its grid.

    Notes
    -----
    Cells with one seed see the same truths, samples and participants where their sizes are the same; the table is the
    same to the last bit wherever they run.

    **Deviations**: none.
    """
    if isinstance(cells, str) or not isinstance(cells, Iterable):
        raise TypeError(f"cells = {shown(cells)} must be a sequence of cells, e.g. [lf.Run(...)] or lf.grid(run, ...)")
    cells = list(cells)
    for index, cell in enumerate(cells):
        if not hasattr(cell, "run") or not hasattr(cell, "__dataclass_fields__") or isinstance(cell, type):
            raise TypeError(f"cells[{index}] = {shown(cell)} must be a lf.Run, or a dataclass of one's own with run()")
    workers = check_integer("workers", workers)
    folder = None if store is None else _folder(store)
    done = run_cells(cells, folder=folder, workers=workers, executor=executor, progress=progress)
    table = sum(done.tables, Table())
    edges = [row for row in table.rows if row.get("at_edge")]
    if edges:
        names = ", ".join(dict.fromkeys(str(row["at_edge"]) for row in edges))
        warnings.warn(
            f"the best {names} is an end of its grid in {len(edges)} of {len(table)} rows (column 'at_edge'): the "
            "optimum may lie outside; widen the grid",
            EdgeWarning,
            stacklevel=2,
        )
    return table
