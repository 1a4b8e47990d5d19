"""SCAFFOLD (Karimireddy et al. 2020): averaging with control variates against client drift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, one_of
from linfed.algorithms.averaging.base import Averaging, WeightedState
from linfed.algorithms.parts.base import Communication, InitContext, State
from linfed.algorithms.parts.models import LinearModel
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class ScaffoldState(WeightedState):
    """State with a shared model and the control variates of clients (trials, n, P) and server (trials, 1, P)."""

    controls: Array
    control: Array

    per_client: ClassVar[frozenset[str]] = WeightedState.per_client | {"controls"}


@dataclass(frozen=True, kw_only=True)
class SCAFFOLD(Averaging):
    r"""Averaging with control variates, stored gradients that correct client drift.

    Parameters
    ----------
    controls : "change" or "gradient"
        Control variate of a participant: the mean of its local gradients, computed from its change (option II), or the
        gradient at the server's model, which costs one more pass over its samples (option I).
    step_size, rank, local_steps, local_epochs, batch_size, server_step_size, weights, init, fine_tune
        As in `FedAvg`.

    Raises
    ------
    TypeError
        As in `FedAvg`.
    ValueError
        As in `FedAvg`, and if `controls` is unknown.

    Notes
    -----
    One round, with participants I and K local steps, from ``c_i = c = 0``:

    .. math::

        \theta_i &\leftarrow \theta, \qquad
            K \text{ times } \theta_i \leftarrow \theta_i - \eta (\nabla f_i(\theta_i) - c_i + c) \\
        c_i^+ &= c_i - c + (\theta - \theta_i)/(K \eta) \quad \text{or} \quad \nabla f_i(\theta) \\
        \theta &\leftarrow \theta + \eta_s \sum_{i \in I} p_i (\theta_i - \theta) \\
        c &\leftarrow c + \sum_{i \in I} \pi_i (c_i^+ - c_i), \qquad c_i \leftarrow c_i^+

    ``pi_i`` is a client's share among *all* clients, so that always ``c = sum_i pi_i c_i``. The minimiser of
    ``sum_i pi_i f_i`` with ``c_i = grad f_i`` is a fixed point for any participants and every K. Memory O(n P).

    **Deviations**: the pseudocode of the averaging family prints the participants' weights p_i in the update of c. With
    unequal counts and p < n, c is then not the mean of the c_i, and the limit is another point. Full-gradient steps,
    weights, schedules and fine-tuning are additions.

    References
    ----------
    Karimireddy, Kale, Mohri, Reddi, Stich and Suresh 2020, Algorithm 1; the pseudocode of the averaging
    family, Algorithm 4.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2)
    >>> run = {"data": lf.FixedSamples(30), "n_rounds": 300, "participation": 0.5, "metrics": ["train_loss"]}
    >>> fedavg = lf.simulate(lf.FedAvg(step_size=0.1, local_steps=10), problem, **run)
    >>> scaffold = lf.simulate(lf.SCAFFOLD(step_size=0.1, local_steps=10), problem, **run)
    >>> bool(scaffold.metrics["train_loss"][0, -1] < fedavg.metrics["train_loss"][0, -1])
    True
    """

    controls: Literal["change", "gradient"] = "change"

    requires = Averaging.requires
    description: ClassVar[str] = "averaging with control variates, without client drift"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, controls=one_of("change", "gradient"))

    def initial_state(self, start: InitContext) -> ScaffoldState:
        """Return the initial model, with control variates of 0."""
        size = self.parameters(start.dim, start.classes)
        zeros = np.zeros((start.trials, start.n_clients, size))
        return ScaffoldState(**self.counted(start), controls=zeros, control=zeros[:, :1].copy())

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, ScaffoldState)
        model = LinearModel.of(state)
        server, c, controls = model.shared(state), state.control, state.take_clients("controls", batch.active)
        change, taken = self.local_change(model, batch, server, rng, lambda g, _: g - controls + c)
        if self.controls == "gradient":
            new = model.gradient(batch, server)
        else:
            new = controls - c - change / (taken * self.step_in(batch))
        moved = server + self.server_step_size * self.average(batch, change)
        control = c + state.mean(new - controls, batch.active)
        return state.update(**model.parts(moved), control=control, controls=new, active=batch.active)

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of model and control variate (down), and of their changes (up)."""
        size = 2.0 * self.parameters(dim, classes)
        return Communication(size, size)

    def memory(self, n_clients: int) -> int:
        """Return the number of control variates, old and new."""
        return 2 * (n_clients + 1)
