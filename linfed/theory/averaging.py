"""Where federated averaging goes: its fixed point and its exact iteration matrix for quadratic losses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_array, check_integer, check_number, check_shape


def fedavg_fixed_point(
    A: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    step_size: float,
    local_steps: int = 1,
    weights: npt.ArrayLike | None = None,
) -> Array:
    """Return the fixed point of FedAvg on a one-layer model with full participation and fixed data.

    Parameters
    ----------
    A : array_like (n, d, d) or (trials, n, d, d)
        ``A_i = X_i'X_i/m_i``, as `linfed.GivenSamples.normal_equations` returns them.
    b : array_like (n, d) or (trials, n, d)
        ``b_i = X_i'y_i/m_i``.
    step_size : float
        eta > 0, the local step.
    local_steps : int
        K, full-gradient steps in a round.
    weights : array_like (n,), optional
        Weights of the clients; equal by default.

    Returns
    -------
    ndarray (d,) or (trials, d)
        ``(sum_i p_i Q_i A_i)^{-1} sum_i p_i Q_i b_i`` with ``Q_i = eta sum_{s<K} (I - eta A_i)^s``, of minimum norm
        where the matrix is singular: what FedAvg reaches from 0, whatever the server's step, where it converges.

    Raises
    ------
    ValueError
        For shapes that do not fit, or values out of range.

    Notes
    -----
    ``Q_i A_i = I - (I - eta A_i)^K``, and ``Q_i b_i`` is where K local steps lead from 0. With K = 1 it is the pooled
    least squares. Cost O(n K d^2 + n d^3 log K).

    **Deviations**: none.

    References
    ----------
    The fixed point under heterogeneity is known from the analysis of local SGD, e.g. Charles and Konecny 2021.
    """
    contraction, moved, share = _local_maps(A, b, step_size, local_steps, weights)
    matrix = np.eye(contraction.shape[-1]) - (share * contraction).sum(axis=-3)
    target = (share[..., 0] * moved).sum(axis=-2)
    return np.asarray((np.linalg.pinv(matrix, rcond=1e-12) @ target[..., None])[..., 0])


def fedavg_iteration_matrix(
    A: npt.ArrayLike,
    *,
    step_size: float,
    local_steps: int = 1,
    server_step_size: float = 1.0,
    weights: npt.ArrayLike | None = None,
) -> Array:
    """Return the matrix that a round of FedAvg applies to the distance from its fixed point.

    Parameters
    ----------
    A, step_size, local_steps, weights
        As in `fedavg_fixed_point`.
    server_step_size : float
        eta_s > 0.

    Returns
    -------
    ndarray (d, d) or (trials, d, d)
        ``I - eta_s sum_i p_i Q_i A_i``: FedAvg converges where its eigenvalues lie in (-1, 1), at the rate of the
        largest.

    Raises
    ------
    ValueError
        For shapes that do not fit, or values out of range.

    Notes
    -----
    Exact for the one-layer model, full participation and fixed data. Cost O(n d^3 log K).

    **Deviations**: none.

    References
    ----------
    As in `fedavg_fixed_point`.
    """
    server_step_size = check_number("server_step_size", server_step_size, positive=True)
    contraction, _, share = _local_maps(A, None, step_size, local_steps, weights)
    identity = np.eye(contraction.shape[-1])
    return np.asarray(identity - server_step_size * (identity - (share * contraction).sum(axis=-3)))


def _local_maps(
    A: npt.ArrayLike, b: npt.ArrayLike | None, step_size: float, local_steps: int, weights: npt.ArrayLike | None
) -> tuple[Array, Array, Array]:
    """Return ``(I - eta A_i)^K`` (.., n, d, d), ``Q_i b_i`` (.., n, d; zeros without b) and the shares (n, 1, 1)."""
    A = check_array("A", A, [("n", "d", "d"), ("trials", "n", "d", "d")])
    check_shape("A", A, (*A.shape[:-1], A.shape[-2]), "a stack of square matrices")
    step_size = check_number("step_size", step_size, positive=True)
    local_steps = check_integer("local_steps", local_steps)
    n = A.shape[-3]
    shares = np.ones(n) if weights is None else check_array("weights", weights, [("n",)])
    check_shape("weights", shares, (n,), "(n,)")
    if shares.min() < 0 or shares.sum() <= 0:
        raise ValueError("weights must not be negative, and not all zero")
    moved = np.zeros(A.shape[:-1])
    if b is not None:
        b = check_array("b", b, [("n", "d"), ("trials", "n", "d")])
        check_shape("b", b, A.shape[:-1], "A without its last axis")
        for _ in range(local_steps):
            moved = moved - step_size * ((A @ moved[..., None])[..., 0] - b)
    contraction = np.linalg.matrix_power(np.eye(A.shape[-1]) - step_size * A, local_steps)
    return contraction, moved, (shares / shares.sum())[:, None, None]
