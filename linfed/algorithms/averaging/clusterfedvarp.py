"""ClusterFedVARP (Jhunjhunwala et al. 2022): FedVARP with one stored change per cluster of clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from linfed._types import Array, Indices
from linfed._values import check_fields
from linfed.algorithms.averaging.base import Averaging, WeightedState
from linfed.algorithms.parts.base import InitContext, State
from linfed.algorithms.parts.models import LinearModel
from linfed.checks import check_integer, is_several, short_repr
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom

Clusters = int | Sequence[int]
"""Number of clusters, with client i in cluster ``i mod clusters``; or each client's cluster, numbered from 0."""


def checked_clusters(name: str, value: Any) -> int | tuple[int, ...]:
    """Return valid clusters as an int or a tuple, or raise."""
    if not is_several(value):
        return check_integer(name, value)
    numbers = tuple(check_integer(f"{name}[{i}]", number, minimum=0) for i, number in enumerate(value))
    if not numbers:
        raise ValueError(f"{name} = {short_repr(value)} must have one number for each client")
    if sorted(set(numbers)) != list(range(len(set(numbers)))):
        raise ValueError(f"{name} = {short_repr(value)} must number the clusters 0, 1, ... without gaps")
    return numbers


@dataclass(frozen=True, kw_only=True, repr=False)
class Clustered(WeightedState):
    """State with a shared model and the stored change of each cluster, (trials, C, P)."""

    changes: Array


@dataclass(frozen=True, kw_only=True)
class Clustering(Averaging):
    """Base class of algorithms with one stored change per cluster; its fields are documented in `ClusterFedVARP`."""

    clusters: Clusters

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, clusters=checked_clusters)

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if the clusters do not fit the number of clients, or k exceeds d."""
        super().check(n_clients=n_clients, dim=dim)
        if isinstance(self.clusters, int):
            if self.clusters > n_clients:
                raise ValueError(f"clusters = {self.clusters} must be at most n_clients = {n_clients}")
        elif len(self.clusters) != n_clients:
            raise ValueError(f"clusters has {len(self.clusters)} entries, expected one for each of {n_clients} clients")

    @property
    def n_clusters(self) -> int:
        """Number of clusters C."""
        return self.clusters if isinstance(self.clusters, int) else max(self.clusters) + 1

    def cluster_of(self, clients: Indices) -> Indices:
        """Return the cluster of each given client."""
        return clients % self.clusters if isinstance(self.clusters, int) else np.asarray(self.clusters)[clients]

    def initial_memory(self, start: InitContext) -> dict[str, Array]:
        """Return the arrays of the initial `Clustered` state, with stored changes of 0."""
        zeros = np.zeros((start.trials, self.n_clusters, self.parameters(start.dim, start.classes)))
        return {**self.counted(start), "changes": zeros}

    def server_change(self, state: Clustered, batch: Batch, change: Array, trained: Array | float = 1.0) -> Array:
        """Return the server's update direction, (T, 1, P).

        Parameters
        ----------
        state : Clustered
        batch : Batch
        change : ndarray (T, p, P)
            The participants' changes, 0 at parameters that they did not train.
        trained : ndarray (T, p, P), optional
            1 at parameters that a participant has trained, else 0; by default 1 everywhere.
        """
        rows = np.arange(len(change))[:, None]
        everybody = self.cluster_of(np.arange(state.shares.shape[1]))
        news = self.average(batch, change - trained * state.changes[rows, self.cluster_of(batch.active)])
        # Unlike ``changes[:, everybody]``, this is in C order, so that no bit depends on the other trials.
        return news + state.mean(np.take(state.changes, everybody, axis=1))

    def new_memory(self, state: Clustered, batch: Batch, change: Array, trained: Array | float = 1.0) -> Array:
        """Return the stored changes after the round, (T, C, P): each cluster's mean over its participants.

        Clusters without participants keep the old change.
        """
        among = (self.cluster_of(batch.active)[..., None, :] == np.arange(self.n_clusters)[:, None]) * 1.0
        count = among @ np.broadcast_to(trained, change.shape)
        return np.where(count > 0, among @ change / np.maximum(count, 1.0), state.changes)

    def memory(self, n_clients: int) -> int:
        """Return the number of stored changes, old and new, and of their copies for all clients."""
        return 2 * self.n_clusters + n_clients


@dataclass(frozen=True, kw_only=True)
class ClusterFedVARP(Clustering):
    """FedVARP with one stored change per cluster of clients: less memory, but some sampling variance remains.

    Parameters
    ----------
    clusters : int or sequence of int (n,)
        Number of clusters, with client i in cluster ``i mod clusters``; or each client's cluster, numbered from 0.
    step_size, rank, local_steps, local_epochs, batch_size, server_step_size, weights, init, fine_tune
        As in `FedAvg`.

    Raises
    ------
    TypeError
        As in `FedAvg`.
    ValueError
        As in `FedAvg`, and if the clusters are not numbered from 0 without gaps, or do not fit the run's clients.

    Notes
    -----
    As in `FedVARP`, with ``y_c`` instead of ``y_i``, where c is the client's cluster. After the round ``y_c`` is the
    mean change of the participants in c, if there are any. Under partial participation it converges only if the changes
    within each cluster coincide. With n clusters it is FedVARP. It stores O(C P), and uses O(n P) during a round.

    **Deviations**: weights, full-gradient steps, schedules and fine-tuning as in `FedVARP`; the mean within a cluster
    has equal weights, as in the source.

    References
    ----------
    Jhunjhunwala, Sharma, Nagarkatti and Joshi 2022, Algorithm 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2)
    >>> algorithm = lf.ClusterFedVARP(step_size=0.1, local_steps=10, clusters=4)
    >>> result = lf.simulate(algorithm, problem, data=lf.FixedSamples(30), n_rounds=9, participation=0.5)
    >>> result.final.array("changes").shape
    (1, 4, 5)
    """

    requires = Averaging.requires
    description: ClassVar[str] = "averaging that stores the last change of each cluster of clients"

    def initial_state(self, start: InitContext) -> Clustered:
        """Return the initial model, with stored changes of 0."""
        return Clustered(**self.initial_memory(start))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, Clustered)
        model = LinearModel.of(state)
        server = model.shared(state)
        change, _ = self.local_change(model, batch, server, rng)
        moved = server + self.server_step_size * self.server_change(state, batch, change)
        return state.update(**model.parts(moved), changes=self.new_memory(state, batch, change))
