"""LG-FedAvg for linear regression (Liang et al. 2020): personal representations, one head for all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import check_fields, converted, positive
from linfed.algorithms.base import Asks, Communication, Start, State
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.models import LinearModel, client_weights, weighted_mean, zero_model
from linfed.algorithms.step_size import Scheduled, StepSize, checked_step_size
from linfed.data.batch import Batch
from linfed.errors import check_integer
from linfed.numerics.layers import shape_of_client
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnRepresentations(State):
    """A representation of each client's own, (trials, n, d, k), and the head W that all share."""

    own: Array

    per_client: ClassVar[frozenset[str]] = State.per_client | {"own"}

    @property
    def model(self) -> LinearModel:
        """The model that each client trains."""
        return LinearModel.of(State(B=self.own[:, 0], W=self.W))

    def served(self) -> State:
        """Return the predictors ``B_i w``: there is no B that all share."""
        model = self.model
        return State(S=model.predictors(model.vector(self.own, self.array("W"))))


@dataclass(frozen=True, kw_only=True)
class LGFedAvg(Scheduled):
    """Personal representations, a shared head, simultaneous gradient steps on both.

    Parameters
    ----------
    rank : int
        Columns k of every client's B_i, at most d.
    step_size : float, array_like (rounds,) or callable
        eta > 0, the local step on B_i and on the head; or a schedule, as in `FedRep`.
    local_steps : int
        Simultaneous full-gradient steps of each participant in a round.
    server_step_size : float
        The server's step along the averaged change of the head.
    init : "random", "moments", Initial or array_like (d, k) or (trials, d, k)
        Where every B_i begins: at the same B; the head starts at 0.

    Raises
    ------
    ValueError
        For a rank below 1, steps that are not positive; and in `simulate` for a rank above d.

    Notes
    -----
    One round, with participants I, ``|I| = p``, each from its own last B_i and the server's w::

        (B_i, w_i) <- (B_i - eta g_i w_i', w_i - eta B_i'g_i),   g_i = X_i'(X_i B_i w_i - y_i)/m      local_steps times
        w          <- w + eta_s (1/p) sum_{i in I} (w_i - w)

    The server averages over participants and sees no B_i; clients that take no part keep theirs, and predict with the
    new w. The predictors ``theta_i = B_i w`` have no B in common: there is no distance of subspaces. As w begins at 0,
    the first gradient on B_i is 0.

    With squares the head that is shared binds nobody: at any ``w != 0`` every theta is some ``B_i w``, so where the
    gradients vanish every client is at a least-squares solution of its own (`LocalOnly`), and the clients learn nothing
    from each other but the way there. A new client is fitted like that: by least squares, of minimum norm where m < d.
    Cost of a round ``O(local_steps p (m d + d k))``; memory ``O(n d k)``.

    **Deviations**: full-gradient steps where the source takes minibatches; equal weights; `server_step_size`, schedules
    and the fit of new clients are additions.

    References
    ----------
    Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov and Morency 2020, Algorithm 1; called LG-Fed in the FedRep
    paper's section 5.2, Fed-LG in the FLUTE paper's Table 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=5, rank=2, noise_std=0.1)
    >>> run = {"data": lf.FixedSamples(n_samples=20), "participation": 0.5}
    >>> shared_head = lf.simulate(lf.LGFedAvg(rank=2, step_size=0.1), problem, rounds=2000, **run)
    >>> alone = lf.simulate(lf.LocalOnly(), problem, rounds=20, **run)
    >>> bool(abs(shared_head.final.predictors() - alone.final.predictors()).max() < 1e-6)
    True
    """

    rank: int
    step_size: StepSize
    local_steps: int = 1
    server_step_size: float = 1.0
    init: Initial | str | npt.ArrayLike = "random"

    asks: ClassVar[Asks] = Asks.QUADRATIC
    summary: ClassVar[str] = "personal representations, shared head, simultaneous gradient steps on both"

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
    def columns(self) -> int:
        """0: it learns no B that clients share."""
        return 0

    @property
    def initial_columns(self) -> int:
        """Columns of the B at which every client begins."""
        return self.rank

    @property
    def initialisation(self) -> Initial:
        """How every B_i begins."""
        return as_initial(self.init)

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if k exceeds d."""
        if self.rank > dim:
            raise ValueError(f"rank = {self.rank} must be at most dim = {dim}")

    def check_loss(self, classes: int) -> None:
        """Any loss will do: its gradient is all that is asked."""

    def initial_state(self, start: Start) -> OwnRepresentations:
        """Return every client's B_i at the B of `init`, and the head at 0."""
        shared = zero_model(start, self.rank, self.init)
        return OwnRepresentations(W=shared["W"], own=np.repeat(shared["B"][:, None], start.n_clients, axis=1))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, OwnRepresentations)
        model, W = state.model, state.array("W")
        begin = model.vector(state.of_clients("own", batch.active), W)
        local = model.trained(batch, begin, self.step_in(batch), self.local_steps)
        _, change = model.layers(weighted_mean(local - begin, client_weights(batch, "uniform")))
        own, _ = model.layers(local)
        return state.update(W=W + self.server_step_size * change, own=own, active=batch.active)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the least-squares predictors of new clients: at the shared head they can represent any."""
        return State(S=batch.least_squares())

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the head down and its change up."""
        size = float(math.prod(shape_of_client(self.rank, classes)))
        return Communication(size, size)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of all representations, of their predictors, and of the participants' parameters."""
        return n_clients * dim * (self.rank + 1) + participants * self.rank * (dim + 1) + self.rank
