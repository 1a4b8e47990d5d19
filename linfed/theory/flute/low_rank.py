"""What a model of rank k can reach on a truth of higher rank: the truncation, FLUTE's minimiser, its floor and edge."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.base import State
from linfed.errors import check_integer, check_number, check_square
from linfed.problems import Truth
from linfed.simulation.metrics import squared_errors
from linfed.theory._laws import check_covariance, check_gaussian


def truncation_error(truth: Truth, rank: int) -> Array:
    """Return the mean client error of the truth's best approximation of rank k.

    Parameters
    ----------
    truth : Truth
        E.g. ``problem.truth(seed, range(trials))``.
    rank : int
        k.

    Returns
    -------
    ndarray (trials,)
        ``(1/n) sum_i ||(Phi_k)_i - phi_i||``, to be compared with ``result.metrics["mean_client_error"]``.

    Notes
    -----
    The truncation is optimal in Frobenius norm; in this unsquared mean it is a reference, not a floor.

    **Deviations**: an addition, a reference line.

    References
    ----------
    FLUTE paper, section 4.1; Eckart and Young 1936.
    """
    cut = truth.truncated(check_integer("rank", rank))
    return np.sqrt(squared_errors(State(B=cut.B, W=cut.W), truth)).mean(axis=-1)


def flute_population_minimiser(
    truth: Truth, rank: int, *, gamma1: float = 0.25, gamma2: float = 0.125, step_ratio: float = 1.0
) -> Truth:
    """Return what FLUTE reaches when every client knows its distribution.

    Parameters
    ----------
    truth : Truth
        Of standard x.
    rank : int
        k.
    gamma1, gamma2 : float
        Weights of the regulariser.
    step_ratio : float
        ``eta_r / eta_l``, with the factor of the data gradient in eta_l (`linfed.FLUTE.step_ratio`).

    Returns
    -------
    Truth
        ``phi_i`` replaced by ``U_k U_k' phi_i / (1 + step_ratio (4 gamma2 - 2 gamma1))``: the top-k directions, their
        singular values scaled. It is the truncation Phi_k iff ``gamma1 = 2 gamma2``.

    Raises
    ------
    ValueError
        Where ``step_ratio (2 gamma1 - 4 gamma2) >= 1``: there is no minimiser, FLUTE diverges.

    Notes
    -----
    At balanced factors with ``B'B = W'W = diag(s)`` the step vanishes iff ``s_j - lambda_j = step_ratio (2 gamma1 - 4
    gamma2) s_j``.

    **Deviations**: an addition; the paper treats ``gamma1 = 2 gamma2``.

    References
    ----------
    FLUTE paper, equations (3) to (6).
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
        ``min_i lambda_min(A_i) / (2 step_ratio)``: 0 where a client has fewer than d samples, 1/2 at population.

    Raises
    ------
    ValueError
        If shapes do not match or a value is out of range.

    Notes
    -----
    ``||B'B||_F^2 + ||W'W||_F^2 >= 2 ||B W'||_F^2`` with equality at balanced factors, so the objective is at least
    ``sum_i [theta_i'A_i theta_i / 2 - step_ratio (gamma1 - 2 gamma2) ||theta_i||^2]`` up to linear terms; and a
    balanced factor of rank one that serves the worst client alone, along its least eigenvector, attains it.

    **Deviations**: an addition; the paper says that the model "usually diverges" for ``gamma1 > 2 gamma2``.

    References
    ----------
    FLUTE paper, Appendix C.1, "Varying gamma1 and gamma2".
    """
    A = check_square("A", A, [("n", "d", "d"), ("trials", "n", "d", "d")])
    step_ratio = check_number("step_ratio", step_ratio, positive=True)
    least = np.linalg.eigvalsh(A)[..., 0].min(axis=-1)
    return np.asarray(np.maximum(least, 0.0) / (2.0 * step_ratio))


def truncation_floor(truth: Truth, rank: int, n_samples: int) -> Array:
    """Return how far the empirical risk's minimiser of rank k lies from the truncation, to first order in 1/m.

    Parameters
    ----------
    truth : Truth
        Of standard Gaussian x, of a rank above or equal to k.
    rank : int
        k.
    n_samples : int
        m of every client.

    Returns
    -------
    ndarray (trials,)
        ``sqrt(E ||B W' - Phi_k||_F^2 / n)`` given the truth: the root mean square over clients, data averaged. The
        metric `mean_truncation_error` is a mean of unsquared norms, at most this.

    Raises
    ------
    ValueError
        Where ``lambda_k = lambda_{k+1}``, or for values out of range.

    Notes
    -----
    A stationary point of the empirical risk is one of the truncation problem for ``Phi + N``. Column i of N is
    ``X_i'xi_i/m - (A_i - I) e_i``, where ``e_i = (Phi_k)_i - phi_i`` is what the model leaves: it has mean 0 and
    covariance ``(tau_i^2 I + e_i e_i')/m`` with ``tau_i^2 = noise_std^2 + ||e_i||^2``. In the truth's singular
    coordinates, for p <= k < q the truncation moves by::

        [p, q]: (lambda_p^2 N_pq + lambda_p lambda_q N_qp) / (lambda_p^2 - lambda_q^2)
        [q, p]: (lambda_p lambda_q N_pq + lambda_p^2 N_qp) / (lambda_p^2 - lambda_q^2)

    and by N itself in the block p, q <= k. In homogeneous noise, and with nothing beyond rank k, this is
    ``tau^2 k (d + n - k) / (n m)``; a pair of close singular values adds ``1 / (lambda_k - lambda_{k+1})^2``.

    **Deviations**: an addition: a prediction without a free parameter, where Theorem 5.1 has an unnamed constant.

    References
    ----------
    FLUTE paper, Theorem 5.1 and Remarks 5.2, 5.3, 5.7; Stewart and Sun 1990 for the perturbation of singular spaces.
    """
    rank, m = check_integer("rank", rank), check_integer("n_samples", n_samples)
    check_gaussian(truth, "the floor requires")
    Phi = truth.dense().mT
    _, d, n = Phi.shape
    least = min(d, n)
    _, spectrum, Vt = np.linalg.svd(Phi, full_matrices=False)
    if rank > least:
        raise ValueError(f"rank = {rank} must be at most min(d, n) = {least}")
    if np.any(spectrum[:, rank - 1] <= 1e-12 * spectrum[:, 0]):
        raise ValueError(f"rank = {rank} must be at most the truth's rank: its singular value lambda_k is 0")
    if rank < least and np.any(spectrum[:, rank - 1] <= spectrum[:, rank] * (1 + 1e-12)):
        raise ValueError(f"rank = {rank}: the truth's singular values lambda_k and lambda_(k+1) coincide")
    shares = np.square(Vt.mT)  # V_iq^2, (T, n, least)
    left = shares * np.square(spectrum)[:, None]  # |u_q'phi_i|^2
    tau2 = truth.noise_std**2 + left[:, :, rank:].sum(axis=-1)
    inside = tau2[:, :, None] * shares
    # E N_pq^2 for p <= k: its rows are outside e_i. E N_qp^2 for p <= k < q: they are along it.
    across = inside.sum(axis=1)  # of column q, (T, least)
    along = shares[:, :, :rank].mT @ (tau2[:, :, None] + left[:, :, rank:])  # (T, k, least - k)
    top, rest = spectrum[:, :rank, None], spectrum[:, None, rank:]
    gain = top**2 * (top**2 + rest**2) / (top**2 - rest**2) ** 2
    total = rank * across[:, :rank].sum(axis=-1)
    total = total + (gain * (across[:, None, rank:] + along)).sum(axis=(-2, -1))
    if d > n:
        total = total + (d - n) * across[:, :rank].sum(axis=-1)
    if n > d:
        total = total + rank * (tau2[:, :, None] * (1.0 / d - shares)).sum(axis=(-2, -1))
    return np.sqrt(total / (n * m))
