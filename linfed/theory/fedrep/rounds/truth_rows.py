"""Rows of B in the eigenbasis of a ground truth of any rank: initial rows, noise per round and median angle."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed.numerics.linalg import client_blocks
from linfed.theory.fedrep.rounds.state_evolution import RoundSizes
from linfed.theory.fedrep.wishart import gram_roots

VALUES = 150_000
"""Number of Gaussian values used for the median of a round, in 128 to 1024 draws."""


@dataclass(frozen=True)
class TruthRows:
    """The clients in the eigenbasis of ``mean_i v_i v_i'``: eigenvalues in descending order, then 0 outside the span.

    If there are few directions outside the span, each has a row. Otherwise one row stands for all of them.

    Parameters
    ----------
    points : ndarray (n, R)
    values : ndarray (R,)
        Eigenvalues.
    counts : ndarray (R,)
        Number of directions that each row stands for.
    basis : ndarray (r, r)
        The eigenvectors.
    """

    points: Array
    values: Array
    counts: Array
    basis: Array

    @classmethod
    def of(cls, V: Array, rank: int, dim: int) -> TruthRows:
        """Return the rows for clients ``phi_i = U v_i`` with V (n, r), for B of shape (dim, rank)."""
        n, r = V.shape
        values, basis = np.linalg.eigh(V.T @ V / n)
        values, basis = np.maximum(values[::-1], 0.0), basis[:, ::-1]
        if values[rank - 1] - values[rank] <= 1e-9 * values[0]:
            raise ValueError(
                f"V has no gap after rank = {rank}: lambda_k = {values[rank - 1]:g}, lambda_k+1 = {values[rank]:g} of "
                "mean_i v_i v_i' are equal, so the top subspace is not unique"
            )
        extra = dim - r if dim - r <= 2 * rank else 1
        counts = np.ones(r + extra)
        if dim - r > 2 * rank:
            counts[-1] = dim - r
        points = np.concatenate([V @ basis, np.zeros((n, extra))], axis=1)
        return cls(points, np.concatenate([values, np.zeros(extra)]), counts, basis)

    @property
    def pooled(self) -> bool:
        """True if the last row stands for all directions outside the span."""
        return bool(self.counts[-1] > 1.0)

    def lengths(self, second: Array) -> tuple[float, float]:
        """Return the root mean square lengths of the rows below U_k from their second moments (R, k, k)."""
        traces = self.counts * np.trace(second, axis1=1, axis2=2)
        k, r = second.shape[-1], len(self.basis)
        inside, outside = np.sqrt([traces[k:r].sum(), traces[r:].sum()])  # NaN if `second` is not a covariance
        return float(inside), float(outside)

    def noise(self, mean: Array, spread: Array, setting: RoundSizes) -> tuple[Array, Array]:
        """Return the covariance (R, k, k) of the change of each row before QR, and the covariance of the shared factor.

        The second one, (k, k, k, k), is the covariance of ``(1/p) sum_i (x_i/m) a_i w_i'``. Both are for step size 1.

        Parameters
        ----------
        mean, spread : ndarray (R, k) and (R, k, k)
            Mean and covariance of each row of B.
        setting : RoundSizes
        """
        n, k, m = len(self.points), mean.shape[1], setting.n_samples
        c, spare = 1.0 - k / m, m - k - 1
        upper = np.triu_indices(k)
        packed, traces = spread[:, *upper], np.trace(spread, axis1=1, axis2=2)
        twice = packed * np.where(upper[0] == upper[1], 1.0, 2.0)
        free = 1.0 - traces - np.vecdot(mean, mean)
        along = np.zeros((len(mean), len(upper[0])))  # of u_q^2 a a'
        across, moved = np.zeros(len(mean)), np.zeros_like(mean)  # of u_q^2 tau^2, u_q a
        left_along, left_squared = np.zeros(len(upper[0])), 0.0  # of tau^2 a a', tau^4
        best = np.zeros((len(upper[0]), len(upper[0])))  # of a a' (x) a a'
        for _, clients in client_blocks(1, n, 3 * len(mean)):
            v = self.points[clients]
            squares = v * v
            a = v @ mean
            u = v - a @ mean.T - v * traces
            products = a[:, upper[0]] * a[:, upper[1]] + squares @ packed
            left = np.vecdot(v, u) + setting.noise_std**2
            u_squared = u * u + products @ twice.T
            along += u_squared.T @ products
            across += u_squared.T @ left
            moved += u.T @ a
            left_along += left @ products
            left_squared += left @ left
            best += products.T @ products
        eye = np.eye(k)

        def matrices(entries: Array) -> Array:
            out = np.empty((*entries.shape[:-1], k, k))
            out[..., upper[0], upper[1]] = out[..., upper[1], upper[0]] = entries / n
            return out

        fourth, moved = matrices(along), moved / n
        by_samples = (m - k + 1) * (fourth + (across / (n * spare))[:, None, None] * eye)
        by_samples += free[:, None, None] * (matrices(left_along) + left_squared / (n * spare) * eye)
        pull = np.tensordot(self.values, mean[:, :, None] * mean[:, None, :] + spread, 1)
        met = moved[:, :, None] * moved[:, None, :] + pull @ spread @ pull
        chosen = setting.share * (fourth - met)
        row_covariance = (c / m * by_samples - c * c * fourth) / setting.participants + c * c * chosen

        place = np.empty((k, k), dtype=int)
        place[upper] = place[upper[1], upper[0]] = np.arange(len(upper[0]))
        quartic = best[place][:, :, place] / n
        message = quartic + matrices(left_along)[:, None, :, None] * eye[:, None, :] / spare  # covariance of a w'
        shared = (c / m * (m - k + 2) * message - c * c * quartic) / setting.participants
        shared += setting.share * c * c * (quartic - pull[:, :, None, None] * pull)
        return row_covariance, shared


@dataclass(frozen=True)
class Start:
    """Initial B: some rows are known, the others are a uniform frame with equal mean square lengths.

    Parameters
    ----------
    mean : ndarray (R, k)
        The known rows; 0 for others.
    second : ndarray (R, k, k)
        Second moments of the other rows; 0 for known ones.
    outside : ndarray (k, k)
        Factor of the Gram matrix of the rows that the last row stands for; 0 if these rows are random.
    length : float
        Sine of all principal angles of the random frame to U_k; 0 if there is no random frame.
    """

    mean: Array
    second: Array
    outside: Array
    length: float

    @classmethod
    def none(cls, rows: TruthRows, rank: int) -> Start:
        """Return the initial B whose span is U_k."""
        return cls.at_distance(rows, 0.0, rank)

    @classmethod
    def at_distance(cls, rows: TruthRows, delta: float, rank: int) -> Start:
        """Return the distribution of the initial B of `lf.AtDistance`."""
        mean = math.sqrt((1.0 - delta) * (1.0 + delta)) * np.eye(len(rows.values), rank)
        second = np.zeros((len(rows.values), rank, rank))
        second[rank:] = delta**2 / (rows.counts[rank:].sum()) * np.eye(rank)
        return cls(mean, second, np.zeros((rank, rank)), delta)

    @classmethod
    def given(cls, rows: TruthRows, N: Array, Q: Array) -> Start:
        """Return a fixed initial B from its coordinates N in the span and the Gram matrix Q of its part outside."""
        k, r = len(Q), len(rows.basis)
        mean, second = np.zeros((len(rows.values), k)), np.zeros((len(rows.values), k, k))
        mean[:r] = rows.basis.T @ N
        values, vectors = np.linalg.eigh(Q)
        factor = (np.sqrt(np.maximum(values, 0.0)) * vectors).T[::-1]  # largest first
        if rows.pooled:
            second[-1] = Q / rows.counts[-1]
            return cls(mean, second, factor, 0.0)
        here = min(len(rows.values) - r, k)
        mean[r : r + here] = factor[:here]
        return cls(mean, second, np.zeros((k, k)), 0.0)


@dataclass(frozen=True)
class MedianDraws:
    """Fixed Gaussian values for medians over runs. The first axis is the rows below U_k, the second the draws.

    Parameters
    ----------
    frames, noise : ndarray (R', draws or 1, k) and (R', draws, k)
        Rows of the initial uniform frame (0 if there is none), and the values that multiply a square root of the
        covariance of each row.
    outer : tuple of ndarray (draws, k, k)
        Factors of Gram matrices for the row that stands for many directions: the initial part, the noise along it, and
        the noise across it.
    turns : ndarray (draws, k^2)
        Values for the factor that multiplies all rows.
    """

    frames: Array
    noise: Array
    outer: tuple[Array, Array, Array] | None
    turns: Array

    @classmethod
    def of(cls, rows: TruthRows, start: Start) -> MedianDraws:
        """Draw the values for these rows, with a fixed seed."""
        k, rng = start.mean.shape[1], np.random.default_rng(0)
        below = len(rows.values) - k - rows.pooled
        draws = int(np.clip(VALUES // (below * k), 128, 1024))
        noise, frames = rng.standard_normal((below, draws, k)), np.zeros((below, 1, k))
        many = int(rows.counts[-1])
        outer = None
        if rows.pooled:
            outer = (start.outside[None], rng.standard_normal((draws, k, k)), gram_roots(rng, draws, k, many - k))
        if start.length:
            frames = rng.standard_normal((below, draws, k))
            gram = _gram(frames)
            if outer is not None:
                outer = (gram_roots(rng, draws, k, many), *outer[1:])
                gram += outer[0].mT @ outer[0]
            scale = start.length * np.linalg.inv(np.linalg.cholesky(gram)).mT
            frames = np.matmul(frames.swapaxes(0, 1), scale).swapaxes(0, 1)
            if outer is not None:
                outer = (outer[0] @ scale, *outer[1:])
        return cls(frames, noise, outer, rng.standard_normal((draws, k * k)))

    def median(self, mean: Array, moved: Array, S: Array, turn: Array | None = None) -> float:
        """Return the median sine of the largest angle.

        Parameters
        ----------
        mean : ndarray (R, k)
            Means of the rows that the initial B determines, the k rows of U_k first; 0 for the other rows.
        moved : ndarray (R, k, k)
            Product of the matrices that have multiplied each of the other rows.
        S : ndarray (R, k, k)
            Covariances of the noise in all rows, 0 in those of U_k.
        turn : ndarray (k, k, k, k), optional
            Covariance of xi. If given, all rows are multiplied by a random ``I + xi``, rescaled to keep their mean
            square.
        """
        k, rows = mean.shape[1], len(self.noise)
        top, moved = mean[:k], moved[k:]
        values, vectors = np.linalg.eigh(S[k:])
        roots = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ vectors.mT
        begun = mean[k : k + rows, None] + self.frames @ moved[:rows]
        gram = _gram(begun + self.noise @ roots[:rows])
        if self.outer is not None:
            outer, along, across = self.outer
            first, second = outer @ moved[-1] + along @ roots[-1], across @ roots[-1]
            gram = gram + first.mT @ first + second.mT @ second
        if turn is not None and turn.any():
            values, vectors = np.linalg.eigh(turn.reshape(k * k, k * k))
            chance = self.turns @ (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
            factor = np.eye(k) + chance.reshape(-1, k, k)
            length = np.trace(gram.sum(axis=0))
            gram = factor.mT @ gram @ factor
            gram *= length / np.trace(gram.sum(axis=0))
        L = np.linalg.cholesky(top.T @ top + gram)
        share = np.linalg.solve(L, np.linalg.solve(L, gram).mT)
        return float(np.sqrt(np.median(np.linalg.eigvalsh((share + share.mT) / 2.0)[:, -1])))


def _gram(rows: Array) -> Array:
    """Return the Gram matrices (draws, k, k) of rows (R', draws, k)."""
    return np.asarray(rows.transpose(1, 2, 0) @ rows.transpose(1, 0, 2))
