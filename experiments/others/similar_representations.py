"""How similar the clients' representations must be, so that one shared representation is better than none.

Each client has a representation of its own near B*, and in a second series some clients are outliers
(`linfed.SimilarRepresentations`). d = 20, k = 2, n = 100, noise of standard deviation 0.5, and one fixed data set of
10, 20 or 40 samples per client. FedRep shares one representation. Ridge regression without federation, one
least-squares model, and exact heads on the true B* are its simplest competitors. Methods with a part of their own for
each client could be better than both ends: the joint ridge (`linfed.FedRepShortcut`), Ditto, and nuclear-norm
regularisation. All are tuned as in `experiments.others.heterogeneity`.

`linfed.theory.similar_floor` predicts FedRep's risk without a fitted parameter: to first order in the samples, the
parts outside the shared representation are label noise and a random rotation of the best subspace. With
`linfed.theory.local_mean_risk` it predicts the deviation at which FedRep and ridge regression have the same risk.

**Deviations**: Tian, Gu and Feng study other estimators, and outliers that an adversary chooses. All sizes are our
choice.

References: Tian, Gu and Feng 2025; Chua, Lei and Lee 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.plotting.panels import Figures, draw_predicted, plot_curves
from linfed.statistics import bootstrap_interval

from ._compared import FEDREP, JOINT, ORACLE, POOLED, RIDGE, Compared
from ._compared_claims import over_better

SUMMARY = "similar instead of equal representations, and outliers: where FedRep is still better than no federation"
CAPTIONS = {
    "": (
        "Top: excess risk against the relative root mean square length of the clients' own parts. Bottom: the same "
        "divided by that of ridge regression. One column for each number of samples. Lines: median over trials; "
        "shaded: 10-90 %; dotted black: predicted for FedRep."
    ),
    "outliers": (
        "Mean excess risk of all clients against the share of outliers. Lines, shading and dots as in the other figure."
    ),
}
PICTURES = {"": 1400}
REDUCED = {table: {"without": ("score", "diverged", "tried_*")} for table in ("similar", "outliers")}

METHODS = (FEDREP, RIDGE, JOINT, "Ditto", "nuclear norm", POOLED, ORACLE)
NEAR = 1.1
"""The claimed accuracy of predictions, as a factor."""


@dataclass(frozen=True, kw_only=True)
class Similar(Compared):
    """One method at one deviation and one share of outliers."""

    deviation: float = 0.0
    outliers: float = 0.0
    n_clients: int = 100
    n_samples: int = 20

    @property
    def problem(self) -> lf.SimilarRepresentations:
        """The problem."""
        return lf.SimilarRepresentations(
            n_clients=self.n_clients,
            dim=self.dim,
            rank=self.rank,
            deviation=self.deviation,
            outliers=self.outliers,
            heterogeneity=self.heterogeneity,
            noise_std=self.noise_std,
        )


@dataclass(frozen=True, kw_only=True)
class Law(Similar):
    """Predicted risks at one deviation and one share of outliers."""

    method: str = lf.choice(("predicted",), "predicted")

    def run(self) -> dict[str, Any]:
        """Return the predicted excess risks of FedRep and of the best ridge, for each trial."""
        truth, noise = self.problem.truth(self.seed, range(self.trials)), self.noise_std**2 / 2
        assert truth.B is not None
        Phi, d, m, sigma = truth.dense(), self.dim, self.n_samples, self.noise_std
        inside = Phi @ truth.B
        outside = np.linalg.norm(Phi - inside @ truth.B.mT, axis=-1)
        lengths = np.linalg.norm(Phi, axis=-1)
        best = lf.theory.best_local_ridge(lengths, dim=d, n_samples=m, noise_std=sigma)
        alone = lf.theory.local_mean_risk(lengths, ridge=best, dim=d, n_samples=m, noise_std=sigma)
        fedrep = lf.theory.similar_floor(inside, outside, dim=d, n_samples=m, noise_std=sigma).risk
        return {FEDREP: fedrep.mean(axis=-1) - noise, RIDGE: alone.mean(axis=-1) - noise}


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the methods over deviations and samples, and over shares of outliers; quick: fewer of all."""
    base, law = Similar(), Law()
    names: Sequence[str] = METHODS
    counts: Sequence[int] = (10, 20, 40)
    degrees: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
    shares: Sequence[float] = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)
    if quick:
        base, law = Similar(n_rounds=60, trials=8, tuning_trials=4), Law(n_rounds=60, trials=8, tuning_trials=4)
        names, counts, degrees, shares = (FEDREP, RIDGE, POOLED, ORACLE), (20,), (0.0, 0.2, 0.5), (0.0, 0.2)
    return {
        "similar": lf.grid(base, n_samples=counts, deviation=degrees, method=names),
        "outliers": lf.grid(base, outliers=shares[1:], method=names),  # without any: a row of the first table
        "law": lf.grid(law, n_samples=counts, deviation=degrees) + lf.grid(law, outliers=shares[1:]),
    }


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return each method's risks along a series: over the deviation for each m, and over the share of outliers.

    The rows of FedRep and ridge regression have a prediction, too.
    """
    law = tables["law"]
    deviations = along(tables["similar"], law.select(outliers=0.0), "deviation")
    none = tables["similar"].select(deviation=0.0, n_samples=tables["outliers"].unique("n_samples"))
    outliers = along(none + tables["outliers"], law.select(deviation=0.0), "outliers")
    return {"deviations": deviations, "shares": outliers}


def along(table: lf.Table, law: lf.Table, x: str) -> lf.Table:
    """Return one row per method and number of samples, with the excess risks of its rows along x, and their ratios."""
    out = []
    for m, part in table.groupby("n_samples"):
        ridge = joined(part.select(method=RIDGE), x)
        for name, rows in part.groupby("method"):
            excess = joined(rows, x)
            shared = {key: rows.rows[0][key] for key in ("n_clients", "dim", "rank", "noise_std", "n_rounds", "trials")}
            ratio = lf.LabeledArray(excess.values / ridge.values, **excess.axes)
            predicted = {"predicted": joined(law.select(n_samples=m), x, name)} if name in (FEDREP, RIDGE) else {}
            out.append(shared | {"method": name, "n_samples": m, "excess": excess, "ratio": ratio} | predicted)
    return lf.Table(out)


def joined(rows: lf.Table, x: str, column: str = "excess") -> lf.LabeledArray:
    """Return a column of several rows as one array (trials, x)."""
    ordered = c.sorted_by(x)(rows)
    return lf.LabeledArray(c.stacked(ordered, column), **{x: [row[x] for row in ordered]})


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the risks and their ratios against the deviation, and the risks against the share of outliers."""
    table = tables["deviations"]
    with lf.panels(table, column="n_samples", row=2, title="m = {}", height=4.2, sharey="row", sharex=True) as sheet:
        for line, y in enumerate(("excess", "ratio")):
            for ax, part in sheet.row(line):
                draw(ax, part, "deviation", y)
        sheet.label("deviation", "excess risk", "excess risk / ridge's", yscale="log")
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials", ncols=4)
    with lf.panels(tables["shares"], title="", height=3.0, width="column") as second:
        for ax, part in second:
            draw(ax, part, "outliers", "excess")
        second.label("share of outliers", "excess risk", yscale="log")
        second.legend(ncols=2)
    return {"": sheet.figure, "outliers": second.figure}


def draw(ax: Any, part: lf.Table, x: str, y: str) -> None:
    """Draw the risks of all methods, or their ratios to ridge regression's, with the prediction for FedRep."""
    names = part.unique("method")
    plot_curves(ax, part, x, y, order=[name for name in METHODS if name in names])
    laws = [np.median(part.select(method=name)["predicted"], axis=0) for name in (FEDREP, RIDGE)]
    values = laws[0] / laws[1] if y == "ratio" else laws[0]
    draw_predicted(ax, part.select(method=FEDREP)[x], values, label="FedRep, predicted", linewidth=1.4, zorder=5)


# --- claims --------------------------------------------------------------------------------------------------


def crossing(x: Array, ratio: Array) -> float:
    """Return the first x at which a ratio passes 1, linear in its logarithm; 0 if it starts above, else infinity."""
    logs = np.log(ratio)
    if logs[0] > 0:
        return 0.0
    above = np.flatnonzero(logs > 0)
    if not above.size:
        return float("inf")
    after = above[0]
    part = logs[after - 1] / (logs[after - 1] - logs[after])
    return float(x[after - 1] + part * (x[after] - x[after - 1]))


def equal_risks(part: lf.Table, x: str) -> c.Measurement | None:
    """Return the x at which FedRep and ridge regression have the same risk, divided by the predicted one."""
    fedrep, ridge = part.select(method=FEDREP), part.select(method=RIDGE)
    values = np.asarray(fedrep[x], dtype=float)
    expected = crossing(values, np.median(fedrep["predicted"], axis=0) / np.median(ridge["predicted"], axis=0))
    if not (np.isfinite(expected) and expected > 0):
        return None

    def ratio(trials: Array) -> float:
        first, second = (np.median(row["excess"][trials.astype(int)], axis=0) for row in (fedrep, ridge))
        return crossing(values, first / second) / expected

    everyone = np.arange(float(len(fedrep["excess"])))
    found = (ratio(everyone), *bootstrap_interval(ratio, (everyone,)))
    return c.Measurement(found, f"predicted: {expected:.3g}")


def samples(part: lf.Table) -> str:
    """Return m/d as text."""
    return f"m/d = {part.rows[0]['n_samples'] / part.rows[0]['dim']:g}"


OWN = c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}")


def over_series(make: Callable[[str], c.Statistic], sentence: str, *rows: c.Where) -> list[c.Claim]:
    """Return a claim on the predictions along both series; `make` returns its statistic for the column of x."""
    OfEach = partial(c.Claim, sentence, OWN, where=rows, over=c.each("n_samples"))
    return [
        OfEach(make("deviation"), table="deviations", setting=lambda part: f"{samples(part)}, no outliers"),
        OfEach(make("outliers"), table="shares", setting="no deviation"),
    ]


def factor(x: str) -> c.Statistic:
    """Return the largest factor between the measured and the predicted risk."""
    words = f"factor between the median over trials and the prediction, worst {x}"
    return c.factor("excess", "predicted", words, c.at_most(NEAR))


def break_even(x: str) -> c.Statistic:
    """Return the x of equal risks divided by the predicted one."""
    words, rows = f"measured {x} of equal risks, divided by the predicted one", c.of(method=[FEDREP, RIDGE])
    return c.measured(words, lambda part: equal_risks(part, x), c.within(1 / NEAR, NEAR), rows=rows)


def own_part(name: str) -> list[c.Claim]:
    """Return the claim, for both series, that a method with a part for each client is better than both ends."""
    sentence = f"{name[0].upper() + name[1:]} has a smaller risk than FedRep and than ridge regression"
    better = over_better(name, (FEDREP, RIDGE), "the better of the two")
    OfEach = partial(c.Claim, sentence, c.OWN_THRESHOLD, better)
    return [
        OfEach(
            over=c.each("n_samples", "deviation"),
            setting=lambda part: f"{samples(part)}, deviation {part.rows[0]['deviation']:g}",
        ),
        OfEach(table="outliers", over=c.each("outliers"), setting="no deviation, outliers {outliers:g}"),
    ]


CLAIMS = (
    *over_series(factor, "FedRep has the predicted risk", c.of(method=FEDREP)),
    *over_series(factor, "The best ridge has the predicted risk", c.of(method=RIDGE)),
    *over_series(break_even, "FedRep and ridge regression have the same risk where it is predicted"),
    *own_part(JOINT),
    *own_part("Ditto"),
    *own_part("nuclear norm"),
)
