"""Coordinates Theta of FLUTE's analysis, their recursion, the absorbing region and the time of entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.parts.base import State
from linfed.numerics.linalg import singular_values, spectral_norm
from linfed.problems import Truth
from linfed.theory.flute.theorems import flute_gap


class Region(NamedTuple):
    """Three quantities that define the region R, each (trials,).

    `largest` is ``sigma_1^2(Theta)``, `rest` is ``sigma_1^2(Theta_res)`` and `smallest` is ``sigma_k^2(Theta_k)``.
    """

    largest: Array
    rest: Array
    smallest: Array


@dataclass(frozen=True, eq=False)
class ThetaCoordinates:
    """Coordinates of Appendix A.1, in which FLUTE at population is a symmetric low-rank approximation.

    Parameters
    ----------
    U : ndarray (trials, d, d)
    V : ndarray (trials, n, n)
        Full square singular bases of Phi (d, n).
    spectrum : ndarray (trials, max(d, n))
        Singular values of Phi, zero-padded.
    Phi : ndarray (trials, n, d)
        Regressors, one client per row.

    Notes
    -----
    ``Theta = [U'B + V'W; U'B - V'W] / sqrt(2)``, both zero-padded to max(d, n) rows.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=20, dim=6, spectrum=[6, 5, 2])
    >>> coordinates = lf.theory.ThetaCoordinates.of(problem.truth(0, [0]))
    >>> coordinates.spectrum[0, :4].round(3) + 0.0
    array([6., 5., 2., 0.])
    """

    U: Array
    V: Array
    spectrum: Array
    Phi: Array

    @classmethod
    def of(cls, truth: Truth) -> ThetaCoordinates:
        """Compute the coordinates of a ground truth."""
        Phi = truth.dense()
        U, values, Vt = np.linalg.svd(Phi.mT, full_matrices=True)
        spectrum = np.zeros((len(Phi), max(Phi.shape[-2:])))
        spectrum[:, : values.shape[-1]] = values
        return cls(U, Vt.mT, spectrum, Phi)

    def stacked(self, B: Array, W: Array) -> Array:
        """Return ``[U'B + V'W; U'B - V'W] / sqrt(2)``, (trials, 2 max(d, n), k), for B (.., d, k) and W (.., n, k)."""
        size = self.spectrum.shape[-1]
        parts = []
        for basis, factor in ((self.U, B), (self.V, W)):
            turned = np.zeros((*factor.shape[:-2], size, factor.shape[-1]))
            turned[..., : factor.shape[-2], :] = basis.mT @ factor
            parts.append(turned)
        return np.concatenate([parts[0] + parts[1], parts[0] - parts[1]], axis=-2) / np.sqrt(2.0)

    def theta(self, state: State) -> Array:
        """Return Theta of a state, (trials, 2 max(d, n), k)."""
        assert state.B is not None
        assert state.W is not None
        return self.stacked(state.B, state.W)

    def population_step(self, theta: Array, step_size: float) -> Array:
        """Return ``Theta + (eta/2) (Lbar Theta - Theta Theta'Theta)`` with ``Lbar = diag(2 Lambda, -2 Lambda)``."""
        signed = 2.0 * np.concatenate([self.spectrum, -self.spectrum], axis=-1)[..., None]
        return theta + 0.5 * step_size * (signed * theta - theta @ (theta.mT @ theta))

    def remainder(self, state: State, messages: Array, step_size: float) -> Array:
        """Return the remainder R of the recursion, the difference between samples and population.

        Parameters
        ----------
        state : State
            State at the start of the round.
        messages : ndarray (trials, n, d)
            ``X_i'(X_i B w_i - y_i)/m``, as ``batch.gradient(B w_i)`` returns them.
        step_size : float
            Step size eta.
        """
        assert state.B is not None
        assert state.W is not None
        D = messages - (state.W @ state.B.mT - self.Phi)
        return self.stacked(-step_size * D.mT @ state.W, -step_size * D @ state.B)

    def region(self, theta: Array) -> Region:
        """Return the three quantities of the region R for the Theta of some trials."""
        k = theta.shape[-1]
        smallest = singular_values(theta[..., :k, :])[..., -1]
        return Region(spectral_norm(theta) ** 2, spectral_norm(theta[..., k:, :]) ** 2, smallest**2)

    def distances(self, theta: Array) -> tuple[Array, Array]:
        """Return both sides of Lemma A.18 for the Theta of some trials, (trials,) each.

        Returns
        -------
        of_product, of_theta : ndarray (trials,)
            ``||B W' - Phi_k||_F``, the distance from the truncation, and ``||Theta Theta' - diag(2 Lambda_k, 0)||_F``.

        Notes
        -----
        The lemma is ``of_product <= of_theta``. Its proof sets ``||S + S'||_F = 2 ||S||_F`` for
        ``S = U'B W'V - diag(Lambda_k, 0)``, which is false unless S is symmetric. The lemma is true, with a better
        constant. Let E_pq be the blocks of ``Theta Theta' - diag(2 Lambda_k, 0)``. The symmetric part of S is
        ``(E_11 - E_22) / 2``, its antisymmetric part ``(E_21 - E_12) / 2``. Hence ``||S||_F^2 <= ||E||_F^2 / 2``. The
        factor ``1/sqrt(2)`` is attained, for example at ``-U'B = V'W = diag(sqrt(lambda_1), .., sqrt(lambda_k))``.

        **Deviations**: the extract of the paper has no factor in the lemma; ours is ``1/sqrt(2)``.

        Examples
        --------
        >>> import linfed as lf
        >>> problem = lf.UnderParameterized(n_clients=20, dim=6, spectrum=[6, 5, 2])
        >>> truth = problem.truth(0, [0])
        >>> coordinates = lf.theory.ThetaCoordinates.of(truth)
        >>> state = lf.State(B=truth.B[..., :2], W=truth.W[..., :2])
        >>> of_product, of_theta = coordinates.distances(coordinates.theta(state))
        >>> bool(of_product <= of_theta)
        True
        """
        size, k = self.spectrum.shape[-1], theta.shape[-1]
        upper, lower = theta[..., :size, :], theta[..., size:, :]
        product, square = 0.5 * (upper + lower) @ (upper - lower).mT, theta @ theta.mT
        first = np.arange(k)
        product[..., first, first] -= self.spectrum[..., :k]
        square[..., first, first] -= 2.0 * self.spectrum[..., :k]
        return np.linalg.norm(product, axis=(-2, -1)), np.linalg.norm(square, axis=(-2, -1))

    def small_start(self, theta: Array, step_size: float) -> Mask:
        """Return a mask of the trials whose initial Theta fulfils Claim A.3, the proof's "small" initialisation.

        Parameters
        ----------
        theta : ndarray (trials, 2 max(d, n), k)
            Initial Theta.
        step_size : float
            Step size eta.

        Notes
        -----
        Claim A.3 is ``sigma_1^2(Theta) <= lambda_1'``, ``sigma_k^2(Theta_k) <= Delta/4`` and
        ``sigma_1^2(Theta_res) <= c_1 sigma_k(Theta_k)^(1 + kappa)`` with
        ``kappa = log(1 + eta Delta/8) / log(1 + (eta/2)(lambda_k' - Delta/2))`` and
        ``c_1 = Delta^(1 - kappa/2) / (2^(3 - kappa) sqrt(lambda_1'))``. Its fourth condition,
        ``sigma_1^2(Theta_res) <= lambda_k' - Delta/2``, follows from the last two. As kappa < 1, the last condition
        requires a small scale of Theta.

        **Deviations**: the extract of the paper lost the fraction of c_1 and the direction of the second condition.
        Both follow from the proof of Lemma A.5.
        """
        region, k = self.region(theta), theta.shape[-1]
        gap, top, kth = flute_gap(self.spectrum, k), 2.0 * self.spectrum[..., 0], 2.0 * self.spectrum[..., k - 1]
        kappa = np.log1p(step_size * gap / 8.0) / np.log1p(0.5 * step_size * (kth - gap / 2.0))
        scale = gap ** (1.0 - kappa / 2.0) / (2.0 ** (3.0 - kappa) * np.sqrt(top))
        return (
            (region.largest <= top)
            & (region.smallest <= gap / 4.0)
            & (region.rest <= scale * region.smallest ** (0.5 + kappa / 2.0))
        )

    def growth_bound(self, theta: Array, step_size: float, remainder: Array) -> Array:
        """Return a lower bound of ``sigma_k^2(Theta_k)`` after a round, from the proof of Lemma A.16.

        Parameters
        ----------
        theta : ndarray (trials, 2 max(d, n), k)
            Theta before the round, with ``sigma_1^2(Theta) <= 2 lambda_1'``.
        step_size : float
            Step size eta, at most ``Delta^2 / (16 lambda_1'^3)``.
        remainder : ndarray (trials, 2 max(d, n), k)
            Remainder R of the recursion in the round.

        Returns
        -------
        ndarray (trials,)
            Value of::

                (1 + eta (lambda_k' - sigma_1^2(Theta_res) - sigma_k^2(Theta_k))) sigma_k^2(Theta_k)
                    - eta^2 lambda_1'^3 - 4 sqrt(lambda_1') sigma_1(R_k)

        Notes
        -----
        The term ``eta^2 lambda_1'^3`` is additive, as in the proofs of Lemmas A.8 and A.16. Lemma A.16 itself replaces
        it by ``eta Delta/4 sigma_k^2(Theta_k)``, which is at least as large if ``sigma_k^2(Theta_k) >= Delta/4``. For
        smaller values the lemma has counterexamples.

        The bound follows without the paper, too. On the population ``Theta_k = A`` becomes
        ``(I + eta D/2) A (I + M) - eta D/2 A M``, with ``D = Lambda_k' - lambda_k' I`` and
        ``M = eta/2 (lambda_k' I - Theta'Theta)``. The product grows at least by the bound's factor. The last term costs
        at most ``eta^2 lambda_1'^3 / 4``.
        """
        region, k = self.region(theta), theta.shape[-1]
        top, kth = 2.0 * self.spectrum[..., 0], 2.0 * self.spectrum[..., k - 1]
        grown = (1.0 + step_size * (kth - region.rest - region.smallest)) * region.smallest
        return grown - step_size**2 * top**3 - 4.0 * np.sqrt(top) * spectral_norm(remainder[..., :k, :])

    def inside(self, region: Region, rank: int) -> Mask:
        """Return a mask of the trials in the region R, up to rounding errors.

        R requires ``sigma_1^2(Theta) <= 2 lambda_1'``, ``sigma_1^2(Theta_res) <= lambda_k' - Delta/2`` and
        ``sigma_k^2(Theta_k) >= Delta/4``.
        """
        gap = flute_gap(self.spectrum, rank)
        first, kth = 2.0 * self.spectrum[..., 0], 2.0 * self.spectrum[..., rank - 1]
        slack = 1.0 + 1e-12
        return (
            (region.largest <= 2.0 * first * slack)
            & (region.rest <= (kth - gap / 2.0) * slack)
            & (region.smallest >= gap / 4.0 / slack)
        )

    def entry_round(self, theta: Array, step_size: float) -> Array:
        """Return T_R of equation (16) for the initial Theta of some trials, (trials,).

        ``max(0, ceil(log(Delta / (4 sigma_k^2(Theta_k))) / (2 log(1 + (eta/2)(lambda_k' - Delta/2)))))``.
        """
        k = theta.shape[-1]
        gap, kth = flute_gap(self.spectrum, k), 2.0 * self.spectrum[..., k - 1]
        growth = 2.0 * np.log1p(0.5 * step_size * (kth - gap / 2.0))
        with np.errstate(divide="ignore"):
            wanted = np.log(gap / (4.0 * self.region(theta).smallest)) / growth
        return np.maximum(0.0, np.ceil(wanted))
