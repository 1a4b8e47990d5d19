"""Projected batches for classification: fresh Gaussian classes with a common covariance, at one shared B per round.

With ``x = mu_y + L z`` and ``L'B = Q R``, a round depends on a sample through its label and ``z_1 = Q'z``, k standard
Gaussian numbers. The features are ``B'x = B'mu_y + R'z_1``. The gradient on B is a sum ``sum_j x_j v_j'``, where v_j is
a function of features and labels. Given these, the sum is distributed as

    L [Q sum_j z_1j v_j' + (I - QQ') N F] + sum_c mu_c (sum of v_j over class c)',     F'F = sum_j v_j v_j',

with one standard Gaussian matrix N (d, k) for all clients. docs/exact-law.md derives the distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Never

import numpy as np

from linfed._types import Array, Indices
from linfed._values import readonly
from linfed.data.class_sources import ClassSource, counts_of
from linfed.data.classes import ClassBatch, ClassFeatures, Predictors, SampleMeasure
from linfed.data.projected.draws import fill_normals
from linfed.data.projected.features import unsupported
from linfed.data.sources import Counts, Sizes, clear_padding, everybody
from linfed.numerics.linalg import client_blocks, root_of_gram, take_clients
from linfed.numerics.streams import RoundStream, Seed, Stream, generators
from linfed.problems import ClassTruth
from linfed.problems.classes import dealt_labels


class ProjectedClassSource(ClassSource):
    """Source of projected batches for classification.

    Parameters
    ----------
    n_samples : int or tuple of int
        Number of samples m per participant and round, equal for all clients, or one for each client.
    truth, sizes, columns, seed, trials
        Ground truth, sizes of the run, columns k of B, seed and trial numbers.
    streams : tuple of Stream
        Random streams of the samples in the span of B, and of the gradient outside of it.
    """

    def __init__(
        self,
        n_samples: Counts,
        truth: ClassTruth,
        sizes: Sizes,
        columns: int,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream] = (Stream.X, Stream.OUTSIDE),
    ) -> None:
        once = replace(sizes, participants=sizes.n_clients, n_rounds=1)
        self._again = partial(ProjectedClassSource, n_samples, truth, once, columns, seed, trials)
        self._m, self._truth, self._n = n_samples, truth, sizes.n_clients
        shapes = (sizes.participants, int(np.max(n_samples)), columns), (sizes.dim, columns)
        self._inner, self._outer = (
            RoundStream(generators(seed, stream, trials), shape, fill_normals, sizes.n_rounds)
            for stream, shape in zip(streams, shapes, strict=True)
        )

    def round(self, active: Indices, number: int = 0) -> ProjectedClassBatch:
        """Return the next round's batch."""
        holds, counts, z = take_clients(self._truth.holds, active), counts_of(self._m, active), self._inner.next()
        labels = dealt_labels(holds, z.shape[2])
        if not isinstance(self._m, int):
            clear_padding(z, counts)
            clear_padding(labels, counts)
        whose = {"active": active, "counts": counts, "round_number": number, "n_clients": self._n}
        return ProjectedClassBatch(self._truth, z, labels, self._outer.next(), holds=holds, **whose)

    def all_clients(self, number: int = 0) -> ProjectedClassBatch:
        """Return a batch of all clients."""
        everyone = everybody(len(self._truth.holds), self._n)
        return self._again(streams=(Stream.FINISH_X, Stream.FINISH_OUTSIDE)).round(everyone, number)


class ProjectedClassBatch(ClassBatch):
    """Batch of a round's projections at one B; supports features, and one gradient on B.

    Parameters
    ----------
    truth : ClassTruth
    z : ndarray (T, p, m, k)
        Standard Gaussian coordinates of the samples in the span of ``L'B``; 0 in padding.
    labels : ndarray (T, p, m)
    outer : ndarray (T, d, k)
        Standard Gaussian matrix N.
    **whose
        As in `ClassBatch`.
    """

    def __init__(self, truth: ClassTruth, z: Array, labels: Array, outer: Array, **whose: Any) -> None:
        super().__init__(z, labels, **whose)
        self._truth, self._outer, self._was_sent = truth, outer, False
        self._projection: tuple[Array, Array, Array] | None = None

    def project(self, B: Array) -> ProjectedClassFeatures:
        """Return the features at B (T, d, k); a round supports only one B."""
        if self._projection is None and B.ndim == 3:
            self._projection = B, *projected(self._truth, B, self.rows.array(), self._labels, self.counts)
        elif self._projection is None or not np.array_equal(self._projection[0], B, equal_nan=True):
            self._unsupported("project at a second B")
        return ProjectedClassFeatures(self, *self._projection)

    def gradient_at(self, Q: Array, inner: Array, gram: Array, sums: Array) -> Array:
        """Return ``sum_j x_j v_j'``, (T, d, k).

        Parameters
        ----------
        Q : ndarray (T, d, k)
            Orthonormal basis of the span of ``L'B``.
        inner, gram : ndarray (T, k, k)
            ``sum_j z_1j v_j'`` and ``sum_j v_j v_j'``.
        sums : ndarray (T, c, k)
            Sum of v_j over each class.

        Raises
        ------
        EngineError
            If it was called before: the part outside of Q's span was drawn for another gradient.
        """
        if self._was_sent:
            self._unsupported("a second gradient on B")
        self._was_sent = True
        truth = self._truth
        assert truth.B is not None
        noise = self._outer @ root_of_gram(gram)
        rows = Q @ (inner - Q.mT @ noise) + noise
        return truth.design.shape_rows(rows.mT).mT + truth.B @ (truth.means.mT @ sums)

    @property
    def X(self) -> Never:
        """Raise EngineError: not supported by the projected engine."""
        self._unsupported("X, the samples themselves")

    def gradient(self, theta: Array) -> Never:
        """Raise EngineError: not supported by the projected engine."""
        self._unsupported("gradient")

    def means(self, predictors: Predictors, measures: Mapping[str, SampleMeasure]) -> Never:
        """Raise EngineError: not supported by the projected engine."""
        self._unsupported("means")

    def with_offset(self, offset: Array) -> Never:
        """Raise EngineError: not supported by the projected engine."""
        self._unsupported("with_offset")

    def _unsupported(self, question: str) -> Never:
        """Raise EngineError for a method that requires more than features at one B."""
        raise unsupported("projected", f"batch.{question}", "ROWS")


class ProjectedClassFeatures(ClassFeatures):
    """Features ``(B'x, 1)`` of a projected batch.

    Parameters
    ----------
    batch : ProjectedClassBatch
    B, Q : ndarray (T, d, k)
        Representation, and an orthonormal basis of the span of ``L'B``.
    Z : ndarray (T, p, m, k + 1)
        Features.
    """

    def __init__(self, batch: ProjectedClassBatch, B: Array, Q: Array, Z: Array) -> None:
        super().__init__(batch, B)
        self._projected, self._Q, self._stored_Z = batch, Q, Z

    def gradients_of_clients(
        self, W: Array, feature_penalty: float = 0.0, out: tuple[Array, Array] | None = None
    ) -> Never:
        """Raise EngineError: the projected engine draws only the sum over clients of their gradients on B."""
        self._projected._unsupported("project(B).gradients_of_clients")

    def _shared(self, W: Array, weights: Array | float | None, by_heads: Array | None, feature_penalty: float) -> Array:
        """Return the gradient on B; write sums over samples of the gradients on heads into `by_heads`."""
        batch = self._projected
        share = self._share(W, weights)
        scaled = W[..., :-1] * share[..., None, None]
        trials, p, m, k = batch.shape
        inner, gram, sums = (np.zeros((trials, rows, k)) for rows in (k, k, batch.classes))
        each_class, z = np.arange(batch.classes), batch.rows.array()
        padded = batch.counts.min() < m
        for t, c in client_blocks(trials, p, m * (2 * k + 2 * batch.classes)):
            Z = self.Z[t, c]
            residual = batch.residual(t, c, Z, W[t, c] if W.shape[1] > 1 else W[t])
            if by_heads is not None:
                np.matmul(residual, Z, out=by_heads[t, c])
            V = residual.mT @ scaled[t, c]
            if feature_penalty:
                V += (2.0 * feature_penalty * share[t, c])[..., None, None] * Z[..., :-1]
            if padded:
                V *= Z[..., -1:]  # 0 in padding
            V = V.reshape(len(V), -1, k)
            of_class = np.equal(batch.label_indices(t, c)[..., None], each_class).astype(float)
            inner[t] += z[t, c].reshape(len(V), -1, k).mT @ V
            gram[t] += V.mT @ V
            sums[t] += of_class.reshape(len(V), -1, batch.classes).mT @ V
        return batch.gradient_at(self._Q, inner, gram, sums)


def projected(truth: ClassTruth, B: Array, z: Array, labels: Array, counts: Array) -> tuple[Array, Array]:
    """Return the Q factor of ``L'B`` (T, d, k), and the features ``(B'mu_y + R'z, 1)`` (T, p, m, k + 1).

    Parameters
    ----------
    truth : ClassTruth
    B : ndarray (T, d, k)
    z : ndarray (T, p, m, k)
        Standard Gaussian numbers.
    labels : ndarray (T, p, m)
    counts : ndarray (T, p)
        Samples of each client; the features in padding are 0.
    """
    assert truth.B is not None
    trials, p, m, k = z.shape
    Q, R = np.linalg.qr(truth.design.root_apply(B))
    centers = truth.means @ (truth.B.mT @ B)
    Z = np.empty((trials, p, m, k + 1))
    Z[..., :-1] = (z.reshape(trials, p * m, k) @ R).reshape(z.shape)
    Z[..., :-1] += centers[np.arange(trials)[:, None, None], labels.astype(np.intp)]
    Z[..., -1] = 1.0
    if counts.min() < m:
        clear_padding(Z, counts)
    return Q, readonly(Z)


class ProjectedHeldOut:
    """Held-out samples of all clients, which are known only through their features at one B at a time.

    The features at the B of a round have the distribution of those of new samples, jointly with the states of the run.
    The features of two rounds do not have the joint distribution of one set of samples.

    Parameters
    ----------
    truth : ClassTruth
    samples : int
        Number of samples per client.
    columns : int
        Columns k of B.
    seed, trials
        Seed and trial numbers.
    """

    def __init__(self, truth: ClassTruth, samples: int, columns: int, seed: Seed, trials: Sequence[int]) -> None:
        self._truth, self.holds = truth, truth.holds
        self.counts = np.full(truth.holds.shape[:2], float(samples))
        self._labels = dealt_labels(truth.holds, samples)
        shape = (truth.holds.shape[1], samples, columns)
        self._z = np.stack([rng.standard_normal(shape) for rng in generators(seed, Stream.TEST, trials)])

    def at(self, B: Array) -> ClassBatch:
        """Return the batch of the features at B (T, d, k), whose predictors are the heads at B."""
        _, Z = projected(self._truth, B, self._z, self._labels, self.counts)
        trials, clients, _ = self.holds.shape
        whose = {"active": everybody(trials, clients), "counts": self.counts}
        return ClassBatch(Z, self._labels, holds=self.holds, **whose)
