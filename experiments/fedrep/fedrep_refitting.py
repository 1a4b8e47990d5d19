"""Sample cost of heads fitted only to a round's samples: a factor ``(1 + sigma^2/(m-k-1)) / (1 - k/m)``.

FedRep with label noise runs at the best step size of every round (`linfed.theory.best_step_schedule`). It is compared
with a learner that knows the heads. The cost has two causes: a fit absorbs the share k/m of the residual, and fitted
heads have their own noise (`linfed.theory.refitted_heads_limit`). The prediction is for Gaussian x and heads with
second moment I. The settings try to break it: they vary k, m, p < n, noise, the lengths of the heads, the initial
distance, and the distribution of x. All sizes are our choice.

Figures
-------
"" : Sample cost of refitting the heads, measured divided by predicted, with 95 % confidence intervals, for each
    setting. Shaded: within 10 %.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithm 2.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import COLUMN_WIDTH, line_style
from linfed.plotting.panels import Figures
from linfed.statistics.findings import Finding, judge

from ._fedrep_noisy import NEAR, OWN, Noisy, over, price

SUMMARY = "Sample cost of heads refitted in every round, over k, m, p, noise, initial B and distributions of x"
PICTURES = {"": 1005}

SETTINGS: dict[str, dict[str, Any]] = {
    "k = 1, m = k + 4": {"rank": 1, "n_samples": 5},
    "k = 3, m = k + 4": {"n_samples": 7},
    "k = 3, m = 10 k": {"n_samples": 30},
    "k = 5, m = k + 4": {"rank": 5, "n_samples": 9},
    "k = 8, m = k + 4": {"rank": 8, "n_samples": 12},
    "k = 8, m = 10 k": {"rank": 8, "n_samples": 80},
    "k = 3, m = k + 2": {"n_samples": 5},
    "d = 1000": {"dim": 1000},
    "n = k = 8, m = 14": {"rank": 8, "n_clients": 8, "n_samples": 14, "rounds": 2000},
    "p = 5 of n = 100": {"n_clients": 100, "participants": 5, "rounds": 3000},
    "p = 1 of n = 100": {"n_clients": 100, "participants": 1, "rounds": 3000},
    "noise 0.1": {"noise_std": 0.1},
    "noise 4": {"noise_std": 4.0, "delta": 0.9, "rounds": 4000, "trials": 100},
    "start at 0.9": {"delta": 0.9},
    "random start": {"delta": 1.0},
    "unequal heads, 0.5": {"spread": 0.5},
    "unequal heads, 1": {"spread": 1.0, "rounds": 2000},
    "corners of a cube": {"design": "rademacher", "dim": 30, "n_clients": 10},
    "Student t, 5 d. f.": {"design": "student", "dim": 30, "n_clients": 10},
}
"""Changes from the base setting, by name; the number of unequal heads is the std of the log lengths."""

TICKS = (1.0, 1.3, 2.0, 4.0)

PRICE = "Refitting the heads multiplies the samples by (1 + sigma^2/(m-k-1)) / (1 - k/m)"
LIMIT = "The best schedule reaches its limit"
STATISTICS: dict[str, Any] = {
    "samples of the second half": (
        PRICE,
        "samples of the second half of the rounds divided by the predicted number",
        price,
    ),
    "angle at the end": (LIMIT, "final mean squared sine divided by the limit", lambda row: over(row, row["limit"])),
}


@dataclass(frozen=True, kw_only=True)
class Refitted(Noisy):
    """FedRep with the best schedule in one setting."""

    name: str = lf.choice(SETTINGS, next(iter(SETTINGS)), label=True)

    def run(self) -> dict[str, Any]:
        """Return the angles along the rounds, and their predictions."""
        steps = lf.theory.best_step_schedule(**self.whole)
        return self.measured(lf.FedRep(rank=self.rank, step_size=steps, init=self.init))


def cells(quick: bool) -> dict[str, list[Refitted]]:
    """Return all settings; quick: two settings, few rounds."""
    base = Refitted(rounds=40, trials=10) if quick else Refitted()
    chosen = dict(list(SETTINGS.items())[:2]) if quick else SETTINGS
    return {"settings": [dataclasses.replace(base, name=name, **changes) for name, changes in chosen.items()]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw both statistics of every setting, divided by their predictions."""
    table = tables["settings"]
    with lf.panels(table, width=COLUMN_WIDTH, height=1.1 + 0.145 * len(table)) as sheet:
        ax, places = sheet.axes[0, 0], np.arange(len(table))[::-1]
        for turn, (name, (_, _, statistic)) in enumerate(STATISTICS.items()):
            middle, low, high = np.array([statistic(row) for row in table]).T
            shape = line_style("", turn) | {"linestyle": "none", "elinewidth": 0.7}
            ax.errorbar(middle, places - 0.3 * turn, xerr=(middle - low, high - middle), label=name, **shape)
        ax.axvspan(NEAR["claimed_low"], NEAR["claimed_high"], color="0.93", zorder=0)
        ax.axvline(1.0, color="0.35", linewidth=0.7)
        ax.set_yticks(places, [row["name"] for row in table])
        ax.set_xscale("log")
        ax.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        ax.minorticks_off()
        sheet.label("measured / predicted")
        sheet.legend("95 % intervals; shaded: 10 %", ncols=1)
    return {"": sheet.figure}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the sample cost, the final angle and the recursion against their predictions, in every setting."""
    out = []
    for row in tables["settings"]:
        behind = int(np.sum(row["mean_square"][:, -1] > 2.0 * row["limit"]))
        note = f"{row['name']}: {behind} of {row['trials']} trials end above twice the limit" if behind else ""
        fields = {"setting": row["name"], "note": note, **OWN, **NEAR}
        found = STATISTICS.values()
        out += [judge(measured(row), claim=text, statistic=statistic, **fields) for text, statistic, measured in found]
        if row["design"] == "gaussian" and not row["spread"]:
            statistic = "final mean squared sine divided by the recursion's"
            out.append(
                judge(
                    over(row, row["predicted"][-1]),
                    claim="The recursion predicts the final angle",
                    statistic=statistic,
                    **fields,
                )
            )
    return out
