"""First two moments of a FedRep round with exact heads, computed from moments of the heads.

The state is ``T``, the matrix of squared tangents of the principal angles in the coordinates of B*: ``T = D'D`` with
``D = B_perp'B (B*'B)^{-1}``. All functions accept stacks of matrices T, with the trials first.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from linfed._types import Array, Indices
from linfed.numerics import trailing as last
from linfed.numerics.linalg import client_blocks, eigh
from linfed.system.memory import check_fits
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments, packing, weighted_moments


class Sums(NamedTuple):
    """Sums over clients that determine the fluctuations of a round, by the powers of the heads that they contain.

    Parameters
    ----------
    fourth : ndarray (3, trials, k^2, k^2)
        Weighted means of ``w_i w_i' (x) w_i w_i'``, pairs of indices along each side.
    second : ndarray (7, trials, k, k)
        Weighted means of ``w_i w_i'``.
    scalar : ndarray (3, trials, 1, 1)
        Weighted means of 1.
    """

    fourth: Array
    second: Array
    scalar: Array

    @staticmethod
    def weights(clients: Clients, step_size: float) -> tuple[list[tuple[Array, int]], ...]:
        """Return each mean's weight () or (n,), and the power of tau^2 by which it is multiplied (see `Fluctuations`).

        Samples add parts with the weight ``f^2 p (m - k)``. Client sampling adds parts with ``(f p (m - k))^2`` times
        `Clients.share`.
        """
        p, nu, left = clients.participants, clients.spare, clients.counts - clients.rank
        f = np.float64(step_size) * clients.weights / (p * clients.counts)
        pull, drawn = p * f * left, p * f**2 * left
        chosen = clients.share * pull**2
        both, again = 2.0 * drawn + chosen, drawn * (left + 2.0) / nu
        return (
            [(drawn + chosen, 0), (f * both, 1), (f**2 * both, 2)],
            [
                (pull, 0),
                (drawn * (left + 1.0) / nu, 1),
                (drawn, 1),
                (f * both / nu, 2),
                (f * again, 2),
                (f**2 * both / nu, 3),
                (f**2 * again, 3),
            ],
            [
                (drawn / nu, 2),
                (f**2 * (both / (2.0 * nu) + again / (nu - 2.0)) / nu, 4),
                (f**2 * again / (2.0 * (nu - 2.0)), 4),
            ],
        )


@dataclass(frozen=True)
class HeadTensors:
    """Packed moments of the heads up to order eight, with one entry or row for each monomial of degree four.

    Parameters
    ----------
    second : ndarray (trials, k, k)
        ``mean_i w_i w_i'``.
    fourth, sixth, eighth : ndarray (trials, M), (trials, M, K), (trials, M, M)
        Means of the monomials of degree four, of their products with monomials of degree two, and of their products
        with each other.
    """

    second: Array
    fourth: Array
    sixth: Array
    eighth: Array

    @classmethod
    def of(cls, W: Array) -> HeadTensors:
        """Compute the moments of heads (trials, n, k) in blocks of clients, at a cost of O(n k^8/576)."""
        trials, n, k = W.shape
        number = math.comb(k + 3, 4)
        check_fits(2.0 * trials * number**2, f"the moments of order eight for rank = {k}", "use a smaller rank")
        monomials = Monomials.of(k)
        M, K = len(monomials.fours), len(monomials.twos)
        second, fourth = np.zeros((trials, k, k)), np.zeros((trials, M))
        sixth, eighth = np.zeros((trials, M, K)), np.zeros((trials, M, M))
        for t in range(trials):
            for _, clients in client_blocks(1, n, M):
                w = np.ascontiguousarray(W[t, clients].T)
                twos = w[monomials.twos[:, 0]] * w[monomials.twos[:, 1]]
                fours = twos[monomials.fours[:, 0]] * twos[monomials.fours[:, 1]]
                second[t] += w @ w.T
                fourth[t] += fours.sum(axis=1)
                sixth[t] += fours @ twos.T
                eighth[t] += fours @ fours.T
        return cls(second / n, fourth / n, sixth / n, eighth / n)

    def __getitem__(self, trials: Indices) -> HeadTensors:
        """Return the moments of some trials."""
        return HeadTensors(self.second[trials], self.fourth[trials], self.sixth[trials], self.eighth[trials])

    def sums(self, P: Array, clients: Clients, step_size: float) -> Sums:
        """Return the sums over equal clients at ``P = S^2`` (trials, k, k)."""
        k, variance = P.shape[-1], clients.variances
        # Means of q^j w w' (x) w w', j = 0, 1, 2; of q^j w w', j = 0 .. 3; and of q^j, j = 0 .. 4; q = w'P w.
        by, pair, scalar = self.weighted(P), np.empty((4, *P.shape)), np.ones((5, len(P), 1, 1))
        pair[0], pair[1:] = self.second, (P.reshape(-1, 1, k * k) @ by).reshape(3, -1, k, k)
        scalar[1:] = (pair * P).sum(axis=(-2, -1), keepdims=True)
        if variance:  # tau^2 = q + sigma^2 for q
            for moments in (by, pair, scalar):
                for j in range(1, len(moments)):
                    moments[j:] += variance * moments[j - 1 : -1]
        weights = Sums.weights(clients, step_size)
        found = []
        for each, moments in zip(weights, (by, pair, scalar), strict=True):
            factors, powers = zip(*each, strict=True)
            found.append(np.array(factors)[:, None, None, None] * moments[list(powers)])
        return Sums(*found)

    def weighted(self, P: Array) -> Array:
        """Return ``mean_i q_i^j w_i w_i' (x) w_i w_i'`` (3, trials, k^2, k^2), ``q_i = w_i'P w_i``, for j = 0, 1, 2."""
        monomials = Monomials.of(P.shape[-1])
        twos = P[..., monomials.twos[:, 0], monomials.twos[:, 1]] * monomials.times
        products = (twos[..., :, None] * twos[..., None, :]).reshape(*twos.shape[:-1], -1)
        fours = np.add.reduceat(np.take(products, monomials.order, axis=-1), monomials.starts, axis=-1)
        packed = np.empty((3, *fours.shape))
        packed[0], packed[1] = self.fourth, (self.sixth @ twos[..., None])[..., 0]
        packed[2] = (self.eighth @ fours[..., None])[..., 0]
        return self._spread(packed)

    def _spread(self, packed: Array) -> Array:
        k = self.second.shape[-1]
        return np.take(packed, Monomials.of(k).where, axis=-1).reshape(*packed.shape[:-1], k * k, k * k)


@dataclass(frozen=True)
class OwnWeights:
    """Heads of clients with own numbers of samples, noise levels or weights, whose sums are computed at each T.

    Each mean over clients has then its own weight, and no moments of the heads contain them all.

    Parameters
    ----------
    W : ndarray (trials, n, k)
    """

    W: Array

    def __getitem__(self, trials: Indices) -> OwnWeights:
        """Return the heads of some trials."""
        return OwnWeights(self.W[trials])

    def sums(self, P: Array, clients: Clients, step_size: float) -> Sums:
        """Return the sums over the clients at ``P = S^2`` (trials, k, k), in O(n k^4) time and bounded memory."""
        found = [self._of_trial(W, one, clients, step_size) for W, one in zip(self.W, P, strict=True)]
        return Sums(*(np.stack(each, axis=1) for each in zip(*found, strict=True)))

    @staticmethod
    def _of_trial(W: Array, P: Array, clients: Clients, step_size: float) -> Sums:
        n, k = W.shape
        rows, _, scale = packing(k)
        found = [np.zeros((3, len(rows), len(rows))), np.zeros((7, k, k)), np.zeros((3, 1, 1))]
        for _, block in client_blocks(1, n, len(rows)):
            heads, some = W[block], clients.some(block)
            tau = np.einsum("na,na->n", heads @ P, heads) + some.variances
            weights = [
                np.stack([np.broadcast_to(weight, len(tau)) * tau**power for weight, power in each])
                for each in Sums.weights(some, step_size)
            ]
            second, fourth = weighted_moments(heads, weights[1], weights[0])
            scalar = weights[2].mean(axis=1)[:, None, None]
            for sums, part in zip(found, (fourth, second, scalar), strict=True):
                sums += len(tau) / n * part
        pairs, fourth = upper(k).ravel(), found[0] / (scale[:, None] * scale)
        return Sums(fourth[:, pairs[:, None], pairs], found[1], found[2])


@dataclass(frozen=True)
class Monomials:
    """Positions of the entries of symmetric tensors in the list of monomials.

    Parameters
    ----------
    twos : ndarray (K, 2)
        Indices of the monomials of degree two.
    times : ndarray (K,)
        Number of occurrences of each in a quadratic form, 1 or 2.
    fours : ndarray (M, 2)
        Each monomial of degree four as a product of two monomials of degree two.
    order, starts : ndarray (K^2,), (M,)
        Order that sorts all products of two monomials of degree two by the resulting monomial, and the first position
        of each monomial.
    where : ndarray (k^4,)
        Monomial of each entry of a full tensor.
    """

    twos: Indices
    times: Array
    fours: Indices
    order: Indices
    starts: Indices
    where: Indices

    @classmethod
    def of(cls, k: int) -> Monomials:
        """Return the monomials of k coordinates."""
        if k not in _MONOMIALS:
            twos = list(itertools.combinations_with_replacement(range(k), 2))
            of_two: dict[tuple[int, ...], int] = {two: index for index, two in enumerate(twos)}
            fours = list(itertools.combinations_with_replacement(range(k), 4))
            of_four: dict[tuple[int, ...], int] = {four: index for index, four in enumerate(fours)}
            products = np.array([of_four[tuple(sorted(a + b))] for a in twos for b in twos])
            order = np.argsort(products, kind="stable")
            _MONOMIALS[k] = cls(
                twos=np.array(twos),
                times=np.array([1.0 if a == b else 2.0 for a, b in twos]),
                fours=np.array([(of_two[four[:2]], of_two[four[2:]]) for four in fours]),
                order=order,
                starts=np.searchsorted(products[order], np.arange(len(fours))),
                where=np.array([of_four[tuple(sorted(four))] for four in itertools.product(range(k), repeat=4)]),
            )
        return _MONOMIALS[k]


_MONOMIALS: dict[int, Monomials] = {}


def mean_map(T: Array, moments: RoundMoments, step_size: float, M: Array | None = None) -> Array:
    """Return T computed from the mean of a round before QR, without the bias of order 1/p.

    Parameters
    ----------
    T : ndarray (trials, k, k, draws)
    moments : RoundMoments
        With a trial axis. The axes are the eigenvectors of `RoundMoments.pull`.
    step_size : float
    M : ndarray (trials, k, k, draws), optional
        ``(B*'B)(B*'B)'`` of a B that is not normalised; ``(I + T)^{-1}`` by default, for orthonormal columns.

    Returns
    -------
    ndarray (trials, k, k, draws)
        ``N_mean^{-T} Q_mean N_mean^{-1}`` of `one_round_means`, as a rational function of T.

    Notes
    -----
    In the frame in which ``N = (I + T)^{-1/2}`` the square roots cancel. With ``P = T (I + T)^{-1}`` and
    ``A = I + eta P Gamma`` the result is
    ``A^{-T} [(I - eta Gamma (I - P)) T (I - eta (I - P) Gamma) + eta^2 (..)] A^{-1}``, where Gamma is
    `RoundMoments.pull`. The omitted part is V and F of `one_round_means` with w_i instead of a_i and ``I + T`` instead
    of I. With `M` the step on the heads is ``eta J``, ``J = (I - P) M^{-1}``: each Gamma is ``Gamma J``, and
    ``(..)`` is ``J' (..) J``.
    """
    k, clients, eta = T.shape[1], moments.clients, np.float64(step_size)
    rows, columns, scale = packing(k)

    def entries(A: Array) -> Array:
        return np.asarray(A[..., rows, columns, :] * scale[:, None])

    identity, pull = eye(k)[..., None], np.diagonal(moments.pull, axis1=-2, axis2=-1)[:, None, :, None]
    whole = identity + T
    kept = last.inverse(whole)  # I - P
    P = last.symmetric(last.times(kept, T))
    inside = last.symmetric(last.times(P, kept))
    spread = clients.dim - k - np.einsum("taan->tn", P)
    one, other, noise = entries(inside), entries(P), entries(moments.noise[..., None])
    by = moments.fourth[:, 1:4] @ other[:, None] + noise
    across = (one * by[:, 1]).sum(axis=1)
    across += spread * ((other * (by[:, 2] + noise[:, 2])).sum(axis=1) + moments.floor[:, None])
    across += (clients.dim - k) * clients.message_variance
    added, along = across[:, None, None] * whole, moments.fourth[:, 0] @ one + spread[:, None] * by[:, 0]
    added += (along / scale[:, None])[:, upper(k)]
    if clients.share:
        added -= clients.share * (last.transposed(pull) * inside * pull)
    moved = kept * pull
    if M is not None:
        stretch = last.times(kept, last.inverse(M))
        moved, added = last.times(moved, stretch), last.times(last.transposed(stretch), last.times(added, stretch))
    moved = identity - eta * moved
    Q = last.times(last.transposed(moved), last.times(T, moved)) + eta**2 * added
    back = last.inverse(mean_turn(T, moments, step_size, M))
    return last.symmetric(last.times(last.transposed(back), last.times(Q, back)))


def mean_turn(T: Array, moments: RoundMoments, step_size: float, M: Array | None = None) -> Array:
    """Return the mean factor ``I + eta P Gamma J`` from the left on ``B*'B`` in a round, as in `mean_map`."""
    identity, pull = eye(T.shape[1])[..., None], np.diagonal(moments.pull, axis1=-2, axis2=-1)[:, None, :, None]
    kept = last.inverse(identity + T)
    moved = last.symmetric(last.times(kept, T)) * (np.float64(step_size) * pull)
    return identity + (moved if M is None else last.times(moved, last.times(kept, last.inverse(M))))


@dataclass(frozen=True)
class RoundLaw:
    """Distribution of a round at one T, where Gaussian and Wishart matrices represent the sums over the messages.

    In the frame in which ``N = G`` and ``E = S`` (`sine_and_cosine`), a round before QR is ::

        N = G + S Y,    E = S - G Y,    Z'Z a Wishart matrix of d - 2k rows with covariance Phi,
        Y = (eta/(p m)) sum_i u_i what_i',    Phi = (eta/(p m))^2 sum_i ||r_i||^2 what_i what_i'

    and the next T is ``N^{-T} (E'E + Z'Z) N^{-1}``. The first two moments of the sums are exact. Otherwise Y and the
    square root of Phi, relative to its mean, are treated as Gaussian. Noise of variance ``s^2`` on each entry of the
    mean message adds ``eta^2 s^2 I`` to the covariance of Y and to Phi. Its part along B is neglected.

    Parameters
    ----------
    S, G : ndarray (trials, k, k)
    mean : ndarray (trials, k, k)
        Mean of Y.
    gram : ndarray (trials, k, k)
        Cholesky factor of the mean of Phi.
    root : ndarray (trials, k^2 + K, k^2 + K)
        Cholesky factor of the joint covariance of Y, row by row, and of the lower half of ``gram^{-1} Phi gram^{-T}``.
    outside : int
        ``d - 2k``.
    """

    S: Array
    G: Array
    mean: Array
    gram: Array
    root: Array
    outside: int

    @classmethod
    def at(
        cls, T: Array, heads: HeadTensors | OwnWeights, clients: Clients, step_size: float, M: Array | None = None
    ) -> RoundLaw:
        """Return the distribution of a round at T (trials, k, k), and at M as in `mean_map`."""
        k = T.shape[-1]
        S, G = sine_and_cosine(T)
        sums = Fluctuations.of(S, G, heads, clients, step_size)
        if M is not None:
            sums = sums.times(G @ np.linalg.solve(M, G))
        gram = cholesky(sums.gram)
        inverse = np.asarray(np.linalg.inv(gram))
        relative = kron(inverse, inverse)[:, triangle(k)[2]]
        covariance = np.empty((len(S), k * k + relative.shape[1], k * k + relative.shape[1]))
        covariance[:, : k * k, : k * k] = sums.inside
        covariance[:, : k * k, k * k :] = cross = sums.cross @ relative.mT
        covariance[:, k * k :, : k * k] = cross.mT
        covariance[:, k * k :, k * k :] = sandwich(relative, sums.gram_covariance)
        scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        scale = np.where(scale > 0, scale, 1.0)[..., None]  # angles may differ by orders of magnitude
        root = scale * cholesky(covariance / (scale * scale.mT), 1e-10)
        return cls(S, G, sums.mean, gram, root, clients.dim - 2 * k)

    @staticmethod
    def values(k: int) -> int:
        """Return the number of Gaussian values in a draw."""
        return k * k + k * (k + 1)

    def next_factors(self, values: Array, right: Array) -> Array:
        """Return factors X with ``X'X`` the next T (trials, 2k, k, draws) for Gaussian values (trials, values, draws).

        Each factor is multiplied by the matrix `right` (trials, k, k). The means over the draws of the square root of
        Phi and of the Wishart matrix are corrected to their exact values.
        """
        (trials, _, draws), k = values.shape, self.S.shape[-1]
        identity, sums = eye(k)[..., None], self.root @ values[:, : self.root.shape[-1]]
        moved = sums[:, : k * k].reshape(trials, k, k, draws)  # Y minus its mean
        half = 0.5 * sums[:, k * k + lower(k)] + identity
        wishart = self._wishart_root(values[:, self.root.shape[-1] :])
        means = np.empty((3, trials, k, k))  # means[2] is the mean of N
        means[0], means[1], means[2] = last.mean_gram(half), eye(k), self.G + self.S @ self.mean
        if self.outside:
            means[1] = last.mean_gram(wishart) / self.outside
        means[:2] = cholesky(means[:2]).mT
        half_correction, correction, start = np.linalg.inv(means)
        scale = half_correction @ self.gram.mT
        back = last.inverse(identity + last.left_times(start @ self.S, moved))
        E = (self.S - self.G @ self.mean)[..., None] - last.left_times(self.G, moved)
        Z = last.times(last.times(wishart, last.left_times(correction, half)), scale[..., None])
        return last.times(np.concatenate([E, Z], axis=1), last.times(back, (start @ right)[..., None]))

    def turns(self, values: Array) -> Array:
        """Return ``N N_mean^{-1}`` (trials, k, k, draws) for these values."""
        (trials, _, draws), k = values.shape, self.S.shape[-1]
        moved = (self.root[:, : k * k] @ values[:, : self.root.shape[-1]]).reshape(trials, k, k, draws)
        back = np.asarray(np.linalg.inv(self.G + self.S @ self.mean), dtype=np.float64)
        return np.asarray(eye(k)[..., None] + last.times(last.left_times(self.S, moved), back[..., None]))

    def _wishart_root(self, values: Array) -> Array:
        """Return factors W (trials, k, k, draws) of Wishart matrices ``W'W`` of `outside` rows, from Gaussian values.

        Uses Bartlett's decomposition, with chi-squares by the approximation of Wilson and Hilferty.
        """
        (trials, _, draws), k, d = values.shape, self.S.shape[-1], self.outside
        rows, columns, _ = triangle(k)
        W = np.zeros((trials, k, k, draws))
        if d == 0:
            return W
        W[:, columns, rows] = values
        if d < k:
            W[:, d:] = 0.0
        diagonal, left = np.einsum("taan->tan", W), d - np.arange(k)[:, None]
        width = 2.0 / (9.0 * np.maximum(left, 1))
        cubed = np.maximum(1.0 - width + np.sqrt(width) * diagonal, 0.0)
        diagonal[:] = np.sqrt(np.maximum(left, 0)) * cubed * np.sqrt(cubed)
        return W


@dataclass(frozen=True)
class Fluctuations:
    """Moments of the sums over clients in a round, in the frame where ``N = G`` and ``E = S``.

    The messages of two participants are uncorrelated given B. So every moment is a mean over clients of the client's
    own, with ``f_i = eta omega_i/(p m_i)``, plus the variance due to client sampling.

    Parameters
    ----------
    mean : ndarray (trials, k, k)
        Mean of ``Y = sum_i f_i u_i what_i'``.
    inside : ndarray (trials, k^2, k^2)
        Covariance of Y.
    gram : ndarray (trials, k, k)
        Mean of ``Phi = sum_i f_i^2 ||r_i||^2 what_i what_i'``.
    gram_covariance, cross : ndarray (trials, k^2, k^2)
        Covariances of Phi, and of Y (rows) with Phi (columns).
    """

    mean: Array
    inside: Array
    gram: Array
    gram_covariance: Array
    cross: Array

    @classmethod
    def of(
        cls, S: Array, G: Array, heads: HeadTensors | OwnWeights, clients: Clients, step_size: float
    ) -> Fluctuations:
        """Compute the moments at sines S and cosines G (trials, k, k)."""
        fourth, second, scalar = heads.sums(S @ S, clients, step_size)
        SG, GG, share = kron(S, G), kron(G, G), clients.share
        right, scalar = second @ G, scalar * eye(S.shape[-1])
        mean, gram = S @ right[0], G @ right[2] + scalar[0]
        message = step_size**2 * clients.message_variance * eye(S.shape[-1])

        inside = sandwich(SG, fourth[0]) - share * vec(mean) * vec(mean).mT
        add(inside, S @ second[1] @ S, "tabcb->tacb")
        add(inside, gram, "tabad->tbda")

        cross = SG @ fourth[1] @ GG.mT - share * vec(mean) * vec(gram).mT
        add(cross, S @ right[3], "tabcc->tabc")
        add(cross, S @ right[4], "tabcb->tacb", "tabbd->tadb")

        gram_covariance = sandwich(GG, fourth[2]) - share * vec(gram) * vec(gram).mT
        add(gram_covariance, G @ right[5] + scalar[1], "tabcc->tabc", "taacd->tcda")
        paired = G @ right[6] + scalar[2]
        add(gram_covariance, paired, "tabcb->tacb", "tabad->tbda", "tabbd->tadb", "tabca->tbca")
        add(inside, np.broadcast_to(message, gram.shape), "tabad->tbda")
        return cls(mean, inside, gram + message, gram_covariance, cross)

    def times(self, H: Array) -> Fluctuations:
        """Return the moments of ``Y H`` and ``H Phi H`` for a symmetric H (trials, k, k)."""
        one, both = kron(np.broadcast_to(eye(H.shape[-1]), H.shape), H), kron(H, H)
        return Fluctuations(
            self.mean @ H,
            sandwich(one, self.inside),
            H @ self.gram @ H,
            sandwich(both, self.gram_covariance),
            one @ self.cross @ both.mT,
        )


@dataclass(frozen=True)
class Round:
    """Round of given clients, with the heads of several trials along the eigenvectors of their pull.

    Parameters
    ----------
    moments : RoundMoments
        With a trial axis.
    heads : HeadTensors or OwnWeights
    """

    moments: RoundMoments
    heads: HeadTensors | OwnWeights

    @classmethod
    def of(cls, W: Array, clients: Clients) -> tuple[Round, Array]:
        """Return the round of heads (trials, n, k), and its axes, in ascending order of eigenvalues."""
        pull = np.broadcast_to(clients.weights * clients.fitted, W.shape[1])
        turn = eigh(W.mT @ (pull[:, None] * W) / W.shape[1])[1]
        W = W @ turn
        heads = OwnWeights(W) if clients.differ else HeadTensors.of(W)
        return cls(RoundMoments.of_trials(W, clients), heads), turn

    def __getitem__(self, trials: Indices) -> Round:
        """Return the round of some trials."""
        return Round(self.moments[trials], self.heads[trials])

    @property
    def noisy(self) -> bool:
        """True if the labels of some clients, or the mean message, have noise."""
        clients = self.moments.clients
        return clients.message_variance > 0 or bool(np.any(clients.variances > 0))

    def mean_map(self, T: Array, step_size: float, M: Array | None = None) -> Array:
        """Return `mean_map` at T and M (trials, k, k, draws)."""
        return mean_map(T, self.moments, step_size, M)

    def law(self, T: Array, step_size: float, M: Array | None = None) -> RoundLaw:
        """Return the distribution of a round at T and M (trials, k, k)."""
        return RoundLaw.at(T, self.heads, self.moments.clients, step_size, M)


def sine_and_cosine(T: Array) -> tuple[Array, Array]:
    """Return ``(T/(I + T))^{1/2}`` and ``(I + T)^{-1/2}`` of positive semi-definite matrices."""
    values, vectors = eigh(T)
    values = np.maximum(values, 0.0)
    sine, cosine = np.sqrt(values / (1.0 + values)), 1.0 / np.sqrt(1.0 + values)
    return (vectors * sine[..., None, :]) @ vectors.mT, (vectors * cosine[..., None, :]) @ vectors.mT


def cholesky(A: Array, share: float = 1e-15) -> Array:
    """Return Cholesky factors of A plus `share` times its mean diagonal, which keeps them real under rounding."""
    k = A.shape[-1]
    added = share / k * A.trace(axis1=-2, axis2=-1)
    return np.asarray(np.linalg.cholesky(A + added[..., None, None] * eye(k)))


@functools.cache
def eye(k: int) -> Array:
    """Return the identity matrix (k, k)."""
    return np.eye(k)


@functools.cache
def triangle(k: int) -> tuple[Indices, Indices, Indices]:
    """Return rows, columns and flat positions of the entries of the lower triangle, row by row."""
    rows, columns = np.tril_indices(k)
    return rows, columns, rows * k + columns


@functools.cache
def lower(k: int) -> Indices:
    """Return the position of each entry of a symmetric matrix (k, k) in the lower triangle, row by row."""
    found = np.zeros((k, k), dtype=np.intp)
    rows, columns, _ = triangle(k)
    found[rows, columns] = found[columns, rows] = range(len(rows))
    return found


@functools.cache
def upper(k: int) -> Indices:
    """Return the position of each entry of a symmetric matrix (k, k) in the upper triangle, row by row."""
    found = np.zeros((k, k), dtype=np.intp)
    rows, columns, _ = packing(k)
    found[rows, columns] = found[columns, rows] = range(len(rows))
    return found


# --- stacks of matrices, and of tensors as matrices over pairs of indices ---------------------------------------


def vec(A: Array) -> Array:
    """Return the entries as a column (..., k^2, 1)."""
    return A.reshape(*A.shape[:-2], -1, 1)


def kron(A: Array, B: Array) -> Array:
    """Return ``A_ac B_bd`` at (ab, cd)."""
    product = A[..., :, None, :, None] * B[..., None, :, None, :]
    k = A.shape[-1] * B.shape[-1]
    return product.reshape(*product.shape[:-4], k, k)


def add(C: Array, A: Array, *places: str) -> None:
    """Add ``A_xy`` in place to ``C[ab, cd]``, on the diagonals where the two other indices of abcd are equal.

    Each place is the einsum of a diagonal, for example "tabcb->tacb" for ``A_ac`` and b = d.
    """
    k = A.shape[-1]
    for place in places:
        entries = np.einsum(place, C.reshape(len(C), k, k, k, k))
        entries += A[..., None]


def sandwich(K: Array, C: Array) -> Array:
    """Return ``K C K'``."""
    return K @ C @ K.mT
