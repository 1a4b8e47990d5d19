"""What a client can do by itself: exact mean risks of least squares, of its minimum norm, and of a ridge."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_array, check_integer, check_noise_std, check_number

LARGEST_CORRECTION = 0.3
"""Share of the limit beyond which the next term of a mean over Wishart matrices says that the limit is not near."""


def local_mean_risk(length: npt.ArrayLike, *, noise_std: float, dim: int, n_samples: int, ridge: float = 0.0) -> Array:
    """Return the mean risk of a client that fits its own samples in the full dimension, as `LocalOnly` does.

    Parameters
    ----------
    length : array_like
        ``||phi||``, the length of the client's regressor; any shape.
    noise_std : float
        Standard deviation of the label noise.
    dim : int
        Ambient dimension d.
    n_samples : int
        m, standard Gaussian samples.
    ridge : float, default 0.0
        As in `LocalOnly`: adds ``(ridge / 2) ||theta||^2`` to ``(1 / 2m) ||X theta - y||^2``.

    Returns
    -------
    ndarray, the shape of `length`
        Mean of ``(1/2) ||theta - phi||^2 + noise_std^2 / 2`` over samples and noise. Without a ridge it is exact, and
        for noisy labels infinite from m = d - 1 to d + 1; with one it is right to the order 1/d^2.

    Raises
    ------
    ValueError
        For values out of range, or a ridge so small, and m so near d, that the expansion in 1/d says nothing.

    Notes
    -----
    With L = ||phi|| and sigma = noise_std, twice the excess risk is::

        sigma^2 d / (m - d - 1)                                    m >= d + 2, least squares
        (1 - m/d) L^2 + sigma^2 m / (d - m - 1)                    m <= d - 2, of minimum norm
        L^2 lam^2 t2 + sigma^2 (d/m) (t1 - lam t2)                 ridge lam

    as the row space of X is uniform, and ``E tr (X'X)^{-1} = d/(m - d - 1)``. For the ridge
    ``t_j = E tr (X'X/m + lam I)^{-j} / d``, which does not depend on phi's direction either: with ``c = d/m``,
    ``p = 1 + c + lam`` and ``s^2 = p^2 - 4c``::

        t1 = 2/(s + 1 - c + lam) + (p/s^2 - 1/s) / (2d),         t2 = -(d/d lam) t1

    The first part is Marchenko and Pastur's law, the second the mean of real Wishart matrices beside it; at lam = 0
    both together are the first lines, to the order 1/d^2.

    **Deviations**: the FedRep paper says that a client alone needs of the order of d samples.

    References
    ----------
    Dobriban and Wager 2018; Hastie, Montanari, Rosset and Tibshirani 2022, Theorems 1 and 5; Bai and Silverstein 2004,
    (5.13), for the second part.

    Examples
    --------
    >>> import linfed as lf
    >>> best = lf.theory.best_local_ridge(2.0, noise_std=0.5, dim=50, n_samples=25)
    >>> [round(float(lf.theory.local_mean_risk(2.0, noise_std=0.5, dim=50, n_samples=25, ridge=lam)), 3)
    ...  for lam in (0.0, best)]
    [1.255, 1.229]
    """
    length2 = _squared(length)
    variance = check_noise_std(noise_std) ** 2
    d, m = check_integer("dim", dim), check_integer("n_samples", n_samples)
    ridge = check_number("ridge", ridge, minimum=0.0)
    if ridge == 0:
        kept, fitted = _without_ridge(d, m)
        noise = variance * fitted if variance > 0 else 0.0
        return np.asarray(0.5 * (length2 * kept + noise + variance))
    c, (t1, t2), (more1, more2) = d / m, *_resolvents(ridge, d / m)
    limit = length2 * ridge**2 * t2 + variance * c * (t1 - ridge * t2)
    beside = (length2 * ridge**2 * more2 + variance * c * (more1 - ridge * more2)) / d
    unsafe = (length2 * ridge**2 * abs(more2) + variance * c * (abs(more1) + ridge * abs(more2))) / d
    if np.any(unsafe > LARGEST_CORRECTION * limit):
        raise ValueError(
            f"ridge = {ridge:g} is too small for d = {d} and m = {m}: the risk's expansion in 1/d says nothing there; "
            "take a larger one, or 0, which is exact"
        )
    return np.asarray(0.5 * (limit + beside + variance))


def best_local_ridge(length: npt.ArrayLike, *, noise_std: float, dim: int, n_samples: int) -> float:
    """Return the ridge of least mean risk for clients of such lengths.

    Parameters
    ----------
    length : array_like
        ``||phi||`` of each client; any shape.
    noise_std, dim, n_samples
        As in `local_mean_risk`.

    Returns
    -------
    float
        ``sigma^2 d / (m mean ||phi||^2)``.

    Raises
    ------
    ValueError
        For values out of range, or regressors that are all 0, for which no finite ridge is best.

    Notes
    -----
    It is best for every X at once: along an eigenvector of X'X/m with value s, twice the excess risk is, in the mean
    over directions of phi, ``(L^2 lam^2/d + sigma^2 s/m)/(s + lam)^2``, least at this lam whatever s. For Gaussian phi
    it is the posterior mean.

    **Deviations**: an addition; the papers have no ridge.

    References
    ----------
    Dobriban and Wager 2018, Theorem 2.1; Hastie et al. 2022, Corollary 6.
    """
    mean = float(np.mean(_squared(length)))
    variance = check_noise_std(noise_std) ** 2
    d, m = check_integer("dim", dim), check_integer("n_samples", n_samples)
    if mean == 0:
        raise ValueError("length is 0 for every client: no finite ridge is best")
    return variance * d / (m * mean)


def _squared(length: npt.ArrayLike) -> Array:
    """Return squared lengths, after checking them."""
    lengths = np.asarray(length, dtype=float)
    if lengths.ndim:
        check_array("length", lengths.reshape(1, -1), [("clients", "1")])
    if lengths.size == 0 or not np.isfinite(lengths).all() or lengths.min() < 0:
        raise ValueError("length must hold lengths: finite numbers of at least 0")
    return lengths**2


def _without_ridge(d: int, m: int) -> tuple[float, float]:
    """Return the shares of ||phi||^2 and of the noise's variance in twice the excess risk."""
    spare = abs(m - d) - 1
    return max(0.0, 1.0 - m / d), min(m, d) / spare if spare > 0 else math.inf


def _resolvents(ridge: float, c: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the limits of t1 and t2 for d/m = c, and d times what is beside them to the order 1/d."""
    q, p = 1.0 - c + ridge, 1.0 + c + ridge
    s = math.sqrt(q**2 + 4.0 * c * ridge)
    limit = 2.0 / (s + q) if q > 0 else (s - q) / (2.0 * c * ridge)  # two equal forms: the one that adds
    first = limit, 0.5 * limit**2 * (1.0 + p / s)
    return first, (0.5 * (p / s**2 - 1.0 / s), p**2 / s**4 - 0.5 / s**2 - 0.5 * p / s**3)
