"""What an algorithm may know before the first round; the truth stays behind the answers."""

from __future__ import annotations

import math

import numpy as np

from linfed._types import Array
from linfed.algorithms.initial import (
    AtDistance,
    Factors,
    GivenFactors,
    GivenSubspace,
    Initial,
    Moments,
    TrueSubspace,
)
from linfed.data.sources import Source, second_moment
from linfed.job import Job
from linfed.linalg import orthonormalize, top_eigenvectors
from linfed.problems import Truth
from linfed.streams import Stream, TrialRandom, generators


class ResolvedStart:
    """Answers an algorithm's questions before the first round (`linfed.algorithms.base.Start`)."""

    def __init__(self, job: Job, trials: range, truth: Truth | None, source: Source) -> None:
        self._job, self._trials, self._truth, self._source = job, trials, truth, source
        self.trials, self.n_clients, self.dim = len(trials), job.sizes.n_clients, job.sizes.dim
        self.rng = TrialRandom(generators(job.seed, Stream.ALGORITHM, trials))

    def representation(self, init: Initial, rank: int) -> Array:
        """Return the initial representation (trials, d, rank)."""
        if isinstance(init, GivenSubspace):
            return self._given(init.array)
        if isinstance(init, Moments):
            clients = np.arange(self.n_clients if init.clients is None else init.clients)
            return top_eigenvectors(second_moment(self._source, clients, self.trials, self.dim), rank)
        if isinstance(init, TrueSubspace):
            return self._reference(init, rank)
        rngs = generators(self._job.seed, Stream.INIT, self._trials)
        random = np.stack([rng.standard_normal((self.dim, rank)) for rng in rngs])
        if not isinstance(init, AtDistance):
            return orthonormalize(random)
        reference = self._reference(init, rank)
        # Twice is enough: the second projection removes what rounding left of the first.
        for _ in range(2):
            random = orthonormalize(random - reference @ (np.swapaxes(reference, -1, -2) @ random))
        turn = orthonormalize(np.stack([rng.standard_normal((rank, rank)) for rng in rngs]))
        return math.sqrt(1.0 - init.delta**2) * (reference @ turn) + init.delta * random

    def factors(self, init: Factors, rank: int) -> tuple[Array, Array]:
        """Return the initial B (trials, d, rank) and W (trials, n, rank)."""
        if isinstance(init, GivenFactors):
            B, W = init.arrays
            return self._given(B), self._given(W)
        alpha = 1.0 / (10.0 * self.dim) if init.alpha is None else init.alpha
        B, W = np.empty((self.trials, self.dim, rank)), np.empty((self.trials, self.n_clients, rank))
        for index, rng in enumerate(generators(self._job.seed, Stream.INIT, self._trials)):
            for out in (B, W):  # B first, as `representation` draws it
                rng.standard_normal(out=out[index])
                out[index] *= alpha
        return B, W

    def _given(self, array: Array) -> Array:
        """Return a given array for each trial of the chunk."""
        if array.ndim == 3:
            return array[list(self._trials)]
        return np.broadcast_to(array, (self.trials, *array.shape)).copy()

    def _reference(self, init: AtDistance | TrueSubspace, rank: int) -> Array:
        assert self._truth is not None
        reference = self._truth.reference(rank)
        if reference.shape[-1] != rank:
            wanted = f"init = {init!r}" if isinstance(init, AtDistance) else type(self._job.algorithm).__name__
            raise ValueError(f"{wanted} needs a reference subspace of rank {rank}, not {reference.shape[-1]}")
        return reference
