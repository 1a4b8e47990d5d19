"""Client sampling: the participants of each round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Indices
from linfed.checks import check_unmasked, is_integer, is_real, short_repr
from linfed.numerics.rounding import rounded_share
from linfed.numerics.streams import BLOCK_VALUES, Seed, Stream, generators
from linfed.system.memory import check_copy

Participation: TypeAlias = float | npt.NDArray[np.integer[Any]] | Sequence[Sequence[int]]


def plain_participation(participation: Any) -> Any:
    """Return a share or a count as a Python number, and anything else as it is.

    A shorter float is taken as written: np.float32(0.29) is 0.29.
    """
    value = participation[()] if isinstance(participation, np.ndarray) and not participation.ndim else participation
    if is_integer(value):
        return int(value)
    if isinstance(value, np.floating):
        return float(str(value))
    try:
        return float(value) if is_real(value) else participation
    except OverflowError:  # a fraction
        return math.inf


def n_participants(participation: float | np.number[Any], n_clients: int) -> int:
    """Return the number of clients in a round: a share r gives ``max(1, floor(r n + 1/2))``.

    Parameters
    ----------
    participation : float or int
        A number other than an integer is a share in (0, 1]; an int is a count from 1 to `n_clients`. (So ``1.0`` means
        all clients and ``1`` means one client.)
    n_clients : int
        Number of clients n.

    Returns
    -------
    int

    Raises
    ------
    ValueError
        If `participation` is outside its range.
    """
    share = plain_participation(participation)
    if is_integer(share):
        if not 1 <= share <= n_clients:
            raise ValueError(
                f"participation = {short_repr(participation)} clients must be from 1 to n_clients = {n_clients} "
                "(an int is a count; a share is a float in (0, 1])"
            )
        return share
    if is_real(share) and share > 1:
        raise ValueError(
            f"participation = {short_repr(participation)} must be a share in (0, 1]; for a number of "
            f"clients give an int"
        )
    if not (is_real(share) and 0 < share <= 1):
        raise ValueError(
            f"participation = {short_repr(participation)} must be a share in (0, 1], or an int from 1 to {n_clients}"
        )
    return max(1, int(rounded_share(share, n_clients)))


class Participants:
    """The clients of each round, sorted, without replacement, for all trials of a chunk.

    Parameters
    ----------
    participation : float, int or integer array
        A share, a count, or an array of client indices: (n_rounds, p), for every trial, or (trials, n_rounds, p).
    n_clients, n_rounds : int
        Sizes of the run.
    trials : sequence of int
        Numbers of the trials in this chunk.
    n_trials : int
        Number of trials of the whole run: the length of the trial axis of an index array, if it has one.
    seed : int or tuple of int
        Seed of the ``PARTICIPATION`` stream; not used for an index array.
    """

    def __init__(
        self,
        participation: Participation,
        *,
        n_clients: int,
        n_rounds: int,
        trials: Sequence[int],
        n_trials: int,
        seed: Seed,
    ) -> None:
        self._n, self._trials, self._round = n_clients, len(trials), 0
        self._given: Indices | None = None
        if is_real(plain := plain_participation(participation)):
            self.count = n_participants(plain, n_clients)
            self._rngs = generators(seed, Stream.PARTICIPATION, trials if self.count < n_clients else ())
            # Shuffling all n clients costs O(n): it pays only if one call draws many rounds.
            self._shuffles = n_clients <= BLOCK_VALUES // 2
            self._length = min(BLOCK_VALUES // n_clients, max(1, n_rounds)) if self._shuffles else 1
            self._block = np.empty((self._trials, self._length, self.count), dtype=np.intp)
            self._everyone = np.broadcast_to(np.arange(n_clients), (self._trials, n_clients))
        else:
            given = check_participants(participation, n_clients, n_rounds, n_trials)
            self.count = given.shape[-1]
            self._given = given if given.ndim == 2 else given[list(trials)]

    def next(self) -> Indices:
        """Return the next round's participants, (trials, p), each row ascending."""
        index, self._round = self._round, self._round + 1
        if self._given is not None:
            return np.broadcast_to(self._given[..., index, :], (self._trials, self.count))
        if self.count == self._n:
            return self._everyone
        if index % self._length == 0:
            self._draw()
        return self._block[:, index % self._length]

    def _draw(self) -> None:
        n, p = self._n, self.count
        if self._shuffles:
            base = np.broadcast_to(np.arange(n), (self._length, n))
            for rng, out in zip(self._rngs, self._block, strict=True):
                out[:] = rng.permuted(base, axis=1)[:, :p]
        else:
            for rng, out in zip(self._rngs, self._block, strict=True):
                out[0] = rng.choice(n, size=p, replace=False, shuffle=False)
        self._block.sort(axis=-1)


def check_participants(participation: object, n_clients: int, n_rounds: int, n_trials: int) -> Indices:
    """Return an array of client indices with sorted rows, after checking its shape, range and repetitions."""
    check_unmasked("participation", participation)
    check_copy("participation", participation)
    try:
        given = np.array(participation)
    except ValueError:
        given = np.array(None)
    if given.dtype.kind not in "iu" or given.ndim not in (2, 3) or given.shape[-1] == 0:
        raise ValueError(
            f"participation = {short_repr(participation)} must be a share in (0, 1], a count, or an integer array of "
            "shape (n_rounds, p) or (trials, n_rounds, p)"
        )
    wanted = (n_rounds,) if given.ndim == 2 else (n_trials, n_rounds)
    if given.shape[:-1] != wanted:
        raise ValueError(
            f"participation has shape {given.shape}, expected (n_rounds, p) = ({n_rounds}, p) or "
            f"(trials, n_rounds, p) = ({n_trials}, {n_rounds}, p)"
        )
    if given.size and (given.min() < 0 or given.max() >= n_clients):
        wrong = given.min() if given.min() < 0 else given.max()
        raise ValueError(f"participation contains the index {wrong}, allowed: 0 to n_clients - 1 = {n_clients - 1}")
    given = np.sort(given.astype(np.intp), axis=-1)
    if np.any(given[..., 1:] == given[..., :-1]):
        raise ValueError("participation contains a client twice in one round; a client can take part only once")
    return given
