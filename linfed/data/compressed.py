"""Compressed batches: at most d + 1 pseudo-samples per client replace its m samples exactly.

A full-batch quadratic loss depends on ``[X, y]`` only through its Gram matrix, so the triangular factor can replace
``[X, y]``, with the normaliser m unchanged. For given and fixed samples the factor is the R of a QR factorisation, and
results agree up to rounding errors. For fresh Gaussian samples the factor of ``[X, noise]`` is drawn directly
(Bartlett), and results agree in distribution.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Never, Protocol

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.data.explicit import ExplicitBatch, normal_equations
from linfed.data.labels import restricted
from linfed.data.rows import Workspace
from linfed.data.sources import DrawnSource, HeldSource, Sizes, streamed_rows
from linfed.errors import EngineError
from linfed.numerics.linalg import client_blocks, take_clients
from linfed.numerics.streams import Seed, Stream, TrialRandom, generators
from linfed.problems import Truth

ENGINE = "compressed"


class RowSource(Protocol):
    """Source of explicit samples."""

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield (trial, X (c, m, d), y (c, m), counts (c,)) over blocks of the given clients, trial by trial."""
        ...


class CompressedBatch(ExplicitBatch):
    """Batch of pseudo-samples, which supports everything except access to single samples."""

    def minibatches(
        self, size: int, order: Indices | None = None, *, rng: TrialRandom | None = None
    ) -> Iterator[ExplicitBatch]:
        """Raise EngineError: the batch has no single samples."""
        self._refuse("minibatches")

    def split(self, parts: int = 2, *, rest: bool = False) -> tuple[ExplicitBatch, ...]:
        """Raise EngineError: the batch has no single samples."""
        self._refuse("split")

    @property
    def plain(self) -> type[ExplicitBatch]:
        """Class of batches derived from this one."""
        return CompressedBatch

    def _refuse(self, question: str) -> Never:
        """Raise EngineError for a method that requires single samples."""
        raise EngineError(
            f"engine = {ENGINE!r} has no single samples and does not support batch.{question}; use engine = "
            "'explicit', or declare requires = lf.Requires.ROWS if a step of the algorithm uses it"
        )


class GramBatch(CompressedBatch):
    """Batch of fixed pseudo-samples, whose gradients use the source's normal equations."""

    source: CompressedFixedSource

    def messages(self, theta: Array, *, once: bool = False) -> Array:
        """Return ``A_i theta_i - b_i``, (T, p, d); cost O(p d^2)."""
        A, b = self.source.normal_equations(self.active)
        out = (A @ theta[..., None])[..., 0]
        out -= b
        return np.asarray(out)

    def _refuse(self, question: str) -> Never:
        """Raise EngineError for a method that requires single samples."""
        if self.source.is_drawn:
            super()._refuse(question)
        raise EngineError(
            f"engine = {ENGINE!r} has no single samples and does not support batch.{question}; no other engine "
            "can: the samples of this run are not drawn (too many, or in_law = True)"
        )


class CompressedFixedSource(HeldSource):
    """Source of fixed pseudo-samples.

    Parameters
    ----------
    X, y : ndarray (T, n, q, d), (T, n, q)
        Triangular factors of ``[X_i, y_i]``, without and with only the last column.
    counts : ndarray (T, n)
        Number of samples m_i of each client.
    rows : RowSource or None
        Source of the samples, for the method of moments; None if samples are not drawn.
    """

    def __init__(self, X: Array, y: Array, counts: Array, rows: RowSource | None) -> None:
        super().__init__(X, y, counts)
        self._rows = rows
        self._normal: tuple[Array, Array] | None = None

    @property
    def is_drawn(self) -> bool:
        """Whether the samples exist or are drawn, so that another engine can store them."""
        return self._rows is not None

    def round(self, active: Indices, number: int = 0) -> GramBatch:
        """Return the next round's batch."""
        batch = self._batch(GramBatch, active, number)
        batch.source = self
        return batch

    def normal_equations(self, active: Indices) -> tuple[Array, Array]:
        """Return the participants' A_i and b_i, which are computed once for all clients."""
        if self._normal is None:
            self._normal = normal_equations(self._X, self._y, self._counts)
        return take_clients(self._normal[0], active), take_clients(self._normal[1], active)

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield the samples over blocks of the given clients."""
        if self._rows is None:
            raise EngineError("which are not drawn in this run (there are too many, or in_law = True)")
        return self._rows.rows_for_moments(clients)


def factor_of(X: Array, y: Array) -> Array:
    """Return the triangular factor (c, min(m, d + 1), d + 1) of ``[X_i, y_i]`` for rows (c, m, d) and labels (c, m)."""
    return np.asarray(np.linalg.qr(np.concatenate([X, y[..., None]], axis=-1), mode="r"))


def compressed(source: RowSource, shape: tuple[int, int, int, int], counts: Array) -> CompressedFixedSource:
    """Return the compressed source of the samples (T, n, m, d) of another source."""
    trials, n, m, d = shape
    X, y = np.empty((trials, n, min(m, d + 1), d)), np.empty((trials, n, min(m, d + 1)))
    everyone, filled = np.arange(n), np.zeros(trials, dtype=int)
    for trial, rows, labels, _ in source.rows_for_moments(everyone):
        block, R = slice(int(filled[trial]), int(filled[trial]) + len(rows)), factor_of(rows, labels)
        X[trial, block], y[trial, block] = R[..., :-1], R[..., -1]
        filled[trial] += len(rows)
    return CompressedFixedSource(X, y, counts, source)


class DrawnFixedRows:
    """Fixed samples that are redrawn block by block whenever they are read, without an array (n, m, d)."""

    def __init__(self, truth: Truth, sizes: tuple[int, int, int], seed: Seed, trials: Sequence[int]) -> None:
        self._truth, self._sizes, self._seed, self._trials = truth, sizes, seed, trials

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield the samples of `draw_fixed`, over blocks of the first clients."""
        first = np.arange(int(clients[-1]) + 1)
        streams = (Stream.X, Stream.NOISE)
        return streamed_rows(self._truth, self._sizes[1:], first, self._seed, self._trials, streams)


@functools.cache
def _above_diagonal(d: int) -> tuple[Indices, Indices]:
    """Return the row and column indices of the entries above the diagonal of a matrix (d, d)."""
    return np.triu_indices(d, 1)


def triangular_rows(m: int, d: int, count: int, normals: Generator, gammas: Generator) -> Array:
    """Draw the triangular factors (count, d + 1, d + 1) of `count` standard Gaussian (m, d + 1) matrices, m > d.

    This is Bartlett's decomposition: the squared diagonal entries are chi-squared with m, m - 1, .. degrees of freedom,
    and the entries above the diagonal are standard Gaussian.
    """
    R = np.zeros((count, d + 1, d + 1))
    rows, columns = _above_diagonal(d + 1)
    R[:, rows, columns] = normals.standard_normal((count, len(rows)))
    shapes = np.broadcast_to((m - np.arange(d + 1)) / 2.0, (count, d + 1))
    diagonal = np.arange(d + 1)
    R[:, diagonal, diagonal] = np.sqrt(2.0 * gammas.standard_gamma(shapes))
    return R


def draw_factors(truth: Truth, shape: tuple[int, int, int], seed: Seed, trials: Sequence[int]) -> tuple[Array, Array]:
    """Draw triangular factors of ``[X_i, y_i]`` of fixed Gaussian samples, sizes (n, m, d).

    Returns
    -------
    X, y : ndarray (T, n, d + 1, d), (T, n, d + 1)
        The factors without and with only the last column.
    """
    n, m, d = shape
    out, labels = np.empty((len(trials), n, d + 1, d)), np.empty((len(trials), n, d + 1))
    rngs = (generators(seed, stream, trials) for stream in (Stream.X, Stream.NOISE))
    for trial, (normals, gammas) in enumerate(zip(*rngs, strict=True)):
        for _, some in client_blocks(1, n, d * d):
            clients = np.arange(n)[None, some]
            R = triangular_rows(m, d, clients.size, normals, gammas)
            X, noise = truth.design.shape_rows(R[..., :-1]), truth.noise_levels(clients[0]) * R[..., -1]
            batch = ExplicitBatch(X[None], restricted(truth, clients, noise[None], trial), active=clients)
            out[trial, some], labels[trial, some] = X, batch.y[0]
    return out, labels


class CompressedFreshSource(DrawnSource):
    """Source of fresh triangular factors of ``[X, noise]``, with d + 1 rows for any m > d, for Gaussian x."""

    def __init__(
        self,
        n_samples: int,
        truth: Truth,
        sizes: Sizes,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream] = (Stream.X, Stream.NOISE),
    ) -> None:
        super().__init__(n_samples, truth, sizes, seed, trials)
        self._rngs = [generators(seed, stream, trials) for stream in streams]
        self._workspace = Workspace()

    def resized(self, sizes: Sizes, streams: tuple[Stream, Stream]) -> CompressedFreshSource:
        """Return a source with an equal distribution but other sizes and streams."""
        return CompressedFreshSource(self.n_samples, self.truth, sizes, self._seed, self._trials, streams)

    def round(self, active: Indices, number: int = 0) -> CompressedBatch:
        """Return the next round's batch."""
        X, noise = self._factors(active)
        counts = np.full(active.shape, float(self.n_samples))
        law = restricted(self.truth, active, noise)
        return CompressedBatch(
            X,
            law,
            active=active,
            counts=counts,
            workspace=self._workspace,
            round_number=number,
            n_clients=self.sizes.n_clients,
        )

    def _factors(self, active: Indices) -> tuple[Array, Array]:
        """Return pseudo-samples (T, p, d + 1, d) and the noise of their labels (T, p, d + 1)."""
        p, d, design = active.shape[-1], self.sizes.dim, self.truth.design
        X = self._workspace.array("X", (len(self._trials), p, d + 1, d))
        noise = self._workspace.array("noise", X.shape[:-1])
        for trial, (normals, gammas) in enumerate(zip(*self._rngs, strict=True)):
            R = triangular_rows(self.n_samples, d, p, normals, gammas)
            X[trial] = design.shape_rows(R[..., :-1])
            noise[trial] = self.truth.noise_levels(active[trial]) * R[..., -1]
        return X, noise
