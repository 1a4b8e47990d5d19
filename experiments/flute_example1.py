"""FLUTE paper, Example 1: what averaging the clients' representations can recover, and what FLUTE recovers.

The setting: ``Phi = [u_1 lambda_1 .. u_M lambda_M]`` with orthonormal u_i and lambda_1 > .. > lambda_M > 0, M = n <= d
clients, k = 1. Client i recovers ``phi_i`` and factors it as ``B_i w_i``; the server averages the B_i. The sought
direction is u_1. The paper looks at ``w_i = lambda_i`` and ``w_i = sqrt(lambda_i / M)``; it says that the first average
"deviates significantly" from u_1, and that in the second u_1 has "a heavier weight", "which will eventually help
recover" it.

With ``w_i`` proportional to ``lambda_i^p`` the average is proportional to ``sum_i lambda_i^(1-p) u_i``, hence

    cos^2 = lambda_1^(2-2p) / sum_i lambda_i^(2-2p),        dist = sqrt(1 - cos^2):

``sqrt(1 - 1/M)`` for p = 1, whatever the spectrum, and ``cos^2 = lambda_1 / sum_i lambda_i`` for p = 1/2. On a
geometric spectrum of ratio q the latter is ``(1 - q)/(1 - q^M)``, so its distance is about ``sqrt(q)``: below 0.1 for
q < 0.01 alone. An average recovers u_1 as p -> -infinity; p = 0, the plain mean of the phi_i, is drawn beside the two.

Two sweeps: over M on the singular values 2d/(i+1) of the paper's Figure 3, and over q at M = d. In each the clients
recover phi_i exactly (the population: ``A_i = I``, no noise), or by least squares from m samples with noise, where
``w_i`` is made from the length of the estimate. On the same data run FLUTE (k = 1, the paper's step 0.03) and FedRep
(k = 1) from a random direction, and FedRep from each of the averages, at half the step that is best on u_1 itself,
``M / lambda_1^2``. All sizes but the example's own are chosen here.

References: Liu, Shen and Yang 2024, Example 1; their C.1 for the spectrum, the step and the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.numerics.linalg import orthonormalize
from linfed.statistics.findings import (
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    by_sentence,
    judge_identity,
    quoted,
    share,
    smaller,
)
from linfed.statistics.intervals import first_round_below, quantiles
from linfed.study.run import Table, Tables, select, tidy

from ._flute import FLUTE_STEP, spectrum
from ._shared import legend, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUMMARY = "FLUTE paper, Example 1: which averages of local representations recover the top direction"

POWERS = {"w = lambda": 1.0, "w = sqrt(lambda/M)": 0.5, "w = 1": 0.0}
"""The average's name, and p of its ``w_i ~ lambda_i^p``."""

FIRST, SECOND = tuple(POWERS)[:2]
LEARNERS = ("FLUTE", "FedRep")
DEVIATES = quoted(
    "FLUTE paper, Example 1",
    "B = (1/M) sum_i u_i, which deviates significantly from the column space of B*",
    threshold=True,
)
HEAVIER = quoted(
    "FLUTE paper, Example 1",
    "u_1 will have a heavier weight in the aggregated representation, which will eventually help recover",
    threshold=True,
)

RECOVERED = 0.1
"""A direction within this distance counts as recovered."""
FAR = 0.5
"""A direction beyond this distance, 30 degrees, counts as far."""
JUDGED = {"clients": (2, 10), "ratio": (0.005, 0.15, 0.5, 0.9)}
"""Points of each sweep at which claims are judged; the first average is at every M."""
POPULATION = 0
"""Stands for the number of samples where clients recover their phi_i exactly."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes: none but k = 1 and M <= d are in the example."""

    dim: int = 10
    n_clients: tuple[int, ...] = (2, 3, 4, 6, 8, 10)
    ratios: tuple[float, ...] = (0.002, 0.005, 0.02, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9)
    n_samples: tuple[int, ...] = (POPULATION, 100, 20)
    noise_variance: float = 0.3
    rounds: int = 3000
    fedrep_rounds: int = 600
    trials: int = 50
    seed: int = 0

    def quick(self) -> Config:
        """Return fewer trials, rounds and settings."""
        return replace(
            self,
            trials=10,
            n_clients=(2, 10),
            ratios=(0.005, 0.5),
            n_samples=(POPULATION, 20),
            rounds=500,
            fedrep_rounds=100,
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One spectrum, known exactly or from samples; the ratio is 0 for the spectrum 2d/(i+1)."""

    n_clients: int
    ratio: float
    n_samples: int
    config: Config

    @property
    def keys(self) -> dict[str, Any]:
        """Columns that name the cell in every table."""
        sizes = {"n_clients": self.n_clients, "ratio": self.ratio, "n_samples": self.n_samples}
        return {"sweep": "ratio" if self.ratio else "clients", **sizes}

    @property
    def singular_values(self) -> Any:
        """lambda_1 > .. > lambda_M; lambda_1 = d in both sweeps."""
        d = self.config.dim
        values = spectrum("2d/(i+1)", d)
        assert values is not None
        return d * self.ratio ** np.arange(self.n_clients) if self.ratio else np.array(values[: self.n_clients])


def cells(config: Config) -> list[Cell]:
    """Return the cells of both sweeps."""
    alone = replace(config, n_clients=(), ratios=(), n_samples=())  # a cell depends on its own alone
    settings = [(M, 0.0) for M in config.n_clients] + [(config.dim, q) for q in config.ratios]
    return [
        Cell(n_clients=M, ratio=q, n_samples=m, config=alone) for M, q in settings for m in sorted(config.n_samples)
    ]


def closed_form(values: Any, power: float) -> float:
    """Return the distance from u_1 of the average with ``w_i ~ lambda_i^power``, of exact phi_i."""
    weights = (values / values[0]) ** (2.0 - 2.0 * power)
    return math.sqrt(float(weights[1:].sum() / weights.sum()))  # 1 - cos^2, without cancellation


def run_cell(cell: Cell) -> dict[str, Any]:
    """Return the distances from u_1: of the averages, of FLUTE and of FedRep, and how long FedRep takes from each."""
    c, M, values = cell.config, cell.n_clients, cell.singular_values
    # One truth for all sample counts.
    seed = (c.seed, M, round(1e6 * cell.ratio))
    U = orthonormalize(np.random.default_rng(seed).standard_normal((c.trials, c.dim, M)))
    noise = 0.0 if cell.n_samples == POPULATION else math.sqrt(c.noise_variance)
    problem = lf.GivenTruth(B=U, W=np.diag(values), noise_std=noise)
    if cell.n_samples == POPULATION:
        X = np.broadcast_to(math.sqrt(c.dim) * np.eye(c.dim), (c.trials, M, c.dim, c.dim))  # A_i = I
        Phi = np.swapaxes(U * values, -1, -2)
        data = lf.GivenSamples(X, (X @ Phi[..., None])[..., 0])
    else:
        data = lf.FixedSamples(cell.n_samples).draw(problem, trials=c.trials, seed=seed)
    shared: dict[str, Any] = {"data": data, "trials": c.trials, "seed": seed}
    theta = np.asarray(lf.simulate(lf.LocalOnly(), problem, rounds=1, **shared).final.S)
    lengths = np.linalg.norm(theta, axis=-1, keepdims=True)
    starts: dict[str, Any] = {"random": "random"}
    found: dict[str, Any] = {}
    for name, power in POWERS.items():
        average = (theta / lengths**power).mean(axis=1)[..., None]
        found[name] = lf.subspace_distance(average, U[..., :1])
        found[f"{name}/closed"] = np.array(closed_form(values, power))
        starts[name] = average / np.linalg.norm(average, axis=1, keepdims=True)
    shared["metrics"] = ["subspace_distance"]
    flute = lf.simulate(
        lf.FLUTE(rank=1, step_size=FLUTE_STEP), problem, rounds=c.rounds, record_every=c.rounds, **shared
    )
    found["FLUTE"] = flute.metrics["subspace_distance"][:, -1]
    for name, init in starts.items():
        fedrep = lf.FedRep(rank=1, step_size=0.5 * M / values[0] ** 2, init=init)
        result = lf.simulate(fedrep, problem, rounds=c.fedrep_rounds, **shared)
        curve = result.metrics["subspace_distance"]
        found[f"rounds/{name}"] = first_round_below(result.rounds, np.nan_to_num(curve, nan=1.0), RECOVERED)
        if name == "random":
            found["FedRep"] = curve[:, -1]
    return found


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return distances, closed forms and FedRep's rounds as tidy tables."""
    parts: dict[str, list[Table]] = {"distances": [], "rounds": []}
    trials = {"trial": np.arange(config.trials)}
    for cell, found in zip(cells(config), results, strict=True):
        for name in (*POWERS, *LEARNERS):
            values = {"distance": found[name], "closed_form": found.get(f"{name}/closed", np.array(np.nan))}
            parts["distances"].append(tidy({**cell.keys, "method": name}, trials, values))
        for start in ("random", *POWERS):
            keys = {**cell.keys, "start": start}
            parts["rounds"].append(tidy(keys, trials, {"rounds_to_0.1": found[f"rounds/{start}"]}))
    return {name: np.concatenate(rows) for name, rows in parts.items()}


# --- figures -------------------------------------------------------------------------------------------------

LOOKS = {
    "w = lambda": ("#D55E00", "D"),
    "w = sqrt(lambda/M)": ("#E69F00", "s"),
    "w = 1": ("#999999", "^"),
    "FLUTE": ("#0072B2", "o"),
    "FedRep": ("#CC79A7", "v"),
}
LABELS = {
    "w = lambda": "average, w = λ",
    "w = sqrt(lambda/M)": "average, w = √(λ/M)",
    "w = 1": "average, w = 1",
}
LOWEST = 1e-4
"""Distances below this are drawn here."""
SWEEPS = {
    "clients": ("n_clients", "clients M, λ = 2d/(i+1)"),
    "ratio": ("ratio", "ratio q of λ = d, dq, dq², ..; M = d"),
}


def plot(tables: Tables) -> dict[str, Figure]:
    """Return distances from u_1 against the number of clients and the spectrum's ratio, and FedRep's rounds."""
    return {"": _distances_figure(tables), "rounds": _rounds_figure(tables)}


def told(samples: int) -> str:
    """Return what a title calls the data."""
    return "φ known exactly" if samples == POPULATION else f"least squares, m = {samples}"


def _points(table: Table, sweep: str, column: str) -> tuple[Any, Any]:
    """Return the sweep's positions and the column's values (positions, trials)."""
    table = select(table, sweep=sweep)
    positions = np.unique(table[SWEEPS[sweep][0]])
    return positions, np.array([select(table, **{SWEEPS[sweep][0]: at})[column] for at in positions])


def _draw_points(ax: Axes, x: Any, values: Any, name: str, **options: Any) -> None:
    """Draw medians with 10-90 %; where there is none, the point is left out."""
    median, low, high = (np.maximum(found, LOWEST) for found in quantiles(values.T))
    fine = np.isfinite(median)
    below, above = median[fine] - low[fine], np.where(np.isfinite(high), high, median)[fine] - median[fine]
    colour, marker = LOOKS[name]
    ax.errorbar(
        x[fine],
        median[fine],
        yerr=[below.tolist(), above.tolist()],  # lists: matplotlib takes an array of one for a number
        color=colour,
        marker=marker,
        elinewidth=0.7,
        capsize=1.5,
        fillstyle="none" if name == "FedRep" else "full",
        label=LABELS.get(name, name),
        **options,
    )


def _distances_figure(tables: Tables) -> Figure:
    from linfed.figures import style as plotting

    distances = tables["distances"]
    sizes = sorted(np.unique(distances["n_samples"]), key=lambda m: (m != POPULATION, -m))
    figure, axes = panels([told(m) for m in sizes], 4.4, rows=len(SWEEPS), sharey=True, sharex="row")
    trials = len(np.unique(distances["trial"]))
    with plotting.style():
        for row, (sweep, (_, xlabel)) in zip(axes, SWEEPS.items(), strict=True):
            for ax, m in zip(row, sizes, strict=True):
                for name in (*POWERS, *LEARNERS):
                    chosen = select(distances, n_samples=m, method=name)
                    x, values = _points(chosen, sweep, "distance")
                    if name in POWERS:
                        closed = _points(chosen, sweep, "closed_form")[1][:, 0]
                        ax.plot(x, np.maximum(closed, LOWEST), color=LOOKS[name][0], linewidth=1.0, label="_closed")
                        _draw_points(ax, x, values, name, linestyle="none")
                    else:
                        _draw_points(ax, x, values, name, linestyle=":", linewidth=0.7)
                plotting.draw_level(ax, RECOVERED)
                ax.set(yscale="log", ylim=(0.7 * LOWEST, 1.5), xlabel=xlabel)
                if sweep == "ratio":
                    ax.set_xscale("log")
            row[0].set_ylabel("distance from u₁")
        title = f"median and 10-90 % of {trials} trials; solid: closed form of exact φ; below 1e-4: drawn there"
        legend(figure, [axes[0, 0]], title)
    return figure


def _rounds_figure(tables: Tables) -> Figure:
    from linfed.figures import style as plotting

    rounds = tables["rounds"]
    sizes = sorted(np.unique(rounds["n_samples"]), key=lambda m: (m != POPULATION, -m))
    figure, axes = panels([told(m) for m in sizes], 4.2, rows=len(SWEEPS), sharex="row", sharey=True)
    trials = len(np.unique(rounds["trial"]))
    finite = np.isfinite(rounds["rounds_to_0.1"])
    with plotting.style():
        for row, (sweep, (_, xlabel)) in zip(axes, SWEEPS.items(), strict=True):
            for ax, m in zip(row, sizes, strict=True):
                for start in ("random", *POWERS):
                    x, values = _points(select(rounds, n_samples=m, start=start), sweep, "rounds_to_0.1")
                    if not np.isfinite(quantiles(values.T)[0]).any():
                        continue
                    _draw_points(ax, x, values, "FedRep" if start == "random" else start, linestyle=":", linewidth=0.7)
                if not ax.containers:
                    ax.text(0.5, 0.5, "median: not reached", ha="center", transform=ax.transAxes, fontsize=7)
                ax.set(xlabel=xlabel, yscale="symlog", ylim=(-0.5, 2.0 * rounds["rounds_to_0.1"][finite].max()))
                if sweep == "ratio":
                    ax.set_xscale("log")
            row[0].set_ylabel("FedRep's rounds\nto distance 0.1")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        texts = ["random start" if text == "FedRep" else text for text in labels]
        title = f"FedRep from each start: median and 10-90 % of {trials} trials; no point, no upper bar: not reached"
        figure.legend(handles, texts, loc="outside upper center", ncols=len(texts), title=title)
    return figure


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return what Example 1 says, and what the learners do on its data."""
    distances, rounds = tables["distances"], tables["rounds"]
    settings = np.unique(distances[["n_samples", "sweep", "n_clients", "ratio"]])
    found = []
    for samples, sweep, clients, ratio in settings:
        keys = {"n_samples": samples, "sweep": sweep, "n_clients": clients, "ratio": ratio}
        spectrum_told = f"M = {clients}" if sweep == "clients" else f"M = {clients}, q = {ratio:g}"
        where = f"{told(samples)}: {spectrum_told}"
        at = {
            name: np.nan_to_num(select(distances, method=name, **keys)["distance"], nan=1.0)
            for name in (*POWERS, *LEARNERS)
        }
        if sweep == "clients":
            found.append(
                share(
                    at[FIRST] > FAR,
                    0.5,
                    source=DEVIATES,
                    text=f"The average with {FIRST} deviates significantly from u_1",
                    where=where,
                    statistic=f"share of trials in which its distance is above {FAR:g} (30 degrees)",
                )
            )
        if (clients if sweep == "clients" else ratio) not in JUDGED[sweep]:
            continue
        if samples == POPULATION:
            closed = {name: select(distances, method=name, **keys)["closed_form"] for name in POWERS}
            found.append(
                judge_identity(
                    np.max([np.abs(at[name] - closed[name]) for name in POWERS], axis=0),
                    tolerance=1e-12,
                    source=OWN_PREDICTION,
                    text="The closed forms hold: sqrt(1 - cos^2), cos^2 = lambda_1^(2-2p) / sum lambda_i^(2-2p)",
                    where=where,
                    statistic="largest difference of the three distances from theirs",
                )
            )
        found.append(
            smaller(
                at[SECOND],
                at[FIRST],
                source=HEAVIER,
                text=f"With {SECOND} the average is nearer to u_1 than with {FIRST}",
                where=where,
                statistic="share of paired trials",
            )
        )
        recovery = {
            SECOND: f"The average with {SECOND} recovers u_1",
            **{name: f"{name} recovers u_1" for name in LEARNERS},
        }
        found += [
            share(
                at[name] < RECOVERED,
                0.5,
                source=HEAVIER if name == SECOND else OWN_THRESHOLD,
                text=text,
                where=where,
                statistic=f"share of trials in which the distance is below {RECOVERED:g}",
            )
            for name, text in recovery.items()
        ]
        found.append(
            smaller(
                at["FLUTE"],
                at[SECOND],
                source=OWN_THRESHOLD,
                text=f"FLUTE is nearer to u_1 than the average with {SECOND}",
                where=where,
                statistic="share of paired trials",
            )
        )
        taken = {start: select(rounds, start=start, **keys)["rounds_to_0.1"] for start in (FIRST, SECOND)}
        found.append(
            smaller(
                taken[SECOND],
                taken[FIRST],
                source=HEAVIER,
                text=f"The heavier weight helps: FedRep gets to u_1 sooner from the average with {SECOND} than {FIRST}",
                where=where,
                statistic=f"share of paired trials with fewer rounds to distance {RECOVERED:g}",
            )
        )
    return by_sentence(found)
