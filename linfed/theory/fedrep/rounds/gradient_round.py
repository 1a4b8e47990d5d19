"""One round of FedRep with gradient heads: mean of B over a population of clients, and fluctuation over runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.numerics.linalg import TINY, symmetric
from linfed.system.memory import check_fits
from linfed.theory.fedrep.wishart import gram_roots

DRAWS = 256
"""Smallest number of fixed Gaussian points for the median of a round."""

MESSAGES = 8000
"""Smallest number of messages for the means of a round, unless this requires more than `CLIENTS` clients."""

CLIENTS = 2**18
"""Largest number of clients in the population, if the run has fewer clients."""


@dataclass(frozen=True)
class Packing:
    """Map from symmetric matrices to vectors of the entries on and above the diagonal, sqrt(2) times above it."""

    unpacking: Array

    @classmethod
    def of(cls, k: int) -> Packing:
        """Return the packing of k x k matrices."""
        rows, columns = np.triu_indices(k)
        T = np.zeros((len(rows), k, k))
        T[np.arange(len(rows)), rows, columns] = np.where(rows == columns, 1.0, math.sqrt(0.5))
        T[np.arange(len(rows)), columns, rows] = T[np.arange(len(rows)), rows, columns]
        return cls(T.reshape(len(rows), k * k))

    def unpack(self, x: Array) -> Array:
        """Return the symmetric matrices (.., k, k) of vectors (.., K)."""
        k = math.isqrt(self.unpacking.shape[1])
        return (x @ self.unpacking).reshape(*x.shape[:-1], k, k)

    def outer(self, x: Array, y: Array) -> Array:
        """Return the vectors (K, b) of the symmetric parts of ``x_b y_b'``, for columns of x and y (k, b)."""
        rows, columns = np.triu_indices(len(x))
        weights = np.where(rows == columns, 0.5, math.sqrt(0.5))[:, None]
        return np.asarray(weights * (x[rows] * y[columns] + x[columns] * y[rows]))

    def product(self, M: Array, L: Array) -> Array:
        """Return the maps (.., K, K) of vectors that take X to the symmetric part of ``M X L'``, for M (.., k, k)."""
        k = M.shape[-1]
        both = np.einsum("...ab,cd->...acbd", M, L).reshape(*M.shape[:-2], k * k, k * k)
        return np.asarray(self.unpacking @ both @ self.unpacking.T)


@dataclass(frozen=True)
class HeadsState:
    """B, its fluctuation over runs, and the heads of a population that consists of copies of the n clients of a run.

    Parameters
    ----------
    N, Q : ndarray (k, k)
        Means of ``B*'B`` and ``B'(I - B*B*')B``.
    lag : ndarray (k, copies n)
        ``g_i = w_i - a_i``, head of each client minus its best head ``a_i = N'w_i*``; client ``j % n`` in column j.
    chance : ndarray (K, K)
        Covariance of D, where ``C (I + D) C'`` is Q of a run and C is the Cholesky factor of its mean.
    kick : float
        Increase of the largest eigenvalue of `chance` by the participants of the last round, to first order.
    """

    N: Array
    Q: Array
    lag: Array
    chance: Array
    kick: float = 0.0

    @property
    def finite(self) -> bool:
        """True if all numbers are finite."""
        return all(bool(np.isfinite(array).all()) for array in (self.N, self.Q, self.lag))

    @property
    def gap(self) -> float:
        """Root mean square of ``||g_i||``."""
        return float(np.linalg.norm(self.lag)) / math.sqrt(self.lag.shape[1])


@dataclass(frozen=True)
class _Messages:
    """Messages of the participants for a given B, one column each.

    Parameters
    ----------
    heads, lag : ndarray (k, b)
        New heads w+, and their differences from the best heads.
    inside : ndarray (k, b)
        ``Z'r/m`` with Z = X B and residual r. This is the gradient ``X'r w+'/m`` along B without its factor w+.
    along : ndarray (b,)
        ``v'r/(m tau_i)``, the component along ``(I - BB') phi_i`` divided by the length of this vector.
    length, noise : ndarray (b,)
        ``||r||^2/m``, and its part outside the span of Z, which the heads do not change.
    """

    heads: Array
    lag: Array
    inside: Array
    along: Array
    length: Array
    noise: Array


@dataclass(frozen=True, kw_only=True)
class HeadsRound:
    """True heads (n, k) of a run, sizes, label noise variance, and number of head steps."""

    W: Array
    dim: int
    n_samples: int
    participants: int
    variance: float
    head_steps: int

    def start(self, N: Array, Q: Array) -> HeadsState:
        """Return the initial state, in which all heads are 0."""
        n, k = self.W.shape
        check_fits(4.0 * k**4, f"the maps of a round for rank = {k}", "use a smaller rank")
        copies = max(1, min(math.ceil(MESSAGES / self.participants), CLIENTS // n))
        lag = np.tile(-N.T @ self.W.T, copies)
        return HeadsState(N, Q, lag, np.zeros((k * (k + 1) // 2,) * 2))

    def after(self, state: HeadsState, eta: float, alpha: float, rng: Generator) -> HeadsState:
        """Return the state after a round, by the formulas of `gradient_heads_evolution`."""
        N, Q, (n, k), p = state.N, state.Q, self.W.shape, self.participants
        eye, root, copies = np.eye(k), _cholesky(Q), state.lag.shape[1] // n
        H = _polar(N)
        P = H @ Q @ H.T  # I - N N'
        chosen = np.arange(copies * n)
        if p < n:
            sets = np.argpartition(rng.random((copies, n)), p - 1, axis=1)[:, :p]
            chosen = (sets + n * np.arange(copies)[:, None]).reshape(-1)
        clients = chosen % n
        W = self.W.T[:, clients]
        best = N.T @ W
        squares = np.maximum((W * (P @ W)).sum(axis=0) + self.variance, TINY)  # tau_i^2
        sent = self._messages(best, state.lag[:, chosen], squares, alpha, rng)

        count, heads, along = len(chosen), sent.heads, W * sent.along
        inside, outside = sent.inside @ heads.T / count, along @ heads.T / count
        pull = inside - N.T @ outside
        moved = -eta * (N @ inside + P @ outside)
        # Relative change of N by a message, and change of squared tangents, both times w+'.
        kept = eye - eta * pull
        turn = -eta * _inverse(N + moved) @ (N @ sent.inside + P @ along)
        tilt = eta * (best * sent.along - sent.inside) - kept @ turn
        both = (np.stack([tilt, turn])[:, :, None] * heads).reshape(2 * k * k, count)
        both = self._covariance(both, clients).reshape(2, k, k, 2, k, k)
        both /= 1.0 + np.einsum("ijij", both[1, :, :, 1]) ** 2  # invalid expansion if N is nearly singular
        lost = eta * pull + np.einsum("ijjl->il", both[0, :, :, 1])
        # Number of directions in which a message is Gaussian: all except B and (I - BB') phi_i.
        dims = self.dim - k - np.trace(Q) - (best * (Q @ best)).sum(axis=0) / squares
        length = eta * eta / (p * self.n_samples) * sent.length
        fresh = (heads * (length * dims)) @ heads.T / count
        fresh += np.einsum("ijal,ia->jl", both[0, :, :, 0], Q)
        change: Array = np.asarray(lost.T @ Q @ lost + fresh - Q @ lost - lost.T @ Q, dtype=np.float64)
        change = symmetric(change)
        # R = I + U avoids cancellation: near B* a round changes N and the best heads only to second order.
        above = _cholesky_rest(2.0 * symmetric(N.T @ moved) + moved.T @ moved + change)
        R = eye + above
        N_after: Array = np.asarray(np.linalg.solve(R.T, (N + moved).T).T, dtype=np.float64)
        turned = N_after @ above - moved  # N before the round minus N after it
        Q_after = symmetric(np.linalg.solve(R.T, np.linalg.solve(R.T, Q + change).T))
        lags = state.lag.copy()
        lags[:, chosen] = sent.lag
        lags += np.tile(turned.T @ self.W.T, copies)

        now = _cholesky(Q_after)
        if root is None or now is None:
            return HeadsState(N_after, Q_after, lags, np.zeros_like(state.chance))
        back = np.linalg.solve(now, np.linalg.inv(R).T)
        packing = Packing.of(k)
        # Relative changes of squared tangents by each message, due to its length and its part along B*.
        sizes, left = back @ heads, back @ kept.T @ Q
        lengths = sizes * np.sqrt(length)
        added = packing.outer(lengths, lengths) * dims + 2.0 * packing.outer(left @ tilt, sizes)
        added = self._covariance(added, clients)
        # Gaussian part: squares of noise, and noise along existing tangents, but not along (I - BB') phi_i.
        old, new = back @ kept.T @ root, lengths @ lengths.T / count
        plane = left @ (N.T + kept @ _inverse(N + moved) @ P)  # noise in span(B, B*), which also changes N
        across = plane @ H @ np.linalg.inv(root).T
        absent = packing.outer(plane @ W / np.sqrt(squares), lengths)
        rows = 2.0 * dims.mean() * packing.product(new, new)
        rows += 4.0 * (packing.product(across @ across.T, new) - absent @ absent.T / count)
        noisy = sizes * (eta * np.sqrt(dims / (p * self.n_samples) * sent.noise))
        towards = root.T @ H.T @ W / np.sqrt(squares)
        step = packing.product(old, old) + packing.outer(noisy, noisy) @ packing.outer(towards, towards).T / count
        before = step @ state.chance @ step.T
        if not np.isfinite(before + added + rows).all():
            return HeadsState(N_after, Q_after, lags, np.zeros_like(state.chance), math.inf)
        kick = float(np.linalg.eigvalsh(added)[-1])
        return HeadsState(N_after, Q_after, lags, before + _of_logarithm(added + rows), kick)

    def _messages(self, best: Array, lag: Array, squares: Array, alpha: float, rng: Generator) -> _Messages:
        """Draw messages of clients from their exact distribution for given B and heads."""
        (k, count), m = best.shape, self.n_samples
        rows = gram_roots(rng, count, k, m) if m >= k else rng.standard_normal((count, m, k))
        T = np.ascontiguousarray(np.moveaxis(rows, 0, -1))
        noise = np.sqrt(squares) * rng.standard_normal((T.shape[0], count))
        rest = squares * (rng.chisquare(m - k, count) if m > k else np.zeros(count))
        for _ in range(self.head_steps):
            r = np.einsum("ijb,jb->ib", T, lag) - noise
            lag = lag - alpha / m * np.einsum("ijb,ib->jb", T, r)
        r = np.einsum("ijb,jb->ib", T, lag) - noise
        return _Messages(
            heads=best + lag,
            lag=lag,
            inside=np.einsum("ijb,ib->jb", T, r) / m,
            along=np.where(squares > TINY, ((noise * r).sum(axis=0) - rest) / (m * squares), 0.0),
            length=((r * r).sum(axis=0) + rest) / m,
            noise=rest / m,
        )

    def _covariance(self, values: Array, clients: Indices) -> Array:
        """Return the covariance of a mean of values (K, b) over p participants, drawn without replacement."""
        n, p, count = len(self.W), self.participants, values.shape[1]
        values = values - values.mean(axis=1)[:, None]
        covariance = values @ values.T / (count * p)
        if p > 1:  # two participants are different clients
            sums = np.stack([np.bincount(clients, row, n) for row in values])
            of_client = sums / np.sqrt(np.maximum(np.bincount(clients, minlength=n), 1))
            covariance -= (p - 1) / (p * (n - 1)) * (of_client @ of_client.T) / count
        return np.asarray(covariance)


def _of_logarithm(covariance: Array) -> Array:
    """Return the covariance of the logarithms of log-normal values with a relative covariance, axis by axis."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.log1p(np.maximum(values, 0.0))) @ vectors.T)


def _inverse(N: Array) -> Array:
    """Return the inverse, or the transpose if N is singular."""
    try:
        return np.asarray(np.linalg.inv(N))
    except np.linalg.LinAlgError:
        return N.T


def medians(N: Array, Q: Array, chance: Array) -> tuple[Array, Array]:
    """Return the median sine of the largest angle and the standard deviation of its logarithm for each round.

    Parameters
    ----------
    N, Q : ndarray (n_rounds + 1, k, k)
    chance : ndarray (n_rounds + 1, K, K)

    Notes
    -----
    Q of a run is approximated by ``C (I + (D - l I)/2)^2 C' exp(l)``, where l is the mean of D's diagonal. It is scaled
    to the mean of Q.
    """
    k, packing = Q.shape[-1], Packing.of(Q.shape[-1])
    count = chance.shape[-1]
    half = np.random.default_rng(0).standard_normal((max(DRAWS // 2, 2 * count), count))
    half = np.linalg.solve(np.linalg.cholesky(half.T @ half / len(half)), half.T).T  # of covariance I
    points, eye = np.concatenate([half, -half]), np.eye(k)
    out = np.zeros((2, len(Q)))
    out[0] = np.sqrt(np.clip(np.linalg.eigvalsh(Q)[:, -1], 0.0, 1.0))
    for t in range(len(Q)):
        C = _cholesky(Q[t])
        if C is None or not chance[t].any():
            continue
        values, vectors = np.linalg.eigh(chance[t])
        D = packing.unpack(points @ (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
        level = np.trace(D, axis1=1, axis2=2)[:, None, None] / k
        shape = eye + 0.5 * (D - level * eye)
        shape = shape @ shape
        shape *= np.exp(level - level.var() / 2.0) * k / np.trace(shape.mean(axis=0))
        sampled = C @ shape @ C.T
        L = np.linalg.cholesky(sampled + N[t].T @ N[t])
        inner = np.linalg.solve(L, np.linalg.solve(L, sampled).mT)
        sines = np.sqrt(np.linalg.eigvalsh(0.5 * (inner + inner.mT))[:, -1])
        out[:, t] = np.median(sines), np.log(sines).std()
    return out[0], out[1]


def _polar(N: Array) -> Array:
    """Return the orthogonal polar factor."""
    U, _, Vt = np.linalg.svd(N)
    return np.asarray(U @ Vt)


def _cholesky(Q: Array) -> Array | None:
    """Return the Cholesky factor, or None if Q is not positive definite."""
    try:
        return np.asarray(np.linalg.cholesky(Q), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None


def _cholesky_rest(E: Array) -> Array:
    """Return the upper triangular U with ``(I + U)'(I + U) = I + E``, to relative precision even for tiny E."""
    U = np.zeros_like(E)
    for j in range(len(E)):
        for i in range(j):
            U[i, j] = (E[i, j] - U[:i, i] @ U[:i, j]) / (1.0 + U[i, i])
        rest = E[j, j] - U[:j, j] @ U[:j, j]
        U[j, j] = rest / (1.0 + np.sqrt(1.0 + rest))
    return U
