"""Rows of the runs of FedRep's Theorem 1, and the figures of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS, PAGE_WIDTH, look, plain_ticks
from linfed.plotting.panels import bars, drawn_from
from linfed.theory.fedrep import theorem1, theorem1_judges, theorem1_runs

from ._theorem1 import ALLOWED, DRAWN, FEW, GRID, MOVES, NAMES, OF_TRIALS, PLAIN

THEOREM, RIVAL, PREDICTED = KINDS[:3]
"""Looks of the rules for the samples."""
RIVALS = (("rival", RIVAL, "k + 2 + d k / p"), ("predicted", PREDICTED, "predicted"))
"""Other rules than the theorem's, their looks and names."""

FAILS = ("#CC6677", "#DDCC77", "#44AA99")
"""Colours of what becomes of the bound: it fails often, in some trials, in none."""


def run_of(row: lf.Table) -> theorem1_runs.Theorem1Run:
    """Return the run of a row."""
    return theorem1_runs.Theorem1Run(
        rounds=row["round"], distance=row["distance"], **{name: row[name] for name in (*PLAIN, *OF_TRIALS)}
    )


def told(row: lf.Table) -> str:
    """Return a run's setting in words."""
    if row["name"] in MOVES:
        return f"{NAMES[row['name']]} = {row[row['name']]:g}, m = {row['n_samples']:,}"
    if row["name"] not in (GRID, FEW):
        return f"{row['name']}, m = {row['n_samples']:,}"
    names = (("rank", "k"), ("condition", "kappa"), ("step", "step"), ("start", "dist_0"), ("participants", "p"))
    return ", ".join(f"{text} {row[name]:g}" for name, text in names) + f", m = {row['n_samples']:,}"


def searched(row: lf.Table) -> str:
    """Return a search's setting in words."""
    if row["name"] == DRAWN:
        kappa = f"kappa {row['condition']:.3g}, " if row["rank"] > 1 else ""
        sizes = f"n {row['n_clients']}, p/n {row['participation']:g}, d {row['dim']}, k {row['rank']}"
        return f"{sizes}, {kappa}dist_0 {row['start']:.3g}, step {row['step']:.2g}"
    if row["name"] not in NAMES:
        return str(row["name"])
    everybody = row["name"] != "n_clients" or row["participation"] == 1.0
    return f"{NAMES[row['name']] if everybody else 'n'} = {row[row['name']]:g}"


def foreseen(row: lf.Table) -> theorem1_runs.Theorem1Run:
    """Return a run whose distance is what state evolution predicts."""
    return replace(run_of(row), distance=np.tile(row["predicted"], (row["trials"], 1)))


def constant(row: lf.Table, base: str = "needed") -> tuple[float, float, float]:
    """Return the least constant in front of a rule for m with which the bound holds, and its interval."""
    low, high = row["least_low"], row["least_high"]
    return row["least"] / row[base], max(low, row["rank"]) / row[base], high / row[base]


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
            ax.plot(run.rounds, np.median(run.bound(exponent), axis=0), color="0.35", linestyle=line, label=text)
        ax.plot(run.rounds, row["predicted"], color="black", linewidth=0.9, linestyle=":", label="state evolution")
        first = f"k = {row['rank']}, kappa = {row['condition']:g}" if name == FEW else told(row).rpartition(", ")[0]
        ax.set(title=f"{first}\nm = {row['n_samples']:,}", xlabel="round", yscale="log")
        plain_ticks(ax)
    axes[0, 0].set_ylabel("distance to B*")
    shape = {"loc": "outside upper center", "title": f"median and 10-90 % of {rows[0]['trials']} trials"}
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=4, **shape)
    return drawn_from(figure, sum(rows, lf.Table()))


def verdicts(table: lf.Table) -> Any:
    """Return the numbers of samples that were tried in every setting, by what became of the bound."""
    import matplotlib.pyplot as plt

    rows = [row for row in table if row["name"] != DRAWN][::-1]
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 0.9 + 0.15 * len(rows)), layout="constrained")
    for place, row in enumerate(rows):
        count = np.asarray(row["failed"])
        kinds = {
            "fails in over 5 %": (FAILS[0], count > ALLOWED * row["trials"]),
            "in some": (FAILS[1], (count > 0) & (count <= ALLOWED * row["trials"])),
            "in none": (FAILS[2], count == 0),
        }
        for text, (colour, mask) in kinds.items():
            at = row["tried"][mask]
            ax.plot(at, np.full(len(at), place), "o", color=colour, markersize=3.5, label=text)
        ax.plot(row["rival"], place, "D", color="black", fillstyle="none", label="k + 2 + d k / p")
        ax.plot(row["predicted"], place, "x", color="black", markersize=5, label="predicted")
        ax.plot(row["needed"], place, "|", color="black", markersize=9, markeredgewidth=2, label="Theorem 1, C = 1")
    ax.set_yticks(range(len(rows)), [searched(row) for row in rows])
    ax.set(xscale="log", xlabel="samples m of a client and round")
    plain_ticks(ax)
    labels = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(labels.values(), labels.keys(), ncols=6, loc="outside upper center", title="the bound, in its trials")
    return drawn_from(figure, sum(rows, lf.Table()))


def looseness(table: lf.Table) -> Any:
    """Return how many times as fast as the bound runs are, against eta, kappa and E_0."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(MOVES), figsize=(PAGE_WIDTH, 2.3), layout="constrained", sharey=True)
    for ax, name in zip(axes, MOVES, strict=True):
        rows = list(table.where(name=name))
        x = moved(ax, rows, name)
        for exponent, method, text in ((0.5, THEOREM, "exponent T/2"), (1.0, RIVAL, "exponent T")):
            ratios = np.stack([theorem1_judges.rate_ratios(run_of(row), exponent) for row in rows], axis=1)
            bars(ax, x, ratios, method, label=text)
            expected = [np.median(theorem1_judges.rate_ratios(foreseen(row), exponent)) for row in rows]
            ax.plot(x, expected, "k:", linewidth=1.5, zorder=5, label="" if exponent == 1.0 else "state evolution")
    plain_ticks(axes[0])
    axes[0].set_ylabel("log rate over the bound's")
    figure.legend(*axes[0].get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return drawn_from(figure, table.where(name=list(MOVES)))


def constants(table: lf.Table) -> Any:
    """Return the least C of Theorem 1, and that of the rival, against what moves."""
    import matplotlib.pyplot as plt

    names = [name for name in NAMES if len(table.where(name=name))]
    figure, axes = plt.subplots(
        1, len(names), figsize=(PAGE_WIDTH, 2.3), layout="constrained", sharey=True, squeeze=False
    )
    for ax, name in zip(axes[0], names, strict=True):
        rows = list(table.where(name=name))
        x = moved(ax, rows, name)
        for base, method, text in (("needed", THEOREM, "Theorem 1"), *RIVALS):
            found = np.array([constant(row, base) for row in rows])
            middle, low, high = np.where(np.isfinite(found), found, np.nan).T
            ax.errorbar(
                x, middle, yerr=(middle - low, high - middle), **{**look(method), "capsize": 1.5, "label": text}
            )
    plain_ticks(axes[0, 0])
    axes[0, 0].set_ylabel("least constant that passes")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return drawn_from(figure, table.where(name=names))


def rules(table: lf.Table) -> Any:
    """Return the least m of the settings drawn at random against what each rule says."""
    import matplotlib.pyplot as plt

    rows = list(table.where(name=DRAWN)) or list(table)
    figure, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.4), layout="constrained", sharey=True)
    for ax, (base, method, text) in zip(axes, (("needed", THEOREM, "Theorem 1, C = 1"), *RIVALS), strict=True):
        said, found = np.array([[row[base], row["least"]] for row in rows]).T
        ends = [[max(row["least_low"], row["rank"]), row["least_high"]] for row in rows]
        low, high = np.where(np.isfinite(ends), ends, np.array([[row["least"]] * 2 for row in rows])).T
        shape = {**look(method), "linestyle": "none", "elinewidth": 0.7}
        ax.errorbar(said, found, yerr=(np.maximum(0.0, found - low), np.maximum(0.0, high - found)), **shape)
        line = [min(said.min(), found.min()), max(found.max(), 10.0)]
        ax.plot(line, line, color="0.35", linewidth=0.7)
        ax.set(xscale="log", yscale="log", xlabel=f"m: {text}")
        plain_ticks(ax)
    axes[0].set_ylabel("least m, measured")
    return drawn_from(figure, sum(rows, lf.Table()))


def moved(ax: Any, rows: list[lf.Table], name: str) -> list[float]:
    """Return what moves over the rows, E_0 in the place of the initial distance, and make the axes logarithmic."""
    x = [1.0 - row["start"] ** 2 if name == "start" else row[name] for row in rows]
    ax.set(xscale="log", yscale="log", xlabel="$E_0$" if name == "start" else NAMES[name])
    shown = x if len(x) < 4 else x[:: len(x) - 1] if name != "start" else x[1 :: len(x) - 2]
    ax.set_xticks(shown, [f"{value:.2g}" if value < 10 else f"{value:g}" for value in shown])
    ax.minorticks_off()
    return x
