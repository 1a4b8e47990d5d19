"""FLUTE against FedRep and FedRep (RI), for Figures 1 and 3 of the FLUTE paper: the cell.

All methods run on the same ground truths, data and random draws, at four speeds:

- "tuned": each method has its own step size, the one with the smallest mean of log10 error on separate trials over one
  common grid. This step size need not have the fewest rounds to a level;
- "0.03": all methods have the paper's step size and the loss of its analysis, with 1/2. FLUTE sums over clients and
  FedRep averages, so that the same number means different speeds;
- "0.03, factor 2": the same step size, and for FLUTE the loss of the paper's main text, without 1/2, which doubles its
  data gradient. FedRep keeps the loss of the FedRep paper, with 1/2;
- "0.03, summed": as "0.03", with FedRep summing over clients too.

Rounds count to the first one from which on a trial keeps its level to the end. They are infinite if the run does not
keep the level, and NaN if there is no level to reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.numerics.quantiles import quantiles
from linfed.statistics import gains

from ..shared.kept import worst_from
from ._flute import DOUBLED, FEDREP, FLUTE, FLUTE_STEP, METHODS, PLAIN, SPEEDS, STEP_SIZES, SUMMED, TUNED, Setting

WAY = (0.8, 0.95, 0.99)
"""Shares of the way from the initial error to the final one; claims are judged at the middle share."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Setting):
    """All methods at all speeds in one setting: a cell of Figures 1 and 3."""

    n_rounds: int = 600
    step_sizes: tuple[float, ...] = STEP_SIZES
    tuning_trials: int = 10
    tuning_rounds: int = 300

    def algorithms(self, method: str) -> dict[str, tuple[lf.Algorithm, dict[str, Any]]]:
        """Return a method at each speed, with the columns of its tuning or its step size."""

        def at(step: float, speed: str = PLAIN) -> lf.Algorithm:
            if method == FLUTE:
                return lf.FLUTE(rank=self.rank, step_size=step, gradient_factor=2 if speed == DOUBLED else 1)
            return lf.FedRep(
                rank=self.rank,
                step_size=step,
                init="moments" if method == FEDREP else "random",
                aggregate="sum" if speed == SUMMED else "mean",
            )

        tuning = self.tune([at(step) for step in self.step_sizes], "area", self.tuning_rounds, self.tuning_trials)
        fixed = {speed: (at(FLUTE_STEP, speed), {"step_size": FLUTE_STEP}) for speed in SPEEDS if speed != TUNED}
        return {TUNED: (tuning.algorithm, tuning.columns())} | fixed

    def run(self) -> list[dict[str, Any]]:
        """Tune every method on separate trials; return a row for each method at each speed, with reference errors."""
        runs, curves = [], dict[lf.Algorithm, Any]()
        for method in METHODS:
            for speed, (algorithm, columns) in self.algorithms(method).items():
                if algorithm not in curves:
                    curves[algorithm] = self.simulate(algorithm, self.n_rounds).metrics["mean_client_error"]
                runs.append(({"speed": speed, "method": method, **columns}, curves[algorithm]))
        truncation, start = self.truncation  # all start at heads of (nearly) 0
        lines = {"truncation": truncation, "length": start, "oracle": self.final(lf.Oracle(rank=self.rank))}
        tuned = [curve[:, -1] for row, curve in runs if row["speed"] == TUNED]
        end = np.nan_to_num(tuned, nan=-1.0).max(axis=0)
        return [row | lines | measured(curve, start, end) for row, curve in runs]


def measured(curve: Any, start: Any, end: Any) -> dict[str, Any]:
    """Return quantiles of errors (trials, rounds), final and smallest errors, and rounds to keep shares of the way."""
    filled, last = np.nan_to_num(curve, nan=np.inf), curve.shape[1] - 1
    kept = np.unique(np.concatenate([[0], np.geomspace(1, last, 60).astype(int)]))
    return {
        "error": lf.LabeledArray(quantiles(curve[:, kept]), quantile=(0.5, 0.1, 0.9), round=kept),
        "final": curve[:, -1],
        "least": filled.min(axis=1),
        "least_round": filled.argmin(axis=1),
        "diverged": np.isnan(curve[:, -1]),
        **{f"rounds_to_{share}": gains.rounds_to_share(worst_from(curve), start, end, share) for share in WAY},
    }
