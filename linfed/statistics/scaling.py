"""Judges of scaling laws: the exponent, the level, and the constant over many settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.fits import fit_exponent
from linfed.statistics.intervals import bootstrap_interval


def judge_predicted_exponent(
    x: npt.ArrayLike, measured: npt.ArrayLike, predicted: npt.ArrayLike, *, margin: float, **fields: Any
) -> Finding:
    """Judge whether measurements have the same exponent as their predictions.

    Parameters
    ----------
    x : array_like (P,)
        Positive sizes.
    measured, predicted : array_like (trials, P)
        Positive measurements and their predictions.
    margin : float
        Largest allowed difference of the exponents.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`; the judge supplies a `statistic` and a `source`. The
        verdict is HOLDS or VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding

    Examples
    --------
    >>> from linfed.statistics import judge_predicted_exponent
    >>> measured, predicted = [[1.0, 0.5, 0.26]] * 3 + [[1.2, 0.6, 0.3]] * 3, [[1.1, 0.55, 0.275]] * 6
    >>> finding = judge_predicted_exponent([10, 20, 40], measured, predicted, margin=0.1, setting="n = 100",
    ...                                    claim="The error scales as predicted")
    >>> finding.detail, finding.verdict.value
    ('measured -0.987, predicted -1.000', 'HOLDS')
    """
    estimate, low, high = fit_exponent(x, measured)
    predicted_exponent = fit_exponent(x, predicted)[0]
    defaults = {
        "claimed_low": -margin,
        "claimed_high": margin,
        "theorem": True,
        "source": f"{OWN_PREDICTION}; the margin is {OWN_THRESHOLD}",
        "statistic": "fitted exponent minus the predicted one",
        "detail": f"measured {estimate:.3f}, predicted {predicted_exponent:.3f}",
    }
    return judge(
        (estimate - predicted_exponent, low - predicted_exponent, high - predicted_exponent), **defaults | fields
    )


def judge_farthest_off(
    measured: npt.ArrayLike, predicted: npt.ArrayLike, *, claimed_low: float, claimed_high: float, **fields: Any
) -> Finding:
    """Judge the level of a prediction without fitted parameters at the point with the largest error.

    Parameters
    ----------
    measured, predicted : array_like (trials, P)
        Positive values. The prediction is a root mean square over trials (e.g. data sets), so the statistic is the root
        mean square of their ratio.
    claimed_low, claimed_high : float
        Claimed range of the ratio.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`; the judge supplies a `statistic` and a `source`. The
        verdict is HOLDS or VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding

    Notes
    -----
    The interval is a 95 % percentile bootstrap. Its measured coverage for three points of root mean chi^2 is 0.94 to
    0.96 if one point stands out, and 0.91 to 0.97 if all ratios are 1, with 10, 20 and 50 trials.

    Examples
    --------
    >>> from linfed.statistics import judge_farthest_off
    >>> finding = judge_farthest_off([[1.0, 0.9], [1.1, 1.0], [0.9, 1.05]] * 2, [[1.0, 1.0]] * 6, claimed_low=0.8,
    ...                              claimed_high=1.25, claim="The level is as predicted", setting="n = 100")
    >>> round(finding.estimate, 3), finding.verdict.value
    (0.985, 'HOLDS')
    """
    groups = list(np.square(np.asarray(measured) / np.asarray(predicted)).T)

    def farthest(*samples: Array, axis: int = 0) -> Array:
        roots = np.sqrt([np.mean(sample, axis=axis) for sample in samples])
        return np.take_along_axis(roots, np.abs(np.log(roots)).argmax(axis=0)[None], axis=0)[0]

    defaults = {
        "theorem": True,
        "source": f"{OWN_PREDICTION}; the range is {OWN_THRESHOLD}",
        "statistic": "measured divided by predicted root mean square, at the worst point",
    }
    interval = bootstrap_interval(farthest, groups, paired=True, vectorized=True, resamples=500)
    found = float(farthest(*groups)), *interval
    return judge(found, **{"claimed_low": claimed_low, "claimed_high": claimed_high} | defaults | fields)


def judge_one_constant(ratios: npt.ArrayLike, *, claimed_high: float, **fields: Any) -> Finding:
    """Judge whether a scaling law has the same constant in many settings.

    Parameters
    ----------
    ratios : array_like (trials, P)
        Measured values divided by the scaling law with constant 1. The constant of a setting is the median over trials.
    claimed_high : float
        Largest claimed value of the largest constant divided by the smallest.
    **fields
        Other fields of `Finding`. Required: `claim`, `source`; the judge supplies a `statistic` and a `setting`. The
        verdict is HOLDS or VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding

    Notes
    -----
    The statistic is biased upwards. The measured coverage of its 95 % percentile bootstrap is 0.94 to 0.96 with 10, 20
    and 50 trials if the constants are 1, 1.5 and 2. If all true constants are equal, the whole interval lies above 1.

    Examples
    --------
    >>> from linfed.statistics import judge_one_constant
    >>> finding = judge_one_constant([[1.0, 1.2], [1.1, 1.1], [1.0, 1.2]] * 2, claimed_high=1.5,
    ...                              claim="One constant serves all settings", source="our prediction")
    >>> finding.detail, finding.verdict.value
    ('constants from 1 to 1.2', 'HOLDS')
    """
    groups = list(np.asarray(ratios).T)

    def spread(*samples: Array, axis: int = 0) -> Array:
        constants = np.array([np.median(sample, axis=axis) for sample in samples])
        return constants.max(axis=0) / constants.min(axis=0)

    medians = np.median(groups, axis=1)
    defaults = {
        "claimed_high": claimed_high,
        "theorem": True,
        "setting": f"{len(groups)} settings",
        "statistic": "largest constant divided by the smallest",
        "detail": f"constants from {medians.min():.3g} to {medians.max():.3g}",
    }
    interval = bootstrap_interval(spread, groups, paired=True, vectorized=True, resamples=500)
    found = float(spread(*groups)), *interval
    return judge(found, **defaults | fields)
