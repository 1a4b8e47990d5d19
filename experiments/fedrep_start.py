"""FedRep's initialisation: how many rounds a spectral start saves, on fixed samples.

d = 50, k = 4 and n = 100. FedRep starts from spectral estimates of the same samples, from a random subspace, and from
subspaces at given distances from B*. Its step size is ``1.2/(c (1 + sqrt g)^2)`` with c = 1 - k/m and
``g = (d-k) k/(n (m-k))``, from the largest eigenvalue near B*. Rounds are counted to distance 1e-6 without noise. With
noise they are counted to 1.05 times the smallest final distance of the same trial, over all starts. The uploads of a
spectral estimate count as the number of rounds with equally many floats. The spectral estimates are those of the
experiment `estimators`.

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
from typing import Any, TypeAlias

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.algorithms.estimators import SpectralEstimator
from linfed.algorithms.initial import Initial, InitialStart
from linfed.figures.style import KINDS, Look
from linfed.plotting.panels import Figures
from linfed.statistics import median_interval, median_ratio
from linfed.statistics.findings import OWN_THRESHOLD, Finding, judge
from linfed.statistics.gains import lower_median
from linfed.statistics.intervals import first_round_below

from ._spectral import AVERAGES, LOOKS, MOMENTS, PAIRS, TWO, spectral

SUMMARY = "FedRep's initialisation: rounds from spectral estimates, from a random start and from given distances"

RANDOM, GIVEN = "random", "given distance"
STARTS = (RANDOM, MOMENTS, AVERAGES, PAIRS, TWO)
LOOK: dict[str, Look] = {**LOOKS, RANDOM: KINDS[-1], GIVEN: KINDS[2]}

CLOSE, NEAR = 1e-6, 1.05
"""Distance to which rounds are counted without noise, and factor above the smallest final distance with noise."""


Rounds: TypeAlias = dict[tuple[str, float], Array]
"""Rounds of each trial, by method and given distance."""


@dataclass(frozen=True)
class Estimate(Initial):
    """Initial subspace that a spectral estimator computes from the first batch."""

    estimator: SpectralEstimator

    needs_batch = True

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the estimate."""
        return self.estimator.estimate(start.batch(), start.dim)


@dataclass(frozen=True, kw_only=True)
class Course:
    """FedRep on fixed samples from one start."""

    method: str
    delta: float = 0.5
    n_clients: int = 100
    n_samples: int = 10
    noise_std: float = 0.0
    dim: int = 50
    rank: int = 4
    rounds: int = 300
    trials: int = 20
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return the distance against rounds, and the floats of the start divided by those of a round."""
        k, spare = self.rank, max(self.n_samples - self.rank, 1)
        largest = (1.0 + ((self.dim - k) * k / (self.n_clients * spare)) ** 0.5) ** 2
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": k, "noise_std": self.noise_std}
        estimator = spectral(k).get(self.method)
        init = Estimate(estimator) if estimator else lf.AtDistance(self.delta) if self.method == GIVEN else "random"
        algorithm = lf.FedRep(rank=k, step_size=1.2 * self.n_samples / spare / largest, init=init)
        options: dict[str, Any] = {"rounds": self.rounds, "trials": self.trials, "seed": self.seed}
        problem = lf.SharedRepresentation(**sizes, condition_number=1.0)
        data = lf.FixedSamples(self.n_samples)
        result = lf.simulate(algorithm, problem, data=data, metrics=["subspace_distance"], **options)
        sent = sum(algorithm.communication(dim=self.dim))
        upload = estimator.communication(dim=self.dim).up / sent if estimator else 0.0
        return {"distance": lf.LabeledArray(result.metrics["subspace_distance"], round=result.rounds), "upload": upload}


def cells(quick: bool) -> dict[str, list[Course]]:
    """Return the runs from all starts; quick: few trials, starts and given distances, small sizes."""
    base, starts = Course(method=RANDOM), STARTS
    counts, noises, deltas = (10, 20, 40), (0.0, 1.0), (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    if quick:
        base, starts = replace(base, dim=20, rank=2, n_clients=50, rounds=80, trials=8), STARTS[:3]
        counts, deltas = (10,), (0.3, 0.9)
    runs = lf.grid(base, n_samples=counts, noise_std=noises, method=starts)
    return {"runs": runs + lf.grid(replace(base, method=GIVEN), n_samples=counts, noise_std=noises, delta=deltas)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the rounds against the initial distance."""
    table = tables["runs"]
    with lf.panels(table, column="n_samples", row="noise_std", title="m = {}", height=4.4, sharex=True) as sheet:
        for ax, part in sheet:
            found = rounds_of(part)
            for name in (*STARTS, GIVEN):
                rows = [row for row in part if row["method"] == name]
                if not rows:
                    continue
                at = [np.median(row["distance"][:, 0]) for row in rows]
                values = np.quantile([found[key(row)] for row in rows], (0.1, 0.5, 0.9), axis=1, method="inverted_cdf")
                low, middle, high = np.minimum(values, part.rows[0]["rounds"])
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


def key(row: Any) -> tuple[str, float]:
    """Return the start of a row."""
    return row["method"], row["delta"]


def tangent(sine: Array) -> Array:
    """Return the tangent of an angle with a given sine."""
    return np.asarray(sine / np.sqrt(np.maximum(1.0 - sine**2, 1e-12)))


def rounds_of(part: lf.Table) -> Rounds:
    """Return the rounds to the level of each trial, for each start of one number of samples and noise level."""
    last = np.min([row["distance"].values[:, -1] for row in part.rows], axis=0)
    level = NEAR * last[:, None] if part.rows[0]["noise_std"] else CLOSE
    return {key(row): first_below(row, level) for row in part}


def first_below(row: lf.Table, level: Array | float) -> Array:
    """Return the first round of each trial with a distance at or below a level, infinite without one."""
    return first_round_below(np.asarray(row["round"]), row["distance"] / level, 1.0)


def savings(part: lf.Table) -> Iterator[Finding]:
    """Judge the rounds from each start, with the floats of the start counted in rounds."""
    row, found = part.rows[0], rounds_of(part)
    total = {one["method"]: found[key(one)] + one["upload"] for one in part if one["method"] != GIVEN}
    aim = f"{NEAR} times the smallest final distance" if row["noise_std"] else f"distance {CLOSE:g}"
    fields: dict[str, Any] = {"setting": f"m = {row['n_samples']}, noise std {row['noise_std']:g}, to {aim}"}
    fields["source"] = OWN_THRESHOLD
    for name in total:
        if name != RANDOM:
            text = f"A start from {name} saves rounds of FedRep compared with a random start, its upload included"
            statistic = "median rounds divided by those from a random start"
            detail = f"{lower_median(found[name, row['delta']]):g} against {lower_median(total[RANDOM]):g} rounds"
            ratio = median_ratio(total[name], total[RANDOM])
            yield judge(ratio, claim=text, statistic=statistic, claimed_high=1.0, strict=True, detail=detail, **fields)
        if name not in (RANDOM, AVERAGES):
            text = f"From local averages FedRep needs no more rounds than from {name}, uploads included"
            ratio, statistic = median_ratio(total[AVERAGES], total[name]), f"median rounds divided by those from {name}"
            yield judge(ratio, claim=text, statistic=statistic, claimed_high=NEAR, **fields)
    given = sorted((one for one in part if one["method"] == GIVEN), key=lambda one: one["delta"])
    if len(given) > 1 and not row["noise_std"]:
        curve = [tangent(np.array([one["delta"] for one in given])), [lower_median(found[key(one)]) for one in given]]
        yield from distances(part, found, curve, **fields)


def distances(part: lf.Table, found: Rounds, curve: list[Any], **fields: Any) -> Iterator[Finding]:
    """Judge whether the rounds from an estimate are those from a subspace at the same distance from B*."""
    ratios = {}
    for row in part:
        if row["method"] not in (GIVEN, RANDOM):
            same = np.interp(np.log(tangent(row["distance"][:, 0])), np.log(curve[0]), curve[1])
            ratios[row["method"]] = median_interval(found[key(row)] / same)
    name = max(ratios, key=lambda one: abs(np.log(ratios[one][0])))
    yield judge(
        ratios[name],
        claim="FedRep needs as many rounds from an estimate as from a subspace at the same distance from B*",
        statistic="median ratio of the rounds, the estimate with the largest difference",
        claimed_low=0.9,
        claimed_high=1.1,
        detail=name,
        **fields,
    )
