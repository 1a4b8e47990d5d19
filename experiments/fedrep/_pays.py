"""Points of the map of FedRep against local baselines, over samples, clients and noise."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.theory import at_exact_heads

SAMPLES = {1000: (5, 7), 500: (10, 15), 250: (25,), 140: (35, 50), 80: (60, 75, 100), 32: (200,), 23: (300,)}
"""Numbers of samples by their largest number of clients; points with more are far from all lines and not run."""
STABLE = 0.9
"""Largest replicon radius at which the risk is claimed."""

FEDREP, LEAST, RIDGE, POOLED, ORACLE = "FedRep", "LocalOnly", "ridge", "PooledLeastSquares", "Oracle"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the map: all methods on the same data sets."""

    noise_std: float = 0.3
    n_samples: int
    n_clients: int
    dim: int = 50
    rank: int = 3
    most_rounds: int = 1000
    trials: int = 50
    law_trials: int = 20
    seed: int = 0

    def schedule(self) -> tuple[float, int]:
        """Return FedRep's step size and number of rounds."""
        spare = max(self.n_samples - self.rank, 1)
        wide = math.sqrt((self.dim - self.rank) * self.rank / (self.n_clients * spare))
        near = math.sqrt(self.rank / self.n_clients)
        largest, least = (1 + wide) * (1 + near), abs((1 - wide) * (1 - near))
        rounds = max(30, round(8 * (largest / max(least, 0.1)) ** 2))
        return 1.2 * self.n_samples / spare / largest**2, min(self.most_rounds, rounds)

    def run(self) -> dict[str, Any]:
        """Return every method's excess risk, simulated in blocks of trials that fit into memory, and predictions."""
        m, d, k, noise = self.n_samples, self.dim, self.rank, self.noise_std
        length, theory = math.sqrt(k), lf.theory
        ridge = theory.best_local_ridge(length, noise_std=noise, dim=d, n_samples=m)
        least, best = (
            float(theory.local_mean_risk(length, ridge=one, noise_std=noise, dim=d, n_samples=m))
            for one in (0.0, ridge)
        )
        edge = theory.fixed_sample_edge(rank=k, noise_std=noise, dim=d, n_samples=m)
        pays_from = theory.break_even_clients(min(least, best), rank=k, noise_std=noise, dim=d, n_samples=m)
        block = max(1, min(self.trials, 2**22 // (self.n_clients * m * d)))
        firsts = range(0, self.trials, block)
        parts = [self.block(min(block, self.trials - first), (self.seed, first), ridge, edge) for first in firsts]
        return {
            "edge": edge if math.isfinite(edge) else math.nan,
            "pays_from": pays_from if math.isfinite(pays_from) else math.nan,
            "predicted_ridge": best - noise**2 / 2,
            **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        }

    def law(self, W: Array, edge: float) -> Array:
        """Return the predicted excess risk of FedRep for the heads of each trial; NaN outside its range."""
        # With few samples the mean over clients is that of single clients.
        if self.n_clients < edge or self.n_samples <= self.rank + 4 or not len(W):
            return np.full(len(W), math.nan)
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # beyond the range
            found = lf.theory.fixed_sample_floor(W, dim=self.dim, n_samples=self.n_samples, noise_std=self.noise_std)
        return np.where(found.replicon <= STABLE, found.risk - self.noise_std**2 / 2, math.nan)

    def block(self, trials: int, seed: tuple[int, int], ridge: float, edge: float) -> dict[str, Any]:
        """Return the columns of one block of trials."""
        problem = lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=self.rank, noise_std=self.noise_std
        )
        truth, floor = problem.truth(seed, range(trials)), self.noise_std**2 / 2
        data = lf.FixedSamples(self.n_samples).draw(problem, trials=trials, seed=seed)
        given = lf.GivenTruth(B=truth.B, W=truth.W, noise_std=self.noise_std)

        def result(algorithm: lf.Algorithm, n_rounds: int = 1) -> lf.Result:
            every = max(1, n_rounds // 20)
            return lf.simulate(
                algorithm, given, data=data, metrics=["risk"], n_rounds=n_rounds, trials=trials, record_every=every
            )

        step, rounds = self.schedule()
        fedrep = result(lf.FedRep(rank=self.rank, step_size=step), rounds)
        course = fedrep.metrics["risk"] - floor
        rivals = {
            LEAST: lf.LocalOnly(),
            RIDGE: lf.LocalOnly(ridge=ridge),
            POOLED: lf.PooledLeastSquares(),
            ORACLE: lf.Oracle(rank=self.rank),
        }
        assert truth.W is not None
        law = self.law(truth.W[: max(0, self.law_trials - seed[1])], edge)
        return {
            "law": np.append(law, np.full(trials - len(law), math.nan)),
            **{name: result(one).metrics["risk"][:, -1] - floor for name, one in rivals.items()},
            FEDREP: course[:, -1],
            "best": course.min(axis=1),
            "gradient": at_exact_heads(data, fedrep.final.B).gradient,
        }


def points(quick: bool) -> list[Point]:
    """Return the points of the map; at noise 1 the local baselines need up to 300 samples."""
    most = {m: clients for clients, counts in SAMPLES.items() for m in counts}
    if quick:
        base = Point(n_samples=5, n_clients=2, trials=10, most_rounds=250, law_trials=8)
        pairs, sizes = [(0.3, 10), (0.3, 75), (1.0, 15), (1.0, 75)], [2, 8, 16, 50]
    else:
        base = Point(n_samples=5, n_clients=2)
        pairs = [(noise, m) for noise, last in ((0.3, 200), (1.0, 300)) for m in most if m <= last]
        sizes = [2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 50, 80, 140, 250, 500, 1000]
    found = lf.grid(base, **{"noise_std, n_samples": pairs}, n_clients=sizes)
    return [one for one in found if one.n_clients <= most[one.n_samples]]
