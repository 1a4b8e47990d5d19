"""Run the tasks of a sweep in worker processes or on any executor with a method ``submit``.

Only a bounded number of tasks is pending at a time. If a worker process dies, each pending task is repeated in a new
process, with no other task running, so that only the task that kills its worker fails.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from linfed._values import check_fields, optional
from linfed.checks import check_bool, check_integer, check_progress, short_repr
from linfed.errors import WorkerError
from linfed.system.processes import worker_pool

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

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

    @property
    def spread(self) -> bool:
        """Whether cells run elsewhere than in this thread."""
        return self.executor is not None or self.workers > 1

    @property
    def pending(self) -> int:
        """Maximum number of tasks that are submitted and not finished."""
        workers = self.workers if self.executor is None else getattr(self.executor, "_max_workers", None)
        if self.max_pending is not None:
            return self.max_pending
        return 2 * workers if isinstance(workers, int) and workers > 0 else PENDING_IF_UNKNOWN


class Tasks(Protocol[T, R]):
    """Tasks of a sweep: the scheduler hands them out and takes their results."""

    def next_task(self) -> T | None:
        """Return the next task, or None if none is ready now."""
        ...

    def call_of(self, task: T) -> Callable[[], R]:
        """Return the picklable function that a worker calls for a task."""
        ...

    def take(self, task: T, outcome: R | Exception) -> None:
        """Take the result of a task, or its error."""
        ...

    def check_restart(self) -> None:
        """Raise if the tasks may not be run in new processes, e.g. because the code has changed."""
        ...


def run_tasks(options: ExecutionOptions, tasks: Tasks[T, R]) -> None:
    """Run all tasks, on the given executor or in worker processes.

    Raises
    ------
    linfed.errors.WorkerError
        If worker processes cannot start, or the executor is broken.
    """
    dispatcher = _Dispatcher(options, tasks)
    if options.executor is None:
        dispatcher.run_in_processes()
        return
    try:
        dispatcher.run_on(options.executor)
    except BrokenExecutor as error:
        raise WorkerError(f"executor = {short_repr(options.executor)} is broken: {short_repr(error)}") from None


class _Dispatcher(Generic[T, R]):
    """Submits tasks and returns their outcomes to the scheduler.

    After an error, `lost` has the tasks that were submitted and are not finished. `answered` is True once any outcome
    has come back.
    """

    def __init__(self, options: ExecutionOptions, tasks: Tasks[T, R]) -> None:
        self.options, self.tasks = options, tasks
        self.lost: list[T] = []
        self.answered = False

    def run_on(self, executor: Executor) -> None:
        """Run all tasks on an executor."""
        finished: queue.SimpleQueue[Future[R]] = queue.SimpleQueue()
        running: dict[Future[R], T] = {}
        try:
            while True:
                # results are taken, and saved, before more is submitted
                while len(running) < self.options.pending and finished.empty():
                    task = self.tasks.next_task()
                    if task is None:
                        break
                    self.lost.append(task)
                    future = _submit(executor, self.tasks.call_of(task))
                    running[future] = self.lost.pop()
                    future.add_done_callback(finished.put)
                if not running:
                    return
                future = finished.get()
                outcome = _outcome(future)
                self.answered = True
                self.tasks.take(running.pop(future), outcome)
        except BaseException:
            self.lost += running.values()
            for future in running:
                future.cancel()
            raise

    def run_in_processes(self) -> None:
        """Run all tasks in worker processes; tasks that are lost when a worker dies are repeated one at a time."""
        while True:
            try:
                with worker_pool(self.options.workers, self.options.workers) as pool:
                    self.run_on(pool)
                return
            except WorkerError:
                if not self.lost:
                    raise
            while self.lost:
                self.tasks.check_restart()
                self._repeat(self.lost.pop(0))

    def _repeat(self, task: T) -> None:
        """Run a task with no other task running; it fails if its worker dies again, unless no worker can start."""
        call = self.tasks.call_of(task)
        outcome: R | Exception
        try:
            outcome = self._alone(call)
        except WorkerError:
            if not self.answered:
                self._alone(partial(_receive, call))
            outcome = WorkerError(
                f"workers = {self.options.workers}: a worker process died twice, the second time with no other task "
                "running: it was killed, or ran out of memory"
            )
        self.answered = True
        self.tasks.take(task, outcome)

    def _alone(self, call: Callable[[], S]) -> S | Exception:
        with worker_pool(self.options.workers, 1) as pool:
            return _outcome(pool.submit(call))


def _submit(executor: Executor, call: Callable[[], R]) -> Future[R]:
    try:
        future: Any = executor.submit(call)
    except BrokenExecutor:
        raise
    except RuntimeError as error:  # the executor has been shut down
        raise WorkerError(f"executor = {short_repr(executor)} accepts no more tasks: {error}") from None
    if not callable(getattr(future, "add_done_callback", None)):
        raise TypeError(f"executor = {short_repr(executor)}: submit must return a future, got {short_repr(future)}")
    found: Future[R] = future
    return found


def _outcome(future: Future[R]) -> R | Exception:
    """Return the result of a future, or its error; raise if the executor is broken."""
    try:
        return future.result()
    except BrokenExecutor:
        raise
    except Exception as error:
        return error


def _receive(call: object) -> None:
    """Do nothing, in a worker that could start and find the classes and functions of a call."""
