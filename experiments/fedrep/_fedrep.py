"""Shared parts of the experiments on the FedRep paper: the paper's and the notebook's conventions.

The published linear notebook differs from the paper: x ~ N(0, I/m), one fixed data set, and heads of length 1. B is not
normalised, and the server sums over participants. The noise has standard deviation 1e-3, and exact heads have a ridge
of 1e-5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import linfed as lf
from linfed.search.selection import TIES_WITHIN
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

STEPS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.4, 2.0)
"""Step sizes that are tried, in the paper's normalisation."""

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
    n_rounds: int
    trials: int = 50
    seed: int = 0

    @property
    def noise_std(self) -> float:
        """Standard deviation of the label noise."""
        return math.sqrt(self.noise_variance)

    @property
    def variance(self) -> float:
        """Variance of a coordinate of x."""
        return 1.0 if self.preset == PAPER else 1.0 / self.n_samples

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The problem, as in the paper or as in the notebook."""
        is_notebook = self.preset == NOTEBOOK
        return lf.SharedRepresentation(
            n_clients=self.n_clients,
            dim=self.dim,
            rank=self.rank,
            noise_std=self.noise_std,
            head_norm=1.0 if is_notebook else None,
            design=lf.Gaussian(covariance=self.variance) if is_notebook else lf.Gaussian(),
        )

    def squared_error(self, risk: Any) -> Any:
        """Return ``||theta - phi||^2`` for a risk."""
        return (2 * risk - self.noise_std**2) / self.variance

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
        is_notebook = self.preset == NOTEBOOK
        ridge = NOTEBOOK_RIDGE / self.n_samples if is_notebook else 0.0  # added to Z'Z/m, not to Z'Z
        return lf.FedRep(
            rank=self.rank,
            step_size=self.scaled(step),
            init="random",
            heads=heads or lf.ExactHeads(ridge=ridge),
            orthonormalize=not is_notebook,
            aggregate="sum" if is_notebook else "mean",
        )

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
        changed = {"rank": self.rank, **FEDAVG[self.method]}
        return lf.FedAvg(step_size=self.scaled(step), server_step_size=server, **changed)


@dataclass(frozen=True, kw_only=True)
class Tuned(Setting):
    """A method whose step size is tuned on separate trials before it runs on fixed samples."""

    tuning_trials: int = 10
    steps: tuple[float, ...] = STEPS

    def tuned(
        self, metric: Any, seed: Any, *, quantile: float = 0.9, ties_within: float = TIES_WITHIN
    ) -> tuple[lf.Algorithm, dict[str, Any]]:
        """Return the method at its tuned step size, and the tuning's columns.

        The step size has the smallest quantile of the final metric over separate tuning trials; of ties the smallest
        one is taken. A single step size is not tuned.
        """
        if self.method in UNTUNED:
            return self.algorithm(), {}
        if len(self.steps) == 1:
            return self.algorithm(*self.steps), {}
        tuning = lf.tune(
            [self.algorithm(step) for step in self.steps],
            self.problem,
            data=lf.FixedSamples(self.n_samples),
            participation=self.participation,
            n_rounds=self.n_rounds,
            trials=self.tuning_trials,
            seed=seed,
            metric=metric,
            record_every=self.n_rounds,
            score="final",
            quantile=quantile,
            ties_within=ties_within,
        )
        return tuning.algorithm, tuning.columns()

    def trained(
        self, metric: Any, seed: Any, *metrics: str, record_every: int = 1, **tuning: float
    ) -> tuple[lf.Result, dict[str, Any]]:
        """Tune the step size for a metric, then run the trials; return their result and the tuning's columns.

        `tuning` holds options of `tuned`.
        """
        algorithm, columns = self.tuned(metric, seed, **tuning)
        result = lf.simulate(
            algorithm,
            self.problem,
            data=lf.FixedSamples(self.n_samples),
            participation=self.participation,
            n_rounds=1 if self.method in UNTUNED else self.n_rounds,
            trials=self.trials,
            seed=seed,
            metrics=metrics,
            record_every=record_every,
        )
        return result, columns
