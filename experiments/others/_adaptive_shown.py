"""Series of the adaptive methods along a size, their figures, and the claims on them."""

from __future__ import annotations

from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import LOOKS as STYLES
from linfed.plotting.panels import draw_predicted, plot_curves
from linfed.statistics import median_ratio
from linfed.statistics.intervals import largest_of

from ._adaptive import ARMUL, DITTO, ENDS, FEDREP, FT, LOCAL, MEDIAN, POOLED, RIVALS, RULE, methods
from ._compared_claims import over_best

CONSTANT = 4.0
"""Factor in the excess risk that counts as a constant: 2 in the length of the error, which the theorems bound."""
NEAR = 1.2
"""The claimed accuracy of predictions, as a factor."""
LEAST = 0.1
"""Smallest deviation at which predictions are claimed: below, the pool's noise is most of its risk."""
WORDS_OF_RATIO = "excess risk / better end's"
"""Title of the vertical axis."""
LOOKS: dict[Any, Any] = {
    LOCAL: STYLES["LocalOnly"],
    POOLED: STYLES["PooledLeastSquares"],
    RULE: ("#D55E00", "o", "-"),
    ARMUL: ("#E69F00", "v", "-"),
    DITTO: ("#2F6DB5", "D", "-"),
    FT: ("#44AA99", "<", "-."),
    MEDIAN: ("#117733", ">", "-."),
    FEDREP: ("#AA4499", "P", "-."),
}


# --- series and figures ----------------------------------------------------------------------------------------


def predicted(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row of a series as one row for each point, without deviations below `LEAST`, where chance decides."""
    ((x, points),) = row["excess"].axes.items()
    kept = {key: row[key] for key in ("n_clients", "n_samples", "dim", "noise_std", "trials", "method")}
    name = (
        "colluding outliers, deviation 0.1"
        if x == "outliers"
        else f"share of outliers {row['share']:g}, deviations from {LEAST:g}"
    )
    return [
        kept | {"series": name, "point": point} | {key: row[key].values[:, at] for key in ("excess", "predicted")}
        for at, point in enumerate(points)
        if x == "outliers" or point >= LEAST
    ]


def along(part: lf.Table, law: lf.Table, x: str, *more: lf.Table) -> list[dict[str, Any]]:
    """Return the rows of a series along x: for each method of a table, and for each further table of one method."""
    ends = np.stack([joined(part.select(method=end), x).values for end in ENDS])
    better = np.take_along_axis(ends, np.median(ends, axis=1).argmin(axis=0)[None, None, :], axis=0)[0]
    found = []
    for rows in [rows for _, rows in part.groupby("method")] + list(more):
        first = rows.rows[0]
        excess = joined(rows, x)
        row = {
            key: first[key] for key in ("n_clients", "n_samples", "dim", "noise_std", "n_rounds", "trials", "method")
        }
        row |= {"share": first["outliers"], "fixed_penalty": first.get("fixed_penalty", np.nan), "excess": excess}
        row["better"] = lf.LabeledArray(better, **excess.axes)
        row["ratio"] = lf.LabeledArray(excess.values / better, **excess.axes)
        if first["method"] in (*ENDS, DITTO) and "fixed_penalty" not in first:
            row["predicted"] = joined(law, x, first["method"])
            row["predicted_ratio"] = lf.LabeledArray(row["predicted"].values / better, **excess.axes)
        found.append(row)
    return found


def joined(rows: lf.Table, x: str, column: str = "excess") -> lf.LabeledArray:
    """Return a column of several rows as one array (trials, x)."""
    ordered = sorted(rows.rows, key=lambda row: row[x])
    return lf.LabeledArray(np.stack([row[column] for row in ordered], axis=1), **{x: [row[x] for row in ordered]})


def sheet_trials(table: lf.Table) -> int:
    """Return the number of trials."""
    return int(table.rows[0]["trials"])


def draw(ax: Any, part: lf.Table, x: str) -> None:
    """Draw the ratios of all methods, with the prediction for Ditto."""
    names = part.unique("method")
    plot_curves(ax, part, x, "ratio", order=[name for name in methods(1.0) if name in names], looks=LOOKS)
    row = part.select(method=DITTO)
    draw_predicted(ax, row[x], np.median(row["predicted_ratio"], axis=0), label="Ditto, predicted", zorder=5)
    ax.axhline(CONSTANT, color="0.5", linewidth=0.7)


# --- claims ----------------------------------------------------------------------------------------------------

DUAN = c.reading(
    "Duan and Wang 2023: for a penalty of the order of the noise, the error of every client that is not an outlier is "
    "bounded by that of the better of local and pooled fits, up to constants and a term for the outliers"
)


def worst_ratio(row: lf.Table) -> c.Measurement:
    """Return the largest ratio of medians over trials, over all points, to the better of local and pooled fits."""
    (x,) = row.rows[0]["excess"].axes
    pairs = list(zip(np.asarray(row["excess"]).T, np.asarray(row["better"]).T, strict=True))
    at = int(np.argmax([median_ratio(*pair)[0] for pair in pairs]))
    return c.Measurement(largest_of(median_ratio, pairs), f"worst at {x} {row[x][at]:g}")


def rivals(part: lf.Table) -> lf.Table:
    """Return the tuned methods except ARMUL."""
    return part.select(method=list(RIVALS))


FACTOR = DUAN.adding("the factor is our threshold, chosen after a first run")
NEVER = "With one penalty, ARMUL's excess risk is at most 4 times the better end's, a factor chosen after a first run"
WORST = c.measured(
    "inliers' excess risk divided by that of the better of local and pooled fits, medians over trials, worst point",
    worst_ratio,
    c.at_most(CONSTANT),
    rows=c.of(method=RULE),
)
OVER_BEST = over_best(
    ARMUL,
    rivals,
    "tuned ARMUL's excess risk of the inliers divided by a tuned rival's, median over paired trials, largest over the "
    "rivals",
    "best rival",
    c.below(1.0),
)
BETTER = "Tuned ARMUL has a smaller risk than all tuned rivals"
WORDS = {LOCAL: "Local least squares", POOLED: "Pooled least squares", DITTO: "Ditto with its best penalty"}


def predictions() -> list[c.Claim]:
    """Return the claims on the predicted risks."""
    return [
        c.Claim(
            f"{words}: the inliers' risk is the predicted one",
            c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}"),
            c.factor("excess", "predicted", "factor between medians over trials, worst point", c.at_most(NEAR)),
            table="predictions",
            where=c.of(method=name),
            over=c.each("series"),
            setting="{series}",
        )
        for name, words in WORDS.items()
    ]
