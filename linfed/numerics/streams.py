"""Seeds and random streams.

Every random number of a run belongs to one *stream* (truth, participation, x, noise, ...) of one *trial*. The generator
of the pair is ``SeedSequence(seed, spawn_key=(stream, trial))``, so the random numbers of a trial do not depend on the
other trials or on the process. The streams of a seed that is a tuple have other numbers: no tuple is equivalent to an
integer.

A stream that is read once per round is drawn ahead in blocks of whole rounds, value by value. A longer run therefore
extends a shorter one, and the numbers depend neither on the number of trials nor on the length of a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeAlias

import numpy as np

from linfed._types import Array, Generator, Indices
from linfed.checks import check_integer, is_integer, is_several, short_repr
from linfed.numerics.seeds import trial_generators

Seed: TypeAlias = int | tuple[int, ...]

BLOCK_VALUES = 8192
"""Number of values per generator call, if a round needs fewer: the overhead of the call is then below 3 %."""


class Stream(IntEnum):
    """Kinds of random numbers; the values are part of the seeds, so they must never change."""

    TRUTH = 0
    INIT = 1
    PARTICIPATION = 2
    X = 3
    NOISE = 4
    ALGORITHM = 5
    INIT_X = 6
    INIT_NOISE = 7
    NEW_TRUTH = 8
    NEW_X = 9
    NEW_NOISE = 10
    FINISH_X = 11
    FINISH_NOISE = 12
    OUTSIDE = 13
    FINISH_OUTSIDE = 14
    SHORTCUT = 15
    NEW_SHORTCUT = 16
    TEST = 17
    SPLIT = 18
    HELD_OUT = 19


OF_TUPLES = 1 << 16
"""Added to the number of a stream if the seed is a tuple."""


def check_seed(seed: object) -> Seed:
    """Return `seed` as a non-negative int or a tuple of non-negative ints."""
    if is_several(seed) and len(seed):
        return tuple(check_integer("seed", part, minimum=0, maximum=math.inf) for part in seed)
    if isinstance(seed, np.ndarray) and not seed.ndim:
        seed = seed.item()
    if not is_integer(seed) or seed < 0:
        raise ValueError(
            f"seed = {short_repr(seed)} must be a non-negative integer or a tuple of non-negative integers"
        )
    return int(seed)


def check_trials(trials: object, least: int = 1) -> Sequence[int]:
    """Return the numbers of trials, integers of at least 0, as a range or a list; raise for fewer than `least`."""
    numbers = trials.tolist() if isinstance(trials, np.ndarray) and trials.ndim == 1 else trials
    if isinstance(numbers, range | list | tuple) and len(numbers) >= least:
        ends = (numbers[0], numbers[-1]) if isinstance(numbers, range) and numbers else numbers
        if all(is_integer(one) and one >= 0 for one in ends):
            return numbers if isinstance(numbers, range) else [int(one) for one in numbers]
    raise ValueError(f"trials = {short_repr(trials)} must be a sequence of the trials' numbers, integers of at least 0")


def generators(seed: Seed, stream: Stream, trials: Sequence[int]) -> list[Generator]:
    """Return one generator per trial for a stream.

    Parameters
    ----------
    seed : int or tuple of int
        Seed of the run.
    stream : Stream
        Kind of random numbers.
    trials : sequence of int
        Numbers of the trials (not their count).

    Returns
    -------
    list of numpy.random.Generator
        SFC64 generators, each a function of only (seed, stream, trial).
    """
    seed, trials = check_seed(seed), check_trials(trials, least=0)
    if not isinstance(seed, tuple):
        return trial_generators(seed, int(stream), trials)
    # NumPy joins the parts as words of 32 bits and fills up with zeros. The lengths tell where each part ends.
    lengths = (part.bit_length() for part in seed)
    return trial_generators((len(seed), *lengths, *seed), OF_TUPLES + int(stream), trials)


class RoundStream:
    """Iterator over the rounds of one stream, for all trials of a chunk.

    Parameters
    ----------
    rngs : list of numpy.random.Generator
        One per trial.
    shape : tuple of int
        Shape of one round's values for one trial.
    fill : callable
        ``fill(rng, out)`` writes consecutive values into a contiguous array.
    n_rounds : int
        Number of rounds of the run, the most that are drawn ahead.

    Notes
    -----
    The values of a round do not depend on the length of a block, because `fill` reads its generator value by value.
    """

    def __init__(
        self, rngs: list[Generator], shape: tuple[int, ...], fill: Callable[[Generator, Array], None], n_rounds: int
    ) -> None:
        size = max(1, int(np.prod(shape)))
        self._rngs, self._fill = rngs, fill
        self._length = min(max(1, BLOCK_VALUES // size), max(1, n_rounds))
        self._buffer = np.empty((len(rngs), self._length, *shape))
        self._next = self._length

    def next(self) -> Array:
        """Return the next round's values, (trials, *shape): a view that the next block overwrites."""
        if self._next == self._length:
            for rng, out in zip(self._rngs, self._buffer, strict=True):
                self._fill(rng, out)
            self._next = 0
        self._next += 1
        return self._buffer[:, self._next - 1]


class TrialRandom:
    """Random numbers for algorithms: each trial reads a separate stream.

    Parameters
    ----------
    rngs : list of numpy.random.Generator
        One per trial.
    """

    def __init__(self, rngs: list[Generator]) -> None:
        self._rngs = rngs

    def standard_normal(self, shape: tuple[int, ...]) -> Array:
        """Draw independent N(0, 1) values, (trials, *shape)."""
        return np.stack([rng.standard_normal(shape) for rng in self._rngs])

    def uniform(self, shape: tuple[int, ...]) -> Array:
        """Draw independent uniform values on [0, 1), (trials, *shape)."""
        return np.stack([rng.random(shape) for rng in self._rngs])

    def permutations(self, shape: tuple[int, ...], size: int) -> Indices:
        """Draw independent permutations of ``range(size)``, (trials, *shape, size)."""
        base = np.broadcast_to(np.arange(size), (*shape, size))
        return np.stack([rng.permuted(base, axis=-1) for rng in self._rngs])
