"""Methods that adapt to unknown heterogeneity, their runs next to outliers, and the predicted risks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.statistics.intervals import nan_as_worst

LOCAL, POOLED, DITTO, ARMUL, RULE = (
    "LocalOnly",
    "PooledLeastSquares",
    "Ditto, converged",
    "ARMUL",
    "ARMUL, one penalty",
)
FT, MEDIAN, FEDREP = "FedAvg, fine-tuned", "geometric median, fine-tuned", "Personalized FedRep"
ENDS = (LOCAL, POOLED)
RIVALS = (DITTO, FT, MEDIAN, FEDREP)
PENALTIES = (0.1, 0.17, 0.3, 0.55, 1.0, 1.7, 3.0)
"""Where the grids of penalties begin, by factors of about sqrt(3); they grow while the best value is at their edge."""

Method = tuple[lf.Algorithm, Mapping[str, Sequence[float]]]


def inlier_risk(state: lf.State, truth: lf.Truth) -> Array:
    """Return the mean excess risk of the clients that are not outliers, (trials,), for x of covariance I."""
    errors = state.predictors() - truth.dense()
    inside = errors[:, : errors.shape[1] - truth.n_outliers]
    return np.asarray(0.5 * np.square(inside).sum(axis=-1).mean(axis=-1))


def armul(penalty: float) -> lf.Algorithm:
    """Return vanilla ARMUL; its steps suffice for eigenvalues of a client's X'X/m up to 6."""
    return lf.ARMUL(step_size=0.5, penalty=penalty, personal_steps=5, personal_step_size=0.3)


@dataclass(frozen=True, kw_only=True)
class ConvergedDitto(lf.Algorithm):
    """The limit of Ditto with one local step: a ridge regression of each client around the pooled model."""

    penalty: float

    description = "ridge regression around the pooled model"
    requires = lf.Requires.QUADRATIC

    def initial_state(self, start: Any) -> lf.State:
        """Return all models at 0."""
        return lf.State(S=start.zeros(start.n_clients, start.dim))

    def step(self, state: lf.State, batch: Any, rng: Any) -> lf.State:
        """Return the clients' models."""
        A, b = batch.normal_equations()
        theta = batch.pooled_least_squares(np.full(b.shape[:2], 1.0 / b.shape[1]))
        right = (b + self.penalty * theta)[..., None]
        return state.update(S=np.linalg.solve(A + self.penalty * np.eye(b.shape[-1]), right)[..., 0])


def fine_tuned(aggregate: Any) -> lf.Algorithm:
    """Return FedAvg with a given aggregation, and fine-tuning of the clients' models."""
    return lf.FedAvg(step_size=0.5, aggregate=aggregate, fine_tune=lf.AllLayers(steps=3, step_size=0.1))


def methods(rule: float) -> dict[str, Method]:
    """Return each method with the grid of its hyper-parameters; `rule` is the one penalty for all settings."""
    tuned = {"fine_tune.steps": (1, 2, 3, 5, 10), "fine_tune.step_size": (0.01, 0.1)}
    fedrep = lf.FedRep(rank=1, step_size=0.3)
    return {
        LOCAL: (lf.LocalOnly(), {}),
        POOLED: (lf.PooledLeastSquares(), {}),
        RULE: (armul(rule), {}),
        ARMUL: (armul(1.0), {"penalty": sorted({*PENALTIES, rule})}),
        DITTO: (ConvergedDitto(penalty=1.0), {"penalty": PENALTIES}),
        FT: (fine_tuned("mean"), tuned),
        MEDIAN: (fine_tuned("geometric median"), tuned),
        FEDREP: (lf.Personalized(base=fedrep, ridge=1.0), {"ridge": PENALTIES}),
    }


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """One method at one heterogeneity and one share of outliers."""

    method: str = lf.choice(methods(1.0), RULE)
    deviation: float = 0.0
    outliers: float = 0.0
    colluding: bool = lf.choice((False, True), False)
    n_clients: int = 50
    n_samples: int = 20
    dim: int = 10
    length: float = 2.0
    noise_std: float = 1.0
    n_rounds: int = 100
    trials: int = 80
    tuning_trials: int = 8
    seed: int = 0

    @property
    def problem(self) -> lf.SimilarRepresentations:
        """The problem."""
        return lf.SimilarRepresentations(
            n_clients=self.n_clients,
            dim=self.dim,
            rank=1,
            heterogeneity=0.0,
            head_norm=self.length,
            deviation=self.deviation,
            outliers=self.outliers,
            colluding=self.colluding,
            noise_std=self.noise_std,
        )

    @property
    def rule(self) -> float:
        """Length of the noise in a client's gradient."""
        return float(self.noise_std * np.sqrt(self.dim / self.n_samples))

    def run(self) -> dict[str, Any]:
        """Return the inliers' excess risk and largest error, the share of equal models, and the tuning's columns."""
        algorithm, grid = methods(self.rule)[self.method]
        data, columns = lf.FixedSamples(self.n_samples), dict[str, Any]()
        rounds = 1 if self.method in (*ENDS, DITTO) else self.n_rounds
        if grid:
            tune = partial(lf.tune, grid=grid, extend=True, metric=inlier_risk, score="final", ties_within=0.0)
            run = partial(tune, data=data, n_rounds=rounds, record_every=rounds, trials=self.tuning_trials)
            tuning = run(algorithm, self.problem, seed=self.seed)
            algorithm, columns = tuning.algorithm, tuning.columns()
        return columns | self.measured(algorithm, rounds)

    def measured(self, algorithm: lf.Algorithm, n_rounds: int) -> dict[str, Any]:
        """Return the inliers' excess risk and largest error after the last round, and the share of equal models."""
        metrics = [inlier_risk, lf.max_inlier_error]
        simulate = partial(lf.simulate, metrics=metrics, trials=self.trials, seed=self.seed)
        data = lf.FixedSamples(self.n_samples)
        result = simulate(algorithm, self.problem, data=data, n_rounds=n_rounds, record_every=n_rounds)
        values = {metric.__name__: nan_as_worst(result.metrics[metric.__name__][:, -1]) for metric in metrics}
        merged = {}
        if isinstance(algorithm, lf.ARMUL):
            parts = result.final.array("parts")[:, : self.n_clients - self.problem.n_outliers]
            merged["merged"] = 1.0 - parts.any(axis=-1).mean(axis=-1)
        return {"excess": values["inlier_risk"], "worst": values["max_inlier_error"]} | merged


@dataclass(frozen=True, kw_only=True)
class OnePenalty(Adaptive):
    """Ditto or ARMUL with a penalty that is not tuned."""

    method: str = lf.choice((DITTO, ARMUL), DITTO)
    fixed_penalty: float = 1.0

    def run(self) -> dict[str, Any]:
        """Return the inliers' excess risk and largest error."""
        if self.method == ARMUL:
            return self.measured(armul(self.fixed_penalty), self.n_rounds)
        return self.measured(ConvergedDitto(penalty=self.fixed_penalty), n_rounds=1)


@dataclass(frozen=True, kw_only=True)
class Law(Adaptive):
    """Predicted risks of the inliers."""

    method: str = lf.choice(("predicted",), "predicted")

    def run(self) -> dict[str, Any]:
        """Return the predicted excess risks of both ends and of Ditto with its best penalty, for each trial."""
        truth, noise = self.problem.truth(self.seed, range(self.trials)), self.noise_std**2
        Phi, n, m, d = truth.dense(), self.n_clients, self.n_samples, self.dim
        near = Phi[:, : n - truth.n_outliers]
        spread = np.square(Phi - Phi.mean(axis=1, keepdims=True)).sum(axis=-1).mean(axis=-1)
        # Parts that the common model leaves are label noise of the pool.
        pool = (noise + spread) * d / (n * m - d - 1)
        squared = np.square(near - Phi.mean(axis=1, keepdims=True)).sum(axis=-1) + pool[:, None]
        lengths = np.sqrt(squared)
        risk = partial(lf.theory.local_mean_risk, noise_std=self.noise_std, dim=d, n_samples=m)
        ridge = partial(lf.theory.best_local_ridge, noise_std=self.noise_std, dim=d, n_samples=m)
        best = [ridge(trial) for trial in lengths]
        found = [risk(trial, ridge=one) for trial, one in zip(lengths, best, strict=True)]
        return {
            LOCAL: risk(lengths).mean(axis=-1) - noise / 2,
            POOLED: 0.5 * squared.mean(axis=-1),
            DITTO: np.mean(found, axis=-1) - noise / 2,
        }
