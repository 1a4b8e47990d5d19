"""Federated averaging (McMahan et al. 2017) of a linear model with one or two layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from linfed._types import Array
from linfed._values import check_fields, one_of
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.parts.base import State
from linfed.algorithms.parts.models import LinearModel
from linfed.data.batch import Batch
from linfed.numerics.medians import MEDIANS, centre
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True)
class FedAvg(Averaging):
    r"""One model for all clients: local gradient steps, averaged by the server.

    Parameters
    ----------
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the local step size; or a schedule, as in `FedRep` (fine-tuning then uses the last round's step size).
    rank : int, optional
        Columns k of B in the two-layer model ``(B, w)``, whose head w is shared by all clients. Without it the model
        has one layer, theta in R^d.
    local_steps : int
        K, full-gradient steps of each participant in a round.
    local_epochs, batch_size : int, optional
        Number of passes over the samples, and largest minibatch size, if minibatches replace full gradients. The order
        of the samples is drawn once per round.
    server_step_size : float
        eta_s > 0, the server's step size along the averaged change.
    weights : "uniform" or "samples"
        Weights of the participants: equal, or proportional to their sample counts, as in the source.
    aggregate : "mean", "median" or "geometric median"
        Aggregation of the participants' changes: their mean with the weights, or a median of each entry or of the
        vectors, which has a bounded response to a few clients that send anything.
    init : "random", "moments", Initial or array_like (d, k) or (trials, d, k)
        Initial B of the two-layer model; w and theta start at 0.
    fine_tune : ExactHeads, GradientHeads or AllLayers, optional
        Fine-tuning on each client's samples after the last round (FedAvg + FT). Of the head, at the server's B: least
        squares, or full-gradient steps from the shared head (``lf.GradientHeads(steps=10)`` in the FedRep paper). Of
        the whole model, also with one layer: ``lf.AllLayers(steps=10)``.

    Raises
    ------
    TypeError
        If `fine_tune` has another type.
    ValueError
        If a step size is not positive, a name is unknown, or options cannot be combined: `init` or fine-tuned heads
        with one layer, `local_steps` with minibatches, a median with `weights`. `simulate` also raises if the rank
        exceeds d, or for fine-tuning by exact heads in classification.

    Notes
    -----
    One round, with participants I, their `weights` p_i of sum 1, and ``f_i(theta) = (1/2m) ||X_i theta - y_i||^2``:

    .. math::

        \theta_i &\leftarrow \theta, \qquad
            K \text{ times } \theta_i \leftarrow \theta_i - \eta \nabla f_i(\theta_i) \\
        \theta &\leftarrow \theta + \eta_s \sum_{i \in I} p_i (\theta_i - \theta)

    In the two-layer model theta is ``(B, w)``, with ``grad_B = g w'`` and ``grad_w = B'g`` for
    ``g = X_i'(X_i B w - y_i)/m``. The server averages over participants. Cost of a round ``O(K p (m d + d k))``. With
    one layer, full participation and fixed data its fixed point is `linfed.theory.fedavg_fixed_point`. With two layers
    and K = 1 every limit ``B w`` with ``w != 0`` is the pooled least-squares solution.

    **Deviations**: equal weights by default; full-gradient steps, the server step size, `aggregate`, fine-tuning by
    least squares or of all layers, and schedules are additions.

    References
    ----------
    McMahan, Moore, Ramage, Hampson and Aguera y Arcas 2017, Algorithm 1; FedRep paper, section 5, for the two-layer
    model and the fine-tuning; Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-robust distributed learning: towards
    optimal statistical rates", and Pillutla, Kakade and Harchaoui 2022, "Robust aggregation for federated learning",
    for the medians.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
    >>> result = lf.simulate(lf.FedAvg(step_size=0.5), problem, data=lf.FixedSamples(100), n_rounds=50)
    >>> floor = lf.theory.single_model_floor(problem.truth(0, [0]))
    >>> bool(0 < result.metrics["risk"][0, -1] / floor[0] - 1 < 0.01)
    True
    """

    aggregate: Literal["mean", "median", "geometric median"] = "mean"

    requires = Averaging.requires
    description: ClassVar[str] = "one model for all clients, with one or two layers; optional final fine-tuning"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, aggregate=one_of("mean", *MEDIANS))
        if self.aggregate in MEDIANS and self.weights == "samples":
            raise ValueError(f"aggregate = {self.aggregate!r} cannot be combined with weights = 'samples'")

    def average(self, batch: Batch, change: Array) -> Array:
        """Return the mean or the median of the participants' changes, (T, 1, P)."""
        return centre(change, self.aggregate) if self.aggregate in MEDIANS else super().average(batch, change)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of a round's minibatches, and of the computation of the median."""
        sizes = {"n_clients": n_clients, "dim": dim, "participants": participants, "samples": samples}
        medians = 4 * participants * self.parameters(dim) if self.aggregate in MEDIANS else 0
        matrices = 4 * self.parameters(dim) ** 2 if self.aggregate == "geometric median" else 0
        return super().floats_per_step(**sizes) + medians + matrices

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        model = LinearModel.of(state)
        server = model.shared(state)
        change, _ = self.local_change(model, batch, server, rng)
        return state.update(**model.parts(server + self.server_step_size * self.average(batch, change)))
