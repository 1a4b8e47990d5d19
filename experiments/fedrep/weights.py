"""The clients' weights in FedRep where numbers of samples and noise differ, at constant and at decreasing step sizes.

FedRep averages the gradients of its clients with equal weights. Here clients have 7 to 80 samples a round, and label
noise over a factor of up to 30. The weights are equal, proportional to the numbers m of samples, the inverse variances
of the clients' U-statistics, m divided by the noise variance, or the best ones (`linfed.theory.optimal_weights`): for
many rounds, or for the error at which a run settles. `linfed.theory.near_truth_floor` predicts where runs at a constant
step size settle, without a fitted parameter. Its competitor is the same law for equal clients, with the mean number of
samples and the mean noise variance. With `linfed.theory.best_step_schedule` runs should reach
`linfed.theory.refitted_heads_limit`.

All weights are compared at equal rates: the step size is the rate divided by the mean of ``omega_i (1 - k/m_i)``. Equal
rates contract the angles equally fast. Weights on few clients lower the largest stable rate.

**Deviations**: no paper has these laws, and the sizes are ours. The weights of the U-statistic are ours: the inverse of
the variance of an entry of a client's estimate of ``phi phi'``, across the span of B*. The weights that Duchi, Feldman,
Hu and Talwar (2022) derive are not compared, because their formula was not available to us.

Figures
-------
"" : Mean squared tangent of the angles at the end, divided by the rate, against the rate. One panel for each population
    of clients. Lines: predicted, up to the stability edge. Markers: runs, those that do not settle omitted.
"schedule" : Mean squared sine of the angles against rounds with the best step schedule for the weights. Lines: runs;
    dotted: the predicted limit.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithm 2; Duchi, Feldman, Hu and Talwar 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import line_style
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import Measured, as_factor, bootstrap_interval, largest_of, mean_interval

from ._fedrep_rivals import mean_square

SUMMARY = "FedRep where samples and noise differ by client: floors, edges and the limit for several weights"
PICTURES = {"": 1400}

UNIFORM, SAMPLES, PAIRS, INVERSE = "equal", "proportional to m", "U-statistic's", "m/sigma^2"
MANY, SETTLED = "best, many rounds", "best at its floor"
SAID = {
    UNIFORM: "Equal weights",
    SAMPLES: "Weights proportional to m",
    PAIRS: "The U-statistic's weights",
    INVERSE: "Weights m/sigma^2",
    MANY: "The best weights for many rounds",
}
WEIGHTS = (UNIFORM, SAMPLES, PAIRS, INVERSE, MANY, SETTLED)
SHOWN = {name: name for name in WEIGHTS} | {INVERSE: "$m/\\sigma^2$"}
LOOK = {name: line_style("", turn) for turn, name in enumerate(WEIGHTS)}

COUNTS, BOTH, HALF = "samples differ", "both differ", "both, half take part"
NOISE = "noise differs"
POPULATIONS: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {
    COUNTS: ((7, 7, 10, 10, 20, 20, 60, 60), (0.3,) * 8),
    NOISE: ((12,) * 8, (0.03, 0.05, 0.08, 0.13, 0.22, 0.37, 0.61, 1.0)),
    BOTH: ((8, 8, 12, 20, 20, 40, 80, 80), (1.0, 0.1, 0.5, 0.05, 1.0, 0.3, 0.1, 1.0)),
    HALF: ((8, 8, 12, 20, 20, 40, 80, 80), (1.0, 0.1, 0.5, 0.05, 1.0, 0.3, 0.1, 1.0)),
}
"""Numbers of samples and noise levels of the eight groups of clients."""

OWN = OWN_PREDICTION.adding(f"10 % is {OWN_THRESHOLD}")
NEAR: dict[str, Any] = {"claimed_high": 1.1, "source": OWN}
SMALL = 0.3
"""Share of the stability edge up to which the law of small errors is claimed."""


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """Runs with one choice of weights, in one population of clients."""

    population: str = lf.choice(POPULATIONS, BOTH)
    weights: str = lf.choice((UNIFORM, SAMPLES, PAIRS, INVERSE, MANY, SETTLED), UNIFORM)
    dim: int = 100
    rank: int = 3
    copies: int = 2  # of `rank` clients with orthogonal heads in each group
    trials: int = 100
    seed: int = 0

    @property
    def groups(self) -> tuple[Any, Any]:
        """Number of samples and noise level of each client."""
        return tuple(np.repeat(part, self.copies * self.rank) for part in POPULATIONS[self.population])

    @property
    def heads(self) -> Any:
        """True heads (n, k) of length sqrt(k), unrelated to samples and noise."""
        rng, k = np.random.default_rng(self.seed), self.rank
        frames = [orthonormalize(rng.standard_normal((k, k))) for _ in range(8 * self.copies)]
        return np.sqrt(k) * np.concatenate(frames)

    @property
    def participants(self) -> int:
        """Number of participants in a round."""
        clients = 8 * self.copies * self.rank
        return clients // 2 if self.population == HALF else clients

    @property
    def sizes(self) -> dict[str, Any]:
        """Arguments of `lf.theory` without noise."""
        return {"dim": self.dim, "n_samples": self.groups[0], "participants": self.participants}

    def chosen(self, rate: float = 0.0) -> Any:
        """Return the weights, with mean 1; the rate matters for those that are best at their floor."""
        m, noise = self.groups
        length = self.rank + noise**2
        fixed = {UNIFORM: 1.0 + 0.0 * m, SAMPLES: 1.0 * m, INVERSE: m / noise**2}
        fixed[PAIRS] = m / (length * (1.0 + length / m))
        if self.weights in fixed:
            return fixed[self.weights] / fixed[self.weights].mean()
        error, found = 0.0, lf.theory.optimal_weights(self.heads, noise_std=noise, **self.sizes)
        for _ in range(100 if self.weights == SETTLED else 0):
            step, edge = self.step(found, rate), self.edge(found)
            floor = 2.0 * max(error, 1e-6) * self.rank if step >= edge else self.floor(found, step)
            before, error = error, floor / self.rank
            found = lf.theory.optimal_weights(self.heads, noise_std=noise, error=error, **self.sizes)
            if abs(error - before) < 1e-4 * error:
                break
        return found

    def step(self, weights: Any, rate: float) -> float:
        """Return the step size of a rate."""
        return float(rate / np.mean(weights * (1.0 - self.rank / self.groups[0])))

    def edge(self, weights: Any) -> float:
        """Return the predicted largest stable step size."""
        return float(lf.theory.stability_edge(self.heads, weights=weights, **self.sizes))

    def floor(self, weights: Any, step: float) -> float:
        """Return the predicted sum of the squared tangents, NaN from the edge on."""
        if step >= self.edge(weights):
            return float("nan")
        options = {"noise_std": self.groups[1], "step_size": step, "weights": weights}
        return float(np.trace(lf.theory.near_truth_floor(self.heads, **options, **self.sizes)))

    def simulated(self, weights: Any, step: Any, rounds: int, start: float, metric: Any, every: int = 1) -> lf.Result:
        """Run FedRep with a metric, from equal angles of a given sine."""
        return lf.simulate(
            lf.FedRep(rank=self.rank, step_size=step, weights=weights, init=lf.AtDistance(start)),
            lf.GivenTruth(B=np.eye(self.dim, self.rank), W=self.heads, noise_std=self.groups[1]),
            data=lf.FreshSamples(self.groups[0]),
            rounds=rounds,
            participation=self.participants,
            trials=self.trials,
            seed=self.seed,
            engine="chain",
            metrics=[metric],
            record_every=every,
        )


@dataclass(frozen=True, kw_only=True)
class Floor(Weighted):
    """Error at which runs with a constant step size settle."""

    rate: float = 0.1
    longest: int = 250

    def run(self) -> dict[str, Any]:
        """Return the mean squared tangent of each trial, the predictions, and the edge as a rate."""
        weights, (m, noise) = self.chosen(self.rate), self.groups
        step, edge = self.step(weights, self.rate), self.edge(weights)
        predicted = self.floor(weights, step) / self.rank
        rounds = int(min(self.longest, max(60.0, 5.0 / self.rate)))
        start = np.sqrt(predicted / (1.0 + predicted)) if np.isfinite(predicted) else 0.03
        result = self.simulated(weights, step, rounds, float(start), squared_tangents)
        paths = result.metrics["squared_tangents"] / self.rank
        mean = round(float(m.mean()))
        equal = self.sizes | {"n_samples": mean}
        equal_step, level = self.rate / (1.0 - self.rank / mean), float(np.sqrt(np.mean(noise**2)))
        same = np.nan
        if equal_step < lf.theory.stability_edge(self.heads, **equal):
            same = np.trace(lf.theory.near_truth_floor(self.heads, step_size=equal_step, noise_std=level, **equal))
        return {
            "measured": paths[:, rounds // 4 :].mean(axis=1),
            "predicted": predicted,
            "of_equal_clients": float(same) / self.rank,
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
            values.append(self.floor(weights, self.step(weights, rate)) / self.rank)
        return {"n_clients": len(self.heads), "law": lf.LabeledArray(np.array(values), rate=rates)}


@dataclass(frozen=True, kw_only=True)
class Schedule(Weighted):
    """Error with the best step size in every round, for constant weights."""

    weights: str = lf.choice((UNIFORM, SAMPLES, PAIRS, INVERSE, MANY), UNIFORM)
    rounds: int = 1000
    delta: float = 0.3

    def run(self) -> dict[str, Any]:
        """Return the mean squared sine along the rounds, the predicted end and the limit."""
        (m, noise), weights = self.groups, self.chosen()
        shared = {"noise_std": noise, "weights": weights, "dim": self.dim, "rank": self.rank, "n_samples": m}
        whole = shared | {"n_clients": len(m), "participants": self.participants, "rounds": self.rounds}
        steps = lf.theory.best_step_schedule(delta=self.delta, **whole)
        result = self.simulated(weights, steps, self.rounds, self.delta, mean_square, max(1, self.rounds // 20))
        path = lf.theory.mean_squared_sine(steps, delta=self.delta, **whole)
        samples = float(self.participants * m.mean() * self.rounds)
        return {
            "mean_square": lf.LabeledArray(result.metrics["mean_square"], round=result.rounds),
            "predicted": float(path[-1]),
            "n_clients": len(m),
            "limit": float(lf.theory.refitted_heads_limit(samples, **shared).mean()),
        }


def squared_tangents(state: lf.State, truth: lf.Truth) -> Any:
    """Return the sum of the squared tangents of the angles between B and B*, (trials,)."""
    basis, B = orthonormalize(truth.B), state.array("B")
    inside = basis.mT @ B
    tangents = np.linalg.solve(inside.mT, (B - basis @ inside).mT)
    return np.square(tangents).sum(axis=(-2, -1))


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return runs at constant and at decreasing step sizes; quick: fewer of all."""
    populations = (NOISE, BOTH) if quick else tuple(POPULATIONS)
    names = (UNIFORM, SAMPLES, MANY, SETTLED) if quick else WEIGHTS
    rates = (0.1, 0.6) if quick else (0.02, 0.05, 0.1, 0.3, 0.6)
    floor, schedule = (Floor(trials=6, longest=60), Schedule(trials=6, rounds=150)) if quick else (Floor(), Schedule())
    law = Law(rates=6, lowest=0.1) if quick else Law()
    constant = names[:-1]
    return {
        "floors": lf.grid(floor, population=populations, weights=names, rate=rates),
        "law": lf.grid(law, population=populations, weights=names),
        "schedule": [replace(schedule, weights=name) for name in constant],
    }


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw floors against rates, and the error along the schedule against rounds."""
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
    table = tables["schedule"]
    with lf.panels(table, title="", height=3.0, width="column") as second:
        for ax, part in second:
            for row in part.rows:
                t, shape = np.array(row["mean_square"].axes["round"])[1:], LOOK[row["weights"]]
                ax.plot(t, row["mean_square"].values.mean(axis=0)[1:], label=SHOWN[row["weights"]], **shape)
                ax.plot(t, row["limit"] * row["rounds"] / t, color=shape["color"], linestyle=":")
        limits = {"xscale": "log", "yscale": "log", "xlim": (0.9 * t[0], 1.3 * t[-1])}
        second.label("round", "mean squared sine of the angles", **limits)
        second.legend(f"mean of {table.rows[0]['trials']} trials", ncols=2)
    return {"": sheet.figure, "schedule": second.figure}


def settled(row: dict[str, Any]) -> bool:
    """Return whether runs have a floor and stay near it."""
    return bool(row["share"] < 1.0 and np.max(row["measured"]) < 1.0)


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the predicted floors, the weights at small and large rates, and the schedule."""
    out = []
    for population, part in tables["floors"].groupby("population"):
        out += floors(part, str(population))
        out += compared(part, str(population))
    return [*out, *edges(tables["floors"]), *scheduled(tables["schedule"])]


def ratio(first: Any, second: Any, *, confidence: float = 0.95) -> Measured:
    """Return the ratio of the means over trials of two arrays, with its interval over paired trials."""

    def of(one: Any, other: Any, axis: int = 0) -> Any:
        return one.mean(axis=axis) / other.mean(axis=axis)

    options: dict[str, Any] = {"paired": True, "vectorized": True, "confidence": confidence}
    return (float(of(first, second)), *bootstrap_interval(of, (first, second), **options))


def factor(ratios: Any, *, confidence: float = 0.95) -> Measured:
    """Return the factor between the mean of measured and of predicted values, from their ratios."""
    return as_factor(mean_interval(ratios, confidence=confidence))


def worst(interval: Callable[..., Measured], found: list[tuple[Any, ...]]) -> tuple[Measured, str]:
    """Return the largest of several estimates, and its text, from samples that end with a text."""
    samples, texts = [one[:-1] for one in found], [one[-1] for one in found]
    estimates = [interval(*sample)[0] for sample in samples]
    return largest_of(interval, samples), texts[int(np.argmax(estimates))]


def floors(part: lf.Table, population: str) -> list[Finding]:
    """Judge the predicted floors at small step sizes, of this law and of that of equal clients."""
    rows = [row for row in part.rows if row["share"] < SMALL]
    out = []
    same = "The law of equal clients, at the means, predicts the error with equal weights"
    for column, text in (("predicted", "Runs settle at the predicted error"), ("of_equal_clients", same)):
        known = [row for row in rows if np.isfinite(row[column]) and (text != same or row["weights"] == UNIFORM)]
        if known:
            found, where = worst(factor, [(row["measured"] / row[column], at(row)) for row in known])
            statistic = "largest factor between the mean squared tangent and the prediction"
            detail = f"{where}; of {len(known)} runs with steps up to {SMALL:g} of the edge"
            out.append(judge(found, claim=text, setting=population, statistic=statistic, detail=detail, **NEAR))
    return out


def at(row: dict[str, Any]) -> str:
    """Return the weights and the rate of a row as text."""
    return f"{row['weights']}, rate {row['rate']:g}"


def compared(part: lf.Table, population: str) -> list[Finding]:
    """Judge whether other weights are as good as the best ones at the smallest rate, and whether any are better."""
    rate = min(part.unique("rate"))
    found = {row["weights"]: row["measured"] for row in part.select(rate=rate).rows}
    out = []
    for name in (UNIFORM, SAMPLES, PAIRS, INVERSE):
        if name in found:
            out.append(
                judge(
                    ratio(found[name], found[MANY]),
                    claim=f"{SAID[name]} settle at the error of the best weights",
                    setting=f"{population}, rate {rate:g}",
                    statistic="mean squared tangent, divided by that of the best weights for many rounds",
                    source=OWN_THRESHOLD,
                    claimed_high=1.1,
                )
            )
    others = []
    for row in part.rows if SETTLED in found else []:
        if row["weights"] != SETTLED:
            best = part.select(weights=SETTLED, rate=row["rate"]).rows[0]
            others.append((best["measured"], row["measured"], at(row)))
    if others:
        measured, where = worst(ratio, others)
        statistic = "mean squared tangent of the best weights at their floor over that of others, largest"
        fields: dict[str, Any] = {"statistic": statistic, "detail": where, "claimed_high": 1.05}
        text = "No weights settle at a smaller error than the best ones at their floor"
        out.append(judge(measured, claim=text, setting=population, source=OWN_PREDICTION, **fields))
    return out


def edges(table: lf.Table) -> list[Finding]:
    """Judge at the largest rate, in the population with different noise, how weights on few clients fare."""
    out, rate = [], max(table.unique("rate"))
    rows = {row["weights"]: row for row in table.select(population=NOISE, rate=rate).rows}
    fields: dict[str, Any] = {"setting": f"{NOISE}, rate {rate:g}", "source": OWN_THRESHOLD}
    others = [rows[name] for name in (UNIFORM, MANY) if name in rows]
    for row in others if SETTLED in rows else []:
        text = f"At a large rate {SAID[row['weights']].lower()} are as good as the best at their floor"
        detail = f"stable up to a rate of {row['edge']:.2g}, predicted; best at the floor: {rows[SETTLED]['edge']:.2g}"
        statistic = "mean squared tangent, divided by that of the weights that are best at their floor"
        measured = ratio(row["measured"], rows[SETTLED]["measured"])
        out.append(judge(measured, claim=text, statistic=statistic, claimed_high=1.1, detail=detail, **fields))
    return out


def scheduled(table: lf.Table) -> list[Finding]:
    """Judge the error after the best step schedule, against the recursion, the limit and other weights."""
    rows = {row["weights"]: row for row in table.rows}
    ends = {name: row["mean_square"].values[:, -1] for name, row in rows.items()}
    setting = f"{table.rows[0]['population']}, {table.rows[0]['rounds']:,} rounds"
    fields: dict[str, Any] = {"setting": setting, **NEAR}
    out = []
    for column, text in (("predicted", "The schedule has the predicted error"),
                         ("limit", "The schedule reaches the limit for its weights")):  # fmt: skip
        found, where = worst(factor, [(ends[name] / row[column], str(name)) for name, row in rows.items()])
        statistic = "largest factor between the final mean squared sine and the prediction"
        out.append(judge(found, claim=text, statistic=statistic, detail=f"weights: {where}", **fields))
    for name in (UNIFORM, SAMPLES):
        text = f"With the best schedule, {SAID[name].lower()} end as near to B* as the best weights"
        statistic = "final mean squared sine, divided by that of the best weights for many rounds"
        measured = ratio(ends[name], ends[MANY])
        options = {"source": OWN_THRESHOLD, "claimed_high": 1.1}
        out.append(judge(measured, claim=text, setting=setting, statistic=statistic, **options))
    return out
