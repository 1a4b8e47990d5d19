"""Predictions for averaging algorithms on fixed samples: fixed points, rates, stability edges and covariances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from linfed._types import Array
from linfed.algorithms.averaging import SCAFFOLD, ClusterFedVARP, FedAvg, FedProx, FedRolex, FedSCAVAR, FedVARP
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.parts.base import State
from linfed.algorithms.parts.step_size import one_step
from linfed.checks import short_repr
from linfed.data.explicit import normal_equations
from linfed.data.samples import FixedSamples, FreshSamples, GivenSamples
from linfed.data.sources import draw_fixed
from linfed.errors import NoPredictionError
from linfed.prediction.prediction import Asked, Prediction, Quantity
from linfed.simulation.engines import draws_factors
from linfed.simulation.job import Job
from linfed.simulation.metrics import client_risks
from linfed.theory.averaging import fedavg_fixed_point, fedavg_iteration_matrix, seen_directions
from linfed.theory.fedrolex import fedrolex_cycle
from linfed.theory.mean_square import (
    FullMoments,
    OverwrittenMoments,
    is_overwritten,
    second_moments,
    spectral_radius,
)
from linfed.theory.partial_participation import fedavg_stationary_covariance

NO_B = "no prediction of the distance is available for one-layer {}, which learns no representation B"

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

MOST_UNKNOWNS = 3000
"""Largest number n d of unknowns of the whole map, whose eigenvalues then take a minute."""

COARSE, FINE, ONE = 1e-4, 1e-8, 1e-9
"""Tolerances of a mean-square rate far from the edge and near it, and the rounding error allowed in a rate of 1."""


def of_averaging(job: Job, algorithm: Averaging) -> Prediction:
    """Predict floor, rate, stability edge and best step size, in mean square if p < n."""
    name = type(algorithm).__name__
    _check(job, algorithm, name)
    step = one_step(algorithm.step_size, f"predictions of {name} require", NoPredictionError)
    everybody = job.sizes.participants == job.sizes.n_clients
    runs: list[OneTrial] = []

    def trials() -> list[OneTrial]:
        if not runs:
            runs.extend(_trials(job, algorithm))
        return runs

    def each(measure: Callable[[OneTrial], float], source: str, validity: str) -> Callable[[], Quantity]:
        return lambda: Quantity(np.array([measure(one) for one in trials()]), source, validity)

    def rate() -> Quantity:
        found = np.array([one.rate(step, FINE) for one in trials()])
        if everybody:
            return Quantity(found, RATES.get(type(algorithm), "theory.fedavg_rate"), MEAN)
        means = sorted(one.mean_rate(step) for one in trials())
        rates = f"{means[0]:.4g}" + (f" to {means[-1]:.4g}" if means[-1] > means[0] else "")
        return Quantity(found, "theory.mean_square_rate", SQUARE.format(rates))

    def floor() -> Quantity:
        if job.problem is None:
            raise NoPredictionError("the risk requires a ground truth: give problem=")
        values = []
        for trial, one in enumerate(trials()):
            truth = job.problem.truth(job.seed, [trial])
            one.check_stable(step)
            risk = float(client_risks(State(S=one.end(step, job.rounds)[None, None]), truth).mean())
            rows = one.spread(step)
            shaped = np.square(job.problem.design.root_apply(rows.T)).sum(axis=(-2, -1))
            values.append(risk + 0.5 * float(np.mean(shaped)))
        return Quantity(np.array(values), SOURCES[type(algorithm)], "exact on average, for these samples", "risk")

    source = SOURCES[type(algorithm)] if everybody else "theory.mean_square_rate"
    wanders = not everybody and not _settles(algorithm, job.sizes.n_clients)
    quantities: dict[str, Asked] = {
        "rate": rate,
        "floor": floor,
        "stability_edge": each(lambda one: one.edge, source, MEAN_EDGE if everybody else SQUARE_EDGE),
        "best_step": each(
            lambda one: one.best, source, SPREADS if wanders else MEAN_EDGE if everybody else SQUARE_EDGE
        ),
    }
    return Prediction(
        law="cycle" if isinstance(algorithm, FedRolex) else "fixed point",
        source=source,
        validity="one layer, full gradients, fixed samples",
        rounds=np.arange(job.rounds + 1),
        _curves=NO_B.format(name),
        _quantities=quantities,
    )


SOURCES: dict[type[Averaging], str] = {
    FedAvg: "theory.fedavg_fixed_point",
    FedProx: "theory.fedavg_fixed_point",
    FedVARP: "theory.fedavg_fixed_point",
    ClusterFedVARP: "theory.fedavg_fixed_point",
    SCAFFOLD: "the pooled least squares",
    FedSCAVAR: "the pooled least squares",
    FedRolex: "theory.fedrolex_cycle",
}
"""Source of the limit of each algorithm."""

RATES: dict[type[Averaging], str] = {
    **dict.fromkeys((SCAFFOLD, FedSCAVAR), "theory.scaffold_iteration_matrix"),
    FedRolex: "theory.fedrolex_cycle",
}
CORRECTED = (SCAFFOLD, FedSCAVAR)


def _settles(algorithm: Averaging, n_clients: int) -> bool:
    """Return True if runs with partial participation converge to a point below the stability edge."""
    if isinstance(algorithm, ClusterFedVARP):
        return algorithm.n_clusters == n_clients
    return isinstance(algorithm, (*CORRECTED, FedVARP))


def _check(job: Job, algorithm: Averaging, name: str) -> None:
    """Raise unless the run can be predicted."""
    some = job.sizes.participants < job.sizes.n_clients
    if algorithm.rank is not None:
        raise NoPredictionError(
            f"no prediction of {name} is available for rank = {algorithm.rank}: the model must have one layer"
        )
    if algorithm.fine_tune is not None:
        raise NoPredictionError(
            f"no prediction of {name} is available for fine_tune = {short_repr(algorithm.fine_tune)}: use None"
        )
    if algorithm.local_epochs is not None:
        raise NoPredictionError(
            f"no prediction of {name} is available for local_epochs = {algorithm.local_epochs}: gradients must be full"
        )
    check_fixed_samples(job, name, " (theory.single_model_floor bounds the risk of every single model)")
    if some and not isinstance(job.participation, int | float):
        raise NoPredictionError(f"no prediction of {name} is available for given participants; use a share or a count")
    if isinstance(algorithm, FedRolex) and some:
        raise NoPredictionError(
            f"FedRolex with {job.sizes.participants} of {job.sizes.n_clients} participants is not supported: "
            "its mean square has not been derived; the mean's stability edge is only an upper bound"
        )
    if isinstance(algorithm, FedSCAVAR) and np.min(algorithm.model_share) < 1:
        raise NoPredictionError(
            f"no prediction of FedSCAVAR is available for model_share = "
            f"{short_repr(algorithm.model_share)}: it must be 1"
        )


def check_fixed_samples(job: Job, name: str, hint: str = "") -> None:
    """Raise unless the samples are fixed and can be drawn again."""
    if isinstance(job.data, FreshSamples):
        raise NoPredictionError(f"no prediction of {name} is available for FreshSamples{hint}")
    if isinstance(job.data, FixedSamples) and draws_factors(job.data, job.sizes.n_clients, job.sizes.dim):
        raise NoPredictionError(
            f"no prediction of {name} is available for in_law = True: its fixed point requires drawn samples"
        )


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
        if self.everybody:
            return self.mean_rate(step_size)
        key = (step_size, tolerance)
        if key not in self._rates:
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
        if rate >= 1.0:
            square = "" if self.everybody else " in mean square"
            raise NoPredictionError(
                f"step_size = {step_size:g} is not below the stability edge: {type(self.algorithm).__name__} diverges"
                f"{square} with rate {rate:.4g}; use a smaller step size"
            )

    def end(self, step_size: float, rounds: int) -> Array:
        """Return the limit of the mean, (d,); for a limit cycle, its point after `rounds` rounds."""
        if isinstance(self.algorithm, FedRolex):
            cycle, _ = self._cycle(step_size)
            return cycle[rounds % len(cycle)]
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
        return self.rate(step_size) > 1.0 - 10.0 * COARSE and self.rate(step_size, FINE) > 1.0 + ONE

    @cached_property
    def _scanned(self) -> list[float]:
        """Step sizes in ascending order with ratio `GROWTH`, of which only the last one is unstable."""
        algorithm = self.algorithm
        share = self.participants / len(self.A)
        begin = 0.1 * share / float(np.linalg.eigvalsh(self.A).max())
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
        return steps

    @cached_property
    def edge(self) -> float:
        """Smallest step size at which the rate exceeds 1."""
        from scipy import optimize

        low, high = self._scanned[-2:]
        above = lambda step: min(self.rate(step, FINE), 2.0) - 1.0 - ONE  # noqa: E731
        return float(optimize.brentq(above, low, high, xtol=1e-12 * high, rtol=1e-10))

    @cached_property
    def best(self) -> float:
        """Step size with the smallest rate below the edge."""
        from scipy import optimize

        steps = [*self._scanned[:-1], self.edge]
        rates = [self.rate(step) for step in steps]
        while np.argmin(rates) == 0 and steps[0] > SMALLEST * self.edge:
            steps.insert(0, steps[0] / GROWTH)
            rates.insert(0, self.rate(steps[0]))
        at = int(np.argmin(rates))
        low, high = np.log(steps[max(at - 1, 0)]), np.log(steps[min(at + 1, len(steps) - 1)])
        found = optimize.minimize_scalar(
            lambda log: self.rate(float(np.exp(log))), bounds=(low, high), method="bounded", options={"xatol": 1e-3}
        )
        return float(np.exp(found.x))


def _trials(job: Job, algorithm: Averaging) -> Iterator[OneTrial]:
    """Yield the normal equations of every trial."""
    for X, y, counts, weights in samples_of_trials(job):
        A, b = normal_equations(X[0], y[0], counts[0])
        yield OneTrial(algorithm, A, b, weights if algorithm.weights == "samples" else None, job.sizes.participants)


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
