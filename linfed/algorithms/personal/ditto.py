"""Ditto (Li et al. 2021): personal models near the model of federated averaging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from linfed._values import check_fields, non_negative, one_of, optional, positive
from linfed.algorithms.parts.base import State
from linfed.algorithms.parts.models import client_weights, weighted_mean
from linfed.algorithms.personal.base import PersonalModels, ridge_towards, vectors
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class Ditto(PersonalModels):
    r"""Federated averaging, and next to it a personal model per client with a penalty on its distance from the average.

    Parameters
    ----------
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the local step size of federated averaging; or a schedule, as in `FedRep`.
    local_steps : int
        K, full-gradient steps of federated averaging in a round.
    penalty : float
        lambda >= 0, the weight of the penalty ``(lambda/2) ||v_i - theta||^2``.
    personal_steps : int
        Gradient steps on the personal model in a round.
    personal_step_size : float, optional
        Step size of the personal model; eta by default.
    weights : "uniform" or "samples"
        Weights p_i of the participants in the average: equal, or proportional to their numbers of samples.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    One round, with the server's theta and each participant's last v_i:

    .. math::

        v_i &\leftarrow v_i - \eta_v \bigl(\nabla f_i(v_i) + \lambda (v_i - \theta)\bigr),
            \qquad \text{personal\_steps times} \\
        \theta &\leftarrow \theta + \sum_{i \in I} p_i (\theta_i - \theta),
            \qquad \theta_i \text{ by K local steps on } f_i

    The personal steps use the received theta, not the new one. Clients predict with v_i; all start at 0. The v_i do not
    change theta, which follows `FedAvg`. On fixed samples and with small steps, v_i converges to
    ``(A_i + lambda I)^{-1} (b_i + lambda theta)`` at the limit of theta. ``penalty=0`` is `LocalOnly` with gradient
    steps. A new client of a regression is fitted exactly. Cost of a round ``O((K + s) p m d)`` for s personal steps.

    **Deviations**: full-gradient steps replace minibatches; the exact fit of new clients is an addition.

    References
    ----------
    Li, Hu, Beirami and Smith 2021, "Ditto: fair and robust federated learning through personalization", Algorithm 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    >>> run = {"data": lf.FixedSamples(n_samples=10), "n_rounds": 200}
    >>> near = lf.simulate(lf.Ditto(step_size=0.3), problem, **run)
    >>> average = lf.simulate(lf.FedAvg(step_size=0.3), problem, **run)
    >>> bool(near.metrics["risk"][0, -1] < average.metrics["risk"][0, -1])
    True
    """

    local_steps: int = 1
    penalty: float = 1.0
    personal_steps: int = 1
    personal_step_size: float | None = None
    weights: Literal["uniform", "samples"] = "uniform"

    requires = PersonalModels.requires
    description: ClassVar[str] = "federated averaging, and a personal model per client near the average"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self,
            local_steps=check_integer,
            penalty=non_negative,
            personal_steps=check_integer,
            personal_step_size=optional(positive),
            weights=one_of("uniform", "samples"),
        )

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        model, server, own = vectors(state, batch)
        eta = self.step_in(batch)
        own = model.trained(
            batch,
            own,
            self.personal_step_size or eta,
            self.personal_steps,
            lambda g, v: g + self.penalty * (v - server),
        )
        change = model.trained(batch, server, eta, self.local_steps) - server
        new = model.predictors(server + weighted_mean(change, client_weights(batch, self.weights)))
        return state.update(S=model.predictors(own), shared=new, active=batch.active)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the minimisers of the new clients' losses with the penalty."""
        if self.penalty == 0:
            return State(S=batch.least_squares())
        return State(S=ridge_towards(batch, state.array("shared"), self.penalty))
