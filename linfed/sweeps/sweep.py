"""Run a list of cells and collect their results in a table."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import Executor

from linfed.checks import check_bool
from linfed.errors import SweepError
from linfed.sweeps.executors import ExecutionOptions
from linfed.sweeps.scheduler import SweepOutcome, run_cells
from linfed.sweeps.store import Store
from linfed.tables.grid import Cell, checked_cells
from linfed.tables.table import Table

SHOWN_FAILURES = 5
"""Maximum number of failed cells listed in an error message."""


def sweep(
    cells: Sequence[Cell],
    *,
    store: Store | str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    max_pending: int | None = None,
    shard: tuple[int, int] | None = None,
    reuse_stale: bool = False,
    recompute: bool = False,
    progress: bool | None = None,
) -> Table:
    """Run cells, locally or on an executor, and return their results as a table.

    Parameters
    ----------
    cells : sequence of cells
        `Run` objects, or custom frozen dataclasses with a method ``run()``; `grid` makes them. The most
        expensive cells start first. A `Run` has its estimated run time as the cost, and a custom cell its attribute
        ``cost`` or, without one, the product of its positive whole numbers except the seed.
    store : Store or path, optional
        Folder in which every finished cell is saved, so that an interrupted sweep resumes. A cell is recomputed if its
        fields have changed, or the code that can change its numbers: linfed, or a file that defines the cell's classes
        and functions, or a local module that such a file imports, or the version of NumPy, SciPy or another package
        that they import. Files count as a whole, without comments, docstrings,
        the main block and, in an experiment, ``cells``, claims and ``plot``. Data files, environment variables, other
        processes, modules loaded by a name in a string and replaced functions of a module are not covered: pass what
        matters as a field.
    executor : concurrent.futures.Executor, optional
        Any object with ``submit``, e.g. from loky, ``dask.distributed.Client(...).get_executor(pure=False)`` or
        ``mpi4py.futures.MPIPoolExecutor()``. It is not shut down.
    workers : int
        Number of worker processes; 1 runs the cells in this process. More than 1 needs the usual
        ``if __name__ == "__main__":`` guard in a script and, for cell classes defined in a notebook, the extra
        ``parallel``.
    max_pending : int, optional
        Maximum number of cells submitted at a time; twice the number of workers by default.
    shard : (i, n), optional
        Run only part i of n, where i counts from 1. The table then contains these cells and those already in the store.
    reuse_stale : bool
        If True, also reuse stored cells that other versions of the code computed. A warning gives their number.
    recompute : bool
        If True, remove the stored cells, and compute every cell.
    progress : bool or None
        If True, show a progress bar on standard error; None shows it on a terminal only.

    Returns
    -------
    Table
        One row per cell, in the order of `cells`, or several rows if the cell's ``run()`` returns several.

    Raises
    ------
    TypeError, ValueError
        If an element is not a cell, or its method ``check()`` raises, e.g. if the arguments of a `Run` are invalid.
        With a store, also if a file has changed since it was imported, if a method was replaced at run time, or if a
        class or linfed has no source file. Nothing has been run then.
    SweepError
        If cells raised. All other cells have been finished and saved: they are in the error's ``table``, the failed
        ones in its ``failures``.
    linfed.errors.WorkerError
        If worker processes cannot start. If a worker dies, the pending cells are repeated one at a time; a cell whose
        worker dies again counts as failed.
    WriteError
        If the store cannot be written.

    Warns
    -----
    DivergenceWarning
        If trials of a `Run` diverged. The warning gives their number, the column ``status`` identifies them.
    GridEdgeWarning
        If the chosen value of a tuned hyper-parameter is at the edge of its grid.
    ValidationWarning
        If an `lf.Tuned` algorithm is tuned on the test samples, see `lf.tune`.
    StoreWarning
        If a file in the store is damaged, foreign or renamed. Its cell is recomputed, and the file is replaced. Also if
        the recomputed cells have files of other code, and if files are of an earlier version of the store.
    UserWarning
        If given data without a trial axis make all trials of a `Run` identical. If a row of a custom cell has a column
        with the name of a field: the table has the field. Also the warnings of a custom class's function ``notes``.

    Notes
    -----
    Cells with the same seed and the same sizes have the same ground truth and participants, and the same samples unless
    an engine is exact only in distribution. The table does not depend on where the cells run, to the last bit. With a
    store or workers, a `Run` of more than a second, including its tuning, is divided into parts of about one second,
    which are spread over the workers, saved and resumed. `run_parts` divides a custom cell.

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.Run(
    ...     algorithm=lf.FedRep(rank=2, step_size=0.5),
    ...     problem=lf.SharedRepresentation(n_clients=50, dim=10, rank=2, noise_std=0.1),
    ...     data=lf.FreshSamples(n_samples=5),
    ...     n_rounds=20,
    ...     trials=10,
    ... )
    >>> table = lf.sweep(lf.grid(run, **{"data.n_samples": (5, 20), "problem.n_clients": (25, 100)}))
    >>> [(n, part["n_samples"].tolist(), part["subspace_distance"].shape) for n, part in table.groupby("n_clients")]
    [(25, [5, 20], (2, 10, 21)), (100, [5, 20], (2, 10, 21))]
    >>> few, many = (table.select(n_samples=20, n_clients=n)["subspace_distance"][:, -1] for n in (25, 100))
    >>> bool(few.mean() > 1.5 * many.mean())      # the floor falls like one over the square root of n
    True
    """
    cells = checked_cells(cells)
    for name, value in (("reuse_stale", reuse_stale), ("recompute", recompute)):
        if check_bool(name, value) and store is None:
            raise ValueError(f"{name} = True requires store=")
    options = ExecutionOptions(
        executor=executor,
        workers=workers,
        max_pending=max_pending,
        shard=shard,
        reuse_stale=reuse_stale,
        recompute=recompute,
        progress=progress,
    )
    done = run_cells(cells, store if isinstance(store, Store) or store is None else Store(store), options)
    table = Table.joined(one for one in done.tables if one is not None)
    if done.failures:
        raise SweepError(format_failures(done), done.failures, table) from done.failures[0].error
    for note in _notes(cells, done.tables):
        warnings.warn(note, stacklevel=2)
    return table


def _notes(cells: Sequence[Cell], tables: Sequence[Table | None]) -> list[Warning]:
    """Return the warnings that the classes of cells give in their function ``notes``."""
    done = [(cell, table) for cell, table in zip(cells, tables, strict=True) if table is not None]
    functions = dict.fromkeys(getattr(type(cell), "notes", None) for cell, _ in done)
    found = [note for notes in functions if callable(notes) for note in notes(done)]
    return list({(type(note), str(note)): note for note in found}.values())


def format_failures(done: SweepOutcome) -> str:
    """Return one line that lists the failed cells and their errors."""
    errors = "; ".join(str(failure) for failure in done.failures[:SHOWN_FAILURES])
    more = f"; and {len(done.failures) - SHOWN_FAILURES} more" if len(done.failures) > SHOWN_FAILURES else ""
    return f"{len(done.failures)} of {len(done.tables)} cells raised, the others are finished: {errors}{more}"
