"""The batch of labelled samples: cross-entropy of logits that are linear in x, with biases.

It answers the questions of first order (`linfed.data.batch`), of heads (T, p, c, k + 1) and predictors (T, p, c, d +
1), and refuses those of squares. Rows end with a 1 for the bias, padding with a 0: it is in no gradient.
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
"""From trials and clients to their predictors, (t, c or 1, classes, d + 1)."""


SampleMeasure = Callable[[Array, Indices, Mask], Array]
"""From logits (t, c, classes, m), labels (t, c, m) and who holds which (t, c, classes) to a number a sample."""


def sample_losses(logits: Array, labels: Indices, holds: Mask) -> Array:
    """Return the cross-entropy of each sample."""
    return cross_entropy(logits, labels)


def right(logits: Array, labels: Indices, holds: Mask) -> Array:
    """Return 1 where the largest logit is the label's, the first of equal ones, else 0."""
    return np.asarray(logits.argmax(axis=-2) == labels, dtype=float)


def right_among_own(logits: Array, labels: Indices, holds: Mask) -> Array:
    """Return the same where clients choose among the classes that they hold."""
    return right(np.where(holds[..., None], logits, -np.inf), labels, holds)


def with_ones(X: Array, counts: Array) -> Array:
    """Return rows (..., n, m, d + 1) with a 1 at the end of each sample, and a 0 at that of padding."""
    inside = np.arange(X.shape[-2]) < counts[..., None]
    ones = np.broadcast_to(inside[..., None], (*X.shape[:-1], 1))
    return np.concatenate([X, ones], axis=-1, dtype=float)


class ClassBatch(RowBatch):
    """A round's labelled samples.

    Parameters
    ----------
    X : ndarray (T, p, m, d + 1)
        Samples as `with_ones` gives them.
    labels : ndarray (T, p, m)
        Whole numbers below c.
    holds : ndarray of bool (T, p, c)
        The classes of each client.
    offset : ndarray (T, p, c, m), optional
        What is added to the logits.
    **whose
        As in `RowBatch`: active, counts, workspace, round_number, n_clients.
    """

    def __init__(self, X: Array, labels: Array, *, holds: Mask, offset: Array | None = None, **whose: Any) -> None:
        super().__init__(X, **whose)
        self._labels, self.holds, self._offset = labels, readonly(holds), offset

    @property
    def y(self) -> Array:
        """The labels, (T, p, m), read-only."""
        return readonly(self._labels)

    @property
    def classes(self) -> int:
        """Number of classes c."""
        return int(self.holds.shape[-1])

    def logits(self, t: slice, c: slice, rows: Array, theta: Array) -> Array:
        """Return the logits of a block, (t, c, classes, m), at predictors (t, c or 1, classes, d + 1).

        In memory the classes come first, so that what is done for each sample is done for all of them at once.
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

    def known(self, t: slice, c: slice) -> Indices:
        """Return the labels of a block as indices."""
        return self._labels[t, c].astype(np.intp)

    # --- the questions ---------------------------------------------------------------------------------------

    def project(self, B: Array) -> ClassFeatures:
        """Return the features at B (T, d, k); cost O(p m d k)."""
        return ClassFeatures(self, B)

    def gradient(self, theta: Array) -> Array:
        """Return the gradient of `loss` by each predictor, (T, p, c, d + 1), at theta (T, p or 1, c, d + 1)."""
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
        """Return the same at predictors that are asked for block by block."""
        return self.means(predictors, {"loss": sample_losses})["loss"]

    def accuracies(self, predictors: Predictors, *, own: bool = False) -> Array:
        """Return the share of each client's samples whose largest logit is their label's, (T, p).

        Of equal logits the first class counts. With `own` a client chooses among the classes that it holds.
        """
        return self.means(predictors, {"right": right_among_own if own else right})["right"]

    def means(self, predictors: Predictors, measures: Mapping[str, SampleMeasure]) -> dict[str, Array]:
        """Return the mean of each measure over each client's samples, (T, p), all of them from the same logits."""
        out = {name: np.empty(self.active.shape) for name in measures}
        for t, c, rows in self.rows.blocks():
            logits, labels = self.logits(t, c, rows, predictors(t, c)), self.known(t, c)
            inside = rows[..., -1] > 0  # padding has a 0 there
            for name, measure in measures.items():
                out[name][t, c] = np.where(inside, measure(logits, labels, self.holds[t, c]), 0.0).sum(axis=-1)
        return {name: np.asarray(values / self.positive_counts) for name, values in out.items()}

    def shifted(self, offset: Array) -> ClassBatch:
        """Return the same samples with the logits of predictors (T, p or 1, c, d + 1) added to all logits."""
        return self.with_offset(offset @ self.X.mT)

    def balanced(self) -> ClassBatch:
        """Return the same samples with the logarithm of each client's share of each class added to all logits.

        The balanced softmax of Ren et al. 2020: a classifier of balanced classes is learned from unbalanced ones. The
        classes that a client does not have are as if they were not there; a part of it keeps the shares of the whole.
        """
        inside = self.X[..., -1]
        shares = np.stack([((self._labels == j) * inside).sum(axis=-1) for j in range(self.classes)], axis=-1)
        known = np.where(self.counts[..., None] > 0, shares, 1.0) / self.positive_counts[..., None]
        with np.errstate(divide="ignore"):
            return self.with_offset(np.log(known)[..., None])

    def with_offset(self, offset: Array) -> ClassBatch:
        """Return the same samples with an offset (T, p, c, m or 1) added to all logits."""
        held = offset if self._offset is None else self._offset + offset
        return self._with(self.X, self._labels, self.counts, held)

    def _chosen(self, index: Indices, counts: Array) -> ClassBatch:
        """Return some samples of each client, with what their logits have beside them."""
        part: ClassBatch = super()._chosen(index, counts)
        if self._offset is None:
            return part
        same = self._offset.shape[-1] == 1
        return part.with_offset(
            self._offset if same else np.take_along_axis(self._offset, index[..., None, :], axis=-1)
        )

    def _with(self, X: Array, y: Array, counts: Array, offset: Array | None = None) -> ClassBatch:
        whose = {"active": self.active, "round_number": self.round, "n_clients": self.n_clients}
        return ClassBatch(X, y, holds=self.holds, offset=offset, counts=counts, **whose)

    def least_squares(self, ridge: float = 0.0) -> Never:
        """Refuse."""
        self._refuse("least_squares")

    def pooled_least_squares(self, weights: Array) -> Never:
        """Refuse."""
        self._refuse("pooled_least_squares")

    def normal_equations(self) -> Never:
        """Refuse."""
        self._refuse("normal_equations")

    def _refuse(self, question: str) -> Never:
        raise ValueError(f"batch.{question}() is of squares, and these samples are of {self.classes} classes")


class ClassFeatures:
    """The features ``(B'x, 1)`` of labelled samples, (T, p, m, k + 1).

    Parameters
    ----------
    batch : ClassBatch
    B : ndarray (T, d, k) or (T, p, d, k)
        One representation for all clients, or one for each.
    """

    def __init__(self, batch: ClassBatch, B: Array) -> None:
        self._batch, self._B, self._width = batch, B, B.shape[-1]
        self._held: Array | None = None

    @property
    def Z(self) -> Array:
        """The features, read-only: computed when they are first asked for, and kept."""
        if self._held is None:
            trials, p, m, _ = self._batch.shape
            held = np.empty((trials, p, m, self._width + 1))
            for t, c, rows in self._batch.rows.blocks():
                self._project(t, c, rows, held[t, c])
            self._held = readonly(held)
        return self._held

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
        batch, held = self._batch, self._held
        for t, c, rows in batch.rows.blocks():
            shape = (*rows.shape[:3], self._width + 1)
            Z = self._project(t, c, rows, np.empty(shape)) if held is None else held[t, c]
            yield t, c, rows, Z, batch.residual(t, c, Z, _part(W, t, c))

    def fit(self, ridge: float = 0.0) -> Never:
        """Refuse: no closed form."""
        raise ValueError(
            f"heads have no closed form for the cross-entropy of {self._batch.classes} classes: take lf.GradientHeads()"
        )

    def head_gradient(self, W: Array) -> Array:
        """Return the gradient by the heads W, (T, p, c, k + 1); cost O(p m c k)."""
        batch, out = self._batch, self._heads()
        trials, p, m, _ = batch.shape
        for t, c in client_blocks(trials, p, m * (self._width + 1 + batch.classes)):
            Z = self.Z[t, c]
            np.matmul(batch.residual(t, c, Z, _part(W, t, c)), Z, out=out[t, c])
        out /= batch.positive_counts[..., None, None]
        return out

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i`` times the gradient by B of client i's loss, (T, d, k); cost O(p m d k)."""
        return self._shared(W, weights, None)

    def gradients(self, W: Array, weights: Array | float | None = None) -> tuple[Array, Array]:
        """Return both."""
        by_heads = self._heads()
        by_B = self._shared(W, weights, by_heads)
        by_heads /= self._batch.positive_counts[..., None, None]
        return by_heads, by_B

    def gradients_of_clients(
        self, W: Array, feature_penalty: float = 0.0, out: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array]:
        """Return the gradients by each client's own head, (T, p, c, k + 1), and representation, (T, p, d, k).

        Of its loss plus `feature_penalty` times the mean ``||B_i'x||^2`` of its samples; cost O(p m (d + c) k). They
        are written into `out` if it is given.
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
        """Return an array for what is of all heads."""
        return np.empty((*self._batch.active.shape, self._batch.classes, self._width + 1))

    def _shared(self, W: Array, weights: Array | float | None, by_heads: Array | None) -> Array:
        """Return `representation_gradient`; write the sum over samples of each client's gradient by its head."""
        share = 1.0 / W.shape[1] if weights is None else weights
        scaled = W[..., :-1] * (share / self._batch.positive_counts)[..., None, None]
        trials, _, _, d = self._batch.shape
        out = np.zeros((trials, d - 1, self._width))
        for t, c, rows, Z, residual in self._blocks(W):
            if by_heads is not None:
                np.matmul(residual, Z, out=by_heads[t, c])
            V = residual.mT @ scaled[t, c]
            out[t] += rows.reshape(len(rows), -1, d)[..., :-1].mT @ V.reshape(len(rows), -1, self._width)
        return out

    def shifted(self, W: Array) -> ClassBatch:
        """Return the same samples with the logits of the heads W (T, p, c, k + 1) added to all logits."""
        return self._batch.with_offset(W @ self.Z.mT)


def _part(W: Array, t: slice, c: slice) -> Array:
    """Return some trials and clients of heads or predictors (T, p or 1, ...)."""
    return W[t, c] if W.shape[1] > 1 else W[t]


def of_classes(batch: Batch, asker: str) -> ClassBatch:
    """Return a batch if it is of classes, or raise in the name of who asks for what they alone have."""
    if not isinstance(batch, ClassBatch):
        raise ValueError(f"{asker} is of classes, and the samples are of numbers")
    return batch


def held_classes(labels: Array, counts: Array, classes: int) -> Mask:
    """Return which classes clients have samples of, (..., n, c), from padded labels (..., n, m) and counts (..., n)."""
    inside = np.arange(labels.shape[-1]) < counts[..., None]
    holds = np.zeros((*labels.shape[:-1], classes + 1), dtype=bool)  # what is no sample has a column of its own
    np.put_along_axis(holds, np.where(inside, labels, classes).astype(np.intp), True, axis=-1)
    return readonly(holds[..., :-1].copy())
