"""Searches for the smallest m, or the fewest rounds, that FedRep needs: the cells, and the sizes that vary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

import linfed as lf
from linfed.cells.smallest_size import SmallestSize
from linfed.theory.drawn_clients import set_share

FRESH, FIXED = "fresh", "fixed"
THEOREM, BEST = "theorem's step", "best step"
Panels: TypeAlias = Mapping[str, tuple[Any, ...]]
"""The size that varies in each panel: its field, its values, the value of a quick run, and other fields by value."""

PANELS: Panels = {
    "n": (
        "n_clients",
        (10, 30, 100, 300, 1000, 10_000, 100_000),
        100,
        {10_000: {"trials": 8}, 100_000: {"trials": 8, "start": 8}},
    ),
    "d": ("dim", (50, 100, 300, 3000, 10_000), 1500),
    "k": ("rank", (1, 2, 5, 8, 12), 1),
    "p": ("participants", (5, 10, 20, 50, 100), 30),
    "kappa": ("kappa", (1.5, 2.0, 3.0, 4.0), 1.2),
    "sigma": ("noise_std", (0.003, 0.01, 0.03, 0.1, 0.3), 0.03),
    "eta": ("eta", (0.15, 0.2, 0.5, 1.0), 0.5),
}


N = TypeVar("N", bound="Need")


@dataclass(frozen=True, kw_only=True)
class Need:
    """Search for the smallest m, or the fewest rounds, with which half of the runs go from distance 0.9 to 0.01.

    Heads have length ``sqrt(k)`` and geometric singular values with ratio kappa. There are two step sizes. One,
    "theorem's step", is ``eta`` divided by the largest eigenvalue of Gamma. Theorem 1 allows eta = 1/4. The other,
    "best step", is the best step size near B* for kappa = 1. The formula of `lf.theory.best_step_size` is used at
    m = k + 1 as well.
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
    n_rounds: int = 40
    delta: float = 0.9
    level: float = 0.01
    resolution: float = 0.05
    trials: int = 32
    seed: int = 0

    divides = True
    keeps_parts = True

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
        assert isinstance(run.data, lf.FreshSamples | lf.FixedSamples)
        m, k = run.data.n_samples, self.rank
        assert isinstance(m, int)
        if self.step == THEOREM or m <= k:
            return self.eta / self.largest
        c, g = 1.0 - k / m, (self.dim - k + 1) * k / (self.p * m)
        f = float((k - 1) * set_share(self.n_clients, self.p))
        return 1.0 / (c * (1.0 + f) + g)

    @property
    def search(self) -> SmallestSize:
        """The search for the smallest m or the fewest rounds."""
        fresh = self.samples == FRESH
        run = lf.Run(
            algorithm=lf.FedRep(rank=self.rank, step_size=self.eta, init=lf.AtDistance(self.delta)),
            problem=lf.SharedRepresentation(
                n_clients=self.n_clients,
                dim=self.dim,
                rank=self.rank,
                noise_std=self.noise_std,
                condition_number=self.kappa if self.rank > 1 else 1.0,
            ),
            data=lf.FreshSamples(self.start) if fresh else lf.FixedSamples(self.start),
            participation=self.p,
            n_rounds=self.n_rounds,
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
        n, d, k, p = self.n_clients, self.dim, self.rank, self.p
        theory, step, root = lf.theory, self.eta / self.largest, math.sqrt(self.smallest)
        local = theory.near_truth_threshold(self.eta, dim=d, rank=k, n_clients=n, participants=p)
        spectral = math.nan
        if self.samples == FIXED:
            spectral = theory.fixed_samples_needed(
                self.eta, dim=d, rank=k, n_clients=n, n_rounds=self.n_rounds, delta=self.delta, level=self.level
            )
        return {
            "path": self.asks,
            "p": p,
            "claim": float(
                theory.fedrep_least_samples(dim=d, rank=k, participants=p, condition=self.kappa, start=self.delta)
            ),
            "bound": theory.fedrep_bound_rounds(self.level, step_size=step, start=self.delta, smallest=root),
            "local": local if k + 2 < local < math.inf else math.nan,
            "spectral": spectral,
        }


def settings(panels: Panels, base: N, chosen: Sequence[str] | None = None) -> list[N]:
    """Return the base setting and its variations along every panel.

    If `chosen` is given, only these panels vary, each by the value of a quick run.
    """
    found = [replace(base, panel="base")]
    for panel, (field, values, few, *others) in panels.items():
        for value in values if chosen is None else [few] if panel in chosen else []:
            more = others[0].get(value, {}) if others else {}
            one = replace(base, panel=panel, **{field: value}, **more)
            if panel == "p":
                one = replace(one, n_clients=100)
            elif panel == "kappa":
                one = replace(one, n_rounds=math.ceil(base.n_rounds * value**2))
            found.append(one)
    return found


def base_setting(quick: bool) -> Need:
    """Return the base setting, which every panel varies by one size; quick: small, with few trials."""
    if quick:
        return Need(dim=800, rank=2, level=0.1, start=24, trials=8, resolution=0.3, n_rounds=14)
    return Need()
