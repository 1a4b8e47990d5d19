"""Equations (7) to (18) and Lemmas 1 and 2 of the shortcut draft, as identities for a recorded round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed.algorithms.representation.shortcut import FedRepShortcut
from linfed.checks import check_choice, check_number
from linfed.numerics.linalg import singular_values, take_clients
from linfed.problems import Truth
from linfed.simulation.loop import Round

IDENTITY_TOLERANCE = 1e-10

READINGS = ("corrected", "printed")
"""Versions of the draft's equations: with corrections, or as printed."""


class Sides(NamedTuple):
    """Two sides of an identity, with equal shapes and trials first, and the size of their summands, (trials,).

    `scale` is the largest entry of the summands. Rounding errors are relative to it, even if a side is nearly 0.
    """

    left: Array
    right: Array
    scale: Array

    @classmethod
    def of(cls, left: Array, *parts: Array) -> Self:
        """Return an identity whose right side is the sum of `parts`."""
        return cls(left, np.asarray(sum(parts)), np.max([largest(part) for part in (left, *parts)], axis=0))

    @property
    def gap(self) -> Array:
        """Largest entry of the difference divided by `scale`, (trials,)."""
        return largest(self.left - self.right) / np.maximum(self.scale, np.finfo(float).tiny)


class Blocks(NamedTuple):
    """Matrices of (8): G, C, D (trials, k p, k p), E (trials, k p, d p). Row ``a p + i`` is row a of client i."""

    G: Array
    C: Array
    D: Array
    E: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedRound:
    """One round of the shortcut variant in the draft's notation, with equations up to (18) and Lemmas 1 and 2.

    See `linfed.theory.ShortcutRound`, which adds (19) to (22), for parameters and notes.
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
        """Create a round in the draft's notation from a step of `lf.iterate`.

        Parameters
        ----------
        step : Round
            Step of ``lf.iterate`` with engine "explicit" or "compressed", used before the next round starts. The refit
            after the last round is not supported.
        algorithm : FedRepShortcut
            Algorithm of the run, with one representation step.
        truth : Truth
            Ground truth of the trials. Its B* is orthonormal and has as many columns as B; a missing S* is 0.

        Raises
        ------
        ValueError
            If there are several representation steps, or if the ground truth does not match.
        """
        before, after, batch = step.before, step.after, step.batch
        assert before.B is not None
        assert after.B is not None
        if algorithm.representation_steps != 1:
            raise ValueError(
                f"representation_steps = {algorithm.representation_steps} must be 1: equation (4) is one step on B"
            )
        if truth.B is None or truth.W is None or truth.B.shape != before.B.shape:
            found = None if truth.B is None else truth.B.shape
            raise ValueError(f"truth has a B* of shape {found}; it must have shape {before.B.shape}, as the learned B")
        if np.abs(truth.B.mT @ truth.B - np.eye(truth.B.shape[-1])).max() > IDENTITY_TOLERANCE:
            raise ValueError("truth has a B* that is not orthonormal; the draft requires it")
        active = batch.active
        W_star = take_clients(truth.W, active)
        trials, p, _ = W_star.shape
        S_star = np.zeros((trials, p, before.dim)) if truth.S is None else take_clients(truth.S, active)
        W, S = after.take_clients("W", active), after.take_clients("S", active)
        Pi, b = batch.normal_equations()
        scale = 1.0 if algorithm.mixing is None else algorithm.mixing
        return cls(
            step_size=algorithm.step_in(batch),
            ridge=algorithm.ridge_in(batch) / scale**2,
            order=algorithm.solver.order,
            alive=step.alive.copy(),
            active=active.copy(),
            counts=np.array(batch.counts),
            B=before.B,
            B_new=after.B,
            W_old=before.take_clients("W", active),
            W=W,
            S_old=before.take_clients("S", active),
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
        """Return ``h_i = G_i^{-1} E_i (s_i* - s_i)`` at the old shortcut (15), (trials, p, k), or as printed."""
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
        """Return the matrices of (8), whose blocks are diagonal with the entries of (11) to (13).

        Parameters
        ----------
        reading : "corrected" or "printed"
            In the printed version, ``C_pq`` has ``b_q`` instead of ``b_q*``, and ``D_pq`` has a sum over i.

        Notes
        -----
        The matrices have ``p^2 k (3 k + d)`` entries per trial, so use them only for small p.
        """
        printed = check_choice("reading", reading, READINGS) == "printed"
        p = self.W.shape[1]
        D = np.broadcast_to(self.D[:, None], self.G.shape)
        return Blocks(
            spread(self.G), spread(self.G if printed else self.C), spread(D * (p if printed else 1)), spread(self.E)
        )

    # --- heads and shortcuts ----------------------------------------------------------------------------------

    def head_equation(self, *, sign: str = "corrected") -> Sides:
        """Return the two sides of (7) for each client, (trials, p, k).

        ``G_i w_i = C_i w_i* + E_i (s_i* - s_i) + B'X_i'xi_i/m``

        The identity holds for any number of samples, even below k.
        """
        parts = [
            applied(self.C, self.W_star),
            applied(self.E, self._signed(sign)),
            self.noise @ self.B,
        ]
        return Sides.of(applied(self.G, self.W), *parts)

    def head_update(self, *, sign: str = "corrected") -> Sides:
        """Return the two sides of (9), (16), (17), (trials, p, k).

        ``w_i = D w_i* - f_i + h_i + G_i^{-1} B'X_i'xi_i/m``

        The inverse loses digits, about ``1e-16 cond(G_i)``: the error is 1e-13 at m = 2 k, and up to 2e-8 among
        thousands of clients with m = k. The equivalent (7) has no inverse and keeps 1e-12.
        """
        parts = [self.W_star @ self.D.mT, -self.f, self.h(sign=sign), self._solve(self.noise @ self.B)]
        return Sides.of(self.W, *parts)

    def shortcut_equation(self, *, head: str = "old") -> Sides:
        """Return the two sides of (18), (trials, p, d).

        ``Pi_i (B w_i + s_i^{t+1}) + ridge s_i^{t+1} = Pi_i phi_i + X_i'xi_i/m``

        Parameters
        ----------
        head : "old" or "new"
            Head in the equation: ``w_i^t`` as in the draft, or ``w_i^{t+1}`` (orders "gauss-seidel" and "joint").
        """
        W = self.W_old if check_choice("head", head, ("old", "new")) == "old" else self.W
        parts = [applied(self.Pi, self._phi), self.noise, -applied(self.Pi, W @ self.B.mT), -self.ridge * self.S]
        return Sides.of(applied(self.Pi, self.S), *parts)

    @property
    def _phi(self) -> Array:
        return self.W_star @ self.B_star.mT + self.S_star

    def stall(self) -> Sides:
        """Return each client's gradient with respect to B after s_i has solved its least squares, (trials, p, d).

        ``(1/m) X_i'(X_i (B w_i + s_i) - y_i) = (1/m) X_i'Z_i (w_i - w_i^ref) - ridge s_i``, where ``w_i^ref`` is the
        head in the shortcut's least squares: the new one (gauss-seidel, joint) or the old one (jacobi).

        Notes
        -----
        The identity follows from (18) and the normal equations of s_i. It holds for any m and any noise, and if m < d
        for each of the many solutions, which differ only in the null space of X_i. Without a ridge, y_i and the ground
        truth enter only through two successive heads.
        """
        ref = self.W_old if self.order == "jacobi" else self.W
        parts = [applied(self.Pi, (self.W - ref) @ self.B.mT), -self.ridge * self.S]
        sides = Sides.of(self.messages, *parts)
        return sides._replace(scale=np.maximum(sides.scale, largest(applied(self.Pi, self.S))))

    def head_cycle(self, previous: RecordedRound) -> Sides:
        """Return the two sides of the 2-cycle of the heads under (2) and (3).

        ``w_i^{t+1} = G_i^{-1} B^t'Pi_i B^{t-1} w_i^{t-1}``

        Parameters
        ----------
        previous : ShortcutRound
            Previous round, with equal participants and samples, order "jacobi" and no ridge.

        Returns
        -------
        Sides
            Shape (trials, p, k).

        Raises
        ------
        ValueError
            If the participants of the previous round differ.

        Notes
        -----
        ``y_i - X_i s_i^t`` is the sum of ``Z_i^{t-1} w_i^{t-1}`` and a residual orthogonal to every column of X_i. The
        identity holds for fixed samples, any m >= k and any noise, and at population. With full participation and
        initial heads ``w_i^0 = 0``, every second head is 0, and B does not move in these rounds. The cycle
        ``w_i^{t+1} = w_i^{t-1}`` is then exact from the first round on although B moves: the heads are
        ``w_i^1, 0, w_i^1, 0, ..``, where ``w_i^1`` solves the first least squares at ``B^0``. At population the
        gradient lies in span(B), which never moves. (In general ``w^{t+1} = w^{t-1}`` requires ``B^t = B^{t-1}``, not
        only equal spans, since QR rotates B within its span.)
        """
        if not np.array_equal(self.active, previous.active):
            raise ValueError("previous has other participants; head_cycle requires equal participants in both rounds")
        carried = applied(self.E, previous.W_old @ previous.B.mT)
        sides = Sides.of(self.W, self._solve(carried))
        return sides._replace(scale=np.maximum(sides.scale, largest(previous.W)))

    # --- the lemmas -------------------------------------------------------------------------------------------

    def smallest_eigenvalues(self) -> Sides:
        """Return the sides of Lemma 1, an equality: ``sigma_min(G)`` of G in (8), and ``min_i sigma_min(G_i)``."""
        big, block_values = singular_values(self.blocks().G), singular_values(self.G)
        return Sides(big[..., -1], block_values[..., -1].min(axis=-1), big[..., 0])

    def extended_gram(self, mixing: float) -> Array:
        """Return ``G_i = B~'Pi_i B~`` of Lemma 2 with ``B~ = [(1 - alpha) B, alpha I]``, (trials, p, k + d, k + d).

        Its rank is at most min(d, m_i), so it has no inverse for any samples. Hence the f_i of (14) do not exist at
        that size, and neither do the q_i at which the draft ends.
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
    """Return a matrix (trials, a p, b p) whose block (a, b) is diagonal with the entries ``values[:, :, a, b]``."""
    trials, p, rows, columns = values.shape
    big = np.zeros((trials, rows, p, columns, p))
    clients = np.arange(p)
    big[:, :, clients, :, clients] = np.moveaxis(values, 1, 0)
    return big.reshape(trials, rows * p, columns * p)
