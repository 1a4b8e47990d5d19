"""General FLUTE: classification with a linear representation (Liu, Shen and Yang 2024, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import check_fields, converted, non_negative, optional, positive
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.data.classes import ClassBatch, of_classes
from linfed.numerics.collapse import nc_gradient, nc_target
from linfed.numerics.layers import without_biases
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class GeneralFLUTE(Scheduled):
    r"""Shared representation, personal softmax heads, and a neural-collapse (NC) penalty on the heads.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta_l > 0, the clients' step size for B, heads and biases; or a schedule, as in `FedRep`.
    local_steps : int
        Simultaneous full-gradient steps of each participant on B, heads and biases in a round.
    head_steps : int, default 0
        Number of further steps on heads and biases only; FLUTE* uses 10.
    server_step_size : float, optional
        eta_r >= 0, the server's step size for the sum of the participants' NC; `step_size` by default.
    feature_penalty : float, default 0.0
        lambda_1 >= 0, weight of the mean ``||B'x||^2``.
    head_penalty : float, default 0.0
        lambda_2 >= 0, weight of ``||H_i||_F^2``; biases are not penalised.
    collapse_penalty : float, default 0.1
        lambda_3 >= 0, weight of ``NC_i(H_i)`` in the client's loss.
    head_scale : float, default 1.0
        Scale of the initial heads. All clients start from the same heads, with entries ``N(0, head_scale^2 / k)``, and
        from biases 0. NC has no gradient at heads equal to 0, and a large gradient at small heads.
    init : "random", Initial or array_like (d, k) or (trials, d, k)
        Initial B.

    Raises
    ------
    ValueError
        If the rank is below 1, or a step size or weight is out of range; in `simulate` also if the rank exceeds d, or
        for regression (use `FLUTE`).

    Notes
    -----
    Let u_i indicate the classes that client i holds, let c be the number of all classes, and let row j of ``H_i`` be
    the head of class j. With

    .. math::

        L_i &= \operatorname{mean} \bigl[ \mathrm{CE}(H_i B^\top x + b_i) + \lambda_1 \|B^\top x\|^2 \bigr]
            + \lambda_2 \|H_i\|_F^2 + \lambda_3 \mathrm{NC}_i(H_i) \\
        \mathrm{NC}_i &= \Bigl\| \frac{H_i H_i^\top}{\|H_i H_i^\top\|_F}
            - \frac{(u_i u_i^\top) \circ (I - \mathbf 1 \mathbf 1^\top / c)}{\sqrt{c - 1}} \Bigr\|_F

    one round of the participants I, each from the server's B and its own last head, is

    .. math::

        (B_i, H_i, b_i) &\leftarrow (B_i, H_i, b_i) - \eta_l \nabla L_i & & \quad \text{local_steps times} \\
        (H_i, b_i) &\leftarrow (H_i, b_i) - \eta_l \nabla L_i & & \quad \text{head_steps times (FLUTE*)} \\
        B &\leftarrow \tfrac{1}{|I|} \sum_{i \in I} B_i \\
        H_i &\leftarrow H_i - \eta_r \nabla \mathrm{NC}_i(H_i) & & \quad i \in I, \text{ at the server}

    The server's regulariser is a sum of one term per client, so its step on a client's heads needs no other client. NC
    does not depend on the scale of H_i, so its gradient is proportional to 1/||H_i||. NC is a norm, not a squared norm:
    with a constant step size the heads stay about one step away from a minimum with NC = 0. Cost of a round
    ``O(local_steps p m (d + c) k + (head_steps + 1) p c (m + c) k)``.

    **Deviations**: the representation is ``B'x`` instead of the paper's convolutional network; full-gradient steps
    replace the epochs of minibatches of its experiments; schedules are an addition. The paper gives neither the lambdas
    nor the initial heads of its experiments: the defaults are this project's.

    References
    ----------
    FLUTE paper, sections 6 and 7.2, Appendix B: Algorithm 2, (9), (10) and (49).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.Classes(n_clients=20, n_classes=5, classes_per_client=2, dim=20)
    >>> flute = lf.GeneralFLUTE(rank=3, step_size=0.1, local_steps=5)
    >>> result = lf.simulate(flute, problem, data=lf.FixedSamples(40), n_rounds=100)
    >>> bool(result.metrics["accuracy"][0, -1] > 0.9)
    True
    """

    rank: int
    step_size: StepSize
    local_steps: int = 1
    head_steps: int = 0
    server_step_size: float | None = None
    feature_penalty: float = 0.0
    head_penalty: float = 0.0
    collapse_penalty: float = 0.1
    head_scale: float = 1.0
    init: Initial | str | npt.ArrayLike = "random"

    description: ClassVar[str] = "classification: shared representation, personal heads with a neural-collapse penalty"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=checked_step_size,
            local_steps=check_integer,
            head_steps=lambda name, value: check_integer(name, value, minimum=0),
            server_step_size=optional(non_negative),
            feature_penalty=non_negative,
            head_penalty=non_negative,
            collapse_penalty=non_negative,
            head_scale=positive,
            init=converted(as_initial),
        )

    @property
    def _one_step(self) -> bool:
        """Whether a round is one step at the server's B, so that the mean gradient on B suffices."""
        return self.local_steps == 1 and self.head_steps == 0

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch."""
        return Requires.FEATURES if self._one_step else Requires.ROWS

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def check_loss(self, classes: int) -> None:
        """Raise for regression."""
        if not classes:
            raise ValueError("GeneralFLUTE supports only classification; for regression use lf.FLUTE")

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init`, and the same random heads for all clients."""
        B = start.representation(self.init, self.rank)
        return State(B=B, W=random_heads(start, start.n_clients, self.rank, self.head_scale))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        samples, step = of_classes(batch, "GeneralFLUTE"), self.step_in(batch)
        W, B = state.take_clients("W", batch.active), state.array("B")
        server = step if self.server_step_size is None else self.server_step_size
        target = nc_target(samples.holds)
        if self._one_step:
            by_heads, by_B = samples.project(B).gradients(W, None, self.feature_penalty)
            W, B = self._step_heads(W, by_heads, target, step), _stepped(B, by_B, step)
        else:
            W, B = self._local_steps(samples, W, B, target, step)
        W = W - server * nc_gradient(without_biases(W), target)
        return state.update(B=B, W=W, active=batch.active)

    def _local_steps(self, samples: ClassBatch, W: Array, B: Array, target: Array, step: float) -> tuple[Array, Array]:
        """Return the participants' heads after their local steps, and the mean of their representations."""
        for _ in range(self.local_steps):
            by_heads, by_B = samples.project(B).gradients_of_clients(W, self.feature_penalty)
            W, B = self._step_heads(W, by_heads, target, step), _stepped(_each(B), by_B, step)
        if self.head_steps:
            features = samples.project(B)
            for _ in range(self.head_steps):
                W = self._step_heads(W, features.head_gradient(W), target, step)
        return W, B.mean(axis=1)

    def _step_heads(self, W: Array, gradient: Array, target: Array, step: float) -> Array:
        """Return heads and biases after a step, stored in `gradient`; only the heads are penalised."""
        H = without_biases(W)
        if self.head_penalty:
            gradient += 2.0 * self.head_penalty * H
        if self.collapse_penalty:
            gradient += self.collapse_penalty * nc_gradient(H, target)
        return _stepped(W, gradient, step)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B and the heads (down) and of B, heads and biases (up).

        The server updates the heads but not the biases.
        """
        size = float(self.rank * (dim + classes))
        return Communication(size, size + classes)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B, of one row of W per client, and of the participants' copies and gradients."""
        return self.rank * (n_clients + dim + participants * (4 if self._one_step else dim + 4))


def random_heads(start: InitContext, clients: int, rank: int, scale: float = 1.0) -> Array:
    """Return random softmax heads, (T, clients, c, k + 1), equal for all clients: entries ``N(0, scale^2 / k)``.

    The biases are 0. The heads are the first draw from the algorithm's random numbers, so all algorithms that use this
    function start from equal heads in each trial.
    """
    W = start.zeros(clients, rank)
    W[..., :-1] = scale / np.sqrt(rank) * start.rng.standard_normal((1, start.classes, rank))
    return W


def _each(B: Array) -> Array:
    """Return the clients' representations, (T, p, d, k), or (T, 1, d, k) if all clients share one."""
    return B if B.ndim == 4 else B[:, None]


def _stepped(values: Array, gradient: Array, step: float) -> Array:
    """Return ``values - step * gradient``, stored in `gradient`."""
    gradient *= -step
    gradient += values
    return gradient
