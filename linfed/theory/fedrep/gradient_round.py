"""One round of FedRep with gradient heads, in moments: means of B and of all heads, and what fluctuates about them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed.numerics.linalg import TINY, symmetric
from linfed.theory.fedrep.state_evolution import HeadMoments, set_share
from linfed.theory.fedrep.wishart import GradientScalars

DRAWS = 256
"""Fixed Gaussian points that a round's median is taken over."""


@dataclass(frozen=True)
class Packing:
    """Symmetric matrices as vectors of their entries on and above the diagonal, those above times sqrt(2)."""

    unpacking: Array

    @classmethod
    def of(cls, k: int) -> Packing:
        """Return the packing of k x k matrices."""
        rows, columns = np.triu_indices(k)
        T = np.zeros((len(rows), k, k))
        T[np.arange(len(rows)), rows, columns] = np.where(rows == columns, 1.0, math.sqrt(0.5))
        T[np.arange(len(rows)), columns, rows] = T[np.arange(len(rows)), rows, columns]
        return cls(T.reshape(len(rows), k * k))

    def pack(self, A: Array) -> Array:
        """Return the vector of the symmetric part of a matrix."""
        return self.unpacking @ A.reshape(-1)

    def unpack(self, x: Array) -> Array:
        """Return the symmetric matrices (.., k, k) of vectors (.., K)."""
        k = math.isqrt(self.unpacking.shape[1])
        return (x @ self.unpacking).reshape(*x.shape[:-1], k, k)

    def product(self, M: Array, L: Array) -> Array:
        """Return the maps (.., K, K) of vectors that take X to the symmetric part of ``M X L'``, for M (.., k, k)."""
        k = M.shape[-1]
        both = np.einsum("...ab,cd->...acbd", M, L).reshape(*M.shape[:-2], k * k, k * k)
        return np.asarray(self.unpacking @ both @ self.unpacking.T)


@dataclass(frozen=True)
class HeadsState:
    """B, and the law of the heads of clients that last took part 0, 1, .. rounds ago (or never), one row each.

    Parameters
    ----------
    N, Q : ndarray (k, k)
        ``B*'B`` and ``B'(I - B*B*')B``.
    weights : ndarray (S,)
        Shares of clients.
    lag : ndarray (S, k, k)
        ``delta_i = w_i - a_i`` has mean ``lag' w_i*``.
    spread, extra : ndarray (S, K, K) and (S, K)
        ``delta_i delta_i'`` has, as a vector, mean ``spread x_i + extra`` with x_i that of ``w_i* w_i*'``.
    stale : ndarray (S, 4)
        First four moments of the lag that comes from when a client took part, as a share of its best head.
    chance : ndarray (K, K)
        Covariance of D where a run's Q is ``C (I + D) C'``, C the Cholesky factor of its mean.
    """

    N: Array
    Q: Array
    weights: Array
    lag: Array
    spread: Array
    extra: Array
    stale: Array
    chance: Array

    @classmethod
    def start(cls, N: Array, Q: Array, packing: Packing) -> HeadsState:
        """Return the state whose heads are 0."""
        spread = packing.product(N.T, N.T)
        extra = np.zeros((1, len(spread)))
        return cls(N, Q, np.ones(1), -N[None], spread[None], extra, np.ones((1, 4)), np.zeros_like(spread))

    @property
    def finite(self) -> bool:
        """Whether numbers are left."""
        return all(bool(np.isfinite(array).all()) for array in (self.N, self.Q, self.lag, self.spread))


@dataclass(frozen=True)
class _Fresh:
    """What a round's samples add to Q at a step of 1.

    Parameters
    ----------
    mean : ndarray (k, k)
    response : ndarray (K, K)
        How it follows Q, as a map of vectors.
    variance : float
        Relative variance of its size over lengths of residuals and sets of participants.
    """

    mean: Array
    response: Array
    variance: float


@dataclass(frozen=True, kw_only=True)
class HeadsRound:
    """Sizes of a round and the true heads' moments."""

    dim: int
    n_clients: int
    n_samples: int
    participants: int
    variance: float
    packing: Packing
    moments: HeadMoments

    @property
    def ages(self) -> int:
        """For how many rounds heads are kept: a client that took part longer ago is one that hardly a run has."""
        if self.participants == self.n_clients:
            return 1
        absent = 1.0 - self.participants / self.n_clients
        return 1 + math.ceil(math.log(self.n_clients) / -math.log(absent))

    @property
    def share(self) -> float:
        """`set_share` of these clients and participants."""
        return set_share(self.n_clients, self.participants)

    def gap(self, state: HeadsState) -> float:
        """Return the root mean square of ``||delta_i||``."""
        second = state.spread @ self.packing.pack(self.moments.second) + state.extra
        return math.sqrt(max(float(np.trace(self.packing.unpack(state.weights @ second))), 0.0))

    def after(self, state: HeadsState, eta: float, s: GradientScalars) -> HeadsState:
        """Return the state after a round; the formulas are those of `gradient_heads_evolution`."""
        N, Q, pack, weights = state.N, state.Q, self.packing.pack, state.weights
        second, eye = self.moments.second, np.eye(len(N))
        lag = np.tensordot(weights, state.lag, 1)
        H = _polar(N)
        trace, left, gamma = pack(eye), pack(H @ Q @ H.T), pack(second)
        # The participants' new heads, as the law of delta is kept.
        spread = s.A1 * state.spread + trace[:, None] * (s.A2 * (trace @ state.spread) + s.b * left)[:, None]
        extra = s.A1 * state.extra + (s.A2 * (state.extra @ trace) + s.b * self.variance)[:, None] * trace
        # Means of the message: inside span(B), and of w_i* against what leaves it.
        gaps = weights @ (state.spread @ gamma + state.extra)
        inside = s.k1 * lag.T @ second @ N + s.p1 * self.packing.unpack(gaps)
        inside += (s.p2 * (trace @ gaps) - s.k2 * (left @ gamma + self.variance)) * eye
        drawn_to = s.g0 * N + s.g1 * lag
        pull = inside + N.T @ second @ drawn_to
        moved = eta * (H @ Q @ H.T @ second @ drawn_to - N @ inside)
        drawn = self._drawn(state, s, spread, extra, H)
        fresh = eta * eta * (drawn.mean + self._chosen(state, s, lag, drawn_to, pull))
        change = symmetric(eta * eta * pull.T @ Q @ pull + fresh) - eta * (Q @ pull + pull.T @ Q)
        # R = I + U, without cancellation: near B* the round moves N, and the best heads, by squares only.
        above = _cholesky_rest(2.0 * symmetric(N.T @ moved) + moved.T @ moved + change)
        R = eye + above
        after: Array = np.asarray(np.linalg.solve(R.T, (N + moved).T).T, dtype=np.float64)
        turned = after @ above - moved  # N before the round less N after it
        Q_after = symmetric(np.linalg.solve(R.T, np.linalg.solve(R.T, Q + change).T))
        return HeadsState(
            after,
            Q_after,
            *self._aged(state, s, lag, spread, extra, turned),
            self._chance(state, s, eye - eta * pull, eta, drawn, R, Q_after),
        )

    def _aged(
        self, state: HeadsState, s: GradientScalars, lag: Array, spread: Array, extra: Array, turned: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        """Return the weights and the law of the heads after a round that has moved the best ones."""
        product, taken, w = self.packing.product, self.participants / self.n_clients, state.weights
        kept = slice(0, 0 if taken == 1.0 else self.ages - 1)
        lags = np.concatenate([s.f1 * lag[None], state.lag[kept]])
        spreads = np.concatenate([np.tensordot(w, spread, 1)[None], state.spread[kept]])
        spreads = spreads + 2.0 * product(lags.mT, turned.T) + product(turned.T, turned.T)
        weights = np.concatenate([[taken], (1.0 - taken) * w[kept]])
        powers = np.arange(5)
        stale = np.concatenate([(s.f1 ** powers[1:] * (w @ state.stale))[None], state.stale[kept]])
        moments = np.concatenate([np.ones((len(stale), 1)), stale], axis=1)
        before = math.sqrt(np.vdot(state.N @ state.N.T, self.moments.second)) + TINY  # of the best heads
        longer = np.vdot(turned @ (turned - 2.0 * state.N).T, self.moments.second)
        now = math.sqrt(max(before * before + longer, 0.0)) + TINY
        by, to = before / now, longer / (before + now) / now
        binomial = np.array([[math.comb(j, i) for i in range(5)] for j in range(5)])
        affine = binomial * by**powers * to ** np.maximum(powers[:, None] - powers, 0)
        extras = np.concatenate([(w @ extra)[None], state.extra[kept]])
        return weights / weights.sum(), lags + turned, spreads, extras, moments @ affine[1:].T

    def _drawn(self, state: HeadsState, s: GradientScalars, spread: Array, extra: Array, H: Array) -> _Fresh:
        """Return what the participants' samples add to Q, given the second moments of their new heads."""
        N, Q, product, fourth, w = state.N, state.Q, self.packing.product, self.moments.fourth, state.weights
        trace, gamma, left = (self.packing.pack(A) for A in (np.eye(len(N)), self.moments.second, H @ Q @ H.T))
        heads = product(N.T, N.T) + 2.0 * s.f1 * product(state.lag.mT, N.T) + spread  # of w+ w+'
        length = s.k3 * (trace @ state.spread) + s.r2 * left  # of |r|^2/m
        rest = s.k3 * (state.extra @ trace) + s.r2 * self.variance
        weighted = length @ fourth
        totals = length @ gamma + rest
        mean = w @ (np.einsum("sij,sj->si", heads, weighted + rest[:, None] * gamma) + totals[:, None] * extra)
        m1, m2, m3, m4 = state.stale.T
        crossed = s.k3 * (w @ (s.f1 * s.f1 * (m4 - m2 * m2) - 2.0 * s.f1 * (m3 - m1 * m2)))
        late = crossed * (N.T @ self.moments.weighted(N @ N.T) @ N)
        share = (self.dim - len(N) - np.trace(Q)) / (self.participants * self.n_samples)
        response = share * s.r2 * np.tensordot(w, heads, 1) @ fourth @ product(H, H)
        squares = w @ (np.vecdot(weighted, length) + rest * (2.0 * (length @ gamma) + rest))
        squares = squares / ((w @ totals) ** 2 + TINY)
        variance = 2.0 / (self.n_samples * self.participants) * squares + self.share * (squares - 1.0)
        return _Fresh(share * (self.packing.unpack(mean) + late), response, float(variance))

    def _chosen(self, state: HeadsState, s: GradientScalars, lag: Array, drawn_to: Array, pull: Array) -> Array:
        """Return what the choice of participants adds to Q, for a step of 1."""
        if self.share == 0.0:
            return np.zeros_like(state.Q)
        N, Q, weighted = state.N, state.Q, self.moments.weighted
        crossed = drawn_to.T @ weighted(symmetric(N @ Q @ lag.T)) @ N
        mean = drawn_to.T @ weighted(symmetric(N @ Q @ N.T)) @ drawn_to + s.k1 * (crossed + crossed.T)
        mean += s.k1**2 * N.T @ weighted(symmetric(lag @ Q @ lag.T)) @ N
        return np.asarray(self.share * (mean - pull.T @ Q @ pull))

    def _chance(
        self, state: HeadsState, s: GradientScalars, kept: Array, eta: float, drawn: _Fresh, R: Array, after: Array
    ) -> Array:
        """Return the covariance of the relative fluctuation of Q after the round."""
        N, Q, pack, product = state.N, state.Q, self.packing.pack, self.packing.product
        before, now = _root(Q), _root(after)
        if before is None or now is None:
            return np.zeros_like(state.chance)
        back = np.linalg.solve(now, np.linalg.inv(R).T)
        old, new = back @ kept.T @ before, eta * eta * back @ drawn.mean @ back.T
        step = product(old, old) + eta * eta * product(back, back) @ drawn.response @ product(before, before)
        freedom = max(self.dim - 2 * len(N), 1)
        rows = 2.0 / freedom * (product(new, new) + 2.0 * product(old @ old.T, new))
        best = product(N.T, N.T) @ self.moments.fourth @ product(N.T, N.T).T
        mean = pack(N.T @ self.moments.second @ N)
        clients = 2.0 / (self.n_samples * self.participants) * best + self.share * (best - np.outer(mean, mean))
        turn = 2.0 * eta * s.g0 * product(back, back @ kept.T @ Q)
        sizes = drawn.variance * np.outer(pack(new), pack(new))
        return np.asarray(step @ state.chance @ step.T + rows + turn @ clients @ turn.T + sizes)


def medians(N: Array, Q: Array, chance: Array) -> tuple[Array, Array]:
    """Return the median of the sine of the largest angle, and the standard deviation of its logarithm, of each round.

    Parameters
    ----------
    N, Q : ndarray (rounds + 1, k, k)
    chance : ndarray (rounds + 1, K, K)

    Notes
    -----
    A run's Q is taken to be ``C (I + (D - l I)/2)^2 C' exp(l)``, l the mean of D's diagonal, scaled to the mean of Q.
    """
    k, packing = Q.shape[-1], Packing.of(Q.shape[-1])
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, chance.shape[-1]))
    points, eye = np.concatenate([half, -half]), np.eye(k)
    out = np.zeros((2, len(Q)))
    out[0] = np.sqrt(np.clip(np.linalg.eigvalsh(Q)[:, -1], 0.0, 1.0))
    for t in range(len(Q)):
        C = _root(Q[t])
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


def _root(Q: Array) -> Array | None:
    """Return the Cholesky factor, or None if there is none."""
    try:
        return np.asarray(np.linalg.cholesky(Q), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None


def _cholesky_rest(E: Array) -> Array:
    """Return the upper U with ``(I + U)'(I + U) = I + E``, to relative precision also where E is tiny."""
    U = np.zeros_like(E)
    for j in range(len(E)):
        for i in range(j):
            U[i, j] = (E[i, j] - U[:i, i] @ U[:i, j]) / (1.0 + U[i, i])
        rest = E[j, j] - U[:j, j] @ U[:j, j]
        U[j, j] = rest / (1.0 + np.sqrt(1.0 + rest))
    return U
