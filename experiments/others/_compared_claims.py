"""Statistics of a method against others: against each of them, and at every point of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import label
from linfed.statistics import median_interval, median_ratio, quantile_interval
from linfed.statistics.intervals import largest_of


def over_better(method: str, ends: tuple[str, str], words: str) -> c.Statistic:
    """Return a method's excess risk divided by that of the better of two others, the `ends`; `words` name it."""
    statistic = "excess risk divided by that of the better of the two, median over paired trials"
    return over_best(method, lambda part: part.select(method=ends), statistic, words, c.below(1.0))


def over_best(
    method: str, others: Callable[[lf.Table], lf.Table], statistic: str, words: str, required: c.Range
) -> c.Statistic:
    """Return the largest ratio of a method's excess risk to that of one of `others`: the best one in paired trials.

    The rows do not suffice without the method, or with fewer than two others. The detail of a finding names the best
    one after `words`.
    """

    def rows(part: lf.Table) -> lf.Table:
        names = others(part).unique("method") if others(part) else []
        return part.select(method=[method, *names]) if len(names) > 1 and part.select(method=method) else lf.Table()

    def measure(part: lf.Table) -> c.Measurement:
        mine = part.select(method=method)["excess"]
        ratios = {row["method"]: mine / row["excess"] for row in part if row["method"] != method}
        best = max(ratios, key=lambda name: float(median_interval(ratios[name])[0]))
        interval = partial(quantile_interval, level=0.5)
        found = largest_of(interval, [(ratio,) for ratio in ratios.values()])
        return c.Measurement(found, f"{words}: {label(best)}")

    return c.measured(statistic, measure, required, rows=rows)


def at_every_point(first: str, second: str, place: Callable[[lf.Table], str], words: str, most: float) -> c.Statistic:
    """Return the ratio of the medians of two columns of distances, at the row where it is largest; `place` names it."""

    def measure(part: lf.Table) -> c.Measurement:
        pairs = [(row[first], row[second]) for row in part]
        ratios = np.array([median_ratio(*pair) for pair in pairs])
        closer, farther = int(np.sum(ratios[:, 2] < 1.0)), int(np.sum(ratios[:, 1] > 1.0))
        counts = f"closer at {closer}, tied at {len(pairs) - closer - farther}, farther at {farther} points"
        worst = list(part)[int(ratios[:, 0].argmax())]
        return c.Measurement(largest_of(median_ratio, pairs), f"{place(worst)}; {counts}")

    return c.measured(words, measure, c.at_most(most))
