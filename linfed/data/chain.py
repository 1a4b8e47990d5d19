"""Markov-chain engine: the projected batch in a rotating frame of r + 2k dimensions, at a cost independent of d.

For a ground truth of low rank and isotropic Gaussian x the metrics depend on B only through its position relative to
B*. The first r coordinates of the frame span B*, and the next k span the rest of B. In each round the noise has a
component in k new directions: the triangular factor of a Wishart matrix. After the round the frame is rotated so that B
lies in the first r + k coordinates again. Distances, heads and errors are those of the full dimension; B is known up to
a rotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.data.batch import Batch
from linfed.data.projected import ProjectedSource
from linfed.data.sources import Counts, Sizes, streamed_rows
from linfed.numerics.linalg import qr_positive
from linfed.numerics.streams import RoundStream, Seed, Stream, generators
from linfed.problems import Truth


def fill_wishart(shapes: Array, rng: Generator, out: Array) -> None:
    """Fill `out` (..., upper + k) with N(0, 1) values above the diagonal and k Gamma values of the given shapes."""
    for one in out.reshape(-1, out.shape[-1]):
        upper = len(one) - len(shapes)
        rng.standard_normal(out=one[:upper])
        one[upper:] = rng.standard_gamma(shapes)


class ChainSource(ProjectedSource):
    """Source of a projected batch per round in the rotating frame, in which B has ``r + 2k`` rows instead of d.

    Parameters
    ----------
    n_samples : int or tuple of int
        As in `ProjectedSource`.
    truth : Truth
        ``phi_i = B* w_i*`` of rank r with ``d >= r + 2k``; the covariance of x is v I.
    sizes, columns, seed, trials
        As in `ProjectedSource`.
    """

    engine = "chain"

    def __init__(
        self,
        n_samples: Counts,
        truth: Truth,
        sizes: Sizes,
        columns: int,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream] = (Stream.X, Stream.NOISE),
    ) -> None:
        assert truth.B is not None
        rank = truth.B.shape[-1]
        self._basis, coordinates = qr_positive(truth.B)
        framed = np.concatenate([coordinates, np.zeros((len(trials), 2 * columns, rank))], axis=-2)
        small = replace(sizes, dim=rank + 2 * columns)
        super().__init__(n_samples, replace(truth, B=framed), small, columns, seed, trials, streams)
        self._full = truth, (n_samples, sizes.dim)
        rest = (sizes.dim - rank - columns - np.arange(columns)) / 2.0
        upper = columns * (columns - 1) // 2
        self._upper = np.triu_indices(columns, 1)
        outer = Stream.OUTSIDE if streams[0] == Stream.X else Stream.FINISH_OUTSIDE

        fill = partial(fill_wishart, rest)
        self._wishart = RoundStream(generators(seed, outer, trials), (upper + columns,), fill, sizes.n_rounds)

    def outer_noise(self, P: Array) -> Array:
        """Return the noise outside the span of P: k new directions and a Wishart factor, (T, r + 2k, k)."""
        trials, _, spanned = P.shape
        k = self.columns
        values = self._wishart.next()
        T, diagonal = np.zeros((trials, k, k)), np.arange(k)
        T[:, *self._upper] = values[:, : len(self._upper[0])]
        T[:, diagonal, diagonal] = np.sqrt(2.0 * values[:, len(self._upper[0]) :])
        # Columns that complete P to an orthonormal basis.
        complete = np.linalg.qr(P, mode="complete")[0][..., spanned:]
        return np.asarray(complete[..., :k] @ T)

    def to_frame(self, state: Any) -> Any:
        """Return the initial state in the frame; B must be the only array along the d coordinates."""
        inside = self._basis.mT @ state.B
        outside = state.B - self._basis @ inside
        outside -= self._basis @ (self._basis.mT @ outside)
        R = qr_positive(outside)[1]
        return replace(state, B=np.concatenate([inside, R, np.zeros_like(R)], axis=-2))

    def reframe(self, state: Any) -> Any:
        """Return the state after rotating the frame so that B lies in its first r + k coordinates."""
        rank = self._basis.shape[-1]
        R = qr_positive(state.B[:, rank:])[1]
        return replace(state, B=np.concatenate([state.B[:, :rank], R, np.zeros_like(R)], axis=-2))

    def truth_in_frame(self, truth: Truth) -> Truth:
        """Return the ground truth in the frame."""
        return self.truth

    def all_clients(self, number: int = 0) -> Batch:
        """Raise NotImplementedError: the frame supports no batch of all clients."""
        raise NotImplementedError

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield explicit samples in the full dimension."""
        streams = (Stream.INIT_X, Stream.INIT_NOISE)
        return streamed_rows(*self._full, clients, self._seed, self._trials, streams)
