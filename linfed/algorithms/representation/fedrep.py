"""FedRep for linear models (Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Mask
from linfed._values import check_fields, converted, instance, one_of, optional
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.parts.base import Communication, InitContext, Requires, State
from linfed.algorithms.parts.heads import (
    AtHeads,
    ExactHeads,
    HeadSolver,
    check_heads_loss,
    local_messages,
    update_representation,
)
from linfed.algorithms.parts.overshooting import overshoots_on_representation
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.checks import check_bool, check_choice, check_integer, check_weights, short_repr
from linfed.data.batch import Batch, Fit
from linfed.data.rows import factor_floats
from linfed.numerics.layers import composed, summed_outer
from linfed.numerics.least_squares import semidefinite
from linfed.numerics.linalg import eigvalsh, orthonormalize, qr_positive
from linfed.numerics.medians import MEDIANS, centre
from linfed.numerics.streams import TrialRandom
from linfed.problems.designs import Design


@dataclass(frozen=True, kw_only=True)
class FedRep(Scheduled):
    r"""Shared representation B with a personal head per client.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, array_like (n_rounds,) or callable
        eta > 0, the step size for B; or a schedule: one value per round, or a function of the round number, from 1.
    init : "moments", "random", Initial or array_like (d, k) or (trials, d, k)
        Initial B; an array is used without orthonormalisation. Classification requires "random" or an array.
    heads : ExactHeads or GradientHeads
        Closed-form heads, or gradient steps from the client's last head: ``lf.GradientHeads(steps=1)`` and 10 are GD-GD
        and 10GD-GD of the paper's Figure 3.
    representation_steps : int
        Local steps on B at fixed heads before the server averages, as in the paper's section 5.2; 1 is Algorithm 1.
    orthonormalize : bool
        If True, replace B by its Q factor after each round.
    aggregate : "mean", "sum", "median" or "geometric median"
        Aggregation of the participants' gradients on B; steps on heads do not depend on it. The medians, of each entry
        or of the matrices as vectors, have a bounded response to a few clients that send anything. With clients that
        differ they are not the mean, also without such clients.
    weights : array_like (n,), optional
        Positive weights of the clients' gradients on B, of any scale: they are divided by their mean over all n
        clients. Equal by default; ``weights=counts`` is proportional to the clients' numbers of samples.
    disjoint_samples : bool
        If True, heads are fitted on the first half of a client's samples, and the gradient on B uses the second half.
        Each half has ``floor(m/2)`` samples.
    whiten : "own", "pooled" or Design, optional
        Multiply the gradient on B by the inverse of a covariance of x: the one of each client's samples ("own"), its
        mean over the participants ("pooled"), or the one of a design. With ``disjoint_samples`` only the second half of
        the samples counts. ``problem.design`` has the true covariance.
    rotate_heads : bool
        If True, also replace every head w by ``R w`` when B is replaced by its Q factor, which keeps the predictors
        ``B w``; requires ``orthonormalize=True``. If False (default), heads do not change. With exact heads this option
        changes the predictors, but not B.

    Raises
    ------
    TypeError
        If `heads` is neither `ExactHeads` nor `GradientHeads`.
    ValueError
        If the rank is below 1, a step size or a weight is not positive, a name is unknown, `rotate_heads` is True
        without `orthonormalize`, `whiten` is combined with several `representation_steps`, or a median with `weights`
        or `whiten`. `simulate` also raises if the rank exceeds d, a schedule does not have one value per round, or
        `weights` does not have one per client. It raises if `disjoint_samples` or `whiten` has too few samples (d for
        an inverse), or if exact heads (the default), `whiten`, a median or `rotate_heads` are used for classification.

    Notes
    -----
    One round, with ``Z_i = X_i B`` and participants I, ``|I| = p``:

    .. math::

        w_i &\leftarrow \arg\min_w \tfrac{1}{2m_i} \|Z_i w - y_i\|^2 \qquad \text{(exact heads)} \\
        G &\leftarrow \tfrac{1}{p} \sum_{i \in I} \omega_i \tfrac{1}{m_i} X_i^\top (Z_i w_i - y_i) w_i^\top \\
        B &\leftarrow \operatorname{qr}(B - \eta G)

    The ``omega_i`` are the weights divided by their mean over all n clients, 1 by default. They do not depend on the
    participants, so the mean of G over the draw of participants is that of full participation. Weights divided by the
    participants' sum would give another distribution of G if p < n; they are not supported.

    Gradients have no factor 2; the server averages over participants. Heads start at 0. Cost of a round
    ``O(p m (d k + k^2))``. With exact heads and m <= k the residual is zero, so without `disjoint_samples` the gradient
    is exactly zero and B does not change.

    The state after a round has the new B and the heads that were fitted at the last B, and its losses and risks belong
    to this pair. For exact heads without `disjoint_samples` and `whiten` the gradient on B is orthogonal to B, so small
    steps decrease the recorded training loss. With `whiten` it is not, and heads at the new B can have far smaller
    losses than the recorded ones, also with `rotate_heads`. ``result.adapt(X, y)``, with the training samples, fits
    heads at the final B.

    With ``whiten``, client i's message ``X_i'(Z_i w_i - y_i)/m`` is multiplied by the inverse of ``X_i'X_i/m``, of the
    mean of these matrices, or of the covariance of a design. ``disjoint_samples=True, whiten="own"`` is DFW, the
    de-biased and whitened FedRep of T. Zhang, L. F. Toso, J. Anderson and N. Matni (Sample-efficient linear
    representation learning from non-IID non-isotropic data, ICLR 2024). `linfed.theory.mean_gradient` is the mean of
    these gradients with exact heads, except for ``whiten="pooled"``.

    **Deviations**: Algorithm 2 as printed, and the paper's experiments, do not normalise B. The paper's analysis does,
    and it is the default here; ``orthonormalize=False`` switches it off, which is not equivalent. R has a positive
    diagonal. Schedules, a ridge on heads, `aggregate`, `weights` and `rotate_heads` are additions. `disjoint_samples`
    and `whiten` follow a description of the method, whose paper also covers vectors of labels and dependent samples.

    References
    ----------
    FedRep paper, Algorithms 1 and 2, section 4.1.

    For the medians: Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-robust distributed learning: towards optimal
    statistical rates"; Singh and Vaswani 2024, "Byzantine-resilient federated PCA and low rank column-wise sensing".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(n_samples=10),
    ...                      n_rounds=100, trials=3, seed=0)
    >>> bool((result.metrics["subspace_distance"][:, -1] < 1e-6).all())
    True
    """

    rank: int
    step_size: StepSize
    init: Initial | str | npt.ArrayLike = "moments"
    heads: HeadSolver = field(default_factory=ExactHeads)
    representation_steps: int = 1
    orthonormalize: bool = True
    aggregate: Literal["mean", "sum", "median", "geometric median"] = "mean"
    weights: npt.ArrayLike | None = None
    disjoint_samples: bool = False
    whiten: Literal["own", "pooled"] | Design | None = None
    rotate_heads: bool = False

    description: ClassVar[str] = "shared representation B, personal heads: exact or gradient heads, QR-normalised B"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=checked_step_size,
            init=converted(as_initial),
            heads=instance(HeadSolver, "lf.ExactHeads() or lf.GradientHeads(steps=..., step_size=...)"),
            aggregate=one_of("mean", "sum", *MEDIANS),
            weights=optional(check_weights),
            representation_steps=check_integer,
            orthonormalize=check_bool,
            disjoint_samples=check_bool,
            whiten=optional(_checked_whitening),
            rotate_heads=check_bool,
        )
        if self.whiten is not None and self.representation_steps > 1:
            raise ValueError(
                f"whiten = {short_repr(self.whiten)} requires representation_steps = 1, got {self.representation_steps}"
            )
        if self.aggregate in MEDIANS and (self.weights is not None or self.whiten is not None):
            other = "whiten" if self.weights is None else "weights"
            raise ValueError(
                f"aggregate = {self.aggregate!r} requires {other} = None, got {short_repr(getattr(self, other))}"
            )
        if self.rotate_heads and not self.orthonormalize:
            raise ValueError("rotate_heads = True requires orthonormalize = True, whose QR factorisation gives R")

    def check(self, *, n_clients: int, dim: int) -> None:
        """Raise if k exceeds d, or if the number of weights is not the number of clients."""
        super().check(n_clients=n_clients, dim=dim)
        if self.weights is not None and len(self.relative_weights) != n_clients:
            raise ValueError(
                f"weights has {len(self.relative_weights)} numbers, but must have one for each of the n_clients = "
                f"{n_clients} clients"
            )

    @property
    def relative_weights(self) -> Array:
        """The weights divided by their mean, (n,); ones (1,) without weights."""
        given = np.ones(1) if self.weights is None else np.array(self.weights, dtype=float)
        return np.asarray(given / given.mean())

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch."""
        if self.disjoint_samples:
            return Requires.ROWS
        each = isinstance(self.whiten, str) or (self.whiten is not None and self.whiten.per_client)
        several = self.representation_steps > 1 or self.aggregate in MEDIANS
        if each or several:
            return Requires.QUADRATIC
        turns = isinstance(self.whiten, Design) and np.ndim(self.whiten.covariance) > 0  # type: ignore[arg-type]
        return Requires.COORDINATES if turns else Requires.FEATURES

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def check_loss(self, classes: int) -> None:
        """Raise if the task is classification, and heads are exact or rotated, or messages whitened or medians."""
        check_heads_loss("heads", self.heads, classes)
        if classes and self.aggregate in MEDIANS:
            raise ValueError(
                f"aggregate = {self.aggregate!r} supports only regression, but the samples have {classes} classes"
            )
        if classes and self.whiten is not None:
            raise ValueError(
                f"whiten = {short_repr(self.whiten)} supports only regression, but the samples have {classes} classes"
            )
        if classes and self.rotate_heads:
            raise ValueError(f"rotate_heads = True supports only regression, but the samples have {classes} classes")

    def for_rounds(self, n_rounds: int) -> Self:
        """Return the algorithm with one step size and one ridge per round instead of functions."""
        found, heads = super().for_rounds(n_rounds), self.heads.for_rounds(n_rounds)
        return found if heads is self.heads else replace(found, heads=heads)

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init` and all heads at 0."""
        B = start.representation(self.init, self.rank)
        return State(B=B, W=start.zeros(start.n_clients, self.rank))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round (Algorithm 2; Algorithm 1 with gradient heads and local steps)."""
        B = state.array("B")
        step_size = self.step_in(batch)
        heads = self.heads.in_round(batch)
        first, second = batch.split() if self.disjoint_samples else (batch, batch)
        fit = heads.solve(first.project(B), state.take_clients("W", batch.active), step_size)
        at_heads = AtHeads(second.project(B), fit.W) if self.disjoint_samples else fit
        moved = self._server_update(B, at_heads, step_size, second, rng)
        if not self.orthonormalize:
            return state.update(B=moved, W=fit.W, active=batch.active)
        if not self.rotate_heads:
            return state.update(B=orthonormalize(moved), W=fit.W, active=batch.active)
        B, R = qr_positive(moved)
        new = state.update(B=B, W=fit.W, active=batch.active)
        return new.update(W=new.array("W") @ R.mT)

    def overshoots(self, state: State, batch: Batch, share: float, variance: float | None) -> Mask | None:
        """Return the trials whose last step size exceeds the stability edge, which QR hides."""
        if not self.orthonormalize or self.whiten is not None or self.aggregate in MEDIANS:
            return None
        heads = self.heads.in_round(batch)
        if isinstance(heads, ExactHeads) and heads.ridge:
            return None  # the step also lengthens the part of B in its span, which QR divides by
        summed = share * batch.n_clients if self.aggregate == "sum" else 1.0
        weights = summed * self.step_in(batch) * np.broadcast_to(self.relative_weights, (batch.n_clients,))
        first, second = batch.split() if self.disjoint_samples else (None, batch)
        return overshoots_on_representation(state, second, weights[batch.active], variance, of_heads=first)

    def _server_update(self, B: Array, fit: Fit | AtHeads, step_size: float, batch: Batch, rng: TrialRandom) -> Array:
        """Return B after the server's aggregation of the gradients on a batch, before any QR."""
        if self.aggregate in MEDIANS:
            messages = local_messages(B, fit, step_size, self.representation_steps)[..., None] * fit.W[..., None, :]
            flat = messages.reshape(*fit.W.shape[:2], -1)
            return B - step_size * centre(flat, self.aggregate).reshape(B.shape)
        weights, summed = self._weights_of(batch), self.aggregate == "sum"
        if self.whiten is None:
            return update_representation(B, fit, step_size, self.representation_steps, summed=summed, weights=weights)
        share = 1.0 if summed else 1.0 / fit.W.shape[1]
        return B - step_size * share * self._whitened(B, fit, batch, weights)

    def _weights_of(self, batch: Batch) -> Array | None:
        """Return the relative weights of the participants, (T, p); None without weights."""
        return None if self.weights is None else self.relative_weights[batch.active]

    def _whitened(self, B: Array, fit: Fit | AtHeads, batch: Batch, weights: Array | None) -> Array:
        """Return the weighted sum over clients of the whitened gradients on B at given heads, (T, d, k)."""
        d, factors, W = B.shape[-2], 1.0 if weights is None else weights, fit.W
        if weights is not None:
            W = W * weights[..., None]
        if self.whiten == "own":
            # The inverse of X'X maps X'(Z w - y) to B w minus the least squares in full dimension.
            _check_samples("own", batch.counts.min(), d)
            return summed_outer(composed(B, fit.W) - batch.least_squares(), W)
        if self.whiten == "pooled":
            _check_samples("pooled", batch.counts.sum(axis=1).min(), d)
            pooled = batch.normal_equations()[0].mean(axis=1)
            return semidefinite(pooled).pseudo_inverse() @ fit.representation_gradient(factors)
        design = self.whiten
        assert isinstance(design, Design)
        design.check_sizes(d, batch.n_clients)
        if design.per_client:
            return summed_outer(design.whiten(batch.gradient(composed(B, fit.W)), batch.active), W)
        return design.whiten(fit.representation_gradient(factors).mT, batch.active).mT

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B, both ways, and of a client's covariance (up) if they are pooled."""
        down, up = super().communication(dim=dim, classes=classes)
        return Communication(down, up + (dim * (dim + 1) / 2.0 if self.whiten == "pooled" else 0.0))

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B and the heads, and of the messages of medians, whitening and several steps on B."""
        size = super().floats_per_trial(n_clients=n_clients, dim=dim, participants=participants)
        medians = 3 * participants * dim * self.rank if self.aggregate in MEDIANS else 0
        messages = bool(self.whiten) or self.representation_steps > 1
        return size + medians + (3 * participants * dim if messages else 0)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of divided samples, of the covariances of all or some clients, and of a median's matrices."""
        copies = participants * samples * (dim + 1) if self.disjoint_samples else 0
        if self.aggregate == "geometric median":
            copies += 4 * (dim * self.rank) ** 2
        if self.whiten == "own":
            return copies + factor_floats(participants, samples, dim)
        return copies + (2 * participants * dim * dim if self.whiten == "pooled" else 0)

    def adapt(self, state: State, batch: Batch) -> State:
        """Return new clients' exact heads at B, with the ridge of the last round."""
        B = state.array("B")
        return State(B=B, W=self.heads.adapt(batch.project(B)).W)


def _checked_whitening(name: str, value: Any) -> Any:
    """Return the name of a covariance, or a design with a regular covariance."""
    if not isinstance(value, Design):
        return check_choice(name, value, ("own", "pooled"))
    if np.ndim(value.covariance) >= 2:  # type: ignore[arg-type]  # None has no axes
        values = eigvalsh(np.asarray(value.covariance))
        if not np.all(values[..., 0] > values.shape[-1] * np.finfo(float).eps * values[..., -1]):
            raise ValueError(f"{name} requires a design with a regular covariance")
    return value


def _check_samples(name: str, samples: float, dim: int) -> None:
    """Raise if there are fewer samples than dimensions."""
    if samples < dim:
        raise ValueError(f"whiten = {name!r} requires at least d = {dim} samples for each covariance, got {samples:g}")
