"""FedRep near B* for any heads: linear map of the mean squared angles in a round, stability edge and noise floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array, FloatOrArray
from linfed.checks import check_array, check_number
from linfed.numerics.linalg import eigvalsh, one_blas_thread, quiet
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments, packed, packing, unpacked

SPANNED = 1e-13
"""Smallest ratio of the extreme eigenvalues of Gamma at which the heads span k dimensions."""


@dataclass(frozen=True)
class LocalMap:
    """Linear map ``I - eta linear + eta^2 quadratic`` that a round applies to ``X = E D'D``, D the tangents of B at B*.

    It acts on the k(k+1)/2 entries of X on and above the diagonal, with the entries above it multiplied by sqrt(2).

    Parameters
    ----------
    pull : ndarray (k, k)
        ``Gamma = mean_i omega_i c_i w_i w_i'``.
    linear, quadratic : ndarray (k(k+1)/2, k(k+1)/2)
        Matrices of the map. They map positive matrices to positive matrices, and they are symmetric without
        compression.
    drive : ndarray (k, k)
        A round adds ``eta^2`` times this to X, due to label noise, compression and noise on the message.
    compressed : bool
        True if messages are compressed at random.
    """

    pull: Array
    linear: Array
    quadratic: Array
    drive: Array
    compressed: bool = False

    @classmethod
    def of(cls, moments: RoundMoments) -> LocalMap:
        """Create the map from the means over clients that determine a round."""
        clients, gamma = moments.clients, moments.pull
        one, rows = np.eye(clients.rank), clients.dim - clients.rank
        own = rows * moments.fourth[1] + moments.fourth[0]
        quadratic = (1.0 - clients.share) * _packed_kron(gamma, gamma) + own
        drive = rows * (moments.noise[0] + (moments.floor + clients.message_variance) * one)
        if clients.compression:
            messages = (rows + 1) * moments.fourth[1] + moments.fourth[4]  # second moments of the clients' messages
            error = _compression_error(clients)
            quadratic = quadratic + error @ (quadratic if clients.shared_mask else messages)
            labels = rows * (moments.noise[0] + moments.floor * one)
            drive = drive + unpacked(error @ packed(labels), clients.rank)
        return cls(
            pull=gamma,
            linear=2.0 * _packed_kron(gamma, one),
            quadratic=quadratic,
            drive=drive,
            compressed=clients.compression > 0,
        )

    @property
    def spanned(self) -> bool:
        """True if the heads span k dimensions."""
        values = np.linalg.eigvalsh(self.pull)
        return bool(values[0] > SPANNED * values[-1])

    def factor(self, step_size: float) -> float:
        """Return the spectral radius, which is the largest eigenvalue because the map preserves positive matrices."""
        with quiet():
            values = np.linalg.eigvals(self._at(step_size)) if self.compressed else eigvalsh(self._at(step_size))
            return float(values.real.max())

    def edge(self) -> float:
        """Return the smallest step size at which the factor is 1: linear and quadratic part cancel in a direction.

        The linear part is definite if Gamma is. The quadratic part is singular for few clients with one participant per
        round.
        """
        if not self.spanned:
            return 0.0
        L = np.linalg.cholesky(self.linear)
        whitened = np.linalg.solve(L, np.linalg.solve(L, self.quadratic).T)
        if self.compressed:
            return float(1.0 / np.linalg.eigvals(whitened).real.max())
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

    def floor(self, step_size: float) -> Array:
        """Return the stationary X (k, k) under label noise and noise on the message, to leading order."""
        k = len(self.pull)
        if not self.spanned:
            raise ValueError(
                f"W must span R^k, k = {k}: B is not learned along directions in which no client has a head, so there "
                "is no floor"
            )
        if step_size >= self.edge():
            raise ValueError(
                f"step_size = {step_size:g} must be below stability_edge = {self.edge():g}: at larger step sizes the "
                "mean square grows without bound and no floor exists"
            )
        drive = packed(step_size * self.drive)
        entries = np.asarray(np.linalg.solve(self.linear - step_size * self.quadratic, drive))
        return unpacked(entries, k)

    def _at(self, step_size: float) -> Array:
        return np.asarray(np.eye(len(self.linear)) - step_size * self.linear + step_size * step_size * self.quadratic)


def _compression_error(clients: Clients) -> Array:
    """Return the map from the second moment of messages across span(B*) to that of their compression errors.

    Errors of different entries are uncorrelated. The mean over the orientations of B* and of B's columns keeps a share
    ``(d-k+2)/(d+2)`` of the errors across span(B*), and maps a second moment M to ``(2 M + tr(M) I)/(k+2)``.
    """
    d, k = clients.dim, clients.rank
    trace = packed(np.eye(k))
    mean = (2.0 * np.eye(len(trace)) + np.outer(trace, trace)) / (k + 2.0)
    return np.asarray(clients.compression * (d - k + 2.0) / (d + 2.0) * mean)


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
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    step_size: float,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    compression: float = 0.0,
    shared_mask: bool = False,
) -> FloatOrArray:
    r"""Return the factor by which a round multiplies the mean squared sine of the angles near B*, for any heads.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    W : array_like (n, k) or (trials, n, k)
        True heads of all clients, in the coordinates of the orthonormal B*.
    dim : int
        d > k.
    n_samples : int or array_like (n,)
        m >= k + 2, equal for all clients, or one number for each client.
    step_size : float
        Step size eta > 0 for B.
    participants : int, optional
        Number of participants p <= n in a round; all clients by default.
    weights : array_like (n,), optional
        The clients' weights as in `linfed.FedRep`; equal by default.
    compression : float
        Relative variance nu >= 0 of a random compression of each message, as in `linfed.CompressedFedRep`: ``1/q - 1``
        if each entry is kept with probability q.
    shared_mask : bool
        If True, all clients of a round keep the same entries.

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
    The tangents ``D = B_perp'B (B*'B)^{-1}`` (d-k, k), with an orthonormal basis B_perp of the complement of B*, have
    the tangents of the principal angles between B and B* as singular values. With ``c_i = 1 - k/m_i``,
    ``Gamma = mean_i omega_i c_i w_i w_i'`` and means over clients, whose weights omega_i have mean 1, a round maps
    ``X = E D'D`` to:

    .. math::

        (I - \eta \Gamma) X (I - \eta \Gamma)
            &+ \eta^2 \operatorname{mean}_i \Bigl[ \omega_i^2 c_i \frac{d-k+1}{p m_i}
                (w_i^\top X w_i) w_i w_i^\top \Bigr] \\
            &+ \eta^2 \frac{n-p}{p (n-1)}
                \bigl( \operatorname{mean}_i [\omega_i^2 c_i^2 (w_i^\top X w_i) w_i w_i^\top] - \Gamma X \Gamma \bigr)

    Compression of relative variance nu acts on single entries of messages. It adds

    .. math::

        \eta^2 \nu \, \frac{d-k+2}{d+2} \, \frac{2 M + \operatorname{tr}(M) I}{k+2}, \qquad
        M = \operatorname{mean}_i \Bigl[ \Bigl( \omega_i^2 c_i \frac{d-k+1}{p m_i} + \frac{\omega_i^2 c_i^2}{p} \Bigr)
            (w_i^\top X w_i) w_i w_i^\top \Bigr]

    With a shared mask M is the second moment of the mean message: the part of the map above with the factor
    ``eta^2``. The share of d and the map of M are means over the orientations of B* and of B's columns. For a given
    orientation they differ: if B* consists of unit vectors, the share is 1.

    The map is the limit of `one_round_means` for Q -> 0. It is linear and maps positive matrices to positive matrices,
    so its spectral radius is its largest eigenvalue. Without compression the map is symmetric, and the radius a convex
    function of eta. For heads of length sqrt(k) with ``mean_i w_i w_i' = I`` the result without compression equals
    `one_round_factor`. Single runs stay below the mean square, clearly so if d is small. The cost is O(n k^4 + k^6).

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=200, rank=3, condition_number=3)
    >>> heads, sizes = problem.truth(0, [0]).W[0], {"dim": 200, "n_samples": 20}
    >>> best, edge = lf.theory.near_truth_best_step(heads, **sizes), lf.theory.stability_edge(heads, **sizes)
    >>> round(best, 3), round(edge, 3), round(lf.theory.near_truth_factor(heads, step_size=best, **sizes), 3)
    (0.981, 1.094, 0.659)
    """
    step_size = check_number("step_size", step_size, positive=True)
    sizes: dict[str, Any] = {"dim": dim, "n_samples": n_samples, "participants": participants, "weights": weights}
    sizes |= {"compression": compression, "shared_mask": shared_mask}
    return _of_trials(W, lambda found: found.factor(step_size), **sizes)


def stability_edge(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    compression: float = 0.0,
    shared_mask: bool = False,
) -> FloatOrArray:
    """Return FedRep's stability edge near B*, the step size above which the mean squared sine does not contract.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    W, dim, n_samples, participants, weights, compression, shared_mask
        As in `near_truth_factor`.

    Returns
    -------
    float, or ndarray (trials,) if W has a trial axis
        Step size at which `near_truth_factor` reaches 1, computed as a generalised eigenvalue. It is twice
        `best_step_size` for heads of length sqrt(k) with ``mean_i w_i w_i' = I``, and 0 for heads that span fewer than
        k dimensions.

    Raises
    ------
    ValueError
        As in `near_truth_factor`.

    Notes
    -----
    For the map ``X -> X - eta L(X) + eta^2 K(X)``, the edge is 1 divided by the largest eigenvalue of
    ``L^{-1/2} K L^{-1/2}`` (derived here). L is definite if Gamma is. Weights on few clients lower the edge: they act
    like fewer clients with fewer samples. If the heads span fewer than k dimensions, no client has a head along the
    other columns of D. The map then leaves their X unchanged at every step size, and label noise adds to it in every
    round.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=200, rank=3, condition_number=3)
    >>> heads, sizes = problem.truth(0, [0]).W[0], {"dim": 200, "n_samples": 20}
    >>> round(lf.theory.stability_edge(heads, **sizes), 3)
    1.094
    """
    sizes: dict[str, Any] = {"dim": dim, "n_samples": n_samples, "participants": participants, "weights": weights}
    sizes |= {"compression": compression, "shared_mask": shared_mask}
    return _of_trials(W, LocalMap.edge, **sizes)


def near_truth_best_step(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    compression: float = 0.0,
    shared_mask: bool = False,
) -> FloatOrArray:
    """Return FedRep's best step size near B*, which minimises `near_truth_factor`.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    W, dim, n_samples, participants, weights, compression, shared_mask
        As in `near_truth_factor`.

    Returns
    -------
    float, or ndarray (trials,) if W has a trial axis
        `best_step_size` for heads of length sqrt(k) with ``mean_i w_i w_i' = I``; 0 for heads that span fewer than k
        dimensions.

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
    >>> round(lf.theory.near_truth_best_step(heads, **sizes), 3)
    0.981
    """
    sizes: dict[str, Any] = {"dim": dim, "n_samples": n_samples, "participants": participants, "weights": weights}
    sizes |= {"compression": compression, "shared_mask": shared_mask}
    return _of_trials(W, LocalMap.best, **sizes)


def near_truth_floor(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    step_size: float,
    noise_std: float | npt.ArrayLike,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    message_noise_std: float = 0.0,
    compression: float = 0.0,
    shared_mask: bool = False,
) -> Array:
    """Return the second moment of the tangents of B at B* at FedRep's noise floor, for any heads.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    W, dim, n_samples, participants, weights, compression, shared_mask
        As in `near_truth_factor`.
    step_size : float
        Step size eta > 0 for B, below `stability_edge`.
    noise_std : float or array_like (n,)
        Standard deviation of the label noise, in units of y, equal for all clients, or one for each client.
    message_noise_std : float
        Standard deviation of noise on each entry of the mean message, as in `linfed.PrivateFedRep`.

    Returns
    -------
    ndarray (k, k), or (trials, k, k) if W has a trial axis
        ``X = E D'D`` in the coordinates of B*, to leading order for small X. It is the fixed point of the map of
        `near_truth_factor` plus the noise of a round. For equal clients and heads of length sqrt(k) with
        ``mean_i w_i w_i' = I``, ``sqrt(trace(X)/k)`` is `noise_floor`. `median_distance` computes the sine of the
        largest angle from X.

    Raises
    ------
    ValueError
        As in `near_truth_factor`. Also if the step size is at least the stability edge, or if the heads span fewer than
        k dimensions.

    Notes
    -----
    With ``s_i = sigma_i^2/(m_i-k-1)``, the variance of the error of a head, a round adds
    ``eta^2 (d-k) mean_i [omega_i^2 c_i sigma_i^2/(p m_i) (w_i w_i' + s_i I)]``. Compression of messages adds to this
    matrix as to M in `near_truth_factor`, with independent and with shared masks. Noise of standard deviation s_M on
    the mean message adds ``eta^2 (d-k) s_M^2 I``. Terms of order sigma^2 X and X^2 are neglected.

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
    step_size = check_number("step_size", step_size, positive=True)
    sizes: dict[str, Any] = {"dim": dim, "n_samples": n_samples, "participants": participants, "weights": weights}
    sizes |= {"compression": compression, "shared_mask": shared_mask, "noise_std": noise_std}
    sizes["message_noise_std"] = message_noise_std
    found = _of_trials(W, lambda here: here.floor(step_size), **sizes)
    return np.asarray(found)


def _of_trials(W: npt.ArrayLike, evaluate: Callable[[LocalMap], float | Array], **sizes: Any) -> FloatOrArray:
    """Apply `evaluate` to the map of each trial; `sizes` are keyword arguments of `Clients.checked`."""
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    n, k = heads.shape[-2:]
    clients = Clients.checked(n, k, **sizes, near=True)
    with one_blas_thread():
        found = [
            evaluate(LocalMap.of(RoundMoments.of(each, clients)))
            for each in (heads if heads.ndim == 3 else heads[None])
        ]
    return np.asarray(found) if heads.ndim == 3 else found[0]
