"""Spectral estimators of the representation: one round, without an initial value or a step size."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, one_of, optional
from linfed.algorithms.parts.base import Algorithm, Communication, InitContext, Requires, State
from linfed.algorithms.parts.models import relative_weights
from linfed.checks import check_bool, check_integer, check_number
from linfed.data.batch import Batch
from linfed.data.row_batch import RowBatch
from linfed.data.rows import FEW_CLIENTS
from linfed.numerics.linalg import TINY, block_width, eigh, svd, top_eigenvectors
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class SpectralEstimator(Algorithm):
    """Base class: B from a matrix of the participants' samples, then exact heads on the same samples."""

    rank: int
    weights: Literal["uniform", "samples"] = "uniform"

    def __post_init__(self) -> None:
        check_fields(self, rank=check_integer, weights=one_of("uniform", "samples"))

    def initial_state(self, start: InitContext) -> State:
        """Return a random B and all heads at 0."""
        return State(B=start.representation("random", self.rank), W=start.zeros(start.n_clients, self.rank))

    @abstractmethod
    def estimate(self, batch: Batch, dim: int) -> Array:
        """Return B (T, d, k) with orthonormal columns."""

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with the estimated B and the participants' exact heads."""
        B = self.estimate(batch, state.dim)
        return state.update(B=B, W=batch.project(B).fit().W, active=batch.active)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B, the heads, and the local averages."""
        return self.rank * (n_clients + dim) + 2 * participants * dim

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the matrix and its decomposition, and of weighted or divided samples."""
        copies = participants * samples * (dim + 1) if self.requires == Requires.ROWS else 0
        return 4 * dim * dim + copies


@dataclass(frozen=True, kw_only=True)
class MethodOfMoments(SpectralEstimator):
    """B by the method of moments: top-k eigenvectors of ``sum_i (omega_i/m_i) sum_j y_ij^2 x_ij x_ij'``.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    weights : "uniform" or "samples"
        Weights omega_i of the participants: equal, or proportional to their numbers of samples. Their mean is 1.

    Raises
    ------
    ValueError
        If the rank is below 1; in `simulate` also for classification, or if the rank exceeds d.

    Notes
    -----
    The estimate uses the samples of the round's participants; the heads are fitted by least squares on the same
    samples, of minimum norm if m < k. One round on fixed samples is enough; heads of clients that do not take part
    belong to an earlier B. For isotropic Gaussian x the mean of the matrix is ``2 Gamma + (tr Gamma + sigma^2) I`` with
    ``Gamma = mean_i phi_i phi_i'``. Cost ``O(p m d^2 + d^3)``.

    **Deviations**: exact heads on the same samples are an addition.

    References
    ----------
    Tripuraneni, Jin and Jordan 2021, Algorithm 1; the initialisation `Moments`.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=200, dim=10, rank=2)
    >>> result = lf.simulate(lf.MethodOfMoments(rank=2), problem, data=lf.FixedSamples(50), n_rounds=1)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 0.5)
    True
    """

    requires: ClassVar[Requires] = Requires.ROWS
    description: ClassVar[str] = "B by the method of moments, exact heads: one round"

    def estimate(self, batch: Batch, dim: int) -> Array:
        """Return the top-k eigenvectors of the mean of ``y^2 x x'``."""
        return top_eigenvectors(_squares(batch, relative_weights(batch, self.weights) / batch.counts), self.rank)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of a client's symmetric matrix (up)."""
        return Communication(float(dim * self.rank), dim * (dim + 1) / 2.0)


@dataclass(frozen=True, kw_only=True)
class UStatistic(SpectralEstimator):
    """B by the U-statistic of Duchi et al.: the method of moments without the products of a sample with itself.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    weights : "uniform" or "samples"
        Weights omega_i of the participants: equal, or proportional to their numbers of samples. Their mean is 1.

    Raises
    ------
    ValueError
        If the rank is below 1; in `simulate` also for classification, if the rank exceeds d, or if a client has
        a single sample.

    Notes
    -----
    B has the k eigenvectors with the algebraically largest eigenvalues of the mean over the participants, weighted by
    omega_i, of

    ``(m/(m-1)) h_i h_i' - (1/(m (m-1))) sum_j y_ij^2 x_ij x_ij'``, with ``h_i = X_i'y_i/m``,

    the mean of ``y_ij y_il x_ij x_il'`` over pairs of different samples. Its mean is ``Gamma = mean_i phi_i phi_i'``
    for every isotropic distribution of x and any noise. The matrix is indefinite, so singular vectors would be wrong.
    Heads as in `MethodOfMoments`. Cost ``O(p m d^2 + d^3)``.

    **Deviations**: `weights` and exact heads on the same samples are additions.

    References
    ----------
    Duchi, Feldman, Hu and Talwar 2022, "Subspace recovery from heterogeneous data with non-isotropic noise".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=200, dim=10, rank=2)
    >>> result = lf.simulate(lf.UStatistic(rank=2), problem, data=lf.FixedSamples(50), n_rounds=1)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 0.3)
    True
    """

    requires: ClassVar[Requires] = Requires.ROWS
    description: ClassVar[str] = "B by the U-statistic of pairs of samples, exact heads: one round"

    def estimate(self, batch: Batch, dim: int) -> Array:
        """Return the eigenvectors with the algebraically largest eigenvalues."""
        m = batch.counts
        if m.min() < 2:
            raise ValueError("n_samples = 1 must be at least 2 for UStatistic, which uses pairs of a client's samples")
        h = _local_averages(batch, dim)
        omega = relative_weights(batch, self.weights)
        products = (omega * m / (m - 1.0))[..., None] * h
        return top_eigenvectors(products.mT @ h - _squares(batch, omega / (m * (m - 1.0))), self.rank)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of a client's symmetric matrix (up)."""
        return Communication(float(dim * self.rank), dim * (dim + 1) / 2.0)


@dataclass(frozen=True, kw_only=True)
class TwoReplica(SpectralEstimator):
    """B from products of two independent local averages per client.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    weights : "uniform" or "samples"
        Weights omega_i of the participants: equal, or proportional to their numbers of samples. Their mean is 1.
    symmetric : bool
        If True, use the symmetric part of the matrix; if False, its left singular vectors, as published.

    Raises
    ------
    ValueError
        If the rank is below 1; in `simulate` also for classification, if the rank exceeds d, or if a client has
        a single sample.

    Notes
    -----
    With ``h_i`` and ``g_i`` the averages ``X'y/m'`` over the first and the second ``m' = floor(m/2)`` samples of a
    client, B has the k leading singular vectors of ``sum_i omega_i h_i g_i'`` (left), or of its symmetric part. With
    equal weights, the mean of the matrix is proportional to ``Gamma = mean_i phi_i phi_i'``. A last sample of an odd
    number is not used for B. Heads as in `MethodOfMoments`. Cost ``O(p m d + p d^2 + d^3)``.

    **Deviations**: the symmetric form and exact heads on the same samples are additions.

    References
    ----------
    Niu, Su, Xu and Yang 2024, "Collaborative learning with shared linear representations: statistical rates and optimal
    algorithms".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=200, dim=10, rank=2)
    >>> result = lf.simulate(lf.TwoReplica(rank=2), problem, data=lf.FixedSamples(50), n_rounds=1)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 0.3)
    True
    """

    symmetric: bool = True

    requires: ClassVar[Requires] = Requires.ROWS
    description: ClassVar[str] = "B from two independent local averages per client, exact heads: one round"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, symmetric=check_bool)

    def estimate(self, batch: Batch, dim: int) -> Array:
        """Return the leading singular vectors."""
        first, second = (_local_averages(half, dim) for half in batch.split())
        product = first.mT @ (relative_weights(batch, self.weights)[..., None] * second)
        if not self.symmetric:
            return np.ascontiguousarray(svd(product)[0][..., : self.rank])
        values, vectors = eigh(product + product.mT)
        order = np.argsort(-np.abs(values), axis=-1)[..., None, : self.rank]
        return np.ascontiguousarray(np.take_along_axis(vectors, order, axis=-1))

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of two local averages (up)."""
        return Communication(float(dim * self.rank), 2.0 * dim)


@dataclass(frozen=True, kw_only=True)
class LocalGram(SpectralEstimator):
    """B from the Gram matrix of the clients' local averages.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    weights : "uniform" or "samples"
        Weights omega_i of the participants: equal, or proportional to their numbers of samples. Their mean is 1.

    Raises
    ------
    ValueError
        If the rank is below 1; in `simulate` also for classification, or if the rank exceeds d.

    Notes
    -----
    B has the top-k eigenvectors of ``sum_i omega_i h_i h_i'``, with ``h_i = X_i'y_i/m``. For isotropic Gaussian x the
    mean of ``h_i h_i'`` is ``(1 + 1/m) phi_i phi_i' + ((|phi_i|^2 + sigma^2)/m) I``, so the estimate is consistent in n
    at every m. Heads as in `MethodOfMoments`. Cost ``O(p m d + p d^2 + d^3)``.

    **Deviations**: a common baseline without a source; exact heads on the same samples.

    References
    ----------
    Niu, Su, Xu and Yang 2024, for a comparison.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=200, dim=10, rank=2)
    >>> result = lf.simulate(lf.LocalGram(rank=2), problem, data=lf.FixedSamples(50), n_rounds=1)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 0.3)
    True
    """

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "B from the Gram matrix of local averages, exact heads: one round"

    def estimate(self, batch: Batch, dim: int) -> Array:
        """Return the top-k eigenvectors of the Gram matrix of local averages."""
        h = _local_averages(batch, dim)
        return top_eigenvectors(h.mT @ (relative_weights(batch, self.weights)[..., None] * h), self.rank)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of a local average (up)."""
        return Communication(float(dim * self.rank), float(dim))


@dataclass(frozen=True, kw_only=True)
class LocalSpectral(SpectralEstimator):
    """B from the singular vectors of the clients' least-squares fits.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    weights : "uniform" or "samples"
        Weights omega_i of the participants: equal, or proportional to their numbers of samples. Their mean is 1.
    clip_quantile : float, optional
        Local fits that are longer than this quantile of their lengths, from 0 to 1, are shortened to it. By default
        they keep their lengths.

    Raises
    ------
    ValueError
        If the rank is below 1, or the quantile is not from 0 to 1; in `simulate` also for classification, or if the
        rank exceeds d.

    Notes
    -----
    With ``theta_i`` the predictors of `LocalOnly`, of minimum norm if m < d, B has the k leading eigenvectors of
    ``sum_i omega_i theta_i theta_i'``: with equal weights, the left singular vectors of ``[theta_1 .. theta_p]``. A few
    clients that are far away can turn B, unless their fits are shortened. Heads as in `MethodOfMoments`. Cost
    ``O(p m d min(m, d) + p d^2 + d^3)``.

    **Deviations**: this is the first step of the source, whose second step is a penalised fit around it (`ARMUL`).

    References
    ----------
    Tian, Gu and Feng 2025, "Learning from similar linear representations: adaptivity, minimaxity, and robustness",
    Algorithm 2, step 1; our reading of the paper and of the authors' public code (ytstat/RL-MTL-TL). With a quantile
    the code changes all lengths to it, and not only those above.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=200, dim=10, rank=2)
    >>> result = lf.simulate(lf.LocalSpectral(rank=2), problem, data=lf.FixedSamples(50), n_rounds=1)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 1e-6)
    True
    """

    clip_quantile: float | None = None

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "B from the singular vectors of local least squares, exact heads: one round"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, clip_quantile=optional(partial(check_number, minimum=0.0, maximum=1.0)))

    def estimate(self, batch: Batch, dim: int) -> Array:
        """Return the leading singular vectors of the local fits."""
        fits = batch.least_squares()
        if self.clip_quantile is not None:
            lengths = np.sqrt(np.vecdot(fits, fits))
            most = np.quantile(lengths, self.clip_quantile, axis=-1, keepdims=True)
            fits = fits * (most / np.maximum(lengths, np.maximum(most, TINY)))[..., None]
        return top_eigenvectors(fits.mT @ (relative_weights(batch, self.weights)[..., None] * fits), self.rank)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of a local fit (up)."""
        return Communication(float(dim * self.rank), float(dim))

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B and the heads."""
        return self.rank * (n_clients + dim)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the computation of the local fits, or of the matrix if it is larger."""
        clients = block_width(participants, samples * dim, FEW_CLIENTS)
        return max(4 * dim * dim, clients * (samples + dim if samples >= dim else 4 * samples) * dim)


def _local_averages(batch: Batch, dim: int) -> Array:
    """Return ``h_i = X_i'y_i/m_i``, (T, p, d): minus the gradient of the loss at 0."""
    return -batch.gradient(np.zeros((len(batch.active), 1, dim)))


def _squares(batch: Batch, weights: Array) -> Array:
    """Return ``sum_i weights_i sum_j y_ij^2 x_ij x_ij'``, (T, d, d), for weights (T, p), trial by trial."""
    assert isinstance(batch, RowBatch)
    trials, _, _, d = batch.shape
    out = np.empty((trials, d, d))
    for trial in range(trials):
        rows = (np.sqrt(weights[trial])[:, None] * batch.y[trial])[..., None] * batch.X[trial]
        flat = rows.reshape(-1, d)
        out[trial] = flat.T @ flat
    return out
