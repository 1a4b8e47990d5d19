"""ClusterFedVARP (Jhunjhunwala et al. 2022): FedVARP with one memory for each cluster of clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from linfed._types import Array, Indices
from linfed._values import check_fields
from linfed.algorithms.averaging.base import Averaging, Counted
from linfed.algorithms.base import Start, State
from linfed.algorithms.models import LinearModel
from linfed.data.batch import Batch
from linfed.errors import check_integer, shown
from linfed.numerics.streams import TrialRandom

Clusters = int | Sequence[int]
"""How many clusters, client i in cluster ``i mod clusters``; or each client's cluster, numbered from 0."""


def checked_clusters(name: str, value: Any) -> int | tuple[int, ...]:
    """Return clusters as they are kept, or raise."""
    if not isinstance(value, list | tuple | range | np.ndarray):
        return check_integer(name, value)
    numbers = tuple(check_integer(f"{name}[{i}]", number, minimum=0) for i, number in enumerate(value))
    if sorted(set(numbers)) != list(range(len(set(numbers)))):
        raise ValueError(f"{name} = {shown(value)} must number the clusters 0, 1, .. without a gap")
    return numbers


@dataclass(frozen=True, kw_only=True, repr=False)
class Clustered(Counted):
    """A shared model, and what is remembered of each cluster (trials, C, P)."""

    changes: Array


@dataclass(frozen=True, kw_only=True)
class Clustering(Averaging):
    """Base of what remembers by clusters; the fields are those of `ClusterFedVARP`."""

    clusters: Clusters

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, clusters=checked_clusters)

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if the clusters are not those of so many clients, or k exceeds d."""
        super().check(n_clients=n_clients, dim=dim)
        if isinstance(self.clusters, int):
            if self.clusters > n_clients:
                raise ValueError(f"clusters = {self.clusters} must be at most n_clients = {n_clients}")
        elif len(self.clusters) != n_clients:
            raise ValueError(f"clusters has {len(self.clusters)} numbers, expected one for each of {n_clients} clients")

    @property
    def n_clusters(self) -> int:
        """Clusters C."""
        return self.clusters if isinstance(self.clusters, int) else max(self.clusters) + 1

    def cluster_of(self, clients: Indices) -> Indices:
        """Return the clusters of clients."""
        return clients % self.clusters if isinstance(self.clusters, int) else np.asarray(self.clusters)[clients]

    def remembered(self, start: Start) -> dict[str, Array]:
        """Return the arrays of a `Clustered` initial state: nothing is remembered."""
        zeros = np.zeros((start.trials, self.n_clusters, self.parameters(start.dim, start.classes)))
        return {**self.counted(start), "changes": zeros}

    def server_change(self, state: Clustered, batch: Batch, change: Array, trained: Array | float = 1.0) -> Array:
        """Return what the server follows, (T, 1, P).

        Parameters
        ----------
        state : Clustered
        batch : Batch
        change : ndarray (T, p, P)
            The participants' changes, 0 where they were not trained.
        trained : ndarray (T, p, P), optional
            1 at parameters that a participant has trained, else 0.
        """
        rows = np.arange(len(change))[:, None]
        everybody = self.cluster_of(np.arange(state.shares.shape[1]))
        news = self.average(batch, change - trained * state.changes[rows, self.cluster_of(batch.active)])
        return news + state.mean(state.changes[:, everybody])

    def new_memory(self, state: Clustered, batch: Batch, change: Array, trained: Array | float = 1.0) -> Array:
        """Return the mean change of each cluster's participants, (T, C, P), where there are any; else the old one."""
        among = (self.cluster_of(batch.active)[..., None, :] == np.arange(self.n_clusters)[:, None]) * 1.0
        count = among @ np.broadcast_to(trained, change.shape)
        return np.where(count > 0, among @ change / np.maximum(count, 1.0), state.changes)

    def memory(self, n_clients: int) -> int:
        """Return what is remembered, old and new, and its rows for all clients, as vectors."""
        return 2 * self.n_clusters + n_clients


@dataclass(frozen=True, kw_only=True)
class ClusterFedVARP(Clustering):
    """FedVARP that remembers one change for each cluster: less memory, and variance again.

    Parameters
    ----------
    clusters : int or sequence of int (n,)
        How many clusters, client i in cluster ``i mod clusters``; or each client's cluster, numbered from 0.
    step_size, rank, local_steps, local_epochs, batch_size, server_step_size, weights, init, fine_tune
        As in `FedAvg`.

    Raises
    ------
    ValueError
        As in `FedAvg`, and for clusters that are not numbered from 0 without a gap, or not of the run's clients.

    Notes
    -----
    As in `FedVARP` with ``y_c``, c the client's cluster, in the place of ``y_i``; after the round ``y_c`` is the mean
    change of the participants in c, if there are any. It settles under partial participation only if the changes within
    each cluster coincide. With n clusters it is FedVARP. Memory O(C P).

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
    >>> lf.simulate(algorithm, problem, data=lf.FixedSamples(30), rounds=9, participation=0.5).final.changes.shape
    (1, 4, 5)
    """

    asks = Averaging.asks
    summary: ClassVar[str] = "averaging that remembers the last change of each cluster of clients"

    def initial_state(self, start: Start) -> Clustered:
        """Return the model at its beginning, and nothing remembered."""
        return Clustered(**self.remembered(start))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, Clustered)
        model = LinearModel.of(state)
        server = model.shared(state)
        change, _ = self.local_change(model, batch, server, rng)
        moved = server + self.server_step_size * self.server_change(state, batch, change)
        return state.update(**model.parts(moved), changes=self.new_memory(state, batch, change))
