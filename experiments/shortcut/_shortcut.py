"""Shared parts of the experiments on the shortcut draft: sizes and algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import linfed as lf

LEARNED = 0.5
"""B counts as learned if its distance is below one half; a random B has a distance of 0.98 or more."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The sizes and the noise of a setting with shortcuts; all are our choice, because the draft gives none."""

    n_clients: int = 50
    dim: int = 20
    rank: int = 2
    noise_std: float = 0.1

    @property
    def whole(self) -> dict[str, int]:
        """The sizes by name, as arguments of problems."""
        return {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}

    def algorithm_1(self, step_size: float, **options: Any) -> lf.FedRepShortcut:
        """Return the draft's Algorithm 1 from a random subspace."""
        return lf.FedRepShortcut(rank=self.rank, step_size=step_size, init="random", **options)

    def joint(self, step_size: float, ridge: float) -> lf.FedRepShortcut:
        """Return the closed form that minimises jointly over head and shortcut, with a ridge on the shortcut."""
        return self.algorithm_1(step_size, solver=lf.ClosedForm(order="joint"), ridge=ridge)
