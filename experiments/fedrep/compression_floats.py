"""FedRep with compressed messages: the floats that a client sends until B is near B*.

Each method runs at its predicted best step size near B* (the experiment `compression`). The share of entries, or the
number of levels, is the one with the fewest floats on separate trials. The grids end at one entry a message, in the
mean, and at one level. Independent masks stop at a share of 3/4, and one mask at 0.9, which cost nearly as many floats
as all entries. The simplest competitors are messages without compression
(d k floats), and the two vectors a and w of the message ``a w'`` of rank one (d + k floats). Floats are counted as in
`linfed.CompressedFedRep`: independent masks also send indices of log2(d k) bits each, and 32 bits are one float.
A run that does not reach the target needs infinitely many.

**Deviations**: no paper compresses FedRep's message, and the sizes are ours.

References: Alistarh, Grubic, Li, Tomioka and Vojnovic 2017; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import line_style
from linfed.plotting.panels import Figures
from linfed.search.selection import at_grid_edge
from linfed.statistics import judge, median_ratio
from linfed.statistics.gains import lower_median

from ._compressed import METHODS, ONE_MASK, OWN_MASKS, PAIR, PLAIN, QUANTISED, Compressed

SUMMARY = "FedRep with sparsified or quantised messages: the floats that a client sends until B is near B*"
PICTURES = {"": 2070}
CAPTIONS = {
    "": "Top: subspace distance against the floats that a client sends, each method with its best share or number of "
    "levels. Bottom: floats up to distance 0.001 against the floats of a message, for all shares and levels. Medians "
    "over trials, one column for each number of clients."
}


@dataclass(frozen=True, kw_only=True)
class Sent(Compressed):
    """Distance along the floats that a client sends."""

    trials: int = 12
    tuning_trials: int = 12
    delta: float = 0.7
    target: float = 1e-3

    def run(self) -> dict[str, Any]:
        """Return the distance in every round with the predicted best step size, and the floats up to the target.

        The trials that choose the strength are others. All run for 1.5 times the predicted rounds, and five more.
        """
        step = self.predicted(lf.theory.near_truth_best_step)
        gap = math.log(self.delta / math.sqrt(1.0 - self.delta**2) / self.target)
        rounds = -2.0 * gap / math.log(self.predicted(lf.theory.near_truth_factor, step_size=step))
        both = replace(self, trials=self.tuning_trials + self.trials)
        result = both.simulated(step, self.delta, math.ceil(1.5 * rounds) + 5, "subspace_distance")
        each = self.dim + self.rank if self.method == PAIR else result.algorithm.communication(dim=self.dim).up
        paths = result.metrics["subspace_distance"]
        floats = each * np.array([hit(np.log(path / self.target)) for path in paths])
        tuned, judged = np.split(floats, [self.tuning_trials])
        distance = lf.LabeledArray(paths[self.tuning_trials :], round=result.rounds)
        return {"distance": distance, "each": float(each), "floats": judged, "tuning_floats": tuned}


def hit(path: Any) -> float:
    """Return the round at which a path first falls to 0, linear between rounds; infinite if it does not."""
    t = int(np.argmax(path <= 0))
    return float(t - 1 + path[t - 1] / (path[t - 1] - path[t])) if t else math.inf


def cells(quick: bool) -> dict[str, list[Sent]]:
    """Return runs of all compressions; quick: fewer."""
    few = Sent(trials=6, tuning_trials=6)
    grids = {
        OWN_MASKS: (0.25, 0.1) if quick else (0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 1.0 / (few.dim * few.rank)),
        ONE_MASK: (0.5, 0.25) if quick else (0.9, 0.75, 0.5, 0.25),
        QUANTISED: (8.0, 4.0) if quick else (32.0, 16.0, 8.0, 4.0, 2.0, 1.0),
    }
    runs = []
    for n in (30,) if quick else (30, 300):
        base = replace(few if quick else Sent(), n_clients=n)
        runs += lf.grid(base, **{"method, strength": [(PLAIN, 1.0), (PAIR, 1.0)]})
        for name, strengths in grids.items():
            runs += lf.grid(base, method=(name,), strength=strengths)
    return {"sent": runs}


def best(table: lf.Table) -> lf.Table:
    """Return the rows of each compression's strength with the fewest floats on the tuning trials.

    A strength at the edge of its grid is marked, unless it is one level or one entry a message.
    """
    rows = []
    for _, part in table.groupby("n_clients", "method"):
        tried = [{"strength": row["strength"]} for row in part]
        chosen = int(np.argmin([lower_median(row["tuning_floats"]) for row in part]))
        row = part.rows[chosen]
        is_end = row["strength"] in (1.0, 1.0 / (row["dim"] * row["rank"]))
        rows.append(row | {"at_grid_edge": "" if is_end else ", ".join(at_grid_edge(tried, [chosen]))})
    return lf.Table(rows)


def compression(row: lf.Table) -> str:
    """Return the compression of a row as text."""
    return row["method"] if row["method"] in (PLAIN, PAIR) else f"{row['method']}, {row['strength']:.3g}"


def fewer(first: str, second: str, sentence: str) -> c.Claim:
    """Return the claim that one compression needs fewer floats than another."""

    def against(one: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
        text = f"{compression(one)} against {compression(other)}"
        return judge(median_ratio(one["floats"], other["floats"]), detail=text, **fields)

    words = "ratio of the floats up to distance {target:g}, medians over trials"
    return c.Claim(
        sentence,
        c.OWN_THRESHOLD,
        c.compared(words, first, second, against, c.below(1.0)),
        where=best,
        over=c.each("n_clients"),
        setting="{n_clients} clients",
    )


CLAIMS = (
    fewer(OWN_MASKS, PLAIN, "Own masks need fewer floats than all entries"),
    fewer(ONE_MASK, PLAIN, "One mask needs fewer floats than all entries"),
    fewer(ONE_MASK, OWN_MASKS, "One mask needs fewer floats than own masks"),
    fewer(PAIR, OWN_MASKS, "The two vectors a and w need fewer floats than own masks"),
    fewer(PAIR, ONE_MASK, "The two vectors a and w need fewer floats than one mask"),
    fewer(PAIR, QUANTISED, "The two vectors a and w need fewer floats than quantised entries"),
)

LOOK = {name: line_style("", turn) for turn, name in enumerate(METHODS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distance against floats, and the floats up to the target against those of a message."""
    table = tables["sent"]
    with lf.panels(table, column="n_clients", row=2, title="{} clients", height=4.6, sharey="row") as sheet:
        for ax, part in sheet.row(0):
            chosen = best(part)
            for row in chosen:
                path = np.median(row["distance"], axis=0)
                shown = {"markevery": 0.2, "label": row["method"]}
                ax.plot(row["each"] * np.arange(len(path)), path, **LOOK[row["method"]] | shown)
            most = max(float(lower_median(row["floats"])) for row in chosen)
            limits = (table.rows[0]["target"] / 3, 1.0)
            ax.set(xlabel="floats sent by a client", yscale="log", xlim=(0.0, 1.1 * most), ylim=limits)
        for ax, part in sheet.row(1):
            for name, rows in part.groupby("method"):
                medians = [lower_median(row["floats"]) for row in rows]
                ax.plot([row["each"] for row in rows], medians, label=name, **LOOK[name])
            ax.set(xlabel="floats of a message", xscale="log", yscale="log")
        for ax, text in zip(sheet.axes[:, 0], ("subspace distance", "floats up to distance 0.001"), strict=True):
            ax.set_ylabel(text)
        sheet.legend(f"median of {table.rows[0]['trials']} trials", ncols=5)
    return {"": sheet.figure}
