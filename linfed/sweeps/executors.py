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

from linfed._values import check_fields, optional
from linfed.checks import check_bool, check_integer, check_progress, short_repr
from linfed.errors import WorkerError
from linfed.system.processes import worker_pool
from linfed.tables.grid import Cell

PENDING_IF_UNKNOWN = 1000
"""Maximum number of pending tasks on an executor that does not report its number of workers."""


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Where and how the cells of a sweep are run; the fields are the arguments of `linfed.sweep`."""

    executor: Executor | None = None
    workers: int = 1
    max_pending: int | None = None
    shard: tuple[int, int] | None = None
    reuse_stale: bool = False
    recompute: bool = False
    progress: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self, workers=check_integer, max_pending=optional(check_integer))
        check_progress(self.progress)
        if check_bool("reuse_stale", self.reuse_stale) & check_bool("recompute", self.recompute):
            raise ValueError("reuse_stale = True cannot be combined with recompute = True; set one of them")
        if self.executor is not None and (
            isinstance(self.executor, type) or not callable(getattr(self.executor, "submit", None))
        ):
            raise TypeError(
                f"executor = {short_repr(self.executor)} must have a method submit, as in concurrent.futures"
            )
        if self.shard is not None:
            if not isinstance(self.shard, tuple | list) or len(self.shard) != 2:
                raise ValueError(f"shard = {short_repr(self.shard)} must be (i, n), to run part i of n, 1 <= i <= n")
            parts = check_integer("shard[1]", self.shard[1])
            object.__setattr__(self, "shard", (check_integer("shard[0]", self.shard[0], maximum=parts), parts))


class Task(NamedTuple):
    """A task: the index of a cell in the sweep, the cell or a part of a long cell, and the index of this part."""

    place: int
    cell: Cell
    part: int | None = None


class TaskCallbacks(NamedTuple):
    """Callbacks of the scheduler, which owns the tasks.

    Parameters
    ----------
    next_task : callable
        Return the next task, or None if none is ready now.
    make_call : callable
        Return the picklable function that a worker calls for a task.
    on_result : callable
        Store the result of a finished task, given a function that returns the result or raises the task's error.
    on_failure : callable
        Mark a cell, given by its index, as failed.
    check_restart : callable
        Raise if the tasks may not be run again, e.g. because the code has changed.
    """

    next_task: Callable[[], Task | None]
    make_call: Callable[[Task], Callable[[], Any]]
    on_result: Callable[[Task, Callable[[], Any]], None]
    on_failure: Callable[[int, BaseException], None]
    check_restart: Callable[[], None]


def run_tasks(options: ExecutionOptions, callbacks: TaskCallbacks) -> None:
    """Run all tasks, on the given executor or in worker processes.

    Raises
    ------
    linfed.errors.WorkerError
        If worker processes cannot start, or the executor is broken.
    """
    if options.executor is None:
        _run_in_processes(options, callbacks)
        return
    try:
        _Dispatcher(callbacks).run(
            options.executor, options.max_pending or 2 * (n_workers(options) or PENDING_IF_UNKNOWN // 2)
        )
    except BrokenExecutor as error:
        raise WorkerError(f"executor = {short_repr(options.executor)} is broken: {short_repr(error)}") from None


class _Dispatcher:
    """Submits tasks to an executor and returns their results to the scheduler.

    After an error, `lost` holds the submitted but unfinished tasks. `answered` is True once any result has come back.
    """

    def __init__(self, callbacks: TaskCallbacks) -> None:
        self.callbacks = callbacks
        self.answered = False
        self.lost: list[Task] = []

    def run(self, executor: Executor, max_pending: int) -> None:
        """Submit all tasks, with at most `max_pending` of them unfinished at a time."""
        finished: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        running: dict[Future[Any], Task] = {}
        sent: list[Task] = []
        try:
            while True:
                while len(running) < max_pending and (piece := self.callbacks.next_task()) is not None:
                    sent.append(piece)
                    future = self._submit(executor, piece)
                    running[future] = sent.pop()
                    future.add_done_callback(finished.put)
                    if not finished.empty():  # save results before submitting more
                        break
                if not running:
                    return
                future = finished.get()
                self.callbacks.on_result(running[future], future.result)
                self.answered = True
                del running[future]
        except BaseException:
            self.lost = [*running.values(), *sent]
            for future in running:
                future.cancel()
            raise

    def _submit(self, executor: Executor, task: Task) -> Future[Any]:
        try:
            future: Any = executor.submit(self.callbacks.make_call(task))
        except BrokenExecutor:
            raise
        except RuntimeError as error:  # the executor has been shut down
            raise WorkerError(f"executor = {short_repr(executor)} accepts no more tasks: {error}") from None
        if not callable(getattr(future, "add_done_callback", None)):
            raise TypeError(f"executor = {short_repr(executor)}: submit must return a future, got {short_repr(future)}")
        return future


def _run_in_processes(options: ExecutionOptions, callbacks: TaskCallbacks) -> None:
    """Run the tasks in worker processes; after a worker dies, rerun the pending tasks one at a time."""
    everything, again = _Dispatcher(callbacks), deque[Task]()
    suspects = _Dispatcher(callbacks._replace(next_task=lambda: again.popleft() if again else None))
    while True:
        line, size = (suspects, 1) if again else (everything, options.workers)
        try:
            with worker_pool(options.workers, size) as executor:
                line.run(executor, 1 if line is suspects else options.max_pending or 2 * size)
        except WorkerError as error:
            if line is everything:
                again.extend(line.lost)
            elif everything.answered or suspects.answered:
                for piece in line.lost:
                    callbacks.on_failure(piece.place, error)
            else:  # no task has ever returned: the workers cannot start
                raise
            callbacks.check_restart()
        else:
            if line is everything:
                return


def n_workers(options: ExecutionOptions) -> int | None:
    """Return the number of cells that run at the same time; None if the executor does not report it."""
    if options.executor is None:
        return options.workers
    workers = getattr(options.executor, "_max_workers", None)
    return workers if isinstance(workers, int) and workers > 0 else None
