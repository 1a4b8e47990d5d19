"""FedRep paper, Theorem 1: the m that it requires at the sizes of the paper's figures, and for its own probability.

The paper's figures have m = 5 to 20 samples. The m of the theorem is computed with C = 1, from the heads of each trial
over the sets of participants that occur, and over searched sets; B starts at random or at distance 0.5.

The theorem's failure probability, below 1e-29 for two or more participants, is too small for trials to measure. For the
first round and k = 1 it is computed by importance sampling.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1; section 5.1 for the figures' sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures, bars
from linfed.statistics.intervals import Measured
from linfed.theory.fedrep.theorem1 import bound, tail

from ._theorem1 import RIVAL, THEOREM, Setting

SUMMARY = "FedRep paper, Theorem 1: the m that it requires at the sizes of the figures, and for its probability"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "The m that Theorem 1 requires with C = 1 at the sizes of the paper's figures, from a random B and from "
    "distance 0.5, and the m of the figures. Markers: median over trials; bars: 10-90 %. With one participant and two "
    "directions no m is sufficient.",
}

TAILS = ((2, 4), (2, 10), (2, 50), (5, 10), (10, 10), (10, 50), (20, 50))
"""Clients and dimensions of the first rounds."""


@dataclass(frozen=True, kw_only=True)
class Sizes(Setting):
    """A figure of the paper, and the m that the theorem would require there."""

    name: str = lf.choice(("1", "3", "4"), "3", label=True)
    n_clients: int = 100
    dim: int = 10
    m: int = 5
    participation: float = 0.1
    condition: float | None = None
    n_rounds: int = 200
    trials: int = 20

    def run(self) -> dict[str, Any]:
        """Return the theorem's m with C = 1, for sets that occur and for searched sets, from two initial distances."""
        problem = self.problem()
        smallest, largest = self.singular_values(problem)
        W = problem.truth(self.seed, range(self.trials)).W
        lowest, highest = bound.searched_singular_values(W, self.participants)
        random = lf.simulate(
            lf.FedRep(rank=self.rank, step_size=0.1, init="random"),
            problem,
            data=lf.FreshSamples(self.m),
            participation=self.participation,
            n_rounds=0,
            trials=self.trials,
            seed=self.seed,
            metrics=["subspace_distance"],
        ).metrics["subspace_distance"][:, 0]
        half = np.full(self.trials, 0.5)
        with np.errstate(divide="ignore"):
            seen, searched = largest / smallest, highest / lowest
        return {
            "participants": self.participants,
            "needed_random": self.needed(seen, random),
            "needed_half": self.needed(seen, half),
            "needed_random_searched": self.needed(searched, random),
            "needed_half_searched": self.needed(searched, half),
        }


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The m at which the first round has the failure probability that the theorem allows (k = 1, exact)."""

    n_clients: int = 2
    dim: int = 4
    start: float = 0.5
    draws: int = 8000

    def run(self) -> dict[str, Any]:
        """Return the smallest m, by bisection, and the theorem's; the interval covers only the importance sampling."""
        d, p = self.dim, self.n_clients
        needed = float(bound.fedrep_least_samples(dim=d, rank=1, participants=p, condition=1.0, start=self.start))
        allowed = -100.0 * min(math.log(p), d)

        def excess(m: int) -> tuple[float, float]:
            found, error = tail.first_round_failure(
                dim=d, participants=p, start=self.start, n_samples=m, draws=self.draws
            )
            return found - allowed, error

        low, high = 2, 4
        while excess(high)[0] > 0.0:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if excess(middle)[0] > 0.0 else (low, middle)
        margin = 2.0 * excess(low)[1] * high / -allowed  # two standard errors of the logarithm, in samples
        return {
            "rank": 1,
            "log_allowed": allowed,
            "needed": needed,
            "least": float(high),
            "least_low": float(low - margin),
            "least_high": float(high + margin),
        }


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the first rounds and the paper's sizes; quick: a few of each."""
    figures = [("3", n, 10, 5, 0.1) for n in (10, 100, 1000, 10_000)]
    figures += [("1", 100, 20, 5, 1.0), ("1", 100, 20, 20, 1.0), ("4", 100, 20, 10, 0.1)]
    return {
        "tail": lf.grid(Tail(draws=500 if quick else 8000), **{"n_clients, dim": TAILS[: 1 if quick else None]}),
        "sizes": lf.grid(Sizes(), **{"name, n_clients, dim, m, participation": figures[: 2 if quick else None]}),
    }


def constant(row: lf.Table) -> Measured:
    """Return the smallest constant with which a first round fails no more often, and its interval."""
    return row["least"] / row["needed"], max(row["least_low"], 1.0) / row["needed"], row["least_high"] / row["needed"]


def enough(start: str, text: str) -> c.Claim:
    """Return the claim that the paper's figures have enough samples for Theorem 1, from one initial distance."""

    def detail(row: lf.Table) -> str:
        needed, searched = (np.median(row[f"needed_{start}{name}"]) for name in ("", "_searched"))
        return f"m = {needed:.3g}; over searched sets {searched:.3g}"

    return c.Claim(
        "The paper's figures have at least the m that Theorem 1 requires with C = 1",
        c.OWN_THRESHOLD,
        c.median(
            lambda row: row[f"needed_{start}"] / row["m"],
            "m of the theorem divided by m of the figure, median over trials",
            c.at_most(1.0),
        ),
        table="sizes",
        over=c.each_row,
        setting=f"Figure {{name}}: n = {{n_clients:,}}, p = {{participants:,}}, m = {{m}}, {text}",
        detail=detail,
    )


ASKS = c.cite("FedRep paper, Theorem 1", "Suppose that m >= c(kappa^4 k^3 log(rn)/E0^2 + kappa^4 k^2 d/(E0^2 rn))")
CLAIMS = (
    c.Claim(
        "C = 1 is sufficient for the theorem's failure probability in the first round, k = 1",
        c.OWN_THRESHOLD.adding(f"the 1 is in place of the unnamed c in {ASKS}", ": ").adding(
            f"the distribution of the first round is {c.OWN_PREDICTION}"
        ),
        c.measured(
            "smallest constant with which a first round fails no more often, by importance sampling",
            constant,
            c.at_most(1.0),
        ),
        table="tail",
        over=c.each_row,
        setting="p = {n_clients}, d = {dim}, dist_0 = {start:g}",
        detail=lambda row: f"m = {row['least']:g} of {row['needed']:.3g} for exp({row['log_allowed']:.0f})",
    ),
    enough("random", "random B"),
    enough("half", "distance 0.5"),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the m that the theorem requires, and the m of the figures."""
    table = tables["sizes"]
    with lf.panels(table, height=2.6) as sheet:
        ax = sheet.axes[0, 0]
        for start, look, text in (("random", THEOREM, "random B"), ("half", RIVAL, "distance 0.5")):
            needed = c.stacked(table, f"needed_{start}")
            finite = np.isfinite(needed).all(axis=0)
            bars(ax, np.flatnonzero(finite), needed[:, finite], look, label=f"Theorem 1, {text}", linestyle="none")
        ax.plot([row["m"] for row in table], "_", color="black", markersize=12, label="m of the figure")
        sizes = [
            f"Figure {row['name']}\nn = {row['n_clients']:,}\np = {row['participants']:,}\nm = {row['m']}"
            for row in table
        ]
        ax.set_xticks(range(len(table)), sizes)
        sheet.label("", "samples m", yscale="log")
        sheet.legend(ncols=3)
    return {"": sheet.figure}
