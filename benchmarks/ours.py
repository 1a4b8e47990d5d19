"""linfed's side: the cost of a round for a user of `lf.simulate`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import numpy as np

import linfed as lf
from benchmarks.timing import Side

NOISE_STD = 0.03
"""Standard deviation of the label noise, which both sides of every row draw."""

STEP_SIZE = 0.3

FEWEST = 20
"""Least number of timed rounds of several trials: while one thread starts a run, another one's rounds take longer."""


@dataclass(frozen=True)
class Size:
    """Number of clients n, dimension d, rank k and number of samples m, with full participation."""

    n: int
    d: int
    k: int
    m: int

    def __str__(self) -> str:
        return f"n={self.n} d={self.d} k={self.k} m={self.m}"


def samples(kind: Literal["fresh", "fixed"], m: int) -> Any:
    """Return data of m samples."""
    return lf.FreshSamples(m) if kind == "fresh" else lf.FixedSamples(m)


@contextmanager
def step_times(algorithm: lf.Algorithm) -> Iterator[dict[int, list[float]]]:
    """Return a context with the times at which steps of the algorithm's class begin, by thread."""
    cls: Any = type(algorithm)
    step, times = cls.step, dict[int, list[float]]()

    def recorded(self: Any, state: Any, batch: Any, rng: Any) -> Any:
        times.setdefault(threading.get_ident(), []).append(time.perf_counter())
        return step(self, state, batch, rng)

    with mock.patch.object(cls, "step", recorded):
        yield times


def seconds_of_rounds(times: Iterable[list[float]], n_rounds: int) -> float:
    """Return the time in which any thread ran rounds, given the times of the steps of one or more runs of `n_rounds`.

    The first step of a run allocates the buffers, so the time starts with the second.
    """
    runs = sorted((run[1], run[-1]) for each in times for run in np.reshape(each, (-1, n_rounds)))
    total, end = 0.0, -np.inf
    for start, stop in runs:
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def round_of(algorithm: lf.Algorithm, problem: Any, data: Any, seconds: float, engine: str, trials: int = 1) -> Side:
    """Return linfed's side: the mean time from the start of one step to the start of the next, in one run.

    This time includes all costs of a round (random numbers, the step, the checks of the loop). It excludes all costs
    that occur once per run: the ground truth, fixed data, the first access to the buffers, the first and last metrics.
    The difference between a long and a short run would have the same mean, but at large sizes several times the noise.
    """

    def run(n_rounds: int) -> float:
        every = n_rounds + 2
        with step_times(algorithm) as times:
            result = lf.simulate(
                algorithm, problem, data=data, n_rounds=every, record_every=every, engine=engine, trials=trials
            )
        assert lf.Status.DIVERGED not in result.status, "the timed rounds must have finite numbers"
        return seconds_of_rounds(times.values(), every) / n_rounds

    rounds = max(FEWEST if trials > 1 else 3, round(seconds / run(3)))
    return lambda: run(rounds)


def round_of_fedrep(
    size: Size,
    kind: Literal["fresh", "fixed"],
    seconds: float,
    engine: str = "explicit",
    *,
    trials: int = 1,
    local_steps: int = 1,
) -> Side:
    """Return linfed's side for FedRep, with random initialisation: the method of moments is not part of a round."""
    problem = lf.SharedRepresentation(n_clients=size.n, dim=size.d, rank=size.k, noise_std=NOISE_STD)
    algorithm = lf.FedRep(rank=size.k, step_size=STEP_SIZE, init="random", representation_steps=local_steps)
    return round_of(algorithm, problem, samples(kind, size.m), seconds, engine, trials)
