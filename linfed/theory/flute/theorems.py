"""Quantities of FLUTE's Theorems 5.1 and 5.5 as functions of the spectrum: gap, step-size limit, rate and bound.

The analysis (Appendix A) assumes ``gamma1 = 2 gamma2 = 1/4``, equal step sizes, and the factor 1 in the data gradient.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import (
    check_choice,
    check_finite,
    check_integer,
    check_number,
    check_numbers,
    check_times,
    short_repr,
)

STEP_CONSTANTS = {"appendix": 288.0, "printed": 228.0}
"""Denominators of the step-size condition: ``Delta^2 / (36 lambda_1'^3)`` of Appendix A, and as in Theorem 5.1."""


def flute_gap(spectrum: npt.ArrayLike, rank: int) -> Array:
    """Return the gap ``Delta = 2 (lambda_k - lambda_{k+1})`` of FLUTE's analysis.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values of Phi in descending order; lambda_{r+1} counts as 0.
    rank : int
        Rank k <= r of the model.

    Returns
    -------
    ndarray (...)

    Raises
    ------
    ValueError
        If the rank is not from 1 to r, or if the singular values are negative, not finite or not in descending order.

    References
    ----------
    FLUTE paper, section 5 and Appendix A.

    Examples
    --------
    >>> import linfed as lf
    >>> spectrum = [3.0, 2.0, 1.0]
    >>> lf.theory.flute_gap(spectrum, 2).item()
    2.0
    """
    values = _descending(spectrum)
    rank = check_integer("rank", rank)
    if rank > values.shape[-1]:
        raise ValueError(f"rank = {rank} must be at most the number of singular values, {values.shape[-1]}")
    following = values[..., rank] if rank < values.shape[-1] else 0.0
    return np.asarray(2.0 * (values[..., rank - 1] - following))


def flute_step_limit(spectrum: npt.ArrayLike, rank: int, *, constant: str = "appendix") -> Array:
    """Return the largest step size that FLUTE's Theorems 5.1 and 5.5 allow.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values ``lambda_1 >= lambda_2 >= ..`` of Phi.
    rank : int
        Rank k of the model.
    constant : "appendix" or "printed"
        ``Delta^2 / (288 lambda_1^3)``, which is the appendix's ``Delta^2 / (36 lambda_1'^3)`` with
        ``lambda' = 2 lambda``, or ``Delta^2 / (228 lambda_1^3)`` as the main text prints it.

    Returns
    -------
    ndarray (...)

    Raises
    ------
    ValueError
        If the constant is unknown, if all singular values are 0, or as in `flute_gap`.

    Notes
    -----
    The two constants differ in one digit, by a misprint. The proof has the smaller step size.

    **Deviations**: the default follows the appendix.

    References
    ----------
    FLUTE paper, Theorem 5.1; Lemmas A.10 and A.11.

    Examples
    --------
    >>> import linfed as lf
    >>> spectrum = [3.0, 2.0, 1.0]
    >>> [round(lf.theory.flute_step_limit(spectrum, 2, constant=c).item(), 6) for c in ("appendix", "printed")]
    [0.000514, 0.00065]
    """
    divisor = STEP_CONSTANTS[check_choice("constant", constant, STEP_CONSTANTS)]
    values = _with_scale(spectrum)
    return np.asarray(flute_gap(values, rank) ** 2 / (divisor * values[..., 0] ** 3))


def flute_rate(spectrum: npt.ArrayLike, rank: int, step_size: float) -> Array:
    """Return the contraction factor ``1 - eta Delta / 16`` per round in Theorem 5.5 of the FLUTE paper.

    Parameters
    ----------
    spectrum, rank
        As in `flute_step_limit`.
    step_size : float
        Step size eta for B and heads.

    Returns
    -------
    ndarray (...)

    Raises
    ------
    ValueError
        If the rank is not from 1 to r, or the step size is not positive.

    References
    ----------
    FLUTE paper, Theorem 5.5.

    Examples
    --------
    >>> import linfed as lf
    >>> spectrum = [3.0, 2.0, 1.0]
    >>> lf.theory.flute_rate(spectrum, 2, step_size=0.05).round(5).item()
    0.99375
    """
    return np.asarray(1.0 - check_number("step_size", step_size, positive=True) * flute_gap(spectrum, rank) / 16.0)


def flute_local_rate(spectrum: npt.ArrayLike, rank: int, step_size: float) -> Array:
    """Return the contraction factor of FLUTE's error per round near the truncation, at population.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values of Phi in descending order.
    rank : int
        Rank k of the model.
    step_size : float
        Step size eta for B and heads.

    Returns
    -------
    ndarray (...)
        ``max(1 - eta Delta / 2, |1 - 2 eta lambda_1|)``. It is below 1 if and only if ``eta < 1 / lambda_1`` and
        ``Delta > 0``. (With k = n = d there is no direction after the k-th, and the true factor is
        ``|1 - 2 eta lambda_k|`` at small step sizes, as `linfed.predict` gives it.)

    Raises
    ------
    ValueError
        If the rank is not from 1 to r, or the step size is not positive.

    Notes
    -----
    The derivative of the recursion at ``Theta_k Theta_k' = 2 Lambda_k``, ``Theta_res = 0`` has two kinds of factors.
    Row j of Theta_res and column p <= k have ``1 + (eta/2) (lambda_j' - lambda_p')`` with
    ``lambda' = (2 lambda, -2 lambda)``. Within Theta_k the factors are ``1 - (eta/2) (lambda_p' + lambda_q')``. The
    slowest one is j = k + 1, p = k.

    **Deviations**: not in the paper. In Theorem 5.5, 1 minus the factor is eight times smaller.

    References
    ----------
    FLUTE paper, equation (13).

    Examples
    --------
    >>> import linfed as lf
    >>> spectrum = [3.0, 2.0, 1.0]
    >>> lf.theory.flute_local_rate(spectrum, 2, step_size=0.05).round(5).item()
    0.95
    """
    values = _descending(spectrum)
    step_size = check_number("step_size", step_size, positive=True)
    slow, fast = 1.0 - step_size * flute_gap(values, rank) / 2.0, np.abs(1.0 - 2.0 * step_size * values[..., 0])
    return np.asarray(np.maximum(slow, fast))


def flute_bound(spectrum: npt.ArrayLike, rank: int, step_size: float, n_clients: int, rounds: npt.ArrayLike) -> Array:
    """Return the bound of FLUTE's Theorem 5.5 on the mean truncation error, with its constant set to 1.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values of Phi in descending order.
    rank, n_clients : int
        Rank k of the model, and n.
    step_size : float
        Step size eta for B and heads.
    rounds : array_like (R,)
        Numbers of rounds t >= 0.

    Returns
    -------
    ndarray (..., R)
        ``lambda_1^2 sqrt(k) / (eta Delta^2 sqrt(n)) (1 - eta Delta / 16)^t``. A factor that would be negative, because
        the step size is too large, is replaced by 0. The theorem does not specify its constant. The proof gives
        ``4 * 400`` (its C is 400, and ``lambda_1' = 2 lambda_1`` squared) with t counted from the entry into the region
        R. Counted from round 0, the constant is larger by the factor ``(1 - eta Delta / 16)^(-T_R)``.

    Raises
    ------
    ValueError
        If all singular values are 0, if a value is out of range, or as in `flute_gap`.

    References
    ----------
    FLUTE paper, Theorem 5.5; Proposition A.12.

    Examples
    --------
    >>> import linfed as lf
    >>> spectrum = [3.0, 2.0, 1.0]
    >>> lf.theory.flute_bound(spectrum, 2, step_size=0.05, n_clients=100, rounds=[0, 1000]).round(4)
    array([6.364, 0.012])
    """
    values = _with_scale(spectrum)
    n, gap = check_integer("n_clients", n_clients), flute_gap(values, rank)
    step_size = check_number("step_size", step_size, positive=True)
    with np.errstate(divide="ignore"):  # the bound is infinite without a gap
        scale = values[..., 0] ** 2 * np.sqrt(rank / n) / (step_size * gap**2)
    factor = np.maximum(0.0, flute_rate(values, rank, step_size))
    return np.asarray(scale[..., None] * factor[..., None] ** check_times("rounds", rounds))


def flute_start_bound(alpha: float, rank: int, *, n_clients: int, dim: int, failure: float = 0.05) -> float:
    """Return a bound on the largest singular value of FLUTE's initial ``B W'``.

    Parameters
    ----------
    alpha : float
        Standard deviation of the entries of B (d, k) and W (n, k), `linfed.SmallRandom`.
    rank, n_clients, dim : int
        Rank k of the model, n and d.
    failure : float, default 0.05
        Largest probability, up to 1, with which the bound may fail.

    Returns
    -------
    float
        ``alpha^2 (sqrt(d) + sqrt(k) + t) (sqrt(n) + sqrt(k) + t)`` with ``t = sqrt(2 log(4 / failure))``.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    Remark 4.1 says only that the singular value is sufficiently small with high probability. The bound is the product
    of two bounds of Lemma A.19, on B and on W. Each of them fails with a probability of at most ``failure / 2``.

    **Deviations**: the paper does not state it.

    References
    ----------
    FLUTE paper, Remark 4.1 and Lemma A.19.

    Examples
    --------
    >>> import linfed as lf
    >>> round(lf.theory.flute_start_bound(0.01, 2, n_clients=15, dim=10), 5)
    0.00622
    """
    alpha, k = check_number("alpha", alpha, minimum=0.0), check_integer("rank", rank)
    failure = check_number("failure", failure, positive=True, maximum=1.0)
    n, d = check_integer("n_clients", n_clients), check_integer("dim", dim)
    each = math.sqrt(k) + math.sqrt(2.0 * math.log(4.0 / failure))
    return alpha**2 * (math.sqrt(d) + each) * (math.sqrt(n) + each)


def flute_covered_rounds(spectrum: npt.ArrayLike, rank: int, step_size: float, n_samples: int) -> float:
    """Return the last round that Theorem 5.5 covers with m samples per client.

    Parameters
    ----------
    spectrum : array_like (r,)
        Singular values of Phi in descending order.
    rank : int
        Rank k of the model.
    step_size : float
        Step size eta for B and heads.
    n_samples : int
        Number m of samples per client.

    Returns
    -------
    float
        ``log m / (-2 log(1 - eta Delta / 16))``, from the condition that m grows like ``(1 - eta Delta / 16)^(-2T)``
        without its other factors. Infinite, meaning that there is no condition, if ``1 - eta Delta / 16`` is not
        between 0 and 1.

    Raises
    ------
    ValueError
        If the rank is not from 1 to r, or a value is out of range.

    References
    ----------
    FLUTE paper, Theorem 5.5.
    """
    rate = float(flute_rate(spectrum, rank, step_size))
    return math.log(check_integer("n_samples", n_samples)) / (-2.0 * math.log(rate)) if 0 < rate < 1 else math.inf


def _descending(spectrum: npt.ArrayLike) -> Array:
    """Return singular values as an array; raise if they are not finite, negative or not in descending order."""
    values = check_numbers("spectrum", spectrum, axes=1)
    check_finite("spectrum", values)
    if (np.diff(values, axis=-1) > 0).any() or (values < 0).any():
        raise ValueError(f"spectrum = {short_repr(spectrum)} must be singular values in descending order, at least 0")
    return values


def _with_scale(spectrum: npt.ArrayLike) -> Array:
    """Return singular values as `_descending` does; raise if all are 0."""
    values = _descending(spectrum)
    if not values[..., 0].all():
        raise ValueError(f"spectrum = {short_repr(spectrum)} must have a largest singular value above 0")
    return values
