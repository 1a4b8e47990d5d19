"""A line that theory draws for every data set, held against a threshold that knows none of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from linfed.statistics.findings import OWN_PREDICTION, Finding, judge
from linfed.statistics.intervals import bootstrap_interval
from linfed.study.run import Table, tidy


def best_threshold(outcome: Any) -> Any:
    """Return the points beyond the one threshold that agrees with most outcomes of all the data sets, in hindsight.

    Parameters
    ----------
    outcome : ndarray of bool (sets, points)
        True is what a point beyond the threshold should be; points ascend.

    Returns
    -------
    ndarray of bool (points,)
    """
    gained = np.concatenate([[0], np.cumsum(np.sum(~outcome, axis=0) - np.sum(outcome, axis=0))])
    return np.arange(outcome.shape[1]) >= int(np.argmax(gained))


def line_rows(keys: Mapping[str, Any], outcome: Any, said: Any) -> Table:
    """Return a row for each data set: points, and of how many the line and the common threshold tell the outcome.

    Parameters
    ----------
    keys : mapping
        Columns that are the same in all rows.
    outcome, said : ndarray of bool (sets, columns, points)
        What happened beyond or short of the line, and what the line says; points ascend. Every column has a common
        threshold of its own. "Near" are the two points on both sides of a data set's line.
    """
    fixed = np.stack([best_threshold(column) for column in np.moveaxis(outcome, 1, 0)])
    near = np.zeros(said.shape, dtype=bool)
    crossing = said[..., 1:] != said[..., :-1]
    near[..., 1:] |= crossing
    near[..., :-1] |= crossing
    each = {"": np.ones_like(near), "near_": near}
    values = {
        f"{name}{what}": np.sum(hits & chosen, axis=(1, 2))
        for name, chosen in each.items()
        for what, hits in (("points", True), ("line", outcome == said), ("fixed", outcome == fixed))
    }
    return tidy(keys, {"trial": np.arange(len(outcome))}, values)


def line_findings(table: Table, *, fixed: str, **said: Any) -> list[Finding]:
    """Judge whether the data set's line tells more than the common threshold: at all points, and near the line.

    Parameters
    ----------
    table : structured array
        From `line_rows`.
    fixed : str
        What the common threshold is, for the statistic.
    **said
        Text and setting.
    """
    whole = float(np.mean(table["line"] == table["points"]))
    out = []
    for name, told in (("", "all points"), ("near_", "the two points on both sides of the line")):
        points, line, other = (table[f"{name}{what}"] for what in ("points", "line", "fixed"))
        total = int(points.sum())

        def difference(p: Any, a: Any, b: Any) -> float:
            return float((a.sum() - b.sum()) / max(1.0, p.sum()))

        same = total == 0 or bool(np.all(line == other))
        samples = tuple(part.astype(float) for part in (points, line, other))
        estimate = difference(*samples)
        interval = (estimate, estimate) if same else bootstrap_interval(difference, samples, paired=True)
        shares = [f"{100 * part.sum() / max(1, total):.1f} %" for part in (line, other)]
        detail = f"{shares[0]} against {shares[1]} of {total}"
        detail += "" if name else f"; right at every point in {100 * whole:.0f} % of the {len(table)} data sets"
        out.append(
            judge(
                (estimate, *interval),
                statistic=f"share of {told} that the line tells, less that of {fixed}",
                source=OWN_PREDICTION,
                least=0.0,
                strict=True,
                detail=detail,
                vacuous="both tell the same of every point" if same else "",
                **said,
            )
        )
    return out
