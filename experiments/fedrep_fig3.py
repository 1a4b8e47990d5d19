"""FedRep paper, Figure 3: distance against rounds for FedRep, 10GD-GD and GD-GD, at four numbers of clients.

The paper fixes d = 10, k = 2, m = 5, r = 0.1 and the noise variance 1e-3. It gives neither the step sizes nor the
initial B nor the number of rounds. Here B starts at a random subspace (the method of moments would start the larger
problems below the first threshold already), and step sizes are tuned per method and n, on separate trials over one
grid, for the fewest rounds to distance 0.01. As in the paper's Algorithm 1, one step size serves heads and
representation; two further methods, in the tables and the claims, have a head step of their own.

The ``notebook`` preset follows the authors' published linear notebook where it differs from the paper
(`experiments._fedrep`), with the squared distance in the picture.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 5.1 and Figure 3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import Finding, by_sentence, judge, smaller
from linfed.statistics.intervals import bootstrap_interval, first_round_below, probability_smaller
from linfed.study.run import Table, Tables, rows

from ._fedrep import (
    FASTEST,
    MORE_CLIENTS,
    MORE_UPDATES,
    PRESETS,
    SCALES,
    exact_ridge,
    fedrep,
    problem_of,
    scaled_step,
)
from ._shared import edge_note, legend, panels, tuned, tuning_arrays

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "FedRep paper, Figure 3: distance against rounds, FedRep against gradient heads, n = 10 to 10,000"

METHODS = ("FedRep", "10GD-GD", "GD-GD")
OWN = " (own head step)"
THRESHOLDS = (0.1, 0.01)
RANK = 2
EXTREMES = (1e-9, 1e9)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The paper's sizes; what it leaves open is chosen here."""

    n_clients: tuple[int, ...] = (10, 100, 1000, 10_000)
    dim: int = 10
    rank: int = RANK
    n_samples: int = 5
    participation: float = 0.1
    noise_variance: float = 1e-3
    rounds: int = 200
    trials: int = 50
    seed: int = 0
    step_sizes: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)
    head_step_sizes: tuple[float, ...] = (0.2, 0.3, 0.5, 0.7)
    tuning_trials: int = 10

    def quick(self) -> Config:
        """Return fewer trials and the three smaller problems."""
        return replace(self, n_clients=self.n_clients[:3], trials=10, tuning_trials=4, rounds=100)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One curve: a preset, a number of clients and a method."""

    preset: str
    n_clients: int
    method: str
    config: Config


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    own = [method + OWN for method in METHODS[1:]]
    alone = replace(config, n_clients=())  # a cell depends on its own n alone
    return [
        Cell(preset=preset, n_clients=n, method=method, config=alone)
        for n in sorted(config.n_clients, reverse=True)
        for preset, methods in (("paper", [*own, *METHODS]), ("notebook", METHODS))
        for method in methods
    ]


def setting(cell: Cell) -> tuple[lf.SharedRepresentation, lf.FreshSamples | lf.FixedSamples]:
    """Return the truth and the data of a cell."""
    c = cell.config
    return problem_of(cell), lf.FreshSamples(c.n_samples) if cell.preset == "paper" else lf.FixedSamples(c.n_samples)


def method(cell: Cell) -> lf.FedRep:
    """Return the method of a cell; its step sizes are still to be set."""
    if cell.method.startswith("FedRep"):
        return fedrep(cell, 1.0, head_ridge=exact_ridge(cell))
    return fedrep(cell, 1.0, head_solver="gradient", head_steps=10 if cell.method.startswith("10GD") else 1)


def grid(cell: Cell) -> list[tuple[float, float]]:
    """Return the (step, head step) pairs to try: equal ones, or all pairs for a head step of its own.

    Where a run is long, every other step serves for the pairs.
    """
    c = cell.config
    if cell.method.endswith(OWN):
        steps = c.step_sizes if cell.n_clients < 1000 else c.step_sizes[1::2]
        return list(itertools.product(steps, c.head_step_sizes))
    return [(step, step) for step in c.step_sizes]


def scaled(cell: Cell, pair: tuple[float, float]) -> dict[str, float]:
    """Return hyper-parameters for a (step, head step) pair that is given in the paper's normalisation."""
    step, head_step = scaled_step(cell, pair[0]), pair[1]
    if cell.preset == "notebook":
        head_step *= cell.config.n_samples  # heads are not summed
    return {"step_size": step} if cell.method == "FedRep" else {"step_size": step, "head_step_size": head_step}


def rounds_to(threshold: float, rounds: Any, curve: Any) -> float:
    """Return the round at which a curve first crosses a threshold, interpolated; past the end if it never does."""
    logs = np.log10(np.maximum(curve, 1e-300)) - math.log10(threshold)
    below = np.flatnonzero(logs <= 0)
    if not below.size:
        return float(rounds[-1] * (1.0 + logs.min()))
    i = int(below[0])
    return float(rounds[i] - (logs[i] / (logs[i] - logs[i - 1])) * (rounds[i] - rounds[i - 1])) if i else 0.0


def tuning_effort(cell: Cell) -> tuple[int, int]:
    """Return trials and rounds that tell the steps apart: many clients hardly differ from trial to trial."""
    c = cell.config
    if cell.n_clients < 1000:
        return c.tuning_trials, c.rounds
    trials = min(c.tuning_trials, 4)
    if cell.preset == "notebook":  # its gradient methods are slow, and some steps turn unstable late
        return trials, c.rounds
    # The slowest method needs some sixty rounds at n = 1,000, and thirty at n = 10,000.
    return trials, min(c.rounds, 100 if cell.n_clients < 10_000 else 45)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Tune the steps on separate trials, then run the trials that count."""
    c = cell.config
    problem, data = setting(cell)
    trials, rounds = tuning_effort(cell)
    pairs, seed = grid(cell), (c.seed, cell.n_clients)  # trials at different n are then independent
    tuning = tuned(
        method(cell),
        problem,
        grid=[scaled(cell, pair) for pair in pairs],
        data=data,
        rounds=rounds,
        score=lambda rounds, curve: rounds_to(THRESHOLDS[-1], rounds, curve),
        participation=c.participation,
        trials=trials,
        seed=seed,
    )
    result = lf.simulate(
        tuning.algorithm,
        problem,
        data=data,
        rounds=c.rounds,
        participation=c.participation,
        trials=c.trials,
        seed=seed,
        metrics=["subspace_distance"],
    )
    return {
        "rounds": result.rounds,
        "distance": result.metrics["subspace_distance"],
        "pairs": np.array(pairs),
        **tuning_arrays(tuning),
        "participants": np.array(result.participants),
    }


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return the curves, the tuning curves and the per-trial statistics as tidy tables."""
    curves, tuning, summary = [], [], []
    for cell, found in zip(cells(config), results, strict=True):
        key = (cell.preset, cell.n_clients, cell.method)
        distance, best = found["distance"], int(found["best"])
        if not cell.method.endswith(OWN):
            curves += [
                (*key, trial, int(round_), float(value))
                for trial, row in enumerate(distance)
                for round_, value in zip(found["rounds"], row, strict=True)
            ]
        tuning += [
            (*key, *pair, float(score), index == best, index == best and bool(found["at_edge"]))
            for index, (pair, score) in enumerate(zip(found["pairs"], found["scores"], strict=True))
        ]
        crossed = [first_round_below(found["rounds"], distance, threshold) for threshold in THRESHOLDS]
        summary += [
            (
                *key,
                int(found["participants"]),
                *found["pairs"][best],
                trial,
                *(float(rounds[trial]) for rounds in crossed),
                float(row[-1]),
            )
            for trial, row in enumerate(distance)
        ]
    keys = [("preset", "U8"), ("n_clients", "i8"), ("method", "U32")]
    steps = [("step_size", "f8"), ("head_step_size", "f8")]
    return {
        "curves": rows([*keys, ("trial", "i8"), ("round", "i8"), ("distance", "f8")], curves),
        "tuning": rows([*keys, *steps, ("score", "f8"), ("chosen", "?"), ("at_edge", "?")], tuning),
        "summary": rows(
            [
                *keys,
                ("participants", "i8"),
                *steps,
                ("trial", "i8"),
                *((f"rounds_to_{threshold:g}", "f8") for threshold in THRESHOLDS),
                ("final_distance", "f8"),
            ],
            summary,
        ),
    }


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the paper's reading, and the notebook's."""
    return {"": _figure(tables, "paper"), "notebook": _figure(tables, "notebook")}


def _figure(tables: Tables, preset: str) -> Figure:
    from linfed.figures import style as plotting

    curves = tables["curves"][tables["curves"]["preset"] == preset]
    sizes = np.unique(curves["n_clients"])
    trials = int(curves["trial"].max()) + 1
    power = 2 if preset == "notebook" else 1
    figure, axes = panels([f"n = {n:,}" for n in sizes], 2.1, sharey=True)
    with plotting.style():
        for ax, n in zip(axes[0], sizes, strict=True):
            for name in METHODS:
                chosen = curves[(curves["n_clients"] == n) & (curves["method"] == name)]
                values = chosen["distance"].reshape(trials, -1) ** power
                rounds = chosen["round"].reshape(trials, -1)[0]
                plotting.draw_curve(rounds, values, ax=ax, label=name, ylabel="", method=name)
            ax.axhline(THRESHOLDS[-1] ** power, color="0.5", linewidth=0.6, zorder=0)
            ax.set_xlabel("round")
        axes[0, 0].set_ylabel("squared subspace distance" if power == 2 else "subspace distance to B*")
        what = "the notebook's conventions, " if preset == "notebook" else ""
        legend(figure, axes[0], f"{what}median and 10-90 % of {trials} trials")
    return figure


def claims(tables: Tables) -> list[Finding]:
    """Return what the paper says of Figure 3, judged on its reading (preset ``paper``) and on the notebook's."""
    return by_sentence(claim for preset in PRESETS for claim in _claims(tables, preset))


def _claims(tables: Tables, preset: str) -> list[Finding]:
    summary = tables["summary"][tables["summary"]["preset"] == preset]
    sizes = [int(n) for n in np.unique(summary["n_clients"])]
    low = f"{THRESHOLDS[-1]:g}"

    def crossing(method: str, n: int, threshold: float = THRESHOLDS[-1]) -> Any:
        return _of(summary, method, n)[f"rounds_to_{threshold:g}"]

    def note(n: int, *methods: str) -> str:
        return _note(tables, preset, n, methods)

    out = []
    for small, large in itertools.pairwise(sizes):
        found = probability_smaller(crossing("FedRep", large), crossing("FedRep", small))
        out.append(
            judge(
                found,
                text="FedRep converges in fewer rounds with more clients",
                source=MORE_CLIENTS,
                where=f"{preset}: n = {large:,} against {small:,}",
                statistic=f"P(fewer rounds to distance {low})",
                least=0.5,
                strict=True,
                note=note(small, "FedRep") or note(large, "FedRep"),
            )
        )
    pairs = [("FedRep", "10GD-GD"), ("10GD-GD", "GD-GD")]
    if preset == "paper":
        pairs += [("FedRep", "10GD-GD" + OWN), ("FedRep", "GD-GD" + OWN)]
    for first, second in pairs:
        for n in sizes:
            out.append(
                smaller(
                    crossing(first, n),
                    crossing(second, n),
                    source=FASTEST if first == "FedRep" else MORE_UPDATES,
                    text=f"{first} needs fewer rounds than {second}",
                    where=f"{preset}: n = {n:,}",
                    statistic=f"share of paired trials with fewer rounds to distance {low} (ties aside)",
                    note=note(n, first, second),
                )
            )
    base = [n for n in sizes if _of(summary, "FedRep", n)["participants"][0] >= RANK]
    if len(base) > 1:
        last = int(tables["curves"]["round"].max())
        rivals = [*METHODS[1:], *((name + OWN for name in METHODS[1:]) if preset == "paper" else ())]
        out += [_gain(crossing, name, base[0], base[-1], preset, last) for name in rivals]
    return out


def _of(table: Table, method: str, n: int) -> Table:
    return table[(table["method"] == method) & (table["n_clients"] == n)]


def _gain(crossing: Any, other: str, small: int, large: int, preset: str, last: int) -> Finding:
    """Return the claim that FedRep's rounds fall by a larger factor than another method's.

    A median that is never reached lies somewhere beyond the last round: the ratio then has a least and a largest value,
    and the interval covers both.
    """
    before = np.stack([crossing("FedRep", small), crossing(other, small)])
    after = np.stack([crossing("FedRep", large), crossing(other, large)])

    def bounds(i: Any, j: Any) -> tuple[float, float]:
        (b0, b1), (a0, a1) = (
            np.maximum(np.quantile(part[:, k.astype(int)], 0.5, axis=1, method="inverted_cdf"), 1.0)
            for part, k in ((before, i), (after, j))
        )
        with np.errstate(divide="ignore"):  # a rival that never gets there gains nothing: the ratio has no bound
            least = (min(b0, last) / a0) / (b1 / min(a1, last))
            largest = (b0 / min(a0, last)) / (min(b1, last) / a1)
        return tuple(float(np.clip(value, *EXTREMES)) for value in (least, largest))

    trials = np.arange(before.shape[1])
    low = bootstrap_interval(lambda i, j: bounds(i, j)[0], (trials, trials))[0]
    high = bootstrap_interval(lambda i, j: bounds(i, j)[1], (trials, trials))[1]
    least, largest = bounds(trials, trials)
    note = "medians of rounds over bootstrapped trials"
    if least != largest:
        note += f"; a median is not reached in {last} rounds, so the ratio is known between bounds only"
    return Finding(
        text=f"{other} gains less from more clients than FedRep",
        source=SCALES,
        where=f"{preset}: n = {small:,} to {large:,}",
        statistic=f"FedRep's factor of fewer rounds to distance {THRESHOLDS[-1]:g} over {other}'s",
        estimate=least if least == largest else math.nan,
        low=0.0 if low <= EXTREMES[0] else low,
        high=math.inf if high >= EXTREMES[1] else high,
        least=1.0,
        strict=True,
        note=note,
    )


def _note(tables: Tables, preset: str, n: int, methods: Sequence[str]) -> str:
    """Return what a reader should know of a setting: failing hypotheses, steps at the edge of their grid."""
    summary = tables["summary"][tables["summary"]["preset"] == preset]
    tuning = tables["tuning"][tables["tuning"]["preset"] == preset]
    p = int(_of(summary, methods[0], n)["participants"][0])
    notes = []
    if p < RANK:
        notes.append(f"p = {p} participant a round is fewer than k = {RANK}: sigma_min = 0, so Theorem 1 cannot apply")
    edge = [method for method in methods if _of(tuning, method, n)["at_edge"].any()]
    if edge:
        notes.append(edge_note(edge))
    return "; ".join(notes)
