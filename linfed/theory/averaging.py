"""Fixed point and exact iteration matrix of federated averaging for quadratic losses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_bool, check_integer, check_number, check_shape, check_square

SINGULAR = 1e-12
"""Eigenvalues below this share of the largest count as 0; no sample has a component in their directions."""


def fedavg_fixed_point(
    A: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    step_size: float,
    local_steps: int = 1,
    mu: float = 0.0,
    weights: npt.ArrayLike | None = None,
    stable: bool = True,
) -> Array:
    """Return the fixed point of FedAvg, or FedProx, on a one-layer model with full participation and fixed data.

    Parameters
    ----------
    A : array_like (n, d, d) or (trials, n, d, d)
        ``A_i = X_i'X_i/m_i``, as `linfed.GivenSamples.normal_equations` returns them.
    b : array_like (n, d) or (trials, n, d)
        ``b_i = X_i'y_i/m_i``.
    step_size : float
        Size eta > 0 of a local step.
    local_steps : int
        Number K of full-gradient steps in a round.
    mu : float
        Proximal weight mu >= 0 of FedProx; 0 is FedAvg.
    weights : array_like (n,), optional
        Weights of the clients, at least 0, of any scale: p_i are the weights divided by their sum. Equal by default.
    stable : bool, default True
        If True, raise an error if the iteration diverges. If False, return the unstable fixed point in this case.

    Returns
    -------
    ndarray (d,) or (trials, d)
        ``(sum_i p_i Q_i A_i)^{-1} sum_i p_i Q_i b_i`` with ``Q_i = sum_{s<K} (I - eta (A_i + mu I))^s``, with minimum
        norm if the matrix is singular. If FedAvg converges, it converges to this point from 0, for any server step
        size.

    Raises
    ------
    ValueError
        If shapes do not match, a value is out of range, or numbers overflow. Also, unless `stable` is False, if FedAvg
        with server step size 1 does not converge in some trial, because an eigenvalue of ``eta sum_i p_i Q_i A_i`` is
        negative or at least 2.

    Notes
    -----
    For mu = 0, ``eta Q_i A_i = I - (I - eta A_i)^K``, and ``eta Q_i b_i`` is the result of K local steps from 0. For K
    -> inf, ``eta Q_i -> (A_i + mu I)^{-1}`` if this inverse exists and eta is below 2 divided by the largest eigenvalue
    of ``A_i + mu I``; each client then solves its proximal problem. With K = 1, or for eta -> 0, the result minimises
    ``sum_i p_i ||X_i theta - y_i||^2/m_i`` (`linfed.PooledLeastSquares`). The step size is divided out of the sums, so
    no digits are lost for small step sizes. The cost is O(n d^3 log K).

    References
    ----------
    The fixed point under heterogeneity is known from the analysis of local SGD, e.g. Charles and Konecny 2021.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> A, b = data.normal_equations()
    >>> theta = lf.theory.fedavg_fixed_point(A, b, step_size=0.1, local_steps=5)
    >>> theta.shape, bool(lf.theory.fedavg_rate(A, step_size=0.1, local_steps=5) < 1)
    ((1, 4), True)
    """
    step_size = check_number("step_size", step_size, positive=True)
    A, Q, share = local_maps(A, step_size, local_steps, mu, weights)
    b = check_array("b", b, [("n", "d"), ("trials", "n", "d")])
    check_shape("b", b, A.shape[:-1], "A without its last axis")
    stable = check_bool("stable", stable)
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = (share * (Q @ A)).sum(axis=-3)
        target = (share * (Q @ b[..., None])).sum(axis=-3)
    setting = f"step_size = {step_size:g} with local_steps = {local_steps}"
    if not (np.isfinite(matrix).all() and np.isfinite(target).all()):
        raise ValueError(f"{setting} overflows; use a smaller step size")
    if stable:
        values = np.linalg.eigvalsh(0.5 * (matrix + matrix.mT))
        moving = np.abs(values) > SINGULAR * np.abs(values).max(axis=-1, keepdims=True)
        if np.any(moving & ((values < 0) | (step_size * values >= 2.0))):
            radius = np.abs(1.0 - step_size * values[moving]).max()
            raise ValueError(
                f"{setting} diverges with spectral radius {radius:.4g}: use a smaller step size, or stable=False for "
                "the unstable fixed point"
            )
    return (np.linalg.pinv(matrix, rcond=SINGULAR) @ target)[..., 0]


def fedavg_iteration_matrix(
    A: npt.ArrayLike,
    *,
    step_size: float,
    local_steps: int = 1,
    mu: float = 0.0,
    server_step_size: float = 1.0,
    weights: npt.ArrayLike | None = None,
) -> Array:
    """Return the matrix that a round of FedAvg applies to the distance from its fixed point.

    Parameters
    ----------
    A, step_size, local_steps, mu, weights
        As in `fedavg_fixed_point`.
    server_step_size : float
        Step size eta_s > 0 of the server.

    Returns
    -------
    ndarray (d, d) or (trials, d, d)
        ``I - eta_s eta sum_i p_i Q_i A_i``. FedAvg converges if its eigenvalues are in (-1, 1), at the rate of the
        largest absolute value. Not finite if numbers overflow.

    Raises
    ------
    ValueError
        If shapes do not match or a value is out of range.

    Notes
    -----
    The matrix is exact for the one-layer model, full participation and fixed data. The cost is O(n d^3 log K).

    References
    ----------
    As in `fedavg_fixed_point`.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> A, b = data.normal_equations()
    >>> M = lf.theory.fedavg_iteration_matrix(A, step_size=0.1, local_steps=5)
    >>> M.shape
    (1, 4, 4)
    """
    server_step_size = check_number("server_step_size", server_step_size, positive=True)
    step_size = check_number("step_size", step_size, positive=True)
    A, Q, share = local_maps(A, step_size, local_steps, mu, weights)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.eye(A.shape[-1]) - server_step_size * step_size * (share * (Q @ A)).sum(axis=-3)


def fedavg_rate(
    A: npt.ArrayLike,
    *,
    step_size: float,
    local_steps: int = 1,
    mu: float = 0.0,
    server_step_size: float = 1.0,
    weights: npt.ArrayLike | None = None,
) -> Array:
    """Return the asymptotic factor by which a round of FedAvg reduces the distance from its fixed point.

    Parameters
    ----------
    A, step_size, local_steps, mu, server_step_size, weights
        As in `fedavg_iteration_matrix`.

    Returns
    -------
    ndarray () or (trials,)
        Spectral radius of `fedavg_iteration_matrix`; infinite if numbers overflow. FedAvg converges if it is below 1.
        If no sample has a component in some direction, it is 1, and the model does not move in that direction.

    Raises
    ------
    ValueError
        As in `fedavg_iteration_matrix`.

    References
    ----------
    As in `fedavg_fixed_point`.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> A, b = data.normal_equations()
    >>> [lf.theory.fedavg_rate(A, step_size=0.1, local_steps=K).round(3).item() for K in (1, 5)]
    [0.938, 0.742]
    """
    matrix = fedavg_iteration_matrix(
        A,
        step_size=step_size,
        local_steps=local_steps,
        mu=mu,
        server_step_size=server_step_size,
        weights=weights,
    )
    finite = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)))
    values = np.linalg.eigvalsh(np.where(finite[..., None, None], matrix, 0.0))
    return np.where(finite, np.abs(values).max(axis=-1), np.inf)


def seen_directions(A: Array, weights: Array | None = None) -> Array:
    """Return an orthonormal basis (d, q) of the range of ``sum_i p_i A_i``; the model moves only in this range."""
    values, vectors = np.linalg.eigh(np.average(A, axis=0, weights=weights))
    if values[-1] <= 0.0:
        raise ValueError("A is 0: all samples are 0, so the model does not move")
    return np.asarray(vectors[:, values > SINGULAR * values[-1]])


def local_maps(
    A: npt.ArrayLike, step_size: float, local_steps: int, mu: float, weights: npt.ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return A, ``Q_i = sum_{s<K} (I - eta (A_i + mu I))^s`` (.., n, d, d) and the shares (n, 1, 1)."""
    A = check_square("A", A, [("n", "d", "d"), ("trials", "n", "d", "d")])
    local_steps = check_integer("local_steps", local_steps)
    mu = check_number("mu", mu, minimum=0.0)
    shares = checked_weights(weights, A.shape[-3])
    identity = np.eye(A.shape[-1])
    with np.errstate(over="ignore", invalid="ignore"):
        once = identity - step_size * (A + mu * identity)
        once = np.where(shares[:, None, None] > 0, once, identity)  # a client of share 0 may diverge
        total, power = np.broadcast_to(identity, A.shape), once  # the sum over s < j, and once^j
        for digit in f"{local_steps:b}"[1:]:  # j becomes 2 j or 2 j + 1
            total, power = total + power @ total, power @ power
            if digit == "1":
                total, power = identity + once @ total, once @ power
    return A, total, shares[:, None, None]


def checked_weights(weights: npt.ArrayLike | None, n_clients: int) -> Array:
    """Return weights (n,) divided by their sum, equal by default; raise if one is negative or all are 0."""
    shares = np.ones(n_clients) if weights is None else check_array("weights", weights, [("n",)])
    check_shape("weights", shares, (n_clients,), "(n,)")
    if shares.min() < 0 or shares.sum() <= 0:
        raise ValueError("weights must not be negative, and at least one must be positive")
    return np.asarray(shares / shares.sum())
