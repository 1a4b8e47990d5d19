"""Run the tasks of a sweep in worker processes or on any executor with a method ``submit``.

Only a bounded number of tasks is pending at a time. If a worker process dies, the pending tasks are run again one by
one, to find out which of them kills its worker.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from typing import Any, NamedTuple

from linfed.errors import WorkerError, check_bool, check_integer, check_progress, shown
from linfed.system.processes import worker_pool
from linfed.tables.grid import Cell

UNKNOWN = 1000
"""Maximum number of pending tasks on an executor that does not report its number of workers."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """Where and how the cells of a sweep are run; the fields are the arguments of `linfed.sweep`."""

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
            raise ValueError("keep = True cannot be combined with fresh = True; set one of them")
        if self.executor is not None and (
            isinstance(self.executor, type) or not callable(getattr(self.executor, "submit", None))
        ):
            raise TypeError(f"executor = {shown(self.executor)} must have a method submit, as in concurrent.futures")
        if self.shard is not None:
            if not isinstance(self.shard, tuple | list) or len(self.shard) != 2:
                raise ValueError(f"shard = {shown(self.shard)} must be (i, n), to run part i of n, 1 <= i <= n")
            check_integer("shard[0]", self.shard[0], maximum=check_integer("shard[1]", self.shard[1]))


class Piece(NamedTuple):
    """A task: the index of a cell in the sweep, the cell or a part of a long cell, and the index of this part."""

    place: int
    cell: Cell
    part: int | None = None


class Errands(NamedTuple):
    """Callbacks of the scheduler, which owns the tasks.

    Parameters
    ----------
    following : callable
        Return the next task, or None if none is ready now.
    errand : callable
        Return the picklable function that a worker calls for a task.
    take : callable
        Store the result of a finished task, given a function that returns the result or raises the task's error.
    fail : callable
        Mark a cell, given by its index, as failed.
    check_restart : callable
        Raise if the tasks may not be run again, e.g. because the code has changed.
    """

    following: Callable[[], Piece | None]
    errand: Callable[[Piece], Callable[[], Any]]
    take: Callable[[Piece, Callable[[], Any]], None]
    fail: Callable[[int, BaseException], None]
    check_restart: Callable[[], None]


def spread(means: Means, errands: Errands) -> None:
    """Run all tasks, on the given executor or in worker processes.

    Raises
    ------
    WorkerError
        If worker processes cannot start, or the executor is broken.
    """
    if means.executor is None:
        _in_processes(means, errands)
        return
    try:
        _Line(errands).through(means.executor, means.pending or 2 * (workers_of(means) or UNKNOWN // 2))
    except BrokenExecutor as error:
        raise WorkerError(f"executor = {shown(means.executor)} is broken: {shown(error)}") from None


class _Line:
    """Submits tasks to an executor and returns their results to the scheduler.

    After an error, `lost` holds the submitted but unfinished tasks. `answered` is True once any result has come back.
    """

    def __init__(self, errands: Errands) -> None:
        self.errands = errands
        self.answered = False
        self.lost: list[Piece] = []

    def through(self, executor: Executor, pending: int) -> None:
        """Submit all tasks, with at most `pending` of them unfinished at a time."""
        finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        running: dict[Future[Any], Piece] = {}
        sent: list[Piece] = []
        try:
            while True:
                while len(running) < pending and (piece := self.errands.following()) is not None:
                    sent.append(piece)
                    future = self._submitted(executor, piece)
                    running[future] = sent.pop()
                    future.add_done_callback(finished.put)
                    if not finished.empty():  # save results before submitting more
                        break
                if not running:
                    return
                future = finished.get()
                self.errands.take(running[future], future.result)
                self.answered = True
                del running[future]
        except BaseException:
            self.lost = [*running.values(), *sent]
            for future in running:
                future.cancel()
            raise

    def _submitted(self, executor: Executor, piece: Piece) -> Future[Any]:
        try:
            future: Any = executor.submit(self.errands.errand(piece))
        except BrokenExecutor:
            raise
        except RuntimeError as error:  # the executor has been shut down
            raise WorkerError(f"executor = {shown(executor)} accepts no more tasks: {error}") from None
        if not callable(getattr(future, "add_done_callback", None)):
            raise TypeError(f"executor = {shown(executor)}: submit must return a future, got {shown(future)}")
        return future


def _in_processes(means: Means, errands: Errands) -> None:
    """Run the tasks in worker processes; after a worker dies, rerun the pending tasks one at a time."""
    everything, again = _Line(errands), deque[Piece]()
    suspects = _Line(errands._replace(following=lambda: again.popleft() if again else None))
    while True:
        line, size = (suspects, 1) if again else (everything, means.workers)
        try:
            with worker_pool(means.workers, size) as executor:
                line.through(executor, 1 if line is suspects else means.pending or 2 * size)
        except WorkerError as error:
            if line is everything:
                again.extend(line.lost)
            elif everything.answered or suspects.answered:
                for piece in line.lost:
                    errands.fail(piece.place, error)
            else:  # no task has ever returned: the workers cannot start
                raise
            errands.check_restart()
        else:
            if line is everything:
                return


def workers_of(means: Means) -> int | None:
    """Return the number of cells that run at the same time; None if the executor does not report it."""
    if means.executor is None:
        return means.workers
    told = getattr(means.executor, "_max_workers", None)
    return told if isinstance(told, int) and told > 0 else None
