"""Wishart matrices: draws, means over the spectrum without any, and what gradient steps on heads need of them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Generator

TAIL = 6.5
"""Singular values of a Gaussian matrix are followed this many standard deviations beyond their edge: all but 1e-10."""


def gram_roots(rng: Generator, draws: int, k: int, rows: int) -> Array:
    """Return triangular T (draws, k, k) with ``T'T`` of the law of the Gram matrix of so many Gaussian rows, k or more.

    They are Bartlett's factors.
    """
    T = np.triu(rng.standard_normal((draws, k, k)), 1)
    T[:, range(k), range(k)] = np.sqrt(rng.chisquare(rows - np.arange(k), (draws, k)))
    return T


def typical_tail(batches: int) -> float:
    """Return how far beyond the edge a tenth of all rounds with so many batches goes, at most.

    The mean of a high power may be made of batches that no run sees. The probability of a singular value more than t
    beyond the edge is at most ``exp(-t^2/2)`` (Davidson and Szarek 2001).
    """
    return min(TAIL, math.sqrt(2.0 * math.log(10.0 * batches)))


@dataclass(frozen=True)
class GradientScalars:
    """The scalars that gradient steps from any head have in mean and mean square, at one B and fresh Gaussian samples.

    Notes
    -----
    With ``S = Z'Z/m`` the features' second moment, ``delta = w - a`` the head's distance from the best one,
    ``f(s) = (1 - alpha s)^tau`` and ``h(s) = (1 - f(s))/s``, tau steps of size alpha give ``delta+ = f(S) delta +
    tau_i h(S) Z'v/m`` and the residual ``r = Z delta+ - tau_i v``, v standard Gaussian. S is invariant under rotations,
    so that all first and second moments are scalars::

        E delta+         = f1 delta
        E delta+ delta+' = A1 delta delta' + A2 |delta|^2 I + tau_i^2 b I
        E |r|^2/m        = k3 |delta|^2 + tau_i^2 r2
        E X'r w+'/m      = -e (g0 a + g1 delta)'                                                 outside span(B)
                           B (k1 delta a' + p1 delta delta' + p2 |delta|^2 I - tau_i^2 k2 I)     in it

    They are means of traces, and of products of two traces, of functions of S (`spectral_means`). One step has closed
    forms: ``f1 = 1 - alpha``, ``A1 = f1^2 + alpha^2/m``, ``A2 = b = alpha^2/m``, ``g0 = 1 - alpha k/m``, ``k1 = 1 -
    alpha (1 + (k+1)/m)``, ``k2 = alpha k1/m``, ``g1 = f1 - (alpha/m)(1 + k - alpha (1 + k + (k+3)/m))``, ``r2 = 1 -
    (2 alpha k - alpha^2 k (1 + (k+1)/m))/m``.
    """

    f1: float
    A1: float
    A2: float
    b: float
    g0: float
    g1: float
    k1: float
    k2: float
    k3: float
    p1: float
    p2: float
    r2: float

    @classmethod
    @functools.lru_cache(maxsize=256)
    def of(cls, rank: int, n_samples: int, steps: int, step_size: float, tail: float = TAIL) -> GradientScalars:
        """Return the scalars of tau steps of size alpha on heads of k entries, from m samples."""
        k, m = rank, n_samples
        grid = _Grid.of(k, m, steps, tail)
        s = grid.values
        f = (1.0 - step_size * s) ** steps
        taken = 1.0 - f
        means, products = grid.means([f, s * f, taken, f * f, s * f * f, f * taken, taken * taken / s])
        null = np.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]) * max(k - m, 0)  # m < k: f(0) = 1, the others vanish
        products = products + np.outer(null, means) + np.outer(means, null) + np.outer(null, null)
        F, SF, H, FF, SFF, FH, HH = means + null

        def pair(trace: float, product: float) -> tuple[float, float]:
            """Return the shares of ``x x'`` and of ``|x|^2 I`` in ``E a(S) x x' c(S)``."""
            both = (2.0 * trace + product) / (k * (k + 2))
            apart = (trace / k - both) / (k - 1) if k > 1 else 0.0
            return both - apart, apart

        A1, A2 = pair(FF, products[0, 0])
        p1, p2 = pair(SFF, products[0, 1])
        scalars = {
            "f1": F / k,
            "A1": A1,
            "A2": A2,
            "b": HH / (m * k),
            "g0": 1.0 - H / m,
            "g1": (F - (products[0, 2] + FH) / m) / k,
            "k1": SF / k,
            "k2": FH / (m * k),
            "k3": SFF / k,
            "p1": p1,
            "p2": p2,
            "r2": 1.0 + (FF - k) / m,
        }
        return cls(**{name: float(value) for name, value in scalars.items()})


@dataclass(frozen=True)
class _Grid:
    """Gauss-Legendre nodes for the positive eigenvalues of ``Z'Z/m``, Z (m, k) standard Gaussian.

    Notes
    -----
    With s = u^2/m and q = min(k, m), Q = max(k, m) the joint density of the u_i is ``prod_i w(u_i) prod_{i<j} |s_i -
    s_j|`` up to a constant, ``w(u) = u^{Q-q} exp(-u^2/2)``. So (de Bruijn 1955) ``E prod_i phi(s_i)`` is the ratio of
    the Pfaffians, at phi and at 1, of ``M_ij = int int sgn(y - x) p_i(x) p_j(y) w(x) w(y) phi(x) phi(y) dx dy``, p_0,
    p_1 .. polynomials in s, bordered by ``int p_i w phi`` where q is odd. Its derivatives at ``phi = 1 + x f + y g``
    are the means. The integrands are analytic, and the p_i w orthonormal: up to k = 80 the error is what lies
    beyond the tail, 1e-9 at `TAIL`.
    """

    values: Array
    weights: Array
    sign: Array
    basis: Array

    @classmethod
    @functools.lru_cache(maxsize=64)
    def of(cls, rank: int, n_samples: int, steps: int, tail: float) -> _Grid:
        """Return the grid, with room for powers of the steps."""
        small, large = sorted((rank, n_samples))
        size = 160 + 6 * small + 16 * math.isqrt(steps)
        reach = math.sqrt(small) + tail
        low = max(0.0, math.sqrt(large) - reach)
        half = (math.sqrt(large) + reach - low) / 2.0
        x, weights = np.polynomial.legendre.leggauss(size)
        u = low + half * (x + 1.0)
        log = (large - small) * np.log(u) - u * u / 2.0
        density = np.exp(log - log.max())
        degrees = np.arange(size)
        P = np.polynomial.legendre.legvander(x, size)
        integrals = np.empty((size, size))  # of Legendre's polynomials, from -1 to x
        integrals[:, 0] = x + 1.0
        integrals[:, 1:] = (P[:, 2:] - P[:, : size - 1]) / (2 * degrees[1:] + 1)
        below = integrals @ ((degrees + 0.5)[:, None] * (P[:, :size].T * weights))
        sign = weights[:, None] * (2.0 * below - weights)
        s = u * u / n_samples
        basis = np.empty((size, small))
        column = np.sqrt(weights) * density
        for j in range(small):
            for _ in range(2):
                column = column - basis[:, :j] @ (basis[:, :j].T @ column)
            basis[:, j] = column / np.linalg.norm(column)
            column = (s - 1.0) * basis[:, j]
        return cls(s, weights, (sign - sign.T) / 2.0, basis / np.sqrt(weights)[:, None])

    def means(self, functions: list[Array]) -> tuple[Array, Array]:
        """Return ``E tr f(S)`` (F,) and ``E tr f(S) tr g(S)`` (F, F) of functions on the nodes, positive part of S."""
        M = self._form(np.ones_like(self.values))
        if len(M) > self.basis.shape[1]:  # the border is linear in phi, the rest quadratic
            M[:-1, -1] *= 2.0
            M[-1, :-1] *= 2.0
        inverse = np.linalg.inv(M)
        first = [inverse @ self._form(f) for f in functions]
        traces = np.array([np.trace(A) for A in first])
        products = np.outer(traces, traces)
        for i, f in enumerate(functions):
            for j, g in enumerate(functions[: i + 1]):
                apart = np.trace(inverse @ self._form(f, g)) - 2.0 * np.sum(first[i] * first[j].T)
                products[i, j] += apart + np.trace(inverse @ self._form(f * g))
                products[j, i] = products[i, j]
        return traces, products

    def _form(self, f: Array, g: Array | None = None) -> Array:
        """Return half the derivative of M in the direction f, or half its second one in f and g."""
        k = self.basis.shape[1]
        M = np.zeros((k + k % 2, k + k % 2))
        first = self.basis * f[:, None]
        second = self.basis if g is None else self.basis * g[:, None]
        half = first.T @ (self.sign.T @ second)
        M[:k, :k] = 0.5 * (half - half.T)
        if k % 2 and g is None:
            M[:k, k] = 0.5 * (first.T @ self.weights)
            M[k, :k] = -M[:k, k]
        return M
