"""FedRep paper, Figure 4: the risk of a client that took no part in the training, against its number of samples.

The setting: n = 100, d = 20, k = 2, m = 10 fixed samples per client, a tenth of the clients per round, noise variance
1e-3, 500 rounds as in Figure 1. A new client solves for its head exactly on the representation that FedRep or FedAvg
(two layers, one head for all, one local step) has learned; under Local only it fits all d parameters. The sample
counts are 1, 2, 5, 10, 20; 3 = k + 1 and 40 = 2 d are added. Step sizes are tuned per method on separate trials over
one grid, for the least median error of new clients with d samples in nine of ten trials. B starts at a random subspace.

Beside the paper's methods: the oracle (exact heads on B*) and FedAvg with ten local steps. What a new client pays is
known in law (`linfed.theory.new_client_excess_quantile`); its median is drawn over the measurements.

The ``notebook`` preset follows the authors' published linear notebook where it differs from the paper
(`experiments._fedrep`); its "FedAvg" keeps local heads, which is FedPer.

Errors are ``||theta - phi||^2``: in the paper's reading the MSE on new samples less the noise variance.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 5.1 and Figure 4. Collins, Hassani, Mokhtari and
Shakkottai 2022, "FedAvg with fine tuning: local updates lead to representation learning", for local steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.figures.style import label
from linfed.statistics.findings import Finding, by_sentence, judge, smaller
from linfed.statistics.intervals import median_interval
from linfed.study.run import Table, Tables, select, tidy

from ._fedrep import (
    NEW_ACCURATE,
    NEW_FEDAVG,
    NEW_LOCAL,
    PRESETS,
    UNTUNED,
    method_of,
    problem_of,
    squared_error,
    x_variance,
)
from ._shared import (
    HUGE,
    tuned,
    tuning_arrays,
    tuning_figure,
    tuning_note,
    tuning_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "FedRep paper, Figure 4: risk on a new client against its samples, FedRep, FedAvg, Local only"

MANY = "FedAvg, K = 10"
METHODS = {
    "paper": ("LocalOnly", "FedAvg", MANY, "FedRep", "Oracle"),
    "notebook": ("LocalOnly", "FedAvg", "FedPer", "FedRep", "Oracle"),
}
SMALL = 0.1
"""An error is called small below this share of ||phi||^2, the error of predicting 0."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The paper's sizes; what it leaves open is chosen here."""

    n_clients: int = 100
    dim: int = 20
    rank: int = 2
    n_samples: int = 10
    participation: float = 0.1
    noise_variance: float = 1e-3
    n_new: tuple[int, ...] = (1, 2, 3, 5, 10, 20, 40)
    new_clients: int = 100
    rounds: int = 500
    trials: int = 50
    seed: int = 0
    step_sizes: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4)
    tuning_trials: int = 10

    def quick(self) -> Config:
        """Return fewer trials, rounds and steps."""
        return replace(self, trials=10, tuning_trials=4, rounds=200, step_sizes=self.step_sizes[2:-1:2])


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method under one reading of the paper."""

    preset: str
    method: str
    config: Config


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    found = [Cell(preset=preset, method=method, config=config) for preset in PRESETS for method in METHODS[preset]]
    return sorted(found, key=lambda cell: (cell.method != MANY, cell.method in UNTUNED))


def method(cell: Cell, step: float = 1.0) -> lf.Algorithm:
    """Return the method of a cell at a step size given in the paper's normalisation."""
    return method_of(cell, step, local_steps=10 if cell.method == MANY else 1)


def squared_errors(result: lf.Result, sizes: Sequence[int], clients: int) -> Any:
    """Return ``||theta - phi||^2`` of new clients, (trials, sizes, clients)."""
    return squared_error(result.problem, result.new_clients(sizes, clients=clients))


def run_cell(cell: Cell) -> dict[str, Any]:
    """Tune the step on separate trials, run the trials that count, and let new clients join."""
    c = cell.config
    problem, data, seed = problem_of(cell), lf.FixedSamples(c.n_samples), c.seed
    found: dict[str, Any] = {}
    step, rounds = np.nan, 1
    if cell.method not in UNTUNED:
        rounds = c.rounds
        steps: list[Any] = [method(cell, step) for step in c.step_sizes]
        tuning = tuned(
            method(cell),
            problem,
            grid=[{"step_size": algorithm.step_size} for algorithm in steps],
            data=data,
            rounds=rounds,
            metric=lambda result: np.median(squared_errors(result, [c.dim], c.new_clients)[:, 0], axis=-1),
            score="final",
            quantile=0.9,
            participation=c.participation,
            trials=c.tuning_trials,
            seed=seed,
        )
        step = c.step_sizes[tuning.best]
        found |= tuning_arrays(tuning)
    result = lf.simulate(
        method(cell, step),
        problem,
        data=data,
        rounds=rounds,
        participation=c.participation,
        trials=c.trials,
        seed=seed,
        metrics=[],
    )
    found |= {"step_size": np.array(step), "errors": squared_errors(result, c.n_new, c.new_clients)}
    if result.final.B is not None:
        found["outside"] = outside(cell, result, seed)
        B_star = problem.truth(seed, range(c.trials)).B
        assert B_star is not None
        found["distance"] = lf.subspace_distance(result.final.B, B_star)
    return found


def outside(cell: Cell, result: lf.Result, seed: int) -> Any:
    """Return the length of the part of each new client's regressor outside the learned subspace, (trials, clients)."""
    c, problem = cell.config, problem_of(cell)
    trials = range(c.trials)
    Phi = problem.new_clients(problem.truth(seed, trials), c.new_clients, seed, trials).dense()
    Q = np.linalg.qr(result.final.B)[0]
    return np.linalg.norm(Phi - Phi @ Q @ np.swapaxes(Q, -1, -2), axis=-1)


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return the errors of new clients, the tuning, statistics per trial and predicted quantiles as tidy tables."""
    parts: dict[str, list[Table]] = {name: [] for name in ("clients", "summary", "tuning", "predicted")}
    trials, sizes = {"trial": np.arange(config.trials)}, {"n_new": np.array(config.n_new)}
    for cell, found in zip(cells(config), results, strict=True):
        keys = {"preset": cell.preset, "method": cell.method}
        errors = found["errors"]
        client = {"client": np.arange(errors.shape[-1])}
        parts["clients"].append(tidy(keys, {**trials, **sizes, **client}, {"squared_error": errors}))
        length = _length(cell)
        parts["summary"].append(
            tidy(
                {**keys, "step_size": float(found["step_size"])},
                {**trials, **sizes},
                {
                    "median": np.median(errors, axis=-1),
                    "unexplained": np.median(errors, axis=-1) / length,
                    "distance": found["distance"][:, None] if "distance" in found else np.full((1, 1), np.nan),
                    "diverged": np.isnan(errors[:, :, 0]),
                },
            )
        )
        if "scores" in found:
            parts["tuning"].append(tuning_rows(keys, config.step_sizes, found))
        parts["predicted"].append(_predicted(cell, found))
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def _length(cell: Cell) -> float:
    """Return ``||phi||^2`` of every client."""
    return float(cell.config.rank) if cell.preset == "paper" else 1.0


def _predicted(cell: Cell, found: dict[str, Any]) -> Table:
    """Return quantiles of the error that follow from the distance of B alone, at counts of at least its rank."""
    c, problem = cell.config, problem_of(cell)
    rank = c.dim if cell.method == "LocalOnly" else c.rank
    lengths = found.get("outside", np.zeros(1))
    lengths = lengths[np.isfinite(found["errors"][:, 0, 0])] if "outside" in found else lengths
    # With x of variance v the error is that of standard x with the noise divided by sqrt(v).
    noise = problem.noise_std / np.sqrt(x_variance(problem))
    sizes = [m for m in c.n_new if m >= rank]
    levels = (0.1, 0.5, 0.9)
    values = [
        [2 * lf.theory.new_client_excess_quantile(q, lengths, noise_std=noise, rank=rank, n_samples=m) for q in levels]
        for m in sizes
    ]
    keys = {"preset": cell.preset, "method": cell.method}
    return tidy(keys, {"n_new": sizes, "quantile": levels}, {"squared_error": np.array(values)})


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the paper's reading, the notebook's, and the tuning."""
    return {
        "": _errors_figure(tables, "paper"),
        "notebook": _errors_figure(tables, "notebook"),
        "tuning": _tuning_figure(tables),
    }


def _errors_figure(tables: Tables, preset: str) -> Figure:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    from linfed.figures import style as plotting

    half = 0.5 if preset == "notebook" else 1.0
    table = select(tables["clients"], preset=preset)
    sizes = np.unique(table["n_new"])
    with plotting.style():
        figure, ax = plt.subplots(figsize=(plotting.COLUMN_WIDTH, 3.0), layout="constrained")
        for name in METHODS[preset]:
            chosen = select(table, method=name)
            trials = len(np.unique(chosen["trial"]))
            values = chosen["squared_error"].reshape(trials, len(sizes), -1).swapaxes(1, 2).reshape(-1, len(sizes))
            plotting.draw_curve(sizes, half * values, ax=ax, label=label(name), ylabel="", method=name)
            predicted = select(tables["predicted"], preset=preset, method=name, quantile=0.5)
            first = name == METHODS[preset][0]
            ax.plot(
                predicted["n_new"],
                half * predicted["squared_error"],
                linestyle="none",
                marker="_",
                markersize=9,
                color="black",
                label="median in theory" if first else "_theory",
            )
        ax.set(xscale="log", xlabel="samples of the new client")
        ax.set_xticks(sizes, [str(size) for size in sizes])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_ylabel("half the squared error" if half < 1 else "squared error of a new client")
        handles, labels = ax.get_legend_handles_labels()
        order = [*(i for i, text in enumerate(labels) if text != "median in theory"), labels.index("median in theory")]
        figure.legend(
            [handles[i] for i in order],
            [labels[i] for i in order],
            loc="outside upper center",
            ncols=2,
            title=f"median and 10-90 % of {len(values):,} new clients",
        )
    return figure


def _tuning_figure(tables: Tables) -> Figure:
    curves = {
        preset: {name: select(tables["tuning"], preset=preset, method=name) for name in METHODS[preset]}
        for preset in PRESETS
    }
    ylabel = "squared error of the median\nnew client with d samples"
    return tuning_figure(curves, height=2.4, xlabel="step size (the paper's normalisation)", ylabel=ylabel)


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return what the paper says of Figure 4, judged on its reading (preset ``paper``) and on the notebook's."""
    return by_sentence(claim for preset in PRESETS for claim in _claims(tables, preset))


def _claims(tables: Tables, preset: str) -> list[Finding]:
    summary = select(tables["summary"], preset=preset)
    sizes = [int(size) for size in np.unique(summary["n_new"])]

    def shares(name: str, size: int) -> Any:
        return np.nan_to_num(select(summary, method=name, n_new=size)["unexplained"], nan=HUGE)  # diverged: the worst

    out = []
    rank, dim = Config.rank, Config.dim
    for size in sizes:
        if size >= rank:
            text = "FedRep's error on a new client is small once m_new >= k"
            where = f"{preset}: m_new = {size}"
            out.append(
                _judged(shares("FedRep", size), False, text, where, NEW_ACCURATE, _note(tables, preset, "FedRep"))
            )
    for name in ("FedAvg", *(name for name in METHODS[preset] if name in (MANY, "FedPer"))):
        for size in sizes:
            text, where = f"{label(name)}'s error on a new client stays high", f"{preset}: m_new = {size}"
            out.append(_judged(shares(name, size), True, text, where, NEW_FEDAVG, _note(tables, preset, name)))
    for size in sizes:
        where = f"{preset}: m_new = {size}"
        told = "not small below m_new = d" if size < dim else "small from m_new = d on"
        out.append(
            _judged(shares("LocalOnly", size), size < dim, f"Local only's error is {told}", where, NEW_LOCAL, "")
        )
    for rival in ("FedAvg", "LocalOnly"):
        for size in sizes:
            if size >= rank:
                out.append(
                    smaller(
                        shares("FedRep", size),
                        shares(rival, size),
                        source=NEW_ACCURATE if rival == "FedAvg" else NEW_LOCAL,
                        text=f"A new client does better with FedRep's representation than with {label(rival)}",
                        where=f"{preset}: m_new = {size}",
                        statistic="share of paired trials in which the median new client's error is smaller",
                    )
                )
    return out


def _judged(shares: Any, high: bool, text: str, where: str, source: str, note: str) -> Finding:
    """Judge that the error is a good part of ||phi||^2 (`high`), or a small one."""
    return judge(
        median_interval(shares),
        text=text,
        where=where,
        statistic="median client's squared error over ||phi||^2, median over trials",
        source=source,
        least=SMALL if high else -np.inf,
        most=np.inf if high else SMALL,
        note=note,
    )


def _note(tables: Tables, preset: str, name: str) -> str:
    """Return what a reader should know of a method's run: diverged trials, a step at the edge of the grid."""
    summary = select(tables["summary"], preset=preset, n_new=tables["summary"]["n_new"].min())
    return tuning_note(summary, select(tables["tuning"], preset=preset), [name])
