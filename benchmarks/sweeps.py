"""Overhead of sweeps: costs of store and scheduler, speedup from a second process, and cost of resuming."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import linfed as lf
from benchmarks.timing import Measurement, NotMeasuredError, Row, Settings, Target, interleaved
from linfed.sweeps.scheduler import compute
from linfed.sweeps.store import keys_of

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5),
    problem=lf.SharedRepresentation(n_clients=20, dim=10, rank=2, noise_std=0.03),
    data=lf.FreshSamples(n_samples=6),
    n_rounds=100,
    trials=20,
)
FINISHED, PATIENCE = 10_000, 5.0
"""Number of stored cells to resume, and limit in seconds."""


@dataclass(frozen=True)
class Second:
    """Cell that is busy for a second and returns as much data as a run."""

    number: int

    def run(self) -> dict[str, object]:
        """Wait actively for a second and return a row."""
        end = time.perf_counter() + 1.0
        while time.perf_counter() < end:
            pass
        return {"value": lf.LabeledArray(np.full((20, 101), float(self.number)), round=range(101))}


@dataclass(frozen=True)
class Work:
    """Cell with a fixed amount of work: products of small matrices, for about a second."""

    number: int

    def run(self) -> dict[str, object]:
        """Return the result of the work as a row."""
        return {"value": worked(self.number)}


def worked(number: int) -> float:
    """Run a cell."""
    stack = np.random.default_rng(number).standard_normal((200, 40, 40)) / 7.0
    product = stack
    for _ in range(600):
        product = np.clip(product @ stack, -1.0, 1.0)
    return float(product.sum())


def seconds_of(cells: Sequence[Second]) -> None:
    for cell in cells:
        cell.run()


def against_the_cells(settings: Settings) -> Measurement:
    """Compare a sweep with a new store, in two running processes, with only its cells."""
    count = 8 if settings.repetitions < 15 else 20
    cells = [Second(number) for number in range(count)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:

        def ours() -> float:
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                lf.sweep(cells, store=folder, executor=pool)
            return time.perf_counter() - started

        def other() -> float:
            started = time.perf_counter()
            list(pool.map(seconds_of, [cells[: count // 2], cells[count // 2 :]]))
            return time.perf_counter() - started

        return interleaved(ours, other, 3, note=f"{count} cells of a second in two processes")


def speed_up(settings: Settings) -> Measurement:
    """Compare the speedup from a second process in a sweep, including its start, with the speedup in a loop."""
    if not settings.full:
        raise NotMeasuredError("takes minutes: --full")
    cells = [Work(number) for number in range(40)]
    ours, other = [], []
    context = get_context("spawn")
    for _ in range(3):
        seconds = []
        for workers in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                lf.sweep(cells, store=folder, workers=workers)
                seconds.append(time.perf_counter() - started)
        ours.append(seconds[1] / seconds[0])
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            list(pool.map(worked, range(4)))  # starts both processes
            started = time.perf_counter()
            for number in range(40):
                worked(number)
            middle = time.perf_counter()
            list(pool.map(worked, range(40)))
            other.append((time.perf_counter() - middle) / (middle - started))
    return Measurement(ours, other, unit="of one", note="time in two processes, of that in one; 40 cells")


def taken_up(settings: Settings) -> Measurement:
    """Measure a sweep whose cells are all stored."""
    cells = lf.grid(RUN, seed=range(FINISHED))
    done = compute(cells[0])
    with tempfile.TemporaryDirectory() as folder:
        store = lf.Store(Path(folder))
        for key in keys_of(cells):
            store.write(key, done)
        started = time.perf_counter()
        assert len(lf.sweep(cells, store=store)) == FINISHED
        seconds = time.perf_counter() - started
    return Measurement([1e3 * seconds], [1e3 * PATIENCE], note=f"against {PATIENCE:g} s")


ROWS = [
    Row("store and schedule beside cells of a second", "two processes", Target("most", 1.05), against_the_cells),
    Row("a second process in a sweep, and in a loop", "40 cells", Target("least", 0.9), speed_up),
    Row("a sweep of finished cells", f"{FINISHED:,} cells", Target("most", 1.0), taken_up),
]
