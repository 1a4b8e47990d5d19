"""How likely Theorem 1's bound fails in the first round, far into the tail, for k = 1: by importance sampling."""

from __future__ import annotations

import math

import numpy as np

from linfed._types import Array, Generator
from linfed.errors import check_integer, check_number
from linfed.theory.fedrep.theorem1 import PRINTED, fedrep_bound

TILTS = np.concatenate([[0.0], np.geomspace(0.1, 6.0, 15)])
"""Strengths theta of the tilts ``exp(-theta w_i x_i)`` that are mixed; 0 is the law itself."""


def first_round_failure(
    *,
    dim: int,
    participants: int,
    n_samples: int,
    start: float,
    step_size: float = 0.25,
    exponent: float = PRINTED,
    draws: int = 20_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return how likely Theorem 1's bound fails in the first round, for k = 1, heads of length 1 and no noise.

    Parameters
    ----------
    dim, participants, n_samples : int
        d >= 2, p, and m >= 2.
    start : float
        ``dist(B_0, B*)``, above 0 and below 1.
    step_size : float
        eta; 1/4 is the largest that the theorem allows here.
    exponent : float
        Of the bound.
    draws : int
        Of the importance sampling, over all tilts.
    seed : int

    Returns
    -------
    log_probability, error : float
        The natural logarithm, and the estimate's relative standard error, which is the logarithm's own; minus infinity
        and NaN where no draw failed.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    By the exact law of a client's message, with ``c = cos``, ``s = sin`` of the first angle, heads of either sign::

        w_i = c + s g_i / sqrt(chi^2_m),   x_i ~ chi^2_{m-1},   S = sum_i w_i x_i,   V = sum_i w_i^2 x_i
        a = eta s S / (p m),   b^2 = eta^2 s^2 V chi^2_{d-2} / (p m)^2
        dist_1^2 = 1 - (c + a s)^2 / (1 + a^2 + b^2)

    The bound fails where S happens to be so small that B hardly moves. A share of the draws is made under each of the
    laws tilted towards that, ``x_i`` from ``chi^2_{m-1} / (1 + 2 theta c)`` and ``g_i`` about ``-theta s x_i /
    sqrt(chi^2_m)``, and all are weighted by the density of the law over that of the mixture: no weight is above the
    number of tilts, so that no other way to fail is missed unseen.

    **Deviations**: an addition; the theorem allows ``exp(-100 min(log p, d))``.
    """
    d, m = check_integer("dim", dim, minimum=2), check_integer("n_samples", n_samples, minimum=2)
    p, draws = check_integer("participants", participants), check_integer("draws", draws, minimum=2)
    sine = check_number("start", start, positive=True, maximum=1.0)
    eta = check_number("step_size", step_size, positive=True)
    bound = float(fedrep_bound([1], step_size=eta, start=sine, smallest=1.0, exponent=exponent)[0])
    c, parts = math.sqrt(1.0 - sine * sine), []
    for number, theta in enumerate(TILTS):
        rng, shape = np.random.default_rng((seed, number)), (-(-draws // len(TILTS)), p)
        x = 2.0 / (1.0 + 2.0 * theta * c) * rng.standard_gamma((m - 1) / 2.0, shape)
        slope = sine / np.sqrt(2.0 * rng.standard_gamma(m / 2.0, shape))
        g = rng.standard_normal(shape) - theta * slope * x
        failed = _distance(x, c + slope * g, sine, eta / (p * m), d, rng) > bound
        # Of each tilted law over the law itself, then of their mean.
        ratios = [_log_ratio(other, x, slope, g, c, m) for other in TILTS]
        parts.append(np.where(failed, math.log(len(TILTS)) - np.logaddexp.reduce(ratios), -np.inf))
    logs = np.stack(parts)
    if not np.isfinite(logs).any():
        return -math.inf, math.nan
    weights = np.exp(logs - logs.max())
    mean, size = float(weights.mean()), weights.shape[1]
    error = math.sqrt(float(weights.var(axis=1).sum()) / size) / len(TILTS)
    return float(logs.max()) + math.log(mean), error / mean


def _log_ratio(theta: float, x: Array, slope: Array, g: Array, c: float, m: int) -> Array:
    """Return the logarithm of a tilted density over the law's, (draws,)."""
    shrink, shift = 2.0 * theta * c, theta * slope * x
    return np.asarray(((m - 1) / 2.0 * math.log1p(shrink) - shrink * x / 2.0 - shift * (g + shift / 2.0)).sum(axis=1))


def _distance(x: Array, w: Array, s: float, share: float, d: int, rng: Generator) -> Array:
    """Return the distance after the first round, for squared residuals and heads (draws, p)."""
    along = share * s * (w * x).sum(axis=1)
    across = 2.0 * rng.standard_gamma((d - 2) / 2.0, len(x)) if d > 2 else np.zeros(len(x))
    beside = (share * s) ** 2 * (w * w * x).sum(axis=1) * across
    cosine = math.sqrt(1.0 - s * s) + along * s
    return np.asarray(np.sqrt(np.maximum(0.0, 1.0 - cosine**2 / (1.0 + along**2 + beside))))
