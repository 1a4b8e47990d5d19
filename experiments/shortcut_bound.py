"""The shortcut draft's proof, held against runs: its identities (9) to (21), and the terms of its bound (22).

n = 100, d = 20, k = 2, m = 60 fixed samples, heads of length sqrt 2, shortcuts of root mean square length 0.7, start at
distance 0.5, eta = 0.3, without noise and with 0.1. The closed form (2) to (5) in both orders, the joint ridge, and
gradient steps with a small shortcut step. The identities of the heads, (9), (16), (17), and of the shortcuts, (18), are
those of (2) and (3) and judged for these alone; those of the step, (19) to (21), and the bound (22) hold for every
solver. As printed (7), (9) and (15) have a sign wrong: the printed (9) is judged, too.

The bound's terms, each with its factor ||R^{-1}||, say what a proof has to control (`linfed.theory.shortcut`).

References: the shortcut draft, (7) to (22); docs/shortcut.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import Finding, judge_identity
from linfed.study.pages import Figures
from linfed.theory import shortcut

SUMMARY = "shortcut draft: its equations as identities over a run, and the terms of its bound (22)"

CLOSED = "(2)-(5)"
METHODS: dict[str, dict[str, Any]] = {
    CLOSED: {"solver": "closed-form"},
    "(2)-(5), gauss-seidel": {"solver": "closed-form", "order": "gauss-seidel"},
    "joint ridge 1": {"solver": "closed-form", "order": "joint", "ridge": 1.0},
    "gradient, eta_s = 0.003": {"solver": "gradient", "shortcut_step_size": 0.003},
}
TERMS = {"contraction": "#0072B2", "concentration": "#E69F00", "shortcut": "#CC79A7", "noise": "#009E73"}
SERIES = ("distance", *TERMS, "inverse", "identity")
EQUATIONS = {"heads": "(9), (16), (17)", "heads_as_printed": "(9) as printed", "shortcuts": "(18)"}
"""Columns that hold an equation's worst difference in any round, of (2)-(5)."""


@dataclass(frozen=True, kw_only=True)
class Equations:
    """One method at one noise level, followed round by round."""

    method: str = CLOSED
    noise_std: float = 0.0
    n_clients: int = 100
    dim: int = 20
    rank: int = 2
    n_samples: int = 60
    shortcut_norm: float = 0.7
    start: float = 0.5
    step_size: float = 0.3
    rounds: int = 300
    trials: int = 50
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Follow a run, and take every equation's two sides."""
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        problem = lf.SharedWithShortcuts(**sizes, shortcut_norm=self.shortcut_norm, noise_std=self.noise_std)
        shared = {"rank": self.rank, "step_size": self.step_size, "init": lf.AtDistance(self.start)}
        algorithm = lf.FedRepShortcut(**shared, **METHODS[self.method])
        truth = problem.truth(self.seed, range(self.trials))
        data, run = lf.FixedSamples(self.n_samples), {"trials": self.trials, "seed": self.seed}
        worst = {name: np.zeros(self.trials) for name in EQUATIONS} if self.method == CLOSED else {}

        def followed() -> Iterator[lf.Round]:
            for step in lf.iterate(algorithm, problem, data=data, rounds=self.rounds, **run):
                if worst and step.number:
                    seen = shortcut.ShortcutRound.of(step, algorithm, truth)
                    sides = seen.head_update(), seen.head_update(sign="printed"), seen.shortcut_equation()
                    for name, side in zip(EQUATIONS, sides, strict=True):
                        worst[name] = np.maximum(worst[name], side.gap)
                yield step

        trace = shortcut.shortcut_trace(followed(), algorithm, truth)
        return {name: lf.Along(getattr(trace, name), round=trace.rounds) for name in SERIES} | worst


def cells(quick: bool) -> dict[str, list[Equations]]:
    """Return every method without noise and with."""
    base = Equations(n_clients=40, rounds=40, trials=5) if quick else Equations()
    return {"terms": lf.grid(base, method=tuple(METHODS), noise_std=(0.0, 0.1))}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return the terms of (22) against rounds, with noise."""
    table = tables["terms"].where(noise_std=0.1)
    with lf.page(table, column="method", title="{}", height=2.7, sharey=True) as sheet:
        for ax, row in sheet:
            # (2)-(5) moves B in every second round only, and its terms with it: dots, not lines.
            for term, colour in TERMS.items():
                values = np.median(row[term], axis=0)
                shown = values > 1e-7
                ax.plot(row["round"][shown], values[shown], ".", markersize=2, color=colour, label=f"{term} term")
            ax.plot(row["round"], np.median(row["distance"], axis=0), color="black", label="dist")
        sheet.label("round", "terms of (22), dist", yscale="log", ylim=(3e-4, 2.0))
        sheet.legend(f"median of {table.rows[0]['trials']} trials; terms below 1e-7 are left out")
    return {"": sheet.figure}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return the draft's equations with their judgements."""
    out = [
        judge_identity(
            row[name],
            tolerance=shortcut.IDENTITY_TOLERANCE,
            text=f"Equation {equation} is an identity over (2)-(5)",
            where=f"noise {row['noise_std']:g}",
            statistic="largest relative difference of the two sides in any round",
            source=f"shortcut draft, equations {equation}",
            note="the sign of h_i" if "printed" in equation else "",
        )
        for name, equation in EQUATIONS.items()
        for row in tables["terms"].where(method=CLOSED)
    ]
    for row in tables["terms"]:
        trace = shortcut.ShortcutTrace(rounds=row["round"], **{name: row[name] for name in SERIES})
        where = f"{row['method']}, noise {row['noise_std']:g}"
        out += [shortcut.judge_split(trace, where), shortcut.judge_bound(trace, where)]
    return out
