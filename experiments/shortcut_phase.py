"""Where B is learned, and where the shortcut swallows it: the shortcut draft's Algorithm 1, and a joint ridge.

Heat maps of the dist after a fixed number of rounds, over the size of the shortcuts and over what holds the learned
shortcut back: ``tau_s eta_s``, the number of shortcut steps times their size, in Algorithm 1; the ridge in the joint
closed form. d = 20, k = 2, n = 50, m = 100, fixed data, heads of length sqrt(2), noise std 0.1; B starts at a random
subspace. Three kinds of truth: shortcuts orthogonal to B* and exactly uncorrelated with the heads, where the conditions
under which the top-k subspace of Phi* is span(B*) can be met to the letter (docs/shortcut.md); orthogonal to B* and
drawn independently of the heads; and drawn without regard to B*.

Three predictions lie on the maps, none with a free parameter. For Algorithm 1 the same algorithm on the exact moments
of the same truths (m to infinity, no noise), from the same starts. For the ridge the distance of the top-k subspace of
Phi*, whatever the ridge. And the size at which ``lambda_min(Gamma) = lambda_max((1/n) sum s_i* s_i*')``.

The ridge slows B by the factor ridge / (1 + ridge). In the main maps its step is divided by that factor, so
that the rounds are enough for all; a further map keeps the step as it is. Another runs Algorithm 1 with several
shortcut steps in a round, of the same product.

Beside each prediction of a map stands the best that a rule without the data set could do, in hindsight. The settings
that work best are searched for in `experiments.shortcut_search`.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, share
from linfed.statistics.intervals import median_interval, quantiles
from linfed.study.pages import heat_map

from ._lines import line_findings, line_rows
from ._shortcut import LEARNED, RANK, algorithm_1, joint, problem_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

SUMMARY = "Shortcut draft: where B is learned, over the shortcuts' size, their steps, and a ridge on them"

TRUTHS = {
    "uncorrelated": "orthogonal, exactly uncorrelated",
    "orthogonal": "orthogonal to $B^*$",
    "any": "no regard to $B^*$",
}
GRADIENT, SEVERAL, JOINT, PLAIN = "Algorithm 1", "Algorithm 1, three steps", "joint ridge", "joint ridge, plain step"
SIZES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
PRODUCTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, kw_only=True)
class Map:
    """One family of algorithms on one kind of truth; all sizes are chosen here: the draft names none.

    `sizes` are those of the shortcuts; `back` is what holds the learned ones back, ``tau_s eta_s`` or the ridge.
    """

    family: str = GRADIENT
    truth: str = "orthogonal"
    n_samples: int = 100
    noise_std: float = 0.1
    sizes: tuple[float, ...] = SIZES
    back: tuple[float, ...] = PRODUCTS
    step_size: float = 0.3
    rounds: int = 200
    trials: int = 20
    seed: int = 0

    @property
    def closed(self) -> bool:
        """Whether it is the joint closed form."""
        return self.family in (JOINT, PLAIN)

    @property
    def cost(self) -> float:
        """Closed forms take long."""
        return float(self.closed)

    def run(self) -> dict[str, Any]:
        """Run every point of the map, and what predicts it, from the same starts."""
        run: dict[str, Any] = {"trials": self.trials, "seed": self.seed}
        points: dict[str, list[Any]] = {name: [] for name in ("dist", "error", "predicted", "limit", "critical")}
        for size in self.sizes:
            problem: Any = problem_of(size, noise_std=self.noise_std, orthogonal=self.truth != "any")
            problem = uncorrelated(problem, **run) if self.truth == "uncorrelated" else problem
            truth = problem.truth(self.seed, range(self.trials))
            dist, error = self.ends(problem, lf.FixedSamples(self.n_samples))
            limit = lf.subspace_distance(truth.truncated(RANK).B, truth.B)
            predicted = np.repeat(limit[:, None], len(self.back), axis=1)
            if not self.closed:
                predicted, _ = self.ends(problem, lf.GivenSamples.population(problem, **run))
            heads, shortcuts = (np.linalg.svd(part, compute_uv=False) for part in (truth.W, truth.S))
            critical = size * (heads[:, -1] / shortcuts[:, 0])
            for name, values in zip(points, (dist, error, predicted, limit, critical), strict=True):
                points[name].append(values)
        found = {name: np.stack(values, axis=1) for name, values in points.items()}
        of_truths = {name: lf.Along(found.pop(name), size=self.sizes) for name in ("limit", "critical")}
        of_maps = {name: lf.Along(values, size=self.sizes, back=self.back) for name, values in found.items()}
        lost, said = (~(found[name] < LEARNED).swapaxes(1, 2) for name in ("dist", "predicted"))
        return of_maps | of_truths | line_rows(lost, said)

    def ends(self, problem: Any, data: Any) -> list[Any]:
        """Return the dist and the parameter error after the last round along a row of the map, (trials, back) each."""
        names = ["subspace_distance", "parameter_error"]
        run: dict[str, Any] = {"rounds": self.rounds, "trials": self.trials, "seed": self.seed}
        results = [
            lf.simulate(self.algorithm(back), problem, data=data, metrics=names, record_every=self.rounds, **run)
            for back in self.back
        ]
        return [np.stack([result.metrics[name][:, -1] for result in results], axis=1) for name in names]

    def algorithm(self, back: float) -> lf.FedRepShortcut:
        """Return the algorithm of a column of the map."""
        if self.closed:
            slow = back / (1.0 + back) if self.family == JOINT else 1.0
            return joint(self.step_size / slow, back)
        steps = 3 if self.family == SEVERAL else 1
        return algorithm_1(self.step_size, shortcut_steps=steps, shortcut_step_size=back / steps)


def uncorrelated(problem: lf.SharedWithShortcuts, *, trials: int, seed: Any) -> lf.GivenTruth:
    """Return a problem's truths with shortcuts that are, over the clients, exactly uncorrelated with the heads.

    Their root mean square length is scaled back to what it was.
    """
    truth = problem.truth(seed, range(trials))
    basis = np.linalg.qr(truth.W)[0]
    S = truth.S - basis @ (basis.mT @ truth.S)
    S *= np.linalg.norm(truth.S, axis=(-2, -1), keepdims=True) / np.linalg.norm(S, axis=(-2, -1), keepdims=True)
    return lf.GivenTruth(B=truth.B, W=truth.W, S=S, noise_std=problem.noise_std)


def cells(quick: bool) -> dict[str, list[Map]]:
    """Return the maps: both families on every kind of truth, several steps and a plain step on one."""
    steps, ridges = Map(), Map(family=JOINT, back=RIDGES, step_size=0.5, rounds=100)
    if quick:
        few: dict[str, Any] = {"sizes": (0.5, 3.0), "trials": 6}
        steps, ridges = (
            replace(steps, back=(0.003, 0.3), rounds=60, **few),
            replace(ridges, back=(0.1, 1.0), rounds=20, **few),
        )
    truths = tuple(TRUTHS)
    return {
        "map": [
            *lf.grid(steps, truth=truths),
            replace(steps, family=SEVERAL),
            *lf.grid(ridges, truth=truths),
            replace(ridges, family=PLAIN),
        ]
    }


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> dict[str, Figure]:
    """Return the maps over the three kinds of truth, and those with several shortcut steps and with a plain step."""
    table, size, figures = tables["map"], "root mean square length of $s_i^*$", {}
    main = {"column": "truth", "row": "family", "title": TRUTHS.get, "height": 5.4}
    for key, part, panels in (
        ("", table.where(family=[GRADIENT, JOINT]), main),
        ("steps", table.where(family=[SEVERAL, PLAIN]), {"column": "family", "title": "{}", "height": 3.2}),
    ):
        with lf.page(part, **panels) as sheet:
            sheet.label("", *([size] if key else [f"{family}\n{size}" for family in (GRADIENT, JOINT)]))
            for ax, row in sheet:
                image = draw(ax, row)
            told = "dist$(B, B^*)$ at the end, median"
            sheet.figure.colorbar(image, ax=sheet.axes, label=told, pad=0.02, aspect=30)
            sheet.legend(f"{part.rows[0]['trials']} trials; rows and columns are not evenly spaced")
        figures[key] = sheet.figure
    return figures


def draw(ax: Axes, row: lf.Table) -> AxesImage:
    """Draw a map with its predictions."""
    from matplotlib import patheffects

    sizes, back = row["size"], row["back"]
    dist, predicted = (quantiles(row[name])[0] for name in ("dist", "predicted"))
    names = [f"{value:g}".replace("0.", ".") for value in back]
    image = heat_map(ax, np.minimum(dist, 1.0), names, [f"{value:g}" for value in sizes])
    halo = [patheffects.withStroke(linewidth=2.6, foreground="white")]
    for (i, j), value in np.ndenumerate(dist):
        shape = {"ha": "center", "va": "center", "fontsize": 5, "zorder": 5}
        ax.text(j, i, f"{value:.2f}", color="white" if value > 0.55 else "0.2", **shape)
    for values, colour, line, of in ((dist, "black", "-", "measured"), (predicted, "#D55E00", "--", "population")):
        if values.min() < LEARNED < values.max():
            drawn = ax.contour(values, levels=[LEARNED], linewidths=1.3, colors=colour, linestyles=line)
            drawn.set_path_effects(halo)
        ax.plot([], [], color=colour, linestyle=line, linewidth=1.3, label=f"{of}: dist = 0.5")
    shape = {"color": "#882255", "linestyle": ":", "linewidth": 1.6}
    level = np.interp(np.median(row["critical"]), sizes, range(len(sizes)))
    ax.axhline(level, path_effects=halo, **shape)
    ax.plot([], [], label="$\\lambda_{min}(\\Gamma) = \\lambda_{max}(\\Sigma)$", **shape)
    ax.set_xlabel("ridge" if row["family"] in (JOINT, PLAIN) else "$\\tau_s \\eta_s$")
    return image


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return how the predictions agree, and where B is learned and lost."""
    table = tables["map"]
    both = table.where(family=[GRADIENT, JOINT])
    found = [agreement(row) for row in table]
    for row in table:
        found += line_findings(
            row,
            fixed="the best size common to all data sets, in hindsight and for each column of the map",
            text="The population of each data set's own truth tells where B is learned better than any common size",
            where=f"{row['family']}: {row['truth']}",
        )
    found += [condition(row) for row in both]
    return found + [finding for row in both.where(truth="orthogonal") for finding in corners(row)]


def shared_by(hits: Any, row: lf.Table, **said: Any) -> Finding:
    """Judge that nine tenths of a map's points are hits (trials, points), with an interval over the trials."""
    trial = np.broadcast_to(np.arange(len(hits))[:, None], hits.shape)
    source, where = f"{OWN_PREDICTION}; the 0.9 is an {OWN_THRESHOLD}", f"{row['family']}: {row['truth']}"
    return share(hits.ravel(), 0.9, clusters=trial.ravel(), source=source, where=where, **said)


def agreement(row: lf.Table) -> Finding:
    """Judge the population's prediction, point by point."""
    dist, predicted = (row[name].reshape(row["trials"], -1) for name in ("dist", "predicted"))
    ridge = " with a ridge: dist(U_k, B*) whatever the ridge" if row["family"] in (JOINT, PLAIN) else ""
    return shared_by(
        (dist < LEARNED) == (predicted < LEARNED),
        row,
        text=f"The population tells where B is learned{ridge}",
        statistic="share of the map's points, in each trial, on the same side of dist = 0.5",
        detail=f"median |difference| {np.median(np.abs(dist - predicted)):.2g}",
        note="small ridges slow B: the rounds are too few" if row["family"] == PLAIN else "",
    )


def condition(row: lf.Table) -> Finding:
    """Judge the eigenvalue condition where the shortcut is held back most: B learned just where it holds."""
    dist, holds = row["dist"][..., 0 if row["family"] == GRADIENT else -1], row["size"] < row["critical"]
    short = int(np.sum((dist >= LEARNED) & holds))
    return shared_by(
        (dist < LEARNED) == holds,
        row,
        text="B is learned where lambda_min(Gamma) > lambda_max(mean s s'), and only there",
        statistic="share of sizes, in each trial, for which both agree; shortcut held back most",
        detail=f"the condition holds and B is not learned: {short} of {holds.sum()}",
    )


def corners(row: lf.Table) -> list[Finding]:
    """Judge the corners of a map: small shortcuts held back or not, and shortcuts larger than the heads."""
    most, least = (0, -1) if row["family"] == GRADIENT else (-1, 0)
    knob = "tau_s eta_s =" if row["family"] == GRADIENT else "ridge"
    return [
        judge(
            median_interval(np.nan_to_num(row["dist"][:, size, back], nan=1.0)),
            text=f"B is learned where shortcuts are {told}",
            where=f"{row['family']}: size {row['size'][size]:g}, {knob} {row['back'][back]:g}",
            statistic="median dist",
            source=OWN_THRESHOLD,
            most=LEARNED,
            strict=True,
        )
        for told, size, back in (
            ("small and held back", 0, most),
            ("small and hardly held back", 0, least),
            ("large, though held back", -1, most),
        )
    ]
