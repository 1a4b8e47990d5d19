"""MAML (Finn, Abbeel and Levine 2017) of a linear model with two layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from linfed.algorithms.parts.base import InitContext, Requires, State
from linfed.algorithms.parts.meta import gradients_after_step, own_step
from linfed.algorithms.representation.anil import ANIL
from linfed.data.batch import Batch
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class MAML(ANIL):
    r"""Two-layer model from which one gradient step on both layers leads to good personal models.

    Parameters
    ----------
    rank, step_size, hessian, init, disjoint_samples
        As in `ANIL`.
    adaptation_step_size : float
        alpha > 0, the step size of the clients' own step on B and the head.

    Raises
    ------
    ValueError
        If a value is out of range; in `simulate` also if the rank exceeds d, for classification, or for
        ``disjoint_samples=True`` with a single sample.

    Notes
    -----
    One round, with the server's ``theta = (B, w)``, data D, D' of a client (the same, or two halves), and the Hessian
    ``H_i`` of ``f_i(.; D)`` with respect to both layers at theta:

    .. math::

        \theta_i &= \theta - \alpha \nabla f_i(\theta; D), \qquad h_i = \nabla f_i(\theta_i; D') \\
        \theta &\leftarrow \theta - \beta\, \tfrac{1}{p} \sum_{i \in I} h_i \quad \text{or} \quad
            \theta \leftarrow \theta - \beta\, \tfrac{1}{p} \sum_{i \in I} (I - \alpha H_i) h_i

    The head starts at 0. Clients predict with the server's model during the run. After the last round each client takes
    its own step, on all its samples. Its predictor is then ``B w_i + s_i`` with ``s_i = -alpha g_i w'w_i``, where
    ``g_i`` is the gradient on the predictor ``B w``. New clients do the same. Cost of a round ``O(p m d + p d k)``. As
    alpha goes to 0, both variants become two-layer `FedAvg` with one local step.

    **Deviations**: a round's participants take the place of a batch of tasks; by default D' is D, in the source it is
    another batch.

    References
    ----------
    Finn, Abbeel and Levine 2017, Algorithm 1; Collins, Mokhtari, Oh and Shakkottai 2022, "MAML and ANIL provably learn
    representations", section 2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=10, rank=2)
    >>> algorithm = lf.MAML(rank=2, step_size=0.3, adaptation_step_size=0.5)
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(n_samples=50), n_rounds=300)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 0.05)
    True
    """

    description: ClassVar[str] = "model of two layers from which one gradient step on both leads to personal models"

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch."""
        return Requires.ROWS if self.disjoint_samples else Requires.QUADRATIC

    def check_loss(self, classes: int) -> None:
        """Raise for classification."""
        if classes:
            raise ValueError(f"MAML supports only regression, but the samples have {classes} classes")

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init`, and the shared head and the clients' offsets at 0."""
        return super().initial_state(start).update(S=np.zeros((start.trials, 1, start.dim)))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        B, W = state.array("B"), state.array("W")
        first, second = batch.split(rest=True) if self.disjoint_samples else (batch, batch)
        options = {"all_layers": True, "hessian": self.hessian}
        of_B, of_head = gradients_after_step(first, second, B, W, self.adaptation_step_size, **options)
        beta = self.step_in(batch)
        W = W - beta * of_head
        return state.update(B=B - beta * of_B, W=W, S=np.zeros_like(state.array("S")), shared=W)

    def finish(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with each client's own model: heads (T, n, k) and offsets (T, n, d)."""
        own = self.adapt(state, batch)
        return state.update(W=own.array("W"), S=own.array("S"))

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the clients' models after one step from the server's model."""
        B, alpha = state.array("B"), self.adaptation_step_size
        own = own_step(batch, B, state.array("shared"), alpha, all_layers=True)
        return State(B=B, W=own.heads, S=own.offsets)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of the final models, and of the participants' gradients and heads."""
        return n_clients * (self.rank + dim) + self.rank * dim + participants * (4 * dim + 2 * self.rank)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of divided samples."""
        return participants * samples * (dim + 1) if self.disjoint_samples else 0
