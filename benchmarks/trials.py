"""100 trials at once (FedRep, Figure 3, n = 100), against only their random numbers and against one call per trial.

The calls of the random generators are recorded in one run, and the lower bound repeats exactly these calls, into the
same memory. It includes the construction of the generators from their seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

import linfed as lf
from benchmarks.ours import samples
from benchmarks.timing import Measurement, Row, Settings, Target, interleaved, repeated

TRIALS, ROUNDS = 100, 200
SIZES = f"n=100 d=10 k=2 m=5 p=10, {TRIALS} trials, {ROUNDS} rounds"
CALLS = 10
"""Number of calls with one trial in each repetition; 100 trials cost ten times as much."""


def simulate(trials: int, seed: int = 0, **options: Any) -> object:
    """Run the case of Figure 3."""
    problem = lf.SharedRepresentation(n_clients=100, dim=10, rank=2, noise_std=np.sqrt(1e-3))
    algorithm = lf.FedRep(rank=2, step_size=0.5, init="random")
    return lf.simulate(
        algorithm,
        problem,
        data=samples("fresh", 5),
        n_rounds=ROUNDS,
        participation=0.1,
        trials=trials,
        seed=seed,
        engine="explicit",
        **options,
    )


def draws_of(run: Callable[[], object]) -> Callable[[], None]:
    """Return a function that repeats only the calls that `run` makes of its random generators."""
    seeds: list[Any] = []
    calls: list[tuple[int, str, tuple[Any, ...], dict[str, Any]]] = []

    class Heard(np.random.Generator):
        def __init__(self, bits: Any) -> None:
            super().__init__(bits)
            self.number = len(seeds)
            seeds.append((type(bits), bits.seed_seq))

    def heard(name: str) -> Callable[..., Any]:
        original = getattr(np.random.Generator, name)

        def method(self: Heard, *args: Any, **options: Any) -> Any:
            calls.append((self.number, name, args, options))
            return original(self, *args, **options)

        return method

    for name in ("standard_normal", "normal", "random", "uniform", "integers", "choice", "permuted", "permutation"):
        setattr(Heard, name, heard(name))
    with mock.patch.object(np.random, "Generator", Heard):
        run()
    used = {number for number, *_ in calls}

    def repeat() -> None:
        rngs = {
            number: np.random.Generator(kind(sequence))
            for number, (kind, sequence) in enumerate(seeds)
            if number in used
        }
        for number, name, args, options in calls:
            getattr(rngs[number], name)(*args, **options)

    return repeat


def against_draws(settings: Settings, **options: Any) -> Measurement:
    draws = draws_of(lambda: simulate(TRIALS, **options))
    return interleaved(
        repeated(lambda: simulate(TRIALS, **options), settings.seconds),
        repeated(draws, settings.seconds),
        settings.repetitions,
        note="other: the same calls of the same generators",
    )


def against_single_calls(settings: Settings) -> Measurement:
    def singly() -> float:
        started = time.perf_counter()
        for seed in range(CALLS):
            simulate(1, seed=seed)
        return (time.perf_counter() - started) * TRIALS / CALLS

    ours = repeated(lambda: simulate(TRIALS), settings.seconds)
    return interleaved(ours, singly, settings.repetitions, note=f"other: {CALLS} calls of one trial, times 10")


ROWS = [
    Row("100 trials against their draws, all metrics each round", SIZES, Target("most", 3), against_draws),
    Row(
        "100 trials against their draws, distance each round",
        SIZES,
        Target("most", 3),
        lambda s: against_draws(s, metrics=["subspace_distance"]),
    ),
    Row("100 trials against 100 calls of one", SIZES, Target("least", 6), against_single_calls),
]
