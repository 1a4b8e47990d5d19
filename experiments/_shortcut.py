"""What the experiments on the shortcut draft share: sizes, and algorithms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import linfed as lf

LEARNED = 0.5
"""B counts as learned where its distance is below half: random starts lie at 0.98 and more."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The sizes and the noise of a setting with shortcuts, all chosen here: the draft names none."""

    n_clients: int = 50
    dim: int = 20
    rank: int = 2
    noise_std: float = 0.1

    @property
    def whole(self) -> dict[str, int]:
        """The sizes by name, as problems take them."""
        return {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}

    def algorithm_1(self, step_size: float, **options: Any) -> lf.FedRepShortcut:
        """Return the draft's Algorithm 1 from a random subspace."""
        return lf.FedRepShortcut(rank=self.rank, step_size=step_size, init="random", **options)

    def joint(self, step_size: float, ridge: float) -> lf.FedRepShortcut:
        """Return the closed form that minimises over head and shortcut together, with a ridge on the shortcut."""
        return self.algorithm_1(step_size, solver=lf.ClosedForm(order="joint"), ridge=ridge)
