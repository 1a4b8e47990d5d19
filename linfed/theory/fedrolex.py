"""FedRolex on least squares: its limit cycle and the rate of convergence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.averaging.fedrolex import checked_shares, trained_units
from linfed.checks import check_array, check_choice, check_number, check_shape, check_square
from linfed.theory.averaging import SINGULAR, checked_weights, local_maps


def fedrolex_cycle(
    A: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    step_size: float,
    model_share: npt.ArrayLike,
    local_steps: int = 1,
    server_step_size: float = 1.0,
    weights: npt.ArrayLike | None = None,
    aggregation: str = "published",
) -> tuple[Array, float]:
    """Return the limit cycle of FedRolex's one-layer model with full participation, and the convergence rate.

    Parameters
    ----------
    A, b, step_size, local_steps, weights
        As in `fedavg_fixed_point`, for one trial.
    model_share : float or array_like (n,)
        Share beta of the model in (0, 1], one for all clients or one per client.
    server_step_size : float
        Step size eta_s > 0 of the server.
    aggregation : "published" or "zero-filled"
        As in `FedRolex`.

    Returns
    -------
    cycle : ndarray (d, d)
        Row j is theta after a round r with ``r mod d = j``. Windows move by one coordinate in each round, so a cycle
        has d rounds. If the step size is unstable, runs move away from the cycle.
    rate : float
        Factor by which the distance from the cycle falls in a round, on average over d rounds.

    Raises
    ------
    ValueError
        If shapes do not match, A is not symmetric, a value is out of range, or the cycle is not determined because
        the step size is too small or A singular.

    Notes
    -----
    In a round, client i trains its window T_i of ``theta``, with 0 elsewhere. It moves only on T_i, by
    ``-eta Q_i (A_i theta - b_i)`` with A_i restricted to T_i and ``Q_i = sum_{s<K} (I - eta A_i)^s`` for the restricted
    A_i. A round is affine, ``theta <- M_r theta + v_r``, and d rounds together have one fixed point. Directions in
    which no sample has a component in any window stay at their initial value 0. With p of n participants and a common
    share, the result is that of the mean over participants. The cost is O(n d^4).

    **Deviations**: derived here.

    References
    ----------
    Alam, Liu, Yan and Zhang 2022, Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> (A,), (b,) = data.normal_equations()
    >>> cycle, rate = lf.theory.fedrolex_cycle(A, b, step_size=0.1, model_share=0.5)
    >>> cycle.shape, round(rate, 3)
    ((4, 4), 0.964)
    """
    A, b = check_square("A", A, [("n", "d", "d")]), check_array("b", b, [("n", "d")])
    server_step_size = check_number("server_step_size", server_step_size, positive=True)
    step_size = check_number("step_size", step_size, positive=True)
    aggregation = check_choice("aggregation", aggregation, ("published", "zero-filled"))
    check_shape("A", A, (*b.shape, b.shape[1]), "(n, d, d) for b (n, d)")
    n, d = b.shape
    shares = np.asarray(checked_shares("model_share", model_share))
    check_shape("model_share", shares, (n,) if shares.ndim else (), "(n,)")
    shares = np.broadcast_to(shares, (n,))
    parts = checked_weights(weights, n)
    rounds = [
        _round(A, b, trained_units(shares, d, r), parts, step_size, local_steps, aggregation) for r in range(1, d + 1)
    ]
    moved = np.concatenate([G for G, _ in rounds], axis=1)
    if not np.isfinite(moved).all():
        raise ValueError(f"step_size = {step_size:g} with local_steps = {local_steps} diverges: numbers overflow")
    # theta stays in the span U of all possible changes
    directions, sizes, _ = np.linalg.svd(moved)
    U = directions[:, sizes > SINGULAR * sizes.max()]
    matrices = [np.eye(U.shape[1]) - server_step_size * U.T @ G @ U for G, _ in rounds]
    offsets = [server_step_size * h @ U for _, h in rounds]
    whole, offset = np.eye(U.shape[1]), np.zeros(U.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for M, v in zip(matrices, offsets, strict=True):
            whole, offset = M @ whole, M @ offset + v
    if not (np.isfinite(whole).all() and np.isfinite(offset).all()):
        raise ValueError(f"step_size = {step_size:g} with local_steps = {local_steps} diverges: numbers overflow")
    if not U.size:
        raise ValueError("A is 0: all samples are 0, so the model does not move")
    values = np.linalg.eigvals(whole)
    rate = float(np.abs(values).max() ** (1.0 / d))
    if np.abs(values - 1.0).min() < 10.0 * d * np.finfo(float).eps:
        raise ValueError(
            f"step_size = {step_size:g} is too small, or A is singular: a direction does not move within rounding error"
        )
    theta = np.linalg.solve(np.eye(len(whole)) - whole, offset)
    cycle = np.empty((d, d))
    for r, (M, v) in enumerate(zip(matrices, offsets, strict=True), 1):
        theta = M @ theta + v
        cycle[r % d] = U @ theta
    return cycle, rate


def _round(
    A: Array, b: Array, trained: Array, parts: Array, step_size: float, local_steps: int, aggregation: str
) -> tuple[Array, Array]:
    """Return G and h of a round ``theta <- theta - eta_s (G theta - h)``, where `trained` (n, d) is 1 in windows."""
    inside = trained[:, :, None] * trained[:, None, :]
    _, Q, _ = local_maps(A * inside, step_size, local_steps, 0.0, None)
    Q = step_size * Q * inside
    G = (parts[:, None, None] * (Q @ (A * inside))).sum(axis=0)
    h = (parts[:, None, None] * (Q @ b[..., None])).sum(axis=0)[:, 0]
    if aggregation == "published":
        seen = parts @ trained
        scale = np.where(seen > 0, 1.0 / np.where(seen > 0, seen, 1.0), 0.0)
        G, h = scale[:, None] * G, scale * h
    return G, h
