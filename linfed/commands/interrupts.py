"""What becomes of a command that is stopped: one line, and an exit status as the shell expects it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

KEPT_FRESH = "what was finished is kept, and the same command without --fresh goes on from there"

KEPT = "what was finished is kept, and the same command goes on from there"


def interrupt(number: int, frame: object) -> None:
    """Raise what Ctrl-C raises, with the number of the signal."""
    raise KeyboardInterrupt(number)


def end(number: int, frame: object) -> None:
    """End the process at once: while modules are imported, for some of them swallow what is raised."""
    os._exit(stopped("interrupted", 128 + number))


@contextmanager
def signals(act: Callable[[int, object], None]) -> Iterator[None]:
    """Return a context in which Ctrl-C, SIGTERM and SIGHUP act alike; those that are ignored or handled stay so."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    here = threading.current_thread() is threading.main_thread()
    known = (signal.SIG_DFL, signal.default_int_handler, end)
    before = {number: signal.getsignal(number) for number in numbers if here and signal.getsignal(number) in known}
    for number in before:
        signal.signal(number, act)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped(why: str, status: int) -> int:
    """Say why a run stopped, and return its exit status."""
    kept = KEPT_FRESH if "--fresh" in sys.argv else KEPT
    print(f"linfed: {why}; {kept}", file=sys.stderr, flush=True)
    return status
