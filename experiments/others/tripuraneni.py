"""Spectral and empirical-risk estimates of a shared representation, and new clients, in a published linear experiment.

The sizes are from the numbers that Tripuraneni, Jin and Jordan stored with their public notebook: d = 100 and k = 5.
Heads are N(0, I/k), the noise has standard deviation 1, and x is standard Gaussian. Either the samples per client grow,
for n = 20 and 5 clients, or the clients, for m = 25, 300 and 5 samples each. New clients fit a head on the learned
representation, with 50, 25, 1000 or 2500 samples.

The source has two estimators: the method of moments, and the minimum of the empirical risk (`linfed.BurerMonteiro` from
the moments). A plain competitor is the Gram matrix of local averages (`linfed.LocalGram`). The baseline of new clients
is least squares on their own samples. The predictions have no fitted parameter: `linfed.theory.spectral_floor`,
`linfed.theory.fixed_sample_floor`, and from their covariances the median error of new clients. The experiment
`fedrep-floor` judges the predicted distance of the minimum.

**Deviations**: 20 new clients per trial, where the source has one. With m = 300, the empirical risk is minimised for up
to 1600 clients. The source starts the minimiser at random. With m = k = 5 the empirical risk does not determine B, as
every B explains all samples. There L-BFGS keeps the moments, the source has other numbers, and no claim judges the
minimum.

References: Tripuraneni, Jin and Jordan 2021, "Provable meta-learning of linear representations".
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.plotting.panels import Figures, bars

SUMMARY = "a published experiment: moments, empirical risk and local averages against B*, and new clients"
PICTURES = {"": 2070, "samples": 1400}
CAPTIONS = {
    "": "Against the number of clients, for three numbers of samples each: subspace distance of the estimated "
    "representation, and length of the error of new clients' regressors. Markers: median over trials; bars: 10-90 %; "
    "lines: predictions; crosses: means that the source stored. With m = k = 5 the empirical risk does not determine "
    "B, and L-BFGS keeps the moments, from which it starts.",
    "samples": "The same against the samples of each client, for n = 20 and 5 clients.",
}

MOMENTS, RISK, AVERAGES, ALONE = "MethodOfMoments", "BurerMonteiro", "LocalGram", "LocalOnly"
ESTIMATORS = (MOMENTS, RISK, AVERAGES)
SPECTRAL = {MOMENTS: lf.MethodOfMoments, AVERAGES: lf.LocalGram}
NAMES = {MOMENTS: "moments", RISK: "empirical risk", AVERAGES: "local averages", ALONE: "no federation"}
LOOKS = {MOMENTS: ("#CC6677", "^", "-"), RISK: ("#332288", "o", "-"), AVERAGES: ("#44AA99", "s", "-")}
LOOKS[ALONE] = ("#888888", "D", "-")
STORED = {MOMENTS: "moments", RISK: "erm"}
"""Names of the source's estimators in its stored numbers."""

SIZES = (100, 200, 400, 800, 1600, 3200, 6400)


class Sizes(NamedTuple):
    """The growing size, the other one, the samples of a new client, and the trials: the source's repetitions.

    The empirical risk is minimised up to the size `risk_until`.
    """

    axis: str
    other: int
    new_samples: int
    trials: int
    risk_until: int = SIZES[-1]


SETS = {
    "m = 5": Sizes("clients", 5, 2500, 30),
    "m = 25": Sizes("clients", 25, 25, 30),
    "m = 300": Sizes("clients", 300, 1000, 10, risk_until=1600),
    "n = 20": Sizes("samples", 20, 50, 30),
    "n = 5": Sizes("samples", 5, 50, 10),
}
RATIO, RADIUS = 0.1, 0.9
"""Where the predictions are claimed: noise ratio of spectral estimates, and replicon radius of the minimum."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """All estimators on the same data sets, of one size."""

    set: str = lf.choice(SETS, label=True)
    n_clients: int
    n_samples: int
    new_samples: int
    dim: int = 100
    rank: int = 5
    trials: int = 30
    seed: int = 0

    @property
    def size(self) -> int:
        """The growing size."""
        return self.n_clients if SETS[self.set].axis == "clients" else self.n_samples

    def estimator(self, name: str) -> lf.Algorithm:
        """Return an estimator by name."""
        if name == RISK:
            return lf.BurerMonteiro(rank=self.rank, iterations=400, tolerance=1e-7)
        return SPECTRAL[name](rank=self.rank)

    def problem(self, clients: int, first: int, trials: int, stream: int) -> lf.GivenTruth:
        """Return ground truths with heads N(0, I/k); no result depends on the direction of B*."""
        sizes = (self.seed, self.n_clients, self.n_samples, first, stream)
        W = np.random.default_rng(sizes).standard_normal((trials, clients, self.rank)) / self.rank**0.5
        return lf.GivenTruth(B=np.eye(self.dim, self.rank), W=W, noise_std=1.0)

    def run(self) -> dict[str, Any]:
        """Return distances, errors of new clients and predictions, in blocks of trials that fit into memory."""
        block = max(1, min(self.trials, 10_000_000 // (self.n_clients * self.n_samples)))
        parts = [self.block(first, min(block, self.trials - first)) for first in range(0, self.trials, block)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def block(self, first: int, trials: int) -> dict[str, Any]:
        """Return the columns of one block of trials."""
        problem, new = (self.problem(*one) for one in ((self.n_clients, first, trials, 0), (20, first, trials, 1)))
        row: dict[str, Any] = {}

        def run(algorithm: lf.Algorithm, data: lf.FixedSamples | lf.FreshSamples, n_rounds: int) -> lf.Result:
            metrics = ["subspace_distance"] if n_rounds else []
            seed = (self.seed, first)
            return lf.simulate(
                algorithm, problem, data=data, n_rounds=n_rounds, trials=trials, metrics=metrics, seed=seed
            )

        def error(result: lf.Result) -> Array:
            return np.median(np.sqrt(2.0 * result.new_clients([self.new_samples], problem=new)[:, 0] - 1.0), axis=-1)

        for name in ESTIMATORS:
            if name == RISK and self.size > SETS[self.set].risk_until:
                row |= {name: np.full(trials, np.nan), f"{name} new": np.full(trials, np.nan)}
                continue
            result = run(self.estimator(name), lf.FixedSamples(self.n_samples), n_rounds=1)
            row |= {name: result.metrics["subspace_distance"][:, -1], f"{name} new": error(result)}
        row[f"{ALONE} new"] = error(run(lf.LocalOnly(), lf.FreshSamples(1), n_rounds=0))
        return row | self.predicted(np.asarray(problem.W), np.asarray(new.W))

    def predicted(self, W: Array, new: Array) -> dict[str, Any]:
        """Return each estimator's predicted distance and median error of new clients, NaN where it is not claimed."""
        row: dict[str, Any] = {f"{name} {what}": [] for name in ESTIMATORS for what in ("law", "new law")}
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # NaN beyond the range
            for heads, clients in zip(W, new, strict=True):
                for name in ESTIMATORS:
                    law = self._law(name, heads)
                    row[f"{name} law"].append(np.nan if law is None else float(law.distance))
                    row[f"{name} new law"].append(np.nan if law is None else self._new_error(law.outside(clients)))
        return {name: np.array(values) for name, values in row.items()}

    def _law(self, name: str, heads: Array) -> lf.theory.FixedSampleFloor | lf.theory.SpectralFloor | None:
        """Return the prediction of an estimator, None where it is not claimed."""
        d, m = self.dim, self.n_samples
        if self.n_clients < self.rank or (name == RISK and m < self.rank + 2):
            return None
        if name == RISK:
            minimum = lf.theory.fixed_sample_floor(heads, dim=d, n_samples=m, noise_std=1.0)
            return minimum if float(minimum.replicon) <= RADIUS else None
        found = lf.theory.spectral_floor(SPECTRAL[name](rank=self.rank), heads, dim=d, n_samples=m, noise_std=1.0)
        return found if found.ratio < RATIO else None

    def _new_error(self, outside: Array) -> float:
        """Return the median length of the error of new clients with these lengths outside the estimate."""
        excess = lf.theory.new_client_excess_quantile(
            0.5, outside, noise_std=1.0, rank=self.rank, n_samples=self.new_samples
        )
        return float(np.sqrt(2.0 * excess))


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points of all sets; quick: two sets with few sizes and trials."""
    chosen = {"m = 25": (400, 800), "n = 20": (400,)} if quick else dict.fromkeys(SETS, SIZES)
    points = []
    for name, sizes in chosen.items():
        one = SETS[name]
        trials = 6 if quick else one.trials
        for size in sizes:
            n, m = (size, one.other) if one.axis == "clients" else (one.other, size)
            points.append(Point(set=name, n_clients=n, n_samples=m, new_samples=one.new_samples, trials=trials))
    return {"points": points}


def stored() -> dict[str, dict[str, Any]]:
    """Return the numbers of the source by set."""
    text = Path(__file__).with_name("tripuraneni.json").read_text(encoding="utf-8")
    found = {}
    for one in json.loads(text)["sets"]:
        same_samples = len(set(one["samples"])) == 1
        found[f"m = {one['samples'][0]}" if same_samples else f"n = {one['clients'][0]}"] = one
    return found


# --- claims --------------------------------------------------------------------------------------------------


RATE = c.reading(
    "Tripuraneni, Jin and Jordan 2021, theorem on the method of moments: an upper bound of order (n m)^(-1/2)"
).adding(f"the range is {c.OWN_THRESHOLD}")
PREDICTED = c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}")
RANGES = {RISK: f"a replicon radius of {RADIUS}", MOMENTS: f"a ratio of {RATIO}", AVERAGES: f"a ratio of {RATIO}"}


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return the largest size of each set with the empirical risk, with the methods whose B the samples determine."""
    rows = []
    for name, part in tables["points"].groupby("set"):
        axis, run = SETS[name].axis, c.only(lambda row: np.isfinite(row[RISK]).all())(part)
        for row in c.largest(f"n_{axis}")(run).rows:
            at = {"set": name, "size": f"{axis} {row[f'n_{axis}']:,}"}
            names = [one for one in NAMES if one != RISK or row["n_samples"] > row["rank"]]
            rows += [at | {"method": one, "distance": row.get(one, np.nan), "new": row[f"{one} new"]} for one in names]
    return {"largest": lf.Table(rows)}


def is_claimed(row: lf.Table, method: str) -> bool:
    """Return whether an estimator was run, and its prediction is claimed."""
    return bool(np.isfinite(row[method]).all() and np.isfinite(row[f"{method} law"]).all())


def last_two(table: lf.Table) -> Iterator[tuple[lf.Table, lf.Table]]:
    """Yield in each set with growing n the last two sizes at which the moments are close to B*."""
    for _, part in table.groupby("set"):
        close = [row for row in c.sorted_by("n_clients")(part) if np.median(row[MOMENTS]) < 0.5]
        if len(close) > 1 and SETS[part.rows[0]["set"]].axis == "clients":
            yield close[-2], close[-1]


def slope(one: lf.Table, two: lf.Table) -> Array:
    """Return the exponent of the moments' distance in n, between two sizes, (trials,)."""
    return np.asarray(np.log(two[MOMENTS] / one[MOMENTS]) / np.log(two["n_clients"] / one["n_clients"]))


AtLargest = partial(c.Claim, table="largest", over=c.each("set"), setting="{set}, {size}")
CLAIMS = (
    *(
        c.Claim(
            f"{NAMES[method].capitalize()}: the {words} is the predicted one, up to {RANGES[method]}",
            PREDICTED,
            c.factor(
                f"{method}{suffix}",
                f"{method}{suffix} law",
                "factor between the median over trials and the prediction, worst size",
                c.at_most(1.1),
            ),
            where=c.only(partial(is_claimed, method=method)),
            over=c.each("set"),
            setting="{set}",
            detail=lambda part: f"{len(part)} sizes",
        )
        for method in ESTIMATORS
        for suffix, words in (("", "distance"), (" new", "median error of new clients"))
        if method != RISK or suffix
    ),
    c.Claim(
        "The moments' distance falls as one over the root of the number of samples",
        RATE,
        c.median(slope, "exponent of the distance in the number of clients", c.near(-0.5, 0.1)),
        over=last_two,
        setting="{set}, n = {n_clients:,} to {1[n_clients]:,}",
    ),
    *(
        AtLargest(
            f"The minimum of the empirical risk is closer to B* than {NAMES[rival]}",
            c.OWN_THRESHOLD,
            c.smaller("distance", RISK, rival, "share of trials"),
        )
        for rival in (MOMENTS, AVERAGES)
    ),
    *(
        AtLargest(
            f"New clients have a smaller error with {NAMES[method]} than alone",
            c.OWN_THRESHOLD,
            c.smaller("new", method, ALONE, "share of trials"),
        )
        for method in ESTIMATORS
    ),
)


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw distances and errors of new clients against the clients, and against the samples."""
    table, axes = tables["points"], {"": "clients n", "samples": "samples m"}
    found = {key: [name for name in table.unique("set") if SETS[name].axis in text] for key, text in axes.items()}
    return {key: draw(table.select(set=names), axes[key]) for key, names in found.items() if names}


def draw(table: lf.Table, text: str) -> Any:
    """Draw a column of two panels for each set."""

    def title(name: str) -> str:
        return f"{name}, new clients with {table.select(set=name).rows[0]['new_samples']:,}"

    with lf.panels(table, column="set", row=2, title=title, height=4.6, sharex=True, sharey="row") as sheet:
        for row, suffix, key in ((0, "", "dist"), (1, " new", "new_task")):
            for ax, part in sheet.row(row):
                draw_column(ax, part, suffix, key)
        first = sheet.axes[0, 0]
        first.plot([], [], "x", color="black", markersize=5, label="stored by the source (means)")
        first.plot([], [], "-", color="0.3", label="predicted")
        sheet.label(text, "subspace distance", "error of new clients", xscale="log", yscale="log")
        first.set_ylim(top=1.3)
        sheet.legend(ncols=3)
    return sheet.figure


def draw_column(ax: Any, part: lf.Table, suffix: str, key: str) -> None:
    """Draw a column of all estimators with its predictions, and the means that the source stored under a key."""
    name = part.rows[0]["set"]
    axis, numbers = SETS[name].axis, stored()[name]
    part = c.sorted_by(f"n_{axis}")(part)
    x = np.array([row[f"n_{axis}"] for row in part])
    kept = np.isin(numbers[axis], x)
    for method, look in LOOKS.items():
        if method == ALONE and not suffix:
            continue
        values = c.stacked(part, f"{method}{suffix}")
        bars(ax, x, values, look, label=NAMES[method], linestyle="none", markersize=4, mfc="none")
        if method != ALONE:
            law = [np.median(row[f"{method}{suffix} law"]) for row in part]
            ax.plot(x, law, color=look[0], linewidth=1.2, label=f"_{method}")
        if method in STORED:
            means = np.array(numbers[f"{key}_{STORED[method]}"])[0]
            ax.plot(np.array(numbers[axis])[kept], means[kept], "x", color=look[0], markersize=5, zorder=5)
