"""Sources of batches for classification: fresh samples in each round, or fixed samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.data.classes import ClassBatch, find_classes, with_ones
from linfed.data.sources import Counts, HeldSource, Sizes, Source, clear_padding, everybody
from linfed.errors import EngineError
from linfed.numerics.linalg import take_clients
from linfed.numerics.streams import Seed, Stream, generators
from linfed.problems import ClassTruth


class ClassSource(Source):
    """Base class of sources of batches for classification."""

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Raise EngineError: initialisations from samples support only regression."""
        raise EngineError("supports only regression")


class FixedClassSource(HeldSource, ClassSource):
    """Source of fixed samples for classification.

    Parameters
    ----------
    X : ndarray (T, n, m, d)
    labels : ndarray (T, n, m)
    counts : ndarray (T, n)
    classes : int
    """

    def __init__(self, X: Array, labels: Array, counts: Array, classes: int) -> None:
        super().__init__(with_ones(X, counts), labels, counts)
        self.holds = find_classes(labels, counts, classes)

    def round(self, active: Indices, number: int = 0) -> ClassBatch:
        """Return the next round's batch."""
        return self._batch(partial(ClassBatch, holds=take_clients(self.holds, active)), active, number)


class FreshClassSource(ClassSource):
    """Source of fresh samples for classification.

    Parameters
    ----------
    n_samples : int or tuple of int
        Number of samples m per participant and round, equal for all clients, or one for each client.
    truth, sizes, seed, trials
        Ground truth, sizes of the run, seed and trial numbers.
    stream : Stream
        Random stream of the samples.
    """

    def __init__(
        self,
        n_samples: Counts,
        truth: ClassTruth,
        sizes: Sizes,
        seed: Seed,
        trials: Sequence[int],
        stream: Stream = Stream.X,
    ) -> None:
        self._again = partial(FreshClassSource, n_samples, truth, sizes, seed, trials)
        self._m, self._truth, self._n = n_samples, truth, sizes.n_clients
        self._rngs = generators(seed, stream, trials)

    def round(self, active: Indices, number: int = 0) -> ClassBatch:
        """Return the next round's batch."""
        return draw_batch(self._truth, self._rngs, active, self._m, round_number=number, n_clients=self._n)

    def all_clients(self, number: int = 0) -> ClassBatch:
        """Return a batch of all clients."""
        return self._again(stream=Stream.FINISH_X).round(everybody(len(self._truth.holds), self._n), number)


def counts_of(samples: Counts, active: Indices) -> Array:
    """Return the number of samples of each participant, (T, p)."""
    return (
        np.broadcast_to(float(samples), active.shape) if isinstance(samples, int) else np.array(samples, float)[active]
    )


def draw_batch(
    truth: ClassTruth, rngs: Sequence[Generator], active: Indices, samples: Counts, **whose: Any
) -> ClassBatch:
    """Draw a batch of samples of the participants (T, p)."""
    holds = take_clients(truth.holds, active)
    X, labels = truth.draw(rngs, holds, int(np.max(samples)))
    counts = counts_of(samples, active)
    if not isinstance(samples, int):
        clear_padding(X, counts)
        clear_padding(labels, counts)
    return ClassBatch(with_ones(X, counts), labels, holds=holds, active=active, counts=counts, **whose)


def draw_fixed_classes(truth: ClassTruth, samples: int, seed: Seed, trials: Sequence[int]) -> FixedClassSource:
    """Draw fixed data sets from a ground truth, and return their source."""
    X, labels = truth.draw(generators(seed, Stream.X, trials), truth.holds, samples)
    return FixedClassSource(X, labels, np.full(labels.shape[:2], float(samples)), truth.holds.shape[-1])


def held_out(truth: ClassTruth, samples: int, seed: Seed, trials: Sequence[int]) -> ClassBatch:
    """Draw a batch of held-out samples of all clients."""
    return draw_batch(truth, generators(seed, Stream.TEST, trials), everybody(*truth.holds.shape[:2]), samples)
