"""L2GD (Hanzely and Richtarik 2020): personal models with a penalty on their distance from their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from linfed._values import check_fields, positive
from linfed.algorithms.parts.base import Communication, InitContext, State
from linfed.algorithms.parts.models import LinearModel, flat
from linfed.algorithms.parts.step_size import checked_rounds, largest_value
from linfed.algorithms.personal.base import PersonalModels
from linfed.checks import check_inside, short_repr
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class L2GD(PersonalModels):
    r"""Gradient steps at random either on the clients' losses or towards the mean of the clients' models.

    Parameters
    ----------
    step_size : float, array_like (n_rounds,) or callable
        alpha > 0, or a schedule, as in `FedRep`. It is the source's step size divided by n.
    penalty : float
        lambda > 0, the weight of the penalty ``(lambda/2) ||v_i - v_mean||^2``.
    mean_probability : float
        q in (0, 1), the probability of a step towards the mean. The source has ``q = lambda/(L + lambda)``, with L the
        smoothness of the losses.
    coins : sequence of bool (n_rounds,), optional
        True for the rounds with a step towards the mean, in all trials; drawn by default.

    Raises
    ------
    ValueError
        If a value is out of range, or ``alpha lambda / q`` exceeds 1; in `simulate` also if `coins` does not have one
        value per round.

    Notes
    -----
    Each round is one step. All clients share its coin:

    .. math::

        v_i \leftarrow v_i - \frac{\alpha \lambda}{q} (v_i - \bar v) \text{ with probability } q, \qquad
        v_i \leftarrow v_i - \frac{\alpha}{1 - q} \nabla f_i(v_i) \text{ otherwise}

    The mean ``v_mean`` is over the participants. Clients predict with v_i; all start at 0. The expected step is 0 at
    the minimiser of ``mean f_i(v_i) + (lambda/2) ||v_i - v_mean||^2``, which is
    ``v_i = (A_i + lambda I)^{-1} (b_i + lambda v_mean)``. With a constant step size the models fluctuate about it.
    Floats are sent only where a step towards the mean follows a step on the losses: on average ``q (1 - q)`` times per
    round. A new client has no model. Cost of a round ``O(p m d)``.

    **Deviations**: `coins` and partial participation are additions.

    References
    ----------
    Hanzely and Richtarik 2020, "Federated learning of a mixture of global and local models", Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    >>> algorithm = lf.L2GD(step_size=0.02, penalty=1.0, mean_probability=0.3)
    >>> lf.simulate(algorithm, problem, data=lf.FixedSamples(10), n_rounds=100).final.S.shape
    (1, 20, 5)
    """

    penalty: float = 1.0
    mean_probability: float = 0.5
    coins: npt.ArrayLike | None = None

    requires = PersonalModels.requires
    description: ClassVar[str] = "personal models, at random pulled to their mean or improved on the clients' losses"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, penalty=positive, mean_probability=check_inside, coins=_check_coins)
        if not callable(self.step_size):
            pull = largest_value(self.step_size, "step_size") * self.penalty / self.mean_probability
            if pull > 1.0:
                raise ValueError(
                    f"step_size * penalty / mean_probability = {pull:g} must be at most 1: decrease the step size"
                )

    def for_rounds(self, n_rounds: int) -> Self:
        """Return the algorithm for a run of `n_rounds` rounds, after checking the number of coins."""
        found = super().for_rounds(n_rounds)
        if self.coins is not None:
            checked_rounds(np.asarray(self.coins), n_rounds, "coins")
        return found

    def initial_state(self, start: InitContext) -> State:
        """Return the state with all models at 0."""
        return State(S=start.zeros(start.n_clients, start.dim))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one step."""
        model, own = LinearModel.of(state), flat(state.take_clients("S", batch.active))
        alpha, q = self.step_in(batch), self.mean_probability
        pulled = own - alpha * self.penalty / q * (own - self.average(batch, own))
        improved = own - alpha / (1.0 - q) * model.gradient(batch, own)
        new = np.where(self._coins(batch, rng, len(own))[:, None, None], pulled, improved)
        return state.update(S=model.predictors(new), active=batch.active)

    def _coins(self, batch: Batch, rng: TrialRandom, trials: int) -> Any:
        """Return the coin of each trial in this round, (T,)."""
        if self.coins is not None:
            return np.full(trials, np.asarray(self.coins)[batch.round - 1])
        return rng.uniform(()) < self.mean_probability

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the expected floats of the mean (down) and of the client's model (up)."""
        size = self.mean_probability * (1.0 - self.mean_probability) * LinearModel(dim, 0, classes).size
        return Communication(size, size)


def _check_coins(name: str, value: Any) -> tuple[bool, ...] | None:
    """Return coins as a tuple, or None."""
    if value is None:
        return None
    found = np.asarray(value)
    if found.ndim != 1 or found.dtype != bool:
        raise ValueError(f"{name} = {short_repr(value)} must be Booleans, one for each round")
    return tuple(found.tolist())
