"""How many fixed samples determine B*: the minimum of the empirical risk near B*, and the starts that reach it.

n clients have one fixed data set of m samples each. L-BFGS (`linfed.BurerMonteiro`) minimises the empirical risk, to
whose stationary points FedRep with exact heads converges. It starts near B*, from two spectral estimates of the same
samples, and at random.

Without noise, there are n m equations for n k + k (d-k) unknowns: the heads and the subspace. So B* is an isolated
solution from ``n (m-k) = k (d-k)``, if the heads are in general position. With noise of standard deviation 0.5, the
distance of the minimum near B* is predicted without a fitted parameter by `linfed.theory.fixed_sample_floor`. The
prediction is claimed up to a replicon radius of 0.9. The simplest rivals are the count n m = k d without the heads, and
the prediction of first order (`linfed.theory.similar_floor` without parts outside).

A start reaches the minimum if its empirical risk is at most 1.0001 times the one from the start near B*. Which starts
reach it is a conjecture: no derivation is known.

**Deviations**: the sizes are ours, and so are all claims.

Figures
-------
"" : Top: without noise, share of trials that end within 0.001 of B*, against equations per unknown,
    ``n (m-k)/(k (d-k))``. Bottom: distance with noise. Markers: median over trials of each start; bars: 10-90 %. Black
    line: predicted, dotted above a replicon radius of 0.9; green, dashed: first order.

References: Du, Hu, Kakade, Lee and Lei 2021; Duchi, Feldman, Hu and Talwar 2022, for the U-statistic.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS, Look
from linfed.plotting.panels import Figures
from linfed.statistics import binomial_share
from linfed.statistics.findings import OWN_CONJECTURE, OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import mean_interval, median_interval

from ..shared.spectral import LOOKS, MOMENTS, PAIRS, spectral

SUMMARY = "fixed samples that determine B*: local recovery, the minimum with noise, and the starts that reach it"
PICTURES = {"": 1400}

TRUTH, RANDOM = "near B*", "random start"
LOOK: dict[str, Look] = {TRUTH: KINDS[2], MOMENTS: LOOKS[MOMENTS], PAIRS: LOOKS[PAIRS], RANDOM: KINDS[-1]}

RECOVERED, SAME, STABLE, NEAR = 1e-3, 1.0001, 0.9, 1.1
"""Distance that counts as recovery, largest ratio of empirical risks of the same minimum, largest radius, and claimed
factor of the predicted distance."""

OWN = OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}")
CONJECTURE = OWN_CONJECTURE.adding(OWN_THRESHOLD)


@dataclass(frozen=True, kw_only=True)
class Point:
    """L-BFGS from all starts on the same fixed samples."""

    rank: int = 2
    n_samples: int = 6
    per_unknown: float = 1.0
    noise_std: float = 0.0
    dim: int = 40
    trials: int = 16
    iterations: int = 800
    starts: tuple[str, ...] = lf.choice(
        (TRUTH, *spectral(rank=1), RANDOM), (TRUTH, MOMENTS, PAIRS, RANDOM), several=True
    )
    seed: int = 0

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.rank * self.per_unknown

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
        run = {"data": data, "rounds": 1, "trials": self.trials, "metrics": ["subspace_distance"], "seed": seed}
        starts: dict[str, Any] = {TRUTH: lf.AtDistance(0.1), RANDOM: "random"}
        estimates = [name for name in spectral(k) if name in self.starts]
        starts |= {name: lf.simulate(spectral(k)[name], given, **run).final.B for name in estimates}
        row: dict[str, Any] = {"n_clients": n, "setting": f"k = {k}, m = {m}"}
        row["equations"] = n * (m - k) / (k * (self.dim - k))
        for name in self.starts:
            minimiser = lf.BurerMonteiro(rank=k, init=starts[name], iterations=self.iterations, tolerance=1e-8)
            found = lf.simulate(minimiser, given, **run)
            row[name] = found.metrics["subspace_distance"][:, -1]
            row[f"{name} risk"] = lf.theory.at_exact_heads(data, found.final.B).risk
        return row | self.predicted(truth.W)

    def predicted(self, W: Any) -> dict[str, Any]:
        """Return the predicted distances and the radius, (trials,), NaN without noise or without a solution."""
        row = {name: np.full(self.trials, np.nan) for name in ("law", "radius", "first")}
        if not self.noise_std:
            return row
        sizes: dict[str, Any] = {"dim": self.dim, "n_samples": self.n_samples, "noise_std": self.noise_std}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # beyond the range of the predictions
            law = lf.theory.fixed_sample_floor(W, **sizes)
            first = lf.theory.similar_floor(W, np.zeros(W.shape[:2]), **sizes)
        return {"law": law.distance, "radius": law.replicon, "first": first.distance}


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points without and with noise; quick: one rank, small sizes and few trials."""
    base, settings = Point(), [(1, 4), (2, 6), (3, 12)]
    shares, noisy = (0.7, 0.85, 0.95, 1.05, 1.2, 1.6, 2.5, 5.0), (1.5, 2.2, 3.0, 4.5, 7.0, 12.0)
    if quick:
        base = replace(base, dim=24, trials=8, iterations=200, starts=(TRUTH, PAIRS, RANDOM))
        settings, shares, noisy = [(2, 8)], (0.7, 0.85, 1.2, 5.0), (4.0, 8.0)
    every = lf.grid(base, **{"rank, n_samples": settings})
    points = [replace(one, per_unknown=share) for one in every for share in shares]
    return {"points": points + [replace(one, per_unknown=share, noise_std=0.5) for one in every for share in noisy]}


# --- figure --------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the shares of recovery without noise, and the distances with noise."""
    table = tables["points"]
    with lf.panels(table, column="setting", row=2, title="{}", height=4.4, sharex=True, sharey="row") as sheet:
        for (ax, part), (below, _) in zip(sheet.row(0), sheet.row(1), strict=True):
            rows, noisy = in_order(part)
            ax.axvline(1.0, color="black", linewidth=0.7)
            for name, (colour, marker, line) in drawn(rows):
                shares = [np.mean(row[name] < RECOVERED) for row in rows]
                shape: dict[str, Any] = {"color": colour, "marker": marker, "markerfacecolor": "none"}
                ax.plot([row["equations"] for row in rows], shares, linestyle=line, linewidth=0.9, **shape)
            draw_noisy(below, noisy)
        sheet.label("equations per unknown", "share within 0.001 of B*", "distance", xscale="log")
        for below, _ in sheet.row(1):
            below.set(yscale="log")
        sheet.legend(f"{table.rows[0]['trials']} trials", ncols=3)
    return {"": sheet.figure}


def draw_noisy(ax: Any, rows: list[dict[str, Any]]) -> None:
    """Draw the distances from all starts, and the predictions."""
    if not rows:
        return
    x = np.array([row["equations"] for row in rows])
    for turn, (name, (colour, marker, _)) in enumerate(drawn(rows)):
        low, middle, high = np.quantile([row[name] for row in rows], (0.1, 0.5, 0.9), axis=1)
        look: dict[str, Any] = {"color": colour, "marker": marker, "markerfacecolor": "none", "linestyle": "none"}
        at = x * 1.03 ** (turn - 1.5)
        ax.errorbar(at, middle, yerr=[middle - low, high - middle], elinewidth=0.7, label=name, **look)
    law, radius, first = (np.array([np.median(row[name]) for row in rows]) for name in ("law", "radius", "first"))
    ax.plot(x, np.where(np.isnan(radius), np.nan, law), color="black", linestyle=":", linewidth=1.0)
    ax.plot(x, np.where(radius <= STABLE, law, np.nan), color="black", linewidth=1.2, label="predicted")
    ax.plot(x, first, color=KINDS[6][0], linestyle="--", linewidth=0.9, label="first order")


def drawn(rows: list[dict[str, Any]]) -> list[tuple[str, Look]]:
    """Return the starts of some rows with their looks."""
    return [(name, look) for name, look in LOOK.items() if rows and name in rows[0]]


def in_order(part: lf.Table) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows without and with noise, in the order of their equations per unknown."""
    rows = sorted(part.rows, key=lambda row: row["equations"])
    return [row for row in rows if not row["noise_std"]], [row for row in rows if row["noise_std"]]


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the threshold without noise, the predicted distances with noise, and the starts."""
    out = []
    for setting, part in tables["points"].groupby("setting"):
        rows, noisy = in_order(part)
        out += [*threshold(rows, setting), *distances(noisy, setting), *spurious(rows, setting)]
        out += starts(rows, setting, "no noise", lambda row: row["equations"] >= 1.0)
        out += starts(noisy, setting, "with noise", lambda row: np.median(row["radius"]) <= 1.0)
    return out


def share_of(hits: list[Any], **fields: Any) -> Iterator[Finding]:
    """Judge a share of the trials of several rows, which are independent; nothing without rows."""
    if hits:
        every = np.concatenate(hits)
        counts = f"{every.sum()} of {every.size} trials, {len(hits)} numbers of clients"
        yield judge(binomial_share(int(every.sum()), every.size), detail=counts, **fields)


def threshold(rows: list[dict[str, Any]], setting: str) -> Iterator[Finding]:
    """Judge the recovery of B* from starts near it, on both sides of equal numbers of equations and unknowns."""
    above = [row[TRUTH] < RECOVERED for row in rows if row["equations"] >= 1.04]
    below = [row[TRUTH] < RECOVERED for row in rows if row["equations"] <= 0.96]
    fields: dict[str, Any] = {"setting": f"{setting}, no noise", "source": OWN}
    fields["statistic"] = f"share of trials within {RECOVERED:g} of B*"
    text = "From a start near B*, the minimum is B* with more equations than unknowns, n (m-k) > k (d-k)"
    yield from share_of(above, claim=text, claimed_low=0.75, **fields)
    text = "From a start near B*, the minimum is not B* with fewer equations than unknowns"
    yield from share_of(below, claim=text, claimed_high=0.25, **fields)
    naive = [
        row[TRUTH] < RECOVERED
        for row in rows
        if row["equations"] <= 0.96 and row["n_clients"] * row["n_samples"] >= row["rank"] * row["dim"]
    ]
    text = "From a start near B*, the minimum is B* with n m >= k d samples"
    yield from share_of(naive, claim=text, claimed_low=0.75, **fields | {"source": OWN_THRESHOLD})


def distances(rows: list[dict[str, Any]], setting: str) -> Iterator[Finding]:
    """Judge the predicted distances of the minimum near B*."""
    inside = [row for row in rows if np.median(row["radius"]) <= STABLE]
    if not inside:
        return
    fields: dict[str, Any] = {"setting": f"{setting}, noise std {rows[0]['noise_std']:g}, radius at most {STABLE}"}
    fields["statistic"] = "mean over trials and numbers of clients of the distance divided by the predicted one"
    for name, text, source in (
        ("law", "The minimum near B* is at the predicted distance", OWN),
        ("first", "The minimum near B* is at the distance of first order", OWN_THRESHOLD),
    ):
        ratios = np.stack([row[TRUTH] / row[name] for row in inside])
        ends = ratios.mean(axis=1)
        detail = f"{len(inside)} numbers of clients, from {ends.min():.3g} to {ends.max():.3g}"
        claimed: dict[str, Any] = {"claimed_low": 1 / NEAR, "claimed_high": NEAR}
        yield judge(mean_interval(ratios.mean(axis=0)), claim=text, source=source, detail=detail, **claimed, **fields)
    far = [row for row in rows if np.isfinite(row["law"]).all() and np.median(row["radius"]) > 1.0]
    if far:
        worst = max(far, key=lambda row: float(np.median(row["radius"])))
        fields |= {"setting": f"{setting}, radius {np.median(worst['radius']):.2g}", "source": CONJECTURE}
        fields["statistic"] = "median over trials of the distance divided by the predicted one"
        text = "Beyond a radius of 1, the minimum is nearer to B* than the unstable solution"
        yield judge(median_interval(worst[TRUTH] / worst["law"]), claim=text, claimed_high=1.0, strict=True, **fields)


def starts(rows: list[dict[str, Any]], setting: str, where: str, chosen: Callable[[Any], Any]) -> Iterator[Finding]:
    """Judge whether each start reaches the minimum that a start near B* reaches."""
    inside = [row for row in rows if chosen(row)]
    if not inside:
        return
    limit = "more equations than unknowns" if where == "no noise" else "radius at most 1"
    for name in (one for one in (PAIRS, MOMENTS, RANDOM) if one in inside[0]):
        yield from share_of(
            [reached(row, name) for row in inside],
            claim=f"From the {name} L-BFGS reaches the minimum near B*",
            setting=f"{setting}, {where}, {limit}",
            statistic="share of trials with the empirical risk of the start near B*",
            source=CONJECTURE,
            claimed_low=0.9,
        )


def reached(row: dict[str, Any], name: str) -> Any:
    """Return whether a start ends at the minimum near B*, or lower, in each trial."""
    near, other = row[f"{TRUTH} risk"], row[f"{name} risk"]
    return (other <= SAME * near) | (row[name] < RECOVERED if not row["noise_std"] else False)


def spurious(rows: list[dict[str, Any]], setting: str) -> Iterator[Finding]:
    """Judge whether random starts end at other minima with many samples."""
    many = [row for row in rows if row["n_clients"] * row["n_samples"] >= 6 * row["dim"] * row["rank"]]
    yield from share_of(
        [~reached(row, RANDOM) for row in many if RANDOM in row],
        claim="Some random starts end at other minima with n m >= 6 d k samples",
        setting=f"{setting}, no noise",
        statistic="share of trials with a larger empirical risk than from the start near B*",
        source=CONJECTURE,
        claimed_low=0.0,
        strict=True,
    )
