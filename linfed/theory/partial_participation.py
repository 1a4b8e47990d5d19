"""Averaging with partial participation: stationary covariance of FedAvg, and exact mean iteration of SCAFFOLD."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_integer, check_number, check_square
from linfed.theory.averaging import fedavg_fixed_point, local_maps, seen_directions
from linfed.theory.drawn_clients import set_share

CONVERGED, MOST = 1e-13, 10_000
"""Relative change below which the covariance has converged, and largest number of iterations."""


def fedavg_stationary_covariance(
    A: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    step_size: float,
    participants: int,
    local_steps: int = 1,
    mu: float = 0.0,
    server_step_size: float = 1.0,
) -> Array:
    """Return the stationary covariance of the model of FedAvg or FedProx with p of n participants.

    Parameters
    ----------
    A, b, step_size, local_steps, mu
        As in `fedavg_fixed_point`, for one trial.
    participants : int
        Number of participants p, drawn without replacement in each round, with equal weights.
    server_step_size : float
        Step size eta_s > 0 of the server.

    Returns
    -------
    ndarray (d, d)
        Covariance of theta due to client sampling. The mean of theta is `fedavg_fixed_point` of all clients. The
        covariance is 0 if p = n, and in directions in which no sample has a component.

    Raises
    ------
    ValueError
        As in `fedavg_fixed_point`. Also if p is not from 1 to n, if the mean diverges at this `server_step_size`, or if
        the second moment grows without bound.

    Notes
    -----
    A round is affine, ``theta <- theta + (1/p) sum_{i in I} (h_i - G_i theta)`` with ``G_i = eta_s eta Q_i A_i`` and
    ``h_i = eta_s eta Q_i b_i``. Its mean over I equals full participation. At the fixed point, the n vectors
    ``r_i = h_i - G_i theta_bar`` sum to 0. For a simple random sample of clients, the covariance S of theta
    satisfies ::

        S = (I - G) S (I - G)' + phi (1/n) sum_i [(G_i - G) S (G_i - G)' + r_i r_i'],   phi = (n - p)/(p (n - 1))

    with G the mean of the G_i. Without the first part of the bracket this is a discrete Lyapunov equation. The full
    equation is solved by iteration: each iteration solves a Lyapunov equation with the previous S in the bracket.
    FedVARP and SCAFFOLD have S = 0, since their fixed point does not change in a round with any participants.

    **Deviations**: derived here.

    References
    ----------
    Cochran, Sampling Techniques, for the variance of a mean without replacement.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> (A,), (b,) = data.normal_equations()
    >>> S = lf.theory.fedavg_stationary_covariance(A, b, step_size=0.1, local_steps=5, participants=2)
    >>> S.shape, round(float(S.trace()), 3)
    ((4, 4), 0.15)
    """
    import scipy.linalg

    A, b = check_square("A", A, [("n", "d", "d")]), check_array("b", b, [("n", "d")])
    server_step_size = check_number("server_step_size", server_step_size, positive=True)
    step_size = check_number("step_size", step_size, positive=True)
    n, phi = len(A), set_share(len(A), check_integer("participants", participants, maximum=len(A)))
    end = fedavg_fixed_point(A, b, step_size=step_size, local_steps=local_steps, mu=mu, stable=False)
    seen = seen_directions(A)
    A, b, end = seen.T @ A @ seen, b @ seen, end @ seen
    _, Q, _ = local_maps(A, step_size, local_steps, mu, None)
    G = server_step_size * step_size * (Q @ A)
    r = server_step_size * step_size * (Q @ b[..., None])[..., 0] - G @ end
    away, mean = G - G.mean(axis=0), np.eye(A.shape[-1]) - G.mean(axis=0)
    if np.abs(np.linalg.eigvals(mean)).max() >= 1.0:
        raise ValueError(f"server_step_size = {server_step_size:g} with step_size = {step_size:g}: the mean diverges")
    driven = phi * (r.T @ r) / n
    S = scipy.linalg.solve_discrete_lyapunov(mean, driven)
    size = np.abs(S).max()
    for _ in range(MOST):
        new = scipy.linalg.solve_discrete_lyapunov(mean, driven + phi * (away @ S @ away.mT).mean(axis=0))
        if np.abs(new - S).max() <= CONVERGED * np.abs(new).max():
            return np.asarray(seen @ (0.5 * (new + new.T)) @ seen.T)
        S = new
        if not np.isfinite(S).all() or np.abs(S).max() > 1e12 * max(size, 1e-300):
            break
    raise ValueError(
        f"step_size = {step_size:g} with participants = {participants}: the second moment grows without bound "
        "although the mean converges; use a smaller step size"
    )


def scaffold_iteration_matrix(
    A: npt.ArrayLike,
    *,
    step_size: float,
    participants: int,
    local_steps: int = 1,
    mu: float = 0.0,
    server_step_size: float = 1.0,
) -> Array:
    """Return the mean over participants of the matrix that a round of SCAFFOLD applies to the distance from its limit.

    Parameters
    ----------
    A, step_size, local_steps
        As in `fedavg_fixed_point`, for one trial.
    participants : int
        Number of participants p of n clients, with equal weights.
    mu : float
        Proximal weight mu >= 0 of FedSCAVAR with the whole model, whose memory does not affect the mean; 0 is SCAFFOLD.
    server_step_size : float
        Step size eta_s > 0 of the server.

    Returns
    -------
    ndarray ((n + 1) d, (n + 1) d)
        Matrix for ``(theta, c_1, .., c_n)``, where theta is relative to the pooled least squares and c_i relative to
        the gradient there. The control variate c of the server is the mean of the c_i. The spectral radius of the
        matrix is the rate at which the mean converges. Runs with p < n may diverge although the mean converges, see
        `mean_square_rate`.

    Raises
    ------
    ValueError
        If shapes do not match or a value is out of range.

    Notes
    -----
    With ``Q_i = sum_{s<K} (I - eta (A_i + mu I))^s``, a participant moves by ``-eta Q_i (A_i theta - b_i - c_i + c)``.
    Its new control variate is ``c_i - c + Q_i (A_i theta - b_i - c_i + c)/K`` (option II). Each client participates
    with probability p/n.

    **Deviations**: derived here.

    References
    ----------
    Karimireddy, Kale, Mohri, Reddi, Stich and Suresh 2020, Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> (A,), (b,) = data.normal_equations()
    >>> M = lf.theory.scaffold_iteration_matrix(A, step_size=0.1, local_steps=2, participants=2)
    >>> M.shape
    (24, 24)
    """
    A = check_square("A", A, [("n", "d", "d")])
    server_step_size = check_number("server_step_size", server_step_size, positive=True)
    step_size = check_number("step_size", step_size, positive=True)
    A, Q, _ = local_maps(A, step_size, local_steps, mu, None)
    n, d = A.shape[:2]
    share = check_integer("participants", participants, maximum=n) / n
    identity = np.eye(d)
    centring = np.eye(n)[..., None, None] - 1.0 / n  # coefficient of c_j in c_i - c: (n, n, 1, 1)
    slope = -centring * identity  # coefficient of c_j in A_i theta - b_i - c_i + c
    control = centring * identity + Q[:, None] @ slope / local_steps - np.eye(n)[..., None, None] * identity
    out = np.zeros((n + 1, n + 1, d, d))
    out[0, 0] = identity - server_step_size * step_size * (Q @ A).mean(axis=0)
    out[0, 1:] = -server_step_size * step_size * (Q[:, None] @ slope).mean(axis=0)
    out[1:, 0] = share * (Q @ A) / local_steps
    out[1:, 1:] = np.eye(n)[..., None, None] * identity + share * control
    return out.transpose(0, 2, 1, 3).reshape((n + 1) * d, (n + 1) * d)
