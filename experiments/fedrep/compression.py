"""FedRep with compressed messages: its rate near B*.

`linfed.CompressedFedRep` sparsifies or quantises each client's message at random, without bias. Its relative variance
nu lowers the rate near B* (`linfed.theory.near_truth_factor`). For sparsification nu is ``1/q - 1``, with q the
share of entries that are kept. For quantisation it is the mean over messages whose directions are Gaussian. The
predicted factor of a round is compared with runs, without a fitted parameter. The experiment `compression_floats`
counts the floats that clients send.

**Deviations**: no paper compresses FedRep's message, and the sizes are ours.

References: Alistarh, Grubic, Li, Tomioka and Vojnovic 2017; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import line_style
from linfed.plotting.panels import Figures
from linfed.statistics.intervals import Measured, mean_interval

from ._compressed import METHODS, ONE_MASK, OWN_MASKS, PAIR, PLAIN, QUANTISED, Compressed

SUMMARY = "FedRep with sparsified or quantised messages: the rate near B*"
PICTURES = {"": 1005}
CAPTIONS = {
    "": "Factor by which a round near B* changes the mean squared tangent, against the variance that compression adds: "
    "1/q - 1 for a share q of the entries. Lines: predicted; markers: runs, their mean with a 95 % interval."
}


@dataclass(frozen=True, kw_only=True)
class Factor(Compressed):
    """Factor of a round near B*."""

    step: float = 0.2
    n_rounds: int = 2

    def run(self) -> dict[str, Any]:
        """Return the ratio of the squared tangents after and before the rounds of each trial, and its prediction."""
        found = self.simulated(self.step, 1e-5, self.n_rounds, squared_tangents).metrics["squared_tangents"]
        predicted = self.predicted(lf.theory.near_truth_factor, step_size=self.step)
        return {"measured": found[:, -1] / found[:, 0], "predicted": predicted, "nu": self.variance}


def squared_tangents(state: lf.State, truth: lf.Truth) -> Any:
    """Return the sum of the squared tangents of the angles between B and B*, (trials,)."""
    assert truth.B is not None
    B = state.array("B")
    inside = truth.B.mT @ B
    return np.square((B - truth.B @ inside) @ np.linalg.inv(inside)).sum(axis=(-2, -1))


def cells(quick: bool) -> dict[str, list[Factor]]:
    """Return compressions near B*; quick: fewer."""
    shares = (0.5, 0.1) if quick else (0.5, 0.2, 0.1, 0.05)
    levels = (4.0, 1.0) if quick else (16.0, 8.0, 4.0, 2.0, 1.0)
    base = Factor(trials=100) if quick else Factor()
    plain = replace(base, method=PLAIN, strength=1.0)
    masks = lf.grid(base, method=(OWN_MASKS, ONE_MASK), strength=shares)
    return {"factor": [plain, *masks, *lf.grid(base, method=(QUANTISED,), strength=levels)]}


def factor(row: lf.Table) -> Measured:
    """Return the measured factor of a round, with its interval."""
    value, low, high = np.array(mean_interval(row["measured"])) ** (1.0 / row["n_rounds"])
    return float(value), float(low), float(high)


def over_predicted(row: lf.Table) -> c.Measurement:
    """Return the measured factor of a round divided by the predicted one."""
    value, low, high = (each / row["predicted"] for each in factor(row))
    return c.Measurement((value, low, high), f"nu = {row['nu']:.3g}, predicted factor {row['predicted']:.3g}")


def compression(row: lf.Table) -> str:
    """Return the compression of a row as text."""
    return row["method"] if row["method"] in (PLAIN, PAIR) else f"{row['method']}, {row['strength']:g}"


CLAIMS = (
    c.Claim(
        "A round near B* has the predicted factor",
        c.OWN_PREDICTION.adding("3 % is our threshold"),
        c.measured("mean factor of a round near B*, divided by the predicted one", over_predicted),
        c.within(0.97, 1.03),
        over=c.each("method", "strength"),
        setting=compression,
    ),
)

LOOK = {name: line_style("", turn) for turn, name in enumerate(METHODS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the factor of a round against nu."""
    with lf.panels(tables["factor"], title="", height=3.0, width="column") as sheet:
        for ax, part in sheet:
            for name, rows in part.groupby("method"):
                ordered, look = sorted(rows, key=lambda row: row["nu"]), LOOK[name]
                x = [row["nu"] for row in ordered]
                ax.plot(x, [row["predicted"] for row in ordered], color=look["color"], linestyle=look["linestyle"])
                means = np.array([factor(row) for row in ordered]).T
                bars = np.abs(means[1:] - means[0])
                ax.errorbar(x, means[0], bars, label=name, capsize=2, **look | {"linestyle": ""})
        sheet.label("relative variance of a message", "mean squared tangent\nafter / before a round", yscale="log")
        sheet.legend("95 % intervals of the mean", ncols=2)
    return {"": sheet.figure}
