"""FedRep's state evolution to second order: the median run and the band around it, without simulation."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed.errors import check_array, check_integer, check_number
from linfed.numerics.linalg import eigh, eigvalsh, quiet
from linfed.theory.fedrep.round_moments import HeadTensors, mean_map, next_round, symmetric
from linfed.theory.fedrep.state_evolution import Setting, start_at, too_large

QUANTILES = (0.1, 0.5, 0.9)

DRAWS = 512
"""Fixed Gaussian points that a round's quantiles are taken over, at least."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SecondOrder:
    """What `second_order_evolution` predicts, round by round, the start first.

    Parameters
    ----------
    distance : ndarray (rounds + 1,) or (trials, rounds + 1)
        Median over runs of the sine of the largest principal angle between B and B*.
    low, high : ndarray, as `distance`
        Its 10 % and 90 % quantiles over runs.
    spread : ndarray, as `distance`
        Standard deviation of its logarithm over runs.
    kick : ndarray (rounds,) or (trials, rounds)
        How much one round fluctuates: the largest eigenvalue of the covariance of the squared tangents' matrix,
        relative to its mean. What is left out is of the order of its square: above 0.1 expect more than a few per cent.
    """

    distance: Array
    low: Array
    high: Array
    spread: Array
    kick: Array


def second_order_evolution(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int,
    step_size: float | npt.ArrayLike,
    rounds: int,
    noise_std: float = 0.0,
    participants: int | None = None,
    delta: float | None = None,
    B0: npt.ArrayLike | None = None,
    B_star: npt.ArrayLike | None = None,
) -> SecondOrder:
    """Predict the median of FedRep's subspace distance over runs, and its band, without a free parameter.

    Parameters
    ----------
    W, dim, rounds, noise_std, participants, B0, B_star
        As in `state_evolution`.
    n_samples : int
        Fresh samples m >= k + 4 of each participant and round.
    step_size : float or array_like (rounds,)
        eta > 0, the step on B, of all rounds or of each.
    delta : float, optional
        As in `state_evolution`, but below 1.

    Returns
    -------
    SecondOrder
        With a trial axis if W, B0 or B_star has one: the law of runs with these heads and this start.

    Raises
    ------
    ValueError
        As `state_evolution`; for m <= k + 3, where a round has no fourth moments; and for a start at a right angle,
        whose escape is a matter of chance alone.

    Notes
    -----
    What `state_evolution` leaves out is followed here: that a run fluctuates, and that the largest of its angles is
    what counts. The state is ``T = D'D``, ``D = B_perp'B (B*'B)^{-1}``, whose eigenvalues are the squared tangents; its
    law is ``T = L Y Y'L'`` with Y lower triangular, ``2 log Y_ii`` and ``Y_ij`` jointly Gaussian with mean 0 and
    covariance Sigma. A round

    1. takes the mean of the next T at ``L L'`` with its bias of order 1/p, and its covariance, from the second moments
       of what clients send (`next_round`), as if it were a Wishart matrix's;
    2. sends 2K points, K = k(k+1)/2, at the columns of ``+- (K Sigma)^{1/2}``, through the mean map alone;
    3. adds both in logarithms, and moves L to where the mean is 0 again.

    Quantiles are those of the largest eigenvalue over fixed Gaussian points. Axes are the heads' principal ones, those
    that are learned last first.

    Cost: O(n k^8/576) once, in blocks of clients; then O(k^7) per round, whatever n, d and m.

    **Deviations**: an addition.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=400, dim=200, rank=5).truth(0, [0]).W[0]
    >>> setting = {"dim": 200, "n_samples": 20, "step_size": 0.8, "rounds": 30, "delta": 0.9}
    >>> predicted = lf.theory.second_order_evolution(heads, **setting)
    >>> bool((predicted.low <= predicted.distance).all() and (predicted.distance <= predicted.high).all())
    True
    """
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    rounds = check_integer("rounds", rounds, minimum=0)
    steps = checked_steps(step_size, rounds)
    setting = Setting.checked(heads, dim, n_samples, 1.0, noise_std, participants)
    k = heads.shape[-1]
    if setting.n_samples <= k + 3:
        raise ValueError(
            f"n_samples = {setting.n_samples} must be above rank + 3 = {k + 3}: below it a round has no fourth moments"
        )
    N, Q = start_at(delta, B0, B_star, dim=setting.dim, rank=k)
    counts = {array.shape[0] for array in (heads, N) if array.ndim == 3}
    if len(counts) > 1:
        raise ValueError(f"W, B0 and B_star are for {sorted(counts)} trials; they must agree")
    with quiet():
        if not (np.linalg.svd(N, compute_uv=False)[..., -1] > 0).all():
            raise ValueError("the start is at a right angle to the truth: delta must be below 1, and B_star'B0 regular")
        stacked = heads if heads.ndim == 3 else heads[None]
        turn = eigh(stacked.mT @ stacked / stacked.shape[1])[1]  # axes by what is learned: last, first
        tensors = HeadTensors.of(stacked @ turn)
        across = _root(turn.mT @ symmetric(np.asarray(np.linalg.solve(N.mT, np.linalg.solve(N.mT, Q).mT))) @ turn)
        L = np.asarray(np.linalg.qr(across, mode="r")).mT
        found = _evolved(L * _signs(L), tensors, setting, steps)
    whole: slice | int = slice(None) if counts else 0
    low, median, high, spread, kick = (array[whole] for array in found)
    return SecondOrder(distance=median, low=low, high=high, spread=spread, kick=kick)


def checked_steps(step_size: float | npt.ArrayLike, rounds: int) -> Array:
    """Return the step size of each round (rounds,), from one for all or one for each."""
    if np.ndim(step_size) == 0:
        return np.full(rounds, check_number("step_size", step_size, positive=True))
    steps = check_array("step_size", step_size, [("rounds",)])
    if steps.shape != (rounds,) or not (steps > 0).all():
        raise ValueError(f"step_size of shape {steps.shape} must hold {rounds} positive values, one for each round")
    return steps


def _evolved(L: Array, tensors: HeadTensors, setting: Setting, steps: Array) -> tuple[Array, ...]:
    """Return quantiles and spread of all rounds, (trials, rounds + 1) each, and the kicks (trials, rounds)."""
    k, trials = L.shape[-1], max(len(L), len(tensors.second))
    L = np.broadcast_to(L, (trials, k, k))
    chart, fourth = Chart.of(k), tensors.full()
    Sigma = np.zeros((trials, len(chart.rows), len(chart.rows)))
    settled = (L == 0).all(axis=(-2, -1)) if setting.noise_std == 0 else np.zeros(trials, dtype=bool)
    L = np.where(settled[:, None, None], np.eye(k), L)  # in its place: at B*, without noise, nothing moves
    told, kicks = np.empty((4, trials, len(steps) + 1)), np.empty((trials, len(steps)))
    told[..., 0] = chart.quantiles(L, Sigma)
    for t, step in enumerate(steps):
        now = replace(setting, step_size=float(step))
        try:
            root, V = next_round(L @ L.mT, tensors, now)
            centre = np.linalg.cholesky(mean_map(L @ L.mT, tensors.second, fourth, now))
            points = chart.points(L, Sigma)
            sent = np.linalg.cholesky(mean_map(points, tensors.second[:, None], fourth[:, None], now))
        except np.linalg.LinAlgError:
            raise too_large(float(step), t + 1) from None
        old = chart.coordinates(np.linalg.solve(centre[:, None], sent))
        mean, covariance = chart.fresh(V)
        mean += old.mean(axis=1)
        old -= old.mean(axis=1, keepdims=True)
        shift, Sigma = chart.recentred(mean, covariance + old.mT @ old / old.shape[1])
        L = root @ shift
        told[..., t + 1], kicks[:, t] = chart.quantiles(L, Sigma), chart.largest(V)
        if not np.isfinite(told[..., t + 1]).all():
            raise too_large(float(step), t + 1)
    told[:, settled], kicks[settled] = 0.0, 0.0
    return *told, kicks


@dataclass(frozen=True)
class Chart:
    """The coordinates of lower triangular Y: ``2 log Y_ii`` on the diagonal, ``Y_ij`` below, row by row.

    Parameters
    ----------
    rows, columns : ndarray (K,)
        Where each stands.
    diagonal : ndarray (k,)
        Which stand on the diagonal.
    gaussian : ndarray (draws, K)
        Antithetic points of mean 0 and covariance I.
    """

    rows: Indices
    columns: Indices
    diagonal: Indices
    gaussian: Array

    @classmethod
    @functools.cache
    def of(cls, k: int) -> Chart:
        """Return the chart for k angles."""
        rows, columns = np.tril_indices(k)
        half = np.random.default_rng(0).standard_normal((max(DRAWS // 2, 4 * len(rows)), len(rows)))
        half = np.linalg.solve(np.linalg.cholesky(half.T @ half / len(half)), half.T).T
        return cls(rows, columns, np.flatnonzero(rows == columns), np.concatenate([half, -half]))

    def matrices(self, coordinates: Array) -> Array:
        """Return Y (..., k, k) for coordinates (..., K)."""
        k = len(self.diagonal)
        Y = np.zeros((*coordinates.shape[:-1], k, k))
        Y[..., self.rows, self.columns] = coordinates
        Y[..., range(k), range(k)] = np.exp(0.5 * coordinates[..., self.diagonal])
        return Y

    def coordinates(self, Y: Array) -> Array:
        """Return the coordinates (..., K) of lower triangular matrices (..., k, k)."""
        entries = Y[..., self.rows, self.columns]
        entries[..., self.diagonal] = 2.0 * np.log(entries[..., self.diagonal])
        return entries

    def points(self, L: Array, Sigma: Array) -> Array:
        """Return T (trials, 2K, k, k) at points with the mean and the covariance of the law."""
        columns = np.sqrt(len(self.rows)) * _root(Sigma)
        Y = L[:, None] @ self.matrices(np.concatenate([columns, -columns], axis=1))
        return Y @ Y.mT

    def quantiles(self, L: Array, Sigma: Array) -> Array:
        """Return the distance's quantiles, and its logarithm's standard deviation, (4, trials)."""
        Y = L[:, None] @ self.matrices(self.gaussian @ _root(Sigma))
        squared = np.maximum(eigvalsh(Y.mT @ Y)[..., -1], np.finfo(float).tiny)
        distance = np.sqrt(squared / (1.0 + squared))
        return np.concatenate([np.quantile(distance, QUANTILES, axis=-1), np.log(distance).std(axis=-1)[None]])

    def largest(self, V: Array) -> Array:
        """Return the largest eigenvalue of covariances (trials, k, k, k, k) of symmetric matrices."""
        scale = np.where(self.rows == self.columns, 1.0, np.sqrt(2.0))
        return eigvalsh(self.packed(V) * scale[:, None] * scale)[:, -1]

    def packed(self, V: Array) -> Array:
        """Return the covariance (trials, K, K) of the entries on and below the diagonal."""
        return V[:, self.rows, self.columns][..., self.rows, self.columns]

    def fresh(self, V: Array) -> tuple[Array, Array]:
        """Return mean and covariance of the coordinates of Y with ``Y Y' = I + Delta``, Delta of covariance V.

        To second order, and so that a Wishart matrix's are nearly right: off the diagonal Y has the covariance of
        Delta, ``Y_ii^2`` what the squares to the left of it leave, and is log-normal.
        """
        below = np.tril(np.ones(V.shape[1:3]), -1)
        own = np.einsum("tijij->tij", V) * below
        kept = np.maximum(1.0 - own.sum(axis=-1), 0.1)
        left = np.einsum("tiiii->ti", V) - 2.0 * np.square(own).sum(axis=-1)
        relative = np.log1p(np.einsum("tiijj->tij", V) / (kept[:, :, None] * kept[:, None, :]))
        variance = np.log1p(np.maximum(left, 0.0) / np.square(kept))
        mean = -0.5 * np.einsum("tjjij->tij", V) - np.einsum("tiljl,jl->tij", V, below)
        mean, Sigma = mean[:, self.rows, self.columns], self.packed(V)
        Sigma[:, self.diagonal[:, None], self.diagonal] = relative
        Sigma[:, self.diagonal, self.diagonal] = variance
        mean[:, self.diagonal] = np.log(kept) - 0.5 * variance
        return mean, Sigma

    def recentred(self, mean: Array, Sigma: Array) -> tuple[Array, Array]:
        """Return Y at the mean, and the covariance of the coordinates of ``Y_mean^{-1} Y``."""
        Y = self.matrices(mean)
        jacobian = np.linalg.inv(Y)[:, self.rows[:, None], self.rows] * (self.columns[:, None] == self.columns)
        jacobian[..., self.diagonal] *= 0.5 * np.diagonal(Y, axis1=1, axis2=2)[:, None]
        jacobian[:, self.diagonal] *= 2.0
        return Y, jacobian @ Sigma @ jacobian.mT


def _root(A: Array) -> Array:
    """Return the symmetric root of each positive semi-definite matrix; values below 0 count as 0."""
    values, vectors = eigh(A)
    return (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ vectors.mT


def _signs(L: Array) -> Array:
    """Return the signs (..., 1, k) that make the diagonal of L positive."""
    return np.copysign(1.0, np.diagonal(L, axis1=-2, axis2=-1) + 0.0)[..., None, :]
