"""Comparison of two sides by interleaved repetitions and the ratio of each pair.

The speed of a machine drifts by tens of per cent within a minute. Two sides that are timed one after the other drift
together, so the ratio of a pair is more stable than the times. The median over pairs is robust to disturbed pairs.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

Side = Callable[[], float]
"""Function that runs one repetition and returns its seconds per unit of work (a round, a run)."""

T = TypeVar("T")


class NotMeasuredError(Exception):
    """Error for a row that cannot be measured on this system; the message states the way out."""


@dataclass(frozen=True)
class Settings:
    """Number and length of repetitions, and whether to measure the slow rows."""

    repetitions: int
    seconds: float
    full: bool


@dataclass(frozen=True)
class Target:
    """Target for a ratio: ours / other at most a limit ("most"), or other / ours at least a limit ("least")."""

    kind: Literal["most", "least"]
    value: float

    def __str__(self) -> str:
        return f"ours / other <= {self.value:g}" if self.kind == "most" else f"other / ours >= {self.value:g}"

    def met(self, ratio: float) -> bool:
        """Return True if a median ratio meets the target."""
        return ratio <= self.value if self.kind == "most" else ratio >= self.value


@dataclass(frozen=True)
class Measurement:
    """Paired times of the two sides, one pair per repetition."""

    ours: Sequence[float]
    other: Sequence[float]
    unit: str = "ms"
    note: str = ""

    def ratios(self, kind: str) -> Any:
        """Return the ratio of each pair, in the direction of the target."""
        ours, other = np.asarray(self.ours), np.asarray(self.other)
        return other / ours if kind == "least" else ours / other


@dataclass(frozen=True)
class Row:
    """Line of the table; `information` marks a ratio without a required target."""

    name: str
    sizes: str
    target: Target
    measure: Callable[[Settings], Measurement]
    information: bool = False


def interleaved(ours: Side, other: Side, repetitions: int, note: str = "") -> Measurement:
    """Return the milliseconds of both sides over repetitions A B A B .., after a warm-up of both."""
    ours(), other()
    mine, its = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(repetitions):
            mine.append(1e3 * ours())
            its.append(1e3 * other())
    finally:
        gc.enable()
    return Measurement(mine, its, note=note)


def repeated(work: Callable[[], object], seconds: float) -> Side:
    """Return a side that repeats `work` for about the given time and returns the mean time of one repetition."""
    work()
    started = time.perf_counter()
    work()
    count = max(1, round(seconds / (time.perf_counter() - started)))

    def side() -> float:
        started = time.perf_counter()
        for _ in range(count):
            work()
        return (time.perf_counter() - started) / count

    return side


CORES = {False: "all cores", True: "one core"}
"""Words for the cores of both sides, by whether `one_core` holds."""


@contextmanager
def one_core() -> Iterator[None]:
    """Bind all threads of the process to one core; linfed then uses one thread."""
    if not hasattr(os, "sched_setaffinity") or not Path("/proc/self/task").exists():
        raise NotMeasuredError("only Linux can bind threads to one core")
    allowed = os.sched_getaffinity(0)
    threads = [int(path.name) for path in Path("/proc/self/task").iterdir()]
    for thread in threads:
        os.sched_setaffinity(thread, {min(allowed)})
    try:
        yield
    finally:
        for thread in threads:
            os.sched_setaffinity(thread, allowed)


def fastest(candidates: dict[T, Callable[[], object]]) -> T:
    """Return the key of the fastest candidate, so that the comparison uses the best variant of the other side.

    All candidates take turns, and the smallest time of each counts, because noise only increases times. The faster half
    enters the next stage with more turns, so near ties are decided with the largest number of turns.
    """
    least: dict[T, float] = {}
    for key, work in candidates.items():
        work()
        least[key] = np.inf
    turns = 2
    while len(least) > 1:
        for _ in range(turns):
            for key in least:
                started = time.perf_counter()
                candidates[key]()
                least[key] = min(least[key], time.perf_counter() - started)
        ranked = sorted(least, key=lambda key: least[key])
        least = {key: least[key] for key in ranked[: len(ranked) // 2]}
        turns += 2
    return next(iter(least))
