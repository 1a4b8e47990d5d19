"""The method with the smallest risk, over the heterogeneity of clients and the numbers of clients and samples.

d = 20, k = 2, noise of standard deviation 0.5, and one fixed data set of m samples for each of n clients. Heads go from
equal ones (heterogeneity 0, where one model fits all clients) to the independent ones of the FedRep paper (1).

All methods for fixed data run on the same data sets. Each is tuned for the smallest median of the final risk on
separate trials, over a grid that grows while the best value is at its edge. The tuning uses the ground truth; this
favours no method. Methods with local steps take five of them in each of 100 rounds. `linfed.FedMTL` with a relation of
tasks, whose rounds are costly, has 10 rounds and is not in the map. Methods that find B without a tuned step size are a
group of their own: AltGDmin, alternating minimisation, the minimum of the empirical risk, and spectral estimators.

The simplest competitors are run, too: ridge regression without federation, one least-squares model for all clients, and
exact heads on the true B* (not a competitor). The predictions have no fitted parameter:
`linfed.theory.single_model_floor`, `linfed.theory.local_mean_risk` with the best ridge, and
`linfed.theory.fixed_sample_floor` for FedRep and other minimisers of the empirical risk.

**Deviations**: the claim of the FedRep paper is about images and neural networks. All sizes, the numbers of rounds and
of local steps, and "very close" as 10 % are our choice.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 5.2 and Table 1; the sources of the methods.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import label, line_style
from linfed.plotting.panels import Figures, draw_predicted, heat_map, label_ends
from linfed.statistics import median_interval
from linfed.statistics.intervals import Measured

from ._compared import (
    DIRECT,
    FEDREP,
    FT,
    LOCAL,
    ONE,
    ORACLE,
    OWN,
    POOLED,
    REFERENCE,
    RIDGE,
    RISK,
    SHARED,
    STEPS_FT,
    TASKS,
    Compared,
    methods,
)
from ._compared_claims import over_best, over_better

SUMMARY = "all methods against the heterogeneity of the clients and the numbers of clients and samples: a ranking"
CAPTIONS = {
    "": (
        "Excess risk against the heterogeneity of the heads, in four groups of methods. Lines: median over trials; "
        "methods whose medians differ by at most 15 % everywhere share the line of the first one. Dotted black: "
        "predicted, from top left for the best single model, ridge regression, and FedRep twice."
    ),
    "ranking": (
        "Excess risk of all methods, divided by that of the best method of the setting: median over paired trials, "
        "with 95 % intervals. Filled: ties with the best, within 2 %."
    ),
    "map": (
        "Group and name of the method with the smallest median risk, over the numbers of clients and samples, and the"
        " number of methods that tie with it."
    ),
}
PICTURES = {"map": 1400, "ranking": 1400, "": 2070}
REDUCED = {table: {"without": ("score", "diverged", "tried_*")} for table in ("heads", "sizes")}

TOP = c.cite(
    "FedRep paper, section 5.2, of neural networks",
    "In all cases, FedRep is either the top-performing method or is very close to the top-performing method",
    asked_of="a linear representation",
    threshold=True,
)
TABLE_1 = (
    *("FedAvg", "FedProx", "SCAFFOLD", LOCAL, STEPS_FT, FT, "Ditto", "APFL", "L2GD", "Per-FedAvg"),
    *("FedMTL, features", TASKS, "FedPer", "LGFedAvg"),
)
"""FedRep's rivals in Table 1; both fine-tuned variants stand for FedAvg+FT."""
CLOSE = 1.1
"""Ratio to the best method's excess risk that counts as very close."""
TIE = 1.02
"""A method ties with the best if the interval of its ratio contains a smaller number."""
GROUPS = (ONE, OWN, SHARED, DIRECT)
STEEP = 0.37
"""Sine of the largest angle up to which the prediction for FedRep is claimed."""
TITLES = {DIRECT: "without a tuned step size"}
"""Titles of groups, if different from their names."""
ALIKE = 1.15
"""Ratio up to which medians share a line."""
LAWS = {ONE: ("single_model",), OWN: ("ridge",), SHARED: ("fedrep",), DIRECT: ("fedrep",)}


@dataclass(frozen=True, kw_only=True)
class Predicted(Compared):
    """Predicted excess risks in one setting."""

    method: str = lf.choice(("predicted",), "predicted")

    def run(self) -> dict[str, Any]:
        """Return the predicted excess risk of the best single model, the best ridge, and FedRep, for each trial."""
        truth, noise = self.problem.truth(self.seed, range(self.trials)), self.noise_std**2 / 2
        assert truth.W is not None
        lengths = np.linalg.norm(truth.W, axis=-1)
        d, m, sigma = self.dim, self.n_samples, self.noise_std
        ridge = lf.theory.best_local_ridge(lengths, dim=d, n_samples=m, noise_std=sigma)
        alone = lf.theory.local_mean_risk(lengths, ridge=ridge, dim=d, n_samples=m, noise_std=sigma)
        row = {
            "single_model": lf.theory.single_model_floor(truth) - noise,
            "ridge": alone.mean(axis=-1) - noise,
            "fedrep": np.full(self.trials, np.nan),
        }
        spread = np.linalg.matrix_rank(truth.W).min() == self.rank
        if spread and m > self.rank + 3:
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # NaN beyond the range
                law = lf.theory.fixed_sample_floor(truth.W, dim=d, n_samples=m, noise_std=sigma)
            row["fedrep"] = np.where(law.distance < STEEP, law.risk - noise, np.nan)
        return row


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return all methods over the heterogeneity, and over n and m at two of its values; quick: fewer of all."""
    base, law = Compared(), Predicted()
    names: Sequence[str] = tuple(methods(rank=1))
    degrees: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    two: Sequence[float] = (0.3, 1.0)
    counts: Sequence[int] = (5, 10, 20, 40)
    sizes: Sequence[int] = (10, 30, 100)
    if quick:
        base = Compared(n_rounds=60, trials=8, tuning_trials=4, n_clients=20)
        law = Predicted(n_rounds=60, trials=8, tuning_trials=4, n_clients=20)
        degrees, two, counts, sizes = (0.0, 1.0), (1.0,), (10, 40), (20,)
        names = (POOLED, "FedAvg", RIDGE, "Ditto", FEDREP, "FedPer", RISK, "moments", ORACLE)
    fast = [name for name in names if name != TASKS]
    return {
        "heads": lf.grid(base, heterogeneity=degrees, method=names),
        "sizes": lf.grid(base, heterogeneity=two, n_clients=sizes, n_samples=counts, method=fast),
        "law": lf.grid(law, heterogeneity=degrees),
    }


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return the measured and predicted risks of each method with a prediction, in the settings that have one."""
    found = []
    for row in tables["law"]:
        for name, column in ((RIDGE, "ridge"), (FEDREP, "fedrep"), (RISK, "fedrep")):
            if np.isfinite(row[column]).all():
                measured = tables["heads"].select(method=name, heterogeneity=row["heterogeneity"])
                found += [one | {"predicted": row[column]} for one in measured.rows]
    return {"predictions": lf.Table(found)}


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the risks against the heterogeneity, the ranking, and the map of the best methods."""
    heads, points = tables["heads"], tables["sizes"]
    return {"": draw_risks(heads, tables["law"]), "ranking": draw_ranking(heads), "map": draw_map(points)}


def draw_risks(table: lf.Table, law: lf.Table) -> Any:
    """Draw the median excess risks of each group of methods against the heterogeneity, with predictions."""
    with lf.panels(table, row=2, column=2, height=5.4, sharex=True, sharey=True) as sheet:
        smallest = min(np.median(row["excess"]) for row in table)
        ridge = medians(table.select(method=RIDGE), "excess")[1]
        for group, ax in zip(GROUPS, sheet.axes.flat, strict=True):
            limits = {"xlim": (-0.04, 1.04), "ylim": (0.7 * smallest, 3 * ridge.max())}
            ax.set(title=TITLES.get(group, group), yscale="log", **limits)
            part = table.select(group=group)
            for turn, names in enumerate(alike(part)):
                x, values = medians(part.select(method=names[0]), "excess")
                text = "\n".join(wrap(", ".join(map(label, names)), width=22))
                ax.plot(x, values, label=text, **line_style(names[0], turn) | {"markersize": 3})
            label_ends(ax, gap=0.055)
            x, values = medians(table.select(method=ORACLE), "excess")
            ax.plot(x, values, color="0.35", linewidth=0.8, linestyle=(0, (4, 2)), label="exact heads on B*")
            for name in LAWS[group]:
                x, values = medians(law, name)
                draw_predicted(ax, x, np.where(values > 0, values, np.nan), linewidth=1.4, zorder=5)
        sheet.label("heterogeneity of the heads", *["excess risk"] * 2)
        alike_lines = f"methods within {100 * (ALIKE - 1):.0f} % of each other share a line"
        sheet.legend(f"median of {table.rows[0]['trials']} trials; {alike_lines}", ncols=2)
    return sheet.figure


def alike(table: lf.Table) -> list[list[str]]:
    """Return the methods, those together whose medians are within `ALIKE` of the first one's everywhere."""
    found: dict[str, list[str]] = {}
    values = {name: medians(part, "excess")[1] for name, part in table.groupby("method")}
    for name, own in values.items():
        near = (one for one in found if np.abs(np.log(own / values[one])).max() < np.log(ALIKE))
        found.setdefault(next(near, name), []).append(name)
    return list(found.values())


def medians(table: lf.Table, column: str) -> tuple[Any, Any]:
    """Return the degrees of heterogeneity, and the medians over trials of a column."""
    rows = sorted(table.rows, key=lambda row: row["heterogeneity"])
    return [row["heterogeneity"] for row in rows], np.array([np.median(row[column]) for row in rows])


def ranking(part: lf.Table) -> dict[str, Array]:
    """Return the excess risk of each method except the Oracle, (trials,), in the order of the medians."""
    excess: dict[str, Array] = {row["method"]: row["excess"] for row in part.rows if row["group"] != REFERENCE}
    return dict(sorted(excess.items(), key=lambda item: float(np.median(item[1]))))


def ratios(part: lf.Table) -> dict[str, Measured]:
    """Return each method's excess risk divided by that of the best method: median over trials with its interval."""
    excess = ranking(part)
    best = next(iter(excess.values()))
    return {name: median_interval(one / best) for name, one in excess.items()}


def tied(found: Mapping[str, Measured]) -> list[str]:
    """Return the methods that tie with the best, the best first."""
    return [name for name, (_, low, _) in found.items() if low <= TIE]


def draw_ranking(table: lf.Table) -> Any:
    """Draw all methods' ratios to the best one at the least, middle and largest heterogeneity."""
    degrees = sorted(table.unique("heterogeneity"))
    degrees = list(dict.fromkeys([degrees[0], degrees[len(degrees) // 2], degrees[-1]]))
    chosen = table.select(heterogeneity=degrees)
    with lf.panels(chosen, column="heterogeneity", title="heterogeneity {}", height=5.2, sharey=True) as sheet:
        last = ratios(table.select(heterogeneity=degrees[-1]))
        names = sorted(last, key=lambda name: last[name][0], reverse=True)
        for ax, part in sheet:
            found = ratios(part)
            ties = tied(found)
            for name, (middle, low, high) in found.items():
                y = names.index(name)
                color = COLORS[part.select(method=name).rows[0]["group"]]
                ax.plot([low, high], [y, y], color=color, linewidth=1.0)
                ax.plot(middle, y, "o", color=color, markersize=4, fillstyle="full" if name in ties else "none")
            ax.set_yticks(range(len(names)), [label(name) for name in names])
            ax.axvline(1.0, color="0.5", linewidth=0.7)
            ax.set(xscale="log", xlim=(0.8, 60))
        sheet.label("excess risk / the best method's")
        for group in GROUPS:
            sheet.axes[0, 0].plot([], [], "o-", color=COLORS[group], markersize=4, label=TITLES.get(group, group))
        sheet.legend(f"median and 95 % interval of {table.rows[0]['trials']} paired trials", ncols=4)
    return sheet.figure


COLORS = {ONE: "#D55E00", OWN: "#000000", SHARED: "#2F6DB5", DIRECT: "#44AA99"}


def draw_map(table: lf.Table) -> Any:
    """Draw the method with the smallest median risk over n and m/d, coloured by its group."""
    from matplotlib.colors import ListedColormap

    with lf.panels(table, column="heterogeneity", title="heterogeneity {}", height=3.2, sharey=True) as sheet:
        for ax, part in sheet:
            counts, sizes = sorted(part.unique("n_samples")), sorted(part.unique("n_clients"))
            values = np.full((len(sizes), len(counts)), np.nan)
            for (n, m), point in part.groupby("n_clients", "n_samples"):
                names = tied(ratios(point))
                group = point.select(method=names[0]).rows[0]["group"]
                row, column = sizes.index(n), counts.index(m)
                values[row, column] = GROUPS.index(group)
                others = f"\n+ {len(names) - 1} tie{'s' * (len(names) > 2)}" if len(names) > 1 else ""
                ax.text(column, row, label(names[0]) + others, ha="center", va="center", fontsize=5.5)
            shares = [f"{m / part.rows[0]['dim']:g}" for m in counts]
            pale = ListedColormap([COLORS[group] for group in GROUPS])
            heat_map(ax, values, shares, [f"{n:,}" for n in sizes], cmap=pale, vmin=-0.5, vmax=3.5, alpha=0.35)
        sheet.label("$m/d$", "clients $n$")
        for group in GROUPS:
            sheet.axes[0, 0].plot([], [], "s", color=COLORS[group], alpha=0.35, label=TITLES.get(group, group))
        sheet.legend(f"smallest median of {table.rows[0]['trials']} trials, and ties within 2 %", ncols=4)
    return sheet.figure


# --- claims --------------------------------------------------------------------------------------------------


def rivals(part: lf.Table) -> lf.Table:
    """Return the rows of all methods that compete with FedRep."""
    return lf.Table([row for row in part.rows if row["group"] != REFERENCE and row["method"] != FEDREP])


def at_size(part: lf.Table) -> str:
    """Return the setting of a point of the map."""
    row = part.rows[0]
    share = row["n_samples"] / row["dim"]
    return f"heterogeneity {row['heterogeneity']:g}, n = {row['n_clients']:,}, m/d = {share:g}"


def predicted(name: str) -> c.Claim:
    """Return the claim that a method has the predicted risk at all degrees of heterogeneity."""
    words = "factor between the median over trials and the prediction, worst degree"
    return c.Claim(
        f"{name if name == FEDREP else label(name).capitalize()}: the risk is the predicted one",
        c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}"),
        c.factor("excess", "predicted", words, c.at_most(1.15)),
        table="predictions",
        where=c.of(method=name),
        setting="{points} degrees of heterogeneity",
    )


RANKED: dict[str, tuple[c.Source, Callable[[lf.Table], lf.Table]]] = {
    "FedRep is the best method of Table 1, or very close to the best": (TOP, c.of(method=TABLE_1)),
    "FedRep is the best of all methods here, or very close to the best": (c.OWN_THRESHOLD, rivals),
}
"""The sources of the claims on FedRep's rank, and its rivals."""
DEGREE = "heterogeneity {heterogeneity:g}"
PERSONAL = (
    STEPS_FT,
    "Ditto",
    "APFL",
    "pFedMe",
    "L2GD",
    "Per-FedAvg",
    "FedMTL, features",
    TASKS,
    "nuclear norm",
)
BETTER = "has a smaller risk than pooled least squares and than ridge regression without federation"
CLAIMS = (
    *(
        c.Claim(
            sentence,
            source,
            over_best(
                FEDREP,
                others,
                "FedRep's excess risk divided by another method's, median over paired trials, largest over the methods",
                "best other",
                c.at_most(CLOSE),
            ),
            table=table,
            over=c.each("heterogeneity", *sizes),
            setting=setting,
        )
        for sentence, (source, others) in RANKED.items()
        for table, sizes, setting in (("heads", (), DEGREE), ("sizes", ("n_clients", "n_samples"), at_size))
    ),
    *(
        c.Claim(
            f"{name[0].upper() + name[1:]} {BETTER}",
            c.OWN_THRESHOLD,
            over_better(name, (POOLED, RIDGE), "the better one"),
            over=c.each("heterogeneity"),
            setting=DEGREE,
        )
        for name in PERSONAL
    ),
    predicted(RIDGE),
    predicted(FEDREP),
    predicted(RISK),
)
