"""FedRep near B*: closed forms of `state_evolution` for small angles, without noise and at the noise floor.

All heads have length sqrt(k), and ``(1/n) sum_i w_i w_i' = I``.
"""

from __future__ import annotations

import math

from linfed.checks import check_integer, check_noise_std, check_number
from linfed.theory.drawn_clients import set_share
from linfed.theory.fedrep.arguments import checked_isotropic_sizes


def one_round_factor(
    step_size: float, *, dim: int, rank: int, n_clients: int, n_samples: int, participants: int | None = None
) -> float:
    """Return the factor by which a round multiplies the mean squared sine of the angles near B*, without noise.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    step_size : float
        Step size eta > 0 for B.
    dim, rank, n_clients, n_samples : int
        d >= 2k, k, n >= k and m >= k + 2.
    participants : int, optional
        Number of participants p <= n in a round; all clients by default.

    Returns
    -------
    float
        ``(1 - eta c)^2 + eta^2 c^2 f + eta^2 c g`` with ``c = 1 - k/m``, ``g = (d-k+1) k/(p m)`` due to the samples and
        ``f = (k-1)(n-p)/(p (n-1))`` due to client sampling.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The factor is the limit of ``tr Q_mean / tr Q`` of `one_round_means` for Q -> 0, for heads of length sqrt(k) with
    ``(1/n) sum_i w_i w_i' = I``. It exceeds 1 for step sizes above twice `best_step_size`. Single runs stay below the
    mean square, so their stability edge is higher, clearly so if d is small.

    **Deviations**: not in the paper.

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
    """Return FedRep's best step size near B*, which minimises `one_round_factor`.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    dim, rank, n_clients, n_samples, participants
        As in `one_round_factor`.

    Returns
    -------
    float
        ``eta* = 1/(c (1 + f) + g)``. The factor is then ``1 - c eta*``. It reaches 1 at ``2 eta*``.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    **Deviations**: not in the paper. Theorem 1 of the FedRep paper allows ``1/(4 sigma_max^2)``, which is 1/4 here.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 200, "rank": 5, "n_clients": 400, "n_samples": 20}
    >>> round(lf.theory.best_step_size(**sizes), 3)
    1.146
    >>> round(lf.theory.best_step_size(**sizes, participants=20), 3)
    0.299
    """
    c, f, g = _near_truth(dim, rank, n_clients, n_samples, participants)
    return 1.0 / (c * (1.0 + f) + g)


def near_truth_threshold(
    step_size: float, *, dim: int, rank: int, n_clients: int, participants: int | None = None
) -> float:
    """Return the smallest number of samples at which `one_round_factor` is at most 1.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    With fewer samples the mean squared sine grows near B*.

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
        The m, not rounded, at which ``(1 - eta c)^2 + eta^2 c (c f + g) = 1``. The factor is defined from m = k + 2; if
        it is at most 1 there, the result is k + 2. If no m is enough, it is infinite.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The heads are as in `one_round_factor`. For p = n and eta = 1/4, ``p m = (d-k+1) k/(7 + k/m)``. Above the step
    ``2/(1 + f)`` the factor is above 1 for many samples, since a share k/m of the message is lost to the heads and the
    step is longer without it. If it is below 1 for few samples, more samples are not better.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> round(lf.theory.near_truth_threshold(0.25, dim=1000, rank=3, n_clients=50), 3)
    8.126
    """
    eta = check_number("step_size", step_size, positive=True)
    d, k, n, _, p = checked_isotropic_sizes(dim, rank, n_clients, check_integer("rank", rank) + 2, participants)
    f, h = (k - 1) * set_share(n, p), (d - k + 1) * k / p
    slack = 2.0 - eta * (1.0 + f)
    needed = eta * (h - (1.0 + f) * k)  # the factor is at most 1 where m * slack >= needed
    if (k + 2) * slack >= needed:
        return float(k + 2)
    return needed / slack if slack > 0 else math.inf


def noise_floor(
    step_size: float,
    *,
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int,
    noise_std: float,
    participants: int | None = None,
    message_noise_std: float = 0.0,
) -> float:
    r"""Return FedRep's noise floor near B*, the stationary root mean square sine of the principal angles.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    step_size : float
        Step size eta > 0 for B, below twice `best_step_size`.
    dim, rank, n_clients, n_samples, participants
        As in `one_round_factor`.
    noise_std : float
        Standard deviation of the label noise, in units of y.
    message_noise_std : float
        Standard deviation s of noise on each entry of the mean message, as in `linfed.PrivateFedRep`.

    Returns
    -------
    float
        ``sqrt(E ||(I - B*B*')B||_F^2 / k)``, to leading order for small values. With ``c = 1 - k/m`` its square is

        .. math::

            \frac{\eta (d-k)}{2 - \eta/\eta^*} \Bigl( \frac{\sigma^2 (1 + \sigma^2/(m-k-1))}{p m}
                + \frac{s^2}{c} \Bigr), \qquad \eta^* = \text{best_step_size}

    Raises
    ------
    ValueError
        If a value is out of range. If the step size is at least ``2 eta*``, for which the mean square has no floor.

    Notes
    -----
    Assumptions on the heads as in `one_round_factor`. For k = 1 this is the root mean square of the subspace
    distance, the sine of the largest angle. For k > 1 that root mean square lies between this value and
    ``1 + sqrt(k/(d-k))`` times this value (the edge of a Wishart matrix). The floor is proportional to sqrt(eta) for
    small step sizes.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 200, "rank": 5, "n_clients": 400, "n_samples": 20}
    >>> [round(lf.theory.noise_floor(eta, **sizes, noise_std=0.1), 4) for eta in (0.1, 0.4)]
    [0.0036, 0.0077]
    """
    step_size = check_number("step_size", step_size, positive=True)
    noise_std = check_noise_std(noise_std)
    c, f, g = _near_truth(dim, rank, n_clients, n_samples, participants)
    best = 1.0 / (c * (1.0 + f) + g)
    p = n_clients if participants is None else participants
    if step_size >= 2.0 * best:
        raise ValueError(
            f"step_size = {step_size:g} must be below 2 best_step_size = {2.0 * best:g}: at larger step sizes the mean "
            "square grows without bound and no floor exists"
        )
    variance = noise_std * noise_std
    added = check_noise_std(message_noise_std, "message_noise_std") ** 2 / c
    each = variance * (1.0 + variance / (n_samples - rank - 1)) / (p * n_samples) + added
    return math.sqrt(step_size * (dim - rank) * each / (2.0 - step_size / best))


def _near_truth(
    dim: int, rank: int, n_clients: int, n_samples: int, participants: int | None
) -> tuple[float, float, float]:
    """Return c, f and g of `one_round_factor`."""
    d, k, n, m, p = checked_isotropic_sizes(dim, rank, n_clients, n_samples, participants)
    return 1.0 - k / m, (k - 1) * set_share(n, p), (d - k + 1) * k / (p * m)
