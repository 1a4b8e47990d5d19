"""Vectorised `numpy.random.SeedSequence`: the generators of many trials at once.

One seed sequence takes about ten microseconds, and a run needs several per trial. The keys of a run's sequences differ
only in their last word, so everything before it is mixed once. The constants are NumPy's, which guarantees that they do
not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISpawnableSeedSequence

from linfed._types import Generator

FEW = 16
"""Number of trials below which NumPy's implementation is as fast."""

Words = npt.NDArray[np.uint32]

_WORD = 1 << 32
_POOL = 4
_MIXING, _MIXING_NEXT = 0x43B0D7E5, 0x931E8875
_OUTPUT, _OUTPUT_NEXT = 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = 0xCA01F9DD, 0x4973F715


def trial_generators(entropy: int | tuple[int, ...], stream: int, trials: Sequence[int]) -> list[Generator]:
    """Return SFC64 generators of ``SeedSequence(entropy, spawn_key=(stream, trial))``, one per trial."""
    if len(trials) < FEW or max(trials) >= _WORD:
        return [np.random.Generator(np.random.SFC64(_sequence(entropy, stream, trial))) for trial in trials]
    sequences: list[Any] = [
        _Known(state, (entropy, stream, trial))
        for trial, state in zip(trials, _states(entropy, stream, trials), strict=True)
    ]
    return [np.random.Generator(np.random.SFC64(sequence)) for sequence in sequences]


def _sequence(entropy: int | tuple[int, ...], stream: int, trial: int) -> np.random.SeedSequence:
    """Return NumPy's seed sequence of a trial."""
    return np.random.SeedSequence(entropy, spawn_key=(stream, trial))


class _Known(ISpawnableSeedSequence):
    """Seed sequence with a precomputed state for SFC64, three words of 64 bits; otherwise it uses NumPy's sequence."""

    def __init__(self, state: npt.NDArray[np.uint64], key: tuple[int | tuple[int, ...], int, int]) -> None:
        self._state, self._key = state, key
        self._whole: np.random.SeedSequence | None = None

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """Return `n_words` words of the given type."""
        if n_words == len(self._state) and dtype == np.uint64:
            return self._state
        return self._make_sequence().generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> Any:
        """Return `n_children` child seed sequences."""
        return self._make_sequence().spawn(n_children)

    def _make_sequence(self) -> np.random.SeedSequence:
        """Return NumPy's seed sequence, created at the first call."""
        if self._whole is None:
            self._whole = _sequence(*self._key)
        return self._whole


def _states(entropy: int | tuple[int, ...], stream: int, trials: Sequence[int]) -> npt.NDArray[np.uint64]:
    """Return ``generate_state(3, numpy.uint64)`` of each trial's seed sequence, (trials, 3)."""
    before = np.random.SeedSequence(entropy, spawn_key=(stream,))
    numbers = entropy if isinstance(entropy, tuple) else (entropy,)
    words = sum(max(1, -(-number.bit_length() // 32)) for number in numbers)
    mixed = _POOL * _POOL + _POOL * (max(_POOL, words) + 1 - _POOL)  # words hashed before the trial number
    constant = _MIXING * pow(_MIXING_NEXT, mixed, _WORD) % _WORD
    last, pool = np.array(trials, dtype=np.uint32), []
    for previous in before.pool.tolist():
        value, constant = _hashed(last, constant, _MIXING_NEXT)
        pool.append(_folded(np.uint32(_LEFT * previous % _WORD) - np.uint32(_RIGHT) * value))
    constant, state = _OUTPUT, np.empty((len(last), 6), dtype="<u4")
    for word in range(6):
        state[:, word], constant = _hashed(pool[word % _POOL], constant, _OUTPUT_NEXT)
    return state.view("<u8").astype(np.uint64, copy=False)


def _hashed(value: Words, constant: int, factor: int) -> tuple[Words, int]:
    """Return the hashed words and the next constant."""
    following = constant * factor % _WORD
    return _folded((value ^ np.uint32(constant)) * np.uint32(following)), following


def _folded(value: Words) -> Words:
    """Return words xor their upper halves."""
    return value ^ (value >> np.uint32(16))
