"""Predictions for personalised models on fixed samples: the limit of every client's predictor, and the rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from linfed._types import Array
from linfed.algorithms.parts.base import Algorithm, State
from linfed.algorithms.parts.step_size import one_step
from linfed.algorithms.personal import APFL, L2GD, Ditto, PerFedAvg, PFedMe
from linfed.algorithms.personal.base import PersonalModels
from linfed.data.explicit import ExplicitBatch
from linfed.data.sources import everybody
from linfed.errors import NoPredictionError
from linfed.prediction.averaging import GROWTH, LARGEST, SEARCHED, SMALLEST, samples_of_trials
from linfed.prediction.conditions import all_participate, constant_step, drawn_samples, equal_weights
from linfed.prediction.law import Law, Run, no_representation
from linfed.prediction.prediction import Quantity
from linfed.simulation.job import Job
from linfed.simulation.metrics import client_risks
from linfed.theory.averaging import SINGULAR
from linfed.theory.mixing import MOST_ROWS, l2gd_stationary_models

VALID = "exact; full participation, full gradients, fixed samples"

ROUNDING = 1e-12
"""Rounding error of a rate of 1."""

Slope: TypeAlias = Callable[[Array], Array]


class End(NamedTuple):
    """Limits of the served predictors (n, d), the rate, and their covariances about the limits (n, d, d), if any."""

    served: Array
    rate: float
    covariance: Array | None = None


class AffineRound(NamedTuple):
    """A round as affine maps of the server's model theta and each client's own vector v.

    Each array (n, d, 2 d + 1) has the matrices of theta and of v, and the offset, side by side. `server` and `own` are
    the changes in a round, so that small step sizes lose no digits. The columns of `seen` and `seen_own` (n, d, d) span
    the directions in which a client's samples can change theta and v.
    """

    server: Array
    own: Array
    served: Array
    seen: Array
    seen_own: Array


def fixed_mix(run: Run[PersonalModels]) -> str:
    """Require APFL with a fixed mix."""
    size = run.algorithm.mix_step_size if isinstance(run.algorithm, APFL) else None
    return "" if size is None else f"for mix_step_size = {size:g}: the mix must be fixed"


def drawn_coins(run: Run[PersonalModels]) -> str:
    """Require L2GD with coins that are drawn."""
    given = isinstance(run.algorithm, L2GD) and run.algorithm.coins is not None
    return "for given coins: leave coins= out" if given else ""


class PersonalFixedPoint(Law[Run[PersonalModels]]):
    """Floor and rate of a personalised algorithm, at the fixed point of a round."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (Ditto, APFL, PFedMe, PerFedAvg)
    runs = "fixed or given samples, all clients participate"
    gives: ClassVar[tuple[str, ...]] = ("floor", "rate", "stability_edge")
    name = "fixed point"
    source, validity = "the fixed point of the round, an affine map", VALID
    conditions = (drawn_samples, all_participate, fixed_mix, drawn_coins, equal_weights, constant_step)

    @classmethod
    def run_of(cls, job: Job) -> Run[PersonalModels]:
        """Return the run of a job."""
        assert isinstance(job.algorithm, PersonalModels)
        return Run(job, job.algorithm)

    @cached_property
    def step(self) -> float:
        """Step size."""
        return one_step(self.run.algorithm.step_size, f"predictions of {self.subject} require")

    @cached_property
    def ends(self) -> list[End]:
        """Ends of every trial."""
        return [self.end(batch) for batch in self.batches()]

    def batches(self) -> Iterator[ExplicitBatch]:
        """Yield the samples of every trial."""
        for X, y, counts, _ in samples_of_trials(self.run.job):
            yield ExplicitBatch(X, y, active=everybody(*counts.shape), counts=counts)

    def round(self, batch: ExplicitBatch, step: float) -> AffineRound:
        """Return the round of a trial with these samples and a step size."""
        algorithm = self.run.algorithm
        affine = next(affine for kind, affine in ROUNDS.items() if isinstance(algorithm, kind))
        with np.errstate(over="ignore", invalid="ignore"):  # the rate is then infinite
            return affine(algorithm, batch, step)

    def end(self, batch: ExplicitBatch) -> End:
        """Return the end of a trial with these samples."""
        return _limit(self.round(batch, self.step))

    def curves(self) -> str:
        """Return that there is no distance."""
        return no_representation(self.subject)

    def floor(self) -> Quantity:
        """Return the mean risk of the served predictors."""
        if self.run.job.problem is None:
            raise NoPredictionError("the risk requires a ground truth: give problem=")
        values = []
        for truth, (served, rate, covariance) in zip(self.run.truths(), self.ends, strict=True):
            if rate >= 1.0:
                why = f"is too large: {self.subject} diverges with rate {rate:.4g}"
                if rate < 1.0 + ROUNDING:
                    why = f"has no floor: the rate of {self.subject} is 1 within rounding error"
                raise NoPredictionError(f"step_size = {self.step:g} {why}")
            risk = float(client_risks(State(S=served[None]), truth).mean())
            if covariance is not None:
                root = truth.design.root_apply(np.eye(served.shape[1]))
                roots = root if root.ndim == 3 else root[None]
                spread = np.trace(roots @ covariance @ roots.mT, axis1=-2, axis2=-1)
                risk += 0.5 * float(spread.mean())
            values.append(risk)
        return Quantity(np.array(values), self.source, self.validity, "risk")

    def rate(self) -> Quantity:
        """Return the factor per round."""
        rates = np.array([end.rate for end in self.ends])
        if not np.isfinite(rates).all():
            raise NoPredictionError(f"step_size = {self.step:g} is so large that the rate of {self.subject} overflows")
        return Quantity(rates, self.source, self.validity)

    def stability_edge(self) -> Quantity:
        """Return the smallest step size at which the rate exceeds 1, with all other arguments as given."""
        found, penalty = [], getattr(self.run.algorithm, "penalty", 0.0)
        for batch in self.batches():
            curvature = float(np.linalg.eigvalsh(_normal(batch)[0]).max()) + penalty
            found.append(_edge(partial(self._rate_at, batch), 0.1 / curvature))
        return Quantity(np.array(found), self.source, f"{self.validity}; {SEARCHED.format(GROWTH)}")

    def _rate_at(self, batch: ExplicitBatch, step: float) -> float:
        """Return the rate of a trial with these samples and a step size."""
        return max(_rates(self.round(batch, step)))


class MeanOverCoins(PersonalFixedPoint):
    """The same for L2GD, in the mean over its coins."""

    algorithms = (L2GD,)
    gives = ("floor", "rate")
    runs = f"fixed or given samples, all clients participate, n d <= {MOST_ROWS}"
    source, validity = "theory.l2gd_stationary_models", f"mean over the coins, up to n d = {MOST_ROWS}; {VALID}"

    def end(self, batch: ExplicitBatch) -> End:
        """Return the mean models of a trial with these samples, their rate and covariances."""
        algorithm = self.run.algorithm
        assert isinstance(algorithm, L2GD)
        options = {"penalty": algorithm.penalty, "mean_probability": algorithm.mean_probability}
        try:
            found = l2gd_stationary_models(*_normal(batch), step_size=self.step, **options)
        except ValueError as reason:
            raise NoPredictionError(f"no prediction of L2GD is available: {reason}") from None
        return End(found.models, found.rate, found.covariance)


PERSONAL: tuple[type[Law[Run[PersonalModels]]], ...] = (PersonalFixedPoint, MeanOverCoins)
"""All laws of personalised algorithms."""


def _limit(done: AffineRound) -> End:
    """Return the limit of the served predictors of a run from 0, (n, d), and the rate of convergence."""
    d, (server_rate, own_rate) = done.server.shape[1], _rates(done)
    if (rate := max(server_rate, own_rate)) >= 1.0:
        return End(np.full(done.served.shape[:2], np.nan), rate)
    matrix, offset = done.server[..., :d].mean(axis=0), done.server[..., -1].mean(axis=0)
    theta = _from_zero(matrix[None], offset[None], _span_of_all(done.seen))[0]
    by_theta, by_own = done.own[..., :d], done.own[..., d:-1]
    own = _from_zero(by_own, by_theta @ theta + done.own[..., -1], _span(done.seen_own))
    served = done.served[..., :d] @ theta + (done.served[..., d:-1] @ own[..., None])[..., 0] + done.served[..., -1]
    alone = not (by_theta.any() or done.served[..., :d].any())
    return End(served, own_rate if alone else rate)


def _rates(done: AffineRound) -> tuple[float, float]:
    """Return the rates of convergence of the server's model and of the clients' own vectors, inf if they overflow."""
    d = done.server.shape[1]
    server = done.server[..., :d].mean(axis=0)[None]
    return _rate(server, _span_of_all(done.seen)), _rate(done.own[..., d:-1], _span(done.seen_own))


def _span(columns: Array) -> Array:
    """Return the orthogonal projections (.., d, d) onto the spans of columns (.., d, q)."""
    vectors, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    kept = vectors * (sizes > SINGULAR * sizes[..., :1])[..., None, :]
    return np.asarray(kept @ kept.mT)


def _span_of_all(seen: Array) -> Array:
    """Return the projection (1, d, d) onto the span of the columns of all clients."""
    return _span(np.concatenate(list(seen), axis=-1)[None])


def _edge(rate: Callable[[float], float], start: float) -> float:
    """Return the smallest step size at which a rate exceeds 1, from a small step size on."""
    from scipy import optimize

    low = start
    while rate(low) > 1.0:
        low /= GROWTH**8
        if low < SMALLEST * start:
            raise NoPredictionError(f"no stable step_size of at least {low:.4g} was found")
    high = low
    while rate(high) <= 1.0:
        low, high = high, GROWTH * high
        if high > LARGEST * start:
            raise NoPredictionError(f"no stability edge was found up to step_size = {high:.4g}")
    return float(optimize.brentq(lambda step: min(rate(step), 2.0) - 1.0, low, high, xtol=1e-12 * high, rtol=1e-10))


def _kept(changes: Array, span: Array) -> Array:
    """Return the changes (n, d, d) on a span, and -1 across it: a run from 0 stays at 0 there."""
    return np.asarray(span @ changes @ span - (np.eye(span.shape[-1]) - span))


def _from_zero(changes: Array, offsets: Array, span: Array) -> Array:
    """Return the limits of ``z <- z + D z + c`` from 0, (n, d), on the span in which z moves."""
    return np.asarray(-np.linalg.solve(_kept(changes, span), span @ offsets[..., None])[..., 0])


def _rate(changes: Array, span: Array) -> float:
    """Return the largest modulus of the eigenvalues of ``I + D`` on a span, inf if D overflows."""
    if not np.isfinite(changes).all():
        return np.inf
    found = float(np.abs(1.0 + np.linalg.eigvals(_kept(changes, span))).max())
    return found if np.isfinite(found) else np.inf


def _start(batch: ExplicitBatch) -> tuple[Array, Array]:
    """Return theta and v as affine maps, (n, d, 2 d + 1)."""
    _, n, _, d = batch.shape
    eye, none = np.broadcast_to(np.eye(d), (n, d, d)), np.zeros((n, d, d))
    offset = np.zeros((n, d, 1))
    return np.concatenate([eye, none, offset], axis=-1), np.concatenate([none, eye, offset], axis=-1)


def _normal(batch: ExplicitBatch) -> tuple[Array, Array]:
    """Return the normal equations A (n, d, d) and b (n, d) of a batch of one trial."""
    A, b = batch.normal_equations()
    return A[0], b[0]


def _slope(batch: ExplicitBatch) -> Slope:
    """Return the function that maps parameters to the gradients of the clients' losses, as affine maps."""
    A, b = _normal(batch)

    def slope(z: Array) -> Array:
        out = A @ z
        out[..., -1] -= b
        return out

    return slope


def _ditto(algorithm: Ditto, batch: ExplicitBatch, step: float) -> AffineRound:
    slope = _slope(batch)
    theta, served = _start(batch)
    local, own = np.zeros_like(theta), np.zeros_like(served)  # changes
    for _ in range(algorithm.personal_steps):
        pull = algorithm.penalty * (served + own - theta)
        own = own - (algorithm.personal_step_size or step) * (slope(served + own) + pull)
    for _ in range(algorithm.local_steps):
        local = local - step * slope(theta + local)
    A, _ = _normal(batch)
    seen = np.broadcast_to(A.sum(axis=0), A.shape) if algorithm.penalty > 0 else A  # theta pulls v
    return AffineRound(local, own, served, A, seen)


def _apfl(algorithm: APFL, batch: ExplicitBatch, step: float) -> AffineRound:
    slope, a = _slope(batch), algorithm.mix
    theta, start = _start(batch)
    served = a * start + (1.0 - a) * theta
    own, local = np.zeros_like(start), np.zeros_like(theta)  # changes
    for _ in range(algorithm.local_steps):
        new = local - step * slope(theta + local)
        other = theta + (new if algorithm.variant == "framework" else local)
        own, local = own - step * a * slope(a * (start + own) + (1.0 - a) * other), new
    A, _ = _normal(batch)
    return AffineRound(local, own, served, A, a * A)


def _pfedme(algorithm: PFedMe, batch: ExplicitBatch, step: float) -> AffineRound:
    slope, penalty = _slope(batch), algorithm.penalty
    theta, _ = _start(batch)
    local, personal = np.zeros_like(theta), np.zeros_like(theta)  # changes
    A, _ = _normal(batch)
    inverse = np.linalg.inv(A + penalty * np.eye(A.shape[-1]))
    for _ in range(algorithm.local_steps):
        if algorithm.inner_steps is None:
            personal = local - inverse @ slope(theta + local)
        for _ in range(algorithm.inner_steps or 0):
            change = slope(theta + personal) + penalty * (personal - local)
            personal = personal - (algorithm.inner_step_size or step) * change
        local = local - step * penalty * (local - personal)
    none = np.zeros_like(theta)
    return AffineRound(algorithm.server_mix * local, none, theta + personal, A, np.zeros_like(A))


def _perfedavg(algorithm: PerFedAvg, batch: ExplicitBatch, step: float) -> AffineRound:
    alpha = algorithm.adaptation_step_size
    parts: tuple[Any, ...] = algorithm.parts(batch)  # of explicit samples
    first, second, (last, _) = _slope(parts[0]), _slope(parts[1]), _normal(parts[-1])
    theta, _ = _start(batch)
    local, seen = np.zeros_like(theta), _normal(parts[1])[0]  # `local` is a change
    if algorithm.hessian:
        seen = seen - alpha * last @ seen
    for _ in range(algorithm.local_steps):
        slope = second(theta + local - alpha * first(theta + local))
        if algorithm.hessian:
            slope = slope - alpha * last @ slope
        local = local - step * slope
    served = theta - alpha * _slope(batch)(theta)
    return AffineRound(local, np.zeros_like(theta), served, seen, np.zeros_like(seen))


ROUNDS: dict[type[PersonalModels], Callable[..., AffineRound]] = {
    Ditto: _ditto,
    APFL: _apfl,
    PFedMe: _pfedme,
    PerFedAvg: _perfedavg,
}
"""The round of each algorithm as affine maps."""
