"""FedRep where x has a covariance, common to all clients or of each client: the protocols' names, and a setting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import linfed as lf
from linfed._types import Array

SAME, SPLIT, DFW = "FedRep", "split", "split, own samples"
COMMON, EACH = "common covariance", "covariance per client"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes, and the covariances of x."""

    kind: str = lf.choice((COMMON, EACH), COMMON)
    condition: float = 10.0
    n_clients: int = 100
    n_samples: int = 30
    dim: int = 10
    rank: int = 2
    noise_std: float = 1.0
    trials: int = 30
    seed: int = 0

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The problem; trials share the covariances and differ in B*, of uniform direction, and the heads."""
        values = np.geomspace(1.0, self.condition, self.dim)
        values /= values.mean()
        covariance: Array = values
        if self.kind == EACH:
            rng = np.random.default_rng([self.seed, 7])
            axes = np.linalg.qr(rng.standard_normal((self.n_clients, self.dim, self.dim)))[0]
            covariance = axes @ (values[:, None] * axes.mT)
            covariance = 0.5 * (covariance + covariance.mT)

        return lf.SharedRepresentation(
            n_clients=self.n_clients,
            dim=self.dim,
            rank=self.rank,
            noise_std=self.noise_std,
            design=lf.Gaussian(covariance=covariance),
        )
