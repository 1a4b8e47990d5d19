"""The shortcut draft: whether its Algorithm 1 and its closed form (2)-(5) learn B, and the effect of a ridge.

The draft has no experiments, so the setting is our choice: d = 20 and k = 2 as in the FedRep paper's Figure 1, m below
and above d, and n = 50 clients (more than d, so that the shortcuts have full rank). Heads have length sqrt(2),
shortcuts have root mean square length 0.5, and all clients take part. B starts at a random subspace in every method.
There is one data set per client (``fixed``); for one m, with noise, also new samples in every round (``fresh``).

The methods:

- Algorithm 1 as drafted (one step size for head, shortcut and B), and with two step sizes, the second for the shortcut;
- (2)-(5), whose order is jacobi, and its gauss-seidel form;
- the joint minimiser with a ridge on the shortcut, refitted without the ridge at the end and measured before and after;
- FedRep, which ignores the shortcuts, and Local only.

Step sizes and the ridge are tuned on separate trials over one grid, for the smallest 90 % quantile of the parameter
error after the last round (before the refit). The joint method's step size is the grid's times (1 + ridge) / ridge,
because the ridge slows B by that factor. (2)-(5) alternates between two states (docs/shortcut.md): only even rounds are
recorded.

On new samples, errors are compared only between the joint form and FedRep, whose personal parts are fitted to the last
batch: shortcuts with gradient steps average over all rounds, and Local only has one batch. Without noise and with
m >= d, Local only is exact, and no method is compared with it.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.curves import draw_curve
from linfed.figures.style import draw_level, label, line_style, numbered_ticks
from linfed.numerics.quantiles import quantiles
from linfed.plotting.panels import Figures, PanelGrid, tuning_figure
from linfed.statistics import bootstrap_interval, gains, judge_smaller
from linfed.statistics.intervals import Measured, nan_as_worst

from ._shortcut import LEARNED, Sized

SUMMARY = "Shortcut draft: Algorithm 1, (2)-(5) and a joint ridge against FedRep and Local only, m below and above d"
HEADLINES = ({"claim": "(2)-(5) learns B"},)
CAPTIONS = {
    "": (
        "Subspace distance, parameter error and the shortcuts' error against rounds, on fixed data with noise, for "
        "each m. Lines: median over trials; shaded: 10-90 %. Circles: refitted without the ridge."
    ),
    "noiseless": (
        "Subspace distance, parameter error and the shortcuts' error against rounds, on fixed data without noise, for"
        " each m. Lines: median over trials; shaded: 10-90 %. Circles: refitted without the ridge."
    ),
    "fresh": (
        "Subspace distance, parameter error and the shortcuts' error against rounds, on new samples in every round. "
        "Lines: median over trials; shaded: 10-90 %. Circles: refitted without the ridge."
    ),
    "tuning": (
        "Tuning criterion against step size: the 90 % quantile of the final parameter error over separate tuning "
        "trials, at the best values of the other parameters. Circled: the selected step size."
    ),
}
PICTURES = {"": 1500}

DRAFTED, TWO_STEPS = "Algorithm 1", "Algorithm 1, small"  # as in linfed.figures.style
JACOBI, SEIDEL, JOINT = "(2)-(5)", "(2)-(5), gauss-seidel", "joint ridge"
METHODS = (DRAFTED, TWO_STEPS, JACOBI, SEIDEL, JOINT, "FedRep", "LocalOnly")
NAMES = {name: label(name) for name in METHODS}
NAMES |= {DRAFTED: "Alg. 1, one step size", TWO_STEPS: "Alg. 1, two step sizes"}
DIST, ERROR, SHORTCUT = "subspace_distance", "parameter_error", "shortcut_error"
QUANTITIES = {DIST: "subspace distance", ERROR: "parameter error", SHORTCUT: "$\\Vert S - S^*\\Vert_F$"}
FIXED, FRESH = ("fixed", "fresh")
FLOOR = 1e-3
"""Smaller errors are drawn at this one: without noise some methods are exact."""
TIE = 1e-3
"""Final errors within this relative distance count as equal."""


@dataclass(frozen=True, kw_only=True)
class Curve(Sized):
    """One method on one kind of data; all sizes are our choice, because the draft gives none."""

    data: str = lf.choice((FIXED, FRESH), FIXED)
    n_samples: int = 40
    method: str = lf.choice((DRAFTED, TWO_STEPS, JACOBI, SEIDEL, JOINT, "FedRep", "LocalOnly"), DRAFTED)
    n_rounds: int = 150
    step_sizes: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 3.0)
    shortcut_step_sizes: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    ridges: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
    tuning_trials: int = 10
    trials: int = 50
    seed: int = 0

    @property
    def settings(self) -> list[dict[str, float]]:
        """The tuning grid, empty if there is nothing to tune (the gauss-seidel form never changes B)."""
        axes = {"step_size": () if self.method in (SEIDEL, "LocalOnly") else self.step_sizes}
        axes |= {"shortcut_step_size": self.shortcut_step_sizes} if self.method == TWO_STEPS else {}
        axes |= {"ridge": self.ridges} if self.method == JOINT else {}
        return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]

    def at(
        self, step_size: float = 1.0, ridge: float = 0.0, shortcut_step_size: float | None = None
    ) -> lf.FedRepShortcut | lf.FedRep | lf.LocalOnly:
        """Return the method at a setting; the joint form's step size is the grid's times (1 + ridge) / ridge."""
        if self.method == "LocalOnly":
            return lf.LocalOnly()
        if self.method == "FedRep":
            return lf.FedRep(rank=self.rank, step_size=step_size, init="random")
        if self.method == JOINT:
            return self.joint(step_size / (ridge / (1.0 + ridge)), ridge)
        if self.method in (DRAFTED, TWO_STEPS):
            return self.algorithm_1(step_size, lf.GradientSteps(shortcut_step_size=shortcut_step_size))
        return self.algorithm_1(step_size, lf.ClosedForm(order="jacobi" if self.method == JACOBI else "gauss-seidel"))

    def run(self) -> dict[str, Any]:
        """Tune on separate trials, then run the trials; the errors after the refit are separate columns."""
        problem, seed = self.with_shortcuts(0.5), (self.seed, self.n_samples)
        data = (lf.FixedSamples if self.data == FIXED else lf.FreshSamples)(self.n_samples)
        algorithm: Any
        row: dict[str, Any]
        if not self.settings:
            algorithm, row = self.at(), {}
        else:
            tune = partial(lf.tune, metric=ERROR, score="final", quantile=0.9, trials=self.tuning_trials, seed=seed)
            candidates = [self.at(**setting) for setting in self.settings]
            tuning = tune(candidates, problem, data=data, n_rounds=self.n_rounds, record_every=self.n_rounds)
            algorithm, row = tuning.algorithm, tuning.columns(self.settings)
        if self.method == JOINT:
            algorithm = replace(algorithm, refit=True)
        alone = self.method == "LocalOnly"
        metrics: list[Any] = [*([] if alone else [DIST]), ERROR, lf.shortcut_error]
        rounds = 1 if alone and self.data == FIXED else self.n_rounds
        run = partial(lf.simulate, metrics=metrics, trials=self.trials, seed=seed)
        result = run(algorithm, problem, data=data, n_rounds=rounds, record_every=6)
        kept = result.rounds <= self.n_rounds
        row |= {name: lf.LabeledArray(v[:, kept], round=result.rounds[kept]) for name, v in result.metrics.items()}
        if not kept.all():
            row |= {f"refitted_{name}": values[:, -1] for name, values in result.metrics.items()}
        return row | {"diverged": np.isnan(result.metrics[ERROR][:, -1])}


def cells(quick: bool) -> dict[str, list[Curve]]:
    """Return every method on fixed data and, for one m with noise, on new samples."""
    if quick:
        few = Curve(step_sizes=(0.03, 0.3), shortcut_step_sizes=(0.003, 0.03), ridges=(0.01, 0.1))
        base = replace(few, trials=10, tuning_trials=2, n_rounds=60)
        return {"curves": lf.grid(base, n_samples=(10,), noise_std=(0.0, 0.1), method=METHODS)}
    fixed = lf.grid(Curve(), n_samples=(10, 40, 100), noise_std=(0.0, 0.1), method=METHODS)
    return {"curves": fixed + lf.grid(Curve(data=FRESH), method=METHODS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw distances and errors against rounds with noise, without, and on new samples, and the tuning."""
    table, below = tables["curves"], f"; errors below {FLOOR:g} are drawn there"
    fixed, found = table.select(data=FIXED), {}
    for noise, key, more in ((0.1, "", ""), (0.0, "noiseless", below)):
        rows = by_quantity(fixed.select(noise_std=noise))
        with lf.panels(
            rows, column="n_samples", row="quantity", title="m = {}", height=5.6, sharex=True, sharey="row"
        ) as sheet:
            draw(sheet, f"fixed data, noise std {noise:g}", *QUANTITIES.values(), more=more)
        found[key] = sheet.figure
    if fresh := table.select(data=FRESH):
        kind = f"m = {fresh.rows[0]['n_samples']}, new samples each round, noise std {fresh.rows[0]['noise_std']:g}"
        with lf.panels(by_quantity(fresh), column="quantity", title=lambda name: QUANTITIES[name], height=2.6) as sheet:
            draw(sheet, kind)
        found["fresh"] = sheet.figure
    caption = "at the best of the other parameters; 90 % of the tuning trials lie below; circled: chosen\n"
    found["tuning"] = tuning_figure(
        fixed.select(noise_std=0.1, method=[name for name in METHODS if name not in (SEIDEL, "LocalOnly")]),
        "final parameter error",
        column="n_samples",
        title="m = {}",
        xlabel="step size $\\eta$",
        legend_title=caption + "(joint ridge: the step is $\\eta$ times (1 + ridge) / ridge)",
        labels=NAMES,
        ncols=4,
        log=True,
        height=2.4,
    )
    return found


def by_quantity(table: lf.Table) -> lf.Table:
    """Return the rows once for each quantity, which a column names."""
    return lf.Table([row | {"quantity": name} for name in QUANTITIES for row in table.rows])


def draw(sheet: PanelGrid, kind: str, *ylabels: str, more: str = "") -> None:
    """Draw the quantity of each panel against rounds; `ylabels` name the rows of panels."""
    for ax, part in sheet:
        _draw(ax, part, part.rows[0]["quantity"])
    for ax, part in sheet:  # after all panels are drawn, the shared scales are fixed
        if (name := part.rows[0]["quantity"]) != ERROR or not ylabels:
            numbered_ticks(ax)
        if name == DIST:
            ax.set_ylim(0.04, 1.3)
            draw_level(ax, LEARNED)
        trials = part.rows[0]["trials"]
    sheet.label("round", *ylabels)
    sheet.legend(f"{kind}; median and 10-90 % of {trials} trials{more}", ncols=4)


def _draw(ax: Any, part: lf.Table, quantity: str) -> None:
    """Draw a quantity against rounds for all methods that have it, and its value after the refit."""
    for turn, (method, one) in enumerate(part.groupby("method")):
        if quantity not in one.columns:
            continue
        rounds, values, last = one["round"], np.maximum(one[quantity], FLOOR), one["n_rounds"]
        shape = {"markevery": slice(turn % 6, None, 6)}
        if rounds[-1] < last:  # methods that run for one round
            rounds, values, shape = np.array([0, last]), values[:, [-1, -1]], {"markevery": slice(0)}
        draw_curve(rounds, values, ax=ax, label=NAMES[method], ylabel="", method=method, options=shape)
        if f"refitted_{quantity}" in one.columns:
            circle = {"color": line_style(method)["color"], "marker": "o", "fillstyle": "none", "linestyle": "none"}
            end = max(float(quantiles(one[f"refitted_{quantity}"])[0]), FLOOR)
            ax.plot(last * 1.05, end, clip_on=False, markersize=5, label=f"{NAMES[method]}, refitted", **circle)


SMALLER = f"share of paired trials in which the final error is smaller (ties excluded: within {100 * TIE:g} %)"
TUNED = "steps and ridge are tuned for the parameter error, not for dist"
SAME_B = "this order never changes B"
FALLS = c.OWN_CONJECTURE.adding("the draft bounds dist(B, B*) and does not say that it falls").adding(
    f"what counts as learned is {c.OWN_THRESHOLD}"
)
OF_DRAFT = {DRAFTED: FALLS, JACOBI: FALLS}
"""Sources for the methods that the draft has; it compares no errors."""


def place(part: lf.Table) -> str:
    """Return the setting of a finding."""
    row = part.rows[0]
    return f"m = {row['n_samples']}, noise {row['noise_std']:g}{', fresh' if row['data'] == FRESH else ''}"


def diverged(part: lf.Table, name: str) -> str:
    """Return a note on the diverged trials of a method."""
    count = sum(int(row["diverged"].sum()) for row in part.select(method=name))
    return f"{count} trials of {name} diverged" if count else ""


def last_error(row: lf.Table) -> Array:
    """Return the final parameter errors; a diverged trial has the largest."""
    return nan_as_worst(row[ERROR][:, -1])


def gained(row: lf.Table) -> Measured:
    """Return the median factors of ten by which the error falls over the second half of the rounds."""
    values = row[ERROR]
    factors = -np.log10(nan_as_worst(values[:, -1] / values[:, values.shape[1] // 2]))
    return float(np.median(factors)), *bootstrap_interval(np.median, (factors,))


def refitted_is_local_only(part: lf.Table) -> str:
    """Return a note if the refitted predictor does not depend on B."""
    joint, local = part.select(method=JOINT), part.select(method="LocalOnly")
    if not (len(joint) == len(local) == 1 and joint["data"] == FIXED and joint["n_samples"] >= joint["dim"]):
        return ""
    after, alone = joint[f"refitted_{ERROR}"], local[ERROR][:, -1]
    gap = np.max(np.abs(after - alone) / np.maximum(alone, 1e-12))
    same = gap < 1e-6 or joint["noise_std"] == 0
    return "m >= d: the refitted predictor is Local only's, whatever B" if same else ""


def learns(name: str) -> c.Claim:
    """Return the claim that a method learns B."""
    words = "share of trials whose final dist is below half the initial one"
    return OfEach(
        f"{NAMES[name]} learns B",
        OF_DRAFT.get(name, c.OWN_THRESHOLD),
        c.share(lambda row: row[DIST][:, -1] < LEARNED * row[DIST][:, 0], words, c.MOST),
        where=c.of(method=name),
        note=lambda part: diverged(part, name) or (SAME_B if name == SEIDEL else TUNED),
    )


def smaller_error(name: str, rival: str) -> c.Claim:
    """Return the claim that a method has a smaller final error than a competitor, where the two can be compared."""

    def comparable(row: lf.Table) -> bool:
        if row["data"] == FRESH:  # the personal parts of both are fitted to the last batch
            return (name, rival) == (JOINT, "FedRep")
        return rival != "LocalOnly" or row["noise_std"] > 0 or row["n_samples"] < row["dim"]

    def judge(mine: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
        return gains.judge_lower_end(np.stack([last_error(mine), last_error(other)]), tie=TIE, **fields)

    return OfEach(
        f"{NAMES[name]} has a smaller parameter error than {NAMES[rival]}",
        c.OWN_THRESHOLD,
        c.compared(SMALLER, name, rival, judge, c.MOST),
        where=c.only(comparable),
        note=lambda part: diverged(part, name),
    )


OfEach = partial(c.Claim, over=c.each("data", "n_samples", "noise_std"), setting=place)
CLAIMS = (
    *(learns(name) for name in METHODS[:-1]),
    *(smaller_error(name, rival) for name in (DRAFTED, TWO_STEPS, JOINT) for rival in ("FedRep", "LocalOnly")),
    OfEach(
        "Without noise the parameter error of Alg. 1, two step sizes, keeps falling",
        c.OWN_THRESHOLD,
        c.measured("factors of ten gained over the second half of the rounds, median", gained, c.at_least(0.1)),
        where=c.only(
            lambda row: row["method"] == TWO_STEPS and row["noise_std"] == 0 and row["n_samples"] >= row["dim"]
        ),
    ),
    OfEach(
        "The refit lowers the parameter error of the joint ridge",
        c.OWN_PREDICTION,
        c.Statistic(
            "share of trials in which the error is smaller after the refit",
            lambda row, **fields: judge_smaller(row[f"refitted_{ERROR}"], row[ERROR][:, -1], **fields),
            c.MOST,
            rows=c.of(method=JOINT),
        ),
        note=refitted_is_local_only,
    ),
)
