"""linfed's side: the cost of a round for a user of `lf.simulate`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import linfed as lf
from benchmarks.timing import Side

NOISE_STD = 0.03
"""Standard deviation of the label noise, which both sides of every row draw."""

STEP_SIZE = 0.3


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


@dataclass(frozen=True, kw_only=True)
class Clock(lf.Algorithm):
    """Mixin that records the time at the start of every step; the algorithm must be the next base class."""

    stamps: list[float] = field(default_factory=list)

    def step(self, state: Any, batch: Any, rng: Any) -> Any:
        """Record the time and run the step."""
        self.stamps.append(time.perf_counter())
        return super().step(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class Clocked(Clock, lf.FedRep):
    """FedRep that records the time at the start of every step."""

    requires = lf.FedRep.requires


@dataclass(frozen=True, kw_only=True)
class ClockedFLUTE(Clock, lf.FLUTE):
    """FLUTE that records the time at the start of every step."""

    requires = lf.FLUTE.requires


def round_of(algorithm: Clock, problem: Any, data: Any, seconds: float, engine: str, trials: int = 1) -> Side:
    """Return linfed's side: the mean time from the start of one step to the start of the next, in one run.

    This time includes all costs of a round (random numbers, the step, the checks of the loop). It excludes all costs
    that occur once per run: the ground truth, fixed data, the first access to the buffers, the first and last metrics.
    The difference between a long and a short run would have the same mean, but at large sizes several times the noise.
    """

    def run(rounds: int) -> float:
        algorithm.stamps.clear()
        every = rounds + 2
        result = lf.simulate(
            algorithm, problem, data=data, rounds=every, record_every=every, engine=engine, trials=trials
        )
        assert lf.Status.DIVERGED not in result.status, "the timed rounds must have finite numbers"
        # The first step allocates the buffers, so the timing starts with the second. Trials may come in several chunks.
        stamps = np.reshape(algorithm.stamps, (-1, every))
        return float((stamps[:, -1] - stamps[:, 1]).sum()) / rounds

    rounds = max(3, round(seconds / run(3)))
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
    algorithm = Clocked(rank=size.k, step_size=STEP_SIZE, init="random", representation_steps=local_steps)
    return round_of(algorithm, problem, samples(kind, size.m), seconds, engine, trials)
