"""Engines that are exact in distribution, against explicit samples, against JAX, and against other sizes."""

from __future__ import annotations

import importlib.util
import time
from itertools import pairwise
from typing import Any, Literal

import linfed as lf
from benchmarks.jax_round import rounds as jax_rounds
from benchmarks.ours import NOISE_STD, STEP_SIZE, Size, round_of, round_of_fedrep, samples, step_times
from benchmarks.timing import (
    Measurement,
    NotMeasuredError,
    Row,
    Settings,
    Side,
    Target,
    fastest,
    interleaved,
    repeated,
)

Kind = Literal["fresh", "fixed"]

LARGE, MANY = Size(200, 1000, 5, 100), Size(1000, 200, 5, 50)
AUTO: list[tuple[Kind, Size, int]] = [
    *(("fresh", size, 1) for size in (LARGE, MANY, Size(100, 20, 2, 10), Size(1000, 10, 2, 5), Size(10_000, 10, 2, 5))),
    *(("fresh", size, 1) for size in (Size(10, 5, 2, 3), Size(10, 20, 2, 500), Size(2, 500, 2, 10))),
    *(("fresh", Size(100, 20, 2, m), 2) for m in (10, 30, 60, 500)),
    *(("fixed", Size(100, 20, 2, m), 1) for m in (10, 25, 60, 500)),
]
"""Cases for engine "auto": sizes at which each engine is the fastest. "projected" does not support two local steps."""

MILLION = Size(1_000_000, 1000, 5, 50)
CLASSES_SIZE = Size(100, 1000, 5, 100)


def against_explicit(size: Size, settings: Settings) -> Measurement:
    return interleaved(
        round_of_fedrep(size, "fresh", settings.seconds, "projected"),
        round_of_fedrep(size, "fresh", settings.seconds, "explicit"),
        settings.repetitions,
    )


def classes_against_explicit(settings: Settings) -> Measurement:
    """Measure a round of FedRep with one head step on classes, with the projected and the explicit engine."""
    size = CLASSES_SIZE
    problem = lf.Classes(n_clients=size.n, n_classes=10, classes_per_client=5, dim=size.d, test_samples=5)
    algorithm = lf.FedRep(rank=size.k, step_size=STEP_SIZE, init="random", heads=lf.GradientHeads())
    data, seconds = lf.FreshSamples(size.m), settings.seconds
    return interleaved(
        round_of(algorithm, problem, data, seconds, "projected"),
        round_of(algorithm, problem, data, seconds, "explicit"),
        settings.repetitions,
    )


def against_jax(size: Size, settings: Settings) -> Measurement:
    if importlib.util.find_spec("jax") is None:
        raise NotMeasuredError("pip install linfed[bench]")
    ways = jax_rounds(size, "fresh")
    best = fastest(ways)
    return interleaved(
        round_of_fedrep(size, "fresh", settings.seconds, "projected"),
        repeated(ways[best], settings.seconds),
        settings.repetitions,
        note=f"JAX: {best}",
    )


def against_itself(engine: str, kind: Kind, size: Size, other: Size, settings: Settings) -> Measurement:
    """Measure one engine at one size against the same engine at another."""
    return interleaved(
        round_of_fedrep(size, kind, settings.seconds, engine),
        round_of_fedrep(other, kind, settings.seconds, engine),
        settings.repetitions,
        note=f"other: {other}",
    )


def auto_against_best(kind: Kind, size: Size, local_steps: int, settings: Settings) -> Measurement:
    """Measure the engine that "auto" selects against the fastest engine that keeps B itself."""
    problem = lf.SharedRepresentation(n_clients=size.n, dim=size.d, rank=size.k)
    algorithm = lf.FedRep(rank=size.k, step_size=STEP_SIZE, init="random", representation_steps=local_steps)
    sides: dict[str, Side] = {}
    for engine in ("explicit", "compressed", "projected"):
        try:
            lf.simulate(algorithm, problem, data=samples(kind, size.m), n_rounds=1, engine=engine)
        except lf.EngineError:
            continue
        sides[engine] = round_of_fedrep(size, kind, settings.seconds / 2, engine, local_steps=local_steps)
    least = {engine: min(side() for _ in range(3)) for engine, side in sides.items()}
    best = min(least, key=lambda engine: least[engine])
    auto = round_of_fedrep(size, kind, settings.seconds, "auto", local_steps=local_steps)
    told = ", ".join(f"{engine} {1e3 * time:.3g} ms" for engine, time in least.items())
    return interleaved(auto, sides[best], settings.repetitions, note=f"best: {best} ({told})")


def million(settings: Settings) -> Measurement:
    """Measure a round of a million clients against a limit of 1.5 s."""
    if not settings.full:
        raise NotMeasuredError("takes half a minute: --full")
    problem = lf.SharedRepresentation(n_clients=MILLION.n, dim=MILLION.d, rank=MILLION.k, noise_std=NOISE_STD)
    algorithm = lf.FedRep(rank=MILLION.k, step_size=STEP_SIZE, init=lf.AtDistance(0.9))
    started = time.perf_counter()
    options: dict[str, Any] = {"n_rounds": 12, "metrics": ["subspace_distance"]}
    with step_times(algorithm) as times:
        lf.simulate(algorithm, problem, data=lf.FreshSamples(MILLION.m), **options)
    whole = time.perf_counter() - started
    (stamps,) = times.values()
    each = [1e3 * (b - a) for a, b in pairwise(stamps[1:])]
    return Measurement(each, [1500.0] * len(each), note=f"other: 1.5 s; 12 rounds in all {whole:.1f} s")


ROWS = [
    *(
        Row(
            "projected round against explicit",
            str(size),
            Target("least", least),
            lambda s, z=size: against_explicit(z, s),
        )
        for size, least in ((LARGE, 300), (MANY, 120))
    ),
    Row(
        "projected round of classes against explicit",
        f"{CLASSES_SIZE} c=10",
        Target("least", 20),
        classes_against_explicit,
    ),
    Row("projected round against jitted JAX", str(LARGE), Target("least", 500), lambda s: against_jax(LARGE, s)),
    Row(
        "projected round, m = 10^6 against m = 10",
        str(LARGE),
        Target("most", 1.15),
        lambda s: against_itself("projected", "fresh", Size(200, 1000, 5, 10**6), Size(200, 1000, 5, 10), s),
    ),
    Row(
        "chain round, d = 10^6 against d = 100",
        str(LARGE),
        Target("most", 1.2),
        lambda s: against_itself("chain", "fresh", Size(200, 10**6, 5, 100), Size(200, 100, 5, 100), s),
    ),
    Row(
        "compressed round of fixed samples, m = 10^6 against m = 60",
        "n=100 d=50 k=5",
        Target("most", 1.15),
        lambda s: against_itself("compressed", "fixed", Size(100, 50, 5, 10**6), Size(100, 50, 5, 60), s),
    ),
    *(
        Row(
            f"auto against the best engine, {kind}" + (f", {steps} local steps" if steps > 1 else ""),
            str(size),
            Target("most", 1.1),
            lambda s, kind=kind, size=size, steps=steps: auto_against_best(kind, size, steps, s),
        )
        for kind, size, steps in AUTO
    ),
    Row("a round of a million clients", str(MILLION), Target("most", 1), million),
]
