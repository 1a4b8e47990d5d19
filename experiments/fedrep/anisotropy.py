"""Which protocols of FedRep are biased if x is not isotropic, and which are only slower.

FedRep fits heads and takes the gradient on B on the same batch, or on the two halves of it (split). The gradient can be
whitened by the covariance of the client's own samples, of all clients' samples, or by the true one. DFW, the de-biased
and whitened FedRep of Zhang, Toso, Anderson and Matni, splits batches and whitens by own samples. x is Gaussian with
eigenvalues in a geometric sequence, of mean 1. The axes are common to all clients, or random for each client. In
the base setting the condition number is 10, n = 100, m = 30, d = 10, k = 2, and the label noise has standard deviation
1. Every protocol has its own tuned step.

`linfed.theory.near_truth_drift` predicts the subspace at which a split batch ends. The experiment
`anisotropy_mechanism` measures what is behind the ends: the mean messages and the rates.

**Deviations**: we have only the abstract of the paper. It does not say whether its plain method, "vanilla
alternating-minimization descent", splits batches, so both protocols are judged. Its labels may be vectors and its x may
depend on past noise. All sizes are ours, and so is the meaning of "fails": twice the distance of DFW.

References: Zhang, Toso, Anderson and Matni 2024; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import KINDS, LOOKS, Look, line_style
from linfed.numerics.quantiles import quantiles
from linfed.plotting.panels import SIZE_LABELS, Figures, draw_predicted
from linfed.statistics import median_interval, median_ratio
from linfed.statistics.intervals import Measured, nan_as_worst

from ._anisotropic import COMMON, DFW, EACH, SAME, SPLIT, Setting

SUMMARY = "x with a covariance, common or per client: which protocols of FedRep are biased, and which are slower"
PICTURES = {"": 2070}
REDUCED = {table: {"without": ("score", "tried_*")} for table in ("rounds", "runs")}
CAPTIONS = {
    "": "Subspace distance after all rounds, for each protocol. Top: covariance common to all clients; bottom: random "
    "axes for each client. Dotted black: predicted for a split batch with small steps, without the floor of random "
    "samples.",
    "longer": "Subspace distance against rounds at a large condition number, common covariance.",
}

ABSTRACT = c.reading("Zhang, Toso, Anderson and Matni 2024, abstract, in our words")
FAILS = ABSTRACT.adding("plain alternation fails for mildly non-isotropic data; the factor is our threshold", ": ")
LOSES = ABSTRACT.adding(
    "without isotropic data the update is biased, and the noise no longer falls with the number of tasks; the exponent "
    "is our threshold",
    ": ",
)
FALLS = ABSTRACT.adding("the noise of DFW falls with the number of tasks; the exponent is our threshold", ": ")

TRUE, POOLED, SAME_POOLED = "split, true covariance", "split, pooled samples", "same batch, pooled samples"
PROTOCOLS: dict[str, dict[str, Any]] = {
    SAME: {},
    SPLIT: {"disjoint_samples": True},
    DFW: {"disjoint_samples": True, "whiten": "own"},
    TRUE: {"disjoint_samples": True, "whiten": "true"},
    POOLED: {"disjoint_samples": True, "whiten": "pooled"},
    SAME_POOLED: {"whiten": "pooled"},
}
SERIES: dict[str, tuple[float, ...]] = {
    "condition": (1.0, 100.0, 1e4),
    "n_clients": (25, 400),
    "n_samples": (60, 120),
    "noise_std": (0.1, 3.0),
}
BASE = "base"


@dataclass(frozen=True, kw_only=True)
class Protocol(Setting):
    """One protocol with a tuned step."""

    method: str = lf.choice(PROTOCOLS, SAME)
    series: str = lf.choice((BASE, *SERIES), BASE, label=True)
    n_rounds: int = 200
    tuning_trials: int = 3

    def run(self) -> dict[str, Any]:
        """Return the final distances, those predicted of a split batch, and the columns of the tuning."""
        problem, options = self.problem, PROTOCOLS[self.method]
        if options.get("whiten") == "true":
            options = options | {"whiten": problem.design}
        tuning = lf.tune(
            lf.FedRep(rank=self.rank, step_size=0.1, init="random", **options),
            problem,
            data=lf.FreshSamples(self.n_samples),
            n_rounds=self.n_rounds,
            trials=self.tuning_trials,
            seed=self.seed,
            record_every=self.n_rounds,
            grid={"step_size": (0.1, 0.3)},
            score="final",
            extend=True,
        )
        result = lf.simulate(
            tuning.algorithm,
            problem,
            data=lf.FreshSamples(self.n_samples),
            n_rounds=self.n_rounds,
            trials=self.trials,
            seed=self.seed,
            record_every=self.n_rounds,
            metrics=["subspace_distance"],
        )
        columns = tuning.columns() | {"distance": nan_as_worst(result.metrics["subspace_distance"][:, -1])}
        if self.method == SPLIT:
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # no stationary subspace: NaN
                truth = problem.truth(self.seed, range(self.trials))
                law = lf.theory.near_truth_drift(truth, n_samples=self.n_samples, disjoint_samples=True)
            columns["predicted"] = law.distance
        return columns


def cells(quick: bool) -> dict[str, list[Protocol]]:
    """Return all series, and longer runs at a large condition number; quick: few values and trials."""
    kinds = (COMMON, EACH)
    if quick:
        base = Protocol(n_rounds=60, trials=8, tuning_trials=2, n_clients=30)
        runs = lf.grid(base, kind=kinds, method=(SAME, SPLIT, DFW))
        runs += lf.grid(dataclasses.replace(base, series="n_clients"), n_clients=(120,), method=(SAME, SPLIT))
        longer = dataclasses.replace(base, condition=1e4)
        return {"runs": runs, "rounds": lf.grid(longer, n_rounds=(60, 300), method=(SAME,))}
    runs = lf.grid(Protocol(), kind=kinds, method=tuple(PROTOCOLS))
    for series, values in SERIES.items():
        methods = tuple(PROTOCOLS) if series == "condition" else (SAME, SPLIT, DFW)
        runs += lf.grid(Protocol(series=series), kind=kinds, method=methods, **{series: values})
    longer = Protocol(condition=1e4)
    return {
        "runs": runs,
        "rounds": [
            *lf.grid(longer, n_rounds=(100, 300, 1000, 3000, 10_000), method=(SAME,)),
            *lf.grid(longer, n_rounds=(100, 300, 1000), method=(DFW, SAME_POOLED)),
        ],
    }


# --- claims --------------------------------------------------------------------------------------------------

not_isotropic = c.only(lambda row: row["condition"] > 1.0)
mildly = c.only(lambda row: 1.0 < row["condition"] <= 10.0)


def ratios(first: Array, second: Array) -> Measured:
    """Return the median ratio of paired trials."""
    return median_interval(first / second)


def fails(name: str, method: str) -> c.Claim:
    """Return the claim that a plain protocol fails where DFW does not."""
    words = "final distance divided by DFW's, median over paired trials, steps tuned for each"
    return c.Claim(
        f"{name} fails for mildly non-isotropic x",
        FAILS,
        c.ratio("distance", method, DFW, words, measure=ratios),
        c.at_least(2.0),
        where=mildly,
        over=c.each("kind", "n_clients", "n_samples", "noise_std"),
        setting="{kind}, condition number {condition:g}, n = {n_clients}, m = {n_samples}, noise std {noise_std:g}",
    )


def with_clients(sentence: str, source: c.Source, method: str, statistic: c.Statistic) -> c.Claim:
    """Return a claim on the exponent of the number of clients in the final distance, where x is not isotropic."""
    return c.Claim(
        sentence,
        source,
        statistic,
        where=(c.of(method=method, series=["n_clients", BASE]), not_isotropic, c.sorted_by("n_clients")),
        over=c.each("kind"),
        setting="{kind}, n = {n_clients} to {last[n_clients]}",
        theorem=False,
    )


def as_good_after(times: int, longer: str) -> c.Claim:
    """Return the claim that the same batch is at least as good as DFW after a multiple of its rounds."""

    def pairs(table: lf.Table) -> Iterator[tuple[lf.Table, lf.Table]]:
        for other in table.select(method=DFW):
            row = table.select(method=SAME, n_rounds=times * other["n_rounds"])
            if len(row):
                yield row, other

    return c.Claim(
        f"FedRep on the same batch is at least as good as DFW {longer}",
        c.OWN_THRESHOLD,
        c.measured(OVER_DFW, lambda row, other: ratios(row["distance"], other["distance"])),
        c.at_most(1.0),
        table="rounds",
        over=pairs,
        setting="{kind}, condition number {condition:g}, {1[n_rounds]} rounds of DFW",
    )


OVER_DFW = "final distance divided by DFW's, median over paired trials"
NO_LESS = c.exponent("distance", "n_clients", -0.25, 0.0, "at least")
IN_SAME, IN_SPLIT = "FedRep on the same batch", "FedRep on a split batch"

CLAIMS = (
    fails(IN_SAME, SAME),
    fails(IN_SPLIT, SPLIT),
    with_clients(f"The distance of {IN_SAME} loses its dependence on the number of clients", LOSES, SAME, NO_LESS),
    with_clients(f"The distance of {IN_SPLIT} loses its dependence on the number of clients", LOSES, SPLIT, NO_LESS),
    with_clients(
        "The distance of DFW falls like n^(-1/2) or faster",
        FALLS,
        DFW,
        c.exponent("distance", "n_clients", -0.5, 0.1, "at most"),
    ),
    c.Claim(
        "Where its bias exceeds the floor of random samples, a split batch ends at the predicted subspace",
        c.OWN_PREDICTION.adding("the factor is our threshold"),
        c.measured(
            "median final distance divided by the predicted one, without the floor of random samples",
            lambda row: median_ratio(row["distance"], row["predicted"]),
        ),
        c.within(1 / 1.25, 1.25),
        where=(
            c.largest("n_clients"),
            c.of(method=SPLIT, kind=COMMON, series="n_clients"),
            not_isotropic,
            c.only(lambda row: np.isfinite(row["predicted"]).all()),
        ),
        setting="{kind}, n = {n_clients}",
    ),
    c.Claim(
        "Whitening by pooled samples without a split is at least as good as DFW",
        c.OWN_THRESHOLD,
        c.ratio("distance", SAME_POOLED, DFW, OVER_DFW, measure=ratios),
        c.at_most(1.0),
        where=(c.of(series=[BASE, "condition"]), c.only(lambda row: row["condition"] >= 10)),
        over=c.each("series", "kind", "condition"),
        setting="{kind}, condition number {condition:g}",
    ),
    as_good_after(1, "in as many rounds"),
    as_good_after(10, "in 10 times as many rounds"),
)


# --- figures -------------------------------------------------------------------------------------------------

UNBIASED = 1e-9
"""Predicted distances below this number are 0 up to rounding errors, and are not drawn."""

LABELS = {SAME: "FedRep, same batch", DFW: "split, own samples (DFW)"}
LOOK: dict[str, Look] = {SAME: LOOKS["FedRep"]} | {
    name: KINDS[turn] for name, turn in zip(list(PROTOCOLS)[1:], (0, 1, 3, 4, 8), strict=True)
}


def draw(ax: Any, table: lf.Table, x: str) -> None:
    """Draw the median distance of each protocol against a size."""
    for method, part in table.groupby("method"):
        rows = c.sorted_by(x)(part)
        middle, _, _ = quantiles(c.stacked(rows, "distance"))
        ax.plot([row[x] for row in rows], middle, label=LABELS.get(method, method), **line_style(LOOK[method]))


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances of all protocols, and those at a large condition number against rounds."""
    runs = tables["runs"]
    kinds, found = runs.unique("kind"), [series for series in SERIES if len(runs.unique(series)) > 1] or ["condition"]
    with lf.panels(runs, row=len(kinds), column=len(found), height=4.2, sharex="col", sharey=True) as sheet:
        sheet.label("", *(f"subspace distance\n{kind}" for kind in kinds), xscale="log", yscale="log")
        for (line, kind), (place, series) in itertools.product(enumerate(kinds), enumerate(found)):
            ax, methods = sheet.axes[line, place], (runs.select(series=series) or runs).unique("method")
            part = runs.select(kind=kind, series=[series, BASE], method=methods)
            draw(ax, part, series)
            if split := part.select(method=SPLIT):
                ends = np.median(c.stacked(split, "predicted"), axis=0)
                ends[ends < UNBIASED] = np.nan
                draw_predicted(ax, [row[series] for row in split], ends, linewidth=1.4, zorder=5)
        lowest = min(float(np.median(row["distance"])) for row in runs)
        sheet.axes[0, 0].set_ylim(0.5 * lowest, None)  # predictions may be smaller
        for ax, series in zip(sheet.axes[-1], found, strict=True):
            ax.set_xlabel(SIZE_LABELS[series])
        sheet.legend(f"median of {runs.rows[0]['trials']} trials", ncols=4)
    with lf.panels(tables["rounds"], title="", width="column", height=2.9) as longer:
        draw(longer.axes[0, 0], tables["rounds"], "n_rounds")
        longer.label("rounds", "subspace distance", xscale="log", yscale="log")
        longer.legend(f"median of {tables['rounds'].rows[0]['trials']} trials", ncols=1)
    return {"": sheet.figure, "longer": longer.figure}
