"""Run time of `lf.predict`: 100,000 clients against one second, and 100 clients against twenty simulated trials."""

from __future__ import annotations

import time
from typing import Any

import linfed as lf
from benchmarks.ours import NOISE_STD, Size
from benchmarks.timing import Measurement, Row, Settings, Target, interleaved

SIZE, ROUNDS = Size(100_000, 1000, 5, 20), 100


def seconds() -> float:
    """Return the time of one prediction, including its ground truth and all its quantities."""
    problem = lf.SharedRepresentation(n_clients=SIZE.n, dim=SIZE.d, rank=SIZE.k, noise_std=NOISE_STD)
    algorithm = lf.FedRep(rank=SIZE.k, step_size=0.8, init=lf.AtDistance(0.9))
    started = time.perf_counter()
    found = lf.predict(algorithm, problem, data=lf.FreshSamples(SIZE.m), n_rounds=ROUNDS)
    for quantity in (found.floor, found.rate, found.stability_edge, found.best_step):
        float(quantity)
    return time.perf_counter() - started


def measure(settings: Settings) -> Measurement:
    """Measure a prediction, in milliseconds, against a limit of 1000."""
    return interleaved(seconds, lambda: 1.0, settings.repetitions)


SMALL, SMALL_ROUNDS = Size(100, 20, 2, 10), 200


def small_run() -> dict[str, Any]:
    """Return the arguments of the run on the page "Start"."""
    return {
        "algorithm": lf.FedRep(rank=SMALL.k, step_size=0.5, init=lf.AtDistance(0.9)),
        "problem": lf.SharedRepresentation(n_clients=SMALL.n, dim=SMALL.d, rank=SMALL.k, noise_std=NOISE_STD),
        "data": lf.FreshSamples(SMALL.m),
        "n_rounds": SMALL_ROUNDS,
        "participation": 0.1,
    }


def measure_small(settings: Settings) -> Measurement:
    """Measure a prediction against a simulation of twenty trials, in milliseconds."""

    def predicted() -> float:
        started = time.process_time()
        lf.predict(**small_run())
        return time.process_time() - started

    def simulated() -> float:
        started = time.process_time()
        lf.simulate(**small_run(), trials=20)
        return time.process_time() - started

    return interleaved(predicted, simulated, settings.repetitions)


ROWS = [
    Row("lf.predict, against one second", f"{SIZE}, {ROUNDS} rounds", Target("most", 1.0), measure),
    Row(
        "lf.predict, against 20 simulated trials",
        f"{SMALL}, {SMALL_ROUNDS} rounds, 10 participants",
        Target("most", 2.0),
        measure_small,
    ),
]
