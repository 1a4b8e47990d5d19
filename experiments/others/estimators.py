"""Estimators of the representation that run one round: the distance from B*, against samples, clients and noise.

d = 50 and k = 4, one data set of m standard Gaussian samples for each of n clients, heads of length sqrt(k) with
``(1/n) sum_i w_i w_i' = I``. The estimators see the same data sets:

- spectral: the method of moments (Tripuraneni et al.), the U-statistic (Duchi et al.), and the symmetrised and the
  one-sided product of two replicas (Niu et al.);
- a plain competitor: the Gram matrix of local averages;
- the minimum of the empirical risk (Du et al.), to which L-BFGS converges from local averages, and the nuclear norm. At
  m <= k also this minimum from a random subspace, and FedRep's B after 50 rounds from local averages.

Predictions have no fitted parameter: `linfed.theory.spectral_floor` and `linfed.theory.fixed_sample_floor`, which the
experiment `fedrep-floor` judges. The experiment `fedrep-moments` has the number of samples from which spectral
estimators find B*.

**Deviations**: the sizes are ours. The sources of the U-statistic and of the two replicas treat noise and designs that
differ between clients. There the Gram matrix of local averages is biased; here all clients are alike. The nuclear norm
has its default weight and is run for at most 200 clients.

References: Tripuraneni, Jin and Jordan 2021; Duchi, Feldman, Hu and Talwar 2022; Niu, Su, Xu and Yang 2024; Du, Hu,
Kakade, Lee and Lei 2021.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.algorithms.one_round.estimators import SpectralEstimator
from linfed.figures.style import KINDS, Look
from linfed.plotting.panels import SIZE_LABELS, Figures, bars, intervals, legend_entries
from linfed.statistics import median_ratio
from linfed.statistics.fits import fit_exponent
from linfed.statistics.intervals import Measured

from ..shared.spectral import AVERAGES, MOMENTS, ONE_SIDED, SPECTRAL, TWO, spectral
from ..shared.spectral_drawn import LOOKS as SPECTRAL_LOOKS
from ._compared_claims import at_every_point

SUMMARY = "spectral estimators, empirical risk and nuclear norm: subspace distance against m, n and noise"
PICTURES = {"": 2070, "ranking": 1400}
CAPTIONS = {
    "": "Subspace distance of the estimators against samples, clients and noise. Markers: median over trials; bars: "
    "10-90 %. Lines: predictions, dotted where they are not claimed. Grey: m <= k.",
    "ranking": "Subspace distance of each estimator divided by that with local averages, on the same data sets. Bars: "
    "95 % intervals of the ratio of medians; an interval that contains 1 is a tie.",
}

RISK, UNDETERMINED, NUCLEAR = "empirical risk", "empirical risk, random start", "nuclear norm"
LOOKS: dict[str, Look] = {name: (*look[:2], "-") for name, look in SPECTRAL_LOOKS.items()}
LOOKS |= dict(zip((RISK, NUCLEAR, UNDETERMINED), (KINDS[2], KINDS[6], KINDS[10]), strict=True))

PANELS = {
    "few": ("n_samples", "n = {n_clients:,}"),
    "many": ("n_samples", "n = {n_clients:,}"),
    "short": ("n_clients", "m = {n_samples}"),
    "long": ("n_clients", "m = {n_samples}"),
    "noise": ("noise_std", "n = {n_clients:,}, m = {n_samples}"),
}
"""For each panel the size that varies, and its title."""

RATIO, RADIUS = 0.1, 0.9
"""Where the predictions are claimed: ratio of spectral estimators, and replicon radius of the minimum."""
LOST, FOUND = 0.9, 0.5
"""Distance from which a direction counts as lost, and distance from which the rate in n is judged."""
MOST_CLIENTS = 200
"""Largest number of clients for the nuclear norm, an iteration of which decomposes an (n, d) matrix."""
PAIRED = [(AVERAGES, name) for name in SPECTRAL if name != AVERAGES]
PAIRED += [(TWO, ONE_SIDED), (RISK, AVERAGES), (RISK, NUCLEAR)]
"""Pairs of estimators, the one first that is claimed to be closer."""
TIE = 1.05
"""Ratio of distances up to which two estimators count as equally close."""
OWN = c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}")


@dataclass(frozen=True, kw_only=True)
class Point:
    """All estimators on the same data sets, of one size."""

    panel: str = lf.choice(PANELS, label=True)
    n_clients: int
    n_samples: int
    noise_std: float = 1.0
    dim: int = 50
    rank: int = 4
    n_rounds: int = 50
    trials: int = 20
    seed: int = 0

    @property
    def spectral(self) -> dict[str, SpectralEstimator]:
        """The spectral estimators that this number of samples allows."""
        few = (MOMENTS, AVERAGES) if self.n_samples < 2 else SPECTRAL
        return {name: spectral(self.rank)[name] for name in few}

    def run(self) -> dict[str, Any]:
        """Return the distances of all estimators, the predictions, and how far B moves where m <= k."""
        problem = lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=self.rank, noise_std=self.noise_std, condition_number=1.0
        )

        def run(algorithm: lf.Algorithm, n_rounds: int = 1) -> lf.Result:
            return lf.simulate(
                algorithm,
                problem,
                data=lf.FixedSamples(self.n_samples),
                n_rounds=n_rounds,
                trials=self.trials,
                seed=self.seed,
                metrics=["subspace_distance"],
            )

        averages = lf.TruncatedAverages(threshold=np.inf)
        risk = lf.BurerMonteiro(rank=self.rank, iterations=400, tolerance=1e-7, init=averages)
        algorithms: dict[str, lf.Algorithm] = {**self.spectral, RISK: risk}
        if self.n_clients <= MOST_CLIENTS:
            algorithms[NUCLEAR] = lf.NuclearNorm(
                rank=self.rank, noise_std=self.noise_std, iterations=300, tolerance=1e-4
            )
        few = self.n_samples <= self.rank
        if few:
            algorithms[UNDETERMINED] = replace(risk, init="random")
        results = {name: run(one) for name, one in algorithms.items()}
        row: dict[str, Any] = {name: np.full(self.trials, np.nan) for name in (*LOOKS, "moved", "fedrep_moved")}
        row |= {name: result.metrics["subspace_distance"][:, -1] for name, result in results.items()}
        if few:
            start = results[AVERAGES].final.B
            fedrep = run(lf.FedRep(rank=self.rank, step_size=0.5, init=averages), self.n_rounds)
            row["moved"] = lf.subspace_distance(results[RISK].final.B, start)
            row["fedrep_moved"] = lf.subspace_distance(fedrep.final.B, start)
        return row | self.predicted(problem.truth(self.seed, range(self.trials)).W)

    def predicted(self, W: Array | None) -> dict[str, Any]:
        """Return the predicted distances and ratios, (trials,), NaN without a prediction."""
        d, m, sigma = self.dim, self.n_samples, self.noise_std
        row = {f"{name} {what}": np.full(self.trials, np.nan) for name in SPECTRAL for what in ("law", "ratio")}
        row |= {f"{RISK} {what}": np.full(self.trials, np.nan) for what in ("law", "radius")}
        assert W is not None
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # beyond the range
            for name, estimator in self.spectral.items():
                found = lf.theory.spectral_floor(estimator, W, dim=d, n_samples=m, noise_std=sigma)
                row |= {f"{name} law": found.distance, f"{name} ratio": found.ratio}
            if self.n_samples >= self.rank + 2:
                minimum = lf.theory.fixed_sample_floor(W, dim=d, n_samples=m, noise_std=sigma)
                row |= {f"{RISK} law": minimum.distance, f"{RISK} radius": minimum.replicon}
        return row


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points of all panels, without the nuclear norm beyond `MOST_CLIENTS`; quick: a few sizes of three."""
    few, many = Point(panel="few", n_clients=50, n_samples=4), Point(panel="many", n_clients=1000, n_samples=4)
    short = replace(few, panel="short")
    if quick:
        few, many, short = (replace(one, trials=6, n_rounds=10) for one in (few, replace(many, n_clients=400), short))
        points = lf.grid(few, n_samples=(4, 16, 64)) + lf.grid(many, n_samples=(12,))
        return {"points": points + lf.grid(short, n_clients=(1200, 2400))}
    points = lf.grid(few, n_samples=(1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 64, 128, 256))
    points += lf.grid(many, n_samples=(1, 2, 3, 4, 5, 6, 8, 12, 20, 40))
    points += lf.grid(short, n_clients=(100, 200, 400, 800, 1600, 3200, 6400))
    points += lf.grid(replace(few, panel="long", n_samples=12), n_clients=(25, 50, 100, 200, 400, 800, 1600))
    noise = replace(few, panel="noise", n_clients=200, n_samples=12)
    return {"points": points + lf.grid(noise, noise_std=(0.1, 0.2, 0.5, 2.0, 4.0))}


def in_panel(table: lf.Table, panel: str) -> lf.Table:
    """Return the rows of a panel in the order of the size that varies; that of the noise shares a row with `long`."""
    part = table.select(panel=panel)
    if panel == "noise":
        part += table.select(panel="long", **{name: part.unique(name) for name in ("n_clients", "n_samples")})
    return c.sorted_by(PANELS[panel][0])(part)


def setting(part: lf.Table) -> str:
    """Return the setting of a panel in words."""
    return PANELS[part.rows[0]["panel"]][1].format(**part.rows[0])


def is_claimed(row: lf.Table, name: str) -> bool:
    """Return whether an estimator's prediction is claimed for all trials of a point."""
    return bool((row[f"{RISK} radius"] <= RADIUS).all() if name == RISK else (row[f"{name} ratio"] < RATIO).all())


def is_run(row: lf.Table, *names: str) -> bool:
    """Return whether estimators were run at a point."""
    return not any(np.isnan(row[name]).any() for name in names)


# --- claims --------------------------------------------------------------------------------------------------


def is_close(row: lf.Table, name: str) -> bool:
    """Return whether an estimator is close enough to B* for its rate in n."""
    return bool(np.median(row[name]) < FOUND)


def fall(part: lf.Table, name: str) -> Measured | None:
    """Return the exponent of an estimator's distance in n."""
    return fit_exponent(part["n_clients"], c.stacked(part, name)) if len(part) > 1 else None


def as_close(first: str, second: str) -> c.Claim:
    """Return the claim that an estimator is as close to B* as another, at every point of a panel."""

    def compared(row: lf.Table) -> bool:
        return is_run(row, first, second) and (first != RISK or row["n_samples"] > row["rank"] + 1)

    def place(row: lf.Table) -> str:
        size = PANELS[row["panel"]][0]
        return f"{size} = {row[size]:g}"

    return c.Claim(
        f"{first.capitalize()}: the estimate is as close to B* as with {second}, at every point"
        f"{' with m > k + 1' if first == RISK else ''}",
        c.OWN_THRESHOLD,
        at_every_point(first, second, place, "ratio of the median distances at the worst point", TIE),
        where=c.only(compared),
        over=c.each("panel"),
        setting=setting,
    )


FewSamples = partial(c.Claim, where=c.only(lambda row: row["n_samples"] <= row["rank"]), setting="{points} points")
CLAIMS = (
    *(
        c.Claim(
            f"{name.capitalize()}: the distance is the predicted one, up to a ratio of {RATIO}",
            OWN,
            c.factor(
                name,
                f"{name} law",
                "factor between the median over trials and the prediction, worst point",
                c.at_most(1.1),
            ),
            where=c.only(partial(is_claimed, name=name)),
            setting="{points} points",
        )
        for name in SPECTRAL
    ),
    *(
        FewSamples(
            f"{words} its initial subspace where m <= k",
            c.OWN_PREDICTION,
            c.identity(
                partial(c.stacked, column=column), "largest distance between the initial and the final subspace", 1e-6
            ),
        )
        for column, words in (("moved", "The minimum of the empirical risk keeps"), ("fedrep_moved", "FedRep keeps"))
    ),
    FewSamples(
        "From a random start the empirical risk learns nothing where m <= k",
        OWN,
        c.share(
            lambda part: c.stacked(part, UNDETERMINED) > LOST,
            f"share of trials with a distance above {LOST}",
            c.above(0.8),
            clusters=lambda part: np.arange(part.rows[0]["trials"]),  # the same ground truth at all points
        ),
    ),
    *(
        c.Claim(
            f"{name.capitalize()}: where m <= k, the distance falls like one over the root of the clients",
            c.OWN_PREDICTION.adding(f"the tolerance is {c.OWN_THRESHOLD}"),
            c.measured("fitted exponent of the distance in n", partial(fall, name=name), c.near(-0.5, 0.1)),
            where=(partial(in_panel, panel="short"), c.only(partial(is_close, name=name))),
            setting="m = {n_samples}, n = {n_clients:,} to {last[n_clients]:,}",
        )
        for name in SPECTRAL
    ),
    *(as_close(first, second) for first, second in PAIRED),
)


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances with their predictions, and the ratios to the distance with local averages."""
    table = tables["points"]
    with lf.panels(table, row=2, column=3, height=5.0, sharey=True) as distances:
        distances.label("", *["subspace distance"] * 2)
        for ax, panel in zip(distances.axes.flat, PANELS, strict=False):
            draw_distances(ax, in_panel(table, panel), panel)
        last = distances.axes[-1, -1]
        last.set_axis_off()
        last.legend(*legend_entries(distances.axes), loc="center")
    with lf.panels(table, column=3, height=2.9, sharey=True) as ranking:
        ranking.label("", "subspace distance divided by\nthat with local averages")
        for ax, panel in zip(ranking.axes.flat, ("few", "long", "noise"), strict=True):
            draw_ranking(ax, in_panel(table, panel), panel)
        ranking.legend(ncols=4)
    return {"": distances.figure, "ranking": ranking.figure}


def start_panel(ax: Any, part: lf.Table, field: str) -> None:
    """Set up the axes and the title of a panel."""
    title = setting(part) if part else "not run"
    ax.set(xscale="log", yscale="log", xlabel=SIZE_LABELS[field], title=title)


def draw_distances(ax: Any, part: lf.Table, panel: str) -> None:
    """Draw the distances and the predictions of one panel."""
    field = PANELS[panel][0]
    start_panel(ax, part, field)
    ax.set_ylim(0.015, 1.4)
    if not part:
        return
    for name, look in LOOKS.items():
        x = [row[field] for row in part]
        bars(ax, x, c.stacked(part, name), look, label=name, linestyle="none", markerfacecolor="none")
        lines = [row for row in part if f"{name} law" in row.columns and np.median(row[f"{name} law"]) < 1.0]
        x, law = [row[field] for row in lines], [np.median(row[f"{name} law"]) for row in lines]
        ax.plot(x, law, color=look[0], linewidth=0.8, linestyle=":", label=f"_{name}")
        law = [one if is_claimed(row, name) else np.nan for row, one in zip(lines, law, strict=True)]
        ax.plot(x, law, color=look[0], linewidth=1.2, label=f"_{name}")
    k = part.rows[0]["rank"]
    if field == "n_samples":
        ax.axvspan(0.8, k, color="0.93", zorder=0)
        ax.set_xlim(left=0.8)
    elif part.rows[0]["n_samples"] <= k:
        ax.set_facecolor("0.93")


def draw_ranking(ax: Any, part: lf.Table, panel: str) -> None:
    """Draw each estimator's distance divided by the distance with local averages, with intervals."""
    field = PANELS[panel][0]
    start_panel(ax, part, field)
    ax.axhline(1.0, color="0.35", linewidth=0.8, linestyle="--")
    for name in (one for one in LOOKS if one not in (AVERAGES, UNDETERMINED)):
        run = [row for row in part if is_run(row, name)]
        ratios = [median_ratio(row[name], row[AVERAGES]) for row in run]
        if run:
            x = [row[field] for row in run]
            intervals(ax, x, ratios, LOOKS[name], label=name, linestyle="-", linewidth=0.8)
