"""Sources, which return the batch of each round to the loop.

The sources in this module have explicit samples: fresh in each round, or fixed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.data.batch import Batch
from linfed.data.explicit import ExplicitBatch
from linfed.data.labels import LabelLaw, restricted
from linfed.data.row_batch import RowBatch
from linfed.data.rows import DrawnRows, HeldRows, Rows, Workspace
from linfed.numerics.linalg import CACHE_VALUES, take_clients
from linfed.numerics.streams import RoundStream, Seed, Stream, generators
from linfed.problems import Truth

Counts: TypeAlias = "int | tuple[int, ...]"
"""Number of samples of every client, or of each client."""

S = TypeVar("S")
E = TypeVar("E", bound=RowBatch)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a run, for sources and memory estimates.

    Parameters
    ----------
    n_clients, dim, participants, n_rounds : int
        Number of clients n, dimension d, participants p per round, rounds.
    features : int
        Floats per sample in addition to its row: features at B and B*, label, noise, residual and temporary values.
    classes : int, default 0
        Number of classes c; 0 for regression.
    """

    n_clients: int
    dim: int
    participants: int
    n_rounds: int
    features: int
    classes: int = 0

    @property
    def gathered(self) -> int:
        """Number of clients whose fixed samples are copied in each round: p under partial participation, else 0."""
        return self.participants if self.participants < self.n_clients else 0


class Source(ABC):
    """Base class of sources, which return the batch of each round for all trials of a chunk."""

    @abstractmethod
    def round(self, active: Indices, number: int = 0) -> Batch:
        """Return the next round's batch for the participants (T, p); the previous batch is no longer valid."""

    @abstractmethod
    def all_clients(self, number: int = 0) -> Batch:
        """Return a batch of all clients for the final step; fresh samples come from separate streams."""

    def first(self, trials: int, clients: int) -> ExplicitBatch:
        """Return a batch of all clients with explicit samples, for initialisations.

        Fresh samples come from separate streams, which the method of moments also uses.
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
        return ExplicitBatch(X, y, active=everybody(trials, clients), counts=counts)

    def to_frame(self, state: S) -> S:
        """Return the initial state in the coordinates of the rounds; by default unchanged."""
        return state

    def reframe(self, state: S) -> S:
        """Return the state after a round in the coordinates of the next round; by default unchanged."""
        return state

    def truth_in_frame(self, truth: Truth) -> Truth:
        """Return the ground truth in the coordinates of the states."""
        return truth

    @abstractmethod
    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield (trial, X (c, m, d), y (c, m), counts (c,)) over blocks of the given clients, trial by trial."""


def everybody(trials: int, clients: int) -> Indices:
    """Return all clients of every trial, (trials, clients)."""
    return np.broadcast_to(np.arange(clients), (trials, clients))


def draw_fixed(truth: Truth, shape: tuple[int, int, int], seed: Seed, trials: Sequence[int]) -> tuple[Array, Array]:
    """Draw the fixed data sets X (T, n, m, d) and y (T, n, m) of the given trials, for sizes (n, m, d)."""
    n, m, d = shape
    X, noise = np.empty((len(trials), n, m, d)), np.empty((len(trials), n, m))
    for rng, rows in zip(generators(seed, Stream.X, trials), X, strict=True):
        truth.design.fill(rng, rows)
    for rng, values in zip(generators(seed, Stream.NOISE, trials), noise, strict=True):
        rng.standard_normal(out=values)
    noise *= truth.noise_levels(np.arange(n))
    law = LabelLaw(B=truth.B, W=truth.W, S=truth.S, noise=noise)
    return X, ExplicitBatch(X, law, active=everybody(len(trials), n)).y


def clear_padding(rows: Array, counts: Array) -> None:
    """Set the rows (.., m) or (.., m, d) beyond each client's count (..,) to 0."""
    rows[np.arange(rows.shape[counts.ndim]) >= counts[..., None]] = 0.0


def fill_noise(noise_std: float | Array, rng: Generator, out: Array) -> None:
    """Fill an array with N(0, noise_std^2) values, with one standard deviation or several that broadcast."""
    rng.standard_normal(out=out)
    out *= noise_std


def streamed_rows(
    truth: Truth,
    sizes: tuple[Counts, int],
    clients: Indices,
    seed: Seed,
    trials: Sequence[int],
    streams: tuple[Stream, Stream],
) -> Iterator[tuple[int, Array, Array, Array]]:
    """Draw samples in blocks of clients, for sizes (m, d), and yield (trial, X (c, m, d), y (c, m), counts (c,))."""
    n_samples, d = sizes
    m = int(np.max(n_samples))
    size = max(1, CACHE_VALUES // (m * d))
    rngs = (generators(seed, stream, trials) for stream in streams)
    for trial, (x_rng, noise_rng) in enumerate(zip(*rngs, strict=True)):
        for start in range(0, len(clients), size):
            chosen = clients[None, start : start + size]
            X, noise = np.empty((1, chosen.size, m, d)), np.empty((1, chosen.size, m))
            truth.design.fill_clients(x_rng, X[0], chosen[0])
            fill_noise(truth.noise_levels(chosen), noise_rng, noise)
            counts = None if isinstance(n_samples, int) else np.array(n_samples, dtype=float)[chosen]
            if counts is not None:
                clear_padding(X, counts)
                clear_padding(noise, counts)
            batch = ExplicitBatch(X, restricted(truth, chosen, noise, trial), active=chosen, counts=counts)
            yield trial, X[0], batch.y[0], batch.counts[0]


class DrawnSource(Source):
    """Base class of sources of fresh samples.

    Parameters
    ----------
    n_samples : int
        Number of samples m per participant and round.
    truth, sizes, seed, trials
        Ground truth, sizes of the run, seed and trial numbers.
    """

    def __init__(self, n_samples: int, truth: Truth, sizes: Sizes, seed: Seed, trials: Sequence[int]) -> None:
        self._each: Counts = n_samples
        self.n_samples, self.truth, self.sizes, self._seed, self._trials = n_samples, truth, sizes, seed, trials

    @abstractmethod
    def resized(self, sizes: Sizes, streams: tuple[Stream, Stream]) -> Source:
        """Return a source with an equal distribution but other sizes and streams."""

    def all_clients(self, number: int = 0) -> Batch:
        """Return a batch of all clients."""
        n = self.sizes.n_clients
        once = self.resized(replace(self.sizes, participants=n, n_rounds=1), (Stream.FINISH_X, Stream.FINISH_NOISE))
        return once.round(everybody(len(self._trials), n), number)

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield explicit samples, which the fourth-order moments require, over blocks of the given clients."""
        streams = (Stream.INIT_X, Stream.INIT_NOISE)
        shape = self._each, self.sizes.dim
        return streamed_rows(self.truth, shape, clients, self._seed, self._trials, streams)


class FreshSource(DrawnSource):
    """Source of fresh explicit samples: small rounds are drawn ahead in blocks, large rounds when they are read.

    Parameters
    ----------
    n_samples : int or tuple of int
        Number of samples m per participant and round, equal for all clients, or one for each client.
    truth, sizes, seed, trials, streams
        Ground truth, sizes of the run, seed, trial numbers, and streams of samples and noise.
    """

    def __init__(
        self,
        n_samples: Counts,
        truth: Truth,
        sizes: Sizes,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream] = (Stream.X, Stream.NOISE),
    ) -> None:
        super().__init__(int(np.max(n_samples)), truth, sizes, seed, trials)
        design, rngs = truth.design, generators(seed, streams[0], trials)
        shape = (sizes.participants, self.n_samples, sizes.dim)
        self._each = n_samples
        self._counts = None if isinstance(n_samples, int) else np.array(n_samples, dtype=float)
        self._workspace = Workspace()
        self._last: ExplicitBatch | None = None
        self._shape, self._rngs = (len(trials), *shape), rngs
        if np.prod(shape) * 2 <= CACHE_VALUES:  # the participants of later rounds, and their covariances, are not known
            fill_rows = design.draw if design.per_client else design.fill
            self._ahead: RoundStream | None = RoundStream(rngs, shape, fill_rows, sizes.n_rounds)
        else:
            self._ahead = None
        self._noise: RoundStream | None = None
        self._noise_differs = np.ndim(truth.noise_std) > 0
        if np.max(truth.noise_std) > 0:
            level = 1.0 if np.ndim(truth.noise_std) else truth.noise_levels(np.arange(1))
            fill = partial(fill_noise, level)  # a method would create a reference cycle
            self._noise = RoundStream(generators(seed, streams[1], trials), shape[:2], fill, sizes.n_rounds)

    def resized(self, sizes: Sizes, streams: tuple[Stream, Stream]) -> FreshSource:
        """Return a source with an equal distribution but other sizes and streams."""
        return FreshSource(self._each, self.truth, sizes, self._seed, self._trials, streams)

    def round(self, active: Indices, number: int = 0) -> ExplicitBatch:
        """Return the next round's batch."""
        if self._last is not None:
            self._last.rows.finish()
        counts = None if self._counts is None else self._counts[active]
        noise = self._noise.next() if self._noise else None
        if noise is not None and self._noise_differs:
            noise *= self.truth.noise_levels(active)
        X = self._next_rows(active) if self._ahead else self._make_rows(counts, active)
        if counts is not None:
            for drawn in (X, noise):
                if isinstance(drawn, np.ndarray):
                    clear_padding(drawn, counts)
        whose = {"active": active, "counts": counts, "round_number": number, "n_clients": self.sizes.n_clients}
        self._last = ExplicitBatch(X, restricted(self.truth, active, noise), workspace=self._workspace, **whose)
        return self._last

    def _next_rows(self, active: Indices) -> Array:
        """Return the rows of a small round, which were drawn ahead."""
        assert self._ahead is not None
        X, design = self._ahead.next(), self.truth.design
        return design.shape_clients(X, active) if design.per_client else X

    def _make_rows(self, counts: Array | None, active: Indices) -> DrawnRows:
        """Return the rows of a large round, which are drawn when they are read."""
        design, rngs = self.truth.design, self._rngs
        states = [rng.bit_generator.state for rng in rngs]

        def draw(trial: int, clients: slice, out: Array) -> None:
            design.fill_clients(rngs[trial], out, active[trial, clients])
            if counts is not None:
                clear_padding(out, counts[trial, clients])

        def rewind() -> None:
            for rng, state in zip(rngs, states, strict=True):
                rng.bit_generator.state = state

        return DrawnRows(self._shape, draw, rewind, self._workspace)


class HeldSource(Source):
    """Base class of sources that store all clients' samples or pseudo-samples.

    Parameters
    ----------
    X : ndarray (T, n, m, d)
    y : ndarray (T, n, m)
    counts : ndarray (T, n)
        Number of samples per client.
    """

    def __init__(self, X: Array, y: Array, counts: Array) -> None:
        self._X, self._y, self._counts, self._workspace = X, y, counts, Workspace()
        self._held = HeldRows(X, lasting=True)

    def all_clients(self, number: int = 0) -> Batch:
        """Return a batch of all clients."""
        return self.round(everybody(*self._counts.shape), number)

    def _batch(self, kind: Callable[..., E], active: Indices, number: int) -> E:
        """Return the participants' batch, an instance of `kind`."""
        X, y, counts = self._X, self._y, self._counts
        rows: Rows | Array = self._held
        if active.shape[-1] < X.shape[1]:
            gathered = self._workspace.array("X", (*active.shape, *X.shape[2:]))
            for trial, chosen in enumerate(active):
                np.take(X[trial], chosen, axis=0, out=gathered[trial], mode="clip")
            rows, y, counts = gathered, take_clients(y, active), take_clients(counts, active)
        n = X.shape[1]
        return kind(rows, y, active=active, counts=counts, workspace=self._workspace, round_number=number, n_clients=n)


class FixedSource(HeldSource):
    """Source of fixed explicit samples."""

    def round(self, active: Indices, number: int = 0) -> ExplicitBatch:
        """Return the next round's batch."""
        return self._batch(ExplicitBatch, active, number)

    def first(self, trials: int, clients: int) -> ExplicitBatch:
        """Return a batch of all clients' samples."""
        return self.round(everybody(trials, clients))

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield samples over blocks of the given clients."""
        size = max(1, CACHE_VALUES // int(np.prod(self._X.shape[2:])))
        for trial in range(self._X.shape[0]):
            for start in range(0, len(clients), size):
                chosen = clients[start : start + size]
                yield trial, self._X[trial, chosen], self._y[trial, chosen], self._counts[trial, chosen]
