"""Cells of the experiments on local updates and own steps: population losses, and fixed samples with noise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.algorithms.initial import InitialStart
from linfed.statistics.intervals import first_round_below, nan_as_worst

from ..shared.kept import worst_from

tune = partial(lf.tune, score="final", ties_within=0.0)
CLOSE = 1e-4
"""Distance that counts as recovered."""


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

    @abstractmethod
    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""

    def problem(self, W: Array) -> lf.GivenTruth:
        """Return the problem with given heads."""
        return lf.GivenTruth(B=np.eye(self.dim, self.rank), W=W)

    def best_step(self, steps: Sequence[float], n_rounds: int, level: float = 0.0) -> tuple[float, dict[str, Any]]:
        """Return the best step size on separate trials, and whether it is at the edge of the grid, as a column.

        The best step size has the smallest final distance; with a level, the fewest rounds to this distance.
        """
        options: dict[str, Any] = {"record_every": n_rounds}
        if level:
            options = {"score": lf.RoundsTo(level)}
        problem = self.problem(replace(self, trials=5, seed=self.seed + 1).heads())
        data, candidates = lf.GivenSamples.population(problem, trials=5), [self.algorithm(step) for step in steps]
        tuning = tune(candidates, problem, data=data, n_rounds=n_rounds, trials=5, seed=self.seed, **options)
        return steps[tuning.best], {"at_grid_edge": tuning.columns()["at_grid_edge"]}

    def follow(
        self,
        algorithm: lf.Algorithm,
        W: Array,
        n_rounds: int,
        contraction: Array | None,
        participation: float = 1.0,
        *,
        every_round: bool = False,
    ) -> dict[str, Any]:
        """Return distances and rates with their predictions, and the smallest distance of a span.

        The initial B and the mean regressor generate the span. The curves have about 150 rounds. The rounds to a
        distance are among these; if `every_round` is True, among all rounds.
        """
        problem, trials = self.problem(W), len(W)
        data = lf.GivenSamples.population(problem, trials=trials)
        run = partial(
            lf.simulate, algorithm, problem, data=data, trials=trials, seed=self.seed, metrics=["subspace_distance"]
        )
        start = run(n_rounds=0).final.array("B")
        apart = max(1, n_rounds // 150)
        result = run(n_rounds=n_rounds, participation=participation, record_every=1 if every_round else apart)
        kept = result.rounds <= n_rounds  # without a final step, which does not change B
        at, distance = result.rounds[kept], result.metrics["subspace_distance"][:, kept]
        when = at.astype(float)
        B_star, mean = (
            np.broadcast_to(np.eye(self.dim, self.rank), start.shape),
            W.mean(axis=1) @ np.eye(self.rank, self.dim),
        )
        predicted, law = np.full_like(distance, np.nan), np.full(len(W), np.nan)
        if contraction is not None:
            predicted = lf.theory.contracted_distance(start, B_star, contraction, at)
            law = -np.log(np.abs(np.linalg.eigvals(contraction)).max(axis=-1))
        shown = (at % apart == 0) | (at == n_rounds)
        return {
            "distance": lf.LabeledArray(distance[:, shown], round=at[shown]),
            "predicted": lf.LabeledArray(predicted[:, shown], round=at[shown]),
            "end": nan_as_worst(distance[:, -1]),
            "reached": first_round_below(when, worst_from(distance), CLOSE),
            "reached_law": first_round_below(when, predicted, CLOSE),
            "rate": fall(when, distance, 1e-3, 1e-9),
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
    n_rounds: int = 600
    steps: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    new_samples: tuple[int, ...] = ()
    tuning_trials: int = 5

    @abstractmethod
    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""

    def run(self) -> dict[str, Any]:
        """Return the distances along the rounds, and the relative squared errors of new clients, median per trial."""
        problem = lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=self.rank, noise_std=self.noise_std
        )
        data, columns = lf.FixedSamples(self.n_samples), dict[str, Any]()
        algorithm = self.algorithm(self.steps[0])
        if len(self.steps) > 1:
            candidates, last = [self.algorithm(step) for step in self.steps], self.n_rounds
            run = partial(tune, data=data, n_rounds=last, record_every=last, trials=self.tuning_trials, seed=self.seed)
            tuning = run(candidates, problem)
            algorithm = candidates[tuning.best]
            columns = {"chosen_step": self.steps[tuning.best], "at_grid_edge": tuning.columns()["at_grid_edge"]}
        known = algorithm.learned_rank > 0  # without B one round is enough
        result = lf.simulate(
            algorithm,
            problem,
            data=data,
            n_rounds=self.n_rounds if known else 1,
            record_every=max(1, self.n_rounds // 100),
            trials=self.trials,
            seed=self.seed,
            metrics=["subspace_distance" if known else "risk"],
        )
        if known:
            distance = result.metrics["subspace_distance"]
            columns |= {"distance": lf.LabeledArray(distance, round=result.rounds)}
            columns |= {"end": nan_as_worst(distance[:, -1]), "diverged": np.isnan(distance[:, -1])}
        if self.new_samples:
            risk = result.new_clients(self.new_samples)
            errors = np.median(2.0 * risk - self.noise_std**2, axis=-1) / self.rank
            columns["error"] = lf.LabeledArray(nan_as_worst(errors), new=self.new_samples)
        return columns
