"""Statistics of trials: confidence intervals, power-law fits, and findings with their verdicts."""

from __future__ import annotations

from linfed.statistics.findings import (
    OWN_CONJECTURE,
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Hypothesis,
    Origin,
    Source,
    Verdict,
    cite,
    judge,
    judge_exponent,
    judge_failures,
    judge_identity,
    judge_share,
    judge_smaller,
    reading,
)
from linfed.statistics.fits import PowerLawFit, fit_exponent
from linfed.statistics.intervals import (
    binomial_share,
    bootstrap_interval,
    clustered_share,
    first_round_below,
    mean_interval,
    median_interval,
    median_ratio,
    probability_smaller,
    quantile_interval,
    share_smaller,
)
from linfed.statistics.scaling import judge_farthest_off, judge_one_constant, judge_predicted_exponent

__all__ = [
    "OWN_CONJECTURE",
    "OWN_PREDICTION",
    "OWN_THRESHOLD",
    "Hypothesis",
    "Origin",
    "PowerLawFit",
    "Source",
    "Verdict",
    "binomial_share",
    "bootstrap_interval",
    "cite",
    "clustered_share",
    "first_round_below",
    "fit_exponent",
    "judge",
    "judge_exponent",
    "judge_failures",
    "judge_farthest_off",
    "judge_identity",
    "judge_one_constant",
    "judge_predicted_exponent",
    "judge_share",
    "judge_smaller",
    "mean_interval",
    "median_interval",
    "median_ratio",
    "probability_smaller",
    "quantile_interval",
    "reading",
    "share_smaller",
]
