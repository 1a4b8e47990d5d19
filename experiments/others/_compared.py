"""The methods for fixed data, each tuned for the smallest final risk, and the cell that runs one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.statistics import median_interval
from linfed.statistics.intervals import Measured, nan_as_worst

ONE, OWN, SHARED, DIRECT, REFERENCE = (
    "one model",
    "own models",
    "shared representation",
    "no step size",
    "reference",
)
"""Groups of methods: one model for all, a model per client, B by tuned steps, and B without a tuned step size."""

POOLED, LOCAL, RIDGE, FEDREP, ORACLE = "PooledLeastSquares", "LocalOnly", "ridge", "FedRep", "Oracle"
FT, STEPS_FT, JOINT, RISK = "FedAvg + FT", "FedAvg, fine-tuned", "joint ridge", "empirical risk"

LOCAL_STEPS = 5
STEPS, STRENGTHS = (0.1, 0.3), (0.1, 1.0, 10.0)
"""Where the grids begin; they grow while the best value is at their edge."""

Method = tuple[str, lf.Algorithm, Mapping[str, Sequence[float]]]


def methods(rank: int) -> dict[str, Method]:
    """Return the group of each method, its algorithm, and the grid of its hyper-parameters."""
    step: dict[str, Any] = {"step_size": 0.1}
    local: dict[str, Any] = step | {"local_steps": LOCAL_STEPS}
    layers: dict[str, Any] = local | {"rank": rank}
    steps, both = {"step_size": STEPS}, {"step_size": STEPS, "adaptation_step_size": STEPS}
    weights = {"strength": (0.01, 0.1, 1.0)}
    joint = {"solver": lf.ClosedForm(order="joint"), "ridge": 1.0, "rank": rank}
    return {
        POOLED: (ONE, lf.PooledLeastSquares(), {}),
        "FedAvg": (ONE, lf.FedAvg(**local), steps),
        "FedProx": (ONE, lf.FedProx(mu=1.0, **local), steps | {"mu": STRENGTHS}),
        "SCAFFOLD": (ONE, lf.SCAFFOLD(**local), steps),
        LOCAL: (OWN, lf.LocalOnly(), {}),
        RIDGE: (OWN, lf.LocalOnly(ridge=1.0), {"ridge": (0.3, 1.0, 3.0)}),
        STEPS_FT: (
            OWN,
            lf.FedAvg(fine_tune=lf.AllLayers(steps=3, step_size=0.1), **local),
            steps | {"fine_tune.steps": (1, 3, 10), "fine_tune.step_size": (0.03, 0.1)},
        ),
        "Ditto": (OWN, lf.Ditto(personal_steps=LOCAL_STEPS, **local), steps | {"strength": STRENGTHS}),
        "APFL": (OWN, lf.APFL(**local), steps | {"mix": (0.25, 0.5, 0.75)}),
        "pFedMe": (
            OWN,
            lf.PFedMe(inner_steps=None, **local),
            {"step_size": (0.01, 0.03, 0.1), "strength": (0.1, 1.0, 10.0)},
        ),
        "L2GD": (OWN, lf.L2GD(**step), {"step_size": (0.03, 0.1), "strength": (0.1, 0.3, 1.0, 3.0)}),
        "Per-FedAvg": (OWN, lf.PerFedAvg(adaptation_step_size=0.1, **local), both),
        "FedMTL, features": (OWN, lf.FedMTL(strength=1.0), weights),
        "FedMTL, tasks": (OWN, lf.FedMTL(strength=1.0, relation="tasks"), weights),
        "nuclear norm": (OWN, lf.NuclearNorm(weight=0.1), {"weight": (0.01, 0.03, 0.1)}),
        FEDREP: (SHARED, lf.FedRep(rank=rank, **step), steps),
        "FedPer": (SHARED, lf.FedPer(**layers), steps),
        "LGFedAvg": (SHARED, lf.LGFedAvg(**layers), steps),
        "FedRoD": (SHARED, lf.FedRoD(personal=lf.ExactHeads(), **layers), steps),
        "FedBABU": (SHARED, lf.FedBABU(**layers), steps),
        FT: (SHARED, lf.FedAvg(fine_tune=lf.ExactHeads(), **layers), steps),
        "FLUTE": (SHARED, lf.FLUTE(rank=rank, step_size=0.01), {"step_size": (0.003, 0.01)}),
        "ANIL": (SHARED, lf.ANIL(rank=rank, adaptation_step_size=0.1, **step), both),
        JOINT: (SHARED, lf.FedRepShortcut(**joint, **step), steps | {"ridge": STRENGTHS}),
        "AltGDmin": (DIRECT, lf.AltGDmin(rank=rank), {}),
        "AltMin": (DIRECT, lf.AltMin(rank=rank), {}),
        RISK: (DIRECT, lf.BurerMonteiro(rank=rank), {}),
        "moments": (DIRECT, lf.MethodOfMoments(rank=rank), {}),
        "U-statistic": (DIRECT, lf.UStatistic(rank=rank), {}),
        "local averages": (DIRECT, lf.LocalGram(rank=rank), {}),
        ORACLE: (REFERENCE, lf.Oracle(rank=rank), {}),
    }


ONE_ROUND = (POOLED, LOCAL, RIDGE, "nuclear norm", RISK, "moments", "U-statistic", "local averages", ORACLE)
FEWER_ROUNDS = {"FedMTL, tasks": 10}
"""Methods with costly rounds, and the number by which those of the others are divided."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One method in one setting, tuned on separate trials."""

    method: str = lf.choice(methods(rank=1), FEDREP)
    heterogeneity: float = 1.0
    n_clients: int = 50
    n_samples: int = 10
    dim: int = 20
    rank: int = 2
    noise_std: float = 0.5
    rounds: int = 100
    trials: int = 20
    tuning_trials: int = 8
    seed: int = 0

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.n_clients * min(self.n_samples, self.dim + 1) * (1 + 10 * (self.method not in ONE_ROUND))

    @property
    def problem(self) -> lf.Problem:
        """The problem."""
        sizes: dict[str, Any] = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        return lf.SharedRepresentation(heterogeneity=self.heterogeneity, noise_std=self.noise_std, **sizes)

    def run(self) -> dict[str, Any]:
        """Return the excess risk after the last round, the floats sent by then, and the columns of the tuning."""
        group, algorithm, grid = methods(self.rank)[self.method]
        run: dict[str, Any] = {"data": lf.FixedSamples(self.n_samples), "seed": self.seed}
        run |= {"rounds": 1 if self.method in ONE_ROUND else self.rounds // FEWER_ROUNDS.get(self.method, 1)}
        columns: dict[str, Any] = {}
        if grid:
            search: dict[str, Any] = {"grid": grid, "metric": "risk", "score": "final", "record_every": run["rounds"]}
            search |= {"extend": True, "trials": self.tuning_trials, "margin": 0.0}
            tuning = lf.tune(algorithm, self.problem, **search, **run)
            algorithm, columns = tuning.algorithm, tuning.columns()
        run |= {"metrics": ["risk"], "record_every": run["rounds"], "trials": self.trials}
        result = lf.simulate(algorithm, self.problem, **run)
        excess = nan_as_worst(result.metrics["risk"][:, -1] - self.noise_std**2 / 2)
        sent = float(result.floats_sent[-1])
        return columns | {"group": group, "excess": excess, "floats_sent": sent, "diverged": excess > 1e9}


def ranking(part: lf.Table) -> dict[str, Array]:
    """Return the excess risk of each method except the Oracle, (trials,), in the order of the medians."""
    excess: dict[str, Array] = {row["method"]: row["excess"] for row in part.rows if row["group"] != REFERENCE}
    return dict(sorted(excess.items(), key=lambda item: float(np.median(item[1]))))


def ratios(part: lf.Table) -> dict[str, Measured]:
    """Return each method's excess risk divided by that of the best method: median over trials with its interval."""
    excess = ranking(part)
    best = next(iter(excess.values()))
    return {name: median_interval(one / best) for name, one in excess.items()}


TIE = 1.02
"""A method ties with the best if the interval of its ratio contains a smaller number."""


def tied(found: Mapping[str, Measured]) -> list[str]:
    """Return the methods that tie with the best, the best first."""
    return [name for name, (_, low, _) in found.items() if low <= TIE]
