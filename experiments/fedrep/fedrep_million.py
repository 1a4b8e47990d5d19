"""A million clients on one machine: FedRep at n = 1,000,000, d = 1000, k = 5, m = 50.

Explicit samples would take 400 GB a round. The projected engine draws only what a step depends on, exactly in
distribution, in blocks of clients. State evolution predicts the distance without fitted parameters. B starts at
distance 0.9 from B* (in every principal angle), because the method of moments needs the samples themselves. Trials run
one after another, so that only one is in memory. `python -m benchmarks --full` measures the time and the memory.

References: docs/exact-law.md; Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import COLUMN_WIDTH, line_style
from linfed.plotting.panels import Figures

from ._fedrep import PAPER, Setting

SUMMARY = "a million clients, d = 1000: distance against rounds, measured and predicted"
PICTURES = {"": 1005}
CAPTIONS = {
    "": "Top: subspace distance of FedRep with a million clients, against rounds, with the prediction of state "
    "evolution (black), without fitted parameters. Bottom: measured divided by predicted. Lines: median over trials; "
    "thin lines: each trial.",
}


@dataclass(frozen=True, kw_only=True)
class Million(Setting):
    """All trials, run one after another so that only one is in memory."""

    preset: str = lf.choice((PAPER,), PAPER)
    method: str = lf.choice(("FedRep",), "FedRep")
    n_clients: int = 1_000_000
    dim: int = 1000
    rank: int = 5
    n_samples: int = 50
    n_rounds: int = 30
    trials: int = 6  # the fewest that bound a median at 95 %
    step_size: float = 0.5
    delta: float = 0.9

    def run(self) -> dict[str, Any]:
        """Return measured and predicted distances."""
        engines, measured, predicted = zip(*(self.one((self.seed, trial)) for trial in range(self.trials)), strict=True)
        rounds = range(self.n_rounds + 1)
        return {
            "engine": engines[0],
            "distance": lf.LabeledArray(measured, round=rounds),
            "predicted": lf.LabeledArray(predicted, round=rounds),
        }

    def one(self, seed: tuple[int, int]) -> tuple[str, Any, Any]:
        """Return the engine of one trial, its distances, and those predicted for its heads."""
        result = lf.simulate(
            lf.FedRep(rank=self.rank, step_size=self.step_size, init=lf.AtDistance(self.delta)),
            self.problem,
            data=lf.FreshSamples(self.n_samples),
            n_rounds=self.n_rounds,
            seed=seed,
            metrics=["subspace_distance"],
        )
        engine, (measured,) = result.engine, result.metrics["subspace_distance"]
        del result  # its memory is needed for the heads
        predicted = lf.theory.state_evolution(
            self.problem.truth(seed, [0]).W[0],
            dim=self.dim,
            n_samples=self.n_samples,
            noise_std=self.noise_std,
            delta=self.delta,
            step_size=self.step_size,
            n_rounds=self.n_rounds,
        )
        return engine, measured, predicted.distance


def cells(quick: bool) -> dict[str, list[Million]]:
    """Return the only cell; quick: fewer clients."""
    return {"curves": [Million(n_clients=30_000) if quick else Million()]}


CLAIMS = (
    c.Claim(
        "State evolution predicts the distance",
        c.OWN_PREDICTION.adding(f"without a free parameter; the factor is {c.OWN_THRESHOLD}", ", "),
        c.factor(
            "distance",
            "predicted",
            "factor between the measured median and the prediction, worst round",
            c.at_most(1.25),  # its stated error is 5 to 17 % a round, and errors accumulate
        ),
        setting="{engine} engine, {n_rounds} rounds",
    ),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distance against rounds, measured and predicted."""
    table = tables["curves"].assign(ratio=over_predicted)
    with lf.panels(table, width=COLUMN_WIDTH, height=3.2, row=2, sharex=True, height_ratios=(2, 1)) as sheet:
        (ax, row), (below, _) = sheet
        for one, name, text in ((ax, "distance", "FedRep, exact in distribution"), (below, "ratio", "_ratio")):
            thin = {"color": line_style("FedRep")["color"], "linewidth": 0.5, "alpha": 0.6}
            one.plot(row["round"], row[name].T, label="_trials", **thin)
            lf.plot_curves(one, row, "round", name, band=False, labels={"FedRep": text})
        predicted = np.median(row["predicted"], axis=0)
        ax.plot(row["round"], predicted, color="black", linewidth=0.8, label="state evolution")
        below.axhline(1.0, color="black", linewidth=0.8)
        below.set_yscale("linear")
        sheet.label("round", "subspace distance", "measured /\npredicted")
        sheet.legend(f"median of {row['trials']} trials; thin: each trial")
    return {"": sheet.figure}


def over_predicted(row: lf.Table) -> lf.LabeledArray:
    """Return the distances divided by the predicted median, (trials, n_rounds + 1)."""
    return lf.LabeledArray(row["distance"] / np.median(row["predicted"], axis=0), round=row["round"])
