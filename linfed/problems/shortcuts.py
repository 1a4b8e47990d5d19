"""Clients with a shared representation and a full-dimensional part of their own: the shortcut draft's truths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from linfed._types import Array, Generator
from linfed._values import check_fields, non_negative, optional
from linfed.errors import check_bool, check_integer
from linfed.numerics.streams import Seed, Stream, generators
from linfed.problems.base import Truth
from linfed.problems.shared import SharedRepresentation


@dataclass(frozen=True, kw_only=True)
class SharedWithShortcuts(SharedRepresentation):
    """Clients whose regressors are a shared part and a shortcut: ``phi_i = B* w_i* + s_i*``.

    Parameters
    ----------
    n_clients, dim, rank, noise_std, head_norm, condition_number, design
        As in `SharedRepresentation`.
    shortcut_norm : float
        Root mean square length of the ``s_i*``, at least 0.
    orthogonal : bool, default False
        Whether every ``s_i*`` is orthogonal to the span of B*; needs dim > rank, and excludes `sparsity`.
    uncorrelated : bool, default False
        Whether ``sum_i s_i* w_i*'`` is exactly 0, and `shortcut_norm` the root mean square length of those drawn before
        they are made so and stretched to it again; needs n_clients > rank, and excludes `sparsity` and `clusters`.
    sparsity : int, optional
        Entries of every ``s_i*`` that are not 0, at places of each client's own; all by default.
    clusters : int, optional
        Clients fall into so many clusters (client i into i modulo `clusters`) that share one shortcut.

    Raises
    ------
    ValueError
        For values out of range, or options that exclude each other.

    Notes
    -----
    ``s_i*`` is Gaussian with independent entries (on its support, or outside the span of B*), of variance
    ``shortcut_norm^2`` over their number. With one seed B* and the heads are those of `SharedRepresentation`, and the
    shortcuts of two sizes differ by their length alone. New clients have shortcuts of the same law, and with `clusters`
    those of the clusters; they are uncorrelated with their heads in the mean only.

    **Deviations**: the draft says nothing of the law of ``s_i*``.

    References
    ----------
    Shortcut draft, problem (1).
    """

    shortcut_norm: float
    orthogonal: bool = False
    uncorrelated: bool = False
    sparsity: int | None = None
    clusters: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        count = optional(check_integer)
        check_fields(self, shortcut_norm=non_negative, orthogonal=check_bool, uncorrelated=check_bool)
        check_fields(self, sparsity=count, clusters=count)
        for name, most, of in (("sparsity", self.dim, "dim"), ("clusters", self.n_clients, "n_clients")):
            value = getattr(self, name)
            if value is not None and value > most:
                raise ValueError(f"{name} = {value} must be at most {of} = {most}")
        if self.orthogonal and self.sparsity is not None:
            raise ValueError(f"orthogonal = True excludes sparsity = {self.sparsity}: the projection fills the zeros")
        if self.orthogonal and self.dim == self.rank:
            raise ValueError(f"orthogonal = True needs dim > rank; got both {self.dim}")
        if self.uncorrelated and (self.sparsity, self.clusters) != (None, None):
            raise ValueError(f"uncorrelated = True excludes sparsity = {self.sparsity} and clusters = {self.clusters}")
        if self.uncorrelated and self.n_clients <= self.rank:
            raise ValueError(f"uncorrelated = True needs n_clients > rank; got {self.n_clients} <= {self.rank}")

    @property
    def truth_rank(self) -> int | None:  # type: ignore[override]
        """None: the shortcuts fill the dimension."""
        return None

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the truths of the given trials: those of `SharedRepresentation`, and shortcuts from their stream."""
        shared = super().truth(seed, trials)
        assert shared.B is not None
        rngs = generators(seed, Stream.SHORTCUT, trials)
        S = np.stack([self._shortcuts(rng, self.n_clients, B) for rng, B in zip(rngs, shared.B, strict=True)])
        if self.uncorrelated and self.shortcut_norm:
            assert shared.W is not None
            basis = np.linalg.qr(shared.W)[0]
            drawn, S = S, S - basis @ (basis.mT @ S)
            lengths = [np.linalg.norm(shortcuts, axis=(-2, -1), keepdims=True) for shortcuts in (drawn, S)]
            S *= lengths[0] / lengths[1]
        return replace(shared, S=S)

    def _shortcuts(self, rng: Generator, count: int, B: Array) -> Array:
        """Return the shortcuts of the first clients, (count, d), for B* (d, k)."""
        d = self.dim
        own = self.clusters or count
        S = rng.standard_normal((own, d))
        size = d
        if self.orthogonal:
            S -= (S @ B) @ B.T
            size = d - self.rank
        if self.sparsity is not None:
            size = self.sparsity
            places = np.argsort(rng.random((own, d)), axis=-1) >= size
            S[places] = 0.0
        S *= self.shortcut_norm / math.sqrt(size)
        return np.asarray(S[np.arange(count) % own])

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return truths of clients that took no part: the same B*, heads and shortcuts from the same law."""
        shared = super().new_clients(truth, clients, seed, trials)
        assert truth.B is not None
        if self.clusters is not None:  # of the same clusters
            assert truth.S is not None
            return replace(shared, S=truth.S[:, np.arange(clients) % self.clusters])
        rngs = generators(seed, Stream.NEW_SHORTCUT, trials)
        return replace(
            shared, S=np.stack([self._shortcuts(rng, clients, B) for rng, B in zip(rngs, truth.B, strict=True)])
        )

    def floats_per_trial(self) -> int:
        """Return how many numbers one trial's truth holds."""
        return super().floats_per_trial() + self.n_clients * self.dim
