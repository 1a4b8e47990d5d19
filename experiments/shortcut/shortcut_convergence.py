"""The shortcut draft: whether its Algorithm 1 and its closed form (2)-(5) learn B, and the effect of a ridge.

The draft has no experiments, so the setting is our choice: d = 20 and k = 2 as in the FedRep paper's Figure 1, m below
and above d, and n = 50 clients (more than d, so that the shortcuts have full rank). Heads have length sqrt(2),
shortcuts have root mean square length 0.5, and all clients take part. B starts at a random subspace in every method.
There is one data set per client (``fixed``); for one m, with noise, also new samples in every round (``fresh``).

The methods:

- Algorithm 1 as drafted (one step size for head, shortcut and B), and with a separate step size for the shortcut, of at
  most 0.03;
- (2)-(5), whose order is jacobi, and its gauss-seidel form;
- the joint minimiser with a ridge on the shortcut, refitted without the ridge at the end and measured before and after;
- FedRep, which ignores the shortcuts, and Local only.

Step sizes and the ridge are tuned on separate trials over one grid, for the smallest 90 % quantile of the parameter
error after the last round (before the refit). The joint method's step size is the grid's times (1 + ridge) / ridge,
because the ridge slows B by that factor. (2)-(5) alternates between two states (docs/shortcut.md): only even rounds are
recorded.

Figures
-------
"" : Subspace distance, parameter error and the shortcuts' error against rounds, on fixed data with noise, for each m.
    Lines: median over trials; shaded: 10-90 %. Circles: refitted without the ridge.
"noiseless" : Subspace distance, parameter error and the shortcuts' error against rounds, on fixed data without noise,
    for each m. Lines: median over trials; shaded: 10-90 %. Circles: refitted without the ridge.
"fresh" : Subspace distance, parameter error and the shortcuts' error against rounds, on new samples in every round.
    Lines: median over trials; shaded: 10-90 %. Circles: refitted without the ridge.
"tuning" : Tuning criterion against step size: the 90 % quantile of the final parameter error over separate tuning
    trials, at the best values of the other parameters. Circled: the selected step size.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.curves import draw_curve
from linfed.figures.style import draw_level, label, line_style, numbered_ticks
from linfed.plotting.panels import Figures, tuning_figure
from linfed.statistics.findings import (
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    join_notes,
    judge,
    judge_share,
    judge_smaller,
)
from linfed.statistics.intervals import bootstrap_interval, nan_as_worst, quantiles

from ._shortcut import LEARNED, Sized

SUMMARY = "Shortcut draft: Algorithm 1, (2)-(5) and a joint ridge against FedRep and Local only, m below and above d"
HEADLINES = ({"claim": "(2)-(5) learns B"},)
PICTURES = {"": 1500}

DRAFTED, SMALL = "Algorithm 1", "Algorithm 1, small"
JACOBI, SEIDEL, JOINT = "(2)-(5)", "(2)-(5), gauss-seidel", "joint ridge"
METHODS = (DRAFTED, SMALL, JACOBI, SEIDEL, JOINT, "FedRep", "LocalOnly")
NAMES = {name: label(name) for name in METHODS}
NAMES |= {DRAFTED: "Alg. 1, one step size", SMALL: "Alg. 1, small shortcut steps"}
DIST, ERROR, SHORTCUT = "subspace_distance", "parameter_error", "shortcut_error"
QUANTITIES = {DIST: "dist$(B, B^*)$", ERROR: "parameter error", SHORTCUT: "$\\Vert S - S^*\\Vert_F$"}
FIXED, FRESH = ("fixed", "fresh")
FLOOR = 1e-3
"""Smaller errors are drawn at this one: without noise some methods are exact."""


@dataclass(frozen=True, kw_only=True)
class Curve(Sized):
    """One method on one kind of data; all sizes are our choice, because the draft gives none."""

    data: str = lf.choice((FIXED, FRESH), FIXED)
    n_samples: int = 40
    method: str = lf.choice((DRAFTED, SMALL, JACOBI, SEIDEL, JOINT, "FedRep", "LocalOnly"), DRAFTED)
    rounds: int = 150
    step_sizes: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    shortcut_step_sizes: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    ridges: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    tuning_trials: int = 10
    trials: int = 50
    seed: int = 0

    @property
    def settings(self) -> list[dict[str, float]]:
        """The tuning grid, empty if there is nothing to tune (the gauss-seidel form never changes B)."""
        axes = {"step_size": () if self.method in (SEIDEL, "LocalOnly") else self.step_sizes}
        axes |= {"shortcut_step_size": self.shortcut_step_sizes} if self.method == SMALL else {}
        axes |= {"ridge": self.ridges} if self.method == JOINT else {}
        return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]

    def at(self, step_size: float = 1.0, ridge: float = 0.0, **shortcut: float) -> lf.Algorithm:
        """Return the method at a setting; the joint form's step size is the grid's times (1 + ridge) / ridge."""
        if self.method == "LocalOnly":
            return lf.LocalOnly()
        if self.method == "FedRep":
            return lf.FedRep(rank=self.rank, step_size=step_size, init="random")
        if self.method == JOINT:
            return self.joint(step_size / (ridge / (1.0 + ridge)), ridge)
        if self.method in (DRAFTED, SMALL):
            return self.algorithm_1(step_size, solver=lf.GradientSteps(**shortcut))
        order: Any = "jacobi" if self.method == JACOBI else "gauss-seidel"
        return self.algorithm_1(step_size, solver=lf.ClosedForm(order=order))

    def run(self) -> dict[str, Any]:
        """Tune on separate trials, then run the trials; the errors after the refit are separate columns."""
        problem = lf.SharedWithShortcuts(**self.whole, shortcut_norm=0.5, noise_std=self.noise_std)
        data = (lf.FixedSamples if self.data == FIXED else lf.FreshSamples)(self.n_samples)
        world: dict[str, Any] = {"data": data, "seed": (self.seed, self.n_samples)}
        algorithm: Any
        row: dict[str, Any]
        if not self.settings:
            algorithm, row = self.at(), {}
        else:
            score: dict[str, Any] = {"metric": ERROR, "score": "final", "quantile": 0.9}
            effort = {"rounds": self.rounds, "record_every": self.rounds, "trials": self.tuning_trials}
            tuning = lf.tune([self.at(**setting) for setting in self.settings], problem, **score, **effort, **world)
            algorithm, row = tuning.algorithm, tuning.columns(self.settings)
        if self.method == JOINT:
            algorithm = replace(algorithm, refit=True)
        alone = self.method == "LocalOnly"
        metrics = [*([] if alone else [DIST]), ERROR, lf.shortcut_error]
        rounds = 1 if alone and self.data == FIXED else self.rounds
        effort = {"rounds": rounds, "record_every": 6, "trials": self.trials}
        result = lf.simulate(algorithm, problem, metrics=metrics, **effort, **world)
        kept = result.rounds <= self.rounds
        row |= {name: lf.LabeledArray(v[:, kept], round=result.rounds[kept]) for name, v in result.metrics.items()}
        if not kept.all():
            row |= {f"refitted_{name}": values[:, -1] for name, values in result.metrics.items()}
        return row | {"diverged": np.isnan(result.metrics[ERROR][:, -1])}


def cells(quick: bool) -> dict[str, list[Curve]]:
    """Return every method on fixed data and, for one m with noise, on new samples."""
    grid: dict[str, Any] = {"n_samples": (10, 40, 100), "noise_std": (0.0, 0.1), "method": METHODS}
    if quick:
        tried = {"step_sizes": (0.03, 0.3), "shortcut_step_sizes": (0.003, 0.03), "ridges": (0.01, 0.1)}
        base = Curve(trials=10, tuning_trials=2, rounds=60, **tried)
        return {"curves": lf.grid(base, **grid | {"n_samples": (10,)})}
    return {"curves": lf.grid(Curve(), **grid) + lf.grid(Curve(data=FRESH), method=grid["method"])}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw distances and errors against rounds with noise, without, and on new samples, and the tuning."""
    table, below = tables["curves"], f"; errors below {FLOOR:g} are drawn there"
    fixed, found = table.select(data=FIXED), {}
    side_by_side = {"column": "n_samples", "row": "quantity", "title": "m = {}", "sharex": True, "sharey": "row"}
    for noise, key, more in ((0.1, "", ""), (0.0, "noiseless", below)):
        kind = f"fixed data, noise std {noise:g}"
        found[key] = _curves(fixed.select(noise_std=noise), kind, more, height=5.6, **side_by_side)
    if fresh := table.select(data=FRESH):
        kind = f"m = {fresh.rows[0]['n_samples']}, new samples each round, noise std {fresh.rows[0]['noise_std']:g}"
        found["fresh"] = _curves(fresh, kind, height=2.6, column="quantity", title=QUANTITIES.get)
    tuned = fixed.select(noise_std=0.1, method=[name for name in METHODS if name not in (SEIDEL, "LocalOnly")])
    caption = "at the best of the other parameters; 90 % of the tuning trials lie below; circled: chosen\n"
    caption += "(joint ridge: the step is $\\eta$ times (1 + ridge) / ridge)"
    shape = {"xlabel": "step size $\\eta$", "legend_title": caption, "ncols": 4, "log": True, "height": 2.4}
    looks = {"column": "n_samples", "title": "m = {}", "labels": NAMES}
    return found | {"tuning": tuning_figure(tuned, "final parameter error", **shape, **looks)}


def _curves(table: lf.Table, kind: str, more: str = "", **panels: Any) -> Any:
    """Draw the three quantities against rounds."""
    three = sum((table.assign(quantity=lambda _, name=name: name) for name in QUANTITIES), lf.Table())
    with lf.panels(three, **panels) as sheet:
        for ax, part in sheet:
            _draw(ax, part, part.rows[0]["quantity"])
        for ax, part in sheet:  # after all panels are drawn, the shared scales are fixed
            if (name := part.rows[0]["quantity"]) != ERROR or "row" not in panels:
                numbered_ticks(ax)
            if name == DIST:
                ax.set_ylim(0.04, 1.3)
                draw_level(ax, LEARNED)
        sheet.label("round", *(QUANTITIES.values() if "row" in panels else ()))
        sheet.legend(f"{kind}; median and 10-90 % of {table.rows[0]['trials']} trials{more}", ncols=4)
    return sheet.figure


def _draw(ax: Any, part: lf.Table, quantity: str) -> None:
    """Draw a quantity against rounds for all methods that have it, and its value after the refit."""
    for turn, (method, one) in enumerate(part.groupby("method")):
        if quantity not in one.columns:
            continue
        rounds, values, last = one["round"], np.maximum(one[quantity], FLOOR), one["rounds"]
        shape = {"markevery": slice(turn % 6, None, 6)}
        if rounds[-1] < last:  # methods that run for one round
            rounds, values, shape = np.array([0, last]), values[:, [-1, -1]], {"markevery": slice(0)}
        draw_curve(rounds, values, ax=ax, label=NAMES[method], ylabel="", method=method, options=shape)
        if f"refitted_{quantity}" in one.columns:
            circle = {"color": line_style(method)["color"], "marker": "o", "fillstyle": "none", "linestyle": "none"}
            end = max(float(quantiles(one[f"refitted_{quantity}"])[0]), FLOOR)
            ax.plot(last * 1.05, end, clip_on=False, markersize=5, label=f"{NAMES[method]}, refitted", **circle)


TUNED = "steps and ridge are tuned for the parameter error, not for dist"
LAST = "on new samples gradient steps average over the rounds; Local only and the closed forms fit only the last batch"
AIM = "the draft's aim"
LEARNT = f"{AIM}; what counts as learned is {OWN_THRESHOLD}"


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge which methods learn B, which have smaller errors, and the effect of the refit."""
    learned, errors, falling, refit = [], [], [], []
    for (data, d, m, noise), part in tables["curves"].groupby("data", "dim", "n_samples", "noise_std"):
        where = f"m = {m}, noise {noise:g}{', fresh' if data == FRESH else ''}"
        found = dict(part.groupby("method"))
        end = {name: nan_as_worst(one[ERROR][:, -1]) for name, one in found.items()}
        counts = {name: int(one["diverged"].sum()) for name, one in found.items()}
        notes = {name: f"{count} trials of {name} diverged" if count else "" for name, count in counts.items()}
        for name in METHODS[:-1]:
            dist, note = found[name][DIST], notes[name] or (TUNED if name in (DRAFTED, SMALL, JOINT) else "")
            fields = {"claim": f"{NAMES[name]} learns B", "setting": where, "source": LEARNT, "note": note}
            statistic = "share of trials whose final dist is below half the initial one"
            learned.append(judge_share(dist[:, -1] < LEARNED * dist[:, 0], 0.5, statistic=statistic, **fields))
        for name, rival in itertools.product((DRAFTED, SMALL, JOINT), ("FedRep", "LocalOnly")):
            text, edges = (
                f"{NAMES[name]} has a smaller parameter error than {NAMES[rival]}",
                found[name]["at_grid_edge"],
            )
            at_grid_edge = f"{NAMES[name]}: chosen at the edge of its grid: {edges}" if edges else ""
            note = join_notes(notes[name], LAST if data == FRESH else "", at_grid_edge)
            statistic = "share of paired trials in which the final error is smaller"
            fields = {"claim": text, "setting": where, "source": AIM, "note": note}
            errors.append(judge_smaller(end[name], end[rival], statistic=statistic, **fields))
        if noise == 0 and m >= d:  # only then can the error keep falling
            values = found[SMALL][ERROR]
            gained = -np.log10(nan_as_worst(values[:, -1] / values[:, values.shape[1] // 2]))
            measured = (float(np.median(gained)), *bootstrap_interval(np.median, (gained,)))
            text = "Without noise the parameter error of Alg. 1, small shortcut steps, keeps falling"
            statistic = "factors of ten gained over the second half of the rounds, median"
            fields = {"claim": text, "setting": where, "source": OWN_THRESHOLD}
            falling.append(judge(measured, statistic=statistic, claimed_low=0.1, **fields))
        before, after = found[JOINT][ERROR][:, -1], found[JOINT][f"refitted_{ERROR}"]
        local = found["LocalOnly"][ERROR][:, -1]
        gap = np.max(np.abs(after - local) / np.maximum(local, 1e-12))
        same = data == FIXED and m >= d and (gap < 1e-6 or noise == 0)
        note = "m >= d: the refitted predictor is Local only's, whatever B" if same else ""
        fields = {"claim": "The refit lowers the parameter error of the joint ridge", "setting": where, "note": note}
        statistic = "share of trials in which the error is smaller after the refit"
        refit.append(judge_smaller(after, before, statistic=statistic, source=OWN_PREDICTION, **fields))
    return learned + errors + falling + refit
