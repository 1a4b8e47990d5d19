"""Competitors of FedRep's best step-size schedule: other uses of heads and of iterates; and heavy-tailed samples.

All are prototypes for measurements: running averages and estimates weight all their rounds equally.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import linfed as lf
from linfed.algorithms.parts.heads import AtHeads
from linfed.algorithms.parts.step_size import Scheduled, StepSize, checked_step_size
from linfed.numerics.linalg import orthonormalize, qr_positive


@dataclass(frozen=True, kw_only=True)
class KnownHeads(Scheduled):
    """Gradient steps on B at the true heads, which `init` contains; B is not normalised."""

    rank: int
    step_size: StepSize
    init: Any

    requires: ClassVar[lf.Requires] = lf.Requires.FEATURES
    description: ClassVar[str] = "gradient steps on B at heads that are given"

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_size", checked_step_size("step_size", self.step_size))

    @property
    def initialization(self) -> Any:
        """The initial B and the true heads."""
        return self.init

    def initial_state(self, start: Any) -> lf.State:
        """Return the initial B and the true heads."""
        B, W = start.factors(self.init, self.rank)
        return lf.State(B=B, W=W)

    def step(self, state: lf.State, batch: Any, rng: Any) -> lf.State:
        """Return the state after one gradient step on B."""
        B = state.array("B")
        gradient = batch.project(B).representation_gradient(state.take_clients("W", batch.active))
        return state.update(B=B - self.step_in(batch) * gradient)


@dataclass(frozen=True, kw_only=True)
class RefittedEvery(lf.FedRep):
    """FedRep whose clients refit their heads only every `every` rounds and keep them in between."""

    every: int = 10

    requires: ClassVar[lf.Requires] = lf.Requires.FEATURES

    def step(self, state: lf.State, batch: Any, rng: Any) -> lf.State:
        """Return the state after one round; the heads follow the rotation of B's columns."""
        B = state.array("B")
        features, W = batch.project(B), state.take_clients("W", batch.active)
        fit = features.fit() if batch.round % self.every == 1 else AtHeads(features, W)
        B, R = qr_positive(B - self.step_in(batch) * fit.representation_gradient())
        new = state.update(B=B, W=fit.W, active=batch.active)
        return new.update(W=new.array("W") @ R.mT)


@dataclass(frozen=True, kw_only=True, repr=False)
class WithMean(lf.State):
    """A state with a mean over rounds: of the heads' second moments (trials, k, k)."""

    mean: Any = None


@dataclass(frozen=True, kw_only=True, repr=False)
class OfMean(WithMean):
    """A state that predicts with the mean of B (trials, d, k)."""

    def for_prediction(self) -> lf.State:
        """Return the state with the mean instead of B."""
        return lf.State(B=self.mean, W=self.W)


@dataclass(frozen=True, kw_only=True)
class Averaged(lf.FedRep):
    """FedRep that predicts with the mean of B over all rounds after the first `after` (Polyak and Ruppert).

    The engine "chain" does not support it.
    """

    after: int = 0

    requires: ClassVar[lf.Requires] = lf.Requires.FEATURES

    def initial_state(self, start: Any) -> lf.State:
        """Return FedRep's initial state, with B as its mean."""
        state = super().initial_state(start)
        return OfMean(B=state.B, W=state.W, mean=state.array("B").copy())

    def step(self, state: lf.State, batch: Any, rng: Any) -> lf.State:
        """Return the state after FedRep's round."""
        new = super().step(state, batch, rng)
        old = state.array("mean")
        return new.update(mean=old + (new.array("B") - old) / max(1, batch.round - self.after))


@dataclass(frozen=True, kw_only=True)
class MatrixStep(lf.FedRep):
    """FedRep whose step on B is multiplied by the inverse second moment of the heads, estimated from their fits.

    Parameters
    ----------
    spread : float
        ``sigma^2/(m-k-1)``, which fitting adds to each eigenvalue of the second moment.
    least : float
        Smaller eigenvalues are raised to this value.
    """

    spread: float
    least: float = 0.1

    requires: ClassVar[lf.Requires] = lf.Requires.FEATURES

    def initial_state(self, start: Any) -> lf.State:
        """Return FedRep's initial state, with a mean second moment of 0."""
        state = super().initial_state(start)
        return WithMean(B=state.B, W=state.W, mean=np.zeros((start.trials, self.rank, self.rank)))

    def step(self, state: lf.State, batch: Any, rng: Any) -> lf.State:
        """Return the state after one round."""
        B, old = state.array("B"), state.array("mean")
        fit = batch.project(B).fit()
        moment = fit.W.mT @ fit.W / fit.W.shape[1] - self.spread * np.eye(self.rank)
        mean = old + (moment - old) / batch.round
        values, vectors = np.linalg.eigh(mean)
        inverse = (vectors / np.maximum(values, self.least)[..., None, :]) @ vectors.mT
        B, R = qr_positive(B - self.step_in(batch) * fit.representation_gradient() @ inverse)
        return state.update(B=B, W=fit.W, active=batch.active).update(mean=R @ mean @ R.mT)


@dataclass(frozen=True, kw_only=True)
class Student(lf.Design):
    """Multivariate t distribution with 5 degrees of freedom and identity covariance: one random scale per row."""

    def draw(self, rng: Any, out: Any) -> None:
        """Fill `out` with consecutive samples."""
        normals = rng.standard_normal((*out.shape[:-1], out.shape[-1] + 5))
        spread = np.square(normals[..., -5:]).sum(axis=-1, keepdims=True)
        out[...] = normals[..., :-5] * np.sqrt(3.0 / spread)


def mean_square(state: lf.State, truth: lf.Truth | None) -> Any:
    """Return the mean squared sine of the principal angles between B*, and B as used for prediction."""
    assert truth is not None
    assert truth.B is not None
    B = orthonormalize(state.for_prediction().array("B"))
    outside = B - truth.B @ (truth.B.mT @ B)
    return np.square(outside).sum(axis=(-2, -1)) / B.shape[-1]
