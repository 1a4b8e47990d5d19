"""Scheduler of a sweep: it runs the cells that the store lacks, the most expensive first, and saves their results.

Only this thread writes into the store, as soon as a cell has finished. If a cell raises, the other cells still run.
`linfed.sweeps.executors` runs the tasks: a cell, or a part of a cell that calls `linfed.search.parts.run_parts`.
"""

from __future__ import annotations

import json
import math
import pickle
import queue
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import closing, suppress
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from linfed.checks import short_repr
from linfed.errors import WorkerError
from linfed.numerics.linalg import one_blas_thread
from linfed.search.parts import in_cell, one_by_one, without_fields
from linfed.sweeps.code_key import code_key
from linfed.sweeps.executors import ExecutionOptions, run_tasks
from linfed.sweeps.progress import costs_of, progress_bar
from linfed.sweeps.store import CellKey, Store, StoredCell, keys_of
from linfed.system.description import describe, text_of
from linfed.system.machine import provenance
from linfed.tables.grid import Cell, Row, field_names, fields_of, plain
from linfed.tables.table import Table

T = TypeVar("T")

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
        Picklable cells; `Cell` lists the methods and attributes that they may have.
    store : Store, optional
        Store in which each finished cell is saved; by default nothing is saved.
    options : ExecutionOptions, optional
        Where and how the cells are run.
    label : str
        Text before the progress bar.

    Raises
    ------
    Exception
        What ``check()`` of a cell that must be computed raises.
    linfed.errors.WorkerError
        If worker processes cannot start, or an executor is broken.
    WriteError
        If the store cannot be written; the cells finished before are saved.
    """
    state = _Sweep(cells, store, options or ExecutionOptions())
    outcome = state.run(label)
    for kind, name in sorted(state.refused):
        warnings.warn(
            f"run() of {kind} returned a column {name!r}, which is a field of the cell: the column is refused, and the "
            "table has the field; rename the column",
            stacklevel=3,
        )
    return outcome


@dataclass(eq=False)
class Task:
    """A cell to compute: a cell of the sweep, given by its index, or a part of this cell. `done` is its result."""

    index: int
    cell: Cell
    key: CellKey | None
    is_part: bool = False
    done: StoredCell | None = None


Steps: TypeAlias = Generator[list[Task], None, tuple[StoredCell, list[CellKey]]]
"""Computation of a cell: it yields the tasks that must finish next, and returns the cell and the keys of its parts."""


class _Sweep:
    """State of one call of `run_cells`: the cells in progress, and the tasks that each of them waits for.

    With a store, equal cells are one. `places` has the index in `cells` of each given cell.
    """

    def __init__(self, cells: Sequence[Cell], store: Store | None, options: ExecutionOptions) -> None:
        self.cells, self.store, self.options = cells, store, options
        self.code_of = cache(code_key)
        self.keys: list[CellKey] = []
        self.places: Sequence[int] = range(len(cells))
        if store is not None:
            keys = keys_of(cells, self.code_of)
            distinct = dict(zip(keys, cells, strict=True))
            self.keys, self.cells = list(distinct), list(distinct.values())
            index = {key: place for place, key in enumerate(self.keys)}
            self.places = [index[key] for key in keys]
        self.wanted: deque[int] = deque()
        self.ready: deque[Task] = deque()
        self.running: dict[int, Steps] = {}
        self.waiting: dict[int, set[Task]] = {}
        self.found: dict[int, StoredCell] = {}
        self.failed: dict[int, Exception] = {}
        self.refused: set[tuple[str, str]] = set()

    def run(self, label: str) -> SweepOutcome:
        """Run the missing cells and return the outcome."""
        mine = self._shard()
        if self.store is not None:
            read = sorted(set(range(len(self.cells))) - set(mine if self.options.recompute else ()))
            stored = self.store.read([self.keys[index] for index in read], reuse_stale=self.options.reuse_stale)
            self.found = {index: done for index, done in zip(read, stored, strict=True) if done is not None}
        reused = sum(place in self.found for place in self.places)
        if missing := [index for index in mine if index not in self.found]:
            self._compute(missing, label)
        return SweepOutcome(
            tables=[self.found[place].table if place in self.found else None for place in self.places],
            reused=reused,
            failures=[CellFailure(self.cells[index], error) for index, error in sorted(self.failed.items())],
            processor_seconds=_total([done.record for done in self.found.values()], "processor_seconds"),
        )

    def _shard(self) -> Sequence[int]:
        """Return the indices of this shard's cells, of all cells: other shards may have finished some."""
        if self.options.shard is None:
            return range(len(self.cells))
        number, count = self.options.shard
        costs = costs_of(self.cells)
        return sorted(range(len(self.cells)), key=lambda index: -costs[index])[number - 1 :: count]

    def _compute(self, missing: list[int], label: str) -> None:
        """Compute cells, the most expensive ones first."""
        for index in missing:
            _check(self.cells[index], index)
        if self.store is not None:
            self.store.check_writable()
            keys = [self.keys[index] for index in missing]
            if self.options.recompute:  # so that an interrupted sweep can resume without the option
                self.store.remove(keys)
            else:
                self.store.warn_of_others(keys)
        costs = costs_of(self.cells)
        self.wanted.extend(sorted(missing, key=lambda index: -costs[index]))
        self.costs = {index: costs[index] for index in missing}
        self.ended, self.total = len(self.found), len(self.found) + len(missing)
        alone = len(missing) == 1 and self.options.executor is None and not self._divides(missing[0])
        with one_blas_thread(), progress_bar(label, math.fsum(self.costs.values()), self.options.progress) as self.bar:
            outcomes = (
                run_tasks(self.options, self._next, self._call_of, self._check_restart)
                if self.options.spread and not alone
                else ((task, _attempt(task.cell)) for task in iter(self._next, None))
            )
            try:
                with closing(outcomes):
                    for task, outcome in outcomes:
                        self._take(task, outcome)
            finally:
                for steps in self.running.values():
                    steps.close()

    # --- tasks -----------------------------------------------------------------------------------------------

    def _next(self) -> Task | None:
        """Return the next task, or None if none is ready now; a cell is begun when all earlier tasks are taken."""
        while not self.ready and self.wanted:
            index = self.wanted.popleft()
            self.running[index] = self._steps(index)
            self._resume(index)
        return self.ready.popleft() if self.ready else None

    def _call_of(self, task: Task) -> partial[StoredCell]:
        """Return the call that a worker makes for a task; on a given executor, with the hash of the expected code."""
        expected = None if self.options.executor is None or task.key is None else task.key.code
        return partial(compute, task.cell, expected)

    def _take(self, task: Task, outcome: StoredCell | Exception) -> None:
        """Take the result of a task, or its error; its cell continues once it waits for no other task."""
        waiting = self.waiting.get(task.index, set())
        if isinstance(outcome, Exception):
            if task in waiting:  # no other task of the cell has raised before
                self._resume(task.index, outcome)
            return
        if task.is_part and self.store is not None and task.key is not None:
            try:
                self.store.write(task.key, outcome)
            except (TypeError, ValueError) as error:  # of a value that no file can hold
                self._take(task, error)
                return
        task.done = outcome
        if task in waiting:
            waiting.remove(task)
            if waiting:
                self.bar.update(0)  # the time
            else:
                self._resume(task.index)

    def _check_restart(self) -> None:
        """Raise if the code or the fields of cells have changed since the sweep began."""
        if self.store is not None and keys_of(self.cells) != self.keys:
            raise WorkerError("the code, or the fields of a cell, have changed since the sweep began; restart Python")

    # --- cells -----------------------------------------------------------------------------------------------

    def _resume(self, index: int, error: Exception | None = None) -> None:
        """Continue a cell, after its tasks have finished or one has raised, until it has other tasks or has ended."""
        steps = self.running[index]
        if error is not None:
            self.ready = deque(task for task in self.ready if task.index != index)
        try:
            tasks = next(steps) if error is None else steps.throw(error)
            while not tasks:  # the store has all of them
                tasks = next(steps)
        except StopIteration as end:
            self._end(index, *end.value)
        except Exception as raised:
            self._end(index, raised)
        else:
            self.waiting[index] = set(tasks)
            self.ready.extend(tasks)

    def _end(self, index: int, outcome: StoredCell | Exception, parts: Sequence[CellKey] = ()) -> None:
        """Save a cell and remove its own parts, or record its error."""
        del self.running[index]
        self.waiting.pop(index, None)
        if self.store is not None and not isinstance(outcome, Exception):
            try:
                if describe(self.cells[index]).text != self.keys[index].text:
                    raise ValueError("run() has changed the cell's fields, which identify it; copy them first")
                self.store.write(self.keys[index], outcome)
            except (TypeError, ValueError) as error:
                outcome = error
            else:
                self.store.remove(parts)
        if isinstance(outcome, Exception):
            self.failed[index] = outcome
        else:
            self.found[index] = outcome
            self.refused |= {(type(self.cells[index]).__name__, name) for name in outcome.record.get("refused", ())}
        self.ended += 1
        self.bar.set_postfix_str(f"{self.ended} of {self.total} cells", refresh=False)
        self.bar.update(self.costs[index])

    def _divides(self, index: int) -> bool:
        """Return whether ``run()`` of a cell is called here, and its parts are tasks."""
        if self.store is None and not self.options.spread:
            return False
        with suppress(Exception):  # an invalid cell raises when it runs
            return bool(getattr(self.cells[index], "divides", False))
        return False

    def _steps(self, index: int) -> Steps:
        """Yield lists of tasks, which are done when the generator is resumed, and return the cell's outcome.

        A cell that divides itself runs in a thread: each list of its parts comes from its `run()`, which receives their
        rows, or the error of a part.
        """
        cell, tasks = self.cells[index], list[Task]()
        if not self._divides(index):
            task = Task(index, cell, self.keys[index] if self.keys else None)
            yield [task]
            assert task.done is not None
            return task.done, []
        with closing(_in_thread(partial(_table_of, cell))) as run:
            try:
                cells = next(run)
                while True:
                    try:
                        batch = self._parts(index, cells)
                        tasks += batch
                        yield [task for task in batch if task.done is None]
                        rows = [_result_row(task) for task in batch]
                    except Exception as error:  # of a part; run() may handle it
                        cells = run.throw(error)
                    else:
                        cells = run.send(rows)
            except StopIteration as end:
                table, refused = end.value
        records = [task.done.record for task in tasks if task.done is not None]
        seconds, processor = _total(records, "seconds"), _total(records, "processor_seconds")
        owned = [] if getattr(cell, "keeps_parts", False) else [task.key for task in tasks if task.key]
        return StoredCell(table, {**_record(cell, seconds, processor, refused), "parts": len(tasks)}), owned

    def _parts(self, index: int, cells: Sequence[Cell]) -> list[Task]:
        """Return tasks for the parts of a cell; tasks that the store contains are done."""
        if self.store is None:
            return [Task(index, cell, None, is_part=True) for cell in cells]
        keys = keys_of(cells, self.code_of)
        if not getattr(self.cells[index], "keeps_parts", False):
            keys = [key_of_part(key, self.keys[index]) for key in keys]
        if self.options.recompute:
            self.store.remove(keys)
        found = self.store.read(keys)
        parts = zip(cells, keys, found, strict=True)
        return [Task(index, cell, key, is_part=True, done=done) for cell, key, done in parts]


def key_of_part(part: CellKey, owner: CellKey) -> CellKey:
    """Return the key of a part that no other cell uses: its file is removed when the owner has finished."""
    return part._replace(text=text_of({"part of": owner.config, "cell": json.loads(part.text)}))


def _check(cell: Cell, index: int) -> None:
    """Call a cell's ``check()``, if it has one."""
    check = getattr(cell, "check", None)
    if callable(check):
        try:
            check()
        except Exception as error:
            error.add_note(f"in cells[{index}] = {short_repr(cell)}")
            raise


def _result_row(task: Task) -> Row:
    """Return the row that a part's ``run()`` returned, without the cell's fields."""
    assert task.done is not None
    rows = task.done.table.rows
    if len(rows) != 1:
        raise TypeError(f"a part of a cell must return one row, but {short_repr(task.cell)} returned {len(rows)}")
    return without_fields(task.cell, rows[0])


def _in_thread(function: Callable[[], T]) -> Generator[Sequence[Cell], list[Row], T]:
    """Call a function in a thread; yield the cells that it passes to `run_parts`, and receive their rows.

    Only one of the two threads works at a time. If the generator is closed, `run_parts` raises `GeneratorExit`. Other
    threads that the function starts run their cells themselves.
    """
    asks: queue.SimpleQueue[Sequence[Cell] | Future[T]] = queue.SimpleQueue()
    answers: queue.SimpleQueue[list[Row] | BaseException] = queue.SimpleQueue()
    raised: list[BaseException] = []

    def ask(cells: Sequence[Cell]) -> list[Row]:
        if threading.current_thread() is not thread:
            return one_by_one(cells)
        asks.put(cells)
        answer = answers.get()
        if isinstance(answer, BaseException):
            raised.append(answer)
            raise answer
        return answer

    def call() -> None:
        end: Future[T] = Future()
        try:
            with in_cell(ask):
                end.set_result(function())
        except BaseException as error:
            end.set_exception(error if error in raised else _sendable(error))
        asks.put(end)

    thread = threading.Thread(target=copy_context().run, args=(call,), daemon=True)
    thread.start()
    try:
        while not isinstance(asked := asks.get(), Future):
            try:
                rows = yield asked
            except Exception as error:
                answers.put(error)
            else:
                answers.put(rows)
        return asked.result()
    finally:
        answers.put(GeneratorExit())


def _attempt(cell: Cell) -> StoredCell | Exception:
    try:
        return compute(cell)
    except Exception as error:
        return error


def compute(cell: Cell, code: str | None = None) -> StoredCell:
    """Run a cell and return its table and the record of how it was computed; workers call this function.

    Parameters
    ----------
    cell : Cell
    code : str, optional
        Hash of the code that the worker must have; by default, it is not checked.
    """
    started, used = time.perf_counter(), time.process_time()
    try:
        with in_cell(one_by_one), one_blas_thread():
            if code is not None:
                _check_code(cell, code)
            table, refused = _table_of(cell)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _sendable(error) from None
    return StoredCell(table, _record(cell, time.perf_counter() - started, time.process_time() - used, refused))


def _check_code(cell: Cell, code: str) -> None:
    """Raise if this process, a worker, has other code for a cell than the code in the cell's key."""
    if any(owner.__module__ in ("__main__", "__mp_main__") for owner in describe(cell).owners):
        return  # sent with the cell
    if keys_of([cell])[0].code != code:
        raise RuntimeError(
            "this worker runs a different version of the code, NumPy or SciPy than the sweep; restart the worker"
        )


def _table_of(cell: Cell) -> tuple[Table, list[str]]:
    """Run a cell; return its table, and the returned columns that are left out because they are fields of the cell."""
    result = cell.run()
    table = Table.of([cell], [result])
    rows = [result] if isinstance(result, Mapping) else result
    taken = {name for row in rows for name in row} & field_names(cell)
    if not taken or getattr(cell, "overrides_fields", False):
        return table, []
    fields = {name: value for name, value in fields_of(cell) if name in taken}
    refused = [name for name in fields if any(_differs(plain(row[name]), fields[name]) for row in rows if name in row)]
    return Table([{**row, **{name: fields[name] for name in refused}} for row in table.rows]), refused


def _differs(one: object, other: object) -> bool:
    """Return whether two plain values differ; NaN is equal to NaN."""
    return one != other and (one == one or other == other)


def _total(records: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the sum of an entry of several records, None if a record does not have it."""
    known = [float(record[name]) for record in records if record.get(name) is not None]
    return sum(known) if len(known) == len(records) else None


def _record(cell: Cell, seconds: float | None, processor_seconds: float | None, refused: list[str]) -> dict[str, Any]:
    """Return the record of how this process computed a cell."""
    times = {"seconds": seconds, "processor_seconds": processor_seconds}
    rounded = {name: None if value is None else round(value, 4) for name, value in times.items()}
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"seed": plain(getattr(cell, "seed", None)), **rounded, "ended": ended, **provenance()}
    return record | {"refused": refused} if refused else record


def _sendable(error: BaseException) -> Exception:
    """Return an error that can be pickled, with a note of the place where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    note = f"{frame.filename}:{frame.lineno}"
    try:
        # The scheduler would take these for an error of its own executor, and for the end of a generator.
        if isinstance(error, Exception) and not isinstance(error, BrokenExecutor | StopIteration):
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
