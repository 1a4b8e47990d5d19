"""Alternating minimisation: distance against rounds and floats, with FedRep and AltGDmin.

Each client fits a head, and the server solves the least squares for B exactly (Thekumparampil et al., "MLLAM").
`linfed.AltMin` runs on the same samples in both steps, or on halves, from the method of moments. Its competitors are
FedRep (tuned step) and AltGDmin (published step), from the same start. FedRep's step has the fewest rounds on separate
trials to the distance that is judged: 1e-6 without noise, and with noise 1.05 times AltMin's final distance in the same
trial. Rounds count to the first one from which on a run keeps this distance to its end.

On fixed samples, clients may also send their normal equations once, d (d + 3)/2 floats, and the server computes the
rest: the simplest competitor in floats. The floats of a method include those of its start. For the moments a client
sends a symmetric matrix, d (d + 1)/2 floats, so no method from there sends fewer than the normal equations. Therefore
FedRep also starts from local averages, d floats. The experiment `altmin-ends` has the final distances, and
`mllam-samples` the number of samples.

**Deviations**: the sizes are ours. The source draws other samples in each half of a round. One curve has m new samples
in each round. Heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``. We know the source's results from its
abstract.

References: Thekumparampil, Jain, Netrapalli and Oh 2021, "Sample efficient linear meta-learning by alternating
minimization"; Nayer and Vaswani 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import KINDS, LOOKS
from linfed.plotting.panels import Figures
from linfed.search.selection import at_grid_edge
from linfed.search.tuning import tuning_seed
from linfed.statistics import judge, median_interval, median_ratio
from linfed.statistics.gains import lower_median
from linfed.statistics.intervals import first_round_below

from ..shared.kept import worst_from
from ._altmin import ALTGDMIN, ALTMIN, CHEAP, FEDREP, FRESH, HALVES, Setting

SUMMARY = "alternating minimisation (MLLAM): distance against rounds and floats, with FedRep's and AltGDmin's"
CAPTIONS = {
    "": (
        "Subspace distance against rounds and against floats, without and with noise. Lines: median over trials; "
        "shaded: 10-90 %. Floats include those of the start. Dashed: floats of the normal equations, sent once."
    )
}
PICTURES = {"": 1400}

METHODS = (ALTMIN, HALVES, FRESH, FEDREP, CHEAP, ALTGDMIN)
LOOKS_OF = {FEDREP: LOOKS["FedRep"]} | dict(zip((ALTMIN, HALVES, FRESH, ALTGDMIN, CHEAP), KINDS[3:], strict=False))
CLOSE, NEAR = 1e-6, 1.05
"""Distance to reach without noise; with noise, this multiple of AltMin's final distance."""


@dataclass(frozen=True, kw_only=True)
class Course(Setting):
    """Distance of one method against rounds; FedRep's step size is tuned for rounds on separate trials."""

    method: str = lf.choice(METHODS)
    n_samples: int = 15
    steps: tuple[float, ...] = (0.5, 0.7, 1.0, 1.1, 1.2, 1.3, 1.4, 1.7)

    def run(self) -> dict[str, Any]:
        """Return the distance and the floats of one client, with those of the start, against rounds."""
        run, more = self.plain_run(self.method, self.n_samples), {"step_size": np.nan, "at_grid_edge": ""}
        if self.method in (FEDREP, CHEAP):
            fedrep: Any = run.algorithm
            more = self.tuned()
            run = replace(run, algorithm=replace(fedrep, step_size=more["step_size"]))
        result = run.simulate()
        return more | {
            "distance": lf.LabeledArray(result.metrics["subspace_distance"], round=result.rounds),
            "floats": lf.LabeledArray(
                self.start_floats + result.floats_sent / result.participants, round=result.rounds
            ),
        }

    @property
    def start_floats(self) -> float:
        """Floats that a client sends for the start: a local average, or the symmetric matrix of the moments."""
        return float(self.dim if self.method == CHEAP else self.dim * (self.dim + 1) / 2)

    def tuned(self) -> dict[str, Any]:
        """Return the step size with the smallest median of FedRep's rounds, or else the smallest mean."""
        altmin, fedrep = (
            replace(self.plain_run(name, self.n_samples), trials=self.trials // 2, seed=tuning_seed(self.seed))
            for name in (ALTMIN, self.method)
        )
        base: Any = fedrep.algorithm
        mine, scores = altmin.simulate().metrics["subspace_distance"], []
        for step in self.steps:
            run = replace(fedrep, algorithm=replace(base, step_size=step))
            needed = rounds_to(run.simulate().metrics["subspace_distance"], mine, self.noise_std)
            scores.append((float(lower_median(needed)), float(needed.mean())))
        best = scores.index(min(scores))
        edges = at_grid_edge([{"step_size": step} for step in self.steps], [best])
        return {"step_size": self.steps[best], "at_grid_edge": ", ".join(edges)}


def cells(quick: bool) -> dict[str, list[Course]]:
    """Return all methods without and with noise; quick: small sizes and few trials."""
    base = Course(method=ALTMIN)
    if quick:
        base = replace(base, n_clients=50, dim=20, rank=2, n_rounds=20, trials=6, steps=(0.7, 1.0, 1.4))
    return {"curves": lf.grid(base, noise_std=(0.0, 1.0), method=METHODS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distance against rounds, and against the floats of one client."""
    table = tables["curves"]
    with lf.panels(table, column="noise_std", row=2, title="noise std {:g}", height=4.6) as sheet:
        for line, x in enumerate(("round", "floats")):
            for ax, part in sheet.row(line):
                rows = dict(part.groupby("method"))
                lf.plot_curves(ax, part, x, "distance", looks=LOOKS_OF)
                end = float(np.median(rows[ALTMIN]["distance"][:, -1]))
                ax.set(ylim=(1e-9 if end < CLOSE else 0.5 * end, 1.5))
                if x == "round":
                    ax.set(xlim=(0, 1.5 * rows[ALTMIN]["n_rounds"]), xlabel="round")
                else:
                    ax.set(xscale="log", xlabel="floats that a client sends and receives")
                    once = equations(rows[ALTMIN])
                    ax.axvline(once, color="0.35", linewidth=0.8, linestyle="--", label="normal equations, once")
        for ax in sheet.axes[:, 0]:
            ax.set_ylabel("subspace distance")
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials", ncols=3)
    return {"": sheet.figure}


def equations(row: lf.Table) -> float:
    """Return the floats of a client's normal equations."""
    return float(row["dim"] * (row["dim"] + 3) / 2)


def over_level(distance: Array, mine: Array, noise_std: float) -> Array:
    """Return a distance divided by the distance to reach, (trials, rounds); `mine` is AltMin's distance."""
    return np.asarray(distance / (NEAR * mine[:, -1:] if noise_std else CLOSE))


def rounds_to(distance: Array, mine: Array, noise_std: float) -> Array:
    """Return the first round from which on the distance to reach is kept to the end, (trials,); infinite if never."""
    over = worst_from(over_level(distance, mine, noise_std))
    return first_round_below(np.arange(float(distance.shape[1])), over, 1.0)


def rounds(row: lf.Table, mine: lf.Table) -> Array:
    """Return the rounds from which on a method keeps the distance to reach; `mine` is AltMin's row."""
    return rounds_to(row["distance"], mine["distance"], mine["noise_std"])


def floats(row: lf.Table, mine: lf.Table) -> Array:
    """Return the floats that a client sends and receives until then, with those of the start."""
    start, first = row["floats"][:2]
    return np.asarray(start + rounds(row, mine) * (first - start))


def over_altmin(row: lf.Table, mine: lf.Table, **fields: Any) -> c.Finding:
    """Judge a method's floats divided by AltMin's."""
    return judge(median_ratio(floats(row, mine), floats(mine, mine)), **fields)


def over_equations(row: lf.Table, mine: lf.Table, **fields: Any) -> c.Finding:
    """Judge a method's floats divided by those of the normal equations."""
    return judge(median_interval(floats(row, mine) / equations(mine)), **fields)


def fewer_rounds(rival: str) -> c.Statistic:
    """Return AltMin's median number of rounds divided by a competitor's."""

    def judged(mine: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
        own, theirs = rounds(mine, mine), rounds(other, mine)
        detail = f"{lower_median(own):g} against {lower_median(theirs):g}"
        above = int(np.isinf(theirs).sum())
        detail += f"; {rival} ends above this distance in {above} of {len(own)} trials" * bool(above)
        return judge(median_ratio(own, theirs), detail=detail, **fields)

    return c.compared(f"median rounds to keep the distance, divided by those of {rival}", ALTMIN, rival, judged)


def place(part: lf.Table) -> str:
    """Return the setting of a finding, with the distance to reach."""
    row = part.rows[0]
    aim = f"{NEAR} times AltMin's final distance" if row["noise_std"] else f"distance {CLOSE:g}"
    return f"noise std {row['noise_std']:g}, n = {row['n_clients']}, m = {row['n_samples']}, to {aim}"


FLOATS = "median floats of a client, the start included, to keep the distance,"
OfEach = partial(c.Claim, over=c.each("noise_std"), setting=place)
CLAIMS = (
    OfEach(
        "AltMin needs fewer rounds than FedRep with a tuned step", c.OWN_THRESHOLD, fewer_rounds(FEDREP), c.below(1)
    ),
    OfEach(
        "AltMin needs fewer rounds than AltGDmin with its published step",
        c.OWN_THRESHOLD,
        fewer_rounds(ALTGDMIN),
        c.below(1),
    ),
    OfEach(
        "FedRep sends fewer floats than AltMin",
        c.OWN_THRESHOLD,
        c.compared(f"{FLOATS} divided by those of AltMin", FEDREP, ALTMIN, over_altmin),
        c.below(1),
    ),
    OfEach(
        "FedRep from local averages sends fewer floats than clients that send their normal equations once",
        c.OWN_THRESHOLD,
        c.compared(f"{FLOATS} divided by d (d + 3)/2", CHEAP, ALTMIN, over_equations),
        c.below(1),
    ),
)
"""All are ours: the source has no comparison of rounds or floats that we know."""
