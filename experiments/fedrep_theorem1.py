"""FedRep paper, Theorem 1, judged from runs: the verdict, how loose the bound is, and the constant that it needs.

Every constant is computed from the runs. The unnamed C of the hypothesis on m is 1 in the verdicts, where m is then
what the theorem asks for; beside them stands the least C with which the bound holds in 95 % of the trials, setting by
setting: m is searched for by halving. Heads of equal length have a prescribed kappa over all clients (that of
participant sets is larger); B starts at one distance in all directions; n = d = 50, k = 2, 100 trials of 60 rounds under the engine
"chain", but for what moves. Runs that break one hypothesis each are there to be found out, and the simplest rivals
stand beside: for the samples ``k + 2 + d k / p``, which knows neither kappa nor E_0 nor a logarithm, and for the rate a
bound that takes all heads for isotropic.

The theorem's failure probability, below 1e-29 for two participants or more, is beyond all trials: one trial that fails
refutes, none of 100 leaves a share of up to 3.6 % open. With p < n the constants are those of the sets that occurred.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1, section 4.2; section 5.1 for the figures' sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import PAGE_WIDTH, look, style
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, quoted
from linfed.statistics.intervals import median_interval
from linfed.study.pages import Figures, bars
from linfed.theory.fedrep import theorem1, theorem1_judges

from ._theorem1 import (
    ALLOWED,
    FEW,
    GRID,
    LEAST,
    MOVES,
    NAMES,
    Judged,
    Least,
    SameBatch,
    Sizes,
    constant,
    foreseen,
    run_of,
    searched,
    told,
)

SUMMARY = "FedRep paper, Theorem 1: the verdict over a grid, how loose its bound is, the constant that it needs"

SPOILT: dict[str, dict[str, Any]] = {
    "noise": {"noise_std": 0.5},
    "fixed samples": {"fixed": True},
    "step x 12": {"step": 12.0},
    "m = k": {"m": 2},
    "GD heads, 1 step": {"gradient_steps": 1},
    "GD heads, 10 steps": {"gradient_steps": 10},
    "p = 2 < k = 3": {"participation": 0.1, "rank": 3},
}
"""What breaks one hypothesis, all others but those that it takes along."""
LARGE = {
    "n = p = d = 10,000": {"n_clients": 10_000, "dim": 10_000, "rounds": 40},
    "n = 100,000, p = d = 1000": {"n_clients": 100_000, "dim": 1000, "participation": 0.01, "rounds": 40},
}
TWO = {"n_clients": 2, "rank": 1, "rounds": 20}
PAIRS = {"two clients, d = 4": {**TWO, "dim": 4}, "two clients, d = 10": {**TWO, "dim": 10, "trials": 3000}}
ALONE = {"one client of 50, k = 1": {"rank": 1, "participation": 0.02}}


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the runs, the searches, the looks at QR and the paper's sizes; quick: a few of each, small."""
    small: dict[str, Any] = {"n_clients": 12, "dim": 8, "rounds": 10, "trials": 72}
    base, least, trials = (Judged(**small), Least(**small), 72) if quick else (Judged(), Least(), 100)
    heads = ((2, 1.0), (2, 3.0)) if quick else ((1, 1.0), (2, 1.0), (2, 4.0), (5, 1.0), (5, 4.0))
    ways = {"participation": (1.0, 0.5)} | ({} if quick else {"step": (0.1, 1.0), "start": (0.3, 0.9)})
    grid = lf.grid(replace(base, name=GRID), **{"rank, condition": heads}, **ways)
    spoilt = {**small, "n_clients": 20, "dim": 10} | ({} if quick else {"trials": 100, "rounds": 100})
    named = {**{name: {**spoilt, **own} for name, own in SPOILT.items()}, **PAIRS, **ALONE, **({} if quick else LARGE)}

    def along(cell: Any, moves: dict[str, tuple[Any, ...]]) -> list[Any]:
        parts = {name: values[:: 3 if quick else 1] for name, values in moves.items()}
        return [one for name, values in parts.items() for one in lf.grid(replace(cell, name=name), **{name: values})]

    pairs = [replace(least, name=name, **{**own, "trials": trials}) for name, own in PAIRS.items()]
    figures = (("3", 10, 10, 5, 0.1), ("3", 100, 10, 5, 0.1), ("3", 1000, 10, 5, 0.1), ("3", 10_000, 10, 5, 0.1))
    figures += (("1", 100, 20, 5, 1.0), ("1", 100, 20, 20, 1.0), ("4", 100, 20, 10, 0.1))
    return {
        "runs": [
            *grid,
            *(replace(cell, name=FEW) for cell in grid if cell.step == 1.0),
            *along(base, MOVES),
            *(replace(base, name=name, **own) for name, own in named.items()),
        ],
        "least": [*along(least, {"condition": LEAST["condition"]} if quick else LEAST), *pairs[: 1 if quick else 2]],
        "same_batch": [SameBatch(heads=how, trials=2 if quick else 20) for how in ("exact", "gradient")],
        "sizes": lf.grid(Sizes(), **{"figure, n_clients, dim, m, participation": figures[: 2 if quick else None]}),
    }


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return curves with their bounds, the map of verdicts, the looseness, and the least constants."""
    with style():
        return {
            "curves": curves(tables["runs"]),
            "verdicts": verdicts(tables["least"]),
            "looseness": looseness(tables["runs"]),
            "constants": constants(tables["least"]),
        }


def curves(table: lf.Table) -> Any:
    """Return measured distances with the bound at both exponents, and state evolution."""
    import matplotlib.pyplot as plt

    few = table.where(name=FEW, participation=1.0)
    chosen = [*table.where(name="condition", condition=[1.0, 8.0]), table.where(name="start", start=[0.99, 0.1])]
    rows = [*chosen[:-1], *list(chosen[-1])[-1:], *list(few)[-1:]]
    figure, axes = plt.subplots(1, len(rows), figsize=(PAGE_WIDTH, 2.5), layout="constrained", squeeze=False)
    for ax, row in zip(axes[0], rows, strict=True):
        run, name = run_of(row), row["name"]
        lf.curves(ax, row, "round", "distance", by="name", labels={name: "measured"}, looks={name: "FedRep"})
        for exponent, line, text in ((theorem1.PRINTED, "-", "bound, T/2"), (theorem1.SAME_BATCH, "--", "bound, T")):
            ax.plot(run.rounds, np.median(run.bound(exponent), axis=0), color="#D55E00", linestyle=line, label=text)
        ax.plot(run.rounds, row["predicted"][0], color="black", linewidth=0.9, linestyle=":", label="state evolution")
        first, _, last = told(row).rpartition(", ")
        ax.set(title=f"{first}\n{last}", xlabel="round", yscale="log")
    axes[0, 0].set_ylabel("distance to B*")
    shape = {"loc": "outside upper center", "title": f"median and 10-90 % of {rows[0]['trials']} trials"}
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=4, **shape)
    return figure


def verdicts(table: lf.Table) -> Any:
    """Return the numbers of samples that were tried in every setting, by what became of the bound."""
    import matplotlib.pyplot as plt

    rows = list(table)[::-1]
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 0.9 + 0.15 * len(rows)), layout="constrained")
    for place, row in enumerate(rows):
        count = np.asarray(row["failed"])
        kinds = {
            "fails in more than 5 % of the trials": ("#D55E00", count > ALLOWED * row["trials"]),
            "in some trials": ("#E69F00", (count > 0) & (count <= ALLOWED * row["trials"])),
            "in none": ("#0072B2", count == 0),
        }
        for text, (colour, mask) in kinds.items():
            at = row["tried"][mask]
            ax.plot(at, np.full(len(at), place), "o", color=colour, markersize=3.5, label=text)
        ax.plot(row["rival"], place, "D", color="black", fillstyle="none", label="k + 2 + d k / p")
        ax.plot(row["needed"], place, "|", color="black", markersize=9, markeredgewidth=2, label="Theorem 1, C = 1")
    ax.set_yticks(range(len(rows)), [searched(row) for row in rows])
    ax.set(xscale="log", xlabel="samples m of a client and round")
    labels = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(labels.values(), labels.keys(), ncols=5, loc="outside upper center", title="the bound")
    return figure


def looseness(table: lf.Table) -> Any:
    """Return how many times as fast as the bound runs are, against eta, kappa and the initial distance."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(MOVES), figsize=(PAGE_WIDTH, 2.3), layout="constrained", sharey=True)
    for ax, (name, x) in zip(axes, ((name, table.where(name=name)) for name in MOVES), strict=True):
        for exponent, method, text in ((0.5, "FedRep", "exponent T/2"), (1.0, "FLUTE", "exponent T")):
            ratios = np.stack([theorem1_judges.rate_ratios(run_of(row), exponent) for row in x], axis=1)
            bars(ax, x[name], ratios, method, label=text)
            expected = [np.median(theorem1_judges.rate_ratios(foreseen(row), exponent)) for row in x]
            ax.plot(x[name], expected, color="black", linewidth=0.9, linestyle=":", label="state evolution")
        ax.set(xlabel=NAMES[name], yscale="log", **({} if name == "start" else {"xscale": "log"}))
    axes[0].set_ylabel("log rate over the bound's")
    labels = dict(zip(*axes[0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(labels.values(), labels.keys(), ncols=3, loc="outside upper center")
    return figure


def constants(table: lf.Table) -> Any:
    """Return the least C of Theorem 1, and that of the rival, against what moves."""
    import matplotlib.pyplot as plt

    names = [name for name in NAMES if len(table.where(name=name))]
    figure, axes = plt.subplots(
        1, len(names), figsize=(PAGE_WIDTH, 2.3), layout="constrained", sharey=True, squeeze=False
    )
    for ax, name in zip(axes[0], names, strict=True):
        for base, method, text in (("needed", "FedRep", "Theorem 1"), ("rival", "LocalOnly", "k + 2 + d k / p")):
            rows = list(table.where(name=name))
            x, found = [row[name] for row in rows], np.array([constant(row, base) for row in rows])
            middle, low, high = np.where(np.isfinite(found), found, np.nan).T
            shape = {**look(method), "capsize": 1.5, "label": text}
            ax.errorbar(x, middle, yerr=(middle - low, high - middle), **shape)
        ax.set(xlabel=NAMES[name], yscale="log", **({} if name in ("start", "participation") else {"xscale": "log"}))
    axes[0, 0].set_ylabel("least constant that passes")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=2, loc="outside upper center")
    return figure


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return the theorem's verdicts, its looseness, its constant, and what breaks it."""
    runs = tables["runs"]
    held = [row for row in runs if row["name"] in (GRID, *MOVES, *PAIRS, *ALONE, *LARGE)]
    out = [theorem1_judges.judge_theorem1(run_of(row), told(row)) for row in held]
    out += [theorem1_judges.judge_theorem1(run_of(row), told(row), exponent=theorem1.SAME_BATCH) for row in held]
    for row in runs.where(name=list(SPOILT)):
        out.append(theorem1_judges.judge_theorem1(run_of(row), told(row)))
    for row in runs.where(name=[FEW, *SPOILT]):
        alone = theorem1_judges.judge_theorem1(run_of(row), told(row), assumed=False)
        out.append(replace(alone, text=f"{alone.text}, whether or not the hypotheses hold"))
    for name in MOVES:
        for row in runs.where(name=name):
            out += [theorem1_judges.judge_looseness(run_of(row), told(row), exponent=e) for e in (0.5, 1.0)]
    out += [*rates(runs), *sizes_needed(tables)]
    for row in tables["same_batch"]:
        out += theorem1_judges.judge_same_batch(row["gap"], row["inverse"], f"{row['heads']} heads, m = {row['m']}")
    return out


def rates(runs: lf.Table) -> list[Finding]:
    """Return how the run's rate depends on kappa and E_0, beside the bound's, and beside one that knows no kappa."""
    out = []
    for name in ("condition", "start"):
        rows = list(runs.where(name=name))
        first, last = (theorem1_judges.rate_ratios(run_of(row)) for row in (rows[0], rows[-1]))
        moved = (rows[-1]["smallest"] / rows[0]["smallest"]) ** 2 if name == "condition" else 1.0
        rules = {"the bound": last / first, "a bound with sigma_min = 1": moved * last / first}
        for text, ratio in list(rules.items())[: 2 if name == "condition" else 1]:
            out.append(
                judge(
                    median_interval(ratio),
                    least=0.5,
                    most=2.0,
                    text=f"The rate of a run moves with {NAMES[name]} as that of {text} does, to a factor of 2",
                    where=f"{NAMES[name]} {rows[0][name]:g} to {rows[-1][name]:g}",
                    statistic="how many times as fast as it a run is, the last over the first, median over trials",
                    source=OWN_THRESHOLD,
                )
            )
    return out


def sizes_needed(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return the least constants, how far they move, and the rival's."""
    table, out = tables["least"], []
    share = f"least constant with which it holds in {100 * (1 - ALLOWED):g} % of the trials"
    asks = quoted("FedRep paper, Theorem 1", "Suppose that m >= c(kappa^4 k^3 log(rn)/E0^2 + kappa^4 k^2 d/(E0^2 rn))")
    for row in table:
        fields = {"where": searched(row), "statistic": share, "source": f"{asks}; the 1 is an {OWN_THRESHOLD}"}
        detail = f"m = {row['least']:g} of {row['needed']:.4g}"
        out.append(judge(constant(row), most=1.0, theorem=True, text="C = 1 is enough", detail=detail, **fields))
    for base, text in (("needed", "what Theorem 1 asks for"), ("rival", "k + 2 + d k / p")):
        found = np.log10([constant(row, base) for row in table]).T
        spread = np.ptp(found[0]), max(0.0, found[1].max() - found[2].min()), found[2].max() - found[1].min()
        out.append(
            judge(
                spread,
                most=1.0,
                text=f"The samples that a run needs are {text}, up to one constant to a factor of 10",
                where=f"{len(table)} settings",
                statistic="orders of magnitude between the least and the largest least constant",
                source=OWN_THRESHOLD if base == "needed" else f"{OWN_PREDICTION}: the rival, without a free parameter",
                detail=f"from {10 ** found[0].min():.2g} to {10 ** found[0].max():.2g}",
            )
        )
    for row in tables["sizes"]:
        for start, word in (("random", "random B"), ("half", "distance 0.5")):
            searched_for = np.median(row[f"needed_{start}_searched"])
            out.append(
                judge(
                    median_interval(row[f"needed_{start}"] / row["m"]),
                    most=1.0,
                    text="The paper's figures have the samples that Theorem 1 asks for with C = 1",
                    where=f"Figure {row['figure']}: n = {row['n_clients']:,}, p = {row['participants']:,}, {word}",
                    statistic="m of the theorem over m of the figure, median over trials",
                    source=OWN_THRESHOLD,
                    detail=f"m = {np.median(row[f'needed_{start}']):.3g}; over searched sets {searched_for:.3g}",
                )
            )
    return out
