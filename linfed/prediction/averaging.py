"""Predictions for averaging algorithms on fixed samples: fixed points, rates, stability edges and covariances."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from linfed._types import Array
from linfed.algorithms.averaging import SCAFFOLD, ClusterFedVARP, FedAvg, FedProx, FedRolex, FedSCAVAR, FedVARP
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.parts.base import Algorithm, State
from linfed.algorithms.parts.step_size import one_step
from linfed.checks import short_repr
from linfed.data.explicit import normal_equations
from linfed.data.samples import FreshSamples, GivenSamples
from linfed.data.sources import draw_fixed
from linfed.errors import NoPredictionError
from linfed.prediction.conditions import constant_step, drawn_participants, drawn_samples
from linfed.prediction.law import Law, Run, no_representation
from linfed.prediction.prediction import Quantity
from linfed.simulation.job import Job
from linfed.simulation.metrics import client_risks
from linfed.theory.averaging import fedavg_fixed_point, fedavg_iteration_matrix, seen_directions
from linfed.theory.fedrolex import fedrolex_cycle
from linfed.theory.mean_square import (
    DENSE,
    FullMoments,
    OverwrittenMoments,
    is_overwritten,
    second_moments,
    spectral_radius,
)
from linfed.theory.partial_participation import fedavg_stationary_covariance

MEAN = "asymptotically exact for the distance from the limit; full participation"

MEAN_EDGE = "exact; full participation"

SQUARE = (
    "asymptotically exact for the root mean square, over participants, of the distance from the limit of the mean; "
    "the rate of the mean itself is {}"
)

SQUARE_EDGE = (
    "edge of the mean square: below it the mean square stays bounded; above it the mean square diverges, though single "
    "runs may still converge at step sizes up to about 1.3 times the edge"
)

SPREADS = "best for the rate in mean square only: the spread about the mean's end grows with the step size"

GROWTH, SMALLEST, LARGEST = 1.25, 1e-9, 1e5
"""Factor between successive step sizes in the search for the edge, and its limits relative to the first step size."""

PARTS, PARTS_IF_LARGE, CHEAP = 8, 2, 2000
"""Parts into which the search for the best step size and for windows of instability divides each of these intervals,
for cheap maps (n d^2 up to `CHEAP`; few second moments) and for larger ones. The largest second moments have one."""

WINDOWS = 5.0
"""Ratio of the edge to the smallest step size at which windows of instability are searched."""

MOST_DIPS = 3
"""Largest number of minima of the rate over these step sizes that are refined."""

SEARCHED = "found by a search with ratio {:.3g} of successive step sizes; narrower windows can be missed"

MOST_UNKNOWNS = 3000
"""Largest number n d of unknowns of the whole map, whose eigenvalues then take a minute."""

COARSE, FINE, ONE, ONE_OF_MEANS = 1e-4, 1e-8, 1e-9, 1e-13
"""Tolerances of a mean-square rate far from the edge and near it, and the rounding error allowed in a rate of 1, also
for a mean without control variates or windows, whose map is nearly symmetric."""


def one_layer(run: Run[Averaging]) -> str:
    """Require a model of one layer."""
    return "" if run.algorithm.rank is None else f"for rank = {run.algorithm.rank}: the model must have one layer"


def no_fine_tuning(run: Run[Averaging]) -> str:
    """Require the server's model at the end."""
    tuned = run.algorithm.fine_tune
    return "" if tuned is None else f"for fine_tune = {short_repr(tuned)}: use None"


def averaged(run: Run[Averaging]) -> str:
    """Require a mean of the changes."""
    name = run.algorithm.aggregate if isinstance(run.algorithm, FedAvg) else "mean"
    return "" if name == "mean" else f"for aggregate = {name!r}: it must be 'mean'"


def full_gradients(run: Run[Averaging]) -> str:
    """Require gradients of all samples."""
    epochs = run.algorithm.local_epochs
    return "" if epochs is None else f"for local_epochs = {epochs}: gradients must be full"


def samples_of_one_model(run: Run[Averaging]) -> str:
    """Require fixed samples that can be drawn again."""
    if isinstance(run.job.data, FreshSamples):
        return "for FreshSamples (theory.single_model_floor bounds the risk of every single model)"
    return drawn_samples(run)


def whole_models(run: Run[Averaging]) -> str:
    """Require FedSCAVAR without windows."""
    share = run.algorithm.model_share if isinstance(run.algorithm, FedSCAVAR) else 1.0
    return f"for model_share = {short_repr(share)}: it must be 1" if np.min(share) < 1 else ""


def everybody_in_a_cycle(run: Run[Averaging]) -> str:
    """Require full participation for a limit cycle."""
    p, n = run.job.sizes.participants, run.job.sizes.n_clients
    why = "its mean square has not been derived; the mean's stability edge is only an upper bound"
    return "" if run.everybody else f"for {p} of {n} participants: {why}"


PLAIN = (averaged, one_layer, no_fine_tuning, full_gradients, samples_of_one_model, drawn_participants, constant_step)


class FixedPoint(Law[Run[Averaging]]):
    """Floor, rate, stability edge and best step size at the fixed point, in mean square if p < n."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (FedAvg, FedProx, SCAFFOLD, FedVARP, ClusterFedVARP, FedSCAVAR)
    runs = "one layer, fixed or given samples, full gradients"
    gives = ("floor", "rate", "stability_edge", "best_step")
    name = "fixed point"
    validity = "one layer, full gradients, fixed samples"
    range = (
        "exact for these samples; with partial participation, in mean square over participants; edge and best step by "
        "a search over step sizes"
    )
    conditions = (*PLAIN, whole_models)
    limit, rate_source = "theory.fedavg_fixed_point", "theory.fedavg_rate"

    def __init__(self, run: Run[Averaging]) -> None:
        super().__init__(run)
        if isinstance(run.algorithm, CORRECTED):
            self.limit, self.rate_source = "the pooled least squares", "theory.scaffold_iteration_matrix"
        self.source = self.limit if run.everybody else "theory.mean_square_rate"

    @classmethod
    def run_of(cls, job: Job) -> Run[Averaging]:
        """Return the run of a job."""
        assert isinstance(job.algorithm, Averaging)
        return Run(job, job.algorithm)

    @cached_property
    def step(self) -> float:
        """Step size."""
        return one_step(self.run.algorithm.step_size, f"predictions of {self.subject} require")

    @cached_property
    def trials(self) -> list[OneTrial]:
        """Normal equations of every trial."""
        weighted, p = self.run.algorithm.weights == "samples", self.run.job.sizes.participants
        found = []
        for X, y, counts, weights in samples_of_trials(self.run.job):
            A, b = normal_equations(X[0], y[0], counts[0])
            found.append(OneTrial(self.run.algorithm, A, b, weights if weighted else None, p))
        return found

    def curves(self) -> str:
        """Return that there is no distance."""
        return no_representation(f"one-layer {self.subject}")

    def floor(self) -> Quantity:
        """Return the mean risk at the limit."""
        job, values = self.run.job, []
        if job.problem is None:
            raise NoPredictionError("the risk requires a ground truth: give problem=")
        for truth, one in zip(self.run.truths(), self.trials, strict=True):
            one.check_stable(self.step)
            risk = float(client_risks(State(S=one.end(self.step, job.n_rounds)[None, None]), truth).mean())
            rows = one.spread(self.step)
            shaped = np.square(job.problem.design.root_apply(rows.T)).sum(axis=(-2, -1))
            values.append(risk + 0.5 * float(np.mean(shaped)))
        return Quantity(np.array(values), self.limit, "exact on average, for these samples", "risk")

    def rate(self) -> Quantity:
        """Return the factor per round, in root mean square if p < n."""
        found = np.array([one.rate(self.step, FINE) for one in self.trials])
        if not np.isfinite(found).all():
            raise NoPredictionError(f"step_size = {self.step:g} is so large that the rate of {self.subject} overflows")
        if self.run.everybody:
            return Quantity(found, self.rate_source, MEAN)
        means = sorted(one.mean_rate(self.step) for one in self.trials)
        rates = f"{means[0]:.4g}" + (f" to {means[-1]:.4g}" if means[-1] > means[0] else "")
        return Quantity(found, "theory.mean_square_rate", SQUARE.format(rates))

    def stability_edge(self) -> Quantity:
        """Return the step size at which the rate is 1."""
        valid = MEAN_EDGE if self.run.everybody else SQUARE_EDGE
        return Quantity(np.array([one.edge for one in self.trials]), self.source, f"{valid}; {self.searched()}")

    def searched(self) -> str:
        """Return how the search over step sizes proceeded, in words."""
        return SEARCHED.format(GROWTH ** (1.0 / self.trials[0].parts))

    def best_step(self) -> Quantity:
        """Return the step size of the smallest rate."""
        wanders = not self.run.everybody and not _settles(self.run.algorithm, self.run.job.sizes.n_clients)
        valid = SPREADS if wanders else MEAN_EDGE if self.run.everybody else SQUARE_EDGE
        return Quantity(np.array([one.best for one in self.trials]), self.source, f"{valid}; {self.searched()}")


class Cycle(FixedPoint):
    """The same at the limit cycle of FedRolex's windows."""

    algorithms = (FedRolex,)
    name = "cycle"
    range = (
        "exact for these samples, for the limit cycle of the windows; edge and best step by a search over step sizes"
    )
    conditions = (*PLAIN, everybody_in_a_cycle)
    limit = rate_source = "theory.fedrolex_cycle"


AVERAGING: tuple[type[Law[Run[Averaging]]], ...] = (FixedPoint, Cycle)
"""All laws of averaging algorithms."""

CORRECTED = (SCAFFOLD, FedSCAVAR)
"""Algorithms with control variates, whose runs end at the pooled least squares."""


def _settles(algorithm: Averaging, n_clients: int) -> bool:
    """Return True if runs with partial participation converge to a point below the stability edge."""
    if isinstance(algorithm, ClusterFedVARP):
        return algorithm.n_clusters == n_clients
    return isinstance(algorithm, (*CORRECTED, FedVARP))


class OneTrial:
    """Normal equations of one trial, on the range of its samples, with rates, stability edge and limit."""

    def __init__(self, algorithm: Averaging, A: Array, b: Array, weights: Array | None, participants: int) -> None:
        self.algorithm, self.participants, self.everybody = algorithm, participants, participants == len(A)
        if weights is not None and np.ptp(weights) == 0:
            weights = None
        self.weights = weights
        self._unequal = weights is not None and not self.everybody  # participants' weights are then random
        # FedRolex's windows are of coordinates
        self.basis = np.eye(len(A[0])) if isinstance(algorithm, FedRolex) else seen_directions(A, weights)
        self.A, self.b = self.basis.T @ A @ self.basis, b @ self.basis
        plain = self.everybody and not isinstance(algorithm, (*CORRECTED, FedRolex))
        self._one = 1.0 + (ONE_OF_MEANS if plain else ONE)
        self._rates: dict[tuple[float, float], float] = {}

    def _options(self, step_size: float) -> dict[str, Any]:
        algorithm = self.algorithm
        return {
            "step_size": step_size,
            "local_steps": algorithm.local_steps,
            "mu": algorithm.mu if isinstance(algorithm, FedProx | FedSCAVAR) else 0.0,
        }

    def _full(self, step_size: float) -> FullMoments:
        if len(self.A) * len(self.A[0]) > MOST_UNKNOWNS:
            raise NoPredictionError(
                f"no prediction of {type(self.algorithm).__name__} is available for {len(self.A)} clients in "
                f"{len(self.A[0])} dimensions: its map has n d = {len(self.A) * len(self.A[0])} unknowns, at most "
                f"{MOST_UNKNOWNS} are allowed"
            )
        return FullMoments(self.algorithm, self.A, step_size, self.participants, self.weights, self.b)

    def _moments(self, step_size: float) -> OverwrittenMoments | FullMoments:
        return second_moments(self.algorithm, self.A, step_size, self.participants, self.weights, self.b)

    def rate(self, step_size: float, tolerance: float = COARSE) -> float:
        """Return the factor per round of the distance from the limit, in root mean square if p < n."""
        key = (step_size, 0.0 if self.everybody else tolerance)
        if key not in self._rates:
            if self.everybody:
                self._rates[key] = self.mean_rate(step_size)
            else:
                self._rates[key] = float(np.sqrt(spectral_radius(self._moments(step_size), tolerance)))
        return self._rates[key]

    def mean_rate(self, step_size: float) -> float:
        """Return the factor per round of the distance of the mean over participants from its limit."""
        algorithm, server = self.algorithm, self.algorithm.server_step_size
        if isinstance(algorithm, FedRolex):
            return self._cycle(step_size)[1]
        if not self.everybody:
            matrix = self._moments(step_size).mean
        elif isinstance(algorithm, CORRECTED):
            if is_overwritten(algorithm, len(self.A), self.weights):
                matrix = OverwrittenMoments(algorithm, self.A, step_size, self.participants).mean
            else:
                matrix = self._full(step_size).mean
        else:
            matrix = fedavg_iteration_matrix(
                self.A, server_step_size=server, weights=self.weights, **self._options(step_size)
            )
        return float(np.abs(np.linalg.eigvals(matrix)).max()) if np.isfinite(matrix).all() else np.inf

    def _cycle(self, step_size: float) -> tuple[Array, float]:
        assert isinstance(self.algorithm, FedRolex)
        return fedrolex_cycle(
            self.A,
            self.b,
            step_size=step_size,
            model_share=self.algorithm.model_share,
            local_steps=self.algorithm.local_steps,
            server_step_size=self.algorithm.server_step_size,
            weights=self.weights,
            aggregation=self.algorithm.aggregation,
        )

    def check_stable(self, step_size: float) -> None:
        """Raise if runs diverge at this step size."""
        rate = self.rate(step_size, FINE)
        if 1.0 <= rate < 1.0 + ONE and step_size < self.edge:
            raise NoPredictionError(
                f"step_size = {step_size:g} is too small: the rate of {type(self.algorithm).__name__} is 1 within "
                "rounding error"
            )
        if rate >= 1.0:
            square = "" if self.everybody else " in mean square"
            raise NoPredictionError(
                f"step_size = {step_size:g} is not below the stability edge: {type(self.algorithm).__name__} diverges"
                f"{square} with rate {rate:.4g}; use a smaller step size"
            )

    def end(self, step_size: float, n_rounds: int) -> Array:
        """Return the limit of the mean, (d,); for a limit cycle, its point after `n_rounds` rounds."""
        if isinstance(self.algorithm, FedRolex):
            cycle, _ = self._cycle(step_size)
            return cycle[n_rounds % len(cycle)]
        if self._unequal:
            return self.basis @ self._full(step_size).fixed_point()[: len(self.A[0])]
        options = {"step_size": step_size} if isinstance(self.algorithm, CORRECTED) else self._options(step_size)
        return self.basis @ fedavg_fixed_point(self.A, self.b, weights=self.weights, stable=False, **options)

    def spread(self, step_size: float) -> Array:
        """Return a square root, as rows (.., d), of the stationary covariance; 0 if runs converge to a point."""
        if self.everybody or _settles(self.algorithm, len(self.A)):
            return np.zeros((1, len(self.basis)))
        moments = self._moments(step_size)
        if isinstance(moments, FullMoments):
            covariance = moments.spread()
        else:
            covariance = fedavg_stationary_covariance(
                self.A,
                self.b,
                participants=self.participants,
                server_step_size=self.algorithm.server_step_size,
                **self._options(step_size),
            )
        values, vectors = np.linalg.eigh(covariance)
        return np.sqrt(np.maximum(values, 0.0))[:, None] * (self.basis @ vectors).T

    def _unstable(self, step_size: float) -> bool:
        return self.rate(step_size) > 1.0 - 10.0 * COARSE and self.rate(step_size, FINE) > self._one

    @cached_property
    def parts(self) -> int:
        """Number of parts into which the search divides an interval of ratio `GROWTH`."""
        cheap = self.A.size <= CHEAP
        if not self.everybody:
            size = self._moments(1.0 / float(np.linalg.eigvalsh(self.A).max())).size if cheap else np.inf
            return PARTS if size <= DENSE / 3 else PARTS_IF_LARGE if size <= DENSE else 1
        return PARTS if cheap and not isinstance(self.algorithm, CORRECTED) else PARTS_IF_LARGE

    def _divided(self, steps: list[float]) -> list[float]:
        """Return ascending step sizes with `parts` - 1 more between each two."""
        shares = np.arange(self.parts) / self.parts
        return [*(float(low * (high / low) ** x) for low, high in pairwise(steps) for x in shares), steps[-1]]

    @cached_property
    def _scanned(self) -> list[float]:
        """Step sizes in ascending order with ratios up to `GROWTH`, of which only the last one is unstable."""
        algorithm = self.algorithm
        share = self.participants / len(self.A)
        begin = 0.1 * share / (float(np.linalg.eigvalsh(self.A).max()) + self._options(1.0)["mu"])
        begin /= max(1.0, algorithm.server_step_size) * np.sqrt(algorithm.local_steps)
        steps = [begin]
        while self._unstable(steps[0]):
            steps = [steps[0] / 8.0]
            if steps[0] < SMALLEST * begin:
                raise NoPredictionError(f"no stable step_size of at least {steps[0]:.4g} was found")
        while not self._unstable(steps[-1]):
            steps.append(GROWTH * steps[-1])
            if steps[-1] > LARGEST * begin:
                raise NoPredictionError(f"no stability edge was found up to step_size = {steps[-1]:.4g}")
        first = sum(step < steps[-1] / WINDOWS for step in steps[1:])
        near = self._divided(steps[first:])
        last = next(number for number, step in enumerate(near) if self._unstable(step))
        return [*steps[:first], *near[: last + 1]]

    @cached_property
    def edge(self) -> float:
        """Smallest step size at which the rate exceeds 1."""
        from scipy import optimize

        low, high = self._scanned[-2:]
        above = lambda step: min(self.rate(step, FINE), 2.0) - self._one  # noqa: E731
        return float(optimize.brentq(above, low, high, xtol=1e-12 * high, rtol=1e-10))

    @cached_property
    def best(self) -> float:
        """Step size with the smallest rate below the edge."""
        from scipy import optimize

        steps = [*self._scanned[:-1], self.edge]
        first = sum(step < steps[-1] / WINDOWS for step in steps[1:])
        steps = [*self._divided(steps[: first + 1])[:-1], *steps[first:]]
        rates = [self.rate(step) for step in steps]
        while np.argmin(rates) == 0 and steps[0] > SMALLEST * self.edge:
            steps.insert(0, steps[0] / GROWTH)
            rates.insert(0, self.rate(steps[0]))
        around = np.pad(rates, 1, constant_values=np.inf)
        dips = np.flatnonzero((around[1:-1] <= around[:-2]) & (around[1:-1] <= around[2:]))
        found = []
        for at in dips[np.argsort(np.array(rates)[dips])][:MOST_DIPS]:
            low, high = np.log(steps[max(at - 1, 0)]), np.log(steps[min(at + 1, len(steps) - 1)])
            found.append(
                optimize.minimize_scalar(
                    lambda log: self.rate(float(np.exp(log))),
                    bounds=(low, high),
                    method="bounded",
                    options={"xatol": 1e-3},
                )
            )
        return float(np.exp(min(found, key=lambda one: one.fun).x))


def samples_of_trials(job: Job) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield the fixed samples X (1, n, m, d) and y (1, n, m), counts (1, n) and weights (n,) of every trial."""
    shape = (job.sizes.n_clients, job.setting.samples, job.sizes.dim)
    for trial in range(job.trials):
        if isinstance(job.data, GivenSamples):
            yield *job.data.of_trials([trial]), job.data.counts
        else:
            assert job.problem is not None
            X, y = draw_fixed(job.problem.truth(job.seed, [trial]), shape, job.seed, [trial])
            yield X, y, np.full(X.shape[:2], float(shape[1])), np.ones(shape[0])
