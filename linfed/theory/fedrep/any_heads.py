"""FedRep near B* for any heads: linear map of the mean squared angles in a round, stability edge and noise floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_array, check_noise_std, check_number
from linfed.numerics.linalg import eigvalsh, one_blas_thread, quiet
from linfed.theory.fedrep.arguments import checked_sizes, set_share
from linfed.theory.fedrep.state_evolution import HeadMoments, packed, packing, unpacked

SPANNED = 1e-13
"""Smallest ratio of the extreme eigenvalues of Gamma at which the heads span k dimensions."""


@dataclass(frozen=True)
class LocalMap:
    """Linear map ``I - eta linear + eta^2 quadratic`` that a round applies to ``X = E D'D``, D the tangents of B at B*.

    It acts on the k(k+1)/2 entries of X on and above the diagonal, with the entries above it multiplied by sqrt(2).

    Parameters
    ----------
    second : ndarray (k, k)
        ``Gamma = mean_i w_i w_i'``.
    linear, quadratic : ndarray (k(k+1)/2, k(k+1)/2)
        Symmetric matrices of the map.
    noise_factor : float
        ``c/(p m)``. With noise of variance 1, a round adds ``eta^2`` times this times Gamma to the covariance of each
        of the d - k rows of D.
    spare : int
        ``m - k - 1``.
    """

    second: Array
    linear: Array
    quadratic: Array
    noise_factor: float
    spare: int

    @classmethod
    def of(cls, moments: HeadMoments, *, dim: int, n_clients: int, n_samples: int, participants: int) -> LocalMap:
        """Create the map from the moments of the heads; `checked_sizes` must have checked the sizes."""
        k, m, p = len(moments.second), n_samples, participants
        c, chosen = 1.0 - k / m, set_share(n_clients, participants)
        gamma, one = moments.second, np.eye(k)
        both = _packed_kron(gamma, gamma)
        gain = c * (dim - k + 1) / (p * m) + c * c * chosen
        return cls(
            second=gamma,
            linear=2.0 * c * _packed_kron(gamma, one),
            quadratic=c * c * (1.0 - chosen) * both + gain * moments.fourth,
            noise_factor=c / (p * m),
            spare=m - k - 1,
        )

    @property
    def spanned(self) -> bool:
        """True if the heads span k dimensions."""
        values = np.linalg.eigvalsh(self.second)
        return bool(values[0] > SPANNED * values[-1])

    def factor(self, step_size: float) -> float:
        """Return the spectral radius, which is the largest eigenvalue because the map preserves positive matrices."""
        with quiet():
            return float(eigvalsh(self._at(step_size))[-1])

    def edge(self) -> float:
        """Return the smallest step size at which the factor is 1: linear and quadratic part cancel in a direction.

        The linear part is definite if Gamma is. The quadratic part is singular for few clients with one participant per
        round.
        """
        if not self.spanned:
            return 0.0
        L = np.linalg.cholesky(self.linear)
        whitened = np.linalg.solve(L, np.linalg.solve(L, self.quadratic).T)
        return float(1.0 / np.linalg.eigvalsh(0.5 * (whitened + whitened.T))[-1])

    def best(self) -> float:
        """Return the step size with the smallest factor, which is a convex function of the step size."""
        from scipy import optimize

        edge = self.edge()
        if edge == 0:
            return 0.0
        found = optimize.minimize_scalar(
            self.factor, bounds=(0.0, edge), method="bounded", options={"xatol": 1e-7 * edge}
        )
        return float(found.x)

    def floor(self, step_size: float, noise_std: float, dim: int, message_noise_std: float = 0.0) -> Array:
        """Return the stationary X (k, k) under label noise and noise on the message, to leading order."""
        k, variance = len(self.second), noise_std * noise_std
        if not self.spanned:
            raise ValueError(
                f"W must span R^k, k = {k}: B is not learned along directions in which no client has a head, so there "
                "is no floor"
            )
        if step_size >= self.edge():
            raise ValueError(
                f"step_size = {step_size:g} must be below stability_edge = {self.edge():g}: at larger step sizes the "
                "mean square grows without bound and there is no floor"
            )
        drive = variance * (dim - k) * self.noise_factor * (self.second + variance / self.spare * np.eye(k))
        drive += message_noise_std**2 * (dim - k) * np.eye(k)
        entries = np.asarray(np.linalg.solve(self.linear - step_size * self.quadratic, packed(step_size * drive)))
        return unpacked(entries, k)

    def _at(self, step_size: float) -> Array:
        return np.asarray(np.eye(len(self.linear)) - step_size * self.linear + step_size * step_size * self.quadratic)


def _packed_kron(A: Array, B: Array) -> Array:
    """Return the matrix of ``X -> (A X B + B X A)/2`` on packed symmetric matrices, for symmetric A and B."""
    k = len(A)
    rows, columns, scale = packing(k)
    pairs = (
        A[np.ix_(rows, rows)] * B[np.ix_(columns, columns)]
        + A[np.ix_(rows, columns)] * B[np.ix_(columns, rows)]
        + B[np.ix_(rows, rows)] * A[np.ix_(columns, columns)]
        + B[np.ix_(rows, columns)] * A[np.ix_(columns, rows)]
    )
    return np.asarray(0.25 * pairs * np.outer(scale, scale))


def near_truth_factor(
    W: npt.ArrayLike, *, dim: int, n_samples: int, step_size: float, participants: int | None = None
) -> float | Array:
    r"""Return the factor by which a round multiplies the mean squared sine of the angles near B*, for any heads.

    Parameters
    ----------
    W : array_like (n, k) or (trials, n, k)
        True heads of all clients, in the coordinates of the orthonormal B*.
    dim, n_samples : int
        d >= 2k and m >= k + 2.
    step_size : float
        Step size eta > 0 for B.
    participants : int, optional
        Number of participants p <= n in a round; all clients by default.

    Returns
    -------
    float, or ndarray (trials,) if W has a trial axis
        Asymptotic factor without noise, along the slowest direction. It is below 1 if and only if the step size is
        below `stability_edge`.

    Raises
    ------
    ValueError
        If shapes do not match or a value is out of range.

    Notes
    -----
    With D (d-k, k) the tangents of B at B* (row angles in the coordinates of B*), ``c = 1 - k/m``, ``Gamma = mean_i
    w_i w_i'`` and means over clients, a round maps ``X = E D'D`` to:

    .. math::

        (I - \eta c \Gamma) X (I - \eta c \Gamma)
            &+ \eta^2 c \frac{d-k+1}{p m} \operatorname{mean}_i [(w_i^\top X w_i) w_i w_i^\top] \\
            &+ \eta^2 c^2 \frac{n-p}{p (n-1)}
                \bigl( \operatorname{mean}_i [(w_i^\top X w_i) w_i w_i^\top] - \Gamma X \Gamma \bigr)

    The map is the limit of `one_round_means` for Q -> 0. It is linear and symmetric and maps positive matrices to
    positive matrices. Its spectral radius is therefore its largest eigenvalue, a convex function of eta. For heads of
    length sqrt(k) with Gamma = I the result equals `one_round_factor`. Single runs stay below the mean square, clearly
    so if d is small. The cost is O(n k^4 + k^6).

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=200, rank=3, condition_number=3)
    >>> heads, sizes = problem.truth(0, [0]).W[0], {"dim": 200, "n_samples": 20}
    >>> best, edge = lf.theory.local_best_step(heads, **sizes), lf.theory.stability_edge(heads, **sizes)
    >>> round(best, 3), round(edge, 3), round(lf.theory.near_truth_factor(heads, step_size=best, **sizes), 3)
    (0.981, 1.094, 0.659)
    """
    step_size = check_number("step_size", step_size, positive=True)
    return _of_trials(W, lambda found: found.factor(step_size), dim, n_samples, participants)


def stability_edge(W: npt.ArrayLike, *, dim: int, n_samples: int, participants: int | None = None) -> float | Array:
    """Return FedRep's stability edge near B*, the step size above which the mean squared sine does not contract.

    Parameters
    ----------
    W, dim, n_samples, participants
        As in `near_truth_factor`.

    Returns
    -------
    float, or ndarray (trials,) if W has a trial axis
        Step size at which `near_truth_factor` reaches 1, computed as a generalised eigenvalue. It is twice
        `best_step_size` for heads of length sqrt(k) with Gamma = I, and 0 for heads that span fewer than k dimensions.

    Raises
    ------
    ValueError
        As in `near_truth_factor`.

    Notes
    -----
    For the map ``X -> X - eta L(X) + eta^2 K(X)``, the edge is 1 divided by the largest eigenvalue of ``L^{-1/2} K
    L^{-1/2}`` (derived here). L is definite if Gamma is. If the heads span fewer than k dimensions, no client has a
    head along the other columns of D. The map then leaves their X unchanged at every step size, and label noise adds to
    it in every round.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=200, rank=3, condition_number=3)
    >>> heads, sizes = problem.truth(0, [0]).W[0], {"dim": 200, "n_samples": 20}
    >>> round(lf.theory.stability_edge(heads, **sizes), 3)
    1.094
    """
    return _of_trials(W, LocalMap.edge, dim, n_samples, participants)


def local_best_step(W: npt.ArrayLike, *, dim: int, n_samples: int, participants: int | None = None) -> float | Array:
    """Return FedRep's best step size near B*, which minimises `near_truth_factor`.

    Parameters
    ----------
    W, dim, n_samples, participants
        As in `near_truth_factor`.

    Returns
    -------
    float, or ndarray (trials,) if W has a trial axis
        `best_step_size` for heads of length sqrt(k) with Gamma = I; 0 for heads that span fewer than k dimensions.

    Raises
    ------
    ValueError
        As in `near_truth_factor`.

    Notes
    -----
    For heads that are far from isotropic, the stability edge is close to the best step size: at a condition number of 3
    it is 1.1 times as large.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=200, rank=3, condition_number=3)
    >>> heads, sizes = problem.truth(0, [0]).W[0], {"dim": 200, "n_samples": 20}
    >>> round(lf.theory.local_best_step(heads, **sizes), 3)
    0.981
    """
    return _of_trials(W, LocalMap.best, dim, n_samples, participants)


def near_truth_floor(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int,
    step_size: float,
    noise_std: float,
    participants: int | None = None,
    message_noise_std: float = 0.0,
) -> Array:
    """Return the second moment of the tangents of B at B* at FedRep's noise floor, for any heads.

    Parameters
    ----------
    W, dim, n_samples, participants
        As in `near_truth_factor`.
    step_size : float
        Step size eta > 0 for B, below `stability_edge`.
    noise_std : float
        Standard deviation of the label noise, in units of y.
    message_noise_std : float
        Standard deviation of noise on each entry of the mean message, as in `linfed.PrivateFedRep`.

    Returns
    -------
    ndarray (k, k), or (trials, k, k) if W has a trial axis
        ``X = E D'D`` in the coordinates of B*, to leading order for small X. It is the fixed point of the map of
        `near_truth_factor` plus the noise of a round. For heads of length sqrt(k) with Gamma = I, ``sqrt(trace(X)/k)``
        is
        `noise_floor`. `median_distance` computes the sine of the largest angle from X.

    Raises
    ------
    ValueError
        As in `near_truth_factor`. Also if the step size is at least the stability edge, or if the heads span fewer than
        k dimensions.

    Notes
    -----
    With s = ``sigma^2/(m-k-1)``, the variance of the error of the heads, a round adds ``eta^2 c (d-k) sigma^2/(p m)
    (Gamma + s I)``. Noise of standard deviation s_M on the mean message adds ``eta^2 (d-k) s_M^2 I``.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=200, rank=3, condition_number=3)
    >>> heads, sizes = problem.truth(0, [0]).W[0], {"dim": 200, "n_samples": 20}
    >>> X = lf.theory.near_truth_floor(heads, **sizes, step_size=0.5, noise_std=0.1)
    >>> X.shape, round(lf.theory.median_distance(X, dim=200), 4)
    ((3, 3), 0.0107)
    """
    step_size, noise_std = check_number("step_size", step_size, positive=True), check_noise_std(noise_std)
    added = check_number("message_noise_std", message_noise_std, minimum=0.0)
    found = _of_trials(W, lambda here: here.floor(step_size, noise_std, dim, added), dim, n_samples, participants)
    return np.asarray(found)


def _of_trials(
    W: npt.ArrayLike, evaluate: Callable[[LocalMap], float | Array], dim: int, n_samples: int, participants: int | None
) -> float | Array:
    """Apply `evaluate` to the map of each trial."""
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    n, k = heads.shape[-2:]
    dim, n_samples, participants = checked_sizes(dim, k, n, n_samples, participants)
    sizes = {"dim": dim, "n_clients": n, "n_samples": n_samples, "participants": participants}
    with one_blas_thread():
        found = [
            evaluate(LocalMap.of(HeadMoments.of(each), **sizes)) for each in (heads if heads.ndim == 3 else heads[None])
        ]
    return np.asarray(found) if heads.ndim == 3 else found[0]
