"""Projected batches and their source; a batch supports only features at one B."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Never

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed._values import readonly
from linfed.data.batch import Batch
from linfed.data.explicit import ExplicitBatch
from linfed.data.projected.draws import Draws, fill_normals
from linfed.data.projected.features import Projected, ProjectedFeatures, unsupported
from linfed.data.projected.parts import Frame
from linfed.data.sources import Counts, DrawnSource, Sizes, Source
from linfed.numerics.linalg import take_clients
from linfed.numerics.streams import RoundStream, Seed, Stream, TrialRandom, generators
from linfed.problems import Truth


class ProjectedSource(DrawnSource):
    """Source of projected batches.

    Parameters
    ----------
    n_samples : int or tuple of int
        Number of samples m per participant and round, equal for all clients, or one above k for each client.
    sizes, seed, trials
        As in `DrawnSource`.
    truth : Truth
        Ground truth of any form, with Gaussian x.
    columns : int
        Columns k of B.
    """

    engine = "projected"

    def __init__(
        self,
        n_samples: Counts,
        truth: Truth,
        sizes: Sizes,
        columns: int,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream] = (Stream.X, Stream.NOISE),
    ) -> None:
        super().__init__(int(np.max(n_samples)), truth, sizes, seed, trials)
        self.columns, self._each = columns, n_samples
        self.unequal = None if isinstance(n_samples, int) else np.array(n_samples, dtype=float)
        k, m = columns, self.n_samples
        self.low_rank = truth.S is None
        self.outside = min(truth.B.shape[-1], sizes.dim - k) if self.low_rank and truth.B is not None else sizes.dim
        self.triangular = m > k
        normals = (k * (k + 1) // 2 if self.triangular else m * (k + 1)) + self.outside
        self.inner = normals - self.outside
        chis, known = k + 1 if self.triangular else 0, m if self.unequal is None else None
        self.draws = Draws(normals, chis, known, sizes.participants, sizes.n_rounds, seed, trials, streams)
        # The part outside the span of B and the ground truth, for the sum over clients.
        outer = Stream.OUTSIDE if streams[0] == Stream.X else Stream.FINISH_OUTSIDE
        self._outer = RoundStream(generators(seed, outer, trials), (sizes.dim, k), fill_normals, sizes.n_rounds)

    def resized(self, sizes: Sizes, streams: tuple[Stream, Stream]) -> Source:
        """Return a source with an equal distribution but other sizes and streams."""
        return ProjectedSource(self._each, self.truth, sizes, self.columns, self._seed, self._trials, streams)

    def round(self, active: Indices, number: int = 0) -> Batch:
        """Return the next round's batch."""
        self.draws.next_round(None if self.unequal is None else self.unequal[active])
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
        """Draw independent N(0, 1) columns outside the span of P, (T, d, k)."""
        N = self._outer.next()
        return np.asarray(N - P @ (P.mT @ N))


class ProjectedBatch(Projected):
    """Batch of a round's projections at one B; everything else raises EngineError."""

    name, explicit = "batch", ExplicitBatch

    def __init__(self, source: ProjectedSource, active: Indices, number: int) -> None:
        self.engine = source.engine
        self.source, self.active, self.round, self.n_clients = source, readonly(active), number, source.sizes.n_clients
        each = source.unequal
        self.counts = readonly(np.full(active.shape, float(source.n_samples)) if each is None else each[active])
        self._features: ProjectedFeatures | None = None
        self._singular: Mask = np.zeros(len(active), dtype=bool)
        truth = source.truth
        self._W, self._S = (None if part is None else take_clients(part, active) for part in (truth.W, truth.S))

    @property
    def singular(self) -> Mask:
        """True for trials in which a head with enough samples had linearly dependent features, (T,), read-only."""
        return readonly(self._singular)

    def project(self, B: Array) -> ProjectedFeatures:
        """Return the features at B (T, d, k); a round supports only one B."""
        if self._features is None:
            self._features = ProjectedFeatures(self, B)
        elif not (self._features.B is B or np.array_equal(self._features.B, B, equal_nan=True)):
            self._refuse("project at a second B")
        return self._features

    def _refuse(self, question: str, requires: str = "QUADRATIC") -> Never:
        """Raise EngineError for a method that requires more than features at one B."""
        raise unsupported(self.engine, f"batch.{question}", requires)

    def gradient(self, theta: Array) -> Array:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("gradient")

    def loss(self, theta: Array) -> Array:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("loss")

    def least_squares(self, ridge: float = 0.0) -> Array:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("least_squares")

    def pooled_least_squares(self, weights: Array, ridge: float = 0.0) -> Array:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("pooled_least_squares")

    def joint_least_squares(self, B: Array, ridge: float = 0.0) -> tuple[Array, Array]:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("joint_least_squares")

    def normal_equations(self) -> tuple[Array, Array]:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("normal_equations")

    def shifted(self, offset: Array) -> Batch:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("shifted")

    def minibatches(
        self, size: int, order: Indices | None = None, *, rng: TrialRandom | None = None
    ) -> Iterator[Batch]:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("minibatches", "ROWS")

    def split(self, parts: int = 2, *, rest: bool = False) -> tuple[Batch, ...]:
        """Raise EngineError: not supported by the projected engine."""
        self._refuse("split", "ROWS")
