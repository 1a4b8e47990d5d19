"""What the experiments of the FLUTE paper share: its spectra, a setting, and FLUTE beside FedRep in it.

A setting is run with FLUTE, FedRep and FedRep (RI), all on the same truths, data and random draws, at three speeds:

- "tuned": every method at a step of its own, chosen on separate trials over one common grid;
- "0.03": every method at the paper's one step. FLUTE sums over clients and FedRep averages, so the number means
  different speeds in the two;
- "0.03, summed": the same number, with FedRep summing over clients too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.statistics.intervals import first_round_below, quantiles

FLUTE, FEDREP, FEDREP_RI = METHODS = ("FLUTE", "FedRep", "FedRep (RI)")
"""FedRep starts at the method of moments; FedRep (RI) at the Q factor of the very B that FLUTE draws."""

RIVALS = (FEDREP, FEDREP_RI)

TUNED, PAPER_STEP, SUMMED = SPEEDS = ("tuned", "0.03", "0.03, summed")

FLUTE_STEP = 0.03
"""The paper's step (Appendix C.1)."""

STEP_SIZES = (0.003, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4)
"""The common grid. A sum over n clients needs steps about n times below those of a mean: it has room for both."""

SPECTRA = ("2d/(i+1)", "2d-i+1")
"""Both readings of "the i-th singular value to be 2d i+1", where the text has lost a character."""

WAY = (0.8, 0.95, 0.99)
"""Shares of the way from the start's error to the final one; claims are judged at the middle one."""


def spectrum(name: str, dim: int) -> tuple[float, ...] | None:
    """Return the d singular values that a name stands for; None, for Gaussian phi_i, without a name."""
    if not name:
        return None
    values = {"2d/(i+1)": [2 * dim / (i + 1) for i in range(1, dim + 1)]}
    values["2d-i+1"] = [2.0 * dim - i + 1 for i in range(1, dim + 1)]
    return tuple(values[name])


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One truth, one amount of data and one rank; `spectrum` is a name from `SPECTRA`, empty for Gaussian phi_i."""

    spectrum: str = ""
    dim: int = 10
    n_clients: int
    n_samples: int
    rank: int
    noise_variance: float = 0.3
    trials: int = 50
    seed: int = 0

    @property
    def problem(self) -> lf.UnderParameterized:
        """The truths."""
        values, std = spectrum(self.spectrum, self.dim), math.sqrt(self.noise_variance)
        return lf.UnderParameterized(n_clients=self.n_clients, dim=self.dim, spectrum=values, noise_std=std)

    @property
    def streams(self) -> tuple[int, ...]:
        """Seed of the trials: all ranks see the same truths and data, other sizes have others."""
        return (self.seed, self.dim, self.n_clients, self.n_samples)

    def simulate(self, algorithm: lf.Algorithm, rounds: int, **options: Any) -> lf.Result:
        """Run an algorithm on one data set for all rounds, and measure the mean client error."""
        given = {"problem": self.problem, "data": lf.FixedSamples(self.n_samples), "metrics": ["mean_client_error"]}
        return lf.simulate(algorithm, rounds=rounds, trials=self.trials, seed=self.streams, **(given | options))

    def final(self, algorithm: lf.Algorithm, rounds: int = 1) -> Any:
        """Return the mean client errors after some rounds, (trials,); NaN where a trial diverged."""
        return self.simulate(algorithm, rounds).metrics["mean_client_error"][:, -1]

    def tune(self, algorithm: lf.Algorithm, **options: Any) -> lf.Tuning:
        """Return the step of an algorithm for which nine of ten separate trials do best."""
        given = {"data": lf.FixedSamples(self.n_samples), "metric": "mean_client_error", "seed": self.streams}
        return lf.tune(algorithm, self.problem, quantile=0.9, **given, **options)

    @property
    def truncation(self) -> tuple[Any, Any]:
        """The mean lengths of the truncation's errors ``(Phi_k)_i - phi_i`` and of the ``phi_i``, each (trials,)."""
        truth = self.problem.truth(self.streams, range(self.trials))
        Phi = truth.dense()
        rest = truth.truncated(self.rank).dense() - Phi
        return np.linalg.norm(rest, axis=-1).mean(axis=-1), np.linalg.norm(Phi, axis=-1).mean(axis=-1)


@dataclass(frozen=True, kw_only=True)
class Weighted(Setting):
    """The sizes of Figure 4, where the weights of the regulariser vary."""

    n_clients: int = 10
    rank: int = 6
    gamma2: float = 0.125

    @property
    def streams(self) -> tuple[int, ...]:
        """Seed of the trials."""
        return (self.seed, self.n_samples)

    def flute(self, gamma1: float, step_size: float, **options: Any) -> lf.FLUTE:
        """Return FLUTE at a weight and a step; it starts from N(0, 1/(10 d)^2) unless told otherwise."""
        return lf.FLUTE(rank=self.rank, step_size=step_size, gamma1=gamma1, gamma2=self.gamma2, **options)


@dataclass(frozen=True, kw_only=True)
class Comparison(Setting):
    """All methods at all speeds in one setting: a cell of Figures 1 and 3."""

    rounds: int = 600
    step_sizes: tuple[float, ...] = STEP_SIZES
    tuning_trials: int = 10
    tuning_rounds: int = 300

    @property
    def cost(self) -> float:
        """Many clients take long."""
        return self.n_clients * self.rank

    def algorithms(self, method: str) -> dict[str, tuple[lf.Algorithm, dict[str, Any]]]:
        """Return a method at each speed, with the columns of its tuning."""

        def at(step: float, **aggregate: str) -> lf.Algorithm:
            if method == FLUTE:
                return lf.FLUTE(rank=self.rank, step_size=step)
            init = "moments" if method == FEDREP else "random"
            return lf.FedRep(rank=self.rank, step_size=step, init=init, **aggregate)  # type: ignore[arg-type]

        grid = [at(step) for step in self.step_sizes]
        tuning = self.tune(grid, score="area", rounds=self.tuning_rounds, trials=self.tuning_trials)
        fixed = {"step_size": FLUTE_STEP}
        return {
            TUNED: (tuning.algorithm, tuning.columns()),
            PAPER_STEP: (at(FLUTE_STEP), fixed),
            SUMMED: (at(FLUTE_STEP, aggregate="sum"), fixed),
        }

    def run(self) -> list[dict[str, Any]]:
        """Tune every method on separate trials; return a row for each method at each speed, with reference lines."""
        runs, curves = [], dict[lf.Algorithm, Any]()
        for method in METHODS:
            for speed, (algorithm, columns) in self.algorithms(method).items():
                if algorithm not in curves:
                    curves[algorithm] = self.simulate(algorithm, self.rounds).metrics["mean_client_error"]
                runs.append(({"speed": speed, "method": method, **columns}, curves[algorithm]))
        truncation, start = self.truncation  # all begin at heads of (nearly) 0
        lines = {"truncation": truncation, "length": start, "oracle": self.final(lf.Oracle(rank=self.rank))}
        tuned = [curve[:, -1] for row, curve in runs if row["speed"] == TUNED]
        end = np.nan_to_num(tuned, nan=-1.0).max(axis=0)
        return [row | lines | measured(curve, start, end) for row, curve in runs]


def measured(curve: Any, start: Any, end: Any) -> dict[str, Any]:
    """Return quantiles of errors (trials, rounds + 1), their ends and least, and rounds to shares of the way.

    The way of a trial goes from `start` to `end`, (trials,); where the end is not below, there is none (NaN).
    """
    filled, rounds = np.nan_to_num(curve, nan=np.inf), np.arange(curve.shape[1])
    kept = np.unique(np.concatenate([[0], np.geomspace(1, rounds[-1], 60).astype(int)]))
    found = {
        "error": lf.Along(quantiles(curve[:, kept]), quantile=(0.5, 0.1, 0.9), round=kept),
        "final": curve[:, -1],
        "least": filled.min(axis=1),
        "least_round": filled.argmin(axis=1),
        "diverged": np.isnan(curve[:, -1]),
    }
    for share in WAY:
        level = end + (1 - share) * (start - end)
        reached = first_round_below(rounds, filled - level[:, None], 0.0)
        found[f"rounds_to_{share}"] = np.where(end < start, reached, np.nan)
    return found
