"""Run the tasks of a sweep in worker processes or on any executor with a method ``submit``.

Only a bounded number of tasks is pending at a time. If a worker process dies, each pending task is repeated in a new
process, with no other task running, so that only the task that kills its worker fails.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from linfed._values import check_fields, optional
from linfed.checks import check_bool, check_integer, check_progress, is_several, short_repr
from linfed.errors import WorkerError
from linfed.system.processes import worker_pool

T = TypeVar("T")
R = TypeVar("R")

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
            if not is_several(self.shard) or len(self.shard) != 2:
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


def run_tasks(
    options: ExecutionOptions,
    next_task: Callable[[], T | None],
    call_of: Callable[[T], Callable[[], R]],
    check_restart: Callable[[], None],
) -> Generator[tuple[T, R | Exception], None, None]:
    """Run tasks on the given executor or in worker processes; yield each with its result or its error.

    Parameters
    ----------
    options : ExecutionOptions
    next_task : callable
        Return the next task, or None if none is ready now.
    call_of : callable
        Return the picklable function that a worker calls for a task.
    check_restart : callable
        Raise if the tasks may not be run in new processes, e.g. because the code has changed.

    Raises
    ------
    linfed.errors.WorkerError
        If worker processes cannot start, or the executor is broken.
    """
    if options.executor is None:
        yield from _run_in_processes(options, next_task, call_of, check_restart)
        return
    try:
        yield from _run_on(options.executor, options.pending, next_task, call_of, [])
    except BrokenExecutor as error:
        raise WorkerError(f"executor = {short_repr(options.executor)} is broken: {short_repr(error)}") from None


def _run_on(
    executor: Executor,
    pending: int,
    next_task: Callable[[], T | None],
    call_of: Callable[[T], Callable[[], R]],
    lost: list[T],
) -> Generator[tuple[T, R | Exception], None, None]:
    """Run tasks on an executor; after an error, `lost` has the tasks that were submitted and are not finished."""
    finished: queue.SimpleQueue[Future[R]] = queue.SimpleQueue()
    running: dict[Future[R], T] = {}
    try:
        while True:
            # results are yielded, and saved, before more is submitted
            while len(running) < pending and finished.empty() and (task := next_task()) is not None:
                lost.append(task)
                future = _submit(executor, call_of(task))
                running[future] = lost.pop()
                future.add_done_callback(finished.put)
            if not running:
                return
            future = finished.get()
            outcome = _outcome(future)
            yield running.pop(future), outcome
    except BaseException:
        lost.extend(running.values())
        for future in running:
            future.cancel()
        raise


def _run_in_processes(
    options: ExecutionOptions,
    next_task: Callable[[], T | None],
    call_of: Callable[[T], Callable[[], R]],
    check_restart: Callable[[], None],
) -> Generator[tuple[T, R | Exception], None, None]:
    """Run tasks in worker processes; tasks that are lost when a worker dies are repeated one at a time."""
    answered, lost = False, list[T]()
    while True:
        try:
            with worker_pool(options.workers, options.workers) as pool:
                for done in _run_on(pool, options.pending, next_task, call_of, lost):
                    answered = True
                    yield done
            return
        except WorkerError:
            if not lost:
                raise
        while lost:
            check_restart()
            task = lost.pop(0)
            yield task, _repeated(options.workers, call_of(task), answered)
            answered = True


def _repeated(workers: int, call: Callable[[], R], answered: bool) -> R | Exception:
    """Return the result of a call with no other task running; an error if its worker dies again.

    If no task has been answered, raise unless a worker can start and receive the call.
    """
    try:
        return _alone(workers, call)
    except WorkerError:
        if not answered:
            _alone(workers, partial(_receive, call))
        return WorkerError(
            f"workers = {workers}: a worker process died, and again when its task was repeated with no other task "
            "running: it was killed, or ran out of memory"
        )


def _alone(workers: int, call: Callable[[], R]) -> R | Exception:
    with worker_pool(workers, 1) as pool:
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
