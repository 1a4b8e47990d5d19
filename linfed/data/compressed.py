"""Compressed batches: at most d + 1 pseudo-samples per client stand for its m samples, exactly.

Every full-batch quadratic loss sees ``[X, y]`` through its Gram matrix alone, so its triangular factor may take its
place, the normaliser still m. For given and fixed data it is the R of a QR factorisation: the same numbers up to
rounding. For fresh Gaussian data the factor of ``[X, noise]`` is drawn itself (Bartlett): the same law.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Never, Protocol

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.data.explicit import ExplicitBatch
from linfed.data.rows import Workspace
from linfed.data.sources import FreshSource, Sizes, Source, restricted
from linfed.errors import EngineError
from linfed.numerics.linalg import CACHE_VALUES, take_clients
from linfed.numerics.streams import Seed, Stream, generators
from linfed.problems import Truth

ENGINE = "compressed"


class RowSource(Protocol):
    """Whoever can show the samples themselves."""

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield (trial, X (c, m, d), y (c, m), counts (c,)) over blocks of the named clients, trial by trial."""
        ...


class CompressedBatch(ExplicitBatch):
    """Pseudo-samples in the place of rows: they answer everything but what asks for single samples."""

    def minibatches(self, size: int, order: Indices | None = None) -> Iterator[ExplicitBatch]:
        """Refuse: single samples are gone."""
        self._refuse("minibatches")

    def split(self) -> tuple[ExplicitBatch, ExplicitBatch]:
        """Refuse: single samples are gone."""
        self._refuse("split")

    @property
    def plain(self) -> type[ExplicitBatch]:
        """The class of batches with the same rows and other labels."""
        return CompressedBatch

    def _refuse(self, question: str) -> Never:
        raise EngineError(
            f"engine = {ENGINE!r} has no single samples and cannot answer batch.{question}; engine = 'explicit' can"
        )


class GramBatch(CompressedBatch):
    """Pseudo-samples that are the same in every round, with the source's normal equations for the gradient."""

    source: CompressedFixedSource

    def messages(self, theta: Array, *, once: bool = False) -> Array:
        """Return ``A_i theta_i - b_i``, (T, p, d); cost O(p d^2)."""
        A, b = self.source.normal_equations(self.active)
        out = (A @ theta[..., None])[..., 0]
        out -= b
        return np.asarray(out)


class CompressedFixedSource(Source):
    """Holds every client's pseudo-samples and hands out the participants'.

    Parameters
    ----------
    R : ndarray (T, n, q, d + 1)
        Triangular factors of ``[X_i, y_i]``.
    counts : ndarray (T, n)
        Samples m_i that they stand for.
    rows : RowSource or None
        Has the samples themselves, for the method of moments; None where there are none.
    """

    def __init__(self, R: Array, counts: Array, rows: RowSource | None) -> None:
        self._X, self._y = np.ascontiguousarray(R[..., :-1]), np.ascontiguousarray(R[..., -1])
        self._counts, self._rows, self._workspace = counts, rows, Workspace()
        self._normal: tuple[Array, Array] | None = None

    def round(self, active: Indices) -> GramBatch:
        """Return the next round's batch."""
        X, y, counts = self._X, self._y, self._counts
        if active.shape[-1] < X.shape[1]:
            gathered = self._workspace.array("X", (*active.shape, *X.shape[2:]))
            for trial, chosen in enumerate(active):
                np.take(X[trial], chosen, axis=0, out=gathered[trial], mode="clip")
            X, y, counts = gathered, take_clients(y, active), take_clients(counts, active)
        batch = GramBatch(X, y, active=active, counts=counts, workspace=self._workspace)
        batch.source = self
        return batch

    def everyone(self) -> GramBatch:
        """Return a batch of all clients."""
        return self.round(np.broadcast_to(np.arange(self._X.shape[1]), self._X.shape[:2]))

    def normal_equations(self, active: Indices) -> tuple[Array, Array]:
        """Return the participants' A_i and b_i, formed once for all clients."""
        if self._normal is None:
            m = self._counts[..., None]
            A = np.swapaxes(self._X, -1, -2) @ self._X / m[..., None]
            self._normal = A, (self._y[..., None, :] @ self._X)[..., 0, :] / m
        return take_clients(self._normal[0], active), take_clients(self._normal[1], active)

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield the samples themselves over blocks of the named clients."""
        if self._rows is None:
            raise EngineError("which are not drawn here (there are too many, or in_law = True)")
        return self._rows.rows_for_moments(clients)


def factor_of(X: Array, y: Array) -> Array:
    """Return the triangular factor (c, min(m, d + 1), d + 1) of ``[X_i, y_i]`` for rows (c, m, d) and labels (c, m)."""
    return np.asarray(np.linalg.qr(np.concatenate([X, y[..., None]], axis=-1), mode="r"))


def compressed(source: RowSource, shape: tuple[int, int, int, int], counts: Array) -> CompressedFixedSource:
    """Return the compressed source of rows that a source holds, (T, n, m, d)."""
    trials, n, m, d = shape
    R = np.empty((trials, n, min(m, d + 1), d + 1))
    everyone, filled = np.arange(n), np.zeros(trials, dtype=int)
    for trial, X, y, _ in source.rows_for_moments(everyone):
        start = int(filled[trial])
        R[trial, start : start + len(X)] = factor_of(X, y)
        filled[trial] += len(X)
    return CompressedFixedSource(R, counts, source)


class DrawnFixedRows:
    """The rows of fixed samples, drawn again block by block whenever they are read: nothing of size (n, m, d)."""

    def __init__(self, truth: Truth, sizes: tuple[int, int, int], seed: Seed, trials: Sequence[int]) -> None:
        self._truth, self._sizes, self._seed, self._trials = truth, sizes, seed, trials

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield the rows over blocks of the first clients, as `draw_fixed` has them."""
        _, m, d = self._sizes
        size, last = max(1, CACHE_VALUES // (m * d)), int(clients[-1]) + 1
        rngs = (generators(self._seed, stream, self._trials) for stream in (Stream.X, Stream.NOISE))
        for trial, (x_rng, noise_rng) in enumerate(zip(*rngs, strict=True)):
            for start in range(0, last, size):
                chosen = np.arange(start, min(start + size, last))[None]
                X, noise = np.empty((1, chosen.size, m, d)), np.empty((1, chosen.size, m))
                self._truth.design.fill(x_rng, X[0])
                noise_rng.standard_normal(out=noise)
                noise *= self._truth.noise_std
                batch = ExplicitBatch(X, restricted(self._truth, chosen, noise, trial), active=chosen)
                yield trial, X[0], batch.y[0], batch.counts[0]


def triangular_rows(m: int, d: int, count: int, normals: Generator, gammas: Generator) -> Array:
    """Return the triangular factors (count, d + 1, d + 1) of `count` standard Gaussian (m, d + 1) matrices, m > d.

    Bartlett's decomposition: the diagonal is the root of chi-squares with m, m - 1, .. degrees of freedom, above it
    lie standard Gaussian values.
    """
    R = np.zeros((count, d + 1, d + 1))
    rows, columns = np.triu_indices(d + 1, 1)
    R[:, rows, columns] = normals.standard_normal((count, len(rows)))
    shapes = np.broadcast_to((m - np.arange(d + 1)) / 2.0, (count, d + 1))
    diagonal = np.arange(d + 1)
    R[:, diagonal, diagonal] = np.sqrt(2.0 * gammas.standard_gamma(shapes))
    return R


def drawn_factors(truth: Truth, shape: tuple[int, int, int], seed: Seed, trials: Sequence[int]) -> Array:
    """Return triangular factors of ``[X_i, y_i]``, (T, n, d + 1, d + 1), of fixed Gaussian samples, sizes (n, m, d)."""
    n, m, d = shape
    out = np.empty((len(trials), n, d + 1, d + 1))
    rngs = (generators(seed, stream, trials) for stream in (Stream.X, Stream.NOISE))
    everyone = np.arange(n)[None]
    for trial, (normals, gammas) in enumerate(zip(*rngs, strict=True)):
        R = triangular_rows(m, d, n, normals, gammas)
        X, noise = truth.design.shape_rows(R[..., :-1]), truth.noise_std * R[..., -1]
        batch = ExplicitBatch(X[None], restricted(truth, everyone, noise[None], trial), active=everyone)
        out[trial, ..., :-1], out[trial, ..., -1] = X, batch.y[0]
    return out


class CompressedFreshSource(Source):
    """Draws the triangular factor of each participant's ``[X, noise]`` anew each round: d + 1 rows for any m > d.

    Parameters
    ----------
    n_samples : int
        Samples m per participant and round.
    truth, sizes, seed, trials
        As for every source; Gaussian x.
    """

    def __init__(
        self,
        n_samples: int,
        truth: Truth,
        sizes: Sizes,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream] = (Stream.X, Stream.NOISE),
    ) -> None:
        self._m, self._truth, self._sizes, self._seed, self._trials = n_samples, truth, sizes, seed, trials
        self._rngs = [generators(seed, stream, trials) for stream in streams]
        self._workspace = Workspace()

    def round(self, active: Indices) -> CompressedBatch:
        """Return the next round's batch."""
        X, noise = self._factors(active.shape[-1])
        counts = np.full(active.shape, float(self._m))
        law = restricted(self._truth, active, noise)
        return CompressedBatch(X, law, active=active, counts=counts, workspace=self._workspace)

    def _factors(self, p: int) -> tuple[Array, Array]:
        """Return pseudo-samples (T, p, d + 1, d) and the noise of their labels (T, p, d + 1)."""
        d, design = self._sizes.dim, self._truth.design
        X = self._workspace.array("X", (len(self._trials), p, d + 1, d))
        noise = self._workspace.array("noise", X.shape[:-1])
        for trial, (normals, gammas) in enumerate(zip(*self._rngs, strict=True)):
            R = triangular_rows(self._m, d, p, normals, gammas)
            X[trial] = design.shape_rows(R[..., :-1])
            noise[trial] = self._truth.noise_std * R[..., -1]
        return X, noise

    def everyone(self) -> CompressedBatch:
        """Return a batch of all clients."""
        n = self._sizes.n_clients
        sizes = replace(self._sizes, participants=n, rounds=1)
        streams = (Stream.FINISH_X, Stream.FINISH_NOISE)
        once = CompressedFreshSource(self._m, self._truth, sizes, self._seed, self._trials, streams)
        return once.round(np.broadcast_to(np.arange(n), (len(self._trials), n)))

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield explicit rows: the moments are of fourth order."""
        return FreshSource(self._m, self._truth, self._sizes, self._seed, self._trials).rows_for_moments(clients)
