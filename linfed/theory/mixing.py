"""L2GD on fixed samples: the models about which its iterates fluctuate, and their stationary covariances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_inside, check_number, check_shape, check_square
from linfed.theory.averaging import seen_directions

MOST_ROWS = 400
"""Largest number n d of parameters of all clients; the moments are ``(n d)^2`` numbers."""

TOLERANCE, ITERATIONS = 1e-11, 2000
"""Relative residual of the linear equations of the moments, and largest number of iterations."""


class StationaryModels(NamedTuple):
    """Mean models of L2GD, their fluctuation and their rate.

    Parameters
    ----------
    models : ndarray (n, d)
        Mean of each client's model.
    covariance : ndarray (n, d, d)
        Covariance of each client's model over the coins.
    rate : float
        Factor per round by which the mean approaches its limit.

    Examples
    --------
    >>> import linfed as lf
    >>> found = lf.theory.l2gd_stationary_models([[[1.0]]], [[2.0]], step_size=0.1, penalty=1.0, mean_probability=0.5)
    >>> found.models.tolist(), round(found.rate, 6)
    ([[2.0]], 0.9)
    """

    models: Array
    covariance: Array
    rate: float


def l2gd_stationary_models(
    A: npt.ArrayLike, b: npt.ArrayLike, *, step_size: float, penalty: float, mean_probability: float
) -> StationaryModels:
    r"""Return the mean and the stationary covariance of the clients' models of L2GD with a constant step size.

    Parameters
    ----------
    A, b : array_like (n, d, d), (n, d)
        ``A_i = X_i'X_i/m_i`` and ``b_i = X_i'y_i/m_i`` of one trial.
    step_size, penalty, mean_probability : float
        alpha, lambda and q of `linfed.L2GD`; all clients take part.

    Returns
    -------
    StationaryModels
        Mean models, covariances over the coins, and the factor per round by which the mean approaches its limit.

    Raises
    ------
    ValueError
        If shapes do not match or values are out of range (`mean_probability` must be below 1). If n d exceeds 400, if
        the second moments grow without bound, or if they converge too slowly to be computed.

    Notes
    -----
    The mean of a round is a gradient step on ``sum_i [f_i(v_i) + (lambda/2) ||v_i - v_mean||^2]``. Its limit is
    ``v_i = (A_i + lambda I)^{-1} (b_i + lambda v_mean)``. About it, a round is ``z <- M_0 z + r_0`` with probability
    1 - q and ``z <- M_1 z + r_1`` otherwise, where ``(1 - q) r_0 + q r_1 = 0``. The covariance of z is therefore

    .. math::

        S = (1-q) (M_0 S M_0^\top + r_0 r_0^\top) + q (M_1 S M_1^\top + r_1 r_1^\top)

    exactly, a linear equation. M_0 and M_1 are symmetric, so the map of S is symmetric too, and conjugate gradients
    solve the equation. The moments are bounded if the same equation with I instead of the terms in r_0 and r_1 has a
    positive definite solution. If one model fits all samples, ``r_0 = r_1 = 0``: all models converge to it, and S is 0
    up to rounding errors. Directions in which no sample has a component stay 0. Cost per iteration ``O(n^2 d^3)``.

    **Deviations**: derived here.

    References
    ----------
    Hanzely and Richtarik 2020, for the minimiser.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> (A,), (b,) = lf.FixedSamples(20).draw(problem).normal_equations()
    >>> found = lf.theory.l2gd_stationary_models(A, b, step_size=0.05, penalty=1.0, mean_probability=0.3)
    >>> found.models.shape, found.covariance.shape, round(found.rate, 3)
    ((5, 4), (5, 4, 4), 0.974)
    """
    from scipy.sparse.linalg import LinearOperator, cg, minres

    A = check_square("A", A, [("n", "d", "d")])
    b = check_array("b", b, [("n", "d")])
    check_shape("b", b, A.shape[:2], "(n, d) of A")
    alpha = check_number("step_size", step_size, positive=True)
    penalty = check_number("penalty", penalty, positive=True)
    q = check_inside("mean_probability", mean_probability)
    n, d = b.shape
    if n * d > MOST_ROWS:
        raise ValueError(f"A of {n} clients in {d} dimensions has n d = {n * d} parameters; at most {MOST_ROWS}")
    if not A.any():  # no sample has a component in any direction
        return StationaryModels(np.zeros((n, d)), np.zeros((n, d, d)), 0.0)
    seen = seen_directions(A)
    A, b, eye = seen.T @ A @ seen, b @ seen, np.eye(seen.shape[1])
    inverse = np.linalg.inv(A + penalty * eye)
    centre = np.linalg.solve((A @ inverse).mean(axis=0), (inverse @ b[..., None]).mean(axis=0)[:, 0])
    models = (inverse @ (b + penalty * centre)[..., None])[..., 0]
    local, pull = eye - alpha / (1.0 - q) * A, alpha * penalty / q
    r0 = -alpha / (1.0 - q) * ((A @ models[..., None])[..., 0] - b)
    r1 = -pull * (models - models.mean(axis=0))

    def moved(S: Array) -> Array:
        """Return the moments after a round without the part that drives them, for S (n, n, q, q)."""
        after = local[:, None] @ S @ local.mT[None]
        rows = (1.0 - pull) * S + pull * S.mean(axis=0, keepdims=True)
        both = (1.0 - pull) * rows + pull * rows.mean(axis=1, keepdims=True)
        return np.asarray((1.0 - q) * after + q * both)

    def outer(r: Array) -> Array:
        return r[:, None, :, None] * r[None, :, None, :]

    drive = (1.0 - q) * outer(r0) + q * outer(r1)
    shape, setting = drive.shape, f"step_size = {alpha:g} with mean_probability = {q:g}"
    rest = LinearOperator((drive.size,) * 2, lambda x: x - moved(x.reshape(shape)).ravel(), dtype=float)
    if max(float(np.abs(np.linalg.eigvalsh(local)).max()), abs(1.0 - pull)) > 1.0:  # otherwise no round expands
        everywhere = (np.eye(n)[:, :, None, None] * eye).ravel()
        driven = minres(rest, everywhere, rtol=TOLERANCE, maxiter=ITERATIONS)[0].reshape(shape)
        whole = driven.transpose(0, 2, 1, 3).reshape(n * len(eye), -1)
        if np.linalg.eigvalsh(whole + whole.T)[0] <= 0.0:
            raise ValueError(f"{setting}: the second moment grows without bound; use a smaller step size")
    found, failed = cg(rest, drive.ravel(), rtol=TOLERANCE, maxiter=ITERATIONS)
    if failed:
        raise ValueError(f"{setting} and penalty = {penalty:g}: the moments converge too slowly to be computed")
    S = found.reshape(shape)[np.arange(n), np.arange(n)]
    mean = np.zeros((n, len(eye), n, len(eye)))
    for i in range(n):
        mean[i, :, i] += eye - alpha * (A[i] + penalty * eye)
        mean[i] += alpha * penalty / n * eye[:, None]
    rate = float(np.abs(np.linalg.eigvals(mean.reshape(n * len(eye), -1))).max())
    return StationaryModels(models @ seen.T, np.ascontiguousarray(seen @ S @ seen.T), rate)
