"""Estimators of the representation that run one round: the distance from B*, against samples, clients and noise.

d = 50 and k = 4, one data set of m standard Gaussian samples for each of n clients, heads of length sqrt(k) with
``(1/n) sum_i w_i w_i' = I``. The estimators see the same data sets:

- spectral: the method of moments (Tripuraneni et al.), the U-statistic (Duchi et al.), and the symmetrised and the
  one-sided product of two replicas (Niu et al.);
- a plain baseline: the Gram matrix of local averages;
- the minimum of the empirical risk (Du et al.), to which L-BFGS converges from local averages, and the nuclear norm. At
  m <= k also this minimum from a random subspace, and FedRep's B after 50 rounds from local averages.

Predictions have no fitted parameter: `linfed.theory.spectral_floor` and `linfed.theory.fixed_sample_floor`. The
experiment `fedrep-moments` has the number of samples from which spectral estimators find B*.

**Deviations**: the sizes are ours. The sources of the U-statistic and of the two replicas treat noise and designs that
differ between clients. There the Gram matrix of local averages is biased; here all clients are alike. The nuclear norm
has its default weight and is run for at most 200 clients.

Figures
-------
"" : Distance from B* of the estimators against samples, clients and noise. Markers: median over trials; bars: 10-90 %.
    Lines: predictions, dotted where they are not claimed. Grey: m <= k.
"ranking" : Distance of each estimator divided by the distance with local averages, on the same data sets. Bars: 95 %
    intervals of the ratio of medians; an interval that contains 1 is a tie.

References: Tripuraneni, Jin and Jordan 2021; Duchi, Feldman, Hu and Talwar 2022; Niu, Su, Xu and Yang 2024; Du, Hu,
Kakade, Lee and Lei 2021.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.algorithms.one_round.estimators import SpectralEstimator
from linfed.figures.style import KINDS, PAGE_WIDTH, Look, plain_ticks
from linfed.plotting.panels import Figures, bars, drawn_from
from linfed.statistics import judge_identity, judge_share, median_ratio
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.fits import fit_exponent
from linfed.statistics.intervals import largest_factor, largest_of

from ..shared.smallest_drawn import legend_entries
from ..shared.spectral import AVERAGES, MOMENTS, ONE_SIDED, SPECTRAL, TWO, spectral
from ..shared.spectral_drawn import LOOKS as SPECTRAL_LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUMMARY = "spectral estimators, empirical risk and nuclear norm: distance from B* against m, n and noise"
PICTURES = {"": 2070, "ranking": 1400}

RISK, UNDETERMINED, NUCLEAR = "empirical risk", "empirical risk, random start", "nuclear norm"
LOOKS: dict[str, Look] = {name: (*look[:2], "-") for name, look in SPECTRAL_LOOKS.items()}
LOOKS |= dict(zip((RISK, NUCLEAR, UNDETERMINED), (KINDS[2], KINDS[6], KINDS[10]), strict=True))

PANELS = {
    "few": ("n_samples", "samples m", "n = {n_clients:,}"),
    "many": ("n_samples", "samples m", "n = {n_clients:,}"),
    "short": ("n_clients", "clients n", "m = {n_samples}"),
    "long": ("n_clients", "clients n", "m = {n_samples}"),
    "noise": ("noise_std", "noise $\\sigma$", "n = {n_clients:,}, m = {n_samples}"),
}
"""For each panel the size that varies, its axis label and its title."""

RATIO, RADIUS = 0.1, 0.9
"""Where the predictions are claimed: ratio of spectral estimators, and replicon radius of the minimum."""
LOST, FOUND = 0.9, 0.5
"""Distance from which a direction counts as lost, and distance from which the rate in n is judged."""
MOST_CLIENTS = 200
"""Largest number of clients of the nuclear norm, whose iterations decompose an (n, d) matrix."""
PAIRED = [(AVERAGES, name) for name in SPECTRAL if name != AVERAGES]
PAIRED += [(TWO, ONE_SIDED), (RISK, AVERAGES), (RISK, NUCLEAR)]
"""Pairs of estimators, the one first that is claimed to be closer."""
TIE = 1.05
"""Ratio of distances up to which two estimators count as equally close."""
OWN = OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}")


@dataclass(frozen=True, kw_only=True)
class Point:
    """All estimators on the same data sets, of one size."""

    panel: str = lf.choice(PANELS, label=True)
    n_clients: int
    n_samples: int
    noise_std: float = 1.0
    dim: int = 50
    rank: int = 4
    rounds: int = 50
    trials: int = 20
    seed: int = 0

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.n_clients * self.n_samples

    @property
    def spectral(self) -> dict[str, SpectralEstimator]:
        """The spectral estimators that this number of samples allows."""
        few = (MOMENTS, AVERAGES) if self.n_samples < 2 else SPECTRAL
        return {name: spectral(self.rank)[name] for name in few}

    def run(self) -> dict[str, Any]:
        """Return the distances of all estimators, the predictions, and how far B moves where m <= k."""
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank, "noise_std": self.noise_std}
        problem = lf.SharedRepresentation(**sizes, condition_number=1.0)

        def run(algorithm: lf.Algorithm, rounds: int = 1) -> lf.Result:
            options: dict[str, Any] = {"trials": self.trials, "seed": self.seed, "metrics": ["subspace_distance"]}
            return lf.simulate(algorithm, problem, data=lf.FixedSamples(self.n_samples), rounds=rounds, **options)

        averages = lf.TruncatedAverages(threshold=np.inf)
        risk = lf.BurerMonteiro(rank=self.rank, iterations=400, tolerance=1e-7, init=averages)
        algorithms: dict[str, lf.Algorithm] = {**self.spectral, RISK: risk}
        if self.n_clients <= MOST_CLIENTS:
            weight = {"noise_std": self.noise_std, "iterations": 300, "tolerance": 1e-4}
            algorithms[NUCLEAR] = lf.NuclearNorm(rank=self.rank, **weight)
        few = self.n_samples <= self.rank
        if few:
            algorithms[UNDETERMINED] = replace(risk, init="random")
        results = {name: run(one) for name, one in algorithms.items()}
        row: dict[str, Any] = {name: np.full(self.trials, np.nan) for name in (*LOOKS, "moved", "fedrep_moved")}
        row |= {name: result.metrics["subspace_distance"][:, -1] for name, result in results.items()}
        if few:
            start = results[AVERAGES].final.B
            fedrep = run(lf.FedRep(rank=self.rank, step_size=0.5, init=averages), self.rounds)
            row["moved"] = lf.subspace_distance(results[RISK].final.B, start)
            row["fedrep_moved"] = lf.subspace_distance(fedrep.final.B, start)
        return row | self.predicted(problem.truth(self.seed, range(self.trials)).W)

    def predicted(self, W: Array | None) -> dict[str, Any]:
        """Return the predicted distances and ratios, (trials,), NaN without a prediction."""
        sizes: dict[str, Any] = {"dim": self.dim, "n_samples": self.n_samples, "noise_std": self.noise_std}
        row = {f"{name} {what}": np.full(self.trials, np.nan) for name in SPECTRAL for what in ("law", "ratio")}
        row |= {f"{RISK} {what}": np.full(self.trials, np.nan) for what in ("law", "radius")}
        assert W is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # beyond the range of the predictions
            for name, estimator in self.spectral.items():
                found = lf.theory.spectral_floor(estimator, W, **sizes)
                row |= {f"{name} law": found.distance, f"{name} ratio": found.ratio}
            if self.n_samples >= self.rank + 2:
                minimum = lf.theory.fixed_sample_floor(W, **sizes)
                row |= {f"{RISK} law": minimum.distance, f"{RISK} radius": minimum.replicon}
        return row


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points of all panels; quick: a few sizes of three panels."""
    few, many = Point(panel="few", n_clients=50, n_samples=4), Point(panel="many", n_clients=1000, n_samples=4)
    short = replace(few, panel="short")
    if quick:
        few, many, short = (replace(one, trials=6, rounds=10) for one in (few, replace(many, n_clients=400), short))
        points = lf.grid(few, n_samples=(4, 16, 64)) + lf.grid(many, n_samples=(12,))
        return {"points": points + lf.grid(short, n_clients=(1200, 2400))}
    points = lf.grid(few, n_samples=(1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 64, 128, 256))
    points += lf.grid(many, n_samples=(1, 2, 3, 4, 5, 6, 8, 12, 20, 40))
    points += lf.grid(short, n_clients=(100, 200, 400, 800, 1600, 3200, 6400))
    points += lf.grid(replace(few, panel="long", n_samples=12), n_clients=(25, 50, 100, 200, 400, 800, 1600))
    noise = replace(few, panel="noise", n_clients=200, n_samples=12)
    return {"points": points + lf.grid(noise, noise_std=(0.1, 0.2, 0.5, 1.0, 2.0, 4.0))}


def rows_of(part: lf.Table, panel: str) -> list[dict[str, Any]]:
    """Return the rows of a panel in the order of the size that varies."""
    return sorted(part.select(panel=panel).rows, key=lambda row: row[PANELS[panel][0]])


def where(rows: list[dict[str, Any]], panel: str) -> str:
    """Return the setting of a panel in words."""
    return PANELS[panel][2].format(**rows[0])


def is_claimed(row: dict[str, Any], name: str) -> bool:
    """Return whether an estimator's prediction is claimed for all trials of a point."""
    if name == RISK:
        return bool((row[f"{RISK} radius"] <= RADIUS).all())
    return bool((row[f"{name} ratio"] < RATIO).all())


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances with their predictions, and the ratios to the distance with local averages."""
    import matplotlib.pyplot as plt

    table = tables["points"]
    shape: dict[str, Any] = {"layout": "constrained", "sharey": True}
    figure, axes = plt.subplots(2, 3, figsize=(PAGE_WIDTH, 5.0), **shape)
    for ax, panel in zip(axes.flat, PANELS, strict=False):
        draw_distances(ax, rows_of(table, panel), panel)
    axes.flat[-1].set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("distance from B*")
    axes.flat[-1].legend(*legend_entries(axes), loc="center")
    second, columns = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.9), **shape)
    for ax, panel in zip(columns.flat, ("few", "long", "noise"), strict=True):
        draw_ranking(ax, rows_of(table, panel), panel)
    columns[0].set_ylabel("distance divided by\nthat with local averages")
    second.legend(*legend_entries(columns), loc="outside upper center", ncols=4)
    return {"": drawn_from(figure, table), "ranking": drawn_from(second, table)}


def draw_distances(ax: Axes, rows: list[dict[str, Any]], panel: str) -> None:
    """Draw the distances and the predictions of one panel."""
    field, text, _ = PANELS[panel]
    ax.set(xscale="log", yscale="log", xlabel=text, ylim=(0.015, 1.4))
    if not rows:
        ax.set_title("not run")
        return
    ax.set_title(where(rows, panel))
    for name, look in LOOKS.items():
        run = [row for row in rows if not np.isnan(row[name]).any()]
        if run:
            values = np.stack([row[name] for row in run], axis=1)
            shape: dict[str, Any] = {"linestyle": "none", "markersize": 3.5, "markerfacecolor": "none"}
            bars(ax, [row[field] for row in run], values, look, label=name, **shape)  # type: ignore[arg-type]
        lines = [row for row in rows if f"{name} law" in row and np.median(row[f"{name} law"]) < 1.0]
        x, law = [row[field] for row in lines], [np.median(row[f"{name} law"]) for row in lines]
        ax.plot(x, law, color=look[0], linewidth=0.8, linestyle=":", label=f"_{name}")
        law = [one if is_claimed(row, name) else np.nan for row, one in zip(lines, law, strict=True)]
        ax.plot(x, law, color=look[0], linewidth=1.2, label=f"_{name}")
    k = rows[0]["rank"]
    if field == "n_samples":
        ax.axvspan(0.8, k, color="0.93", zorder=0)
        ax.set_xlim(left=0.8)
    elif rows[0]["n_samples"] <= k:
        ax.set_facecolor("0.93")
    plain_ticks(ax)


def draw_ranking(ax: Axes, rows: list[dict[str, Any]], panel: str) -> None:
    """Draw each estimator's distance divided by the distance with local averages, with intervals."""
    field, text, _ = PANELS[panel]
    ax.axhline(1.0, color="0.35", linewidth=0.8, linestyle="--")
    ax.set(xscale="log", yscale="log", xlabel=text, title=where(rows, panel) if rows else "not run")
    for name, look in LOOKS.items():
        run = [row for row in rows if not np.isnan(row[name]).any()]
        if not run or name in (AVERAGES, UNDETERMINED):
            continue
        middle, low, high = np.array([median_ratio(row[name], row[AVERAGES]) for row in run]).T
        ends = np.maximum([middle - low, high - middle], 0.0)
        x, shape = [row[field] for row in run], {"elinewidth": 0.7, "capsize": 1.5, "markersize": 3.5}
        ax.errorbar(x, middle, yerr=ends, label=name, color=look[0], marker=look[1], linewidth=0.8, **shape)
    plain_ticks(ax)


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the predictions, the behaviour at m <= k, and the ranking."""
    table = tables["points"]
    return [*predictions(table), *undetermined(table), *ranking(table)]


def predictions(table: lf.Table) -> Iterator[Finding]:
    """Judge the predicted distance of each estimator at the points where it is claimed."""
    for name in (*SPECTRAL, RISK):
        rows = [row for row in table.rows if is_claimed(row, name)]
        if not rows:
            continue
        bound = f"a replicon radius of {RADIUS}" if name == RISK else f"a ratio of {RATIO}"
        yield judge(
            largest_factor(*(np.stack([row[column] for row in rows], axis=1) for column in (name, f"{name} law"))),
            claim=f"{name.capitalize()}: the distance is the predicted one, up to {bound}",
            setting=f"{len(rows)} points",
            statistic="factor between the median over trials and the prediction, worst point",
            source=OWN,
            claimed_high=1.1,
        )


def undetermined(table: lf.Table) -> Iterator[Finding]:
    """Judge whether B moves at m <= k, and whether the spectral estimators learn there."""
    rows = [row for row in table.rows if row["n_samples"] <= row["rank"]]
    if not rows:
        return
    for column, text in (("moved", "The minimum of the empirical risk keeps"), ("fedrep_moved", "FedRep keeps")):
        yield judge_identity(
            np.stack([row[column] for row in rows], axis=1),
            tolerance=1e-6,
            claim=f"{text} its initial subspace where m <= k",
            setting=f"{len(rows)} points",
            statistic="largest distance between the initial and the final subspace",
            source=OWN_PREDICTION,
        )
    hits = np.stack([row[UNDETERMINED] for row in rows], axis=1) > LOST
    yield judge_share(
        hits,
        0.8,
        clusters=np.arange(len(hits)),  # a trial has the same ground truth at all points
        claim="From a random start the empirical risk learns nothing where m <= k",
        setting=f"{len(rows)} points",
        statistic=f"share of trials with a distance above {LOST}",
        source=OWN,
    )
    short = rows_of(table, "short")
    for name in SPECTRAL:
        close = [row for row in short if np.median(row[name]) < FOUND]
        if len(close) < 2:
            continue
        yield judge(
            fit_exponent([row["n_clients"] for row in close], np.stack([row[name] for row in close], axis=1)),
            claim=f"{name.capitalize()}: where m <= k, the distance falls like one over the root of the clients",
            setting=f"{where(short, 'short')}, n = {close[0]['n_clients']:,} to {close[-1]['n_clients']:,}",
            statistic="fitted exponent of the distance in n",
            source=OWN_PREDICTION.adding(f"the margin is {OWN_THRESHOLD}"),
            claimed_low=-0.6,
            claimed_high=-0.4,
        )


def ranking(table: lf.Table) -> Iterator[Finding]:
    """Judge in each panel whether an estimator is at least as close to B* as another, at its worst point."""
    for first, second in PAIRED:
        for panel in table.unique("panel"):
            rows = [row for row in rows_of(table, panel) if row["n_samples"] > row["rank"] + 1 or first != RISK]
            rows = [row for row in rows if not (np.isnan(row[first]).any() or np.isnan(row[second]).any())]
            if not rows:
                continue
            ratios = np.array([median_ratio(row[first], row[second]) for row in rows])
            closer, farther = int(np.sum(ratios[:, 2] < 1.0)), int(np.sum(ratios[:, 1] > 1.0))
            worst = int(ratios[:, 0].argmax())
            yield judge(
                largest_of(median_ratio, [(row[first], row[second]) for row in rows]),
                claim=f"{first.capitalize()}: the estimate is as close to B* as with {second}, at every point",
                setting=where(rows, panel),
                statistic="ratio of the median distances at the worst point",
                source=OWN_THRESHOLD,
                claimed_high=TIE,
                detail=f"{PANELS[panel][0]} = {rows[worst][PANELS[panel][0]]:g}; closer at {closer}, tied at "
                f"{len(rows) - closer - farther}, farther at {farther} points",
            )
