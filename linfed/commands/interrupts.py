"""Handlers of Ctrl-C, SIGTERM and SIGHUP: a one-line message and the exit status 128 + N of signal N."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

KEPT_RECOMPUTED = "finished cells are saved; run the same command without --recompute to resume"
"""Advice after a run with ``--recompute`` stopped early."""

KEPT = "finished cells are saved; run the same command again to resume"
"""Advice after a run stopped early."""


def interrupt(number: int, frame: object) -> None:
    """Raise a `KeyboardInterrupt` with the number of the signal."""
    raise KeyboardInterrupt(number)


def end(number: int, frame: object) -> None:
    """End the process at once; for use during imports, because some modules swallow exceptions."""
    os._exit(stopped("interrupted", 128 + number))


@contextmanager
def signals(act: Callable[[int, object], None]) -> Iterator[None]:
    """Return a context in which Ctrl-C, SIGTERM and SIGHUP call `act`.

    Signals that are ignored, or have a handler of the caller, stay as they are.
    """
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    here = threading.current_thread() is threading.main_thread()
    handlers = (signal.SIG_DFL, signal.default_int_handler, end)
    before = {number: signal.getsignal(number) for number in numbers if here and signal.getsignal(number) in handlers}
    for number in before:
        signal.signal(number, act)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped(why: str, status: int, arguments: Sequence[str] | None = None) -> int:
    """Print why a command stopped and, for ``linfed reproduce``, how to resume it; return `status`."""
    given = sys.argv[1:] if arguments is None else arguments
    kept = KEPT_RECOMPUTED if "--recompute" in given else KEPT
    print(f"linfed: {why}{f'; {kept}' * ('reproduce' in given)}", file=sys.stderr, flush=True)
    return status
