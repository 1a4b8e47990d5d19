"""FedAvg with several local updates and its competitors, at population losses: the cell of two experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf

from ._learns import CLOSE, Population, ScaledSubspace

SEVERAL = {f"K = {steps}": steps for steps in (2, 5, 20)}
TUNED = {f"{name}, best step": steps for name, steps in SEVERAL.items()}
FEDREP = "FedRep"
SAME, LARGE, BEST = "K = 1", "K = 1, 5 times the step", "K = 1, best step"
SAMPLED, EQUAL = "K = 1, a tenth of the clients", "K = 5, equal clients"
RIVALS = (SAME, LARGE, BEST, SAMPLED, EQUAL)


@dataclass(frozen=True, kw_only=True)
class Averaged(Population):
    """FedAvg, or FedRep at the step size of the prediction; `scale` is ``eta B'B`` at the start."""

    method: str = lf.choice((*SEVERAL, *TUNED, FEDREP, SAME, LARGE, BEST, SAMPLED, EQUAL))
    local_steps: int = 1
    step_size: float = 0.1
    scale: float = 1.0
    evaluations: int = 6000
    steps: tuple[float, ...] = (0.03, 0.1, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0, 5.0)  # tried for a best step

    def check(self) -> None:
        """Raise if the number of local steps is not the one in the method's name."""
        named = {**SEVERAL, **TUNED, EQUAL: 5, FEDREP: self.local_steps}.get(self.method, 1)
        if self.local_steps != named:
            raise ValueError(f"local_steps = {self.local_steps} must be {named} for method = {self.method!r}")

    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""
        if self.method == FEDREP:
            return lf.FedRep(rank=self.rank, step_size=(self.local_steps - 1) * step**2, init=ScaledSubspace())
        init = ScaledSubspace((self.scale / step) ** 0.5)
        return lf.FedAvg(rank=self.rank, step_size=step, local_steps=self.local_steps, init=init)

    def run(self) -> dict[str, Any]:
        """Return the distances and rates with their predictions."""
        W, step, columns = self.heads(), self.step_size * (5 if self.method == LARGE else 1), dict[str, Any]()
        if self.method == EQUAL:
            W = np.repeat(W[:, :1], self.n_clients, axis=1)
        rounds = self.evaluations // self.local_steps
        tuned = self.method in TUNED
        if tuned or self.method == BEST:  # K = 1 does not come close
            step, columns = self.best_step(self.steps, rounds, CLOSE if tuned else 0.0)
        C = None
        if self.method not in (FEDREP, SAMPLED, *TUNED):
            C = lf.theory.fedavg_contraction(W, step_size=step, local_steps=self.local_steps)
        share = 1.0 if self.method != SAMPLED else 0.1
        found = self.follow(self.algorithm(step), W, rounds, C, share, every_round=tuned)
        at = found["distance"].axes["round"]
        return columns | found | {"evaluated": lf.LabeledArray(at * self.local_steps, round=at), "chosen_step": step}
