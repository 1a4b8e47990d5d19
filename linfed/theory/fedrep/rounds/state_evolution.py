"""State evolution of FedRep: exact means of one round, and their iteration.

The results hold for exact heads, fresh standard Gaussian samples, one local step on B and QR in every round. The state
is ``N = B*'B`` and ``Q = B'(I - B*B*')B``, both (k, k), with ``N'N + Q = I``. The eigenvalues of Q are the squared
sines of the principal angles.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed.checks import check_array, check_noise_std, check_number, check_shape
from linfed.numerics.linalg import client_blocks, one_blas_thread, symmetric
from linfed.system.memory import check_fits
from linfed.theory.drawn_clients import set_share
from linfed.theory.fedrep.arguments import (
    ORTHONORMAL_TOLERANCE,
    Clients,
    StepTooLargeError,
    checked_sizes,
    checked_steps,
    start_at,
    trial_count,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class StateEvolution:
    """Prediction of `state_evolution` for every round, from the initialisation on.

    Parameters
    ----------
    distance : ndarray (n_rounds + 1,) or (trials, n_rounds + 1)
        Sine of the largest principal angle between B and B*, ``sqrt(lambda_max(Q))``.
    N, Q : ndarray (n_rounds + 1, k, k) or (trials, n_rounds + 1, k, k)
        ``B*'B`` and ``B'(I - B*B*')B``, up to a common rotation of B's columns.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=100, dim=50, rank=2).truth(0, [0]).W[0]
    >>> predicted = lf.theory.state_evolution(heads, dim=50, n_samples=20, step_size=0.5, n_rounds=10, delta=0.9)
    >>> predicted.distance.shape, predicted.Q.shape
    ((11,), (11, 2, 2))
    """

    distance: Array
    N: Array
    Q: Array


def state_evolution(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    step_size: float | npt.ArrayLike,
    n_rounds: int,
    noise_std: float | npt.ArrayLike = 0.0,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    delta: float | None = None,
    B0: npt.ArrayLike | None = None,
    B_star: npt.ArrayLike | None = None,
    message_noise_std: float = 0.0,
) -> StateEvolution:
    r"""Predict FedRep's subspace distance in every round, deterministically and without fitted parameters.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    W : array_like (n, k) or (trials, n, k)
        True heads ``w_i*`` of all clients, in the coordinates of the orthonormal B*.
    dim : int
        Ambient dimension d >= 2k.
    n_samples : int or array_like (n,)
        Fresh samples m >= k + 2 of each participant and round, equal for all clients, or one number for each client;
        m > k + 3 is recommended (see Notes). With noise on the mean message also m <= k for all clients, whose messages
        are then 0.
    step_size : float or array_like (n_rounds,)
        Step size eta > 0 for B, one for all rounds or one per round.
    n_rounds : int
        T >= 0.
    noise_std : float or array_like (n,)
        Standard deviation of the label noise, in units of y, equal for all clients, or one for each client.
    participants : int, optional
        Number of participants p <= n in a round, drawn without replacement; all clients by default.
    weights : array_like (n,), optional
        The clients' weights as in `linfed.FedRep`; equal by default.
    delta : float, optional
        Sine, in [0, 1], of all k principal angles of the initial B, as with ``init=lf.AtDistance(delta)``.
    B0, B_star : array_like (d, k) or (trials, d, k), optional
        Initial B and ground truth as orthonormal bases. Used instead of `delta`.
    message_noise_std : float
        Standard deviation s of noise on each entry of the mean message, as in `linfed.PrivateFedRep`.

    Returns
    -------
    StateEvolution
        With a trial axis if W, B0 or B_star has one.

    Raises
    ------
    ValueError
        If shapes do not match, a value is out of range, or a basis is not orthonormal. If m <= k + 1, since the means
        do not exist (and B does not move up to m = k without noise on messages). If numbers overflow because the step
        size is too large.

    Notes
    -----
    A round replaces N and Q by their exact means before QR (`one_round_means`) and neglects fluctuations:

    .. math::

        R^\top R = \tilde N^\top \tilde N + \tilde Q, \quad N \leftarrow \tilde N R^{-1}, \quad
        Q \leftarrow R^{-\top} \tilde Q R^{-1}, \quad \text{distance} = \sqrt{\lambda_{\max}(Q)}

    The recursion has no cancellation, so the distance falls to the limits of floating point. It neglects two effects.
    The distance of a run is the largest of k fluctuating angles, which exceeds the prediction by a share of up to about
    sqrt(k/d). And mean squares lie above typical runs if the runs have a wide spread.

    *Accuracy.* The prediction was compared with medians of 100 simulated trials over 30 rounds, with initial distances
    0.5 to 0.9 and step sizes of 0.6 to 1.1 times `best_step_size`. The results were:

    - For d = 200 and 1000, k up to 10, p from 20 and m >= k + 3, within 15 %. This holds down to 1e-8 and on the noise
      floor. The prediction was mostly 1 to 5 % too low.
    - For d = 20 with 50 or 100 participants, within 13 %.
    - For d = 20 with 5 participants, 70 % too high.
    - For m = k + 2 and the best step size, 70 % too high.
    - From 0.99, 38 % too low, since the time of escape depends on chance.

    The moments cost O(n k^4) once, in blocks of clients. A round then costs O(k^4), independent of n, d and m.

    **Deviations**: not in the paper.

    References
    ----------
    FedRep paper, Algorithm 2. The iteration of means is Oja's for ``(1/n) sum_i phi_i phi_i'``, slower by the factor
    ``1 - k/m``.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=400, dim=200, rank=5).truth(0, [0]).W[0]
    >>> predicted = lf.theory.state_evolution(heads, dim=200, n_samples=20, step_size=0.8, n_rounds=30, delta=0.9)
    >>> predicted.distance.shape
    (31,)
    >>> bool(predicted.distance[-1] < 1e-7)
    True
    """
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    steps = checked_steps(step_size, n_rounds)
    n, k = heads.shape[-2:]
    noisy = check_noise_std(message_noise_std, "message_noise_std") > 0
    clients = Clients.checked(n, k, dim, n_samples, noise_std, participants, weights, message_noise_std, still=noisy)
    N, Q = start_at(delta, B0, B_star, dim=clients.dim, rank=k)
    trials = trial_count("W, B0 and B_star", heads, N, Q)
    shape = (trials or 1, len(steps) + 1)
    check_fits(
        2.0 * math.prod(shape) * k * k, f"N and Q of {shape[0]} trials in {n_rounds} rounds", "use fewer of them"
    )
    history = [np.empty((*shape, *N.shape[-2:])) for _ in range(2)]
    with one_blas_thread():
        for t in range(shape[0]):
            if t == 0 or heads.ndim == 3:
                moments = RoundMoments.of(heads[t] if heads.ndim == 3 else heads, clients)
            first = [array[t] if array.ndim == 3 else array for array in (N, Q)]
            for kept, path in zip(history, _evolved(first[0], first[1], moments, steps), strict=True):
                kept[t] = path
        largest = np.linalg.eigvalsh(history[1])[..., -1]
    distance = np.sqrt(np.clip(largest, 0.0, 1.0))
    whole: slice | int = slice(None) if trials is not None else 0
    return StateEvolution(distance=distance[whole], N=history[0][whole], Q=history[1][whole])


def one_round_means(
    N: npt.ArrayLike,
    Q: npt.ArrayLike,
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    step_size: float,
    noise_std: float | npt.ArrayLike = 0.0,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    message_noise_std: float = 0.0,
) -> tuple[Array, Array]:
    r"""Return the exact means of FedRep's state after one round, before QR.

    Parameters
    ----------
    N, Q : array_like (k, k)
        ``B*'B`` and ``B'(I - B*B*')B`` of an orthonormal B, so that ``N'N + Q = I``.
    W : array_like (n, k)
        True heads of all clients.
    dim, n_samples, step_size, noise_std, participants, weights, message_noise_std
        As in `state_evolution`.

    Returns
    -------
    N_mean, Q_mean : ndarray (k, k)
        Means of ``B*'B_bar`` and ``B_bar'(I - B*B*')B_bar``, with B_bar the representation before QR, over samples,
        noise and participants.

    Raises
    ------
    ValueError
        As in `state_evolution`. Also if ``N'N + Q`` is not I, or if Q is not positive semidefinite.

    Notes
    -----
    Client i has m_i samples, noise sigma_i and weight omega_i (of mean 1). With ``c_i = 1 - k/m_i``, ``a_i = N'w_i``,
    ``q_i = a_i'Q a_i``, means over all n clients, and ``P = I - N N' = H Q H'`` with H the polar factor of N (without
    cancellation):

    .. math::

        \tau_i^2 &= w_i^\top P w_i + \sigma_i^2, \qquad
            \Gamma = \operatorname{mean}_i [\omega_i c_i w_i w_i^\top], \qquad K = N^\top \Gamma N \\
        N_{\text{mean}} &= N + \eta P \Gamma N \\
        Q_{\text{mean}} &= (I - \eta K) Q (I - \eta K) + \eta^2 V + \eta^2 F \\
        V &= (d - k) s^2 I + \operatorname{mean}_i \frac{\omega_i^2 c_i}{m_i p} \Bigl[ (q_i + \tau_i^2 D) a_i a_i^\top
            + \frac{((m_i-k+1) q_i + \tau_i^2 D) \tau_i^2}{m_i-k-1} I \Bigr] \\
        F &= \frac{n - p}{p (n - 1)} \bigl( \operatorname{mean}_i [\omega_i^2 c_i^2 q_i a_i a_i^\top] - K Q K \bigr),
            \qquad D = d - k - \operatorname{tr} Q

    This follows from the distribution of a client's message with exact heads. Let ``e = (I - BB')phi`` and let r be the
    residual. Then ``X'r = -x e + sqrt(x) h`` with ``x ~ chi^2_{m-k}`` and h Gaussian with covariance
    ``tau^2 (I - BB') - e e'``. It is independent of the head ``w = a + tau (Z'Z)^{-1/2} g``, where ``Z'Z`` is a Wishart
    matrix. Hence ``E w w' = a a' + tau^2/(m-k-1) I`` and ``E ||(I - B*B*')X'r||^2 = (m-k) ((m-k+1) q + tau^2 D)``. V is
    due to the samples and to noise on the message, F due to client sampling. For d much larger than k and m, p = n and
    s = 0, V is close to ``(d - k) (c/(m p)) mean_i tau_i^2 (a_i a_i' + tau_i^2/(m-k-1) I)``. If clients differ, the
    messages of two participants remain uncorrelated given B, so each of them enters with its own m_i, sigma_i and
    omega_i.

    The cost is O(n k^4), in blocks of clients.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=400, dim=200, rank=3).truth(0, [0]).W[0]
    >>> N, Q = 0.8 * np.eye(3), 0.36 * np.eye(3)
    >>> N_mean, Q_mean = lf.theory.one_round_means(N, Q, heads, dim=200, n_samples=20, step_size=0.5)
    >>> N_mean.shape, bool(np.trace(Q_mean) < np.trace(Q))
    ((3, 3), True)
    """
    heads = check_array("W", W, [("n", "k")])
    step_size = check_number("step_size", step_size, positive=True)
    n, k = heads.shape
    clients = Clients.checked(n, k, dim, n_samples, noise_std, participants, weights, message_noise_std)
    N, Q = check_array("N", N, [("k", "k")]), check_array("Q", Q, [("k", "k")])
    for name, matrix in (("N", N), ("Q", Q)):
        check_shape(name, matrix, (k, k), "(k, k)")
    if np.abs(N.T @ N + Q - np.eye(k)).max() > ORTHONORMAL_TOLERANCE or np.linalg.eigvalsh(Q)[0] < -1e-12:
        raise ValueError("N and Q must belong to an orthonormal B: N'N + Q = I with Q positive semidefinite")
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
        return means_of(N, Q, RoundMoments.of(heads, clients), step_size)


@dataclass(frozen=True)
class RoundMoments:
    """Means over the clients that determine the means of a round.

    Their weights are products of the clients' ``omega c``, ``g = omega^2 c/(p m)``, sigma^2 and ``nu = m - k - 1``.

    Parameters
    ----------
    pull : ndarray (k, k)
        ``mean_i omega_i c_i w_i w_i'``.
    noise : ndarray (3, k, k)
        Means of ``w_i w_i'`` with the weights ``g sigma^2``, ``g sigma^2 (m-k+1)/nu`` and ``g sigma^2/nu``.
    fourth : ndarray (5, k(k+1)/2, k(k+1)/2)
        Means of ``f_i f_i'`` with the weights ``g + share (omega c)^2``, g, ``g (m-k+1)/nu``, ``g/nu`` and
        ``(omega c)^2/p``, where f_i has the entries of ``w_i w_i'`` as in `packed`. Then
        ``f_i . packed(A) = w_i'A w_i`` for a symmetric A.
    floor : ndarray ()
        ``mean_i g_i sigma_i^4/nu_i``.
    clients : Clients

    Notes
    -----
    The arrays of `of_trials` have a trial axis before these axes.
    """

    pull: Array
    noise: Array
    fourth: Array
    floor: Array
    clients: Clients

    @classmethod
    def of(cls, W: Array, clients: Clients) -> RoundMoments:
        """Compute the means for heads (n, k) in blocks of clients, in O(n k^4) time and bounded memory."""
        m, k, nu, gain = clients.counts, clients.rank, clients.spare, clients.gain
        pull, variance = clients.weights * clients.fitted, clients.variances
        wide = gain * (m - k + 1) / nu
        by_second = np.stack(np.broadcast_arrays(pull, gain * variance, wide * variance, gain / nu * variance))
        others = gain, wide, gain / nu, pull**2 / clients.participants
        by_fourth = np.stack(np.broadcast_arrays(gain + clients.share * pull**2, *others))
        second, fourth = weighted_moments(W, by_second, by_fourth)
        floor = np.asarray(np.mean(gain / nu * variance**2))
        return cls(pull=second[0], noise=second[1:], fourth=fourth, floor=floor, clients=clients)

    @classmethod
    def of_trials(cls, W: Array, clients: Clients) -> RoundMoments:
        """Compute the means for the heads of several trials, (trials, n, k)."""
        each = [cls.of(heads, clients) for heads in W]
        names = ("pull", "noise", "fourth", "floor")
        return cls(**{name: np.stack([getattr(one, name) for one in each]) for name in names}, clients=clients)

    def __getitem__(self, trials: Indices | int) -> RoundMoments:
        """Return the means of some trials of `of_trials`, or of one trial."""
        pull, noise, fourth, floor = (each[trials] for each in (self.pull, self.noise, self.fourth, self.floor))
        return RoundMoments(pull=pull, noise=noise, fourth=fourth, floor=np.asarray(floor), clients=self.clients)

    def weighted(self, A: Array, place: int) -> Array:
        """Return the mean of ``(w_i'A w_i) w_i w_i'`` (k, k) with a weight of `fourth`, for a symmetric A."""
        return unpacked(self.fourth[place] @ packed(A), len(A))


def weighted_moments(W: Array, by_second: Array, by_fourth: Array) -> tuple[Array, Array]:
    """Return means of ``w_i w_i'`` and of ``f_i f_i'`` over heads (n, k), for several weights of the clients.

    Parameters
    ----------
    W : ndarray (n, k)
    by_second, by_fourth : ndarray (j,) or (j, n)
        Weights, equal for all clients or one for each client.

    Returns
    -------
    ndarray (j, k, k) and (j, k(k+1)/2, k(k+1)/2)
        f_i has the entries of ``w_i w_i'`` as in `packed`.
    """
    n, k = W.shape
    rows, columns, scale = packing(k)
    moments = 2.0 * len(by_fourth) * len(rows) ** 2
    check_fits(moments, f"the fourth moments of the heads for rank = {k}", "use a smaller rank")
    factors = [weights if weights.ndim == 2 else np.ones((1, 1)) for weights in (by_second, by_fourth)]
    second, fourth = np.zeros((len(factors[0]), k, k)), np.zeros((len(factors[1]), len(rows), len(rows)))
    with np.errstate(over="ignore", invalid="ignore"):  # `_evolved` reports what overflows
        for _, clients in client_blocks(1, n, len(rows)):
            block = W[clients]
            products = block[:, rows] * block[:, columns] * scale
            for total, values, weights in zip((second, fourth), (block, products), factors, strict=True):
                for part, weight in zip(total, weights, strict=True):
                    part += (values.T * (weight if weights.shape[1] == 1 else weight[clients])) @ values
        found = [
            total / n if weights.ndim == 2 else weights[:, None, None] * (total / n)
            for total, weights in zip((second, fourth), (by_second, by_fourth), strict=True)
        ]
    return found[0], found[1]


@functools.cache
def packing(k: int) -> tuple[Indices, Indices, Array]:
    """Return rows and columns of the entries on and above the diagonal, and their factors (sqrt(2) above it)."""
    rows, columns = np.triu_indices(k)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))


def packed(A: Array) -> Array:
    """Return a symmetric matrix (k, k) as a vector (k(k+1)/2,) with an equal norm."""
    rows, columns, scale = packing(len(A))
    return np.asarray(A[rows, columns] * scale)


def unpacked(entries: Array, k: int) -> Array:
    """Return the symmetric matrix (k, k) from a vector returned by `packed`."""
    rows, columns, scale = packing(k)
    out = np.empty((k, k))
    out[rows, columns] = out[columns, rows] = entries / scale
    return out


@dataclass(frozen=True, kw_only=True)
class RoundSizes:
    """Checked sizes, step size and noise level of a round."""

    dim: int
    n_clients: int
    n_samples: int
    participants: int
    step_size: float
    noise_std: float
    message_noise_std: float = 0.0

    @property
    def share(self) -> float:
        """`set_share` of these clients and participants."""
        return set_share(self.n_clients, self.participants)

    @classmethod
    def checked(
        cls,
        heads: Array,
        dim: int,
        n_samples: int,
        step_size: float,
        noise_std: float,
        participants: int | None,
        message_noise_std: float = 0.0,
    ) -> RoundSizes:
        """Check the arguments and return the setting for heads (.., n, k)."""
        n, k = heads.shape[-2:]
        dim, n_samples, participants = checked_sizes(dim, k, n, n_samples, participants)
        return cls(
            dim=dim,
            n_clients=n,
            n_samples=n_samples,
            participants=participants,
            step_size=check_number("step_size", step_size, positive=True),
            noise_std=check_noise_std(noise_std),
            message_noise_std=check_noise_std(message_noise_std, "message_noise_std"),
        )


def means_of(N: Array, Q: Array, moments: RoundMoments, step_size: float | Array) -> tuple[Array, Array]:
    """Return the means of a round before QR, by the formulas of `one_round_means`.

    A symmetric matrix `step_size` (k, k) multiplies the heads.
    """
    clients, identity = moments.clients, np.eye(len(N))
    eta = step_size * identity if np.ndim(step_size) == 0 else np.asarray(step_size)
    spread = clients.dim - clients.rank - np.trace(Q)
    U, _, Vt = np.linalg.svd(N)
    H = U @ Vt
    P = symmetric(H @ Q @ H.T)
    inside = symmetric(N @ Q @ N.T)  # q_i = w_i' inside w_i
    moved = P @ moments.pull @ N
    K = symmetric(N.T @ moments.pull @ N)
    kept = identity - K @ eta
    by_samples, wide, narrow = moments.noise
    along = moments.weighted(inside, 0) + spread * (moments.weighted(P, 1) + by_samples)
    across = np.vdot(inside, moments.weighted(P, 2)) + np.vdot(inside, wide)
    across += spread * (np.vdot(P, moments.weighted(P, 3)) + 2.0 * np.vdot(P, narrow) + float(moments.floor))
    across += (clients.dim - clients.rank) * clients.message_variance
    added = N.T @ along @ N + across * identity - clients.share * K @ Q @ K
    return N + moved @ eta, symmetric(kept.T @ Q @ kept + eta @ added @ eta)


def _evolved(N: Array, Q: Array, moments: RoundMoments, steps: Sequence[float]) -> tuple[Array, Array]:
    """Return N and Q after every round, each (n_rounds + 1, k, k)."""
    paths = np.empty((len(steps) + 1, *N.shape)), np.empty((len(steps) + 1, *Q.shape))
    paths[0][0], paths[1][0] = N, Q
    for t, step_size in enumerate(steps, 1):
        L = np.full_like(Q, np.nan)
        with np.errstate(over="ignore", invalid="ignore"), contextlib.suppress(np.linalg.LinAlgError):
            N, Q = means_of(N, Q, moments, step_size)
            L[:] = np.linalg.cholesky(N.T @ N + Q)  # R = L'; R'R is at least I
        if not np.isfinite(L).all():
            raise too_large(step_size, t)
        N = np.asarray(np.linalg.solve(L, N.T).T, dtype=np.float64)
        Q = symmetric(np.linalg.solve(L, np.linalg.solve(L, Q).T))
        paths[0][t], paths[1][t] = N, Q
    return paths


def too_large(step_size: float, number: int) -> StepTooLargeError:
    """Return the error raised if a recursion overflows in a round."""
    return StepTooLargeError(step_size, number, "these heads and this noise")
