"""FedRep on fixed samples: the minimum of the empirical risk, the risk of clients, and the samples needed."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_integer, check_noise_std, check_number, check_shape
from linfed.theory.fedrep.arguments import checked_sizes
from linfed.theory.fedrep.fixed_samples.cavity import ClientDraws, overlap, typical_mean
from linfed.theory.fedrep.fixed_samples.largest_angle import mean_distance

STEEP = 0.4
"""Tangent of the largest angle above which predictions of first order are not accurate."""

UNSTABLE = 0.9
"""Replicon radius above which the prediction is not accurate."""


class Tangents:
    """Base class of predictions whose tangents D have the covariance ``C = E D'D``, (k, k) or (trials, k, k)."""

    covariance: Array

    def outside(self, W: npt.ArrayLike) -> Array:
        """Return the root mean square length of each client's regressor outside the span of the estimate.

        Parameters
        ----------
        W : array_like (n, k) or (trials, n, k)
            Heads in the coordinates of B*, of training clients or new clients.

        Returns
        -------
        ndarray (n,) or (trials, n)
            ``sqrt(w'C (I + C)^{-1} w)``. `new_client_mean_risk` accepts these lengths; the risk is linear in their
            squares.
        """
        heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
        shape = (*heads.shape[:-1], self.covariance.shape[-1])
        check_shape("W", heads, shape, "(.., n, k) of the floor's rank")
        return np.asarray(np.sqrt(_quadratic(heads, _filtered(self.covariance))))


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedSampleFloor(Tangents):
    """Minimum of the empirical risk near B*, as predicted by `fixed_sample_floor`.

    Parameters
    ----------
    covariance : ndarray (k, k) or (trials, k, k)
        ``C = E D'D`` of the tangents D. The minimum is the span of ``B* + U D``, where U is a basis of the orthogonal
        complement of B*.
    distance : ndarray () or (trials,)
        Mean sine of the largest principal angle between the minimum and B*.
    empirical_risk : ndarray () or (trials,)
        Mean of ``||X_i B w_i - y_i||^2/(2m)`` at the minimum.
    risk : ndarray () or (trials,)
        Median over data sets of the mean risk of the n training clients, with their heads of the minimum.
    drawn_risks : ndarray (draws,) or (trials, draws)
        Risks of training clients for fixed draws of their samples. Their quantiles are quantiles of the risk over
        clients and data sets. This distribution has no mean, since V is positive.
    leverage : ndarray (k, k) or (trials, k, k)
        Matrix ``N^{-1} V N^{-1}`` of the Notes. The residuals of a client with the head w of the minimum, in the basis
        ``B* + U D``, are smaller by the factor ``1/(1 + w' leverage w)`` than at the minimum without its samples.
    replicon : ndarray () or (trials,)
        Spectral radius rho. The equations are stable below 1.

    Examples
    --------
    >>> import linfed as lf
    >>> W = lf.SharedRepresentation(n_clients=60, dim=40, rank=3, condition_number=1.0).truth(0, [0]).W[0]
    >>> floor = lf.theory.fixed_sample_floor(W, dim=40, n_samples=20, noise_std=0.3)
    >>> floor.covariance.shape, floor.drawn_risks.shape, floor.outside(W).shape
    ((3, 3), (4140,), (60,))
    >>> bool(0 < floor.replicon < 0.2)
    True
    """

    covariance: Array
    distance: Array
    empirical_risk: Array
    risk: Array
    drawn_risks: Array = field(repr=False)
    leverage: Array = field(repr=False)
    replicon: Array


def fixed_sample_floor(W: npt.ArrayLike, *, dim: int, n_samples: int, noise_std: float) -> FixedSampleFloor:
    r"""Predict the minimum of the empirical risk near B*, to which FedRep with exact heads converges on fixed samples.

    Parameters
    ----------
    W : array_like (n, k) or (trials, n, k)
        True heads of all clients, in the coordinates of the orthonormal B*; they must span R^k.
    dim : int
        Ambient dimension d >= 2k.
    n_samples : int
        Number m >= k + 2 of standard Gaussian samples per client.
    noise_std : float
        Standard deviation of the label noise, in units of y.

    Returns
    -------
    FixedSampleFloor
        With a trial axis if W has one. If the equations have no solution, the values are NaN and a RuntimeWarning is
        issued.

    Raises
    ------
    ValueError
        If shapes do not match, if values are out of range, or if the heads do not span R^k. (With at most k
        clients B can represent any predictors, and each client converges to its own least squares, `local_mean_risk`.)

    Warns
    -----
    RuntimeWarning
        Without a solution, or if the replicon radius is above 0.9.

    Notes
    -----
    The equations hold for fixed k, m and ``r = (d - k)/n`` as d grows. Let B be the minimum without client i, with
    orthonormal columns, a symmetric ``N = B*'B`` and ``C = I - N'N``. Its features ``Z = X_i B`` are standard Gaussian,
    and ``y = Z a + t v`` with ``a = N w_i``, ``t^2 = w_i'C w_i + sigma^2`` and v standard Gaussian. The samples of
    client i move B in proportion to V. So its head is the total least squares of y on Z: it minimises
    ``||y - Z w||^2/(1 + w'V w)``. Let ``lam_0 <= ... <= lam_k`` be the generalised eigenvalues of ``(Z, y)'(Z, y)``
    and ``diag(V, 1)``, u_j the first k entries of their normalised eigenvectors, and ``e = u_0``. With means over
    clients and samples,

    .. math::

        J &= \operatorname{mean} \Bigl[ (m-k) e e^\top
            - \sum_{j \ge 1} \frac{\lambda_0}{\lambda_j - \lambda_0} (e e^\top + u_j u_j^\top) \Bigr], \quad
            P = \operatorname{mean} [\lambda_0 e e^\top] \\
        V &= r J^{-1}, \qquad C = r J^{-1} P J^{-1}

    The tangents have the covariance ``N^{-1} C N^{-1}``. To first order in ``g = (d-k) k/(n (m-k))`` this is
    `similar_floor` without parts outside. The means are over at least 4,096 fixed draws, with an error of about 0.3 %
    of the distance, and 1 % at m = k + 2.

    The replicon radius is the spectral radius of ``Q -> (1/r) mean sum_ab H_ab Q H_ab'``, where H is the Hessian of
    ``lam_0/2`` with respect to the rows of Z, in coordinates with V = I. Without noise, and for heads of equal length
    with ``mean_i w_i w_i' = I``, it is g. Above 1 the solution is unstable, and far above 1 the minima that were
    measured are nearer to B* than the solution.

    At m <= k + 4 the mean risk of training clients depends on single clients; compare quantiles. With fewer than about
    10 k clients, distances up to 8 % below the predicted ones were measured. The argument is heuristic (a cavity, or
    replica symmetric, argument).

    **Deviations**: derived here.

    References
    ----------
    Tripuraneni, Jin and Jordan 2021; Thekumparampil et al. 2021, for the rate, without constants. Golub and Van Loan
    1980, for total least squares; Mezard and Montanari 2009, for the method.

    Examples
    --------
    >>> import linfed as lf
    >>> W = lf.SharedRepresentation(n_clients=60, dim=40, rank=3, condition_number=1.0).truth(0, [0]).W[0]
    >>> floor = lf.theory.fixed_sample_floor(W, dim=40, n_samples=20, noise_std=0.3)
    >>> round(float(floor.distance), 3), round(float(floor.risk), 3)
    (0.071, 0.06)
    """
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    (n, k), variance = heads.shape[-2:], check_noise_std(noise_std) ** 2
    d, m, _ = checked_sizes(dim, k, n, n_samples, None)
    if np.linalg.matrix_rank(heads.mT @ heads / n, hermitian=True).min() < k:
        raise ValueError(f"W of shape {heads.shape} must span R^k, k = {k}; otherwise B* is not determined")
    parts = [_minimum(one, d, m, variance) for one in heads.reshape(-1, n, k)]
    values = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    if heads.ndim == 2:
        values = {name: value[0] for name, value in values.items()}
    found = FixedSampleFloor(**values)
    _warn(found)
    return found


def _minimum(W: Array, d: int, m: int, variance: float) -> dict[str, Array]:
    """Return the fields of a `FixedSampleFloor` of one trial."""
    k = W.shape[1]
    clients = ClientDraws(W, n_samples=m, unknowns=(d - k) / len(W), variance=variance)
    V, C = clients.minimum()
    if np.isnan(V).any():
        shapes = {"covariance": (k, k), "distance": (), "empirical_risk": (), "risk": ()}
        shapes |= {"drawn_risks": (len(clients.heads),), "leverage": (k, k), "replicon": ()}
        return {name: np.full(shape, np.nan) for name, shape in shapes.items()}
    solved, inverse = clients.solve(V, C), np.linalg.inv(overlap(C))
    errors, new = clients.training(solved, C)
    distinct, mean = min(len(W), len(errors)), 0.0
    if m > k + 4:  # the errors of new clients have small tails: their exact mean reduces the noise
        length = np.mean(_quadratic(W, C))
        mean = float(length + (length + variance) * k / (m - k - 1))
    typical = mean + typical_mean((errors - new if m > k + 4 else errors).reshape(distinct, -1), distinct)
    tangents, leverage = (inverse @ part @ inverse for part in (C, V))
    return {
        "covariance": tangents,
        "distance": mean_distance(tangents, d - k),
        "empirical_risk": np.array(0.5 * np.mean(solved.least * solved.last**2) / m),
        "risk": np.array(0.5 * (typical + variance)),
        "drawn_risks": 0.5 * (errors + variance),
        "leverage": leverage,
        "replicon": np.array(clients.replicon(solved)),
    }


def fixed_samples_needed(
    step_size: float, *, dim: int, rank: int, n_clients: int, n_rounds: int, delta: float, level: float
) -> float:
    """Predict the number of fixed samples with which noiseless FedRep decreases the distance to a level.

    The result holds for exact heads and one fixed data set of standard Gaussian samples per client.

    Parameters
    ----------
    step_size : float
        eta > 0 of the update of B.
    dim, rank, n_clients : int
        d > k, k and n.
    n_rounds : int
        T, at least 1.
    delta, level : float
        Initial subspace distance, and the one after the rounds, ``0 < level < delta < 1``.

    Returns
    -------
    float
        The smallest number m > k of samples per client, not rounded. It is infinite if no m up to 1e6 suffices for the
        rounds, and k if k + 0.01 does. Above step size 2 larger numbers need not suffice.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``. The tangents of the angles are ``(d-k) k`` numbers.
    A round multiplies their component along each eigenvector of the Gram matrix of ``n (m-k)`` vectors ``x (x) w_i``
    by ``1 - eta c l``, where l is the eigenvalue and ``c = 1 - k/m``. The eigenvalues have the Marchenko-Pastur
    distribution of ratio ``(d-k) k/(n (m-k))``.

    **Deviations**: not in the paper.

    References
    ----------
    Marchenko and Pastur 1967.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 60, "rank": 2, "n_clients": 20, "n_rounds": 100}
    >>> round(lf.theory.fixed_samples_needed(0.25, delta=0.9, level=0.01, **sizes), 2)
    16.65
    """
    from scipy import optimize, special

    eta = check_number("step_size", step_size, positive=True)
    k = check_integer("rank", rank)
    d, n = check_integer("dim", dim, minimum=k + 1), check_integer("n_clients", n_clients, minimum=k)
    n_rounds = check_integer("n_rounds", n_rounds)
    delta, level = (check_number(name, value, positive=True) for name, value in (("delta", delta), ("level", level)))
    if not level < delta < 1.0:
        raise ValueError(f"level = {level:g} must be below delta = {delta:g}, and delta below 1")

    def log_tangent(m: float) -> float:
        ratio = (d - k) * k / (n * (m - k))
        angles = (np.arange(2000) + 0.5) * np.pi / 2000
        values = 1.0 + ratio + 2.0 * math.sqrt(ratio) * np.cos(angles)
        weights = 4.0 * ratio * np.sin(angles) ** 2 / (4000 * ratio * values)
        with np.errstate(divide="ignore"):  # the step that removes a direction at once
            shrunk = 2 * n_rounds * np.log(np.abs(1.0 - eta * (1.0 - k / m) * values))
            rest = np.log(max(0.0, 1.0 - 1.0 / ratio))
        return 0.5 * float(special.logsumexp(np.append(np.log(weights) + shrunk, rest)))

    aim = math.log(level / math.sqrt(1 - level**2) * math.sqrt(1 - delta**2) / delta)

    def excess(m: float) -> float:
        return log_tangent(m) - aim

    tried = k + np.geomspace(0.01, 1e6, 161)  # the excess need not fall: with a large step, many samples diverge
    above = None
    for m in tried.tolist():
        if excess(m) < 0:
            return float(k) if above is None else float(optimize.brentq(excess, above, m))
        above = m
    return math.inf


def _filtered(C: Array) -> Array:
    """Return ``C (I + C)^{-1}``."""
    eye = np.eye(C.shape[-1])
    good = np.isfinite(C).all(axis=(-2, -1), keepdims=True)
    return np.asarray(np.where(good, np.linalg.solve(eye + np.where(good, C, 0.0), np.where(good, C, 0.0)), np.nan))


def _quadratic(W: Array, A: Array) -> Array:
    """Return ``w_i'A w_i``, (.., n)."""
    return np.asarray(np.vecdot(W @ A, W))


def _warn(found: FixedSampleFloor) -> None:
    """Warn without a solution, or if the prediction is not accurate."""
    lost, unstable = np.isnan(found.distance), found.replicon > UNSTABLE
    message = ""
    if lost.any():
        where = "" if lost.ndim == 0 else f" in {lost.sum()} of {lost.size} trials"
        message = (
            f"the equations of a minimum near B* have no solution{where}: too few samples or clients for this noise"
        )
    elif unstable.any():
        message = (
            f"the replicon radius is {float(np.max(found.replicon)):.2g}: above {UNSTABLE} the prediction is inaccurate"
        )
    if message:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
