"""What the experiments of the FedRep paper share: its reading of a setting, and the authors' notebook's.

The published linear notebook differs from the paper: x ~ N(0, I/m), one fixed data set, heads of length 1, B not
normalised, sums over participants, noise of standard deviation 1e-3, a ridge of 1e-5 on exact heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import linfed as lf
from linfed.simulation.participation import n_participants

PRESETS = PAPER, NOTEBOOK = ("paper", "notebook")

UNTUNED = ("LocalOnly", "Oracle")
"""Methods without a step size; one round is all they need."""

NOTEBOOK_NOISE = 1e-3
NOTEBOOK_RIDGE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One method in a setting of the FedRep paper, under one reading."""

    preset: str = PAPER
    method: str = "FedRep"
    n_clients: int
    dim: int
    rank: int = 2
    n_samples: int
    participation: float = 1.0
    noise_variance: float = 1e-3
    rounds: int
    trials: int = 50
    tuning_trials: int = 10
    seed: int = 0

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The truth, as the paper or as the notebook has it."""
        own: dict[str, Any] = {"noise_std": math.sqrt(self.noise_variance)}
        if self.preset == NOTEBOOK:
            design = lf.Gaussian(covariance=1.0 / self.n_samples)
            own = {"noise_std": NOTEBOOK_NOISE, "head_norm": 1.0, "design": design}
        return lf.SharedRepresentation(n_clients=self.n_clients, dim=self.dim, rank=self.rank, **own)

    @property
    def x_variance(self) -> float:
        """The variance of each entry of x."""
        return 1.0 if self.preset == PAPER else 1.0 / self.n_samples

    def squared_error(self, risk: Any) -> Any:
        """Return ``||theta - phi||^2`` for a risk."""
        return (2 * risk - self.problem.noise_std**2) / self.x_variance

    def scaled(self, step: float) -> float:
        """Return a step on B for one that is given in the paper's normalisation.

        In the notebook's, gradients are m times smaller (x has covariance I/m, and the loss keeps its 1/m) and the
        server sums over p participants. Scaled so, one grid means the same in both but for the heads' length: heads of
        norm 1 in place of sqrt(k) make the gradient of B k times smaller.
        """
        if self.preset == PAPER:
            return step
        return step * self.n_samples / n_participants(self.participation, self.n_clients)

    def fedrep(self, step: float, **heads: Any) -> lf.FedRep:
        """Return FedRep from a random subspace with the preset's server step; `heads` are the options of its heads."""
        own: dict[str, Any] = {"orthonormalize": False, "aggregate": "sum"} if self.preset == NOTEBOOK else {}
        if self.preset == NOTEBOOK and not heads:
            heads = {"head_ridge": NOTEBOOK_RIDGE / self.n_samples}  # the notebook's is beside Z'Z, here (1/m) Z'Z
        return lf.FedRep(rank=self.rank, step_size=self.scaled(step), init="random", **heads, **own)

    def algorithm(self, step: float, **fedavg: Any) -> lf.Algorithm:
        """Return the method at a step in the paper's normalisation; any other name is FedAvg's, with its options."""
        if self.method == "LocalOnly":
            return lf.LocalOnly()
        if self.method == "Oracle":
            return lf.Oracle(rank=self.rank)
        if self.method == "FedRep":
            return self.fedrep(step)
        if self.method == "FedPer":
            # One step serves B and heads: summed over the participants B would move as many times as fast as they do.
            return lf.FedPer(rank=self.rank, step_size=step * self.n_samples)
        server = self.participation * self.n_clients if self.preset == NOTEBOOK else 1.0  # a sum in place of the mean
        return lf.FedAvg(rank=self.rank, step_size=self.scaled(step), server_step_size=server, **fedavg)
