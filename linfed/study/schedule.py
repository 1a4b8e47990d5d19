"""Who computes which cell when: here, in worker processes, or on anything with `submit`.

This process alone writes into the store, as soon as a cell's rows are there. A cell that raises costs no other cell
anything, and a worker process that dies costs what was being computed in it: that is computed again.
"""

from __future__ import annotations

import importlib.util
import itertools
import pickle
import queue
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from tqdm.std import tqdm

from linfed.errors import EdgeWarning, WorkerError, check_bool, check_integer, check_progress, shown
from linfed.numerics.linalg import one_blas_thread
from linfed.study.cells import Run
from linfed.study.grid import Cell
from linfed.study.store import Done, Key, Store, keys_of, seed_of
from linfed.study.table import Table
from linfed.system.machine import provenance
from linfed.system.processes import worker_pool

UNKNOWN = 1000
"""Cells that are pending at a time on an executor that does not say how many workers it has."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """Where and how cells are run; fields as the arguments of `sweep`."""

    executor: Executor | None = None
    workers: int = 1
    pending: int | None = None
    shard: tuple[int, int] | None = None
    keep: bool = False
    fresh: bool = False
    progress: bool | None = None

    def __post_init__(self) -> None:
        check_integer("workers", self.workers)
        if self.pending is not None:
            check_integer("pending", self.pending)
        check_progress(self.progress)
        if check_bool("keep", self.keep) & check_bool("fresh", self.fresh):
            raise ValueError("keep = True and fresh = True contradict each other: take one of them")
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise TypeError(f"executor = {shown(self.executor)} must have a method submit, as concurrent.futures has")
        if self.shard is not None:
            if not isinstance(self.shard, tuple | list) or len(self.shard) != 2:
                raise ValueError(f"shard = {shown(self.shard)} must be (i, n), the i-th of n parts of the cells")
            check_integer("shard[0]", self.shard[0], maximum=check_integer("shard[1]", self.shard[1]))


class Failure(NamedTuple):
    """A cell that raised."""

    cell: Cell
    error: BaseException

    def __str__(self) -> str:
        """Return the error on one line, where it was raised, and the cell."""
        told = " ".join(str(self.error).split())
        notes = "".join(f" ({note})" for note in getattr(self.error, "__notes__", [])[-1:])
        return f"{type(self.error).__name__}: {told}{notes}, in the cell {shown(self.cell)}"


class Cells(NamedTuple):
    """The table of each cell, None where there is none; how many were there before; and what raised."""

    tables: list[Table | None]
    reused: int
    failures: list[Failure]


class Piece(NamedTuple):
    """What is submitted: the place of a cell, the cell or one of its parts, and that part's place."""

    place: int
    cell: Cell
    part: int | None = None


def run_cells(cells: Sequence[Cell], store: Store | None = None, means: Means | None = None, label: str = "") -> Cells:
    """Run every cell that a store does not hold yet.

    Parameters
    ----------
    cells : sequence of Cell
        Picklable. Those with the largest attribute ``cost``, if they have one, are started first. A cell with a method
        ``parts()`` is run in the cells that it returns, where there are several, and what these return is joined by
        ``joined(rows)``.
    store : Store, optional
        Where each cell is kept; without it nothing is.
    means : Means, optional
        Where they are run.
    label : str
        Text before the progress bar.

    Raises
    ------
    TypeError, ValueError
        For a `Run` that is wanted and cannot be meant.
    WorkerError
        If worker processes cannot start, or an executor is broken.
    WriteError
        If the store cannot be written; what was finished before is kept.
    """
    return _Sweep(cells, store, means or Means()).run(label)


class _Sweep:
    """One call of `run_cells`: what is wanted, what has come of it."""

    def __init__(self, cells: Sequence[Cell], store: Store | None, means: Means) -> None:
        self.cells, self.store, self.means = cells, store, means
        self.codes: dict[frozenset[Any], str] = {}
        self.keys: list[Key] = [] if store is None else keys_of(cells, self.codes)
        self.tables: list[Table | None] = [None] * len(cells)
        self.twins: dict[int, list[int]] = {}
        self.parts: dict[int, list[Done | None]] = {}
        self.failed: dict[int, BaseException] = {}
        self.lost: list[Piece] = []
        self.answered = False
        self.bar = tqdm(disable=True)

    def run(self, label: str) -> Cells:
        """Run what is missing."""
        if self.store is not None:
            self.store.sweep_up()
        if self.store is not None and not self.means.fresh:
            found = self.store.read(self.keys, keep=self.means.keep)
            self.tables = [None if done is None else done.table for done in found]
        reused = len(self.cells) - self.tables.count(None)
        wanted = self._wanted()
        for index in wanted:
            _check(self.cells[index], index)
        total = reused + sum(len(self.twins[index]) for index in wanted)
        hidden = check_progress(self.means.progress)
        with tqdm(total=total, initial=reused, desc=label, unit="cell", disable=hidden) as self.bar:
            self._spread(self._pieces(wanted))
        failures = [Failure(self.cells[index], error) for index, error in sorted(self.failed.items())]
        return Cells(self.tables, reused, failures)

    # --- what is to be run -----------------------------------------------------------------------------------

    def _wanted(self) -> list[int]:
        """Return the places of the cells to run: the longest first, one of equal cells, those of this shard."""
        first: dict[str | int, int] = {}
        for index, table in enumerate(self.tables):
            if table is None:
                place = first.setdefault(self.keys[index].name if self.keys else index, index)
                self.twins.setdefault(place, []).append(index)
        order = sorted(range(len(self.cells)), key=lambda index: -float(getattr(self.cells[index], "cost", 0.0)))
        if self.means.shard is not None:
            number, count = self.means.shard
            order = order[number - 1 :: count]  # of all cells, whatever other shards have finished meanwhile
        return [index for index in order if index in self.twins]

    def _pieces(self, wanted: list[int]) -> Iterator[Piece]:
        """Yield what is to be run, long cells in parts, when its turn comes."""
        divided = self.store is not None or self.means.executor is not None or self.means.workers > 1
        for index in wanted:
            cell = self.cells[index]
            try:
                parts = list(cell.parts()) if divided and hasattr(cell, "parts") else []
            except Exception as error:
                self._fail(index, error)
                continue
            if len(parts) < 2:
                yield Piece(index, cell)
                continue
            self.parts[index] = [None] * len(parts)
            if self.store is not None and not self.means.fresh:
                self.parts[index] = self.store.read(keys_of(parts, self.codes))
            missing = [number for number, done in enumerate(self.parts[index]) if done is None]
            if not missing:
                self._join(index)
            for number in missing:
                if index not in self.failed:
                    yield Piece(index, parts[number], number)

    # --- where it is run -------------------------------------------------------------------------------------

    def _spread(self, pieces: Iterator[Piece]) -> None:
        """Run the pieces where they are to be run."""
        workers, executor = self.means.workers, self.means.executor
        if executor is not None:
            try:
                self._on(executor, pieces, self.means.pending or 2 * _workers_of(executor))
            except BrokenExecutor as error:
                raise WorkerError(f"executor = {shown(executor)} is broken: {shown(error)}") from None
            return
        first = list(itertools.islice(pieces, 2 if workers > 1 else 0))
        pieces = itertools.chain(first, pieces)
        if len(first) == 2:
            self._in_processes(pieces, workers)
            return
        for piece in pieces:
            self._take(piece, partial(compute, piece.cell))

    def _on(self, executor: Executor, pieces: Iterator[Piece], pending: int) -> None:
        """Run the pieces on an executor, so many of them pending at a time."""
        finished: queue.SimpleQueue[Future[Done]] = queue.SimpleQueue()
        running: dict[Future[Done], Piece] = {}
        sent: list[Piece] = []
        try:
            while True:
                for piece in itertools.islice(pieces, pending - len(running)):
                    sent.append(piece)
                    future = executor.submit(compute, piece.cell)
                    running[future] = sent.pop()
                    future.add_done_callback(finished.put)
                if not running:
                    return
                future = finished.get()
                self._take(running[future], future.result)
                del running[future]
        except BaseException:
            self.lost = [*running.values(), *sent]
            for future in running:
                future.cancel()
            raise

    def _in_processes(self, pieces: Iterator[Piece], workers: int) -> None:
        """Run the pieces in worker processes; those that were pending when one died are run again, one at a time."""
        pool = _loky_pool if _interactive() and importlib.util.find_spec("loky") is not None else worker_pool
        again: deque[Piece] = deque()
        while True:
            alone = bool(again)
            source, size = (_drained(again), 1) if alone else (pieces, workers)
            pending = 1 if alone else self.means.pending or 2 * workers
            try:
                with pool(workers, size) as executor:
                    self._on(executor, source, pending)
            except WorkerError as error:
                if alone and not self.answered:  # not even one has ever come back: they cannot start
                    raise
                if alone:
                    for piece in self.lost:
                        self._fail(piece.place, error)
                else:
                    again.extend(self.lost)
                self._check_code()
            else:
                if not alone:
                    return

    def _check_code(self) -> None:
        """Raise if workers that start now would run other code than those before."""
        if self.store is not None and keys_of(self.cells[:1]) != self.keys[:1]:
            raise WorkerError("a worker process died, and the code has changed since: new ones would run other code")

    # --- what has come of it ---------------------------------------------------------------------------------

    def _take(self, piece: Piece, result: Callable[[], Done]) -> None:
        """Take what has come of a piece: its rows, or what it raised."""
        try:
            done = result()
        except BrokenExecutor:
            raise
        except Exception as error:
            self.answered = True
            self._fail(piece.place, error)
            return
        self.answered = True
        if piece.part is None:
            self._keep(piece.place, done)
        elif piece.place not in self.failed:
            if self.store is not None:
                self.store.write(keys_of([piece.cell], self.codes)[0], done)
            self.parts[piece.place][piece.part] = done
            if None not in self.parts[piece.place]:
                self._join(piece.place)

    def _join(self, index: int) -> None:
        """Put the parts of a cell together."""
        cell, found = self.cells[index], [done for done in self.parts.pop(index) if done is not None]
        try:
            table = Table.of([cell], [cell.joined([done.table.rows[0] for done in found])])  # type: ignore[attr-defined]
        except Exception as error:
            self._fail(index, error)
            return
        seconds = sum(done.record["seconds"] for done in found)
        self._keep(index, Done(table, {**found[-1].record, "seconds": seconds, "parts": len(found)}))
        if self.store is not None:
            self.store.remove(keys_of(list(cell.parts()), self.codes))  # type: ignore[attr-defined]

    def _keep(self, index: int, done: Done) -> None:
        if self.store is not None:
            self.store.write(self.keys[index], done)
        for twin in self.twins[index]:
            self.tables[twin] = done.table
        self.bar.update(len(self.twins[index]))

    def _fail(self, index: int, error: BaseException) -> None:
        if index not in self.failed:
            self.failed[index] = error
            self.bar.update(len(self.twins[index]))


def _check(cell: Cell, index: int) -> None:
    """Raise for a run of wrong arguments, before anything is computed."""
    if isinstance(cell, Run):
        try:
            cell.check()
        except Exception as error:
            error.add_note(f"in cells[{index}] = {shown(cell)}")
            raise


def compute(cell: Cell) -> Done:
    """Return a cell's rows and the record of how they were computed; this is what is sent to an executor."""
    started = time.perf_counter()
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", EdgeWarning)  # the column `at_edge` says it
        try:
            table = Table.of([cell], [cell.run()])
        except Exception as error:
            raise _sendable(error) from None
    seconds = time.perf_counter() - started
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    return Done(table, {"seed": seed_of(cell), "seconds": round(seconds, 4), "ended": ended, **provenance()})


def _sendable(error: Exception) -> Exception:
    """Return an error that another process can be told, with the place where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    error.add_note(f"{frame.filename}:{frame.lineno}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        plain.__notes__ = error.__notes__
        return plain.with_traceback(error.__traceback__)
    return error


def _drained(pieces: deque[Piece]) -> Iterator[Piece]:
    while pieces:
        yield pieces.popleft()


def _workers_of(executor: Executor) -> int:
    """Return how many workers an executor has, or enough where it does not say."""
    told = getattr(executor, "_max_workers", None)
    return told if isinstance(told, int) and told > 0 else UNKNOWN // 2


def _interactive() -> bool:
    """Return whether this is a notebook or a prompt, whose classes other processes cannot import."""
    return not hasattr(sys.modules["__main__"], "__file__")


@contextmanager
def _loky_pool(workers: int, tasks: int) -> Iterator[Executor]:
    """Return a context with an executor that sends classes of a notebook by value (extra ``parallel``)."""
    import loky

    executor = loky.ProcessPoolExecutor(min(workers, tasks))
    try:
        yield executor
    except BrokenExecutor as error:
        raise WorkerError(f"workers = {workers}: a worker process died: {shown(error)}") from None
    finally:
        executor.shutdown(kill_workers=True)
