"""The statistic of methods that have a part for each client: against the better of two simple methods."""

from __future__ import annotations

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import label
from linfed.statistics import median_interval


def over_better(method: str, ends: tuple[str, str], words: str) -> c.Statistic:
    """Return a method's excess risk divided by that of the better of two others, the `ends`.

    The detail of the finding names the better one after `words`.
    """

    def rows(part: lf.Table) -> lf.Table:
        known = part.select(method=[method, *ends])
        if len(known) < 3:
            return lf.Table()
        medians = {row["method"]: float(np.median(row["excess"])) for row in known.rows}
        return known.select(method=[method, min(ends, key=medians.__getitem__)])

    def measure(part: lf.Table) -> c.Measurement:
        (end,) = {*part.unique("method")} - {method}
        mine, other = (part.select(method=name)["excess"] for name in (method, end))
        return c.Measurement(median_interval(mine / other), f"{words}: {label(end)}")

    statistic = "excess risk divided by that of the better of the two, median over paired trials"
    return c.measured(statistic, measure, c.below(1.0), rows=rows)
