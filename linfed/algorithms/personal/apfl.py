"""APFL (Deng et al. 2020): each client predicts with a mix of its own model and the server's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, one_of, optional, positive
from linfed.algorithms.parts.base import InitContext, State
from linfed.algorithms.parts.models import LinearModel, flat
from linfed.algorithms.personal.base import PersonalModels
from linfed.checks import check_integer, check_number
from linfed.data.batch import Batch
from linfed.numerics.linalg import take_clients
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class APFLState(State):
    """State with local models ``own`` (trials, n, d), the server's ``shared`` (trials, 1, d), and `mix` (trials, n)."""

    own: Array
    shared: Array
    mix: Array

    per_client: ClassVar[frozenset[str]] = State.per_client | {"own", "mix"}

    def for_prediction(self) -> State:
        """Return the predictors ``a_i v_i + (1 - a_i) theta``."""
        a = self.mix.reshape(*self.mix.shape, *[1] * (self.own.ndim - 2))
        return State(S=a * self.own + (1.0 - a) * self.shared)


@dataclass(frozen=True, kw_only=True)
class APFL(PersonalModels):
    r"""Federated averaging, and a local model per client that is trained as a part of a mix with the averaged model.

    Parameters
    ----------
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the local step size; or a schedule, as in `FedRep`.
    local_steps : int
        K, full-gradient steps of each participant in a round.
    mix : float
        a in [0, 1], the share of the local model in the mix; the first value if it is adaptive.
    mix_step_size : float, optional
        eta_a > 0: every client adapts its own a_i by a gradient step in the first local step of a round.
    variant : "paper" or "framework"
        "paper": all updates within a local step use the values from before it. "framework": the mix has the new
        theta_i, and the gradient of a_i is that of a public implementation.

    Raises
    ------
    ValueError
        If a value is out of range, or the name of the variant is unknown.

    Notes
    -----
    In one round each participant starts from the server's theta and its last v_i, and takes K local steps:

    .. math::

        u_i &= a_i v_i + (1 - a_i) \theta_i, \qquad g_i = \nabla f_i(u_i) \\
        a_i &\leftarrow \operatorname{clip}(a_i - \eta_a \langle v_i - \theta_i, g_i \rangle, 0, 1)
            \qquad \text{(adaptive, first step)} \\
        \theta_i &\leftarrow \theta_i - \eta \nabla f_i(\theta_i), \qquad v_i \leftarrow v_i - \eta a_i g_i

    All right-hand sides have the values from before the step. The server averages the theta_i. Clients predict with
    ``a_i v_i + (1 - a_i) theta`` at the server's new theta. All models start at 0.

    The v_i do not change theta, which follows `FedAvg`. For a fixed ``mix=0`` v_i does not change, and for a fixed
    ``mix=1`` it is `LocalOnly` with gradient steps. For other fixed a and K = 1 the mix converges to a local
    least-squares solution on fixed samples. In the variant "framework" theta_i is updated first, and the gradient of
    a_i is ``(a^2 + (1-a)^2) <v - theta, g> + 0.02 a``. A new client gets the local least-squares solution, or the
    server's theta for a fixed ``mix=0``. Cost of a round ``O(K p m d)``.

    **Deviations**: full-gradient steps replace minibatches; the fit of new clients is an addition.

    References
    ----------
    Deng, Kamani and Mahdavi 2020, "Adaptive personalized federated learning", Algorithm 1 and equation (10).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    >>> result = lf.simulate(lf.APFL(step_size=0.3, mix_step_size=0.1), problem, data=lf.FixedSamples(10), n_rounds=100)
    >>> result.final.array("mix").shape, bool((result.final.array("mix") > 0.5).any())
    ((1, 20), True)
    """

    local_steps: int = 1
    mix: float = 0.5
    mix_step_size: float | None = None
    variant: Literal["paper", "framework"] = "paper"

    requires = PersonalModels.requires
    description: ClassVar[str] = "federated averaging, and a local model per client in a mix with the average"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self,
            local_steps=check_integer,
            mix=partial(check_number, minimum=0.0, maximum=1.0),
            mix_step_size=optional(positive),
            variant=one_of("paper", "framework"),
        )

    def initial_state(self, start: InitContext) -> APFLState:
        """Return the state with all models at 0 and the mixes at `mix`."""
        zeros = start.zeros(start.n_clients, start.dim)
        return APFLState(own=zeros, shared=zeros[:, :1].copy(), mix=np.full(zeros.shape[:2], self.mix))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, APFLState)
        model = LinearModel.of(State(S=state.shared))
        server, own = flat(state.shared), flat(take_clients(state.own, batch.active))
        a = take_clients(state.mix, batch.active)[..., None]
        local, eta = np.broadcast_to(server, own.shape), self.step_in(batch)
        for number in range(self.local_steps):
            new = local - eta * model.gradient(batch, local)
            other = new if self.variant == "framework" else local
            slope = model.gradient(batch, a * own + (1.0 - a) * other)
            changed = self._adapted(a, own - other, slope) if number == 0 else a
            own, local, a = own - eta * a * slope, new, changed
        shared = model.predictors(server + self.average(batch, local - server))
        return state.update(own=model.predictors(own), shared=shared, mix=a[..., 0], active=batch.active)

    def _adapted(self, a: Array, difference: Array, slope: Array) -> Array:
        """Return the mixes (T, p, 1) after their gradient step."""
        if self.mix_step_size is None:
            return a
        gradient = np.sum(difference * slope, axis=-1, keepdims=True)
        if self.variant == "framework":
            gradient = (a**2 + (1.0 - a) ** 2) * gradient + 0.02 * a
        return np.clip(a - self.mix_step_size * gradient, 0.0, 1.0)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return new clients' local least-squares predictors, or the server's model for a fixed ``mix=0``."""
        assert isinstance(state, APFLState)
        fixed_at_0 = self.mix == 0 and self.mix_step_size is None
        return State(S=state.shared) if fixed_at_0 else State(S=batch.least_squares())

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of all local models and mixes, and of the participants' temporary models."""
        return n_clients * (2 * dim + 1) + (4 * participants + 1) * dim
