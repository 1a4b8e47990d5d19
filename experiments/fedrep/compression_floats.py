"""FedRep with compressed messages: the floats that a client sends until B is near B*.

Each method runs at its predicted best step size near B* (the experiment `compression`), with the best number of entries
or levels of those tried. The simplest competitors are messages without compression (d k floats), and the two vectors a
and w of the message ``a w'`` of rank one (d + k floats). Floats are counted as in `linfed.CompressedFedRep`:
independent masks also send indices, and 32 bits are one float.

**Deviations**: no paper compresses FedRep's message, and the sizes are ours.

References: Alistarh, Grubic, Li, Tomioka and Vojnovic 2017; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import line_style
from linfed.plotting.panels import Figures
from linfed.statistics import judge
from linfed.statistics.intervals import Measured, bootstrap_interval

from ._compressed import METHODS, ONE_MASK, OWN_MASKS, PAIR, PLAIN, QUANTISED, Compressed

SUMMARY = "FedRep with sparsified or quantised messages: the floats that a client sends until B is near B*"
PICTURES = {"": 2070}
CAPTIONS = {
    "": "Subspace distance against the floats that a client sends. Medians over trials, one panel for each number of "
    "clients. Paler lines: fewer entries or levels."
}


@dataclass(frozen=True, kw_only=True)
class Sent(Compressed):
    """Distance along the floats that a client sends."""

    n_rounds: int = 60
    budget: float = 2500.0
    delta: float = 0.7
    target: float = 1e-3

    def run(self) -> dict[str, Any]:
        """Return the distance in every round with the predicted best step size, and the floats up to the target."""
        step = self.predicted(lf.theory.local_best_step)
        result = self.simulated(step, self.delta, self.n_rounds, "subspace_distance")
        each = self.dim + self.rank if self.method == PAIR else result.algorithm.communication(dim=self.dim).up
        paths = result.metrics["subspace_distance"]
        first = np.array([hit(np.log(path / self.target)) for path in paths])
        return {"distance": lf.LabeledArray(paths, round=result.rounds), "each": float(each), "floats": each * first}


def hit(path: Any) -> float:
    """Return the round at which a path first falls to 0, linear between rounds; NaN if it does not."""
    t = int(np.argmax(path <= 0))
    return float(t - 1 + path[t - 1] / (path[t - 1] - path[t])) if t else float("nan")


def cells(quick: bool) -> dict[str, list[Sent]]:
    """Return runs of all compressions; quick: fewer."""
    kept, few = ((0.25,), (4.0,)) if quick else ((0.5, 0.25, 0.1), (8.0, 4.0))
    runs = []
    for n in (30,) if quick else (30, 300):
        base = Sent(n_clients=n, trials=6, n_rounds=50) if quick else Sent(n_clients=n, trials=12, n_rounds=100)
        runs += lf.grid(base, **{"method, strength": [(PLAIN, 1.0), (PAIR, 1.0)]})
        runs += lf.grid(base, method=(OWN_MASKS, ONE_MASK), strength=kept)
        runs += lf.grid(base, method=(QUANTISED,), strength=few)
    return {"sent": runs}


def best(table: lf.Table) -> lf.Table:
    """Return the rows of the best strength of each compression, of those with which all trials reach the target."""
    reached = c.only(lambda row: np.isfinite(row["floats"]).all())(table)
    groups = [rows for _, rows in reached.groupby("n_clients", "method")]
    return lf.Table.joined(min(rows, key=lambda row: float(np.median(row["floats"]))) for rows in groups)


def ratio(first: Any, second: Any) -> Measured:
    """Return the ratio of the medians over trials, with its interval."""

    def of(one: Any, other: Any, axis: int = 0) -> Any:
        return np.median(one, axis=axis) / np.median(other, axis=axis)

    return (float(of(first, second)), *bootstrap_interval(of, (first, second), vectorized=True))


def compression(row: lf.Table) -> str:
    """Return the compression of a row as text."""
    return row["method"] if row["method"] in (PLAIN, PAIR) else f"{row['method']}, {row['strength']:g}"


def fewer(first: str, second: str, sentence: str) -> c.Claim:
    """Return the claim that one compression needs fewer floats than another."""

    def against(one: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
        text = f"{compression(one)} against {compression(other)}"
        return judge(ratio(one["floats"], other["floats"]), detail=text, **fields)

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
    """Draw the distance against floats."""
    table = tables["sent"]
    with lf.panels(table, column="n_clients", title="{} clients", height=3.6, sharey=True) as sheet:
        for ax, part in sheet:
            for name, rows in part.groupby("method"):
                for turn, row in enumerate(rows.rows):
                    path, look, strength = np.median(row["distance"].values, axis=0), LOOK[name], row["strength"]
                    kept = f"1/{1 / strength:.0f}" if strength < 1 else f"{strength:g} levels"
                    text = name if name in (PLAIN, PAIR) else f"{name}, {kept}"
                    shown = {"alpha": 1.0 - 0.3 * turn, "markevery": 0.2, "label": text}
                    ax.plot(row["each"] * np.arange(len(path)), path, **look | shown)
        row = table.rows[0]
        limits = {"xlim": (0.0, row["budget"]), "ylim": (row["target"] / 10, 1.0)}
        sheet.label("floats sent by a client", "subspace distance", yscale="log", **limits)
        sheet.legend(f"median of {row['trials']} trials", ncols=4)
    return {"": sheet.figure}
