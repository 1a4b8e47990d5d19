"""The clients' weights in FedRep where numbers of samples and noise differ: the error at which runs settle.

FedRep averages the gradients of its clients with equal weights. Here clients have 7 to 80 samples a round, and label
noise over a factor of up to 30. The weights are equal, proportional to the numbers m of samples, the inverse variances
of the clients' U-statistics, m divided by the noise variance, or the best ones (`linfed.theory.optimal_weights`): for
many rounds, or for the error at which a run settles. `linfed.theory.near_truth_floor` predicts where runs at a constant
step size settle, without a fitted parameter. Its competitor is the same law for equal clients, with the mean number of
samples and the mean noise variance. The experiment `weights_schedule` has decreasing step sizes.

All weights are compared at equal rates: the step size is the rate divided by the mean of ``omega_i (1 - k/m_i)``. Equal
rates contract the angles equally fast. Weights on few clients lower the largest stable rate.

**Deviations**: no paper has these laws, and the sizes are ours. The weights of the U-statistic are ours: the inverse of
the variance of an entry of a client's estimate of ``phi phi'``, across the span of B*. The weights that Duchi, Feldman,
Hu and Talwar (2022) derive are not compared, because their formula was not available to us.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithm 2; Duchi, Feldman, Hu and Talwar 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import line_style
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures
from linfed.statistics import judge
from linfed.statistics.intervals import largest_of, mean_factor, mean_ratio

from ._weighted import BOTH, INVERSE, MANY, NOISE, PAIRS, POPULATIONS, SAMPLES, SETTLED, UNIFORM, WEIGHTS, Weighted

SUMMARY = "FedRep where samples and noise differ by client: floors and edges for several weights"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "Mean squared tangent of the angles at the end, divided by the rate, against the rate. One panel for each "
    "population of clients. Lines: predicted, up to the stability edge. Markers: runs, those that do not settle "
    "omitted."
}

SMALL = 0.3
"""Share of the stability edge up to which the law of small errors is claimed."""


@dataclass(frozen=True, kw_only=True)
class Floor(Weighted):
    """Error at which runs with a constant step size settle."""

    rate: float = 0.1
    longest: int = 250

    def run(self) -> dict[str, Any]:
        """Return the mean squared tangent of each trial, the predictions, and the edge as a rate."""
        weights, (m, noise) = self.chosen(self.rate), self.groups
        step, edge = self.step(weights, self.rate), self.edge(weights, m)
        predicted = self.floor(weights, step, m, noise) / self.rank
        rounds = int(min(self.longest, max(60.0, 5.0 / self.rate)))
        start = np.sqrt(predicted / (1.0 + predicted)) if np.isfinite(predicted) else 0.03
        result = self.simulated(weights, step, rounds, float(start), squared_tangents)
        paths = result.metrics["squared_tangents"] / self.rank
        mean, level = round(float(m.mean())), float(np.sqrt(np.mean(noise**2)))
        same = self.floor(None, self.rate / (1.0 - self.rank / mean), mean, level)
        return {
            "measured": paths[:, rounds // 4 :].mean(axis=1),
            "predicted": predicted,
            "of_equal_clients": same / self.rank,
            "edge": self.rate / step * edge,
            "share": step / edge,
            "n_clients": len(m),
        }


@dataclass(frozen=True, kw_only=True)
class Law(Weighted):
    """Predicted floors over rates."""

    rates: int = 20
    lowest: float = 0.02

    def run(self) -> dict[str, Any]:
        """Return the predicted mean squared tangents, NaN beyond the edge."""
        values, rates = [], np.geomspace(self.lowest, 1.5, self.rates)
        for rate in rates.tolist():
            weights = self.chosen(rate)
            values.append(self.floor(weights, self.step(weights, rate), *self.groups) / self.rank)
        return {"n_clients": len(self.heads), "law": lf.LabeledArray(np.array(values), rate=rates)}


def squared_tangents(state: lf.State, truth: lf.Truth) -> Any:
    """Return the sum of the squared tangents of the angles between B and B*, (trials,)."""
    basis, B = orthonormalize(truth.B), state.array("B")
    inside = basis.mT @ B
    tangents = np.linalg.solve(inside.mT, (B - basis @ inside).mT)
    return np.square(tangents).sum(axis=(-2, -1))


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return runs at constant step sizes, and their predictions; quick: fewer of all."""
    populations = (NOISE, BOTH) if quick else tuple(POPULATIONS)
    names = (UNIFORM, SAMPLES, MANY, SETTLED) if quick else WEIGHTS
    rates = (0.1, 0.6) if quick else (0.02, 0.05, 0.1, 0.3, 0.6)
    floor, law = (Floor(trials=6, longest=60), Law(rates=6, lowest=0.1)) if quick else (Floor(), Law())
    return {
        "floors": lf.grid(floor, population=populations, weights=names, rate=rates),
        "law": lf.grid(law, population=populations, weights=names),
    }


# --- claims --------------------------------------------------------------------------------------------------

AT = "{weights}, rate {rate:g}"
TITLES = {
    UNIFORM: "Equal weights",
    SAMPLES: "Weights proportional to m",
    PAIRS: "The U-statistic's weights",
    INVERSE: "Weights m/sigma^2",
    MANY: "The best weights for many rounds",
}


def off_by(column: str) -> c.Statistic:
    """Return the largest factor between the measured means and a predicted column."""
    return c.worst(
        mean_factor,
        lambda row: (row["measured"], row[column]) if np.isfinite(row[column]) else None,
        f"{AT}; of {{points}} runs with steps up to {SMALL:g} of the edge",
        "largest factor between the mean squared tangent and the prediction",
    )


def none_better(part: lf.Table) -> c.Measurement | None:
    """Return the error of the best weights at their floor divided by the error of others, for the worst of them."""
    best = {row["rate"]: row["measured"] for row in part.select(weights=SETTLED)}
    others = [row for row in part if row["weights"] != SETTLED and row["rate"] in best]
    if not others:
        return None
    samples = [(best[row["rate"]], row["measured"]) for row in others]
    worst = int(np.argmax([mean_ratio(*pair)[0] for pair in samples]))
    return c.Measurement(largest_of(mean_ratio, samples), AT.format(**others[worst].rows[0]))


def as_good_at_its_floor(name: str) -> c.Statistic:
    """Return the error of weights divided by the error of the weights that are best at their floor."""

    def against(row: lf.Table, best: lf.Table, **fields: Any) -> c.Finding:
        text = f"stable up to a rate of {row['edge']:.2g}, predicted; best at the floor: {best['edge']:.2g}"
        return judge(mean_ratio(row["measured"], best["measured"]), detail=text, **fields)

    words = "mean squared tangent, divided by that of the weights that are best at their floor"
    return c.compared(words, name, SETTLED, against, by="weights")


OVER_BEST = "mean squared tangent, divided by that of the best weights for many rounds"
BETTER = "mean squared tangent of the best weights at their floor over that of others, largest"
OWN = c.OWN_PREDICTION.adding("10 % is our threshold")
NEAR = c.at_most(1.1)
small = c.only(lambda row: row["share"] < SMALL)
large = c.only(lambda row: row["share"] >= SMALL)
Asked = partial(c.Claim, table="floors", over=c.each("population"), setting="{population}")

CLAIMS = (
    Asked("Runs settle at the predicted error", OWN, off_by("predicted"), NEAR, where=small),
    Asked(
        "The law of equal clients, at the means, predicts the error with equal weights",
        OWN,
        off_by("of_equal_clients"),
        NEAR,
        where=(small, c.of(weights=UNIFORM)),
    ),
    *(
        Asked(
            f"{TITLES[name]} settle at the error of the best weights",
            c.OWN_THRESHOLD,
            c.ratio("measured", name, MANY, OVER_BEST, by="weights", measure=mean_ratio),
            NEAR,
            where=(small, c.smallest("rate")),
            setting="{population}, rate {rate:g}",
        )
        for name in (UNIFORM, SAMPLES, PAIRS, INVERSE)
    ),
    Asked(
        "None of the other weights, at equal rates, settles at a smaller error than the best ones at their floor",
        c.OWN_PREDICTION,
        c.measured(BETTER, none_better),
        c.at_most(1.05),
    ),
    *(
        Asked(
            f"At a large rate {TITLES[name].lower()} are as good as the best at their floor",
            c.OWN_THRESHOLD,
            as_good_at_its_floor(name),
            NEAR,
            where=(c.of(population=NOISE), large, c.largest("rate")),
            setting="{population}, rate {rate:g}",
        )
        for name in (UNIFORM, MANY)
    ),
)


# --- figures -------------------------------------------------------------------------------------------------

SHOWN = {name: name for name in WEIGHTS} | {INVERSE: "$m/\\sigma^2$"}
LOOK = {name: line_style("", turn) for turn, name in enumerate(WEIGHTS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw floors against rates."""
    with lf.panels(tables["floors"], column="population", title="{}", height=3.3, sharex=True, sharey=True) as sheet:
        for ax, part in sheet:
            law = tables["law"].select(population=part.rows[0]["population"])
            for name, rows in part.groupby("weights"):
                shape = dict(LOOK[name])
                for row in law.select(weights=name).rows:
                    x = np.array(row["law"].axes["rate"])
                    ax.plot(x, row["law"].values / x, color=shape["color"], linestyle=shape["linestyle"])
                found = [(row["rate"], row["measured"].mean() / row["rate"]) for row in rows.rows if settled(row)]
                if found:
                    ax.plot(*np.transpose(found), **shape | {"linestyle": "", "label": SHOWN[name]})
        sheet.label("rate", "mean squared tangent / rate", xscale="log", yscale="log")
        sheet.legend(f"mean of {tables['floors'].rows[0]['trials']} trials", ncols=3)
    return {"": sheet.figure}


def settled(row: dict[str, Any]) -> bool:
    """Return whether runs have a floor and stay near it."""
    return bool(row["share"] < 1.0 and np.max(row["measured"]) < 1.0)
