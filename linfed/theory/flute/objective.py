"""FLUTE's objective on data: relative gradient, and the direction in which it is unbounded below."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_broadcast, check_integer, check_number, check_numbers, check_square


def flute_relative_gradient(
    B: npt.ArrayLike,
    W: npt.ArrayLike,
    A: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    gamma1: float = 0.25,
    gamma2: float = 0.125,
    step_ratio: float = 1.0,
) -> Array:
    """Return the norm of the gradient of FLUTE's objective divided by the norm of (B, W), 0 at stationary points.

    Parameters
    ----------
    B, W : array_like (.., d, k) and (.., n, k)
        Factors, for example from ``result.final``, with trials first.
    A, b : array_like (.., n, d, d) and (.., n, d)
        ``X_i'X_i/m_i`` and ``X_i'y_i/m_i``, as `linfed.GivenSamples.normal_equations` returns them.
    gamma1, gamma2 : float
        Weights of the regulariser.
    step_ratio : float
        ``eta_r / eta_l``, with the factor of the data gradient in eta_l (`linfed.FLUTE.step_ratio`).

    Returns
    -------
    ndarray (..,)
        Relative gradient; not finite if B or W is not finite.

    Raises
    ------
    ValueError
        If the shapes differ, gamma1 or gamma2 is negative, or step_ratio is not positive.

    Notes
    -----
    The objective is
    ``sum_i (1/2m_i)||X_i B w_i - y_i||^2 - step_ratio [gamma1 ||B W'||^2 - gamma2 (||B'B||^2 + ||W'W||^2)]``. A round
    of `linfed.FLUTE` is a step along its negative gradient.

    **Deviations**: not in the paper.

    References
    ----------
    FLUTE paper, equations (3) to (6).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> A, b = data.normal_equations()
    >>> truth = problem.truth(0, [0])
    >>> lf.theory.flute_relative_gradient(truth.B[0], truth.W[0], A, b).round(2).item()
    2.03
    """
    gamma1, gamma2 = (check_number(f"gamma{i}", value, minimum=0.0) for i, value in ((1, gamma1), (2, gamma2)))
    step_ratio = check_number("step_ratio", step_ratio, positive=True)
    given = {"B": B, "W": W, "A": A, "b": b}
    B, W, A, b = (check_numbers(name, value, axes=2) for name, value in given.items())
    (n, d), k = b.shape[-2:], B.shape[-1]
    for name, array, shape in (("B", B, (d, k)), ("W", W, (n, k)), ("A", A, (n, d, d))):
        own = array.shape[-len(shape) :]
        if own != shape:
            raise ValueError(f"{name} has shape {array.shape}, but must end with {shape} for b of shape {b.shape}")
    check_broadcast({"B": B[..., 0, 0], "W": W[..., 0, 0], "A": A[..., 0, 0, 0], "b": b[..., 0, 0]})
    with np.errstate(over="ignore", invalid="ignore"):
        g = (A @ (W @ B.mT)[..., None])[..., 0] - b
        grow, shrink = 2.0 * step_ratio * gamma1, 4.0 * step_ratio * gamma2
        by_B = g.mT @ W - B @ (grow * W.mT @ W - shrink * B.mT @ B)
        by_W = g @ B - W @ (grow * B.mT @ B - shrink * W.mT @ W)
        squares = [(part**2).sum(axis=(-2, -1)) for part in (by_B, by_W, B, W)]
        gradient, factors = squares[0] + squares[1], squares[2] + squares[3]
        return np.where(gradient == 0.0, 0.0, np.sqrt(gradient / factors))


def flute_worst_ray(A: npt.ArrayLike, rank: int, *, square: float = 1.0) -> tuple[Array, Array]:
    """Return balanced factors of rank one along which FLUTE's objective on data first becomes unbounded below.

    Parameters
    ----------
    A : array_like (n, d, d) or (trials, n, d, d)
        ``X_i'X_i/m_i``.
    rank : int
        Number k of columns of B and W.
    square : float
        Squared norm ``||B||_F^2 = ||W||_F^2``.

    Returns
    -------
    B, W : ndarray (d, k) and (n, k), or with a leading trial axis
        Factors that are nonzero only for the client whose A_i has the smallest eigenvalue, along its eigenvector. They
        are accepted as ``init`` by `linfed.FLUTE`, for an initialisation far from the origin.

    Raises
    ------
    ValueError
        If shapes do not match or a value is out of range.

    Notes
    -----
    Along these factors the objective rises below `linfed.theory.flute_divergence_threshold` and falls above it.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> A, b = data.normal_equations()
    >>> B, W = lf.theory.flute_worst_ray(A, 2)
    >>> B.shape, W.shape, int((W != 0).any(axis=1).sum())
    ((1, 4, 2), (1, 5, 2), 1)
    """
    A = check_square("A", A, [("n", "d", "d"), ("trials", "n", "d", "d")])
    rank = check_integer("rank", rank, maximum=A.shape[-1])
    length = math.sqrt(check_number("square", square, positive=True))
    stack = A if A.ndim == 4 else A[None]
    eigen = np.linalg.eigh(stack)
    trials, client = np.arange(len(stack)), eigen.eigenvalues[..., 0].argmin(axis=-1)
    B, W = (np.zeros((len(stack), rows, rank)) for rows in (A.shape[-1], A.shape[-3]))
    B[:, :, 0] = length * eigen.eigenvectors[trials, client, :, 0]
    W[trials, client, 0] = length
    return (B, W) if A.ndim == 4 else (B[0], W[0])
