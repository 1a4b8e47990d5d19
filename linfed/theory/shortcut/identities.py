"""The shortcut draft's equations (7) to (18) and its lemmas, as identities over a recorded round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed.algorithms.shortcut import FedRepShortcut
from linfed.errors import check_choice, check_number
from linfed.numerics.linalg import singular_values, take_clients
from linfed.problems import Truth
from linfed.simulation.loop import Round

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

    @classmethod
    def of(cls, left: Array, *parts: Array) -> Self:
        """Return an identity whose right side is a sum."""
        return cls(left, np.asarray(sum(parts)), np.max([largest(part) for part in (left, *parts)], axis=0))

    @property
    def gap(self) -> Array:
        """Largest entry of the difference over `scale`, (trials,)."""
        return largest(self.left - self.right) / np.maximum(self.scale, np.finfo(float).tiny)


class Blocks(NamedTuple):
    """The matrices of (8): G, C, D (trials, k p, k p) and E (trials, k p, d p); row ``a p + i`` is client i's a-th."""

    G: Array
    C: Array
    D: Array
    E: Array


@dataclass(frozen=True, kw_only=True)
class RecordedRound:
    """A round of the shortcut variant in the draft's symbols, its equations up to (18) and Lemmas 1 and 2.

    Parameters and notes are those of `linfed.theory.ShortcutRound`, which adds what (19) to (22) say.
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
    def of(cls, step: Round, algorithm: FedRepShortcut, truth: Truth) -> Self:
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
            step_size=algorithm.step_in(batch),
            ridge=algorithm.ridge / scale**2,
            order=algorithm.solver.order,
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
            noise=b - applied(Pi, W_star @ truth.B.mT + S_star),
            messages=np.array(batch.gradient(W @ before.B.mT + S)),
        )

    # --- (10) to (15) -----------------------------------------------------------------------------------------

    @cached_property
    def G(self) -> Array:
        """``G_i = B'Pi_i B``, (trials, p, k, k) (12)."""
        return self.E @ self.B[:, None]

    @cached_property
    def C(self) -> Array:
        """``C_i = B'Pi_i B*``, (trials, p, k, k) (12)."""
        return self.E @ self.B_star[:, None]

    @cached_property
    def D(self) -> Array:
        """``D_i = B'B*``, the same for all i, (trials, k, k) (13)."""
        return self.B.mT @ self.B_star

    @cached_property
    def E(self) -> Array:
        """``E_i = B'Pi_i``, (trials, p, k, d) (13)."""
        return self.B.mT[:, None] @ self.Pi

    @cached_property
    def f(self) -> Array:
        """``f_i = G_i^{-1} (G_i D_i - C_i) w_i*``, (trials, p, k) (14)."""
        return self._solve(applied(self.G @ self.D[:, None] - self.C, self.W_star))

    def h(self, *, sign: str = "corrected") -> Array:
        """Return ``h_i = G_i^{-1} E_i (s_i* - s_i)`` at the old shortcut, (trials, p, k) (15), or as printed."""
        return self._solve(applied(self.E, self._signed(sign)))

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
            spread(self.G), spread(self.G if printed else self.C), spread(D * (p if printed else 1)), spread(self.E)
        )

    # --- heads and shortcuts ----------------------------------------------------------------------------------

    def head_equation(self, *, sign: str = "corrected") -> Sides:
        """Return (7) client by client: ``G_i w_i = C_i w_i* + E_i (s_i* - s_i) + B'X_i'xi_i/m``, (trials, p, k).

        It holds for every number of samples, also below k.
        """
        parts = [
            applied(self.C, self.W_star),
            applied(self.E, self._signed(sign)),
            self.noise @ self.B,
        ]
        return Sides.of(applied(self.G, self.W), *parts)

    def head_update(self, *, sign: str = "corrected") -> Sides:
        """Return (9), (16), (17): ``w_i = D w_i* - f_i + h_i + G_i^{-1} B'X_i'xi_i/m``, (trials, p, k).

        The inverse costs digits, about ``1e-16 cond(G_i)``: 1e-13 at m = 2 k, but 2e-8 was seen among thousands of
        clients with m = k. (7) says the same without it and keeps 1e-12.
        """
        parts = [self.W_star @ self.D.mT, -self.f, self.h(sign=sign), self._solve(self.noise @ self.B)]
        return Sides.of(self.W, *parts)

    def shortcut_equation(self, *, head: str = "old") -> Sides:
        """Return (18): ``Pi_i (B w_i + s_i^{t+1}) + ridge s_i^{t+1} = Pi_i phi_i + X_i'xi_i/m``, (trials, p, d).

        Parameters
        ----------
        head : "old" or "new"
            The head in it: ``w_i^t`` as in the draft, or ``w_i^{t+1}`` (orders "gauss-seidel" and "joint").
        """
        W = self.W_old if check_choice("head", head, ("old", "new")) == "old" else self.W
        parts = [applied(self.Pi, self._phi), self.noise, -applied(self.Pi, W @ self.B.mT), -self.ridge * self.S]
        return Sides.of(applied(self.Pi, self.S), *parts)

    @property
    def _phi(self) -> Array:
        return self.W_star @ self.B_star.mT + self.S_star

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
        parts = [applied(self.Pi, (self.W - ref) @ self.B.mT), -self.ridge * self.S]
        sides = Sides.of(self.messages, *parts)
        return sides._replace(scale=np.maximum(sides.scale, largest(applied(self.Pi, self.S))))

    def head_cycle(self, previous: RecordedRound) -> Sides:
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
        carried = applied(self.E, previous.W_old @ previous.B.mT)
        sides = Sides.of(self.W, self._solve(carried))
        return sides._replace(scale=np.maximum(sides.scale, largest(previous.W)))

    # --- the lemmas -------------------------------------------------------------------------------------------

    def smallest_eigenvalues(self) -> Sides:
        """Return Lemma 1, which is an equality: ``sigma_min(G)`` of the big matrix, and ``min_i sigma_min(G_i)``."""
        big, own = singular_values(self.blocks().G), singular_values(self.G)
        return Sides(big[..., -1], own[..., -1].min(axis=-1), big[..., 0])

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
        return extended.mT[:, None] @ self.Pi @ extended[:, None]


def applied(matrices: Array, vectors: Array) -> Array:
    """Return ``M_i v_i``, (trials, p, a), for matrices (trials, p, a, b) and vectors (trials, p, b)."""
    return (matrices @ vectors[..., None])[..., 0]


def largest(values: Array) -> Array:
    """Return the largest absolute entry of each trial, (trials,)."""
    return np.abs(values).reshape(len(values), -1).max(axis=-1)


def spread(values: Array) -> Array:
    """Return (trials, a p, b p) whose block (a, b) is diagonal with the entries of values (trials, p, a, b)."""
    trials, p, rows, columns = values.shape
    big = np.zeros((trials, rows, p, columns, p))
    clients = np.arange(p)
    big[:, :, clients, :, clients] = np.moveaxis(values, 1, 0)
    return big.reshape(trials, rows * p, columns * p)
