"""Subspace distance of the spectral estimators of one round."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.one_round.estimators import LocalGram, MethodOfMoments, SpectralEstimator, TwoReplica, UStatistic
from linfed.checks import check_array, check_integer, check_noise_std, short_repr
from linfed.theory.fedrep.fixed_samples.largest_angle import mean_distance
from linfed.theory.fedrep.fixed_samples.minimum import Tangents

LARGEST_RATIO = 0.1
"""Largest `SpectralFloor.ratio` below 1 without a warning."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SpectralFloor(Tangents):
    """Error of a spectral estimator, as predicted by `spectral_floor`.

    Parameters
    ----------
    covariance : ndarray (k, k) or (trials, k, k)
        ``C = E D'D`` of the tangents D: the estimate is the span of ``B* + U D``, where U is a basis of the orthogonal
        complement of B*. Infinite from a ratio of 1.
    distance : ndarray () or (trials,)
        Mean sine of the largest principal angle between the estimate and B*; 1 from a ratio of 1.
    ratio : ndarray () or (trials,)
        Squared size of the matrix's noise outside B*, divided by the squared eigenvalue of the weakest direction. From
        1 the estimator loses this direction.

    Examples
    --------
    >>> import linfed as lf
    >>> W = lf.SharedRepresentation(n_clients=400, dim=60, rank=3).truth(0, [0]).W[0]
    >>> found = lf.theory.spectral_floor(lf.LocalGram(rank=3), W, dim=60, n_samples=20, noise_std=1.0)
    >>> found.covariance.shape, bool(found.ratio < 0.1)
    ((3, 3), True)
    """

    covariance: Array
    distance: Array
    ratio: Array


def spectral_floor(
    estimator: SpectralEstimator, W: npt.ArrayLike, *, dim: int, n_samples: int, noise_std: float
) -> SpectralFloor:
    r"""Predict the subspace distance of a spectral estimator with all clients and standard Gaussian samples.

    Parameters
    ----------
    estimator : MethodOfMoments, UStatistic, TwoReplica or LocalGram
        Its rank must be the number k of columns of W.
    W : array_like (n, k) or (trials, n, k)
        True heads of all clients, in the coordinates of the orthonormal B*; they must span R^k.
    dim : int
        Ambient dimension d >= 2k.
    n_samples : int
        Number m of samples per client; at least 2 for `UStatistic` and `TwoReplica`.
    noise_std : float
        Standard deviation of the label noise, in units of y.

    Returns
    -------
    SpectralFloor
        With a trial axis if W has one.

    Raises
    ------
    TypeError
        For another estimator.
    ValueError
        If the rank differs from k, if a value is out of range, or if the heads do not span R^k.

    Warns
    -----
    RuntimeWarning
        If the ratio is above 0.1 and below 1. The prediction is then up to 20 % too low or too high, and single clients
        or samples may dominate.

    Notes
    -----
    With ``s_i^2 = ||w_i||^2 + sigma^2``, ``Gamma = mean_i w_i w_i'`` and ``S = mean_i s_i^2 w_i w_i'``, the mean of the
    estimator's matrix is ``a Gamma`` in the coordinates of B*, up to a multiple of I. Its entries between a direction
    outside B* and those of B* have mean 0 and covariance ``V = b S + c I``, and its entries outside B* have variance c:

    ================== ======== =================== ================================ =========
    estimator          a        b                   c / (mean s^4 (1 - f k/n))       f
    ================== ======== =================== ================================ =========
    MethodOfMoments    2        12/(n m)            3/(n m)                          1/m
    LocalGram          1 + 1/m  (m+2)(m+3)/(n m^3)  (m+2)/(n m^3)                    1
    UStatistic         1        1/(n (m-1))         1/(n m (m-1))                    1 - 1/m
    TwoReplica         1        f (1 + 1/h)/(n h)   f/(n h^2)                        1/2 or 1
    ================== ======== =================== ================================ =========

    Here h = floor(m/2), and f of `TwoReplica` is 1/2 for the symmetrised matrix and 1 for the one-sided. To first order
    the rows of the tangents D have covariance ``Gamma^{-1} V Gamma^{-1}/a^2``. The noise outside B* has a spectrum of
    radius ``2 sqrt((d-k) c)`` and increases the squared tangent of a direction of eigenvalue lambda by
    ``1/(1 - ratio)``, with ``ratio = (d-k) c/(a lambda)^2``, as in spiked random matrices. From ``ratio = 1`` the
    direction is lost. For large m, `LocalGram` and `UStatistic` need ``n m^2 lambda^2 > d mean s^4``.

    The factor ``1 - f k/n`` matters for few clients. Let the rows of G (n, d) be the clients' local averages. A
    rotation of the clients leaves G'G as it is. Let it turn the columns of G inside B* into the first k rows. These
    rows are ``F (I, D)`` with the tangents D, and only the other n - k rows add noise to the matrix outside B*. With n
    = k the estimate is the span of the local averages, whatever Gamma is. This holds for products of averages over the
    same samples. The share f of the products of noise are such products. For example, the symmetrised matrix of two
    halves is the Gram matrix of their means minus the Gram matrix of half their differences, which have no signal.

    Measured over 14 settings with d from 12 to 100, n from 5 to 3,200 and m from 2 to 3,200: 5 % too low to 1 % too
    high for ratios up to 0.05, up to 10 % too low to 0.2, and up to 20 % too low from there to 1. In 40 random settings
    with n from k to 4k, it was 6 % too low to 7 % too high for ratios up to 0.02. From there on, it was up to 22 % too
    low or too high in single settings with lengths that differ by a factor of 30. The spectrum of the noise assumes
    many clients, n >> d: with n = d, the m at which an estimate reaches a distance of 0.8 is up to 1.5 times the
    predicted one, and with n = 16 d up to 1.3 times (`experiments.fedrep.fedrep_moments`).

    **Deviations**: derived here. The sources state rates without constants, except for the transition of the local
    averages.

    References
    ----------
    Tripuraneni, Jin and Jordan 2021; Duchi, Feldman, Hu and Talwar 2022; Niu, Su, Xu and Yang 2024; Benaych-Georges
    and Nadakuditi 2011, for the factor ``1/(1 - ratio)``.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=400, dim=60, rank=3, noise_std=1.0)
    >>> sizes = {"dim": 60, "n_samples": 20, "noise_std": 1.0}
    >>> predicted = lf.theory.spectral_floor(lf.UStatistic(rank=3), problem.truth(0, [0]).W[0], **sizes).distance
    >>> run = lf.simulate(lf.UStatistic(rank=3), problem, data=lf.FixedSamples(20), n_rounds=1)
    >>> bool(abs(predicted / run.metrics["subspace_distance"][0, -1] - 1) < 0.1)
    True
    """
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    n, k = heads.shape[-2:]
    d, sigma = check_integer("dim", dim, minimum=2 * k), check_noise_std(noise_std)
    few = 2 if isinstance(estimator, UStatistic | TwoReplica) else 1
    m = check_integer("n_samples", n_samples, minimum=few)
    a, b, c, inside = _constants(estimator, float(n), float(m))
    c *= 1.0 - inside * k / n
    if estimator.rank != k:
        raise ValueError(f"rank = {estimator.rank} of the estimator must be k = {k}, the number of columns of W")
    gamma = heads.mT @ heads / n
    if np.linalg.matrix_rank(gamma, hermitian=True).min() < k:
        raise ValueError(f"W of shape {heads.shape} must span R^k, k = {k}; otherwise B* is not determined")
    squares = np.square(heads).sum(axis=-1) + sigma**2
    fourth = np.square(squares).mean(axis=-1)[..., None, None]
    V = b * (heads * squares[..., None]).mT @ heads / n + c * fourth * np.eye(k)
    values, vectors = np.linalg.eigh(gamma)
    ratios = (d - k) * c * fourth[..., 0] / np.square(a * values)
    kept = ratios[..., 0] < 1.0
    grown = np.sqrt(1.0 / (1.0 - np.where(kept[..., None], ratios, 0.0)))
    inverse = (vectors * (grown / values)[..., None, :]) @ vectors.mT
    C = (d - k) / a**2 * inverse @ V @ inverse.mT
    distance = np.where(kept, mean_distance(C, d - k), 1.0)
    if (large := kept & (ratios[..., 0] > LARGEST_RATIO)).any():
        warnings.warn(
            f"the noise of the matrix is large, ratio = {float(ratios[..., 0][large].max()):.2g}: between "
            f"{LARGEST_RATIO} and 1 the distance is predicted up to 20 % too low or too high",
            RuntimeWarning,
            stacklevel=2,
        )
    C = np.where(kept[..., None, None], C, np.inf)
    return SpectralFloor(covariance=C, distance=np.asarray(distance), ratio=np.asarray(ratios[..., 0]))


def _constants(estimator: SpectralEstimator, n: float, m: float) -> tuple[float, float, float, float]:
    """Return a, b, ``c / (mean s^4 (1 - f k/n))`` and f of the table in `spectral_floor`."""
    if isinstance(estimator, MethodOfMoments):
        return 2.0, 12.0 / (n * m), 3.0 / (n * m), 1.0 / m
    if isinstance(estimator, LocalGram):
        share = (m + 2.0) / (n * m**3)
        return 1.0 + 1.0 / m, (m + 3.0) * share, share, 1.0
    if isinstance(estimator, UStatistic):
        share = 1.0 / (n * m * (m - 1.0))
        return 1.0, m * share, share, 1.0 - 1.0 / m
    if isinstance(estimator, TwoReplica):
        half = m // 2
        share = (0.5 if estimator.symmetric else 1.0) / (n * half**2)
        return 1.0, (half + 1.0) * share, share, 0.5 if estimator.symmetric else 1.0
    raise TypeError(
        f"estimator = {short_repr(estimator)} must be an lf.MethodOfMoments, lf.UStatistic, lf.TwoReplica or "
        "lf.LocalGram"
    )
