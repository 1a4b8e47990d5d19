"""Judges of a predicted threshold per data set, compared with the best common threshold of all data sets.

Runs lie on an ascending grid of points, e.g. weights or sizes, and each run has a yes-or-no outcome. Theory predicts
for each data set the point at which the outcome changes (the line). The prediction is useful if it is right for more
runs than the oracle threshold: the best single threshold for all data sets, chosen in hindsight.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Mask
from linfed.statistics.findings import OWN_PREDICTION, Finding, judge
from linfed.statistics.intervals import Measured

AMONG = ("all points", "the two points on both sides of the line")
COUNTED = ("points", "line", "threshold")
"""Meaning of the last two axes of `line_counts`."""


def best_threshold(outcome: Mask) -> Mask:
    """Return the prediction of the single threshold that agrees with most outcomes of all data sets.

    Parameters
    ----------
    outcome : ndarray of bool (sets, points)
        Outcome of each run; the threshold predicts True for the points beyond it. Points ascend.

    Returns
    -------
    ndarray of bool (points,)
        True for the points beyond the threshold.
    """
    gained = np.concatenate([[0], np.cumsum(np.sum(~outcome, axis=0) - np.sum(outcome, axis=0))])
    return np.arange(outcome.shape[1]) >= int(np.argmax(gained))


def line_counts(outcome: Mask, predicted: Mask) -> npt.NDArray[np.intp]:
    """Count for each data set the points at which the line and the common threshold predict the outcome.

    Parameters
    ----------
    outcome, predicted : ndarray of bool (sets, columns, points)
        Outcomes, and outcomes predicted by the line; points ascend. Every column has its own common threshold.

    Returns
    -------
    ndarray (sets, 2, 3)
        For all points and for the two points on both sides of a data set's line (`AMONG`): the number of points, the
        number that the line predicts correctly, and the number that the threshold predicts correctly (`COUNTED`).
    """
    fixed = np.stack([best_threshold(column) for column in np.moveaxis(outcome, 1, 0)])
    near = np.zeros(predicted.shape, dtype=bool)
    crossing = predicted[..., 1:] != predicted[..., :-1]
    near[..., 1:] |= crossing
    near[..., :-1] |= crossing
    every = np.ones_like(near)
    kinds = (every, outcome == predicted, outcome == fixed)
    counts = np.array([[np.sum(hit & chosen, axis=(1, 2)) for hit in kinds] for chosen in (every, near)])
    return np.moveaxis(counts, -1, 0)


def line_findings(counts: npt.ArrayLike, *, fixed: str, **fields: Any) -> list[Finding]:
    """Judge whether the line of each data set predicts more outcomes than the common threshold.

    Parameters
    ----------
    counts : array_like (.., 2, 3)
        Counts of all data sets, from `line_counts`.
    fixed : str
        Description of the common threshold, for the name of the statistic.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`; the function supplies a `statistic` and a `source`. The
        verdicts are SUPPORTED or NOT SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.

    Returns
    -------
    list of Finding
        Two findings, for all points and for the points near the line, with Student's interval over data sets (of a
        ratio of totals). VACUOUS if both are right at equally many points of every data set.

    Notes
    -----
    If both are equally good, each verdict is false in at most 0.033 of the samples. This was measured with 5, 8, 20 and
    50 data sets of 3, 10 and 30 points. Lines agreed with the threshold at nine points in ten, or only by chance.
    """
    out = []
    of_kind = np.moveaxis(np.reshape(counts, (-1, 2, 3)).astype(float), 0, -1)
    for kind, (points, line, other) in zip(AMONG, of_kind, strict=True):
        same = bool(np.all(line == other))
        found = (0.0, 0.0, 0.0) if same else _share(line - other, points)
        shares = [f"{100 * part.sum() / max(1, points.sum()):.1f} %" for part in (line, other)]
        whole = f"; right at every point in {100 * np.mean(line == points):.0f} % of the {len(points)} data sets"
        defaults = {
            "statistic": f"share of {kind} that the line predicts, minus that of {fixed}",
            "source": OWN_PREDICTION,
            "claimed_low": 0.0,
            "strict": True,
            "detail": f"{' against '.join(shares)} of {points.sum():.0f}{whole if kind == AMONG[0] else ''}",
            "vacuous": "both are right at equally many points of every data set" if same else "",
        }
        out.append(judge(found, **defaults | fields))
    return out


def _share(gained: Array, points: Array) -> Measured:
    """Return the number of points gained in all data sets divided by their number of points, with its interval."""
    from scipy import special

    sets, total = len(points), max(1.0, points.sum())
    share = float(gained.sum() / total)
    if sets < 2:
        return share, -math.inf, math.inf
    rest = gained - share * points
    reach = float(special.stdtrit(sets - 1, 0.975)) * math.sqrt(sets / (sets - 1) * (rest @ rest)) / total
    return share, share - reach, share + reach
