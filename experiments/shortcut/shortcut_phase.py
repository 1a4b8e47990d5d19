"""Where the shortcut draft's Algorithm 1 and a joint ridge learn B, and where the learned shortcut absorbs it.

Heat maps show the distance after a fixed number of rounds, over the size of the shortcuts and over the parameter that
limits the learned shortcut. In Algorithm 1 that is ``tau_s eta_s``, the number of shortcut steps times their size; in
the joint closed form it is the ridge. The setting is d = 20, k = 2, n = 50, m = 100, fixed data, heads of length
sqrt(2) and noise std 0.1. B starts at a random subspace. There are three kinds of ground truth:

- shortcuts orthogonal to B* and exactly uncorrelated with the heads, for which the conditions under which the top-k
  subspace of Phi* is span(B*) can be met exactly (docs/shortcut.md);
- shortcuts orthogonal to B* and independent of the heads;
- shortcuts independent of B*.

Three predictions are drawn on the maps, none with a fitted parameter. For Algorithm 1: the same algorithm on the exact
moments of the same ground truths (m to infinity, no noise), from the same initial B. For the ridge: the distance of the
top-k subspace of Phi*, whatever the ridge. For both: the size at which
``lambda_min(Gamma) = lambda_max((1/n) sum s_i* s_i*')``.

The ridge slows B by the factor ridge / (1 + ridge). In the main maps the step size is divided by that factor, so that
the rounds are enough for all ridges; a further map keeps the plain step size. Another map runs Algorithm 1 with several
shortcut steps in a round, with the same product.

Every prediction is compared with the best that a rule independent of the data set could do, chosen in hindsight. The
best settings are searched for in `experiments.shortcut.shortcut_search`.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array, Mask
from linfed.figures.style import KINDS
from linfed.numerics.linalg import singular_values
from linfed.numerics.quantiles import quantiles
from linfed.plotting.panels import Figures, PanelGrid, heat_map
from linfed.statistics.thresholds import AMONG, COUNTED, line_counts, line_findings

from ._shortcut import LEARNED, Sized

SUMMARY = "Shortcut draft: where B is learned, over the size of the shortcuts, their step size, and a ridge on them"
CAPTIONS = {
    "": (
        "Final subspace distance over the size of the shortcuts and over the parameter that limits the learned ones, "
        "for each kind of ground truth. Numbers and colours: median over trials; lines: where it passes 0.5, measured"
        " and predicted."
    ),
    "steps": (
        "Final subspace distance over the size of the shortcuts and over the parameter that limits the learned ones, "
        "with several shortcut steps in a round, and with the ridge at a plain step size. Numbers and colours: median"
        " over trials; lines: where it passes 0.5, measured and predicted."
    ),
}
PICTURES = {"": 1500}

TRUTHS = {
    "uncorrelated": "orthogonal, exactly uncorrelated",
    "orthogonal": "orthogonal to $B^*$",
    "any": "no regard to $B^*$",
}
GRADIENT, SEVERAL, JOINT, PLAIN = "Algorithm 1", "Algorithm 1, three steps", "joint ridge", "joint ridge, plain step"
CLOSED = (JOINT, PLAIN)


@dataclass(frozen=True, kw_only=True)
class Map(Sized):
    """One family of algorithms on one kind of ground truth; all sizes are our choice, because the draft gives none.

    `sizes` are those of the shortcuts; `values` are those of ``tau_s eta_s`` or of the ridge.
    """

    family: str = lf.choice((GRADIENT, SEVERAL, JOINT, PLAIN), GRADIENT)
    truth: str = lf.choice(("uncorrelated", "orthogonal", "any"), "orthogonal")
    sizes: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
    values: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    n_samples: int = 100
    step_size: float = 0.3
    n_rounds: int = 200
    trials: int = 64
    seed: int = 0

    def algorithm(self, value: float) -> lf.FedRepShortcut:
        """Return the algorithm of a column of the map."""
        if self.family in CLOSED:
            return self.joint(self.step_size / (value / (1.0 + value) if self.family == JOINT else 1.0), value)
        steps = 3 if self.family == SEVERAL else 1
        solver = lf.GradientSteps(shortcut_steps=steps, shortcut_step_size=value / steps)
        return self.algorithm_1(self.step_size, solver)

    def ends(self, worlds: Sequence[tuple[lf.Problem, Any]]) -> tuple[Array, Array]:
        """Return final distance and parameter error, each (trials, size, value), for one problem and data per size."""
        columns, names = [self.algorithm(value) for value in self.values], ["subspace_distance", "parameter_error"]
        run = partial(
            lf.simulate, n_rounds=self.n_rounds, record_every=self.n_rounds, trials=self.trials, seed=self.seed
        )
        found = [[run(one, problem, data=data, metrics=names).metrics for one in columns] for problem, data in worlds]
        dist, error = (np.array([[point[name][:, -1] for point in line] for line in found]) for name in names)
        return np.moveaxis(dist, -1, 0), np.moveaxis(error, -1, 0)

    def run(self) -> dict[str, Any]:
        """Run every point of the map, and its predictions, from the same initial B."""
        problems = [self.with_shortcuts(size, kind=self.truth) for size in self.sizes]
        truths = [problem.truth(self.seed, range(self.trials)) for problem in problems]
        dist, error = self.ends([(problem, lf.FixedSamples(self.n_samples)) for problem in problems])
        limits = [lf.subspace_distance(np.asarray(one.truncated(self.rank).B), np.asarray(one.B)) for one in truths]
        limit = np.stack(limits, axis=1)
        if self.family in CLOSED:
            predicted = np.repeat(limit[..., None], len(self.values), axis=-1)
        else:
            population = partial(lf.GivenSamples.population, trials=self.trials, seed=self.seed)
            predicted, _ = self.ends([(problem, population(problem)) for problem in problems])
        spectra = [
            singular_values(np.asarray(one.W))[:, -1] / singular_values(np.asarray(one.S))[:, 0] for one in truths
        ]
        lost, predicted_lost = (~(values < LEARNED).swapaxes(1, 2) for values in (dist, predicted))
        return {
            "dist": lf.LabeledArray(dist, size=self.sizes, value=self.values),
            "error": lf.LabeledArray(error, size=self.sizes, value=self.values),
            "predicted": lf.LabeledArray(predicted, size=self.sizes, value=self.values),
            "limit": lf.LabeledArray(limit, size=self.sizes),
            # lambda_min(Gamma) = lambda_max(mean s s')
            "critical": lf.LabeledArray(self.sizes * np.stack(spectra, axis=1), size=self.sizes),
            "line_counts": lf.LabeledArray(line_counts(lost, predicted_lost), among=AMONG, count=COUNTED),
        }


def cells(quick: bool) -> dict[str, list[Map]]:
    """Return the maps: both families on every kind of ground truth, several steps and a plain step on one kind.

    Each family has its own values, step size and rounds.
    """
    steps, ridges = Map(), Map(family=JOINT, step_size=0.5, values=(0.01, 0.03, 0.1, 0.3, 1.0), n_rounds=100)
    if quick:
        steps = Map(sizes=(0.5, 4.0), dim=10, n_samples=60, trials=30, values=(0.003, 0.3), n_rounds=50)
        ridges = replace(steps, family=JOINT, step_size=0.5, values=(0.1, 1.0), n_rounds=20)
    maps = [*lf.grid(steps, truth=tuple(TRUTHS)), replace(steps, family=SEVERAL)]
    return {"map": [*maps, *lf.grid(ridges, truth=tuple(TRUTHS)), replace(ridges, family=PLAIN)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the maps for the three kinds of ground truth, and those with several shortcut steps and a plain step."""
    table, size = tables["map"], "root mean square length of $s_i^*$"
    families = table.select(family=[GRADIENT, JOINT])
    with lf.panels(families, column="truth", row="family", title=lambda kind: TRUTHS[kind], height=5.4) as sheet:
        finish(sheet, *(f"{family}\n{size}" for family in (GRADIENT, JOINT)))
    with lf.panels(table.select(family=[SEVERAL, PLAIN]), column="family", title="{}", height=3.2) as steps:
        finish(steps, size)
    return {"": sheet.figure, "steps": steps.figure}


def finish(sheet: PanelGrid, *ylabels: str) -> None:
    """Draw the map of each panel, with labels, a colour bar and a legend."""
    sheet.label("", *ylabels)
    for ax, row in sheet:
        image, trials = draw(ax, row), row["trials"]
    sheet.figure.colorbar(image, ax=sheet.axes, label="subspace distance at the end, median", pad=0.02, aspect=30)
    sheet.legend(f"{trials} trials; rows and columns are not evenly spaced")


def draw(ax: Any, row: lf.Table) -> Any:
    """Draw a map with its predictions."""
    from matplotlib import patheffects

    sizes, halo = row["size"], [patheffects.withStroke(linewidth=2.6, foreground="white")]
    dist, predicted = (quantiles(row[name])[0] for name in ("dist", "predicted"))
    columns = [f"{value:g}".replace("0.", ".") for value in row["value"]]
    image = heat_map(ax, np.minimum(dist, 1.0), columns, [f"{value:g}" for value in sizes])
    for (i, j), value in np.ndenumerate(dist):
        box = {"facecolor": image.cmap(image.norm(np.minimum(value, 1.0))), "edgecolor": "none", "pad": 0.5}
        centred = {"ha": "center", "va": "center", "fontsize": 5, "zorder": 5, "bbox": box}  # lines pass behind it
        ax.text(j, i, f"{value:.2f}", color="white" if value > 0.55 else "0.2", **centred)
    for values, colour, line, of in ((dist, "black", "-", "measured"), (predicted, KINDS[0][0], "--", "population")):
        if values.min() < LEARNED < values.max():
            contour = ax.contour(values, levels=[LEARNED], linewidths=1.3, colors=colour, linestyles=line)
            contour.set_path_effects(halo)
        ax.plot([], [], color=colour, linestyle=line, linewidth=1.3, label=f"{of}: distance 0.5")
    dots = {"color": KINDS[4][0], "linestyle": ":", "linewidth": 1.6}
    ax.axhline(np.interp(np.median(row["critical"]), sizes, range(len(sizes))), path_effects=halo, **dots)
    ax.plot([], [], label="$\\lambda_{min}(\\Gamma) = \\lambda_{max}(\\Sigma)$", **dots)
    ax.set_xlabel("ridge" if row["family"] in CLOSED else "$\\tau_s \\eta_s$")
    return image


NINE_TENTHS = c.OWN_PREDICTION.adding(f"the 0.9 is {c.OWN_THRESHOLD}")


def in_trials(hits: Callable[[lf.Table], Mask], words: str) -> c.Statistic:
    """Return the share of hits, (trials, ..), above 0.9; the points of a trial share its data."""
    return c.share(hits, words, c.above(0.9), clusters=lambda row: range(len(row["dist"])))


def predicts(ending: str, families: list[str]) -> c.Claim:
    """Return the claim that the population predicts where B is learned."""
    return OfEach(
        f"The population predicts where B is learned{ending}",
        NINE_TENTHS,
        in_trials(
            lambda row: (row["dist"] < LEARNED) == (row["predicted"] < LEARNED),
            "share of the map's points, in each trial, on the same side of dist = 0.5",
        ),
        where=c.of(family=families),
        detail=lambda row: f"median |difference| {np.median(np.abs(row['dist'] - row['predicted'])):.2g}",
        note=lambda row: "small ridges slow B: the rounds are too few" if row["family"] == PLAIN else "",
    )


def line_gain(number: int) -> c.Claim:
    """Return the claim that the line of each data set predicts more points than the best common size."""
    words = f"share of {AMONG[number]} that the line predicts, minus that of {COMMON}"
    return OfEach(
        "The population of each data set's own truth predicts better than any common size where B is learned",
        c.OWN_PREDICTION,
        c.Statistic(words, lambda row, **fields: line_findings(row["line_counts"], fixed=COMMON, **fields)[number]),
        c.above(0.0),
    )


def strongest(row: lf.Table) -> Mask:
    """Return whether B is learned with the strongest limit on the shortcut, (trials, size)."""
    return np.asarray(row["dist"][..., 0 if row["family"] == GRADIENT else -1] < LEARNED)


def condition(row: lf.Table) -> Mask:
    """Return whether lambda_min(Gamma) > lambda_max(mean s s'), (trials, size)."""
    return np.asarray(row["size"] < row["critical"])


def not_learned(row: lf.Table) -> str:
    """Return the number of points at which the condition holds and B is not learned."""
    holds = condition(row)
    return f"the condition holds and B is not learned: {np.sum(~strongest(row) & holds)} of {holds.sum()}"


def corner(words: str, size: int, *, strong: bool) -> c.Claim:
    """Return the claim that B is learned in a corner of the map: at a size, with a strong or weak limit."""

    def place(row: lf.Table) -> int:
        return 0 if (row["family"] == GRADIENT) == strong else -1

    def setting(row: lf.Table) -> str:
        knob = "tau_s eta_s =" if row["family"] == GRADIENT else "ridge"
        return f"{row['family']}: size {row['size'][size]:g}, {knob} {row['value'][place(row)]:g}"

    several = c.only(lambda row: min(len(row["size"]), len(row["value"])) > 1)  # otherwise all corners are one point
    rows = c.of(family=[GRADIENT, JOINT], truth="orthogonal"), several
    sentence = f"B is learned where shortcuts are {words}"
    statistic = c.median(lambda row: np.nan_to_num(row["dist"][:, size, place(row)], nan=1.0), "median dist")
    return OfEach(sentence, c.OWN_THRESHOLD, statistic, c.below(LEARNED), where=rows, setting=setting)


COMMON = "the best size common to all data sets, in hindsight and for each column of the map"
OfEach = partial(c.Claim, over=c.each_row, setting="{family}: {truth}")
CLAIMS = (
    predicts("", [GRADIENT, SEVERAL]),
    predicts(" with a ridge: dist(U_k, B*) whatever the ridge", [JOINT, PLAIN]),
    line_gain(0),
    line_gain(1),
    OfEach(
        "B is learned where lambda_min(Gamma) > lambda_max(mean s s') and only there, at the strongest limit on the "
        "shortcut, for most sizes",
        NINE_TENTHS,
        in_trials(
            lambda row: strongest(row) == condition(row),
            "share of sizes, in each trial, for which both agree; strongest limit on the shortcut",
        ),
        where=c.of(family=[GRADIENT, JOINT]),
        detail=not_learned,
    ),
    corner("small and strongly limited", 0, strong=True),
    corner("small and weakly limited", 0, strong=False),
    corner("large and strongly limited", -1, strong=True),
)
