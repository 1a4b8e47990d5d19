"""Settings of FedRep's Theorem 1, whose constants are computed from the run: sizes, heads, initial B and step size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS
from linfed.simulation.participation import n_participants
from linfed.theory.fedrep.theorem1 import bound, runs

EDGE = 1.0 - 1e-9
"""Factor on the largest allowed step size, so that rounding errors do not push it beyond the limit."""
BASE = "base setting"
"""Name of the setting from which one size at a time varies; it is run once, for all sizes."""
NAMES = {"step": "eta / limit", "condition": "kappa", "start": "dist_0", "rank": "k", "dim": "d"}
NAMES |= {"n_clients": "n = p", "participation": "p / n"}
TWO: dict[str, Any] = {"n_clients": 2, "rank": 1, "n_rounds": 20}
PAIRS: dict[str, dict[str, Any]] = {
    "two clients, d = 4": {**TWO, "dim": 4},
    "two clients, d = 10": {**TWO, "dim": 10, "trials": 3000},
}
THEOREM, RIVAL = KINDS[:2]
"""Colours and markers of the rules for m."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes, heads and initial distance; `step` is a share of the largest step size that the theorem allows."""

    name: str
    n_clients: int = 50
    dim: int = 50
    rank: int = 2
    condition: float | None = 1.0
    start: float = 0.5
    step: float = 1.0
    participation: float = 1.0
    n_rounds: int = 60
    trials: int = 100
    noise_std: float = 0.0
    seed: int = 0

    def problem(self) -> lf.GivenTruth:
        """Return the ground truths of all trials, drawn once: drawing heads with a given kappa is slow."""
        law = lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=self.rank, condition_number=self.condition
        )
        truth = law.truth(self.seed, range(self.trials))
        return lf.GivenTruth(B=truth.B, W=truth.W, noise_std=self.noise_std)

    @property
    def participants(self) -> int:
        """Number of participants in a round."""
        return n_participants(self.participation, self.n_clients)

    @property
    def rival(self) -> float:
        """The m of a simple rule that uses only the sizes."""
        return self.rank + 2 + self.dim * self.rank / self.participants

    def singular_values(self, problem: lf.Problem) -> tuple[Any, Any]:
        """Return sigma_min bar and sigma_max bar over the sets of participants that occur, each (trials,)."""
        smallest, largest, _ = runs.theorem1_constants(
            problem,
            rank=self.rank,
            participation=self.participation,
            n_rounds=self.n_rounds,
            trials=self.trials,
            seed=self.seed,
        )
        return smallest, largest

    def needed(self, kappa: Any, start: Any) -> Any:
        """Return the m that the theorem requires with C = 1; infinite if kappa is."""
        return bound.fedrep_least_samples(
            dim=self.dim, rank=self.rank, participants=self.participants, condition=kappa, start=start
        )

    def constants(self, problem: lf.Problem) -> tuple[float, float, float]:
        """Return the step size, the m that the theorem requires with C = 1, and sigma_min bar of the median trial."""
        smallest, largest = self.singular_values(problem)
        with np.errstate(divide="ignore"):
            needed = self.needed(largest / smallest, self.start)
        step = self.step * EDGE * float(bound.fedrep_step_limit(largest).min())
        return step, float(needed.max()), float(np.median(smallest))

    def simulated(
        self,
        problem: lf.GivenTruth,
        step: float,
        data: lf.FreshSamples | lf.FixedSamples,
        heads: lf.ExactHeads | lf.GradientHeads | None = None,
    ) -> lf.Result:
        """Simulate FedRep in this setting, by default with exact heads."""
        init = lf.AtDistance(self.start)
        return lf.simulate(
            lf.FedRep(rank=self.rank, step_size=step, init=init, heads=heads or lf.ExactHeads()),
            problem,
            data=data,
            participation=self.participation,
            n_rounds=self.n_rounds,
            trials=self.trials,
            seed=self.seed,
            metrics=["subspace_distance"],
            engine="chain" if isinstance(data, lf.FreshSamples) else "auto",
        )


def moved(ax: Any, rows: list[lf.Table], name: str) -> list[float]:
    """Set up logarithmic axes; return the varied size of each row (E_0 instead of the initial distance)."""
    x = [1.0 - row["start"] ** 2 if name == "start" else row[name] for row in rows]
    ax.set(xscale="log", yscale="log", xlabel="$E_0$" if name == "start" else NAMES[name])
    ticks = [0.03, 0.1, 0.3, 1.0] if name == "start" else x
    ax.set_xticks(ticks, [f"{value:.2g}" if value < 10 else f"{value:g}" for value in ticks])
    ax.minorticks_off()
    return x
