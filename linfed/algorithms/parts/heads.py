"""Updates of personal heads at a shared representation, and of the representation at fixed heads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from linfed._types import Array
from linfed._values import Configuration, check_fields, non_negative, optional, positive
from linfed.algorithms.parts.step_size import Schedule, checked_ridge, last_value, value_at, values_of_rounds
from linfed.checks import check_integer
from linfed.data.batch import Batch, Features, Fit
from linfed.numerics.layers import head_gram, scaled_by, shape_of_client, summed_outer


class HeadSolver(Configuration, ABC):
    """Base class of the head updates `ExactHeads` and `GradientHeads`."""

    @abstractmethod
    def solve(self, features: Features, W: Array, step_size: float) -> Fit:
        """Return the participants' heads.

        Parameters
        ----------
        features : Features
            ``Z_i = X_i B`` at the shared B.
        W : ndarray (T, p, k)
            The participants' last heads.
        step_size : float
            Step size of the algorithm.

        Returns
        -------
        Fit
            With heads W (T, p, k).
        """

    def in_round(self, batch: Batch) -> HeadSolver:
        """Return the update in the round of a batch: itself, unless a parameter is given per round."""
        return self

    def for_rounds(self, n_rounds: int) -> HeadSolver:
        """Return the update for a run of `n_rounds` rounds: itself, unless a parameter is given per round."""
        return self

    def adapt(self, features: Features) -> Fit:
        """Return the heads of new clients, which took no part in the training; exact heads by default."""
        return features.fit()


@dataclass(frozen=True, kw_only=True)
class ExactHeads(HeadSolver):
    r"""Heads in closed form: least squares at the shared representation.

    Parameters
    ----------
    ridge : float, array_like (n_rounds,) or callable, default 0.0
        Weight of the penalty ``(ridge / 2) ||w||^2`` in each client's loss. In `FedRep` it can be a schedule: one value
        per round, or a function of the round number, from 1. New clients have the ridge of the last round.

    Raises
    ------
    ValueError
        If the ridge is negative. `simulate` also raises if a schedule does not have one value per round.

    Notes
    -----
    With ``Z_i = X_i B``:

    .. math::

        w_i \leftarrow \arg\min_w \tfrac{1}{2m} \|Z_i w - y_i\|^2 + \tfrac{\text{ridge}}{2} \|w\|^2

    of minimum norm if m < k and there is no ridge. With m <= k and no ridge the residual is zero, so the gradient on B
    is exactly zero and B does not change, if both use the same samples. Cost ``O(p m k^2)`` in addition to the cost of
    Z.

    **Deviations**: `ridge` is an addition.

    References
    ----------
    FedRep paper, Algorithm 2.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.FedRep(rank=2, step_size=0.5, heads=lf.ExactHeads(ridge=0.1)).heads
    ExactHeads(ridge=0.1)
    """

    ridge: Schedule = 0.0

    def __post_init__(self) -> None:
        check_fields(self, ridge=checked_ridge)

    def in_round(self, batch: Batch) -> ExactHeads:
        """Return the heads with the ridge of the batch's round, which counts from 1."""
        if isinstance(self.ridge, float):
            return self
        return replace(self, ridge=value_at(self.ridge, batch.round, "ridge", non_negative))

    def for_rounds(self, n_rounds: int) -> ExactHeads:
        """Return the heads for a run of `n_rounds` rounds, with one value per round instead of a function."""
        ridge = values_of_rounds(self.ridge, n_rounds, "ridge", non_negative)
        return self if ridge is self.ridge else replace(self, ridge=ridge)

    def solve(self, features: Features, W: Array, step_size: float) -> Fit:
        """Return the exact heads, which do not depend on W; a schedule is resolved by `in_round`."""
        assert isinstance(self.ridge, float)
        return features.fit(self.ridge)

    def adapt(self, features: Features) -> Fit:
        """Return the exact heads with the ridge of the last round."""
        return features.fit(last_value(self.ridge, "ridge"))


@dataclass(frozen=True, kw_only=True)
class GradientHeads(HeadSolver):
    r"""Heads by full-gradient steps from each client's last head.

    Parameters
    ----------
    steps : int, default 1
        tau, the number of steps. In `FedRep`, 1 and 10 are GD-GD and 10GD-GD of the FedRep paper's Figure 3. As
        fine-tuning of `FedAvg`, 10 steps stand for the paper's 10 epochs of SGD.
    step_size : float, optional
        alpha > 0; by default the algorithm's `step_size` in the round, as in Algorithm 1.

    Raises
    ------
    ValueError
        If the number of steps is below 1, or the step size is not positive.

    Notes
    -----
    With ``Z_i = X_i B``, from the client's last head:

    .. math::

        w_i \leftarrow w_i - \tfrac{\alpha}{m} Z_i^\top (Z_i w_i - y_i), \qquad \tau \text{ times}

    New clients are fitted exactly. Cost ``O(tau p m k)`` in addition to the cost of Z.

    References
    ----------
    FedRep paper, Algorithm 1, section 5.1 and Figure 3.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.FedRep(rank=2, step_size=0.5, heads=lf.GradientHeads(steps=10)).heads
    GradientHeads(steps=10, step_size=None)
    """

    steps: int = 1
    step_size: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, steps=check_integer, step_size=optional(positive))

    def solve(self, features: Features, W: Array, step_size: float) -> Fit:
        """Return the heads after the gradient steps from W."""
        return gradient_descent(features, W, step_size if self.step_size is None else self.step_size, self.steps)


def check_one_ridge(name: str, heads: object) -> None:
    """Raise if heads have a schedule of ridges."""
    if isinstance(heads, ExactHeads) and not isinstance(heads.ridge, float):
        raise ValueError(f"{name} = {heads!r} must have one ridge for all rounds; only FedRep supports a schedule")


def check_heads_loss(name: str, heads: object, classes: int) -> None:
    """Raise if heads are fitted by least squares and the task is classification."""
    if classes and isinstance(heads, ExactHeads):
        raise ValueError(
            f"{name} = {heads!r} supports only regression, but the samples have {classes} classes: "
            "use lf.GradientHeads()"
        )


@dataclass(frozen=True)
class AtHeads:
    """Given heads W (T, p, k) at some features, with the interface of a `Fit`."""

    features: Features
    W: Array

    def representation_gradient(self, weights: Array | float | None = None) -> Array:
        """Return the gradient at these heads, (T, d, k)."""
        return self.features.representation_gradient(self.W, weights)

    def shifted(self) -> Batch:
        """Return the samples with the residuals of these heads as labels."""
        return self.features.shifted(self.W)


def gradient_descent(features: Features, W: Array, step_size: float, steps: int) -> AtHeads:
    """Return the heads after gradient steps from W (T, p, k), as a fit."""
    for _ in range(steps):
        W = W - step_size * features.head_gradient(W)
    return AtHeads(features, W)


def update_representation(
    B: Array,
    fit: Fit,
    step_size: float,
    steps: int,
    *,
    summed: bool = False,
    weights: Array | None = None,
    clip: float | None = None,
) -> Array:
    """Return B after the participants' local steps at fixed heads and the server's aggregation, before any QR.

    Parameters
    ----------
    B : ndarray (T, d, k)
    fit : Fit
        The participants' heads at B.
    step_size : float
    steps : int
        Number of local steps. They give ``B_i = B - eta a_i w_i'``, so one vector a_i per client (or class) suffices.
    summed : bool
        If True, the server sums; if False, it averages.
    weights : ndarray (T, p), optional
        Factors of the clients' changes; 1 by default.
    clip : float, optional
        Largest Frobenius norm ``||a_i|| ||w_i||`` of a client's message, before its weight; longer messages are scaled
        to it. Regression only.
    """
    if steps == 1 and clip is None:
        if weights is not None:
            return B - step_size * fit.representation_gradient(weights if summed else weights / weights.shape[-1])
        return B - step_size * fit.representation_gradient(1.0 if summed else None)
    W, a = fit.W, local_messages(B, fit, step_size, steps)
    if clip is not None:
        lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(W, axis=-1)
        a *= (clip / np.maximum(lengths, clip))[..., None]
    share = 1.0 if summed else 1.0 / W.shape[1]
    if weights is not None:
        a *= weights.reshape(*weights.shape, *[1] * (a.ndim - 2))
    return B - step_size * share * summed_outer(a, W)


def local_messages(B: Array, fit: Fit, step_size: float, steps: int) -> Array:
    """Return the vectors a_i of the participants' messages ``(B - B_i)/eta = a_i w_i'`` after their local steps.

    Their shape is (T, p, d), or (T, p, c, d + 1) with c classes.
    """
    W, rest = fit.W, fit.shifted()  # so that a_i is exactly 0 for a client whose head explains its samples
    scale = step_size * head_gram(W)
    a = np.zeros((*W.shape[:2], *shape_of_client(B.shape[-2], W.shape[2] if W.ndim == 4 else 0)))
    for _ in range(steps):
        a = a + rest.gradient(scaled_by(-scale, a))
    return a
