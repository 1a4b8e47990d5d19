"""Our side: a round of an algorithm as a user pays for it, through `lf.simulate`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import linfed as lf
from benchmarks.timing import Side

NOISE_STD = 0.03
"""Both sides of every row draw label noise, as a user would."""

STEP_SIZE = 0.3


@dataclass(frozen=True)
class Size:
    """Clients n, dimension d, rank k, samples m: all clients take part."""

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
    """Notes the time at the start of every step; the algorithm itself comes after it among the bases."""

    stamps: list[float] = field(default_factory=list)

    def step(self, state: Any, batch: Any, rng: Any) -> Any:
        """Note the time and do the step."""
        self.stamps.append(time.perf_counter())
        return super().step(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class Clocked(Clock, lf.FedRep):
    """FedRep that notes the time at the start of every step."""

    asks = lf.FedRep.asks


@dataclass(frozen=True, kw_only=True)
class ClockedFLUTE(Clock, lf.FLUTE):
    """FLUTE that notes the time at the start of every step."""

    asks = lf.FLUTE.asks


def round_of(algorithm: Clock, problem: Any, data: Any, seconds: float, engine: str, trials: int = 1) -> Side:
    """Return our side: the mean time from the start of one step to the start of the next, in one run.

    That is all a round costs the user (drawing, the step, the loop's own checks) and nothing that a run pays once: the
    truth, fixed data, the first touch of the buffers, the first and last metrics. Subtracting a short run from a long
    one would say the same, but at large sizes with several times the noise.
    """

    def run(rounds: int) -> float:
        algorithm.stamps.clear()
        every = rounds + 2
        result = lf.simulate(
            algorithm, problem, data=data, rounds=every, record_every=every, engine=engine, trials=trials
        )
        assert lf.Status.DIVERGED not in result.status, "a round of numbers that are not finite is not a round"
        # The first step touches the buffers, so the clock starts with the second. Trials can come in chunks, in turn.
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
    """Return our side for FedRep; the random start keeps the method of moments out, which is no part of a round."""
    problem = lf.SharedRepresentation(n_clients=size.n, dim=size.d, rank=size.k, noise_std=NOISE_STD)
    algorithm = Clocked(rank=size.k, step_size=STEP_SIZE, init="random", representation_steps=local_steps)
    return round_of(algorithm, problem, samples(kind, size.m), seconds, engine, trials)
