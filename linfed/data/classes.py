"""Batches for classification: cross-entropy of logits that are linear in x, with biases.

A batch supports the first-order methods of `linfed.data.batch`, for heads (T, p, c, k + 1) and predictors (T, p, c, d +
1). Methods that require the squared loss raise ValueError. The last entry of a row is 1, for the bias; in padding it is
0, so that padding does not affect gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Never

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed._values import readonly
from linfed.data.batch import Batch
from linfed.data.row_batch import RowBatch
from linfed.numerics.linalg import client_blocks
from linfed.numerics.softmax import cross_entropy, softmax_residual

Predictors = Callable[[slice, slice], Array]
"""Function of a slice of trials and of clients that returns their predictors, (t, c or 1, classes, d + 1)."""


SampleMeasure = Callable[[Array, Indices, Mask], Array]
"""Function that returns one number per sample, (t, c, m).

Its arguments are logits (t, c, classes, m), labels (t, c, m), and the classes that each client holds (t, c, classes).
"""


def sample_losses(logits: Array, labels: Indices, holds: Mask) -> Array:
    """Return the cross-entropy of each sample."""
    return cross_entropy(logits, labels)


def is_correct(logits: Array, labels: Indices, holds: Mask) -> Array:
    """Return 1 for samples whose label has the largest logit, else 0; of equal logits the first class counts."""
    return np.asarray(logits.argmax(axis=-2) == labels, dtype=float)


def is_correct_among_held(logits: Array, labels: Indices, holds: Mask) -> Array:
    """Return `is_correct` for clients that choose only among the classes that they hold."""
    return is_correct(np.where(holds[..., None], logits, -np.inf), labels, holds)


def with_ones(X: Array, counts: Array) -> Array:
    """Append a last entry to rows, (..., n, m, d + 1): 1 for samples, 0 for padding."""
    inside = np.arange(X.shape[-2]) < counts[..., None]
    ones = np.broadcast_to(inside[..., None], (*X.shape[:-1], 1))
    return np.concatenate([X, ones], axis=-1, dtype=float)


class ClassBatch(RowBatch):
    """Batch of a round's samples for classification.

    Parameters
    ----------
    X : ndarray (T, p, m, d + 1)
        Samples as returned by `with_ones`.
    labels : ndarray (T, p, m)
        Integers below c.
    holds : ndarray of bool (T, p, c)
        True at the classes of each client.
    offset : ndarray (T, p, c, m), optional
        Offset that is added to the logits.
    **whose
        As in `RowBatch`: active, counts, workspace, round_number, n_clients.
    """

    def __init__(self, X: Array, labels: Array, *, holds: Mask, offset: Array | None = None, **whose: Any) -> None:
        super().__init__(X, **whose)
        self._labels, self.holds, self._offset = labels, readonly(holds), offset

    @property
    def y(self) -> Array:
        """Labels, (T, p, m), read-only."""
        return readonly(self._labels)

    @property
    def classes(self) -> int:
        """Number of classes c."""
        return int(self.holds.shape[-1])

    def logits(self, t: slice, c: slice, rows: Array, theta: Array) -> Array:
        """Return the logits of a block, (t, c, classes, m), at predictors (t, c or 1, classes, d + 1).

        The classes come first in memory, so that operations per sample run over all samples at once.
        """
        out = np.empty((self.classes, *rows.shape[:3])).transpose(1, 2, 0, 3)
        np.matmul(theta, rows.mT, out=out)
        if self._offset is not None:
            out += self._offset[t, c]
        return out

    def residual(self, t: slice, c: slice, rows: Array, theta: Array) -> Array:
        """Return softmax minus indicator of a block, (t, c, classes, m), at predictors as in `logits`."""
        out = self.logits(t, c, rows, theta)
        softmax_residual(out.transpose(2, 0, 1, 3).reshape(self.classes, -1), self._labels[t, c].reshape(-1))
        return out

    def label_indices(self, t: slice, c: slice) -> Indices:
        """Return the labels of a block as indices."""
        return self._labels[t, c].astype(np.intp)

    # --- methods of `Batch` ----------------------------------------------------------------------------------

    def project(self, B: Array) -> ClassFeatures:
        """Return the features at B (T, d, k); cost O(p m d k)."""
        return ClassFeatures(self, B)

    def gradient(self, theta: Array) -> Array:
        """Return the gradient of `loss` on each predictor, (T, p, c, d + 1), at theta (T, p or 1, c, d + 1)."""
        trials, p, _, d = self.shape
        out = np.empty((trials, p, self.classes, d))
        for t, c, rows in self.rows.blocks():
            np.matmul(self.residual(t, c, rows, _part(theta, t, c)), rows, out=out[t, c])
        out /= self.positive_counts[..., None, None]
        return out

    def loss(self, theta: Array) -> Array:
        """Return the mean cross-entropy of each client's samples, (T, p), at theta (T, p or 1, c, d + 1)."""
        return self.losses(lambda t, c: _part(theta, t, c))

    def losses(self, predictors: Predictors) -> Array:
        """Return `loss` at predictors that are computed block by block."""
        return self.means(predictors, {"loss": sample_losses})["loss"]

    def accuracies(self, predictors: Predictors, *, own: bool = False) -> Array:
        """Return the share of each client's samples whose label has the largest logit, (T, p).

        Of equal logits the first class counts. If `own` is True, clients choose only among the classes that they hold.
        """
        return self.means(predictors, {"right": is_correct_among_held if own else is_correct})["right"]

    def means(self, predictors: Predictors, measures: Mapping[str, SampleMeasure]) -> dict[str, Array]:
        """Return the mean of each measure over each client's samples, (T, p), computing the logits once."""
        out = {name: np.empty(self.active.shape) for name in measures}
        for t, c, rows in self.rows.blocks():
            logits, labels = self.logits(t, c, rows, predictors(t, c)), self.label_indices(t, c)
            inside = rows[..., -1] > 0  # 0 marks padding
            for name, measure in measures.items():
                out[name][t, c] = np.where(inside, measure(logits, labels, self.holds[t, c]), 0.0).sum(axis=-1)
        return {name: np.asarray(values / self.positive_counts) for name, values in out.items()}

    def shifted(self, offset: Array) -> ClassBatch:
        """Return the batch with the logits of predictors (T, p or 1, c, d + 1) added to all logits."""
        return self.with_offset(offset @ self.X.mT)

    def balanced(self) -> ClassBatch:
        """Return the batch with the logarithm of each client's share of each class added to all logits.

        This is the balanced softmax of Ren et al. 2020, which learns a classifier for balanced classes from unbalanced
        ones. Classes that a client does not have get probability 0. Minibatches use the shares of the whole batch.
        """
        inside = self.X[..., -1]
        shares = np.stack([((self._labels == j) * inside).sum(axis=-1) for j in range(self.classes)], axis=-1)
        class_shares = np.where(self.counts[..., None] > 0, shares, 1.0) / self.positive_counts[..., None]
        with np.errstate(divide="ignore"):
            return self.with_offset(np.log(class_shares)[..., None])

    def with_offset(self, offset: Array) -> ClassBatch:
        """Return the batch with an offset (T, p, c, m or 1) added to all logits."""
        total = offset if self._offset is None else self._offset + offset
        return self._with(self.X, self._labels, self.counts, total)

    def _chosen(self, index: Indices, counts: Array) -> ClassBatch:
        """Return a batch of some samples of each client, with their offsets."""
        part: ClassBatch = super()._chosen(index, counts)
        if self._offset is None:
            return part
        same = self._offset.shape[-1] == 1
        return part.with_offset(
            self._offset if same else np.take_along_axis(self._offset, index[..., None, :], axis=-1)
        )

    def _sliced(self, rows: slice, counts: Array) -> ClassBatch:
        """Return a batch of the same rows of samples of every client, with their offsets."""
        part: ClassBatch = super()._sliced(rows, counts)
        if self._offset is None:
            return part
        return part.with_offset(self._offset if self._offset.shape[-1] == 1 else self._offset[..., rows])

    def _with(self, X: Array, y: Array, counts: Array, offset: Array | None = None) -> ClassBatch:
        """Return a batch of the same clients with the given samples, labels, counts and offset."""
        whose = {"active": self.active, "round_number": self.round, "n_clients": self.n_clients}
        return ClassBatch(X, y, holds=self.holds, offset=offset, counts=counts, **whose)

    def least_squares(self, ridge: float = 0.0) -> Never:
        """Raise ValueError: supports only regression."""
        self._refuse("least_squares")

    def pooled_least_squares(self, weights: Array, ridge: float = 0.0) -> Never:
        """Raise ValueError: supports only regression."""
        self._refuse("pooled_least_squares")

    def joint_least_squares(self, B: Array, ridge: float = 0.0) -> Never:
        """Raise ValueError: supports only regression."""
        self._refuse("joint_least_squares")

    def normal_equations(self) -> Never:
        """Raise ValueError: supports only regression."""
        self._refuse("normal_equations")

    def _refuse(self, question: str) -> Never:
        """Raise ValueError for a method that requires the squared loss."""
        raise ValueError(f"batch.{question}() supports only regression, but the samples have {self.classes} classes")


class ClassFeatures:
    """Features ``(B'x, 1)`` of a batch for classification, (T, p, m, k + 1).

    Parameters
    ----------
    batch : ClassBatch
    B : ndarray (T, d, k) or (T, p, d, k)
        One representation for all clients, or one for each.
    """

    def __init__(self, batch: ClassBatch, B: Array) -> None:
        self._batch, self._B, self._width = batch, B, B.shape[-1]
        self._stored_Z: Array | None = None

    @property
    def Z(self) -> Array:
        """Features, read-only; computed at the first access, then stored."""
        if self._stored_Z is None:
            trials, p, m, _ = self._batch.shape
            Z = np.empty((trials, p, m, self._width + 1))
            for t, c, rows in self._batch.rows.blocks():
                self._project(t, c, rows, Z[t, c])
            self._stored_Z = readonly(Z)
        return self._stored_Z

    def _project(self, t: slice, c: slice, rows: Array, out: Array) -> Array:
        """Write the features of a block, and return them."""
        if self._B.ndim == 4:
            np.matmul(rows[..., :-1], self._B[t, c], out=out[..., :-1])
        else:
            x, z = (part.reshape(len(rows), -1, part.shape[-1]) for part in (rows, out))
            np.matmul(x[..., :-1], self._B[t], out=z[..., :-1])
        out[..., -1] = rows[..., -1]
        return out

    def _blocks(self, W: Array) -> Iterator[tuple[slice, slice, Array, Array, Array]]:
        """Yield trials, clients, rows, features and softmax minus indicator (t, c, classes, m) of blocks in cache."""
        batch, stored_Z = self._batch, self._stored_Z
        for t, c, rows in batch.rows.blocks():
            shape = (*rows.shape[:3], self._width + 1)
            Z = self._project(t, c, rows, np.empty(shape)) if stored_Z is None else stored_Z[t, c]
            yield t, c, rows, Z, batch.residual(t, c, Z, _part(W, t, c))

    def fit(self, ridge: float = 0.0) -> Never:
        """Raise ValueError: heads have no closed form for classification."""
        raise ValueError(
            f"fit() supports only regression, but the samples have {self._batch.classes} classes: "
            "use lf.GradientHeads()"
        )

    def head_gradient(self, W: Array) -> Array:
        """Return the gradient on the heads W, (T, p, c, k + 1); cost O(p m c k)."""
        batch, out = self._batch, self._heads()
        trials, p, m, _ = batch.shape
        for t, c in client_blocks(trials, p, m * (self._width + 1 + batch.classes)):
            Z = self.Z[t, c]
            np.matmul(batch.residual(t, c, Z, _part(W, t, c)), Z, out=out[t, c])
        out /= batch.positive_counts[..., None, None]
        return out

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i`` times the gradient on B of client i's loss, (T, d, k); cost O(p m d k)."""
        return self._shared(W, weights, None, 0.0)

    def gradients(
        self, W: Array, weights: Array | float | None = None, feature_penalty: float = 0.0
    ) -> tuple[Array, Array]:
        """Return `head_gradient` and `representation_gradient`.

        The loss includes `feature_penalty` times the mean ``||B'x||^2`` of the client's samples.
        """
        by_heads = self._heads()
        by_B = self._shared(W, weights, by_heads, feature_penalty)
        by_heads /= self._batch.positive_counts[..., None, None]
        return by_heads, by_B

    def gradients_of_clients(
        self, W: Array, feature_penalty: float = 0.0, out: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array]:
        """Return the gradients on each client's head, (T, p, c, k + 1), and on its representation, (T, p, d, k).

        The loss includes `feature_penalty` times the mean ``||B_i'x||^2`` of the client's samples. If `out` is given,
        the result is written into it. Cost O(p m (d + c) k).
        """
        trials, p, _, d = self._batch.shape
        by_heads, by_B = (self._heads(), np.empty((trials, p, d - 1, self._width))) if out is None else out
        counts = self._batch.positive_counts[..., None, None]
        for t, c, rows, Z, residual in self._blocks(W):
            np.matmul(residual, Z, out=by_heads[t, c])
            V = residual.mT @ _part(W, t, c)[..., :-1]
            if feature_penalty:
                V += 2.0 * feature_penalty * Z[..., :-1]
            V /= counts[t, c]
            np.matmul(rows[..., :-1].mT, V, out=by_B[t, c])
        by_heads /= counts
        return by_heads, by_B

    def _heads(self) -> Array:
        """Return an uninitialised array with the shape of all heads, (T, p, c, k + 1)."""
        return np.empty((*self._batch.active.shape, self._batch.classes, self._width + 1))

    def _share(self, W: Array, weights: Array | float | None) -> Array:
        """Return the weight of each sample of a client, (T, p)."""
        return np.asarray((1.0 / W.shape[1] if weights is None else weights) / self._batch.positive_counts)

    def _shared(self, W: Array, weights: Array | float | None, by_heads: Array | None, feature_penalty: float) -> Array:
        """Return the gradient on B; write sums over samples of the gradients on heads into `by_heads`."""
        share = self._share(W, weights)
        scaled = W[..., :-1] * share[..., None, None]
        trials, _, _, d = self._batch.shape
        out = np.zeros((trials, d - 1, self._width))
        for t, c, rows, Z, residual in self._blocks(W):
            if by_heads is not None:
                np.matmul(residual, Z, out=by_heads[t, c])
            V = residual.mT @ scaled[t, c]
            if feature_penalty:
                V += (2.0 * feature_penalty * share[t, c])[..., None, None] * Z[..., :-1]
            out[t] += rows.reshape(len(rows), -1, d)[..., :-1].mT @ V.reshape(len(rows), -1, self._width)
        return out

    def shifted(self, W: Array) -> ClassBatch:
        """Return the batch with the logits of the heads W (T, p, c, k + 1) added to all logits."""
        return self._batch.with_offset(W @ self.Z.mT)


def _part(W: Array, t: slice, c: slice) -> Array:
    """Return some trials and clients of heads or predictors (T, p or 1, ...)."""
    return W[t, c] if W.shape[1] > 1 else W[t]


def of_classes(batch: Batch, caller: str) -> ClassBatch:
    """Return the batch if it is for classification, or raise with the name of the caller."""
    if not isinstance(batch, ClassBatch):
        raise ValueError(f"{caller} supports only classification, but the samples are for regression")
    return batch


def find_classes(labels: Array, counts: Array, classes: int) -> Mask:
    """Return True at the classes of each client, (..., n, c), given padded labels (..., n, m) and counts (..., n)."""
    inside = np.arange(labels.shape[-1]) < counts[..., None]
    holds = np.zeros((*labels.shape[:-1], classes + 1), dtype=bool)  # last column: padding
    np.put_along_axis(holds, np.where(inside, labels, classes).astype(np.intp), True, axis=-1)
    return readonly(holds[..., :-1].copy())
