"""FedRep with label noise: a setting, its runs and their predictions.

B starts at a given distance from B*, and samples are fresh in every round. The measured quantity is the mean squared
sine of the principal angles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.numerics.linalg import orthonormalize

from ._fedrep_rivals import Student, mean_square


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
    n_rounds: int = 1000
    trials: int = 200
    seed: int = 0

    @property
    def problem(self) -> lf.SharedRepresentation | lf.GivenTruth:
        """The problem: heads of equal length with a given condition number, or heads of unequal lengths."""
        if self.spread:
            rng = np.random.default_rng(self.seed)
            lengths = np.exp(self.spread * rng.standard_normal((self.n_clients, 1)))
            W = orthonormalize(lengths * rng.standard_normal((self.n_clients, self.rank))) * np.sqrt(self.n_clients)
            return lf.GivenTruth(B=np.eye(self.dim, self.rank), W=W, noise_std=self.noise_std)
        return lf.SharedRepresentation(
            n_clients=self.n_clients,
            dim=self.dim,
            rank=self.rank,
            noise_std=self.noise_std,
            condition_number=self.condition,
            design=Student() if self.design == "student" else self.design,  # type: ignore[arg-type]  # or a name
        )

    @property
    def participation(self) -> float:
        """Number of participants in a round, or 1.0: all clients."""
        return self.participants or 1.0

    @property
    def engine(self) -> str:
        """Engine of the runs."""
        return "chain" if self.design == "gaussian" else "auto"

    @property
    def run_seed(self) -> tuple[int, ...]:
        """Seed of the runs: trials of other sizes are independent."""
        return (self.seed, self.dim, self.rank, self.n_samples)

    @property
    def init(self) -> lf.AtDistance | str:
        """The initial B."""
        return "random" if self.delta == 1 else lf.AtDistance(self.delta)

    def predicted(self, law: Callable[..., Array], *given: Any) -> Array:
        """Return a law of `linfed.theory` at the sizes of a run."""
        return law(
            *given,
            dim=self.dim,
            rank=self.rank,
            n_clients=self.n_clients,
            participants=self.participants,
            n_samples=self.n_samples,
            noise_std=self.noise_std,
            n_rounds=self.n_rounds,
            delta=self.delta if self.delta < 1 else float(np.sqrt(1.0 - self.rank / self.dim)),
        )

    def measured(self, algorithm: Any, *, scale: float = 1.0, predicted: bool = True) -> dict[str, Any]:
        """Simulate an algorithm; return its mean squared sines and their predictions.

        Parameters
        ----------
        algorithm : Algorithm
            FedRep, or a competitor with a step size.
        scale : float
            The constant a of step sizes that fall like a/t.
        predicted : bool
            If True, the recursion predicts this run; otherwise the predicted curve is NaN.
        """
        result = lf.simulate(
            algorithm,
            self.problem,
            data=lf.FreshSamples(self.n_samples),
            n_rounds=self.n_rounds,
            participation=self.participation,
            trials=self.trials,
            seed=self.run_seed,
            engine=self.engine,
            metrics=[mean_square],
            record_every=max(1, self.n_rounds // 20),
        )
        path = np.full(len(result.rounds), np.nan)
        if predicted:
            path = self.predicted(lf.theory.mean_squared_sine, algorithm.step_size)[result.rounds]
        W = self.problem.truth(self.run_seed, [0]).W[0]
        lam = np.linalg.eigvalsh(W.T @ W / self.n_clients)
        N, d, k, std = float(self.n_samples * self.n_rounds), self.dim, self.rank, self.noise_std
        N *= self.participants or self.n_clients
        limit = partial(
            lf.theory.refitted_heads_limit, N, dim=d, rank=k, n_samples=self.n_samples, noise_std=std, eigenvalues=lam
        )
        bound = lf.theory.known_heads_bound(N, dim=d, rank=k, noise_std=std, eigenvalues=lam)
        return {
            "mean_square": lf.LabeledArray(result.metrics["mean_square"], round=result.rounds),
            "predicted": lf.LabeledArray(path, round=result.rounds),
            "bound": float(bound.mean()),
            "limit": float(limit().mean()),
            "limit_of_a": float(limit(scale=scale).mean()),
        }


def end(row: lf.Table) -> Array:
    """Return the mean squared sines after the last round, (trials,)."""
    last: Array = row["mean_square"][:, -1]
    return last
