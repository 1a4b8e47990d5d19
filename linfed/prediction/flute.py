"""Laws of FLUTE near the truncation of the regressors to rank k."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed.algorithms.parts.step_size import one_step
from linfed.algorithms.representation.flute import FLUTE
from linfed.checks import short_repr
from linfed.data.samples import FixedSamples, FreshSamples
from linfed.errors import NoPredictionError
from linfed.prediction.conditions import all_participate, constant_step, equal_noise, equal_samples
from linfed.prediction.fedrep import truncation_metric, truncation_quantity
from linfed.prediction.law import Law, Run
from linfed.prediction.others import rows
from linfed.prediction.prediction import Asked, Quantity
from linfed.simulation.job import Job
from linfed.theory.flute.low_rank import truncation_floor
from linfed.theory.flute.mean_square import flute_stability_edge
from linfed.theory.flute.theorems import flute_gap, flute_local_rate

NEAR = "near the truncation, at population (large n_samples)"


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
    range = "near the truncation to rank k, at population; the floor to first order in 1/m"
    conditions = (equal_noise, equal_samples, constant_step, plain_weights, all_participate, white)

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

    def rate(self) -> Quantity:
        """Return the rate near the truncation."""
        k, metric = self.run.algorithm.rank, truncation_metric(self.run.problem, self.run.algorithm.rank)
        return Quantity(flute_local_rate(self.spectra, k, self.step), "theory.flute_local_rate", NEAR, metric)

    def stability_edge(self) -> Quantity:
        """Return the step size above which runs diverge from the truncation."""
        return Quantity(1.0 / self.spectra[:, 0] / self.factor, "theory.flute_local_rate: 1/lambda_1", NEAR)

    def best_step(self) -> Quantity:
        """Return the step size of the smallest rate."""
        steps = 2.0 / (2.0 * self.spectra[:, 0] + 0.5 * flute_gap(self.spectra, self.run.algorithm.rank))
        return Quantity(steps / self.factor, "minimum of theory.flute_local_rate", NEAR)

    def floor(self) -> Quantity:
        """Return the distance of the limit from the truncation."""
        missing = f"no prediction of {self.subject}'s floor is available for"
        if not isinstance(self.run.job.data, FixedSamples):
            raise NoPredictionError(f"{missing} {type(self.run.job.data).__name__}")
        limit = float((1.0 / self.spectra[:, 0]).min())
        if self.step >= limit:
            raise NoPredictionError(
                f"{missing} step_size = {self.step / self.factor:g}: "
                f"runs converge only below stability_edge = {limit / self.factor:.4g}"
            )
        return truncation_quantity(self.run, self.run.algorithm.rank)


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
        try:
            found = [flute_stability_edge(truth, k, m)[0] for truth in self.run.truths()]
        except ValueError as error:
            raise NoPredictionError(f"no prediction of {self.subject}'s stability edge is available: {error}") from None
        valid = "near the ground truth, in mean square; single runs can converge above this step size"
        return Quantity(np.array(found) / self.factor, "theory.flute_stability_edge", valid)

    def floor(self) -> Quantity:
        """Return the stationary distance from the truncation."""
        k, m = self.run.algorithm.rank, self.run.job.setting.samples
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
