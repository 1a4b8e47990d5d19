"""Problem with a shared representation: regressors in one subspace, as in the FedRep paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from linfed._types import Array, Generator
from linfed._values import Configuration, check_fields, converted, optional
from linfed.checks import check_integer, check_noise_stds, check_number
from linfed.numerics.linalg import orthonormalize
from linfed.numerics.streams import Seed, Stream, check_trials, generators
from linfed.problems.base import NO_CLOSED_FORM, Truth, check_new_clients, not_unique, positive_length
from linfed.problems.designs import Design, Gaussian, as_design

LARGEST_CONDITION = 1e12
"""Largest condition number of heads: above it, rounding errors would affect the smallest singular value."""


@dataclass(frozen=True, kw_only=True)
class SharedRepresentation(Configuration):
    """Problem whose regressors lie in one shared subspace: ``phi_i = B* w_i*``.

    Parameters
    ----------
    n_clients, dim, rank : int
        Number of clients n, ambient dimension d, rank k <= d of the ground truth.
    noise_std : float or array_like (n,), default 0.0
        Standard deviation of the label noise, in units of y (never the variance): one for all clients, or one for each
        client.
    head_norm : float, optional
        Length of every ``w_i*``; ``sqrt(rank)`` by default (Assumption 3). If `heterogeneity` is between 0 and 1, it is
        the root mean square length over the distribution of heads.
    condition_number : float, optional
        kappa from 1 to 1e12: ratio of the largest to the smallest singular value of ``W*``. The singular values are
        then a geometric sequence between the two, and every head still has length `head_norm`. By default the heads'
        directions are uniform, and kappa is not controlled. Requires ``n_clients >= rank``, and ``rank >= 2`` unless
        kappa is 1.
    heterogeneity : float, default 1.0
        Heterogeneity h of the heads, from 0 (one model for all clients) to 1 (the FedRep paper's heads). Below 1 it
        cannot be combined with `condition_number`.
    design : Design or str, default "gaussian"
        Distribution of x.

    Raises
    ------
    ValueError
        If a size is below 1, rank exceeds dim, the noise is negative, the sizes do not allow the condition number, or
        options cannot be combined.

    Notes
    -----
    ``B*`` is the Q factor of a standard Gaussian (d, k) matrix. The heads are
    ``w_i* = sqrt(1 - h^2) c + h z_i``. The personal part ``z_i`` is a standard Gaussian vector scaled to the length
    ``L = head_norm``. The common part c is L times the first unit vector. This direction is no restriction, because B*
    is uniformly distributed. B* and the ``z_i`` of a trial are equal for all h. Over the distribution of heads:

    - ``E w = sqrt(1 - h^2) c``, and ``E w w' = (1 - h^2) c c' + (h^2 L^2 / k) I``, with trace L^2.
    - The share h^2 of ``E ||w||^2`` is personal. The best single model has the excess risk ``h^2 L^2 / 2``, for x of
      covariance I.
    - All lengths are between ``L |sqrt(1 - h^2) - h|`` and ``L (sqrt(1 - h^2) + h)``: they equal L at h = 0 and h = 1.
    - ``E w w'`` has the eigenvalue ``L^2 (1 - h^2 + h^2/k)`` once, and k - 1 times ``h^2 L^2 / k``. At h = 0 the
      samples determine only one direction of B*, whose span remains the reference subspace.

    A given kappa is reached to 1e-12 by alternating projections (Tropp, Dhillon, Heath and Strohmer 2005), between the
    matrices with these singular values and the matrices with rows of equal length.

    **Deviations**: `condition_number` and `heterogeneity` are additions; the FedRep paper's normalisation is used.

    References
    ----------
    FedRep paper, section 4, Assumptions 2 and 3, and section 5.1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=100, dim=20, rank=2, noise_std=0.1, condition_number=3.0)
    >>> truth = problem.truth(seed=0, trials=[0, 1])      # as in the first two trials of `simulate`
    >>> truth.B.shape, truth.W.shape
    ((2, 20, 2), (2, 100, 2))
    >>> import numpy as np
    >>> [round(float(np.linalg.cond(W)), 6) for W in truth.W]
    [3.0, 3.0]
    >>> similar = lf.SharedRepresentation(n_clients=100, dim=20, rank=2, heterogeneity=0.1).truth(seed=0, trials=[0])
    >>> bool(np.ptp(similar.W[0], axis=0).max() < 0.3)      # 2 h head_norm = 0.28
    True
    """

    n_clients: int
    dim: int
    rank: int
    noise_std: float | Sequence[float] = 0.0
    head_norm: float | None = None
    condition_number: float | None = None
    heterogeneity: float = 1.0
    design: Design = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        check_fields(self, n_clients=check_integer, dim=check_integer, rank=check_integer)
        if self.rank > self.dim:
            raise ValueError(f"rank = {self.rank} must be at most dim = {self.dim}")
        check_fields(self, noise_std=converted(partial(check_noise_stds, n_clients=self.n_clients)))
        check_fields(self, design=converted(as_design))
        self.design.check_sizes(self.dim, self.n_clients)
        kappa_range = partial(check_number, minimum=1.0, maximum=LARGEST_CONDITION)
        check_fields(self, head_norm=optional(positive_length), condition_number=optional(kappa_range))
        check_fields(self, heterogeneity=partial(check_number, minimum=0.0, maximum=1.0))
        kappa = self.condition_number
        if kappa is not None:
            if self.heterogeneity < 1:
                raise ValueError(
                    f"heterogeneity = {self.heterogeneity:g} cannot be combined with condition_number = {kappa:g}: "
                    "each of them determines the singular values of the heads"
                )
            if self.n_clients < self.rank:
                raise ValueError(
                    f"condition_number = {kappa:g} requires n_clients >= rank; got {self.n_clients} < {self.rank}"
                )
            if self.rank == 1 and kappa != 1.0:
                raise ValueError(f"condition_number = {kappa:g} must be 1 for rank = 1")

    @property
    def subspace_rank(self) -> int:
        """Columns of B*."""
        return self.rank

    @property
    def truth_rank(self) -> int:
        """Rank of the ground truth ``B* w_i*``."""
        return self.rank

    def no_reference(self, rank: int) -> str:
        """Return the reason why no unique reference subspace of `rank` columns exists, or an empty string."""
        rank = check_integer("rank", rank)
        if self.design.per_client and rank < self.rank:
            return NO_CLOSED_FORM
        equal = self.condition_number == 1.0 and self.design.variance is not None
        return not_unique(np.ones((1, self.rank)), rank) if equal else ""

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of the given trials, drawn from each trial's ``TRUTH`` stream."""
        trials = check_trials(trials)
        B = np.empty((len(trials), self.dim, self.rank))
        W = np.empty((len(trials), self.n_clients, self.rank))
        for index, rng in enumerate(generators(seed, Stream.TRUTH, trials)):
            B[index] = orthonormalize(rng.standard_normal((self.dim, self.rank)))
            W[index] = self._mixed(self._norm * self._directions(rng))
        return Truth(B=B, W=W, noise_std=self.noise_std, design=self.design)

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of new clients: B* is unchanged, and heads have the training clients' distribution.

        With a given condition number this is the distribution of the training clients' heads given their second moment:
        rows of equal length with the Gram matrix of ``W*``.
        """
        truth, clients, trials = check_new_clients(truth, clients, trials)
        assert truth.W is not None
        heads = []
        for rng, W in zip(generators(seed, Stream.NEW_TRUTH, trials), truth.W, strict=True):
            if self.condition_number is None:
                heads.append(self._mixed(self._norm * _unit_rows(rng, clients, self.rank)))
            else:
                unit = _unit_rows(rng, max(clients, self.n_clients), self.rank)
                heads.append(self._norm * _with_moment_of(W, unit, self.condition_number)[:clients])
        return Truth(B=truth.B, W=np.stack(heads), noise_std=self.noise_std, design=self.design)

    @property
    def _norm(self) -> float:
        """Root mean square length of the heads."""
        return math.sqrt(self.rank) if self.head_norm is None else self.head_norm

    def _mixed(self, personal: Array) -> Array:
        """Return the heads with the personal parts ``z_i``, (n, k)."""
        h = self.heterogeneity
        if h == 1:
            return personal
        heads = h * personal
        heads[:, 0] += math.sqrt((1.0 - h) * (1.0 + h)) * self._norm
        return heads

    def _directions(self, rng: Generator) -> Array:
        """Draw the heads scaled to length 1, (n, k)."""
        unit = _unit_rows(rng, self.n_clients, self.rank)
        return unit if self.condition_number is None else _with_condition(unit, self.condition_number)

    def floats_per_trial(self) -> int:
        """Return the number of floats in one trial's ground truth."""
        return self.rank * (self.n_clients + self.dim)


def _unit_rows(rng: Generator, count: int, rank: int) -> Array:
    """Draw independent uniformly distributed unit vectors, (count, rank)."""
    rows = rng.standard_normal((count, rank))
    return np.asarray(rows / np.sqrt(np.vecdot(rows, rows))[:, None])


def _with_condition(unit: Array, kappa: float) -> Array:
    """Return unit rows near the given ones whose singular values are geometric with ratio kappa."""
    n, k = unit.shape
    spectrum = np.geomspace(kappa, 1.0, k) if k > 1 else np.ones(1)
    spectrum *= math.sqrt(n / float(np.sum(spectrum**2)))

    def shape(rows: Array) -> Array:
        U, _, Vt = np.linalg.svd(rows, full_matrices=False)
        return np.asarray((U * spectrum) @ Vt)

    return _alternated(unit, shape, kappa)


def _with_moment_of(W: Array, unit: Array, kappa: float) -> Array:
    """Return unit rows near the given ones whose mean outer product is proportional to ``W'W``."""
    _, spectrum, Vt = np.linalg.svd(W, full_matrices=False)  # the Gram matrix would square kappa
    root = (Vt.T * (spectrum * math.sqrt(len(unit)) / np.linalg.norm(spectrum))) @ Vt

    def shape(rows: Array) -> Array:
        U, _, Vt = np.linalg.svd(rows @ root, full_matrices=False)
        return np.asarray(U @ Vt @ root)  # the nearest matrix with this Gram matrix

    return _alternated(unit, shape, kappa)


def _alternated(unit: Array, shape: Callable[[Array], Array], kappa: float) -> Array:
    """Return unit rows that are a fixed point of `shape`, by alternating projections."""
    rows = unit
    for _ in range(10_000):
        shaped = shape(rows)
        lengths = np.sqrt(np.vecdot(shaped, shaped))
        rows = np.asarray(shaped / lengths[:, None])
        if np.abs(lengths - 1.0).max() < 1e-12:
            return rows
    raise ValueError(
        f"condition_number = {kappa:g} with heads of equal length was not reached for n_clients = {len(unit)}, "
        f"rank = {unit.shape[1]}: use more clients or a smaller condition number"
    )
