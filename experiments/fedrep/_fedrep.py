"""Shared parts of the experiments on the FedRep paper: the paper's and the notebook's conventions.

The published linear notebook differs from the paper: x ~ N(0, I/m), one fixed data set, and heads of length 1. B is not
normalised, and the server sums over participants. The noise has standard deviation 1e-3, and exact heads have a ridge
of 1e-5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.simulation.participation import n_participants

PAPER, NOTEBOOK = "paper", "notebook"

DRAWN = {PAPER: (1.0, "squared error of a {}"), NOTEBOOK: (0.5, "half the squared error")}
"""Factor on squared errors in figures, and their axis label: the notebook's errors carry the factor 1/2."""

NOISE_VARIANCE = {PAPER: 1e-3, NOTEBOOK: 1e-6}
"""Variance of each preset's label noise."""

UNTUNED = ("LocalOnly", "Oracle")
"""Methods without a step size, which need only one round."""

FEDAVG: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedAvg + FT": {"fine_tune": lf.GradientHeads(steps=10)},
    "FedAvg, K = 10": {"local_steps": 10},
    "FedAvg, one layer": {"rank": None, "local_steps": 1},
    "FedAvg, one layer, K = 10": {"rank": None, "local_steps": 10},
}
"""The options of FedAvg under each of its names."""

STEPS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4)
QUICK: dict[str, Any] = {"trials": 8, "tuning_trials": 2, "rounds": 40, "steps": STEPS[3::3]}
"""Changes made by a quick run."""

NOTEBOOK_RIDGE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One method in a setting of the FedRep paper, with the paper's or the notebook's conventions."""

    preset: str = lf.choice((PAPER, NOTEBOOK), PAPER)
    method: str = lf.choice(("FedRep", "FedPer", "LocalOnly", "Oracle", *FEDAVG), "FedRep")
    n_clients: int
    dim: int
    rank: int = 2
    n_samples: int
    participation: float = 1.0
    noise_variance: float = NOISE_VARIANCE[PAPER]
    rounds: int
    trials: int = 50
    seed: int = 0

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The problem, as in the paper or as in the notebook."""
        options: dict[str, Any] = {"noise_std": math.sqrt(self.noise_variance)}
        if self.preset == NOTEBOOK:
            options |= {"head_norm": 1.0, "design": lf.Gaussian(covariance=1.0 / self.n_samples)}
        return lf.SharedRepresentation(n_clients=self.n_clients, dim=self.dim, rank=self.rank, **options)

    def squared_error(self, risk: Any) -> Any:
        """Return ``||theta - phi||^2`` for a risk."""
        return (2 * risk - self.problem.noise_std**2) / self.problem.design.variance

    def scaled(self, step: float) -> float:
        """Convert a step size on B from the paper's normalisation to the preset's.

        In the notebook, gradients are m times smaller (x has covariance I/m, and the loss keeps its 1/m) and the
        server sums over p participants. This conversion makes one grid equivalent under both conventions, except for
        the length of the heads: heads of norm 1 instead of sqrt(k) make the gradient of B k times smaller.
        """
        if self.preset == PAPER:
            return step
        return step * self.n_samples / n_participants(self.participation, self.n_clients)

    def fedrep(self, step: float, heads: lf.ExactHeads | lf.GradientHeads | None = None) -> lf.FedRep:
        """Return FedRep from a random subspace; `heads` are the preset's exact heads if None."""
        options: dict[str, Any] = {"orthonormalize": False, "aggregate": "sum"} if self.preset == NOTEBOOK else {}
        ridge = NOTEBOOK_RIDGE / self.n_samples if self.preset == NOTEBOOK else 0.0  # added to Z'Z/m, not to Z'Z
        heads = heads or lf.ExactHeads(ridge=ridge)
        return lf.FedRep(rank=self.rank, step_size=self.scaled(step), init="random", heads=heads, **options)

    def algorithm(self, step: float = 1.0) -> lf.Algorithm:
        """Return the method at a step size in the paper's normalisation."""
        if self.method in UNTUNED:
            return lf.LocalOnly() if self.method == "LocalOnly" else lf.Oracle(rank=self.rank)
        if self.method == "FedRep":
            return self.fedrep(step)
        if self.method == "FedPer":
            # B and heads share one step size: with sums over p participants B would move p times as fast as the heads.
            return lf.FedPer(rank=self.rank, step_size=step * self.n_samples)
        server = self.participation * self.n_clients if self.preset == NOTEBOOK else 1.0  # a sum instead of the mean
        options = {"rank": self.rank, **FEDAVG[self.method]}
        return lf.FedAvg(step_size=self.scaled(step), server_step_size=server, **options)


@dataclass(frozen=True, kw_only=True)
class Tuned(Setting):
    """A method whose step size is tuned on separate trials before it runs on fixed samples."""

    tuning_trials: int = 10
    steps: tuple[float, ...] = STEPS  # in the paper's normalisation

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return 0 if self.method in UNTUNED else self.n_samples * FEDAVG.get(self.method, {}).get("local_steps", 1)

    def tuned(self, metric: Any, **world: Any) -> tuple[lf.Algorithm, dict[str, Any]]:
        """Return the method at its tuned step size, and the tuning's columns.

        The step size has the smallest 90 % quantile of the final metric over separate tuning trials.
        """
        if self.method in UNTUNED:
            return self.algorithm(), {}
        world |= {"rounds": self.rounds, "trials": self.tuning_trials, "record_every": self.rounds}
        algorithms = [self.algorithm(step) for step in self.steps]
        tuning = lf.tune(algorithms, self.problem, metric=metric, score="final", quantile=0.9, **world)
        return tuning.algorithm, tuning.columns()

    def trained(self, metric: Any, seed: Any, **options: Any) -> tuple[lf.Result, dict[str, Any]]:
        """Tune the step size for a metric, then run the trials; return their result and the tuning's columns."""
        world = {"data": lf.FixedSamples(self.n_samples), "participation": self.participation, "seed": seed}
        algorithm, columns = self.tuned(metric, **world)
        world |= {"rounds": 1 if self.method in UNTUNED else self.rounds, "trials": self.trials}
        return lf.simulate(algorithm, self.problem, **{"metrics": [], **options, **world}), columns


@dataclass(frozen=True, kw_only=True)
class Clients(Tuned):
    """The errors of all clients in Figure 1; the defaults are the paper's, or our choice where it gives none."""

    n_clients: int = 100
    dim: int = 20
    n_samples: int = 5
    rounds: int = 500
    tuning_trials: int = 30  # ten trials are too few for a 90 % quantile

    def run(self) -> dict[str, Any]:
        """Return the clients' final errors, their mean in every recorded round, and the floor of a single model."""
        seed = (self.seed, self.n_samples)
        result, columns = self.trained("mean_client_error", seed, metrics=["risk"], record_every=5)
        errors = self.squared_error(result.client_risks())
        floor = lf.theory.single_model_floor(self.problem.truth(seed, range(self.trials)))
        return columns | {
            "curve": lf.LabeledArray(self.squared_error(result.metrics["risk"]), round=result.rounds),
            "squared_error": lf.LabeledArray(errors, client=range(self.n_clients)),
            "mean": errors.mean(axis=1),
            "median": np.median(errors, axis=1),
            "single_model_floor": self.squared_error(floor),
            "diverged": np.isnan(errors[:, 0]),
        }
