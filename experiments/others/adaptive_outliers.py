"""Whether one penalty adapts to a growing share of outliers that have one common regressor.

The methods, their tuning and the claimed factor are those of ``adaptive-personalisation``. The inliers deviate from
their common regressor by a tenth of its length, and the outliers collude: they share one other regressor of the same
length. n = 50, d = 10, m = 20, noise of standard deviation 1. The errors are those of the inliers.

**Deviations**: colluding outliers are our choice; Duan and Wang draw the directions of outliers at random.

References: Duan and Wang 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures

from ._adaptive import ARMUL, DITTO, LOCAL, POOLED, RULE, Adaptive, Law, methods
from ._adaptive_shown import (
    BETTER,
    FACTOR,
    NEVER,
    OVER_BEST,
    WORDS_OF_RATIO,
    WORST,
    along,
    draw,
    predicted,
    predictions,
    sheet_trials,
)

SUMMARY = "one unsquared penalty against local, pooled and tuned methods, over the share of colluding outliers"
HEADLINES = (
    {
        "claim": "With one penalty, ARMUL's excess risk is at most 4 times the better end's, a factor chosen after a "
        "first run"
    },
)
CAPTIONS = {
    "": (
        "Mean excess risk of the inliers, divided by that of the better of local and pooled least squares, against the "
        "share of outliers that have one common regressor. Lines: median over trials; shaded: 10-90 %. Dotted black: "
        "predicted for Ditto with its best penalty. Grey: the claimed constant."
    ),
}
PICTURES = {"": 1005}
REDUCED = {"shares": {"without": ("score", "tried_*")}}


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the methods over shares of colluding outliers; quick: fewer of all."""
    shares: Sequence[float] = (0.0, 0.04, 0.1, 0.2, 0.3, 0.4)
    names, more = tuple(methods(1.0)), dict[str, Any]()
    if quick:
        shares, names = (0.0, 0.2), (LOCAL, POOLED, RULE, ARMUL, DITTO)
        more = {"n_rounds": 60, "trials": 8, "tuning_trials": 4}
    series = {"deviation": (0.1,), "colluding": (True,), "outliers": shares}
    return {
        "shares": lf.grid(Adaptive(**more), **series, method=names),
        "law": lf.grid(Law(**more), **series),
    }


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return each method's risks along the shares, and their ratios to the better of local and pooled fits."""
    found = along(tables["shares"], tables["law"], "outliers")
    points = [part for row in found if "predicted" in row for part in predicted(row)]
    return {"along_share": lf.Table(found), "predictions": lf.Table(points)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the ratios against the share of colluding outliers."""
    with lf.panels(tables["along_share"], title="", height=3.4, width="column") as sheet:
        for ax, part in sheet:
            draw(ax, part, "outliers")
        sheet.label("share of colluding outliers", WORDS_OF_RATIO, yscale="log")
        sheet.legend(f"median and 10-90 % of {sheet_trials(tables['along_share'])} trials", ncols=2)
    return {"": sheet.figure}


COLLUDING = "colluding outliers, deviation 0.1"
CLAIMS = (
    c.Claim(NEVER, FACTOR, WORST, table="along_share", setting=COLLUDING),
    c.Claim(
        BETTER,
        c.OWN_THRESHOLD,
        OVER_BEST,
        table="shares",
        where=c.only(lambda row: row["outliers"] > 0.0),  # `adaptive-personalisation` has the run without outliers
        over=c.each("outliers"),
        setting="share of colluding outliers {outliers:g}, deviation 0.1",
    ),
    *predictions(),
)
