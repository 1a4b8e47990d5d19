"""`lf.predict` at a hundred thousand clients, against the second that it may take."""

from __future__ import annotations

import time

import linfed as lf
from benchmarks.ours import NOISE_STD, Size
from benchmarks.timing import Measurement, Row, Settings, Target, interleaved

SIZE, ROUNDS = Size(100_000, 1000, 5, 20), 100


def seconds() -> float:
    """Return what one prediction takes, its truth drawn and its quantities computed."""
    problem = lf.SharedRepresentation(n_clients=SIZE.n, dim=SIZE.d, rank=SIZE.k, noise_std=NOISE_STD)
    algorithm = lf.FedRep(rank=SIZE.k, step_size=0.8, init=lf.AtDistance(0.9))
    started = time.perf_counter()
    found = lf.predict(algorithm, problem, data=lf.FreshSamples(SIZE.m), rounds=ROUNDS)
    for quantity in (found.floor, found.rate, found.stability_edge, found.best_step):
        float(quantity)
    return time.perf_counter() - started


def measure(settings: Settings) -> Measurement:
    """Return milliseconds beside a thousand."""
    return interleaved(seconds, lambda: 1.0, settings.repetitions)


ROWS = [Row("lf.predict, against one second", f"{SIZE}, {ROUNDS} rounds", Target("most", 1.0), measure)]
