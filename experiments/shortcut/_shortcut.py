"""Shared parts of the experiments on the shortcut draft: sizes and algorithms."""

from __future__ import annotations

from dataclasses import dataclass

import linfed as lf

LEARNED = 0.5
"""B counts as learned if its distance is below one half; a random B has a distance of 0.98 or more."""

KINDS = ("any", "orthogonal", "uncorrelated")
"""Shortcuts independent of B*; orthogonal to it; and also exactly uncorrelated with the heads."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """The sizes and the noise of a setting with shortcuts; all are our choice, because the draft gives none."""

    n_clients: int = 50
    dim: int = 20
    rank: int = 2
    noise_std: float = 0.1

    def with_shortcuts(self, norm: float, *, kind: str = "any") -> lf.SharedWithShortcuts:
        """Return a problem whose shortcuts have a root mean square length and one of the `KINDS` of directions."""
        return lf.SharedWithShortcuts(
            n_clients=self.n_clients,
            dim=self.dim,
            rank=self.rank,
            shortcut_norm=norm,
            orthogonal=kind != "any",
            uncorrelated=kind == "uncorrelated",
            noise_std=self.noise_std,
        )

    def algorithm_1(self, step_size: float, solver: lf.GradientSteps | lf.ClosedForm) -> lf.FedRepShortcut:
        """Return the draft's Algorithm 1 from a random subspace, or its closed form."""
        return lf.FedRepShortcut(rank=self.rank, step_size=step_size, solver=solver, init="random")

    def joint(self, step_size: float, ridge: float) -> lf.FedRepShortcut:
        """Return the closed form that minimises jointly over head and shortcut, with a ridge on the shortcut."""
        solver = lf.ClosedForm(order="joint")
        return lf.FedRepShortcut(rank=self.rank, step_size=step_size, solver=solver, ridge=ridge, init="random")
