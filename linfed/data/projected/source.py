"""Where projected batches come from, and what they answer: features at one B; other questions need another engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Never

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed._values import readonly
from linfed.data.batch import Batch
from linfed.data.projected.draws import Draws, fill_normals
from linfed.data.projected.features import ENGINE, ProjectedFeatures
from linfed.data.projected.parts import Frame
from linfed.data.sources import DrawnSource, Sizes, Source
from linfed.errors import EngineError
from linfed.numerics.linalg import take_clients
from linfed.numerics.streams import RoundStream, Seed, Stream, TrialRandom, generators
from linfed.problems import Truth


class ProjectedSource(DrawnSource):
    """Gives a projected batch each round.

    Parameters
    ----------
    n_samples, sizes, seed, trials
        As for every source.
    truth : Truth
        In factors of any rank; Gaussian x.
    columns : int
        Columns k of B.
    """

    def __init__(
        self,
        n_samples: int,
        truth: Truth,
        sizes: Sizes,
        columns: int,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream] = (Stream.X, Stream.NOISE),
    ) -> None:
        super().__init__(n_samples, truth, sizes, seed, trials)
        self.columns = columns
        k, m = columns, n_samples
        self.low_rank = truth.S is None
        self.outside = min(truth.B.shape[-1], sizes.dim - k) if self.low_rank and truth.B is not None else sizes.dim
        self.triangular = m > k
        normals = (k * (k + 1) // 2 if self.triangular else m * (k + 1)) + self.outside
        self.inner = normals - self.outside
        self.draws = Draws(
            normals, k + 1 if self.triangular else 0, m, sizes.participants, sizes.rounds, seed, trials, streams
        )
        # What lies outside the span of B and the truth, for all clients together.
        outer = Stream.OUTSIDE if streams[0] == Stream.X else Stream.FINISH_OUTSIDE
        self._outer = RoundStream(generators(seed, outer, trials), (sizes.dim, k), fill_normals, sizes.rounds)

    def again(self, sizes: Sizes, streams: tuple[Stream, Stream]) -> Source:
        """Return a source of the same law."""
        return ProjectedSource(self.n_samples, self.truth, sizes, self.columns, self._seed, self._trials, streams)

    def round(self, active: Indices, number: int = 0) -> Batch:
        """Return the next round's batch."""
        self.draws.next_round()
        return ProjectedBatch(self, active, number)

    def frame(self, B: Array) -> Frame:
        """Return the basis for a round at B (T, d, k)."""
        truth, k = self.truth, B.shape[-1]
        shaped = truth.design.root_apply(B)
        if not self.low_rank or truth.B is None:
            Q, R = np.linalg.qr(shaped)
            return Frame(Q, R, None)
        P, R = np.linalg.qr(np.concatenate([shaped, truth.design.root_apply(truth.B)], axis=-1))
        return Frame(P, R[:, :k, :k], R[:, :, k:])

    def outer_noise(self, P: Array) -> Array:
        """Return independent N(0, 1) columns outside the span of P, (T, d, k): new ones at each call."""
        N = self._outer.next()
        return np.asarray(N - P @ (P.mT @ N))


class ProjectedBatch:
    """A round's samples as a step at one B sees them; the other questions need another engine."""

    def __init__(self, source: ProjectedSource, active: Indices, number: int) -> None:
        self.source, self.active, self.round, self.n_clients = source, readonly(active), number, source.sizes.n_clients
        self.counts = readonly(np.full(active.shape, float(source.n_samples)))
        self._features: ProjectedFeatures | None = None
        self._singular: Mask = np.zeros(len(active), dtype=bool)
        truth = source.truth
        self._W, self._S = (None if part is None else take_clients(part, active) for part in (truth.W, truth.S))

    @property
    def singular(self) -> Mask:
        """Trials in which a head with enough samples met linearly dependent features, (T,), read-only."""
        return readonly(self._singular)

    def project(self, B: Array) -> ProjectedFeatures:
        """Return what the clients see of their samples at B (T, d, k): at one B in a round."""
        if self._features is None:
            self._features = ProjectedFeatures(self, B)
        elif not (self._features.B is B or np.array_equal(self._features.B, B, equal_nan=True)):
            self._refuse("project at a second B")
        return self._features

    def _refuse(self, question: str) -> Never:
        raise EngineError(
            f"engine = {ENGINE!r} knows the samples at one B only and cannot answer batch.{question}; "
            "engine = 'compressed' or 'explicit' can"
        )

    def gradient(self, theta: Array) -> Array:
        """Refuse."""
        self._refuse("gradient")

    def loss(self, theta: Array) -> Array:
        """Refuse."""
        self._refuse("loss")

    def least_squares(self, ridge: float = 0.0) -> Array:
        """Refuse."""
        self._refuse("least_squares")

    def pooled_least_squares(self, weights: Array) -> Array:
        """Refuse."""
        self._refuse("pooled_least_squares")

    def normal_equations(self) -> tuple[Array, Array]:
        """Refuse."""
        self._refuse("normal_equations")

    def shifted(self, offset: Array) -> Batch:
        """Refuse."""
        self._refuse("shifted")

    def minibatches(
        self, size: int, order: Indices | None = None, *, rng: TrialRandom | None = None
    ) -> Iterator[Batch]:
        """Refuse."""
        self._refuse("minibatches")

    def split(self) -> tuple[Batch, Batch]:
        """Refuse."""
        self._refuse("split")
