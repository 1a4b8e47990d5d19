"""Solvers for a client's head and shortcut in a round of `FedRepShortcut`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Literal

from linfed._types import Array
from linfed._values import Configuration, check_fields, one_of, optional, positive
from linfed.algorithms.parts.heads import gradient_descent
from linfed.checks import check_integer
from linfed.data.batch import Batch


class Solver(Configuration, ABC):
    """Base class of the solvers `GradientSteps` and `ClosedForm`."""

    order: str
    """Order of the two updates, which decides the head that the shortcut's update uses."""

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
            Contributions of the heads before the round.
        S : ndarray (T, p, d)
            Contributions of the shortcuts before the round.
        ridge : float
            Adds ``(ridge / 2) ||s_i||^2`` to each client's loss.
        step_size : float
            Step size of the algorithm.
        scales : tuple of float
            Factors of head and shortcut in the predictor; step sizes are multiplied by their squares.

        Returns
        -------
        W : ndarray (T, p, k)
        S : ndarray (T, p, d)
        """


@dataclass(frozen=True, kw_only=True)
class GradientSteps(Solver):
    r"""Full-gradient steps on the head, and on the shortcut: the draft's Algorithm 1.

    Parameters
    ----------
    head_steps, shortcut_steps : int, default 1
        Number of gradient steps on the head, and on the shortcut (0: the shortcut does not change).
    head_step_size, shortcut_step_size : float, optional
        Step sizes; by default the `step_size` of the algorithm, as in Algorithm 1.
    order : "jacobi" or "gauss-seidel"
        Head that the shortcut's steps use: the one before the round (the draft's line 13), or the new one.

    Raises
    ------
    ValueError
        If a value is out of range, `order` is unknown, or `shortcut_step_size` is given with ``shortcut_steps=0``.

    Notes
    -----
    With ``f_i(w, s) = (1/2m) ||X_i (B w + s) - y_i||^2``, from the last head and shortcut (order "jacobi"):

    .. math::

        w &\leftarrow w - \alpha_w \nabla_w f_i(w, s_i) & & \quad \text{head_steps times} \\
        s &\leftarrow s - \alpha_s (\nabla_s f_i(w_i, s) + \text{ridge } s) & & \quad \text{shortcut_steps times}

    Cost ``O(p m d)`` per step.

    **Deviations**: the order "gauss-seidel" is an addition.

    References
    ----------
    Shortcut draft, Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.FedRepShortcut(rank=2, step_size=0.3, solver=lf.GradientSteps(shortcut_step_size=0.01)).solver
    GradientSteps(head_steps=1, head_step_size=None, shortcut_steps=1, shortcut_step_size=0.01, order='jacobi')
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
        if not self.shortcut_steps and self.shortcut_step_size is not None:
            raise ValueError(
                f"shortcut_step_size = {self.shortcut_step_size:g} requires shortcut_steps above 0: without them the "
                "shortcut does not change"
            )

    def solve(
        self, batch: Batch, B: Array, W: Array, S: Array, *, ridge: float, step_size: float, scales: tuple[float, float]
    ) -> tuple[Array, Array]:
        """Return head and shortcut after their gradient steps."""
        head_step = scales[0] ** 2 * (step_size if self.head_step_size is None else self.head_step_size)
        step = scales[1] ** 2 * (step_size if self.shortcut_step_size is None else self.shortcut_step_size)
        new_W = gradient_descent(batch.shifted(S).project(B), W, head_step, self.head_steps).W
        if self.shortcut_steps:
            rest = batch.shifted((new_W if self.order == "gauss-seidel" else W) @ B.mT)
            for _ in range(self.shortcut_steps):
                S = S - step * (rest.gradient(S) + ridge * S)
        return new_W, S


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Solver):
    r"""Least squares for the head, and for the shortcut: the draft's (2) and (3).

    Parameters
    ----------
    order : "jacobi", "gauss-seidel" or "joint"
        Head that the shortcut's least squares use: the one before the round (the draft's (3)), or the new one. "joint"
        minimises over head and shortcut together, and requires the algorithm's `ridge`.

    Raises
    ------
    ValueError
        If `order` is unknown.

    Notes
    -----
    With ``Z_i = X_i B`` and everything on the right at its last values (order "jacobi"):

    .. math::

        w_i &\leftarrow \arg\min_w \tfrac{1}{2m} \|Z_i w + X_i s_i - y_i\|^2 & & \quad \text{(2)} \\
        s_i &\leftarrow \arg\min_s \tfrac{1}{2m} \|Z_i w_i + X_i s - y_i\|^2 + \tfrac{\text{ridge}}{2} \|s\|^2
            & & \quad \text{(3)}

    If a solution is not unique, the one of minimum norm is used. Cost ``O(p (m d^2 + d^3))``.

    **Deviations**: the ridge and the orders "gauss-seidel" and "joint" are additions.

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
            return batch.joint_least_squares(B, ridge)
        new_W = batch.shifted(S).project(B).fit().W
        seen = new_W if self.order == "gauss-seidel" else W
        return new_W, batch.shifted(seen @ B.mT).least_squares(ridge)
