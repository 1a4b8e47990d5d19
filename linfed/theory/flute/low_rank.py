"""Rank-k models on ground truths of higher rank: truncation, FLUTE's minimiser, its floor and divergence threshold."""

from __future__ import annotations

import math
import warnings

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.parts.base import State
from linfed.checks import check_array, check_integer, check_number, check_square, short_repr
from linfed.problems import Truth
from linfed.simulation.metrics import squared_errors
from linfed.theory._assumptions import check_covariance, check_gaussian, check_truth

LARGEST_NOISE = 0.1
"""Largest feedback of the distance to the noise of a round for which the floor on fresh samples holds."""

LARGEST_SWING, LARGEST_MOVE = 2.0, 1.5
"""Largest sizes for which the floor on fresh samples holds: standard deviation of a singular direction in units of
lambda_1 (1 - eta lambda_1), and floor as a Frobenius norm in units of lambda_1."""


def truncation_error(truth: Truth, rank: int) -> Array:
    """Return the mean client error of the best rank-k approximation of the ground truth.

    Parameters
    ----------
    truth : Truth
        Ground truth, for example ``problem.truth(seed, range(trials))``.
    rank : int
        Rank k of the approximation.

    Returns
    -------
    ndarray (trials,)
        ``(1/n) sum_i ||(Phi_k)_i - phi_i||``, to be compared with ``result.metrics["mean_client_error"]``.

    Notes
    -----
    The truncation is optimal in Frobenius norm. For this mean of unsquared norms it is a reference and not a lower
    bound.

    **Deviations**: not in the paper.

    References
    ----------
    FLUTE paper, section 4.1; Eckart and Young 1936.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=50, dim=8, spectrum=[6, 5, 2, 1])
    >>> truth = problem.truth(0, range(2))
    >>> lf.theory.truncation_error(truth, 2).round(3)
    array([0.273, 0.275])
    """
    check_truth(truth)
    cut = truth.truncated(check_integer("rank", rank))
    return np.sqrt(squared_errors(State(B=cut.B, W=cut.W), truth)).mean(axis=-1)


def flute_population_minimizer(
    truth: Truth, rank: int, *, gamma1: float = 0.25, gamma2: float = 0.125, step_ratio: float = 1.0
) -> Truth:
    """Return the minimiser of FLUTE's objective at population, the limit of many samples per client.

    Parameters
    ----------
    truth : Truth
        Ground truth with isotropic x of variance 1.
    rank : int
        Rank k of the model.
    gamma1, gamma2 : float
        Weights of the regulariser.
    step_ratio : float
        ``eta_r / eta_l``, with the factor of the data gradient in eta_l (`linfed.FLUTE.step_ratio`).

    Returns
    -------
    Truth
        ``phi_i`` replaced by ``U_k U_k' phi_i / (1 + step_ratio (4 gamma2 - 2 gamma1))``. This keeps the top-k
        directions and rescales their singular values. It is the truncation Phi_k if and only if ``gamma1 = 2 gamma2``.

    Raises
    ------
    ValueError
        If ``step_ratio (2 gamma1 - 4 gamma2) >= 1``. There is then no minimiser, and FLUTE diverges.

    Notes
    -----
    At balanced factors with ``B'B = W'W = diag(s)`` the step vanishes if and only if
    ``s_j - lambda_j = step_ratio (2 gamma1 - 4 gamma2) s_j``.

    **Deviations**: not in the paper, which treats ``gamma1 = 2 gamma2``.

    References
    ----------
    FLUTE paper, equations (3) to (6).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=50, dim=8, spectrum=[6, 5, 2, 1])
    >>> truth = problem.truth(0, range(2))
    >>> minimiser = lf.theory.flute_population_minimizer(truth, 2, gamma1=0.2, gamma2=0.125)
    >>> minimiser.W.shape
    (2, 50, 2)
    """
    gamma1 = check_number("gamma1", gamma1, minimum=0.0)
    gamma2 = check_number("gamma2", gamma2, minimum=0.0)
    check_covariance(truth, "the minimiser requires")
    step_ratio = check_number("step_ratio", step_ratio, minimum=0.0)
    scale = 1.0 + step_ratio * (4.0 * gamma2 - 2.0 * gamma1)
    if scale <= 0:
        raise ValueError(
            f"gamma1 = {gamma1:g}, gamma2 = {gamma2:g} with step_ratio = {step_ratio:g} have no minimiser: step_ratio "
            "(2 gamma1 - 4 gamma2) must be below 1"
        )
    cut = truth.truncated(check_integer("rank", rank))
    assert cut.W is not None
    return Truth(B=cut.B, W=cut.W / scale, noise_std=truth.noise_std, design=truth.design)


def flute_divergence_threshold(A: npt.ArrayLike, *, step_ratio: float = 1.0) -> Array:
    """Return the excess ``gamma1 - 2 gamma2`` above which FLUTE's objective on data is unbounded below.

    Parameters
    ----------
    A : array_like (n, d, d) or (trials, n, d, d)
        ``A_i = X_i'X_i/m_i``, as `linfed.GivenSamples.normal_equations` returns them.
    step_ratio : float
        ``eta_r / eta_l``, with the factor of the data gradient in eta_l (`linfed.FLUTE.step_ratio`).

    Returns
    -------
    ndarray () or (trials,)
        ``min_i lambda_min(A_i) / (2 step_ratio)``. This is 0 if a client has fewer than d samples, and 1/2 at
        population with ``step_ratio = 1``.

    Raises
    ------
    ValueError
        If shapes do not match or a value is out of range.

    Notes
    -----
    ``||B'B||_F^2 + ||W'W||_F^2 >= 2 ||B W'||_F^2``, with equality at balanced factors. The objective is therefore at
    least ``sum_i [theta_i'A_i theta_i / 2 - step_ratio (gamma1 - 2 gamma2) ||theta_i||^2]`` up to linear terms.
    Balanced factors of rank one that are nonzero only for the worst client, along the eigenvector of its smallest
    eigenvalue, attain it.

    **Deviations**: not in the paper, which states that the model "usually diverges" for ``gamma1 > 2 gamma2``.

    References
    ----------
    FLUTE paper, Appendix C.1, "Varying gamma1 and gamma2".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> A, b = data.normal_equations()
    >>> lf.theory.flute_divergence_threshold(A).round(3).item()
    0.162
    """
    A = check_square("A", A, [("n", "d", "d"), ("trials", "n", "d", "d")])
    step_ratio = check_number("step_ratio", step_ratio, positive=True)
    least = np.linalg.eigvalsh(A)[..., 0].min(axis=-1)
    return np.asarray(np.maximum(least, 0.0) / (2.0 * step_ratio))


def truncation_floor(truth: Truth, rank: int, n_samples: int, *, step_size: float | None = None) -> Array:
    """Predict FLUTE's final distance from the truncation, on one data set or on fresh samples, to first order in 1/m.

    Parameters
    ----------
    truth : Truth
        Ground truth of rank at least k, with standard Gaussian x.
    rank : int
        Rank k of the model.
    n_samples : int
        Number m of samples per client, on fresh samples per client and round.
    step_size : float, optional
        Step size eta of FLUTE on fresh samples in every round, below ``1 / lambda_1``. By default there is one data
        set, and the result is the distance of the rank-k minimiser of the empirical risk.

    Returns
    -------
    ndarray (trials,)
        ``sqrt(E ||B W' - Phi_k||_F^2 / n)`` for the given ground truth: the root mean square over clients and data. The
        metric `mean_truncation_error` is a mean of unsquared norms and at most this value.

    Raises
    ------
    ValueError
        If ``lambda_k = lambda_{k+1}``, or if a value is out of range.

    Warns
    -----
    RuntimeWarning
        If the noise of a round on fresh samples depends on the distance itself: if
        ``eta lambda_1 ((d + k + 1) max_i ||v_i||^2 + k) / (2 m) * lambda_k^2 / (lambda_k^2 - lambda_{k+1}^2)`` exceeds
        0.1. Here v_i (k,) is client i's row of the right singular vectors. The floor is then higher. Also if the noise
        is large for a step size near ``1 / lambda_1``: the p-th row of ``U'T V`` has a standard deviation above
        ``2 lambda_1 (1 - eta lambda_1)`` for some p <= k. Also if the distance in Frobenius norm is above
        ``1.5 lambda_1``. In both cases the floor is lower, or runs diverge.

    Notes
    -----
    A stationary point of the empirical risk is a stationary point of the truncation problem for ``Phi + N``. Column i
    of N is ``X_i'xi_i/m - (A_i - I) e_i`` with the residual ``e_i = (Phi_k)_i - phi_i`` of the model. It has mean 0 and
    covariance ``(tau_i^2 I + e_i e_i')/m`` with ``tau_i^2 = noise_std^2 + ||e_i||^2``. In the singular coordinates of
    the ground truth, for p <= k < q, the truncation changes by::

        [p, q]: (lambda_p^2 N_pq + lambda_p lambda_q N_qp) / (lambda_p^2 - lambda_q^2)
        [q, p]: (lambda_p lambda_q N_pq + lambda_p^2 N_qp) / (lambda_p^2 - lambda_q^2)

    and by N in the block p, q <= k. With homogeneous noise and a ground truth of rank k, the square of the result is
    ``tau^2 k (d + n - k) / (n m)``. If lambda_k and lambda_{k+1} are close, it grows like
    ``1 / (lambda_k - lambda_{k+1})^2``.

    For one data set the result was compared with runs to the minimiser in 210 settings. Let ``q = k + 1 + (d - k)
    max_i ||v_i||^2``, where v_i (k,) is client i's row of the right singular vectors, and s the result times ``sqrt(n)
    lambda_k / (lambda_k^2 - lambda_{k+1}^2)``. For ``q <= m/8`` and ``s <= 1`` it is within 10 %, mostly too low. Runs
    are at about 1.2 times the result for ``q = m/3`` and at 1.4 times for ``q = m/2``.

    On fresh samples N is new in every round. The change T of B W' then follows, near the truncation::

        [p, p']: T <- T - r (T - N),   r = eta (lambda_p + lambda_p')
        [q, p] and [p, q]: T_qp +- T_pq <- (1 - eta (lambda_p -+ lambda_q)) (T_qp +- T_pq) + eta lambda_p (N_qp +- N_pq)

    The result is the root mean square of its stationary distribution. It grows like ``sqrt(eta)``, whereas the average
    over rounds has the distance of one data set. Near ``eta = 1 / lambda_1``, T changes its sign in every round, and
    the terms of second order in T damp it. It was compared with runs in 90 settings with eta from ``0.3 / lambda_1`` to
    ``0.98 / lambda_1``. Without a warning, the result was between 5 % too high and 4 % too low; with one, up to 70 %
    too high.

    **Deviations**: a prediction without fitted parameters. Theorem 5.1 of the paper has an unspecified constant, and
    the floor on fresh samples is not in the paper.

    References
    ----------
    FLUTE paper, Theorem 5.1 and Remarks 5.2, 5.3, 5.7; Stewart and Sun 1990 for the perturbation of singular spaces.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=50, dim=8, spectrum=[6, 5, 2, 1])
    >>> truth = problem.truth(0, range(2))
    >>> lf.theory.truncation_floor(truth, 2, n_samples=100).round(3)
    array([0.049, 0.048])
    >>> lf.theory.truncation_floor(truth, 2, n_samples=100, step_size=0.01).round(3)
    array([0.008, 0.008])
    """
    m = check_integer("n_samples", n_samples)
    U, spectrum, Vt = singular_factors(truth, rank, "the floor requires")
    d, n = U.shape[-2], Vt.shape[-1]
    shares = np.square(Vt.mT)  # V_iq^2, (T, n, least)
    left = shares * np.square(spectrum)[:, None]  # |u_q'phi_i|^2
    tau2 = np.square(truth.noise_std) + left[:, :, rank:].sum(axis=-1)
    inside = tau2[:, :, None] * shares
    # E N_pq^2 for p <= k, with rows orthogonal to e_i; E N_qp^2 for p <= k < q, with rows along e_i.
    across = inside.sum(axis=1)  # column q, (T, least)
    along = shares[:, :, :rank].mT @ (tau2[:, :, None] + left[:, :, rank:])  # (T, k, least - k)
    inner, pair, alone = _gains(spectrum, rank, step_size)
    if step_size is not None:
        _check_noise(spectrum, shares[:, :, :rank], step_size / m, d)
        rows = (inner * across[:, None, :rank]).sum(axis=-1).max(axis=-1) / m
        top = spectrum[:, 0]
        swing = np.sqrt(rows) / (top * (1.0 - step_size * top))
    total = (inner * across[:, None, :rank]).sum(axis=(-2, -1))
    total = total + (pair * (across[:, None, rank:] + along)).sum(axis=(-2, -1))
    if d > n:
        total = total + (d - n) * (alone * across[:, :rank]).sum(axis=-1)
    if n > d:
        total = total + alone.sum(axis=-1) * (tau2[:, :, None] * (1.0 / d - shares)).sum(axis=(-2, -1))
    if step_size is not None:
        move, share = np.sqrt(total / m) / top, step_size * float(top.max())
        if np.any(swing > LARGEST_SWING) or np.any(move > LARGEST_MOVE):
            warnings.warn(
                f"the floor on fresh samples is too high, or runs diverge. At step_size = {share:.2g} / lambda_1 the "
                f"noise moves the model by {float(swing.max()):.2g} times its linear range, above {LARGEST_SWING:g}, "
                f"or by {float(move.max()):.2g} lambda_1, above {LARGEST_MOVE:g}; lower the step size or give more "
                "samples",
                RuntimeWarning,
                stacklevel=2,
            )
    return np.sqrt(total / (n * m))


def singular_factors(truth: Truth, rank: int, requirement: str) -> tuple[Array, Array, Array]:
    """Return the reduced SVD of Phi (d, n) for standard Gaussian x, or raise without a gap after lambda_k."""
    check_gaussian(truth, requirement)
    rank = check_integer("rank", rank)
    U, spectrum, Vt = np.linalg.svd(truth.dense().mT, full_matrices=False)
    least = spectrum.shape[-1]
    if rank > least:
        raise ValueError(f"rank = {rank} must be at most min(d, n) = {least}")
    if np.any(spectrum[:, rank - 1] <= 1e-12 * spectrum[:, 0]):
        raise ValueError(f"rank = {rank} must be at most the rank of the ground truth, whose lambda_k is 0")
    if rank < least and np.any(spectrum[:, rank - 1] <= spectrum[:, rank] * (1 + 1e-12)):
        raise ValueError(f"rank = {rank} is not supported: the singular values lambda_k and lambda_(k+1) coincide")
    return U, spectrum, Vt


def _gains(spectrum: Array, rank: int, step_size: float | None) -> tuple[Array, Array, Array]:
    """Return the variance of the change of B W' divided by the variance of the noise.

    The parts are the block p, p' <= k, (trials, k, k), the pairs p <= k < q, (trials, k, least - k), and the rows or
    columns without a singular value, (trials, k).
    """
    top, rest = spectrum[:, :rank, None], spectrum[:, None, rank:]
    if step_size is None:
        pair = top**2 * (top**2 + rest**2) / (top**2 - rest**2) ** 2
        return np.ones((len(spectrum), rank, rank)), pair, np.ones((len(spectrum), rank))
    step_size = check_number("step_size", step_size, positive=True)
    largest = float(spectrum[:, 0].max())
    if step_size * largest >= 1.0:
        raise ValueError(
            f"step_size = {step_size:g} must be below 1 / lambda_1 = {1.0 / largest:g}, above which runs diverge"
        )
    inner = step_size * (top + top.mT)
    slow, fast = step_size * (top - rest), step_size * (top + rest)
    pair = 0.5 * (step_size * top) ** 2 * (1.0 / (slow * (2.0 - slow)) + 1.0 / (fast * (2.0 - fast)))
    alone = step_size * spectrum[:, :rank]
    return inner / (2.0 - inner), pair, alone / (2.0 - alone)


def _check_noise(spectrum: Array, shares: Array, step: float, dim: int) -> None:
    """Warn if the noise of a round depends on the distance from the truncation; `step` is ``eta / m``."""
    rank, least = shares.shape[-1], spectrum.shape[-1]
    top, following = spectrum[:, rank - 1] ** 2, spectrum[:, rank] ** 2 if rank < least else 0.0
    longest = shares.sum(axis=-1).max(axis=-1)
    index = 0.5 * step * spectrum[:, 0] * ((dim + rank + 1) * longest + rank) * top / (top - following)
    if np.any(index > LARGEST_NOISE):
        warnings.warn(
            "the floor on fresh samples is too low: the distance feeds back to the noise by a factor of up to "
            f"{float(index.max()):.2g}, above {LARGEST_NOISE:g}; lower the step size or give more samples",
            RuntimeWarning,
            stacklevel=3,
        )


def average_direction_distance(values: npt.ArrayLike, power: float) -> float:
    """Return the distance between u_1 and the average of the clients' models, each divided by a power of its length.

    Parameters
    ----------
    values : array_like (M,)
        Singular values ``lambda_1 >= lambda_2 >= ..``: client i has the model ``lambda_i u_i``, the u_i orthonormal.
    power : float
        p: client i's model is divided by ``lambda_i^p``.

    Returns
    -------
    float
        ``sqrt(1 - cos^2)`` with ``cos^2 = lambda_1^(2-2p) / sum_i lambda_i^(2-2p)``.

    Raises
    ------
    ValueError
        If the values are not positive and in descending order.

    Notes
    -----
    It is ``sqrt(1 - 1/M)`` for p = 1, whatever the values.

    **Deviations**: none.

    References
    ----------
    FLUTE paper, Example 1.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.theory.average_direction_distance([1.0, 0.5, 0.25, 0.125], power=1.0) == 0.75**0.5
    True
    """
    singular = check_array("values", values, [("M",)])
    if singular.min() <= 0.0 or (np.diff(singular) > 0.0).any():
        raise ValueError(f"values = {short_repr(values)} must be positive and in descending order")
    weights = (singular / singular[0]) ** (2.0 - 2.0 * check_number("power", power))
    return math.sqrt(float(weights[1:].sum() / weights.sum()))  # 1 - cos^2 would cancel
