"""Shared parts of the experiments on FedRep with label noise: a setting, its predictions, and ratios of final errors.

B starts at a given distance from B*, and samples are fresh in every round. The measured quantity is the mean squared
sine of the principal angles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
from linfed.numerics.linalg import orthonormalize
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD
from linfed.statistics.intervals import Measured, bootstrap_interval

from ._fedrep_rivals import Student, mean_square

NEAR: dict[str, Any] = {"claimed_low": 0.9, "claimed_high": 1.1}
OWN: dict[str, Any] = {"source": f"{OWN_PREDICTION}, without a free parameter; 10 % is {OWN_THRESHOLD}"}


@dataclass(frozen=True, kw_only=True)
class Noisy:
    """A setting with label noise; its sizes are our choice."""

    dim: int = 100
    rank: int = 3
    n_clients: int = 30
    participants: int | None = None
    n_samples: int = 10
    noise_std: float = 1.0
    condition: float = 1.0
    spread: float = 0.0  # std of the log lengths of the heads, at second moment I
    design: str = lf.choice(("gaussian", "rademacher", "cube", "sphere", "student"), "gaussian")
    delta: float = 0.5  # 1 stands for a random subspace
    rounds: int = 1000
    trials: int = 200
    seed: int = 0

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        rows = self.n_samples * self.dim if self.design != "gaussian" else 4 * self.rank
        return float((self.participants or self.n_clients) * rows * self.rounds * self.trials)

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of a round, as arguments of `lf.theory`."""
        return {name: getattr(self, name) for name in ("dim", "rank", "n_samples", "noise_std")}

    @property
    def whole(self) -> dict[str, Any]:
        """The sizes of a run, as arguments of `lf.theory`."""
        start = self.delta if self.delta < 1 else np.sqrt(1.0 - self.rank / self.dim)
        sizes = {name: getattr(self, name) for name in ("n_clients", "participants", "rounds")}
        return {**self.sizes, **sizes, "delta": float(start)}

    @property
    def problem(self) -> lf.SharedRepresentation | lf.GivenTruth:
        """The problem: heads of equal length with a given condition number, or heads of unequal lengths."""
        if self.spread:
            rng = np.random.default_rng(self.seed)
            lengths = np.exp(self.spread * rng.standard_normal((self.n_clients, 1)))
            W = orthonormalize(lengths * rng.standard_normal((self.n_clients, self.rank))) * np.sqrt(self.n_clients)
            return lf.GivenTruth(B=np.eye(self.dim, self.rank), W=W, noise_std=self.noise_std)
        design = Student() if self.design == "student" else self.design
        sizes = {name: getattr(self, name) for name in ("n_clients", "dim", "rank", "noise_std")}
        return lf.SharedRepresentation(**sizes, condition_number=self.condition, design=design)

    @property
    def world(self) -> dict[str, Any]:
        """Arguments of `lf.simulate` that all runs share."""
        engine = "chain" if self.design == "gaussian" else "auto"
        options = {"data": lf.FreshSamples(self.n_samples), "engine": engine, "rounds": self.rounds}
        seed = (self.seed, self.dim, self.rank, self.n_samples)
        return options | {"participation": self.participants or 1.0, "seed": seed}

    @property
    def init(self) -> lf.AtDistance | str:
        """The initial B."""
        return "random" if self.delta == 1 else lf.AtDistance(self.delta)

    def measured(self, algorithm: lf.Algorithm, *, scale: float = 1.0, predicted: bool = True) -> dict[str, Any]:
        """Simulate an algorithm; return its mean squared sines and their predictions.

        Parameters
        ----------
        algorithm : Algorithm
        scale : float
            The constant a of step sizes that fall like a/t.
        predicted : bool
            If True, the recursion predicts this run; otherwise the predicted curve is NaN.
        """
        options = {"trials": self.trials, "metrics": [mean_square], "record_every": max(1, self.rounds // 20)}
        result = lf.simulate(algorithm, self.problem, **self.world | options)
        W = self.problem.truth(self.world["seed"], [0]).W[0]
        lam = np.linalg.eigvalsh(W.T @ W / self.n_clients)
        N = float((self.participants or self.n_clients) * self.n_samples * self.rounds)
        other_sizes = {name: value for name, value in self.sizes.items() if name != "n_samples"}
        limit = partial(lf.theory.refitted_heads_limit, N, **self.sizes, eigenvalues=lam)
        path = np.full(len(result.rounds), np.nan)
        if predicted:
            path = lf.theory.mean_squared_sine(result.algorithm.step_size, **self.whole)[result.rounds]
        return {
            "mean_square": lf.LabeledArray(result.metrics["mean_square"], round=result.rounds),
            "predicted": lf.LabeledArray(path, round=result.rounds),
            "bound": float(lf.theory.known_heads_bound(N, **other_sizes, eigenvalues=lam).mean()),
            "limit": float(limit().mean()),
            "limit_of_a": float(limit(scale=scale).mean()),
        }


def at_the_end(result: lf.Result) -> Any:
    """Return the mean squared sines at the end of a run, (trials,)."""
    B = orthonormalize(result.final.for_prediction().array("B"))
    if result.engine == "chain":  # the first axes of its frame span B*
        outside = B[:, result.algorithm.learned_rank :]
    else:
        truth = result.problem.truth(result.seed, range(result.trials))
        outside = B - truth.B @ (truth.B.mT @ B)
    return np.square(outside).sum(axis=(-2, -1)) / B.shape[-1]


def over(row: lf.Table, target: Any) -> Measured:
    """Return the final mean over trials, divided by a number or by the mean of another row's paired trials."""
    ends = [row["mean_square"][:, -1]]
    if isinstance(target, lf.Table):
        ends.append(target["mean_square"][:, -1])

    def ratio(*parts: Any, axis: int = 0) -> Any:
        return parts[0].mean(axis=axis) / (parts[1].mean(axis=axis) if parts[1:] else target)

    return (float(ratio(*ends)), *bootstrap_interval(ratio, ends, paired=True, vectorized=True))


def price(row: lf.Table) -> Measured:
    """Return the samples that the second half of the rounds took for its gain, divided by the predicted number."""
    half = len(row["round"]) // 2
    share = 1.0 - row["round"][half] / row["rounds"]
    ends = [row["mean_square"][:, place] for place in (half, -1)]

    def ratio(first: Any, last: Any, axis: int = 0) -> Any:
        return share / (row["limit"] * (1.0 / last.mean(axis=axis) - 1.0 / first.mean(axis=axis)))

    return (float(ratio(*ends)), *bootstrap_interval(ratio, ends, paired=True, vectorized=True))
