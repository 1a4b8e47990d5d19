"""How two sides are compared: interleaved repetitions, and the ratio of each pair.

A machine's speed drifts by tens of per cent within a minute. Two sides timed one after the other drift together, so
the ratio of a pair holds still where the times do not; the median over pairs then drops the pairs that were disturbed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

Side = Callable[[], float]
"""Does one repetition and returns its seconds per unit of work (a round, a run)."""

T = TypeVar("T")


class NotMeasuredError(Exception):
    """A row that cannot be measured here; the message says what to do."""


@dataclass(frozen=True)
class Settings:
    """How much to repeat, and whether the slow rows are run."""

    repetitions: int
    seconds: float
    full: bool


@dataclass(frozen=True)
class Target:
    """What is asked of a ratio: `most` of ours / other, or `least` of other / ours."""

    kind: Literal["most", "least"]
    value: float

    def __str__(self) -> str:
        return f"ours / other <= {self.value:g}" if self.kind == "most" else f"other / ours >= {self.value:g}"

    def met(self, ratio: float) -> bool:
        """Return whether a median ratio is good enough."""
        return ratio <= self.value if self.kind == "most" else ratio >= self.value


@dataclass(frozen=True)
class Measurement:
    """Paired values of the two sides, one pair for each repetition."""

    ours: Sequence[float]
    other: Sequence[float]
    unit: str = "ms"
    note: str = ""

    def ratios(self, kind: str) -> Any:
        """Return the ratio of each pair, the way round that the target asks for."""
        ours, other = np.asarray(self.ours), np.asarray(self.other)
        return other / ours if kind == "least" else ours / other


@dataclass(frozen=True)
class Row:
    """One line of the table; `information` marks a ratio that nothing was promised about."""

    name: str
    sizes: str
    target: Target
    measure: Callable[[Settings], Measurement]
    information: bool = False


def interleaved(ours: Side, other: Side, repetitions: int, note: str = "") -> Measurement:
    """Return the milliseconds of both sides over repetitions A B A B .., after warming up both."""
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
    """Return a side that does `work` often enough to last about so long, and reports the mean of one."""
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


def fastest(candidates: dict[T, Callable[[], object]]) -> T:
    """Return the key of the fastest candidate: the other side is held at its best.

    All candidates take turns, and each is judged by its least time, which noise can only raise. The better half goes on
    to the next heat, with more turns, so that the near ties are decided by the most of them.
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
