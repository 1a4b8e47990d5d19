"""Asymptotic error of FedRep with heads refitted in every round, compared with known heads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_integer, check_noise_std, check_number, short_repr
from linfed.theory.fedrep.arguments import Clients


def refitted_heads_limit(
    samples: float,
    *,
    dim: int,
    rank: int,
    n_samples: int | npt.ArrayLike,
    noise_std: float | npt.ArrayLike,
    eigenvalues: npt.ArrayLike | None = None,
    scale: float | None = None,
    weights: npt.ArrayLike | None = None,
) -> Array:
    """Return the asymptotic mean squared tangents of FedRep with decreasing step sizes, for any heads.

    Parameters
    ----------
    samples : float
        Total number of samples N > 0: ``p m t`` after t rounds, with the mean of m over clients.
    dim, rank : int
        d > k and k.
    n_samples : int or array_like (n,)
        m >= k + 2 samples per client and round, to which a head is fitted: equal for all clients, or one number for
        each client.
    noise_std : float or array_like (n,)
        Standard deviation of the label noise, in units of y, equal for all clients, or one for each client.
    eigenvalues : array_like (k,), optional
        Eigenvalues of ``(1/n) sum_i w_i w_i'``; 1 by default.
    scale : float, optional
        Scale a > 0 of the step sizes ``a/((1 - k/m) t)``. By default each direction has its best scale, 1 divided by
        its eigenvalue. This corresponds to a matrix step size, or to averaged iterates of a small constant step size.
        If clients differ, the step sizes are ``a/(mean_i omega_i c_i t)``.
    weights : array_like (n,), optional
        The clients' weights as in `linfed.FedRep`; equal by default.

    Returns
    -------
    ndarray (k,)
        Mean squared tangent of the column of B along each eigenvector. Infinite if ``a lambda <= 1/2``, since it then
        falls more slowly than 1/N.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    Near B* a column along lambda contracts by ``1 - eta c lambda`` and is driven by noise of variance
    ``eta^2 c (d-k) sigma^2 (lambda + s)/(m p)``, with ``s = sigma^2/(m-k-1)`` and ``c = 1 - k/m``. Hence::

        (d-k) sigma^2/(c N) (lambda + s)/lambda^2                               at the best step sizes
        (d-k) sigma^2/(c N) (lambda + s) a^2/(2 a lambda - 1)                   at step sizes a/(c t)

    If clients differ, and the heads are unrelated to their numbers of samples, noise levels and weights, the first
    factor and ``lambda + s`` become, with ``c_i = 1 - k/m_i`` and means over clients, ::

        (d-k)/N mean_i[m_i] mean_i[omega_i^2 (c_i/m_i) sigma_i^2 (lambda + s_i)] / mean_i[omega_i c_i]^2

    It is smallest for ``omega_i = m_i/(sigma_i^2 (1 + s_i/lambda))`` (`optimal_weights`). The error after t rounds is
    then ``(p t lambda^2 mean_i[(m_i-k)/(sigma_i^2 (lambda + s_i))])^{-1} (d-k)``: information adds over clients.

    With known heads the value is ``(d-k) sigma^2/(N lambda)`` (`known_heads_bound`). Heads fitted to the m samples of a
    round therefore require more samples by the factor ``(1 + s/lambda)/(1 - k/m)``. The factor is due to the share k/m
    of the residual that a fit absorbs, and to the noise of the heads. It is not a property of the samples. Heads that
    keep information from earlier rounds, with one gradient step per round (`linfed.GradientHeads`), are below it. Heads
    that are fitted less often are above it. The factor holds for Gaussian x. If each sample has its own scale s_j, as
    for a t distribution, a fit absorbs ``E tr(H diag(s_j^2))/m > k/m``, where H is the projector on its features.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 100, "rank": 2, "n_samples": 8, "noise_std": 1.0}
    >>> limit = lf.theory.refitted_heads_limit(1e5, **sizes)
    >>> bound = lf.theory.known_heads_bound(1e5, dim=100, rank=2, noise_std=1.0)
    >>> (limit / bound).round(3)
    array([1.6, 1.6])
    """
    k = check_integer("rank", rank)
    d = check_integer("dim", dim, minimum=k + 1)
    N, lam = check_number("samples", samples, positive=True), _eigenvalues(eigenvalues, k)
    given = [np.size(each) for each in (n_samples, noise_std, weights) if each is not None and np.ndim(each) == 1]
    clients = Clients.checked(max(given, default=1), k, max(d, 2 * k), n_samples, noise_std, None, weights)
    m, variance = clients.counts, clients.variances
    noise = clients.weights**2 * clients.fitted / m * variance * (lam[:, None] + variance / clients.spare)
    pull = float(np.mean(clients.weights * clients.fitted))
    limit = (d - k) / N * float(np.mean(m)) * noise.mean(axis=-1) / (pull * lam) ** 2
    if scale is None:
        return np.asarray(limit)
    a = check_number("scale", scale, positive=True)
    with np.errstate(divide="ignore"):
        return np.where(a * lam > 0.5, limit * (a * lam) ** 2 / np.abs(2.0 * a * lam - 1.0), np.inf)


def known_heads_bound(
    samples: float, *, dim: int, rank: int, noise_std: float, eigenvalues: npt.ArrayLike | None = None
) -> Array:
    """Return the asymptotic mean squared tangents of least squares for B with known heads and standard Gaussian x.

    Parameters
    ----------
    samples, dim, rank, eigenvalues
        As in `refitted_heads_limit`.
    noise_std : float
        Standard deviation of the label noise, in units of y, equal for all clients.

    Returns
    -------
    ndarray (k,)
        ``(d-k) sigma^2/(N lambda)`` for the column of B along each eigenvector, for large N. This is the information
        bound for known heads.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.theory.known_heads_bound(1e5, dim=100, rank=2, noise_std=1.0, eigenvalues=[1.5, 0.5]).round(6)
    array([0.000653, 0.00196 ])
    """
    k = check_integer("rank", rank)
    d = check_integer("dim", dim, minimum=k + 1)
    N = check_number("samples", samples, positive=True)
    return np.asarray((d - k) * check_noise_std(noise_std) ** 2 / (N * _eigenvalues(eigenvalues, k)))


def _eigenvalues(values: npt.ArrayLike | None, rank: int) -> Array:
    if values is None:
        return np.ones(rank)
    lam = check_array("eigenvalues", values, [("k",)])
    if len(lam) != rank or not (lam > 0).all():
        raise ValueError(f"eigenvalues = {short_repr(values)} must be {rank} positive numbers, as rank = {rank}")
    return lam
