"""Smallest risk of a single model, and exact risk of new clients."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.parts.base import State
from linfed.checks import (
    check_array,
    check_inside,
    check_integer,
    check_noise_std,
    check_numbers,
    check_shape,
)
from linfed.problems import Truth
from linfed.simulation.metrics import client_risks
from linfed.theory._assumptions import check_truth
from linfed.theory.fedrep.arguments import check_independent


def single_model_floor(truth: Truth) -> Array:
    """Return the smallest possible mean risk of one predictor for all clients.

    Parameters
    ----------
    truth : Truth
        Ground truth, for example ``problem.truth(seed, range(trials))``.

    Returns
    -------
    ndarray (trials,)
        ``(1/2n) sum_i (phibar - phi_i)' Cov_i (phibar - phi_i) + noise_std^2 / 2`` with ``phibar = (1/n) sum_i phi_i``,
        or ``phibar = (sum_i Cov_i)^+ sum_i Cov_i phi_i`` if the covariance of x differs between clients.

    Notes
    -----
    This is a lower bound for every single model. For large m it is the limit of FedAvg with full participation and
    equal weights, with one local step or with one covariance for all clients; otherwise the limit is usually higher.
    Compare it with ``result.metrics["risk"]``.

    **Deviations**: the papers state it for ``phi_i = B* w_i*`` and identity covariance, without noise.

    References
    ----------
    FedRep paper, section 2.1, problem (4) compared with (3).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=8, rank=2, noise_std=0.1)
    >>> lf.theory.single_model_floor(problem.truth(0, range(2))).round(3)
    array([0.947, 0.994])
    """
    check_truth(truth)
    if truth.design.per_client:
        Sigma, Phi = np.asarray(truth.design.covariance), truth.dense()
        right = (Sigma @ Phi[..., None]).sum(axis=1)
        best = (np.linalg.pinv(Sigma.sum(axis=0), hermitian=True) @ right).mT
        return client_risks(State(S=best), truth).mean(axis=-1)
    W, S = (None if part is None else part.mean(axis=1, keepdims=True) for part in (truth.W, truth.S))
    return client_risks(State(B=truth.B, W=W, S=S), truth).mean(axis=-1)


def outside_length(B: npt.ArrayLike, Phi: npt.ArrayLike) -> Array:
    """Return the length ``||(I - QQ') phi||`` of each regressor outside the span of a representation.

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)
        Representation of rank k; its columns need not be orthonormal. Q is its orthonormal factor.
    Phi : array_like (n, d) or (trials, n, d)
        Regressors, one per row, for example ``problem.new_clients(truth, 100, seed, [0]).dense()``.

    Returns
    -------
    ndarray (n,) or (trials, n)
        Lengths, accepted by `new_client_mean_risk` and `new_client_excess_quantile`.

    Raises
    ------
    ValueError
        If shapes do not match, or if the columns of B are linearly dependent.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> B, Phi = np.eye(4, 2), np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 3.0, 4.0]])
    >>> lf.theory.outside_length(B, Phi)
    array([0., 5.])
    """
    B = check_array("B", B, [("d", "k"), ("trials", "d", "k")])
    basis = np.linalg.qr(check_independent("B", B))[0]
    Phi = check_array("Phi", Phi, [("n", "d"), ("trials", "n", "d")])
    check_shape("Phi", Phi, (*basis.shape[:-2], Phi.shape[-2], basis.shape[-2]), "(n, d) for every B")
    return np.asarray(np.linalg.norm(Phi - Phi @ basis @ basis.mT, axis=-1))


def new_client_mean_risk(outside: npt.ArrayLike, *, noise_std: float, rank: int, n_samples: int) -> Array:
    """Return the mean risk of a new client that fits an exact head on a given representation.

    Parameters
    ----------
    outside : array_like
        Length ``rho = ||(I - BB') phi||`` of the new client's regressor outside the span of the orthonormal B, as
        `outside_length` returns it; any shape.
    noise_std : float
        Standard deviation of the label noise.
    rank : int
        Number k of columns of B.
    n_samples : int
        Number m_new >= k of standard Gaussian samples.

    Returns
    -------
    ndarray, as `outside`
        ``(1/2) [rho^2 + k tau^2 / (m_new - k - 1)] + noise_std^2 / 2`` with ``tau^2 = rho^2 + noise_std^2``. At m_new
        = k and k + 1 it is infinite unless tau = 0; there medians can be compared (`new_client_excess_quantile`).

    Raises
    ------
    ValueError
        If `n_samples` is below `rank`, or if a value is out of range.

    Notes
    -----
    On the span of B, the error of the head is that of a regression with noise variance tau^2. For x ~ N(0, L L') the
    result holds with L'B and L'phi instead of B and phi: rho is the length of L'phi outside span(L'B).

    **Deviations**: the FedRep paper only states that O(k) samples are sufficient.

    References
    ----------
    FedRep paper, section 4.2, "New users and dimensionality reduction".

    Examples
    --------
    >>> import linfed as lf
    >>> lf.theory.new_client_mean_risk([0.0, 0.5], noise_std=0.1, rank=2, n_samples=10).round(4)
    array([0.0064, 0.1671])
    """
    rho2, tau2, noise_std, rank, n_samples = _lengths(outside, noise_std, rank, n_samples)
    spare = n_samples - rank - 1
    fitted = rank * tau2 / spare if spare > 0 else np.where(tau2 > 0, np.inf, 0.0)
    return np.asarray(0.5 * (rho2 + fitted) + 0.5 * noise_std**2)


def new_client_excess_quantile(
    q: float, outside: npt.ArrayLike, *, noise_std: float, rank: int, n_samples: int
) -> float:
    """Return a quantile of the excess risk of new clients that fit exact heads on given representations.

    Parameters
    ----------
    q : float
        Level in (0, 1), e.g. 0.5 for the median.
    outside : array_like
        Length ``rho`` of each client, as in `new_client_mean_risk`. The quantile is that of the mixture over clients.
    noise_std, rank, n_samples
        As in `new_client_mean_risk`.

    Returns
    -------
    float
        Quantile of ``risk - noise_std^2 / 2``. Given rho, twice the excess risk is exactly
        ``rho^2 + tau^2 k / (m_new - k + 1) F`` where F has Fisher's distribution with (k, m_new - k + 1) degrees of
        freedom.

    Raises
    ------
    ValueError
        If `n_samples` is below `rank`, or if a value is out of range.

    Notes
    -----
    The error of the head is ``(Z'Z)^{-1} Z'v tau`` with Z (m, k) and v (m,) standard Gaussian; its squared length is
    Hotelling's T^2. It has a median at every m_new >= k, even if its mean is infinite.

    References
    ----------
    Hotelling 1931; FedRep paper, section 5.1 and Figure 4, for the experiment.

    Examples
    --------
    >>> import linfed as lf
    >>> round(lf.theory.new_client_excess_quantile(0.5, [0.1, 0.2], noise_std=0.1, rank=2, n_samples=10), 4)
    0.0201
    """
    from scipy import optimize, stats

    q = check_inside("q", q)
    rho2, tau2, _, rank, n_samples = _lengths(outside, noise_std, rank, n_samples)
    rho2, tau2 = rho2.ravel(), tau2.ravel()
    exact = tau2 == 0  # clients without excess risk: an atom at 0
    if q <= exact.mean():
        return 0.0
    q = (q - exact.mean()) / (1 - exact.mean())
    rho2, scale = rho2[~exact], tau2[~exact] * (rank / (n_samples - rank + 1))
    law = stats.f(rank, n_samples - rank + 1)
    ends = rho2 + scale * law.ppf(q)  # quantiles of the clients, which bracket that of the mixture
    low, high = float(ends.min()), float(ends.max())
    if high <= low * (1 + 1e-12):
        return 0.5 * high

    def above(exponent: float) -> float:
        return float(law.cdf((np.exp(exponent) - rho2) / scale).mean()) - q

    # A logarithmic scale keeps the relative accuracy of small lengths.
    found = optimize.brentq(above, np.log(low) - 1e-9, np.log(high) + 1e-9, xtol=1e-13)
    return float(0.5 * np.exp(found))


def _lengths(
    outside: npt.ArrayLike, noise_std: float, rank: int, n_samples: int
) -> tuple[Array, Array, float, int, int]:
    """Check the arguments and return rho^2, tau^2, the noise's standard deviation, k and m_new."""
    rho = check_numbers("outside", outside)
    if rho.size == 0 or not np.isfinite(rho).all() or rho.min() < 0:
        raise ValueError("outside must contain finite numbers of at least 0")
    noise_std = check_noise_std(noise_std)
    rank = check_integer("rank", rank)
    n_samples = check_integer("n_samples", n_samples, minimum=rank)
    return rho**2, rho**2 + noise_std**2, noise_std, rank, n_samples
