"""AltGDmin (Nayer and Vaswani 2023): alternating gradient descent and minimisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Mask
from linfed._values import check_fields, converted, optional, positive
from linfed.algorithms.initial import Initial, TruncatedAverages, as_initial
from linfed.algorithms.parts.base import Algorithm, InitContext, Requires, State
from linfed.algorithms.parts.overshooting import overshoots_on_representation
from linfed.checks import check_bool, check_integer
from linfed.data.batch import Batch
from linfed.numerics.linalg import TINY, orthonormalize, singular_values
from linfed.numerics.streams import TrialRandom


@dataclass(frozen=True, kw_only=True, repr=False)
class AltGDminState(State):
    """State with the spectral norm of the first round's local averages, ``norm`` (trials, 1, 1)."""

    norm: Array


@dataclass(frozen=True, kw_only=True)
class AltGDmin(Algorithm):
    r"""Exact heads and one gradient step on B, summed over clients and samples, from truncated local averages.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    step_size : float, optional
        eta > 0 of the summed gradient: `FedRep`'s step size is ``p m`` times as large, with p participants and m the
        samples of the gradient, half of a client's samples if `disjoint_samples`. By default ``0.5 / (m s^2)``, with s
        the spectral norm of the first round's local averages ``[X_i'y_i/m]_i``; this presumes samples with
        ``E xx' = I``.
    threshold : float
        Threshold of the default initialisation, `TruncatedAverages`; not used with another one.
    init : Initial, "moments", "random" or array_like (d, k) or (trials, d, k), optional
        Initial B, instead of truncated local averages.
    disjoint_samples : bool
        If True, heads are fitted on the first half of a client's samples, and the gradient uses the others.

    Raises
    ------
    ValueError
        If a value is out of range; in `simulate` also for classification, if the rank exceeds d, or with
        ``disjoint_samples=True`` if a client has a single sample.

    Notes
    -----
    One round, with ``Z_i = X_i B``:

    .. math::

        w_i &\leftarrow \arg\min_w \|Z_i w - y_i\|^2 \\
        B &\leftarrow \operatorname{qr}\Bigl(B - \eta \sum_i X_i^\top (Z_i w_i - y_i)\, w_i^\top\Bigr)

    On the same samples this is `FedRep` with exact heads and another step size; recorded heads are as there. The source
    proves convergence for samples that are fresh in each round and half-round: fresh data with
    ``disjoint_samples=True``. Cost of a round ``O(p m (d k + k^2))``.

    **Deviations**: the source's step size has ``s = sigma_max`` of the matrix of regressors, which a server does not
    know; the spectral norm of the local averages, with noise larger, takes its place. With partial participation the
    sum covers the participants.

    References
    ----------
    Nayer and Vaswani 2023, Algorithm 1.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=100, dim=30, rank=2)
    >>> result = lf.simulate(lf.AltGDmin(rank=2), problem, data=lf.FixedSamples(n_samples=20), n_rounds=100)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 1e-8)
    True
    """

    rank: int
    step_size: float | None = None
    threshold: float = 9.0
    init: Initial | str | npt.ArrayLike | None = None
    disjoint_samples: bool = False

    description: ClassVar[str] = (
        "FedRep from truncated local averages, with a summed gradient and its published step size"
    )

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            step_size=optional(positive),
            init=optional(converted(as_initial)),
            disjoint_samples=check_bool,
        )
        object.__setattr__(self, "threshold", TruncatedAverages(threshold=self.threshold).threshold)

    @property
    def requires(self) -> Requires:
        """Operations that a step requires of a batch."""
        if self.disjoint_samples:
            return Requires.ROWS
        return Requires.QUADRATIC if self.step_size is None else Requires.FEATURES

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return TruncatedAverages(threshold=self.threshold) if self.init is None else as_initial(self.init)

    def initial_state(self, start: InitContext) -> State:
        """Return B from the initialisation and all heads at 0."""
        B = start.representation(self.initialization, self.rank)
        W = start.zeros(start.n_clients, self.rank)
        return State(B=B, W=W) if self.step_size else AltGDminState(B=B, W=W, norm=np.zeros((len(B), 1, 1)))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state after one round."""
        B = state.array("B")
        first, second = batch.split(rest=True) if self.disjoint_samples else (batch, batch)
        fit = first.project(B).fit()
        if self.disjoint_samples:
            gradient = second.project(B).representation_gradient(fit.W, second.counts)
        else:
            gradient = fit.representation_gradient(batch.counts)
        if isinstance(state, AltGDminState) and not state.norm.all():  # the first round, or only labels of 0 so far
            averages = batch.gradient(np.zeros((len(B), 1, state.dim)))
            state = state.update(norm=np.where(state.norm > 0, state.norm, singular_values(averages)[:, :1, None]))
        step = self._step(state, second.counts)
        return state.update(B=orthonormalize(B - step * gradient), W=fit.W, active=batch.active)

    def _step(self, state: State, counts: Array) -> Array | float:
        """Return the step size of the summed gradient on these numbers of samples (T, p): (T, 1, 1) or a number."""
        if self.step_size is not None:
            return self.step_size
        samples = counts.mean(axis=1)[:, None, None]
        return np.asarray(0.5 / np.maximum(samples * np.square(state.array("norm")), TINY))

    def overshoots(self, state: State, batch: Batch, share: float, variance: float | None) -> Mask | None:
        """Return the trials whose last step size exceeds the stability edge, which QR hides."""
        first, second = batch.split(rest=True) if self.disjoint_samples else (None, batch)
        step = np.broadcast_to(self._step(state, second.counts), (len(second.counts), 1, 1))[..., 0]
        weights = share * batch.n_clients * step * second.counts
        return overshoots_on_representation(state, second, weights, variance, of_heads=first)

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of divided samples."""
        return participants * samples * (dim + 1) if self.disjoint_samples else 0
