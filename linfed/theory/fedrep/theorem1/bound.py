"""Theorem 1 of the FedRep paper: its bound and its hypotheses, with the unspecified constant set to 1."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import (
    check_array,
    check_broadcast,
    check_integer,
    check_number,
    check_numbers,
    check_times,
    short_repr,
)
from linfed.numerics.linalg import one_blas_thread

PRINTED, SAME_BATCH = 0.5, 1.0
"""Exponents of the bound, as multiples of T: as printed, and with ``||R^{-1}|| <= 1``."""

SMALLEST, LARGEST = 1e-150, 1e150
"""Range of positive numbers whose squares neither underflow nor overflow."""


def fedrep_bound(
    rounds: npt.ArrayLike,
    *,
    step_size: float,
    start: npt.ArrayLike,
    smallest: npt.ArrayLike,
    exponent: float = PRINTED,
) -> Array:
    """Return Theorem 1's bound on FedRep's subspace distance after T rounds.

    Parameters
    ----------
    rounds : array_like (R,)
        Numbers of rounds T >= 0.
    step_size : float
        Step size eta for B.
    start : array_like (...)
        ``dist(B_0, B*)``, from 0 to 1.
    smallest : array_like (...)
        sigma_min bar >= 0, the smallest singular value of ``W*_p / sqrt(p)`` over the sets of p clients.
    exponent : float
        Multiple of T in the exponent: 1/2 as printed, 1 with ``||R^{-1}|| <= 1`` (see Notes).

    Returns
    -------
    ndarray (..., R)
        ``(1 - eta E_0 sigma_min^2 / 2)^(exponent T) dist_0`` with ``E_0 = 1 - dist_0^2``. A factor that would be
        negative, because the step size is too large, is replaced by 0.

    Raises
    ------
    ValueError
        If a value is out of range, or the shapes of `start` and `smallest` do not match.

    Notes
    -----
    The square root in the printed factor comes from a bound on ``||R^{-1}||``, where R is the triangular factor of the
    round's QR decomposition. With exact heads on the same batch, the normal equations give ``B'G = 0`` for the gradient
    G of the step. Hence ``R'R = I + eta^2 G'G`` and ``||R^{-1}|| <= 1``. Under the same events the exponent T/2 can
    therefore be replaced by T.

    **Deviations**: other exponents than 1/2 are additions.

    References
    ----------
    FedRep paper, Theorem 1, equation (10).

    Examples
    --------
    >>> import linfed as lf
    >>> bound = lf.theory.fedrep_bound([0, 16, 160], step_size=0.25, start=0.5, smallest=1.0)
    >>> [f"{value:.3f}" for value in bound]
    ['0.500', '0.227', '0.000']
    """
    step_size = check_number("step_size", step_size, positive=True)
    exponent = check_number("exponent", exponent, positive=True)
    first, least, times = _unit("start", start), check_numbers("smallest", smallest), check_times("rounds", rounds)
    if not ((least >= 0.0) & (least < np.inf)).all():
        raise ValueError(f"smallest = {short_repr(smallest)} must be finite and at least 0")
    check_broadcast({"start": first, "smallest": least})
    factor = np.maximum(0.0, 1.0 - step_size * (1.0 - first**2) * least**2 / 2.0)
    return np.asarray(factor[..., None] ** (exponent * times) * first[..., None])


def fedrep_bound_rounds(level: float, *, step_size: float, start: float, smallest: float) -> float:
    """Return the number of rounds after which Theorem 1's bound is at a level.

    Parameters
    ----------
    level : float
        Subspace distance after these rounds, ``0 < level <= start``.
    step_size : float
        eta.
    start : float
        ``dist(B_0, B*)``, below 1.
    smallest : float
        sigma_min bar.

    Returns
    -------
    float
        The T, not rounded, at which `fedrep_bound` is `level`.

    Raises
    ------
    ValueError
        If a value is out of range, or if the step is so large that the bound's factor is not positive, or so small that
        it is 1.

    References
    ----------
    FedRep paper, Theorem 1, equation (10).

    Examples
    --------
    >>> import linfed as lf
    >>> rounds = lf.theory.fedrep_bound_rounds(0.01, step_size=0.25, start=0.9, smallest=1.0)
    >>> round(rounds, 1), round(float(lf.theory.fedrep_bound([rounds], step_size=0.25, start=0.9, smallest=1.0)[0]), 4)
    (374.4, 0.01)
    """
    step_size = check_number("step_size", step_size, positive=True)
    smallest = check_number("smallest", smallest, minimum=SMALLEST, maximum=LARGEST)
    start = check_number("start", start, positive=True)
    level = check_number("level", level, positive=True, maximum=start)
    if start >= 1.0:
        raise ValueError(f"start = {start:g} must be below 1: from there the bound does not fall")
    fall = step_size * (1.0 - start**2) * smallest**2 / 2.0
    if fall == 0.0:
        raise ValueError(
            f"step_size = {step_size:g} with smallest = {smallest:g} is too small: the bound does not fall"
        )
    if fall >= 1.0:
        raise ValueError(
            f"step_size = {step_size:g} must be below {step_size / fall:g} for start = {start:g} and "
            f"smallest = {smallest:g}: the bound's factor is 0 there"
        )
    return math.log(level / start) / (PRINTED * math.log1p(-fall))


def fedrep_least_samples(
    *, dim: int, rank: int, participants: int, condition: npt.ArrayLike, start: npt.ArrayLike
) -> Array:
    """Return the number of samples per participant that Theorem 1 requires, with its unspecified constant set to 1.

    Parameters
    ----------
    dim, rank, participants : int
        d, k and p.
    condition : array_like (...)
        Condition number kappa, at least 1; infinite if sigma_min bar is 0.
    start : array_like (...)
        ``dist(B_0, B*)``, from 0 to 1.

    Returns
    -------
    ndarray (...)
        ``kappa^4 k^3 log(p) / E_0^2 + kappa^4 k^2 d / (E_0^2 p)``; infinite for an infinite kappa or an initial
        distance of 1.

    Raises
    ------
    ValueError
        If a value is out of range, or the shapes of `condition` and `start` do not match.

    Notes
    -----
    **Deviations**: the paper prints ``kappa = sigma_max / sigma_max``; here ``kappa = sigma_max / sigma_min``.

    References
    ----------
    FedRep paper, Theorem 1.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 10, "rank": 2, "participants": 10}
    >>> [f"{lf.theory.fedrep_least_samples(condition=kappa, start=0.5, **sizes):.0f}" for kappa in (1.0, 4.0)]
    ['40', '10204']
    """
    d, k, p = check_integer("dim", dim), check_integer("rank", rank), check_integer("participants", participants)
    kappa = check_numbers("condition", condition)
    if not (kappa >= 1.0).all():
        raise ValueError(f"condition = {short_repr(condition)} must be at least 1")
    first = _unit("start", start)
    check_broadcast({"condition": kappa, "start": first})
    with np.errstate(divide="ignore"):
        scale = kappa**4 / (1.0 - first**2) ** 2
    return np.asarray(scale * (k**3 * math.log(p) + k**2 * d / p))


def fedrep_predicted_samples(
    *,
    dim: int,
    rank: int,
    participants: int,
    step_size: float,
    smallest: float,
    start: float,
    exponent: float = PRINTED,
    allowed: float = 0.05,
) -> float:
    """Predict the smallest number of samples with which Theorem 1's bound holds in most runs.

    Parameters
    ----------
    dim, rank, participants : int
        d, k and p.
    step_size : float
        Step size eta for B, at most the limit of the theorem (`fedrep_step_limit`).
    smallest : float
        sigma_min bar.
    start : float
        Initial distance ``dist(B_0, B*)``, above 0 and below 1, the sine of all principal angles.
    exponent : float
        Exponent of the bound, as in `fedrep_bound`.
    allowed : float
        Share of runs in which the bound may fail, from 1e-16 to 1/2.

    Returns
    -------
    float
        ``k + 1 + M + A/2 + sqrt(A^2/4 + A b)``, with ``r = 1 - exponent/2`` and z the normal quantile of
        ``1 - allowed``::

            M = eta k (d-k+1) / (p (2 - exponent E_0 - eta))
            A = (z/r)^2 k / (p E_0 sigma_min^2),   b = dist_0^2 k / sigma_min^2

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The sum has three parts. For m <= k, B does not move; this gives k + 1. M is the m at which the mean square near B*
    falls as fast as the bound (as in `one_round_factor`). A and b describe the first rounds. Along the weakest
    direction the angle falls by ``eta c s sigma_min^2``, where c and s are its cosine and sine. The bound leaves the
    share r of this decrease for fluctuations. The standard deviation of the decrease, a sum over p clients, is
    ``eta s sqrt((k/(p m)) (sigma_min^2 + s^2 k/m))``. The result is solved for m.

    The sum interpolates between these parts and is not exact. If all directions are equally strong, the largest of k
    fluctuations matters, which the sum does not contain. It is then too low by a factor of 2 (at k = 2 from 0.998, and
    at k = 6 for kappa = 1.1). In 29 of 32 random settings it was within a factor of 2. With p < n, and the smallest
    sigma_min over the participant sets that occur, it may be 5 times too high.

    **Deviations**: derived here. The requirement of the theorem contains kappa^4, k^3, E_0^-2 and a logarithm. This
    prediction contains at most kappa^2 (in ``sqrt(A b)``, with ``p^-1/2``), k and E_0^-1.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 50, "rank": 2, "participants": 50, "step_size": 0.125, "start": 0.5}
    >>> round(lf.theory.fedrep_predicted_samples(smallest=0.0442, **sizes))
    264
    """
    d, k, p = check_integer("dim", dim), check_integer("rank", rank), check_integer("participants", participants)
    eta = check_number("step_size", step_size, positive=True)
    least = check_number("smallest", smallest, minimum=SMALLEST, maximum=LARGEST)
    sine = check_number("start", start, positive=True, maximum=1.0)
    allowed = check_number("allowed", allowed, minimum=1e-16, maximum=0.5)
    exponent = check_number("exponent", exponent, positive=True)
    E0, room = 1.0 - sine**2, 1.0 - exponent / 2.0
    if E0 <= 0.0 or room <= 0.0 or 2.0 - exponent * E0 - eta <= 0.0:
        raise ValueError(
            f"start = {start:g}, exponent = {exponent:g} and step_size = {eta:g} are out of range: start must be below "
            "1, exponent below 2, and step_size below 2 - exponent E_0"
        )
    A = (NormalDist().inv_cdf(1.0 - allowed) / room) ** 2 * k / (p * E0 * least**2)
    b = sine**2 * k / least**2
    M = eta * k * (d - k + 1) / (p * (2.0 - exponent * E0 - eta))
    return k + 1.0 + M + A / 2.0 + math.sqrt(A * A / 4.0 + A * b)


def fedrep_step_limit(largest: npt.ArrayLike) -> Array:
    """Return the largest step size for B that Theorem 1 allows, ``1 / (4 sigma_max^2)``.

    Parameters
    ----------
    largest : array_like (...)
        sigma_max bar, the largest singular value of ``W*_p / sqrt(p)`` over the sets of p clients.

    Returns
    -------
    ndarray (...)

    Raises
    ------
    ValueError
        If a value is not positive.

    References
    ----------
    FedRep paper, Theorem 1.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.theory.fedrep_step_limit([1.0, 2.0])
    array([0.25  , 0.0625])
    """
    found = check_numbers("largest", largest)
    if not (found > 0).all():
        raise ValueError(f"largest = {short_repr(largest)} must be positive")
    return np.asarray(1.0 / (4.0 * found**2))


def fedrep_failure_probability(n_rounds: int, *, dim: int, rank: int, participants: int) -> float:
    """Return Theorem 1's probability that its bound fails in at least one of T rounds, at most 1.

    Parameters
    ----------
    n_rounds : int
        Number of rounds T >= 0.
    dim, rank, participants : int
        Ambient dimension d, columns k of B, and participants p of a round.

    Returns
    -------
    float
        The smaller of 1 and ``T exp(-100 min(k^2 log p, d))``. With one participant this is 1 for all T >= 1, so the
        theorem guarantees nothing. With two or more it is at most ``8e-31 T``.

    Raises
    ------
    ValueError
        If `rank` or `participants` is not an integer of at least 1, or `n_rounds` not one of at least 0.

    References
    ----------
    FedRep paper, Theorem 1.
    """
    exponent = 100.0 * min(
        check_integer("rank", rank) ** 2 * math.log(check_integer("participants", participants)), dim
    )
    return min(1.0, check_integer("n_rounds", n_rounds, minimum=0) * math.exp(-exponent))


def head_singular_values(W: npt.ArrayLike, participants: npt.ArrayLike | None = None) -> tuple[Array, Array]:
    """Return sigma_min bar and sigma_max bar, the extreme singular values of ``W_I / sqrt(p)`` over participant sets.

    Parameters
    ----------
    W : array_like (trials, n, k)
        True heads, in the coordinates of the orthonormal B*.
    participants : array_like of int (trials, n_rounds, p), optional
        Participant sets. By default the only set contains all clients (p = n).

    Returns
    -------
    smallest, largest : ndarray (trials,)
        The k-th singular value, which is 0 if p < k, and the first.

    Notes
    -----
    Theorem 1 considers all subsets of p clients. With only the sets of a run, sigma_min bar is too large and sigma_max
    bar too small. The bound is then too low and the hypotheses are too weak.

    References
    ----------
    FedRep paper, Assumption 2 and Theorem 1.
    """
    heads = check_array("W", W, [("trials", "n", "k")])
    smallest, largest = np.full(len(heads), np.inf), np.zeros(len(heads))
    sets = None if participants is None else np.asarray(participants, dtype=np.intp)
    with one_blas_thread():
        for trial, client_heads in enumerate(heads):
            chosen = client_heads[None] if sets is None else client_heads[np.unique(sets[trial], axis=0)]
            values = np.linalg.svd(np.linalg.qr(chosen, mode="r"), compute_uv=False) / math.sqrt(chosen.shape[1])
            largest[trial] = values[:, 0].max()
            smallest[trial] = values[:, -1].min() if chosen.shape[1] >= heads.shape[-1] else 0.0
    return smallest, largest


def searched_singular_values(W: npt.ArrayLike, participants: int, *, starts: int = 64) -> tuple[Array, Array]:
    """Search for the sets of p clients with the extreme singular values of ``W_I / sqrt(p)``, and return the values.

    Parameters
    ----------
    W : array_like (trials, n, k)
        True heads, in the coordinates of the orthonormal B*.
    participants : int
        Number of clients p in a set.
    starts : int
        Number of initial directions of the search. They have a fixed seed and are equal for all trials.

    Returns
    -------
    smallest, largest : ndarray (trials,)
        Attained values, so the values of Theorem 1, over all subsets, are at least as extreme. Its kappa and its sample
        size are therefore at least those computed from these values.

    Notes
    -----
    ``min_I sigma_min^2 = min_u (mean of the p smallest (w_i'u)^2)``. The search alternates between the best set for a
    direction and the best direction for a set. Each step can only lower the value. The search for the largest value is
    analogous.
    """
    heads = check_array("W", W, [("trials", "n", "k")])
    p, k = check_integer("participants", participants, maximum=heads.shape[1]), heads.shape[-1]
    directions = np.random.default_rng(0).standard_normal((check_integer("starts", starts), k))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    found = np.empty((2, len(heads)))
    with one_blas_thread():
        for trial, client_heads in enumerate(heads):
            for row, place in ((0, -1), (1, 0)):
                u, values = directions, np.zeros(len(directions))
                for _ in range(100):
                    order = np.argsort((client_heads @ u.T) ** 2, axis=0).T
                    chosen = client_heads[order[:, :p] if row == 0 else order[:, -p:]]
                    _, s, Vt = np.linalg.svd(np.linalg.qr(chosen, mode="r"))
                    settled = np.allclose(values, s[:, place], rtol=1e-12, atol=0.0)
                    values, u = s[:, place], Vt[:, place]
                    if settled:
                        break
                found[row, trial] = (values.min() if row == 0 else values.max()) / math.sqrt(p)
    return (found[0] if p >= k else np.zeros(len(heads))), found[1]


def _unit(name: str, value: npt.ArrayLike) -> Array:
    values = check_numbers(name, value)
    if not ((values >= 0.0) & (values <= 1.0 + 1e-12)).all():
        raise ValueError(f"{name} = {short_repr(value)} must be from 0 to 1")
    return np.minimum(values, 1.0)
