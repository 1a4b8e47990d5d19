"""The explicit batch: all rows of X at hand, any law of x, any number of samples per client.

A round is two tall products over blocks of clients that stay in cache: ``[B, B*]' X'`` (features and labels in one)
and the pull-back ``V X``. Fresh rows are drawn block by block inside the first of them, into a buffer that the
next round uses again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed.errors import check_integer
from linfed.linalg import client_blocks, full_least_squares, head_least_squares

FillRows = Callable[[int, slice, Array], None]
"""``fill(trial, clients, out)`` writes the rows of the named clients, in order, into (clients, m, d)."""


@dataclass(frozen=True, kw_only=True)
class LabelLaw:
    """Where labels come from: a truth restricted to the participants, and noise.

    Parameters
    ----------
    B : ndarray (T, d, r) or None
    W : ndarray (T, p, r) or None
    S : ndarray (T, p, d) or None
    noise : ndarray (T, p, m) or None
        The noise itself, its standard deviation included.
    """

    B: Array | None
    W: Array | None
    S: Array | None
    noise: Array | None


class Workspace:
    """Buffers kept from round to round: a fresh large array costs as much again as filling it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return an uninitialised array of this shape, the same memory at each call of this name."""
        held = self._arrays.get(name)
        if held is None or held.shape != shape:
            held = self._arrays[name] = np.empty(shape)
        return held


class ExplicitBatch:
    """A round's samples as rows.

    Parameters
    ----------
    X : ndarray (T, p, m, d)
        Samples; rows beyond a client's count are zero. C-contiguous within a trial.
    y : ndarray (T, p, m) or LabelLaw
        Labels, or how to make them (then they are computed together with the first features).
    active : ndarray of int (T, p)
        Which clients these are.
    counts : ndarray (T, p), optional
        Samples per client; m for all by default.
    fill : callable, optional
        Writes X where it is not drawn yet.
    workspace : Workspace, optional
        Buffers to use again.
    """

    def __init__(
        self,
        X: Array,
        y: Array | LabelLaw,
        *,
        active: Indices,
        counts: Array | None = None,
        fill: FillRows | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        self._X, self._fill = X, fill
        self._y = None if isinstance(y, LabelLaw) else y
        self._law = y if isinstance(y, LabelLaw) else None
        self.active = active
        self.counts = np.full(X.shape[:2], float(X.shape[2])) if counts is None else counts
        self.singular: Mask = np.zeros(X.shape[0], dtype=bool)
        self._filled = np.zeros(X.shape[0], dtype=np.intp)
        self._workspace = workspace or Workspace()

    # --- rows, block by block --------------------------------------------------------------------------------

    def blocks(self) -> Iterator[tuple[slice, slice, Array]]:
        """Yield (trials, clients, rows (t, c, m, d)) in blocks that stay in cache."""
        trials, p, m, d = self._X.shape
        for t, c in client_blocks(trials, p, m * d):
            yield t, c, self._rows(t, c)

    def _rows(self, trials: slice, clients: slice) -> Array:
        rows = self._X[trials, clients]
        if self._fill is not None:
            for index in range(trials.start, trials.stop):
                if self._filled[index] < clients.stop:
                    self._fill(index, clients, rows[index - trials.start])
                    self._filled[index] = clients.stop
        return rows

    def finish(self) -> None:
        """Draw the rows that no question has asked for, so that the stream goes on where it should."""
        if self._fill is not None and self._filled.min() < self._X.shape[1]:
            for _ in self.blocks():
                pass

    @property
    def X(self) -> Array:
        """The rows, (T, p, m, d)."""
        self.finish()
        return self._X

    @property
    def y(self) -> Array:
        """The labels, (T, p, m)."""
        if self._y is None:
            assert self._law is not None
            if self._law.B is None:
                self._y = self._labels(None)
            else:
                self._features(self._law.B[..., :0])
        assert self._y is not None
        return self._y

    def _labels(self, features: Array | None) -> Array:
        """Return labels from the features ``X B*``, (T, r, p, m)."""
        law = self._law
        assert law is not None
        trials, p, m, _ = self._X.shape
        y = self._workspace.array("y", (trials, p, m))
        y[...] = 0.0 if law.noise is None else law.noise
        if features is not None:
            assert law.W is not None
            for column in range(features.shape[1]):
                y += features[:, column] * law.W[..., column, None]
        if law.S is not None:
            y += self._apply(law.S)
        return y

    def _features(self, B: Array) -> Array:
        """Return ``X_i B`` feature-major, (T, k, p, m), making the labels on the way if they are due."""
        trials, p, m, d = self._X.shape
        law, k = self._law, B.shape[-1]
        due = self._y is None and law is not None and law.B is not None
        basis = np.concatenate([B, law.B], axis=-1) if due and law is not None and law.B is not None else B
        rows_of_basis = np.ascontiguousarray(np.swapaxes(basis, -1, -2))
        # Later features of a round must not overwrite earlier ones that an algorithm still holds.
        Z = self._workspace.array("Z", (trials, basis.shape[-1], p * m)) if due else np.empty((trials, k, p * m))
        for t, c, rows in self.blocks():
            flat = rows.reshape(rows.shape[0], -1, d)
            np.matmul(rows_of_basis[t], np.swapaxes(flat, -1, -2), out=Z[t, :, c.start * m : c.stop * m])
        shaped = Z.reshape(trials, -1, p, m)
        if due:
            self._y = self._labels(shaped[:, k:])
        return shaped[:, :k]

    def _apply(self, theta: Array) -> Array:
        """Return ``X_i theta_i``, (T, p, m)."""
        trials, p, m, d = self._X.shape
        theta = np.broadcast_to(theta, (trials, p, d))
        out = np.empty((trials, p, m))
        for t, c, rows in self.blocks():
            np.matmul(rows, theta[t, c, :, None], out=out[t, c, :, None])
        return out

    # --- the questions ---------------------------------------------------------------------------------------

    def project(self, B: Array) -> ExplicitFeatures:
        """Return the features at B (T, d, k); cost O(p m d k)."""
        Z = self._features(B)
        return ExplicitFeatures(self, Z, self.y)

    def gradient(self, theta: Array) -> Array:
        """Return ``(1/m_i) X_i'(X_i theta_i - y_i)``, (T, p, d); cost O(p m d)."""
        trials, p, _, d = self._X.shape
        theta, y = np.broadcast_to(theta, (trials, p, d)), self.y
        out = np.empty((trials, p, d))
        for t, c, rows in self.blocks():
            residual = (rows @ theta[t, c, :, None])[..., 0] - y[t, c]
            np.matmul(residual[..., None, :], rows, out=out[t, c, None, :])
        return out / self._positive_counts[..., None]

    def loss(self, theta: Array) -> Array:
        """Return ``(1/2m_i) ||X_i theta_i - y_i||^2``, (T, p); cost O(p m d)."""
        residual = self._apply(theta) - self.y
        return np.asarray(np.vecdot(residual, residual) / (2.0 * self._positive_counts))

    def least_squares(self, ridge: float = 0.0) -> Array:
        """Return the minimiser in the full dimension, (T, p, d); cost O(p m d min(m, d))."""
        trials, p, _, d = self._X.shape
        y, out = self.y, np.empty((trials, p, d))
        for t, c, rows in self.blocks():
            shape = rows.shape[:2]
            solved = full_least_squares(
                rows.reshape(-1, *rows.shape[2:]), y[t, c].reshape(-1, y.shape[-1]), self.counts[t, c].ravel(), ridge
            )
            out[t, c] = solved.reshape(*shape, d)
        return out

    def normal_equations(self) -> tuple[Array, Array]:
        """Return ``A_i`` (T, p, d, d) and ``b_i`` (T, p, d); cost O(p m d^2)."""
        X, m = self.X, self._positive_counts
        A = np.swapaxes(X, -1, -2) @ X
        b = (self.y[..., None, :] @ X)[..., 0, :]
        return A / m[..., None, None], b / m[..., None]

    def shifted(self, offset: Array) -> ExplicitBatch:
        """Return the same rows with labels ``y_i - X_i offset_i``."""
        return self.with_labels(self.y - self._apply(offset))

    def with_labels(self, y: Array) -> ExplicitBatch:
        """Return the same rows with other labels (T, p, m)."""
        return self._with(self.X, y, self.counts)

    def minibatches(self, size: int, order: Indices | None = None) -> Iterator[ExplicitBatch]:
        """Yield batches of at most `size` samples per client.

        Parameters
        ----------
        size : int
            Samples per client in each batch; the last one takes what is left.
        order : ndarray of int (T, p, m), optional
            Permutations of ``range(m)``; by default the rows as they lie. A client with fewer than m samples sees its
            own samples in this order, and empty batches (zero gradient) once it has run out.
        """
        size = check_integer("size", size)
        trials, p, m, _ = self._X.shape
        lying = np.broadcast_to(np.arange(m), (trials, p, m)) if order is None else order
        padded = lying >= self.counts[..., None]
        if padded.any():  # a client's padding goes last, its own samples keep their order
            lying = np.take_along_axis(lying, np.argsort(padded, axis=-1, kind="stable"), axis=-1)
        for start in range(0, m, size):
            left = np.clip(self.counts - start, 0.0, size)
            yield self._chosen(lying[..., start : start + size], left)

    def split(self) -> tuple[ExplicitBatch, ExplicitBatch]:
        """Return the first and the second ``floor(m_i / 2)`` samples of each client."""
        half = np.floor(self.counts / 2.0)
        if half.min() < 1:
            raise ValueError(f"split() needs at least 2 samples per client, got {int(self.counts.min())}")
        steps = np.arange(int(half.max()))
        inside = steps < half[..., None]
        first = np.where(inside, steps, 0)
        second = np.where(inside, steps + half[..., None], 0).astype(np.intp)
        return self._chosen(first, half), self._chosen(second, half)

    def _chosen(self, index: Indices, counts: Array) -> ExplicitBatch:
        inside = np.arange(index.shape[-1]) < counts[..., None]
        X = np.take_along_axis(self.X, index[..., None], axis=2) * inside[..., None]
        return self._with(X, np.take_along_axis(self.y, index, axis=2) * inside, counts)

    def _with(self, X: Array, y: Array, counts: Array) -> ExplicitBatch:
        other = ExplicitBatch(X, y, active=self.active, counts=counts)
        other.singular = self.singular
        return other

    @property
    def _positive_counts(self) -> Array:
        return np.maximum(self.counts, 1.0)

    def pull_back(self, V: Array) -> Array:
        """Return ``sum_ij V[:, :, i, j] x_ij'``, (T, k, d), for V (T, k, p, m)."""
        trials, k, p, m = V.shape
        out = np.zeros((trials, k, self._X.shape[-1]))
        flat_V = V.reshape(trials, k, p * m)
        for t, c, rows in self.blocks():
            out[t] += flat_V[t, :, c.start * m : c.stop * m] @ rows.reshape(rows.shape[0], -1, rows.shape[-1])
        return out


class ExplicitFeatures:
    """The features ``Z_i = X_i B`` of an explicit batch.

    Parameters
    ----------
    batch : ExplicitBatch
    Z : ndarray (T, k, p, m)
        Features, feature-major: contiguous for work that is vectorised over clients.
    y : ndarray (T, p, m)
        Labels.
    """

    def __init__(self, batch: ExplicitBatch, Z: Array, y: Array) -> None:
        self._batch, self._Z, self._y = batch, Z, y
        self._solved: tuple[Array, Array] | None = None
        self._gram: tuple[Array, Array] | None = None

    @property
    def Z(self) -> Array:
        """The features client by client, (T, p, m, k)."""
        return np.moveaxis(self._Z, 1, -1)

    def least_squares(self, ridge: float = 0.0) -> Array:
        """Return the closed-form heads, (T, p, k); cost O(p m k^2)."""
        W, residual, deficient = head_least_squares(self._Z, self._y, self._batch.counts, ridge)
        W.setflags(write=False)  # these heads are known by identity: changed in place they would keep this residual
        self._batch.singular |= deficient.any(axis=-1)
        self._solved = W, residual
        return W

    def head_gradient(self, W: Array) -> Array:
        """Return ``(1/m_i) Z_i'(Z_i w_i - y_i)``, (T, p, k); O(p m k^2) once, then O(p k^2) a call."""
        if self._gram is None:
            Z, m = self._Z, self._batch._positive_counts[:, None, :]
            k = Z.shape[1]
            gram = np.empty((k, Z.shape[0], k, Z.shape[2]))
            for column in range(k):
                gram[column] = np.vecdot(Z[:, column, None], Z) / m
            self._gram = gram, np.vecdot(Z, self._y[:, None]) / m
        gram, moment = self._gram
        heads = np.ascontiguousarray(np.swapaxes(W, -1, -2))
        out = -moment
        for column in range(heads.shape[1]):
            out += gram[column] * heads[:, column, None]
        return np.ascontiguousarray(np.swapaxes(out, -1, -2))

    def _residual(self, W: Array) -> Array:
        """Return ``Z_i w_i - y_i``, (T, p, m)."""
        if self._solved is not None and self._solved[0] is W:
            return self._solved[1]
        residual = -self._y
        for column in range(self._Z.shape[1]):
            residual += self._Z[:, column] * W[..., column, None]
        return residual

    def shifted(self, W: Array) -> ExplicitBatch:
        """Return the same rows with labels ``y_i - Z_i w_i``, exactly zero where `least_squares` found them so."""
        return self._batch.with_labels(-self._residual(W))

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i (1/m_i) X_i'(Z_i w_i - y_i) w_i'``, (T, d, k); cost O(p m d k).

        At the heads that `least_squares` returned the residual is the one found there: exactly zero for a client
        with at most k samples, where rounding alone would move B.
        """
        batch, residual = self._batch, self._residual(W)
        share = 1.0 / W.shape[1] if weights is None else weights
        scaled = np.swapaxes(W * (share / batch._positive_counts)[..., None], -1, -2)
        V = batch._workspace.array("V", self._Z.shape)
        np.multiply(np.ascontiguousarray(scaled)[..., None], residual[:, None], out=V)
        return np.swapaxes(batch.pull_back(V), -1, -2)
