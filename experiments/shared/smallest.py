"""Searches for the smallest m, or the fewest rounds, that FedRep needs: cells, panels, judges and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.cells.smallest_size import SmallestSize
from linfed.figures.style import KINDS, LOOKS, PAGE_WIDTH, line_style, same_scale
from linfed.plotting.panels import drawn_from
from linfed.statistics.crossings import replicates_interval
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import Measured, largest_of
from linfed.theory.fedrep.arguments import set_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FRESH, FIXED = "fresh", "fixed"
THEOREM, BEST = "theorem's step", "best step"
MARGIN = f"the margin is {OWN_THRESHOLD}"
MANY, START = (10_000, 100_000), 8
"""Numbers of clients for which 8 trials are enough, and the m at which the largest one's search for m starts."""
MANY_CLIENTS = 10
"""Clients per dimension from which log n dominates log(n) + d/n."""
PANELS: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "n": ("n_clients", (10, 30, 100, 300, 1000, 10_000, 100_000), 100, "clients n = p"),
    "d": ("dim", (50, 100, 300, 3000, 10_000), 1500, "dimension d"),
    "k": ("rank", (1, 2, 5, 8, 12), 1, "rank k"),
    "p": ("participants", (5, 10, 20, 50, 100), 30, "participants p of n = 100"),
    "kappa": ("kappa", (1.5, 2.0, 3.0, 4.0), 1.2, "condition number $\\kappa$"),
    "sigma": ("noise_std", (0.003, 0.01, 0.03, 0.1, 0.3), 0.03, "noise $\\sigma$"),
    "eta": ("eta", (0.15, 0.2, 0.5, 1.0), 0.5, "step $\\eta$"),
}
"""The size that varies in each panel: its field, values, value in a quick run, and axis label."""
COLOURS = {THEOREM: LOOKS["FedRep"][0], BEST: KINDS[1][0]}
"""Colours of FedRep's step sizes."""
RATIOS = (0.6, 1.4)
"""Limits of the vertical axis for measured divided by predicted."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Search for the smallest m, or the fewest rounds, with which half of the runs go from distance 0.9 to 0.01.

    Heads have length ``sqrt(k)`` and geometric singular values with ratio kappa. There are two step sizes. "theorem's
    step" is ``eta`` divided by the largest eigenvalue of Gamma; Theorem 1 allows eta = 1/4. "best step" is the best
    step size near B* for kappa = 1 (`lf.theory.best_step_size`, whose formula is used at m = k + 1 as well).
    """

    panel: str = lf.choice(("base", *PANELS, "T", "m"), "base", label=True)
    asks: str = lf.choice(("data.n_samples", "round"), "data.n_samples")
    samples: str = lf.choice((FRESH, FIXED), FRESH)
    n_clients: int = 50
    dim: int = 1000
    rank: int = 3
    kappa: float = 1.0
    participants: int | None = None
    noise_std: float = 0.0
    step: str = lf.choice((THEOREM, BEST), THEOREM)
    eta: float = 0.25
    start: int = 16
    rounds: int = 40
    delta: float = 0.9
    level: float = 0.01
    resolution: float = 0.05
    trials: int = 32
    seed: int = 0

    divides = True
    keeps_parts = True

    @property
    def cost(self) -> float:
        """Relative run time: long searches start first."""
        return self.n_clients * self.rounds * (self.dim if self.samples == FIXED else 1)

    @property
    def p(self) -> int:
        """Number of participants in a round."""
        return self.n_clients if self.participants is None else self.participants

    @property
    def largest(self) -> float:
        """The largest eigenvalue of Gamma, whose trace is k."""
        squares = np.geomspace(self.kappa**2, 1.0, self.rank)
        return float(self.rank * squares[0] / squares.sum())

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue of Gamma."""
        return self.largest / self.kappa**2

    def step_size(self, run: lf.Run) -> float:
        """Return the step size for the number of samples of a run."""
        m, k = run.data.n_samples, self.rank
        if self.step == THEOREM or m <= k:
            return self.eta / self.largest
        c, g = 1.0 - k / m, (self.dim - k + 1) * k / (self.p * m)
        f = (k - 1) * set_share(self.n_clients, self.p)
        return 1.0 / (c * (1.0 + f) + g)

    @property
    def search(self) -> SmallestSize:
        """The search for the smallest m or the fewest rounds."""
        kappa = self.kappa if self.rank > 1 else 1.0
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        fresh = self.samples == FRESH
        run = lf.Run(
            algorithm=lf.FedRep(rank=self.rank, step_size=self.eta, init=lf.AtDistance(self.delta)),
            problem=lf.SharedRepresentation(**sizes, noise_std=self.noise_std, condition_number=kappa),
            data=lf.FreshSamples(self.start) if fresh else lf.FixedSamples(self.start),
            participation=self.p,
            rounds=self.rounds,
            seed=(self.seed, self.n_clients, self.dim, self.rank),
            engine="chain" if fresh and self.dim >= 3 * self.rank else "auto",
        )
        return SmallestSize(
            base=run,
            path=self.asks,
            reaches=lf.below("subspace_distance", self.level),
            upper=4096,
            resolution=self.resolution,
            trials=self.trials,
            step_size=self.step_size,
            predicted=fresh,
        )

    def run(self) -> dict[str, Any]:
        """Return the result of `lf.find_smallest` with the columns of predictions."""
        return {**self.search.run(), **self.predictions}

    @property
    def predictions(self) -> dict[str, Any]:
        """Predictions: Theorem 1's m (with constant 1) and rounds, the threshold near B*, and m on fixed samples."""
        theory, sizes = lf.theory, {"dim": self.dim, "rank": self.rank}
        way = {"step_size": self.eta / self.largest, "start": self.delta, "smallest": math.sqrt(self.smallest)}
        claim = theory.fedrep_least_samples(participants=self.p, condition=self.kappa, start=self.delta, **sizes)
        sizes["n_clients"] = self.n_clients
        fixed = {"rounds": self.rounds, "delta": self.delta, "level": self.level}
        spectral = theory.fixed_samples_needed(self.eta, **sizes, **fixed) if self.samples == FIXED else math.nan
        local = theory.near_truth_threshold(self.eta, participants=self.p, **sizes)
        return {
            "path": self.asks,
            "p": self.p,
            "claim": float(claim),
            "bound": theory.fedrep_bound_rounds(self.level, **way),
            "local": local if self.rank + 2 < local < math.inf else math.nan,
            "spectral": spectral,
        }


def settings(panels: dict[str, Any], base: Need, chosen: Sequence[str] | None = None) -> list[Need]:
    """Return the base setting and its variations along every panel.

    If `chosen` is given, only these panels vary, each by the value of a quick run.
    """
    found = [replace(base, panel="base")]
    for panel, (field, values, few, _) in panels.items():
        for value in values if chosen is None else [few] if panel in chosen else []:
            changes = {"n_clients": 100} if panel == "p" else {}
            changes |= {"rounds": math.ceil(base.rounds * value**2)} if panel == "kappa" else {}
            changes |= {"trials": 8} if panel == "n" and value in MANY else {}
            changes |= {"start": START} if panel == "n" and value == MANY[-1] and base.asks != "round" else {}
            found.append(replace(base, panel=panel, **{field: value, **changes}))
    return found


def base_setting(quick: bool) -> Need:
    """Return the base setting, which every panel varies by one size; quick: small, with few trials."""
    few: dict[str, Any] = {"dim": 800, "rank": 2, "level": 0.1, "start": 24, "trials": 8, "resolution": 0.3}
    return Need(**few, rounds=14) if quick else Need()


# --- judges --------------------------------------------------------------------------------------------------


def over(row: dict[str, Any], law: float, *, confidence: float = 0.95) -> Measured:
    """Return a crossing divided by a predicted one, with its interval over trials."""
    low, high = replicates_interval(row["replicates"].values, confidence)
    return row["crossing"] / law, low / law, high / law


def ratio_of(first: dict[str, Any], second: dict[str, Any], *, confidence: float = 0.95) -> Measured:
    """Return the ratio of two smallest m with its interval over trials, which both share."""
    ratios = first["replicates"].values / second["replicates"].values
    return (first["crossing"] / second["crossing"], *replicates_interval(ratios, confidence))


def worst(ratio: Callable[..., Measured], samples: list[tuple[dict[str, Any], Any]], **fields: Any) -> Finding:
    """Return the finding for the largest ratio over settings; the first part of a sample is the setting's row."""
    estimates = [ratio(*sample)[0] for sample in samples]
    row, lowest = samples[int(np.argmax(estimates))][0], min(estimates)
    sizes = f"n = {row['n_clients']:,}, d = {row['dim']}, k = {row['rank']}"
    fields |= {"setting": f"{len(samples)} settings", "detail": f"{sizes}; smallest ratio {lowest:.2g}"}
    return judge(largest_of(ratio, samples), **fields)


def factor_off(row: dict[str, Any], law: float, *, confidence: float = 0.95) -> Measured:
    """Return the factor between a crossing and a predicted one, with its interval over trials."""
    logs = np.log(over(row, law, confidence=confidence))
    signed = -logs if logs[0] < 0 else logs
    factor, low, high = np.exp([signed[0], max(0.0, signed[1:].min()), np.abs(signed[1:]).max()])
    return float(factor), float(low), float(high)


def lawful(row: dict[str, Any], law: str = "predicted_crossing") -> bool:
    """Return whether there is a prediction, at an m at which heads have the moments that it needs."""
    return row[law] > (row["rank"] + 4 if row["path"] != "round" else 0)


def chosen(table: lf.Table, wanted: Callable[[dict[str, Any]], bool]) -> lf.Table:
    """Return the rows for which a condition holds."""
    return lf.Table([row for row in table.rows if wanted(row)])


def covered(row: dict[str, Any]) -> bool:
    """Return whether Theorem 1 applies to a setting: its step size, no noise, and eta at most 1/4."""
    return bool(row["step"] == THEOREM and row["noise_std"] == 0 and row["eta"] <= 0.25)


def many_clients(table: lf.Table) -> lf.Table:
    """Return the settings with many clients at the theorem's step size, or all settings without any such."""
    table = table.select(panel=["base", "n"], step=THEOREM)
    return chosen(table, lambda row: row["n_clients"] >= MANY_CLIENTS * row["dim"]) or table


def clients_of(table: lf.Table) -> str:
    """Return the numbers of clients in a table, as text."""
    return f"n = {', '.join(f'{n:,}' for n in sorted(table['n_clients']))}"


def samples_of(table: lf.Table) -> str:
    """Return the number of samples at which the fewest rounds are searched for, as text."""
    return f"m = {table.select(panel='base')['start']:,}"


def judge_predicted(table: lf.Table, column: str, *, text: str, most: float) -> Finding:
    """Judge the factor by which a prediction is off in the worst setting of a table."""
    rows = [row for row in table.rows if not row["censored"] and lawful(row, column)]
    samples = [(row, row[column]) for row in rows]
    off = np.array([abs(np.log(row["crossing"] / law)) for row, law in samples])
    worst, typical = int(off.argmax()), np.exp(np.median(off))
    condition = f", {samples_of(table)}" if rows[worst]["path"] == "round" else ", predicted m >= k + 4"
    return judge(
        largest_of(factor_off, samples),
        claim=text,
        claimed_high=most,
        source=OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}"),
        statistic="factor between measured and predicted, worst setting",
        setting=f"{len(rows)} settings{condition}",
        detail=f"{rows[worst]['panel']} at {rows[worst]['crossing']:.4g}; the median factor is {typical:.3f}",
    )


# --- figures -------------------------------------------------------------------------------------------------


def panels_page(
    table: lf.Table, panels: Any, ylabel: str, claim: str, claimed: Callable[[Any], float], near: str
) -> Any:
    """Return a figure with a panel for each size that varies."""
    import matplotlib.pyplot as plt

    shape: dict[str, Any] = {"layout": "constrained", "height_ratios": (3, 1, 3, 1), "sharey": "row"}
    figure, axes = plt.subplots(4, 4, figsize=(PAGE_WIDTH, 6.4), **shape)
    for ax, below, (panel, (field, *_, text)) in zip(axes[::2].flat, axes[1::2].flat, panels.items(), strict=True):
        below.sharex(ax)
        rows = sorted(table.select(panel=panels_on_axis(panel)).rows, key=lambda row: row[field])
        if not table.select(panel=panel):
            alone = "base setting alone" if rows else "not run"
            ax.text(0.5, 0.9, alone, ha="center", transform=ax.transAxes, fontsize=7)
        for step, colour in COLOURS.items():
            at_step = [row for row in rows if row["step"] == step]
            if step == THEOREM or any(row["panel"] == panel for row in at_step):  # not if only the base setting has it
                draw_measured(
                    ax, at_step, field, f"measured, {step}", f"lf.predict, {step}", "predicted_crossing", colour
                )
                draw_ratio(below, at_step, field, colour)
        claimed_rows = [row for row in rows if covered(row)]
        ax.plot(
            [row[field] for row in claimed_rows], [claimed(row) for row in claimed_rows], "--", color="0.5", label=claim
        )
        if near and panel == "T":
            ax.axhline(claimed_rows[0][near], color="0.35", linestyle="-.", label="the threshold near B*")
        for one, xlabel in ((ax, ""), (below, text)):
            label_axes(one, [row[field] for row in rows], xlabel)
        ax.tick_params(labelbottom=False)
        below.set(yscale="linear", ylim=RATIOS)
    same_scale(list(axes[::2].flat))
    for first in (0, 2):
        axes[first, 0].set_ylabel(ylabel)
        axes[first + 1, 0].set_ylabel("measured /\npredicted")
    figure.legend(*legend_entries(axes), loc="outside upper center", ncols=2)
    return drawn_from(figure, table)


def legend_entries(axes: Any) -> tuple[list[Any], list[str]]:
    """Return the handles and labels of all panels, without repetition."""
    found = [ax.get_legend_handles_labels() for ax in axes.ravel()]
    handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
    return list(handles.values()), list(handles)


def label_axes(ax: Axes, sizes: Sequence[float], text: str) -> None:
    """Label logarithmic axes, with ticks at some of the sizes."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    sizes = sorted({size for size in sizes if size > 0})
    ax.set(xscale="log" if sizes else "linear", yscale="log", xlabel=text)
    if len(sizes) == 1:
        ax.set_xlim(sizes[0] / 2, sizes[0] * 2)
    ticks = sizes if len(sizes) < 5 else sizes[:: -(-len(sizes) // 4)]
    ax.set_xticks(ticks, [f"{size:,g}" for size in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def panels_on_axis(panel: str) -> list[str]:
    """Return the panels whose rows share an axis: the panel and the base setting, except for p, which has n = 100."""
    return [panel] if panel == "p" else ["base", panel]


def draw_measured(ax: Axes, rows: Sequence[Any], field: str, text: str, law: str, column: str, colour: str) -> None:
    """Draw crossings with their intervals, censored ones as arrows at their bounds, and the predictions."""
    reached = [row for row in rows if not row["censored"]]
    ends = np.array([[row["crossing"] - row["low"], row["high"] - row["crossing"]] for row in reached]).reshape(-1, 2).T
    shape = {**line_style("FedRep"), "color": colour, "linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    x, y = ([row[name] for row in reached] for name in (field, "crossing"))
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
        within = [not row["predicted_censored"] for row in rows]  # elsewhere one end lies beyond the searched range
        ax.fill_between([row[field] for row in rows], low, np.minimum(high, 1e9), where=within, **shape)
        ax.dataLim.set(seen)  # a band that is open above ends at the top of the panel
        ax.autoscale_view()


def draw_ratio(ax: Axes, rows: Sequence[Any], field: str, colour: str) -> None:
    """Draw crossings divided by their predictions, with intervals, for rows whose every size has a prediction."""
    reached = [
        row for row in rows if not (row["censored"] or row["missing_prediction"]) and row["predicted_crossing"] > 0
    ]
    ratios = np.array(
        [[row[name] / row["predicted_crossing"] for name in ("crossing", "low", "high")] for row in reached]
    )
    middle, low, high = ratios.reshape(-1, 3).T
    shape = {**line_style("FedRep"), "color": colour, "linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    ax.errorbar([row[field] for row in reached], middle, yerr=np.maximum([middle - low, high - middle], 0), **shape)
    ax.axhline(1.0, color="black", linewidth=0.7, linestyle=":")
