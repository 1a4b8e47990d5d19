"""Laws of FLUTE near the truncation of the regressors to rank k."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed.algorithms.parts.step_size import one_step
from linfed.algorithms.representation.flute import FLUTE
from linfed.checks import short_repr
from linfed.data.explicit import normal_equations
from linfed.data.samples import FixedSamples, FreshSamples
from linfed.errors import NoPredictionError
from linfed.prediction.averaging import samples_of_trials
from linfed.prediction.conditions import all_participate, constant_step, equal_noise, equal_samples, equal_weights
from linfed.prediction.fedrep import truncation_doubts, truncation_metric, truncation_quantity
from linfed.prediction.law import Law, Run
from linfed.prediction.others import rows
from linfed.prediction.prediction import Asked, Curves, Quantity
from linfed.problems import Truth
from linfed.simulation.job import Job
from linfed.theory.flute.low_rank import singular_factors, truncation_floor
from linfed.theory.flute.mean_square import flute_stability_edge
from linfed.theory.flute.theorems import flute_gap, flute_local_rate

NEAR = "near the truncation, at population (large n_samples)"

MOST_FLOATS = 2e7
"""Largest number of floats of a data set on which the largest curvature is computed."""


def plain_weights(run: Run[FLUTE]) -> str:
    """Require the weights and the step ratio of the theorems."""
    weights = (run.algorithm.gamma1, run.algorithm.gamma2, run.algorithm.step_ratio)
    known = weights == (0.25, 0.125, 1.0)
    return "" if known else f"for gamma1, gamma2 and step ratio = {weights}: they must be 0.25, 0.125 and 1"


def white(run: Run[FLUTE]) -> str:
    """Require x of covariance I."""
    design = run.problem.design
    return "" if design.variance == 1.0 else f"for design = {short_repr(design)}: x must have covariance I"


class Truncation(Law[Run[FLUTE]]):
    """Rate and step sizes at population, floor on fixed samples."""

    algorithms = (FLUTE,)
    runs = "fixed samples, all clients participate"
    gives: ClassVar[tuple[str, ...]] = ("floor", "rate", "stability_edge", "best_step")
    name = "truncation"
    source = "theory.flute_local_rate, theory.truncation_floor"
    validity = "near the truncation Phi_k; the approach to it is not predicted"
    range = (
        "near the truncation to rank k, at population; the floor to first order in 1/m, within 10 % without a warning"
    )
    conditions = (equal_noise, equal_samples, equal_weights, constant_step, plain_weights, all_participate, white)

    @classmethod
    def run_of(cls, job: Job) -> Run[FLUTE]:
        """Return the run of a job."""
        assert isinstance(job.algorithm, FLUTE)
        return Run(job, job.algorithm)

    @property
    def factor(self) -> float:
        """Factor of the gradient."""
        return self.run.algorithm.gradient_factor

    @cached_property
    def step(self) -> float:
        """Step size along the gradient."""
        return one_step(self.run.algorithm.step_size, f"predictions of {self.subject} require") * self.factor

    @cached_property
    def spectra(self) -> Array:
        """Singular values of Phi of every trial."""
        return np.array([np.linalg.svd(rows(truth), compute_uv=False) for truth in self.run.truths()])

    def check_moving(self) -> None:
        """Raise a NoPredictionError if all regressors of a trial are 0."""
        if not self.spectra[:, 0].all():
            raise NoPredictionError(
                f"no prediction of {self.subject} is available for regressors that are all 0: lambda_1 = 0, so the "
                "truncation is 0 and step sizes have no scale"
            )

    @cached_property
    def slowest(self) -> Array:
        """Decay per step size of the slowest component: ``lambda_k - lambda_(k+1)``, or ``2 lambda_k`` for k = n = d.

        With k = n = d there is no direction outside the k singular ones, to which the gap belongs.
        """
        k, sizes = self.run.algorithm.rank, self.run.job.sizes
        if k == sizes.n_clients == sizes.dim:
            return 2.0 * self.spectra[:, -1] if self.spectra.shape[1] == k else np.zeros(len(self.spectra))
        return 0.5 * flute_gap(self.spectra, k)

    def rate(self) -> Quantity:
        """Return the rate near the truncation."""
        self.check_moving()
        k, sizes = self.run.algorithm.rank, self.run.job.sizes
        if k == sizes.n_clients == sizes.dim:
            rates = np.maximum(abs(1.0 - self.step * self.slowest), abs(1.0 - 2.0 * self.step * self.spectra[:, 0]))
        else:
            rates = flute_local_rate(self.spectra, k, self.step)
        return Quantity(rates, "theory.flute_local_rate", NEAR, truncation_metric(self.run.problem, k))

    def stability_edge(self) -> Quantity:
        """Return the step size above which runs diverge from the truncation."""
        self.check_moving()
        return Quantity(1.0 / self.spectra[:, 0] / self.factor, "theory.flute_local_rate: 1/lambda_1", NEAR)

    def best_step(self) -> Quantity:
        """Return the step size of the smallest rate."""
        self.check_moving()
        steps = 2.0 / (2.0 * self.spectra[:, 0] + self.slowest)
        return Quantity(steps / self.factor, "minimum of theory.flute_local_rate", NEAR)

    def doubts(self, curves: Curves | str) -> Iterator[str]:
        """Yield warnings if the samples are few, or if the step size is not stable on them."""
        data, k = self.run.job.data, self.run.algorithm.rank
        if isinstance(data, FreshSamples):
            return
        sizes, m = self.run.job.sizes, self.run.job.setting.samples
        n, d, top = sizes.n_clients, sizes.dim, float(self.spectra[:, 0].max())
        grown = np.ones(len(self.spectra))
        try:
            for truth in self.run.truths():
                singular_factors(truth, k, "the floor requires")
            if isinstance(data, FixedSamples):
                yield from truncation_doubts(self.run, k)
                moved = np.array([truncation_floor(truth, k, m)[0] for truth in self.run.truths()])
                moved = np.sqrt(n) * moved / self.spectra[:, 0]
                # the noise adds to lambda_1: two standard deviations of N_11, and its square outside the truncation
                grown = 1.0 + 2.0 * moved / np.sqrt(k * (d + n - k)) + 0.5 * moved**2
        except ValueError:  # there is no floor
            return
        top *= float(grown.max())
        # an upper bound of the largest eigenvalue of all A_i (Davidson and Szarek 2001)
        bound = (1.0 + np.sqrt(d / m) + np.sqrt(2.0 * np.log(20.0 * n) / m)) ** 2
        if isinstance(data, FixedSamples) and self.step * top * bound < 1.0:
            return
        if float(n) * (m + d) * d > MOST_FLOATS:
            yield (
                f"step_size = {self.step / self.factor:.4g} may be above the largest stable one on n_samples = {m}: it "
                f"was not computed for this many samples; it is at least {1.0 / top / bound / self.factor:.4g}"
            )
            return
        edges = [
            2.0 / factor / largest_curvature(truth, k, normal_equations(X[0], y[0], counts[0])[0])
            for truth, factor, (X, y, counts, _) in zip(
                self.run.truths(), grown, samples_of_trials(self.run.job), strict=True
            )
        ]
        if self.step >= min(edges):
            yield (
                f"step_size = {self.step / self.factor:.4g} is not below {min(edges) / self.factor:.4g}, about the "
                f"largest stable one on these n_samples = {m}: runs may not converge"
            )

    def floor(self) -> Quantity:
        """Return the distance of the limit from the truncation."""
        missing = f"no prediction of {self.subject}'s floor is available for"
        if not isinstance(self.run.job.data, FixedSamples):
            raise NoPredictionError(f"{missing} {type(self.run.job.data).__name__}")
        self.check_below(missing)
        return truncation_quantity(self.run, self.run.algorithm.rank)

    def check_below(self, missing: str) -> None:
        """Raise a NoPredictionError if the step size is not below 1/lambda_1, in the units of `step_size`."""
        self.check_moving()
        limit = float((1.0 / self.spectra[:, 0]).min())
        if self.step >= limit:
            raise NoPredictionError(
                f"{missing} step_size = {self.step / self.factor:g}: no run converges above 1/lambda_1 = "
                f"{limit / self.factor:.4g}, the stability edge for large n_samples"
            )


class FreshTruncation(Truncation):
    """Rate at population, floor and stability edge in mean square on fresh samples."""

    runs = "fresh samples, Gaussian x, all clients participate"
    gives = ("floor", "rate", "stability_edge")
    range = (
        "near the truncation to rank k; the rate at population, the floor in mean square; the edge in mean square, for "
        "a ground truth of rank k without label noise"
    )

    def concerns(self) -> bool:
        """Return True for fresh samples."""
        return isinstance(self.run.job.data, FreshSamples)

    def quantities(self) -> dict[str, Asked]:
        """Return the quantities, with the reason why there is no best step size."""
        why = "the floor falls with the step size too"
        missing = f"no prediction of {self.subject}'s best step is available for FreshSamples: {why}"
        return super().quantities() | {"best_step": missing}

    def stability_edge(self) -> Quantity:
        """Return the step size at which second moments grow."""
        k, m = self.run.algorithm.rank, self.run.job.setting.samples
        self.check_moving()
        try:
            found = [flute_stability_edge(truth, k, m)[0] for truth in self.run.truths()]
        except ValueError as error:
            raise NoPredictionError(f"no prediction of {self.subject}'s stability edge is available: {error}") from None
        valid = "near the ground truth, in mean square; single runs can converge above this step size"
        return Quantity(np.array(found) / self.factor, "theory.flute_stability_edge", valid)

    def floor(self) -> Quantity:
        """Return the stationary distance from the truncation."""
        k, m = self.run.algorithm.rank, self.run.job.setting.samples
        self.check_below(f"no prediction of {self.subject}'s floor is available for")
        with warnings.catch_warnings(record=True) as records:
            warnings.simplefilter("always")
            try:
                found = [truncation_floor(truth, k, m, step_size=self.step)[0] for truth in self.run.truths()]
            except ValueError as error:
                raise NoPredictionError(f"no prediction of {self.subject}'s floor is available: {error}") from None
        valid = "root mean square over clients and rounds, which bounds the mean; first order in 1/m"
        doubts = "; ".join(dict.fromkeys(str(each.message) for each in records))
        return Quantity(
            np.array(found), "theory.truncation_floor", doubts or valid, truncation_metric(self.run.problem, k)
        )


def largest_curvature(truth: Truth, rank: int, A: Array) -> float:
    """Return the largest eigenvalue of the objective's Hessian at the truncation, for ``A_i = X_i'X_i/m`` (n, d, d).

    The residuals of the labels are left out. At population it is ``2 lambda_1``.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    U, spectrum, Vt = singular_factors(truth, rank, "the largest curvature requires")
    B, W = (factor * np.sqrt(spectrum[0, :rank]) for factor in (U[0, :, :rank], Vt[0, :rank].T))
    d, n = len(B), len(W)

    def apply(z: Array) -> Array:
        dB, dW = z[: d * rank].reshape(d, rank), z[d * rank :].reshape(n, rank)
        moved = ((dW @ B.T + W @ dB.T)[:, None, :] @ A)[:, 0]  # A_i times the change of client i's model
        unequal = 0.5 * (dB.T @ B + B.T @ dB - dW.T @ W - W.T @ dW)  # of (1/8) ||B'B - W'W||_F^2
        return np.concatenate([(moved.T @ W + B @ unequal).ravel(), (moved @ B - W @ unequal).ravel()])

    size = rank * (d + n)
    if size <= 20:
        return float(np.linalg.eigvalsh(np.array([apply(row) for row in np.eye(size)]))[-1])
    start = np.random.default_rng(0).standard_normal(size)
    return float(eigsh(LinearOperator((size, size), matvec=apply), 1, which="LA", tol=1e-3, v0=start)[0][0])
