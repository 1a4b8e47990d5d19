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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import Finding, by_sentence, judge_identity
from linfed.study.run import Table, Tables, select, tidy
from linfed.theory import shortcut

from ._shared import legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "shortcut draft: its equations as identities over a run, and the terms of its bound (22)"

CLOSED = "(2)-(5)"
METHODS: dict[str, dict[str, Any]] = {
    CLOSED: {"solver": "closed-form"},
    "(2)-(5), gauss-seidel": {"solver": "closed-form", "order": "gauss-seidel"},
    "joint ridge 1": {"solver": "closed-form", "order": "joint", "ridge": 1.0},
    "gradient, eta_s = 0.003": {"solver": "gradient", "shortcut_step_size": 0.003},
}
TERMS = ("contraction", "concentration", "shortcut", "noise")
EQUATIONS = ("(9), (16), (17)", "(9) as printed", "(18)")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes."""

    n_clients: int = 100
    dim: int = 20
    rank: int = 2
    n_samples: int = 60
    shortcut_norm: float = 0.7
    noise: tuple[float, ...] = (0.0, 0.1)
    start: float = 0.5
    step_size: float = 0.3
    rounds: int = 300
    trials: int = 50
    seed: int = 0

    def quick(self) -> Config:
        """Return fewer trials and rounds."""
        return replace(self, n_clients=40, rounds=40, trials=5)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method at one noise level."""

    method: str
    noise_std: float
    config: Config


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    return [Cell(method=name, noise_std=noise, config=config) for name in METHODS for noise in config.noise]


def run_cell(cell: Cell) -> dict[str, Any]:
    """Follow a run, and take every equation's two sides."""
    c = cell.config
    problem = lf.SharedWithShortcuts(
        n_clients=c.n_clients, dim=c.dim, rank=c.rank, shortcut_norm=c.shortcut_norm, noise_std=cell.noise_std
    )
    algorithm = lf.FedRepShortcut(
        rank=c.rank, step_size=c.step_size, init=lf.AtDistance(c.start), **METHODS[cell.method]
    )
    truth = problem.truth(c.seed, range(c.trials))
    gaps: dict[str, Any] = {name: np.zeros(c.trials) for name in EQUATIONS}

    def steps() -> Any:
        for step in lf.iterate(
            algorithm, problem, data=lf.FixedSamples(c.n_samples), rounds=c.rounds, trials=c.trials, seed=c.seed
        ):
            if cell.method == CLOSED and step.number > 0:
                seen = shortcut.ShortcutRound.of(step, algorithm, truth)
                found = (seen.head_update().gap, seen.head_update(sign="printed").gap, seen.shortcut_equation().gap)
                for name, gap in zip(EQUATIONS, found, strict=True):
                    gaps[name] = np.maximum(gaps[name], gap)
            yield step

    trace = shortcut.shortcut_trace(steps(), algorithm, truth)
    series = {name: getattr(trace, name) for name in ("distance", *TERMS, "inverse", "identity")}
    return {"rounds": trace.rounds, **series, **gaps}


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return the terms round by round, and the equations' worst differences per trial."""
    parts: dict[str, list[Table]] = {"terms": [], "equations": []}
    trials = {"trial": np.arange(config.trials)}
    for cell, found in zip(cells(config), results, strict=True):
        keys = {"method": cell.method, "noise_std": cell.noise_std}
        series = {name: found[name] for name in ("distance", *TERMS, "inverse", "identity")}
        parts["terms"].append(tidy(keys, {**trials, "round": found["rounds"]}, series))
        if cell.method == CLOSED:
            gaps = np.stack([found[name] for name in EQUATIONS])
            parts["equations"].append(tidy(keys, {"equation": EQUATIONS, **trials}, {"gap": gaps}))
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def _trace(table: Table) -> shortcut.ShortcutTrace:
    """Return the trace that a method's rows hold."""
    trials = len(np.unique(table["trial"]))
    series = {name: table[name].reshape(trials, -1) for name in ("distance", *TERMS, "inverse", "identity")}
    return shortcut.ShortcutTrace(rounds=np.unique(table["round"]), **series)


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the terms of (22) against rounds, at the largest noise."""
    from linfed.figures import style as plotting

    table = select(tables["terms"], noise_std=tables["terms"]["noise_std"].max())
    looks = {"contraction": "#0072B2", "concentration": "#E69F00", "shortcut": "#CC79A7", "noise": "#009E73"}
    figure, axes = panels(list(METHODS), 2.7, sharey=True)
    trials = len(np.unique(table["trial"]))
    with plotting.style():
        for ax, name in zip(axes[0], METHODS, strict=True):
            trace = _trace(select(table, method=name))
            # (2)-(5) moves B in every second round only, and its terms with it: dots, not lines.
            for term, colour in looks.items():
                values = np.median(getattr(trace, term), axis=0)
                shown = values > 1e-7
                ax.plot(trace.rounds[shown], values[shown], ".", markersize=2, color=colour, label=f"{term} term")
            ax.plot(trace.rounds, np.median(trace.distance, axis=0), color="black", label="dist")
            ax.set(yscale="log", xlabel="round", ylim=(3e-4, 2.0))
        axes[0, 0].set_ylabel("terms of (22), dist")
        legend(figure, axes[0], f"median of {trials} trials; terms below 1e-7 are left out")
    return {"": figure}


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return the draft's equations with their judgements."""
    out: list[Finding] = []
    for name in EQUATIONS:
        for noise in np.unique(tables["equations"]["noise_std"]):
            gaps = select(tables["equations"], equation=name, noise_std=noise)["gap"]
            out.append(
                judge_identity(
                    gaps,
                    tolerance=shortcut.IDENTITY_TOLERANCE,
                    text=f"Equation {name} is an identity over (2)-(5)",
                    where=f"noise {noise:g}",
                    statistic="largest relative difference of the two sides in any round",
                    source=f"shortcut draft, equations {name}",
                    note="the sign of h_i" if "printed" in name else "",
                )
            )
    for name in METHODS:
        for noise in np.unique(tables["terms"]["noise_std"]):
            trace, where = _trace(select(tables["terms"], method=name, noise_std=noise)), f"{name}, noise {noise:g}"
            out += [shortcut.judge_split(trace, where), shortcut.judge_bound(trace, where)]
    return by_sentence(out)
