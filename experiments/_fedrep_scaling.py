"""The cells of `experiments.fedrep_scaling`: the least m, or the fewest rounds, that a run of FedRep needs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.study.seeking import Least

FRESH, FIXED = "fresh", "fixed"
THEOREM, BEST = "theorem's step", "best step"


@dataclass(frozen=True, kw_only=True)
class Need:
    """How many samples, or rounds, bring half of the runs from distance 0.9 to 0.01.

    Heads have length ``sqrt(k)`` and singular values that are geometric with the ratio kappa. `step` is "theorem's
    step", ``eta`` over the largest eigenvalue of Gamma, of which Theorem 1 allows eta = 1/4; or the "best step" near B*
    for kappa = 1 (`lf.theory.best_step_size`, by its formula also at m = k + 1).
    """

    panel: str = ""
    asks: str = "data.n_samples"
    samples: str = FRESH
    n_clients: int = 50
    dim: int = 1000
    rank: int = 3
    kappa: float = 1.0
    participants: int | None = None
    noise_std: float = 0.0
    step: str = THEOREM
    eta: float = 0.25
    start: int = 16
    rounds: int = 40
    delta: float = 0.9
    level: float = 0.01
    trials: int = 32
    seed: int = 0

    keeps_pieces = True

    @property
    def cost(self) -> float:
        """Long searches first."""
        return self.n_clients * self.rounds * (self.dim if self.samples == FIXED else 1)

    @property
    def p(self) -> int:
        """Participants."""
        return self.n_clients if self.participants is None else self.participants

    @property
    def largest(self) -> float:
        """The largest eigenvalue of Gamma, whose trace is k."""
        squares = np.geomspace(self.kappa**2, 1.0, self.rank)
        return float(self.rank * squares[0] / squares.sum())

    @property
    def smallest(self) -> float:
        """The least eigenvalue of Gamma."""
        return self.largest / self.kappa**2

    def step_size(self, run: lf.Run) -> float:
        """Return the step at a number of samples."""
        m, k = run.data.n_samples, self.rank
        if self.step == THEOREM or m <= k:
            return self.eta / self.largest
        c, g = 1.0 - k / m, (self.dim - k + 1) * k / (self.p * m)
        f = (k - 1) * (self.n_clients - self.p) / (self.p * max(1, self.n_clients - 1))
        return 1.0 / (c * (1.0 + f) + g)

    @property
    def search(self) -> Least:
        """The search that answers."""
        kappa = self.kappa if self.rank > 1 else 1.0
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        fresh = self.samples == FRESH
        run = lf.Run(
            algorithm=lf.FedRep(rank=self.rank, step_size=self.eta, init=lf.AtDistance(self.delta)),
            problem=lf.SharedRepresentation(**sizes, noise_std=self.noise_std, condition_number=kappa),
            data=lf.FreshSamples(self.start) if fresh else lf.FixedSamples(self.start),
            participation=self.p,
            rounds=self.rounds,
            seed=(self.seed, self.n_clients, self.dim, self.rank),
            engine="chain" if fresh and self.dim >= 3 * self.rank else "auto",
        )
        return Least(
            base=run,
            path=self.asks,
            reaches=lf.below("subspace_distance", self.level),
            most=4096,
            resolution=0.05,
            trials=self.trials,
            step_size=self.step_size,
            predicted=fresh,
        )

    def run(self) -> dict[str, Any]:
        """Return what `lf.least` would."""
        return dict(self.search.run())

    def stages(self) -> Generator[Sequence[Any], Sequence[Any], Any]:
        """Return the same in pieces."""
        return self.search.stages()
