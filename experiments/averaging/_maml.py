"""MAML and ANIL, and gradient descent on the average loss, at population losses: the cell of two experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array

from ._learns import Population, ScaledSubspace, fall

META: dict[str, tuple[type[lf.ANIL], bool]] = {
    "ANIL, first order": (lf.ANIL, False),
    "ANIL, exact": (lf.ANIL, True),
    "MAML, first order": (lf.MAML, False),
    "MAML, exact": (lf.MAML, True),
}
AVERAGE, BEST, LONG = "average loss", "average loss, best step", "average loss, 10 times the rounds"
DRAWN = "average loss, a tenth of the clients"
RIVALS = (AVERAGE, BEST, LONG, DRAWN)
FEDREP = "FedRep"
RANDOM, NEAR = "random start", "start at distance 0.5"


@dataclass(frozen=True, kw_only=True)
class Meta(Population):
    """One method at population losses; alpha is the clients' step size, and beta the server's.

    `scale` is ``alpha B'B`` at the start.
    """

    method: str = lf.choice((*META, AVERAGE, BEST, LONG, DRAWN, FEDREP))
    alpha: float = 0.2
    beta: float = 0.2
    scale: float = 1.0
    n_rounds: int = 900
    start: str = lf.choice((RANDOM, NEAR), RANDOM)
    steps: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6)  # of the average loss

    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size of the server."""
        length = 1.0 if self.method == FEDREP else (self.scale / self.alpha) ** 0.5
        init: Any = self.near(0.5) * length if self.start == NEAR else ScaledSubspace(length)
        if self.method == FEDREP:
            return lf.FedRep(rank=self.rank, step_size=self.alpha * step, init=init)
        if self.method in RIVALS:
            return lf.FedAvg(rank=self.rank, step_size=step, init=init)
        kind, hessian = META[self.method]
        return kind(rank=self.rank, step_size=step, adaptation_step_size=self.alpha, hessian=hessian, init=init)

    def near(self, distance: float) -> Array:
        """Return initial B (trials, d, k) at a distance from B*: all principal angles have this sine."""
        rng, k = np.random.default_rng((self.seed, self.dim)), self.rank
        inside = np.linalg.qr(rng.standard_normal((self.trials, k, k)))[0]
        outside = np.linalg.qr(rng.standard_normal((self.trials, self.dim - k, k)))[0]
        return np.concatenate([np.sqrt(1 - distance**2) * inside, distance * outside], axis=1)

    def run(self) -> dict[str, Any]:
        """Return the distances and rates with their predictions."""
        W, step, rounds, columns = self.heads(), self.beta, self.n_rounds, dict[str, Any]()
        if self.method == LONG:
            rounds *= 10
        if self.method == BEST:
            step, columns = self.best_step(self.steps, rounds)
        C = None
        if self.method in META:
            C = lf.theory.meta_contraction(W, step_size=step, adaptation_step_size=self.alpha)
        found = self.follow(self.algorithm(step), W, rounds, C, 0.1 if self.method == DRAWN else 1.0)
        at, curve = found["distance"].axes["round"], found["distance"].values
        levels = {"early": fall(at, curve, 1e-3, 1e-6), "late": fall(at, curve, 1e-6, 1e-9)}
        return columns | found | levels | {"chosen_step": step}
