"""Interfaces of a round's data: batches, their features at one B, and heads fitted to the features.

An algorithm has access only to a `Batch`, not to the ground truth, the metrics or the loop. An implementation may store
the data in any form that gives equal results, or results with an equal joint distribution.

Shapes: ``T`` trials, ``p`` participants, ``m`` samples, ``d`` ambient dimension, ``k`` columns of B. The docstrings
describe regression. With c classes (`ClassBatch`) a head (T, p, k) is (T, p, c, k + 1), and a predictor (T, p, d) is
(T, p, c, d + 1). The loss is then the cross-entropy, and methods with a closed form raise ValueError.

The next round reuses a batch's buffers, so batches must not be stored. The arrays of a batch are read-only. The arrays
that methods return may be modified, except the heads of a fit, which are read-only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from linfed._types import Array, Indices, Mask
from linfed.numerics.streams import TrialRandom


class Fit(Protocol):
    """Heads at one shared B, with their residuals."""

    @property
    def W(self) -> Array:
        """Heads, (T, p, k)."""
        ...

    def representation_gradient(self, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i (1/m_i) X_i'(Z_i w_i - y_i) w_i'``, (T, d, k).

        By default `weights` is 1/p, which gives the mean over participants; 1 gives the sum. An array (T, p) has one
        weight per participant.
        """
        ...

    def shifted(self) -> Batch:
        """Return the batch with labels ``y_i - Z_i w_i``."""
        ...


class Features(Protocol):
    """Features ``Z_i = X_i B`` of a round's participants, at one shared B."""

    def fit(self, ridge: float = 0.0) -> Fit:
        """Return the heads, read-only, that minimise ``(1/2m_i)||Z_i w - y_i||^2 + (ridge/2)||w||^2``.

        Without a ridge, the residual of a client whose number of samples does not exceed the rank of its features is
        exactly 0, and so is its part of the gradient.
        """
        ...

    def head_gradient(self, W: Array) -> Array:
        """Return ``(1/m_i) Z_i'(Z_i w_i - y_i)``, (T, p, k), at the heads W (T, p, k)."""
        ...

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i (1/m_i) X_i'(Z_i w_i - y_i) w_i'``, (T, d, k), at the heads W (T, p, k).

        `weights` is as in `Fit.representation_gradient`.
        """
        ...

    def gradients(self, W: Array, weights: Array | float | None = None) -> tuple[Array, Array]:
        """Return `head_gradient` and `representation_gradient` at the heads W, as new arrays.

        One call can be cheaper than two.
        """
        ...

    def shifted(self, W: Array) -> Batch:
        """Return the batch with labels ``y_i - Z_i w_i``, the residuals of the heads W (T, p, k) up to sign."""
        ...


class Batch(Protocol):
    """Samples ``(X_i, y_i)`` of a round's participants."""

    @property
    def active(self) -> Indices:
        """Participants, (T, p), each row ascending."""
        ...

    @property
    def round(self) -> int:
        """Number of the round, from 1; the final step (`finish`) has the number after the last round.

        It is 0 for a batch outside of the rounds: for an initialisation, or for new clients.
        """
        ...

    @property
    def n_clients(self) -> int:
        """Number of clients n of the run; p of them participate."""
        ...

    @property
    def counts(self) -> Array:
        """Number of samples m_i per participant, (T, p)."""
        ...

    @property
    def singular(self) -> Mask:
        """True for trials in which a head with enough samples had linearly dependent features, (T,)."""
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

    def pooled_least_squares(self, weights: Array, ridge: float = 0.0) -> Array:
        """Return the shortest theta (T, 1, d) of least ``sum_i weights_i loss_i + (ridge/2)||theta||^2``.

        The weights are (T, p).
        """
        ...

    def joint_least_squares(self, B: Array, ridge: float = 0.0) -> tuple[Array, Array]:
        """Return the heads W (T, p, k) and shortcuts S (T, p, d) that minimise ``loss(B w + s) + (ridge/2)||s||^2``.

        Without a ridge the shortcuts are the shortest ones.
        """
        ...

    def normal_equations(self) -> tuple[Array, Array]:
        """Return ``A_i = X_i'X_i/m_i`` (T, p, d, d) and ``b_i = X_i'y_i/m_i`` (T, p, d)."""
        ...

    def shifted(self, offset: Array) -> Batch:
        """Return the batch with labels ``y_i - X_i offset_i``, for an offset (T, p or 1, d)."""
        ...

    def minibatches(
        self, size: int, order: Indices | None = None, *, rng: TrialRandom | None = None
    ) -> Iterator[Batch]:
        """Yield batches of at most `size` samples per client, in a given order (T, p, m) or in one drawn from `rng`."""
        ...

    def split(self, parts: int = 2, *, rest: bool = False) -> tuple[Batch, ...]:
        """Return batches of ``floor(m_i / parts)`` samples each: the first ones, the next ones, and so on.

        With `rest` the last batch also has the remaining ``m_i mod parts`` samples; by default they are left out.
        """
        ...
