"""How similar the clients' representations must be, so that one shared representation is better than none.

Each client has a representation of its own near B*, and in a second series some clients are outliers
(`linfed.SimilarRepresentations`). d = 20, k = 2, n = 100, noise of standard deviation 0.5, and one fixed data set of
10, 20 or 40 samples per client. FedRep shares one representation. Ridge regression without federation, one
least-squares model, and exact heads on the true B* are its simplest rivals. Methods with a part of their own for each
client could be better than both ends: the joint ridge (`linfed.FedRepShortcut`), Ditto, and nuclear-norm
regularisation. All are tuned as in `experiments.heterogeneity`.

`linfed.theory.similar_floor` predicts FedRep's risk without a fitted parameter: to first order in the samples, the
parts outside the shared representation are label noise and a random rotation of the best subspace. With
`linfed.theory.local_mean_risk` it predicts the deviation at which FedRep and ridge regression have the same risk.

**Deviations**: Tian, Gu and Feng study other estimators, and outliers that an adversary chooses. All sizes are our
choice.

Figures
-------
"" : Top: excess risk against the relative root mean square length of the clients' own parts. Bottom: the same divided
    by that of ridge regression. One column for each number of samples. Lines: median over trials; shaded: 10-90 %;
    dotted black: predicted for FedRep.
"outliers" : Mean excess risk of all clients against the share of outliers. Lines, shading and dots as in the other
    figure.

References: Tian, Gu and Feng 2025; Chua, Lei and Lee 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import label
from linfed.plotting.panels import Figures, plot_curves
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import bootstrap_interval, largest_factor, median_interval

from ._compared import FEDREP, JOINT, ORACLE, POOLED, RIDGE, Compared

SUMMARY = "similar instead of equal representations, and outliers: where FedRep is still better than no federation"
PICTURES = {"": 1400}
REDUCED = {table: {"without": ("score", "diverged", "tried_*")} for table in ("similar", "outliers")}

METHODS = (FEDREP, RIDGE, JOINT, "Ditto", "nuclear norm", POOLED, ORACLE)
OWN = OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}")
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
        sizes: dict[str, Any] = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        options = {"deviation": self.deviation, "outliers": self.outliers, "heterogeneity": self.heterogeneity}
        return lf.SimilarRepresentations(noise_std=self.noise_std, **sizes, **options)


@dataclass(frozen=True, kw_only=True)
class Law(Similar):
    """Predicted risks at one deviation and one share of outliers."""

    method: str = lf.choice(("predicted",), "predicted")

    def run(self) -> dict[str, Any]:
        """Return the predicted excess risks of FedRep and of the best ridge, for each trial."""
        truth, noise = self.problem.truth(self.seed, range(self.trials)), self.noise_std**2 / 2
        assert truth.B is not None
        Phi, sizes = truth.dense(), {"dim": self.dim, "n_samples": self.n_samples, "noise_std": self.noise_std}
        inside = Phi @ truth.B
        outside = np.linalg.norm(Phi - inside @ truth.B.mT, axis=-1)
        lengths = np.linalg.norm(Phi, axis=-1)
        best = lf.theory.best_local_ridge(lengths, **sizes)
        alone = lf.theory.local_mean_risk(lengths, ridge=best, **sizes)
        fedrep = lf.theory.similar_floor(inside, outside, **sizes).risk
        return {FEDREP: fedrep.mean(axis=-1) - noise, RIDGE: alone.mean(axis=-1) - noise}


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the methods over deviations and samples, and over shares of outliers; quick: fewer of all."""
    base = Similar(rounds=60, trials=8, tuning_trials=4) if quick else Similar()
    names = (FEDREP, RIDGE, POOLED, ORACLE) if quick else METHODS
    counts = (20,) if quick else (10, 20, 40)
    degrees = (0.0, 0.2, 0.5) if quick else (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
    shares = (0.0, 0.2) if quick else (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)
    law = Law(**{name: getattr(base, name) for name in Law.__dataclass_fields__ if name != "method"})
    near: dict[str, Any] = {"n_samples": counts, "deviation": degrees}
    return {
        "similar": lf.grid(base, **near, method=names),
        "outliers": lf.grid(base, outliers=shares, method=names),
        "law": [*lf.grid(law, **near), *lf.grid(law, outliers=shares[1:])],
    }


# --- figures -------------------------------------------------------------------------------------------------


def along(table: lf.Table, x: str) -> lf.Table:
    """Return one row per method and number of samples, with the excess risks of its rows along x, and their ratios."""
    out = []
    for m, part in table.groupby("n_samples"):
        ridge = joined(part.select(method=RIDGE), x)
        for name, rows in part.groupby("method"):
            excess = joined(rows, x)
            shared = {key: rows.rows[0][key] for key in ("n_clients", "dim", "rank", "noise_std", "rounds", "trials")}
            ratio = lf.LabeledArray(excess.values / ridge.values, **excess.axes)
            out.append(shared | {"method": name, "n_samples": m, "excess": excess, "ratio": ratio})
    return lf.Table(out)


def joined(rows: lf.Table, x: str, column: str = "excess") -> lf.LabeledArray:
    """Return a column of several rows as one array (trials, x)."""
    ordered = sorted(rows.rows, key=lambda row: row[x])
    return lf.LabeledArray(np.stack([row[column] for row in ordered], axis=1), **{x: [row[x] for row in ordered]})


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the risks and their ratios against the deviation, and the risks against the share of outliers."""
    law = tables["law"]
    table = along(tables["similar"], "deviation")
    with lf.panels(table, column="n_samples", row=2, title="m = {}", height=4.2, sharey="row", sharex=True) as sheet:
        for line, y in enumerate(("excess", "ratio")):
            for ax, part in sheet.row(line):
                names = part.unique("method")
                plot_curves(ax, part, "deviation", y, order=[name for name in METHODS if name in names])
                rows = law.select(n_samples=part.rows[0]["n_samples"], outliers=0.0)
                x, values = predicted(rows, "deviation")
                ax.plot(x, values[FEDREP] / (values[RIDGE] if line else 1.0), **DOTS)
        sheet.label("deviation", "excess risk", "excess risk / ridge's", yscale="log")
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials", ncols=4)
    few = along(tables["outliers"], "outliers")
    with lf.panels(few, title="", height=3.0, width="column") as second:
        for ax, part in second:
            plot_curves(
                ax, part, "outliers", "excess", order=[name for name in METHODS if name in part.unique("method")]
            )
            x, values = predicted(law.select(deviation=0.0, n_samples=part.rows[0]["n_samples"]), "outliers")
            ax.plot(x, values[FEDREP], **DOTS)
        second.label("share of outliers", "excess risk", yscale="log")
        second.legend(ncols=2)
    return {"": sheet.figure, "outliers": second.figure}


DOTS: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.4, "zorder": 5, "label": "FedRep, predicted"}


def predicted(rows: lf.Table, x: str) -> tuple[list[float], dict[str, Any]]:
    """Return the values of x, and the medians over trials of the predictions."""
    ordered = sorted(rows.rows, key=lambda row: row[x])
    return [row[x] for row in ordered], {
        name: np.array([np.median(row[name]) for row in ordered]) for name in (FEDREP, RIDGE)
    }


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the predicted risks and break-even deviations, and methods with a part for each client."""
    out, law = [], tables["law"]
    for m, part in tables["similar"].groupby("n_samples"):
        rows = law.select(n_samples=m, outliers=0.0)
        out += of_series(part, rows, "deviation", f"m/d = {m / part.rows[0]['dim']:g}, no outliers")
        out += between(part, "deviation", f"m/d = {m / part.rows[0]['dim']:g}")
    rows = law.select(deviation=0.0, n_samples=tables["outliers"].rows[0]["n_samples"])
    out += of_series(tables["outliers"], rows, "outliers", "no deviation")
    return [*out, *between(tables["outliers"], "outliers", "no deviation")]


def of_series(part: lf.Table, law: lf.Table, x: str, where: str) -> list[Finding]:
    """Judge the predicted risks of FedRep and ridge regression along a series, and where they are equal."""
    out, curves, lines = [], {}, {}
    for name in (FEDREP, RIDGE):
        curves[name], lines[name] = (joined(rows, x, column).values for rows, column in
                                     ((part.select(method=name), "excess"), (law, name)))  # fmt: skip
        fields: dict[str, Any] = {"setting": where, "source": OWN, "claimed_high": NEAR}
        fields["statistic"] = f"factor between the median over trials and the prediction, worst {x}"
        text = f"{'The best ridge' if name == RIDGE else name} has the predicted risk"
        out.append(judge(largest_factor(curves[name], lines[name]), claim=text, **fields))
    values = np.asarray(joined(part.select(method=FEDREP), x).axes[x], dtype=float)
    expected = crossing(values, np.median(lines[FEDREP], axis=0) / np.median(lines[RIDGE], axis=0))
    if np.isfinite(expected) and expected > 0:

        def ratio(trials: Any) -> float:
            first, second = (np.median(curves[name][trials.astype(int)], axis=0) for name in (FEDREP, RIDGE))
            return crossing(values, first / second) / expected

        everyone = np.arange(float(len(curves[FEDREP])))
        found = (ratio(everyone), *bootstrap_interval(ratio, (everyone,)))
        text = "FedRep and ridge regression have the same risk where it is predicted"
        fields = {"setting": where, "source": OWN, "claimed_low": 1 / NEAR, "claimed_high": NEAR}
        fields |= {"statistic": f"measured {x} of equal risks, divided by the predicted one"}
        out.append(judge(found, claim=text, detail=f"predicted: {expected:.3g}", **fields))
    return out


def crossing(x: Any, ratio: Any) -> float:
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


def between(part: lf.Table, x: str, where: str) -> list[Finding]:
    """Judge whether methods with a part for each client are better than FedRep and ridge regression."""
    out = []
    for value, rows in part.groupby(x):
        excess = {row["method"]: row["excess"] for row in rows.rows}
        end = min((FEDREP, RIDGE), key=lambda name: float(np.median(excess[name])))
        for name in (JOINT, "Ditto", "nuclear norm"):
            if name in excess:
                out.append(
                    judge(
                        median_interval(excess[name] / excess[end]),
                        claim=f"{name[0].upper() + name[1:]} has a smaller risk than FedRep and than ridge regression",
                        setting=f"{where}, {x} {value:g}",
                        statistic="excess risk divided by that of the better of the two, median over paired trials",
                        source=OWN_THRESHOLD,
                        claimed_high=1.0,
                        strict=True,
                        detail=f"the better of the two: {label(end)}",
                    )
                )
    return out
