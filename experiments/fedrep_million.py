"""A million clients on one machine: FedRep at n = 1,000,000, d = 1000, k = 5, m = 50.

Explicit samples would take 400 GB a round. The projected engine draws what a step can see of them, exactly in law, in
blocks of clients; state evolution predicts the distance, with nothing fitted. B starts at distance 0.9 from B* (every
principal angle), for the method of moments needs the samples themselves. Time and memory are measured in a process of
their own, one trial after another.

References: docs/exact-law.md; Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithm 2.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import bootstrap_interval, median_interval, quantiles
from linfed.study.run import Tables, tidy

from ._shared import legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "a million clients, d = 1000: distance as state evolution predicts it, time and memory of a round"

WITHIN = 1.25
"""State evolution is stated to be within this factor (5 to 17 % a round, errors accumulate)."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the run."""

    n_clients: int = 1_000_000
    dim: int = 1000
    rank: int = 5
    n_samples: int = 50
    step_size: float = 0.5
    delta: float = 0.9
    noise_variance: float = 1e-3
    rounds: int = 30
    trials: int = 5
    seed: int = 0

    def quick(self) -> Config:
        """Return a tenth of the clients and two trials; all the rounds, for memory must not grow with them."""
        return replace(self, n_clients=100_000, trials=2)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """All trials: they run one after another, so that each has the machine's memory to itself."""

    config: Config


@dataclass(frozen=True, kw_only=True)
class Timed(lf.FedRep):
    """FedRep that notes the time at the start of every step."""

    stamps: list[float] = field(default_factory=list, compare=False)

    asks = lf.FedRep.asks

    def step(self, state: Any, batch: Any, rng: Any) -> Any:
        """Note the time and do the step."""
        self.stamps.append(time.perf_counter())
        return super().step(state, batch, rng)


def cells(config: Config) -> list[Cell]:
    """Return the one cell."""
    return [Cell(config=config)]


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run the trials, and the prediction for the heads of each."""
    c = cell.config
    problem = lf.SharedRepresentation(
        n_clients=c.n_clients, dim=c.dim, rank=c.rank, noise_std=math.sqrt(c.noise_variance)
    )
    measured, predicted, seconds = [], [], []
    for trial in range(c.trials):
        algorithm = Timed(rank=c.rank, step_size=c.step_size, init=lf.AtDistance(c.delta))
        seed = (c.seed, trial)
        result = lf.simulate(
            algorithm,
            problem,
            data=lf.FreshSamples(c.n_samples),
            rounds=c.rounds,
            seed=seed,
            metrics=["subspace_distance"],
        )
        measured.append(result.metrics["subspace_distance"][0])
        seconds.append(np.diff(algorithm.stamps))
        engine = result.engine
        del result
        heads = problem.truth(seed, [0]).W
        assert heads is not None
        evolution = lf.theory.state_evolution(
            heads[0],
            dim=c.dim,
            n_samples=c.n_samples,
            step_size=c.step_size,
            rounds=c.rounds,
            noise_std=problem.noise_std,
            delta=c.delta,
        )
        predicted.append(evolution.distance)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "measured": np.array(measured),
        "predicted": np.array(predicted),
        "seconds": np.array(seconds),
        "peak_bytes": np.array(float(peak)),
        "engine": np.array(engine),
    }


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return the curves and the costs as tidy tables."""
    (found,) = results
    trials = {"trial": np.arange(config.trials)}
    keys = {"engine": str(found["engine"])}
    curves = {"distance": found["measured"], "predicted": found["predicted"]}
    return {
        "curves": tidy({}, {**trials, "round": np.arange(config.rounds + 1)}, curves),
        "cost": tidy(
            {**keys, "peak_gigabytes": float(found["peak_bytes"]) / 1e9},
            {**trials, "round": np.arange(1, config.rounds)},
            {"seconds": found["seconds"]},
        ),
    }


def _curves(tables: Tables) -> tuple[Any, Any, Any]:
    """Return rounds, measured and predicted distances (trials, rounds + 1)."""
    table = tables["curves"]
    trials = len(np.unique(table["trial"]))
    rounds, measured, predicted = (table[name].reshape(trials, -1) for name in ("round", "distance", "predicted"))
    return rounds[0], measured, predicted


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the distance against rounds, measured and predicted."""
    import matplotlib.pyplot as plt

    from linfed.figures import style as plotting

    rounds, measured, predicted = _curves(tables)
    with plotting.style():
        figure, ax = plt.subplots(figsize=(plotting.COLUMN_WIDTH, 2.5), layout="constrained")
        plotting.draw_curve(rounds, measured, ax=ax, label="FedRep, exact in law", ylabel="", method="FedRep")
        ax.plot(rounds, np.median(predicted, axis=0), color="black", linewidth=0.8, label="state evolution")
        ax.set(xlabel="round", ylabel="subspace distance to B*")
        legend(figure, [ax], f"median and 10-90 % of {len(measured)} trials")
    return {"": figure}


def claims(tables: Tables) -> list[Finding]:
    """Return the claims on prediction, time and memory."""
    _, measured, predicted = _curves(tables)
    cost = tables["cost"]
    trials = np.arange(float(len(measured)))

    def factor(i: Any) -> float:
        k = i.astype(int)
        ratios = quantiles(measured[k])[0] / np.median(predicted[k], axis=0)
        return float(np.maximum(ratios, 1 / ratios).max())

    gigabytes = float(cost["peak_gigabytes"][0])
    where = f"{cost['engine'][0]} engine, {measured.shape[1] - 1} rounds"
    return [
        judge(
            (factor(trials), *bootstrap_interval(factor, (trials,))),
            text="The distance falls as state evolution says",
            where=where,
            statistic="factor between the measured median and the prediction, the worst round",
            source=f"{OWN_PREDICTION}, without a free parameter; the factor is an {OWN_THRESHOLD}",
            most=WITHIN,
        ),
        judge(
            median_interval(cost["seconds"].reshape(len(measured), -1).mean(axis=1)),
            text="A round takes under 1.5 s",
            where=where,
            statistic="mean time of a round in seconds, median over trials",
            source=OWN_THRESHOLD,
            most=1.5,
        ),
        judge(
            (gigabytes,) * 3,
            text="The whole run takes under 1 GB",
            where=where,
            statistic="peak memory of the process in gigabytes, measured once",
            source=OWN_THRESHOLD,
            most=1.0,
        ),
    ]
