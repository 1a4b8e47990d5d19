"""FedRep with the Gaussian mechanism: the published setting, its noise and its problem."""

from __future__ import annotations

from dataclasses import dataclass

import linfed as lf


@dataclass(frozen=True, kw_only=True)
class Private:
    """A setting of private FedRep; the defaults are the published ones."""

    n_clients: int = 20_000
    n_samples: int = 5
    dim: int = 50
    rank: int = 2
    noise_std: float = 0.0141
    epsilon: float = 1.0
    failure: float = 1e-6
    clip: float = 10.0
    n_rounds: int = 5
    trials: int = 24
    seed: int = 0

    def noise(self, clip: float, n_rounds: int) -> float:
        """Return the smallest noise on the mean message for one replaced client."""
        change = 2.0 * clip / self.n_clients
        return lf.theory.gaussian_mechanism_noise(self.epsilon, self.failure, sensitivity=change, n_rounds=n_rounds)

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The problem."""
        return lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=self.rank, noise_std=self.noise_std, condition_number=1.0
        )

    @property
    def step(self) -> float:
        """The published step size if k/m = 2/5; as far from the stability edge in other settings."""
        return 1.5 / (1.0 - self.rank / self.n_samples)
