"""The shortcut draft: whether its Algorithm 1 and its closed form (2)-(5) learn B, and what a ridge changes.

The draft has no experiments, so the setting is chosen here: d = 20 and k = 2 as in the FedRep paper's Figure 1, n = 50
clients (more than d, so that the shortcuts have full rank), m on both sides of d, heads of length sqrt(2), shortcuts of
root mean square length 0.5, full participation. B starts at a random subspace in every method. One data set per client
(``fixed``); for one m, with noise, also new samples in every round (``fresh``).

Methods: Algorithm 1 as drafted (one step size for head, shortcut and B), the same with a step of its own for the
shortcut, of at most 0.03; (2)-(5), whose order is jacobi, and its gauss-seidel form; the joint minimiser
with a ridge on the shortcut; FedRep, which ignores the shortcuts; Local only. The joint method is refitted without the
ridge at the end, and measured before and after. Step sizes and the ridge are tuned on separate trials over one grid,
for the least parameter error after the last round (before the refit) in nine of ten trials; the joint method's step is
the grid's times (1 + ridge) / ridge, as the ridge slows B by that factor. (2)-(5) alternates between two states
(docs/shortcut.md): only even rounds are recorded.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.figures.style import label
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, by_sentence, judge, share, smaller
from linfed.statistics.intervals import bootstrap_interval, quantiles
from linfed.study.run import Table, Tables, rows, select, tidy

from ._shared import HUGE, panels, tuned
from ._shortcut import DIM, LEARNED, problem_of, run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "Shortcut draft: Algorithm 1, (2)-(5) and a joint ridge against FedRep and Local only, m on both sides of d"

DRAFTED, SMALL, JACOBI, SEIDEL, JOINT = (
    "Algorithm 1",
    "Algorithm 1, small",
    "(2)-(5)",
    "(2)-(5), gauss-seidel",
    "joint ridge",
)
METHODS = (DRAFTED, SMALL, JACOBI, SEIDEL, JOINT, "FedRep", "LocalOnly")
CHOSEN = ("step_size", "shortcut_step_size", "ridge")
ANY_STEP = 1.0
"""Step of the gauss-seidel form, which never moves B."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """All sizes are chosen here: the draft names none."""

    n_samples: tuple[int, ...] = (10, 40, 100)
    fresh: tuple[int, ...] = (40,)
    noise_std: tuple[float, ...] = (0.0, 0.1)
    shortcut_norm: float = 0.5
    rounds: int = 150
    trials: int = 50
    seed: int = 0
    step_sizes: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    shortcut_step_sizes: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    ridges: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    tuning_trials: int = 10
    record_every: int = 6

    def quick(self) -> Config:
        """Return fewer trials, rounds, settings."""
        return replace(
            self,
            trials=6,
            tuning_trials=2,
            rounds=40,
            n_samples=(10, 100),
            fresh=(),
            step_sizes=(0.1, 0.3),
            shortcut_step_sizes=(0.003, 0.01),
            ridges=(0.1, 0.3),
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on one kind of data."""

    data: str
    n_samples: int
    noise_std: float
    method: str
    config: Config


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    alone = replace(config, n_samples=(), fresh=(), noise_std=())
    found = [
        Cell(data=data, n_samples=m, noise_std=noise, method=method, config=alone)
        for data, sizes in (("fixed", config.n_samples), ("fresh", config.fresh))
        for m in sizes
        for noise in config.noise_std
        for method in METHODS
        if data == "fixed" or noise > 0
    ]
    cost = {JOINT: 9, SMALL: 4, JACOBI: 3, SEIDEL: 2}
    return sorted(found, key=lambda cell: (cost.get(cell.method, 1), cell.data, cell.n_samples), reverse=True)


def settings(cell: Cell) -> list[dict[str, float]]:
    """Return a method's settings, with the step of the grid; nothing where there is none to tune."""
    c = cell.config
    steps = [{"step_size": step} for step in c.step_sizes]
    if cell.method == SMALL:
        return [{**step, "shortcut_step_size": size} for step in steps for size in c.shortcut_step_sizes]
    if cell.method == JOINT:
        return [{**step, "ridge": ridge} for step in steps for ridge in c.ridges]
    return steps if cell.method in (DRAFTED, JACOBI, "FedRep") else []


def taken(setting: dict[str, float]) -> dict[str, float]:
    """Return a setting as the algorithm takes it."""
    slow = setting["ridge"] / (1.0 + setting["ridge"]) if "ridge" in setting else 1.0
    return {**setting, "step_size": setting["step_size"] / slow}


def method(cell: Cell) -> lf.Algorithm:
    """Return the method of a cell, at hyper-parameters that tuning replaces."""
    if cell.method == "LocalOnly":
        return lf.LocalOnly()
    if cell.method == "FedRep":
        return lf.FedRep(rank=2, step_size=ANY_STEP, init="random")
    plain = lf.FedRepShortcut(rank=2, step_size=ANY_STEP, init="random")
    if cell.method in (DRAFTED, SMALL):
        return plain
    closed = replace(plain, solver="closed-form")
    if cell.method == JOINT:
        return replace(closed, order="joint", ridge=1.0)
    return replace(closed, order="jacobi" if cell.method == JACOBI else "gauss-seidel")


def run_cell(cell: Cell) -> dict[str, Any]:
    """Tune on separate trials, then run the trials that count."""
    c = cell.config
    problem, seed = problem_of(c.shortcut_norm, noise_std=cell.noise_std), (c.seed, cell.n_samples)
    data = (lf.FixedSamples if cell.data == "fixed" else lf.FreshSamples)(cell.n_samples)
    algorithm: Any = method(cell)
    grid, chosen = settings(cell), dict.fromkeys(CHOSEN, np.nan)
    found: dict[str, Any] = {}
    if grid:
        tuning = tuned(
            algorithm,
            problem,
            grid=[taken(setting) for setting in grid],
            data=data,
            rounds=c.rounds,
            metric="parameter_error",
            score="final",
            quantile=0.9,
            trials=c.tuning_trials,
            seed=seed,
            record_every=c.rounds,
        )
        algorithm = tuning.algorithm
        columns = {name: np.array([setting.get(name, np.nan) for setting in grid]) for name in chosen}
        found = {"scores": tuning.scores, "best": np.array(tuning.best)}
        found |= {f"tried_{name}": values for name, values in columns.items()}
        chosen = {name: float(values[tuning.best]) for name, values in columns.items()}
        ends = {name: (values.min(), values.max()) for name, values in columns.items()}
        found |= {f"edge_{name}": np.array(chosen[name] in ends[name]) for name in chosen}
    if cell.method == JOINT:
        algorithm = replace(algorithm, refit=True)
    if cell.method == SEIDEL:
        chosen["step_size"] = ANY_STEP
    rounds = c.rounds if cell.method != "LocalOnly" or cell.data == "fresh" else 1
    measured = run(
        algorithm,
        problem,
        data=data,
        rounds=rounds,
        trials=c.trials,
        seed=seed,
        record_every=c.record_every,
    )
    return found | measured | {f"chosen_{name}": np.array(value) for name, value in chosen.items()}


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return curves, final values and tuning as tidy tables."""
    parts: dict[str, list[Table]] = {name: [] for name in ("curves", "summary", "tuning")}
    trials: dict[str, Any] = {"trial": np.arange(config.trials)}
    for cell, found in zip(cells(config), results, strict=True):
        keys: dict[str, Any] = {"data": cell.data, "n_samples": cell.n_samples, "noise_std": cell.noise_std}
        keys["method"] = np.array(cell.method, dtype="U24")
        names = ("dist", "error", "shortcut_error")
        parts["curves"].append(tidy(keys, {**trials, "round": found["rounds"]}, {name: found[name] for name in names}))
        last = -2 if cell.method == JOINT else -1  # before the refit
        final = {name: found[name][:, last] for name in names}
        final["start"] = found["dist"][:, 0]
        final["refitted_error"] = found["error"][:, -1] if cell.method == JOINT else np.full(config.trials, np.nan)
        final["refitted_shortcut_error"] = (
            found["shortcut_error"][:, -1] if cell.method == JOINT else np.full(config.trials, np.nan)
        )
        final["diverged"] = np.isnan(found["error"][:, -1])
        chosen = {name: float(found[f"chosen_{name}"]) for name in CHOSEN}
        parts["summary"].append(tidy({**keys, **chosen}, trials, final))
        if "scores" in found:
            count = len(found["scores"])
            picked = np.arange(count) == int(found["best"])
            edge = {f"{name}_at_edge": picked & bool(found[f"edge_{name}"]) for name in CHOSEN}
            tried = {name: found[f"tried_{name}"] for name in CHOSEN}
            parts["tuning"].append(
                tidy(keys, {"setting": np.arange(count)}, {**tried, "score": found["scores"], "chosen": picked, **edge})
            )
    out = {name: np.concatenate(found) for name, found in parts.items()}
    out["settings"] = _settings_table(out["summary"])
    return out


def _settings_table(summary: Table) -> Table:
    """Return a row for each method and setting: what was chosen, and the medians it ended at."""
    keys = ("data", "n_samples", "noise_std", "method", *CHOSEN)
    records = []
    for data in np.unique(summary["data"]):
        for m in np.unique(select(summary, data=data)["n_samples"]):
            for noise in np.unique(summary["noise_std"]):
                for name in METHODS:
                    part = select(summary, data=data, n_samples=m, noise_std=noise, method=name)
                    if not len(part):
                        continue
                    values = [float(np.median(part[column])) for column in ("dist", "error", "refitted_error")]
                    records.append((*(part[key][0] for key in keys), *values))
    types = [(key, summary.dtype[key]) for key in keys]
    return rows([*types, ("dist", float), ("error", float), ("refitted_error", float)], records)


# --- figures -------------------------------------------------------------------------------------------------

LOOKS = {
    DRAFTED: ("#D55E00", "D", "-."),
    SMALL: ("#E69F00", "s", "-"),
    JACOBI: ("#C1272D", "*", "-"),
    SEIDEL: ("#CC79A7", "^", ":"),
    JOINT: ("#009E73", "P", "-"),
}
NAMES = {
    DRAFTED: "Alg. 1, one step size",
    SMALL: "Alg. 1, small shortcut steps",
    JACOBI: "(2)-(5)",
    SEIDEL: "(2)-(5), gauss-seidel",
    JOINT: "joint ridge",
}


def plot(tables: Tables) -> dict[str, Figure]:
    """Return dist and errors against rounds with noise, without, on fresh data, and the tuning."""
    curves = tables["curves"]
    noises = [float(value) for value in np.unique(curves["noise_std"])]
    found = {"": _curves_figure(select(curves, data="fixed", noise_std=noises[-1]))}
    if len(noises) > 1:
        found["noiseless"] = _curves_figure(select(curves, data="fixed", noise_std=noises[0]))
    if (curves["data"] == "fresh").any():
        found["fresh"] = _fresh_figure(select(curves, data="fresh"))
    found["tuning"] = _tuning_figure(select(tables["tuning"], data="fixed", noise_std=noises[-1]))
    return found


def _draw(ax: Any, part: Table, column: str, *, floor: float = 0.0) -> None:
    """Draw a column of all methods against rounds."""
    last = int(select(part, method="FedRep")["round"].max())
    trials = len(np.unique(part["trial"]))
    for turn, name in enumerate(METHODS):
        chosen = select(part, method=name)
        values = chosen[column].reshape(trials, -1)
        at = chosen["round"].reshape(trials, -1)[0]
        colour, marker, line = LOOKS.get(name) or _look(name)
        shape: dict[str, Any] = {"color": colour, "linestyle": line, "label": NAMES.get(name, label(name))}
        if np.isnan(values).all():
            continue
        if name == "LocalOnly" and at[-1] < last:  # one round says all
            at, values = np.array([0, last]), np.repeat(values[:, -1:], 2, axis=1)
        refit = values[:, -1] if at[-1] > last else None
        kept = at <= last
        middle, low, high = quantiles(np.maximum(values[:, kept], floor))
        shown = np.isfinite(middle)
        places = slice(turn % 6, None, 6) if shown.sum() > 2 else slice(0)
        ax.plot(at[kept][shown], middle[shown], marker=marker, markevery=places, **shape)
        band = np.isfinite(high)
        ax.fill_between(at[kept][band], low[band], high[band], color=colour, alpha=0.15, linewidth=0)
        if refit is not None:
            ax.plot(
                last * 1.05,
                max(float(quantiles(refit)[0]), floor),
                color=colour,
                marker="o",
                fillstyle="none",
                linestyle="none",
                markersize=5,
                clip_on=False,
                label="joint ridge, refitted",
            )


def _look(name: str) -> tuple[Any, Any, Any]:
    from linfed.figures import style as plotting

    return plotting.LOOKS[name]


ROWS = (
    ("dist", "dist$(B, B^*)$"),
    ("error", "parameter error"),
    ("shortcut_error", "$\\Vert S - S^*\\Vert_F$"),
)
DIST_LIMITS = (0.04, 1.3)
FLOOR = 1e-3
"""Errors below are drawn here: without noise some methods are exact."""


def _curves_figure(part: Table) -> Figure:
    sizes = [int(m) for m in np.unique(part["n_samples"])]
    figure, axes = panels([f"m = {m}" for m in sizes], 5.6, rows=3, sharex=True, sharey="row")
    trials, noise = len(np.unique(part["trial"])), float(part["noise_std"][0])
    for column, m in enumerate(sizes):
        for row, (name, _) in enumerate(ROWS):
            _draw(axes[row, column], select(part, n_samples=m), name, floor=FLOOR)
    _finish(axes)
    title = f"fixed data, noise std {noise:g}; median and 10-90 % of {trials} trials"
    if noise == 0:
        title += f"; errors below {FLOOR:g} are drawn there"
    _legend(figure, axes, title)
    return figure


def _number_all(ax: Any) -> None:
    """Write 0.2, 0.5, 2, 5 beside the powers of ten of a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    ax.yaxis.set_minor_locator(LogLocator(subs=(0.2, 0.5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _finish(axes: Any) -> None:
    """Set the scales and labels of a figure with a row for each quantity."""
    for row, (name, text) in enumerate(ROWS):
        axes[row, 0].set_ylabel(text)
        for ax in axes[row]:
            ax.set_yscale("log")
        if name != "error":
            _number_all(axes[row, 0])
        if name == "dist":
            axes[row, 0].set_ylim(*DIST_LIMITS)
            for ax in axes[row]:
                ax.axhline(LEARNED, color="0.35", linewidth=0.7, linestyle=(0, (4, 2)), zorder=1.5)
    for ax in axes[-1]:
        ax.set_xlabel("round")


def _legend(figure: Figure, axes: Any, title: str) -> None:
    """Put the legend of all axes above the figure, in two lines."""
    found = [ax.get_legend_handles_labels() for ax in axes.ravel()]
    handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, title=title)


def _fresh_figure(part: Table) -> Figure:
    """Draw the three quantities side by side."""
    m, noise, trials = int(part["n_samples"][0]), float(part["noise_std"][0]), len(np.unique(part["trial"]))
    part = select(part, n_samples=m, noise_std=noise)
    figure, axes = panels([text for _, text in ROWS], 2.6)
    for ax, (name, _) in zip(axes[0], ROWS, strict=True):
        _draw(ax, part, name, floor=FLOOR)
        ax.set(yscale="log", xlabel="round")
        _number_all(ax)
    axes[0, 0].set_ylim(*DIST_LIMITS)
    axes[0, 0].axhline(LEARNED, color="0.35", linewidth=0.7, linestyle=(0, (4, 2)), zorder=1.5)
    _legend(
        figure, axes, f"m = {m}, new samples each round, noise std {noise:g}; median and 10-90 % of {trials} trials"
    )
    return figure


def _tuning_figure(tuning: Table) -> Figure:
    """Draw the score against the step on B, at the best of the other parameters."""
    from linfed.figures import style as plotting

    sizes = [int(m) for m in np.unique(tuning["n_samples"])]
    figure, axes = panels([f"m = {m}" for m in sizes], 2.4, sharey=True)
    with plotting.style():
        for ax, m in zip(axes[0], sizes, strict=True):
            for name in METHODS:
                part = select(tuning, n_samples=m, method=name)
                if not len(part):
                    continue
                steps = np.unique(part["step_size"])
                scores = np.array([select(part, step_size=step)["score"].min() for step in steps])
                fine = np.isfinite(scores)
                colour, marker, line = LOOKS.get(name) or _look(name)
                ax.plot(
                    steps[fine],
                    scores[fine],
                    color=colour,
                    marker=marker,
                    linestyle=line,
                    label=NAMES.get(name, label(name)),
                )
                best = part[part["chosen"]]
                ax.plot(best["step_size"], best["score"], "o", color=colour, markersize=8, fillstyle="none")
            ax.set(xscale="log", yscale="log", xlabel="step size $\\eta$")
        axes[0, 0].set_ylabel("final parameter error")
        title = "at the best of the other parameters; 90 % of the tuning trials lie below; circled: chosen\n"
        title += "(joint ridge: the step is $\\eta$ times (1 + ridge) / ridge)"
        _legend(figure, axes, title)
    return figure


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return which methods learn B, whose errors are below whose, and what the refit does."""
    summary = tables["summary"]
    return by_sentence(
        [*_learned(summary), *_errors(summary, tables["tuning"]), *_falling(tables["curves"]), *_refit(summary)]
    )


def _where(part: Table) -> str:
    first = part[0]
    kind = ", fresh" if first["data"] == "fresh" else ""
    return f"m = {first['n_samples']}, noise {first['noise_std']:g}{kind}"


def _each(summary: Table) -> list[Table]:
    """Return the rows of each setting."""
    keys = ("data", "n_samples", "noise_std")
    found = np.unique(summary[list(keys)])
    return [select(summary, **dict(zip(keys, values, strict=True))) for values in found.tolist()]


TUNED = "steps and ridge are tuned for the parameter error, not for dist"
FRESH = (
    "on new samples gradient steps average over the rounds; Local only and the closed forms fit the last batch alone"
)


def _note(part: Table) -> str:
    lost = int(part["diverged"].sum())
    return f"{lost} trials of {part['method'][0]} diverged" if lost else ""


def _learned(summary: Table) -> list[Finding]:
    out = []
    for part in _each(summary):
        for name in METHODS[:-1]:
            chosen = select(part, method=name)
            out.append(
                share(
                    chosen["dist"] < LEARNED * chosen["start"],
                    0.5,
                    source=f"the draft's aim; what counts as learned is an {OWN_THRESHOLD}",
                    text=f"{NAMES.get(name, label(name))} learns B",
                    where=_where(part),
                    statistic="share of trials whose dist ends below half its start",
                    note=_note(chosen) or (TUNED if name in (DRAFTED, SMALL, JOINT) else ""),
                )
            )
    return out


def _errors(summary: Table, tuning: Table) -> list[Finding]:
    out = []
    for part in _each(summary):
        for name in (DRAFTED, SMALL, JOINT):
            for rival in ("FedRep", "LocalOnly"):
                first, second = select(part, method=name), select(part, method=rival)
                where = {key: part[key][0] for key in ("data", "n_samples", "noise_std")}
                best = select(tuning, **where, method=name, chosen=True)
                edges = [key for key in CHOSEN if best[f"{key}_at_edge"].any()]
                notes = [_note(first), FRESH if where["data"] == "fresh" else ""]
                if edges:
                    notes.append(f"{NAMES[name]}: chosen at the edge of its grid: {', '.join(edges)}")
                out.append(
                    smaller(
                        np.nan_to_num(first["error"], nan=HUGE),
                        np.nan_to_num(second["error"], nan=HUGE),
                        text=f"{NAMES[name]} has a smaller parameter error than {label(rival)}",
                        where=_where(part),
                        source="the draft's aim",
                        statistic="share of paired trials in which the final error is smaller",
                        note="; ".join(note for note in notes if note),
                    )
                )
    return out


def _falling(curves: Table) -> list[Finding]:
    """Judge whether the error goes on falling: over the second half of the rounds, without noise, m >= d."""
    out = []
    for part in _each(curves[(curves["noise_std"] == 0) & (curves["n_samples"] >= DIM)]):
        chosen = select(part, method=SMALL)
        trials = len(np.unique(chosen["trial"]))
        values = chosen["error"].reshape(trials, -1)
        ratio = values[:, -1] / values[:, values.shape[1] // 2]
        falls = -np.log10(np.nan_to_num(ratio, nan=HUGE))
        out.append(
            judge(
                (float(np.median(falls)), *bootstrap_interval(np.median, (falls,))),
                text="Without noise the parameter error of Alg. 1, small shortcut steps, goes on falling",
                where=_where(part),
                statistic="factors of ten gained over the second half of the rounds, median",
                source=OWN_THRESHOLD,
                least=0.1,
            )
        )
    return out


def _refit(summary: Table) -> list[Finding]:
    out = []
    for part in _each(summary):
        chosen = select(part, method=JOINT)
        local = select(part, method="LocalOnly")["error"]
        gap = float(np.max(np.abs(chosen["refitted_error"] - local) / np.maximum(local, 1e-12)))
        m, noise = int(part["n_samples"][0]), float(part["noise_std"][0])
        fixed = part["data"][0] == "fixed"
        same = fixed and m >= DIM and (gap < 1e-6 or noise == 0)
        note = "m >= d: the refitted predictor is Local only's, whatever B" if same else ""
        out.append(
            smaller(
                chosen["refitted_error"],
                chosen["error"],
                text="The refit lowers the parameter error of the joint ridge",
                where=_where(part),
                statistic="share of trials in which it is smaller after the refit",
                source=OWN_PREDICTION,
                note=note,
            )
        )
    return out
