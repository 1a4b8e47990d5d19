"""The methods for fixed data, each tuned for the smallest final risk, and the cell that runs one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import linfed as lf
from linfed.statistics.intervals import nan_as_worst

ONE, OWN, SHARED, DIRECT, REFERENCE = ("one model", "own models", "shared representation", "no step size", "reference")
"""Groups of methods: one model for all, a model per client, B by tuned steps, and B without a tuned step size."""

POOLED, LOCAL, RIDGE, FEDREP, ORACLE = "PooledLeastSquares", "LocalOnly", "ridge", "FedRep", "Oracle"
FT, STEPS_FT, JOINT, RISK = "FedAvg + FT", "FedAvg, fine-tuned", "joint ridge", "empirical risk"
TASKS = "FedMTL, tasks"

STEP, LOCAL_STEPS = 0.1, 5
STEPS, PENALTIES = (0.1, 0.3), (0.1, 1.0, 10.0)
"""Where the grids begin; they grow while the best value is at their edge."""

Method = tuple[str, lf.Algorithm, Mapping[str, Sequence[float]]]


def methods(rank: int) -> dict[str, Method]:
    """Return the group of each method, its algorithm, and the grid of its hyper-parameters."""
    steps, both = {"step_size": STEPS}, {"step_size": STEPS, "adaptation_step_size": STEPS}
    weights = {"penalty": (0.01, 0.1, 1.0)}
    return {
        POOLED: (ONE, lf.PooledLeastSquares(), {}),
        "FedAvg": (ONE, lf.FedAvg(step_size=STEP, local_steps=LOCAL_STEPS), steps),
        "FedProx": (ONE, lf.FedProx(mu=1.0, step_size=STEP, local_steps=LOCAL_STEPS), steps | {"mu": PENALTIES}),
        "SCAFFOLD": (ONE, lf.SCAFFOLD(step_size=STEP, local_steps=LOCAL_STEPS), steps),
        LOCAL: (OWN, lf.LocalOnly(), {}),
        RIDGE: (OWN, lf.LocalOnly(ridge=1.0), {"ridge": (0.3, 1.0, 3.0)}),
        STEPS_FT: (
            OWN,
            lf.FedAvg(fine_tune=lf.AllLayers(steps=3, step_size=0.1), step_size=STEP, local_steps=LOCAL_STEPS),
            steps | {"fine_tune.steps": (1, 3, 10), "fine_tune.step_size": (0.03, 0.1)},
        ),
        "Ditto": (
            OWN,
            lf.Ditto(personal_steps=LOCAL_STEPS, step_size=STEP, local_steps=LOCAL_STEPS),
            steps | {"penalty": PENALTIES},
        ),
        "APFL": (OWN, lf.APFL(step_size=STEP, local_steps=LOCAL_STEPS), steps | {"mix": (0.25, 0.5, 0.75)}),
        "pFedMe": (
            OWN,
            lf.PFedMe(inner_steps=None, step_size=STEP, local_steps=LOCAL_STEPS),
            {"step_size": (0.01, 0.03, 0.1), "penalty": (0.1, 1.0, 10.0)},
        ),
        "L2GD": (OWN, lf.L2GD(step_size=STEP), {"step_size": (0.03, 0.1), "penalty": (0.1, 0.3, 1.0, 3.0)}),
        "Per-FedAvg": (OWN, lf.PerFedAvg(adaptation_step_size=0.1, step_size=STEP, local_steps=LOCAL_STEPS), both),
        "FedMTL, features": (OWN, lf.FedMTL(penalty=1.0), weights),
        TASKS: (OWN, lf.FedMTL(penalty=1.0, relation="tasks"), weights),
        "nuclear norm": (OWN, lf.NuclearNorm(penalty=0.1), {"penalty": (0.01, 0.03, 0.1)}),
        FEDREP: (SHARED, lf.FedRep(rank=rank, step_size=STEP), steps),
        "FedPer": (SHARED, lf.FedPer(rank=rank, step_size=STEP, local_steps=LOCAL_STEPS), steps),
        "LGFedAvg": (SHARED, lf.LGFedAvg(rank=rank, step_size=STEP, local_steps=LOCAL_STEPS), steps),
        "FedRoD": (
            SHARED,
            lf.FedRoD(personal=lf.ExactHeads(), rank=rank, step_size=STEP, local_steps=LOCAL_STEPS),
            steps,
        ),
        "FedBABU": (SHARED, lf.FedBABU(rank=rank, step_size=STEP, local_steps=LOCAL_STEPS), steps),
        FT: (SHARED, lf.FedAvg(fine_tune=lf.ExactHeads(), rank=rank, step_size=STEP, local_steps=LOCAL_STEPS), steps),
        "FLUTE": (SHARED, lf.FLUTE(rank=rank, step_size=0.01), {"step_size": (0.003, 0.01)}),
        "ANIL": (SHARED, lf.ANIL(rank=rank, adaptation_step_size=STEP, step_size=STEP), both),
        JOINT: (
            SHARED,
            lf.FedRepShortcut(rank=rank, step_size=STEP, solver=lf.ClosedForm(order="joint"), ridge=1.0),
            steps | {"ridge": PENALTIES},
        ),
        "AltGDmin": (DIRECT, lf.AltGDmin(rank=rank), {}),
        "AltMin": (DIRECT, lf.AltMin(rank=rank), {}),
        RISK: (DIRECT, lf.BurerMonteiro(rank=rank), {}),
        "moments": (DIRECT, lf.MethodOfMoments(rank=rank), {}),
        "U-statistic": (DIRECT, lf.UStatistic(rank=rank), {}),
        "local averages": (DIRECT, lf.LocalGram(rank=rank), {}),
        ORACLE: (REFERENCE, lf.Oracle(rank=rank), {}),
    }


ONE_ROUND = (POOLED, LOCAL, RIDGE, "nuclear norm", RISK, "moments", "U-statistic", "local averages", ORACLE)
ROUNDS = dict.fromkeys(ONE_ROUND, 1) | {TASKS: 10}
"""Numbers of rounds of the methods that do not run those of the setting; the rounds of `TASKS` are costly."""


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
    n_rounds: int = 100
    trials: int = 20
    tuning_trials: int = 8
    seed: int = 0

    @property
    def problem(self) -> lf.Problem:
        """The problem."""
        return lf.SharedRepresentation(
            n_clients=self.n_clients,
            dim=self.dim,
            rank=self.rank,
            heterogeneity=self.heterogeneity,
            noise_std=self.noise_std,
        )

    def run(self) -> dict[str, Any]:
        """Return the excess risk after the last round, the floats sent by then, and the columns of the tuning."""
        group, algorithm, grid = methods(self.rank)[self.method]
        rounds = ROUNDS.get(self.method, self.n_rounds)
        data, columns = lf.FixedSamples(self.n_samples), dict[str, Any]()
        if grid:
            tune = partial(
                lf.tune, grid=grid, extend=True, metric="risk", score="final", ties_within=0.0, seed=self.seed
            )
            run = partial(tune, data=data, n_rounds=rounds, record_every=rounds, trials=self.tuning_trials)
            tuning = run(algorithm, self.problem)
            algorithm, columns = tuning.algorithm, tuning.columns()
        simulate = partial(lf.simulate, metrics=["risk"], trials=self.trials, seed=self.seed)
        result = simulate(algorithm, self.problem, data=data, n_rounds=rounds, record_every=rounds)
        excess = nan_as_worst(result.metrics["risk"][:, -1] - self.noise_std**2 / 2)
        sent = float(result.floats_sent[-1])
        return columns | {"group": group, "excess": excess, "floats_sent": sent, "diverged": excess > 1e9}
