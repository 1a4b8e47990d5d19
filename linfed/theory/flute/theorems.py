"""What FLUTE's Theorems 5.1 and 5.5 say of a spectrum: the gap, the step's limit, the rate and the bound.

The analysis (Appendix A) speaks of ``gamma1 = 2 gamma2 = 1/4``, equal steps, and the data gradient of factor 1.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_choice, check_integer, check_number

STEP_CONSTANTS = {"appendix": 288.0, "printed": 228.0}
"""Denominators of the step condition: Appendix A's ``Delta^2 / (36 lambda_1'^3)``, and what Theorem 5.1 prints."""


def flute_gap(spectrum: npt.ArrayLike, rank: int) -> Array:
    """Return ``Delta = 2 (lambda_k - lambda_{k+1})`` of singular values (..., r), descending; 0 beyond the r-th."""
    values = np.asarray(spectrum, dtype=float)
    rank = check_integer("rank", rank)
    if rank > values.shape[-1]:
        raise ValueError(f"rank = {rank} must be at most the number of singular values, {values.shape[-1]}")
    following = values[..., rank] if rank < values.shape[-1] else 0.0
    return np.asarray(2.0 * (values[..., rank - 1] - following))


def flute_step_limit(spectrum: npt.ArrayLike, rank: int, *, constant: str = "appendix") -> Array:
    """Return the largest step that Theorems 5.1 and 5.5 allow.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values ``lambda_1 >= lambda_2 >= ..`` of Phi.
    rank : int
        k.
    constant : "appendix" or "printed"
        ``Delta^2 / (288 lambda_1^3)``, which is the appendix's ``Delta^2 / (36 lambda_1'^3)`` with ``lambda' = 2
        lambda``, or ``Delta^2 / (228 lambda_1^3)`` as the main text prints it.

    Returns
    -------
    ndarray (...)

    Raises
    ------
    ValueError
        For an unknown constant, or a rank above r.

    Notes
    -----
    The two differ by a slip of digits; the proof has the smaller step.

    **Deviations**: the default follows the appendix.

    References
    ----------
    FLUTE paper, Theorem 5.1; Lemmas A.10 and A.11.
    """
    divisor = STEP_CONSTANTS[check_choice("constant", constant, STEP_CONSTANTS)]
    values = np.asarray(spectrum, dtype=float)
    return np.asarray(flute_gap(values, rank) ** 2 / (divisor * values[..., 0] ** 3))


def flute_rate(spectrum: npt.ArrayLike, rank: int, step_size: float) -> Array:
    """Return the factor ``1 - eta Delta / 16`` by which Theorem 5.5 bounds the error from round to round, (...)."""
    return np.asarray(1.0 - check_number("step_size", step_size, positive=True) * flute_gap(spectrum, rank) / 16.0)


def flute_local_rate(spectrum: npt.ArrayLike, rank: int, step_size: float) -> Array:
    """Return the factor by which the error falls in a round near the truncation, at population.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values of Phi.
    rank : int
        k.
    step_size : float
        eta, of both steps.

    Returns
    -------
    ndarray (...)
        ``max(1 - eta Delta / 2, |1 - 2 eta lambda_1|)``; below 1 iff ``eta < 1 / lambda_1`` and ``Delta > 0``. (With k
        = n = d there is no direction beyond the k-th, and the true factor is ``|1 - 2 eta lambda_k|`` at small steps.)

    Notes
    -----
    The recursion's derivative at ``Theta_k Theta_k' = 2 Lambda_k``, ``Theta_res = 0`` has the factors ``1 + (eta/2)
    (lambda_j' - lambda_p')`` for a row j of Theta_res beside a column p <= k, with ``lambda' = (2 lambda, -2 lambda)``,
    and ``1 - (eta/2) (lambda_p' + lambda_q')`` within Theta_k: the slowest is j = k + 1, p = k.

    **Deviations**: an addition; Theorem 5.5 has a factor eight times nearer to 1.

    References
    ----------
    FLUTE paper, equation (13).
    """
    values = np.asarray(spectrum, dtype=float)
    step_size = check_number("step_size", step_size, positive=True)
    slow, fast = 1.0 - step_size * flute_gap(values, rank) / 2.0, np.abs(1.0 - 2.0 * step_size * values[..., 0])
    return np.asarray(np.maximum(slow, fast))


def flute_bound(spectrum: npt.ArrayLike, rank: int, step_size: float, n_clients: int, rounds: npt.ArrayLike) -> Array:
    """Return Theorem 5.5's bound on the mean truncation error with constant 1.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values of Phi.
    rank, n_clients : int
        k and n.
    step_size : float
        eta.
    rounds : array_like (R,)
        t.

    Returns
    -------
    ndarray (..., R)
        ``lambda_1^2 sqrt(k) / (eta Delta^2 sqrt(n)) (1 - eta Delta / 16)^t``. The theorem's constant is not named; the
        proof arrives at ``4 * 400`` (`PROOF_CONSTANT`, and ``lambda_1' = 2 lambda_1`` squared) with t counted from the
        entry into the region R; counted from the start it is larger by ``(1 - eta Delta / 16)^(-T_R)``.

    References
    ----------
    FLUTE paper, Theorem 5.5; Proposition A.12.
    """
    values = np.asarray(spectrum, dtype=float)
    n, gap = check_integer("n_clients", n_clients), flute_gap(values, rank)
    step_size = check_number("step_size", step_size, positive=True)
    with np.errstate(divide="ignore"):  # without a gap the theorem says nothing
        scale = values[..., 0] ** 2 * np.sqrt(rank / n) / (step_size * gap**2)
    return np.asarray(scale[..., None] * flute_rate(values, rank, step_size)[..., None] ** np.asarray(rounds))


def flute_covered_rounds(spectrum: npt.ArrayLike, rank: int, step_size: float, n_samples: int) -> float:
    """Return the last round that m samples of every client cover in Theorem 5.5.

    Parameters
    ----------
    spectrum : array_like (r,)
        Singular values of Phi.
    rank : int
        k.
    step_size : float
        eta.
    n_samples : int
        m.

    Returns
    -------
    float
        ``log m / (-2 log(1 - eta Delta / 16))``, from the condition that m grows like ``(1 - eta Delta / 16)^(-2T)``,
        whose other factors are left out. Infinite where that factor is not between 0 and 1: there is no condition.

    References
    ----------
    FLUTE paper, Theorem 5.5.
    """
    rate = float(flute_rate(spectrum, rank, step_size))
    return math.log(check_integer("n_samples", n_samples)) / (-2.0 * math.log(rate)) if 0 < rate < 1 else math.inf
