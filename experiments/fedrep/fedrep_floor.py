"""Where the predicted minimum on fixed samples holds: over clients, samples, noise and condition number of the heads.

n clients have one fixed data set of m samples each. L-BFGS (`linfed.BurerMonteiro`) minimises the empirical risk from a
start near B*. FedRep with exact heads converges to the same stationary points. `linfed.theory.fixed_sample_floor`
predicts the distance of this minimum from B* without a fitted parameter. It declares where it ends: at a replicon
radius of 0.9, or where its equations have no solution. Each setting has its own heads, and its trials are data sets.

The numbers of clients follow from the equations per unknown without noise, ``n (m-k)/(k (d-k))``. The simplest
competitors are the prediction of first order (`linfed.theory.similar_floor` without parts outside), and two equations
per unknown as the range. Which starts reach the minimum is the question of `experiments.fedrep.fedrep_recovery`.

**Deviations**: all sizes are ours, and so are all claims. Without a solution L-BFGS has a quarter of the iterations. It
can then stop before it has converged.

References: Tripuraneni, Jin and Jordan 2021; Du, Hu, Kakade, Lee and Lei 2021, for rates without constants.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures, intervals
from linfed.statistics.intervals import Measured, mean_interval

SUMMARY = "the range of the predicted minimum on fixed samples, over n, m, noise and the condition number of the heads"
PICTURES = {"": 2070}
CAPTIONS = {
    "": "Measured subspace distance divided by the predicted one, for each number of clients and of samples (mean over "
    "trials). Crosses: the equations have no solution. Line: a replicon radius of 0.9, at which the prediction "
    "declares its end; it holds to the right.",
    "radius": "The same ratio against the replicon radius, with 95 % intervals. Shaded: within 10 %; vertical line: "
    "0.9.",
}
REDUCED = {"points": {"without": ("gradient",)}}

STABLE, MEAN, NEAR, FAR = 0.9, 1.05, 1.1, 0.3
"""Largest replicon radius, claimed factors of the mean and of each setting, and claimed distance without a solution."""
WITHOUT_SOLUTION = 0.25
"""Share of the iterations that L-BFGS has in a setting whose equations have no solution."""

CONJECTURE = c.OWN_CONJECTURE.adding(c.OWN_THRESHOLD)
OWN = c.OWN_PREDICTION.adding(f"the numbers are {c.OWN_THRESHOLD}s")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes, noise, and the condition number of the heads."""

    dim: int = 24
    rank: int = 3
    noise_std: float = 0.5
    condition_number: float = 1.0
    spare: int = 4
    seed: int = 0

    @property
    def n_samples(self) -> int:
        """Number of samples m, `spare` more than columns."""
        return self.rank + self.spare

    def truth(self, n_clients: int) -> Any:
        """Return one ground truth with n clients."""
        problem = lf.SharedRepresentation(
            n_clients=n_clients, dim=self.dim, rank=self.rank, condition_number=self.condition_number
        )
        return problem.truth(self.seed, [0])

    def predicted(self, W: Array) -> tuple[lf.theory.FixedSampleFloor, lf.theory.SimilarFloor]:
        """Return the prediction for the heads W, and the one of first order."""
        d, m, sigma = self.dim, self.n_samples, self.noise_std
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # beyond the range
            law = lf.theory.fixed_sample_floor(W, dim=d, n_samples=m, noise_std=sigma)
            return law, lf.theory.similar_floor(W, np.zeros(len(W)), dim=d, n_samples=m, noise_std=sigma)


@dataclass(frozen=True, kw_only=True)
class Point(Setting):
    """The minimum of several data sets of the same clients; L-BFGS has fewer iterations `WITHOUT_SOLUTION`."""

    per_unknown: float = 4.0
    trials: int = 12
    iterations: int = 2000

    @property
    def n_clients(self) -> int:
        """Number of clients for the given number of equations per unknown."""
        return max(self.rank, round(self.per_unknown * self.rank * (self.dim - self.rank) / self.spare))

    def run(self) -> dict[str, Any]:
        """Return the distances and the relative gradients at the end, and the predictions."""
        truth = self.truth(self.n_clients)
        law, first = self.predicted(truth.W[0])
        given = lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=self.noise_std)
        data = lf.FixedSamples(self.n_samples).draw(given, trials=self.trials, seed=self.seed)
        iterations = self.iterations if np.isfinite(law.distance) else math.ceil(WITHOUT_SOLUTION * self.iterations)
        found = lf.simulate(
            lf.BurerMonteiro(rank=self.rank, init=lf.AtDistance(0.1), iterations=iterations, tolerance=1e-8),
            given,
            data=data,
            n_rounds=1,
            trials=self.trials,
            seed=self.seed,
            metrics=["subspace_distance"],
        )
        B = found.final.B
        assert B is not None
        return {
            "n_clients": self.n_clients,
            "n_samples": self.n_samples,
            "distance": found.metrics["subspace_distance"][:, -1],
            "gradient": lf.theory.at_exact_heads(data, B).gradient,
            "law": float(law.distance),
            "radius": float(law.replicon),
            "first": float(first.distance),
        }


@dataclass(frozen=True, kw_only=True)
class End(Setting):
    """Number of clients at which the replicon radius is 0.9."""

    most: int = 4000
    tolerance: float = 0.03

    def run(self) -> dict[str, Any]:
        """Return the number of clients, found by bisection; NaN if `most` clients are not enough."""

        def excess(size: float) -> float:
            radius = float(self.predicted(self.truth(round(math.exp(size))).W[0])[0].replicon)
            return 1.0 if math.isnan(radius) else radius - STABLE

        low, high = math.log(self.rank), math.log(self.most)
        if excess(high) > 0:
            found = math.nan
        else:
            found = low if excess(low) <= 0 else optimize.bisect(excess, low, high, xtol=self.tolerance)
        return {"n_samples": self.n_samples, "end": math.exp(found)}


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the points of the map, and the ends of the range; quick: few settings and trials."""
    shares: tuple[float, ...] = (1.5, 4.0, 8.0, 16.0) if quick else (1.3, 2.0, 4.0, 8.0, 16.0)
    base = Point(trials=8, iterations=300) if quick else Point()
    end, axes = (End(most=1000, tolerance=0.3), QUICK_AXES) if quick else (End(), AXES)
    points = lf.grid(base, **axes, per_unknown=shares)
    return {"points": [replace(one, seed=turn) for turn, one in enumerate(points)], "ends": lf.grid(end, **axes)}


AXES: dict[str, Any] = {
    "dim, rank": ((24, 3), (50, 2)),
    "noise_std": (0.2, 0.5, 1.0),
    "condition_number": (1.0, 4.0),
    "spare": (2, 4, 10, 30),
}
QUICK_AXES: dict[str, Any] = {
    "dim, rank": ((24, 2),),
    "noise_std": (0.3, 0.6),
    "condition_number": (1.0, 3.0),
    "spare": (4, 8, 16),
}
"""Settings of the map, in a full and in a quick run."""


# --- claims --------------------------------------------------------------------------------------------------


def inside(row: lf.Table) -> bool:
    """Return whether a setting lies inside the declared range of the prediction."""
    return bool(row["radius"] <= STABLE)


def ratios(part: lf.Table, law: str = "law") -> list[float]:
    """Return for each setting the mean measured distance divided by a predicted one."""
    return [float(np.mean(row["distance"]) / row[law]) for row in part]


def average(law: str, required: c.Range) -> c.Statistic:
    """Return the mean over settings of the distance divided by a predicted one; one setting does not suffice."""

    def measure(part: lf.Table) -> Measured | None:
        return mean_interval(ratios(part, law)) if len(part) > 1 else None

    return c.measured("measured distance divided by the predicted one, mean over settings", measure, required)


def near(law: str) -> c.Statistic:
    """Return the share of settings whose mean distance is within the claimed factor of a predicted one."""
    words = f"share of settings with a mean distance within a factor of {NEAR:g}"
    return c.share(lambda part: [1 / NEAR <= ratio <= NEAR for ratio in ratios(part, law)], words, c.above(0.9))


def spread(part: lf.Table, law: str = "law") -> str:
    """Return the number of settings, and the range of their ratios."""
    found = ratios(part, law)
    return f"{len(found)} settings, from {min(found):.2f} to {max(found):.2f}"


def converged(part: lf.Table) -> str:
    """Return a note on the largest relative gradient inside the declared range."""
    left = max((float(row["gradient"].max()) for row in part if inside(row)), default=math.nan)
    return f"largest relative gradient at the end (inside the range) {left:.1g}"


RANGES = "d = {dim}, k = {rank}, noise std {noise_std:g}, " + f"radius at most {STABLE:g}"
CLAIMS = (
    *(
        c.Claim(
            f"Inside the declared range, the minimum is at {words}, on average",
            OWN,
            average(law, c.within(1 / MEAN, MEAN)),
            where=c.only(inside),
            over=c.each("dim", "noise_std"),
            setting=RANGES,
            detail=partial(spread, law=law),
        )
        for law, words in (("law", "the predicted distance"), ("first", "the distance of first order"))
    ),
    *(
        c.Claim(sentence, OWN, near(law), where=c.only(where), setting="{points} settings", note=converged)
        for sentence, law, where in (
            ("Inside the declared range, the minimum is at the predicted distance", "law", inside),
            ("Inside the declared range, the minimum is at the distance of first order", "first", inside),
            (
                "With two equations per unknown, the minimum is at the predicted distance",
                "law",
                lambda row: row["per_unknown"] >= 2.0,
            ),
        )
    ),
    c.Claim(
        "Beyond the declared range, the minimum is nearer to B* than predicted, on average",
        CONJECTURE,
        average("law", c.below(1.0)),
        where=c.only(lambda row: row["radius"] > STABLE),
        setting="{points} settings with a solution",
        detail=lambda part: f"{spread(part).partition(', ')[2]}, radius up to {part['radius'].max():.2g}",
    ),
    c.Claim(
        f"Without a solution, L-BFGS ends at a distance of at least {FAR:g}",
        CONJECTURE,
        c.share(
            lambda part: [float(np.mean(row["distance"])) >= FAR for row in part],
            "share of settings by their mean distance",
            c.above(0.9),
        ),
        where=c.only(lambda row: np.isnan(row["law"])),
        setting="{points} settings",
    ),
)


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the map of the ratios with the end of the range, and the ratios against the replicon radius."""
    return {"": chart(tables["points"], tables["ends"]), "radius": against_radius(tables["points"])}


def chart(table: lf.Table, ends: lf.Table) -> Any:
    """Draw a panel for each noise, and for each dimension and condition number of the heads."""
    table = table.assign(heads=lambda row: HEADS.format(row["dim"], row["rank"], row["condition_number"]))
    height = 1.2 + 1.4 * len(table.unique("noise_std"))
    with lf.panels(
        table, column="heads", row="noise_std", title="{}", height=height, sharex="col", sharey="col"
    ) as sheet:
        for ax, part in sheet:
            n, m, ratio = part["n_clients"], part["n_samples"], np.array(ratios(part))
            lost = np.isnan(ratio)
            ax.plot(n[lost], m[lost], "x", color="0.4", markersize=4, label="no solution")
            drawn = ax.scatter(
                n[~lost], m[~lost], c=ratio[~lost] - 1.0, s=26, zorder=3, cmap="RdBu_r", vmin=-0.2, vmax=0.2
            )
            drawn.set(edgecolors="0.4", linewidths=0.4)
            same = {name: part.rows[0][name] for name in ("dim", "rank", "noise_std", "condition_number")}
            edge = sorted(((row["n_samples"], row["end"]) for row in ends.select(**same).rows), reverse=True)
            ax.plot([one for _, one in edge], [m for m, _ in edge], color="black", label="valid to the right")
        noise = [f"m (noise std {one:g})" for one in table.unique("noise_std")]
        sheet.label("clients n", *noise, xscale="log", yscale="log")
        bar = sheet.figure.colorbar(
            drawn, ax=sheet.axes, shrink=0.6, extend="both", label="measured / predicted, minus 1"
        )
        bar.outline.set_linewidth(0.4)
        sheet.legend()
    return sheet.figure


HEADS = "d = {}, k = {}, $\\kappa$ = {:g}"
"""Title of a column of panels."""


def against_radius(table: lf.Table) -> Any:
    """Draw the ratios of all settings with a solution against their replicon radius."""
    solved = c.only(lambda row: np.isfinite(row["law"]))(table)
    with lf.panels(solved, column="dim", title="d = {}", height=2.6, sharey=True) as sheet:
        for ax, part in sheet:
            ax.axhspan(1 / NEAR, NEAR, color="0.92", zorder=0)
            ax.axvline(STABLE, color="black", linewidth=0.8)
            for look, (noise, rows) in zip(KINDS, part.groupby("noise_std"), strict=False):
                found = [mean_interval(row["distance"] / row["law"]) for row in rows]
                x, text = [row["radius"] for row in rows], f"noise std {noise:g}"
                intervals(ax, x, found, look, label=text, elinewidth=0.5, capsize=0, markerfacecolor="none")
        sheet.label("replicon radius", "measured / predicted", xscale="log")
        sheet.legend(f"mean of {table.rows[0]['trials']} data sets")
    return sheet.figure
