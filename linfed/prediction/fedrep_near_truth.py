"""Laws of FedRep near the ground truth: floor, rate, stability edge and best step size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed.algorithms.parts.base import Algorithm
from linfed.algorithms.representation.compressed_fedrep import CompressedFedRep
from linfed.algorithms.representation.fedrep import FedRep
from linfed.errors import NoPredictionError
from linfed.prediction.cases import FedRepRun
from linfed.prediction.conditions import ROUND, exact_heads, no_levels, rank_k, second_moments
from linfed.prediction.law import Law, above
from linfed.prediction.prediction import Curves, Quantity
from linfed.simulation.job import Job
from linfed.theory.fedrep.fixed_samples.largest_angle import median_distance
from linfed.theory.fedrep.near_truth.any_heads import LocalMap

STEP_OF_MEANS = 1.4
"""Largest multiple of the best step size for which the mean of a round is near its median."""

FLOOR_SHARE = 0.8
"""Largest share of the stability edge at which typical runs have the mean square at the floor."""

NEAR = "near B*, in mean square; single runs fall slightly faster, clearly so for small d"

NEAR_FLOOR = (
    f"step sizes up to {FLOOR_SHARE:g} of the stability edge: median of Gaussian tangents with the mean square of runs,"
    " within {} % of the median of runs"
)

NEAR_END = ("floor", "rate", "stability_edge", "best_step")


class FedRepLaw(Law[FedRepRun]):
    """Prediction of a run of FedRep."""

    algorithms: ClassVar[tuple[type[Algorithm], ...]] = (FedRep,)

    @classmethod
    def run_of(cls, job: Job) -> FedRepRun:
        """Return the run of a job."""
        return FedRepRun.of(job)

    @property
    def subject(self) -> str:
        """What is predicted, in messages."""
        return "FedRep's distance"


class NearTruth(FedRepLaw):
    """Quantities near B*, for exact heads and a ground truth of rank k."""

    def near(
        self, measure: Callable[[LocalMap], float], source: str, validity: str = NEAR, metric: str = ""
    ) -> Quantity:
        """Return the values of a function of the linear map of a round near B*."""
        self.check_spanned()
        return Quantity(np.array([measure(here) for here in self.run.maps]), f"theory.{source}", validity, metric)

    def check_spanned(self) -> None:
        """Raise a NoPredictionError if the heads of a trial leave a direction out."""
        if not all(here.spanned for here in self.run.maps):
            raise NoPredictionError(
                f"heads span fewer than rank = {self.run.algorithm.rank} dimensions: along the others B is not "
                "learned, so floor, rate, stability edge and best step do not exist"
            )

    def floor(self) -> Quantity:
        """Return the stationary distance, in mean square."""
        run = self.run

        def measure(here: LocalMap) -> float:
            step, edge = run.step("the floor requires"), here.edge()
            found = float(median_distance(stable_floor(run, here, step), dim=run.job.sizes.dim))
            if found and step > FLOOR_SHARE * edge:
                size, edge = step / run.unit, edge / run.unit
                raise NoPredictionError(
                    f"no prediction of the floor is available for step_size = {size:.4g}, above {FLOOR_SHARE:g} of "
                    f"stability_edge = {edge:.4g}: few runs dominate the mean square there"
                )
            return found

        valid = NEAR_FLOOR.format(10 if run.job.sizes.dim <= 2 * run.algorithm.rank else 5)
        return self.near(measure, "near_truth_floor", valid, "subspace_distance")

    def rate(self) -> Quantity:
        """Return the root of the factor of the mean square."""
        run = self.run

        def measure(here: LocalMap) -> float:
            return float(np.sqrt(here.factor(run.step("the rate requires"))))

        return self.near(measure, "near_truth_factor", metric="subspace_distance")

    def stability_edge(self) -> Quantity:
        """Return the step size at which this factor is 1."""
        return self.near(lambda here: here.edge() / self.run.unit, "stability_edge")

    def best_step(self) -> Quantity:
        """Return the step size of the smallest factor."""
        return self.near(lambda here: here.best() / self.run.unit, "near_truth_best_step")


class OnlyNearTruth(NearTruth):
    """The same for runs whose distance is not predicted."""

    gives = NEAR_END

    def doubts(self, curves: Curves | str) -> Iterator[str]:
        """Yield a warning about a large step size."""
        yield from step_doubts(self.run, STEP_OF_MEANS)


class CompressedMessages(OnlyNearTruth):
    """Sparsified messages."""

    algorithms = (CompressedFedRep,)
    runs = "sparsified messages, exact heads, fresh samples, m >= k + 2"
    name = "compressed messages"
    source = "theory.near_truth_factor and near_truth_floor with compression"
    validity = (
        "near B*, in the mean square over runs and over the orientations of B* and of B's columns; single runs fall "
        "slightly faster"
    )
    conditions = (no_levels, *ROUND, exact_heads, rank_k, second_moments)

    @property
    def subject(self) -> str:
        """What is predicted, in messages."""
        return "FedRep with compressed messages"

    def concerns(self) -> bool:
        """Return True if messages are compressed."""
        return isinstance(self.run.algorithm, CompressedFedRep) and self.run.algorithm.kept_share != 1

    def curves(self) -> str:
        """Return that the distance is not predicted."""
        return "no prediction of the distance is available for compressed messages"


def of_rank_k(run: FedRepRun) -> str:
    """Require a ground truth of rank k."""
    d, r = run.job.sizes.dim, run.truth_rank
    return "" if r == run.algorithm.rank else f"for dim = {d} below 2 rank and a ground truth of rank {r}"


class FewDimensions(OnlyNearTruth):
    """Dimensions d below 2k, where fewer than k angles differ from 0."""

    runs = "exact heads, fresh samples, k < d < 2k, m >= k + 2"
    name = "near the truth"
    source = "theory.near_truth_factor and near_truth_floor"
    validity = NEAR
    conditions = (*ROUND, of_rank_k, second_moments)

    def concerns(self) -> bool:
        """Return True for exact heads and k < d < 2k."""
        k = self.run.algorithm.rank
        return self.run.exact and k < self.run.job.sizes.dim < 2 * k

    def curves(self) -> str:
        """Return that the distance is not predicted."""
        return (
            f"no prediction of FedRep's distance is available for dim = {self.run.job.sizes.dim} below 2 rank = "
            f"{2 * self.run.algorithm.rank}, only of its floor, rate, stability edge and best step"
        )


def stable_floor(run: FedRepRun, here: LocalMap, step: float) -> Array:
    """Return the stationary matrix at a step size, or raise in the units of `step_size` if there is none."""
    if here.spanned and step >= here.edge():
        raise NoPredictionError(
            f"step_size = {step / run.unit:.4g} must be below stability_edge = {here.edge() / run.unit:.4g}: at larger "
            "step sizes the mean square grows without bound and no floor exists"
        )
    return here.floor(step)


def step_doubts(run: FedRepRun, limit: float) -> list[str]:
    """Return warnings about the largest step size, from the heads of the first trial."""
    if not run.steps.size:
        return []
    largest, here = float(run.steps.max()), run.maps[0]
    step, edge, best = f"step_size = {largest / run.unit:.4g}", here.edge(), here.best()
    if not here.spanned:
        return [f"heads span fewer than rank = {run.algorithm.rank} dimensions: not every angle falls at any step_size"]
    if largest >= edge:
        return [f"{step} is not below stability_edge = {edge / run.unit:.4g}: not every angle falls in mean square"]
    if largest > limit * best:
        return [
            f"{step} is {above(largest / best, limit)} times best_step, above {limit}: few and rare rounds dominate "
            "the means"
        ]
    return []
