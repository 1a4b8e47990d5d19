"""Alternating minimisation and its competitors: a problem with heads of equal length, and a run of each method."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import linfed as lf

ALTMIN, HALVES, FRESH = "AltMin", "AltMin, halves", "AltMin, fresh samples"
FEDREP, ALTGDMIN, MOMENTS = "FedRep", "AltGDmin", "moments"
AVERAGES, RISK, CHEAP = "local averages", "empirical risk", "FedRep, local averages"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes of a problem, and the methods by name."""

    n_clients: int = 100
    dim: int = 40
    rank: int = 3
    noise_std: float = 0.0
    n_rounds: int = 60
    trials: int = 20
    seed: int = 0

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The problem: heads of equal length with second moment I."""
        return lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=self.rank, noise_std=self.noise_std, condition_number=1.0
        )

    def algorithms(self, n_samples: int) -> dict[str, tuple[lf.Algorithm, int]]:
        """Return the algorithms and their numbers of rounds by name.

        FedRep's step size follows from the largest eigenvalue near B* without noise. The factor 0.6 is half of the
        fastest one there: with noise and few samples the eigenvalue is larger.
        """
        k, spare = self.rank, max(n_samples - self.rank, 1)
        largest = (1.0 + ((self.dim - k) * k / (self.n_clients * spare)) ** 0.5) ** 2
        fedrep = lf.FedRep(rank=k, step_size=0.6 * n_samples / spare / largest)
        return {
            ALTMIN: (lf.AltMin(rank=k), self.n_rounds),
            HALVES: (lf.AltMin(rank=k, disjoint_samples=True), self.n_rounds),
            FRESH: (lf.AltMin(rank=k, disjoint_samples=True), self.n_rounds),
            FEDREP: (fedrep, 4 * self.n_rounds),
            CHEAP: (replace(fedrep, init=lf.TruncatedAverages(threshold=math.inf)), 4 * self.n_rounds),
            ALTGDMIN: (lf.AltGDmin(rank=k, init="moments"), 4 * self.n_rounds),
            MOMENTS: (lf.MethodOfMoments(rank=k), 1),
            AVERAGES: (lf.LocalGram(rank=k), 1),
            RISK: (lf.BurerMonteiro(rank=k, iterations=400, tolerance=1e-8), 1),
        }

    def plain_run(self, name: str, n_samples: int) -> lf.Run:
        """Return a run of a method."""
        algorithm, rounds = self.algorithms(n_samples)[name]
        return lf.Run(
            algorithm=algorithm,
            problem=self.problem,
            data=(lf.FreshSamples if name == FRESH else lf.FixedSamples)(n_samples),
            n_rounds=rounds,
            trials=self.trials,
            seed=self.seed,
            metrics=["subspace_distance"],
        )
