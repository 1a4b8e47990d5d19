"""Failure probability of Theorem 1's bound in the first round for k = 1, computed by importance sampling."""

from __future__ import annotations

import math

import numpy as np

from linfed._types import Array, Generator
from linfed.checks import check_integer, check_number
from linfed.theory.fedrep.theorem1.bound import PRINTED, fedrep_bound

TILTS = np.concatenate([[0.0], np.geomspace(0.1, 6.0, 15)])
"""Strengths theta of the mixed tilts ``exp(-theta w_i x_i)``; 0 is the untilted distribution."""


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
    """Estimate the probability that Theorem 1's bound fails in round 1, for k = 1, heads of length 1 and no noise.

    Parameters
    ----------
    dim, participants, n_samples : int
        d >= 2, p, and m >= 2.
    start : float
        ``dist(B_0, B*)``, above 0 and below 1.
    step_size : float
        Step size eta for B; the theorem allows at most 1/4 here.
    exponent : float
        Exponent of the bound, as in `fedrep_bound`.
    draws : int
        Number of importance samples over all tilts.
    seed : int
        Seed of the samples.

    Returns
    -------
    log_probability, error : float
        Natural logarithm of the probability, and relative standard error of the probability, which is the standard
        error of the logarithm. Minus infinity and NaN if the bound holds in all draws.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    By the exact distribution of a client's message, with ``c = cos`` and ``s = sin`` of the initial angle and heads of
    either sign::

        w_i = c + s g_i / sqrt(chi^2_m),   x_i ~ chi^2_{m-1},   S = sum_i w_i x_i,   V = sum_i w_i^2 x_i
        a = eta s S / (p m),   b^2 = eta^2 s^2 V chi^2_{d-2} / (p m)^2
        dist_1^2 = 1 - (c + a s)^2 / (1 + a^2 + b^2)

    The bound fails if S is so small that B hardly moves. An equal share of the draws comes from each of the
    distributions tilted towards this event, with ``x_i`` from ``chi^2_{m-1} / (1 + 2 theta c)`` and ``g_i`` centred at
    ``-theta s x_i / sqrt(chi^2_m)``. All draws are weighted by the density of the untilted distribution divided by that
    of the mixture. No weight exceeds the number of tilts, so other modes of failure are not overlooked.

    **Deviations**: not in the paper. The theorem allows ``exp(-100 min(log p, d))``.
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
        # Log densities of each tilted distribution, and of the mixture, relative to the untilted one.
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
    """Return the logarithm of the tilted density divided by the untilted density, (draws,)."""
    shrink, shift = 2.0 * theta * c, theta * slope * x
    return np.asarray(((m - 1) / 2.0 * math.log1p(shrink) - shrink * x / 2.0 - shift * (g + shift / 2.0)).sum(axis=1))


def _distance(x: Array, w: Array, s: float, share: float, d: int, rng: Generator) -> Array:
    """Return the distance after the first round, for squared residuals and heads (draws, p)."""
    along = share * s * (w * x).sum(axis=1)
    across = 2.0 * rng.standard_gamma((d - 2) / 2.0, len(x)) if d > 2 else np.zeros(len(x))
    across_squared = (share * s) ** 2 * (w * w * x).sum(axis=1) * across
    cosine = math.sqrt(1.0 - s * s) + along * s
    return np.asarray(np.sqrt(np.maximum(0.0, 1.0 - cosine**2 / (1.0 + along**2 + across_squared))))
