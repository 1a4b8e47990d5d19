"""The clients' weights in FedRep where numbers of samples and noise differ, with the best step size in every round.

Clients have 8 to 80 samples a round, and label noise from 0.05 to 1 (the experiment `weights`). With
`linfed.theory.best_step_schedule` for their weights, runs should have the error that its recursion predicts, and reach
`linfed.theory.refitted_heads_limit`.

**Deviations**: no paper has these laws, and the sizes are ours.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import line_style
from linfed.plotting.panels import Figures
from linfed.statistics.intervals import mean_factor, mean_ratio

from ._fedrep_rivals import mean_square
from ._weighted import INVERSE, MANY, SAMPLES, UNIFORM, WEIGHTS, Weighted

SUMMARY = "FedRep where samples and noise differ by client: the limit of the best step schedule, for several weights"
PICTURES = {"": 1005}
CAPTIONS = {
    "": "Mean squared sine of the angles against rounds with the best step schedule for the weights. Lines: runs; "
    "dotted: the predicted limit."
}


@dataclass(frozen=True, kw_only=True)
class Schedule(Weighted):
    """Error with the best step size in every round, for constant weights."""

    weights: str = lf.choice(WEIGHTS[:-1], UNIFORM)
    n_rounds: int = 1000
    delta: float = 0.3

    def run(self) -> dict[str, Any]:
        """Return the mean squared sine along the rounds, the predicted end and the limit."""
        (m, noise), weights = self.groups, self.chosen()
        steps = self.predicted(lf.theory.best_step_schedule)
        result = self.simulated(weights, steps, self.n_rounds, self.delta, mean_square, max(1, self.n_rounds // 20))
        limit = lf.theory.refitted_heads_limit(
            float(self.participants * m.mean() * self.n_rounds),
            dim=self.dim,
            rank=self.rank,
            n_samples=m,
            noise_std=noise,
            weights=weights,
        )
        return {
            "mean_square": lf.LabeledArray(result.metrics["mean_square"], round=result.rounds),
            "predicted": float(self.predicted(lf.theory.mean_squared_sine, steps)[-1]),
            "n_clients": len(m),
            "limit": float(limit.mean()),
        }

    def predicted(self, law: Callable[..., Array], *given: Any) -> Array:
        """Return a law of `linfed.theory` at the sizes of a run."""
        m, noise = self.groups
        return law(
            *given,
            dim=self.dim,
            rank=self.rank,
            n_clients=len(m),
            participants=self.participants,
            n_samples=m,
            noise_std=noise,
            weights=self.chosen(),
            n_rounds=self.n_rounds,
            delta=self.delta,
        )


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return a run for each choice of weights; quick: fewer rounds, trials and weights."""
    base = Schedule(trials=6, n_rounds=150) if quick else Schedule()
    return {"schedule": lf.grid(base, weights=(UNIFORM, SAMPLES, MANY) if quick else WEIGHTS[:-1])}


def end(row: lf.Table) -> Array:
    """Return the final mean squared sines, (trials,)."""
    return np.asarray(row["mean_square"][:, -1])


def off_by(column: str) -> c.Statistic:
    """Return the largest factor between the final means and a predicted column."""
    words = "largest factor between the final mean squared sine and the prediction"
    return c.worst(mean_factor, lambda row: (end(row), row[column]), "weights: {weights}", words)


def over_best(name: str) -> c.Statistic:
    """Return the final error of weights divided by the final error of the best weights."""
    words = "final mean squared sine, divided by that of the best weights for many rounds"
    return c.ratio(end, name, MANY, words, by="weights", measure=mean_ratio)


OWN = c.OWN_PREDICTION.adding("10 % is our threshold")
Asked = partial(c.Claim, required=c.at_most(1.1), setting="{population}, {n_rounds:,} rounds")
AS_NEAR = "With the best schedule, {} end as near to B* as the best weights"
CLAIMS = (
    Asked("The schedule has the predicted error", OWN, off_by("predicted")),
    Asked("The schedule reaches the limit for its weights", OWN, off_by("limit")),
    Asked(AS_NEAR.format("equal weights"), c.OWN_THRESHOLD, over_best(UNIFORM)),
    Asked(AS_NEAR.format("weights proportional to m"), c.OWN_THRESHOLD, over_best(SAMPLES)),
)

SHOWN = {name: name for name in WEIGHTS} | {INVERSE: "$m/\\sigma^2$"}
LOOK = {name: line_style("", turn) for turn, name in enumerate(WEIGHTS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the error along the schedule against rounds."""
    table = tables["schedule"]
    with lf.panels(table, title="", height=3.0, width="column") as sheet:
        for ax, part in sheet:
            for row in part.rows:
                t, shape = np.array(row["mean_square"].axes["round"])[1:], LOOK[row["weights"]]
                ax.plot(t, row["mean_square"].values.mean(axis=0)[1:], label=SHOWN[row["weights"]], **shape)
                ax.plot(t, row["limit"] * row["n_rounds"] / t, color=shape["color"], linestyle=":")
        limits = {"xscale": "log", "yscale": "log", "xlim": (0.9 * t[0], 1.3 * t[-1])}
        sheet.label("round", "mean squared sine of the angles", **limits)
        sheet.legend(f"mean of {table.rows[0]['trials']} trials", ncols=2)
    return {"": sheet.figure}
