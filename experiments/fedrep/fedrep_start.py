"""FedRep's initialisation: how many rounds a spectral start saves, on fixed samples.

d = 50, k = 4 and n = 100. FedRep starts from spectral estimates of the same samples, from a random subspace, and from
subspaces at given distances from B*. Its step size is ``1.2/(c (1 + sqrt g)^2)`` with c = 1 - k/m and
``g = (d-k) k/(n (m-k))``, from the largest eigenvalue near B*. Rounds are counted to distance 1e-6 without noise. With
noise they are counted to 1.05 times the smallest final distance of the same trial, over all starts. The uploads of a
spectral estimate count as the number of rounds with equally many floats. The experiment `estimators` compares
the spectral estimates.

**Deviations**: the sizes are ours. Heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``. The FedRep paper starts
from the moments and draws fresh samples in every round.

Figures
-------
"" : Rounds of FedRep against the tangent of its initial distance, for each number of samples and noise level. Markers:
    median over trials of each start; bars: 10-90 %. Line: starts at given distances.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.algorithms.initial import Initial, InitialStart
from linfed.algorithms.one_round.estimators import SpectralEstimator
from linfed.figures.style import KINDS, Look
from linfed.plotting.panels import Figures
from linfed.statistics import median_ratio
from linfed.statistics.findings import OWN_THRESHOLD, Finding, judge
from linfed.statistics.gains import lower_median
from linfed.statistics.intervals import Measured, as_factor, first_round_below, largest_of, quantile_interval

from ..shared.spectral import AVERAGES, LOOKS, MOMENTS, PAIRS, TWO, spectral

SUMMARY = "FedRep's initialisation: rounds from spectral estimates, from a random start and from given distances"
PICTURES = {"": 1400}

RANDOM, GIVEN = "random start", "given distance"
STARTS = (RANDOM, MOMENTS, AVERAGES, PAIRS, TWO)
LOOK: dict[str, Look] = {**LOOKS, RANDOM: KINDS[-1], GIVEN: KINDS[2]}

CLOSE, NEAR = 1e-6, 1.05
"""Distance to which rounds are counted without noise, and factor above the smallest final distance with noise."""


@dataclass(frozen=True)
class Estimate(Initial):
    """Initial subspace that a spectral estimator computes from the first batch."""

    estimator: SpectralEstimator

    needs_batch = True

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the estimate."""
        return self.estimator.estimate(start.batch(), start.dim)


@dataclass(frozen=True, kw_only=True)
class Point:
    """FedRep from all starts on the same fixed samples."""

    n_clients: int = 100
    n_samples: int = 12
    noise_std: float = 0.0
    dim: int = 50
    rank: int = 4
    rounds: int = 300
    trials: int = 20
    starts: tuple[str, ...] = lf.choice((RANDOM, *spectral(rank=1)), STARTS, several=True)
    deltas: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    seed: int = 0

    def run(self) -> list[dict[str, Any]]:
        """Return a row for each start: initial distances, rounds to the level, and the upload in rounds."""
        k, spare = self.rank, max(self.n_samples - self.rank, 1)
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": k, "noise_std": self.noise_std}
        problem = lf.SharedRepresentation(**sizes, condition_number=1.0)
        largest = (1.0 + ((self.dim - k) * k / (self.n_clients * spare)) ** 0.5) ** 2
        fedrep = lf.FedRep(rank=k, step_size=1.2 * self.n_samples / spare / largest)
        sent = sum(fedrep.communication(dim=self.dim))
        run = lf.Run(
            algorithm=fedrep,
            problem=problem,
            data=lf.FixedSamples(self.n_samples),
            rounds=self.rounds,
            trials=self.trials,
            seed=self.seed,
            metrics=["subspace_distance"],
        )
        known = {name: one for name, one in spectral(k).items() if name in self.starts}
        inits: dict[tuple[str, float], Any] = {(name, np.nan): Estimate(one) for name, one in known.items()}
        inits |= {(RANDOM, np.nan): "random"} | {(GIVEN, delta): lf.AtDistance(delta) for delta in self.deltas}
        runs = {key: replace(run, algorithm=replace(fedrep, init=init)) for key, init in inits.items()}
        distances = {key: each.simulate().metrics["subspace_distance"] for key, each in runs.items()}
        last = np.min([each[:, -1:] for each in distances.values()], axis=0)
        level = NEAR * last if self.noise_std else np.full_like(last, CLOSE)
        return [
            {
                "method": name,
                "delta": delta,
                "initial": each[:, 0],
                "needed": first_round_below(np.arange(self.rounds + 1.0), each / level, 1.0),
                "upload": known[name].communication(dim=self.dim).up / sent if name in known else 0.0,
            }
            for (name, delta), each in distances.items()
        ]


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points; quick: one number of samples, few trials and starts, small sizes."""
    base, counts = Point(), (12, 20, 40)
    if quick:
        base = replace(base, dim=20, rank=2, n_clients=50, rounds=80, trials=8, starts=STARTS[:3], deltas=(0.3, 0.9))
        counts = (12,)
    return {"runs": lf.grid(base, n_samples=counts, noise_std=(0.0, 1.0))}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the rounds against the initial distance."""
    table = tables["runs"]
    with lf.panels(table, column="n_samples", row="noise_std", title="m = {}", height=4.4, sharex=True) as sheet:
        for ax, part in sheet:
            for name in (*STARTS, GIVEN):
                rows = part.select(method=name).rows
                if not rows:
                    continue
                at = [lower_median(row["initial"]) for row in rows]
                values = np.quantile([row["needed"] for row in rows], (0.1, 0.5, 0.9), axis=1, method="inverted_cdf")
                low, middle, high = np.minimum(values, rows[0]["rounds"])
                colour, marker, _ = LOOK[name]
                look = {"color": colour, "marker": "" if name == GIVEN else marker, "markerfacecolor": "none"}
                look |= {"linestyle": "-" if name == GIVEN else "none", "linewidth": 0.8, "elinewidth": 0.7}
                ax.errorbar(tangent(np.array(at)), middle, yerr=[middle - low, high - middle], label=name, **look)
            ax.set(xscale="log")
        for ax, noise in zip(sheet.axes[:, 0], table.unique("noise_std"), strict=True):
            ax.set_ylabel(f"rounds, noise std {noise:g}")
        for ax in sheet.axes[-1]:
            ax.set_xlabel("tangent of the initial distance")
        sheet.legend(ncols=6)
    return {"": sheet.figure}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the rounds from each start, for each number of samples and noise level."""
    return [one for _, part in tables["runs"].groupby("n_samples", "noise_std") for one in savings(part)]


def tangent(sine: Array) -> Array:
    """Return the tangent of an angle with a given sine."""
    return np.asarray(sine / np.sqrt(np.maximum(1.0 - sine**2, 1e-12)))


def savings(part: lf.Table) -> Iterator[Finding]:
    """Judge the rounds from each start, with the floats of the start counted in rounds."""
    row = part.rows[0]
    starts = {one["method"]: one for one in part.rows if one["method"] != GIVEN}
    total = {name: one["needed"] + one["upload"] for name, one in starts.items()}
    aim = f"{NEAR} times the smallest final distance" if row["noise_std"] else f"distance {CLOSE:g}"
    fields: dict[str, Any] = {"setting": f"m = {row['n_samples']}, noise std {row['noise_std']:g}, to {aim}"}
    fields["source"] = OWN_THRESHOLD
    for name, one in starts.items():
        if name != RANDOM:
            text = f"A start from {name} saves rounds of FedRep compared with a random start, its upload included"
            statistic = "median rounds divided by those from a random start"
            detail = (
                f"{lower_median(one['needed']):g} rounds without the upload, {lower_median(total[RANDOM]):g} at random"
            )
            ratio = median_ratio(total[name], total[RANDOM])
            yield judge(ratio, claim=text, statistic=statistic, claimed_high=1.0, strict=True, detail=detail, **fields)
        if name not in (RANDOM, AVERAGES):
            text = f"From local averages FedRep needs no more rounds than from {name}, uploads included"
            ratio, statistic = median_ratio(total[AVERAGES], total[name]), f"median rounds divided by those from {name}"
            yield judge(ratio, claim=text, statistic=statistic, claimed_high=NEAR, **fields)
    given = sorted(part.select(method=GIVEN).rows, key=lambda one: one["delta"])
    if len(given) > 1 and not row["noise_std"]:
        curve = [
            np.log(tangent(np.array([one["delta"] for one in given]))),
            [lower_median(one["needed"]) for one in given],
        ]
        yield same_rounds({name: one for name, one in starts.items() if name != RANDOM}, curve, **fields)


def same_rounds(starts: dict[str, dict[str, Any]], curve: list[Any], **fields: Any) -> Finding:
    """Judge whether the rounds from an estimate are the rounds from a given distance, interpolated in its logarithm."""
    rounds = {name: row["needed"] / np.interp(np.log(tangent(row["initial"])), *curve) for name, row in starts.items()}

    def factor(ratios: Array, *, confidence: float = 0.95) -> Measured:
        return as_factor(quantile_interval(ratios, 0.5, confidence=confidence))

    return judge(
        largest_of(factor, [(ratios,) for ratios in rounds.values()]),
        claim="The rounds from an estimate equal the rounds from a subspace at this distance from B*",
        statistic="factor between the rounds, median over trials, the estimate with the largest factor",
        claimed_high=1.1,
        detail=max(rounds, key=lambda name: factor(rounds[name])[0]),
        **fields,
    )
