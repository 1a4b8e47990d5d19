"""The statistic of a method against the best of others, as in the comparisons of methods for fixed data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import label
from linfed.statistics import median_interval


def over_better(method: str, ends: tuple[str, str], words: str) -> c.Statistic:
    """Return a method's excess risk divided by that of the better of two others, the `ends`; `words` name it."""
    statistic = "excess risk divided by that of the better of the two, median over paired trials"
    return over_best(method, lambda part: part.select(method=ends), statistic, words, c.below(1.0))


def over_best(
    method: str, others: Callable[[lf.Table], lf.Table], statistic: str, words: str, required: c.Range
) -> c.Statistic:
    """Return a method's excess risk divided by that of the best of `others`.

    The rows do not suffice without the method, or with fewer than two others. The detail of a finding names the best
    one after `words`.
    """

    def rows(part: lf.Table) -> lf.Table:
        medians = {row["method"]: float(np.median(row["excess"])) for row in others(part).rows}
        if len(medians) < 2 or not part.select(method=method):
            return lf.Table()
        return part.select(method=[method, min(medians, key=medians.__getitem__)])

    def measure(part: lf.Table) -> c.Measurement:
        (end,) = {*part.unique("method")} - {method}
        mine, other = (part.select(method=name)["excess"] for name in (method, end))
        return c.Measurement(median_interval(mine / other), f"{words}: {label(end)}")

    return c.measured(statistic, measure, required, rows=rows)
