"""What a round does to a client's head and shortcut at the shared representation, in `FedRepShortcut`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Literal

from linfed._types import Array
from linfed._values import Configuration, check_fields, one_of, optional, positive
from linfed.algorithms.heads import descended
from linfed.data.batch import Batch
from linfed.errors import check_integer
from linfed.numerics.least_squares import joint_ridge


class Solver(Configuration, ABC):
    """How head and shortcut are found: base of `GradientSteps` and `ClosedForm`."""

    order: str
    """Which head the shortcut's update sees."""

    @abstractmethod
    def solve(
        self, batch: Batch, B: Array, W: Array, S: Array, *, ridge: float, step_size: float, scales: tuple[float, float]
    ) -> tuple[Array, Array]:
        """Return the participants' new contributions to the predictor ``B w_i + s_i``.

        Parameters
        ----------
        batch : Batch
        B : ndarray (T, d, k)
        W : ndarray (T, p, k)
            Last contributions of the heads.
        S : ndarray (T, p, d)
            Last contributions of the shortcuts.
        ridge : float
            Adds ``(ridge / 2) ||s_i||^2`` to each client's loss.
        step_size : float
            The algorithm's own step.
        scales : tuple of float
            Factors of head and shortcut in the predictor; steps are scaled by their squares.
        """


@dataclass(frozen=True, kw_only=True)
class GradientSteps(Solver):
    """Full-gradient steps on the head, and on the shortcut: the draft's Algorithm 1.

    Parameters
    ----------
    head_steps, shortcut_steps : int, default 1
        Steps on the head, and on the shortcut (0 leaves it where it is).
    head_step_size, shortcut_step_size : float, optional
        Their sizes; the algorithm's own `step_size` by default, as in Algorithm 1.
    order : "jacobi" or "gauss-seidel"
        What the shortcut's steps see: the head from before the round (the draft's line 13), or the new one.

    Raises
    ------
    ValueError
        For values out of range, unknown names.

    Notes
    -----
    With ``f_i(w, s) = (1/2m) ||X_i (B w + s) - y_i||^2``, from the last head and shortcut (order "jacobi")::

        head_steps times       w <- w - alpha_w grad_w f_i(w, s_i)
        shortcut_steps times   s <- s - alpha_s (grad_s f_i(w_i, s) + ridge s)

    Cost ``O(p m d)`` a step.

    **Deviations**: the order "gauss-seidel" is an addition.

    References
    ----------
    Shortcut draft, Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.FedRepShortcut(rank=2, step_size=0.3, solver=lf.GradientSteps(shortcut_step_size=0.01)).solver.head_steps
    1
    """

    head_steps: int = 1
    head_step_size: float | None = None
    shortcut_steps: int = 1
    shortcut_step_size: float | None = None
    order: Literal["jacobi", "gauss-seidel"] = "jacobi"

    def __post_init__(self) -> None:
        check_fields(
            self,
            head_steps=check_integer,
            head_step_size=optional(positive),
            shortcut_steps=partial(check_integer, minimum=0),
            shortcut_step_size=optional(positive),
            order=one_of("jacobi", "gauss-seidel"),
        )

    def solve(
        self, batch: Batch, B: Array, W: Array, S: Array, *, ridge: float, step_size: float, scales: tuple[float, float]
    ) -> tuple[Array, Array]:
        """Return head and shortcut after their gradient steps."""
        head_step = scales[0] ** 2 * (step_size if self.head_step_size is None else self.head_step_size)
        step = scales[1] ** 2 * (step_size if self.shortcut_step_size is None else self.shortcut_step_size)
        new_W = descended(batch.shifted(S).project(B), W, head_step, self.head_steps).W
        if self.shortcut_steps:
            rest = batch.shifted((new_W if self.order == "gauss-seidel" else W) @ B.mT)
            for _ in range(self.shortcut_steps):
                S = S - step * (rest.gradient(S) + ridge * S)
        return new_W, S


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Solver):
    """Least squares for the head, and for the shortcut: the draft's (2) and (3).

    Parameters
    ----------
    order : "jacobi", "gauss-seidel" or "joint"
        What the shortcut's least squares see: the head from before the round (the draft's (3)), or the new one; "joint"
        minimises over head and shortcut together, and needs the algorithm's `ridge`.

    Raises
    ------
    ValueError
        For an unknown name.

    Notes
    -----
    With ``Z_i = X_i B`` and everything on the right at its last values (order "jacobi")::

        w_i <- argmin_w (1/2m) ||Z_i w + X_i s_i - y_i||^2                                   (2)
        s_i <- argmin_s (1/2m) ||Z_i w_i + X_i s - y_i||^2 + (ridge/2) ||s||^2               (3)

    Solutions are of minimum norm where they are not unique. Cost ``O(p (m d^2 + d^3))``.

    **Deviations**: the ridge and the orders but "jacobi" are additions.

    References
    ----------
    Shortcut draft, (2) and (3).

    Examples
    --------
    >>> import linfed as lf
    >>> lf.FedRepShortcut(rank=2, step_size=0.3, solver=lf.ClosedForm(order="joint"), ridge=0.1).solver
    ClosedForm(order='joint')
    """

    order: Literal["jacobi", "gauss-seidel", "joint"] = "jacobi"

    def __post_init__(self) -> None:
        check_fields(self, order=one_of("jacobi", "gauss-seidel", "joint"))

    def solve(
        self, batch: Batch, B: Array, W: Array, S: Array, *, ridge: float, step_size: float, scales: tuple[float, float]
    ) -> tuple[Array, Array]:
        """Return head and shortcut by least squares."""
        if self.order == "joint":
            return joint_ridge(*batch.normal_equations(), B, ridge)
        new_W = batch.shifted(S).project(B).fit().W
        seen = new_W if self.order == "gauss-seidel" else W
        return new_W, batch.shifted(seen @ B.mT).least_squares(ridge)
