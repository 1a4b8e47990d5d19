"""FedRep paper, Theorem 1: how many samples, and rounds, a run needs, against n, d, k, kappa, p, noise and step.

Half of the runs are to come from distance 0.9 to 0.01 in 40 rounds (kappa^2 times as many where heads are anisotropic).
The least m is found by `lf.least`, at the theorem's step ``1/(4 sigma_max^2)`` and at the best step near B*; the fewest
rounds at m = 60, three times what the base setting needs. Beside each stand Theorem 1's claim, its constant c the one
that fits the base setting, and what `lf.predict` says, which has no constant. Fresh samples are exact in law in a frame
of 3k dimensions, whatever d and m; fixed samples are another question, with a law of its own (the spectrum of Marchenko
and Pastur). Near B* the threshold at the theorem's step is measured to a per cent. FLUTE's floors are those of
`experiments.flute_theorem51`.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1 and (11); Liu, Shen and Yang 2024, Theorem 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.figures.laws import draw_law
from linfed.figures.style import PAGE_WIDTH, look
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, judge_exponent, quoted
from linfed.study.pages import Figures

from . import flute_theorem51
from ._fedrep_scaling import BEST, FIXED, THEOREM, Need, Threshold

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUMMARY = "FedRep paper, Theorem 1: least m and least rounds against n, d, k, kappa, p, noise and step; FLUTE's floors"

paper = partial(quoted, "FedRep paper, section 4.2")
SCALES = paper("the sample complexity scales as Theta(log(n) + d/n)")
CLAIMED = quoted("FedRep paper, Theorem 1", "m >= c(kappa^4 k^3 log(rn)/E_0^2 + kappa^4 k^2 d/(E_0^2 rn))")

MANY = {10_000: {"trials": 8}, 100_000: {"trials": 8, "start": 8}}
"""What is less in the largest runs."""
PANELS: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "n": ("n_clients", (10, 30, 100, 300, 1000, 10_000, 100_000), 200, "clients n = p"),
    "d": ("dim", (50, 100, 300, 3000, 10_000), 300, "dimension d"),
    "k": ("rank", (1, 2, 5, 8, 12), 2, "rank k"),
    "p": ("participants", (5, 10, 20, 50, 100), 30, "participants p of n = 100"),
    "kappa": ("kappa", (1.5, 2.0, 3.0, 4.0), 1.5, "condition number $\\kappa$"),
    "sigma": ("noise_std", (0.003, 0.01, 0.03, 0.1, 0.3), 0.03, "noise $\\sigma$"),
    "eta": ("eta", (0.15, 0.2, 0.5, 1.0), 0.5, "step $\\eta$"),
}
"""What moves in each panel: the field, its values, that of a quick run, and what the axis is called."""
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
JOINT = ("base", "n", "d", "k", "p")
"""Panels whose points are fitted together."""
LARGEST = 1000
"""Clients from which n is held against the theorem's logarithm."""


def _cells(panels: dict[str, Any], base: Need, chosen: Sequence[str] | None = None) -> list[Need]:
    """Return a base setting moved along every panel; or along those chosen, to one value of a few clients."""
    found = [replace(base, panel="base")]
    for panel, (field, values, few, _) in panels.items():
        for value in values if chosen is None else [few] if panel in chosen else []:
            own = {"n_clients": 100} if panel == "p" else {}
            own |= {"rounds": math.ceil(base.rounds * value**2)} if panel == "kappa" else {}
            own |= MANY.get(value, {}) if panel == "n" else {}
            found.append(replace(base, panel=panel, **{field: value, **own}))
    return found


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the searches by what they ask for; quick: few points, few trials, no more than 200 clients."""
    base = Need(trials=8, resolution=0.2) if quick else Need()
    joint = {panel: PANELS[panel] for panel in JOINT[1:]}
    rounds = replace(base, asks="round", start=60, rounds=100)
    fixed = replace(base, samples=FIXED, n_clients=20, dim=60, rank=2, rounds=100, start=8)
    chosen, every = (("n", "kappa"), JOINT) if quick else (None, None)
    sweeps = [cell for cell in flute_theorem51.cells(quick)["floors"] if cell.sweep in FLUTE_IN]
    return {
        "samples": [*_cells(SAMPLES_IN, base, chosen), *_cells(joint, replace(base, step=BEST), every)],
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

    figure, axes = plt.subplots(2, 4, figsize=(PAGE_WIDTH, 4.4), layout="constrained", sharey=True)
    for ax, (panel, (field, *_, text)) in zip(axes.ravel(), panels.items(), strict=True):
        for step, colour in ((THEOREM, "#0072B2"), (BEST, "#E69F00")):
            part = table.where(panel=_beside(panel), step=step)
            if len(part) > 1:
                _measured(ax, part, field, said.removeprefix("least "), f"measured, {step}", colour)
        rows = [row for row in table.where(panel=_beside(panel), step=THEOREM).rows if _covered(row)]
        rows.sort(key=lambda row: row[field])
        ax.plot([row[field] for row in rows], [claimed(row) for row in rows], "--", color="0.5", label=claim)
        if near and panel == "T":
            ax.axhline(rows[0][near], color="#CC79A7", linestyle="-.", label="the threshold near B*")
        ax.set(xscale="log", yscale="log", xlabel=text)
    for ax in axes[:, 0]:
        ax.set_ylabel(said)
    found = [ax.get_legend_handles_labels() for ax in axes.ravel()]
    handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=2)
    return figure


def _beside(panel: str) -> list[str]:
    """Return the panels whose settings lie on one axis: the base setting on every one but that of 100 clients."""
    return [panel] if panel == "p" else ["base", panel]


def _covered(row: dict[str, Any]) -> bool:
    """Return whether the theorem speaks of a setting: no noise, and eta at most 1/4."""
    return row["noise_std"] == 0 and row["eta"] <= 0.25


def _measured(ax: Axes, part: lf.Table, field: str, asked: str, text: str, colour: str, law: str = "") -> None:
    """Draw crossings with their intervals, what is censored as arrows at its bound, and the prediction."""
    rows = sorted(part.rows, key=lambda row: row[field])
    known = [row for row in rows if not row["censored"]]
    x, y = ([row[name] for row in known] for name in (field, "crossing"))
    ends = np.array([[row["crossing"] - row["low"], row["high"] - row["crossing"]] for row in known]).reshape(-1, 2).T
    shape = {**look("FedRep"), "color": colour, "linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    ax.errorbar(x, y, yerr=np.maximum(ends, 0), label=text, **shape)
    for row in rows:
        if row["censored"]:
            marker, at = ("^", row["low"]) if row["censored"] == "above" else ("v", row["high"])
            ax.plot(row[field], at, marker=marker, color=colour, fillstyle="none", label=f"not {asked} up to here")
    name = law or "predicted_crossing"
    label = "the law of fixed samples" if law else f"lf.predict, {text.partition(', ')[2]}"
    ax.plot([row[field] for row in rows], [row[name] for row in rows], ":", color=colour, label=label)


def _laws(tables: dict[str, lf.Table]) -> Any:
    """Return a figure of both papers: FedRep on fixed samples and near B*, and FLUTE's floors."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(PAGE_WIDTH, 4.4), layout="constrained")
    for ax, (panel, (field, *_, text)) in zip(axes[0], FIXED_IN.items(), strict=False):
        part = tables["fixed"].where(panel=_beside(panel))
        _measured(ax, part, field, "m", "FedRep, fixed samples", "#0072B2", "spectral")
        counted = sorted(
            (row[field], row["rank"] + (row["dim"] - row["rank"]) * row["rank"] / row["p"]) for row in part.rows
        )
        ax.plot(*zip(*counted, strict=True), "--", color="0.5", label="as many equations as unknowns")
        ax.set(xscale="log", yscale="log", xlabel=text)
    axes[0, 0].set_ylabel("least m, 100 rounds")
    ratios = [_over(row, row["law"]) for row in tables["near"].rows]
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
    axes[1, 0].set_ylabel("FLUTE's floor")
    axes[1, 3].set_axis_off()
    found = [ax.get_legend_handles_labels() for ax in axes[0]]
    handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
    axes[1, 3].legend(
        handles.values(), handles.keys(), loc="center", title="above; below FLUTE,\nslope (predicted slope)"
    )
    return figure


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return what the least m and the least rounds say of the theorem and of the predictions."""
    samples, rounds = tables["samples"], tables["rounds"]
    return [*_exponents(samples), *_logarithm(samples), *_kappa(samples, rounds), *_predicted(tables), *_near(tables)]


def _exponents(samples: lf.Table) -> list[Finding]:
    """Return the joint exponents of m - k - 1, whether log n shows, and whether one constant serves the claim."""
    part = _chosen(samples, lambda row: row["step"] == BEST and row["panel"] in JOINT and _lawful(row))
    law = lf.fit("m - k - 1 ~ p^a d^b k^c", part)
    cubed, plain = (lf.fit(f"m - k - 1 ~ d {k} / p", part) for k in ("k^3", "k"))
    logarithm = lf.fit("m - k - 1 ~ p^a d^b k^c log(n)^e", part)
    where = f"best step, m >= k + 4: {law.reached} of {law.points} settings reached"
    own = {"where": where, "source": f"{OWN_PREDICTION}; the margin is an {OWN_THRESHOLD}"}
    said = {"margin": 0.1, "kind": "equal", **own}
    found = [
        judge_exponent(law.exponents[name], claimed, text=f"m - k - 1 grows like d k / p: in {letter}", **said)
        for name, letter, claimed in (("a", "p", -1.0), ("b", "d", 1.0), ("c", "k", 1.0))
    ]
    fits = f"m - k - 1 is within a factor {plain.worst:.2f} of a constant times d k / p, {cubed.worst:.2f} of d k^3 / p"
    found += [
        judge_exponent(
            law.exponents["c"],
            2.0,
            kind="equal",
            margin=0.25,
            text="The least m has the bound's exponent in k where d / p rules, 2",
            where=where,
            source=f"{CLAIMED}; the margin is an {OWN_THRESHOLD}",
            detail=fits,
        ),
        judge_exponent(
            logarithm.exponents["e"], 0.0, text="No power of log n beside d k / p", **said | {"margin": 0.25}
        ),
    ]
    rows = [row for row in samples.where(step=THEOREM).rows if _covered(row) and not row["censored"]]
    constants = np.array([row["crossing"] / row["claim"] for row in rows])
    resampled = np.array([row["replicates"].values / row["claim"] for row in rows])
    return [
        *found,
        judge(
            (
                float(np.exp(np.ptp(np.log(constants)))),
                *np.exp(np.percentile(np.ptp(np.log(resampled), axis=0), (2.5, 97.5))),
            ),
            text="One constant c serves Theorem 1's m in all settings",
            where=f"{len(constants)} settings, the theorem's step",
            statistic="the largest least constant over the smallest",
            source=f"{CLAIMED}; the factor is an {OWN_THRESHOLD}",
            most=10.0,
            detail=f"constants from {constants.min():.2g} to {constants.max():.2g}",
        ),
    ]


def _logarithm(samples: lf.Table) -> list[Finding]:
    """Return what many clients leave: whether m grows with log n there."""
    part = samples.where(panel=["base", "n"], step=THEOREM)
    many = _chosen(part, lambda row: row["n_clients"] >= LARGEST)
    part = many if len(many) else part
    law = lf.fit("m ~ log(n)^e", part)
    said = {"where": f"n = {', '.join(f'{n:,}' for n in part['n_clients'])}", "kind": "equal", "margin": 0.25}
    text = "With many clients the least m grows like log n"
    return [
        judge_exponent(law.exponents["e"], 1.0, text=text, source=f"{SCALES}; the margin is an {OWN_THRESHOLD}", **said)
    ]


def _kappa(samples: lf.Table, rounds: lf.Table) -> list[Finding]:
    """Return the exponents of kappa, in m and in the rounds."""
    m, t = (
        lf.fit(f"{left} ~ kappa^a", table.where(panel=["base", "kappa"], step=THEOREM))
        for left, table in (("m", samples), ("t", rounds))
    )
    margin = f"the margin is an {OWN_THRESHOLD}"
    said = {"where": "the theorem's step, 40 kappa^2 rounds", "text": "The least m grows like kappa^4"}
    own = {"source": f"{OWN_PREDICTION}; {margin}"}
    return [
        judge_exponent(m.exponents["a"], 4.0, kind="equal", margin=0.25, source=f"{CLAIMED}; {margin}", **said),
        judge_exponent(m.exponents["a"], 0.0, kind="at most", margin=0.1, **said | {"text": "kappa raises no m"} | own),
        judge_exponent(
            t.exponents["a"], 2.0, kind="equal", margin=0.25, text="The rounds grow like kappa^2", where="m = 60", **own
        ),
    ]


def _predicted(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return how far predictions are off, at the worst setting of each table."""
    asked = {
        "samples": ("The least m is what lf.predict says", "predicted_crossing", 1.1),
        "rounds": ("The least rounds are what lf.predict says", "predicted_crossing", 1.1),
        "fixed": ("On fixed samples the least m is what Marchenko and Pastur's spectrum says", "spectral", 1.15),
    }
    found = []
    for key, (text, law, most) in asked.items():
        rows = [row for row in tables[key].rows if not row["censored"] and _lawful(row, law)]
        logs = np.log([_over(row, row[law]) for row in rows])
        worst = int(np.abs(logs[:, 0]).argmax())
        sign = np.sign(logs[worst, 0])
        middle, *ends = np.exp(sign * logs[worst])
        said = {"text": text, "source": f"{OWN_PREDICTION}; the factor is an {OWN_THRESHOLD}", "most": most}
        said |= {"statistic": "factor between the measured and the predicted, the worst setting"}
        typical = np.exp(np.median(np.abs(logs[:, 0])))
        where = f"{len(rows)} settings" + (", predicted m >= k + 4" if key != "rounds" else ", m = 60")
        detail = f"{rows[worst]['panel']} at {rows[worst]['crossing']:.4g}; the median factor is {typical:.3f}"
        found.append(judge((middle, min(ends), max(ends)), **said, where=where, detail=detail))
    flute = lf.fit("rms ~ ((d + n - k) / (n m))^a", tables["flute"])
    text, source = (
        "FLUTE's floor is a power of (d + n - k)/(n m)",
        f"{OWN_PREDICTION}; the margin is an {OWN_THRESHOLD}",
    )
    said = {"text": text, "source": source, "where": f"{flute.points} settings"}
    return [*found, judge_exponent(flute.exponents["a"], 0.5, kind="equal", margin=0.05, **said)]


def _near(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return the threshold near B* in each setting, and what whole runs need beyond it."""
    found = []
    for row in tables["near"].rows:
        sizes = f"n = {row['n_clients']}, p = {row['participants'] or row['n_clients']}, d = {row['dim']:,}"
        found.append(
            judge(
                _over(row, row["law"]),
                text="Near B* angles neither grow nor shrink at p m = (d-k+1) k / (7 + k/m), for p = n",
                where=f"{sizes}, k = {row['rank']}",
                statistic="m at which single runs neither grow nor shrink, over the predicted",
                source=f"{OWN_PREDICTION}; the range is an {OWN_THRESHOLD}",
                least=0.98,
                most=1.02,
                detail=f"{row['crossing']:.2f} against {row['law']:.2f}",
            )
        )
    for row in tables["samples"].where(panel=["base", "T"], step=THEOREM).rows:
        if not row["censored"]:
            found.append(
                judge(
                    _over(row, row["local"]),
                    text="A whole run needs more than the threshold near B*",
                    where=f"{row['rounds']} rounds from {row['delta']:g} to {row['level']:g}",
                    statistic="the least m over the threshold near B*",
                    source=OWN_PREDICTION,
                    least=1.0,
                    strict=True,
                    detail=f"{row['crossing']:.2f} against {row['local']:.2f}",
                )
            )
    return found


def _over(row: dict[str, Any], law: float) -> tuple[float, float, float]:
    """Return a crossing over a law, with its interval over trials."""
    return (row["crossing"] / law, *(np.percentile(row["replicates"].values, (2.5, 97.5)) / law))


def _lawful(row: dict[str, Any], law: str = "predicted_crossing") -> bool:
    """Return whether a prediction is there, and of an m at which heads have the moments that it needs."""
    return row[law] > (row["rank"] + 4 if row["path"] != "round" else 0)


def _chosen(table: lf.Table, wanted: Callable[[dict[str, Any]], bool]) -> lf.Table:
    return lf.Table([row for row in table.rows if wanted(row)])
