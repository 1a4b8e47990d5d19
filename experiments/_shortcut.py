"""What the experiments on the shortcut draft share: sizes, and algorithms."""

from __future__ import annotations

from typing import Any

import linfed as lf

N_CLIENTS, DIM, RANK = 50, 20, 2
SIZES = {"n_clients": N_CLIENTS, "dim": DIM, "rank": RANK}
LEARNED = 0.5
"""B counts as learned where its distance is below half: random starts lie at 0.98 and more."""


def algorithm_1(step_size: float, **options: Any) -> lf.FedRepShortcut:
    """Return the draft's Algorithm 1 from a random subspace."""
    return lf.FedRepShortcut(rank=RANK, step_size=step_size, init="random", **options)


def joint(step_size: float, ridge: float) -> lf.FedRepShortcut:
    """Return the closed form that minimises over head and shortcut together, with a ridge on the shortcut."""
    return algorithm_1(step_size, solver=lf.ClosedForm(order="joint"), ridge=ridge)
