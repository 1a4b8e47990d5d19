"""Where the pieces of a sweep run: in worker processes, or on anything with `submit`.

A bounded number is pending at a time. A worker process that dies costs what was being computed in it: that is computed
again, piece by piece, to know whose fault it was.
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
"""Pieces that are pending at a time on an executor that does not say how many workers it has."""


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
        if self.executor is not None and (
            isinstance(self.executor, type) or not callable(getattr(self.executor, "submit", None))
        ):
            raise TypeError(f"executor = {shown(self.executor)} must have a method submit, as concurrent.futures has")
        if self.shard is not None:
            if not isinstance(self.shard, tuple | list) or len(self.shard) != 2:
                raise ValueError(f"shard = {shown(self.shard)} must be (i, n), the i-th of n parts of the cells")
            check_integer("shard[0]", self.shard[0], maximum=check_integer("shard[1]", self.shard[1]))


class Piece(NamedTuple):
    """What is submitted: the place of a cell, the cell or one of its parts, and that part's place."""

    place: int
    cell: Cell
    part: int | None = None


class Errands(NamedTuple):
    """What is asked of, and told to, who knows the pieces."""

    following: Callable[[], Piece | None]
    errand: Callable[[Piece], Callable[[], Any]]
    take: Callable[[Piece, Callable[[], Any]], None]
    fail: Callable[[int, BaseException], None]
    check_restart: Callable[[], None]


def spread(means: Means, errands: Errands) -> None:
    """Run all pieces on the executor or in the worker processes that are asked for.

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
    """The pieces on their way through an executor; `lost` are those that it had when it broke."""

    def __init__(self, errands: Errands) -> None:
        self.errands = errands
        self.answered = False
        self.lost: list[Piece] = []

    def through(self, executor: Executor, pending: int) -> None:
        """Submit one piece after the other, so many of them pending at a time."""
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
                    if not finished.empty():  # what is finished is kept first
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
        except RuntimeError as error:  # it is shut down
            raise WorkerError(f"executor = {shown(executor)} takes no more: {error}") from None
        if not callable(getattr(future, "add_done_callback", None)):
            raise TypeError(f"executor = {shown(executor)}: submit returned {shown(future)}, which is no future")
        return future


def _in_processes(means: Means, errands: Errands) -> None:
    """Run in worker processes; what was pending when one died is run again, one at a time."""
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
            else:  # not even one has ever come back: they cannot start
                raise
            errands.check_restart()
        else:
            if line is everything:
                return


def workers_of(means: Means) -> int | None:
    """Return how many cells run at a time; None where an executor does not say."""
    if means.executor is None:
        return means.workers
    told = getattr(means.executor, "_max_workers", None)
    return told if isinstance(told, int) and told > 0 else None
