"""LG-FedAvg for linear models (Liang et al. 2020): personal representations, one head for all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import check_fields, converted, positive
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.models import LinearModel, client_weights, weighted_mean, zero_model
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.numerics.layers import shape_of_client
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class LGFedAvgState(State):
    """State with a personal representation per client, ``own`` (trials, n, d, k), and a shared head W."""

    own: Array

    per_client: ClassVar[frozenset[str]] = State.per_client | {"own"}

    @property
    def model(self) -> LinearModel:
        """Model that each client trains."""
        return LinearModel.of(State(B=self.own[:, 0], W=self.W))

    def for_prediction(self) -> State:
        """Return the predictors ``B_i w`` as S, without a shared B."""
        model = self.model
        return State(S=model.predictors(model.vector(self.own, self.array("W"))))


@dataclass(frozen=True, kw_only=True)
class LGFedAvg(Scheduled):
    r"""Personal representations, a shared head, simultaneous gradient steps on both.

    Parameters
    ----------
    rank : int
        Columns k of every client's B_i, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the local step size for B_i and the head; or a schedule, as in `FedRep`.
    local_steps : int
        Simultaneous full-gradient steps of each participant in a round.
    server_step_size : float
        The server's step size along the averaged change of the head.
    init : "random", "moments", Initial or array_like (d, k) or (trials, d, k)
        Initial B of all clients; the head starts at 0.

    Raises
    ------
    ValueError
        If the rank is below 1, or a step size is not positive; in `simulate` also if the rank exceeds d.

    Notes
    -----
    In one round each participant i in I, ``|I| = p``, starts from its last B_i and the server's w:

    .. math::

        (B_i, w_i) &\leftarrow (B_i - \eta g_i w_i^\top, w_i - \eta B_i^\top g_i), \qquad
            g_i = \tfrac{1}{m} X_i^\top (X_i B_i w_i - y_i), \qquad \text{local_steps times} \\
        w &\leftarrow w + \eta_s \tfrac{1}{p} \sum_{i \in I} (w_i - w)

    The server averages over participants and does not receive any B_i. The other clients keep their B_i and predict
    with the new w. The predictors ``theta_i = B_i w`` share no B, so there is no subspace distance. As w starts at 0,
    the first gradient on B_i is 0.

    For regression the shared head is no constraint: at any ``w != 0`` every theta equals some ``B_i w``. At a
    stationary point with ``w != 0`` every client is therefore at a least-squares solution of its local problem
    (`LocalOnly`), and federation affects only the path to it. A new client is fitted in the same way: by least squares,
    of minimum norm if m < d. Cost of a round ``O(local_steps p (m d + d k))``; memory ``O(n d k)``.

    **Deviations**: full-gradient steps replace the source's minibatches; weights are equal; `server_step_size`,
    schedules and the fit of new clients are additions.

    References
    ----------
    Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov and Morency 2020, Algorithm 1; called LG-Fed in the FedRep
    paper's section 5.2, Fed-LG in the FLUTE paper's Table 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=5, rank=2, noise_std=0.1)
    >>> run = {"data": lf.FixedSamples(n_samples=20), "participation": 0.5}
    >>> shared_head = lf.simulate(lf.LGFedAvg(rank=2, step_size=0.1), problem, n_rounds=2000, **run)
    >>> local = lf.simulate(lf.LocalOnly(), problem, n_rounds=20, **run)
    >>> bool(abs(shared_head.final.predictors() - local.final.predictors()).max() < 1e-6)
    True
    """

    rank: int
    step_size: StepSize
    local_steps: int = 1
    server_step_size: float = 1.0
    init: Initial | str | npt.ArrayLike = "random"

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "personal representations, shared head, simultaneous gradient steps on both"

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
    def learned_rank(self) -> int:
        """0: there is no shared B."""
        return 0

    @property
    def initial_columns(self) -> int:
        """Columns of the initial B of all clients."""
        return self.rank

    @property
    def initialization(self) -> Initial:
        """Initialisation of all B_i."""
        return as_initial(self.init)

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if k exceeds d."""
        if self.rank > dim:
            raise ValueError(f"rank = {self.rank} must be at most dim = {dim}")

    def check_loss(self, classes: int) -> None:
        """Accept regression and classification: the steps use only gradients."""

    def initial_state(self, start: InitContext) -> LGFedAvgState:
        """Return the state with all B_i equal to the B of `init` and the head at 0."""
        shared = zero_model(start, self.rank, self.init)
        return LGFedAvgState(W=shared["W"], own=np.repeat(shared["B"][:, None], start.n_clients, axis=1))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, LGFedAvgState)
        model, W = state.model, state.array("W")
        begin = model.vector(state.take_clients("own", batch.active), W)
        local = model.trained(batch, begin, self.step_in(batch), self.local_steps)
        _, change = model.layers(weighted_mean(local - begin, client_weights(batch, "uniform")))
        representations, _ = model.layers(local)
        return state.update(W=W + self.server_step_size * change, own=representations, active=batch.active)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the least-squares predictors of new clients, which the shared head can represent."""
        return State(S=batch.least_squares())

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of the head (down) and of its change (up)."""
        size = float(math.prod(shape_of_client(self.rank, classes)))
        return Communication(size, size)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of all representations, of their predictors, and of the participants' parameters."""
        return n_clients * dim * (self.rank + 1) + participants * self.rank * (dim + 1) + self.rank
