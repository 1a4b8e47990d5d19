"""Decomposition (19) to (21) of a round of B in the shortcut draft, and its bound (22).

Requirements for completing the draft's proof
---------------------------------------------
The draft's proof is not complete. Its last inequality, (22), bounds the new distance by three terms (four with noise),
each times ``||R^{-1}||``. The table shows the sizes of these terms. They are medians of 4 trials with d = 20, k = 2,
n = 100, m = 60, eta = 0.3, no noise, ``||w_i*|| = sqrt 2``, Gaussian s_i* of length 0.7 and initial distance 0.5::

    run, fixed samples                  round  distance  contraction  concentration  shortcut  ||R^{-1}||
    (2) to (5)                              1      0.51         0.54          0.037     2e-16         1.4
                                            2      0.51         0.51          4e-18     3e-18         1.0
                                            3      0.52         0.55          0.037     2e-16         1.4
                                          300      1.00         1.00          3e-16     4e-16         1.0
    (2) to (5), m = 10                      3      0.65         0.58           0.11     0.037         1.4
    (2), (3) in gauss-seidel order        all      0.50         0.39          1e-17      0.14         1.0
    joint, ridge 1                          1      0.45         0.39          0.015     0.066         1.0
                                         1000     0.072        0.053         0.0075     0.022         1.0
    gradient, shortcut steps of 0.003       3      0.37         0.36          0.010     0.012        0.95
                                         3000     0.067        0.048         0.0004     0.021         1.0
    gradient, shortcut steps of 0.3      3000      0.42         0.39          5e-18     0.027         1.0

The bound is tight: the bound divided by the distance has median 1.00 to 1.09 in these runs. With noise and fresh
samples, where ``||R^{-1}||`` reaches 2.1, the median is 1.2. The first term dominates in all runs. Under (2) to (5):

- The third term is not an obstacle. With m >= d and no noise, ``s_i* - s_i`` is ``B w_i^t - B* w_i*``. The term is
  therefore ``eta ||B*_perp'B mean w_i^t w_i^{t+1}'||``, and one of two successive heads is 0
  (`ShortcutRound.head_cycle`).
- The first term is an obstacle. At population, R is the triangular factor of ``I - eta Gamma_w``, where ``Gamma_w`` is
  the second moment of the heads. Hence ``||B*_perp'B (I - eta Gamma_w)|| ||R^{-1}||`` is never below the old distance.
  In FedRep ``||R^{-1}||`` is close to 1, because the heads solve their least squares at the point of B's gradient, and
  ``B'gradient ~ 0``. Here the shortcut has moved since. Another constant does not help, since span(B) does not move at
  population. With fixed samples the heads learn nothing after round 1: they alternate between ``w_i^1`` and 0.
- With samples, B moves away from B*. In the first round, the mean of B's gradient outside span(B) is
  ``(k+1)/m (I - B B')M B`` with ``M = mean phi_i phi_i'``. This is Oja's update with the opposite sign, and it is part
  of the second term of (22) (`shortcut_repulsion`). It also occurs without shortcuts in the ground truth. In round 1
  the distance grows by 0.045, 0.0071 and 0.0017 at m = 10, 60 and 240 with n = 1600. From distance 0.01 (n = 100, m =
  60) it reaches 0.4 in 20 rounds and 0.98 in 200. A concentration inequality for this term around 0 therefore cannot be
  better than order ``k/m``, for any number of clients.
- In gauss-seidel order the first and third term add up to the old distance, and B does not move
  (`ShortcutRound.stall`).

With a ridge or small shortcut steps, ``||R^{-1}|| <= 1`` once the heads have converged. The first term then contracts,
and the third determines the final distance. If B is stationary, ``B*_perp'B Gamma_w`` equals
``B*_perp' mean (s_i* - s_i) w_i'``, so the third term ends at ``eta lambda_min(Gamma_w) dist`` or more. It falls with
the correlation between the s_i* and the heads, about ``n^{-1/2}``: 0.023 at n = 100 and 0.006 at n = 1600. (With ridge
1 at population the distance is 0.068 and 0.019, see `top_subspace_distance`. With gradient steps of 0.003 and m = 60 it
is 0.022 and 0.006.) A proof must therefore

- (a) let the shortcut's update leave a share of ``(I - B B')phi_i`` unexplained;
- (b) keep the heads stationary at the new shortcuts, which bounds ``||R^{-1}||``;
- (c) assume that the s_i* are uncorrelated with the w_i*, with a floor of order
  ``||B*_perp' mean s_i* w_i*'|| / lambda_min(Gamma)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from linfed._types import Array
from linfed.numerics.linalg import qr_positive, spectral_norm
from linfed.theory.shortcut.identities import RecordedRound, Sides, applied


class BoundTerms(NamedTuple):
    """The terms of (22), each (trials,); the first four carry the factor ``||R^{-1}||``.

    `contraction` is ``||B*_perp' B (I - (eta/p) sum w_i w_i')||``, `concentration`
    ``(eta/p) ||B*_perp' sum (Pi_i q_i - q_i) w_i'||``, `shortcut` ``(eta/p) ||B*_perp' sum (s_i* - s_i) w_i'||``,
    `noise` ``(eta/p) ||B*_perp' sum (X_i'xi_i/m) w_i'||``, all at the new heads and shortcuts. `inverse` is
    ``||R^{-1}||``. `distance` is the left side, ``||B*_perp' B||`` at the new B.
    """

    contraction: Array
    concentration: Array
    shortcut: Array
    noise: Array
    inverse: Array
    distance: Array

    @property
    def bound(self) -> Array:
        """Right side of (22), (trials,)."""
        return self.contraction + self.concentration + self.shortcut + self.noise


@dataclass(frozen=True, kw_only=True, eq=False)
class ShortcutRound(RecordedRound):
    """One round of the shortcut variant in the draft's notation, created with `of` from a step of `lf.iterate`.

    Parameters
    ----------
    step_size, ridge : float
        Step size eta for B, and the ridge penalty on the shortcut's contribution ``S``.
    order : str
        Order of the algorithm, which determines the head in the shortcut's least squares.
    alive : ndarray of bool (trials,)
        True for trials that have not diverged. The equations hold only for these.
    active : ndarray of int (trials, p)
        Participants. Axes of length p refer to them.
    counts : ndarray (trials, p)
        Samples m_i.
    B, B_new : ndarray (trials, d, k)
        ``B^t`` and ``B^{t+1}``.
    W_old, W : ndarray (trials, p, k)
        Heads ``w_i^t`` and ``w_i^{t+1}``.
    S_old, S : ndarray (trials, p, d)
        Shortcuts ``s_i^t`` and ``s_i^{t+1}``.
    B_star : ndarray (trials, d, k)
    W_star : ndarray (trials, p, k)
    S_star : ndarray (trials, p, d)
        Ground truth.
    Pi : ndarray (trials, p, d, d)
        ``X_i'X_i / m_i`` (after (11)).
    noise : ndarray (trials, p, d)
        ``X_i'xi_i / m_i``; 0 in the draft, which has no noise.
    messages : ndarray (trials, p, d)
        ``(1/m_i) X_i'(X_i (B w_i + s_i) - y_i)`` at the new head and shortcut. The gradient of client i with respect to
        B is this vector times ``w_i'``.

    Notes
    -----
    Methods return the two sides of an equation (`Sides`). Equations up to (18) hold only for the closed-form solver
    with order "jacobi" (7 to 17 also for "gauss-seidel"). Equations (19) to (22) hold for every solver, order and
    ridge. All hold for any noise and participation. (9) to (17) require ``m_i >= k``; the others hold for any number of
    samples. A round costs ``O(p (m d^2 + k d^2))``.

    The noise term is computed from labels and ground truth, ``X_i'y_i/m - Pi_i phi_i``. On noiseless data, a wrong
    ground truth therefore appears in the size of this term and not in the difference of the two sides.

    **Deviations**: the draft's ``B*_perp'`` is replaced by the projector ``I - B* B*'``, which gives equal norms. The
    draft has no noise; the noise term is added here. With a ridge, (18) has one more term. `mixing` enters through the
    contributions in the state. The draft prints the following differently:

    - (7), (9), (15) have ``s_i - s_i*`` instead of ``s_i* - s_i``; (9) is then wrong (``sign="printed"``);
    - ``C_pq`` has ``b_q`` instead of ``b_q*``, so that C = G; (9) is then wrong;
    - ``D_pq`` has an additional sum over i, which makes D p times too large; (9) holds for every D, but (16) and the
      smallness of ``f_i`` require (13);
    - (12), (13) and Lemma 1 let p and q run to k + d; G and C have k columns (Lemma 2: `extended_gram`);
    - before (21), Q is printed transposed.

    References
    ----------
    Shortcut draft, equations (7) to (22), Lemmas 1 and 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=5, dim=8, rank=2, shortcut_norm=0.5)
    >>> algorithm = lf.FedRepShortcut(rank=2, step_size=0.1, solver=lf.ClosedForm())
    >>> _, step = lf.iterate(algorithm, problem, data=lf.FreshSamples(20), n_rounds=1)
    >>> round_ = ShortcutRound.of(step, algorithm, problem.truth(0, range(1)))
    >>> bool(round_.head_update().gap[0] < 1e-12), bool(round_.head_update(sign="printed").gap[0] < 1e-12)
    (True, False)
    """

    @cached_property
    def Q(self) -> Array:
        """``q_i = B w_i^{t+1} - B* w_i* + s_i^{t+1} - s_i*``, (trials, p, d), row i = client i."""
        return self.W @ self.B.mT - self.W_star @ self.B_star.mT + self.S - self.S_star

    @cached_property
    def B_bar(self) -> Array:
        """B before normalisation (4), (trials, d, k), from the clients' gradients."""
        return self.B - self._averaged(self.messages)

    @cached_property
    def R(self) -> Array:
        """Triangular factor of `B_bar` (5), (trials, k, k)."""
        return qr_positive(self.B_bar)[1]

    def _averaged(self, vectors: Array) -> Array:
        """Return ``(eta/p) sum_i v_i w_i'`` at the new heads, (trials, d, k)."""
        return self.step_size / self.W.shape[1] * (vectors.mT @ self.W)

    def _outside(self, columns: Array) -> Array:
        """Remove the part in span(B*) from columns (trials, d, c)."""
        return columns - self.B_star @ (self.B_star.mT @ columns)

    @cached_property
    def _concentration(self) -> Array:
        return self._averaged(applied(self.Pi, self.Q) - self.Q)

    @cached_property
    def _inverse(self) -> Array:
        """Return ``R^{-1}``; NaN if R is singular."""
        diagonal = np.diagonal(self.R, axis1=-2, axis2=-1)
        good = diagonal.min(axis=-1) > np.finfo(float).tiny
        inverse = np.linalg.inv(np.where(good[:, None, None], self.R, np.eye(self.R.shape[-1])))
        return np.where(good[:, None, None], inverse, np.nan)

    def split(self) -> Sides:
        """Return (19): ``B^{t+1} R = B - (eta/p) sum (q_i + (Pi_i q_i - q_i) - X_i'xi_i/m) w_i'``, (trials, d, k)."""
        parts = [self.B, -self._averaged(self.Q), -self._concentration, self._averaged(self.noise)]
        return Sides.of(self.B_new @ self.R, *parts)

    def split_outside(self) -> Sides:
        """Return the two sides of (20), which is (19) outside span(B*) and times ``R^{-1}``, (trials, d, k)."""
        parts = [self.B, -self._averaged(self.Q), -self._concentration, self._averaged(self.noise)]
        right = [self._outside(part) @ self._inverse for part in parts]
        sides = Sides.of(self._outside(self.B_new), *right)
        return sides._replace(scale=np.maximum(sides.scale, 1.0))

    def split_in_terms(self) -> Sides:
        """Return the two sides of (21), which is (20) with q_i in the terms of `BoundTerms`, (trials, d, k)."""
        right = [self._outside(part) @ self._inverse for part in self._terms]
        sides = Sides.of(self._outside(self.B_new), *right)
        return sides._replace(scale=np.maximum(sides.scale, 1.0))

    @property
    def _terms(self) -> tuple[Array, Array, Array, Array]:
        """Return the terms of (21) in the order of `BoundTerms`, before projection and normalisation."""
        contraction = self.B - self._averaged(self.W @ self.B.mT)
        return contraction, -self._concentration, self._averaged(self.S_star - self.S), self._averaged(self.noise)

    def bound(self) -> BoundTerms:
        """Return the terms of the bound (22)."""
        inverse = spectral_norm(self._inverse)
        first, second, third, fourth = (spectral_norm(self._outside(term)) * inverse for term in self._terms)
        return BoundTerms(first, second, third, fourth, inverse, spectral_norm(self._outside(self.B_new)))

    def oja(self) -> Sides:
        """Return the gradient of B at population with the joint ridge, and the equal multiple of Oja's, (trials, d, k).

        ``(1/p) sum_i (..) w_i' = -ridge/(1+ridge) (I - B B') (1/p) sum_i phi_i phi_i' B``

        Notes
        -----
        This identity holds for ``Pi_i = I`` without noise (`lf.GivenSamples.population` of an isotropic design) and
        ``lf.ClosedForm(order="joint")``. There ``w_i = B'phi_i`` and ``s_i = (I - B B') phi_i / (1 + ridge)``.
        """
        phi = self._phi
        moment = phi.mT @ (phi @ self.B) / phi.shape[1]
        factor = self.ridge / (1.0 + self.ridge)
        parts = [-factor * moment, factor * self.B @ (self.B.mT @ moment)]
        return Sides.of(self._averaged(self.messages) / self.step_size, *parts)
