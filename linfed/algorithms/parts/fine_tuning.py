"""Fine-tuning after the last round: of each client's head, or of all layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from linfed._types import Array
from linfed._values import Configuration, check_fields, optional, positive
from linfed.algorithms.parts.base import State
from linfed.algorithms.parts.heads import HeadSolver
from linfed.algorithms.parts.models import LinearModel
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.numerics.layers import composed


@dataclass(frozen=True, kw_only=True)
class AllLayers(Configuration):
    r"""Fine-tuning of the whole model: full-gradient steps of each client on all of its parameters.

    Parameters
    ----------
    steps : int, default 10
        Number of steps.
    step_size : float, optional
        alpha > 0; by default the algorithm's `step_size` in the last round.

    Raises
    ------
    ValueError
        If the number of steps is below 1, or the step size is not positive.

    Notes
    -----
    From the server's parameters ``v``, which are theta with one layer and (B, w) with two:

    .. math::

        v_i \leftarrow v, \qquad v_i \leftarrow v_i - \alpha \nabla f_i(v_i), \qquad \text{steps times}

    The final state has the server's B and w, and in S each client's predictor minus ``B w``. The number of steps is a
    penalty: few steps stay near the common model, many steps end at a client's own least squares. A new client takes
    the same steps. Cost ``O(steps n (m d + d k))``, memory ``O(n d k)``.

    References
    ----------
    Oh, Kim and Yun 2022, section 4 (fine-tuning of the whole network after FedBABU); Yu, Bagdasaryan and Shmatikov
    2020, "Salvaging federated learning by local adaptation", section 3.1 (after FedAvg).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    >>> fedavg = lf.FedAvg(step_size=0.3, fine_tune=lf.AllLayers(steps=10))
    >>> result = lf.simulate(fedavg, problem, data=lf.FixedSamples(20), n_rounds=30)
    >>> result.final.S.shape, bool(result.metrics["risk"][0, -1] < result.metrics["risk"][0, -2])
    ((1, 20, 5), True)
    """

    steps: int = 10
    step_size: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, steps=check_integer, step_size=optional(positive))

    def solve(self, state: State, batch: Batch, step_size: float) -> Array:
        """Return each client's change of the predictor ``B w``, or with one layer its predictor: S, (T, p, d).

        Parameters
        ----------
        state : State
            State with a model that all clients share.
        batch : Batch
            Samples of the clients that take the steps.
        step_size : float
            Step size of the algorithm in the last round.
        """
        model = LinearModel.of(state)
        shared = model.shared(state)
        step = step_size if self.step_size is None else self.step_size
        tuned = model.predictors(model.trained(batch, shared, step, self.steps))
        return tuned - model.predictors(shared) if model.rank else tuned


FINE_TUNING = (HeadSolver, AllLayers)
"""Classes of a field `fine_tune`."""

EXAMPLES = "lf.ExactHeads(), lf.GradientHeads(steps=10) or lf.AllLayers(steps=10)"


def fine_tuned(how: HeadSolver | AllLayers, state: State, batch: Batch, step_size: float) -> State:
    """Return the state after each client has fine-tuned its head, or all layers, on its own samples."""
    if isinstance(how, AllLayers):
        return replace(state, S=how.solve(state, batch, step_size))
    W = np.repeat(state.array("W"), batch.active.shape[-1], axis=1)
    return replace(state, W=how.solve(batch.project(state.array("B")), W, step_size).W)


def adapted(how: HeadSolver | AllLayers, state: State, batch: Batch, step_size: float) -> State:
    """Return the models of new clients at a fine-tuned state: exact heads at B, or steps from the server's model."""
    if isinstance(how, HeadSolver):
        B = state.array("B")
        return State(B=B, W=how.adapt(batch.project(B)).W)
    return State(B=state.B, W=state.W, S=how.solve(state, batch, step_size))


def prepared(how: object, arrays: dict[str, Array]) -> dict[str, Array]:
    """Return the arrays of a shared initial model with those that the fine-tuning changes."""
    if not isinstance(how, AllLayers):
        return arrays
    if "S" in arrays:
        return arrays | {"shared": arrays["S"]}
    return arrays | {"S": np.zeros_like(composed(arrays["B"], arrays["W"]))}


def tuned_floats(how: object, n_clients: int, *, rank: int, dim: int) -> int:
    """Return the size of the fine-tuned heads, or of the clients' models and their gradients."""
    if how is None:
        return 0
    return n_clients * (3 * (rank or 1) * (dim + 1) if isinstance(how, AllLayers) else rank)
