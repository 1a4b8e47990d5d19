"""FedRep paper, Theorem 1: how many samples, and rounds, a run needs, against n, d, k, kappa, p, noise and step.

Half of the runs are to come from distance 0.9 to 0.01 in 40 rounds (kappa^2 times as many where heads are anisotropic).
The least m is found by `lf.least`, at the theorem's step ``1/(4 sigma_max^2)`` and at the best step near B*; the fewest
rounds at m = 60, three times what the base setting needs. Beside each stand Theorem 1's claim, its constant c the one
that fits the base setting, and what `lf.predict` says, which has no constant. Fresh samples are exact in law in a frame
of 3k dimensions, whatever d and m; fixed samples are another question, with a law of its own (the spectrum of Marchenko
and Pastur). Near B* the threshold at the theorem's step is measured to a per cent. FLUTE's floors are those of
`experiments.flute_theorem51`.

Figures
-------
"samples" : The least m with which half of the runs come from distance 0.9 to 0.01, against each size, with what
    `lf.predict` says without a constant for the truths that were measured (shaded: its 95 % interval), and Theorem 1's
    claim with the constant that fits the base setting; below, measured divided by predicted.
"rounds" : The fewest rounds from distance 0.9 to 0.01 against each size, with what `lf.predict` says without a
    constant (shaded: its 95 % interval), and Theorem 1's bound.
"laws" : Above, FedRep's least m on fixed samples beside the law of Marchenko and Pastur's spectrum, and the threshold
    near B* over its law; below, FLUTE's floors beside their prediction, with both exponents.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1 and (11); Liu, Shen and Yang 2024, Theorem 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.figures.laws import draw_law
from linfed.figures.style import KINDS, LOOKS, PAGE_WIDTH, look, same_scale
from linfed.plotting.panels import Figures, drawn_from
from linfed.statistics.findings import Finding

from . import _fedrep_scaling_judged as judged
from . import flute_theorem51
from ._fedrep_scaling import BEST, FIXED, THEOREM, Need, Threshold
from ._fedrep_scaling_judged import JOINT, covered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUMMARY = "FedRep paper, Theorem 1: least m and least rounds against n, d, k, kappa, p, noise and step; FLUTE's floors"

MANY, START = (10_000, 100_000), 8
"""Clients of which 8 trials are enough; and of the last, the m from which a search for m begins."""
PANELS: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "n": ("n_clients", (10, 30, 100, 300, 1000, 10_000, 100_000), 100, "clients n = p"),
    "d": ("dim", (50, 100, 300, 3000, 10_000), 1500, "dimension d"),
    "k": ("rank", (1, 2, 5, 8, 12), 1, "rank k"),
    "p": ("participants", (5, 10, 20, 50, 100), 30, "participants p of n = 100"),
    "kappa": ("kappa", (1.5, 2.0, 3.0, 4.0), 1.2, "condition number $\\kappa$"),
    "sigma": ("noise_std", (0.003, 0.01, 0.03, 0.1, 0.3), 0.03, "noise $\\sigma$"),
    "eta": ("eta", (0.15, 0.2, 0.5, 1.0), 0.5, "step $\\eta$"),
}
"""What moves in each panel: the field, its values, that of a quick run, and what the axis is called."""
COLOURS = {THEOREM: LOOKS["FedRep"][0], BEST: KINDS[1][0]}
"""Of FedRep's own step sizes."""
RATIOS = (0.6, 1.4)
"""The heights of what is measured over what is predicted."""
SAMPLES_IN = {**PANELS, "T": ("rounds", (20, 80, 160, 640), 80, "rounds T")}
ROUNDS_IN = {
    **PANELS,
    "sigma": ("noise_std", (0.001, 0.003, 0.01, 0.03, 0.1), 0.01, "noise $\\sigma$"),
    "eta": ("eta", (0.05, 0.1, 0.2, 0.5, 1.0), 0.5, "step $\\eta$"),
    "m": ("start", (10, 15, 30, 120, 1000), 120, "samples m"),
}
FIXED_IN = {
    "n": ("n_clients", (10, 40, 80), 40, "clients n"),
    "d": ("dim", (20, 40, 160), 40, "dimension d"),
    "k": ("rank", (1, 4), 4, "rank k"),
}
NEAR = (
    {"n_clients": 50, "dim": 1000, "rank": 3},
    {"n_clients": 40, "dim": 2000, "rank": 5},
    {"n_clients": 10, "dim": 500, "rank": 1},
    {"n_clients": 100, "dim": 5000, "rank": 2},
    {"n_clients": 200, "participants": 50, "dim": 2000, "rank": 3},
    {"n_clients": 200, "dim": 10_000, "rank": 4},
    {"n_clients": 100, "dim": 10_000, "rank": 10},
)
FLUTE_IN = {"m": "samples m", "n above d": "clients n, d = 6", "d above n": "dimension d, n = 6"}


def _cells(panels: dict[str, Any], base: Need, chosen: Sequence[str] | None = None) -> list[Need]:
    """Return a base setting moved along every panel; or along those chosen, to one value of a few clients."""
    found = [replace(base, panel="base")]
    for panel, (field, values, few, _) in panels.items():
        for value in values if chosen is None else [few] if panel in chosen else []:
            own = {"n_clients": 100} if panel == "p" else {}
            own |= {"rounds": math.ceil(base.rounds * value**2)} if panel == "kappa" else {}
            own |= {"trials": 8} if panel == "n" and value in MANY else {}
            own |= {"start": START} if panel == "n" and value == MANY[-1] and base.asks != "round" else {}
            found.append(replace(base, panel=panel, **{field: value, **own}))
    return found


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the searches by what they ask for; quick: few points, few trials, no more than 200 clients."""
    few: dict[str, Any] = {"dim": 800, "rank": 2, "level": 0.1, "start": 24, "trials": 8, "resolution": 0.3}
    base = Need(**few, rounds=14) if quick else Need()
    joint = {panel: PANELS[panel] for panel in JOINT[1:]}
    rounds = replace(base, asks="round", start=60, rounds=30 if quick else 100)
    fixed = replace(base, samples=FIXED, n_clients=20, dim=60, rank=2, rounds=100, start=8)
    chosen, every = (("n", "kappa"), JOINT) if quick else (None, None)
    sweeps = [cell for cell in flute_theorem51.cells(quick)["floors"] if cell.sweep in FLUTE_IN]
    return {
        "samples": [
            *_cells(SAMPLES_IN, base, chosen and (*chosen, "k")),
            *_cells(joint, replace(base, step=BEST), every),
        ],
        "rounds": _cells(ROUNDS_IN, rounds, chosen),
        "fixed": _cells(FIXED_IN, fixed, chosen),
        "near": [Threshold(**sizes, trials=base.trials) for sizes in NEAR[: 1 if quick else None]],
        "flute": sweeps,
    }


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return the least m, the least rounds, and what has laws of its own: fixed samples, near B*, FLUTE's floors."""
    base = tables["samples"].where(panel="base", step=THEOREM)
    constant = base["crossing"] / base["claim"]
    claim = f"Theorem 1 with c = {constant:.2g}, that of the base setting"
    samples = _page(tables["samples"], SAMPLES_IN, "least m", claim, lambda row: constant * row["claim"], "local")
    bound = "Theorem 1's bound on the rounds"
    rounds = _page(tables["rounds"], ROUNDS_IN, "least rounds", bound, lambda row: row["bound"], "")
    return {"samples": samples, "rounds": rounds, "laws": _laws(tables)}


def _page(table: lf.Table, panels: Any, said: str, claim: str, claimed: Callable[[Any], float], near: str) -> Any:
    """Return a figure with a panel for each thing that moves."""
    import matplotlib.pyplot as plt

    shape: dict[str, Any] = {"layout": "constrained", "height_ratios": (3, 1, 3, 1), "sharey": "row"}
    figure, axes = plt.subplots(4, 4, figsize=(PAGE_WIDTH, 6.4), **shape)
    for ax, below, (panel, (field, *_, text)) in zip(axes[::2].flat, axes[1::2].flat, panels.items(), strict=True):
        below.sharex(ax)
        rows = sorted(table.where(panel=_beside(panel)).rows, key=lambda row: row[field])
        if not table.where(panel=panel):
            alone = "base setting alone" if rows else "not run"
            ax.text(0.5, 0.9, alone, ha="center", transform=ax.transAxes, fontsize=7)
        for step, colour in COLOURS.items():
            own = [row for row in rows if row["step"] == step]
            if step == THEOREM or any(row["panel"] == panel for row in own):  # not the base setting's best step alone
                _measured(ax, own, field, f"measured, {step}", f"lf.predict, {step}", "predicted_crossing", colour)
                _ratio(below, own, field, colour)
        told = [row for row in rows if covered(row)]
        ax.plot([row[field] for row in told], [claimed(row) for row in told], "--", color="0.5", label=claim)
        if near and panel == "T":
            ax.axhline(told[0][near], color="0.35", linestyle="-.", label="the threshold near B*")
        for one, xlabel in ((ax, ""), (below, text)):
            _axes(one, [row[field] for row in rows], xlabel)
        ax.tick_params(labelbottom=False)
        below.set(yscale="linear", ylim=RATIOS)
    same_scale(list(axes[::2].flat))
    for first in (0, 2):
        axes[first, 0].set_ylabel(said)
        axes[first + 1, 0].set_ylabel("measured\nover predicted")
    figure.legend(*_labels(axes), loc="outside upper center", ncols=2)
    return drawn_from(figure, table)


def _labels(axes: Any) -> tuple[list[Any], list[str]]:
    """Return the handles and labels of all panels, each once."""
    found = [ax.get_legend_handles_labels() for ax in axes.ravel()]
    handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
    return list(handles.values()), list(handles)


def _axes(ax: Axes, sizes: Sequence[float], text: str) -> None:
    """Label logarithmic axes, with ticks at some of the sizes that were tried."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    sizes = sorted({size for size in sizes if size > 0})
    ax.set(xscale="log" if sizes else "linear", yscale="log", xlabel=text)
    if len(sizes) == 1:
        ax.set_xlim(sizes[0] / 2, sizes[0] * 2)
    shown = sizes if len(sizes) < 5 else sizes[:: -(-len(sizes) // 4)]
    ax.set_xticks(shown, [f"{size:g}" if size < 10_000 else f"1e{math.log10(size):.0f}" for size in shown])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _beside(panel: str) -> list[str]:
    """Return the panels whose settings lie on one axis: the base setting on every one but that of 100 clients."""
    return [panel] if panel == "p" else ["base", panel]


def _measured(ax: Axes, rows: Sequence[Any], field: str, text: str, law: str, column: str, colour: str) -> None:
    """Draw crossings with their intervals, what is censored as arrows at its bound, and the law beside them."""
    known = [row for row in rows if not row["censored"]]
    ends = np.array([[row["crossing"] - row["low"], row["high"] - row["crossing"]] for row in known]).reshape(-1, 2).T
    shape = {**look("FedRep"), "color": colour, "linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    x, y = ([row[name] for row in known] for name in (field, "crossing"))
    ax.errorbar(x, y, yerr=np.maximum(ends, 0), label=text, **shape)
    for row in rows:
        if row["censored"]:
            marker, at = ("^", row["low"]) if row["censored"] == "above" else ("v", row["high"])
            ax.plot(row[field], at, marker, color=colour, fillstyle="none", label="not reached up to here")
    ax.plot([row[field] for row in rows], [row[column] for row in rows], ":", color=colour, label=law)
    if column == "predicted_crossing":
        low, high = (np.array([row[name] for row in rows]) for name in ("predicted_low", "predicted_high"))
        seen = ax.dataLim.frozen()
        shape = {"color": colour, "alpha": 0.15, "linewidth": 0}
        within = [not row["predicted_censored"] for row in rows]  # elsewhere one end is beyond the search
        ax.fill_between([row[field] for row in rows], low, np.minimum(high, 1e9), where=within, **shape)
        ax.dataLim.set(seen)  # an interval that is open above ends at the panel's top
        ax.autoscale_view()


def _ratio(ax: Axes, rows: Sequence[Any], field: str, colour: str) -> None:
    """Draw crossings with their intervals over those that are predicted, where a law is known at every size."""
    known = [row for row in rows if not row["censored"] and row["predicted_crossing"] > 0 and not row["missing"]]
    ratios = np.array(
        [[row[name] / row["predicted_crossing"] for name in ("crossing", "low", "high")] for row in known]
    )
    middle, low, high = ratios.reshape(-1, 3).T
    shape = {**look("FedRep"), "color": colour, "linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    ax.errorbar([row[field] for row in known], middle, yerr=np.maximum([middle - low, high - middle], 0), **shape)
    ax.axhline(1.0, color="black", linewidth=0.7, linestyle=":")


def _laws(tables: dict[str, lf.Table]) -> Any:
    """Return a figure of both papers: FedRep on fixed samples and near B*, and FLUTE's floors."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(PAGE_WIDTH, 4.4), layout="constrained")
    for ax, (panel, (field, *_, text)) in zip(axes[0], FIXED_IN.items(), strict=False):
        rows = sorted(tables["fixed"].where(panel=_beside(panel)).rows, key=lambda row: row[field])
        law = "spectrum of Marchenko and Pastur"
        _measured(ax, rows, field, "FedRep, fixed samples", law, "spectral", COLOURS[THEOREM])
        sizes = [row[field] for row in rows]
        counted = [row["rank"] + (row["dim"] - row["rank"]) * row["rank"] / row["p"] for row in rows]
        ax.plot(sizes, counted, "--", color="0.5", label="equations as unknowns")
        _axes(ax, sizes, text)
    same_scale(axes[0, :3])
    axes[0, 0].set_ylabel("least m, 100 rounds")
    ratios = [judged.over(row, row["law"]) for row in tables["near"].rows]
    middle, low, high = np.transpose(ratios)
    places = np.arange(len(ratios))
    axes[0, 3].errorbar(places, middle, yerr=(middle - low, high - middle), **look("FedRep") | {"linestyle": "none"})
    axes[0, 3].axhspan(0.98, 1.02, color="0.9")
    axes[0, 3].set(ylim=(0.96, 1.04), xticks=places, xticklabels=[str(row["rank"]) for row in tables["near"].rows])
    axes[0, 3].set(title="threshold near B*,\nmeasured over predicted", xlabel="setting, by its k")
    for ax, (sweep, text) in zip(axes[1], FLUTE_IN.items(), strict=False):
        part = tables["flute"].where(sweep=sweep)
        field = flute_theorem51.SWEEPS[sweep][0]
        draw_law(ax, part[field], part["rms"].T, part["predicted"].T, method="FLUTE")
        ax.set(xlabel=text)
    same_scale(axes[1, :3])
    axes[1, 0].set_ylabel("FLUTE's floor")
    axes[1, 3].set_axis_off()
    axes[1, 3].legend(
        *_labels(axes[0, :3]), loc="center", title="above: FedRep; below: FLUTE,\nslope (predicted slope)"
    )
    return drawn_from(figure, tables["fixed"] + tables["near"] + tables["flute"])


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return what the least m and the least rounds say of the theorem and of the predictions."""
    samples, rounds = tables["samples"], tables["rounds"]
    return [
        *judged.exponents(samples),
        *judged.logarithm(samples, rounds),
        *judged.kappa(samples, rounds),
        *judged.predicted(tables),
        *judged.near(tables),
    ]
