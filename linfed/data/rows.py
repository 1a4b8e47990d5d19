"""Samples of a round as rows: stored in an array, or drawn when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from linfed._types import Array
from linfed.numerics.linalg import block_width, client_blocks, is_one_block
from linfed.numerics.threads import map_threads, thread_count

R = TypeVar("R")

FEW_CLIENTS = 64
"""Up to this number of clients share a block although it exceeds the nearest cache: fewer calls outweigh the cache."""

LARGE = 2**20
"""Smallest number of values of stored rows that are read by several threads."""

Block = tuple[slice, slice, Array]
"""Trials, clients, and their samples (t, c, m, d)."""


class Workspace:
    """Buffers that are reused in every round: allocating a large array costs as much as filling it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return an uninitialised array; calls with equal name and shape return one array."""
        array = self._arrays.get(name)
        if array is None or array.shape != shape:
            array = self._arrays[name] = np.empty(shape)
        return array


class Rows(Protocol):
    """Samples of a round's participants, (T, p, m, d)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Trials T, participants p, samples m, dimension d."""
        ...

    def blocks(self, *, once: bool = False) -> Iterator[Block]:
        """Yield all rows in blocks that fit into cache; with `once` they need not be kept for another pass."""
        ...

    @property
    def threads(self) -> int:
        """Number of threads in which `map_blocks` calls its function."""
        ...

    def map_blocks(self, function: Callable[[slice, slice, Array], R], *, once: bool = False) -> Iterator[R]:
        """Yield ``function(trials, clients, rows)`` of all blocks, in order."""
        ...

    def array(self) -> Array:
        """Return all rows, (T, p, m, d)."""
        ...

    def finish(self) -> None:
        """Draw the rows that have not been read, so that the random streams advance by a whole round."""
        ...


def stores_columns(clients: int, values: int, k: int) -> bool:
    """Return True if fixed rows are stored twice, because products with k columns of B are faster with the copy.

    Parameters
    ----------
    clients, values : int
        Number of clients, and of values of each client's rows.
    k : int
        Number of columns of B; 0 without a representation.
    """
    return 0 < k <= 3 and is_one_block(clients, values)


def factor_floats(clients: int, samples: int, dim: int, extended: bool = False) -> int:
    """Return the number of floats of the factors, or normal equations, that `least_squares` of a batch holds at a time.

    It solves one block of clients after the other. With `extended`, a ridge extends fewer than `dim` samples. Normal
    equations of fewer than two samples per dimension may be too inaccurate, so the samples are factorised.
    """
    if samples < dim:
        each = 5 * (samples + dim) if extended else 4 * samples
    else:
        each = 2 * dim + (samples if samples < 2 * dim else 0)
    return block_width(clients, samples * dim, FEW_CLIENTS) * each * dim


class HeldRows:
    """Rows stored in an array.

    Parameters
    ----------
    X : ndarray (T, p, m, d)
        C-contiguous within a trial.
    lasting : bool
        If True, the rows serve many rounds.
    """

    def __init__(self, X: Array, *, lasting: bool = False) -> None:
        self._X, self.shape, self._lasting = X, X.shape, lasting

    def blocks(self, *, once: bool = False) -> Iterator[Block]:
        """Yield all rows in blocks that fit into cache."""
        trials, p, m, d = self.shape
        for t, c in client_blocks(trials, p, m * d, FEW_CLIENTS):
            yield t, c, self._X[t, c]

    @property
    def threads(self) -> int:
        """Number of threads in which `map_blocks` calls its function."""
        return thread_count() if self._X.size >= LARGE else 1

    def map_blocks(self, function: Callable[[slice, slice, Array], R], *, once: bool = False) -> Iterator[R]:
        """Yield ``function(trials, clients, rows)`` of all blocks, in order."""
        if (threads := self.threads) > 1:
            yield from map_threads(lambda block: function(*block), self.blocks(), threads)
        else:
            for block in self.blocks():
                yield function(*block)

    def columns_for(self, k: int) -> Array | None:
        """Return the rows coordinate by coordinate, clients last, (T, d, m, p), or None if `stores_columns` is False.

        Rows that serve a single round are not worth the copy.
        """
        _, p, m, d = self.shape
        return self._columns if self._lasting and stores_columns(p, m * d, k) else None

    @cached_property
    def _columns(self) -> Array:
        """Second copy of the rows, (T, d, m, p)."""
        X = self._X[:1] if self._X.strides[0] == 0 else self._X  # the trials may share the rows
        copy = np.ascontiguousarray(X.transpose(0, 3, 2, 1))
        return np.broadcast_to(copy, (len(self._X), *copy.shape[1:]))

    def array(self) -> Array:
        """Return all rows."""
        return self._X

    def finish(self) -> None:
        """Do nothing: there is nothing to draw."""


class DrawnRows:
    """Rows that are drawn block by block when they are read, so that products read them from cache.

    In a first pass with ``once=True`` all blocks share one buffer. A second pass draws the rows again, from the
    beginning of the round's stream, and stores them.

    Parameters
    ----------
    shape : tuple of int
        Trials T, participants p, samples m, dimension d.
    draw : callable
        ``draw(trial, clients, out)`` writes the rows of these clients, (clients, m, d); it is called in order.
    rewind : callable
        Resets the streams to the first row of the round.
    workspace : Workspace
        Buffers to reuse.
    """

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        draw: Callable[[int, slice, Array], None],
        rewind: Callable[[], None],
        workspace: Workspace,
    ) -> None:
        self.shape: tuple[int, ...] = shape
        self._draw, self._rewind, self._workspace = draw, rewind, workspace
        self._was_read = False
        self._X: Array | None = None
        self._buffer: Array | None = None

    def blocks(self, *, once: bool = False) -> Iterator[Block]:
        """Yield all rows in blocks that fit into cache."""
        trials, p, m, d = self.shape
        if self._X is not None:
            yield from HeldRows(self._X).blocks()
            return
        X = None if once and not self._was_read else self._workspace.array("X", (trials, p, m, d))
        if self._was_read:
            self._rewind()
        self._was_read = True
        for t, c in client_blocks(trials, p, m * d, FEW_CLIENTS):
            rows = self._block(t, c) if X is None else X[t, c]
            for index in range(t.start, t.stop):
                self._draw(index, c, rows[index - t.start])
            yield t, c, rows
        self._X = X

    @property
    def threads(self) -> int:
        """Number of threads in which `map_blocks` calls its function; rows are drawn in one."""
        return 1 if self._X is None else HeldRows(self._X).threads

    def map_blocks(self, function: Callable[[slice, slice, Array], R], *, once: bool = False) -> Iterator[R]:
        """Yield ``function(trials, clients, rows)`` of all blocks, in order."""
        if self._X is not None:
            yield from HeldRows(self._X).map_blocks(function)
        else:
            for block in self.blocks(once=once):
                yield function(*block)

    def _block(self, t: slice, c: slice) -> Array:
        """Return the buffer of a block, (t, c, m, d)."""
        _, _, m, d = self.shape
        shape = (t.stop - t.start, c.stop - c.start, m, d)
        size = int(np.prod(shape))
        if self._buffer is None:  # the first block is the largest
            self._buffer = self._workspace.array("block", (size,))
        return self._buffer[:size].reshape(shape)

    def array(self) -> Array:
        """Draw all rows if necessary, and return them."""
        if self._X is None:
            for _ in self.blocks():
                pass
        assert self._X is not None
        return self._X

    def finish(self) -> None:
        """Draw the rows if nothing has read them."""
        if not self._was_read:
            for _ in self.blocks(once=True):
                pass
