"""What clients see: where the batch of each round comes from.

A source is what the loop asks for a round's batch. Those here have explicit rows: drawn anew each round, or held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.data.batch import Batch
from linfed.data.explicit import ExplicitBatch, LabelLaw
from linfed.data.rows import DrawnRows, Workspace
from linfed.numerics.linalg import CACHE_VALUES, take_clients
from linfed.numerics.streams import RoundStream, Seed, Stream, generators
from linfed.problems import Truth

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes that a source needs to know.

    Parameters
    ----------
    n_clients, dim, participants, rounds : int
        Clients n, dimension d, participants p per round, rounds.
    features : int
        Numbers per sample beside its row: features of B and B*, labels, noise, residual and what is pulled back.
    """

    n_clients: int
    dim: int
    participants: int
    rounds: int
    features: int

    @property
    def gathered(self) -> int:
        """Clients whose fixed rows are copied each round: the participants, unless everybody takes part."""
        return self.participants if self.participants < self.n_clients else 0


class Source(ABC):
    """Gives the batch of each round, for all trials of a chunk."""

    @abstractmethod
    def round(self, active: Indices) -> Batch:
        """Return the next round's batch for the participants (T, p); the one before it is void."""

    @abstractmethod
    def everyone(self) -> Batch:
        """Return a batch of all clients for what is done after the last round; fresh data have it from own streams."""

    def first(self, trials: int, clients: int) -> ExplicitBatch:
        """Return a batch of all clients, in explicit rows, for what is done before the first round.

        Fresh data have it from own streams: the rows that the method of moments sees.
        """
        X, y, counts = np.empty(0), np.empty(0), np.empty((trials, clients))
        filled = np.zeros(trials, dtype=int)
        for trial, rows, labels, samples in self.rows_for_moments(np.arange(clients)):
            if X.size == 0:
                X = np.empty((trials, clients, *rows.shape[1:]))
                y = np.empty(X.shape[:-1])
            here = slice(filled[trial], filled[trial] + len(rows))
            X[trial, here], y[trial, here], counts[trial, here] = rows, labels, samples
            filled[trial] = here.stop
        return ExplicitBatch(X, y, active=np.broadcast_to(np.arange(clients), (trials, clients)), counts=counts)

    def enter(self, state: S) -> S:
        """Return the initial state in the coordinates in which the rounds are run."""
        return state

    def settle(self, state: S) -> S:
        """Return the state after a round, in coordinates that the next round can go on from."""
        return state

    def seen(self, truth: Truth) -> Truth:
        """Return the truth in the coordinates of the states."""
        return truth

    @abstractmethod
    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield (trial, X (c, m, d), y (c, m), counts (c,)) over blocks of the named clients, trial by trial."""


def draw_fixed(truth: Truth, shape: tuple[int, int, int], seed: Seed, trials: Sequence[int]) -> tuple[Array, Array]:
    """Return the fixed data sets X (T, n, m, d) and y (T, n, m) of some trials, for sizes (n, m, d)."""
    n, m, d = shape
    X, noise = np.empty((len(trials), n, m, d)), np.empty((len(trials), n, m))
    for rng, rows in zip(generators(seed, Stream.X, trials), X, strict=True):
        truth.design.fill(rng, rows)
    for rng, values in zip(generators(seed, Stream.NOISE, trials), noise, strict=True):
        rng.standard_normal(out=values)
    noise *= truth.noise_std
    everyone = np.broadcast_to(np.arange(n), (len(trials), n))
    law = LabelLaw(B=truth.B, W=truth.W, S=truth.S, noise=noise)
    return X, ExplicitBatch(X, law, active=everyone).y


def fill_noise(noise_std: float, rng: Generator, out: Array) -> None:
    """Fill an array with N(0, noise_std^2) values."""
    rng.standard_normal(out=out)
    out *= noise_std


class FreshSource(Source):
    """Draws each round's rows: small rounds ahead in blocks, large ones when the first question reads them."""

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
        design, rngs = truth.design, generators(seed, streams[0], trials)
        shape = (sizes.participants, n_samples, sizes.dim)
        self._workspace = Workspace()
        self._last: ExplicitBatch | None = None
        self._shape, self._rngs = (len(trials), *shape), rngs
        if np.prod(shape) * 2 <= CACHE_VALUES:
            self._ahead: RoundStream | None = RoundStream(rngs, shape, design.fill, sizes.rounds)
        else:
            self._ahead = None
        self._noise: RoundStream | None = None
        self._fill_noise = partial(fill_noise, truth.noise_std)  # a method would make a cycle of source and stream
        if truth.noise_std > 0:
            self._noise = RoundStream(generators(seed, streams[1], trials), shape[:2], self._fill_noise, sizes.rounds)

    def round(self, active: Indices) -> ExplicitBatch:
        """Return the next round's batch."""
        if self._last is not None:
            self._last.rows.finish()
        law = restricted(self._truth, active, self._noise.next() if self._noise else None)
        X = self._ahead.next() if self._ahead else self._drawn()
        self._last = ExplicitBatch(X, law, active=active, workspace=self._workspace)
        return self._last

    def everyone(self) -> ExplicitBatch:
        """Return a batch of all clients."""
        n = self._sizes.n_clients
        sizes = replace(self._sizes, participants=n, rounds=1)
        streams = (Stream.FINISH_X, Stream.FINISH_NOISE)
        once = FreshSource(self._m, self._truth, sizes, self._seed, self._trials, streams)
        return once.round(np.broadcast_to(np.arange(n), (self._shape[0], n)))

    def _drawn(self) -> DrawnRows:
        design, rngs = self._truth.design, self._rngs
        states = [rng.bit_generator.state for rng in rngs]

        def draw(trial: int, clients: slice, out: Array) -> None:
            design.fill(rngs[trial], out)

        def rewind() -> None:
            for rng, state in zip(rngs, states, strict=True):
                rng.bit_generator.state = state

        return DrawnRows(self._shape, draw, rewind, self._workspace)

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield rows over blocks of the named clients."""
        truth, m, d = self._truth, self._m, self._sizes.dim
        size = max(1, CACHE_VALUES // (m * d))
        x_rngs = generators(self._seed, Stream.INIT_X, self._trials)
        noise_rngs = generators(self._seed, Stream.INIT_NOISE, self._trials)
        for trial, (x_rng, noise_rng) in enumerate(zip(x_rngs, noise_rngs, strict=True)):
            for start in range(0, len(clients), size):
                chosen = clients[None, start : start + size]
                X, noise = np.empty((1, chosen.shape[1], m, d)), np.empty((1, chosen.shape[1], m))
                truth.design.fill(x_rng, X[0])
                self._fill_noise(noise_rng, noise[0])
                batch = ExplicitBatch(X, restricted(truth, chosen, noise, trial), active=chosen)
                yield trial, X[0], batch.y[0], batch.counts[0]


class FixedSource(Source):
    """Holds every client's rows, (T, n, m, d), and hands out the participants'."""

    def __init__(self, X: Array, y: Array, counts: Array) -> None:
        self._X, self._y, self._counts, self._workspace = X, y, counts, Workspace()

    def round(self, active: Indices) -> ExplicitBatch:
        """Return the next round's batch."""
        X, y, counts = self._X, self._y, self._counts
        if active.shape[-1] < X.shape[1]:
            gathered = self._workspace.array("X", (*active.shape, *X.shape[2:]))
            for trial, chosen in enumerate(active):
                np.take(X[trial], chosen, axis=0, out=gathered[trial], mode="clip")
            X = gathered
            y, counts = take_clients(y, active), take_clients(counts, active)
        return ExplicitBatch(X, y, active=active, counts=counts, workspace=self._workspace)

    def everyone(self) -> ExplicitBatch:
        """Return a batch of all clients."""
        return self.round(np.broadcast_to(np.arange(self._X.shape[1]), self._X.shape[:2]))

    def first(self, trials: int, clients: int) -> ExplicitBatch:
        """Return a batch of all clients: the rows as they are held."""
        return self.everyone()

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield rows over blocks of the named clients."""
        size = max(1, CACHE_VALUES // int(np.prod(self._X.shape[2:])))
        for trial in range(self._X.shape[0]):
            for start in range(0, len(clients), size):
                chosen = clients[start : start + size]
                yield trial, self._X[trial, chosen], self._y[trial, chosen], self._counts[trial, chosen]


def restricted(truth: Truth, active: Indices, noise: Array | None, trial: int | None = None) -> LabelLaw:
    """Return the label law of the participants (T, p), or of those (1, p) of one trial."""
    one = slice(None) if trial is None else slice(trial, trial + 1)
    B, W, S = (None if part is None else part[one] for part in (truth.B, truth.W, truth.S))
    W, S = (None if part is None else take_clients(part, active) for part in (W, S))
    return LabelLaw(B=B, W=W, S=S, noise=noise)
