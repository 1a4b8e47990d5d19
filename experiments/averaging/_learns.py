"""Shared parts of the experiments on local updates and own steps: population losses, fixed samples, and figures."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.algorithms.initial import InitialStart
from linfed.figures.style import PAGE_WIDTH, Look, plain_ticks
from linfed.plotting.panels import bars
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, judge_smaller
from linfed.statistics.intervals import Measured, binomial_share, first_round_below, median_interval, nan_as_worst

CLOSE = 1e-4
"""Distance that counts as recovered."""

PREDICTED = OWN_PREDICTION.adding(f"the range is {OWN_THRESHOLD}")


@dataclass(frozen=True)
class ScaledSubspace(lf.RandomSubspace):
    """Uniformly random subspace with columns of one length; the subspace does not depend on the length."""

    length: float = 1.0

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the orthonormal basis times the length."""
        return self.length * super().resolve(start, rank)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A method, and the sizes of its problem."""

    method: str
    n_clients: int = 40
    dim: int = 20
    rank: int = 3
    trials: int = 20
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Population(Setting):
    """A method at population losses, with heads N(shift e_1, diag(1, .., 1, diversity^2)); B* spans the first axes."""

    diversity: float = 1.0
    shift: float = 0.0

    def heads(self) -> Array:
        """Return the heads of all trials."""
        rng = np.random.default_rng((self.seed, self.n_clients, self.rank))
        W = rng.standard_normal((self.trials, self.n_clients, self.rank))
        W[..., -1] *= self.diversity
        W[..., 0] += self.shift
        return W

    def world(self, W: Array) -> tuple[lf.GivenTruth, dict[str, Any]]:
        """Return the problem with given heads, and the options of runs at its population losses."""
        problem = lf.GivenTruth(B=np.eye(self.dim, self.rank), W=W)
        data = lf.GivenSamples.population(problem, trials=len(W))
        return problem, {"data": data, "trials": len(W), "seed": self.seed}

    def follow(
        self, algorithm: lf.Algorithm, W: Array, rounds: int, contraction: Array | None, participation: float = 1.0
    ) -> dict[str, Any]:
        """Return distances and rates with their predictions, and the smallest distance of a span.

        The initial B and the mean regressor generate the span.
        """
        problem, run = self.world(W)
        run |= {"metrics": ["subspace_distance"]}
        start = lf.simulate(algorithm, problem, rounds=0, **run).final.array("B")
        run |= {"participation": participation, "record_every": max(1, rounds // 150)}
        result = lf.simulate(algorithm, problem, rounds=rounds, **run)
        kept = result.rounds <= rounds  # without a final step, which does not change B
        at, distance = result.rounds[kept], result.metrics["subspace_distance"][:, kept]
        B_star, mean = np.broadcast_to(problem.B, start.shape), W.mean(axis=1) @ np.eye(self.rank, self.dim)
        predicted, law = np.full_like(distance, np.nan), np.full(len(W), np.nan)
        if contraction is not None:
            predicted = lf.theory.contracted_distance(start, B_star, contraction, at)
            law = -np.log(np.abs(np.linalg.eigvals(contraction)).max(axis=-1))
        return {
            "distance": lf.LabeledArray(distance, round=at),
            "predicted": lf.LabeledArray(predicted, round=at),
            "end": nan_as_worst(distance[:, -1]),
            "reached": first_round_below(at, distance, CLOSE),
            "reached_law": first_round_below(at, predicted, CLOSE),
            "rate": fall(at, distance, 1e-3, 1e-9),
            "law": law,
            "floor": lf.subspace_distance(np.concatenate([start, mean[..., None]], axis=-1), B_star),
            "smallest": np.linalg.eigvalsh(W.mT @ W / W.shape[1])[:, 0],
            "diverged": np.isnan(distance[:, -1]),
        }


def fall(rounds: Array, distance: Array, start: float, end: float) -> Array:
    """Return the fall of the log distance per round between two levels, (trials,); NaN without reaching `end`."""
    found = np.full(len(distance), np.nan)
    for trial, curve in enumerate(distance):
        if (curve < end).any():
            first, last = (curve < start).argmax(), (curve < end).argmax()
            found[trial] = np.log(curve[first] / curve[last]) / (rounds[last] - rounds[first])
    return found


@dataclass(frozen=True, kw_only=True)
class OnSamples(Setting):
    """A method on fixed samples with noise, at the best of its step sizes on separate trials, and new clients."""

    n_clients: int = 100
    n_samples: int = 20
    noise_std: float = 0.5
    rounds: int = 600
    steps: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    new_samples: tuple[int, ...] = ()
    tuning_trials: int = 5

    @abstractmethod
    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""

    def run(self) -> dict[str, Any]:
        """Return the distances along the rounds, and the relative squared errors of new clients, median per trial."""
        sizes: dict[str, Any] = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        problem = lf.SharedRepresentation(noise_std=self.noise_std, **sizes)
        run: dict[str, Any] = {"data": lf.FixedSamples(self.n_samples), "rounds": self.rounds, "seed": self.seed}
        algorithm, columns = self.algorithm(self.steps[0]), dict[str, Any]()
        if len(self.steps) > 1:
            tries = [self.algorithm(step) for step in self.steps]
            options: dict[str, Any] = {"score": "final", "margin": 0.0, "record_every": self.rounds}
            tuning = lf.tune(tries, problem, trials=self.tuning_trials, **options, **run)
            algorithm = tuning.algorithm
            columns = {"chosen_step": self.steps[tuning.best], "at_grid_edge": tuning.columns()["at_grid_edge"]}
        known = algorithm.learned_rank > 0  # without B one round is enough
        run |= {"trials": self.trials, "metrics": ["subspace_distance"] if known else ["risk"]}
        run |= {} if known else {"rounds": 1}
        result = lf.simulate(algorithm, problem, record_every=max(1, self.rounds // 100), **run)
        if known:
            distance = result.metrics["subspace_distance"]
            columns |= {"distance": lf.LabeledArray(distance, round=result.rounds)}
            columns |= {"end": nan_as_worst(distance[:, -1]), "diverged": np.isnan(distance[:, -1])}
        if self.new_samples:
            risk = result.new_clients(self.new_samples)
            errors = np.median(2.0 * risk - self.noise_std**2, axis=-1) / self.rank
            columns["error"] = lf.LabeledArray(nan_as_worst(errors), new=self.new_samples)
        return columns


# --- figures -------------------------------------------------------------------------------------------------


def some_panels(number: int) -> tuple[Any, Any]:
    """Return a figure with a row of panels, and the panels."""
    import matplotlib.pyplot as plt

    return plt.subplots(1, number, figsize=(PAGE_WIDTH, 2.7), layout="constrained")


def draw_rates(ax: Any, table: lf.Table, looks: dict[str, Look]) -> None:
    """Draw the rates of each method against the smallest eigenvalue of the heads' second moment, with predictions."""
    for name, part in table.groupby("method"):
        rows = sorted(part.rows, key=lambda row: row["diversity"])
        x = np.array([np.median(row["smallest"]) for row in rows])
        values = np.stack([row["rate"] for row in rows], axis=1)
        kept = ~np.isnan(values).all(axis=0)
        if kept.any():
            bars(ax, x[kept], values[:, kept], looks[name], label=name, linestyle="none", markerfacecolor="none")
        ax.plot(x, [np.median(row["law"]) for row in rows], color=looks[name][0], linewidth=1.0, label=f"_{name}")
    ax.plot([], [], color="0.3", linewidth=1.0, label="predicted")
    ax.set(xscale="log", yscale="log", ylabel="fall of the log distance per round")
    ax.set_xlabel("smallest eigenvalue of\nthe heads' second moment")
    plain_ticks(ax)


def draw_shares(ax: Any, part: lf.Table, x: str, look: Look, label: str) -> None:
    """Draw the share of runs that recover B* against a column, with its 95 % interval."""
    middle, low, high = np.transpose([binomial_share(int(recovered(row).sum()), len(recovered(row))) for row in part])
    shape = {"color": look[0], "marker": look[1], "linestyle": look[2], "capsize": 1.5, "elinewidth": 0.7}
    ax.errorbar([row[x] for row in part], middle, yerr=(middle - low, high - middle), label=label, **shape)


def recovered(row: lf.Table) -> Array:
    """Return for each trial whether its final distance is below 1e-4."""
    return np.asarray(row["end"] < CLOSE)


# --- claims --------------------------------------------------------------------------------------------------


def rounds_ratio(first: Array, second: Array) -> Measured:
    """Return the median over trials of a ratio of rounds; a trial in which one is infinite counts as infinite."""
    known = np.isfinite(first) & np.isfinite(second)
    return median_interval(np.divide(first, second, out=np.full(len(known), np.nan), where=known))


def judge_rates(table: lf.Table, source: str) -> Iterator[Finding]:
    """Judge rates and curves against their prediction, and whether diversity speeds a method up."""
    for row in table:
        where = f"{row['method']}, mu = {row['diversity']:g}"
        fields: dict[str, Any] = {"setting": where, "source": PREDICTED, "claimed_low": 0.9, "claimed_high": 1.1}
        yield judge(
            median_interval(row["rate"] / row["law"]),
            claim="The rate is the predicted one",
            statistic="fall of the log distance from 1e-3 to 1e-9, divided by the predicted one, median over trials",
            **fields,
        )
        yield judge(
            rounds_ratio(row["reached"], row["reached_law"]),
            claim="The rounds from a random start are the predicted ones",
            statistic=f"rounds to distance {CLOSE:g}, divided by the predicted ones, median over trials",
            **fields,
        )
    for name, part in table.groupby("method"):
        rows = sorted(part.rows, key=lambda row: -row["diversity"])
        for more, less in itertools.pairwise(rows):
            yield judge_smaller(
                more["reached"],
                less["reached"],
                claim="Diverse heads speed the recovery of B* up",
                setting=f"{name}, mu = {more['diversity']:g} against {less['diversity']:g}",
                statistic=f"share of paired trials with fewer rounds to distance {CLOSE:g}",
                source=source,
            )
