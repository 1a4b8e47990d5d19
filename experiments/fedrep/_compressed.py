"""FedRep with compressed messages: the compressions, their variances, and runs from equal angles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.numerics.linalg import orthonormalize

PLAIN, PAIR, OWN_MASKS, ONE_MASK, QUANTISED = METHODS = ("all entries", "a and w", "own masks", "one mask", "quantised")


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """Runs with one compression of messages."""

    method: str = lf.choice(METHODS, OWN_MASKS)
    strength: float = 0.25  # the share of kept entries, or the number of levels
    n_clients: int = 30
    dim: int = 50
    rank: int = 3
    n_samples: int = 20
    trials: int = 400
    seed: int = 0

    def check(self) -> None:
        """Raise if all entries are sent with a strength that has no effect."""
        if self.method in (PLAIN, PAIR) and self.strength != 1:
            raise ValueError(f"strength = {self.strength} must be 1 for method = {self.method!r}")

    @property
    def problem(self) -> lf.GivenTruth:
        """A random B*, and heads of length sqrt(k) with second moment I."""
        rng, k = np.random.default_rng(self.seed), self.rank
        frames = [orthonormalize(rng.standard_normal((k, k))) for _ in range(self.n_clients // k)]
        B = orthonormalize(rng.standard_normal((self.dim, k)))
        return lf.GivenTruth(B=B, W=np.sqrt(k) * np.concatenate(frames))

    @property
    def variance(self) -> float:
        """Relative variance nu: exact for sparsification; for quantisation the mean over Gaussian directions."""
        if self.method != QUANTISED:  # the strength is 1 for all entries
            return 1.0 / self.strength - 1.0
        rng = np.random.default_rng(self.seed)
        a, w = rng.standard_normal((4000, self.dim, 1)), rng.standard_normal((4000, 1, self.rank))
        a, w = a / np.linalg.norm(a, axis=1, keepdims=True), w / np.linalg.norm(w, axis=2, keepdims=True)
        rest = np.modf(np.abs(a * w) * self.strength)[0]
        return float((rest * (1.0 - rest)).sum(axis=(1, 2)).mean() / self.strength**2)

    def predicted(self, law: Callable[..., Any], **step: float) -> float:
        """Return a law of `linfed.theory` near B* with the compression."""
        return float(
            law(
                W=self.problem.W,
                dim=self.dim,
                n_samples=self.n_samples,
                compression=self.variance,
                shared_mask=self.method == ONE_MASK,
                **step,
            )
        )

    def simulated(self, step: float, start: float, n_rounds: int, metric: Any) -> lf.Result:
        """Run FedRep with the compression from equal angles."""
        k, init = self.rank, lf.AtDistance(start)
        algorithm = lf.FedRep(rank=k, step_size=step, init=init)
        if self.method == QUANTISED:
            algorithm = lf.CompressedFedRep(rank=k, step_size=step, init=init, levels=int(self.strength))
        elif self.method in (OWN_MASKS, ONE_MASK):
            shared = self.method == ONE_MASK
            algorithm = lf.CompressedFedRep(
                rank=k, step_size=step, init=init, kept_share=self.strength, shared_mask=shared
            )
        return lf.simulate(
            algorithm,
            self.problem,
            data=lf.FreshSamples(self.n_samples),
            n_rounds=n_rounds,
            trials=self.trials,
            seed=self.seed,
            metrics=[metric],
        )
