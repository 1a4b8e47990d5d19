"""FedRep paper, Figure 1: the error of every client under Local only, FedAvg and FedRep, for three sample counts.

The setting: d = 20, k = 2, n = 100, m in {5, 10, 20}, fixed local data, full participation, 500 rounds,
noise variance 1e-3. FedAvg trains the two-layer model, one head for all clients, with one local step a round. Step
sizes are not in the paper: they are tuned per method and m on separate trials over one grid, for the least mean client
error after the last round (in nine of ten trials). B starts at a random subspace in every method.

Beside the paper's three methods: the oracle (exact heads on B*), FedAvg + FT (ten head-only epochs at the end), and
FedAvg on the one-layer model with 1 and 10 local steps, whose fixed points are known in closed form (at the step of
the grid that theory says gets there fastest, in the worst of separate trials). Of steps that tie within 1 % every
method takes the smallest (`lf.tune`).

The ``notebook`` preset follows the authors' published linear notebook where it differs from the paper
(`experiments._fedrep`); its "FedAvg" keeps a local head, which is FedPer, and its error carries the factor 1/2.

Errors are ``||theta_i - phi_i||^2``: in the paper's reading the MSE on new samples less the noise variance.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 1 and Figure 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.figures.style import label
from linfed.statistics.findings import Finding, by_sentence, judge, smaller
from linfed.statistics.intervals import bootstrap_interval, clustered_share, quantiles
from linfed.study.run import Table, Tables, select, tidy
from linfed.study.choice import at_edge, smallest, within

from ._fedrep import (
    FEDAVG_CANNOT,
    FEDREP_SMALL,
    LOCAL_SUFFERS,
    PRESETS,
    UNTUNED,
    method_of,
    problem_of,
    squared_error,
)
from ._shared import (
    HUGE,
    legend,
    panels,
    tuned,
    tuning_arrays,
    tuning_figure,
    tuning_note,
    tuning_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "FedRep paper, Figure 1: each client's error under Local only, FedAvg and FedRep, m = 5, 10, 20"

ONE_LAYER = {"FedAvg, one layer": 1, "FedAvg, one layer, K = 10": 10}
METHODS = {
    "paper": ("FedRep", "FedAvg", "FedAvg + FT", *ONE_LAYER, "LocalOnly", "Oracle"),
    "notebook": ("FedRep", "FedAvg", "FedPer", "LocalOnly", "Oracle"),
}
DRAWN = {
    "paper": ("LocalOnly", "FedAvg", "FedAvg + FT", "FedRep", "Oracle"),
    "notebook": ("LocalOnly", "FedAvg", "FedPer", "FedRep", "Oracle"),
}
RECORD_EVERY = 5


@dataclass(frozen=True, kw_only=True)
class Config:
    """The paper's sizes; what it leaves open is chosen here."""

    n_clients: int = 100
    dim: int = 20
    rank: int = 2
    n_samples: tuple[int, ...] = (5, 10, 20)
    noise_variance: float = 1e-3
    rounds: int = 500
    trials: int = 50
    seed: int = 0
    step_sizes: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4)
    tuning_trials: int = 30  # of ten the worst does not show what one run in ten does

    def quick(self) -> Config:
        """Return fewer trials, rounds and steps."""
        return replace(self, trials=10, tuning_trials=4, rounds=100, step_sizes=self.step_sizes[2:-1:2])


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method at one sample count, under one reading of the paper."""

    preset: str
    n_samples: int
    method: str
    config: Config


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    alone = replace(config, n_samples=())  # a cell depends on its own m alone
    found = [
        Cell(preset=preset, n_samples=m, method=method, config=alone)
        for preset in PRESETS
        for m in config.n_samples
        for method in METHODS[preset]
    ]
    return sorted(found, key=lambda cell: (ONE_LAYER.get(cell.method, 1), cell.n_samples), reverse=True)


def method(cell: Cell, step: float = 1.0) -> lf.Algorithm:
    """Return the method of a cell at a step size given in the paper's normalisation."""
    if cell.method in ONE_LAYER:
        return lf.FedAvg(step_size=step, local_steps=ONE_LAYER[cell.method])
    return method_of(cell, step, fine_tune="gradient" if cell.method.endswith("FT") else "none")


def run_cell(cell: Cell) -> dict[str, Any]:
    """Tune the step on separate trials, then run the trials that count."""
    c = cell.config
    problem, data, seed = problem_of(cell), lf.FixedSamples(cell.n_samples), (c.seed, cell.n_samples)
    found = tried(cell, problem, data, seed)
    step = c.step_sizes[int(found["best"])] if found else np.nan
    rounds = c.rounds if found else 1
    result = lf.simulate(
        method(cell, step),
        problem,
        data=data,
        rounds=rounds,
        trials=c.trials,
        seed=seed,
        metrics=["risk"],
        record_every=RECORD_EVERY,
    )

    floor = lf.theory.single_model_floor(problem.truth(seed, range(c.trials)))
    found |= {
        "step_size": np.array(step),
        "rounds": result.rounds,
        "curve": squared_error(problem, result.metrics["risk"]),
        "clients": squared_error(problem, result.client_risks()),
        "floor": squared_error(problem, floor),
    }
    if cell.method in ONE_LAYER:
        found |= fixed_point(cell, step, seed)
    return found


def tried(cell: Cell, problem: lf.SharedRepresentation, data: lf.FixedSamples, seed: tuple[int, int]) -> dict[str, Any]:
    """Return the score of each step on separate trials, and the best; nothing for a method without a step.

    One-layer FedAvg is here for its fixed point: its score is the number of rounds that theory says it takes to come
    nearer by a factor e, in the worst of many trials.
    """
    c = cell.config
    if cell.method in UNTUNED:
        return {}
    if cell.method in ONE_LAYER:
        A, _ = data.draw(problem, trials=2 * c.trials, seed=(*seed, 1)).normal_equations()
        worst = np.array([rates(A, cell.method, step).max() for step in c.step_sizes])
        scores = np.array([-1.0 / np.log(rate) if rate < 1 else np.inf for rate in worst])
        settings = [{"step_size": step} for step in c.step_sizes]
        best = smallest(settings, within(scores))
        return {"scores": scores, "best": np.array(best), "at_edge": np.array(bool(at_edge(settings, [best])))}
    algorithms: list[Any] = [method(cell, step) for step in c.step_sizes]
    tuning = tuned(
        algorithms[0],
        problem,
        grid=[{"step_size": algorithm.step_size} for algorithm in algorithms],
        data=data,
        rounds=c.rounds,
        metric="mean_client_error",
        score="final",
        quantile=0.9,
        trials=c.tuning_trials,
        seed=seed,
        record_every=c.rounds,
    )
    return tuning_arrays(tuning)


def rates(A: Any, name: str, step: float) -> Any:
    """Return the spectral radius of one-layer FedAvg's iteration matrix, (trials,)."""
    matrix = lf.theory.fedavg_iteration_matrix(A, step_size=step, local_steps=ONE_LAYER[name])
    return np.abs(np.linalg.eigvalsh(matrix)).max(axis=-1)


def fixed_point(cell: Cell, step: float, seed: tuple[int, int]) -> dict[str, Any]:
    """Return the predicted fixed point of one-layer FedAvg: its error, its rate, and the measured way to it."""
    c, problem = cell.config, problem_of(cell)
    samples = lf.FixedSamples(cell.n_samples).draw(problem, trials=c.trials, seed=seed)
    A, b = samples.normal_equations()
    # A trial whose iteration diverges shows it in its rate, in the table.
    point = lf.theory.fedavg_fixed_point(A, b, step_size=step, local_steps=ONE_LAYER[cell.method], stable=False)
    Phi = problem.truth(seed, range(c.trials)).dense()
    # The distance from the fixed point, by a run whose "truth" it is.
    there = lf.GivenTruth(Phi=np.broadcast_to(point[:, None], Phi.shape))
    run = lf.simulate(
        method(cell, step),
        there,
        data=samples,
        rounds=c.rounds,
        trials=c.trials,
        metrics=["mean_client_error"],
        record_every=RECORD_EVERY,
    )
    difference = point[:, None] - Phi
    return {
        "point_error": np.vecdot(difference, difference).mean(axis=-1),
        "point_distance": run.metrics["mean_client_error"] / np.linalg.norm(point, axis=-1)[:, None],
        "rate": rates(A, cell.method, step),
    }


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return errors per client, curves, tuning and theory as tidy tables."""
    parts: dict[str, list[Table]] = {name: [] for name in ("clients", "curves", "summary", "tuning", "theory")}
    trials = {"trial": np.arange(config.trials)}
    for cell, found in zip(cells(config), results, strict=True):
        keys = {"preset": cell.preset, "n_samples": cell.n_samples, "method": cell.method}
        clients = found["clients"]
        parts["clients"].append(
            tidy(keys, {**trials, "client": np.arange(clients.shape[1])}, {"squared_error": clients})
        )
        parts["curves"].append(tidy(keys, {**trials, "round": found["rounds"]}, {"squared_error": found["curve"]}))
        parts["summary"].append(
            tidy(
                {**keys, "step_size": float(found["step_size"])},
                trials,
                {
                    "mean": clients.mean(axis=1),
                    "median": np.median(clients, axis=1),
                    "single_model_floor": found["floor"],
                    "diverged": np.isnan(clients[:, 0]),
                },
            )
        )
        if "scores" in found:
            parts["tuning"].append(tuning_rows(keys, config.step_sizes, found))
        if "rate" in found:
            parts["theory"].append(
                tidy(
                    {**keys, "step_size": float(found["step_size"])},
                    {**trials, "round": found["rounds"]},
                    {
                        "fixed_point_squared_error": found["point_error"][:, None],
                        "rate": found["rate"][:, None],
                        "distance": found["point_distance"],
                    },
                )
            )
    return {name: np.concatenate(rows) for name, rows in parts.items()}


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the paper's reading, the notebook's, the way there, FedAvg's fixed points, and the tuning."""
    return {
        "": _clients_figure(tables, "paper"),
        "notebook": _clients_figure(tables, "notebook"),
        "rounds": _rounds_figure(tables),
        "fixed-point": _fixed_point_figure(tables),
        "tuning": _tuning_figure(tables),
    }


def _by_trial(table: Table, column: str) -> Any:
    """Return a column as (trials, ..), from a tidy table sorted by trial."""
    return table[column].reshape(len(np.unique(table["trial"])), -1)


def _panels(tables: Tables, height: float, **options: Any) -> tuple[Figure, Any, list[int]]:
    """Return a figure with a column for each m, its axes, and the m."""
    sizes = _sizes(tables["summary"])
    return *panels([f"m = {m}" for m in sizes], height, **options), sizes


def _sizes(table: Table) -> list[int]:
    return [int(m) for m in np.unique(table["n_samples"])]


def _clients_figure(tables: Tables, preset: str) -> Figure:
    from linfed.figures import style as plotting

    half = 0.5 if preset == "notebook" else 1.0
    figure, axes, sizes = _panels(tables, 2.3, sharey=True)
    trials = len(np.unique(tables["summary"]["trial"]))
    with plotting.style():
        for ax, m in zip(axes[0], sizes, strict=True):
            for name in DRAWN[preset]:
                values = np.sort(
                    _by_trial(select(tables["clients"], preset=preset, n_samples=m, method=name), "squared_error")
                )
                share = 100 * (np.arange(values.shape[1]) + 0.5) / values.shape[1]
                plotting.draw_curve(share, half * values, ax=ax, label=label(name), ylabel="", method=name)
            floor = select(tables["summary"], preset=preset, n_samples=m, method="FedAvg")["single_model_floor"]
            plotting.draw_level(ax, half * float(np.median(floor)), label="single-model floor")
            ax.set_xlabel("clients by error (%)")
        axes[0, 0].set_ylabel("half the squared error" if half < 1 else "squared error of a client")
        legend(figure, axes[0], f"median and 10-90 % of {trials} trials")
    return figure


def _rounds_figure(tables: Tables) -> Figure:
    from linfed.figures import style as plotting

    figure, axes, sizes = _panels(tables, 2.3, sharey=True)
    trials = len(np.unique(tables["summary"]["trial"]))
    with plotting.style():
        for ax, m in zip(axes[0], sizes, strict=True):
            for name in ("FedAvg", *ONE_LAYER, "FedRep"):
                chosen = select(tables["curves"], preset="paper", n_samples=m, method=name)
                rounds = _by_trial(chosen, "round")[0]
                values = _by_trial(chosen, "squared_error")
                plotting.draw_curve(rounds, values, ax=ax, label=label(name), ylabel="", method=name)
            summary = select(tables["summary"], preset="paper", n_samples=m)
            first = m == sizes[0]
            plotting.draw_level(
                ax,
                float(np.median(select(summary, method="FedAvg")["single_model_floor"])),
                "single-model floor" if first else "",
            )
            oracle = float(np.median(select(summary, method="Oracle")["mean"]))
            plotting.draw_level(ax, oracle, "oracle" if first else "", below=True)
            ax.set_xlabel("round")
        axes[0, 0].set_ylabel("mean squared error of clients")
        legend(figure, axes[0], f"median and 10-90 % of {trials} trials")
    return figure


def _fixed_point_figure(tables: Tables) -> Figure:
    from linfed.figures import style as plotting

    figure, axes, sizes = _panels(tables, 3.8, rows=2, sharex=True, sharey="row")
    trials = len(np.unique(tables["summary"]["trial"]))
    with plotting.style():
        for column, m in enumerate(sizes):
            upper, lower = axes[:, column]
            for name in ("FedAvg", *ONE_LAYER):
                chosen = select(tables["curves"], preset="paper", n_samples=m, method=name)
                rounds = _by_trial(chosen, "round")[0]
                values = _by_trial(chosen, "squared_error")
                plotting.draw_curve(rounds, values, ax=upper, label=label(name), ylabel="", method=name)
            for name in ONE_LAYER:
                theory = select(tables["theory"], preset="paper", n_samples=m, method=name)
                point = float(np.median(theory["fixed_point_squared_error"]))
                text = "fixed point, K = 10" if ONE_LAYER[name] > 1 else "fixed point, K = 1"
                plotting.draw_level(upper, point, text if m == sizes[0] else "")
                distance = _by_trial(theory, "distance")
                plotting.draw_curve(rounds, distance, ax=lower, label=label(name), ylabel="", method=name)
                rates = _by_trial(theory, "rate")[:, :1]
                fit = np.exp(np.median(rounds * np.log(rates) + np.log(distance[:, :1]), axis=0))
                lower.plot(
                    rounds,
                    np.where((fit > 1e-16) & (fit < 1e16), fit, np.nan),
                    color="black",
                    linewidth=0.6,
                    label="_rate",
                )
            floor = float(
                np.median(select(tables["summary"], preset="paper", n_samples=m, method="FedAvg")["single_model_floor"])
            )
            plotting.draw_level(upper, floor, "single-model floor" if m == sizes[0] else "")
            upper.set_yscale("linear")
            lower.set_xlabel("round")
        axes[0, 0].set_ylabel("mean squared\nerror of clients")
        axes[1, 0].set_ylabel("relative distance from\nthe fixed point")
        legend(figure, axes[0], f"median and 10-90 % of {trials} trials; thin black: the predicted rate")
    return figure


def _tuning_figure(tables: Tables) -> Figure:
    tuning = select(tables["tuning"], preset="paper")
    curves = {
        f"m = {m}": {name: select(tuning, n_samples=m, method=name) for name in ("FedRep", "FedAvg", "FedAvg + FT")}
        for m in _sizes(tables["summary"])
    }
    return tuning_figure(curves, height=2.3, ylabel="final client error", sharey=True)


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return what the paper says of Figure 1, judged on its reading (preset ``paper``) and on the notebook's."""
    return by_sentence(claim for preset in PRESETS for claim in _claims(tables, preset))


def _claims(tables: Tables, preset: str) -> list[Finding]:
    summary = select(tables["summary"], preset=preset)
    sizes = _sizes(summary)

    def errors(name: str, m: int, column: str = "median") -> Any:
        return np.nan_to_num(select(summary, method=name, n_samples=m)[column], nan=HUGE)  # diverged: the worst

    def note(*names: str, m: int) -> str:
        tuning = select(tables["tuning"], preset=preset, n_samples=m)
        lowest_tells = {"FedAvg": "the less it moves from 0, the better"}
        return tuning_note(select(summary, n_samples=m), tuning, names, lowest_tells)

    out = []
    for rival in ("FedAvg", "LocalOnly", *(("FedPer",) if preset == "notebook" else ())):
        for m in sizes:
            out.append(
                smaller(
                    errors("FedRep", m),
                    errors(rival, m),
                    source=FEDREP_SMALL,
                    text=f"FedRep has a smaller error than {label(rival)}",
                    where=f"{preset}: m = {m}",
                    statistic="share of paired trials in which the median client's error is smaller",
                    note=note("FedRep", rival, m=m),
                )
            )
    for m in sizes:
        clients = {
            name: np.nan_to_num(
                _by_trial(select(tables["clients"], preset=preset, n_samples=m, method=name), "squared_error"),
                nan=np.inf,
            )
            for name in ("FedRep", "FedAvg", "LocalOnly")
        }
        best = clients["FedRep"] < np.minimum(clients["FedAvg"], clients["LocalOnly"])
        out.append(
            judge(
                clustered_share(best),
                text="FedRep has the smallest of the three errors, client by client",
                where=f"{preset}: m = {m}",
                statistic="share of the clients for which it has",
                source=FEDREP_SMALL,
                least=0.5,
                strict=True,
                note=note("FedRep", "FedAvg", m=m),
            )
        )
    small, large = sizes[0], sizes[-1]
    variants = {"FedAvg": "best step" if preset == "paper" else ""}
    if preset == "paper":
        variants["FedAvg, one layer"] = "at the fixed point"
    for text, reference in (
        ("FedAvg does not improve with m", 1.0),
        ("FedAvg hardly improves with m: by less than a tenth", 0.9),
    ):
        for name, told in variants.items():
            measured = _ratio(errors(name, large, "mean"), errors(name, small, "mean"))
            out.append(
                judge(
                    measured,
                    text=text,
                    where=f"{preset}: m = {large} against {small}{', ' + told if told else ''}",
                    statistic="median mean-client error at the larger m over that at the smaller",
                    source=FEDAVG_CANNOT + ("; the tenth is our own threshold" if reference < 1 else ""),
                    least=reference,
                    note=note(name, m=small),
                )
            )
    for column, told in (("median", "median"), ("mean", "mean")):
        for before, after in itertools.pairwise(sizes):
            out.append(
                smaller(
                    errors("LocalOnly", after, column),
                    errors("LocalOnly", before, column),
                    source=LOCAL_SUFFERS,
                    text="Local only improves with m",
                    where=f"{preset}: m = {after} against {before}",
                    statistic=f"share of trials in which the {told} client's error is smaller at the larger m",
                    note="at m = d least squares interpolates: single clients with huge errors rule the mean"
                    if column == "mean"
                    else "",
                )
            )
    return out


def _ratio(above: Any, below: Any) -> tuple[float, float, float]:
    """Return the ratio of two medians over paired trials, with its bootstrap interval."""

    def ratio(i: Any) -> float:
        k = i.astype(int)
        return float(quantiles(above[k])[0] / quantiles(below[k])[0])

    trials = np.arange(len(above))
    return (ratio(trials), *bootstrap_interval(ratio, (trials,)))
