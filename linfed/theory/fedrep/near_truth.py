"""FedRep near B*: closed forms of `state_evolution` for small angles, without noise and at the floor that noise leaves.

Heads are of length sqrt(k) with ``(1/n) sum_i w_i w_i' = I``.
"""

from __future__ import annotations

import math

from linfed.errors import check_noise_std, check_number
from linfed.theory.fedrep.arguments import checked_isotropic_sizes, set_share


def one_round_factor(
    step_size: float, *, dim: int, rank: int, n_clients: int, n_samples: int, participants: int | None = None
) -> float:
    """Return the factor by which a round multiplies the mean squared sine of the angles near B*, without noise.

    Parameters
    ----------
    step_size : float
        eta > 0.
    dim, rank, n_clients, n_samples : int
        d >= 2k, k, n >= k and m >= k + 2.
    participants : int, optional
        p <= n; all by default.

    Returns
    -------
    float
        ``(1 - eta c)^2 + eta^2 c^2 f + eta^2 c g`` with ``c = 1 - k/m``, ``g = (d-k+1) k/(p m)`` from the samples and
        ``f = (k-1)(n-p)/(p (n-1))`` from who takes part.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    The limit of ``tr Q_mean / tr Q`` of `one_round_means` for Q -> 0, for heads of length sqrt(k) with
    ``(1/n) sum_i w_i w_i' = I``. It is above 1 from twice `best_step_size` on. Single runs stay below the mean square:
    their edge is higher, clearly so where d is small.

    **Deviations**: an addition.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 200, "rank": 5, "n_clients": 400, "n_samples": 20}
    >>> best = lf.theory.best_step_size(**sizes)
    >>> round(best, 4), round(lf.theory.one_round_factor(best, **sizes), 4)
    (1.1461, 0.1404)
    """
    step_size = check_number("step_size", step_size, positive=True)
    c, f, g = _near_truth(dim, rank, n_clients, n_samples, participants)
    return (1.0 - step_size * c) ** 2 + step_size**2 * c * (c * f + g)


def best_step_size(*, dim: int, rank: int, n_clients: int, n_samples: int, participants: int | None = None) -> float:
    """Return the step on B that makes `one_round_factor` least.

    Parameters
    ----------
    dim, rank, n_clients, n_samples, participants
        As in `one_round_factor`.

    Returns
    -------
    float
        ``eta* = 1/(c (1 + f) + g)``; the factor is then ``1 - c eta*``, and it reaches 1 at ``2 eta*``.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    **Deviations**: an addition; Theorem 1 of the FedRep paper allows ``1/(4 sigma_max^2)``, which is 1/4 here.
    """
    c, f, g = _near_truth(dim, rank, n_clients, n_samples, participants)
    return 1.0 / (c * (1.0 + f) + g)


def near_truth_threshold(
    step_size: float, *, dim: int, rank: int, n_clients: int, participants: int | None = None
) -> float:
    """Return the number of samples at which `one_round_factor` is 1: fewer, and the mean squared sine grows near B*.

    Parameters
    ----------
    step_size : float
        eta > 0.
    dim, rank, n_clients : int
        d >= 2k, k and n >= k.
    participants : int, optional
        p <= n; all by default.

    Returns
    -------
    float
        The m, not rounded, with ``(1 - eta c)^2 + eta^2 c (c f + g) = 1``. NaN if it is below k + 2, where
        `one_round_factor` is not defined, and from the step ``2/(1 + f)`` on, where no m is enough.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    For p = n and eta = 1/4 it is ``p m = (d-k+1) k/(7 + k/m)``. Heads as in `one_round_factor`.

    **Deviations**: an addition.

    Examples
    --------
    >>> import linfed as lf
    >>> round(lf.theory.near_truth_threshold(0.25, dim=1000, rank=3, n_clients=50), 3)
    8.126
    """
    eta = check_number("step_size", step_size, positive=True)
    d, k, n, _, p = checked_isotropic_sizes(dim, rank, n_clients, rank + 2, participants)
    f, h = (k - 1) * set_share(n, p), (d - k + 1) * k / p
    slack = 2.0 - eta * (1.0 + f)
    m = eta * (h - (1.0 + f) * k) / slack if slack > 0 else math.nan
    return m if m >= k + 2 else math.nan


def noise_floor(
    step_size: float,
    *,
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int,
    noise_std: float,
    participants: int | None = None,
) -> float:
    """Return where label noise stops FedRep: the root mean square sine of the principal angles.

    Parameters
    ----------
    step_size : float
        eta > 0, below twice `best_step_size`.
    dim, rank, n_clients, n_samples, participants
        As in `one_round_factor`.
    noise_std : float
        Standard deviation of the label noise, in units of y.

    Returns
    -------
    float
        Root of ``E ||(I - B*B*')B||_F^2 / k``, to leading order where it is small::

            eta (d-k) sigma^2 (1 + sigma^2/(m-k-1)) / (p m (2 - eta/eta*)),     eta* = best_step_size

    Raises
    ------
    ValueError
        For values out of range, or a step from ``2 eta*`` on, for which the mean square has no floor.

    Notes
    -----
    Heads as in `one_round_factor`. The subspace distance, the sine of the largest angle, is the same for k = 1; for
    k > 1 it lies between this and ``1 + sqrt(k/(d-k))`` times this (the edge of a Wishart matrix). The step is what a
    floor costs: it falls like sqrt(eta).

    **Deviations**: an addition.
    """
    step_size = check_number("step_size", step_size, positive=True)
    noise_std = check_noise_std(noise_std)
    c, f, g = _near_truth(dim, rank, n_clients, n_samples, participants)
    best = 1.0 / (c * (1.0 + f) + g)
    p = n_clients if participants is None else participants
    if step_size >= 2.0 * best:
        raise ValueError(
            f"step_size = {step_size:g} must be below 2 best_step_size = {2.0 * best:g}: beyond it the mean square "
            "grows, and there is no floor"
        )
    variance = noise_std * noise_std
    drawn = step_size * (dim - rank) * variance * (1.0 + variance / (n_samples - rank - 1))
    return math.sqrt(drawn / (p * n_samples * (2.0 - step_size / best)))


def _near_truth(
    dim: int, rank: int, n_clients: int, n_samples: int, participants: int | None
) -> tuple[float, float, float]:
    """Return c, f and g of `one_round_factor`."""
    d, k, n, m, p = checked_isotropic_sizes(dim, rank, n_clients, n_samples, participants)
    return 1.0 - k / m, (k - 1) * set_share(n, p), (d - k + 1) * k / (p * m)
