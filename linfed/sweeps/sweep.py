"""The sweep, which runs any cells and fills their table."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import Executor

from linfed.errors import DivergenceWarning, EdgeWarning, SweepError, shown
from linfed.simulation.status import LEFT_OUT
from linfed.sweeps.executors import Means
from linfed.sweeps.scheduler import Cells, run_cells
from linfed.sweeps.store import Store
from linfed.tables.export import told_diverged
from linfed.tables.grid import Cell, checked_cells
from linfed.tables.table import Table

SHOWN_FAILURES = 5
"""Cells that raised, of which a message tells."""


def sweep(
    cells: Sequence[Cell],
    *,
    store: Store | str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    workers: int = 1,
    pending: int | None = None,
    shard: tuple[int, int] | None = None,
    keep: bool = False,
    fresh: bool = False,
    progress: bool | None = None,
) -> Table:
    """Run cells, here or in other processes, and return their table.

    Parameters
    ----------
    cells : sequence of cells
        `Run`, or frozen dataclasses of one's own with ``run()``, e.g. from `grid`. A cell with an attribute ``cost``
        starts before those of less.
    store : Store or path, optional
        A folder that keeps every finished cell: a sweep that is stopped goes on from there. A cell is computed anew
        when its fields have changed, or the code that its numbers rest on: linfed's, that of its classes and functions
        and of what these name in their modules and import. Comments, docstrings, and what draws do not count; files
        of data and the environment are not seen: make them fields.
    executor : concurrent.futures.Executor, optional
        Anything with ``submit``: loky's, ``dask.distributed.Client(...).get_executor(pure=False)``,
        ``mpi4py.futures.MPIPoolExecutor()``. It is not shut down.
    workers : int
        Worker processes; 1 runs here. (A script that asks for more needs the usual ``if __name__ == "__main__":``
        guard; a notebook, for cells of classes of its own, the extra ``parallel``.)
    pending : int, optional
        How many cells wait or run at a time; by default twice as many as there are workers.
    shard : (i, n), optional
        Run the i-th of n parts of the cells, i from 1. The table then has these, and what the store has of others.
    keep : bool
        Take from the store also what other code has computed; a warning says how many cells.
    fresh : bool
        Compute every cell anew.
    progress : bool or None
        Show a progress bar on standard error; None shows it on a terminal only.

    Returns
    -------
    Table
        A row for each cell in their order, or several where its run returns several.

    Raises
    ------
    TypeError, ValueError
        For something that is no cell, or a `Run` that cannot be meant: before anything is run.
    SweepError
        If cells raised, when all others are finished and kept; its `table` has these, its `failures` those.
    WorkerError
        If worker processes cannot start. (One that dies later costs what it was computing, which is run again; a cell
        whose worker dies twice counts as one that raised.)
    WriteError
        If the store cannot be written.

    Warns
    -----
    DivergenceWarning
        If trials of a `Run` diverged: how many. The column ``status`` says which.
    EdgeWarning
        Where the chosen value of a tuned hyper-parameter is an end of its grid.
    StoreWarning
        For a file in the store that is torn, foreign or renamed: it is set aside and its cell computed anew.

    Notes
    -----
    Cells with one seed see the same truths, samples and participants where their sizes are the same; the table is the
    same to the last bit wherever they run. A long `Run` is run in pieces of about a
    second, its tuning too, and joined.

    **Deviations**: none.

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.Run(
    ...     algorithm=lf.FedRep(rank=2, step_size=0.5),
    ...     problem=lf.SharedRepresentation(n_clients=50, dim=10, rank=2, noise_std=0.1),
    ...     data=lf.FreshSamples(n_samples=5),
    ...     rounds=20,
    ...     trials=10,
    ... )
    >>> table = lf.sweep(lf.grid(run, **{"data.n_samples": (5, 20), "problem.n_clients": (25, 100)}))
    >>> [(n, part["n_samples"].tolist(), part["subspace_distance"].shape) for n, part in table.by("n_clients")]
    [(25, [5, 20], (2, 10, 21)), (100, [5, 20], (2, 10, 21))]
    >>> few, many = (table.where(n_samples=20, n_clients=n)["subspace_distance"][:, -1] for n in (25, 100))
    >>> bool(few.mean() > 1.5 * many.mean())      # the floor falls like one over the square root of n
    True
    """
    cells = checked_cells(cells)
    for name, value in (("keep", keep), ("fresh", fresh)):
        if value and store is None:
            raise ValueError(f"{name} = {shown(value)} speaks of a store: give store= as well")
    means = Means(
        executor=executor,
        workers=workers,
        pending=pending,
        shard=shard,
        keep=keep,
        fresh=fresh,
        progress=progress,
    )
    kept = store if isinstance(store, Store) or store is None else Store(store)
    return whole_table(run_cells(cells, kept, means))


def whole_table(done: Cells) -> Table:
    """Return the table of the cells that are there; raise for those that raised, warn of divergence and of edges."""
    table = sum((one for one in done.tables if one is not None), Table())
    if done.failures:
        raise SweepError(told_failures(done), done.failures, table) from done.failures[0].error
    if diverged := told_diverged(table.rows):
        warnings.warn(f"{diverged}: {LEFT_OUT}", DivergenceWarning, stacklevel=3)
    edges = [row for row in table.rows if row.get("at_edge")]
    if edges:
        names = ", ".join(dict.fromkeys(str(row["at_edge"]) for row in edges))
        warnings.warn(
            f"the best {names} is an end of its grid in {len(edges)} of {len(table)} rows (column 'at_edge'): the "
            "optimum may lie outside; widen the grid",
            EdgeWarning,
            stacklevel=3,
        )
    return table


def told_failures(done: Cells) -> str:
    """Return on one line which cells raised what."""
    told = "; ".join(str(failure) for failure in done.failures[:SHOWN_FAILURES])
    more = f"; and {len(done.failures) - SHOWN_FAILURES} more" if len(done.failures) > SHOWN_FAILURES else ""
    return f"{len(done.failures)} of {len(done.tables)} cells raised, the others are finished: {told}{more}"
