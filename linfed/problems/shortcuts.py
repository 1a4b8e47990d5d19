"""Problem with a shared representation and a personal full-dimensional part, as in the shortcut draft."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from linfed._types import Array, Generator
from linfed._values import check_fields, optional
from linfed.checks import check_bool, check_integer
from linfed.numerics.streams import Seed, Stream, generators
from linfed.problems.base import Truth, length
from linfed.problems.shared import SharedRepresentation


@dataclass(frozen=True, kw_only=True)
class SharedWithShortcuts(SharedRepresentation):
    """Problem whose regressors are the sum of a shared part and a shortcut: ``phi_i = B* w_i* + s_i*``.

    Parameters
    ----------
    n_clients, dim, rank, noise_std, head_norm, condition_number, heterogeneity, design
        As in `SharedRepresentation`.
    shortcut_norm : float
        Root mean square length of the ``s_i*``, at least 0.
    orthogonal : bool, default False
        If True, every ``s_i*`` is orthogonal to the span of B*. Requires dim > rank; cannot be combined with
        `sparsity`.
    uncorrelated : bool, default False
        If True, ``sum_i s_i* w_i*'`` is exactly 0: the component of the drawn shortcuts along the heads is removed. The
        rest is rescaled to the root mean square length that was drawn. Requires n_clients > rank; cannot be combined
        with `sparsity` or `clusters`.
    sparsity : int, optional
        Number of nonzero entries of every ``s_i*``, at random positions that differ between clients; all by default.
    clusters : int, optional
        Number of clusters of clients that share one shortcut; client i is in cluster i modulo `clusters`.

    Raises
    ------
    ValueError
        If a value is out of range, or options cannot be combined.

    Notes
    -----
    ``s_i*`` is Gaussian with independent entries (on its support, or in the orthogonal complement of B*), whose
    variance is ``shortcut_norm^2`` divided by their number. For a given seed B* and the heads are as in
    `SharedRepresentation`, and shortcuts of two values of `shortcut_norm` differ only by a factor. The shortcuts of new
    clients have the training clients' distribution; with `clusters` new clients share the clusters' shortcuts. New
    shortcuts are uncorrelated with the heads only in expectation.

    **Deviations**: the draft does not specify the distribution of ``s_i*``.

    References
    ----------
    Shortcut draft, problem (1).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=40, dim=12, rank=2, shortcut_norm=0.3, orthogonal=True)
    >>> truth = problem.truth(seed=0, trials=[0])
    >>> truth.S.shape, bool(abs(truth.S @ truth.B).max() < 1e-12)
    ((1, 40, 12), True)
    """

    shortcut_norm: float
    orthogonal: bool = False
    uncorrelated: bool = False
    sparsity: int | None = None
    clusters: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        count = optional(check_integer)
        check_fields(self, shortcut_norm=length, orthogonal=check_bool, uncorrelated=check_bool)
        check_fields(self, sparsity=count, clusters=count)
        for name, most, of in (("sparsity", self.dim, "dim"), ("clusters", self.n_clients, "n_clients")):
            value = getattr(self, name)
            if value is not None and value > most:
                raise ValueError(f"{name} = {value} must be at most {of} = {most}")
        if self.orthogonal and self.sparsity is not None:
            raise ValueError(f"orthogonal = True cannot be combined with sparsity = {self.sparsity}")
        if self.orthogonal and self.dim == self.rank:
            raise ValueError(f"orthogonal = True requires dim > rank; got dim = rank = {self.dim}")
        if self.uncorrelated and (self.sparsity, self.clusters) != (None, None):
            raise ValueError(
                f"uncorrelated = True cannot be combined with sparsity = {self.sparsity} or clusters = {self.clusters}"
            )
        if self.uncorrelated and self.n_clients <= self.rank:
            raise ValueError(f"uncorrelated = True requires n_clients > rank; got {self.n_clients} <= {self.rank}")

    @property
    def truth_rank(self) -> int | None:  # type: ignore[override]
        """None: the shortcuts are full-dimensional."""
        return None

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of the given trials: `SharedRepresentation` plus shortcuts from their own stream."""
        shared = super().truth(seed, trials)
        assert shared.B is not None
        rngs = generators(seed, Stream.SHORTCUT, trials)
        S = np.stack([self._shortcuts(rng, self.n_clients, B) for rng, B in zip(rngs, shared.B, strict=True)])
        if self.uncorrelated and self.shortcut_norm:
            assert shared.W is not None
            heads = shared.W if self.heterogeneity else shared.W[..., :1]  # at 0 all heads are equal
            basis = np.linalg.qr(heads)[0]
            original, S = S, S - basis @ (basis.mT @ S)
            lengths = [np.linalg.norm(shortcuts, axis=(-2, -1), keepdims=True) for shortcuts in (original, S)]
            S *= lengths[0] / lengths[1]
        return replace(shared, S=S)

    def _shortcuts(self, rng: Generator, count: int, B: Array) -> Array:
        """Draw the shortcuts of `count` clients, (count, d), for B* (d, k)."""
        d = self.dim
        n_distinct = self.clusters or count
        S = rng.standard_normal((n_distinct, d))
        size = d
        if self.orthogonal:
            S -= (S @ B) @ B.T
            size = d - self.rank
        if self.sparsity is not None:
            size = self.sparsity
            places = np.argsort(rng.random((n_distinct, d)), axis=-1) >= size
            S[places] = 0.0
        S *= self.shortcut_norm / math.sqrt(size)
        return np.asarray(S[np.arange(count) % n_distinct])

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of new clients, with unchanged B* and heads and shortcuts drawn as in training."""
        shared = super().new_clients(truth, clients, seed, trials)
        assert truth.B is not None
        if self.clusters is not None:  # new clients join the training clients' clusters
            assert truth.S is not None
            return replace(shared, S=truth.S[:, np.arange(clients) % self.clusters])
        rngs = generators(seed, Stream.NEW_SHORTCUT, trials)
        return replace(
            shared, S=np.stack([self._shortcuts(rng, clients, B) for rng, B in zip(rngs, truth.B, strict=True)])
        )

    def floats_per_trial(self) -> int:
        """Return the number of floats in one trial's ground truth."""
        return super().floats_per_trial() + self.n_clients * self.dim
