"""Judges of scaling laws: the exponent, the level, and the constant over many settings.

A claim about every point, or about every pair of points, is supported if each of them supports it on its own: this
needs no correction. It is refuted if a point refutes it in an interval that holds for all together (Bonferroni).
`tests/statistics/verdict_rates.py` measures the rates of false verdicts that are stated here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_shape
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, join_notes, judge
from linfed.statistics.fits import fit_exponent
from linfed.statistics.intervals import (
    bootstrap_interval,
    fewest_trials,
    for_each,
    median_ends,
    not_negative,
    quotient,
)

LEVEL = 0.95
"""Confidence level of the judges' intervals."""

FREEDOM, TAIL = 1 / 3, 2 / 3
"""Parts of the degrees of freedom and of the tails of Student's interval that a root mean square's interval has.

A few trials underestimate both the mean and the spread of skewed squares. The parts are the simplest for which the
rates in `judge_farthest_off` are below 3.5 %, for one point and for many.
"""


def judge_predicted_exponent(
    x: npt.ArrayLike, measured: npt.ArrayLike, predicted: npt.ArrayLike, *, tolerance: float, **fields: Any
) -> Finding:
    """Judge whether measurements have the same exponent as their predictions.

    Parameters
    ----------
    x : array_like (P,)
        Positive sizes.
    measured, predicted : array_like (trials, P)
        Positive measurements and their predictions, which are resampled together.
    tolerance : float
        Largest allowed difference of the exponents.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`; the judge supplies a `statistic` and a `source`. The
        verdict is HOLDS or VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding
        Its interval is infinite with fewer than six trials.

    Notes
    -----
    The interval is a widened percentile bootstrap over trials (`bootstrap_interval`) of the difference of the two
    exponents. If the difference equals the tolerance, each side's verdict is false in at most 0.035 of the samples.
    This was measured with 8, 20 and 50 trials, 3 to 30 sizes, and equal and very unequal spreads. The predictions were
    exact, as noisy as the measurements, or followed each trial.

    Examples
    --------
    >>> from linfed.statistics import judge_predicted_exponent
    >>> measured, predicted = [[1.0, 0.5, 0.26]] * 3 + [[1.2, 0.6, 0.3]] * 3, [[1.1, 0.55, 0.275]] * 6
    >>> finding = judge_predicted_exponent([10, 20, 40], measured, predicted, tolerance=0.1, setting="n = 100",
    ...                                    claim="The error scales as predicted")
    >>> finding.detail, finding.verdict.value
    ('measured -0.987, predicted -1.000', 'HOLDS')
    """
    own, theirs = fit_exponent(x, measured)[0], fit_exponent(x, predicted)[0]
    tables = np.log(check_array("measured", measured, [("trials", "P")])), np.log(np.asarray(predicted, dtype=float))
    check_shape("predicted", tables[1], tables[0].shape, "the shape of measured")
    logs = np.log(np.asarray(x, dtype=float))
    logs -= logs.mean()

    def difference(trials: Array, axis: int = 0) -> Array:
        chosen = np.moveaxis(trials, axis, -1).astype(int)
        medians = [np.median(table[chosen], axis=-2) for table in tables]
        return np.asarray((medians[0] - medians[1]) @ logs / (logs @ logs))

    everyone = np.arange(float(len(tables[0])))
    interval = bootstrap_interval(difference, [everyone], vectorized=True, widened=True)
    defaults = {
        "claimed_low": -tolerance,
        "claimed_high": tolerance,
        "theorem": True,
        "source": OWN_PREDICTION.adding(f"the tolerance is {OWN_THRESHOLD}"),
        "statistic": "fitted exponent minus the predicted one",
        "detail": f"measured {own:.3f}, predicted {theirs:.3f}",
    }
    return judge((own - theirs, *interval), **defaults | _noted(fields, len(everyone)))


def judge_farthest_off(
    measured: npt.ArrayLike, predicted: npt.ArrayLike, *, claimed_low: float, claimed_high: float, **fields: Any
) -> Finding:
    """Judge the level of a prediction without fitted parameters at the point with the largest error.

    Parameters
    ----------
    measured, predicted : array_like (trials, P)
        Values that are not negative; NaN (a diverged trial) counts as infinite. The prediction is a root mean square
        over trials (e.g. data sets), so the statistic is the root mean square of their ratio.
    claimed_low, claimed_high : float
        Claimed range of the ratio.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`; the judge supplies a `statistic` and a `source`. The
        verdict is HOLDS or VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding
        Its interval is infinite with fewer than six trials. With few trials and many points, e.g. 8 and 10, a verdict
        against the claim needs more trials; a note says how many.

    Raises
    ------
    ValueError
        If a value is negative, or the shapes differ.

    Notes
    -----
    The interval runs from the smallest lower end to the largest upper end of the points' own intervals, so it lies in
    the claimed range if all of them do. If points lie outside in intervals that hold for all points together, the inner
    end belongs to the farthest of these. The intervals are Student's, for the logarithm of the mean square,
    with a third of the degrees of freedom and two thirds of the tails, because squares are skewed.

    If all points have the claimed limit, or only one has, each side's verdict is false in at most 0.031 of the samples.
    This was measured with 8, 20 and 50 trials and 3, 10 and 30 points. Ratios were lognormal (spread 0.3) or roots of
    chi^2/f with f = 1 and 4. A single point of more skewed ratios has a higher rate of false support: 0.05 for
    lognormal ratios of spread 0.5, and 0.12 for 0.8. With 30 points of spread 0.3, an exact prediction is supported in
    0.84 of the samples within a factor of 1.6 and with 20 trials, and in 0.97 within 1.35 and with 50 trials.

    Examples
    --------
    >>> from linfed.statistics import judge_farthest_off
    >>> finding = judge_farthest_off([[1.0, 0.9], [1.1, 1.0], [0.9, 1.05]] * 4, [[1.0, 1.0]] * 12, claimed_low=0.8,
    ...                              claimed_high=1.25, claim="The level is as predicted", setting="n = 100")
    >>> round(finding.estimate, 3), finding.verdict.value
    (0.985, 'HOLDS')
    """
    table = not_negative("measured", measured, 2)
    ratios = quotient(table, np.broadcast_to(not_negative("predicted", predicted), table.shape))
    trials, points = ratios.shape
    each = for_each(LEVEL, points)
    roots, lows, highs = _root_mean_squares(ratios, LEVEL)
    low, high = float(np.min(lows)), float(np.max(highs))
    _, least, most = _root_mean_squares(ratios, each)
    if np.max(least) > claimed_high:
        low = float(np.max(least))
    elif np.min(most) < claimed_low:
        high = float(np.min(most))
    with np.errstate(divide="ignore"):
        farthest = float(roots[np.abs(np.log(roots)).argmax()])
    defaults = {
        "theorem": True,
        "source": OWN_PREDICTION.adding(f"the range is {OWN_THRESHOLD}"),
        "statistic": "measured divided by predicted root mean square, at the worst point",
    }
    claimed = {"claimed_low": claimed_low, "claimed_high": claimed_high}
    return judge((farthest, low, high), **claimed | defaults | _noted(fields, trials, f"{points} points", each))


def judge_one_constant(ratios: npt.ArrayLike, *, claimed_high: float, **fields: Any) -> Finding:
    """Judge whether a scaling law has the same constant in many settings.

    Parameters
    ----------
    ratios : array_like (trials, P)
        Measured values divided by the scaling law with constant 1, not negative; NaN (a diverged trial) counts as
        infinite. The constant of a setting is the lower median over trials.
    claimed_high : float
        Largest claimed value of the largest constant divided by the smallest.
    **fields
        Other fields of `Finding`. Required: `claim`, `source`; the judge supplies a `statistic` and a `setting`. The
        verdict is HOLDS or VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding
        Its interval is 1 to infinity with fewer than six trials. With few trials and many settings, e.g. 8 and 10, a
        verdict against the claim needs more trials; a note says how many.

    Raises
    ------
    ValueError
        If a value is negative.

    Notes
    -----
    The interval consists of order statistics (`quantile_interval`). The lower end is the largest ratio of a lower to an
    upper end of intervals that hold for all constants together. So it exceeds the true ratio with probability at most
    0.025, for all distributions. The upper end is the largest one over all pairs of settings. For a pair, the distances
    of the two medians' logarithms from their ends are joined as the root of the sum of their squares (Zou and Donner
    2008).

    If the true ratio equals the claimed one, the verdict for the claim is false in at most 0.028 of the samples, and
    the verdict against it in at most 0.010. This was measured with 8, 20 and 50 trials and 3, 10 and 30 settings.
    Trials were lognormal, skewed, uniform or of heavy tails, with equal or very unequal spreads, and independent or
    positively correlated over settings. If the trials of one setting are the inverses of another's, it is 0.06. With 30
    settings of spread 0.3, equal constants are supported in 0.94 of the samples within a factor of 2 and with 20
    trials, and in 0.99 within 1.6 and with 50 trials.

    References
    ----------
    Zou and Donner 2008, Construction of confidence limits about effect measures: a general approach, Statistics in
    Medicine 27.

    Examples
    --------
    >>> from linfed.statistics import judge_one_constant
    >>> finding = judge_one_constant([[1.0, 1.2], [1.1, 1.1], [1.0, 1.2]] * 2, claimed_high=1.5,
    ...                              claim="One constant serves all settings", source="our prediction")
    >>> finding.detail, finding.verdict.value
    ('constants from 1 to 1.2', 'HOLDS')
    """
    table = not_negative("ratios", ratios, 2)
    trials, settings = table.shape
    each = for_each(LEVEL, 2 * settings)
    (medians, lows, highs), (_, least, most) = median_ends(table, LEVEL), median_ends(table, each)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle, below, above = np.log(medians), np.log(medians / lows), np.log(highs / medians)
        pairs = middle[:, None] - middle + np.hypot(above[:, None], below)
        apart = np.exp(pairs[~np.eye(settings, dtype=bool)])
    high = float(np.max(np.nan_to_num(apart, nan=np.inf, posinf=np.inf), initial=1.0))
    low = float(quotient(least.max(), most.min(), 0.0))
    defaults = {
        "claimed_high": claimed_high,
        "theorem": True,
        "setting": f"{settings} settings",
        "statistic": "largest constant divided by the smallest",
        "detail": f"constants from {medians.min():.3g} to {medians.max():.3g}",
    }
    found = float(quotient(medians.max(), medians.min())), max(1.0, low), high
    return judge(found, **defaults | _noted(fields, trials, f"{settings} settings", each))


def _root_mean_squares(ratios: Array, confidence: float) -> tuple[Array, Array, Array]:
    """Return the root mean square over trials of each column of ratios, with the interval of `judge_farthest_off`."""
    from scipy import special

    trials = len(ratios)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        squares = np.square(ratios)
        means = squares.mean(axis=0)
        reach = np.full(means.shape, np.inf)
        if trials >= fewest_trials(confidence):
            errors = np.where(means > 0, squares.std(axis=0, ddof=1) / (means * math.sqrt(trials)), 0.0)
            reach = special.stdtrit(FREEDOM * (trials - 1), 1.0 - TAIL * (1.0 - confidence) / 2.0) * errors
        low, high = np.sqrt(means * np.exp(-reach)), np.sqrt(means * np.exp(reach))
    return np.sqrt(means), np.nan_to_num(low, nan=0.0, posinf=np.inf), np.nan_to_num(high, nan=np.inf, posinf=np.inf)


def _noted(fields: dict[str, Any], trials: int, points: str = "", each: float = LEVEL) -> dict[str, Any]:
    """Return the fields with a note if trials are too few for the interval, or for one that refutes at any point."""
    few = ""
    if trials < fewest_trials(LEVEL):
        few = f"{trials} trials are too few for an interval, which needs {fewest_trials(LEVEL)}"
    elif trials < fewest_trials(each):
        few = f"{trials} trials are too few to refute a claim about {points}, which needs {fewest_trials(each)}"
    return fields | {"note": join_notes(fields.get("note", ""), few)} if few else fields
