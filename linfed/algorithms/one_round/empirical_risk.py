"""Minimisers of the clients' mean loss over low-rank models: one round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Mask
from linfed._values import check_fields, converted, one_of, optional, positive
from linfed.algorithms.initial import Initial, as_initial
from linfed.algorithms.parts.base import Algorithm, Communication, InitContext, Requires, State
from linfed.algorithms.parts.models import relative_weights
from linfed.checks import check_integer
from linfed.data.batch import Batch
from linfed.data.explicit import ExplicitBatch
from linfed.numerics.linalg import TINY, qr_positive, svd
from linfed.numerics.streams import TrialRandom

OUT_OF_ITERATIONS = 1
"""SciPy's status of L-BFGS at the largest number of iterations, or of values of the objective."""


@dataclass(frozen=True, kw_only=True, repr=False)
class MinimizerState(State):
    """State with ``unfinished`` (trials, 1, 1): 1 if the iterations of the last round ended before the tolerance."""

    unfinished: Array


class Minimizer(Algorithm):
    """Base class of algorithms whose rounds end at a tolerance or at a largest number of iterations."""

    def unfinished(self, state: State) -> Mask | None:
        """Return the trials whose iterations ended before the tolerance, (T,)."""
        return state.array("unfinished")[:, 0, 0] > 0


@dataclass(frozen=True, kw_only=True)
class NuclearNorm(Minimizer):
    r"""All clients' predictors jointly, with a nuclear-norm penalty: a convex relaxation of a shared representation.

    Parameters
    ----------
    penalty : float, optional
        Weight > 0 of the penalty; by default ``noise_std (sqrt n + sqrt d)/(n sqrt m)``.
    noise_std : float
        Noise level > 0 in the default penalty, which a given penalty replaces.
    rank : int, optional
        If given, B has the k leading right singular vectors of Theta, and heads are fitted exactly on the same samples.
        By default clients predict with the rows of Theta.
    iterations : int
        Largest number of iterations.
    tolerance : float
        Iterations stop when the gradient mapping falls below this multiple of the gradient at 0.
    weights : "uniform" or "samples"
        Weights omega_i of the participants: equal, or proportional to their numbers of samples. Their mean is 1.

    Raises
    ------
    ValueError
        If a value is out of range, or `noise_std` is given with `penalty`; in `simulate` also for classification, or if
        the rank exceeds d.

    Notes
    -----
    With n the number of participants, Theta (n, d) minimises

    .. math::

        \frac{1}{n} \sum_i \frac{\omega_i}{2m_i} \|X_i \theta_i - y_i\|^2 + \text{penalty} \, \|\Theta\|_*

    by accelerated proximal gradient steps (FISTA) with backtracking and adaptive restarts: each step decreases all
    singular values by the same amount, to at least 0. The solution is 0 if the weight is at least the spectral norm of
    the gradient at 0. One round on fixed samples is enough; the other clients' rows stay as they are, and with `rank`
    their heads, which belong to an earlier B. Cost of an iteration ``O(n m d + n d min(n, d))``.

    **Deviations**: `rank` and `weights` are additions.

    References
    ----------
    Beck and Teboulle 2009, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems";
    O'Donoghue and Candes 2015, "Adaptive restart for accelerated gradient schemes".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, noise_std=0.5)
    >>> run = {"data": lf.FixedSamples(n_samples=15), "n_rounds": 1}
    >>> related = lf.simulate(lf.NuclearNorm(noise_std=0.5), problem, **run)
    >>> alone = lf.simulate(lf.LocalOnly(), problem, **run)
    >>> bool(related.metrics["risk"][0, -1] < alone.metrics["risk"][0, -1])
    True
    """

    penalty: float | None = None
    noise_std: float = 1.0
    rank: int | None = None
    iterations: int = 5000
    tolerance: float = 1e-9
    weights: Literal["uniform", "samples"] = "uniform"

    requires: ClassVar[Requires] = Requires.QUADRATIC
    description: ClassVar[str] = "all predictors jointly with a nuclear-norm penalty: one round"

    def __post_init__(self) -> None:
        check_fields(
            self,
            penalty=optional(positive),
            noise_std=positive,
            rank=optional(check_integer),
            iterations=check_integer,
            tolerance=positive,
            weights=one_of("uniform", "samples"),
        )
        if self.penalty is not None and self.noise_std != type(self).noise_std:
            raise ValueError(
                f"noise_std = {self.noise_std:g} requires penalty = None: it is only in the default penalty"
            )

    @property
    def learned_rank(self) -> int:
        """Columns k of B, 0 without B."""
        return self.rank or 0

    def initial_state(self, start: InitContext) -> State:
        """Return all predictors at 0, or a random B and all heads at 0."""
        unfinished = np.zeros((start.trials, 1, 1))
        if self.rank is None:
            return MinimizerState(S=start.zeros(start.n_clients, start.dim), unfinished=unfinished)
        W = start.zeros(start.n_clients, self.rank)
        return MinimizerState(B=start.representation("random", self.rank), W=W, unfinished=unfinished)

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with the participants' predictors."""
        n, d = batch.active.shape[-1], state.dim
        if self.penalty is None:
            samples = batch.counts.mean(axis=1)
            penalty = self.noise_std * (np.sqrt(n) + np.sqrt(d)) / (n * np.sqrt(samples))
        else:
            penalty = np.full(len(batch.active), self.penalty)
        Theta, done = self._minimise(batch, d, penalty[:, None, None])
        state = state.update(unfinished=np.where(done, 0.0, 1.0))
        if self.rank is None:
            return state.update(S=Theta, active=batch.active)
        rows = svd(Theta)[2]
        if rows.shape[1] < self.rank:  # fewer clients than columns: complete the basis
            rows = np.linalg.qr(np.concatenate([rows.mT, np.eye(d) + np.zeros((len(rows), 1, 1))], axis=-1))[0].mT
        B = np.ascontiguousarray(rows[:, : self.rank].mT)
        return state.update(B=B, W=batch.project(B).fit().W, active=batch.active)

    def _minimise(self, batch: Batch, dim: int, penalty: Array) -> tuple[Array, Mask]:
        """Return Theta (T, p, d) for penalties (T, 1, 1), and which trials have converged: these no longer change."""
        trials, p = batch.active.shape
        n = p / relative_weights(batch, self.weights)[..., None]
        at_zero = batch.gradient(np.zeros((trials, 1, dim))) / n
        scale = _squared_norm(at_zero)
        curvature = _inner(at_zero, batch.gradient(at_zero) / n - at_zero) / np.maximum(scale, TINY)
        curvature = np.maximum(curvature, TINY)
        Theta = point = np.zeros((trials, p, dim))
        slope = point_slope = at_zero
        momentum = np.ones((trials, 1, 1))
        done = scale == 0.0
        for _ in range(self.iterations):
            while True:
                new = _soft_thresholded(point - point_slope / curvature, penalty / curvature)
                new_slope = batch.gradient(new) / n
                step = new - point
                # For a quadratic loss the upper bound of the step is a bound of its curvature along the step.
                steep = _inner(step, new_slope - point_slope) > (1.0 + 1e-12) * curvature * _squared_norm(step)
                if not (steep & ~done).any():
                    break
                curvature = np.where(steep, 2.0 * curvature, curvature)
            mapping = np.square(curvature) * _squared_norm(step)
            converged = ~(mapping > self.tolerance**2 * scale)  # True for NaN
            back = _inner(point - new, new - Theta) > 0
            following = 0.5 + np.sqrt(0.25 + np.square(momentum))
            factor = np.where(back, 0.0, (momentum - 1.0) / following)
            momentum = np.where(back, 1.0, following)
            point = new + factor * (new - Theta)
            point_slope = new_slope + factor * (new_slope - slope)  # the gradient is affine
            Theta, slope = np.where(done, Theta, new), np.where(done, slope, new_slope)
            done = done | converged
            if done.all():
                break
        return Theta, done

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of a predictor, or of B (down), and of a client's normal equations (up)."""
        return Communication(float(dim * (self.rank or 1)), dim * (dim + 1) / 2.0 + dim)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of the predictors and of an iteration's arrays."""
        return n_clients * dim + 12 * participants * dim


@dataclass(frozen=True, kw_only=True)
class BurerMonteiro(Minimizer):
    r"""Joint minimisation of the clients' mean loss over B and all heads, by L-BFGS.

    Parameters
    ----------
    rank : int
        Columns k of B, at most d.
    init : "moments", "random", Initial or array_like (d, k) or (trials, d, k)
        Initial B; the initial heads are exact.
    iterations : int
        Largest number of iterations of L-BFGS.
    tolerance : float
        L-BFGS stops when all entries of the gradient are below this multiple of the mean of y^2. If clients have
        different numbers of samples, the mean counts the missing ones as 0.
    weights : "uniform" or "samples"
        Weights omega_i of the participants: equal, or proportional to their numbers of samples. Their mean is 1.

    Raises
    ------
    ValueError
        If a value is out of range; in `simulate` also for classification, or if the rank exceeds d.

    Notes
    -----
    The objective is

    .. math::

        \sum_i \frac{\omega_i}{2m_i} \|X_i B w_i - y_i\|^2 + \frac{1}{8} \|B^\top B - W^\top W\|_F^2

    The penalty is 0 at balanced factors of any ``B W'`` and does not change the smallest loss; the start is balanced.
    The objective is not convex: the result can depend on `init`. B is then orthonormalised, and the heads with it. One
    round on fixed samples is enough, with full participation: the heads of other clients belong to an earlier B. With m
    <= k the initial heads already explain all samples, so B keeps its span. Cost of an iteration ``O(p m d k)``.

    **Deviations**: the balancing penalty replaces the constraint of orthonormal columns; `weights` is an addition.

    References
    ----------
    Du, Hu, Kakade, Lee and Lei 2021, "Few-shot learning via learning the representation, provably", problem (1);
    SciPy's L-BFGS-B.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
    >>> result = lf.simulate(lf.BurerMonteiro(rank=2), problem, data=lf.FixedSamples(n_samples=15), n_rounds=1)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 1e-5)
    True
    """

    rank: int
    init: Initial | str | npt.ArrayLike = "moments"
    iterations: int = 2000
    tolerance: float = 1e-10
    weights: Literal["uniform", "samples"] = "uniform"

    requires: ClassVar[Requires] = Requires.ROWS
    description: ClassVar[str] = "joint minimisation over B and all heads by L-BFGS: one round"

    def __post_init__(self) -> None:
        check_fields(
            self,
            rank=check_integer,
            init=converted(as_initial),
            iterations=check_integer,
            tolerance=positive,
            weights=one_of("uniform", "samples"),
        )

    @property
    def initialization(self) -> Initial:
        """Initialisation of B."""
        return as_initial(self.init)

    def initial_state(self, start: InitContext) -> State:
        """Return B from `init` and all heads at 0."""
        B = start.representation(self.init, self.rank)
        W = start.zeros(start.n_clients, self.rank)
        return MinimizerState(B=B, W=W, unfinished=np.zeros((start.trials, 1, 1)))

    def step(self, state: State, batch: Batch, rng: TrialRandom) -> State:
        """Return the state with the minimiser that L-BFGS finds from B, trial by trial."""
        assert isinstance(batch, ExplicitBatch)
        B = state.array("B").copy()
        start = batch.project(B).fit().W
        W, unfinished = start.copy(), np.zeros((len(B), 1, 1))
        for trial in range(len(B)):
            here = slice(trial, trial + 1)
            one = batch.plain(batch.X[here], batch.y[here], active=batch.active[here], counts=batch.counts[here])
            B[here], W[here], unfinished[trial] = self._minimise(one, B[here], start[here])
        return state.update(B=B, W=W, unfinished=unfinished, active=batch.active)

    def _minimise(self, batch: ExplicitBatch, B: Array, W: Array) -> tuple[Array, Array, bool]:
        """Return B (1, d, k) with orthonormal columns, W (1, p, k), and whether the iterations ended too early."""
        from scipy.optimize import minimize

        if not (np.isfinite(B).all() and np.isfinite(W).all()):
            return B, W, False
        d, k, p = B.shape[1], B.shape[2], W.shape[1]
        omega = relative_weights(batch, self.weights)

        def parts(values: Array) -> tuple[Array, Array]:
            return values[: d * k].reshape(1, d, k), values[d * k :].reshape(1, p, k)

        def objective(values: Array) -> tuple[float, Array]:
            B, W = parts(values)
            of_W, of_B = batch.project(B).gradients(W, weights=omega)
            difference = B.mT @ B - W.mT @ W
            value = (omega * batch.loss(W @ B.mT)).sum() + 0.125 * np.square(difference).sum()
            slope = [of_B + 0.5 * B @ difference, omega[..., None] * of_W - 0.5 * W @ difference]
            return float(value), np.concatenate([part.ravel() for part in slope])

        Q, R = qr_positive(B)
        left, values, right = svd(R @ W.mT)
        root = np.sqrt(values)[:, None, :]
        left, right = (
            np.pad(part, [(0, 0), (0, 0), (0, k - values.shape[-1])]) for part in (left * root, right.mT * root)
        )
        size = float(np.mean(np.square(batch.y)))
        found = minimize(
            objective,
            np.concatenate([(Q @ left).ravel(), right.ravel()]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": self.iterations, "maxfun": 2 * self.iterations, "ftol": 0.0,
                     "gtol": self.tolerance * size, "maxcor": 20},
        )  # fmt: skip
        B, W = parts(found.x)
        B, R = qr_positive(B)
        return B, W @ R.mT, found.status == OUT_OF_ITERATIONS

    def communication(self, *, dim: int, classes: int = 0) -> Communication:
        """Return the floats of B (down) and of a client's normal equations and head (up)."""
        return Communication(float(dim * self.rank), dim * (dim + 1) / 2.0 + dim + self.rank)

    def floats_per_trial(self, *, n_clients: int, dim: int, participants: int) -> int:
        """Return the size of B and W, and of the participants' predictors."""
        return self.rank * (n_clients + dim) + 2 * participants * dim

    def floats_per_step(self, *, n_clients: int, dim: int, participants: int, samples: int) -> int:
        """Return the size of the history of L-BFGS."""
        return 50 * self.rank * (participants + dim)


def _squared_norm(values: Array) -> Array:
    """Return the squared Frobenius norms (T, 1, 1) of matrices (T, p, d)."""
    return np.square(values).sum(axis=(1, 2), keepdims=True)


def _inner(one: Array, other: Array) -> Array:
    """Return the inner products (T, 1, 1) of matrices (T, p, d)."""
    return (one * other).sum(axis=(1, 2), keepdims=True)


def _soft_thresholded(matrices: Array, amounts: Array) -> Array:
    """Return matrices (T, p, d) with all singular values decreased by amounts (T, 1, 1), to at least 0."""
    U, s, Vt = svd(matrices)
    return np.asarray((U * np.maximum(s[:, None, :] - amounts, 0.0)) @ Vt)
