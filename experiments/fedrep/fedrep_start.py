"""FedRep's initialisation: how many rounds a spectral start saves, on fixed samples.

d = 50, k = 4 and n = 100. FedRep starts from spectral estimates of the same samples, from a random subspace, and from
subspaces at given distances from B*. Its step size is ``1.2/(c (1 + sqrt g)^2)`` with c = 1 - k/m and
``g = (d-k) k/(n (m-k))``, from the largest eigenvalue near B*. Rounds are counted to distance 1e-6 without noise. With
noise they are counted to 1.05 times the smallest final distance of the same trial, over all starts. The uploads of a
spectral estimate count as the number of rounds with equally many floats. The rounds from given distances are medians
over trials, interpolated in the logarithm of the tangent. Their error is part of the interval of a comparison, and
estimates that lie outside these distances are left out and counted. The experiment `estimators` compares the spectral
estimates.

**Deviations**: the sizes are ours. Heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``. The FedRep paper starts
from the moments and draws fresh samples in every round.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.algorithms.initial import Initial, InitialStart
from linfed.algorithms.one_round.estimators import SpectralEstimator
from linfed.figures.style import KINDS, Look
from linfed.plotting.panels import Figures
from linfed.statistics.gains import lower_median
from linfed.statistics.intervals import Measured, as_factor, bootstrap_interval, first_round_below, largest_of

from ..shared.spectral import AVERAGES, MOMENTS, PAIRS, TWO, spectral
from ..shared.spectral_drawn import LOOKS

SUMMARY = "FedRep's initialisation: rounds from spectral estimates, at random and at given distances"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "Rounds of FedRep against the tangent of its initial subspace distance, for each number of samples and noise "
    "std. Markers: median over trials of each initialisation; bars: 10-90 %. Line: given distances.",
}

RANDOM, GIVEN = "random start", "given distance"
ESTIMATES = (MOMENTS, AVERAGES, PAIRS, TWO)
LOOK: dict[str, Look] = {RANDOM: KINDS[-1], **LOOKS, GIVEN: KINDS[2]}

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
    n_rounds: int = 300
    trials: int = 20
    starts: tuple[str, ...] = lf.choice((RANDOM, *spectral(rank=1)), (RANDOM, *ESTIMATES), several=True)
    deltas: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 0.9999, 0.99999)
    seed: int = 0

    def run(self) -> list[dict[str, Any]]:
        """Return a row for each start: initial distances, rounds to the level, and the upload in rounds."""
        k, spare = self.rank, max(self.n_samples - self.rank, 1)
        largest = (1.0 + ((self.dim - k) * k / (self.n_clients * spare)) ** 0.5) ** 2
        fedrep = lf.FedRep(rank=k, step_size=1.2 * self.n_samples / spare / largest)
        sent = sum(fedrep.communication(dim=self.dim))
        run = lf.Run(
            algorithm=fedrep,
            problem=lf.SharedRepresentation(
                n_clients=self.n_clients, dim=self.dim, rank=k, noise_std=self.noise_std, condition_number=1.0
            ),
            data=lf.FixedSamples(self.n_samples),
            n_rounds=self.n_rounds,
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
                "needed": first_round_below(np.arange(self.n_rounds + 1.0), each / level, 1.0),
                "upload": known[name].communication(dim=self.dim).up / sent if name in known else 0.0,
            }
            for (name, delta), each in distances.items()
        ]


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points; quick: one number of samples, few trials and starts, small sizes."""
    base = Point()
    if quick:
        base = replace(base, dim=20, rank=2, n_clients=50, n_rounds=80, trials=8, deltas=(0.3, 0.9))
        base = replace(base, starts=(RANDOM, MOMENTS, AVERAGES))
    return {"runs": lf.grid(base, n_samples=(12,) if quick else (12, 20, 40), noise_std=(0.0, 1.0))}


def tangent(sine: Array) -> Array:
    """Return the tangent of an angle with a given sine."""
    return np.asarray(sine / np.sqrt(np.maximum(1.0 - sine**2, 1e-12)))


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return the rounds from each start, with the floats of its upload counted in rounds."""
    return {"starts": tables["runs"].assign(total=lambda row: row["needed"] + row["upload"])}


def rounds(first: str, second: str, required: c.Range) -> c.Statistic:
    """Return the ratio of the rounds from two starts, uploads included."""
    words = f"median rounds divided by those from {'a random start' if second == RANDOM else second}"
    return c.ratio("total", first, second, words, required)


def counts(part: lf.Table, start: str) -> str:
    """Return the rounds from a start without its upload, and those from a random start; empty without such runs."""
    found = [f"{lower_median(row['needed']):g}" for name in (start, RANDOM) for row in part.select(method=name)]
    return f"{found[0]} rounds without the upload, {found[1]} at random" if len(found) == 2 else ""


def as_at_distance(part: lf.Table) -> c.Measurement | None:
    """Return the largest factor between the rounds from an estimate and those from a subspace at its distance.

    The trials of an estimate and of the given distances are resampled together.
    """
    given = c.sorted_by("delta")(part.select(method=GIVEN))
    if len(given) < 2:
        return None
    tangents, curves = np.log(tangent(given["delta"])), c.stacked(given, "needed")
    rows = {row["method"]: row for row in part.select(method=list(ESTIMATES))}
    starts = {name: np.log(tangent(row["initial"])) for name, row in rows.items()}

    def factor(name: str, *, confidence: float = 0.95) -> Measured:
        def ratio(resample: Array) -> float:
            i = resample.astype(int)
            curve = lower_median(curves[i].T)
            expected = np.interp(starts[name][i], tangents, curve, left=np.nan, right=np.nan)
            ratios = (rows[name]["needed"][i] / expected)[~np.isnan(expected)]
            return float(np.quantile(ratios, 0.5, method="inverted_cdf")) if ratios.size else np.nan

        everyone = np.arange(float(len(curves)))
        return as_factor((ratio(everyone), *bootstrap_interval(ratio, [everyone], confidence=confidence)))

    worst = max(rows, key=lambda name: factor(name)[0])
    outside = sum(int(((one < tangents[0]) | (one > tangents[-1])).sum()) for one in starts.values())
    text = f"{outside} estimates outside the given distances are left out" * bool(outside)
    return c.Measurement(largest_of(factor, [(name,) for name in rows]), worst, text)


def setting(part: lf.Table) -> str:
    """Return the setting of a claim in words."""
    row = part.rows[0]
    aim = f"{NEAR} times the smallest final distance" if row["noise_std"] else f"distance {CLOSE:g}"
    return f"m = {row['n_samples']}, noise std {row['noise_std']:g}, to {aim}"


Claim = partial(c.Claim, table="starts", over=c.each("n_samples", "noise_std"), setting=setting)
CLAIMS = (
    *(
        Claim(
            f"A start from {start} saves rounds of FedRep compared with a random start, its upload included",
            c.OWN_THRESHOLD,
            rounds(start, RANDOM, c.below(1.0)),
            detail=partial(counts, start=start),
        )
        for start in ESTIMATES
    ),
    *(
        Claim(
            f"From local averages FedRep needs no more rounds than from {start}, uploads included",
            c.OWN_THRESHOLD,
            rounds(AVERAGES, start, c.at_most(NEAR)),
        )
        for start in (MOMENTS, PAIRS, TWO)
    ),
    Claim(
        "The rounds from an estimate equal the rounds from a subspace at this distance from B*",
        c.OWN_THRESHOLD,
        c.measured(
            "factor between the rounds, median over trials, the estimate with the largest factor", as_at_distance
        ),
        c.at_most(1.1),
        where=c.of(noise_std=0.0),
    ),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the rounds against the initial distance."""
    table = tables["runs"]
    with lf.panels(table, column="n_samples", row="noise_std", title="m = {}", height=4.4, sharex=True) as sheet:
        for ax, part in sheet:
            for name in (one for one in LOOK if one in part.unique("method")):
                rows, (colour, marker, _) = part.select(method=name), LOOK[name]
                at = tangent(np.array([lower_median(row["initial"]) for row in rows]))
                values = [np.quantile(row["needed"], (0.1, 0.5, 0.9), method="inverted_cdf") for row in rows]
                low, middle, high = np.minimum(values, part.rows[0]["n_rounds"]).T
                line, ends = "-" if name == GIVEN else marker, [middle - low, high - middle]
                ax.errorbar(at, middle, ends, fmt=line, color=colour, label=name, lw=0.8, elinewidth=0.7, mfc="none")
        labels = [f"rounds, noise std {noise:g}" for noise in table.unique("noise_std")]
        sheet.label("tangent of the initial distance", *labels, xscale="log")
        sheet.legend(ncols=6)
    return {"": sheet.figure}
