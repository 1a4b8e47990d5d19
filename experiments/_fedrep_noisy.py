"""What the experiments on FedRep under label noise share: a setting, what theory says of it, and how ends are compared.

B starts at a stated distance, samples are fresh; measured is the mean squared sine of the principal angles.
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

NEAR: dict[str, Any] = {"least": 0.9, "most": 1.1}
OWN: dict[str, Any] = {"source": f"{OWN_PREDICTION}, without a free parameter; 10 % is an {OWN_THRESHOLD}"}


@dataclass(frozen=True, kw_only=True)
class Noisy:
    """A setting, of sizes that are chosen here."""

    dim: int = 100
    rank: int = 3
    n_clients: int = 30
    participants: int | None = None
    n_samples: int = 10
    noise_std: float = 1.0
    condition: float = 1.0
    spread: float = 0.0  # of the logarithms of the heads' lengths, at second moment I
    design: str = "gaussian"
    delta: float = 0.5  # 1 is a random subspace
    rounds: int = 1000
    trials: int = 200
    seed: int = 0

    @property
    def cost(self) -> float:
        """Long runs first."""
        rows = self.n_samples * self.dim if self.design != "gaussian" else 4 * self.rank
        return float((self.participants or self.n_clients) * rows * self.rounds * self.trials)

    @property
    def sizes(self) -> dict[str, Any]:
        """What theory is told of a round."""
        return {name: getattr(self, name) for name in ("dim", "rank", "n_samples", "noise_std")}

    @property
    def whole(self) -> dict[str, Any]:
        """What theory is told of a run."""
        start = self.delta if self.delta < 1 else np.sqrt(1.0 - self.rank / self.dim)
        own = {name: getattr(self, name) for name in ("n_clients", "participants", "rounds")}
        return {**self.sizes, **own, "delta": float(start)}

    @property
    def problem(self) -> lf.SharedRepresentation | lf.GivenTruth:
        """Heads of equal length and the condition number; or of unequal lengths."""
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
        """What every run is told."""
        engine = "chain" if self.design == "gaussian" else "auto"
        own = {"data": lf.FreshSamples(self.n_samples), "engine": engine, "rounds": self.rounds}
        seed = (self.seed, self.dim, self.rank, self.n_samples)
        return own | {"participation": self.participants or 1.0, "seed": seed}

    @property
    def init(self) -> lf.AtDistance | str:
        """How B begins."""
        return "random" if self.delta == 1 else lf.AtDistance(self.delta)

    def measured(self, algorithm: lf.Algorithm, *, scale: float = 1.0, predicted: bool = True) -> dict[str, Any]:
        """Return the mean squared sines of an algorithm's run, and what theory says of it.

        Parameters
        ----------
        algorithm : Algorithm
        scale : float
            a of steps that fall like a/t.
        predicted : bool
            Whether the recursion speaks of it.
        """
        own = {"trials": self.trials, "metrics": [mean_square], "record_every": max(1, self.rounds // 20)}
        result = lf.simulate(algorithm, self.problem, **self.world | own)
        W = self.problem.truth(self.world["seed"], [0]).W[0]
        lam = np.linalg.eigvalsh(W.T @ W / self.n_clients)
        N = float((self.participants or self.n_clients) * self.n_samples * self.rounds)
        known = {name: value for name, value in self.sizes.items() if name != "n_samples"}
        limit = partial(lf.theory.refitted_heads_limit, N, **self.sizes, eigenvalues=lam)
        path = np.full(len(result.rounds), np.nan)
        if predicted:
            path = lf.theory.mean_squared_sine(result.algorithm.step_size, **self.whole)[result.rounds]
        return {
            "mean_square": lf.Along(result.metrics["mean_square"], round=result.rounds),
            "predicted": lf.Along(path, round=result.rounds),
            "bound": float(lf.theory.known_heads_bound(N, **known, eigenvalues=lam).mean()),
            "limit": float(limit().mean()),
            "limit_of_a": float(limit(scale=scale).mean()),
        }


def at_the_end(result: lf.Result) -> Any:
    """Return the mean squared sines at the end of a run, (trials,)."""
    B = orthonormalize(result.final.served().array("B"))
    if result.engine == "chain":  # whose frame begins with the span of B*
        outside = B[:, result.algorithm.columns :]
    else:
        truth = result.problem.truth(result.seed, range(result.trials))
        outside = B - truth.B @ (truth.B.mT @ B)
    return np.square(outside).sum(axis=(-2, -1)) / B.shape[-1]


def over(row: lf.Table, target: Any) -> Measured:
    """Return the mean over trials at the end over a number, or over the mean of another row's paired trials."""
    ends = [row["mean_square"][:, -1]]
    if isinstance(target, lf.Table):
        ends.append(target["mean_square"][:, -1])

    def ratio(*parts: Any, axis: int = 0) -> Any:
        return parts[0].mean(axis=axis) / (parts[1].mean(axis=axis) if parts[1:] else target)

    return (float(ratio(*ends)), *bootstrap_interval(ratio, ends, paired=True, vectorized=True))


def price(row: lf.Table) -> Measured:
    """Return the samples that the second half of the rounds took for what it gained, over those predicted."""
    half = len(row["round"]) // 2
    share = 1.0 - row["round"][half] / row["rounds"]
    ends = [row["mean_square"][:, place] for place in (half, -1)]

    def ratio(first: Any, last: Any, axis: int = 0) -> Any:
        return share / (row["limit"] * (1.0 / last.mean(axis=axis) - 1.0 / first.mean(axis=axis)))

    return (float(ratio(*ends)), *bootstrap_interval(ratio, ends, paired=True, vectorized=True))
