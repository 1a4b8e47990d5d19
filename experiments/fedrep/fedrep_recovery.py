"""How many fixed samples determine B*: the minimum of the empirical risk near B*, and the starts that reach it.

n clients have one fixed data set of m samples each. L-BFGS (`linfed.BurerMonteiro`) minimises the empirical risk, to
whose stationary points FedRep with exact heads converges. It starts near B*, from two spectral estimates of the same
samples, and at random.

Without noise, there are n m equations for n k + k (d-k) unknowns: the heads and the subspace. So B* is an isolated
solution from ``n (m-k) = k (d-k)``, if the heads are in general position. With noise of standard deviation 0.5, the
distance of the minimum near B* is predicted without a fitted parameter by `linfed.theory.fixed_sample_floor`. The
prediction is claimed up to a replicon radius of 0.9, which `experiments.fedrep.fedrep_floor` judges. The simplest
competitors are the count n m = k d without the heads, and the prediction of first order (`linfed.theory.similar_floor`
without parts outside).

A start reaches the minimum if its empirical risk is at most 1.0001 times the one from the start near B*. Which starts
reach it is a conjecture: no derivation is known. Shares of trials depend on the number of clients, and are judged in
the worst one. There are 40 trials, because a share of 0.9 needs at least 36 to be supported.

**Deviations**: the sizes are ours, and so are all claims.

References: Du, Hu, Kakade, Lee and Lei 2021; Duchi, Feldman, Hu and Talwar 2022, for the U-statistic.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import KINDS, Look
from linfed.plotting.panels import Figures, intervals
from linfed.statistics import binomial_share
from linfed.statistics.intervals import largest_of

from ..shared.spectral import MOMENTS, PAIRS, spectral
from ..shared.spectral_drawn import LOOKS

SUMMARY = "fixed samples that determine B*: local recovery, the minimum with noise, and the starts that reach it"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "Top: without noise, share of trials that end within 0.001 of B*, against equations per unknown, ``n (m-k)/(k "
    "(d-k))``. Bottom: subspace distance with noise. Markers: median over trials of each initialisation; bars: 10-90 "
    "%. Black line: predicted, dotted above a replicon radius of 0.9; green, dashed: first order.",
}

TRUTH, RANDOM = "near B*", "random start"
LOOK: dict[str, Look] = {TRUTH: KINDS[2], MOMENTS: LOOKS[MOMENTS], PAIRS: LOOKS[PAIRS], RANDOM: KINDS[-1]}

RECOVERED, SAME, STABLE = 1e-3, 1.0001, 0.9
"""Distance that counts as recovery, largest ratio of empirical risks of the same minimum, and largest radius."""

OWN = c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}")
CONJECTURE = c.OWN_CONJECTURE.adding(c.OWN_THRESHOLD)


@dataclass(frozen=True, kw_only=True)
class Point:
    """L-BFGS from all starts on the same fixed samples."""

    rank: int = 2
    n_samples: int = 6
    per_unknown: float = 1.0
    noise_std: float = 0.0
    dim: int = 40
    trials: int = 40
    iterations: int = 800
    starts: tuple[str, ...] = lf.choice(
        (TRUTH, *spectral(rank=1), RANDOM), (TRUTH, MOMENTS, PAIRS, RANDOM), several=True
    )
    seed: int = 0

    @property
    def n_clients(self) -> int:
        """Number of clients for the given number of equations per unknown."""
        unknowns = self.rank * (self.dim - self.rank)
        return max(self.rank, round(self.per_unknown * unknowns / (self.n_samples - self.rank)))

    def run(self) -> dict[str, Any]:
        """Return distances and empirical risks from all starts, and the predictions."""
        k, n, m = self.rank, self.n_clients, self.n_samples
        problem = lf.SharedRepresentation(n_clients=n, dim=self.dim, rank=k, noise_std=self.noise_std)
        seed = (self.seed, n)  # trials at different n are then independent
        truth = problem.truth(seed, range(self.trials))
        data = lf.FixedSamples(m).draw(problem, trials=self.trials, seed=seed)
        given = lf.GivenTruth(B=truth.B, W=truth.W, noise_std=self.noise_std)

        def run(algorithm: lf.Algorithm) -> lf.Result:
            metrics = ["subspace_distance"]
            return lf.simulate(algorithm, given, data=data, n_rounds=1, trials=self.trials, metrics=metrics, seed=seed)

        starts: dict[str, Any] = {TRUTH: lf.AtDistance(0.1), RANDOM: "random"}
        starts |= {name: run(one).final.B for name, one in spectral(k).items() if name in self.starts}
        row: dict[str, Any] = {"n_clients": n, "setting": f"k = {k}, m = {m}"}
        row["equations"] = n * (m - k) / (k * (self.dim - k))
        for name in self.starts:
            found = run(lf.BurerMonteiro(rank=k, init=starts[name], iterations=self.iterations, tolerance=1e-8))
            row[name] = found.metrics["subspace_distance"][:, -1]
            row[f"{name} risk"] = lf.theory.at_exact_heads(data, found.final.B).risk
        return row | self.predicted(truth.W)

    def predicted(self, W: Any) -> dict[str, Any]:
        """Return the predicted distances and the radius, (trials,), NaN without noise or without a solution."""
        if not self.noise_std:
            return {name: np.full(self.trials, np.nan) for name in ("law", "radius", "first")}
        d, m, sigma = self.dim, self.n_samples, self.noise_std
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # beyond the range
            law = lf.theory.fixed_sample_floor(W, dim=d, n_samples=m, noise_std=sigma)
            first = lf.theory.similar_floor(W, np.zeros(W.shape[:2]), dim=d, n_samples=m, noise_std=sigma)
        return {"law": law.distance, "radius": law.replicon, "first": first.distance}


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points without and with noise; quick: one rank, small sizes and few trials."""
    base, settings = Point(), [(1, 4), (2, 6), (3, 12)]
    shares, noisy = [0.7, 0.85, 0.95, 1.05, 1.2, 1.6, 2.5, 5.0], [1.5, 2.2, 3.0, 4.5, 7.0, 12.0]
    if quick:
        base = replace(base, dim=24, trials=8, iterations=200, starts=(TRUTH, PAIRS, RANDOM))
        settings, shares, noisy = [(2, 8)], [0.7, 0.85, 1.2, 5.0], [4.0, 8.0]
    points = lf.grid(base, **{"rank, n_samples": settings}, per_unknown=shares)
    return {
        "points": points + lf.grid(replace(base, noise_std=0.5), **{"rank, n_samples": settings}, per_unknown=noisy)
    }


# --- claims --------------------------------------------------------------------------------------------------


def worst_share(hits: Callable[[lf.Table], Array], words: str, required: c.Range) -> c.Statistic:
    """Return the share of hits in the worst number of clients: the smallest one, or the largest if few are claimed."""
    few = required.high < np.inf

    def measure(part: lf.Table) -> c.Measurement:
        found = c.stacked(part, hits)
        trials, counts = len(found), (found == few).sum(axis=0)  # of hits, or of misses
        share, low, high = largest_of(binomial_share, [(int(count), trials) for count in counts])
        worst = int(np.argmax(counts))
        n, every = part.rows[worst]["n_clients"], len(part)
        detail = f"{found[:, worst].sum()} of {trials} trials at n = {n}, of {every} numbers of clients"
        return c.Measurement((share, low, high) if few else (1.0 - share, 1.0 - high, 1.0 - low), detail)

    return c.measured(f"{words}, in the worst number of clients", measure, required)


def recovered(row: lf.Table) -> Array:
    """Return whether a start near B* ends at B*, in each trial."""
    return np.asarray(row[TRUTH] < RECOVERED)


def reached(row: lf.Table, name: str) -> Array:
    """Return whether a start ends at the minimum near B*, or lower, in each trial."""
    at_truth = row[name] < RECOVERED if not row["noise_std"] else False
    return np.asarray((row[f"{name} risk"] <= SAME * row[f"{TRUTH} risk"]) | at_truth)


def per_entry(row: lf.Table) -> float:
    """Return the number of samples of all clients for each entry of B, n m/(d k)."""
    return float(row["n_clients"] * row["n_samples"] / (row["dim"] * row["rank"]))


def typical(row: lf.Table, name: str) -> float:
    """Return the median of a prediction over trials; a trial without a solution counts as infinite."""
    return float(np.median(np.nan_to_num(row[name], nan=np.inf)))


def determined(row: lf.Table, start: str) -> bool:
    """Return whether a start was run, and the samples determine B*: enough equations, or with noise a small radius."""
    enough = typical(row, "radius") <= 1.0 if row["noise_std"] else row["equations"] >= 1.0
    return start in row.columns and bool(enough)


def unstable(row: lf.Table) -> bool:
    """Return whether the predicted minimum exists, but has a radius above 1."""
    return bool(np.isfinite(row["law"]).all() and np.median(row["radius"]) > 1.0)


def farthest(part: lf.Table) -> lf.Table:
    """Return the row with the largest radius."""
    return max(part, key=lambda row: float(np.median(row["radius"])))


def case(part: lf.Table) -> str:
    """Return the setting of a claim on starts in words."""
    noisy = part.rows[0]["noise_std"] > 0.0
    words = "with noise, radius at most 1" if noisy else "no noise, more equations than unknowns"
    return f"{part.rows[0]['setting']}, {words}"


EXACT = c.of(noise_std=0.0)
WITHIN = f"share of trials within {RECOVERED:g} of B*"
Exact = partial(c.Claim, over=c.each("setting"), setting="{setting}, no noise")
CLAIMS = (
    Exact(
        "From a start near B*, the minimum is B* with more equations than unknowns, n (m-k) > k (d-k)",
        OWN,
        worst_share(recovered, WITHIN, c.at_least(0.75)),
        where=(EXACT, c.only(lambda row: row["equations"] >= 1.04)),
    ),
    Exact(
        "From a start near B*, the minimum is not B* with fewer equations than unknowns",
        OWN,
        worst_share(recovered, WITHIN, c.at_most(0.25)),
        where=(EXACT, c.only(lambda row: row["equations"] <= 0.96)),
    ),
    Exact(
        "From a start near B*, the minimum is B* with n m >= k d samples",
        c.OWN_THRESHOLD,
        worst_share(recovered, WITHIN, c.at_least(0.75)),
        where=(EXACT, c.only(lambda row: row["equations"] <= 0.96 and per_entry(row) >= 1)),
    ),
    c.Claim(
        "Beyond a radius of 1, the minimum is nearer to B* than the unstable solution",
        CONJECTURE,
        c.median(
            lambda part: farthest(part)[TRUTH] / farthest(part)["law"],
            "median over trials of the distance divided by the predicted one",
            c.below(1.0),
        ),
        where=c.only(unstable),
        over=c.each("setting"),
        setting=lambda part: f"{part.rows[0]['setting']}, radius {np.median(farthest(part)['radius']):.2g}",
    ),
    Exact(
        "Some random starts end at other minima with n m >= 6 d k samples",
        CONJECTURE,
        worst_share(
            lambda row: np.logical_not(reached(row, RANDOM)),
            "share of trials with a larger empirical risk than from the start near B*",
            c.above(0.0),
        ),
        where=(EXACT, c.only(lambda row: RANDOM in row.columns and per_entry(row) >= 6)),
    ),
    *(
        c.Claim(
            f"From the {name} L-BFGS reaches the minimum near B*",
            CONJECTURE,
            worst_share(
                partial(reached, name=name),
                "share of trials with the empirical risk of the start near B*",
                c.at_least(0.9),
            ),
            where=c.only(partial(determined, start=name)),
            over=c.each("setting", "noise_std"),
            setting=case,
        )
        for name in (PAIRS, MOMENTS, RANDOM)
    ),
)


# --- figure --------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the shares of recovery without noise, and the distances with noise."""
    table = c.sorted_by("rank")(c.sorted_by("equations")(tables["points"]))  # settings in order of their rank
    with lf.panels(table, column="setting", row=2, title="{}", height=4.4, sharex=True, sharey="row") as sheet:
        for (ax, part), (below, _) in zip(sheet.row(0), sheet.row(1), strict=True):
            exact, noisy = part.select(noise_std=0.0), c.only(lambda row: row["noise_std"] > 0.0)(part)
            ax.axvline(1.0, color="black", linewidth=0.7)
            for name in drawn(exact):
                colour, marker, line = LOOK[name]
                shares = [np.mean(row[name] < RECOVERED) for row in exact]
                ax.plot(
                    exact["equations"], shares, line, color=colour, marker=marker, markerfacecolor="none", linewidth=0.9
                )
            draw_noisy(below, noisy)
        sheet.label("equations per unknown", "share within 0.001 of B*", "subspace distance", xscale="log")
        for below, _ in sheet.row(1):
            below.set(yscale="log")
        sheet.legend(f"{table.rows[0]['trials']} trials", ncols=3)
    return {"": sheet.figure}


def draw_noisy(ax: Any, part: lf.Table) -> None:
    """Draw the distances from all starts, and the predictions."""
    if not part:
        return
    x = part["equations"]
    for turn, name in enumerate(drawn(part)):
        found = np.quantile(part[name], (0.5, 0.1, 0.9), axis=1).T
        intervals(ax, x * 1.03 ** (turn - 1.5), found, LOOK[name], label=name, capsize=0, markerfacecolor="none")
    law, radius, first = (np.array([typical(row, name) for row in part]) for name in ("law", "radius", "first"))
    ax.plot(x, np.where(radius < np.inf, law, np.nan), color="black", linestyle=":", linewidth=1.0)
    ax.plot(x, np.where(radius <= STABLE, law, np.nan), color="black", linewidth=1.2, label="predicted")
    ax.plot(x, first, color=KINDS[6][0], linestyle="--", linewidth=0.9, label="first order")


def drawn(part: lf.Table) -> list[str]:
    """Return the starts of some rows, in the order of their looks."""
    return [name for name in LOOK if name in part.columns]
