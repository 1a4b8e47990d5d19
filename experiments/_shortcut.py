"""What the experiments on the shortcut draft share: sizes, truths, algorithms, and a tuning told in other terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import linfed as lf
from linfed.study.choice import at_edge

N_CLIENTS, DIM, RANK = 50, 20, 2
LEARNED = 0.5
"""B counts as learned where its distance is below half: random starts lie at 0.98 and more."""


def problem_of(size: float, *, noise_std: float, orthogonal: bool = False) -> lf.SharedWithShortcuts:
    """Return truths whose shortcuts have this root mean square length; heads have length sqrt(k)."""
    return lf.SharedWithShortcuts(
        n_clients=N_CLIENTS, dim=DIM, rank=RANK, noise_std=noise_std, shortcut_norm=size, orthogonal=orthogonal
    )


def algorithm_1(step_size: float, **options: Any) -> lf.FedRepShortcut:
    """Return the draft's Algorithm 1 from a random subspace."""
    return lf.FedRepShortcut(rank=RANK, step_size=step_size, init="random", **options)


def joint(step_size: float, ridge: float) -> lf.FedRepShortcut:
    """Return the closed form that minimises over head and shortcut together, with a ridge on the shortcut."""
    return algorithm_1(step_size, solver="closed-form", order="joint", ridge=ridge)


def told(tuning: lf.Tuning, settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of a tuning, its settings in other terms: the joint form's steps as if nothing slowed B."""
    return replace(tuning, settings=list(settings), at_edge=at_edge(settings, [tuning.best])).columns()
