"""pFedMe (Dinh et al. 2020): personal models by Moreau envelopes around local models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, optional, positive
from linfed.algorithms.parts.base import State
from linfed.algorithms.parts.models import LinearModel
from linfed.algorithms.personal.base import PersonalModels, ridge_towards, vectors
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.numerics.linalg import solve
from linfed.numerics.streams import TrialRandom

Inner: TypeAlias = Callable[[Array, Array], Array]
"""Function that updates the personal models, given them and the local models, all (T, p, P)."""


@dataclass(frozen=True, kw_only=True)
class PFedMe(PersonalModels):
    r"""Gradient steps on the Moreau envelopes of the clients' losses, averaged by the server.

    Parameters
    ----------
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the step size of the local model w_i; or a schedule, as in `FedRep`.
    local_steps : int
        R, steps of w_i in a round.
    penalty : float
        lambda > 0, the weight of ``(lambda/2) ||t - w_i||^2``.
    inner_steps : int or None
        Gradient steps on the personal model t before each step of w_i; None minimises exactly, for regression only.
    inner_step_size : float, optional
        Step size of the inner steps; eta by default.
    server_mix : float
        beta > 0, the weight of the average in the server's new model.

    Raises
    ------
    ValueError
        If a value is out of range, or `inner_step_size` is given with ``inner_steps=None``; in `simulate` also for
        classification with ``inner_steps=None``.

    Notes
    -----
    One round, with the server's w; each participant starts with ``w_i = t = w`` and repeats R times

    .. math::

        t &\leftarrow t - \eta_t \bigl(\nabla f_i(t) + \lambda (t - w_i)\bigr) \text{ inner\_steps times, or }
            t \leftarrow (A_i + \lambda I)^{-1} (b_i + \lambda w_i) \\
        w_i &\leftarrow w_i - \eta \lambda (w_i - t)

    and the server sets ``w <- (1 - beta) w + beta mean w_i``. Clients predict with their last t. With exact inner steps
    on fixed samples and full participation, w converges to ``linfed.theory.fedavg_fixed_point`` of the matrices
    ``lambda (A + lambda I)^{-1} A`` and vectors ``lambda (A + lambda I)^{-1} b``, with R local steps. A new client of a
    regression is fitted exactly. Cost of a round ``O(R inner_steps p m d)``, or ``O(p (m d^2 + d^3) + R p d^2)`` for
    exact steps.

    **Deviations**: full-gradient steps replace minibatches; exact inner steps and the fit of new clients are additions.
    With partial participation only participants update t; in the source all clients do, and the server averages some of
    them. Two public implementations predict with w_i or w.

    References
    ----------
    Dinh, Tran and Nguyen 2020, "Personalized federated learning with Moreau envelopes", Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    >>> near = lf.PFedMe(step_size=0.01, local_steps=20, penalty=2.0, inner_steps=None)
    >>> result = lf.simulate(near, problem, data=lf.FixedSamples(10), n_rounds=100)
    >>> result.final.S.shape, result.final.shared.shape
    ((1, 20, 5), (1, 1, 5))
    """

    local_steps: int = 20
    penalty: float = 15.0
    inner_steps: int | None = 5
    inner_step_size: float | None = None
    server_mix: float = 1.0

    requires = PersonalModels.requires
    description: ClassVar[str] = "personal models by Moreau envelopes around local models, which the server averages"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self,
            local_steps=check_integer,
            penalty=positive,
            inner_steps=optional(check_integer),
            inner_step_size=optional(positive),
            server_mix=positive,
        )
        if self.inner_steps is None and self.inner_step_size is not None:
            raise ValueError(
                f"inner_step_size = {self.inner_step_size:g} requires inner_steps=: without it they are exact"
            )

    def check_loss(self, classes: int) -> None:
        """Raise for classification with exact inner steps, which support only regression."""
        if classes and self.inner_steps is None:
            raise ValueError(
                f"inner_steps = None (exact) supports only regression, but the samples have {classes} classes: give a "
                "number of steps"
            )

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the participants' linear systems and inverses of exact inner steps."""
        return 4 * participants * dim * dim if self.inner_steps is None else 0

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        model, server, own = vectors(state, batch)
        eta, solve = self.step_in(batch), self._inner(model, batch)
        local = personal = np.broadcast_to(server, own.shape)
        for _ in range(self.local_steps):
            personal = solve(personal, local)
            local = local - eta * self.penalty * (local - personal)
        new = server + self.server_mix * self.average(batch, local - server)
        return state.update(S=model.predictors(personal), shared=model.predictors(new), active=batch.active)

    def _inner(self, model: LinearModel, batch: Batch) -> Inner:
        """Return the function that updates the personal models (T, p, P), given the local models."""
        if self.inner_steps is None:
            A, b = batch.normal_equations()
            inverse = solve(A + self.penalty * np.eye(A.shape[-1]), np.eye(A.shape[-1]))
            return lambda personal, local: (inverse @ (b + self.penalty * local)[..., None])[..., 0]
        eta, steps = self.inner_step_size or self.step_in(batch), self.inner_steps
        return lambda personal, local: model.trained(
            batch, personal, eta, steps, lambda g, t: g + self.penalty * (t - local)
        )

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the new clients' minimisers around the server's model."""
        return State(S=ridge_towards(batch, state.array("shared"), self.penalty))
