"""Random numbers of projected rounds: standard Gaussian and chi-squared values, in blocks of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from linfed._types import Array, Generator
from linfed.data.rows import Workspace
from linfed.numerics.linalg import client_blocks
from linfed.numerics.streams import BLOCK_VALUES, RoundStream, Seed, Stream, generators


def fill_normals(rng: Generator, out: Array) -> None:
    """Fill an array with N(0, 1) values."""
    rng.standard_normal(out=out)


def fill_gammas(shapes: Array, rng: Generator, out: Array) -> None:
    """Fill an array (..., chis, count) with Gamma values; `shapes` has one shape parameter per row."""
    if out.ndim == 2:
        for shape, row in zip(shapes, out, strict=True):
            rng.standard_gamma(shape, out=row)
    else:
        rng.standard_gamma(np.broadcast_to(shapes[:, None], out.shape), out=out)


class Draws:
    """Standard Gaussian and chi-squared values of each round, for all trials of a chunk, in blocks of clients.

    Parameters
    ----------
    normals, chis : int
        Numbers of Gaussian and of chi-squared values per client; the latter have ``m, m - 1, ..`` degrees of freedom.
    n_samples : int or None
        Number m; None if it differs between clients and is given in each round.
    """

    def __init__(
        self,
        normals: int,
        chis: int,
        n_samples: int | None,
        participants: int,
        n_rounds: int,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream],
    ) -> None:
        self._normals, self._chis, self._p, self._trials = normals, chis, participants, len(trials)
        self._counts: Array | None = None
        self._rngs = [generators(seed, stream, trials) for stream in streams]
        self._workspace = Workspace()
        self._ahead: list[RoundStream] | None = None
        # A method would create a reference cycle.
        self._fill_gammas = partial(fill_gammas, (n_samples - np.arange(chis)) / 2.0) if n_samples else None
        if self._fill_gammas and participants * (normals + chis) <= BLOCK_VALUES:
            fills: tuple[Callable[[Generator, Array], None], ...] = (fill_normals, self._fill_gammas)
            shapes = ((normals, participants), (chis, participants))
            self._ahead = [
                RoundStream(rngs, shape, fill, n_rounds)
                for rngs, shape, fill in zip(self._rngs, shapes, fills, strict=True)
            ]
        self._now: list[Array] = []
        self._states: list[list[dict[str, object]]] = []

    @property
    def lasting(self) -> bool:
        """Whether a round's values stay valid until the next round."""
        return self._ahead is not None

    def next_round(self, counts: Array | None = None) -> None:
        """Advance to the next round, with the participants' numbers of samples (T, p) if they differ."""
        self._counts = counts
        if self._ahead is not None:
            self._now = [stream.next() for stream in self._ahead]
        else:  # the values of the round are redrawn from these states at each pass
            self._states = [[dict(rng.bit_generator.state) for rng in rngs] for rngs in self._rngs]

    def blocks(self, values: int) -> Iterator[tuple[slice, slice, Array, Array]]:
        """Yield (trials, clients, normals (t, normals, c), chi-squares (t, chis, c)) over the round's clients."""
        if self._ahead is not None:
            for t, c in client_blocks(self._trials, self._p, values):
                yield t, c, self._now[0][t, :, c], 2.0 * self._now[1][t, :, c]
            return
        for rngs, states in zip(self._rngs, self._states, strict=True):
            for rng, state in zip(rngs, states, strict=True):
                rng.bit_generator.state = state
        for t, c in client_blocks(self._trials, self._p, values):
            count = c.stop - c.start
            shape = t.stop - t.start, self._normals, count
            normals = self._workspace.array(f"normals {count}", shape)
            gammas = self._workspace.array(f"gammas {count}", (shape[0], self._chis, count))
            for index in range(t.start, t.stop):
                fill_normals(self._rngs[0][index], normals[index - t.start])
                if self._fill_gammas:
                    self._fill_gammas(self._rngs[1][index], gammas[index - t.start])
                else:
                    assert self._counts is not None
                    shapes = (self._counts[index, c] - np.arange(self._chis)[:, None]) / 2.0
                    self._rngs[1][index].standard_gamma(shapes, out=gammas[index - t.start])
            yield t, c, normals, np.multiply(gammas, 2.0, out=gammas)
