"""Scheduler of a sweep: it selects the cells to compute, splits long cells into tasks and saves the results.

Only this process writes into the store, as soon as a cell has finished. If a cell raises, the other cells still run.
`linfed.sweeps.executors` runs the tasks.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from linfed.cells.run import Run
from linfed.checks import short_repr
from linfed.errors import WorkerError
from linfed.numerics.linalg import one_blas_thread
from linfed.search.tuning import SAY_EDGES
from linfed.sweeps.code_hash import check_loaded, code_digest
from linfed.sweeps.executors import ExecutionOptions, Task, TaskCallbacks, n_workers, run_tasks
from linfed.sweeps.fingerprint import Fingerprint
from linfed.sweeps.progress import ProgressBar, cost_of
from linfed.sweeps.store import CellKey, Store, StoredCell, keys_of, seed_of
from linfed.system.machine import provenance
from linfed.tables.grid import Cell, Row, fields_of
from linfed.tables.table import Table

SHOWN_ERROR = 500
"""Maximum number of characters shown of an error message."""


class CellFailure(NamedTuple):
    """A cell that raised, with its error."""

    cell: Cell
    error: BaseException

    def __str__(self) -> str:
        """Return one line with the error, the place where it was raised, and the cell."""
        try:
            message = " ".join(str(self.error).split()) or repr(self.error)
        except Exception:
            message = "an error without a text"
        message = message if len(message) <= SHOWN_ERROR else f"{message[: SHOWN_ERROR - 3]}..."
        notes = "".join(f" ({note})" for note in getattr(self.error, "__notes__", [])[-1:])
        return f"{type(self.error).__name__}: {message}{notes}, in the cell {short_repr(self.cell)}"


class SweepOutcome(NamedTuple):
    """Outcome of a sweep.

    Attributes
    ----------
    tables : list of Table or None
        A table per cell; None for a cell that failed or belongs to another shard.
    reused : int
        Number of cells that the store contained.
    failures : list of CellFailure
    processor_seconds : float or None
        Processor time of all finished cells, also of reused ones; equal cells count once. None if it is not known.
    """

    tables: list[Table | None]
    reused: int
    failures: list[CellFailure]
    processor_seconds: float | None


def run_cells(
    cells: Sequence[Cell], store: Store | None = None, options: ExecutionOptions | None = None, label: str = ""
) -> SweepOutcome:
    """Run every cell that the store does not contain yet.

    Parameters
    ----------
    cells : sequence of Cell
        Picklable cells. Cells with the largest attribute ``cost``, if they have one, start first. A long cell has a
        method ``stages()`` that returns a generator. The generator yields lists of cells, receives their rows, and
        returns the row of the long cell.
    store : Store, optional
        Store in which each finished cell is saved; by default nothing is saved.
    options : Means, optional
        Where and how the cells are run.
    label : str
        Text before the progress bar.

    Raises
    ------
    TypeError, ValueError
        If the arguments of a `Run` that must be computed are invalid.
    linfed.errors.WorkerError
        If worker processes cannot start, or an executor is broken.
    WriteError
        If the store cannot be written; the cells finished before are saved.
    """
    return _Sweep(cells, store, options or ExecutionOptions()).run(label)


class Times(NamedTuple):
    """Run time and processor time in seconds; None if it is not known."""

    run: float = 0.0
    processor: float | None = 0.0

    def with_those_of(self, done: StoredCell) -> Times:
        """Return the sums of these times and those of a finished cell."""
        more = done.record.get("processor_seconds")
        processor = None if self.processor is None or more is None else self.processor + more
        return Times(self.run + done.record["seconds"], processor)


@dataclass
class LongCell:
    """Long cell in progress: the cells of its current stage, their results, and the store keys of all its cells."""

    steps: Generator[Sequence[Cell], Sequence[Row], Row]
    cells: Sequence[Cell] = ()
    found: list[StoredCell | None] = field(default_factory=list)
    current: list[CellKey] = field(default_factory=list)
    keys: list[CellKey] = field(default_factory=list)
    begun: bool = False
    times: Times = field(default_factory=Times)
    count: int = 0


class _Sweep:
    """State of one call of `run_cells`."""

    def __init__(self, cells: Sequence[Cell], store: Store | None, options: ExecutionOptions) -> None:
        self.cells, self.store, self.options = cells, store, options
        self.codes: dict[frozenset[Any], str] = {}
        self.keys: list[CellKey] = [] if store is None else keys_of(cells, self.codes)
        if store is not None:
            check_loaded({owner for owners in self.codes for owner in owners})
        self.tables: list[Table | None] = [None] * len(cells)
        self.times = Times()
        first: dict[str | int, int] = {}
        self.twins: dict[int, list[int]] = {}
        for index in range(len(cells)):
            place = first.setdefault(self.keys[index].name if self.keys else index, index)
            self.twins.setdefault(place, []).append(index)
        self.wanted: deque[int] = deque()
        self.ready: deque[Task] = deque()
        self.stages: dict[int, LongCell] = {}
        self.failed: dict[int, BaseException] = {}
        self.meant: dict[frozenset[Any], str | None] = {}
        self.bar = ProgressBar("", {}, [], done=0, total=0, workers=1, progress=False)

    def run(self, label: str) -> SweepOutcome:
        """Run the missing cells and return the outcome."""
        share = self._share()
        found: list[StoredCell | None] = [None] * len(self.cells)
        if self.store is not None:
            self.store.prepare()
            if self.options.recompute:  # so that an interrupted sweep can resume without the option
                self.store.set_aside([self.keys[index] for index in share])
            found = self.store.read(self.keys, reuse_stale=self.options.reuse_stale)
            self.tables = [None if done is None else done.table for done in found]
            for index in self.twins:  # equal cells count once
                done = found[index]
                self.times = self.times if done is None else self.times.with_those_of(done)
        reused = len(self.cells) - self.tables.count(None)
        self.wanted.extend(index for index in share if self.tables[index] is None)
        for index in self.wanted:
            _check(self.cells[index], index)
        total = reused + sum(len(self.twins[index]) for index in self.wanted)
        self.bar = ProgressBar(
            label,
            {index: self.cells[index] for index in self.wanted},
            [(cell, done.record["seconds"]) for cell, done in zip(self.cells, found, strict=True) if done is not None],
            done=reused,
            total=total,
            workers=n_workers(self.options),
            progress=self.options.progress,
        )
        with closing(self.bar):
            self._run_tasks()
        failures = [CellFailure(self.cells[index], error) for index, error in sorted(self.failed.items())]
        return SweepOutcome(self.tables, reused, failures, self.times.processor)

    # --- tasks to run ----------------------------------------------------------------------------------------

    def _share(self) -> list[int]:
        """Return the indices of this shard's cells, the most expensive first; of equal cells, the first one."""
        order = sorted(range(len(self.cells)), key=lambda index: -cost_of(self.cells[index]))
        if self.options.shard is not None:
            number, count = self.options.shard
            order = order[number - 1 :: count]  # of all cells: other shards may have finished some
        return [index for index in order if index in self.twins]

    def _next(self) -> Task | None:
        """Return the next task, or None if none is ready now; a long cell starts when it is next."""
        while self.ready or self.wanted:
            if not self.ready:
                self._begin(self.wanted.popleft())
                continue
            piece = self.ready.popleft()
            if piece.place not in self.failed:
                return piece
        return None

    def _begin(self, index: int) -> None:
        cell = self.cells[index]
        divided = self.store is not None or self.options.executor is not None or self.options.workers > 1
        try:
            stages: Any = getattr(type(cell), "stages", None)
            steps = stages(cell) if divided and stages is not None else None
        except Exception as error:
            self._on_failure(index, error)
            return
        if steps is None:
            self.ready.append(Task(index, cell))
        else:
            self.stages[index] = LongCell(steps)
            self._advance(index)

    def _advance(self, index: int) -> None:
        """Start the next stage of a long cell whose current stage has finished."""
        long = self.stages[index]
        while None not in long.found:
            try:
                rows = [
                    _result_row(cell, one) for cell, one in zip(long.cells, long.found, strict=True) if one is not None
                ]
                long.cells = long.steps.send(rows) if long.begun else next(long.steps)
                long.begun = True
            except StopIteration as end:
                self._join(index, end.value)
                return
            except Exception as error:
                self._on_failure(index, error)
                return
            long.count += len(long.cells)
            long.found = [None] * len(long.cells)
            if self.store is not None:
                self._check_code(index)
                code = self.keys[index].code
                long.current = [key._replace(code=code) for key in keys_of(long.cells, self.codes)]
                long.keys += long.current
                if self.options.recompute:
                    self.store.set_aside(long.current)
                long.found = self.store.read(long.current)
                for done in long.found:
                    long.times = long.times if done is None else long.times.with_those_of(done)
            self.ready.extend(
                Task(index, long.cells[number], number) for number, done in enumerate(long.found) if done is None
            )

    def _run_tasks(self) -> None:
        """Run all tasks, in this process or as the options require."""
        first = self._next()
        if first is None:
            return
        self.ready.appendleft(first)
        several = bool(self.wanted or self.stages or len(self.ready) > 1)
        if self.options.executor is not None or (self.options.workers > 1 and several):
            run_tasks(
                self.options,
                TaskCallbacks(self._next, self._make_call, self._on_result, self._on_failure, self._check_code),
            )
            return
        while (piece := self._next()) is not None:
            self._on_result(piece, partial(compute, piece.cell))

    def _make_call(self, piece: Task) -> partial[StoredCell]:
        """Return the call that a worker makes for a task; on a given executor, with the hash of the expected code."""
        if self.options.executor is None or self.store is None:
            return partial(compute, piece.cell)
        owners = frozenset(Fingerprint(piece.cell).owners)
        by_value = any(owner.__module__ in ("__main__", "__mp_main__") for owner in owners)
        if owners not in self.meant:
            self.meant[owners] = None if by_value else code_digest(owners)
        return partial(compute, piece.cell, self.meant[owners])

    def _check_code(self, *places: int) -> None:
        """Raise if the code or the fields of cells (by default, all) have changed since the sweep began."""
        chosen = places or range(len(self.cells))
        if self.store is not None and keys_of([self.cells[i] for i in chosen]) != [self.keys[i] for i in chosen]:
            raise WorkerError("the code, or the fields of a cell, have changed since the sweep began; restart Python")

    # --- results ---------------------------------------------------------------------------------------------

    def _on_result(self, piece: Task, result: Callable[[], StoredCell]) -> None:
        """Save the result of a task, or record its error."""
        try:
            done = result()
        except BrokenExecutor:
            raise
        except Exception as error:
            self._on_failure(piece.place, error)
            return
        if piece.part is None:
            self._keep(piece.place, done)
            return
        long = self.stages[piece.place]
        if self.store is not None:
            self.store.write(long.current[piece.part], done)
        if piece.place not in self.failed:
            long.found[piece.part] = done
            long.times = long.times.with_those_of(done)
            self.bar.tick()
            self._advance(piece.place)

    def _join(self, index: int, row: Row) -> None:
        """Save a long cell that has finished; remove its tasks from the store unless it has ``keeps_pieces = True``."""
        long = self.stages.pop(index)
        try:
            table = Table.of([self.cells[index]], [row])
        except Exception as error:
            self._on_failure(index, error)
            return
        self._keep(index, StoredCell(table, {**_record(self.cells[index], long.times), "pieces": long.count}))
        if self.store is not None and not getattr(self.cells[index], "keeps_pieces", False):
            self.store.remove(long.keys)

    def _keep(self, index: int, done: StoredCell) -> None:
        if self.store is not None:
            try:
                if Fingerprint(self.cells[index]).text != self.keys[index].text:
                    raise ValueError("run() has changed the cell's fields, which identify it; copy them first")
                self.store.write(self.keys[index], done)
            except (TypeError, ValueError) as error:
                self._on_failure(index, error)
                return
        self.times = self.times.with_those_of(done)
        for twin in self.twins[index]:
            self.tables[twin] = done.table
        self.bar.finished(index, len(self.twins[index]), done.record["seconds"])

    def _on_failure(self, index: int, error: BaseException) -> None:
        if index not in self.failed:
            self.failed[index] = error
            self.bar.failed(index, len(self.twins[index]))


def _check(cell: Cell, index: int) -> None:
    """Raise if a cell is a `Run` with invalid arguments."""
    if isinstance(cell, Run):
        try:
            cell.check()
        except Exception as error:
            error.add_note(f"in cells[{index}] = {short_repr(cell)}")
            raise


def _result_row(cell: Cell, done: StoredCell) -> Row:
    """Return the row that a task's ``run()`` returned, without the cell's fields."""
    fields = dict(fields_of(cell))
    if len(done.table) != 1:
        raise ValueError(f"a cell of stages() must return one row, but {short_repr(cell)} returned {len(done.table)}")
    return {name: value for name, value in done.table.rows[0].items() if name not in fields}


def compute(cell: Cell, code: str | None = None) -> StoredCell:
    """Run a cell and return its table and the record of how it was computed; workers call this function.

    Parameters
    ----------
    cell : Cell
    code : str, optional
        Hash of the code that the worker must have; by default, it is not checked.
    """
    started, used = time.perf_counter(), time.process_time()
    token = SAY_EDGES.set(False)  # the column `at_grid_edge` records it
    try:
        with one_blas_thread():
            if code is not None:
                _check_worker(cell, code)
            table = Table.of([cell], [cell.run()])
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _sendable(error) from None
    finally:
        SAY_EDGES.reset(token)
    return StoredCell(table, _record(cell, Times(time.perf_counter() - started, time.process_time() - used)))


def _check_worker(cell: Cell, code: str) -> None:
    """Raise if this process has different code than the one that started the sweep."""
    owners = frozenset(Fingerprint(cell).owners)
    check_loaded(owners)
    if code_digest(owners) != code:
        raise RuntimeError(
            "this worker runs a different version of the code, NumPy or SciPy than the sweep; restart the worker"
        )


def _record(cell: Cell, times: Times) -> dict[str, Any]:
    """Return the record of how this process computed a cell."""
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    processor = None if times.processor is None else round(times.processor, 4)
    seconds = {"seconds": round(times.run, 4), "processor_seconds": processor}
    return {"seed": seed_of(cell), **seconds, "ended": ended, **provenance()}


def _sendable(error: BaseException) -> Exception:
    """Return an error that can be pickled, with a note of the place where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    note = f"{frame.filename}:{frame.lineno}"
    try:
        # The scheduler would take a BrokenExecutor raised by a cell for an error of its own executor.
        if isinstance(error, Exception) and not isinstance(error, BrokenExecutor):
            error.add_note(note)
            pickle.loads(pickle.dumps(error))
            return error
        message = str(error)
    except BaseException:
        message = "the error cannot be pickled"
        with suppress(Exception):
            message = str(error)
    plain = RuntimeError(f"{type(error).__name__}: {message}")
    plain.add_note(note)
    return plain.with_traceback(error.__traceback__)
