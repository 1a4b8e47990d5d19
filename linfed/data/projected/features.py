"""Features of projected batches at one B: heads, gradients and messages from pseudo-samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Never

import numpy as np

from linfed._types import Array, Mask
from linfed._values import readonly
from linfed.checks import check_number
from linfed.data.batch import Batch
from linfed.data.explicit import ExplicitFeatures, ExplicitFit
from linfed.data.projected.parts import Labels, Message, Pseudo, summed
from linfed.errors import EngineError
from linfed.numerics.least_squares import head_least_squares
from linfed.numerics.linalg import RANK_TOLERANCE, root_of_gram

if TYPE_CHECKING:
    from linfed.data.projected.source import ProjectedBatch

KEPT_VALUES = 2**24
"""Largest number of floats of pseudo-samples that gradient heads store within a round; above it they are redrawn."""


def unsupported(engine: str, question: str, requires: str) -> EngineError:
    """Return the error of a question that a batch of projections does not answer; `requires` declares the question."""
    return EngineError(
        f"engine = {engine!r} draws only features at one B and does not support {question}; use engine = 'explicit', "
        f"or declare requires = lf.Requires.{requires} if a step of the algorithm uses it"
    )


class Projected:
    """Base class of a projected batch, its features and its fit: requests for samples raise an error with a remedy."""

    engine: str
    name: ClassVar[str]
    explicit: ClassVar[type]

    def __getattr__(self, part: str) -> Never:
        if not part.startswith("_") and (hasattr(self.explicit, part) or part in self.explicit.__annotations__):
            raise unsupported(self.engine, f"{self.name}.{part}", "ROWS")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {part!r}")


class ProjectedFeatures(Projected):
    """Features of a projected batch at one B, drawn at the first access.

    Parameters
    ----------
    batch : ProjectedBatch
    B : ndarray (T, d, k)
    """

    name, explicit = "features", ExplicitFeatures

    def __init__(self, batch: ProjectedBatch, B: Array) -> None:
        # No reference to the batch, which refers to these features: a cycle would delay freeing the memory of a round.
        self._source, self._active, self._singular = batch.source, batch.active, batch._singular
        self.engine = batch.engine
        self._W, self._S, self.B = batch._W, batch._S, B
        self._counts = None if batch.source.unequal is None else batch.counts
        self._noise = batch.source.truth.noise_levels(batch.active)
        self._frame, self._message_used = batch.source.frame(B), False
        self._last_gradient: tuple[Array, Array, Array] | None = None
        self._normal: tuple[Array, Array] | None = None
        self._kept: list[tuple[slice, slice, Pseudo]] | None = None
        diagonal = np.abs(np.diagonal(self._frame.R, axis1=-2, axis2=-1))
        lengths = np.sqrt(np.square(self._frame.R).sum(axis=-2))
        self._dependent: Mask = ~(diagonal > RANK_TOLERANCE * lengths).all(axis=-1)

    # --- methods of `Features` -------------------------------------------------------------------------------

    def fit(self, ridge: float = 0.0) -> ProjectedFit:
        """Return the closed-form heads and their message; cost O(p (k^2 + k r)) if m > k and ridge = 0."""
        ridge = check_number("ridge", ridge, minimum=0.0)
        return ProjectedFit(self, ridge, *self.fitted(ridge))

    def fitted(self, ridge: float, weights: Array | None = None) -> tuple[Array, Message]:
        """Return the heads, read-only, and their message with the clients' weights (T, p), 1 by default."""
        source, k = self._source, self.B.shape[-1]
        W = np.empty((*self._active.shape, k))
        message = self._no_message()
        for t, c, normals, squares in source.draws.blocks(self._values()):
            triangular = ~self._dependent[t] & (source.triangular and ridge == 0)
            # Trial by trial if the solvers differ: the solver of a trial must not depend on the other trials.
            whole = (
                [t]
                if triangular.all() or not triangular.any()
                else [slice(index, index + 1) for index in range(t.start, t.stop)]
            )
            for one in whole:
                here = slice(one.start - t.start, one.stop - t.start)
                labels, scale = self._labels(one, c), self._scale(one, c, weights)
                if not triangular[here].all():
                    self._general_heads(one, c, labels, normals[here], squares[here], ridge, W, message, scale)
                    continue
                heads, x = self._triangular_heads(one, labels, normals[here], squares[here])
                W[one, c] = heads.mT
                self._add_exact(message, one, labels, normals[here, source.inner :], heads, x, scale)
        return readonly(W), message

    def head_gradient(self, W: Array) -> Array:
        """Return ``(1/m) Z_i'(Z_i w_i - y_i)``, (T, p, k); cost O(p k^2)."""
        gram, moment = self._normal_equations()
        heads = np.ascontiguousarray(W.mT)
        out = -moment
        for column in range(heads.shape[1]):
            out += gram[column] * heads[:, column, None]
        out /= self._source.n_samples if self._counts is None else self._counts[:, None]
        return np.ascontiguousarray(out.mT)

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i (1/m) X_i'(Z_i w_i - y_i) w_i'``, (T, d, k); cost O(p k (k + r) + d k (k + r)).

        A round supports only one W, because the noise outside the span of B and the ground truth is drawn for the sum
        over clients.
        """
        share = np.array(1.0 / W.shape[1] if weights is None else weights, dtype=float)
        if self._last_gradient is None or not (
            np.array_equal(self._last_gradient[0], W) and np.array_equal(self._last_gradient[1], share)
        ):
            total = self.message_sum(self._message_at(W, np.broadcast_to(share, W.shape[:2])))
            self._last_gradient = W.copy(), share, self.shaped(total, 1.0)
        return self._last_gradient[2].copy()  # a copy, as callers may modify the result in place

    def message_sum(self, message: Message) -> Array:
        """Return ``sum_i X_i'r_i w_i'`` of standard Gaussian rows, (T, d, k), from its message; once per round."""
        if self._message_used:
            raise unsupported(self.engine, "a second representation_gradient in a round", "QUADRATIC")
        self._message_used = True
        P, k = self._frame.P, self.B.shape[-1]
        if self._frame.star is None:  # `inside` is the whole message: (T, k + d, k), the last d rows outside B
            ambient = message.inside[:, k:]
            return P @ (message.inside[:, :k] - P.mT @ ambient) + ambient
        return P @ message.inside + self._source.outer_noise(P) @ root_of_gram(message.gram)

    def shaped(self, total: Array, share: float) -> Array:
        """Return the gradient (T, d, k) from the sum returned by `message_sum`, scaled by a share."""
        scale = share if self._counts is not None else share / self._source.n_samples  # else `_scale` has divided
        return self._source.truth.design.shape_rows((total * scale).mT).mT

    def gradients(self, W: Array, weights: Array | float | None = None) -> tuple[Array, Array]:
        """Return the gradients on heads and representation at W, at the sum of their costs."""
        return self.head_gradient(W), self.representation_gradient(W, weights)

    def shifted(self, W: Array) -> Batch:
        """Raise EngineError: not supported by the projected engine."""
        raise unsupported(self.engine, "features.shifted", "QUADRATIC")

    # --- blocks of clients -----------------------------------------------------------------------------------

    def _values(self) -> int:
        """Return the number of floats per client in a block."""
        k, q = int(self.B.shape[-1]), self._source.outside
        return (k + 1) * (k + 4) // 2 + 4 * (k + q)

    def _no_message(self) -> Message:
        """Return a message of zeros."""
        trials, k = len(self.B), self.B.shape[-1]
        return Message(np.zeros((trials, k + self._source.outside, k)), np.zeros((trials, k, k)))

    def _scale(self, t: slice, c: slice, weights: Array | None) -> Array | None:
        """Return the factors (t, c) of a block's messages: weights, divided by the numbers of samples if they differ.

        None stands for ones.
        """
        if self._counts is None:
            return None if weights is None else weights[t, c]
        return np.asarray((1.0 if weights is None else weights[t, c]) / self._counts[t, c])

    def _labels(self, t: slice, c: slice) -> Labels:
        """Return the labels' coordinates for a block of clients."""
        truth, frame, k = self._source.truth, self._frame, self.B.shape[-1]
        if frame.star is not None:
            assert self._W is not None
            both = frame.star[t] @ self._W[t, c].mT
            a, e = both[:, :k], both[:, k:]
        else:
            phi = np.zeros(()) if self._S is None else self._S[t, c].mT
            if truth.B is not None and self._W is not None:
                phi = phi + truth.B[t] @ self._W[t, c].mT
            phi = truth.design.root_apply(phi)
            Q = frame.P[t]
            a = Q.mT @ phi
            e = phi - Q @ a
        sigma = self._noise if isinstance(self._noise, float) else self._noise[t, c, 0]
        return Labels(a, e, np.sqrt(np.square(e).sum(axis=1) + sigma**2), sigma)

    def _triangular_heads(self, t: slice, labels: Labels, normals: Array, squares: Array) -> tuple[Array, Array]:
        """Return exact heads (t, k, c) and the chi-squared values (t, c) of their residuals, m - k degrees of freedom.

        The heads solve ``T (R w - a) = tau s``, where T is the triangular factor of Z's Gram matrix and s is standard
        Gaussian.
        """
        k = labels.a.shape[1]
        diagonal = np.sqrt(squares[:, :k])
        w = np.empty_like(labels.a)
        s, upper = normals[:, :k], normals[:, k:]
        position = k * (k - 1) // 2
        for i in reversed(range(k)):  # back-substitution, every client of the block at once
            rhs = s[:, i].copy()
            position -= k - 1 - i
            for j in range(i + 1, k):
                rhs -= upper[:, position + j - i - 1] * w[:, j]
            np.divide(rhs, diagonal[:, i], out=w[:, i])
        w *= labels.tau[:, None]
        w += labels.a
        R = self._frame.R[t]
        for i in reversed(range(k)):
            for j in range(i + 1, k):
                w[:, i] -= R[:, i, j, None] * w[:, j]
            w[:, i] /= R[:, i, i, None]
        return w, squares[:, k]

    def _add_exact(
        self, message: Message, t: slice, labels: Labels, g: Array, heads: Array, x: Array, scale: Array | None
    ) -> None:
        """Add the messages of exact heads, whose residual is ``-tau sqrt(x)``, in the last pseudo-sample only.

        They are multiplied by `scale`.
        """
        k = heads.shape[1]
        norm = labels.tau * np.sqrt(x)
        heads = heads if scale is None else heads * scale[:, None]
        heads_last = heads.mT
        message.inside[t, k:] += self._outside(labels, -labels.tau * x, norm, g) @ heads_last
        if self._frame.star is not None:
            message.gram[t] += (heads * np.square(norm)[:, None]) @ heads_last

    def _outside(self, labels: Labels, along: Array, norm: Array, g: Array) -> Array:
        """Return the part of ``X'r`` outside B in the span of the ground truth, (t, q, c).

        `along` is ``v'r`` and `norm` is ``||r||``, both (t, c). The component along e is
        ``(rho v'r + sigma ||r|| h) / tau``; the orthogonal component is ``||r||`` times a standard Gaussian.
        """
        e, tau = labels.e, labels.tau
        both = tau * (tau + labels.sigma)
        some = both > 0  # without noise and without a part outside B, e is 0
        turned = np.einsum("tqc,tqc->tc", e, g)
        turned *= np.divide(norm, both, out=np.zeros_like(both), where=some)
        out = g * norm[:, None]
        out += e * (np.divide(along, tau, out=np.zeros_like(both), where=some) - turned)[:, None]
        return np.asarray(out)

    # --- pseudo-samples --------------------------------------------------------------------------------------

    def _pseudo_blocks(self) -> Iterator[tuple[slice, slice, Pseudo]]:
        """Yield (trials, clients, pseudo-samples) over the round's clients; store them if they are few enough."""
        if self._kept is not None:
            yield from self._kept
            return
        source, made = self._source, []
        keep = self._active.size * self._values() <= KEPT_VALUES
        for t, c, normals, squares in source.draws.blocks(self._values()):
            if keep and not source.draws.lasting:  # the next block is drawn into the same buffers
                normals, squares = normals.copy(), squares.copy()
            block = t, c, self._pseudo(t, self._labels(t, c), normals, squares)
            if keep:
                made.append(block)
            yield block
        self._kept = made or None

    def _pseudo(self, t: slice, labels: Labels, normals: Array, squares: Array) -> Pseudo:
        """Return the pseudo-samples of a block."""
        source, k, R = self._source, labels.a.shape[1], self._frame.R[t]
        if not source.triangular:
            return self._few_rows(labels, normals, source.n_samples, R)
        rows = k + 1
        Z0: list[list[Array | None]] = [[None] * rows for _ in range(k)]
        diagonal = np.sqrt(squares)
        v = [*(normals[:, i] for i in range(k)), diagonal[:, k]]
        position = k
        for i in range(k):
            Z0[i][i] = diagonal[:, i]
            for j in range(i + 1, k):
                Z0[j][i] = normals[:, position]
                position += 1
        Z = [
            [summed((one[row], R[:, i, j, None]) for i, one in enumerate(Z0[: j + 1])) for row in range(rows)]
            for j in range(k)
        ]
        y = []
        for row in range(rows):
            signal = summed((one[row], labels.a[:, i]) for i, one in enumerate(Z0))
            y.append(labels.tau * v[row] if signal is None else labels.tau * v[row] + signal)
        return Pseudo(labels, Z0, Z, v, y, normals[:, source.inner :])

    def _few_rows(self, labels: Labels, normals: Array, rows: int, R: Array) -> Pseudo:
        """Return the samples of a block for m <= k, all of whose features are Gaussian."""
        some, k, count = labels.a.shape
        at_basis = normals[:, : k * rows].reshape(some, k, rows, count)
        at_B = (R.mT @ at_basis.reshape(some, k, rows * count)).reshape(some, k, rows, count)
        signals = np.einsum("tkrc,tkc->rtc", at_basis, labels.a)
        v = [normals[:, k * rows + row] for row in range(rows)]
        y = [labels.tau * noise + signal for noise, signal in zip(v, signals, strict=True)]
        Z0, Z = ([[part[:, i, row] for row in range(rows)] for i in range(k)] for part in (at_basis, at_B))
        return Pseudo(labels, Z0, Z, v, y, normals[:, self._source.inner :])

    def _general_heads(
        self,
        t: slice,
        c: slice,
        labels: Labels,
        normals: Array,
        squares: Array,
        ridge: float,
        W: Array,
        message: Message,
        scale: Array | None,
    ) -> None:
        """Compute the heads of a block from its pseudo-samples, and add their messages, multiplied by `scale`."""
        pseudo = self._pseudo(t, labels, normals, squares)
        some, count = labels.tau.shape
        k, rows = len(pseudo.Z), len(pseudo.y)
        Z = np.zeros((k, rows, some, count))
        for column, parts in zip(Z, pseudo.Z, strict=True):
            for row, part in zip(column, parts, strict=True):
                if part is not None:
                    row[...] = part
        y = np.stack(pseudo.y).reshape(rows, -1)
        each = self._counts
        counts = np.full(some * count, float(self._source.n_samples)) if each is None else each[t, c].ravel()
        heads = head_least_squares(Z.reshape(k, rows, -1), y, counts, ridge)
        if heads.deficient.any():
            self._singular[t] |= heads.deficient.reshape(some, count).any(axis=-1)
        block = np.moveaxis(heads.W.reshape(k, some, count), 0, 1)
        W[t, c] = block.mT
        self._add(message, t, pseudo, list(heads.residual.reshape(rows, some, count)), block, scale)

    def _add(
        self,
        message: Message,
        t: slice,
        pseudo: Pseudo,
        residual: list[Array],
        heads: Array,
        scale: Array | None = None,
    ) -> None:
        """Add a block's messages for given residuals, rows of (t, c), and heads (t, k, c), multiplied by `scale`."""
        k = heads.shape[1]
        scaled = heads if scale is None else heads * scale[:, None]
        right = scaled.mT
        norm = np.sqrt(sum(np.square(part) for part in residual))
        inside = np.zeros_like(heads)
        for i, column in enumerate(pseudo.Z0):
            found = summed(zip(column, residual, strict=True))
            if found is not None:
                inside[:, i] = found
        message.inside[t, :k] += inside @ right
        along = sum(part * other for part, other in zip(pseudo.v, residual, strict=True))
        message.inside[t, k:] += self._outside(pseudo.labels, np.asarray(along), norm, pseudo.g) @ right
        if self._frame.star is not None:
            weighted = scaled * norm[:, None]
            message.gram[t] += weighted @ weighted.mT

    def _message_at(self, W: Array, weights: Array) -> Message:
        """Return the message of heads W (T, p, k) with weights (T, p)."""
        message = self._no_message()
        for t, c, pseudo in self._pseudo_blocks():
            heads = np.ascontiguousarray(W[t, c].mT)
            residual = []
            for row, label in enumerate(pseudo.y):
                fitted = summed((column[row], heads[:, j]) for j, column in enumerate(pseudo.Z))
                residual.append(-label if fitted is None else fitted - label)
            self._add(message, t, pseudo, residual, heads, self._scale(t, c, weights))
        return message

    def _normal_equations(self) -> tuple[Array, Array]:
        """Return ``Z_i'Z_i`` (k, T, k, p), with its columns first, and ``Z_i'y_i`` (T, k, p)."""
        if self._normal is None:
            trials, p = self._active.shape
            k = self.B.shape[-1]
            gram, moment = np.zeros((k, trials, k, p)), np.zeros((trials, k, p))
            for t, c, pseudo in self._pseudo_blocks():
                for i, column in enumerate(pseudo.Z):
                    moment[t, i, c] = summed(zip(column, pseudo.y, strict=True))
                    for j in range(i + 1):
                        gram[j, t, i, c] = summed(zip(column, pseudo.Z[j], strict=True))
                        gram[i, t, j, c] = gram[j, t, i, c]
            self._normal = gram, moment
        return self._normal


class ProjectedFit(Projected):
    """Closed-form heads W (T, p, k) of a projected batch, with their message."""

    name, explicit = "fit", ExplicitFit

    def __init__(self, features: ProjectedFeatures, ridge: float, W: Array, message: Message) -> None:
        self.engine = features.engine
        self.W, self._features, self._ridge, self._message = W, features, ridge, message
        self._total: Array | None = None
        self._weighted: tuple[Array, Array] | None = None

    def representation_gradient(self, weights: Array | float | None = None) -> Array:
        """Return the gradient at these heads, (T, d, k); a round supports only one choice of unequal weights.

        Unequal weights double the cost, because the heads are computed again: messages computed from residuals would
        lose the digits that the exact ones have near B*.
        """
        share = 1.0 / self.W.shape[1] if weights is None else weights
        if isinstance(share, np.ndarray) and share.ndim:
            if self._weighted is None or not np.array_equal(self._weighted[0], share):
                total = self._features.message_sum(self._features.fitted(self._ridge, share)[1])
                self._weighted = share.copy(), self._features.shaped(total, 1.0)
            return self._weighted[1].copy()  # a copy, as callers may modify the result in place
        if self._total is None:
            self._total = self._features.message_sum(self._message)
        return self._features.shaped(self._total, float(share))

    def shifted(self) -> Batch:
        """Raise EngineError: not supported by the projected engine."""
        return self._features.shifted(self.W)
