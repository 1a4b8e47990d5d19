"""The first two moments of a FedRep round at exact heads, from tensors of the heads: what fluctuates, and by how much.

The state is ``T``, the matrix of squared tangents of the principal angles in the coordinates of B*: ``T = D'D`` with
``D = B_perp'B (B*'B)^{-1}``. Every function acts on stacks of it, trials leading.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Indices
from linfed.numerics.linalg import client_blocks, eigh, symmetric
from linfed.theory.fedrep.state_evolution import Setting


@dataclass(frozen=True)
class HeadTensors:
    """Moments of the heads up to order eight, packed: one number, or one row, for each monomial of degree four.

    Parameters
    ----------
    second : ndarray (trials, k, k)
        ``mean_i w_i w_i'``.
    fourth, sixth, eighth : ndarray (trials, M), (trials, M, K), (trials, M, M)
        Means of the monomials of degree four, alone, times those of degree two, and times each other.
    """

    second: Array
    fourth: Array
    sixth: Array
    eighth: Array

    @classmethod
    def of(cls, W: Array) -> HeadTensors:
        """Return the moments of heads (trials, n, k), in blocks of clients: O(n k^8/576)."""
        trials, n, k = W.shape
        packing = Packing.of(k)
        M, K = len(packing.fours), len(packing.twos)
        second, fourth = np.zeros((trials, k, k)), np.zeros((trials, M))
        sixth, eighth = np.zeros((trials, M, K)), np.zeros((trials, M, M))
        for t in range(trials):
            for _, clients in client_blocks(1, n, M):
                w = np.ascontiguousarray(W[t, clients].T)
                twos = w[packing.twos[:, 0]] * w[packing.twos[:, 1]]
                fours = twos[packing.fours[:, 0]] * twos[packing.fours[:, 1]]
                second[t] += w @ w.T
                fourth[t] += fours.sum(axis=1)
                sixth[t] += fours @ twos.T
                eighth[t] += fours @ fours.T
        return cls(second / n, fourth / n, sixth / n, eighth / n)

    def __getitem__(self, trials: slice) -> HeadTensors:
        """Return the moments of some trials."""
        return HeadTensors(self.second[trials], self.fourth[trials], self.sixth[trials], self.eighth[trials])

    def full(self) -> Array:
        """Return ``mean_i w_i w_i' (x) w_i w_i'`` as matrices (trials, k^2, k^2), pairs of indices along each side."""
        return self._spread(self.fourth)

    def weighted(self, P: Array) -> tuple[Array, Array, Array]:
        """Return ``mean_i q_i^j w_i w_i' (x) w_i w_i'`` with ``q_i = w_i'P w_i``, for j = 0, 1, 2, each as `full`."""
        packing = Packing.of(P.shape[-1])
        twos = P[..., packing.twos[:, 0], packing.twos[:, 1]] * packing.times
        products = (twos[..., :, None] * twos[..., None, :]).reshape(*twos.shape[:-1], -1)
        fours = np.add.reduceat(np.take(products, packing.order, axis=-1), packing.starts, axis=-1)
        once = (self.sixth @ twos[..., None])[..., 0]
        twice = (self.eighth @ fours[..., None])[..., 0]
        return self._spread(self.fourth), self._spread(once), self._spread(twice)

    def _spread(self, packed: Array) -> Array:
        k = self.second.shape[-1]
        return np.take(packed, Packing.of(k).where, axis=-1).reshape(*packed.shape[:-1], k * k, k * k)


@dataclass(frozen=True)
class Packing:
    """Where the entries of symmetric tensors stand among the monomials.

    Parameters
    ----------
    twos : ndarray (K, 2)
        Indices of the monomials of degree two.
    times : ndarray (K,)
        How often each occurs in a quadratic form: 1 or 2.
    fours : ndarray (M, 2)
        Each monomial of degree four as a product of two of degree two.
    order, starts : ndarray (K^2,), (M,)
        All products of two monomials of degree two, sorted by what they are, and where each begins.
    where : ndarray (k^4,)
        The monomial of each entry of a full tensor.
    """

    twos: Indices
    times: Array
    fours: Indices
    order: Indices
    starts: Indices
    where: Indices

    @classmethod
    def of(cls, k: int) -> Packing:
        """Return the packing for k coordinates."""
        if k not in _PACKINGS:
            twos = list(itertools.combinations_with_replacement(range(k), 2))
            of_two: dict[tuple[int, ...], int] = {two: index for index, two in enumerate(twos)}
            fours = list(itertools.combinations_with_replacement(range(k), 4))
            of_four: dict[tuple[int, ...], int] = {four: index for index, four in enumerate(fours)}
            products = np.array([of_four[tuple(sorted(a + b))] for a in twos for b in twos])
            order = np.argsort(products, kind="stable")
            _PACKINGS[k] = cls(
                twos=np.array(twos),
                times=np.array([1.0 if a == b else 2.0 for a, b in twos]),
                fours=np.array([(of_two[four[:2]], of_two[four[2:]]) for four in fours]),
                order=order,
                starts=np.searchsorted(products[order], np.arange(len(fours))),
                where=np.array([of_four[tuple(sorted(four))] for four in itertools.product(range(k), repeat=4)]),
            )
        return _PACKINGS[k]


_PACKINGS: dict[int, Packing] = {}


def mean_map(T: Array, second: Array, fourth: Array, setting: Setting) -> Array:
    """Return the tangents' matrix that belongs to the mean of a round before QR, without its bias of order 1/p.

    Parameters
    ----------
    T : ndarray (trials, ..., k, k)
    second, fourth : ndarray (trials, ..., k, k), (trials, ..., k^2, k^2)
        `HeadTensors.second` and `HeadTensors.full`, broadcast against T.

    Returns
    -------
    ndarray (trials, ..., k, k)
        ``N_mean^{-T} Q_mean N_mean^{-1}`` of `one_round_means`, as a rational function of T.

    Notes
    -----
    In the frame in which ``N = (I + T)^{-1/2}`` its roots cancel: with ``P = T (I + T)^{-1}`` and
    ``A = I + eta c P Gamma`` it is ``A^{-T} [(I - eta c Gamma (I - P)) T (I - eta c (I - P) Gamma) + eta^2 (..)]
    A^{-1}``, what is left of V and F being as there with w_i for a_i and ``I + T`` for I.
    """
    k, m, p, eta = T.shape[-1], setting.n_samples, setting.participants, setting.step_size
    c, variance, identity = 1.0 - k / m, setting.noise_std**2, np.eye(k)
    kept = symmetric(np.asarray(np.linalg.inv(identity + T)))  # I - P
    P = symmetric(kept @ T)
    inside = symmetric(P @ kept)
    spread = (setting.dim - k - np.trace(P, axis1=-2, axis2=-1))[..., None, None]
    both = np.stack([inside, P], axis=-3).reshape(*T.shape[:-2], 2, k * k)
    by_inside, by_left = np.moveaxis((both @ fourth).reshape(*T.shape[:-2], 2, k, k), -3, 0)
    inside_left = inner(inside, by_left) + variance * inner(inside, second)
    left_squared = inner(P, by_left) + variance * (2.0 * inner(P, second) + variance)
    across = ((m - k + 1) * inside_left + spread * left_squared) / (m - k - 1)
    drawn = c / (m * p) * (by_inside + spread * (by_left + variance * second) + across * (identity + T))
    chosen = c**2 * setting.share * (by_inside - second @ inside @ second)
    moved = identity - eta * c * kept @ second
    back = np.linalg.inv(identity + eta * c * P @ second)
    Q = symmetric(moved.mT @ T @ moved + eta * eta * (drawn + chosen))
    return symmetric(back.mT @ Q @ back)


@dataclass(frozen=True)
class RoundLaw:
    """A round at one T, with what clients send summed up in Gaussian and Wishart matrices.

    In the frame in which ``N = G`` and ``E = S`` (`sine_and_cosine`) a round is, before QR,

        N = G + S Y,    E = S - G Y,    Z'Z a Wishart matrix of d - 2k rows with covariance Phi,
        Y = (eta/(p m)) sum_i u_i what_i',    Phi = (eta/(p m))^2 sum_i ||r_i||^2 what_i what_i'

    and the next T is ``N^{-T} (E'E + Z'Z) N^{-1}``. The sums have their first two moments; beyond these Y is as if it
    were Gaussian, and so is the root of Phi relative to its mean.

    Parameters
    ----------
    S, G : ndarray (trials, k, k)
    mean : ndarray (trials, k, k)
        Of Y.
    gram : ndarray (trials, k, k)
        Cholesky factor of the mean of Phi.
    root : ndarray (trials, k^2 + K, k^2 + K)
        Cholesky factor of the covariance of Y, row by row, and of ``gram^{-1} Phi gram^{-T}``, its lower half.
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
    def at(cls, T: Array, tensors: HeadTensors, setting: Setting) -> RoundLaw:
        """Return the law of a round at T (trials, k, k)."""
        k = T.shape[-1]
        S, G = sine_and_cosine(T)
        sums = Fluctuations.of(S, G, tensors, setting)
        mean = setting.step_size * (1.0 - k / setting.n_samples) * S @ tensors.second @ G
        gram = cholesky(sums.gram)
        inverse = np.asarray(np.linalg.inv(gram))
        relative = kron(inverse, inverse)
        rows, columns = np.tril_indices(k)
        kept = rows * k + columns
        cross = (sums.cross @ relative.mT)[..., kept]
        own = (relative @ sums.gram_covariance @ relative.mT)[:, kept[:, None], kept]
        covariance = np.block([[sums.inside, cross], [cross.mT, own]])
        scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        scale = np.where(scale > 0, scale, 1.0)[..., None]  # angles may differ by orders of magnitude
        root = scale * cholesky(covariance / (scale * scale.mT), 1e-10)
        return cls(S, G, mean, gram, root, setting.dim - 2 * k)

    @staticmethod
    def values(k: int) -> int:
        """Return how many Gaussian values a draw takes."""
        return k * k + k * (k + 1)

    def drawn(self, values: Array) -> Array:
        """Return factors X with ``X'X`` the next T (trials, draws, 2k, k) for Gaussian values (trials, draws, values).

        Means over the draws of the root of Phi, and of the Wishart matrix, are made what they are in law.
        """
        trials, draws, _ = values.shape
        k = self.S.shape[-1]
        rows, columns = np.tril_indices(k)
        sums = values[..., : self.root.shape[-1]] @ self.root.mT
        Y = self.mean[:, None] + sums[..., : k * k].reshape(trials, draws, k, k)
        half = np.empty((trials, draws, k, k))
        half[..., rows, columns] = half[..., columns, rows] = 0.5 * sums[..., k * k :]
        half += np.eye(k)
        half = half @ (self.gram @ np.linalg.inv(cholesky((half.mT @ half).mean(axis=1))))[:, None].mT
        Z = self._wishart_root(values[..., self.root.shape[-1] :]) @ half
        S, G = self.S[:, None], self.G[:, None]
        return np.asarray(np.concatenate([S - G @ Y, Z], axis=-2) @ np.linalg.inv(G + S @ Y))

    def _wishart_root(self, values: Array) -> Array:
        """Return factors of Wishart matrices of `outside` rows: Bartlett's, chi-squares after Wilson and Hilferty."""
        k, d = self.S.shape[-1], self.outside
        rows, columns = np.tril_indices(k)
        W = np.zeros((*values.shape[:-1], k, k))
        if d == 0:
            return W
        W[..., columns, rows] = values
        for row in range(k):
            width = 2.0 / (9.0 * max(d - row, 1))
            chi = np.sqrt(max(d - row, 0)) * np.maximum(1.0 - width + np.sqrt(width) * W[..., row, row], 0.0) ** 1.5
            W[..., row, :] *= row < d
            W[..., row, row] = chi
        return W @ np.linalg.inv(cholesky((W.mT @ W).mean(axis=1) / d))[:, None].mT


@dataclass(frozen=True)
class Fluctuations:
    """Second moments of what a round sums over clients, in the frame where ``N = G`` and ``E = S``.

    Parameters
    ----------
    inside : ndarray (trials, k^2, k^2)
        Covariance of ``Y = (eta/(p m)) sum_i u_i what_i'``.
    gram : ndarray (trials, k, k)
        Mean of ``Phi = (eta/(p m))^2 sum_i ||r_i||^2 what_i what_i'``.
    gram_covariance, cross : ndarray (trials, k^2, k^2)
        Covariances of Phi, and of Y (rows) with Phi (columns).
    """

    inside: Array
    gram: Array
    gram_covariance: Array
    cross: Array

    @classmethod
    def of(cls, S: Array, G: Array, tensors: HeadTensors, setting: Setting) -> Fluctuations:
        """Return them at sines S and cosines G (trials, k, k)."""
        k, m, p, share = S.shape[-1], setting.n_samples, setting.participants, setting.share
        nu, left, f = m - k - 1, m - k, np.float64(setting.step_size / (p * m))
        variance, identity = setting.noise_std**2, np.eye(k)
        P = S @ S
        zero, one, two = tensors.weighted(P)
        # Means of tau^(2j) w w' (x) w w', j = 0, 1, 2; of tau^(2j) w w', j = 0 .. 3; and of tau^(2j), j = 0 .. 4.
        by = [zero, one + variance * zero, two + variance * (2.0 * one + variance * zero)]
        pair = [tensors.second]
        for fourth in by:
            pair.append((P.reshape(-1, 1, k * k) @ fourth).reshape(-1, k, k) + variance * pair[-1])
        scalar = [np.ones((len(S), 1, 1))]
        for second in pair:
            scalar.append(inner(P, second) + variance * scalar[-1])
        SG, GG = kron(S, G), kron(G, G)
        unit = kron(identity, identity)

        means = sandwich(SG, by[0])
        sines, cosines = S @ pair[1] @ S, G @ pair[1] @ G
        spread = (left + 1) * (means + kron(sines, identity) / nu) + kron(identity, cosines) + scalar[2] * unit / nu
        mean = vec(S @ pair[0] @ G)
        inside = p * f**2 * (left * spread - left**2 * means)
        inside += (p * f * left) ** 2 * share * (means - mean * mean.mT)

        mu = cosines + scalar[2] / nu * identity
        gram = p * f**2 * left * mu

        both, mixed = SG @ by[1] @ GG.mT, S @ pair[2] @ G
        traced = vec(mixed) * vec(identity).mT
        paired = kron(mixed, identity)
        means = both + traced / nu
        drawn = both + (traced + paired + swapped(paired)) / nu
        cross = p * f**3 * (left * (left + 2) * drawn - left**2 * means)
        cross += (p * left) ** 2 * f**3 * share * (means - mean * vec(mu).mT)

        both, mixed = sandwich(GG, by[2]), G @ pair[3] @ G
        flat = vec(identity) * vec(identity).mT
        traced = vec(mixed) * vec(identity).mT
        traced = traced + traced.mT
        paired = kron(mixed, identity) + kron(identity, mixed)
        means = both + traced / nu + scalar[4] * flat / nu**2
        pairs = paired + swapped(paired)
        drawn = both + (traced + pairs) / nu + scalar[4] * (flat + unit + swapped(unit)) / (nu * (nu - 2))
        gram_covariance = p * f**4 * (left * (left + 2) * drawn - left**2 * means)
        gram_covariance += p**2 * f**4 * left**2 * share * (means - vec(mu) * vec(mu).mT)
        return cls(inside, gram, gram_covariance, cross)


def sine_and_cosine(T: Array) -> tuple[Array, Array]:
    """Return ``(T/(I + T))^{1/2}`` and ``(I + T)^{-1/2}`` of positive semi-definite matrices."""
    values, vectors = eigh(T)
    values = np.maximum(values, 0.0)
    sine, cosine = np.sqrt(values / (1.0 + values)), 1.0 / np.sqrt(1.0 + values)
    return (vectors * sine[..., None, :]) @ vectors.mT, (vectors * cosine[..., None, :]) @ vectors.mT


def cholesky(A: Array, share: float = 1e-15) -> Array:
    """Return Cholesky factors; a share of the mean diagonal is added to it, where digits end."""
    k = A.shape[-1]
    added = share * np.trace(A, axis1=-2, axis2=-1) / k
    return np.asarray(np.linalg.cholesky(A + added[..., None, None] * np.eye(k)))


# --- stacks of matrices, and of tensors as matrices over pairs of indices ---------------------------------------


def inner(A: Array, B: Array) -> Array:
    """Return ``tr A'B`` as (..., 1, 1)."""
    return (A * B).sum(axis=(-2, -1), keepdims=True)


def vec(A: Array) -> Array:
    """Return the entries as a column (..., k^2, 1)."""
    return A.reshape(*A.shape[:-2], -1, 1)


def kron(A: Array, B: Array) -> Array:
    """Return ``A_ac B_bd`` at (ab, cd)."""
    product = A[..., :, None, :, None] * B[..., None, :, None, :]
    k = A.shape[-1] * B.shape[-1]
    return product.reshape(*product.shape[:-4], k, k)


def tensor(C: Array) -> Array:
    """Return (..., k^2, k^2) as (..., k, k, k, k)."""
    k = math.isqrt(C.shape[-1])
    return C.reshape(*C.shape[:-2], k, k, k, k)


def swapped(C: Array) -> Array:
    """Return ``C[ab, dc]`` at (ab, cd)."""
    return tensor(C).swapaxes(-1, -2).reshape(C.shape)


def sandwich(K: Array, C: Array) -> Array:
    """Return ``K C K'``."""
    return K @ C @ K.mT
