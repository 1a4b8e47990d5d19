"""Searches for the smallest m, or the fewest rounds, that FedRep needs: the cells, and the sizes that vary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.cells.smallest_size import SmallestSize
from linfed.theory.fedrep.arguments import set_share

FRESH, FIXED = "fresh", "fixed"
THEOREM, BEST = "theorem's step", "best step"
MANY, START = (10_000, 100_000), 8
"""Numbers of clients for which 8 trials are enough, and the m at which the largest one's search for m starts."""
PANELS: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "n": ("n_clients", (10, 30, 100, 300, 1000, 10_000, 100_000), 100, "clients n = p"),
    "d": ("dim", (50, 100, 300, 3000, 10_000), 1500, "dimension d"),
    "k": ("rank", (1, 2, 5, 8, 12), 1, "rank k"),
    "p": ("participants", (5, 10, 20, 50, 100), 30, "participants p of n = 100"),
    "kappa": ("kappa", (1.5, 2.0, 3.0, 4.0), 1.2, "condition number $\\kappa$"),
    "sigma": ("noise_std", (0.003, 0.01, 0.03, 0.1, 0.3), 0.03, "noise $\\sigma$"),
    "eta": ("eta", (0.15, 0.2, 0.5, 1.0), 0.5, "step $\\eta$"),
}
"""The size that varies in each panel: its field, values, value in a quick run, and axis label."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Search for the smallest m, or the fewest rounds, with which half of the runs go from distance 0.9 to 0.01.

    Heads have length ``sqrt(k)`` and geometric singular values with ratio kappa. There are two step sizes. "theorem's
    step" is ``eta`` divided by the largest eigenvalue of Gamma; Theorem 1 allows eta = 1/4. "best step" is the best
    step size near B* for kappa = 1 (`lf.theory.best_step_size`, whose formula is used at m = k + 1 as well).
    """

    panel: str = lf.choice(("base", *PANELS, "T", "m"), "base", label=True)
    asks: str = lf.choice(("data.n_samples", "round"), "data.n_samples")
    samples: str = lf.choice((FRESH, FIXED), FRESH)
    n_clients: int = 50
    dim: int = 1000
    rank: int = 3
    kappa: float = 1.0
    participants: int | None = None
    noise_std: float = 0.0
    step: str = lf.choice((THEOREM, BEST), THEOREM)
    eta: float = 0.25
    start: int = 16
    rounds: int = 40
    delta: float = 0.9
    level: float = 0.01
    resolution: float = 0.05
    trials: int = 32
    seed: int = 0

    divides = True
    keeps_parts = True

    @property
    def cost(self) -> float:
        """Relative run time: long searches start first."""
        return self.n_clients * self.rounds * (self.dim if self.samples == FIXED else 1)

    @property
    def p(self) -> int:
        """Number of participants in a round."""
        return self.n_clients if self.participants is None else self.participants

    @property
    def largest(self) -> float:
        """The largest eigenvalue of Gamma, whose trace is k."""
        squares = np.geomspace(self.kappa**2, 1.0, self.rank)
        return float(self.rank * squares[0] / squares.sum())

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue of Gamma."""
        return self.largest / self.kappa**2

    def step_size(self, run: lf.Run) -> float:
        """Return the step size for the number of samples of a run."""
        m, k = run.data.n_samples, self.rank
        if self.step == THEOREM or m <= k:
            return self.eta / self.largest
        c, g = 1.0 - k / m, (self.dim - k + 1) * k / (self.p * m)
        f = (k - 1) * set_share(self.n_clients, self.p)
        return 1.0 / (c * (1.0 + f) + g)

    @property
    def search(self) -> SmallestSize:
        """The search for the smallest m or the fewest rounds."""
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
        return SmallestSize(
            base=run,
            path=self.asks,
            reaches=lf.below("subspace_distance", self.level),
            upper=4096,
            resolution=self.resolution,
            trials=self.trials,
            step_size=self.step_size,
            predicted=fresh,
        )

    def run(self) -> dict[str, Any]:
        """Return the result of `lf.find_smallest` with the columns of predictions."""
        return {**self.search.run(), **self.predictions}

    @property
    def predictions(self) -> dict[str, Any]:
        """Predictions: Theorem 1's m (with constant 1) and rounds, the threshold near B*, and m on fixed samples."""
        theory, sizes = lf.theory, {"dim": self.dim, "rank": self.rank}
        way = {"step_size": self.eta / self.largest, "start": self.delta, "smallest": math.sqrt(self.smallest)}
        claim = theory.fedrep_least_samples(participants=self.p, condition=self.kappa, start=self.delta, **sizes)
        sizes["n_clients"] = self.n_clients
        fixed = {"rounds": self.rounds, "delta": self.delta, "level": self.level}
        spectral = theory.fixed_samples_needed(self.eta, **sizes, **fixed) if self.samples == FIXED else math.nan
        local = theory.near_truth_threshold(self.eta, participants=self.p, **sizes)
        return {
            "path": self.asks,
            "p": self.p,
            "claim": float(claim),
            "bound": theory.fedrep_bound_rounds(self.level, **way),
            "local": local if self.rank + 2 < local < math.inf else math.nan,
            "spectral": spectral,
        }


def settings(panels: dict[str, Any], base: Need, chosen: Sequence[str] | None = None) -> list[Need]:
    """Return the base setting and its variations along every panel.

    If `chosen` is given, only these panels vary, each by the value of a quick run.
    """
    found = [replace(base, panel="base")]
    for panel, (field, values, few, _) in panels.items():
        for value in values if chosen is None else [few] if panel in chosen else []:
            changes = {"n_clients": 100} if panel == "p" else {}
            changes |= {"rounds": math.ceil(base.rounds * value**2)} if panel == "kappa" else {}
            changes |= {"trials": 8} if panel == "n" and value in MANY else {}
            changes |= {"start": START} if panel == "n" and value == MANY[-1] and base.asks != "round" else {}
            found.append(replace(base, panel=panel, **{field: value, **changes}))
    return found


def base_setting(quick: bool) -> Need:
    """Return the base setting, which every panel varies by one size; quick: small, with few trials."""
    few: dict[str, Any] = {"dim": 800, "rank": 2, "level": 0.1, "start": 24, "trials": 8, "resolution": 0.3}
    return Need(**few, rounds=14) if quick else Need()
