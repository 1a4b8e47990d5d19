"""Break-even of federation: FedRep against local baselines, over samples and clients, with predictions.

d = 50, k = 3, one fixed data set of m samples for each of n clients, and two noise levels. The local baselines are
least squares, of minimum norm if m < d, and ridge regression with the best ridge for its noise and length,
``sigma^2 d/(m k)``. FedRep competes with the better of the two. One least-squares model for all clients, and exact
heads on the true B*, are run on the same data. `fedrep-pays-samples` has the sample complexities of these runs.

FedRep starts from the method of moments and runs until it converges. Its step size is the one that the spectra of
samples and of heads allow, ``1.2/(c (1 + sqrt g)^2 (1 + sqrt(k/n))^2)`` with c = 1 - k/m and
``g = (d-k) k/(n (m-k))``. The slowest directions determine the number of rounds, at most a thousand. The relative
gradient that is left is a column of the table, and so is the risk of the best round, chosen in hindsight.

The predicted break-even has no fitted parameter (`linfed.theory.break_even_clients`). It is compared with two rules.
One is g = 1, from which there are more samples than unknowns. The other is the FedRep paper's ``m ~ log(n) + d/n``,
with the pair of constants closest to the measured break-even, in hindsight and for each noise level, also in the
resamples of the intervals. FedRep's risk is predicted by `linfed.theory.fixed_sample_floor`, for the heads of each of
the first twenty trials. It is claimed for m >= k + 5, up to a replicon radius of 0.9 in all of them.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 1, and section 4.2, "When and whom does federation
help?".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import KINDS, label
from linfed.plotting.panels import Figures, bars, heat_map, level, place

from ._pays import FEDREP, LEAST, ORACLE, POOLED, RIDGE, STABLE, Point, points
from ._pays_resampled import Resampled, crossing, interval, lower, medians

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

SUMMARY = "break-even of FedRep with local least squares and ridge, over m/d and n, measured and predicted"
PICTURES = {"": 1400}
SECTIONS = (7, 10, 25, 75)
"""Numbers of samples of the sections through the map; only the sections show all methods."""
REDUCED = {
    "map": {"without": lambda row: ("gradient", "best", *(() if row["n_samples"] in SECTIONS else (POOLED, ORACLE)))}
}
CAPTIONS = {
    "": "Median excess risk of FedRep divided by the better local baseline's (ridge or least squares), over samples "
    "per client and number of clients. Markers: measured break-even (ratio 1). Lines: its prediction, and two "
    "rules: more samples than unknowns, and log(n) + d/n with constants chosen in hindsight. Blank: not run (too many "
    "samples).",
    "sections": "Excess risk against the number of clients, for some m and both noise levels: FedRep with its "
    "prediction (dotted), and the baselines. Markers: median over trials; bars: 10-90 %.",
}

LAW, COUNT, PAPER = "the law", "more samples than unknowns", "log(n) + d/n, best constants"
LAST, BEST = FEDREP, "best"
"""Columns with FedRep's risk in the last round, and in the best one, chosen in hindsight."""
NEAR = 1.25
"""The claimed accuracy of a predicted line, as a factor."""
UNKNOWN = (np.nan, np.nan, np.nan)
"""The interval of what has not been reached."""


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points of the map."""
    return {"map": points(quick)}


# --- break-even ----------------------------------------------------------------------------------------------


def measured_lines(part: lf.Table, column: str = LAST) -> dict[int, Resampled]:
    """Return for each m the number of clients from which a column is below the better local baseline."""
    found = {}
    for m, row in part.groupby("n_samples"):
        logs = medians(np.log(one[column] / np.minimum(one[RIDGE], one[LEAST])) for one in row)
        number = crossing([one["n_clients"] for one in row], logs)
        if np.isfinite(number[0]):
            found[m] = number
    return found


def lines(part: lf.Table, measured: dict[int, Resampled]) -> dict[str, dict[int, Resampled]]:
    """Return the break-even of each rule by m; the paper's rule has the constants with the smallest largest factor.

    These constants are those of the trials, and of each resample: their error is part of the intervals.
    """
    d, k = part.rows[0]["dim"], part.rows[0]["rank"]
    law = {row["n_samples"]: np.array([row["pays_from"]]) for row in part.rows if np.isfinite(row["pays_from"])}
    n, m = np.geomspace(2, 1000, 300), np.array(list(measured))
    a, b = (each[..., None, None] for each in np.meshgrid(np.geomspace(0.01, 30, 50), np.geomspace(0.03, 30, 50)))
    reached = a * np.log(n) + b * d / n <= m[:, None]
    paper = np.where(reached.any(axis=-1), n[np.argmax(reached, axis=-1)], n[-1]).reshape(-1, len(m))
    best = np.stack([closest(paper, numbers) for numbers in zip(*measured.values(), strict=True)], axis=-1)
    unknowns = {one: np.array([max(2.0, k * (d - k) / (one - k))]) for one in part.unique("n_samples") if one > k}
    return {LAW: law, COUNT: unknowns, PAPER: dict(zip(measured, best, strict=True))}


def closest(candidates: Array, numbers: Sequence[float]) -> Array:
    """Return the row of candidates (.., numbers) with the smallest largest factor from the finite numbers."""
    finite = np.isfinite(numbers)
    gaps = np.abs(np.log(candidates[:, finite] / np.array(numbers)[finite])).max(axis=-1)
    return candidates[np.argmin(gaps)]


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return for each noise and m the measured break-even, in the last and in the best round, and the rules'.

    The columns `over` have a measured break-even divided by that of a rule.
    """
    rows = []
    for noise, part in tables["map"].groupby("noise_std"):
        fewest = min(part.unique("n_clients"))
        measured = {column: measured_lines(part, column) for column in (LAST, BEST) if column in part.columns}
        rules = lines(part, measured[LAST])
        for m in part.unique("n_samples"):
            row = {"noise_std": noise, "n_samples": m}
            row |= {rule: float(line[m][0]) if m in line else np.nan for rule, line in rules.items()}
            for column, found in measured.items():
                row[column] = interval(found[m], low=lower(found[m], fewest)) if m in found else UNKNOWN
                for rule, line in rules.items():
                    known = m in found and m in line
                    row[over(column, rule)] = (
                        interval(found[m] / line[m], low=lower(found[m], fewest) / line[m]) if known else UNKNOWN
                    )
            rows.append(row)
    return {"even": lf.Table(rows)}


def over(column: str, rule: str) -> str:
    """Return the name of the column with a measured break-even divided by a rule's."""
    return f"{column} over {rule}"


# --- claims --------------------------------------------------------------------------------------------------


def with_law(row: lf.Table, column: str) -> Array:
    """Return a column's values in the trials whose prediction is computed."""
    return np.asarray(row[column][: row["law_trials"]])


def holds(row: lf.Table) -> bool:
    """Return whether the prediction for FedRep's minimum is claimed at a point: it holds in all its trials."""
    return bool(np.isfinite(with_law(row, "law")).all())


def left(part: lf.Table) -> str:
    """Return the number of points, and the relative gradient that is left."""
    gradient = max(np.quantile(row["gradient"], 0.9) for row in part)
    return f"{len(part)} points; relative gradient at the end, 90 % quantile: at most {gradient:.1g}"


def breaks_even(sentence: str, source: c.Source, rule: str, column: str = LAST) -> c.Claim:
    """Return the claim that the measured break-even is near the line of a rule, for each m."""

    def on_line(row: lf.Table) -> c.Measurement:
        return c.Measurement(row[over(column, rule)], f"{row[column][0]:.3g} clients, for {row[rule]:.3g}")

    words = "number of clients from which FedRep's excess risk is lower, divided by that of the line"
    return c.Claim(
        sentence,
        source,
        c.measured(words, on_line, c.within(1 / NEAR, NEAR)),
        table="even",
        where=c.only(lambda row: np.isfinite(row[over(column, rule)][0])),
        over=c.each_row,
        setting="noise std {noise_std}, m = {n_samples}",
    )


OWN = c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}")
FACTOR = "factor between the median over trials and the prediction, worst point"
AT_NOISE = partial(c.Claim, over=c.each("noise_std"), setting="noise std {noise_std}")
CLAIMS = (
    breaks_even("FedRep breaks even at the predicted number of clients", OWN, LAW),
    breaks_even("FedRep breaks even at as many samples as unknowns", c.OWN_THRESHOLD, COUNT),
    breaks_even(
        "FedRep breaks even at m ~ log(n) + d/n, with both constants chosen in hindsight",
        c.OWN_THRESHOLD.adding(
            "the FedRep paper's complexity, Theta(log(n) + d/n), taken for a rule of where it pays", ": "
        ),
        PAPER,
    ),
    breaks_even(
        "Stopped at its best round, in hindsight, FedRep breaks even at the predicted number of clients", OWN, LAW, BEST
    ),
    AT_NOISE(
        f"Up to a replicon radius of {STABLE:g}, FedRep's risk is the predicted one",
        OWN,
        c.factor(lambda row: with_law(row, FEDREP), lambda row: with_law(row, "law"), FACTOR, c.at_most(1.15)),
        where=c.only(holds),
        note=left,
    ),
    AT_NOISE(
        "The best ridge's risk is the predicted one",
        OWN,
        c.factor(RIDGE, "predicted_ridge", FACTOR, c.at_most(1.15)),
        where=c.only(lambda row: row["n_clients"] >= 50),
    ),
)


# --- figures -------------------------------------------------------------------------------------------------


LINES = {LAW: (KINDS[2][0], "-"), COUNT: (KINDS[4][0], ":"), PAPER: ("0.35", "--")}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the map with its lines, and sections through the map."""
    table, trials = tables["map"], f"{tables['map'].rows[0]['trials']} trials"
    with lf.panels(table, column="noise_std", title="noise std {}", height=3.6, sharey=True) as sheet:
        images = [draw_map(ax, part, tables["even"]) for ax, part in sheet]
        sheet.label("$m/d$", "clients $n$")
        text = "excess risk of FedRep over that of the better\nof ridge and least squares, median"
        bar = sheet.figure.colorbar(images[0], ax=sheet.axes, pad=0.02, aspect=30, ticks=[-2, -1, 0, 1, 2], label=text)
        bar.set_ticklabels(["0.01", "0.1", "1", "10", "100"])
        sheet.legend(f"{trials}; blank: not run; rows and columns are not evenly spaced", ncols=4)
    chosen = table.select(n_samples=SECTIONS)
    with lf.panels(chosen, column="n_samples", row="noise_std", title="m = {}", height=4.2, sharey="row") as second:
        second.label("clients $n$", *(f"excess risk, noise std {s}" for s in table.unique("noise_std")), xscale="log")
        for ax, part in second:
            draw_section(ax, part)
        second.legend(f"median and 10-90 % of {trials}", ncols=4)
    return {"": sheet.figure, "sections": second.figure}


def draw_map(ax: Axes, part: lf.Table, even: lf.Table) -> AxesImage:
    """Draw the log ratio over m and n, with the measured break-even and the lines of the rules."""
    counts, sizes = part.unique("n_samples"), sorted(part.unique("n_clients"))
    values = np.full((len(sizes), len(counts)), np.nan)
    for row in part:
        ratio = np.median(row[FEDREP] / np.minimum(row[RIDGE], row[LEAST]))
        values[sizes.index(row["n_clients"]), counts.index(row["n_samples"])] = np.log10(ratio)
    shares = [f"{m / part.rows[0]['dim']:.2g}".replace("0.", ".") for m in counts]
    image = heat_map(ax, values, shares, [f"{n:,}" for n in sizes], cmap="RdBu_r", vmin=-2, vmax=2)
    even = even.select(noise_std=part.rows[0]["noise_std"])
    for rule, (colour, style) in LINES.items():
        inside = [row for row in even.rows if row[rule] <= sizes[-1]]
        places = [place(list(np.log(sizes)), np.log(row[rule])) for row in inside]
        level(ax, [counts.index(row["n_samples"]) for row in inside], places, color=colour, linestyle=style, label=rule)
    measured = {counts.index(row["n_samples"]): row[LAST] for row in even.rows if np.isfinite(row[LAST][0])}
    ends = np.maximum(list(measured.values()), sizes[0])
    at = np.interp(np.log(ends), np.log(sizes), range(len(sizes)))
    level(ax, list(measured), at, color="black", marker="o", linestyle="none", label="measured")
    return image


def draw_section(ax: Axes, part: lf.Table) -> None:
    """Draw every method's excess risk against n, and FedRep's prediction."""
    from matplotlib.ticker import NullFormatter

    n = np.array([row["n_clients"] for row in part])
    for name in (FEDREP, LEAST, RIDGE, POOLED, ORACLE):
        bars(ax, n, c.stacked(part, name), name, label=label(name))
    law = [np.median(with_law(row, "law")) if holds(row) else np.nan for row in part]
    ax.plot(n, law, color="black", linewidth=1.2, linestyle=":", zorder=5, label="FedRep, the law")
    ax.set(yscale="log", ylim=(1e-3, 8))
    ax.xaxis.set_minor_formatter(NullFormatter())
