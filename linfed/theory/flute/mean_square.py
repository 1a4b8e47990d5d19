"""Second moments of FLUTE near the truncation, on fresh samples, and the step size at which they grow."""

from __future__ import annotations

import math

import numpy as np

from linfed._types import Array
from linfed.checks import check_integer, short_repr
from linfed.problems import Truth
from linfed.theory.flute.low_rank import singular_factors

MOST_WORK = 2e9
"""Largest number of products in one application of the map of second moments, ``n d (k (d + n - k))^2``."""

TOLERANCE = 1e-7
"""Relative change at which the iteration for the largest eigenvalue stops."""


def flute_stability_edge(truth: Truth, rank: int, n_samples: int) -> Array:
    """Return the step size above which FLUTE's second moments grow near the truncation, on fresh samples.

    Parameters
    ----------
    truth : Truth
        Ground truth of rank k without label noise, with standard Gaussian x.
    rank : int
        Rank k of the model.
    n_samples : int
        Number m of samples per client and round.

    Returns
    -------
    ndarray (trials,)
        Step size at which the mean square distance from the truth begins to grow, for starts near it. It is below the
        population's ``1 / lambda_1``. Single runs can converge above it.

    Raises
    ------
    ValueError
        If the truth has another rank or label noise, if a value is out of range, or if the map of second moments is too
        large.

    Notes
    -----
    Near the truth, client i's message has the noise ``(A_i - I) T v_i``, where T is the change of B W' and
    ``A_i = X_i'X_i/m``. Its covariance is ``(||T v_i||^2 I + T v_i v_i'T')/m``. The modes of `truncation_floor` are
    independent of each other without this noise. Mode a has the factor f_a and the weight h_a of the noise. Their
    covariance X thus follows::

        X_ab <- f_a f_b X_ab + h_a h_b Q_ab(X)

    where ``Q(X)`` is the covariance of the noise. At the edge the map from X to ``h_a h_b Q_ab(X) / (1 - f_a f_b)`` has
    the largest eigenvalue 1. The cost grows like ``n d (k (d + n - k))^2``.

    With label noise or a truth of larger rank, the messages fluctuate at the truncation too. Their products with the
    changes of B and W are of the same order as the noise above, and lower the edge. No formula for it is known.

    **Deviations**: not in the paper.

    References
    ----------
    FLUTE paper, Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=20, dim=8, spectrum=[6, 5])
    >>> truth = problem.truth(0, [0])
    >>> [lf.theory.flute_stability_edge(truth, 2, n_samples=m).round(3).item() for m in (5, 50, 5000)]
    [0.149, 0.166, 0.167]
    """
    rank, m = check_integer("rank", rank), check_integer("n_samples", n_samples)
    U, spectrum, Vt = singular_factors(truth, rank, "the edge requires")
    if (spectrum[:, rank:] > 1e-12 * spectrum[:, :1]).any() or np.any(np.asarray(truth.noise_std) > 0):
        raise ValueError(
            f"the edge is known only for a ground truth of rank = {rank} without label noise, but lambda_{rank + 1} = "
            f"{spectrum[:, rank:].max(initial=0.0):g} and noise_std = {short_repr(truth.noise_std)}; 1 / lambda_1 is "
            "the edge for many samples"
        )
    d, n = U.shape[-2], Vt.shape[-1]
    work = float(n * d) * (rank * (d + n - rank)) ** 2
    if work > MOST_WORK:
        raise ValueError(
            f"the edge of n = {n} clients, d = {d} and rank = {rank} takes {work:.1e} products per iteration, above "
            f"{MOST_WORK:.0e}; 1 / lambda_1 is an upper bound"
        )
    return np.array(
        [_edge(FreshMoments(values, right, rank, d), m) for values, right in zip(spectrum, Vt, strict=True)]
    )


class FreshMoments:
    """Second moments of the modes of FLUTE near the truncation, for one ground truth.

    Parameters
    ----------
    spectrum : ndarray (least,)
        Singular values of Phi.
    Vt : ndarray (least, n)
        Right singular vectors.
    rank, dim : int
        Rank k of the model, and d.

    Attributes
    ----------
    decay, weight : ndarray (K,)
        Mode a has the factor ``1 - eta decay_a``, and its noise the weight ``eta weight_a``; ``K = k (d + n - k)``.
    clients : ndarray (n, d, K)
        Map from the modes to every client's ``T v_i``.
    """

    def __init__(self, spectrum: Array, Vt: Array, rank: int, dim: int) -> None:
        k, n = rank, Vt.shape[1]
        full = np.linalg.qr(Vt.T, mode="complete")[0]
        full[:, : len(Vt)] = Vt.T
        values = np.zeros(max(dim, n))
        values[: len(spectrum)] = spectrum
        modes: list[tuple[float, float, dict[tuple[int, int], float]]] = []
        for p in range(k):
            modes += [(values[p] + values[o], values[p] + values[o], {(p, o): 1.0}) for o in range(k)]
            for q in range(k, max(dim, n)):
                if q < min(dim, n):
                    half = math.sqrt(0.5)
                    for sign in (1.0, -1.0):
                        parts = {(q, p): half, (p, q): sign * half}
                        modes.append((values[p] - sign * values[q], values[p], parts))
                else:
                    modes.append((values[p], values[p], {(q, p) if q < dim else (p, q): 1.0}))
        self.decay, self.weight = (np.array([mode[i] for mode in modes]) for i in (0, 1))
        self.clients = np.zeros((n, dim, len(modes)))
        for number, (_, _, parts) in enumerate(modes):
            for (row, column), share in parts.items():
                self.clients[:, row, number] += share * full[:, column]

    def noise(self, X: Array, n_samples: int) -> Array:
        """Return the covariance Q (K, K) of the noise in all modes, for the covariance X (K, K) of the modes."""
        n, d, size = self.clients.shape
        flat = self.clients.reshape(n * d, size)
        moved = (flat @ X).reshape(n, d, size)
        second = moved @ self.clients.mT
        second += np.trace(second, axis1=-2, axis2=-1)[:, None, None] * np.eye(d)
        return np.asarray(flat.T @ (second @ self.clients).reshape(n * d, size) / n_samples)

    def feedback(self, step_size: float, n_samples: int, X: Array) -> tuple[float, Array]:
        """Return the largest eigenvalue of the map that is 1 at the edge, and its eigenvector, iterated from X."""
        h, f = step_size * self.weight, 1.0 - step_size * self.decay
        kernel = np.outer(h, h) / (1.0 - np.outer(f, f)) / n_samples
        last = 0.0
        for _ in range(2000):
            X = kernel * self.noise(X, 1)
            size = float(np.linalg.norm(X))
            X = X / size
            if abs(size - last) <= TOLERANCE * size:
                break
            last = size
        return size, X


def _edge(moments: FreshMoments, n_samples: int) -> float:
    from scipy.optimize import brentq

    X = np.eye(len(moments.decay))
    limit = 2.0 / float(moments.decay.max())

    def excess(share: float) -> float:
        nonlocal X
        found, X = moments.feedback(share * limit, n_samples, X)
        return math.log(found)

    high = 0.5
    while excess(high) < 0.0:
        high = 0.5 * (1.0 + high)
    low = high
    while excess(low) > 0.0:
        low *= 0.5
    return limit * (high if low == high else brentq(excess, low, high, xtol=1e-6))
