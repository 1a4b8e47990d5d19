"""Base class of batches of explicit samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed._values import readonly
from linfed.checks import check_integer, check_numbers
from linfed.data.rows import HeldRows, Rows, Workspace
from linfed.numerics.streams import TrialRandom


class RowBatch(ABC):
    """Base class of a round's explicit samples; subclasses add the labels.

    Parameters
    ----------
    X : ndarray (T, p, m, d) or Rows
        Samples; rows beyond a client's count are zero. C-contiguous within a trial.
    active : ndarray of int (T, p)
        The participants.
    counts : ndarray (T, p), optional
        Number of samples per participant; m by default.
    workspace : Workspace, optional
        Buffers to reuse.
    round_number : int
        Number of the round; 0 for a batch outside of the rounds.
    n_clients : int, optional
        Number of clients n of the run; p by default.
    """

    def __init__(
        self,
        X: Array | Rows,
        *,
        active: Indices,
        counts: Array | None = None,
        workspace: Workspace | None = None,
        round_number: int = 0,
        n_clients: int | None = None,
    ) -> None:
        self.rows: Rows = HeldRows(X) if isinstance(X, np.ndarray) else X
        self.active = readonly(active)
        trials, p, m, _ = self.shape
        self.round, self.n_clients = round_number, p if n_clients is None else n_clients
        self.counts = readonly(np.full((trials, p), float(m)) if counts is None else counts)
        self._singular: Mask = np.zeros(trials, dtype=bool)
        self._workspace = workspace or Workspace()

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Trials T, participants p, samples m, dimension d."""
        trials, p, m, d = self.rows.shape
        return trials, p, m, d

    @property
    def X(self) -> Array:
        """Samples, (T, p, m, d), read-only."""
        return readonly(self.rows.array())

    @property
    @abstractmethod
    def y(self) -> Array:
        """Labels, (T, p, m), read-only."""

    @property
    def singular(self) -> Mask:
        """True for trials in which a head with enough samples had linearly dependent features, (T,), read-only."""
        return readonly(self._singular)

    @property
    def positive_counts(self) -> Array:
        """Number of samples per participant, (T, p), but at least 1, for use as a divisor."""
        return np.maximum(self.counts, 1.0)

    def minibatches(self, size: int, order: Indices | None = None, *, rng: TrialRandom | None = None) -> Iterator[Any]:
        """Yield batches of at most `size` samples per client.

        Parameters
        ----------
        size : int
            Number of samples per client in each batch; the last batch may be smaller.
        order : ndarray of int (T, p, m), or nested lists, optional
            Permutations of ``range(m)``; by default the order of the rows. A client with fewer than m samples keeps the
            order of its samples, and has empty batches (zero gradient) after its last one.
        rng : TrialRandom, optional
            Draws the order if `order` is not given.

        Yields
        ------
        RowBatch
            An instance of this batch's class.
        """
        size = check_integer("size", size)
        trials, p, m, _ = self.shape
        lying: Array | Indices = np.broadcast_to(np.arange(m), (trials, p, m))
        if order is not None:
            lying = check_numbers("order", order)
        elif rng is not None:
            lying = rng.permutations((p,), m)
        if lying.shape != (trials, p, m) or not np.array_equal(
            np.sort(lying, axis=-1), np.broadcast_to(np.arange(m), lying.shape)
        ):
            raise ValueError(
                f"order of shape {lying.shape} must contain permutations of range(m), (T, p, m) = {trials, p, m}"
            )
        places = lying.astype(np.intp, copy=False)
        padded = places >= self.counts[..., None]
        if padded.any():  # padding goes last; a client's samples keep their order
            places = np.take_along_axis(places, np.argsort(padded, axis=-1, kind="stable"), axis=-1)
        for start in range(0, m, size):
            left = np.clip(self.counts - start, 0.0, size)
            yield self._chosen(places[..., start : start + size], left)

    def split(self, parts: int = 2, *, rest: bool = False) -> tuple[Any, ...]:
        """Return `parts` batches: the first ``floor(m_i / parts)`` samples of each client, the next ones, and so on.

        With `rest` the last batch also has the remaining ``m_i mod parts`` samples; by default they are left out.
        """
        parts = check_integer("parts", parts)
        size = np.floor(self.counts / parts)
        if size.min() < 1:
            raise ValueError(
                f"n_samples = {int(self.counts.min())} must be at least {parts}: the algorithm divides the samples of "
                f"each client into {parts} parts"
            )
        sizes = [size] * (parts - 1) + [self.counts - (parts - 1) * size if rest else size]
        # Widths depend on no counts of these clients, so that a trial has the same bits whatever the others are.
        width, more = divmod(self.shape[2], parts)
        widths = [width] * (parts - 1) + [width + max(more, parts - 2) if rest else width]
        if (self.counts == self.shape[2]).all() and not (rest and more < parts - 2):  # slices are faster
            return tuple(
                self._sliced(slice(part * width, part * width + wide), counts)
                for part, (wide, counts) in enumerate(zip(widths, sizes, strict=True))
            )
        found = []
        for part, (wide, counts) in enumerate(zip(widths, sizes, strict=True)):
            steps = np.arange(wide)
            places = np.where(steps < counts[..., None], steps + part * size[..., None], 0).astype(np.intp)
            found.append(self._chosen(places, counts))
        return tuple(found)

    def _sliced(self, rows: slice, counts: Array) -> Any:
        """Return a batch of the same rows of samples of every client, without padding."""
        return self._with(np.ascontiguousarray(self.X[:, :, rows]), np.ascontiguousarray(self.y[:, :, rows]), counts)

    def _chosen(self, index: Indices, counts: Array) -> Any:
        """Return a batch of the samples at `index` (T, p, rows), keeping the first `counts` (T, p) of them."""
        inside = np.arange(index.shape[-1]) < counts[..., None]
        X = np.take_along_axis(self.X, index[..., None], axis=2) * inside[..., None]
        return self._with(X, np.take_along_axis(self.y, index, axis=2) * inside, counts)

    @abstractmethod
    def _with(self, X: Array, y: Array, counts: Array) -> RowBatch:
        """Return a batch of the same clients with the given samples, labels and counts."""
