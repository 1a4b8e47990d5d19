"""Threads of this process, which share the work of large rounds; results do not depend on their number.

Threads pay off only where NumPy spends its time in long loops and matrix products, during which it releases the lock of
the interpreter. Many short calls are slower in two threads than in one, so callers use threads only for large blocks.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import TypeVar

from linfed.numerics.linalg import one_blas_thread
from linfed.system.machine import processors
from linfed.system.processes import in_order

T = TypeVar("T")
R = TypeVar("R")

VARIABLE = "LINFED_NUM_THREADS"
"""Environment variable with the number of threads."""


def thread_count() -> int:
    """Return the number of threads that a call may use.

    It is the value of the environment variable `VARIABLE` if that is set, otherwise the number of processors that this
    process may use, or 1 in a worker process. It is 1 in all threads but the main one, so threads are never nested.

    Raises
    ------
    ValueError
        If the environment variable is not a positive integer.
    """
    if threading.current_thread() is not threading.main_thread():
        return 1
    given = os.environ.get(VARIABLE)
    if given is None:
        return processors() if multiprocessing.parent_process() is None else 1
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"{VARIABLE} = {given!r} must be a positive integer")
    return int(given)


def map_threads(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in order, computed by several threads with one BLAS thread each.

    The floating-point warnings of the caller hold in the threads.
    """
    with one_blas_thread():  # for the whole process; in the threads, it would be reset by the first one that ends
        call = functools.partial(_in_context, function)
        yield from in_order(_pool(threads, os.getpid()), call, ((copy_context(), item) for item in items), 2 * threads)


def _in_context(function: Callable[[T], R], task: tuple[Context, T]) -> R:
    context, item = task
    return context.run(function, item)


@functools.lru_cache(maxsize=1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the threads of a process; a forked process needs its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="linfed")
