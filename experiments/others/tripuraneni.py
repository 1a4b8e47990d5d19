"""Spectral and empirical-risk estimates of a shared representation, and new clients, in a published linear experiment.

The sizes are those of the numbers that Tripuraneni, Jin and Jordan stored with their public notebook: d = 100, k = 5,
heads N(0, I/k), noise of standard deviation 1, and x standard Gaussian. Either the samples per client grow, for n = 20
and 5 clients, or the clients, for m = 25, 300 and 5 samples each. New clients fit a head on the learned representation,
with 50, 25, 1000 or 2500 samples of their own.

The estimators are the source's two, the method of moments and the minimum of the empirical risk
(`linfed.BurerMonteiro` from the moments), and a plain rival, the Gram matrix of local averages (`linfed.LocalGram`).
The baseline of new clients is least squares on their own samples. The predictions have no fitted parameter:
`linfed.theory.spectral_floor`, `linfed.theory.fixed_sample_floor`, and from their covariances the median error of new
clients.

**Deviations**: 20 new clients per trial, where the source has one. The minimiser of the empirical risk is not run above
50 million numbers of data. The source starts it at random.

Figures
-------
"" : Against the number of clients, for three numbers of samples each: distance of the estimated representation from B*,
    and length of the error of new clients' regressors. Markers: median over trials; bars: 10-90 %; lines: predictions;
    crosses: means that the source stored.
"samples" : The same against the samples of each client, for n = 20 and 5 clients.

References: Tripuraneni, Jin and Jordan 2021, "Provable meta-learning of linear representations".
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.figures.style import PAGE_WIDTH
from linfed.plotting.panels import Figures, bars, drawn_from
from linfed.statistics import median_interval
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, judge_smaller
from linfed.statistics.intervals import largest_factor

SUMMARY = "a published experiment: moments, empirical risk and local averages against B*, and new clients"
PICTURES = {"": 2070, "samples": 1400}

MOMENTS, RISK, AVERAGES, ALONE = "MethodOfMoments", "BurerMonteiro", "LocalGram", "LocalOnly"
ESTIMATORS = (MOMENTS, RISK, AVERAGES)
NAMES = {MOMENTS: "moments", RISK: "empirical risk", AVERAGES: "local averages", ALONE: "no federation"}
LOOKS = {MOMENTS: ("#CC6677", "^", "-"), RISK: ("#332288", "o", "-"), AVERAGES: ("#44AA99", "s", "-")}
LOOKS[ALONE] = ("#888888", "D", "-")
STORED = {MOMENTS: "moments", RISK: "erm"}
"""Names of the source's estimators in its stored numbers."""

LARGEST = 50_000_000
"""Largest number of floats n m d with which the empirical risk is minimised."""

SETS = {
    "m = 5": ("clients", 5, 2500, 30),
    "m = 25": ("clients", 25, 25, 30),
    "m = 300": ("clients", 300, 1000, 10),
    "n = 20": ("samples", 20, 50, 30),
    "n = 5": ("samples", 5, 50, 10),
}
"""What grows, the other size, the samples of a new client and the trials: the source's repetitions."""

SIZES = (100, 200, 400, 800, 1600, 3200, 6400)
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
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.n_clients * self.n_samples

    def estimator(self, name: str) -> lf.Algorithm:
        """Return an estimator by name."""
        if name == RISK:
            return lf.BurerMonteiro(rank=self.rank, iterations=400, tolerance=1e-7)
        return {MOMENTS: lf.MethodOfMoments, AVERAGES: lf.LocalGram}[name](rank=self.rank)

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
        run: dict[str, Any] = {"data": lf.FixedSamples(self.n_samples), "rounds": 1, "seed": (self.seed, first)}
        run |= {"problem": problem, "trials": trials, "metrics": ["subspace_distance"]}
        row: dict[str, Any] = {}

        def error(result: lf.Result) -> Array:
            return np.median(np.sqrt(2.0 * result.new_clients([self.new_samples], problem=new)[:, 0] - 1.0), axis=-1)

        for name in ESTIMATORS:
            if name == RISK and self.n_clients * self.n_samples * self.dim > LARGEST:
                row |= {name: np.full(trials, np.nan), f"{name} new": np.full(trials, np.nan)}
                continue
            result = lf.simulate(self.estimator(name), **run)
            row |= {name: result.metrics["subspace_distance"][:, -1], f"{name} new": error(result)}
        alone = lf.simulate(lf.LocalOnly(), **run | {"data": lf.FreshSamples(1), "rounds": 0, "metrics": []})
        row[f"{ALONE} new"] = error(alone)
        return row | self.predicted(problem.W, new.W)

    def predicted(self, W: Array, new: Array) -> dict[str, Any]:
        """Return each estimator's predicted distance and median error of new clients, NaN where it is not claimed."""
        sizes: dict[str, Any] = {"dim": self.dim, "n_samples": self.n_samples, "noise_std": 1.0}
        row: dict[str, Any] = {f"{name} {what}": [] for name in ESTIMATORS for what in ("law", "new law")}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # beyond the range, where the columns are NaN
            for heads, clients in zip(W, new, strict=True):
                for name in ESTIMATORS:
                    law = self._law(name, heads, sizes)
                    row[f"{name} law"].append(np.nan if law is None else float(law.distance))
                    row[f"{name} new law"].append(np.nan if law is None else self._new_error(law.outside(clients)))
        return {name: np.array(values) for name, values in row.items()}

    def _law(
        self, name: str, heads: Array, sizes: dict[str, Any]
    ) -> lf.theory.FixedSampleFloor | lf.theory.SpectralFloor | None:
        """Return the prediction of an estimator, None where it is not claimed."""
        if self.n_clients < self.rank or (name == RISK and self.n_samples < self.rank + 2):
            return None
        if name == RISK:
            minimum = lf.theory.fixed_sample_floor(heads, **sizes)
            return minimum if float(minimum.replicon) <= RADIUS else None
        found = lf.theory.spectral_floor(self.estimator(name), heads, **sizes)  # type: ignore[arg-type]
        return found if found.ratio < RATIO else None

    def _new_error(self, outside: Array) -> float:
        """Return the median length of the error of new clients with these lengths outside the estimate."""
        sizes = {"noise_std": 1.0, "rank": self.rank, "n_samples": self.new_samples}
        return float(np.sqrt(2.0 * lf.theory.new_client_excess_quantile(0.5, outside, **sizes)))


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points of all sets; quick: two sets with few sizes and trials."""
    chosen = {"m = 25": (400, 800), "n = 20": (400,)} if quick else dict.fromkeys(SETS, SIZES)
    points = []
    for name, sizes in chosen.items():
        axis, other, new, trials = SETS[name]
        for size in sizes:
            n, m = (size, other) if axis == "clients" else (other, size)
            points.append(Point(set=name, n_clients=n, n_samples=m, new_samples=new, trials=6 if quick else trials))
    return {"points": points}


def stored() -> dict[str, dict[str, Any]]:
    """Return the numbers of the source by set."""
    text = Path(__file__).with_name("tripuraneni.json").read_text(encoding="utf-8")
    found = {}
    for one in json.loads(text)["sets"]:
        axis = "clients" if len(set(one["samples"])) == 1 else "samples"
        found[f"m = {one['samples'][0]}" if axis == "clients" else f"n = {one['clients'][0]}"] = one | {"axis": axis}
    return found


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw distances and errors of new clients against the clients, and against the samples."""
    table = tables["points"]
    found = {key: [name for name in table.unique("set") if SETS[name][0] == axis] for key, axis in FIGURES.items()}
    return {key: draw(table, names, FIGURES[key]) for key, names in found.items() if names}


FIGURES = {"": "clients", "samples": "samples"}


def draw(table: lf.Table, names: list[str], axis: str) -> Any:
    """Draw a column of two panels for each set."""
    import matplotlib.pyplot as plt

    part, theirs = table.select(set=names), stored()
    figure, axes = plt.subplots(
        2, len(names), figsize=(PAGE_WIDTH, 4.6), layout="constrained", sharey="row", sharex=True, squeeze=False
    )
    for name, column in zip(names, axes.T, strict=True):
        rows = sorted(part.select(set=name).rows, key=lambda row: row[f"n_{axis}"])
        x = np.array([row[f"n_{axis}"] for row in rows])
        numbers = theirs[name]
        kept = np.isin(numbers[axis], x)
        for ax, suffix, key in zip(column, ("", " new"), ("dist", "new_task"), strict=True):
            for method, look in LOOKS.items():
                if method == ALONE and not suffix:
                    continue
                values = np.stack([row[f"{method}{suffix}"] for row in rows], axis=1)
                run = ~np.isnan(values).any(axis=0)
                bars(
                    ax,
                    x[run],
                    values[:, run],
                    look,
                    label=NAMES[method],
                    linestyle="none",
                    markersize=4,
                    markerfacecolor="none",
                )
                if method != ALONE:
                    law = [np.median(row[f"{method}{suffix} law"]) for row in rows]
                    ax.plot(x, law, color=look[0], linewidth=1.2, label=f"_{method}")
                if method in STORED:
                    means = np.array(numbers[f"{key}_{STORED[method]}"])[0]
                    ax.plot(np.array(numbers[axis])[kept], means[kept], "x", color=look[0], markersize=5, zorder=5)
        column[0].set_title(f"{name}, new clients with {rows[0]['new_samples']:,}")
        column[0].set(xscale="log", yscale="log")
        column[1].set(yscale="log", xlabel=f"{axis} {'n' if axis == 'clients' else 'm'}")
    axes[0, 0].set_ylim(top=1.3)
    axes[0, 0].set_ylabel("distance from B*")
    axes[1, 0].set_ylabel("error of new clients")
    axes[0, 0].plot([], [], "x", color="black", markersize=5, label="stored by the source (means)")
    axes[0, 0].plot([], [], "-", color="0.3", label="predicted")
    pairs = [ax.get_legend_handles_labels() for ax in axes.ravel()]
    handles = {text: handle for pair in pairs for handle, text in zip(*pair, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    return drawn_from(figure, part)


# --- claims --------------------------------------------------------------------------------------------------


RATE = (
    "Tripuraneni, Jin and Jordan 2021, theorem on the method of moments: an upper bound of order (n m)^(-1/2); the "
    f"range is {OWN_THRESHOLD}"
)
PREDICTED = OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}")


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the predictions, the rate of the moments, and the estimators against each other and against none."""
    return [*predictions(tables["points"]), *comparisons(tables["points"])]


def predictions(table: lf.Table) -> Iterator[Finding]:
    """Judge the predicted distances and errors of new clients, in each set, where they are claimed."""
    ranges = {RISK: f"up to a replicon radius of {RADIUS}", MOMENTS: f"up to a ratio of {RATIO}"}
    ranges[AVERAGES] = ranges[MOMENTS]
    for name, part in table.groupby("set"):
        for method in ESTIMATORS:
            rows = [row for row in part if np.isfinite(row[f"{method} law"]).all() and np.isfinite(row[method]).all()]
            if not rows:
                continue
            fields: dict[str, Any] = {"setting": name, "source": PREDICTED, "detail": f"{len(rows)} sizes"}
            fields |= {"statistic": "factor between the median over trials and the prediction, worst size"}
            texts = {"": "distance", " new": "median error of new clients"}
            for suffix, what in texts.items():
                pair = (np.stack([row[f"{method}{suffix}{end}"] for row in rows], axis=1) for end in ("", " law"))
                claim = f"{NAMES[method].capitalize()}: the {what} is the predicted one, {ranges[method]}"
                yield judge(largest_factor(*pair), claim=claim, claimed_high=1.1, **fields)


def comparisons(table: lf.Table) -> Iterator[Finding]:
    """Judge the rate of the moments, and which estimator is closer to B* or better for new clients."""
    for name, part in table.groupby("set"):
        axis = SETS[name][0]
        rows = sorted(part.rows, key=lambda row: row[f"n_{axis}"])
        close = [row for row in rows if np.median(row[MOMENTS]) < 0.5]
        if len(close) > 1 and axis == "clients":
            one, two = close[-2:]
            span = np.log(two["n_clients"] / one["n_clients"])
            yield judge(
                median_interval(np.log(two[MOMENTS] / one[MOMENTS]) / span),
                claim="The moments' distance falls as one over the root of the number of samples",
                setting=f"{name}, n = {one['n_clients']:,} to {two['n_clients']:,}",
                statistic="exponent of the distance in the number of clients",
                source=RATE,
                claimed_low=-0.6,
                claimed_high=-0.4,
            )
        last = [row for row in rows if np.isfinite(row[RISK]).all()][-1]
        where = f"{name}, {axis} {last[f'n_{axis}']:,}"
        fields: dict[str, Any] = {"source": OWN_THRESHOLD, "statistic": "share of trials", "setting": where}
        for rival in (MOMENTS, AVERAGES):
            claim = f"The minimum of the empirical risk is closer to B* than {NAMES[rival]}"
            yield judge_smaller(last[RISK], last[rival], claim=claim, **fields)
        for method in ESTIMATORS:
            claim = f"New clients have a smaller error with {NAMES[method]} than alone"
            yield judge_smaller(last[f"{method} new"], last[f"{ALONE} new"], claim=claim, **fields)
