"""FedProx (Li et al. 2020): averaging with a proximal term in the clients' losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from linfed._values import check_fields, non_negative
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.parts.base import State
from linfed.algorithms.parts.models import LinearModel
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class FedProx(Averaging):
    """Averaging whose clients add a proximal term ``(mu/2) ||theta_i - theta||^2`` to their loss.

    Parameters
    ----------
    mu : float
        mu >= 0, the weight of the proximal term; 0 is `FedAvg`.
    step_size, rank, local_steps, local_epochs, batch_size, server_step_size, weights, init, fine_tune
        As in `FedAvg`.

    Raises
    ------
    TypeError
        As in `FedAvg`.
    ValueError
        As in `FedAvg`, and if mu is negative.

    Notes
    -----
    A local step is ``theta_i <- theta_i - eta (grad f_i(theta_i) + mu (theta_i - theta))``; everything else is FedAvg.
    With one layer, full gradients, full participation and fixed data its fixed point is
    ``linfed.theory.fedavg_fixed_point(mu=)``. With ``K -> inf`` local steps this is the fixed point of clients that
    solve their proximal problems exactly.

    **Deviations**: all clients have equal mu; the pseudocode of the averaging family allows one mu per client.
    Full-gradient steps, schedules and fine-tuning are additions.

    References
    ----------
    Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith 2020, Algorithm 2; the pseudocode of the averaging
    family, Algorithm 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
    >>> near = lf.FedProx(step_size=0.1, local_steps=20, mu=1.0)
    >>> lf.simulate(near, problem, data=lf.FixedSamples(30), n_rounds=50).final.S.shape
    (1, 1, 20)
    """

    mu: float

    requires = Averaging.requires
    description: ClassVar[str] = "averaging with a proximal term that keeps clients near the server's model"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, mu=non_negative)

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        model = LinearModel.of(state)
        server = model.shared(state)
        change, _ = self.local_change(model, batch, server, rng, lambda g, theta: g + self.mu * (theta - server))
        return state.update(**model.parts(server + self.server_step_size * self.average(batch, change)))
