"""Pools of worker processes, which end with the main process."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from linfed.checks import short_repr
from linfed.errors import WorkerError

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def worker_pool(workers: int, tasks: int) -> Iterator[Executor]:
    """Return a context with an executor of ``min(workers, tasks)`` processes.

    Raises
    ------
    linfed.errors.WorkerError
        If a worker process dies; the message gives the likely cause. If this process is itself a daemonic worker, which
        cannot start processes.

    Notes
    -----
    The workers end with the main process in all cases, and immediately if the context ends with an error. In a notebook
    or at a prompt the pool is loky's, if installed, because it can send locally defined classes and functions.
    """
    if multiprocessing.current_process().daemon:
        raise WorkerError(
            f"workers = {workers} cannot be used in a worker of multiprocessing.Pool, which cannot start processes; "
            "use workers = 1"
        )
    by_value = _is_interactive() and importlib.util.find_spec("loky") is not None
    with _loky_pool(workers, tasks) if by_value else _process_pool(workers, tasks) as pool:
        try:
            yield pool
        except BrokenExecutor as error:
            raise WorkerError(f"workers = {workers}: a worker process died: {_explain(error, by_value)}") from None


def _explain(error: BrokenExecutor, by_value: bool) -> str:
    """Return the likely cause of a worker's death, and advice."""
    if by_value:
        return short_repr(error)
    advice = (
        "workers cannot find classes and functions defined in a notebook or at a prompt: move them to a module, use "
        "workers = 1, or pip install 'linfed[parallel]'"
        if _is_interactive()
        else "a script must start its work below if __name__ == '__main__', and define its classes and functions above"
    )
    return f"it was killed, ran out of memory, or could not start ({advice})"


@contextmanager
def _loky_pool(workers: int, tasks: int) -> Iterator[Executor]:
    """Return a context with a loky executor (extra ``parallel``)."""
    import loky

    executor = loky.ProcessPoolExecutor(min(workers, tasks), initializer=_keep_no_semaphore)
    try:
        yield executor
    finally:
        executor.shutdown(kill_workers=True)


@contextmanager
def _process_pool(workers: int, tasks: int) -> Iterator[Executor]:
    """Return a context with an executor whose workers end with this process."""
    context = multiprocessing.get_context("spawn")  # a forked copy of a threaded BLAS may hang
    watched, alive = context.Pipe(duplex=False)
    with watched, alive:
        pool = _Pool(min(workers, tasks), mp_context=context, initializer=_end_with, initargs=(watched,))
        try:
            yield pool
        except BrokenProcessPool:
            raise
        except BaseException:
            with _no_state_errors():
                alive.close()
                pool.shutdown(cancel_futures=True)
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _no_state_errors() -> Iterator[None]:
    """Return a context in which a thread that sets the result of a cancelled future prints no traceback.

    The thread of a process pool does that if its workers end after their calls have been cancelled.
    """
    before = threading.excepthook
    threading.excepthook = lambda given: None if given.exc_type is InvalidStateError else before(given)
    try:
        yield
    finally:
        threading.excepthook = before


def _is_interactive() -> bool:
    """Return whether Python runs a notebook or a prompt, whose definitions other processes cannot import."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return file is None or file == "<stdin>"


def in_order(pool: Executor, function: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Yield ``function(item)`` for each item in order, computed in the pool with at most `ahead` pending calls."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) == ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class _Pool(ProcessPoolExecutor):
    """Process pool whose workers ignore Ctrl-C, also while they start; the main process handles it."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a task; a worker started for it inherits the blocked signal."""
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(fn, *args, **kwargs)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _keep_no_semaphore() -> None:
    """Make the progress bars of this worker use a thread lock.

    tqdm's default lock is a semaphore, about which the resource tracker warns if the worker ends abruptly.
    """
    from tqdm.std import tqdm

    tqdm.set_lock(threading.RLock())


def _end_with(watched: Connection[Any, Any]) -> None:
    """End this worker as soon as the other end of a pipe is closed, at the latest when the main process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _keep_no_semaphore()

    def watch() -> None:
        watched.poll(None)  # returns when the pipe is closed, as nothing is sent
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
