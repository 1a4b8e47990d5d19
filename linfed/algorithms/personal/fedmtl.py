"""Federated multi-task learning: a model per client, and a learned relation of features or of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, non_negative, one_of, positive
from linfed.algorithms.parts.base import Algorithm, Communication, InitContext, Requires, State
from linfed.data.batch import Batch
from linfed.numerics.linalg import solve, symmetric_root, take_clients
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class FedMTLState(State):
    """State with all models S and the relation ``Omega``: (trials, d, d) of the features, or (trials, n, n)."""

    Omega: Array


@dataclass(frozen=True, kw_only=True)
class FedMTL(Algorithm):
    r"""A full-dimensional model per client, with a quadratic penalty whose matrix is learned.

    Parameters
    ----------
    penalty : float
        lambda > 0, the weight of the penalty.
    relation : "features" or "tasks"
        What the matrix relates: the d features (Argyriou et al.), or the n clients (MOCHA).
    epsilon : float
        Number >= 0 that is added to the eigenvalues of the Gram matrix; above 0 for "tasks".

    Raises
    ------
    ValueError
        If a value is out of range, or a name is unknown; in `simulate` also for classification.

    Notes
    -----
    The objective, with the models as rows of Theta (n, d) and ``tr Omega = 1``, is

    .. math::

        \sum_i f_i(\theta_i) + \lambda \operatorname{tr}(\Theta \Omega^{-1} \Theta^\top) \text{ (features), or }
        \sum_i f_i(\theta_i) + \lambda \operatorname{tr}(\Theta^\top \Omega^{-1} \Theta) \text{ (tasks)}

    plus ``lambda epsilon tr Omega^{-1}``. A round minimises it first over the participants' models, then over Omega:

    .. math::

        \theta_i = (A_i + 2 \lambda \Omega^{-1})^{-1} b_i \text{ (features)}, \qquad
        \Omega = (\Theta^\top \Theta + \epsilon I)^{1/2} / \operatorname{tr} (\Theta^\top \Theta + \epsilon I)^{1/2}

    so on fixed samples it never increases. For "tasks" the Gram matrix is ``Theta Theta'``, and the server solves one
    linear system of all participants' models. Omega starts at I/d or I/n. At the best Omega the penalty is
    ``lambda (tr (Theta'Theta + epsilon I)^{1/2})^2``, for epsilon = 0 the squared nuclear norm of Theta, which the
    alternation reaches slowly. A new client uses the relation of features; with "tasks" it has no model. Cost of a
    round ``O(p (m d^2 + d^3))`` for "features" and ``O(p m d^2 + (p d)^3)`` for "tasks".

    **Deviations**: exact minimisation over the models replaces local solvers.

    References
    ----------
    Argyriou, Evgeniou and Pontil 2008, "Convex multi-task feature learning"; Smith, Chiang, Sanjabi and Talwalkar 2017,
    "Federated multi-task learning".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=30, dim=10, rank=2, noise_std=0.3)
    >>> run = {"data": lf.FixedSamples(n_samples=8), "n_rounds": 50}
    >>> related = lf.simulate(lf.FedMTL(penalty=0.01), problem, **run)
    >>> alone = lf.simulate(lf.LocalOnly(ridge=0.1), problem, **run)
    >>> bool(related.metrics["risk"][0, -1] < alone.metrics["risk"][0, -1])
    True
    """

    penalty: float
    relation: Literal["features", "tasks"] = "features"
    epsilon: float = 1e-6

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "a model per client, with a learned relation of features or of clients"

    def __post_init__(self) -> None:
        check_fields(self, penalty=positive, relation=one_of("features", "tasks"), epsilon=non_negative)
        if self.relation == "tasks":
            positive("epsilon (relation='tasks')", self.epsilon)

    def initial_state(self, start: InitContext) -> FedMTLState:
        """Return the state with all models at 0 and a multiple of the identity as relation."""
        S = start.zeros(start.n_clients, start.dim)
        size = start.dim if self.relation == "features" else start.n_clients
        return FedMTLState(S=S, Omega=np.repeat(np.eye(size)[None] / size, len(S), axis=0))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        assert isinstance(state, FedMTLState)
        solve = self._of_features if self.relation == "features" else self._of_tasks
        state = state.update(S=solve(state, batch), active=batch.active)
        Theta = state.array("S")
        gram = Theta.mT @ Theta if self.relation == "features" else Theta @ Theta.mT
        root = symmetric_root(gram + self.epsilon * np.eye(gram.shape[-1]))
        trace = np.trace(root, axis1=1, axis2=2)[:, None, None]
        return state.update(Omega=np.where(trace > 0, root / np.where(trace > 0, trace, 1.0), state.Omega))

    def _of_features(self, state: FedMTLState, batch: Batch) -> Array:
        """Return the participants' models at the relation of features; it may be singular."""
        A, b = batch.normal_equations()
        root = symmetric_root(state.Omega)[:, None]
        inside = root @ A @ root + 2.0 * self.penalty * np.eye(A.shape[-1])
        return np.asarray((root @ solve(inside, root @ b[..., None]))[..., 0])

    def _of_tasks(self, state: FedMTLState, batch: Batch) -> Array:
        """Return the participants' models at the relation of clients, given the other clients' models."""
        A, b = batch.normal_equations()
        trials, p, d = b.shape
        penalty = 2.0 * self.penalty * solve(state.Omega, np.eye(state.Omega.shape[-1]))
        rows = take_clients(penalty, batch.active)  # (T, p, n)
        own = np.take_along_axis(rows, batch.active[:, None, :], axis=-1)
        # Other clients' models are constants: subtract the participants' part of the whole product.
        S = state.array("S")
        others = rows @ S - own @ take_clients(S, batch.active)
        system = np.einsum("tij,kl->tikjl", own, np.eye(d))
        each = np.arange(p)
        system[:, each, :, each, :] += A.swapaxes(0, 1)
        flat = system.reshape(trials, p * d, p * d)
        return solve(flat, (b - others).reshape(trials, -1, 1)).reshape(trials, p, d)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return the models of new clients at the relation of features."""
        assert isinstance(state, FedMTLState)
        if self.relation == "tasks":
            raise ValueError("FedMTL with relation = 'tasks' learns nothing that new clients can use")
        return State(S=self._of_features(state, batch))

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of the relation of features, or of a model (down), and of a model (up)."""
        down = dim * (dim + 1) / 2.0 if self.relation == "features" else float(dim)
        return Communication(down, float(dim))

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of all models."""
        return n_clients * dim

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the relation and of the linear systems."""
        if self.relation == "features":
            return 4 * (participants + 1) * dim * dim
        return 4 * n_clients * n_clients + 2 * (participants * dim) ** 2
