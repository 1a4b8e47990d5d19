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
best settings are searched for in `experiments.shortcut_search`.

Figures
-------
"" : Final subspace distance over the size of the shortcuts and over the parameter that limits the learned ones, for
    each kind of ground truth. Numbers and colours: median over trials; lines: where it passes 0.5, measured and
    predicted.
"steps" : Final subspace distance over the size of the shortcuts and over the parameter that limits the learned ones,
    with several shortcut steps in a round, and with the ridge at a plain step size. Numbers and colours: median over
    trials; lines: where it passes 0.5, measured and predicted.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS
from linfed.numerics.linalg import singular_values
from linfed.plotting.panels import Figures, heat_map
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, judge_share
from linfed.statistics.intervals import median_interval, quantiles
from linfed.statistics.thresholds import AMONG, COUNTED, line_counts, line_findings

from ._shortcut import LEARNED, Sized

SUMMARY = "Shortcut draft: where B is learned, over the size of the shortcuts, their step size, and a ridge on them"
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
    rounds: int = 200
    trials: int = 64
    seed: int = 0

    def algorithm(self, value: float) -> lf.FedRepShortcut:
        """Return the algorithm of a column of the map."""
        if self.family in CLOSED:
            return self.joint(self.step_size / (value / (1.0 + value) if self.family == JOINT else 1.0), value)
        steps = 3 if self.family == SEVERAL else 1
        solver = lf.GradientSteps(shortcut_steps=steps, shortcut_step_size=value / steps)
        return self.algorithm_1(self.step_size, solver=solver)

    def ends(self, worlds: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Return final distance and parameter error, each (trials, size, value), for one problem and data per size."""
        run: dict[str, Any] = {"rounds": self.rounds, "record_every": self.rounds}
        run |= {"trials": self.trials, "seed": self.seed, "metrics": ["subspace_distance", "parameter_error"]}
        columns = [self.algorithm(value) for value in self.values]
        found = [[lf.simulate(one, problem, data=data, **run).metrics for one in columns] for problem, data in worlds]
        ends = ([[point[name][:, -1] for point in line] for line in found] for name in run["metrics"])
        return [np.moveaxis(np.array(values), -1, 0) for values in ends]

    def run(self) -> dict[str, Any]:
        """Run every point of the map, and its predictions, from the same initial B."""
        kind = {
            "orthogonal": self.truth != "any",
            "uncorrelated": self.truth == "uncorrelated",
            "noise_std": self.noise_std,
        }
        problems = [lf.SharedWithShortcuts(**self.whole, shortcut_norm=size, **kind) for size in self.sizes]
        truths = [problem.truth(self.seed, range(self.trials)) for problem in problems]
        dist, error = self.ends([(problem, lf.FixedSamples(self.n_samples)) for problem in problems])
        limit = np.stack([lf.subspace_distance(truth.truncated(self.rank).B, truth.B) for truth in truths], axis=1)
        if self.family in CLOSED:
            predicted = np.repeat(limit[..., None], len(self.values), axis=-1)
        else:
            whole = {"trials": self.trials, "seed": self.seed}
            predicted, _ = self.ends([(problem, lf.GivenSamples.population(problem, **whole)) for problem in problems])
        spectra = [singular_values(truth.W)[:, -1] / singular_values(truth.S)[:, 0] for truth in truths]
        critical = self.sizes * np.stack(spectra, axis=1)  # lambda_min(Gamma) = lambda_max(mean s s')
        points = {"dist": dist, "error": error, "predicted": predicted}
        maps = {name: lf.LabeledArray(values, size=self.sizes, value=self.values) for name, values in points.items()}
        of_truths = {
            "limit": lf.LabeledArray(limit, size=self.sizes),
            "critical": lf.LabeledArray(critical, size=self.sizes),
        }
        lost, predicted_lost = (~(values < LEARNED).swapaxes(1, 2) for values in (dist, predicted))
        return (
            maps
            | of_truths
            | {"line_counts": lf.LabeledArray(line_counts(lost, predicted_lost), among=AMONG, count=COUNTED)}
        )


def cells(quick: bool) -> dict[str, list[Map]]:
    """Return the maps: both families on every kind of ground truth, several steps and a plain step on one kind."""
    steps, ridges = Map(), Map(family=JOINT, step_size=0.5, values=(0.01, 0.03, 0.1, 0.3, 1.0), rounds=100)
    if quick:
        few: dict[str, Any] = {"sizes": (0.5, 4.0), "dim": 10, "n_samples": 60, "trials": 30}
        steps = replace(steps, values=(0.003, 0.3), rounds=50, **few)
        ridges = replace(ridges, values=(0.1, 1.0), rounds=20, **few)
    maps = [*lf.grid(steps, truth=tuple(TRUTHS)), replace(steps, family=SEVERAL)]
    return {"map": [*maps, *lf.grid(ridges, truth=tuple(TRUTHS)), replace(ridges, family=PLAIN)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the maps for the three kinds of ground truth, and those with several shortcut steps and a plain step."""
    table, size, figures = tables["map"], "root mean square length of $s_i^*$", {}
    main: dict[str, Any] = {"column": "truth", "row": "family", "title": TRUTHS.get, "height": 5.4}
    steps: dict[str, Any] = {"column": "family", "title": "{}", "height": 3.2}
    for key, families, panels in (("", [GRADIENT, JOINT], main), ("steps", [SEVERAL, PLAIN], steps)):
        with lf.panels(table.select(family=families), **panels) as sheet:
            sheet.label("", *([size] if key else [f"{family}\n{size}" for family in families]))
            for ax, row in sheet:
                image = draw(ax, row)
            text = "dist$(B, B^*)$ at the end, median"
            sheet.figure.colorbar(image, ax=sheet.axes, label=text, pad=0.02, aspect=30)
            sheet.legend(f"{row['trials']} trials; rows and columns are not evenly spaced")
        figures[key] = sheet.figure
    return figures


def draw(ax: Any, row: lf.Table) -> Any:
    """Draw a map with its predictions."""
    from matplotlib import patheffects

    sizes, halo = row["size"], [patheffects.withStroke(linewidth=2.6, foreground="white")]
    dist, predicted = (quantiles(row[name])[0] for name in ("dist", "predicted"))
    columns = [f"{value:g}".replace("0.", ".") for value in row["value"]]
    image = heat_map(ax, np.minimum(dist, 1.0), columns, [f"{value:g}" for value in sizes])
    for (i, j), value in np.ndenumerate(dist):
        box = {"facecolor": image.cmap(image.norm(min(value, 1.0))), "edgecolor": "none", "pad": 0.5}
        centred = {"ha": "center", "va": "center", "fontsize": 5, "zorder": 5, "bbox": box}  # lines pass behind it
        ax.text(j, i, f"{value:.2f}", color="white" if value > 0.55 else "0.2", **centred)
    for values, colour, line, of in ((dist, "black", "-", "measured"), (predicted, KINDS[0][0], "--", "population")):
        if values.min() < LEARNED < values.max():
            contour = ax.contour(values, levels=[LEARNED], linewidths=1.3, colors=colour, linestyles=line)
            contour.set_path_effects(halo)
        ax.plot([], [], color=colour, linestyle=line, linewidth=1.3, label=f"{of}: dist = 0.5")
    dots = {"color": KINDS[4][0], "linestyle": ":", "linewidth": 1.6}
    ax.axhline(np.interp(np.median(row["critical"]), sizes, range(len(sizes))), path_effects=halo, **dots)
    ax.plot([], [], label="$\\lambda_{min}(\\Gamma) = \\lambda_{max}(\\Sigma)$", **dots)
    ax.set_xlabel("ridge" if row["family"] in CLOSED else "$\\tau_s \\eta_s$")
    return image


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the predictions, the condition for learning B, and the corners of the maps."""
    agree, lines, conditions, corners = [], [], [], []
    threshold_source = {"source": OWN_PREDICTION.adding(f"the 0.9 is {OWN_THRESHOLD}")}
    for row in tables["map"]:
        family, where = row["family"], f"{row['family']}: {row['truth']}"
        dist, predicted, sizes, values = (row[name] for name in ("dist", "predicted", "size", "value"))
        ridge = " with a ridge: dist(U_k, B*) whatever the ridge" if family in CLOSED else ""
        text = f"The population predicts where B is learned{ridge}"
        statistic = "share of the map's points, in each trial, on the same side of dist = 0.5"
        detail = f"median |difference| {np.median(np.abs(dist - predicted)):.2g}"
        note = "small ridges slow B: the rounds are too few" if family == PLAIN else ""
        hits, fields = (
            (dist < LEARNED) == (predicted < LEARNED),
            {"claim": text, "setting": where, "statistic": statistic},
        )
        trials = range(len(hits))
        agree.append(judge_share(hits, 0.9, clusters=trials, detail=detail, note=note, **fields, **threshold_source))
        text = "The population of each data set's own truth predicts better than any common size where B is learned"
        common = "the best size common to all data sets, in hindsight and for each column of the map"
        lines += line_findings(row["line_counts"], fixed=common, claim=text, setting=where)
        if family not in (GRADIENT, JOINT):
            continue
        most, least, knob = (0, -1, "tau_s eta_s =") if family == GRADIENT else (-1, 0, "ridge")
        holds, learned = sizes < row["critical"], dist[..., most] < LEARNED
        text = "B is learned where lambda_min(Gamma) > lambda_max(mean s s'), and only there"
        statistic = "share of sizes, in each trial, for which both agree; strongest limit on the shortcut"
        short = np.sum((dist[..., most] >= LEARNED) & holds)
        detail = f"the condition holds and B is not learned: {short} of {holds.sum()}"
        fields = {"claim": text, "setting": where, "statistic": statistic}
        conditions.append(
            judge_share(learned == holds, 0.9, clusters=trials, detail=detail, **fields, **threshold_source)
        )
        if row["truth"] != "orthogonal":
            continue
        places = {"small and strongly limited": (0, most), "small and weakly limited": (0, least)}
        for place, (i, j) in {**places, "large and strongly limited": (-1, most)}.items():
            measured = median_interval(np.nan_to_num(dist[:, i, j], nan=1.0))
            fields = {"claim": f"B is learned where shortcuts are {place}", "statistic": "median dist"}
            fields |= {"setting": f"{family}: size {sizes[i]:g}, {knob} {values[j]:g}", "source": OWN_THRESHOLD}
            corners.append(judge(measured, claimed_high=LEARNED, strict=True, **fields))
    return agree + lines + conditions + corners
