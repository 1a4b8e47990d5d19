"""FedRep near B*: how many samples keep the angles of a single run from growing, at the theorem's step size.

Runs start at angles of sine 1e-5 in all directions, without noise, with eta = 1/4 and heads of kappa = 1.
`lf.find_smallest` finds the m at which the largest angle neither grows nor shrinks, to a per cent. It is compared with
the threshold in mean square (`linfed.theory.near_truth_threshold`), which has no fitted parameter.

**Deviations**: an addition; the FedRep paper has no threshold near B*.

Figures
-------
"" : Number of samples at which the angles of single runs near B* neither grow nor shrink, divided by the predicted
    threshold, setting by setting. Bars: 95 % intervals; shaded: the claimed range.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1, for the step.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.cells.smallest_size import SmallestSize
from linfed.figures.style import PAGE_WIDTH, line_style
from linfed.plotting.panels import Figures, drawn_from
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge

from ..shared.smallest_judged import over

SUMMARY = "FedRep near B*: the smallest m with which single runs do not leave it, measured to 1 % and predicted"
PICTURES = {"": 1400}
REDUCED = {"near": {"without": ("margin", "reached", "count")}}

SETTINGS: tuple[dict[str, int], ...] = (
    {"n_clients": 50, "dim": 1000, "rank": 3},
    {"n_clients": 40, "dim": 2000, "rank": 5},
    {"n_clients": 10, "dim": 500, "rank": 1},
    {"n_clients": 100, "dim": 5000, "rank": 2},
    {"n_clients": 200, "participants": 50, "dim": 2000, "rank": 3},
    {"n_clients": 200, "dim": 10_000, "rank": 4},
    {"n_clients": 100, "dim": 10_000, "rank": 10},
)
RANGE = (0.98, 1.02)
"""Claimed range of the measured threshold divided by the predicted one."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Growth factor of the angles of a single run in one round near B*, at the theorem's step size without noise.

    All angles of a run start with sine `delta`. The first rounds are left out, because the angles still adjust their
    proportions.
    """

    n_clients: int = 50
    participants: int | None = None
    dim: int = 1000
    rank: int = 3
    n_samples: int = 16
    eta: float = 0.25
    delta: float = 1e-5
    first: int = 10
    rounds: int = 60
    trials: int = 64
    seed: int = 0

    @property
    def p(self) -> int:
        """Number of participants in a round."""
        return self.n_clients if self.participants is None else self.participants

    def run(self) -> dict[str, Any]:
        """Return the growth factor of each run."""
        result = lf.simulate(
            lf.FedRep(rank=self.rank, step_size=self.eta, init=lf.AtDistance(self.delta)),
            lf.SharedRepresentation(n_clients=self.n_clients, dim=self.dim, rank=self.rank, condition_number=1.0),
            data=lf.FreshSamples(self.n_samples),
            participation=self.p,
            rounds=self.rounds,
            trials=self.trials,
            seed=(self.seed, self.n_clients, self.dim, self.rank),
            metrics=["subspace_distance"],
            record_every=self.first,
            engine="chain",
        )
        distance = result.metrics["subspace_distance"]
        return {"growth": (distance[:, -1] / distance[:, 1]) ** (1.0 / (self.rounds - self.first))}


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Search for the m at which the angles of a single run neither grow nor shrink near B*."""

    n_clients: int
    participants: int | None = None
    dim: int
    rank: int
    trials: int = 64
    seed: int = 0

    divides = True
    keeps_parts = True

    @property
    def search(self) -> SmallestSize:
        """The search, which starts just above the predicted threshold."""
        sizes = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "trials"}
        base = Growth(**sizes, n_samples=math.ceil(self.law) + 1)
        reaches = lf.below("growth", 1.0)
        return SmallestSize(base=base, path="n_samples", reaches=reaches, resolution=0.01, trials=self.trials)

    @property
    def law(self) -> float:
        """The predicted threshold, in mean square."""
        sizes = {"dim": self.dim, "rank": self.rank, "n_clients": self.n_clients}
        return lf.theory.near_truth_threshold(Growth.eta, participants=self.participants, **sizes)

    def run(self) -> dict[str, Any]:
        """Return the measured and the predicted threshold."""
        return {**self.search.run(), "law": self.law}


def cells(quick: bool) -> dict[str, list[Threshold]]:
    """Return the searches; quick: the first of them, with few trials."""
    trials = 8 if quick else 32
    return {"near": [Threshold(**sizes, trials=trials) for sizes in SETTINGS[: 1 if quick else None]]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the measured thresholds divided by the predicted ones."""
    import matplotlib.pyplot as plt

    table = tables["near"]
    middle, low, high = np.transpose([over(row, row["law"]) for row in table.rows])
    places = np.arange(len(middle))
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 2.6), layout="constrained")
    ax.errorbar(places, middle, yerr=(middle - low, high - middle), **line_style("FedRep") | {"linestyle": "none"})
    ax.axhspan(*RANGE, color="0.9")
    ax.axhline(1.0, color="black", linewidth=0.7, linestyle=":")
    labels = [
        f"n = {row['n_clients']}\np = {row['participants'] or row['n_clients']}\nd = {row['dim']:,}\nk = {row['rank']}"
        for row in table.rows
    ]
    ax.set(ylim=(0.96, 1.04), xticks=places, xticklabels=labels, ylabel="threshold near B*,\nmeasured / predicted")
    return {"": drawn_from(figure, table)}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge whether the threshold is the predicted one, setting by setting."""
    found = []
    for row in tables["near"].rows:
        sizes = f"n = {row['n_clients']}, p = {row['participants'] or row['n_clients']}, d = {row['dim']:,}"
        found.append(
            judge(
                over(row, row["law"]),
                claim="Near B* angles neither grow nor shrink at p m = (d-k+1) k / (7 + k/m), for p = n",
                setting=f"{sizes}, k = {row['rank']}",
                statistic="m at which the angles of single runs neither grow nor shrink, divided by the predicted one",
                source=OWN_PREDICTION.adding(f"the range is {OWN_THRESHOLD}"),
                claimed_low=RANGE[0],
                claimed_high=RANGE[1],
                detail=f"{row['crossing']:.2f} against {row['law']:.2f}",
            )
        )
    return found
