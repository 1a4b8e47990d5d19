"""The k x k chain: the projected batch in a rotating frame of r + 2k dimensions, at a cost that does not know d.

For a low-rank truth and isotropic Gaussian x only the position of B relative to B* matters. In a frame whose first
coordinates span B* and whose next k span the rest of B, a round's noise reaches k further directions, new ones each
time; what it is there is the triangular factor of a Wishart matrix. After the round the frame turns so that B lies in
the first ones again. Distances, heads and errors are those of the full dimension; B itself is known up to a rotation.
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
from linfed.data.sources import Sizes, streamed_rows
from linfed.numerics.linalg import qr_positive
from linfed.numerics.streams import RoundStream, Seed, Stream, generators
from linfed.problems import Truth


def fill_wishart(shapes: Array, rng: Generator, out: Array) -> None:
    """Fill rounds of values (..., upper + k): N(0, 1) above the diagonal, and k Gamma values of these shapes."""
    for one in out.reshape(-1, out.shape[-1]):
        upper = len(one) - len(shapes)
        rng.standard_normal(out=one[:upper])
        one[upper:] = rng.standard_gamma(shapes)


class ChainSource(ProjectedSource):
    """Gives a projected batch each round, in the frame; states have ``r + 2k`` rows of B in place of d.

    Parameters
    ----------
    n_samples : int
        Samples m per participant and round.
    truth : Truth
        ``phi_i = B* w_i*`` of rank r with ``d >= r + 2k``; x of covariance v I.
    sizes, columns, seed, trials
        As for the projected source.
    """

    def __init__(
        self,
        n_samples: int,
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
        self._wishart = RoundStream(generators(seed, outer, trials), (upper + columns,), fill, sizes.rounds)

    def outer_noise(self, P: Array) -> Array:
        """Return the noise outside the span of P: k new directions and a Wishart factor, (T, r + 2k, k)."""
        trials, _, spanned = P.shape
        k = self.columns
        values = self._wishart.next()
        T, diagonal = np.zeros((trials, k, k)), np.arange(k)
        T[:, *self._upper] = values[:, : len(self._upper[0])]
        T[:, diagonal, diagonal] = np.sqrt(2.0 * values[:, len(self._upper[0]) :])
        # The columns that complete P: those of the unit matrix outside its span, orthonormalised.
        complete = np.linalg.qr(P, mode="complete")[0][..., spanned:]
        return np.asarray(complete[..., :k] @ T)

    def enter(self, state: Any) -> Any:
        """Return the initial state in the frame."""
        inside = self._basis.mT @ state.B
        outside = state.B - self._basis @ inside
        outside -= self._basis @ (self._basis.mT @ outside)
        R = qr_positive(outside)[1]
        return state.update(B=np.concatenate([inside, R, np.zeros_like(R)], axis=-2))

    def settle(self, state: Any) -> Any:
        """Return the state with the frame turned so that B lies in its first r + k directions."""
        rank = self._basis.shape[-1]
        R = qr_positive(state.B[:, rank:])[1]
        return state.update(B=np.concatenate([state.B[:, :rank], R, np.zeros_like(R)], axis=-2))

    def seen(self, truth: Truth) -> Truth:
        """Return the truth in the frame."""
        return self.truth

    def everyone(self, number: int = 0) -> Batch:
        """Return a batch of all clients."""
        raise NotImplementedError

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield explicit rows in the full dimension."""
        streams = (Stream.INIT_X, Stream.INIT_NOISE)
        return streamed_rows(*self._full, clients, self._seed, self._trials, streams)
