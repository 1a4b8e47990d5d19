"""Alternating minimisation: final distance against clients and noise, with its competitors and a prediction.

Alternating minimisation (`linfed.AltMin`, on the same samples in both steps or on halves) is compared with the method
of moments from which it starts, local averages, FedRep, and the minimum of the empirical risk that L-BFGS finds. The
prediction for this minimum is `linfed.theory.fixed_sample_floor`, which the experiment `fedrep-floor` judges. The
claims on the same minimum judge only trials in which both methods have converged: B moves by less than 1e-3 over the
last quarter of the rounds, or when L-BFGS starts again from its end.

The source states that the error is nearly optimal for a constant k with few samples per task, and that the errors of
earlier results with few samples are larger. The experiment `altmin` has the rounds, and `mllam-samples` the number of
samples.

**Deviations**: the sizes are ours. Heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``. We know the source's
results from its abstract. The rate ``sigma sqrt(d/(n m))`` is the known minimax rate for these heads.

References: Thekumparampil, Jain, Netrapalli and Oh 2021, "Sample efficient linear meta-learning by alternating
minimization"; Du, Hu, Kakade, Lee and Lei 2021.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array, Mask
from linfed.figures.style import KINDS, LOOKS
from linfed.plotting.panels import SIZE_LABELS, Figures, bars
from linfed.statistics import judge_one_constant

from ._altmin import ALTMIN, AVERAGES, FEDREP, HALVES, MOMENTS, RISK, Setting
from ._compared_claims import at_every_point

SUMMARY = "alternating minimisation (MLLAM): final distance against clients, samples and noise, with its competitors"
CAPTIONS = {
    "": (
        "Final subspace distance against clients for three m, and against the noise std. Markers: median over trials; "
        "bars: 10-90 %. Dotted: prediction for the minimum of the empirical risk."
    )
}
PICTURES = {"": 1400}

ENDS = (MOMENTS, AVERAGES, HALVES, FEDREP, ALTMIN, RISK)
LOOKS_OF = {FEDREP: LOOKS["FedRep"]} | dict(zip((MOMENTS, AVERAGES, RISK, ALTMIN, HALVES), KINDS, strict=False))
NEAR, SINE, SMALL_NOISE, SAME = 1.05, 0.37, 0.3, 1e-3
"""Factor within which distances count as equal, largest sine at which the prediction is claimed, largest small noise,
and distance below which subspaces coincide, and below which B has not moved."""


@dataclass(frozen=True, kw_only=True)
class End(Setting):
    """Final distances of the methods on the same data sets; L-BFGS runs for up to `most_clients` clients."""

    panel: str = lf.choice(("n", "sigma"), label=True)
    n_samples: int
    noise_std: float = 1.0
    most_clients: int

    def run(self) -> dict[str, Any]:
        """Return the final distances, the prediction, and the distances between the limits and L-BFGS's minimum."""
        names = [ALTMIN, HALVES, FEDREP, MOMENTS, AVERAGES, *([RISK] if self.n_clients <= self.most_clients else [])]
        limits = {name: self.limit(name) for name in names if name in (ALTMIN, FEDREP, RISK)}
        found = {
            name: limits[name][0] if name in limits else self.plain_run(name, self.n_samples).simulate()
            for name in names
        }
        none, never = np.full(self.trials, np.nan), np.full(self.trials, False)
        row: dict[str, Any] = {RISK: none}
        row |= {name: result.metrics["subspace_distance"][:, -1] for name, result in found.items()}
        for name in (ALTMIN, FEDREP):
            known = RISK in found
            row[f"{name} apart"] = lf.subspace_distance(found[name].final.B, found[RISK].final.B) if known else none
            row[f"{name} settled"] = limits[name][1] & limits[RISK][1] if known else never
        return row | {"law": none if self.n_samples < self.rank + 2 else self.predicted()}

    def limit(self, name: str) -> tuple[lf.Result, Mask]:
        """Return a run, and the trials in which B moves by less than `SAME` over the last rounds."""
        run = self.plain_run(name, self.n_samples)
        algorithm: Any = run.algorithm
        last = run.n_rounds // 4 | 1  # odd, as B may alternate between two points
        before = replace(run, n_rounds=max(run.n_rounds - last, 1)).simulate().final.B
        result = replace(run, algorithm=replace(algorithm, init=before), n_rounds=last).simulate()
        return result, lf.subspace_distance(result.final.B, before) < SAME

    def predicted(self) -> Array:
        """Return the predicted distance of the minimum of the empirical risk."""
        W = self.problem.truth(self.seed, range(self.trials)).W
        assert W is not None
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # beyond the range
            found = lf.theory.fixed_sample_floor(W, dim=self.dim, n_samples=self.n_samples, noise_std=self.noise_std)
        return found.distance


def cells(quick: bool) -> dict[str, list[End]]:
    """Return the runs over clients and samples, and over the noise; quick: small sizes and few trials."""
    end = End(panel="n", n_samples=12, most_clients=400)
    if quick:
        end = replace(end, dim=16, rank=2, n_rounds=12, trials=8)
        ends = lf.grid(end, n_clients=(50, 200)) + lf.grid(replace(end, panel="sigma"), noise_std=(0.1, 0.3))
        return {"ends": ends}
    ends = lf.grid(end, n_samples=(6, 12, 24), n_clients=(25, 50, 100, 200, 400, 800))
    return {"ends": ends + lf.grid(replace(end, panel="sigma", n_clients=200), noise_std=(0.03, 0.1, 0.3, 2.0))}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the final distances against clients for each m, and against the noise."""
    table = tables["ends"]
    noisy = table.select(panel="sigma")
    both = table.select(panel="n", **{name: noisy.unique(name) for name in ("n_clients", "n_samples")})
    table = (table + both.assign(panel=lambda _: "sigma")).assign(
        shown=lambda row: f"m = {row['n_samples']}" + f", n = {row['n_clients']}" * (row["panel"] != "n")
    )
    with lf.panels(table, column="shown", title="{}", height=2.9, sharey=True) as sheet:
        for ax, part in sheet:
            field = "n_clients" if part.rows[0]["panel"] == "n" else "noise_std"
            rows = c.sorted_by(field)(part)
            x = [row[field] for row in rows]
            for name in ENDS:
                shape = {"linewidth": 0.8, "markerfacecolor": "none"}
                bars(ax, x, c.stacked(rows, name), LOOKS_OF[name], label=name, **shape)
            law = [one if one < SINE else np.nan for one in (np.median(row["law"]) for row in rows)]
            ax.plot(x, law, "k:", linewidth=1.4, zorder=5, label="predicted")
            ax.set(xscale="log", yscale="log", xlabel=SIZE_LABELS[field])
        sheet.axes[0, 0].set_ylabel("final subspace distance")
        sheet.legend(ncols=4)
    return {"": sheet.figure}


predictable = c.only(lambda row: (row["law"] < SINE).all())
"""Choice of the rows in whose setting the prediction is claimed."""


def ratios_to_the_rate(part: lf.Table, **fields: Any) -> c.Finding:
    """Judge whether AltMin's distance divided by the rate sigma sqrt(d/(n m)) is one constant."""
    rates = [row["noise_std"] * np.sqrt(row["dim"] / (row["n_clients"] * row["n_samples"])) for row in part.rows]
    fields.pop("claimed_high")
    return judge_one_constant(c.stacked(part, ALTMIN) / rates, claimed_high=2.0, **fields)


def same_minimum(name: str) -> c.Claim:
    """Return the claim that a method and L-BFGS converge to the same minimum."""
    apart, settled = f"{name} apart", f"{name} settled"

    def unsettled(part: lf.Table) -> str:
        moves = np.logical_not(c.stacked(part, settled))
        text = f"not judged: {moves.sum()} of {moves.size} trials, in which {name} or L-BFGS has not converged"
        return text * bool(moves.any())

    return c.Claim(
        f"{name} and L-BFGS converge to the same minimum of the empirical risk",
        c.OWN_PREDICTION,
        c.share(
            lambda part: (c.stacked(part, apart) < SAME)[c.stacked(part, settled)],
            f"share of converged trials in which the two subspaces are closer than {SAME:g}",
            c.above(0.8),
            clusters=lambda part: c.stacked(part, settled).nonzero()[0],  # a trial has one ground truth at all points
        ),
        where=(predictable, c.only(lambda row: not np.isnan(row[apart]).any()), c.sorted_by("n_samples")),
        over=c.each("n_samples"),
        setting=f"m = {{n_samples}}, points with a predicted sine up to {SINE}: {{points}}",
        note=unsettled,
    )


def as_close_as(rival: str) -> c.Claim:
    """Return the claim that AltMin is as close to B* as a competitor, at the worst number of clients."""
    words = "ratio of the median distances, worst number of clients"
    return c.Claim(
        f"AltMin is as close to B* as {rival}, for every number of clients",
        c.OWN_THRESHOLD,
        at_every_point(ALTMIN, rival, lambda row: f"n = {row['n_clients']:,}", words, NEAR),
        where=(c.of(panel="n"), c.sorted_by("n_clients")),
        over=c.each("n_samples"),
        setting="m = {n_samples}, noise std {noise_std:g}",
    )


def optimal(what: str) -> c.Source:
    """Return our reading of the source's abstract, with the choice of ours that it needs."""
    text = "Thekumparampil, Jain, Netrapalli and Oh 2021, abstract: nearly optimal error"
    asked = "asked of the same samples in both steps"
    return c.reading(text).adding(asked).adding(f"the {what} is {c.OWN_THRESHOLD}")


def in_noise(sentence: str, source: c.Source, method: str, claimed: float) -> c.Claim:
    """Return a claim on the exponent of a method's distance in small noise."""
    return c.Claim(
        sentence,
        source,
        c.exponent(method, "noise_std", claimed, 0.1),
        where=(c.of(panel="sigma"), c.only(lambda row: row["noise_std"] <= SMALL_NOISE), c.sorted_by("noise_std")),
        setting="n = {n_clients}, m = {n_samples}, noise std {noise_std:g} to {last[noise_std]:g}",
        theorem=False,
    )


CLAIMS = (
    same_minimum(ALTMIN),
    same_minimum(FEDREP),
    c.Claim(
        "AltMin's distance is a constant times sigma sqrt(d/(n m)), within a factor of 2",
        optimal("factor"),
        c.Statistic("largest constant divided by the smallest", ratios_to_the_rate),
        c.at_most(2.0),
        where=predictable,
        setting="{points} settings",
        theorem=False,
    ),
    in_noise("AltMin's distance is proportional to small noise", optimal("tolerance"), ALTMIN, 1.0),
    in_noise(
        "The distance of the moments does not fall with small noise",
        c.OWN_PREDICTION.adding(f"the tolerance is {c.OWN_THRESHOLD}"),
        MOMENTS,
        0.0,
    ),
    c.Claim(
        "With m fixed, AltMin's distance falls at least as fast as one over the root of n",
        optimal("tolerance"),
        c.exponent(ALTMIN, "n_clients", -0.5, 0.1, "at most"),
        where=(c.of(panel="n"), predictable, c.sorted_by("n_clients"), c.sorted_by("n_samples")),
        over=c.each("n_samples"),
        setting="m = {n_samples}, n = {n_clients:,} to {last[n_clients]:,}",
        theorem=False,
    ),
    as_close_as(MOMENTS),
    as_close_as(AVERAGES),
    as_close_as(HALVES),
    c.Claim(
        "With n fixed, AltMin's distance falls at least as fast as one over the root of m",
        optimal("tolerance"),
        c.exponent(ALTMIN, "n_samples", -0.5, 0.1, "at most"),
        where=(c.of(panel="n"), c.largest("n_clients"), predictable, c.sorted_by("n_samples")),
        setting="n = {n_clients}, m = {n_samples:,} to {last[n_samples]:,}",
        theorem=False,
    ),
)
