"""What an algorithm may ask of the data of a round.

An algorithm sees a `Batch` and nothing else: no truth, no metric, no loop. The questions below are all it needs;
whoever answers them may hold the data in any form that gives the same answers, or answers of the same joint law.

Shapes: ``T`` trials, ``p`` participants, ``m`` samples, ``d`` ambient dimension, ``k`` columns of B. They are written
for squares; with c classes (`ClassBatch`) a head (T, p, k) is (T, p, c, k + 1) and a predictor (T, p, d) is (T, p, c, d
+ 1), the loss is the cross-entropy, and what has a closed form for squares alone is refused. A batch's buffers
are used again by the next round: nobody keeps a batch. Its own arrays are read-only; what a question returns is the
asker's, but for the heads of a fit, which are read-only as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from linfed._types import Array, Indices, Mask
from linfed.numerics.streams import TrialRandom


class Fit(Protocol):
    """Heads at one shared B, and what they leave to explain."""

    @property
    def W(self) -> Array:
        """The heads, (T, p, k)."""
        ...

    def representation_gradient(self, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i (1/m_i) X_i'(Z_i w_i - y_i) w_i'``, (T, d, k).

        `weights` is the mean over participants (1/p) by default; 1 gives the sum; (T, p) weighs clients.
        """
        ...

    def shifted(self) -> Batch:
        """Return the same samples with labels ``y_i - Z_i w_i``."""
        ...


class Features(Protocol):
    """The features ``Z_i = X_i B`` of a round's participants, at one shared B."""

    def fit(self, ridge: float = 0.0) -> Fit:
        """Return the heads, read-only, that minimise ``(1/2m_i)||Z_i w - y_i||^2 + (ridge/2)||w||^2``.

        Without a ridge a client with at most as many samples as the rank of its features is explained: what is left
        of it is exactly 0, and so is its part of the gradient.
        """
        ...

    def head_gradient(self, W: Array) -> Array:
        """Return ``(1/m_i) Z_i'(Z_i w_i - y_i)``, (T, p, k), at the heads W (T, p, k)."""
        ...

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return what a fit does, at any heads W (T, p, k)."""
        ...

    def gradients(self, W: Array, weights: Array | float | None = None) -> tuple[Array, Array]:
        """Return `head_gradient` and `representation_gradient` at the same heads, as new arrays.

        Together they can cost less.
        """
        ...

    def shifted(self, W: Array) -> Batch:
        """Return the same samples with labels ``y_i - Z_i w_i``: what the heads W (T, p, k) leave to explain."""
        ...


class Batch(Protocol):
    """The samples ``(X_i, y_i)`` of a round's participants."""

    @property
    def active(self) -> Indices:
        """Which clients take part, (T, p), each row ascending."""
        ...

    @property
    def round(self) -> int:
        """Number of the round, from 1; what is done after the last of them (`finish`) has the next number.

        0 for a batch of no round: a first one, or one of clients that join later.
        """
        ...

    @property
    def n_clients(self) -> int:
        """Clients n of the run, of whom p take part."""
        ...

    @property
    def counts(self) -> Array:
        """Samples per participant m_i, (T, p)."""
        ...

    @property
    def singular(self) -> Mask:
        """Trials in which a head with enough samples met linearly dependent features, (T,)."""
        ...

    def project(self, B: Array) -> Features:
        """Return the features at B (T, d, k), one product for all clients."""
        ...

    def gradient(self, theta: Array) -> Array:
        """Return ``(1/m_i) X_i'(X_i theta_i - y_i)``, (T, p, d), at theta (T, p or 1, d)."""
        ...

    def loss(self, theta: Array) -> Array:
        """Return ``(1/2m_i) ||X_i theta_i - y_i||^2``, (T, p), at theta (T, p or 1, d)."""
        ...

    def least_squares(self, ridge: float = 0.0) -> Array:
        """Return each client's minimiser of ``loss + (ridge/2)||theta||^2``, (T, p, d), of minimum norm."""
        ...

    def pooled_least_squares(self, weights: Array) -> Array:
        """Return the theta (T, 1, d), of minimum norm, that minimises ``sum_i weights_i loss_i``, weights (T, p)."""
        ...

    def normal_equations(self) -> tuple[Array, Array]:
        """Return ``A_i = X_i'X_i/m_i`` (T, p, d, d) and ``b_i = X_i'y_i/m_i`` (T, p, d)."""
        ...

    def shifted(self, offset: Array) -> Batch:
        """Return the same batch with labels ``y_i - X_i offset_i``, for an offset (T, p or 1, d)."""
        ...

    def minibatches(
        self, size: int, order: Indices | None = None, *, rng: TrialRandom | None = None
    ) -> Iterator[Batch]:
        """Yield batches of at most `size` samples per client, in the order (T, p, m) of sample numbers, or drawn."""
        ...

    def split(self) -> tuple[Batch, Batch]:
        """Return two batches of ``floor(m_i / 2)`` samples each: the first and the second half."""
        ...
