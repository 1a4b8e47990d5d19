"""Where the predicted minimum on fixed samples holds: over clients, samples, noise and condition number of the heads.

n clients have one fixed data set of m samples each. L-BFGS (`linfed.BurerMonteiro`) minimises the empirical risk from a
start near B*. FedRep with exact heads converges to the same stationary points. `linfed.theory.fixed_sample_floor`
predicts the distance of this minimum from B* without a fitted parameter. It declares where it ends: at a replicon
radius of 0.9, or where its equations have no solution. Each setting has its own heads, and its trials are data sets.

The numbers of clients follow from the equations per unknown without noise, ``n (m-k)/(k (d-k))``. The simplest rivals
are the prediction of first order (`linfed.theory.similar_floor` without parts outside), and two equations per unknown
as the range. Which starts reach the minimum is the question of `experiments.fedrep_recovery`.

**Deviations**: all sizes are ours, and so are all claims. Without a solution L-BFGS has a quarter of the iterations. It
can then stop before it has converged.

Figures
-------
"" : Measured distance divided by the predicted one, for each number of clients and of samples (mean over trials).
    Crosses: the equations have no solution. Line: a replicon radius of 0.9, at which the prediction declares its end;
    it holds to the right.
"radius" : The same ratio against the replicon radius, with 95 % intervals. Shaded: within 10 %; vertical line: 0.9.

References: Tripuraneni, Jin and Jordan 2021; Du, Hu, Kakade, Lee and Lei 2021, for rates without constants.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize

import linfed as lf
from linfed._types import Array
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures
from linfed.statistics import judge_share
from linfed.statistics.findings import OWN_CONJECTURE, OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import mean_interval

SUMMARY = "the range of the predicted minimum on fixed samples, over n, m, noise and the condition number of the heads"
PICTURES = {"": 2070}
REDUCED = {"points": {"without": ("gradient",)}}

STABLE, MEAN, NEAR, FAR = 0.9, 1.05, 1.1, 0.3
"""Largest replicon radius, claimed factors of the mean and of each setting, and claimed distance without a solution."""

CONJECTURE = OWN_CONJECTURE.adding(OWN_THRESHOLD)
OWN = OWN_PREDICTION.adding(f"the numbers are {OWN_THRESHOLD}s")


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
        sizes: dict[str, Any] = {"n_clients": n_clients, "dim": self.dim, "rank": self.rank}
        problem = lf.SharedRepresentation(**sizes, condition_number=self.condition_number)
        return problem.truth(self.seed, [0])

    def predicted(self, W: Array) -> tuple[lf.theory.FixedSampleFloor, lf.theory.SimilarFloor]:
        """Return the prediction for the heads W, and the one of first order."""
        sizes: dict[str, Any] = {"dim": self.dim, "n_samples": self.n_samples, "noise_std": self.noise_std}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # beyond the ranges
            return lf.theory.fixed_sample_floor(W, **sizes), lf.theory.similar_floor(W, np.zeros(len(W)), **sizes)


@dataclass(frozen=True, kw_only=True)
class Point(Setting):
    """The minimum of several data sets of the same clients."""

    per_unknown: float = 4.0
    trials: int = 12
    iterations: int = 2000

    @property
    def n_clients(self) -> int:
        """Number of clients for the given number of equations per unknown."""
        return max(self.rank, round(self.per_unknown * self.rank * (self.dim - self.rank) / self.spare))

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.n_clients * self.n_samples * self.dim

    def run(self) -> dict[str, Any]:
        """Return the distances and the relative gradients at the end, and the predictions."""
        truth = self.truth(self.n_clients)
        law, first = self.predicted(truth.W[0])
        given = lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=self.noise_std)
        data = lf.FixedSamples(self.n_samples).draw(given, trials=self.trials, seed=self.seed)
        iterations = self.iterations if np.isfinite(law.distance) else max(1, self.iterations // 4)
        init = lf.AtDistance(0.1)
        minimiser = lf.BurerMonteiro(rank=self.rank, init=init, iterations=iterations, tolerance=1e-8)
        run: dict[str, Any] = {"data": data, "rounds": 1, "trials": self.trials, "seed": self.seed}
        found = lf.simulate(minimiser, given, metrics=["subspace_distance"], **run)
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
    axes: dict[str, Any] = {
        "dim, rank": [(24, 3), (50, 2)],
        "noise_std": (0.2, 0.5, 1.0),
        "condition_number": (1.0, 4.0),
        "spare": (2, 4, 10, 30),
    }
    base = Point()
    shares: tuple[float, ...] = (1.3, 2.0, 4.0, 8.0, 16.0)
    if quick:
        base, shares = replace(base, trials=8, iterations=300), (1.5, 4.0, 8.0, 16.0)
        axes |= {"dim, rank": [(24, 2)], "noise_std": (0.3, 0.6), "condition_number": (1.0, 3.0), "spare": (4, 8, 16)}
    points = lf.grid(base, **axes, per_unknown=shares)
    ends = lf.grid(End(most=1000, tolerance=0.3) if quick else End(), **axes)
    return {"points": [replace(one, seed=turn) for turn, one in enumerate(points)], "ends": ends}


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the map of the ratios with the end of the range, and the ratios against the replicon radius."""
    return {"": chart(tables), "radius": against_radius(tables["points"])}


def chart(tables: dict[str, lf.Table]) -> Any:
    """Draw a panel for each noise, and for each dimension and condition number of the heads."""
    table, ends = lf.Table([with_title(row) for row in tables["points"].rows]), tables["ends"]
    colours: dict[str, Any] = {
        "cmap": "RdBu_r",
        "vmin": -0.2,
        "vmax": 0.2,
        "edgecolors": "0.4",
        "linewidths": 0.4,
        "s": 26,
    }
    shape: dict[str, Any] = {"column": "heads", "row": "noise_std", "title": "{}", "sharex": "col", "sharey": "col"}
    with lf.panels(table, height=1.2 + 1.4 * len(table.unique("noise_std")), **shape) as sheet:
        for ax, part in sheet:
            n, m = (np.array([row[name] for row in part.rows]) for name in ("n_clients", "n_samples"))
            ratio = np.array([mean_ratio(row) for row in part.rows])
            lost = np.isnan(ratio)
            ax.plot(n[lost], m[lost], "x", color="0.4", markersize=4, label="no solution")
            drawn = ax.scatter(n[~lost], m[~lost], c=ratio[~lost] - 1.0, zorder=3, **colours)
            same = {name: part.rows[0][name] for name in ("dim", "rank", "noise_std", "condition_number")}
            edge = sorted(((row["n_samples"], row["end"]) for row in ends.select(**same).rows), reverse=True)
            ax.plot([one for _, one in edge], [m for m, _ in edge], color="black", label=f"radius {STABLE:g}")
        noise = [f"m (noise {one:g})" for one in table.unique("noise_std")]
        sheet.label("clients n", *noise, xscale="log", yscale="log")
        bar = sheet.figure.colorbar(drawn, ax=sheet.axes, shrink=0.6, label="measured / predicted, minus 1")
        bar.outline.set_linewidth(0.4)
        sheet.legend()
    return sheet.figure


def with_title(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the title of its column of panels."""
    return row | {"heads": f"d = {row['dim']}, k = {row['rank']}, $\\kappa$ = {row['condition_number']:g}"}


def mean_ratio(row: dict[str, Any], name: str = "law") -> float:
    """Return the mean measured distance divided by a predicted one."""
    return float(np.mean(row["distance"]) / row[name])


def against_radius(table: lf.Table) -> Any:
    """Draw the ratios of all settings with a solution against their replicon radius."""
    table = lf.Table([row for row in table.rows if np.isfinite(row["law"])])
    with lf.panels(table, column="dim", title="d = {}", height=2.6, sharey=True) as sheet:
        for ax, part in sheet:
            ax.axhspan(1 / NEAR, NEAR, color="0.92", zorder=0)
            ax.axvline(STABLE, color="black", linewidth=0.8)
            for turn, (noise, rows) in enumerate(part.groupby("noise_std")):
                colour, marker, _ = KINDS[turn]
                middle, low, high = np.transpose([mean_interval(row["distance"] / row["law"]) for row in rows.rows])
                x = [row["radius"] for row in rows.rows]
                look: dict[str, Any] = {
                    "color": colour,
                    "marker": marker,
                    "markerfacecolor": "none",
                    "linestyle": "none",
                }
                ax.errorbar(
                    x, middle, yerr=[middle - low, high - middle], elinewidth=0.5, label=f"noise {noise:g}", **look
                )
        sheet.label("replicon radius", "measured / predicted", xscale="log")
        sheet.legend(f"mean of {table.rows[0]['trials']} data sets")
    return sheet.figure


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the predicted distances inside the declared range and beyond, and the simplest rivals."""
    table, out = tables["points"], []
    for (dim, noise), part in table.groupby("dim", "noise_std"):
        rows = [row for row in part.rows if row["radius"] <= STABLE]
        where = f"d = {dim}, k = {part.rows[0]['rank']}, noise std {noise:g}"
        if len(rows) > 1:
            out += [*means(rows, where)]
    return [*out, *shares(table.rows), *beyond(table.rows)]


def means(rows: list[dict[str, Any]], where: str) -> Iterator[Finding]:
    """Judge the mean ratio over the settings inside the declared range."""
    fields: dict[str, Any] = {"setting": f"{where}, radius at most {STABLE:g}", "source": OWN}
    fields |= {"statistic": "measured distance divided by the predicted one, mean over settings"}
    for name, text in (("law", "the predicted distance"), ("first", "the distance of first order")):
        ratios = [mean_ratio(row, name) for row in rows]
        yield judge(
            mean_interval(ratios),
            claim=f"Inside the declared range, the minimum is at {text}, on average",
            detail=f"{len(rows)} settings, from {min(ratios):.2f} to {max(ratios):.2f}",
            claimed_low=1 / MEAN,
            claimed_high=MEAN,
            **fields,
        )


def near(row: dict[str, Any], name: str = "law") -> bool:
    """Return whether the mean distance is within the claimed factor of a predicted one; False without a solution."""
    return bool(1 / NEAR <= mean_ratio(row, name) <= NEAR)


def shares(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    """Judge the share of settings at the predicted distance, inside the declared range and by simpler rules."""
    fields: dict[str, Any] = {"statistic": f"share of settings with a mean distance within a factor of {NEAR:g}"}
    fields |= {"claimed_low": 0.9, "source": OWN}
    inside = [row for row in rows if row["radius"] <= STABLE]
    enough = [row for row in rows if row["per_unknown"] >= 2.0]
    left = max((float(row["gradient"].max()) for row in inside), default=math.nan)
    note = f"largest relative gradient at the end {left:.1g}"
    for text, name, chosen in (
        ("Inside the declared range, the minimum is at the predicted distance", "law", inside),
        ("Inside the declared range, the minimum is at the distance of first order", "first", inside),
        ("With two equations per unknown, the minimum is at the predicted distance", "law", enough),
    ):
        hits = [near(row, name) for row in chosen]
        yield judge_share(hits, setting=f"{len(chosen)} settings", claim=text, note=note, **fields)


def beyond(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    """Judge how far off the prediction is beyond its declared range, and where the minimum is without a solution."""
    outside = [row for row in rows if row["radius"] > STABLE]
    if outside:
        ratios, radii = [mean_ratio(row) for row in outside], [row["radius"] for row in outside]
        yield judge(
            mean_interval(ratios),
            claim="Beyond the declared range, the minimum is nearer to B* than predicted, on average",
            setting=f"{len(outside)} settings with a solution",
            statistic="measured distance divided by the predicted one, mean over settings",
            detail=f"from {min(ratios):.2f} to {max(ratios):.2f}, radius up to {max(radii):.2g}",
            source=CONJECTURE,
            claimed_high=1.0,
            strict=True,
        )
    lost = [row for row in rows if np.isnan(row["law"])]
    if lost:
        yield judge_share(
            [float(np.mean(row["distance"])) >= FAR for row in lost],
            0.9,
            claim=f"Without a solution, the minimum is at a distance of at least {FAR:g}",
            setting=f"{len(lost)} settings",
            statistic="share of settings by their mean distance",
            source=CONJECTURE,
        )
