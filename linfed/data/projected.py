"""The projected batch: fresh Gaussian samples that are never drawn, only what a step at one shared B can see of them.

Given B, a client's samples enter a step through their features ``Z = X Q`` on an orthonormal basis Q of B's span, the
part v of the labels that Z does not explain, and the message ``X'r``. The joint law of all three is known exactly: the
m rows of ``[Z, v]`` are replaced by the triangular factor of their Gram matrix (Bartlett), at most k + 1
*pseudo-samples*; outside the span of B and of the truth the messages of all clients together are one Gaussian matrix.
The cost does not depend on m, and for a truth in factors nothing has the shape (n, d). docs/exact-law.md derives the
law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Never

import numpy as np

from linfed._types import Array, Generator, Indices, Mask
from linfed._values import readonly
from linfed.data.batch import Batch
from linfed.data.rows import Workspace
from linfed.data.sources import DrawnSource, Sizes, Source
from linfed.errors import EngineError, check_number
from linfed.numerics.least_squares import head_least_squares
from linfed.numerics.linalg import RANK_TOLERANCE, client_blocks, root_of_gram, take_clients
from linfed.numerics.streams import BLOCK_VALUES, RoundStream, Seed, Stream, generators
from linfed.problems import Truth

ENGINE = "projected"

KEPT_VALUES = 2**24
"""Numbers of pseudo-samples that gradient heads keep within a round; beyond them they are drawn again."""


class Frame(NamedTuple):
    """An orthonormal basis in which labels and messages are told.

    `P` (T, d, k + q) spans B first and the truth's part outside it next; `R` (T, k, k) are the coordinates of B, and
    `star` (T, k + q, r) those of B*. For a truth that is not low-rank `P` has k columns only, and `star` is None.
    """

    P: Array
    R: Array
    star: Array | None


def fill_normals(rng: Generator, out: Array) -> None:
    """Fill an array with N(0, 1) values."""
    rng.standard_normal(out=out)


def fill_gammas(shapes: Array, rng: Generator, out: Array) -> None:
    """Fill an array (..., chis, count) with Gamma values, those of each row of a shape of its own."""
    if out.ndim == 2:
        for shape, row in zip(shapes, out, strict=True):
            rng.standard_gamma(shape, out=row)
    else:
        rng.standard_gamma(np.broadcast_to(shapes[:, None], out.shape), out=out)


class Draws:
    """Standard Gaussian and chi-squared values of each round, for all trials of a chunk, block by block of clients.

    Parameters
    ----------
    normals, chis : int
        Gaussian values of a client; the chi-squares of a client have ``m, m - 1, ..`` degrees of freedom.
    """

    def __init__(
        self,
        normals: int,
        chis: int,
        n_samples: int,
        participants: int,
        rounds: int,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream],
    ) -> None:
        self._normals, self._chis, self._p, self._trials = normals, chis, participants, len(trials)
        # A method would make a cycle of draws and stream.
        self._fill_gammas = partial(fill_gammas, (n_samples - np.arange(chis)) / 2.0)
        self._rngs = [generators(seed, stream, trials) for stream in streams]
        self._workspace = Workspace()
        self._ahead: list[RoundStream] | None = None
        if participants * (normals + chis) <= BLOCK_VALUES:
            fills: tuple[Callable[[Generator, Array], None], ...] = (fill_normals, self._fill_gammas)
            shapes = ((normals, participants), (chis, participants))
            self._ahead = [
                RoundStream(rngs, shape, fill, rounds)
                for rngs, shape, fill in zip(self._rngs, shapes, fills, strict=True)
            ]
        self._now: list[Array] = []
        self._states: list[list[dict[str, object]]] = []

    @property
    def lasting(self) -> bool:
        """Whether a round's values stay as they are until the next round."""
        return self._ahead is not None

    def next_round(self) -> None:
        """Go on to the next round."""
        if self._ahead is not None:
            self._now = [stream.next() for stream in self._ahead]
        else:  # from where the streams stand, as often as they are read
            self._states = [[dict(rng.bit_generator.state) for rng in rngs] for rngs in self._rngs]

    def blocks(self, values: int) -> Iterator[tuple[slice, slice, Array, Array]]:
        """Yield (trials, clients, normals (t, normals, c), chi-squares (t, chis, c)) over the round's clients."""
        if self._ahead is not None:
            for t, c in client_blocks(self._trials, self._p, values):
                yield t, c, self._now[0][t, :, c], 2.0 * self._now[1][t, :, c]
            return
        for rngs, states in zip(self._rngs, self._states, strict=True):
            for rng, state in zip(rngs, states, strict=True):
                rng.bit_generator.state = state
        for t, c in client_blocks(self._trials, self._p, values):
            count = c.stop - c.start
            shape = t.stop - t.start, self._normals, count
            normals = self._workspace.array(f"normals {count}", shape)
            gammas = self._workspace.array(f"gammas {count}", (shape[0], self._chis, count))
            for index in range(t.start, t.stop):
                fill_normals(self._rngs[0][index], normals[index - t.start])
                self._fill_gammas(self._rngs[1][index], gammas[index - t.start])
            yield t, c, normals, np.multiply(gammas, 2.0, out=gammas)


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
        return np.asarray(N - P @ (np.swapaxes(P, -1, -2) @ N))


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

    def minibatches(self, size: int, order: Indices | None = None) -> Iterator[Batch]:
        """Refuse."""
        self._refuse("minibatches")

    def split(self) -> tuple[Batch, Batch]:
        """Refuse."""
        self._refuse("split")


class Labels(NamedTuple):
    """A block's labels ``y = Z a + tau v`` and what they owe to the part outside B, clients last.

    `a` (t, k, c) and `e` (t, q, c) are the coordinates of phi_i in B's span and outside it, `tau` (t, c).
    """

    a: Array
    e: Array
    tau: Array


class Message(NamedTuple):
    """Sums over clients of ``X_i'r_i w_i'`` at unit weights: inside the basis (T, k + q or d, k), and the Gram matrix
    ``sum_i ||r_i||^2 w_i w_i'`` (T, k, k) of the rest."""  # noqa: D205, D209

    inside: Array
    gram: Array


class ProjectedFeatures:
    """What the clients see of their samples at one B, drawn when first asked for.

    Parameters
    ----------
    batch : ProjectedBatch
    B : ndarray (T, d, k)
    """

    def __init__(self, batch: ProjectedBatch, B: Array) -> None:
        # Not the batch itself: it holds these features, and a cycle would keep a round until the collector runs.
        self._source, self._active, self._singular = batch.source, batch.active, batch._singular
        self._W, self._S, self.B = batch._W, batch._S, B
        self._frame, self._told = batch.source.frame(B), False
        self._answer: tuple[Array, Array, Array] | None = None
        self._normal: tuple[Array, Array] | None = None
        self._kept: list[tuple[slice, slice, Pseudo]] | None = None
        diagonal = np.abs(np.diagonal(self._frame.R, axis1=-2, axis2=-1))
        lengths = np.sqrt(np.square(self._frame.R).sum(axis=-2))
        self._dependent: Mask = ~(diagonal > RANK_TOLERANCE * lengths).all(axis=-1)

    # --- the questions ---------------------------------------------------------------------------------------

    def fit(self, ridge: float = 0.0) -> ProjectedFit:
        """Return the closed-form heads, and what they leave; cost O(p (k^2 + k r)) where m > k and ridge = 0."""
        check_number("ridge", ridge, minimum=0.0)
        source, k = self._source, self.B.shape[-1]
        W = np.empty((*self._active.shape, k))
        message = self._no_message()
        for t, c, normals, squares in source.draws.blocks(self._values()):
            triangular = ~self._dependent[t] & (source.triangular and ridge == 0)
            # Trial by trial where they go different ways: the way of one must not depend on the others.
            whole = (
                [t]
                if triangular.all() or not triangular.any()
                else [slice(index, index + 1) for index in range(t.start, t.stop)]
            )
            for one in whole:
                here = slice(one.start - t.start, one.stop - t.start)
                labels = self._labels(one, c)
                if not triangular[here].all():
                    self._general_heads(one, c, labels, normals[here], squares[here], ridge, W, message)
                    continue
                heads, x = self._triangular_heads(one, labels, normals[here], squares[here])
                W[one, c] = np.swapaxes(heads, -1, -2)
                self._add_exact(message, one, labels, normals[here, source.inner :], heads, x)
        return ProjectedFit(self, readonly(W), message)

    def head_gradient(self, W: Array) -> Array:
        """Return ``(1/m) Z_i'(Z_i w_i - y_i)``, (T, p, k); cost O(p k^2)."""
        gram, moment = self._normal_equations()
        heads = np.ascontiguousarray(np.swapaxes(W, -1, -2))
        out = -moment
        for column in range(heads.shape[1]):
            out += gram[column] * heads[:, column, None]
        out /= self._source.n_samples
        return np.ascontiguousarray(np.swapaxes(out, -1, -2))

    def representation_gradient(self, W: Array, weights: Array | float | None = None) -> Array:
        """Return ``sum_i weights_i (1/m) X_i'(Z_i w_i - y_i) w_i'``, (T, d, k); cost O(p k (k + r) + d k (k + r)).

        For one W in a round: the noise outside the span of B and the truth is drawn for all clients together.
        """
        share = np.array(1.0 / W.shape[1] if weights is None else weights, dtype=float)
        if self._answer is None or not (np.array_equal(self._answer[0], W) and np.array_equal(self._answer[1], share)):
            total = self.outspoken(self._message_at(W, np.broadcast_to(share, W.shape[:2])))
            self._answer = W.copy(), share, self.shaped(total, 1.0)
        return self._answer[2].copy()  # whoever changes it in place must not change what is told again

    def outspoken(self, message: Message) -> Array:
        """Return ``sum_i X_i'r_i w_i'`` of standard Gaussian rows, (T, d, k), from its message: once in a round."""
        if self._told:
            raise EngineError(
                f"engine = {ENGINE!r} has one representation_gradient in a round; engine = 'compressed' or 'explicit' "
                "can answer for more"
            )
        self._told = True
        P, k = self._frame.P, self.B.shape[-1]
        if self._frame.star is None:  # the inside is all there is: (T, k + d, k), the last d outside B
            ambient = message.inside[:, k:]
            return P @ (message.inside[:, :k] - P.mT @ ambient) + ambient
        return P @ message.inside + self._source.outer_noise(P) @ root_of_gram(message.gram)

    def shaped(self, total: Array, share: float) -> Array:
        """Return the gradient (T, d, k) from such a sum, scaled by a share."""
        return self._source.truth.design.shape_rows((total * (share / self._source.n_samples)).mT).mT

    def gradients(self, W: Array, weights: Array | float | None = None) -> tuple[Array, Array]:
        """Return the gradients of heads and representation at W, at the cost of both."""
        return self.head_gradient(W), self.representation_gradient(W, weights)

    def shifted(self, W: Array) -> Batch:
        """Refuse."""
        raise EngineError(
            f"engine = {ENGINE!r} knows the samples at one B only and cannot answer features.shifted; "
            "engine = 'compressed' or 'explicit' can"
        )

    # --- blocks of clients -----------------------------------------------------------------------------------

    def _values(self) -> int:
        """Return how many numbers a client needs at a time."""
        k, q = int(self.B.shape[-1]), self._source.outside
        return (k + 1) * (k + 4) // 2 + 4 * (k + q)

    def _no_message(self) -> Message:
        trials, k = len(self.B), self.B.shape[-1]
        return Message(np.zeros((trials, k + self._source.outside, k)), np.zeros((trials, k, k)))

    def _labels(self, t: slice, c: slice) -> Labels:
        """Return the labels' coordinates for a block of clients."""
        truth, frame, k = self._source.truth, self._frame, self.B.shape[-1]
        if frame.star is not None:
            assert self._W is not None
            both = frame.star[t] @ np.swapaxes(self._W[t, c], -1, -2)
            a, e = both[:, :k], both[:, k:]
        else:
            phi = np.zeros(()) if self._S is None else np.swapaxes(self._S[t, c], -1, -2)
            if truth.B is not None and self._W is not None:
                phi = phi + truth.B[t] @ np.swapaxes(self._W[t, c], -1, -2)
            phi = truth.design.root_apply(phi)
            Q = frame.P[t]
            a = np.swapaxes(Q, -1, -2) @ phi
            e = phi - Q @ a
        tau = np.sqrt(np.square(e).sum(axis=1) + truth.noise_std**2)
        return Labels(a, e, tau)

    def _triangular_heads(self, t: slice, labels: Labels, normals: Array, squares: Array) -> tuple[Array, Array]:
        """Return exact heads (t, k, c) and the chi-squares (t, c) with m - k degrees of what they leave.

        The heads solve ``T (R w - a) = tau s`` with T the triangular factor of Z's Gram matrix, s standard Gaussian.
        """
        k = labels.a.shape[1]
        diagonal = np.sqrt(squares[:, :k])
        w = np.empty_like(labels.a)
        s, upper = normals[:, :k], normals[:, k:]
        position = k * (k - 1) // 2
        for i in reversed(range(k)):  # back-substitution, every client of the block at once
            known = s[:, i].copy()
            position -= k - 1 - i
            for j in range(i + 1, k):
                known -= upper[:, position + j - i - 1] * w[:, j]
            np.divide(known, diagonal[:, i], out=w[:, i])
        w *= labels.tau[:, None]
        w += labels.a
        R = self._frame.R[t]
        for i in reversed(range(k)):
            for j in range(i + 1, k):
                w[:, i] -= R[:, i, j, None] * w[:, j]
            w[:, i] /= R[:, i, i, None]
        return w, squares[:, k]

    def _add_exact(self, message: Message, t: slice, labels: Labels, g: Array, heads: Array, x: Array) -> None:
        """Add the messages of exact heads: the residual lies in the last pseudo-sample, ``-tau sqrt(x)``."""
        k = heads.shape[1]
        norm = labels.tau * np.sqrt(x)
        heads_last = np.swapaxes(heads, -1, -2)
        message.inside[t, k:] += self._outside(labels, -labels.tau * x, norm, g) @ heads_last
        if self._frame.star is not None:
            message.gram[t] += (heads * np.square(norm)[:, None]) @ heads_last

    def _outside(self, labels: Labels, along: Array, norm: Array, g: Array) -> Array:
        """Return the part of ``X'r`` outside B in the truth's span, (t, q, c), from ``v'r`` and ``||r||``, (t, c).

        Along e it is ``(rho v'r + sigma ||r|| h) / tau``, across it ``||r||`` times standard Gaussian.
        """
        e, tau = labels.e, labels.tau
        both = tau * (tau + self._source.truth.noise_std)
        some = both > 0  # where there is nothing outside B and no noise, e is 0
        turned = np.einsum("tqc,tqc->tc", e, g)
        turned *= np.divide(norm, both, out=np.zeros_like(both), where=some)
        out = g * norm[:, None]
        out += e * (np.divide(along, tau, out=np.zeros_like(both), where=some) - turned)[:, None]
        return np.asarray(out)

    # --- pseudo-samples --------------------------------------------------------------------------------------

    def _pseudo_blocks(self) -> Iterator[tuple[slice, slice, Pseudo]]:
        """Yield (trials, clients, pseudo-samples) over the round's clients; kept where they are few enough."""
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
        source, k = self._source, labels.a.shape[1]
        rows = k + 1 if source.triangular else source.n_samples
        Z0: list[list[Array | None]] = [[None] * rows for _ in range(k)]
        if source.triangular:
            diagonal = np.sqrt(squares)
            v = [*(normals[:, i] for i in range(k)), diagonal[:, k]]
            position = k
            for i in range(k):
                Z0[i][i] = diagonal[:, i]
                for j in range(i + 1, k):
                    Z0[j][i] = normals[:, position]
                    position += 1
        else:
            v = [normals[:, k * rows + row] for row in range(rows)]
            for i in range(k):
                Z0[i] = [normals[:, i * rows + row] for row in range(rows)]
        R = self._frame.R[t]
        Z = [
            [_summed((one[row], R[:, i, j, None]) for i, one in enumerate(Z0[: j + 1])) for row in range(rows)]
            for j in range(k)
        ]
        y = []
        for row in range(rows):
            known = _summed((one[row], labels.a[:, i]) for i, one in enumerate(Z0))
            y.append(labels.tau * v[row] if known is None else labels.tau * v[row] + known)
        return Pseudo(labels, Z0, Z, v, y, normals[:, source.inner :])

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
    ) -> None:
        """Solve the heads of a block from its pseudo-samples, and add their messages."""
        pseudo = self._pseudo(t, labels, normals, squares)
        some, count = labels.tau.shape
        k, rows = len(pseudo.Z), len(pseudo.y)
        Z = np.zeros((k, rows, some, count))
        for column, parts in zip(Z, pseudo.Z, strict=True):
            for row, part in zip(column, parts, strict=True):
                if part is not None:
                    row[...] = part
        y = np.stack(pseudo.y).reshape(rows, -1)
        counts = np.full(some * count, float(self._source.n_samples))
        heads = head_least_squares(Z.reshape(k, rows, -1), y, counts, ridge)
        if heads.deficient.any():
            self._singular[t] |= heads.deficient.reshape(some, count).any(axis=-1)
        block = np.moveaxis(heads.W.reshape(k, some, count), 0, 1)
        W[t, c] = np.swapaxes(block, -1, -2)
        self._add(message, t, pseudo, list(heads.residual.reshape(rows, some, count)), block)

    def _add(
        self,
        message: Message,
        t: slice,
        pseudo: Pseudo,
        residual: list[Array],
        heads: Array,
        scale: Array | None = None,
    ) -> None:
        """Add a block's messages at any residual, rows of (t, c), and heads (t, k, c), scaled (t, c)."""
        k = heads.shape[1]
        scaled = heads if scale is None else heads * scale[:, None]
        right = np.swapaxes(scaled, -1, -2)
        norm = np.sqrt(sum(np.square(part) for part in residual))
        inside = np.zeros_like(heads)
        for i, column in enumerate(pseudo.Z0):
            found = _summed(zip(column, residual, strict=True))
            if found is not None:
                inside[:, i] = found
        message.inside[t, :k] += inside @ right
        along = sum(part * other for part, other in zip(pseudo.v, residual, strict=True))
        message.inside[t, k:] += self._outside(pseudo.labels, np.asarray(along), norm, pseudo.g) @ right
        if self._frame.star is not None:
            weighted = scaled * norm[:, None]
            message.gram[t] += weighted @ np.swapaxes(weighted, -1, -2)

    def _message_at(self, W: Array, weights: Array) -> Message:
        """Return the messages at any heads W (T, p, k), weighted (T, p)."""
        message = self._no_message()
        for t, c, pseudo in self._pseudo_blocks():
            heads = np.ascontiguousarray(np.swapaxes(W[t, c], -1, -2))
            residual = []
            for row, label in enumerate(pseudo.y):
                fitted = _summed((column[row], heads[:, j]) for j, column in enumerate(pseudo.Z))
                residual.append(-label if fitted is None else fitted - label)
            self._add(message, t, pseudo, residual, heads, weights[t, c])
        return message

    def _normal_equations(self) -> tuple[Array, Array]:
        """Return ``Z_i'Z_i`` (k, T, k, p), its columns first, and ``Z_i'y_i`` (T, k, p)."""
        if self._normal is None:
            trials, p = self._active.shape
            k = self.B.shape[-1]
            gram, moment = np.zeros((k, trials, k, p)), np.zeros((trials, k, p))
            for t, c, pseudo in self._pseudo_blocks():
                for i, column in enumerate(pseudo.Z):
                    moment[t, i, c] = _summed(zip(column, pseudo.y, strict=True))
                    for j in range(i + 1):
                        gram[j, t, i, c] = _summed(zip(column, pseudo.Z[j], strict=True))
                        gram[i, t, j, c] = gram[j, t, i, c]
            self._normal = gram, moment
        return self._normal


class ProjectedFit:
    """Closed-form heads W (T, p, k) and their message."""

    def __init__(self, features: ProjectedFeatures, W: Array, message: Message) -> None:
        self.W, self._features, self._message = W, features, message
        self._total: Array | None = None

    def representation_gradient(self, weights: Array | float | None = None) -> Array:
        """Return the gradient at these heads, (T, d, k); however often where clients weigh the same."""
        share = 1.0 / self.W.shape[1] if weights is None else weights
        if isinstance(share, np.ndarray) and share.ndim:
            return self._features.representation_gradient(self.W, share)
        if self._total is None:
            self._total = self._features.outspoken(self._message)
        return self._features.shaped(self._total, float(share))

    def shifted(self) -> Batch:
        """Refuse."""
        return self._features.shifted(self.W)


class Pseudo(NamedTuple):
    """A block's pseudo-samples: columns of rows of (t, c), None for zeros.

    `Z0` are the features on the orthonormal basis, `Z` those at B, `v` what the labels `y` have beside them; `g` is the
    Gaussian part (t, q, c) outside.
    """

    labels: Labels
    Z0: list[list[Array | None]]
    Z: list[list[Array | None]]
    v: list[Array]
    y: list[Array]
    g: Array


def _summed(pairs: Iterable[tuple[Array | None, Array | None]]) -> Array | None:
    """Return the sum of the products of pairs, leaving out those with a zero; None if there are no others."""
    total: Array | None = None
    for one, other in pairs:
        if one is not None and other is not None:
            total = one * other if total is None else total + one * other
    return total
