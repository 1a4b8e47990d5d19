"""First two moments of a FedRep round with exact heads, computed from moments of the heads.

The state is ``T``, the matrix of squared tangents of the principal angles in the coordinates of B*: ``T = D'D`` with
``D = B_perp'B (B*'B)^{-1}``. All functions accept stacks of matrices T, with the trials first.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Indices
from linfed.numerics import trailing as last
from linfed.numerics.linalg import client_blocks, eigh
from linfed.system.memory import check_fits
from linfed.theory.fedrep.state_evolution import RoundSizes


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
        monomials = math.comb(k + 3, 4)
        check_fits(2.0 * trials * monomials**2, f"the moments of order eight for rank = {k}", "use a smaller rank")
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

    def weighted(self, P: Array) -> Array:
        """Return ``mean_i q_i^j w_i w_i' (x) w_i w_i'``, ``q_i = w_i'P w_i``, each as `full`, for j = 0, 1, 2."""
        packing = Packing.of(P.shape[-1])
        twos = P[..., packing.twos[:, 0], packing.twos[:, 1]] * packing.times
        products = (twos[..., :, None] * twos[..., None, :]).reshape(*twos.shape[:-1], -1)
        fours = np.add.reduceat(np.take(products, packing.order, axis=-1), packing.starts, axis=-1)
        packed = np.empty((3, *fours.shape))
        packed[0], packed[1] = self.fourth, (self.sixth @ twos[..., None])[..., 0]
        packed[2] = (self.eighth @ fours[..., None])[..., 0]
        return self._spread(packed)

    def _spread(self, packed: Array) -> Array:
        k = self.second.shape[-1]
        return np.take(packed, Packing.of(k).where, axis=-1).reshape(*packed.shape[:-1], k * k, k * k)


@dataclass(frozen=True)
class Packing:
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


def mean_map(T: Array, second: Array, fourth: Array, setting: RoundSizes) -> Array:
    """Return T computed from the mean of a round before QR, without the bias of order 1/p.

    Parameters
    ----------
    T : ndarray (trials, k, k, draws)
    second : ndarray (trials, k)
        Second moments Gamma of the heads along the axes, which are the eigenvectors of Gamma.
    fourth : ndarray (trials, k^2, k^2)
        `HeadTensors.full`.

    Returns
    -------
    ndarray (trials, k, k, draws)
        ``N_mean^{-T} Q_mean N_mean^{-1}`` of `one_round_means`, as a rational function of T.

    Notes
    -----
    In the frame in which ``N = (I + T)^{-1/2}`` the square roots cancel. With ``P = T (I + T)^{-1}`` and ``A = I + eta
    c P Gamma`` the result is ``A^{-T} [(I - eta c Gamma (I - P)) T (I - eta c (I - P) Gamma) + eta^2 (..)] A^{-1}``.
    The omitted part is V and F of `one_round_means` with w_i instead of a_i and ``I + T`` instead of I.
    """
    (trials, k, _, draws), m, p, eta = T.shape, setting.n_samples, setting.participants, np.float64(setting.step_size)
    c, variance, identity = 1.0 - k / m, setting.noise_std**2, eye(k)[..., None]
    along = second[:, None, :, None]
    whole = identity + T
    kept = last.inverse(whole)  # I - P
    P = last.symmetric(last.times(kept, T))
    inside = last.symmetric(last.times(P, kept))
    both = fourth @ np.concatenate([inside, P], axis=-1).reshape(trials, k * k, 2 * draws)
    both = both.reshape(trials, k, k, 2 * draws)
    by_inside, by_left = both[..., :draws], both[..., draws:]
    spread = setting.dim - k - np.einsum("taan->tn", P)
    across = (m - k + 1) * last.inner(inside, by_left) + spread * last.inner(P, by_left)
    by_samples = spread[:, None, None] * by_left
    if variance:
        inside_left, left = (variance * np.einsum("taan,ta->tn", each, second) for each in (inside, P))
        across += (m - k + 1) * inside_left + spread * (2.0 * left + variance**2)
        np.einsum("taan->tan", by_samples)[:] += variance * spread[:, None] * second[..., None]
    by_samples += by_inside
    by_samples += (across / (m - k - 1))[:, None, None] * whole
    moved = identity - eta * c * kept * along
    Q = last.times(last.transposed(moved), last.times(T, moved))
    Q += (eta**2 * c / (m * p)) * by_samples
    if setting.share:
        Q += (eta * c) ** 2 * setting.share * (by_inside - last.transposed(along) * inside * along)
    back = last.inverse(identity + P * (eta * c * along))
    return last.symmetric(last.times(last.transposed(back), last.times(Q, back)))


@dataclass(frozen=True)
class RoundLaw:
    """Distribution of a round at one T, where Gaussian and Wishart matrices represent the sums over the messages.

    In the frame in which ``N = G`` and ``E = S`` (`sine_and_cosine`), a round before QR is ::

        N = G + S Y,    E = S - G Y,    Z'Z a Wishart matrix of d - 2k rows with covariance Phi,
        Y = (eta/(p m)) sum_i u_i what_i',    Phi = (eta/(p m))^2 sum_i ||r_i||^2 what_i what_i'

    and the next T is ``N^{-T} (E'E + Z'Z) N^{-1}``. The first two moments of the sums are exact. Otherwise Y and the
    square root of Phi, relative to its mean, are treated as Gaussian.

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
    def at(cls, T: Array, tensors: HeadTensors, setting: RoundSizes) -> RoundLaw:
        """Return the distribution of a round at T (trials, k, k)."""
        k = T.shape[-1]
        S, G = sine_and_cosine(T)
        sums = Fluctuations.of(S, G, tensors, setting)
        mean = setting.step_size * (1.0 - k / setting.n_samples) * S @ tensors.second @ G
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
        return cls(S, G, mean, gram, root, setting.dim - 2 * k)

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
    def of(cls, S: Array, G: Array, tensors: HeadTensors, setting: RoundSizes) -> Fluctuations:
        """Compute the moments at sines S and cosines G (trials, k, k)."""
        k, m, p, share = S.shape[-1], setting.n_samples, setting.participants, setting.share
        nu, left, f = m - k - 1, m - k, np.float64(setting.step_size / (p * m))
        variance, identity = setting.noise_std**2, eye(k)
        P = S @ S
        # Means of q^j w w' (x) w w', j = 0, 1, 2; of q^j w w', j = 0 .. 3; and of q^j, j = 0 .. 4; q = w'P w.
        by, pair, scalar = tensors.weighted(P), np.empty((4, *P.shape)), np.ones((5, len(P), 1, 1))
        pair[0], pair[1:] = tensors.second, (P.reshape(-1, 1, k * k) @ by).reshape(3, -1, k, k)
        scalar[1:] = (pair * P).sum(axis=(-2, -1), keepdims=True)
        if variance:  # tau^2 = q + sigma^2 for q
            for moments in (by, pair, scalar):
                for j in range(1, len(moments)):
                    moments[j:] += variance * moments[j - 1 : -1]
        SG, GG = kron(S, G), kron(G, G)
        right = pair @ G
        sines, cosines = S @ pair[1] @ S, G @ right[1]
        by_samples, chosen = p * f**2 * left, (p * f * left) ** 2 * share  # due to samples, due to client sampling

        mean, mu = vec(S @ right[0]), cosines + scalar[2] / nu * identity
        inside = (by_samples + chosen) * sandwich(SG, by[0]) - chosen * mean * mean.mT
        add(inside, by_samples * (left + 1) / nu * sines, "tabcb->tacb")
        add(inside, by_samples * mu, "tabad->tbda")

        mixed, both = S @ right[2], f * (2 * by_samples + chosen)
        cross = both * (SG @ by[1] @ GG.mT) - f * chosen * mean * vec(mu).mT
        add(cross, both / nu * mixed, "tabcc->tabc")
        add(cross, f * by_samples * (left + 2) / nu * mixed, "tabcb->tacb", "tabbd->tadb")

        mixed, both, twice = G @ right[3], f * both, f**2 * by_samples * (left + 2) / nu
        gram_covariance = both * sandwich(GG, by[2]) - f**2 * chosen * vec(mu) * vec(mu).mT
        traced = (
            both * (mixed / nu + scalar[4] / (2 * nu**2) * identity) + twice * scalar[4] / (nu * (nu - 2)) * identity
        )
        add(gram_covariance, traced, "tabcc->tabc", "taacd->tcda")
        paired = twice * (mixed + scalar[4] / (2 * (nu - 2)) * identity)
        add(gram_covariance, paired, "tabcb->tacb", "tabad->tbda", "tabbd->tadb", "tabca->tbca")
        return cls(inside, by_samples * mu, gram_covariance, cross)


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
