"""FedRep paper, section 1: how many samples a new client needs for its head on a perfect representation.

The new client is given B*, and its regressor has length 1. The experiment asks for the smallest number of samples with
which half of the runs have a squared error ``||theta - phi||^2``, twice the excess risk, of at most eps. Exact heads
are fitted without noise, and with noise of standard deviation 0.5; a run is the mean over 200 new clients. Their mean
excess risk is ``k sigma^2 / (2 (m - k - 1))``, so that ``m = k + 1 + k sigma^2 / eps`` samples are needed with noise,
and m = k without, for every eps. With k - 1 samples the mean error is 1/k.

The paper counts ``k log(1/eps)`` samples. That is the count of a third protocol, without noise: gradient steps on the
head, each on a fresh batch of k + 1 samples. Their step size, 1/2, is the best one in mean square. A run is then one
new client, because rare clients rule the mean.

**Deviations**: the paper's model has no noise, its experiments have. Sizes and thresholds are ours.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, sections 1 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.cells.smallest_size import SmallestSize
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures, draw_predicted, intervals
from linfed.statistics.crossings import replicates_interval
from linfed.statistics.intervals import Measured, as_factor

from ..shared.smallest_judged import over

SUMMARY = "FedRep paper, section 1: samples that a new client needs on a perfect representation, against the accuracy"
PICTURES = {"": 1400}
REDUCED = {"samples": {"without": ("shortfall", "reached", "count")}}
CAPTIONS = {
    "": "Smallest number of samples of a new client with which half of the runs have a squared error of at most eps, "
    "on a perfect representation. Bars: 95 % intervals. Dotted: k + 1 + k sigma^2/eps, and k without noise. Dashed: "
    "k log(1/eps).",
}

EXACT, NOISY, FRESH = "exact head, no noise", "exact head, noise", "a fresh batch each step"
ACCURACIES = {EXACT: (1e-1, 1e-2, 1e-4, 1e-8), NOISY: (0.03, 0.01, 0.003, 0.001), FRESH: (1e-1, 1e-2, 1e-4, 1e-8)}
STILL = 1e-12
"""Step size for B, which stays at B*."""


@dataclass(frozen=True, kw_only=True)
class NewClient:
    """Search for the smallest number of samples of a new client on B*."""

    how: str = lf.choice(tuple(ACCURACIES), EXACT)
    rank: int = 2
    eps: float = 0.1
    noise_std: float = 0.0
    n_clients: int = 200
    dim: int = 20
    trials: int = 32
    seed: int = 0

    divides = True
    keeps_parts = True

    @property
    def batch(self) -> int:
        """Number of samples for each unit of the search: of a gradient step, or one."""
        return self.rank + 1 if self.how == FRESH else 1

    def run(self) -> dict[str, Any]:
        """Return the result of `lf.find_smallest`, the size of a batch and the predicted number of samples."""
        fresh, k = self.how == FRESH, self.rank
        heads = lf.GradientHeads(steps=1, step_size=0.5)
        run = lf.Run(
            algorithm=lf.FedRep(rank=k, step_size=STILL, init=lf.AtDistance(0.0), heads=heads)
            if fresh
            else lf.Oracle(rank=k),
            problem=lf.SharedRepresentation(
                n_clients=self.n_clients, dim=self.dim, rank=k, noise_std=self.noise_std, head_norm=1.0
            ),
            data=lf.FreshSamples(self.batch) if fresh else lf.FixedSamples(2 * k),
            n_rounds=200 if fresh else 1,
            seed=(self.seed, k),
        )
        level = lf.below("risk", 0.5 * (self.eps + self.noise_std**2))
        path = "round" if fresh else "data.n_samples"
        found = SmallestSize(base=run, path=path, reaches=level, upper=None if fresh else 2**14, trials=self.trials)
        law = k + 1 + k * self.noise_std**2 / self.eps if self.noise_std else float(k)
        return {**found.run(), "batch": self.batch, "law": math.nan if fresh else law}


def cells(quick: bool) -> dict[str, list[NewClient]]:
    """Return the searches; quick: two ranks and two accuracies."""
    base, ranks = (NewClient(trials=8, n_clients=100, dim=10), (2, 5)) if quick else (NewClient(), (2, 5, 10))
    bases = {EXACT: base, NOISY: replace(base, noise_std=0.5), FRESH: replace(base, n_clients=1)}
    grids = [
        lf.grid(replace(one, how=how), rank=ranks, eps=ACCURACIES[how][:: 3 if quick else 1])
        for how, one in bases.items()
    ]
    return {"samples": [cell for grid in grids for cell in grid]}


# --- claims --------------------------------------------------------------------------------------------------

theta = partial(
    c.cite,
    "FedRep paper, section 1",
    "its sample complexity scales only as Theta(k log(1/[eps])) to have no more than [eps] error in accuracy",
)
FOUND = c.only(lambda row: not row["censored"])


def counted(row: lf.Table) -> Any:
    """Return the number of samples, and its replicates over trials, in whole samples or batches."""
    return row["batch"] * np.ceil(np.r_[row["crossing"], row["replicates"]] - 1e-9)


def power(size: Callable[[lf.Table], float], first: lf.Table, last: lf.Table) -> Measured:
    """Return the power of a size with which the number of samples grows between two rows."""
    found = np.log(counted(last) / counted(first)) / math.log(size(last) / size(first))
    return float(found[0]), *replicates_interval(found[1:])


def grows(size: Callable[[lf.Table], float], text: str, groups: c.Over, setting: str) -> list[c.Claim]:
    """Return claims on the power of a size with which the samples grow: from above, and from both sides."""
    return [
        c.Claim(
            f"A new client's samples grow {words} {text}",
            source.adding(f"the tolerance is {c.OWN_THRESHOLD}"),
            c.measured("power between the two ends", partial(power, size), required),
            where=(c.of(how=how), FOUND),
            over=groups,
            setting=setting,
        )
        for words, required in (("at most like", c.at_most(1.25)), ("like", c.near(1.0, 0.25)))
        for source, how in (
            (theta(), EXACT),
            (theta(asked_of="labels with noise"), NOISY),
            (theta(asked_of="a fresh batch each step"), FRESH),
        )
    ]


def digits(row: lf.Table) -> float:
    """Return log(1/eps)."""
    return -math.log(row["eps"])


def to_law(row: lf.Table, *, confidence: float = 0.95) -> Measured:
    """Return the factor between the smallest number of samples and the predicted one."""
    return as_factor(over(row, row["law"], confidence=confidence))


OF_EPS = c.ends("eps", c.each("how", "rank")), "{how}, k = {rank}, eps from {1[eps]:g} to {0[eps]:g}"
OF_K = c.ends("rank", c.each("how", "eps")), "{how}, eps = {eps:g}, k from {0[rank]} to {1[rank]}"
CLAIMS = (
    *grows(digits, "log(1/eps)", *OF_EPS),
    *grows(lambda row: row["rank"], "k", *OF_K),
    c.Claim(
        "With noise, m = k + 1 + k sigma^2/eps samples are needed: the mean excess risk is k sigma^2/(2 (m - k - 1))",
        c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}"),
        c.worst(to_law, lambda row: (row,), "k = {rank}, eps = {eps:g}, of {points} settings", "factor, worst setting"),
        c.at_most(1.1),
        where=(c.of(how=NOISY), FOUND),
    ),
    c.Claim(
        "Without noise, k samples suffice and k - 1 do not, for every tested eps below 1/k",
        c.OWN_PREDICTION.adding("an exact head solves k equations", ": "),
        c.identity(
            lambda row: abs(counted(row) - row["law"]), "largest difference from k, of all trials and of resamples", 0.0
        ),
        where=(c.of(how=EXACT), c.only(lambda row: row["eps"] < 1.0 / row["rank"])),
        over=c.each_row,
        setting="k = {rank}, eps = {eps:g}",
        detail=lambda row: f"one search with {row['trials']} trials, and {len(row['replicates'])} resamples of them",
        theorem=False,
    ),
)


# --- figure --------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the numbers of samples against the accuracy."""
    table = c.sorted_by("eps")(FOUND(tables["samples"]))
    with lf.panels(table, column="how", title="{}", height=2.7, sharey=True) as sheet:
        for ax, part in sheet:
            for look, (rank, rows) in zip(KINDS, sorted(part.groupby("rank"), key=lambda one: one[0]), strict=False):
                eps = np.array([row["eps"] for row in rows])
                ends = [[row["batch"] * row[name] for name in ("crossing", "low", "high")] for row in rows]
                intervals(ax, eps, np.ceil(ends), look, label=f"k = {rank}")
                ax.plot(eps, rank * np.log(1.0 / eps), "--", color=look[0], linewidth=0.8)
                draw_predicted(ax, eps, np.array([row["law"] for row in rows]))
            ax.set(xscale="log", yscale="log", xlabel="accuracy eps")
            ax.invert_xaxis()
        sheet.axes[0, 0].set_ylabel("samples of a new client")
        sheet.legend("dashed: k log(1/eps)", ncols=4)
    return {"": sheet.figure}
