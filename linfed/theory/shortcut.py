"""The shortcut draft's equations (7) to (22) over a recorded run, its lemmas, and what its B can learn at population.

What the draft's proof would have to control
--------------------------------------------
The draft stops inside Lemma 2 ("Thus,"). Its last inequality, (22), bounds the new distance by three terms (four with
noise), each times ``||R^{-1}||``. Their sizes, medians of 4 trials; d = 20, k = 2, n = 100, m = 60, eta = 0.3, no
noise, ``||w_i*|| = sqrt 2``, Gaussian s_i* of length 0.7, start at distance 0.5::

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

The bound is tight (median quotient 1.00 to 1.09 in these runs, 1.2 with noise and fresh samples, where ``||R^{-1}||``
reaches 2.1); the first term dominates everywhere. Under (2) to (5):

- The third term is no obstacle: with m >= d and no noise ``s_i* - s_i`` is ``B w_i^t - B* w_i*``, the term ``eta
  ||B*_perp'B mean w_i^t w_i^{t+1}'||``, and of two successive heads one is 0 (`ShortcutRound.head_cycle`).
- The first is: at population R is the triangular factor of ``I - eta Gamma_w``, ``Gamma_w`` the heads' second moment,
  so that ``||B*_perp'B (I - eta Gamma_w)|| ||R^{-1}||`` is never below the old distance. In FedRep ``||R^{-1}||`` is
  near 1 because the heads solve their least squares at the point where B's gradient is taken, ``B'gradient ~ 0``; here
  the shortcut has moved since. No constant mends this: span(B) does not move at population. The heads of fixed samples
  never learn more than in round 1: they alternate between ``w_i^1`` and 0.
- With samples it moves away. In the first round B's gradient has the mean ``(k+1)/m (I - B B')M B`` outside of span(B),
  ``M = mean phi_i phi_i'``: Oja's with the wrong sign, which (22) sees in its second term (`shortcut_repulsion`),
  whether or not there are shortcuts in the truth. The growth of dist in round 1 is 0.045, 0.0071, 0.0017 at m = 10, 60,
  240 with n = 1600; from distance 0.01 (n = 100, m = 60) it reaches 0.4 in 20 rounds and 0.98 in 200. A concentration
  inequality for this term around 0 can thus not be better than order ``k/m`` however many clients there are.
- In gauss-seidel order first and third term add up to the old distance: nothing moves, `ShortcutRound.stall`.

With a ridge or small shortcut steps ``||R^{-1}|| <= 1`` once the heads have settled, the first term contracts, and the
third decides where it ends: where B stands still ``B*_perp'B Gamma_w`` equals ``B*_perp' mean (s_i* - s_i) w_i'``, so
it ends at ``eta lambda_min(Gamma_w) dist`` or more. It falls with the correlation of the s_i* with the heads, about
``n^{-1/2}``: 0.023 at n = 100, 0.006 at n = 1600 (ridge 1 at population, dist 0.068 and 0.019: `top_subspace_distance`;
gradient steps of 0.003 with m = 60: 0.022 and 0.006). A proof must therefore (a) make the shortcut's update leave a
share of ``(I - B B')phi_i`` unexplained, (b) have the heads stationary at the new shortcuts, to hold ``||R^{-1}||``,
(c) assume that the s_i* are uncorrelated with the w_i*, with a floor of order ``||B*_perp' mean s_i* w_i*'|| /
lambda_min(Gamma)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed.algorithms.shortcut import FedRepShortcut
from linfed.errors import check_choice, check_integer, check_number
from linfed.numerics.linalg import orthonormalize, qr_positive, span_distance, spectral_norm, take_clients
from linfed.problems import Truth
from linfed.simulation.loop import Round
from linfed.statistics.findings import Finding, Hypothesis, judge_identity
from linfed.theory._laws import check_gaussian, check_isotropic

IDENTITY_TOLERANCE = 1e-10

READINGS = ("corrected", "printed")
"""The draft's equations with their slips mended, or as they stand."""


class Sides(NamedTuple):
    """The two sides of an identity, of one shape with trials first, and the size of what they are sums of, (trials,).

    `scale` is the largest entry among the summands: rounding is relative to it, also where a side is nearly 0.
    """

    left: Array
    right: Array
    scale: Array

    @property
    def gap(self) -> Array:
        """Largest entry of the difference over `scale`, (trials,)."""
        return np.asarray(_largest(self.left - self.right) / np.maximum(self.scale, np.finfo(float).tiny))


class Blocks(NamedTuple):
    """The matrices of (8): G, C, D (trials, k p, k p) and E (trials, k p, d p); row ``a p + i`` is client i's a-th."""

    G: Array
    C: Array
    D: Array
    E: Array


class BoundTerms(NamedTuple):
    """The terms of (22), each (trials,); the first four carry the factor ``||R^{-1}||``.

    `contraction` is ``||B*_perp' B (I - (eta/p) sum w_i w_i')||``, `concentration` ``(eta/p) ||B*_perp' sum (Pi_i q_i -
    q_i) w_i'||``, `shortcut` ``(eta/p) ||B*_perp' sum (s_i* - s_i) w_i'||``, `noise` ``(eta/p) ||B*_perp' sum
    (X_i'xi_i/m) w_i'||``, all at the new heads and shortcuts. `inverse` is ``||R^{-1}||`` and `distance` the left side,
    ``||B*_perp' B||`` at the new B.
    """

    contraction: Array
    concentration: Array
    shortcut: Array
    noise: Array
    inverse: Array
    distance: Array

    @property
    def bound(self) -> Array:
        """The right side of (22), (trials,)."""
        return np.asarray(self.contraction + self.concentration + self.shortcut + self.noise)


@dataclass(frozen=True, kw_only=True)
class ShortcutRound:
    """One round of the shortcut variant in the draft's symbols; `of` makes it from what `lf.iterate` yields.

    Parameters
    ----------
    step_size, ridge : float
        eta; and the ridge on the shortcut's contribution ``S``.
    order : str
        Of the algorithm: which head the shortcut's least squares sees.
    alive : ndarray of bool (trials,)
        Trials that have not diverged: the equations speak of no others.
    active : ndarray of int (trials, p)
        Participants; every array with an axis p is theirs.
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
        The truth.
    Pi : ndarray (trials, p, d, d)
        ``X_i'X_i / m_i`` (after (11)).
    noise : ndarray (trials, p, d)
        ``X_i'xi_i / m_i``, which the noiseless draft does not have.
    messages : ndarray (trials, p, d)
        ``(1/m_i) X_i'(X_i (B w_i + s_i) - y_i)`` at the new head and shortcut: client i's gradient on B is this times
        ``w_i'``.

    Notes
    -----
    Methods return the two sides of an equation (`Sides`). Those up to (18) hold for the closed-form solver with order
    "jacobi" (7 to 17 also "gauss-seidel") and for no other; (19) to (22) for every solver, order and ridge. All
    hold for any noise and participation; (9) to (17) need ``m_i >= k``, the others no number of samples. Cost of a
    round ``O(p (m d^2 + k d^2))``. The noise's part is what the truth leaves of the labels, ``X_i'y_i/m - Pi_i phi_i``:
    a wrong truth shows in its size on noiseless data, not in the two sides' difference.

    **Deviations**: the draft's ``B*_perp'`` is the projector ``I - B* B*'`` here, of equal norms. The draft is
    noiseless: the noise's term is added. With a ridge (18) has one more term. `mixing` enters through the
    contributions that a state holds. What the draft prints otherwise, and which way it matters:

    - (7), (9), (15) have ``s_i - s_i*`` for ``s_i* - s_i``: (9) is then wrong (``sign="printed"``);
    - ``C_pq`` has ``b_q`` for ``b_q*``, so that C = G: (9) is then wrong;
    - ``D_pq`` sums over i once too often, D is p times too large: (9) holds for every D, but (16) and the smallness of
      ``f_i`` need (13);
    - (12), (13) and Lemma 1 let p and q run to k + d; G and C have k columns (Lemma 2: `extended_gram`);
    - before (21) Q is printed transposed.

    References
    ----------
    Shortcut draft, equations (7) to (22), Lemmas 1 and 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=5, dim=8, rank=2, shortcut_norm=0.5)
    >>> algorithm = lf.FedRepShortcut(rank=2, step_size=0.1, solver="closed-form")
    >>> _, step = lf.iterate(algorithm, problem, data=lf.FreshSamples(20), rounds=1)
    >>> round_ = ShortcutRound.of(step, algorithm, problem.truth(0, range(1)))
    >>> bool(round_.head_update().gap[0] < 1e-12), bool(round_.head_update(sign="printed").gap[0] < 1e-12)
    (True, False)
    """

    step_size: float
    ridge: float
    order: str
    alive: Mask
    active: Indices
    counts: Array
    B: Array
    B_new: Array
    W_old: Array
    W: Array
    S_old: Array
    S: Array
    B_star: Array
    W_star: Array
    S_star: Array
    Pi: Array
    noise: Array
    messages: Array

    @classmethod
    def of(cls, step: Round, algorithm: FedRepShortcut, truth: Truth) -> ShortcutRound:
        """Return a round in the draft's symbols.

        Parameters
        ----------
        step : Round
            Of ``lf.iterate``, under an engine that answers more questions ("explicit" or "compressed"); to be made
            before the next round begins. Not the refit after the last.
        algorithm : FedRepShortcut
            That ran, of one representation step.
        truth : Truth
            Of its trials, with an orthonormal B* of as many columns; a missing S* is 0.

        Raises
        ------
        ValueError
            For several representation steps, or a truth that does not fit.
        """
        before, after, batch = step.before, step.after, step.batch
        assert before.B is not None
        assert after.B is not None
        if algorithm.representation_steps != 1:
            raise ValueError(
                f"representation_steps = {algorithm.representation_steps} must be 1: (4) is one step on B for all"
            )
        if truth.B is None or truth.W is None or truth.B.shape != before.B.shape:
            found = None if truth.B is None else truth.B.shape
            raise ValueError(f"truth has a B* of shape {found}, expected {before.B.shape} as the learned B")
        if np.abs(truth.B.mT @ truth.B - np.eye(truth.B.shape[-1])).max() > IDENTITY_TOLERANCE:
            raise ValueError("truth has a B* that is not orthonormal: the draft's is")
        active = batch.active
        W_star = take_clients(truth.W, active)
        trials, p, _ = W_star.shape
        S_star = np.zeros((trials, p, before.dim)) if truth.S is None else take_clients(truth.S, active)
        W, S = after.of_clients("W", active), after.of_clients("S", active)
        Pi, b = batch.normal_equations()
        scale = 1.0 if algorithm.mixing is None else algorithm.mixing
        return cls(
            step_size=algorithm.step_size,
            ridge=algorithm.ridge / scale**2,
            order=algorithm.order,
            alive=step.alive.copy(),
            active=active.copy(),
            counts=np.array(batch.counts),
            B=before.B,
            B_new=after.B,
            W_old=before.of_clients("W", active),
            W=W,
            S_old=before.of_clients("S", active),
            S=S,
            B_star=truth.B,
            W_star=W_star,
            S_star=S_star,
            Pi=Pi,
            noise=b - _applied(Pi, W_star @ truth.B.mT + S_star),
            messages=np.array(batch.gradient(W @ before.B.mT + S)),
        )

    # --- (10) to (15) -----------------------------------------------------------------------------------------

    @cached_property
    def G(self) -> Array:
        """``G_i = B'Pi_i B``, (trials, p, k, k) (12)."""
        return np.asarray(self.E @ self.B[:, None])

    @cached_property
    def C(self) -> Array:
        """``C_i = B'Pi_i B*``, (trials, p, k, k) (12)."""
        return np.asarray(self.E @ self.B_star[:, None])

    @cached_property
    def D(self) -> Array:
        """``D_i = B'B*``, the same for all i, (trials, k, k) (13)."""
        return np.asarray(self.B.mT @ self.B_star)

    @cached_property
    def E(self) -> Array:
        """``E_i = B'Pi_i``, (trials, p, k, d) (13)."""
        return np.asarray(self.B.mT[:, None] @ self.Pi)

    @cached_property
    def f(self) -> Array:
        """``f_i = G_i^{-1} (G_i D_i - C_i) w_i*``, (trials, p, k) (14)."""
        return self._solve(_applied(self.G @ self.D[:, None] - self.C, self.W_star))

    def h(self, *, sign: str = "corrected") -> Array:
        """Return ``h_i = G_i^{-1} E_i (s_i* - s_i)`` at the old shortcut, (trials, p, k) (15), or as printed."""
        return self._solve(_applied(self.E, self._signed(sign)))

    def _signed(self, sign: str) -> Array:
        """Return ``s_i* - s_i``, or ``s_i - s_i*`` as printed."""
        factor = 1.0 if check_choice("sign", sign, READINGS) == "corrected" else -1.0
        return factor * (self.S_star - self.S_old)

    def _solve(self, right: Array) -> Array:
        """Return ``G_i^{-1} right_i``."""
        k = self.B.shape[-1]
        if self.counts.min() < k:
            raise ValueError(f"a client has {self.counts.min():g} samples, fewer than k = {k}: G_i has no inverse")
        return np.asarray(np.linalg.solve(self.G, right[..., None])[..., 0])

    def blocks(self, *, reading: str = "corrected") -> Blocks:
        """Return the big matrices of (8), whose blocks are diagonal with the entries of (11) to (13).

        Parameters
        ----------
        reading : "corrected" or "printed"
            As printed ``C_pq`` has ``b_q`` for ``b_q*``, and ``D_pq`` a sum over i.

        Notes
        -----
        They hold ``p^2 k (3 k + d)`` numbers a trial: for small cases.
        """
        printed = check_choice("reading", reading, READINGS) == "printed"
        p = self.W.shape[1]
        D = np.broadcast_to(self.D[:, None], self.G.shape)
        return Blocks(
            _spread(self.G), _spread(self.G if printed else self.C), _spread(D * (p if printed else 1)), _spread(self.E)
        )

    # --- heads and shortcuts ----------------------------------------------------------------------------------

    def head_equation(self, *, sign: str = "corrected") -> Sides:
        """Return (7) client by client: ``G_i w_i = C_i w_i* + E_i (s_i* - s_i) + B'X_i'xi_i/m``, (trials, p, k).

        It holds for every number of samples, also below k.
        """
        parts = [
            _applied(self.C, self.W_star),
            _applied(self.E, self._signed(sign)),
            self.noise @ self.B,
        ]
        return _sides(_applied(self.G, self.W), *parts)

    def head_update(self, *, sign: str = "corrected") -> Sides:
        """Return (9), (16), (17): ``w_i = D w_i* - f_i + h_i + G_i^{-1} B'X_i'xi_i/m``, (trials, p, k).

        The inverse costs digits, about ``1e-16 cond(G_i)``: 1e-13 at m = 2 k, but 2e-8 was seen among thousands of
        clients with m = k. (7) says the same without it and keeps 1e-12.
        """
        parts = [self.W_star @ self.D.mT, -self.f, self.h(sign=sign), self._solve(self.noise @ self.B)]
        return _sides(self.W, *parts)

    def shortcut_equation(self, *, head: str = "old") -> Sides:
        """Return (18): ``Pi_i (B w_i + s_i^{t+1}) + ridge s_i^{t+1} = Pi_i phi_i + X_i'xi_i/m``, (trials, p, d).

        Parameters
        ----------
        head : "old" or "new"
            The head in it: ``w_i^t`` as in the draft, or ``w_i^{t+1}`` (orders "gauss-seidel" and "joint").
        """
        W = self.W_old if check_choice("head", head, ("old", "new")) == "old" else self.W
        parts = [_applied(self.Pi, self._phi), self.noise, -_applied(self.Pi, W @ self.B.mT), -self.ridge * self.S]
        return _sides(_applied(self.Pi, self.S), *parts)

    @property
    def _phi(self) -> Array:
        return np.asarray(self.W_star @ self.B_star.mT + self.S_star)

    def stall(self) -> Sides:
        """Return what is left of client i's gradient on B once s_i has solved its least squares, (trials, p, d).

        ``(1/m) X_i'(X_i (B w_i + s_i) - y_i) = (1/m) X_i'Z_i (w_i - w_i^ref) - ridge s_i``, where ``w_i^ref`` is the
        head that the shortcut saw: the new one (gauss-seidel, joint) or the old (jacobi).

        Notes
        -----
        It is (18) subtracted, and needs nothing but the normal equations of s_i: any m, any noise, and for m < d
        whichever of the many solutions is taken (they differ in the null space of X_i, which the gradient does not
        see). Without a ridge neither y_i nor the truth enters but through two successive heads.
        """
        ref = self.W_old if self.order == "jacobi" else self.W
        parts = [_applied(self.Pi, (self.W - ref) @ self.B.mT), -self.ridge * self.S]
        sides = _sides(self.messages, *parts)
        return sides._replace(scale=np.maximum(sides.scale, _largest(_applied(self.Pi, self.S))))

    def head_cycle(self, previous: ShortcutRound) -> Sides:
        """Return the 2-cycle of the heads under (2) and (3): ``w_i^{t+1} = G_i^{-1} B^t'Pi_i B^{t-1} w_i^{t-1}``.

        Parameters
        ----------
        previous : ShortcutRound
            The round before, of the same participants and samples; order "jacobi", no ridge.

        Returns
        -------
        Sides
            (trials, p, k).

        Raises
        ------
        ValueError
            If others took part in the round before.

        Notes
        -----
        ``y_i - X_i s_i^t`` is ``Z_i^{t-1} w_i^{t-1}`` and a residual orthogonal to every column of X_i: fixed samples,
        any m >= k, any noise, population included. Where all take part and start at ``w_i^0 = 0``, every second head is
        0, B stands still in that round, and the cycle is exact from the first round on, while B moves: ``w_i^{t+1} =
        w_i^{t-1}``, the heads are ``w_i^1, 0, w_i^1, 0, ..`` for ever, those of the first least squares at ``B^0``. At
        population the gradient lies in span(B), which never moves. (In general ``w^{t+1} = w^{t-1}`` needs ``B^t =
        B^{t-1}`` itself, not its span alone: QR turns B within it.)
        """
        if not np.array_equal(self.active, previous.active):
            raise ValueError("previous has other participants; the cycle is of clients that take part in both rounds")
        carried = _applied(self.E, previous.W_old @ previous.B.mT)
        sides = _sides(self.W, self._solve(carried))
        return sides._replace(scale=np.maximum(sides.scale, _largest(previous.W)))

    # --- the representation -----------------------------------------------------------------------------------

    @cached_property
    def Q(self) -> Array:
        """``q_i = B w_i^{t+1} - B* w_i* + s_i^{t+1} - s_i*``, (trials, p, d), row i = client i."""
        return np.asarray(self.W @ self.B.mT - self.W_star @ self.B_star.mT + self.S - self.S_star)

    @cached_property
    def B_bar(self) -> Array:
        """B before it is normalised, (trials, d, k) (4), from the clients' gradients."""
        return np.asarray(self.B - self._averaged(self.messages))

    @cached_property
    def R(self) -> Array:
        """The triangular factor of `B_bar`, (trials, k, k) (5)."""
        return qr_positive(self.B_bar)[1]

    def _averaged(self, vectors: Array) -> Array:
        """Return ``(eta/p) sum_i v_i w_i'`` at the new heads, (trials, d, k)."""
        return np.asarray(self.step_size / self.W.shape[1] * (vectors.mT @ self.W))

    def _outside(self, columns: Array) -> Array:
        """Return columns (trials, d, c) without their part in span(B*)."""
        return np.asarray(columns - self.B_star @ (self.B_star.mT @ columns))

    @cached_property
    def _concentration(self) -> Array:
        return self._averaged(_applied(self.Pi, self.Q) - self.Q)

    @cached_property
    def _inverse(self) -> Array:
        """Return ``R^{-1}``; NaN where R is singular."""
        diagonal = np.diagonal(self.R, axis1=-2, axis2=-1)
        good = np.asarray(diagonal.min(axis=-1) > np.finfo(float).tiny)
        inverse = np.linalg.inv(np.where(good[:, None, None], self.R, np.eye(self.R.shape[-1])))
        return np.where(good[:, None, None], inverse, np.nan)

    def split(self) -> Sides:
        """Return (19): ``B^{t+1} R = B - (eta/p) sum (q_i + (Pi_i q_i - q_i) - X_i'xi_i/m) w_i'``, (trials, d, k)."""
        parts = [self.B, -self._averaged(self.Q), -self._concentration, self._averaged(self.noise)]
        return _sides(self.B_new @ self.R, *parts)

    def split_outside(self) -> Sides:
        """Return (20), (19) outside of span(B*) and times ``R^{-1}``, (trials, d, k)."""
        parts = [self.B, -self._averaged(self.Q), -self._concentration, self._averaged(self.noise)]
        right = [self._outside(part) @ self._inverse for part in parts]
        sides = _sides(self._outside(self.B_new), *right)
        return sides._replace(scale=np.maximum(sides.scale, 1.0))

    def split_in_terms(self) -> Sides:
        """Return (21), which is (20) with q_i written out, (trials, d, k); the terms are those of `BoundTerms`."""
        right = [self._outside(part) @ self._inverse for part in self._terms]
        sides = _sides(self._outside(self.B_new), *right)
        return sides._replace(scale=np.maximum(sides.scale, 1.0))

    @property
    def _terms(self) -> tuple[Array, Array, Array, Array]:
        """Return the terms of (21) in the order of `BoundTerms`, before they are projected and normalised."""
        contraction = self.B - self._averaged(self.W @ self.B.mT)
        return contraction, -self._concentration, self._averaged(self.S_star - self.S), self._averaged(self.noise)

    def bound(self) -> BoundTerms:
        """Return the terms of (22)."""
        inverse = spectral_norm(self._inverse)
        first, second, third, fourth = (spectral_norm(self._outside(term)) * inverse for term in self._terms)
        return BoundTerms(first, second, third, fourth, inverse, spectral_norm(self._outside(self.B_new)))

    def oja(self) -> Sides:
        """Return B's gradient at population under the joint ridge, and ``ridge/(1+ridge)`` times Oja's, (trials, d, k).

        ``(1/p) sum_i (..) w_i' = -ridge/(1+ridge) (I - B B') (1/p) sum_i phi_i phi_i' B``

        Notes
        -----
        An identity for ``Pi_i = I`` without noise (`lf.GivenSamples.population` of an isotropic design), solver
        "closed-form", order "joint". There ``w_i = B'phi_i`` and ``s_i = (I - B B') phi_i / (1 + ridge)``.
        """
        phi = self._phi
        moment = phi.mT @ (phi @ self.B) / phi.shape[1]
        factor = self.ridge / (1.0 + self.ridge)
        parts = [-factor * moment, factor * self.B @ (self.B.mT @ moment)]
        return _sides(self._averaged(self.messages) / self.step_size, *parts)

    # --- the lemmas -------------------------------------------------------------------------------------------

    def smallest_eigenvalues(self) -> Sides:
        """Return Lemma 1, which is an equality: ``sigma_min(G)`` of the big matrix, and ``min_i sigma_min(G_i)``."""
        big, own = np.linalg.svd(self.blocks().G, compute_uv=False), np.linalg.svd(self.G, compute_uv=False)
        return Sides(np.asarray(big[..., -1]), np.asarray(own[..., -1].min(axis=-1)), np.asarray(big[..., 0]))

    def extended_gram(self, mixing: float) -> Array:
        """Return Lemma 2's ``G_i = B~'Pi_i B~`` of ``B~ = [(1 - alpha) B, alpha I]``, (trials, p, k + d, k + d).

        Its rank is at most d (and at most m_i): it has no inverse, whatever the samples, and with it neither have the
        f_i of (14) at that size nor the q_i at which the draft stops.
        """
        mixing = check_number("mixing", mixing, minimum=0.0, maximum=1.0)
        trials, d, _ = self.B.shape
        extended = np.concatenate(
            [(1.0 - mixing) * self.B, np.broadcast_to(mixing * np.eye(d), (trials, d, d))], axis=-1
        )
        return np.asarray(extended.mT[:, None] @ self.Pi @ extended[:, None])


def _applied(matrices: Array, vectors: Array) -> Array:
    """Return ``M_i v_i``, (trials, p, a), for matrices (trials, p, a, b) and vectors (trials, p, b)."""
    return np.asarray((matrices @ vectors[..., None])[..., 0])


def _largest(values: Array) -> Array:
    """Return the largest absolute entry of each trial, (trials,)."""
    return np.asarray(np.abs(values).reshape(len(values), -1).max(axis=-1))


def _sides(left: Array, *parts: Array) -> Sides:
    """Return an identity whose right side is a sum."""
    return Sides(left, np.asarray(sum(parts)), np.max([_largest(part) for part in (left, *parts)], axis=0))


def _spread(values: Array) -> Array:
    """Return (trials, a p, b p) whose block (a, b) is diagonal with the entries of values (trials, p, a, b)."""
    trials, p, rows, columns = values.shape
    big = np.zeros((trials, rows, p, columns, p))
    clients = np.arange(p)
    big[:, :, clients, :, clients] = np.moveaxis(values, 1, 0)
    return big.reshape(trials, rows * p, columns * p)


# --- a run ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ShortcutTrace:
    """The terms of (22) round by round.

    Parameters
    ----------
    rounds : ndarray of int (R,)
        Recorded rounds.
    distance : ndarray (trials, R)
        ``dist(B, B*)`` after the round.
    contraction, concentration, shortcut, noise : ndarray (trials, R)
        The terms of (22), each with its factor ``||R^{-1}||`` (`BoundTerms`).
    inverse : ndarray (trials, R)
        ``||R^{-1}||``.
    identity : ndarray (trials, R)
        Largest of the relative differences of the two sides of (19), (20) and (21).

    Notes
    -----
    NaN from a trial's divergence on.
    """

    rounds: Indices
    distance: Array
    contraction: Array
    concentration: Array
    shortcut: Array
    noise: Array
    inverse: Array
    identity: Array

    @property
    def bound(self) -> Array:
        """The right side of (22), (trials, R)."""
        return np.asarray(self.contraction + self.concentration + self.shortcut + self.noise)


def shortcut_trace(steps: Iterable[Round], algorithm: FedRepShortcut, truth: Truth, *, every: int = 1) -> ShortcutTrace:
    """Return the terms of (22) over a run.

    Parameters
    ----------
    steps : iterable of Round
        E.g. ``lf.iterate(algorithm, problem, ...)``, of at least one round after the initial state.
    algorithm : FedRepShortcut
        That ran: any solver, order and ridge, one representation step, no refit.
    truth : Truth
        Of its trials.
    every : int
        Record every so many rounds.

    Raises
    ------
    ValueError
        For an algorithm that refits, no recorded round, or as in `ShortcutRound.of`.

    References
    ----------
    Shortcut draft, equations (19) to (22).
    """
    if algorithm.refit:
        raise ValueError("algorithm has refit = True: its last round leaves B as it is; give it with refit = False")
    every = check_integer("every", every)
    rounds: list[int] = []
    columns: list[dict[str, Array]] = []
    for step in steps:
        if step.number == 0 or step.number % every:
            continue
        seen = ShortcutRound.of(step, algorithm, truth)
        gaps = [seen.split().gap, seen.split_outside().gap, seen.split_in_terms().gap]
        values = {**seen.bound()._asdict(), "identity": np.max(gaps, axis=0)}
        rounds.append(step.number)
        columns.append({name: np.where(step.alive, value, np.nan) for name, value in values.items()})
    if not columns:
        raise ValueError(f"steps holds no round that every = {every} records; give at least one")
    return ShortcutTrace(
        rounds=np.array(rounds), **{name: np.stack([column[name] for column in columns], axis=1) for name in columns[0]}
    )


def judge_split(trace: ShortcutTrace, where: str) -> Finding:
    """Judge (19) to (21): identities, to 1e-10 in every recorded round of every trial."""
    return judge_identity(
        trace.identity,
        tolerance=IDENTITY_TOLERANCE,
        text="The split (19) to (21) of B is an identity",
        where=where,
        statistic="largest relative difference of the two sides",
        source="shortcut draft, equations (19) to (21)",
    )


def judge_bound(trace: ShortcutTrace, where: str) -> Finding:
    """Judge (22), an inequality without chance: it holds in every recorded round of every trial.

    VACUOUS where the sum of its terms never falls below 1, which dist cannot exceed.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = trace.distance / trace.bound - 1.0
        excess = np.where(trace.distance <= trace.bound + 1e-14, np.minimum(excess, 0.0), excess)
        says = trace.bound < 1.0
    return judge_identity(
        excess,
        tolerance=IDENTITY_TOLERANCE,
        text="dist stays below the sum of its terms (22)",
        where=where,
        statistic="dist over the sum of the terms, less 1, the worst round",
        source="shortcut draft, equation (22)",
        vacuous="" if says.any() else "the sum is nowhere below 1",
    )


# --- population -----------------------------------------------------------------------------------------------


def top_subspace_distance(truth: Truth, rank: int) -> Array:
    """Return how far span(B*) is from the top-k left singular subspace of ``Phi* = B* W*' + S*'``.

    Parameters
    ----------
    truth : Truth
        Of isotropic x.
    rank : int
        k.

    Returns
    -------
    ndarray (trials,)
        The subspace distance that the ridge leaves at population: its B follows Oja's rule (`ShortcutRound.oja`), which
        converges to that subspace where there is a gap after the k-th singular value.

    Raises
    ------
    ValueError
        For a truth without a shared part, or under a covariance of x that is not a multiple of the identity.

    Notes
    -----
    With ``M = (1/n) sum phi_i phi_i'`` it is 0 iff ``B*_perp'M B* = 0`` and ``lambda_min(B*'M B*) >
    lambda_max(B*_perp'M B*_perp)``. Where ``B*'S* = 0`` these are: the s_i* are uncorrelated with the w_i*, and
    `shortcut_spectrum_hypothesis`. Isotropic s_i* need less: they raise all eigenvalues alike, and any Gamma of full
    rank will do as n -> infinity.

    **Deviations**: an addition; the draft does not say what B converges to.

    References
    ----------
    Shortcut draft, problem (1).
    """
    if truth.B is None or truth.W is None:
        raise ValueError("truth has no shared part B* W*'")
    check_isotropic(truth, "what the ridge leaves at population is known")
    top = truth.truncated(check_integer("rank", rank)).B
    assert top is not None
    return span_distance(orthonormalize(truth.B), top)


def shortcut_spectrum_hypothesis(truth: Truth) -> Hypothesis:
    """Return the condition under which shortcuts outside of span(B*) do not hide it.

    Parameters
    ----------
    truth : Truth
        With shared part and shortcuts, of isotropic x.

    Returns
    -------
    Hypothesis
        ``lambda_max((1/n) sum s_i* s_i*') <= lambda_min((1/n) sum w_i* w_i*')``, of the trial that is nearest to
        failing by their quotient; strictly for a unique top subspace.

    Raises
    ------
    ValueError
        For a truth without one of the parts, or under a covariance of x that is not a multiple of the identity.

    Notes
    -----
    Together with ``B*'S* = 0`` and ``sum s_i* w_i*' = 0`` it says that span(B*) is the top-k subspace of Phi*
    (`top_subspace_distance`); by itself it implies nothing exact, and without ``B*'S* = 0`` it is not necessary.

    **Deviations**: an addition of this project.

    References
    ----------
    Shortcut draft, problem (1).
    """
    if truth.B is None or truth.W is None or truth.S is None:
        raise ValueError("truth must have a shared part and shortcuts")
    check_isotropic(truth, "the condition is one")
    heads = truth.W @ qr_positive(truth.B)[1].mT  # B* W*' in orthonormal coordinates
    n = truth.S.shape[1]
    least = np.linalg.svd(heads, compute_uv=False)
    left = np.linalg.norm(truth.S, ord=2, axis=(-2, -1)) ** 2 / n
    right = least[..., -1] ** 2 / n if n >= heads.shape[-1] else np.zeros(len(left))
    nearest = int(np.argmax(left / np.maximum(right, np.finfo(float).tiny)))
    return Hypothesis(
        text="lambda_max(mean s_i* s_i*') <= lambda_min(Gamma)", left=float(left[nearest]), right=float(right[nearest])
    )


def shortcut_repulsion(truth: Truth, B: Array, n_samples: int) -> Array:
    """Return the mean of B's first gradient under (2) to (4) outside of span(B): it drives B away from the truth.

    Parameters
    ----------
    truth : Truth
        Of standard Gaussian x.
    B : ndarray (trials, d, k)
        Orthonormal, independent of the samples.
    n_samples : int
        m, at least k + 2 (below, the gradient's variance is infinite).

    Returns
    -------
    ndarray (trials, d, k)
        ``((k + 1)/m) (I - B B') (1/n) sum phi_i phi_i' B``: minus Oja's gradient, to a factor.

    Raises
    ------
    ValueError
        For fewer samples than k + 2, B of another shape, or another law of x: a covariance, or signs for Gaussians,
        change the mean by its own size.

    Notes
    -----
    From ``w_i = s_i = 0`` client i's gradient is ``(1/m) X_i'Z_i w_i w_i'`` (`ShortcutRound.stall`), with ``w_i =
    B'phi_i + Z_i^+ u_i`` and ``u_i = X_i (I - B B')phi_i + xi_i`` independent of Z_i. Outside of span(B) two products
    have a mean: ``X_perp'P_Z u_i (B'phi_i)'`` gives k, ``X_perp'Z_i B'phi_i (Z_i^+ u_i)'`` gives 1, both times ``(I - B
    B')phi_i (B'phi_i)'/m``. Exact for x ~ N(0, I), any noise, any m >= k + 2, also below d. In later rounds the samples
    are no longer independent of B.

    **Deviations**: an addition.

    References
    ----------
    Shortcut draft, equations (2) to (4).
    """
    check_gaussian(truth, "the mean of the gradient is known")
    trials, d, k = B.shape
    if check_integer("n_samples", n_samples) < k + 2:
        raise ValueError(f"n_samples = {n_samples} must be at least k + 2 = {k + 2}")
    phi = truth.dense()
    if (trials, d) != (len(phi), phi.shape[-1]):
        raise ValueError(f"B has shape {B.shape}, expected ({len(phi)}, {phi.shape[-1]}, k) as the truth")
    moment = phi.mT @ (phi @ B) / phi.shape[1]
    return np.asarray((k + 1.0) / n_samples * (moment - B @ (B.mT @ moment)))
