"""Sample cost of heads fitted only to a round's samples: a factor ``(1 + sigma^2/(m-k-1)) / (1 - k/m)``.

FedRep with label noise runs at the best step size of every round (`linfed.theory.best_step_schedule`). It is compared
with a learner that knows the heads. The cost has two causes: a fit absorbs the share k/m of the residual, and fitted
heads have their own noise (`linfed.theory.refitted_heads_limit`). The prediction is for Gaussian x and heads with
second moment I. The settings try to break it: they vary k, m, p < n, noise, the lengths of the heads, the initial
distance, and the distribution of x. All sizes are our choice.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithm 2.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import COLUMN_WIDTH, line_style
from linfed.plotting.panels import Figures
from linfed.statistics.intervals import Measured, bootstrap_interval, mean_ratio

from ._fedrep_noisy import Noisy, end

SUMMARY = "Sample cost of heads refitted in every round, over k, m, p, noise, initial B and distributions of x"
PICTURES = {"": 1005}
CAPTIONS = {
    "": "Sample cost of refitting the heads, and mean squared sine at the end, both measured divided by predicted (for "
    "the sine: by its limit), with 95 % confidence intervals, for each setting. Shaded: within 10 %."
}

OWN = c.OWN_PREDICTION.adding("without a free parameter; 10 % is our threshold", ", ")
NEAR = c.within(0.9, 1.1)

SETTINGS: dict[str, dict[str, Any]] = {
    "k = 1, m = k + 4": {"rank": 1, "n_samples": 5},
    "k = 3, m = k + 4": {"n_samples": 7},
    "k = 3, m = 10 k": {"n_samples": 30},
    "k = 5, m = k + 4": {"rank": 5, "n_samples": 9},
    "k = 8, m = k + 4": {"rank": 8, "n_samples": 12},
    "k = 8, m = 10 k": {"rank": 8, "n_samples": 80},
    "k = 3, m = k + 2": {"n_samples": 5},
    "d = 1000": {"dim": 1000},
    "n = k = 8, m = 14": {"rank": 8, "n_clients": 8, "n_samples": 14, "n_rounds": 2000},
    "p = 5 of n = 100": {"n_clients": 100, "participants": 5, "n_rounds": 3000},
    "p = 1 of n = 100": {"n_clients": 100, "participants": 1, "n_rounds": 3000},
    "noise 0.1": {"noise_std": 0.1},
    "noise 4": {"noise_std": 4.0, "delta": 0.9, "n_rounds": 4000, "trials": 100},
    "start at 0.9": {"delta": 0.9},
    "random start": {"delta": 1.0},
    "unequal heads, 0.5": {"spread": 0.5},
    "unequal heads, 1": {"spread": 1.0, "n_rounds": 2000},
    "corners of a cube": {"design": "rademacher", "dim": 30, "n_clients": 10},
    "Student t, 5 d. f.": {"design": "student", "dim": 30, "n_clients": 10},
}
"""Changes from the base setting, by name; the number of unequal heads is the std of the log lengths."""


@dataclass(frozen=True, kw_only=True)
class Refitted(Noisy):
    """FedRep with the best schedule in one setting."""

    name: str = lf.choice(SETTINGS, next(iter(SETTINGS)), label=True)

    def run(self) -> dict[str, Any]:
        """Return the angles along the rounds, and their predictions."""
        steps = self.predicted(lf.theory.best_step_schedule)
        return self.measured(lf.FedRep(rank=self.rank, step_size=steps, init=self.init))


def cells(quick: bool) -> dict[str, list[Refitted]]:
    """Return all settings; quick: two settings, few rounds."""
    base = Refitted(n_rounds=40, trials=10) if quick else Refitted()
    chosen = dict(list(SETTINGS.items())[:2]) if quick else SETTINGS
    return {"settings": [dataclasses.replace(base, name=name, **changes) for name, changes in chosen.items()]}


def price(row: lf.Table) -> Measured:
    """Return the samples that the second half of the rounds took for its gain, divided by the predicted number."""
    half = len(row["round"]) // 2
    share = 1.0 - row["round"][half] / row["n_rounds"]
    ends = [row["mean_square"][:, place] for place in (half, -1)]

    def ratio(first: Array, last: Array, axis: int = 0) -> Any:
        return share / (row["limit"] * (1.0 / last.mean(axis=axis) - 1.0 / first.mean(axis=axis)))

    return (float(ratio(*ends)), *bootstrap_interval(ratio, ends, paired=True, vectorized=True))


def over_limit(row: lf.Table) -> Measured:
    """Return the final mean squared sine divided by the limit."""
    return mean_ratio(end(row), row["limit"])


def over_recursion(row: lf.Table) -> Measured:
    """Return the final mean squared sine divided by the recursion's."""
    return mean_ratio(end(row), row["predicted"][-1])


def behind(row: lf.Table) -> str:
    """Return a remark on trials that end far above the limit; empty without one."""
    count = int(np.sum(end(row) > 2.0 * row["limit"]))
    return f"{row['name']}: {count} of {row['trials']} trials end above twice the limit" if count else ""


COST = "samples of the second half of the rounds divided by the predicted number"
Asked = partial(c.Claim, required=NEAR, over=c.each("name"), setting="{name}", note=behind)
CLAIMS = (
    Asked(
        "Refitting the heads multiplies the samples by (1 + sigma^2/(m-k-1)) / (1 - k/m)",
        OWN,
        c.measured(COST, price),
    ),
    Asked(
        "The best schedule reaches its limit",
        OWN,
        c.measured("final mean squared sine divided by the limit", over_limit),
    ),
    Asked(
        "The recursion predicts the final angle",
        OWN,
        c.measured("final mean squared sine divided by the recursion's", over_recursion),
        where=c.of(design="gaussian", spread=0.0),
    ),
)

DRAWN = {"samples of the second half": price, "angle at the end": over_limit}
TICKS = (1.0, 1.3, 2.0, 4.0)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw both statistics of every setting, divided by their predictions."""
    table = tables["settings"]
    with lf.panels(table, width=COLUMN_WIDTH, height=1.1 + 0.145 * len(table)) as sheet:
        ax, places = sheet.axes[0, 0], np.arange(len(table))[::-1]
        for turn, (name, statistic) in enumerate(DRAWN.items()):
            middle, low, high = np.array([statistic(row) for row in table]).T
            shape = line_style("", turn) | {"linestyle": "none", "elinewidth": 0.7}
            ax.errorbar(middle, places - 0.3 * turn, xerr=(middle - low, high - middle), label=name, **shape)
        ax.axvspan(NEAR.low, NEAR.high, color="0.93", zorder=0)
        ax.axvline(1.0, color="0.35", linewidth=0.7)
        ax.set_yticks(places, [row["name"] for row in table])
        ax.set_xscale("log")
        ax.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        ax.minorticks_off()
        sheet.label("measured / predicted")
        sheet.legend("95 % intervals; shaded: 10 %", ncols=1)
    return {"": sheet.figure}
