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

The settings that work best are searched for at m on both sides of d: all pairs of steps for B and for the shortcut in
Algorithm 1, of steps and ridges in the joint form, for the least median parameter error after the last round on
separate trials. The rival to beat is FedRep with one personal ridge fit at its end (`lf.Personalised`), searched for
over as many pairs of steps and ridges; FedRep alone has the same steps to choose from.

Beside each prediction of a map stands the best that a rule without the data set could do, in hindsight.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, by_sentence, judge, share
from linfed.statistics.intervals import median_interval, quantiles
from linfed.study.run import Table, Tables, rows, select, tidy

from ._lines import line_findings, line_rows
from ._shared import HUGE, legend, panels, tuned
from ._shortcut import LEARNED, RANK, critical_size, limit_distance, problem_of, uncorrelated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUMMARY = "Shortcut draft: where B is learned, over the shortcuts' size, their steps, and a ridge on them"

TRUTHS = ("uncorrelated", "orthogonal", "any")
TITLES = {
    "uncorrelated": "orthogonal, exactly uncorrelated",
    "orthogonal": "orthogonal to $B^*$",
    "any": "no regard to $B^*$",
}
GRADIENT, SEVERAL, JOINT, PLAIN = "Algorithm 1", "Algorithm 1, three steps", "joint ridge", "joint ridge, plain step"
KINDS = ((GRADIENT, TRUTHS), (SEVERAL, ("orthogonal",)), (JOINT, TRUTHS), (PLAIN, ("orthogonal",)))
"""The maps: families, and the truths that each is run on."""

METHODS = {"the shortcuts' setting": "", "the fit's": "fit_", "FedRep's": "fedrep_"}
"""What a search tunes, and how its columns begin."""
SEARCHED = tuple(
    f"{method}{what}" for method in METHODS.values() for what in ("settings", "step_size", "held", "at_edge")
)
ERRORS = ("dist", "error", "refitted_error", "local_error", "fedrep_dist", "fedrep_error", "fit_dist", "fit_error")
"""What a search found, by method, and what its settings came to in every trial."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """All sizes are chosen here: the draft names none."""

    n_samples: int = 100
    noise_std: float = 0.1
    sizes: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
    products: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    ridges: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    step_size: float = 0.3
    joint_step_size: float = 0.5
    several: int = 3
    search_samples: tuple[int, ...] = (10, 40)
    search_sizes: tuple[float, ...] = (0.5, 1.0)
    search_steps: tuple[float, ...] = (0.1, 0.3, 0.5, 1.0)
    search_shortcut_steps: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    search_ridges: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    search_trials: int = 60
    tuning_trials: int = 20
    rounds: int = 200
    joint_rounds: int = 100
    trials: int = 20
    seed: int = 0

    def quick(self) -> Config:
        """Return fewer trials, sizes, settings and rounds."""
        return replace(
            self,
            trials=6,
            sizes=(0.5, 3.0),
            products=(0.003, 0.3),
            ridges=(0.1, 1.0),
            rounds=60,
            joint_rounds=20,
            search_samples=(10,),
            search_sizes=(0.5,),
            search_steps=(0.3,),
            search_shortcut_steps=(0.001, 0.003),
            search_ridges=(0.1, 0.3),
            search_trials=6,
            tuning_trials=2,
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row of a map: one kind of truth, one size, one family of algorithms; or the search for its best setting."""

    family: str
    truth: str
    size: float
    n_samples: int
    config: Config
    search: bool = False


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    alone = replace(config, sizes=(), search_samples=(), search_sizes=())
    m = config.n_samples
    kinds = [(JOINT, truth) for truth in TRUTHS] + [(PLAIN, "orthogonal")]
    kinds += [(GRADIENT, truth) for truth in TRUTHS] + [(SEVERAL, "orthogonal")]
    rows_of_maps = [
        Cell(family=family, truth=truth, size=size, n_samples=m, config=alone)
        for family, truth in kinds
        for size in config.sizes
    ]
    searches = [
        Cell(family=family, truth="any", size=size, n_samples=m, config=alone, search=True)
        for family in (GRADIENT, JOINT)
        for m in config.search_samples
        for size in config.search_sizes
    ]
    return [*searches, *rows_of_maps]


def algorithms(cell: Cell) -> list[lf.FedRepShortcut]:
    """Return the algorithms along a row of the map."""
    c = cell.config
    if cell.family in (JOINT, PLAIN):
        joint = lf.FedRepShortcut(
            rank=RANK, step_size=1.0, solver="closed-form", order="joint", ridge=1.0, init="random"
        )
        slow = {ridge: ridge / (1.0 + ridge) if cell.family == JOINT else 1.0 for ridge in c.ridges}
        return [replace(joint, ridge=ridge, step_size=c.joint_step_size / slow[ridge]) for ridge in c.ridges]
    steps = c.several if cell.family == SEVERAL else 1
    plain = lf.FedRepShortcut(rank=RANK, step_size=c.step_size, shortcut_steps=steps, init="random")
    return [replace(plain, shortcut_step_size=product / steps) for product in c.products]


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run a row of the map, on samples and (Algorithm 1) on the population, from the same starts; or search."""
    if cell.search:
        return search(cell)
    c = cell.config
    drawn = problem_of(cell.size, noise_std=c.noise_std, orthogonal=cell.truth != "any")
    exact = cell.truth == "uncorrelated"
    problem: Any = uncorrelated(drawn, trials=c.trials, seed=c.seed) if exact else drawn
    truth = problem.truth(c.seed, range(c.trials))
    joint = cell.family in (JOINT, PLAIN)
    rounds = c.joint_rounds if joint else c.rounds
    sources: dict[str, Any] = {"": lf.FixedSamples(c.n_samples)}
    if not joint:
        sources["population_"] = lf.GivenSamples.population(problem, trials=c.trials, seed=c.seed)
    found: dict[str, list[Any]] = {}
    for algorithm in algorithms(cell):
        for name, data in sources.items():
            result = lf.simulate(
                algorithm,
                problem,
                data=data,
                rounds=rounds,
                trials=c.trials,
                seed=c.seed,
                metrics=["subspace_distance", "parameter_error"],
                record_every=rounds,
            )
            found.setdefault(f"{name}dist", []).append(result.metrics["subspace_distance"][:, -1])
            found.setdefault(f"{name}error", []).append(result.metrics["parameter_error"][:, -1])
    out = {name: np.stack(values, axis=1) for name, values in found.items()}
    return {**out, "limit": limit_distance(truth), "critical": cell.size * critical_size(truth)}


def searched(cell: Cell) -> dict[str, tuple[Any, Any]]:
    """Return what a search tunes: an algorithm and its grid each, all of them with the same steps on B.

    The family itself; its rival, FedRep with one personal fit at its end, over as many settings; and FedRep alone.
    """
    c = cell.config
    fedrep = lf.FedRep(rank=RANK, step_size=1.0, init="random")
    learned: tuple[Any, Any]
    if cell.family == JOINT:
        pairs = [(step, ridge) for step in c.search_steps for ridge in c.search_ridges]
        grid = [{"ridge": ridge, "step_size": step * (1.0 + ridge) / ridge} for step, ridge in pairs]
        learned = algorithms(cell)[0], grid
    else:
        plain = lf.FedRepShortcut(rank=RANK, step_size=1.0, init="random")
        learned = plain, {"step_size": c.search_steps, "shortcut_step_size": c.search_shortcut_steps}
    bases = [replace(fedrep, step_size=step) for step in c.search_steps]
    fit = lf.Personalised(base=fedrep, ridge=1.0), {"base": bases, "ridge": c.search_ridges}
    return {"": learned, "fit_": fit, "fedrep_": (fedrep, {"step_size": c.search_steps})}


def search(cell: Cell) -> dict[str, Any]:
    """Find the settings of least final parameter error on separate trials, and run them beside Local only."""
    c = cell.config
    joint = cell.family == JOINT
    problem = problem_of(cell.size, noise_std=c.noise_std)
    rounds = c.joint_rounds if joint else c.rounds
    run: dict[str, Any] = {
        "data": lf.FixedSamples(cell.n_samples),
        "rounds": rounds,
        "seed": (c.seed, cell.n_samples),
        "record_every": rounds,
    }
    found: dict[str, Any] = {}
    best: dict[str, Any] = {"local_": lf.LocalOnly()}
    for name, (algorithm, grid) in searched(cell).items():
        # No margin for ties: what is to be told apart is smaller.
        options = {"metric": "parameter_error", "score": "final", "margin": 0.0, "trials": c.tuning_trials}
        tuning = tuned(algorithm, problem, grid=grid, **options, **run)
        best[name] = tuning.algorithm
        found[f"{name}settings"] = np.array(len(tuning.settings))
        found[f"{name}at_edge"] = np.array(_at_edge(cell, tuning.algorithm))
    for name, algorithm in best.items():
        refits = joint and not name
        result = lf.simulate(
            replace(algorithm, refit=True) if refits else algorithm,
            problem,
            trials=c.search_trials,
            metrics=["parameter_error", *([] if name == "local_" else ["subspace_distance"])],
            **run,
        )
        error = result.metrics["parameter_error"]
        found[f"{name}error"] = error[:, 1 if refits else -1]
        if not name:
            found["refitted_error"] = error[:, -1] if refits else np.full(c.search_trials, np.nan)
        if name != "local_":
            found[f"{name}dist"] = result.metrics["subspace_distance"][:, -1]
    chosen = {name: _setting(cell, best[name]) for name in METHODS.values()}
    found |= {f"{name}step_size": np.array(step) for name, (step, _) in chosen.items()}
    return found | {f"{name}held": np.array(held) for name, (_, held) in chosen.items()}


def _setting(cell: Cell, algorithm: Any) -> tuple[float, float]:
    """Return the step on B, of the joint form without the ridge's slowing, and what holds the personal part back."""
    if isinstance(algorithm, lf.Personalised):
        return _setting(cell, algorithm.base)[0], algorithm.ridge
    if isinstance(algorithm, lf.FedRep):
        return algorithm.step_size, np.nan
    if cell.family == JOINT:
        return algorithm.step_size * algorithm.ridge / (1.0 + algorithm.ridge), algorithm.ridge
    return algorithm.step_size, algorithm.shortcut_step_size


def _at_edge(cell: Cell, algorithm: Any) -> bool:
    """Return whether a chosen value is the first or the last of its grid."""
    c = cell.config
    gradient = isinstance(algorithm, lf.FedRepShortcut) and cell.family == GRADIENT
    grids = c.search_steps, c.search_shortcut_steps if gradient else c.search_ridges
    return any(
        len(grid) > 1 and bool(np.isclose(value, (grid[0], grid[-1])).any())
        for value, grid in zip(_setting(cell, algorithm), grids, strict=True)
    )


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return the maps, the truths' own numbers, and the best column of each row, as tidy tables."""
    parts: dict[str, list[Table]] = {"map": [], "truths": [], "search": []}
    trials: dict[str, Any] = {"trial": np.arange(config.trials)}
    for cell, found in zip(cells(config), results, strict=True):
        keys: dict[str, Any] = {"family": np.array(cell.family, dtype="U32")}
        keys |= {"truth": np.array(cell.truth, dtype="U16"), "size": cell.size, "n_samples": cell.n_samples}
        joint = cell.family in (JOINT, PLAIN)
        if cell.search:
            keys |= {name: found[name][()] for name in SEARCHED}
            each = {"trial": np.arange(config.search_trials)}
            parts["search"].append(tidy(keys, each, {name: found[name] for name in ERRORS}))
            continue
        held = config.ridges if joint else config.products
        limit = np.broadcast_to(found["limit"][:, None], found["dist"].shape)
        values = {"dist": found["dist"], "error": found["error"]}
        values["predicted"] = limit if joint else found["population_dist"]
        parts["map"].append(tidy(keys, {**trials, "held": held}, values))
        if cell.family == GRADIENT:
            own = {name: found[name] for name in ("limit", "critical")}
            parts["truths"].append(tidy({"truth": keys["truth"], "size": cell.size}, trials, own))
    out = {name: np.concatenate(found) for name, found in parts.items()}
    out["best"] = _best(out["search"])
    out["lines"] = np.concatenate([_line(out["map"], family, truth) for family, kinds in KINDS for truth in kinds])
    return out


def _line(table: Table, family: str, truth: str) -> Table:
    """Return how far the prediction of every data set tells its map, and how far a size common to all does."""
    part = select(table, family=family, truth=truth)
    part = part[np.lexsort((part["size"], part["held"], part["trial"]))]
    shape = tuple(len(np.unique(part[name])) for name in ("trial", "held", "size"))
    lost, said = (~(part[name] < LEARNED).reshape(shape) for name in ("dist", "predicted"))
    keys = {"family": np.array(family, dtype="U32"), "truth": np.array(truth, dtype="U16")}
    return line_rows(keys, lost, said)


def _best(table: Table) -> Table:
    """Return a row for each search: its grids' sizes, what it found, and the medians of the trials that count."""
    keys = ("family", "size", "n_samples")
    records = []
    for values in np.unique(table[list(keys)]).tolist():
        part = select(table, **dict(zip(keys, values, strict=True)))
        medians = [np.nan if np.isnan(part[name]).all() else float(quantiles(part[name])[0]) for name in ERRORS]
        records.append((*part[[*keys, *SEARCHED]][0].item(), *medians))
    return rows(
        [*((key, table.dtype[key]) for key in (*keys, *SEARCHED)), *((name, float) for name in ERRORS)], records
    )


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the maps over the three kinds of truth, and those with several shortcut steps and with a plain step."""
    figures = {}
    for key, columns in (
        ("", [[(family, truth) for truth in TRUTHS] for family in (GRADIENT, JOINT)]),
        ("steps", [[(SEVERAL, "orthogonal"), (PLAIN, "orthogonal")]]),
    ):
        figures[key] = _figure(tables, columns)
    return figures


def _figure(tables: Tables, grid: Sequence[Sequence[tuple[str, str]]]) -> Figure:
    from linfed.figures import style as plotting

    main = len(grid) > 1
    trials = len(np.unique(tables["map"]["trial"]))
    titles = [TITLES[truth] if main else family for family, truth in grid[0]]
    size = "root mean square length of $s_i^*$"
    figure, axes = panels(titles, 5.4 if main else 3.2, rows=len(grid))
    with plotting.style():
        for row, line in zip(axes, grid, strict=True):
            for ax, (family, truth) in zip(row, line, strict=True):
                image = _draw(ax, tables, family, truth)
            row[0].set_ylabel(f"{line[0][0]}\n{size}" if main else size)
        figure.colorbar(image, ax=axes, label="dist$(B, B^*)$ at the end, median", pad=0.02, aspect=30)
        # The keys of both rows: the rows' predictions are not the same.
        legend(figure, axes.ravel(), f"{trials} trials; rows and columns are not evenly spaced")
    return figure


def _median(part: Table, column: str) -> tuple[Any, Any, Any]:
    """Return sizes, columns of the map, and the median over trials (sizes, columns)."""
    sizes, held = np.unique(part["size"]), np.unique(part["held"])
    values = part[column].reshape(len(sizes), -1, len(held))
    return sizes, held, quantiles(np.moveaxis(values, 1, 0))[0]


def _draw(ax: Axes, tables: Tables, family: str, truth: str) -> Any:
    """Draw a map with its predictions."""
    from matplotlib import patheffects

    part = select(tables["map"], family=family, truth=truth)
    sizes, held, dist = _median(part, "dist")
    predicted = _median(part, "predicted")[2]
    image = ax.imshow(np.minimum(dist, 1.0), origin="lower", aspect="auto", cmap="Blues", vmin=0, vmax=1)
    halo: Any = [patheffects.withStroke(linewidth=2.6, foreground="white")]
    joint = family in (JOINT, PLAIN)
    columns, lines = np.arange(len(held)), np.arange(len(sizes))
    for i, line in enumerate(dist):
        for j, value in enumerate(line):
            ax.text(
                j,
                i,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=5,
                color="white" if value > 0.55 else "0.2",
                zorder=5,
            )
    shape: dict[str, Any]
    for values, shape, text in (
        (dist, {"colors": "black", "linestyles": "-"}, "measured: dist = 0.5"),
        (
            predicted,
            {"colors": "#D55E00", "linestyles": "--"},
            "population: dist = 0.5",
        ),
    ):
        if values.min() < LEARNED < values.max():
            drawn = ax.contour(columns, lines, values, levels=[LEARNED], linewidths=1.3, **shape)
            drawn.set_path_effects(halo)
        ax.plot([], [], color=shape["colors"], linestyle=shape["linestyles"], linewidth=1.3, label=text)
    critical = float(np.median(select(tables["truths"], truth=truth)["critical"]))
    level = float(np.interp(critical, sizes, lines))
    ax.axhline(level, color="#882255", linestyle=":", linewidth=1.6, path_effects=halo)
    text = "$\\lambda_{min}(\\Gamma) = \\lambda_{max}(\\Sigma)$"
    ax.plot([], [], color="#882255", linestyle=":", linewidth=1.6, label=text)
    ax.set_xticks(columns, [f"{value:g}".replace("0.", ".") for value in held])
    ax.set_yticks(lines, [f"{value:g}" for value in sizes])
    ax.grid(visible=False)
    ax.set_xlabel("ridge" if joint else "$\\tau_s \\eta_s$")
    return image


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return how the predictions agree, where B is learned and lost, and what the best settings reach."""
    table, truths = tables["map"], tables["truths"]
    found = [*_agreement(table), *_lines(tables["lines"]), *_conditions(table, truths), *_ends(table)]
    return by_sentence([*found, *_pays(tables["search"])])


def _by_trial(part: Table, column: str) -> Any:
    """Return a column as (trials, points of the map)."""
    order = np.argsort(part["trial"], kind="stable")
    return part[column][order].reshape(len(np.unique(part["trial"])), -1)


def _shared_by(hits: Any, least: float, **said: Any) -> Finding:
    """Judge a share of a map's points, hits (trials, points), with an interval over the trials that they share."""
    trial = np.broadcast_to(np.arange(len(hits))[:, None], hits.shape)
    return share(hits.ravel(), least, clusters=trial.ravel(), **said)


def _agreement(table: Table) -> list[Finding]:
    """Judge the population's prediction, point by point."""
    out = []
    for family, kinds in KINDS:
        for truth in kinds:
            part = select(table, family=family, truth=truth)
            dist, predicted = (_by_trial(part, name) for name in ("dist", "predicted"))
            apart = np.median(np.abs(dist - predicted))
            joint = family in (JOINT, PLAIN)
            out.append(
                _shared_by(
                    (dist < LEARNED) == (predicted < LEARNED),
                    0.9,
                    source=f"{OWN_PREDICTION}; the 0.9 is an {OWN_THRESHOLD}",
                    text="The population tells where B is learned"
                    + (" with a ridge: dist(U_k, B*) whatever the ridge" if joint else ""),
                    where=f"{family}: {truth}",
                    statistic="share of the map's points, in each trial, on the same side of dist = 0.5",
                    detail=f"median |difference| {apart:.2g}",
                    note="small ridges slow B: the rounds are too few" if family == PLAIN else "",
                )
            )
    return out


def _lines(table: Table) -> list[Finding]:
    """Judge the population's prediction against a rule that knows the sizes alone, and no data set."""
    return [
        finding
        for family, kinds in KINDS
        for truth in kinds
        for finding in line_findings(
            select(table, family=family, truth=truth),
            fixed="the best size common to all data sets, in hindsight and for each column of the map",
            text="The population of each data set's own truth tells where B is learned better than any common size",
            where=f"{family}: {truth}",
        )
    ]


def _conditions(table: Table, truths: Table) -> list[Finding]:
    """Judge the eigenvalue condition where the shortcut is held back most: B learned just where it holds."""
    out = []
    for family in (GRADIENT, JOINT):
        part = select(table, family=family)
        edge = part["held"].min() if family == GRADIENT else part["held"].max()
        for truth in TRUTHS:
            chosen = select(part, truth=truth, held=edge)
            dist = _by_trial(chosen, "dist")
            own = select(truths, truth=truth)
            holds = _by_trial(own, "size") < _by_trial(own, "critical")
            short = int(np.sum((dist >= LEARNED) & holds))
            out.append(
                _shared_by(
                    (dist < LEARNED) == holds,
                    0.9,
                    source=f"{OWN_PREDICTION}; the 0.9 is an {OWN_THRESHOLD}",
                    text="B is learned where lambda_min(Gamma) > lambda_max(mean s s'), and only there",
                    where=f"{family}: {truth}",
                    statistic="share of sizes, in each trial, for which both agree; shortcut held back most",
                    detail=f"the condition holds and B is not learned: {short} of {holds.sum()}",
                )
            )
    return out


def _ends(table: Table) -> list[Finding]:
    """Judge the corners of the maps: small shortcuts held back or not, and shortcuts larger than the heads."""
    sizes = np.unique(table["size"])
    out = []
    for family in (GRADIENT, JOINT):
        part = select(table, family=family, truth="orthogonal")
        held = np.unique(part["held"])
        back, loose = (held[0], held[-1]) if family == GRADIENT else (held[-1], held[0])
        for text, size, at in (
            ("B is learned where shortcuts are small and held back", sizes[0], back),
            ("B is learned where shortcuts are small and hardly held back", sizes[0], loose),
            ("B is learned where shortcuts are large, though held back", sizes[-1], back),
        ):
            dist = np.nan_to_num(select(part, size=size, held=at)["dist"], nan=1.0)
            out.append(
                judge(
                    median_interval(dist),
                    text=text,
                    where=f"{family}: size {size:g}, {'ridge' if family == JOINT else 'tau_s eta_s ='} {at:g}",
                    statistic="median dist",
                    source=OWN_THRESHOLD,
                    most=LEARNED,
                    strict=True,
                )
            )
    return out


def _pays(table: Table) -> list[Finding]:
    """Judge whether the setting that the search found beats Local only and FedRep, and one fit at FedRep's B."""
    out = []
    for row in _best(table):
        mine = select(table, **{name: row[name] for name in ("family", "size", "n_samples")})
        where = {"where": f"m = {row['n_samples']}, size {row['size']:g}: {row['family']}"}
        found = f"eta {row['step_size']:g}, {'ridge' if row['family'] == JOINT else 'eta_s'} {row['held']:g}"
        rival = f"the fit: eta {row['fit_step_size']:g}, ridge {row['fit_held']:g}"
        edges = [f"{name} found at the edge of its grid" for name in METHODS if row[f"{METHODS[name]}at_edge"]]
        said: dict[str, Any] = {**where, "source": "the draft's aim", "note": "; ".join(edges)}
        trained, alone, fit = (np.nan_to_num(mine[f"{name}error"], nan=HUGE) for name in ("", "fedrep_", "fit_"))
        for name, told in (("local", "Local only"), ("fedrep", "FedRep")):
            out.append(
                judge(
                    median_interval(mine[f"{name}_error"] / trained),
                    text=f"The best setting found has a smaller parameter error than {told}",
                    statistic=f"{told}'s error over its error, median",
                    least=1.0,
                    strict=True,
                    detail=f"{found}; dist {row['dist']:.2g}",
                    **said,
                )
            )
        gain = alone - trained
        out.append(
            judge(
                median_interval(fit / trained),
                text="The best setting found has a smaller parameter error than one personal fit at FedRep's B",
                statistic="the fit's error over its error, median of paired trials",
                least=1.0,
                strict=True,
                detail=f"{row['fit_error']:.3g} against {row['error']:.3g}; {rival}",
                **said,
            )
        )
        out.append(
            judge(
                median_interval(np.where(gain > 0, (alone - fit) / np.where(gain > 0, gain, 1.0), np.inf)),
                text="One personal fit at FedRep's B keeps at least nine tenths of what the shortcuts gain over FedRep",
                statistic="its gain over FedRep in the parameter error, as a share of theirs; median of paired trials, "
                "infinite where they gain nothing",
                least=0.9,
                detail=f"FedRep {row['fedrep_error']:.3g}; {np.sum(gain <= 0)} of {len(gain)} trials without a gain",
                **{**said, "source": OWN_THRESHOLD},
            )
        )
    return out
