"""Cavity equations of the minimum on fixed samples: one total least-squares problem for each client."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed.theory.fedrep.wishart import fixed_factors

DRAWS = 4096
"""Smallest number of fixed draws of a client's samples. With more clients than draws, clients at equal steps."""

DATA_SETS = 400
"""Number of data sets in the median of the clients' mean risk."""

MEAN_CLIENTS = 10_000
"""Largest number of clients that are drawn for this median; with more, a mean over clients is close to its limit."""

ITERATIONS, TOLERANCE, MEMORY = 30, 1e-6, 4
"""Largest number of iterations, relative change below which they have converged, and steps of Anderson's method."""

NOISELESS_ITERATIONS = 10_000
"""Largest number of iterations without label noise, which are cheap."""

LARGEST = 0.999
"""Largest squared sine of an angle of a solution."""

NARROW = 0.2
"""Smallest ratio of a gap and the smallest eigenvalue in `ClientDraws.replicon`; smaller ones are replaced by it.
Otherwise the radius would be infinite, by a logarithm, and would depend on single draws."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TotalLeastSquares:
    """The total least-squares problem of each draw, in coordinates in which V is I.

    Parameters
    ----------
    root : ndarray (k, k)
        Lower triangular L with ``V = L L'``.
    inside : ndarray (draws, k)
        ``L'a`` with the regressor a on the features.
    least, inverse : ndarray (draws,)
        Smallest eigenvalue ``lambda_0``, and ``t^2/lambda_0``.
    e, last : ndarray (draws, k) and (draws,)
        Its eigenvector, of unit length. The head is ``-L^{-T} e/last``.
    others : ndarray (draws, k, k)
        First k entries of the other eigenvectors, one per column.
    ratios : ndarray (draws, k)
        ``least/(lambda_j - least)`` for the other eigenvalues.
    """

    root: Array
    inside: Array
    least: Array
    inverse: Array
    e: Array
    last: Array
    others: Array
    ratios: Array


class ClientDraws:
    """Fixed draws of the clients' heads and samples, and the equations of the minimum."""

    def __init__(self, W: Array, *, n_samples: int, unknowns: float, variance: float, draws: int | None = None) -> None:
        """Draw for the heads W (n, k); `unknowns` is (d - k)/n; `variance` refers to the label noise."""
        (n, k), draws = W.shape, draws or DRAWS
        self.everyone, self.spare, self.unknowns, self.variance = W, n_samples - k, unknowns, variance
        heads = np.repeat(W, math.ceil(draws / n), axis=0) if n < draws else W[np.arange(draws) * n // draws]
        if n > draws:  # the second moment is that of all clients
            given, drawn = (np.linalg.cholesky(part.T @ part / len(part)) for part in (W, heads))
            heads = heads @ np.linalg.solve(drawn.T, given.T)
        self.heads = heads
        factors = np.linalg.inv(fixed_factors(k + 1, n_samples, len(heads)))
        self.inverse_wishart = factors.mT @ factors

    def noiseless(self) -> Array:
        """Return V without label noise, NaN without a solution."""
        W, V = self.everyone, np.zeros((self.everyone.shape[1],) * 2)
        for _ in range(NOISELESS_ITERATIONS):
            weighted = W / (1.0 + np.vecdot(W @ V, W))[:, None]
            new = self.unknowns / self.spare * np.linalg.inv(weighted.T @ W / len(W))
            if np.abs(new - V).max() <= 1e-10 * np.abs(new).max():
                return new
            V = new
            if np.abs(V).max() * np.square(W).max() > 1e9:
                break
        return np.full_like(V, np.nan)

    def solve(self, V: Array, C: Array) -> TotalLeastSquares:
        """Return the total least-squares problem of each draw; its label noise has the variance ``w'C w + sigma^2``."""
        k, root = len(V), np.asarray(np.linalg.cholesky(V))
        inside = self.heads @ overlap(C) @ root
        noise = np.sqrt(np.vecdot(self.heads @ C, self.heads) + self.variance)
        G = np.zeros((len(noise), k + 1, k + 1))
        G[:, :k, :k], G[:, :k, k], G[:, k, k] = noise[:, None, None] * root.T, -inside, 1.0
        values, vectors = np.linalg.eigh(G @ self.inverse_wishart @ G.mT)  # noise^2 over the eigenvalues
        values = np.maximum(values, 0.0)
        return TotalLeastSquares(
            root=root,
            inside=inside,
            least=noise**2 / values[:, k],
            inverse=values[:, k],
            e=vectors[:, :k, k],
            last=vectors[:, k, k],
            others=vectors[:, :k, :k],
            ratios=values[:, :k] / (values[:, k:] - values[:, :k]),
        )

    def moments(self, V: Array, C: Array) -> tuple[Array, Array]:
        """Return J and P, (k, k)."""
        found = self.solve(V, C)
        e, count = found.e, len(found.e)
        back = np.linalg.inv(found.root)
        P = (e * found.least[:, None]).T @ e / count
        along = (found.last - np.vecdot(found.inside, e)) / found.inverse
        J = found.root.T @ found.root @ P - (found.inside * along[:, None]).T @ e / count
        return 0.5 * back.T @ (J + J.T) @ back, back.T @ P @ back

    def step(self, V: Array, C: Array) -> tuple[Array, Array]:
        """Return the right-hand sides of the equations of V and C."""
        J, P = self.moments(V, C)
        inverse = np.asarray(np.linalg.inv(J))
        return self.unknowns * inverse, self.unknowns * inverse @ P @ inverse

    def minimum(self) -> tuple[Array, Array]:
        """Return V and C of the minimum near B*, for an orthonormal B; NaN if the iteration has no limit."""
        V = self.noiseless()
        if self.variance == 0.0 or np.isnan(V).any():
            return V, 0.0 * V
        C = self.variance * V
        C /= max(1.0, 2.0 * float(np.linalg.eigvalsh(C)[-1]))
        scale = np.array([np.abs(V).max(), np.abs(C).max()])[:, None, None]
        x, points, moves = np.stack([V, C]) / scale, list[Array](), list[Array]()
        for _ in range(ITERATIONS):
            new = np.stack(self.step(*(x * scale))) / scale
            if not _valid(new * scale):
                break
            move = new - x
            if np.all(np.abs(move) <= TOLERANCE * np.abs(new).max(axis=(1, 2), keepdims=True)):
                V, C = new * scale
                return V, C
            points, moves = [*points[-MEMORY:], x], [*moves[-MEMORY:], move]
            x = new
            if len(moves) > 1:  # Anderson's method
                past, bend = (np.diff(np.reshape(part, (len(part), -1)), axis=0).T for part in (points, moves))
                weights = np.linalg.lstsq(bend, move.ravel(), rcond=1e-10)[0]
                jump = new - ((past + bend) @ weights).reshape(new.shape)
                if _valid(jump * scale):
                    x = jump
                else:
                    points, moves = [], []
        return np.full_like(V, np.nan), np.full_like(V, np.nan)

    def training(self, found: TotalLeastSquares, C: Array) -> tuple[Array, Array]:
        """Return the draws' squared errors of training clients, and of new clients with the same samples."""
        k, inverse = len(C), self.inverse_wishart
        wrong = (found.e / found.last[:, None]) @ np.linalg.inv(found.root) + self.heads @ overlap(C)
        outside = np.vecdot(self.heads @ C, self.heads)
        z = inverse[:, :k, k] / inverse[:, k, k, None]
        return np.vecdot(wrong, wrong) + outside, (outside + self.variance) * np.vecdot(z, z) + outside

    def replicon(self, found: TotalLeastSquares) -> float:
        """Return the spectral radius of ``Q -> (1/r) mean sum_ab H_ab Q H_ab'`` with the Hessian H of a draw."""
        e, u, count = found.e, found.others, len(found.e)
        ratios = np.minimum(found.ratios, 1.0 / NARROW)
        own = self.spare - 1 + np.square(ratios).sum(axis=-1)
        mixed = ratios * (1.0 + ratios)
        H = e[:, :, None] * e[:, None, :] - (u * ratios[:, None, :]) @ u.mT
        Q, radius = np.eye(e.shape[1]), 0.0
        for _ in range(ITERATIONS):
            along, across = np.vecdot(e @ Q, e), np.vecdot(u.mT @ Q, u.mT)
            weights = own * along + (mixed * across).sum(axis=-1)
            new = (e * weights[:, None]).T @ e + (H @ Q @ H).sum(axis=0)
            new += np.einsum("dij,dj,dlj->il", u, mixed * along[:, None], u, optimize=True)
            new /= count * self.unknowns
            last, radius = radius, float(np.linalg.norm(new))
            if abs(radius - last) <= 1e-4 * radius or radius == 0.0:
                break
            Q = new / radius
        return radius


def typical_mean(draws: Array, clients: int) -> float:
    """Return the median over data sets of the mean over clients, with one of the draws (heads, copies) for each."""
    clients = min(clients, max(MEAN_CLIENTS, len(draws)))  # every head occurs
    heads = np.arange(clients) % len(draws)
    chosen = np.random.default_rng(0).integers(draws.shape[1], size=(DATA_SETS, clients))
    return float(np.median(draws[heads, chosen].mean(axis=-1)))


def overlap(C: Array) -> Array:
    """Return the symmetric N with ``N^2 = I - C``."""
    values, vectors = np.linalg.eigh(np.eye(len(C)) - C)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _valid(both: Array) -> bool:
    """Return whether V is positive definite and the eigenvalues of C are in [0, 1)."""
    if not np.isfinite(both).all():
        return False
    V, C = (np.linalg.eigvalsh(part) for part in both)
    return bool(V[0] > 0 and C[0] >= -1e-9 * C[-1] and C[-1] < LARGEST)
