"""FedVARP (Jhunjhunwala et al. 2022): averaging that reuses the last changes of absent clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed.algorithms.averaging.base import Averaging, WeightedState
from linfed.algorithms.parts.base import InitContext, State
from linfed.algorithms.parts.models import LinearModel
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class FedVARPState(WeightedState):
    """State with a shared model and each client's last change, (trials, n, P), stored at the server."""

    changes: Array

    per_client: ClassVar[frozenset[str]] = WeightedState.per_client | {"changes"}


@dataclass(frozen=True, kw_only=True)
class FedVARP(Averaging):
    r"""Averaging over all clients, with the last stored change of each client that does not take part.

    Parameters
    ----------
    step_size, rank, local_steps, local_epochs, batch_size, server_step_size, weights, init, fine_tune
        As in `FedAvg`.

    Raises
    ------
    TypeError
        As in `FedAvg`.
    ValueError
        As in `FedAvg`.

    Notes
    -----
    Clients take local steps as in FedAvg; ``D_i`` is the change of client i. The server starts from ``y_i = 0`` and
    updates

    .. math::

        \theta &\leftarrow \theta + \eta_s \Bigl( \sum_{i \in I} p_i (D_i - y_i)
            + \sum_{\text{all } j} \pi_j y_j \Bigr) \\
        y_i &\leftarrow D_i, \qquad i \in I

    The variance from client sampling vanishes once the changes converge, but client drift remains: under partial
    participation FedVARP converges to the fixed point of FedAvg under full participation. Memory O(n P), at the server.

    **Deviations**: the source has only equal weights; `weights="samples"` uses sample shares among the participants
    (p_i) and among all clients (pi_i). Full-gradient steps, schedules and fine-tuning are additions.

    References
    ----------
    Jhunjhunwala, Sharma, Nagarkatti and Joshi 2022, Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2)
    >>> run = {"data": lf.FixedSamples(30), "n_rounds": 400}
    >>> part = lf.simulate(lf.FedVARP(step_size=0.1, local_steps=10), problem, participation=0.25, **run)
    >>> full = lf.simulate(lf.FedAvg(step_size=0.1, local_steps=10), problem, **run)
    >>> bool(abs(part.final.S - full.final.S).max() < 1e-6)
    True
    """

    requires = Averaging.requires
    description: ClassVar[str] = "averaging that stores the last change of each client"

    def initial_state(self, start: InitContext) -> FedVARPState:
        """Return the initial model, with stored changes of 0."""
        zeros = np.zeros((start.trials, start.n_clients, self.parameters(start.dim, start.classes)))
        return FedVARPState(**self.counted(start), changes=zeros)

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, FedVARPState)
        model = LinearModel.of(state)
        server = model.shared(state)
        change, _ = self.local_change(model, batch, server, rng)
        news = self.average(batch, change - state.take_clients("changes", batch.active))
        moved = server + self.server_step_size * (news + state.mean(state.changes))
        return state.update(**model.parts(moved), changes=change, active=batch.active)

    def memory(self, n_clients: int) -> int:
        """Return the number of stored changes, old and new."""
        return 2 * n_clients
