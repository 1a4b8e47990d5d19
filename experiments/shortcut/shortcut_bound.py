"""The shortcut draft's proof, checked in runs: its identities (9) to (21), and the terms of its bound (22).

n = 100, d = 20, k = 2, m = 60 fixed samples, heads of length sqrt 2, shortcuts of root mean square length 0.7, initial
distance 0.5, eta = 0.3, without noise and with noise 0.1. The methods are the closed form (2) to (5) in both orders,
the joint ridge, and gradient steps with a small shortcut step size. The identities of the heads, (9), (16), (17), and
of the shortcuts, (18), follow from (2) and (3) and are judged only for these. Those of the update of B, (19) to (21),
and the bound (22) hold for every solver. As printed, (7), (9) and (15) have a wrong sign: the printed (9) is judged as
well. The draft has no noise: with noise, every equation has a further term, which is ours.

The bound's terms, each with its factor ||R^{-1}||, show what a proof has to control (`linfed.theory.shortcut`).

References: the shortcut draft, (7) to (22); docs/shortcut.md.
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
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures
from linfed.theory import shortcut
from linfed.theory.shortcut import IDENTITY_TOLERANCE

SUMMARY = "shortcut draft: its equations as identities over a run, and the terms of its bound (22)"
HEADLINES = (
    {"claim": "Equation (9) as printed is an identity over (2)-(5)"},
    {"claim": "dist stays below the sum of its terms (22)"},
)
CAPTIONS = {
    "": (
        "Terms of the bound (22) against rounds, for each solver, with noise, and the subspace distance (black). "
        "Median over trials."
    )
}
PICTURES = {"": 1400}

CLOSED = "(2)-(5)"
METHODS: dict[str, tuple[lf.ClosedForm | lf.GradientSteps, float]] = {
    CLOSED: (lf.ClosedForm(), 0.0),
    "(2)-(5), gauss-seidel": (lf.ClosedForm(order="gauss-seidel"), 0.0),
    "joint ridge 1": (lf.ClosedForm(order="joint"), 1.0),
    "gradient, eta_s = 0.003": (lf.GradientSteps(shortcut_step_size=0.003), 0.0),
}
"""Solver and ridge of each method."""
TERMS = dict(zip(("contraction", "concentration", "shortcut", "noise"), KINDS, strict=False))
"""Colour and marker of each term of (22)."""
UNUSED = ("inverse", "identity", "heads", "printed", "shortcuts")
REDUCED = {
    "terms": {  # the figures show the terms of the runs with noise
        "without": lambda row: UNUSED if row["noise_std"] else (*UNUSED, *TERMS, "distance"),
        "deciles": (*TERMS, "distance"),
    }
}


@dataclass(frozen=True, kw_only=True)
class Equations:
    """One method at one noise level, recorded round by round."""

    method: str = lf.choice(METHODS, CLOSED)
    noise_std: float = 0.0
    n_clients: int = 100
    dim: int = 20
    rank: int = 2
    n_samples: int = 60
    n_rounds: int = 300
    trials: int = 50
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Run the method, and return both sides of every equation in every round."""
        problem = lf.SharedWithShortcuts(
            n_clients=self.n_clients, dim=self.dim, rank=self.rank, shortcut_norm=0.7, noise_std=self.noise_std
        )
        solver, ridge = METHODS[self.method]
        algorithm = lf.FedRepShortcut(
            rank=self.rank, step_size=0.3, init=lf.AtDistance(0.5), solver=solver, ridge=ridge
        )
        data, truth = lf.FixedSamples(self.n_samples), problem.truth(self.seed, range(self.trials))
        steps = lf.iterate(algorithm, problem, data=data, n_rounds=self.n_rounds, trials=self.trials, seed=self.seed)
        trace = shortcut.shortcut_trace(steps, algorithm, truth, equations=self.method == CLOSED)
        return {name: lf.LabeledArray(values, round=trace.rounds) for name, values in trace.series.items()}


def cells(quick: bool) -> dict[str, list[Equations]]:
    """Return every method, without and with noise."""
    base = Equations(n_clients=40, n_rounds=40, trials=5) if quick else Equations()
    return {"terms": lf.grid(base, method=tuple(METHODS), noise_std=(0.0, 0.1))}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the terms of (22) against rounds, with noise."""
    table = tables["terms"].select(noise_std=max(tables["terms"].unique("noise_std")))
    with lf.panels(table, column="method", title="{}", height=2.7, sharey=True) as sheet:
        for ax, row in sheet:
            # (2)-(5) updates B only in every second round, and with it its terms: dots instead of lines.
            for term, (colour, _, _) in TERMS.items():
                values = np.median(row[term], axis=0)
                visible = values > 1e-7
                ax.plot(row["round"][visible], values[visible], ".", markersize=2, color=colour, label=f"{term} term")
            ax.plot(row["round"], np.median(row["distance"], axis=0), color="black", label="subspace distance")
        sheet.label("round", "terms of (22)", yscale="log", ylim=(3e-4, 2.0))
        sheet.legend(f"median of {table.rows[0]['trials']} trials; terms below 1e-7 are left out")
    return {"": sheet.figure}


def worst_round(column: str) -> Callable[[lf.Table], Array]:
    """Return a function that returns the largest value of each trial, without rounds after it diverged."""
    return lambda row: np.fmax.reduce(row[column], axis=1)


def below_the_terms(row: lf.Table, **fields: Any) -> c.Finding:
    """Judge the inequality (22) in every round."""
    return shortcut.judge_bound(row["distance"], sum(row[term] for term in TERMS), **fields)


def of_draft(place: str) -> c.Source:
    """Return the source of a claim about an equation; its term for noise is 0 without noise."""
    return c.reading(f"shortcut draft, {place}, with a term for noise, ours")


def equation(number: str, column: str, reading: str = "", note: str = "") -> c.Claim:
    """Return the claim that an equation about (2) to (5), in a reading, is an identity."""
    words = "largest relative difference of the two sides in any round"
    return c.Claim(
        f"Equation {number}{reading} is an identity over (2)-(5)",
        of_draft(f"equations {number}{reading}"),
        c.identity(worst_round(column), words, IDENTITY_TOLERANCE),
        where=c.of(method=CLOSED),
        over=c.each_row,
        setting="noise {noise_std:g}",
        note=lambda _: note,
    )


OfEach = partial(c.Claim, over=c.each_row, setting="{method}, noise {noise_std:g}")
CLAIMS = (
    equation("(9), (16), (17)", "heads", reading=", with the sign of h_i corrected,"),
    equation("(9) as printed", "printed", note="the sign of h_i"),
    equation("(18)", "shortcuts"),
    OfEach(
        "The split (19) to (21) of B is an identity",
        of_draft("equations (19) to (21)"),
        c.identity(lambda row: row["identity"], "largest relative difference of the two sides", IDENTITY_TOLERANCE),
    ),
    OfEach(
        "dist stays below the sum of its terms (22)",
        of_draft("equation (22)"),
        c.Statistic("dist divided by the sum of the terms, minus 1, worst round", below_the_terms),
        c.at_most(IDENTITY_TOLERANCE),
    ),
)
