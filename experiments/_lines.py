"""A line that theory draws for every data set, held against a threshold that knows none of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, Finding, judge
from linfed.statistics.intervals import bootstrap_interval


def best_threshold(outcome: Any) -> Any:
    """Return the points beyond the one threshold that agrees with most outcomes of all the data sets, in hindsight.

    Of ``outcome``, bool (sets, points), True is what a point beyond the threshold should be; points ascend.
    """
    gained = np.concatenate([[0], np.cumsum(np.sum(~outcome, axis=0) - np.sum(outcome, axis=0))])
    return np.arange(outcome.shape[1]) >= int(np.argmax(gained))


def line_counts(outcome: Any, said: Any) -> lf.Along:
    """Return each data set's number of points, and of how many the line and the common threshold tell the outcome.

    Parameters
    ----------
    outcome, said : ndarray of bool (sets, columns, points)
        What happened beyond or short of the line, and what the line says; points ascend. Every column has a common
        threshold of its own. "Near" are the two points on both sides of a data set's line.

    Returns
    -------
    Along (sets, 2, 3)
        Of all points and of those near; the points, those that the line tells, and that the threshold tells.
    """
    fixed = np.stack([best_threshold(column) for column in np.moveaxis(outcome, 1, 0)])
    near = np.zeros(said.shape, dtype=bool)
    crossing = said[..., 1:] != said[..., :-1]
    near[..., 1:] |= crossing
    near[..., :-1] |= crossing
    hits = (every := np.ones_like(near), outcome == said, outcome == fixed)
    counts = [[np.sum(hit & chosen, axis=(1, 2)) for hit in hits] for chosen in (every, near)]
    return lf.Along(np.moveaxis(counts, -1, 0), among=("all", "near"), count=("points", "line", "fixed"))


def line_findings(counts: Any, *, fixed: str, **said: Any) -> list[Finding]:
    """Judge whether the data set's line tells more than the common threshold: at all points, and near the line.

    Parameters
    ----------
    counts : ndarray (.., 2, 3)
        Of every data set, from `line_counts`.
    fixed : str
        What the common threshold is, for the statistic.
    **said
        Text and setting.
    """

    def difference(points: Any, line: Any, other: Any) -> float:
        return float((line.sum() - other.sum()) / max(1.0, points.sum()))

    out = []
    of_kind = np.moveaxis(np.reshape(counts, (-1, 2, 3)).astype(float), 0, -1)
    for told, samples in zip(("all points", "the two points on both sides of the line"), of_kind, strict=True):
        points, line, other = samples
        estimate, same = difference(*samples), bool(np.all(line == other))
        interval = (estimate, estimate) if same else bootstrap_interval(difference, tuple(samples), paired=True)
        shares = " against ".join(f"{100 * part.sum() / max(1, points.sum()):.1f} %" for part in (line, other))
        whole = f"; right at every point in {100 * np.mean(line == points):.0f} % of the {len(points)} data sets"
        out.append(
            judge(
                (estimate, *interval),
                statistic=f"share of {told} that the line tells, less that of {fixed}",
                source=OWN_PREDICTION,
                least=0.0,
                strict=True,
                detail=f"{shares} of {points.sum():.0f}{whole if told == 'all points' else ''}",
                vacuous="both tell the same of every point" if same else "",
                **said,
            )
        )
    return out
