"""Shared parts of the experiments on the FLUTE paper: methods, step-size rules, spectra, and a setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import linfed as lf

FLUTE, FEDREP, FEDREP_RI = METHODS = ("FLUTE", "FedRep", "FedRep (RI)")
"""FedRep starts from the method of moments, FedRep (RI) from the Q factor of the same B that FLUTE draws."""

RIVALS = (FEDREP, FEDREP_RI)

TUNED, PLAIN, DOUBLED, SUMMED = SPEEDS = ("tuned", "0.03", "0.03, factor 2", "0.03, summed")
"""The step-size rules that are compared (`experiments.flute._flute_compared`)."""

FLUTE_STEP = 0.03
"""The paper's step size (Appendix C.1)."""

STEP_SIZES = (0.003, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4)
"""The common grid. A sum over n clients needs step sizes about n times smaller than a mean; both fit in."""

GAMMA2 = 0.125
"""The weight gamma2 in Figure 4's setting."""

SPECTRA = ("2d/(i+1)", "2d-i+1")
"""Both readings of "the i-th singular value to be 2d i+1", where the text has lost a character."""


def spectrum(name: str, dim: int) -> tuple[float, ...] | None:
    """Return the d singular values of a named spectrum, or None (Gaussian phi_i) if the name is empty."""
    if not name:
        return None
    return tuple(2 * dim / (i + 1) if name == SPECTRA[0] else 2.0 * dim - i + 1 for i in range(1, dim + 1))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One ground truth, sample size and rank; `spectrum` is a name from `SPECTRA`, empty for Gaussian phi_i."""

    spectrum: str = lf.choice(("", SPECTRA[0], SPECTRA[1]), "")
    dim: int = 10
    n_clients: int
    n_samples: int
    rank: int
    noise_variance: float = 0.3
    trials: int = 50
    seed: int = 0

    @property
    def problem(self) -> lf.UnderParameterized:
        """The problem, which draws the ground truths."""
        values, std = spectrum(self.spectrum, self.dim), math.sqrt(self.noise_variance)
        return lf.UnderParameterized(n_clients=self.n_clients, dim=self.dim, spectrum=values, noise_std=std)

    @property
    def streams(self) -> tuple[int, ...]:
        """Seed of the trials: all ranks share ground truths and data; other sizes have their own."""
        return (self.seed, self.dim, self.n_clients, self.n_samples)

    def simulate(self, algorithm: lf.Algorithm, n_rounds: int, record_every: int = 1) -> lf.Result:
        """Run an algorithm on one fixed data set, and measure the mean client error."""
        return lf.simulate(
            algorithm,
            self.problem,
            data=lf.FixedSamples(self.n_samples),
            n_rounds=n_rounds,
            trials=self.trials,
            seed=self.streams,
            metrics=["mean_client_error"],
            record_every=record_every,
        )

    def final(self, algorithm: lf.Algorithm, n_rounds: int = 1) -> Any:
        """Return the mean client errors after some rounds, (trials,); NaN where a trial diverged."""
        return self.simulate(algorithm, n_rounds).metrics["mean_client_error"][:, -1]

    def tune(
        self, candidates: Sequence[lf.Algorithm], score: Literal["area", "final"], n_rounds: int, trials: int
    ) -> lf.TuningResult:
        """Choose one of several algorithms on separate trials, by the 90 % quantile of the score."""
        return lf.tune(
            candidates,
            self.problem,
            data=lf.FixedSamples(self.n_samples),
            metric="mean_client_error",
            score=score,
            quantile=0.9,
            n_rounds=n_rounds,
            record_every=n_rounds if score == "final" else 1,
            trials=trials,
            seed=self.streams,
        )

    @property
    def truncation(self) -> tuple[Any, Any]:
        """The mean norms of the truncation's errors ``(Phi_k)_i - phi_i`` and of the ``phi_i``, each (trials,)."""
        truth = self.problem.truth(self.streams, range(self.trials))
        Phi = truth.dense()
        rest = truth.truncated(self.rank).dense() - Phi
        return np.linalg.norm(rest, axis=-1).mean(axis=-1), np.linalg.norm(Phi, axis=-1).mean(axis=-1)


@dataclass(frozen=True, kw_only=True)
class Weighted(Setting):
    """The sizes of Figure 4, where the weights of the regulariser vary."""

    n_clients: int = 10
    rank: int = 6

    @property
    def streams(self) -> tuple[int, ...]:
        """Seed of the trials."""
        return (self.seed, self.n_samples)
