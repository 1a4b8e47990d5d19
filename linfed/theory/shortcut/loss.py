"""Prediction of the round in which B loses B* under the shortcut draft's (2) to (5), and the judge of its exponents.

On fixed samples every second head is 0, and B moves in every second round, by ``-eta mean Pi_i B w_i w_i'``
(docs/shortcut.md, section 2). Within span(B) this scales B by ``1 - eta``, since the second moment of the heads is I.
QR magnifies the part outside span(B) by ``1/(1 - eta)``, without bound at eta = 1. The outside part has two
components:

- The mean is Oja's step with the opposite sign (`shortcut_repulsion`). It is proportional to the distance and grows at
  rate ``r = eta (k + 1)/(m (1 - eta))`` per move.
- The deviation from the mean is the error of ``mean (Pi_i - I) B w_i w_i'`` over n clients with m samples. Since
  samples and heads do not change, it is equal in all moves. Its spectral norm is about
  ``v = eta sqrt(k/(m n)) (sqrt(d - k) + sqrt(k))/(1 - eta)``.

After t moves ``dist^2 = delta^2 exp(2 r t) + (v t)^2``. With only the mean, the loss would take about
``m/(eta (k + 1))`` rounds. With only the deviation, it would take about ``sqrt(m n)/eta`` rounds. The shorter time
determines the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from linfed._types import Array
from linfed.checks import check_integer, check_number
from linfed.statistics.findings import OWN_PREDICTION, Finding, judge_exponent
from linfed.statistics.fits import fit_exponent


def shortcut_loss_rounds(
    start: float, *, n_clients: int, n_samples: int, dim: int, rank: int, step_size: float, level: float = 0.5
) -> float:
    """Predict the round in which B of the shortcut variant exceeds a distance from B* on fixed samples.

    Parameters
    ----------
    start : float
        Initial distance delta, at most `level`.
    n_clients, n_samples, dim, rank : int
        n, m, d and k < d.
    step_size : float
        Step size eta for B. At eta = 1 the first move loses B, and the result is 1.
    level : float
        Distance to be exceeded, at most 1.

    Returns
    -------
    float
        Round, at least 1, which is the round of the first move.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The prediction holds for the closed-form updates (2) to (5) with isotropic x, full participation, and heads whose
    second moment is I. It has no fitted parameters and is accurate up to a constant factor: runs take up to twice as
    long.

    **Deviations**: not in the draft.

    References
    ----------
    Shortcut draft, equations (2) to (5).

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"n_clients": 50, "n_samples": 40, "dim": 20, "rank": 2}
    >>> round(lf.theory.shortcut_loss_rounds(0.3, **sizes, step_size=0.3), 1)
    8.3
    """
    from scipy.optimize import brentq

    sizes = {"n_clients": n_clients, "n_samples": n_samples, "dim": dim, "rank": rank}
    n, m, d, k = (check_integer(name, value) for name, value in sizes.items())
    level = check_number("level", level, positive=True, maximum=1.0)
    start = check_number("start", start, minimum=0.0, maximum=level)
    eta = check_number("step_size", step_size, positive=True)
    if k >= d:
        raise ValueError(f"rank = {k} must be below dim = {d}: otherwise B always spans the whole space")
    shrunk = abs(1.0 - eta)
    if shrunk == 0.0:
        return 1.0
    rate = eta * (k + 1) / (m * shrunk)
    wander = eta * math.sqrt(k / (m * n)) * (math.sqrt(d - k) + math.sqrt(k)) / shrunk

    def beyond(moves: float) -> float:
        return start**2 * math.exp(2.0 * rate * moves) + (wander * moves) ** 2 - level**2

    end = level / wander
    if start > 0 and 2.0 * rate * end > 700.0:  # the exponential would overflow, and reaches the level alone
        end = (1.0 + 1e-9) * math.log(level / start) / rate
    return max(1.0, 2.0 * float(brentq(beyond, 0.0, end)) - 1.0)  # the first move is in round 1


def judge_loss_exponent(
    lost: Mapping[float, Array], claimed: float, *, last: int, in_step: bool = False, every: int = 1, **fields: Any
) -> Finding | None:
    """Judge, to 0.2, the exponent in m or eta/(1 - eta) of the number of moves until the distance exceeds 0.5.

    Parameters
    ----------
    lost : mapping
        Map from m, or from eta, to the round in which the distance exceeded 0.5, (trials,); infinite if the run ended
        before. Sizes at which more than 15 % of the runs ended before are excluded.
    claimed : float
        Claimed exponent.
    last : int
        Last round of the runs.
    in_step : bool
        If True, the exponent is in eta/(1 - eta), otherwise in m.
    every : int
        Number of rounds per move of B: 2 on fixed samples, 1 on fresh samples.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`; the judge supplies a `statistic` and a `source`. The
        verdict is SUPPORTED or NOT SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.

    Returns
    -------
    Finding or None
        None if fewer than three sizes remain.
    """
    reached = [size for size in sorted(lost) if np.isfinite(lost[size]).mean() >= 0.85]
    if len(reached) < 3:
        return None
    left = ", ".join(f"{size:g}" for size in sorted(lost) if size not in reached)
    rounds = np.minimum(np.stack([lost[size] for size in reached], axis=1), last)
    x = np.array(reached, dtype=float)
    fitted = fit_exponent(x / (1.0 - x) if in_step else x, (rounds + (every - 1.0)) / every, paired=in_step)
    detail = f"censored at {left}, left out" if left else ""
    defaults = {"source": OWN_PREDICTION, "detail": detail, "theorem": False}
    return judge_exponent(fitted, claimed, kind="equal", tolerance=0.2, **defaults | fields)
