"""Our side: a round of FedRep as a user pays for it, through `lf.simulate`."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any, Literal

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
    """Return data of m samples, with explicit rows where other engines could answer without them."""
    data = lf.FreshSamples if kind == "fresh" else lf.FixedSamples
    chosen = {"engine": "explicit"} if "engine" in {field.name for field in fields(data)} else {}
    return data(n_samples=m, **chosen)


def round_of_fedrep(size: Size, kind: Literal["fresh", "fixed"], seconds: float) -> Side:
    """Return our side: the time of a round, as the difference of a long run and a run of one round.

    The difference leaves out what a run pays once: drawing the truth, fixed data, the first and last metrics. The
    random start keeps the method of moments out, which is no part of a round.
    """
    problem = lf.SharedRepresentation(n_clients=size.n, dim=size.d, rank=size.k, noise_std=NOISE_STD)
    algorithm = lf.FedRep(rank=size.k, step_size=STEP_SIZE, init="random")
    data = samples(kind, size.m)

    def run(rounds: int) -> float:
        started = time.perf_counter()
        lf.simulate(algorithm, problem, data=data, rounds=rounds, record_every=rounds)
        return time.perf_counter() - started

    run(1)
    trial = max((run(6) - run(1)) / 5, 1e-5)
    rounds = max(3, round(seconds / trial))
    return lambda: (run(rounds + 1) - run(1)) / rounds
