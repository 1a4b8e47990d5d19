"""FedSCAVAR: a combination of SCAFFOLD, FedProx, ClusterFedVARP and FedRolex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, non_negative
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.averaging.clusterfedvarp import Clustered, Clustering
from linfed.algorithms.averaging.fedrolex import Rolling
from linfed.algorithms.parts.base import Communication, InitContext, State
from linfed.algorithms.parts.models import LinearModel
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class Combined(Clustered):
    """State with a shared model, the stored change of each cluster, and the control variates of clients and server."""

    controls: Array
    control: Array

    per_client: ClassVar[frozenset[str]] = Clustered.per_client | {"controls"}


@dataclass(frozen=True, kw_only=True)
class FedSCAVAR(Clustering, Rolling):
    r"""Averaging with control variates, a proximal term, cluster memory and rolling windows.

    Parameters
    ----------
    mu : float
        As in `FedProx`.
    clusters : int or sequence of int (n,)
        As in `ClusterFedVARP`.
    model_share : float or sequence of float (n,)
        As in `FedRolex`.
    step_size, rank, local_steps, local_epochs, batch_size, server_step_size, weights, init, fine_tune
        As in `FedAvg`.

    Raises
    ------
    TypeError
        As in `FedAvg`.
    ValueError
        As in `FedAvg`, `FedProx`, `ClusterFedVARP` and `FedRolex`.

    Notes
    -----
    One round, on the window T_i of each participant (outside of it the client's model stays 0):

    .. math::

        \theta_i &\leftarrow \theta, \qquad
            K \text{ times } \theta_i \leftarrow \theta_i - \eta (\nabla f_i(\theta_i) + \mu (\theta_i - \theta)
            - c_i + c) \\
        c_i^+ &= c_i - c + (\theta - \theta_i)/(K \eta), \qquad D_i = \theta_i - \theta \\
        \theta &\leftarrow \theta + \eta_s \Bigl( \sum_{i \in I} p_i (D_i - y_{\kappa(i)} \text{ on } T_i)
            + \sum_{\text{all } j} \pi_j y_{\kappa(j)} \Bigr) \\
        c &\leftarrow c + \sum_{i \in I} \pi_i (c_i^+ - c_i), \qquad c_i \leftarrow c_i^+ \\
        y_\kappa &\leftarrow \text{for each parameter the mean } D_i \text{ of the participants in cluster } \kappa
            \text{ that trained it, if there are any}

    where ``kappa(i)`` is the cluster of client i. With beta = 1, mu = 0 and full participation it is SCAFFOLD for any
    clusters.

    **Deviations**: y and c change only at trained parameters; the pseudocode does not specify this for y. The update of
    c uses the clients' shares among all clients, as in `SCAFFOLD`. Weights, full-gradient steps, schedules and
    fine-tuning are additions, as in `SCAFFOLD`.

    References
    ----------
    The pseudocode of the averaging family, Algorithm 8.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> algorithm = lf.FedSCAVAR(step_size=0.1, local_steps=5, mu=0.1, clusters=4, model_share=0.5)
    >>> lf.simulate(algorithm, problem, data=lf.FixedSamples(30), n_rounds=9, participation=0.5).final.S.shape
    (1, 1, 6)
    """

    mu: float = 0.0

    requires = Averaging.requires
    description: ClassVar[str] = "control variates, a proximal term, cluster memory and rolling windows together"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, mu=non_negative)

    def initial_state(self, start: InitContext) -> Combined:
        """Return the initial model, with stored changes and control variates of 0."""
        zeros = np.zeros((start.trials, start.n_clients, self.parameters(start.dim, start.classes)))
        return Combined(**self.initial_memory(start), controls=zeros, control=zeros[:, :1].copy())

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, Combined)
        model = LinearModel.of(state)
        trained = self.trained(model, batch)
        server, begin = model.shared(state), model.shared(state) * trained
        c, controls = state.control, state.take_clients("controls", batch.active)

        def corrected(gradient: Array, theta: Array) -> Array:
            return trained * (gradient + self.mu * (theta - begin) - controls + c)

        change, taken = self.local_change(model, batch, begin, rng, corrected)
        moved = server + self.server_step_size * self.server_change(state, batch, change, trained)
        news = -trained * (c + change / (taken * self.step_in(batch)))  # c_i+ - c_i
        return state.update(
            **model.parts(moved),
            changes=self.new_memory(state, batch, change, trained),
            control=c + state.mean(news, batch.active),
            controls=controls + news,
            active=batch.active,
        )

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of model and control variate within the window (down), and of their changes (up)."""
        half = super().communication(dim=dim, classes=classes)
        return Communication(2.0 * half.down, 2.0 * half.up)

    def memory(self, n_clients: int) -> int:
        """Return the number of control variates and stored changes, old and new."""
        return super().memory(n_clients) + 2 * (n_clients + 1)
