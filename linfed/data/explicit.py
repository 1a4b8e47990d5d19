"""Explicit batch: stores all samples, for any distribution of x and any number of samples per client.

A round consists of two tall products over blocks of clients that fit into cache: ``X [B, B*]``, which gives features
and labels, and the pull-back ``V X``. With exact heads one pass over the blocks computes both, so that freshly drawn
rows need not be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from linfed._types import Array
from linfed._values import readonly
from linfed.checks import check_number
from linfed.data.labels import LabelLaw
from linfed.data.row_batch import RowBatch
from linfed.data.rows import HeldRows, Rows
from linfed.numerics.least_squares import full_least_squares, head_least_squares, joint_ridge, smallest_shortcut
from linfed.numerics.linalg import CACHE_VALUES, client_blocks, narrow_product, tall_product, weighted_messages

R = TypeVar("R")


def normal_equations(X: Array, y: Array, counts: Array) -> tuple[Array, Array]:
    """Return ``A_i = X_i'X_i/m_i`` (T, p, d, d) and ``b_i = X_i'y_i/m_i`` (T, p, d) of rows (T, p, m, d)."""
    m = counts[..., None]
    A, b = X.mT @ X, (y[..., None, :] @ X)[..., 0, :]
    A /= m[..., None]  # in place, because A may be as large as the samples
    return A, b / m


def _pooled_rows(X: Array, y: Array, scale: Array) -> tuple[Array, Array]:
    """Return rows (q, d) and labels (q,) with the least squares of all scaled rows (p, m, d) and labels (p, m).

    They are the scaled rows of a single block of clients, or the triangular factor of all blocks. A scaled copy of all
    rows would take as much memory as the samples.
    """
    p, m, d = X.shape
    blocks = [clients for _, clients in client_blocks(1, p, m * d)]
    factor = np.empty((0, d + 1))
    for c in blocks:
        rows, labels = (scale[c, :, None] * X[c]).reshape(-1, d), (scale[c] * y[c]).ravel()
        if len(blocks) == 1:
            return rows, labels
        factor = np.asarray(np.linalg.qr(np.concatenate([factor, np.column_stack([rows, labels])]), mode="r"))
    return factor[:, :d], factor[:, d]


class ExplicitBatch(RowBatch):
    """Batch of a round's explicit samples.

    Parameters
    ----------
    X : ndarray (T, p, m, d) or Rows
        Samples; rows beyond a client's count are zero. C-contiguous within a trial.
    y : ndarray (T, p, m) or LabelLaw
        Labels, or the ground truth and noise from which they are computed together with the first features.
    **whose
        As in `RowBatch`: active, counts, workspace, round_number, n_clients.
    """

    def __init__(self, X: Array | Rows, y: Array | LabelLaw, **whose: Any) -> None:
        super().__init__(X, **whose)
        self._y = None if isinstance(y, LabelLaw) else y
        self._law = y if isinstance(y, LabelLaw) else None

    @property
    def y(self) -> Array:
        """Labels, (T, p, m), read-only."""
        if self._y is None:
            for _ in self._map_labels(lambda t, c, rows, y: None):
                pass
        assert self._y is not None
        return readonly(self._y)

    def _labels(self, t: slice, c: slice, rows: Array, stars: Array) -> Array:
        """Return the labels of a block, clients last (m, C), from its features ``X B*``, (r, m, C)."""
        if self._y is not None:
            return self._y[t, c].reshape(-1, rows.shape[2]).T
        assert self._law is not None
        return self._law.labels(t, c, rows, stars)

    def map_blocks(
        self, B: Array, function: Callable[[slice, slice, Array, Array, Array], R], *, once: bool = False
    ) -> Iterator[R]:
        """Yield ``function(trials, clients, rows, features (k, m, C), labels (m, C))`` of all blocks, in order.

        One product, ``X [B, B*]``, gives features and labels while the rows are in cache. The clients are last. Threads
        may compute several blocks at a time, so the function may write only to its own clients' part of an array.
        """
        trials, p, m, _ = self.shape
        k, law = B.shape[-1], self._law
        due = self._y is None
        basis = np.concatenate([B, law.B], axis=-1) if due and law is not None and law.B is not None else B
        kept = self._workspace.array("y", (trials, p, m)) if due else None

        def block(t: slice, c: slice, rows: Array) -> R:
            count = rows.shape[0] * rows.shape[1]
            Z = tall_product(rows, basis[t])
            features = np.ascontiguousarray(Z.reshape(count, m, -1).transpose(2, 1, 0))
            y = self._labels(t, c, rows, features[k:])
            if kept is not None:
                kept[t, c] = y.T.reshape(*rows.shape[:3])
            return function(t, c, rows, features[:k], y)

        yield from self.rows.map_blocks(block, once=once)
        if kept is not None:
            self._y = kept

    def _apply(self, theta: Array) -> Array:
        """Return ``X_i theta_i``, (T, p, m)."""
        trials, p, m, d = self.shape
        theta = np.broadcast_to(theta, (trials, p, d))
        out = np.empty((trials, p, m))
        for t, c, rows in self.rows.blocks():
            np.matmul(rows, theta[t, c, :, None], out=out[t, c, :, None])
        return out

    # --- methods of `Batch` ----------------------------------------------------------------------------------

    def project(self, B: Array) -> ExplicitFeatures:
        """Return the features at B (T, d, k); cost O(p m d k)."""
        return ExplicitFeatures(self, B)

    def gradient(self, theta: Array) -> Array:
        """Return ``(1/m_i) X_i'(X_i theta_i - y_i)``, (T, p, d); cost O(p m d)."""
        return self.messages(theta)

    def messages(self, theta: Array, *, once: bool = False) -> Array:
        """Return `gradient`; with `once` the rows need not be kept for another pass."""
        trials, p, _, d = self.shape
        if theta.shape[1] != p:
            theta = np.broadcast_to(theta, (trials, p, d))
        out = np.empty((trials, p, d))

        def message(t: slice, c: slice, rows: Array, y: Array) -> None:
            residual = (rows @ theta[t, c, :, None])[..., 0]
            residual -= y
            np.matmul(residual[..., None, :], rows, out=out[t, c, None, :])

        for _ in self._map_labels(message, once=once):
            pass
        out /= self.positive_counts[..., None]
        return out

    def _map_labels(self, function: Callable[[slice, slice, Array, Array], R], *, once: bool = False) -> Iterator[R]:
        """Yield ``function(trials, clients, rows, labels (t, c, m))`` of all blocks, in order; as in `map_blocks`."""
        if (y := self._y) is not None:
            return self.rows.map_blocks(lambda t, c, rows: function(t, c, rows, y[t, c]), once=once)
        no_columns = np.empty((self.shape[0], self.shape[-1], 0))
        return self.map_blocks(
            no_columns, lambda t, c, rows, Z, y: function(t, c, rows, y.T.reshape(rows.shape[:-1])), once=once
        )

    def loss(self, theta: Array) -> Array:
        """Return ``(1/2m_i) ||X_i theta_i - y_i||^2``, (T, p); cost O(p m d)."""
        return self.losses(lambda t, c: theta[t, c] if theta.shape[1] > 1 else theta[t])

    def losses(self, predictors: Callable[[slice, slice], Array]) -> Array:
        """Return `loss` at ``predictors(trials, clients)``, (t, c or 1, d), which is called block by block."""
        out = np.empty(self.active.shape)

        def loss(t: slice, c: slice, rows: Array, y: Array) -> None:
            residual = (rows @ predictors(t, c)[..., None])[..., 0]
            residual -= y
            out[t, c] = np.vecdot(residual, residual)

        for _ in self._map_labels(loss):
            pass
        return np.asarray(out / (2.0 * self.positive_counts))

    def least_squares(self, ridge: float = 0.0) -> Array:
        """Return the minimiser in the full dimension, (T, p, d); cost O(p m d min(m, d))."""
        ridge = check_number("ridge", ridge, minimum=0.0)
        trials, p, _, d = self.shape
        y, out = self.y, np.empty((trials, p, d))
        for t, c, rows in self.rows.blocks():
            shape = rows.shape[:2]
            solved = full_least_squares(
                rows.reshape(-1, *rows.shape[2:]), y[t, c].reshape(-1, y.shape[-1]), self.counts[t, c].ravel(), ridge
            )
            out[t, c] = solved.theta.reshape(*shape, d)
            self._singular[t] |= solved.deficient.reshape(shape).any(axis=-1)
        return out

    def pooled_least_squares(self, weights: Array, ridge: float = 0.0) -> Array:
        """Return the minimiser of ``sum_i weights_i loss_i + (ridge/2)||theta||^2``, (T, 1, d); cost O(p m d^2)."""
        ridge = check_number("ridge", ridge, minimum=0.0)
        trials, _, _, d = self.shape
        X, y, out = self.X, self.y, np.empty((trials, 1, d))
        scale = np.sqrt(weights / self.positive_counts)[..., None]
        for trial in range(trials):
            rows, labels = _pooled_rows(X[trial], y[trial], scale[trial])
            samples = np.array([1.0 if ridge else self.counts[trial].sum()])  # the rows have weights of their own
            out[trial], deficient = full_least_squares(rows[None], labels[None], samples, ridge)
            self._singular[trial] |= deficient[0]
        return out

    def joint_least_squares(self, B: Array, ridge: float = 0.0) -> tuple[Array, Array]:
        """Return the heads and shortcuts that minimise the loss, with a ridge on shortcuts; cost O(p (m d^2 + d^3))."""
        ridge = check_number("ridge", ridge, minimum=0.0)
        A, b = self.normal_equations()
        found = joint_ridge(A, b, B, ridge) if ridge > 0 else smallest_shortcut(A, b, B)
        if found.doubtful.any():  # the fits mark trials with dependent features, as the samples show them
            self.fit(B, 0.0) if ridge > 0 else self.least_squares()
        return found.W, found.S

    def normal_equations(self) -> tuple[Array, Array]:
        """Return ``A_i`` (T, p, d, d) and ``b_i`` (T, p, d); cost O(p m d^2)."""
        return normal_equations(self.X, self.y, self.positive_counts)

    def shifted(self, offset: Array) -> ExplicitBatch:
        """Return the batch with labels ``y_i - X_i offset_i``."""
        return self.with_labels(self.y - self._apply(offset))

    def with_labels(self, y: Array) -> ExplicitBatch:
        """Return the batch with the given labels (T, p, m)."""
        return self._with(self.X, y, self.counts)

    def _with(self, X: Array, y: Array, counts: Array) -> ExplicitBatch:
        """Return a batch of the same clients with the given samples, labels and counts."""
        other = self.plain(X, y, active=self.active, counts=counts, round_number=self.round, n_clients=self.n_clients)
        other._singular = self._singular
        return other

    @property
    def plain(self) -> type[ExplicitBatch]:
        """Class of batches derived from this one."""
        return ExplicitBatch

    def fit(self, B: Array, ridge: float) -> ExplicitFit:
        """Return the closed-form heads, residuals and gradient.

        One thread computes them in one pass over the blocks. Several threads share the two products with the rows, but
        not the heads between them, whose short operations would wait for each other. Small fixed samples have a second
        copy, coordinate by coordinate, which gives the features with the clients last.
        """
        trials, p, m, d = self.shape
        k = B.shape[-1]
        W = np.empty((trials, p, k))
        columns = self.rows.columns_for(k) if isinstance(self.rows, HeldRows) else None
        # Not from the workspace, so that two fits in one round are both valid.
        residual = np.empty((trials, p, m)) if columns is None else np.empty((trials, m, p)).mT

        def solve(t: slice, c: slice, Z: Array, y: Array) -> Array:
            """Store the heads of a block and their residuals; return the heads divided by m_i, (t, k, c)."""
            some, clients = t.stop - t.start, c.stop - c.start
            counts = self.counts[t, c].ravel()
            heads = head_least_squares(Z, y, counts, ridge, few=m * d > CACHE_VALUES // 8)
            if np.count_nonzero(heads.deficient):
                self._singular[t] |= heads.deficient.reshape(some, clients).any(axis=-1)
            W[t, c] = heads.W.T.reshape(some, clients, k)
            residual[t, c] = heads.residual.T.reshape(some, clients, m)
            return (heads.W * (1.0 / np.maximum(counts, 1.0))).reshape(k, some, clients).transpose(1, 0, 2)

        if columns is not None:
            assert self._y is not None
            sums = np.empty((trials, k, d))
            for t, c in client_blocks(trials, p, m * d):  # all clients of some trials
                X = columns[t].reshape(-1, d, m * p)
                Z = narrow_product(B[t].mT, X).reshape(-1, k, m, p)
                scaled = solve(t, c, Z.transpose(1, 2, 0, 3).reshape(k, m, -1), self._y[t].reshape(-1, m).T)
                weighted = np.multiply(scaled[:, :, None], residual[t].mT[:, None], out=Z)
                sums[t] = narrow_product(weighted.reshape(-1, k, m * p), X.mT)
            gradient = sums.mT
        elif self.rows.threads > 1:
            for t, c, Z, y in list(self.map_blocks(B, lambda t, c, rows, Z, y: (t, c, Z, y))):
                solve(t, c, Z, y)
            gradient = self.weighted_messages(W, residual, 1.0)
        else:
            sums = np.zeros((trials, k, d))
            for t, c, rows, Z, y in self.map_blocks(B, lambda *block: block, once=True):
                scaled = solve(t, c, Z, y)
                sums[t] += weighted_messages(rows, residual[t, c], scaled)
            gradient = sums.mT
        return ExplicitFit(batch=self, W=readonly(W), residual=residual, gradient=gradient)

    def weighted_messages(self, W: Array, residual: Array, weights: Array | float) -> Array:
        """Return ``sum_i weights_i (1/m_i) X_i'r_i w_i'``, (T, d, k), of residuals (T, p, m); cost O(p m d k)."""
        trials, _, _, d = self.shape
        scaled = np.ascontiguousarray((W * (weights / self.positive_counts)[..., None]).mT)
        sums = np.zeros((trials, W.shape[-1], d))

        def part(t: slice, c: slice, rows: Array) -> tuple[slice, Array]:
            return t, weighted_messages(rows, residual[t, c], scaled[t, :, c])

        for t, part_sums in self.rows.map_blocks(part):
            sums[t] += part_sums
        return sums.mT


@dataclass(frozen=True, kw_only=True)
class ExplicitFit:
    """Closed-form heads W (T, p, k), residuals r_i (T, p, m), gradient ``sum_i (1/m_i) X_i' r_i w_i'`` (T, d, k)."""

    batch: ExplicitBatch
    W: Array
    residual: Array
    gradient: Array

    def representation_gradient(self, weights: Array | float | None = None) -> Array:
        """Return the gradient at these heads, (T, d, k); free unless weights differ between clients."""
        if isinstance(weights, np.ndarray):
            return self.batch.weighted_messages(self.W, self.residual, weights)
        return (1.0 / self.W.shape[1] if weights is None else weights) * self.gradient

    def shifted(self) -> ExplicitBatch:
        """Return the batch with these heads' residuals as labels, exactly zero for heads that interpolate."""
        return self.batch.with_labels(-self.residual)


class ExplicitFeatures:
    """Features ``Z_i = X_i B`` of an explicit batch, computed at the first access.

    A fit does not need them: it computes heads and the gradient on B block by block, in one pass.

    Parameters
    ----------
    batch : ExplicitBatch
    B : ndarray (T, d, k)
    """

    def __init__(self, batch: ExplicitBatch, B: Array) -> None:
        self._batch, self._B = batch, B
        self._stored_Z: Array | None = None
        self._gram: tuple[Array, Array] | None = None

    @property
    def _Z(self) -> Array:
        """Features with the k columns before the clients, (T, k, p, m)."""
        if self._stored_Z is None:
            trials, p, m, _ = self._batch.shape
            stored = np.empty((trials, self._B.shape[-1], p, m))

            def store(t: slice, c: slice, rows: Array, Z: Array, y: Array) -> None:
                stored[t, :, c] = Z.reshape(-1, m, *rows.shape[:2]).transpose(2, 0, 3, 1)

            for _ in self._batch.map_blocks(self._B, store):
                pass
            self._stored_Z = stored
        return self._stored_Z

    @property
    def Z(self) -> Array:
        """Features client by client, (T, p, m, k), read-only."""
        return readonly(np.moveaxis(self._Z, 1, -1))

    def fit(self, ridge: float = 0.0) -> ExplicitFit:
        """Return the closed-form heads and their residuals; cost O(p m (d k + k^2))."""
        ridge = check_number("ridge", ridge, minimum=0.0)
        return self._batch.fit(self._B, ridge)

    def head_gradient(self, W: Array) -> Array:
        """Return ``(1/m_i) Z_i'(Z_i w_i - y_i)``, (T, p, k); cost O(p m k^2) once, then O(p k^2) per call."""
        if self._gram is None:
            Z, m = self._Z, self._batch.positive_counts[:, None, :]
            k = Z.shape[1]
            gram = np.empty((k, Z.shape[0], k, Z.shape[2]))
            for column in range(k):
                gram[column] = np.vecdot(Z[:, column, None], Z) / m
            self._gram = gram, np.vecdot(Z, self._batch.y[:, None]) / m
        gram, moment = self._gram
        heads = np.ascontiguousarray(W.mT)
        out = -moment
        for column in range(heads.shape[1]):
            out += gram[column] * heads[:, column, None]
        return np.ascontiguousarray(out.mT)

    def _residual(self, W: Array) -> Array:
        """Return ``Z_i w_i - y_i``, (T, p, m)."""
        residual = -self._batch.y
        for column in range(self._B.shape[-1]):
            residual += self._Z[:, column] * W[..., column, None]
        return residual

    def shifted(self, W: Array) -> ExplicitBatch:
        """Return the batch with labels ``y_i - Z_i w_i``."""
        return self._batch.with_labels(-self._residual(W))

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i (1/m_i) X_i'(Z_i w_i - y_i) w_i'``, (T, d, k); cost O(p m d k)."""
        share = 1.0 / W.shape[1] if weights is None else weights
        return self._batch.weighted_messages(W, self._residual(W), share)

    def gradients(self, W: Array, weights: Array | float | None = None) -> tuple[Array, Array]:
        """Return the gradients on heads (T, p, k) and representation (T, d, k) at W; cost O(p m d) for any k.

        Both follow from one message per client, ``g_i = X_i'(X_i B w_i - y_i)/m_i``: they are ``B'g_i`` and
        ``sum_i weights_i g_i w_i'``. In Gram form (fixed samples, m > d) the cost is O(p d^2).
        """
        messages = self._batch.messages(W @ self._B.mT, once=True)
        share = 1.0 / W.shape[1] if weights is None else weights
        if isinstance(share, np.ndarray) and share.ndim:
            representation = messages.mT @ (W * share[..., None])
        else:
            representation = messages.mT @ W
            if share != 1.0:
                representation *= share
        return messages @ self._B, representation
