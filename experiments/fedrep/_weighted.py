"""FedRep with weighted clients: populations that differ in samples and noise, choices of weights, and their runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.numerics.linalg import orthonormalize

UNIFORM, SAMPLES, PAIRS, INVERSE = "equal", "proportional to m", "U-statistic's", "m/sigma^2"
MANY, SETTLED = "best, many rounds", "best at its floor"
WEIGHTS = (UNIFORM, SAMPLES, PAIRS, INVERSE, MANY, SETTLED)

COUNTS, BOTH, HALF = "samples differ", "both differ", "both, half take part"
NOISE = "noise differs"
MIXED = (8, 8, 12, 20, 20, 40, 80, 80), (1.0, 0.1, 0.5, 0.05, 1.0, 0.3, 0.1, 1.0)
POPULATIONS: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {
    COUNTS: ((7, 7, 10, 10, 20, 20, 60, 60), (0.3,) * 8),
    NOISE: ((12,) * 8, (0.03, 0.05, 0.08, 0.13, 0.22, 0.37, 0.61, 1.0)),
    BOTH: MIXED,
    HALF: MIXED,
}
"""Numbers of samples and noise levels of the eight groups of clients."""


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """Runs with one choice of weights, in one population of clients."""

    population: str = lf.choice(POPULATIONS, BOTH)
    weights: str = lf.choice(WEIGHTS, UNIFORM)
    dim: int = 100
    rank: int = 3
    copies: int = 2  # of `rank` clients with orthogonal heads in each group
    trials: int = 100
    seed: int = 0

    @property
    def groups(self) -> tuple[Array, Array]:
        """Number of samples and noise level of each client."""
        m, noise = (np.repeat(part, self.copies * self.rank) for part in POPULATIONS[self.population])
        return m, noise

    @property
    def heads(self) -> Array:
        """True heads (n, k) of length sqrt(k), unrelated to samples and noise."""
        rng, k = np.random.default_rng(self.seed), self.rank
        frames = [orthonormalize(rng.standard_normal((k, k))) for _ in range(8 * self.copies)]
        return np.asarray(np.sqrt(k) * np.concatenate(frames))

    @property
    def participants(self) -> int:
        """Number of participants in a round."""
        clients = 8 * self.copies * self.rank
        return clients // 2 if self.population == HALF else clients

    def chosen(self, rate: float = 0.0) -> Array:
        """Return the weights, with mean 1; the rate matters for the weights that are best at their floor."""
        m, noise = self.groups
        length = self.rank + noise**2
        fixed = {UNIFORM: 1.0 + 0.0 * m, SAMPLES: 1.0 * m, INVERSE: m / noise**2}
        fixed[PAIRS] = m / (length * (1.0 + length / m))
        if self.weights in fixed:
            return np.asarray(fixed[self.weights] / fixed[self.weights].mean())
        error, found = 0.0, self.best(0.0)
        for _ in range(100 if self.weights == SETTLED else 0):
            floor = self.floor(found, self.step(found, rate), m, noise)
            if np.isnan(floor):
                floor = 2.0 * max(error, 1e-6) * self.rank
            before, error = error, floor / self.rank
            found = self.best(error)
            if abs(error - before) < 1e-4 * error:
                break
        return found

    def best(self, error: float) -> Array:
        """Return the best weights at a mean squared tangent."""
        d, p, (m, noise) = self.dim, self.participants, self.groups
        return lf.theory.optimal_weights(self.heads, dim=d, n_samples=m, noise_std=noise, participants=p, error=error)

    def step(self, weights: Array, rate: float) -> float:
        """Return the step size of a rate."""
        return float(rate / np.mean(weights * (1.0 - self.rank / self.groups[0])))

    def edge(self, weights: Array | None, m: Array | int) -> float:
        """Return the predicted largest stable step size at numbers of samples."""
        d, p = self.dim, self.participants
        return float(lf.theory.stability_edge(self.heads, dim=d, n_samples=m, participants=p, weights=weights))

    def floor(self, weights: Array | None, step: float, m: Array | int, noise: Array | float) -> float:
        """Return the predicted sum of the squared tangents at numbers of samples and noise levels.

        It is NaN from the edge on.
        """
        if step >= self.edge(weights, m):
            return float("nan")
        moments = lf.theory.near_truth_floor(
            self.heads,
            dim=self.dim,
            n_samples=m,
            step_size=step,
            noise_std=noise,
            participants=self.participants,
            weights=weights,
        )
        return float(np.trace(moments))

    def simulated(
        self, weights: Array, step: Any, n_rounds: int, start: float, metric: Any, every: int = 1
    ) -> lf.Result:
        """Run FedRep with a metric, from equal angles of a given sine."""
        return lf.simulate(
            lf.FedRep(rank=self.rank, step_size=step, weights=weights, init=lf.AtDistance(start)),
            lf.GivenTruth(B=np.eye(self.dim, self.rank), W=self.heads, noise_std=self.groups[1].tolist()),
            data=lf.FreshSamples(self.groups[0].tolist()),
            n_rounds=n_rounds,
            participation=self.participants,
            trials=self.trials,
            seed=self.seed,
            engine="chain",
            metrics=[metric],
            record_every=every,
        )
