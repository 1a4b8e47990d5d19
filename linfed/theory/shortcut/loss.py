"""How fast the shortcut draft's (2) to (5) lose a B near B*: a prediction for fixed samples, and judges of runs.

Even heads are 0 and B moves in every second round, by ``-eta mean Pi_i B w_i w_i'`` (docs/shortcut.md, section 2).
Within span(B) that shrinks B to ``1 - eta`` (the heads' second moment is I), and QR magnifies what is outside of it by
``1/(1 - eta)``: at eta = 1 without bound. Outside there are two parts. The mean, Oja's step with the wrong sign
(`shortcut_repulsion`), grows with the distance at rate ``r = eta (k + 1)/(m (1 - eta))`` a move. The wander, what n
clients of m samples leave of ``mean (Pi_i - I) B w_i w_i'``, is the same in all moves, as the samples and the heads
are; its spectral norm is about ``v = eta sqrt(k/(m n)) (sqrt(d - k) + sqrt(k))/(1 - eta)``. After t moves
``dist^2 = delta^2 exp(2 r t) + (v t)^2``. The mean alone would take some ``m/(eta (k + 1))`` rounds, the wander alone
``sqrt(m n)/eta``: the shorter of the two counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from linfed._types import Array
from linfed.errors import check_integer, check_number
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, judge_exponent
from linfed.statistics.fits import fit_exponent
from linfed.statistics.intervals import median_interval


def shortcut_loss_rounds(
    start: float, *, n_clients: int, n_samples: int, dim: int, rank: int, step_size: float, level: float = 0.5
) -> float:
    """Return the round in which B under (2) to (5) on fixed samples passes a distance from B*.

    Parameters
    ----------
    start : float
        Distance of the initial B, delta, below `level`.
    n_clients, n_samples, dim, rank : int
        n, m, d and k < d.
    step_size : float
        eta, other than 1 (there the first move loses B, and 1 is returned).
    level : float
        The distance, below 1.

    Returns
    -------
    float
        At least 1, the round of the first move.

    Raises
    ------
    ValueError
        For numbers out of range.

    Notes
    -----
    Of isotropic x, full participation, and heads whose second moment is I; without a free parameter, and to a constant:
    runs take up to twice as long (`judge_loss_rounds`).

    **Deviations**: an addition.

    References
    ----------
    Shortcut draft, equations (2) to (5).

    Examples
    --------
    >>> round(shortcut_loss_rounds(0.3, n_clients=50, n_samples=40, dim=20, rank=2, step_size=0.3), 1)
    8.3
    """
    from scipy.optimize import brentq

    sizes = {"n_clients": n_clients, "n_samples": n_samples, "dim": dim, "rank": rank}
    n, m, d, k = (check_integer(name, value) for name, value in sizes.items())
    level = check_number("level", level, positive=True, maximum=1.0)
    start = check_number("start", start, minimum=0.0, maximum=level)
    eta = check_number("step_size", step_size, positive=True)
    if k >= d:
        raise ValueError(f"rank = {k} must be below dim = {d}: a whole space cannot be lost")
    shrunk = abs(1.0 - eta)
    if shrunk == 0.0:
        return 1.0
    rate = eta * (k + 1) / (m * shrunk)
    wander = eta * math.sqrt(k / (m * n)) * (math.sqrt(d - k) + math.sqrt(k)) / shrunk

    def beyond(moves: float) -> float:
        return start**2 * math.exp(2.0 * rate * moves) + (wander * moves) ** 2 - level**2

    return max(1.0, 2.0 * float(brentq(beyond, 0.0, level / wander)) - 1.0)  # the first move is in round 1


def judge_loss_rounds(lost: Array, predicted: Array, where: str) -> Finding:
    """Judge that B takes one to two times as many moves as predicted.

    Parameters
    ----------
    lost : ndarray (runs,)
        The round in which dist passed 0.5; infinite where the run ended before.
    predicted : ndarray (runs,)
        Of each of them, from `shortcut_loss_rounds`.
    where : str
    """
    ratios = (lost + 1.0) / (predicted + 1.0)
    return judge(
        median_interval(ratios),
        least=1.0,
        most=2.0,
        text="The prediction without a fitted parameter gives the rounds, to a constant between 1 and 2",
        where=where,
        statistic="updates until dist > 0.5 divided by those predicted, median of all runs, censored ones infinite",
        source=f"{OWN_PREDICTION}; the constants are {OWN_THRESHOLD}s",
        detail=f"{np.isinf(ratios).sum()} of {len(ratios)} censored",
    )


def judge_loss_exponent(
    lost: Mapping[float, Array], claimed: float, *, last: int, in_step: bool = False, every: int = 1, **said: Any
) -> Finding | None:
    """Judge the exponent of the moves until B is lost, in m or in eta/(1 - eta), to 0.2.

    Parameters
    ----------
    lost : mapping
        From m, or from the step eta, to the round in which dist passed 0.5, (trials,); infinite where the run ended
        before. Sizes at which more than 15 % of the runs did are left out.
    claimed : float
    last : int
        The last round of the runs.
    in_step : bool
        Whether it is the exponent in eta/(1 - eta).
    every : int
        B moves in every second round on fixed samples, in every round on new ones.
    **said
        Other fields of `Finding`: text and setting.

    Returns
    -------
    Finding or None
        None where fewer than three sizes are left.
    """
    reached = [size for size in sorted(lost) if np.isfinite(lost[size]).mean() >= 0.85]
    if len(reached) < 3:
        return None
    left = ", ".join(f"{size:g}" for size in sorted(lost) if size not in reached)
    rounds = np.minimum(np.stack([lost[size] for size in reached], axis=1), last)
    x = np.array(reached, dtype=float)
    fitted = fit_exponent(x / (1.0 - x) if in_step else x, (rounds + (every - 1.0)) / every, paired=in_step)
    detail = f"censored at {left}, left out" if left else ""
    fields = {"source": OWN_PREDICTION, "detail": detail, "theorem": False}
    return judge_exponent(fitted, claimed, kind="equal", margin=0.2, **fields | said)
