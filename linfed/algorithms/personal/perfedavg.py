"""Per-FedAvg (Fallah et al. 2020): a model from which one gradient step leads to good personal models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from linfed._types import Array
from linfed._values import check_fields, positive
from linfed.algorithms.parts.base import InitContext, Requires, State
from linfed.algorithms.parts.models import LinearModel
from linfed.algorithms.personal.base import PersonalModels
from linfed.checks import check_bool, check_integer
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class PerFedAvg(PersonalModels):
    r"""Federated averaging on the losses after one gradient step of each client.

    Parameters
    ----------
    step_size : float, array_like (n_rounds,) or callable
        beta > 0, the local step size; or a schedule, as in `FedRep`.
    local_steps : int
        K, local steps of each participant in a round.
    adaptation_step_size : float
        alpha > 0, the step size of the clients' own gradient step.
    hessian : bool
        If False, neglect the Hessian (first-order variant); if True, use it (exactly, for regression only).
    disjoint_samples : bool
        If True, separate parts of a client's samples serve the adaptation, the gradient after it, and the Hessian if it
        is used. These are halves or thirds, and the last one has the remaining samples. If False (default), all use all
        samples.

    Raises
    ------
    ValueError
        If a value is out of range; in `simulate` also for classification with ``hessian=True``, and for
        ``disjoint_samples=True`` with fewer samples than parts.

    Notes
    -----
    One round, with the server's theta and data D, D', D'' of a client (the same, or three parts); K times

    .. math::

        u &= \theta_i - \alpha \nabla f_i(\theta_i; D), \qquad h = \nabla f_i(u; D') \\
        \theta_i &\leftarrow \theta_i - \beta h \quad \text{or} \quad
            \theta_i \leftarrow \theta_i - \beta \bigl(I - \alpha \nabla^2 f_i(\theta_i; D'')\bigr) h

    and the server averages the theta_i. Clients predict with the server's theta during the run. After the last round
    each client takes its own step: ``theta - alpha grad f_i(theta)``, on all its samples. New clients do the same. With
    ``M = I - alpha A_D`` and ``M'' = I - alpha A_D''`` (I without the Hessian) the fixed point on fixed samples is
    `linfed.theory.fedavg_fixed_point` of the matrices ``M'' A' M`` and vectors ``M'' (b' - alpha A' b)``. Cost of a
    round ``O(K p m d)``, with the Hessian also ``O(p m d^2)``.

    **Deviations**: full-gradient steps replace minibatches. By default D, D' and D'' are the same, and the parts stay
    for all steps of a round; the source draws three batches in each local step.

    References
    ----------
    Fallah, Mokhtari and Ozdaglar 2020, "Personalized federated learning with theoretical guarantees: a model-agnostic
    meta-learning approach", Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    >>> algorithm = lf.PerFedAvg(step_size=0.3, adaptation_step_size=0.5)
    >>> result = lf.simulate(algorithm, problem, data=lf.FixedSamples(10), n_rounds=100)
    >>> result.final.S.shape, bool(result.metrics["risk"][0, -1] < result.metrics["risk"][0, -2])
    ((1, 20, 5), True)
    """

    local_steps: int = 1
    adaptation_step_size: float
    hessian: bool = False
    disjoint_samples: bool = False

    description: ClassVar[str] = "federated averaging on the losses after one gradient step of each client"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(
            self,
            local_steps=check_integer,
            adaptation_step_size=positive,
            hessian=check_bool,
            disjoint_samples=check_bool,
        )

    @property
    def requires(self) -> Requires:  # type: ignore[override]
        """Required of a batch: second moments, or the samples themselves if they are split."""
        return Requires.ROWS if self.disjoint_samples else Requires.QUADRATIC

    @property
    def finishes(self) -> bool:
        """True: every client takes its own step after the last round."""
        return True

    def check_loss(self, classes: int) -> None:
        """Raise for classification with the Hessian."""
        if classes and self.hessian:
            raise ValueError(f"hessian = True supports only regression, but the samples have {classes} classes")

    def initial_state(self, start: InitContext) -> State:
        """Return the state with the server's model at 0."""
        zeros = start.zeros(1, start.dim)
        return State(S=zeros, shared=zeros)

    def parts(self, batch: Batch) -> tuple[Batch, ...]:
        """Return a round's data D, D' and, with the Hessian, D''."""
        count = 3 if self.hessian else 2
        return batch.split(count, rest=True) if self.disjoint_samples else (batch,) * count

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        model, alpha, beta = LinearModel.of(state), self.adaptation_step_size, self.step_in(batch)
        first, second, *more = self.parts(batch)
        A = more[0].normal_equations()[0] if more else None
        server = model.shared(state)
        local: Array = server
        for _ in range(self.local_steps):
            slope = model.gradient(second, local - alpha * model.gradient(first, local))
            if A is not None:
                slope = slope - alpha * (A @ slope[..., None])[..., 0]
            local = local - beta * slope
        return state.update(**model.parts(server + self.average(batch, local - server)))

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with each client's own step, (T, n, d)."""
        return state.update(S=self.adapt(state, batch).array("S"))

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the clients' models after one step from the server's model."""
        model = LinearModel.of(state)
        theta = model.shared(state)
        own = theta - self.adaptation_step_size * model.gradient(batch, theta)
        return State(S=model.predictors(own))

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of all models at the end, and of the participants' models."""
        return (n_clients + 3 * participants + 1) * dim

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the participants' Hessians, and of divided samples."""
        copies = participants * samples * (dim + 1) if self.disjoint_samples else 0
        return copies + 2 * participants * dim * dim * self.hessian
