"""FedPer for linear models (Arivazhagan, Aggarwal, Singh and Choudhary 2019): shared base, personal heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy.typing as npt

from linfed._values import check_fields, converted, positive
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.parts.base import InitContext, Requires, State
from linfed.algorithms.parts.models import LinearModel, client_weights, weighted_mean
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class FedPer(Scheduled):
    r"""Shared representation, personal heads, simultaneous gradient steps on both.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the local step size for B and the head; or a schedule, as in `FedRep`.
    local_steps : int
        Simultaneous full-gradient steps of each participant in a round.
    server_step_size : float
        The server's step size along the averaged change of B.
    init : "random", "moments", Initial or array_like (d, k) or (trials, d, k)
        Initial B; heads start at 0.

    Raises
    ------
    ValueError
        If the rank is below 1, or a step size is not positive; in `simulate` also if the rank exceeds d.

    Notes
    -----
    In one round each participant i in I, ``|I| = p``, starts from the server's B and its last head:

    .. math::

        (B_i, w_i) &\leftarrow (B_i - \eta g_i w_i^\top, w_i - \eta B_i^\top g_i), \qquad
            g_i = \tfrac{1}{m} X_i^\top (X_i B_i w_i - y_i), \qquad \text{local_steps times} \\
        B &\leftarrow B + \eta_s \tfrac{1}{p} \sum_{i \in I} (B_i - B)

    The server averages over participants; the other clients keep their heads. B is not normalised. Cost of a round
    ``O(local_steps p (m d + d k))``.

    **Deviations**: all participants have equal weights, in the source in proportion to their samples; full-gradient
    steps replace the source's minibatches; `server_step_size` and schedules are additions.

    References
    ----------
    Arivazhagan et al. 2019, Algorithms 1 and 2; FedRep paper, section 5.2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=10, rank=2)
    >>> algorithm = lf.FedPer(rank=2, step_size=0.2, init="moments")
    >>> result = lf.simulate(algorithm, problem, data=lf.FixedSamples(40), n_rounds=200)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 1e-3)
    True
    """

    rank: int
    step_size: StepSize
    local_steps: int = 1
    server_step_size: float = 1.0
    init: Initial | str | npt.ArrayLike = "random"

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "shared representation, personal heads, simultaneous gradient steps on both"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            local_steps=check_integer,
            step_size=checked_step_size,
            server_step_size=positive,
            init=converted(as_initial),
        )

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def check_loss(self, classes: int) -> None:
        """Accept regression and classification: the steps use only gradients."""

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init` and all heads at 0."""
        B = start.representation(self.init, self.rank)
        return State(B=B, W=start.zeros(start.n_clients, self.rank))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        model, B = LinearModel.of(state), state.array("B")
        begin = model.vector(B, state.take_clients("W", batch.active))
        local = model.trained(batch, begin, self.step_in(batch), self.local_steps)
        change = weighted_mean((local - begin)[..., : B[0].size], client_weights(batch, "uniform"))
        B = B + self.server_step_size * change.reshape(B.shape)
        return state.update(B=B, W=model.layers(local)[1], active=batch.active)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B and W, and of the participants' copies of B."""
        return self.rank * (n_clients + dim + participants * (dim + 1))
