"""FLUTE for linear regression (Liu, Shen and Yang 2024, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from linfed._values import check_fields, converted, non_negative, one_of, optional
from linfed.algorithms.initial import InitialFactors, SmallRandom, as_factors
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.models import relative_weights
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size, one_step
from linfed.checks import check_integer, short_repr
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


def _one_or_two(name: str, value: object) -> int:
    """Return `value` as an int if it is 1 or 2, or raise."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or value not in (1, 2):
        raise ValueError(f"{name} = {short_repr(value)} must be 1 or 2")
    return int(value)


@dataclass(frozen=True, kw_only=True)
class FLUTE(Scheduled):
    r"""Shared representation and personal heads, which the server regularises towards a balanced low-rank model.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta_l > 0, the step size for the data gradients; or a schedule, as in `FedRep`.
    server_step_size : float, optional
        eta_r >= 0, the server's step size for the regulariser; `step_size` by default.
    gamma1 : float, default 1/4
        Weight of ``||B W'||_F^2``, which the server increases.
    gamma2 : float, default 1/8
        Weight of ``||B'B||_F^2 + ||W'W||_F^2``, which the server decreases.
    init : InitialFactors, or a pair of array_like (B, W)
        ``lf.SmallRandom(alpha)``, with ``alpha = 1/(10 d)`` by default, or B (d, k) and W (n, k), with or without a
        leading trial axis.
    gradient_factor : 1 or 2, default 1
        Factor of the data gradient: 1 for the loss ``(1/2m)||X_i theta - y_i||^2`` of the paper's analysis, 2 for the
        loss ``(1/m)||X_i theta - y_i||^2`` of its main text.
    weights : "uniform" or "samples"
        Weights omega_i of the participants' gradients: equal, or proportional to their numbers of samples. Their mean
        is 1.

    Raises
    ------
    ValueError
        If the rank is below 1, a step size or weight is out of range, or `init` is invalid. `simulate` also raises if
        the rank exceeds d or an array has the wrong shape, or for classification (use `GeneralFLUTE`).

    Notes
    -----
    One round, with ``g_i = X_i'(X_i B w_i - y_i)/m`` and the last round's B and W on the right:

    .. math::

        B &\leftarrow B - \eta_l \sum_i \omega_i g_i w_i^\top
            + \eta_r (2 \gamma_1 B W^\top W - 4 \gamma_2 B B^\top B) \\
        W &\leftarrow W - \eta_l [\omega_i B^\top g_i]_i^\top + \eta_r (2 \gamma_1 W B^\top B - 4 \gamma_2 W W^\top W)

    The server **sums** over clients, whereas FedRep averages. B is not normalised. At the default weights the
    regulariser is ``(1/8)||B'B - W'W||_F^2``. For ``gamma1 > 2 gamma2`` the objective can be unbounded below, and the
    run then diverges (`linfed.theory.flute_divergence_threshold`). With partial participation the sums and W cover only
    the participants, and the other clients keep their heads. Cost of a round ``O(p (m d + d k))``, on fixed samples
    with m > d ``O(p (d^2 + d k))``.

    **Deviations**: the data gradient has factor 1 by default, as in the analysis (Appendix A.1), because only then does
    the Theta recursion close; ``gradient_factor=2`` gives the other factor. In Algorithm 1 all clients participate.
    Partial participation follows Algorithm 2 (`GeneralFLUTE`): the server regularises the participants' heads only, and
    the other clients keep theirs. Schedules and `weights` are additions; the Theta recursion is for equal weights of
    all clients.

    References
    ----------
    FLUTE paper, Algorithm 1, equations (4) to (6); Appendix A.1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=30, dim=10, gap=4.0, gap_after=2)
    >>> result = lf.simulate(lf.FLUTE(rank=2, step_size=0.03), problem, data=lf.FixedSamples(n_samples=500),
    ...                      n_rounds=1000, trials=3, seed=0)
    >>> bool((result.metrics["subspace_distance"][:, -1] < 0.1).all())
    True
    """

    rank: int
    step_size: StepSize
    server_step_size: float | None = None
    gamma1: float = 0.25
    gamma2: float = 0.125
    init: InitialFactors | tuple[npt.ArrayLike, npt.ArrayLike] = field(default_factory=SmallRandom)
    gradient_factor: Literal[1, 2] = 1
    weights: Literal["uniform", "samples"] = "uniform"

    requires: ClassVar[Requires] = Requires.GRADIENTS
    description: ClassVar[str] = "shared representation, personal heads, a server step that regularises both"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=checked_step_size,
            server_step_size=optional(non_negative),
            gamma1=non_negative,
            gamma2=non_negative,
            init=converted(as_factors),
            gradient_factor=_one_or_two,
            weights=one_of("uniform", "samples"),
        )

    @property
    def step_ratio(self) -> float:
        """Ratio ``eta_r / eta_l``, where eta_l includes the factor of the data gradient."""
        if self.server_step_size is None:
            return 1.0 / self.gradient_factor
        step_size = one_step(self.step_size, "the ratio of step sizes requires")
        return self.server_step_size / (step_size * self.gradient_factor)

    @property
    def initialization(self) -> InitialFactors:
        """Initialisation of B and W."""
        return as_factors(self.init)

    def initial_state(self, start: InitContext) -> State:
        """Return B and W from `init`."""
        B, W = start.factors(self.init, self.rank)
        return State(B=B, W=W)

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        B, W = state.array("B"), state.take_clients("W", batch.active)
        step_size = self.step_in(batch)
        local = step_size * self.gradient_factor
        server = step_size if self.server_step_size is None else self.server_step_size
        weights = 1.0 if self.weights == "uniform" else relative_weights(batch, self.weights)
        head_gradient, representation_gradient = batch.project(B).gradients(W, weights=weights)
        if isinstance(weights, np.ndarray):
            head_gradient = weights[..., None] * head_gradient
        gram_B, gram_W = B.mT @ B, W.mT @ W
        grow, shrink = 2.0 * server * self.gamma1, 4.0 * server * self.gamma2
        new_B = B @ (grow * gram_W - shrink * gram_B)
        new_B += B
        representation_gradient *= local
        new_B -= representation_gradient
        new_W = W @ (grow * gram_B - shrink * gram_W)
        new_W += W
        head_gradient *= local
        new_W -= head_gradient
        return state.update(B=new_B, W=new_W, active=batch.active)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B and the client's head (down) and of both gradients (up)."""
        size = float(self.rank * (dim + 1))
        return Communication(size, size)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B and W, and of the participants' predictors and gradients."""
        return self.rank * (n_clients + dim) + participants * dim
