"""FedRep near B*: how many samples keep the angles of a single run from growing, at the theorem's step size.

Runs start at angles of sine 1e-5 in all directions, without noise, with eta = 1/4 and heads of kappa = 1.
`lf.find_smallest` finds the m at which the largest angle neither grows nor shrinks, to a per cent. It is compared with
the threshold in mean square (`linfed.theory.near_truth_threshold`), which has no fitted parameter.

**Deviations**: an addition; the FedRep paper has no threshold near B*.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1, for the step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import linfed as lf
import linfed.claims as c
from linfed.cells.smallest_size import SmallestSize
from linfed.plotting.panels import Figures, intervals
from linfed.statistics.crossings import replicates_interval

SUMMARY = "FedRep near B*: the smallest m with which single runs do not leave it, measured to 1 % and predicted"
PICTURES = {"": 1400}
REDUCED = {"near": {"without": ("shortfall", "reached", "count")}}
CAPTIONS = {
    "": "Number of samples at which the angles of single runs near B* neither grow nor shrink, divided by the "
    "predicted threshold, setting by setting. Bars: 95 % intervals; shaded: the claimed range.",
}

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
    n_rounds: int = 60
    trials: int = 64
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return the growth factor of each run."""
        result = lf.simulate(
            lf.FedRep(rank=self.rank, step_size=self.eta, init=lf.AtDistance(self.delta)),
            lf.SharedRepresentation(n_clients=self.n_clients, dim=self.dim, rank=self.rank, condition_number=1.0),
            data=lf.FreshSamples(self.n_samples),
            participation=self.participants or 1.0,
            n_rounds=self.n_rounds,
            trials=self.trials,
            seed=(self.seed, self.n_clients, self.dim, self.rank),
            metrics=["subspace_distance"],
            record_every=self.first,
            engine="chain",
        )
        distance = result.metrics["subspace_distance"]
        return {"growth": (distance[:, -1] / distance[:, 1]) ** (1.0 / (self.n_rounds - self.first))}


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
        base = Growth(
            n_clients=self.n_clients,
            participants=self.participants,
            dim=self.dim,
            rank=self.rank,
            n_samples=math.ceil(self.law) + 1,
            seed=self.seed,
        )
        reaches = lf.below("growth", 1.0)
        return SmallestSize(base=base, path="n_samples", reaches=reaches, resolution=0.01, trials=self.trials)

    @property
    def law(self) -> float:
        """The predicted threshold, in mean square."""
        return lf.theory.near_truth_threshold(
            Growth.eta, dim=self.dim, rank=self.rank, n_clients=self.n_clients, participants=self.participants
        )

    def run(self) -> dict[str, Any]:
        """Return the measured and the predicted threshold."""
        return {**self.search.run(), "law": self.law}


def cells(quick: bool) -> dict[str, list[Threshold]]:
    """Return the searches; quick: the first of them, with few trials."""
    trials = 8 if quick else 32
    return {"near": [Threshold(**sizes, trials=trials) for sizes in SETTINGS[: 1 if quick else None]]}


def participants(row: lf.Table) -> int:
    """Return the number of participants in a round."""
    return int(row["participants"] or row["n_clients"])


def over_predicted(row: lf.Table) -> tuple[float, float, float]:
    """Return the measured threshold divided by the predicted one, with its interval over trials."""
    low, high = replicates_interval(row["replicates"])
    return row["crossing"] / row["law"], low / row["law"], high / row["law"]


CLAIMS = (
    c.Claim(
        "Near B* angles neither grow nor shrink at p m = (d-k+1) k / (7 + k/m), with a further term if p < n",
        c.OWN_PREDICTION.adding(f"the range is {c.OWN_THRESHOLD}"),
        c.measured(
            "m at which the angles of single runs neither grow nor shrink, divided by the predicted one", over_predicted
        ),
        c.within(*RANGE),
        over=c.each_row,
        setting=lambda row: f"n = {row['n_clients']}, p = {participants(row)}, d = {row['dim']:,}, k = {row['rank']}",
        detail=lambda row: f"{row['crossing']:.2f} against {row['law']:.2f}",
    ),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the measured thresholds divided by the predicted ones."""
    table = tables["near"]
    with lf.panels(table, height=2.6) as sheet:
        ax = sheet.axes[0, 0]
        intervals(ax, range(len(table)), [over_predicted(row) for row in table], "FedRep")
        ax.axhspan(*RANGE, color="0.9")
        ax.axhline(1.0, color="black", linewidth=0.7, linestyle=":")
        labels = [
            f"n = {row['n_clients']}\np = {participants(row)}\nd = {row['dim']:,}\nk = {row['rank']}" for row in table
        ]
        ax.set_xticks(range(len(table)), labels)
        sheet.label("", "threshold near B*,\nmeasured / predicted", ylim=(0.96, 1.04))
    return {"": sheet.figure}
