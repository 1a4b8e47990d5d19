"""A line that theory draws for every data set, held against a threshold that knows none of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, Finding, judge
from linfed.statistics.intervals import bootstrap_interval


def best_threshold(outcome: Any) -> Any:
    """Return the points beyond the one threshold that agrees with most outcomes of all the data sets, in hindsight.

    Outcomes are (sets, points): True is what a point beyond the threshold should be; points ascend.
    """
    gained = np.concatenate([[0], np.cumsum(np.sum(~outcome, axis=0) - np.sum(outcome, axis=0))])
    return np.arange(outcome.shape[1]) >= int(np.argmax(gained))


def line_rows(outcome: Any, said: Any) -> dict[str, Any]:
    """Return columns of a row whose trials are data sets: points, and how many the line and the common threshold tell.

    Parameters
    ----------
    outcome, said : ndarray of bool (sets, columns, points)
        What happened beyond or short of the line, and what the line says; points ascend. Every column has a common
        threshold of its own. "Near" are the two points on both sides of a data set's line.
    """
    fixed = np.stack([best_threshold(column) for column in np.moveaxis(outcome, 1, 0)])
    near = np.zeros(said.shape, dtype=bool)
    crossing = said[..., 1:] != said[..., :-1]
    near[..., 1:] |= crossing
    near[..., :-1] |= crossing
    return {
        f"{name}{what}": np.sum(hits & chosen, axis=(1, 2))
        for name, chosen in {"": np.ones_like(near), "near_": near}.items()
        for what, hits in (("points", True), ("line", outcome == said), ("fixed", outcome == fixed))
    }


def line_findings(table: lf.Table, *, fixed: str, **said: Any) -> list[Finding]:
    """Judge whether the data set's line tells more than the common threshold: at all points, and near the line.

    The table's rows hold what `line_rows` returns; `fixed` says what the common threshold is, `said` text and setting.
    """

    def difference(p: Any, a: Any, b: Any) -> float:
        return float((a.sum() - b.sum()) / max(1.0, p.sum()))

    out = []
    for name, told in (("", "all points"), ("near_", "the two points on both sides of the line")):
        samples = tuple(np.ravel(table[f"{name}{what}"]).astype(float) for what in ("points", "line", "fixed"))
        points, line, other = samples
        total, estimate = int(points.sum()), difference(*samples)
        same = total == 0 or bool(np.all(line == other))
        interval = (estimate, estimate) if same else bootstrap_interval(difference, samples, paired=True)
        shares = [f"{100 * part.sum() / max(1, total):.1f} %" for part in (line, other)]
        whole = f"; right at every point in {100 * np.mean(line == points):.0f} % of the {len(points)} data sets"
        fields = {
            "statistic": f"share of {told} that the line tells, less that of {fixed}",
            "source": OWN_PREDICTION,
            "detail": f"{shares[0]} against {shares[1]} of {total}" + ("" if name else whole),
            "vacuous": "both tell the same of every point" if same else "",
        }
        out.append(judge((estimate, *interval), least=0.0, strict=True, **fields, **said))
    return out
