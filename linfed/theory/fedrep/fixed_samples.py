"""FedRep on fixed samples: the minimum of the empirical risk, the risk of clients, and the samples needed."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import optimize

from linfed._types import Array
from linfed.errors import check_array, check_bool, check_integer, check_noise_std, check_number, check_shape
from linfed.theory.fedrep.arguments import checked_sizes
from linfed.theory.fedrep.largest_angle import mean_distance

ITERATIONS, TOLERANCE = 20_000, 1e-12
"""Largest number of fixed-point iterations, and the relative change below which they have converged."""

STEEP = 0.4
"""Tangent of the largest angle above which the prediction is not accurate."""


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
        return np.asarray(np.sqrt(_quadratic(heads, _shrunk(self.covariance))))


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
    risk : ndarray (n,) or (trials, n)
        Mean risk of each training client, with its head of the minimum; infinite for noisy labels at m <= k + 3.
    leverage : ndarray (k, k) or (trials, k, k)
        Matrix ``V``. The residuals of a client are smaller by the factor ``1/(1 + w'V w)`` than at the minimum computed
        without its samples.

    Examples
    --------
    >>> import linfed as lf
    >>> W = lf.SharedRepresentation(n_clients=60, dim=40, rank=3, condition_number=1.0).truth(0, [0]).W[0]
    >>> floor = lf.theory.fixed_sample_floor(W, dim=40, n_samples=20, noise_std=0.3)
    >>> floor.covariance.shape, floor.risk.shape, floor.outside(W).shape
    ((3, 3), (60,), (60,))
    """

    covariance: Array
    distance: Array
    risk: Array
    leverage: Array = field(repr=False)


def fixed_sample_floor(
    W: npt.ArrayLike, *, dim: int, n_samples: int, noise_std: float, first_order: bool = False
) -> FixedSampleFloor:
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
    first_order : bool, default False
        If True, compute only the leading order for many clients, which has a closed form.

    Returns
    -------
    FixedSampleFloor
        With a trial axis if W has one. If the equations have no solution, the values are NaN and a RuntimeWarning is
        issued. With noise, there are solutions beyond the edge of `fixed_sample_edge`, whose equations do not contain
        the distribution of a head's error.

    Raises
    ------
    ValueError
        If shapes do not match, if values are out of range, or if the heads do not span R^k. With fewer than k clients
        any predictors are possible, and each client converges to its own least squares (`local_mean_risk`).

    Warns
    -----
    RuntimeWarning
        If there is no solution, or if the prediction is not accurate: for a tangent of the angle above 0.4, and for m =
        k + 2 with ``sigma^2/(m-k-1) > 2``.

    Notes
    -----
    With ``nu = m - k - 1``, ``Gamma = mean_i w_i w_i'`` and ``g = (d-k) k/(n (m-k))``, D has d - k independent Gaussian
    rows of covariance C/(d-k). To first order, for g << 1:

    .. math::

        C = \frac{d-k}{n (m-k)} \Gamma^{-1} \bigl( \sigma^2 \Gamma + \tfrac{\sigma^4}{\nu} I \bigr) \Gamma^{-1}

    D solves a regression with ``n (m-k)`` samples ``v w_i'`` and k (d-k) unknowns. Without v in the fit (leave one
    out), the residual of v is longer by the factor ``1 + w'V w`` and has variance ``T = sigma^2 + w'C w``. The error of
    the head has covariance ``T/nu I``:

    .. math::

        V &= \frac{d-k}{n (m-k)} J^{-1}, \quad J = \operatorname{mean}_i \frac{w_i w_i^\top}{1 + w_i^\top V w_i},
            \quad T_i = \sigma^2 + w_i^\top C w_i \\
        C &= \frac{d-k}{n (m-k)} J^{-1} \operatorname{mean}_i
            \Bigl[ \frac{T_i (w_i w_i^\top + T_i I / \nu)}{(1 + w_i^\top V w_i)^2} \Bigr] J^{-1}

    The iteration starts at 0. V and C can only grow from there, up to the smallest solution. For Gamma = I and heads of
    length sqrt(k), ``kV = g/(1-g) I`` and ``kC = (u - sigma^2) I`` with ``u = sigma^2 + g u (1 + u/nu)``, which is real
    up to ``(1-g)^2 = 4 g sigma^2/nu``.

    The head of a client minimises ``||y - F w||^2/(1 + w'V w)``, where the rows of F = X(B* + U D) have covariance I +
    C. This is least squares with a *negative* ridge. Let ``rho^2 = w'C(I+C)^{-1}w``, ``tau^2 = sigma^2 + rho^2`` and
    ``l = tau^2 (m-k)/(1 + w'Vw)``. Let V~ and w~ be V and w in the coordinates in which the features are standard.
    Twice the mean excess risk of the client is then, to second order in V and for ``tau^2 << ||w||^2``:

    .. math::

        \rho^2 + \frac{\tau^2 k}{\nu} + \frac{m-1}{(m-k) \nu (m-k-3)} \Bigl( 2 \tau^2 l \operatorname{tr} \tilde V
            + l^2 \bigl( 1 - \tfrac{2}{m-k} \bigr) \|\tilde V \tilde w\|^2 \Bigr)

    Terms in V^2 without w are omitted; at sigma = ||w|| = k = 1 they are a quarter of the coefficient of V^2. The last
    part is the additional risk of a training client compared with a new client, because B depends on its samples. In
    ``1 - 2/(m-k)``, the part ``1 + 2/(m-k)`` is the variance of the residual. The part ``-4/(m-k)`` is the decrease of
    l when the error of the head makes ``w'Vw`` larger. An iteration costs O(n k^2). Some tens of iterations suffice,
    except near the end of the solutions.

    **Deviations**: derived here. The two terms of the first order are the two phases of the known minimax rate.

    References
    ----------
    Tripuraneni, Jin and Jordan 2021; Thekumparampil et al. 2021, for the rate, without constants.

    Examples
    --------
    >>> import linfed as lf
    >>> W = lf.SharedRepresentation(n_clients=60, dim=40, rank=3, condition_number=1.0).truth(0, [0]).W[0]
    >>> floor = lf.theory.fixed_sample_floor(W, dim=40, n_samples=20, noise_std=0.3)
    >>> round(float(floor.distance), 3), round(float(floor.risk.mean()), 3)
    (0.07, 0.06)
    """
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    (n, k), variance = heads.shape[-2:], check_noise_std(noise_std) ** 2
    d, m, _ = checked_sizes(dim, k, n, n_samples, None)
    share = (d - k) / (n * (m - k))
    gamma = heads.mT @ heads / n
    if np.linalg.matrix_rank(gamma, hermitian=True).min() < k:
        raise ValueError(f"W of shape {heads.shape} must span R^k, k = {k}; otherwise B* is not determined")
    if check_bool("first_order", first_order):
        inverse = np.linalg.inv(gamma)
        V = share * inverse
        C = variance * share * (inverse + variance / (m - k - 1) * inverse @ inverse)
    else:
        V, C = _fixed_point(heads, share, variance, m - k - 1)
    distance = mean_distance(C, d - k)
    _warn(distance, m - k, variance)
    excess = client_excess(heads, V, C, m, variance)
    return FixedSampleFloor(covariance=C, distance=distance, risk=0.5 * (excess + variance), leverage=V)


def fixed_samples_needed(
    step_size: float, *, dim: int, rank: int, n_clients: int, rounds: int, delta: float, level: float
) -> float:
    """Predict the samples that bring FedRep from one subspace distance to another on fixed samples without noise.

    Parameters
    ----------
    step_size : float
        eta > 0 of the update of B.
    dim, rank, n_clients : int
        d > k, k and n.
    rounds : int
        T, at least 1.
    delta, level : float
        The initial distance and the distance to reach, ``0 < level < delta < 1``.

    Returns
    -------
    float
        The m, not rounded. NaN if even 1e6 samples are too few for the rounds.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    The tangents of the angles, ``(d-k) k`` numbers, follow the Gram matrix of ``n (m-k)`` vectors ``x (x) w_i``: in
    each round a direction of eigenvalue l shrinks by ``1 - eta c l`` with ``c = 1 - k/m``. The eigenvalues are
    distributed as in the Marchenko-Pastur law of ratio ``(d-k) k/(n (m-k))``. For heads of length sqrt(k) with
    ``(1/n) sum_i w_i w_i' = I``.

    **Deviations**: not in the paper.

    References
    ----------
    Marchenko and Pastur 1967.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 60, "rank": 2, "n_clients": 20, "rounds": 100}
    >>> round(lf.theory.fixed_samples_needed(0.25, delta=0.9, level=0.01, **sizes), 2)
    16.65
    """
    eta = check_number("step_size", step_size, positive=True)
    k = check_integer("rank", rank)
    d, n = check_integer("dim", dim, minimum=k + 1), check_integer("n_clients", n_clients)
    rounds = check_integer("rounds", rounds)
    delta, level = (check_number(name, value, positive=True) for name, value in (("delta", delta), ("level", level)))
    if not level < delta < 1.0:
        raise ValueError(f"level = {level:g} must be below delta = {delta:g}, and delta below 1")

    def tangent(m: float) -> float:
        ratio = (d - k) * k / (n * (m - k))
        angles = (np.arange(2000) + 0.5) * np.pi / 2000
        values = 1.0 + ratio + 2.0 * math.sqrt(ratio) * np.cos(angles)
        weights = 4.0 * ratio * np.sin(angles) ** 2 / (4000 * ratio * values)
        left = float(np.sum(weights * (1.0 - eta * (1.0 - k / m) * values) ** (2 * rounds)))
        return math.sqrt(left + max(0.0, 1.0 - 1.0 / ratio))

    def excess(m: float) -> float:
        aim = level / math.sqrt(1 - level**2) * math.sqrt(1 - delta**2) / delta
        return math.log(tangent(m) / aim)

    return float(optimize.brentq(excess, k + 0.01, 1e6)) if excess(1e6) < 0 else math.nan


def _fixed_point(W: Array, share: float, variance: float, nu: int) -> tuple[Array, Array]:
    """Return V and C, (.., k, k); NaN if the iteration has no solution."""
    stack = W if W.ndim == 3 else W[None]
    trials, n, k = stack.shape
    V, C = np.zeros((2, trials, k, k))
    left = np.arange(trials)
    with np.errstate(all="ignore"):
        for _ in range(ITERATIONS):
            heads, v, c = stack[left], V[left], C[left]
            seen = 1.0 / (1.0 + _quadratic(heads, v))
            J = (heads * seen[..., None]).mT @ heads / n
            T = variance + _quadratic(heads, c)
            weights = T * seen**2
            noise = (heads * weights[..., None]).mT @ heads / n
            noise += (np.mean(weights * T, axis=-1) / nu)[:, None, None] * np.eye(k)
            good = np.isfinite(np.trace(J + noise, axis1=-2, axis2=-1))
            inverse = np.linalg.inv(np.where(good[:, None, None], J, np.eye(k)))
            V[left], C[left] = share * inverse, share * inverse @ noise @ inverse
            moved = [np.abs(new - old).max(axis=(-2, -1)) for new, old in ((V[left], v), (C[left], c))]
            size = [np.abs(new).max(axis=(-2, -1)) for new in (V[left], C[left])]
            lost = ~good | (size[0] > 1e9) | (size[1] > 1e9 * (1.0 + variance))
            V[left[lost]], C[left[lost]] = np.nan, np.nan
            still = (moved[0] > TOLERANCE * size[0]) | (moved[1] > TOLERANCE * size[1])
            left = left[still & ~lost]
            if not len(left):
                break
    V[left], C[left] = np.nan, np.nan
    return (V, C) if W.ndim == 3 else (V[0], C[0])


def client_excess(W: Array, V: Array, C: Array, m: int, variance: float, with_fit: bool = True) -> Array:
    """Return twice the mean excess risk of each client (.., n); with `with_fit`, add the part due to the fit of B."""
    k = W.shape[-1]
    spare, nu = m - k, m - k - 1
    rho2 = _quadratic(W, _shrunk(C))
    tau2 = variance + rho2
    plain = rho2 + tau2 * k / nu
    if not with_fit:
        return plain
    good = np.isfinite(C).all(axis=(-2, -1), keepdims=True)
    values, vectors = np.linalg.eigh(np.where(good, np.eye(k) + C, np.eye(k)))
    root = (vectors / np.sqrt(values)[..., None, :]) @ vectors.mT  # (I + C)^{-1/2}
    whitened = root @ V @ root
    length = tau2 * spare / (1.0 + _quadratic(W, V))
    moved = W @ root @ whitened
    added = 2.0 * tau2 * length * np.trace(whitened, axis1=-2, axis2=-1)[..., None]
    added += length**2 * (1.0 - 2.0 / spare) * np.vecdot(moved, moved)
    if spare > 3:
        return np.asarray(plain + (m - 1) / (spare * nu * (spare - 3)) * added)
    return np.asarray(np.where(added > 0, np.inf, plain + added))


def _shrunk(C: Array) -> Array:
    """Return ``C (I + C)^{-1}``."""
    eye = np.eye(C.shape[-1])
    good = np.isfinite(C).all(axis=(-2, -1), keepdims=True)
    return np.asarray(np.where(good, np.linalg.solve(eye + np.where(good, C, 0.0), np.where(good, C, 0.0)), np.nan))


def _quadratic(W: Array, A: Array) -> Array:
    """Return ``w_i'A w_i``, (.., n)."""
    return np.asarray(np.vecdot(W @ A, W))


def _warn(distance: Array, spare: int, variance: float) -> None:
    """Warn if there is no solution, or if the prediction is not accurate."""
    lost, steep = np.asarray(np.isnan(distance)), np.asarray(distance > STEEP / math.hypot(1.0, STEEP))
    message = ""
    if lost.any():
        where = "" if distance.ndim == 0 else f" in {lost.sum()} of {lost.size} trials"
        message = (
            f"the equations of a minimum near B* have no solution{where}: too few samples or clients for this noise"
        )
    elif steep.any():
        message = (
            f"the largest angle has a mean sine of {float(np.max(distance)):.2g}: above about 0.37 the prediction fails"
        )
    elif spare == 2 and variance > 2:
        message = "at n_samples = rank + 2 with this noise the empirical risk may have several minima"
    if message:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
