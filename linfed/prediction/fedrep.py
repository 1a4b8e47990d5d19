"""Laws of FedRep: special runs, fixed samples, near the ground truth, and every round on fresh samples."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from linfed._types import Array
from linfed.algorithms.initial import AtDistance, TrueSubspace
from linfed.algorithms.parts.base import Algorithm
from linfed.algorithms.representation.compressed_fedrep import CompressedFedRep
from linfed.algorithms.representation.fedrep import FedRep
from linfed.algorithms.representation.private_fedrep import PrivateFedRep
from linfed.checks import check_noise_std
from linfed.data.samples import FixedSamples, FreshSamples
from linfed.errors import NoPredictionError
from linfed.numerics.linalg import TINY, distance_from
from linfed.prediction.cases import FedRepRun, heads_of
from linfed.prediction.conditions import ROUND, averaged, equal_clients, fresh, no_message_noise, second_moments
from linfed.prediction.fedrep_near_truth import CompressedMessages, FedRepLaw, FewDimensions
from linfed.prediction.fedrep_rounds import IN_ROUNDS, SecondOrder, chain_notes
from linfed.prediction.law import Law, Run, above, first_prediction
from linfed.prediction.prediction import Asked, Curves, Prediction, Quantity, Slow
from linfed.problems import Problem
from linfed.problems.designs import is_gaussian
from linfed.problems.given import GivenTruth
from linfed.simulation.job import no_reference
from linfed.simulation.loop import first_state
from linfed.theory.fedrep.fixed_samples.minimum import fixed_sample_floor
from linfed.theory.flute.low_rank import singular_factors, truncation_floor

ALL = (FedRep, PrivateFedRep, CompressedFedRep)

MINIMUM = "minimum of the empirical risk near B*, mean over samples; for a replicon radius of at most 0.9"

MOVED = 0.04
"""Largest share by which random moves of extra columns may lower the distance."""

MOVING = (
    "random moves of the extra columns of B lower the distance by a share of about {}, above {}, which the equivalent "
    "run does not have"
)

STILL = f"extra columns whose random moves lower the distance by at most {100 * MOVED:g} %"

NARROW = "as a run with r columns, m - (k - r) samples and d - (k - r) dimensions: "


class WholeSpace(FedRepLaw):
    """B of d columns."""

    algorithms = ALL
    runs = "k = d"
    gives = ("distance",)
    name = "whole space"
    source = "the distance of B from itself"
    validity = "exact: B spans the whole space"

    def concerns(self) -> bool:
        """Return True for k = d."""
        k = self.run.algorithm.rank
        return self.run.job.sizes.dim == k and not no_reference(self.run.problem, k)

    def curves(self) -> Curves:
        """Return zeros."""
        return Curves(np.zeros((self.run.job.trials, self.run.job.n_rounds + 1)))


class NoMovement(FedRepLaw):
    """Exact heads on m <= k samples, which leave no residual."""

    algorithms = ALL
    runs = "exact heads, m <= k, no noise on messages"
    gives = ("distance",)
    name = "no movement"
    source = "the residual of exact heads on m <= k samples vanishes, and with it the gradient"
    validity = "exact in every run in which no client has linearly dependent features (probability 1 for continuous x)"

    def concerns(self) -> bool:
        """Return True for exact heads on m <= k samples without noise on messages."""
        return self.run.exact and self.run.samples <= self.run.algorithm.rank and not self.run.message_noise_std

    def curves(self) -> Curves:
        """Return the initial distance in every round."""
        run, k, init, found = self.run, self.run.algorithm.rank, self.run.algorithm.initialization, []
        if reason := no_reference(run.problem, k):
            raise NoPredictionError(f"the distance cannot be predicted: {reason}")
        for number, truth in enumerate(run.truths()):
            if isinstance(init, AtDistance | TrueSubspace):
                found.append(init.delta if isinstance(init, AtDistance) else 0.0)
                continue
            found.append(float(distance_from(truth.reference(k), first_state(run.job, number).array("B"))[0]))
        return Curves(np.repeat(np.array(found)[:, None], run.job.n_rounds + 1, axis=1))


class EmpiricalMinimum(FedRepLaw):
    """Fixed samples: floor at the minimum of the empirical risk."""

    runs = "exact heads, fixed samples"
    gives = ("floor",)
    name = "empirical minimum"
    source = "fixed points of FedRep with exact heads are stationary points of the empirical risk"
    validity = "only the floor is predicted, for runs that converge"
    range = MINIMUM

    def concerns(self) -> bool:
        """Return True for fixed samples and plain rounds of exact heads."""
        run = self.run
        plain = run.exact and run.algorithm.representation_steps == 1 and not run.message_noise_std
        plain = plain and not averaged(run)
        return isinstance(run.job.data, FixedSamples) and plain and run.clip is None

    def curves(self) -> str:
        """Return that the distance is not predicted."""
        return f"no prediction of {self.subject} is available {fresh(self.run)}"

    def doubts(self, curves: Curves | str) -> Iterator[str]:
        """Yield a warning if the last step size is not below the stability edge near the minimum, for isotropic x.

        With a ground truth of rank k, a round multiplies the components of B outside span(B*) by
        ``1 - eta c lambda l``, where l is an eigenvalue of a Marchenko-Pastur distribution (see
        `fixed_samples_needed`). With a higher rank it is the population's edge.
        """
        run, m, k = self.run, self.run.samples, self.run.algorithm.rank
        design, n, d = run.problem.design, run.job.sizes.n_clients, run.job.sizes.dim
        if not is_gaussian(design) or design.variance is None or m <= k:
            return
        W = heads_of(run.problem.truth(run.job.seed, [0]))[0]
        curvatures, last = np.linalg.eigvalsh(W.T @ W / len(W)), float(run.steps.ravel()[-1])
        if len(curvatures) == k:
            largest = curvatures[-1] * (1 - k / m) * (1 + np.sqrt((d - k) * k / (n * (m - k)))) ** 2
            where = f"for n_samples = {m}"
        else:
            largest = curvatures[-1] - (curvatures[0] if len(curvatures) == d else 0.0)
            where = "for large n_samples"
        if last * largest >= 2.0:  # `largest` is 0 for equal singular values or heads of 0
            yield (
                f"step_size = {last / run.unit:.4g} is not below {2.0 / largest / run.unit:.4g}, about the "
                f"largest stable one {where}: runs may not converge"
            )

    def floor(self) -> Quantity:
        """Return the distance of the minimum."""
        run, sizes, design = self.run, self.run.job.sizes, self.run.problem.design
        missing = "no prediction of the floor is available for"
        if not run.everybody:
            raise NoPredictionError(f"{missing} {sizes.participants} of {sizes.n_clients} participants")
        k = run.algorithm.rank
        well_specified = run.problem.truth_rank == k and is_gaussian(design) and design.variance is not None
        weighted = "" if run.algorithm.weights is None else "weights"
        if differing := run.differing if well_specified else weighted:
            raise NoPredictionError(f"{missing} clients with different {differing}")
        return minimum_quantity(run) if well_specified else truncation_quantity(run, k)


def wide_enough(run: FedRepRun) -> str:
    """Require d >= k + r."""
    d, k, r = run.job.sizes.dim, run.algorithm.rank, run.truth_rank or 0
    return "" if d >= k + r else f"for dim = {d} below rank + {r} = {k + r}, with a ground truth of rank {r}"


class Narrow(FedRepLaw):
    """More columns than the rank r of the ground truth, as a run with r columns.

    The k - r columns of B without a component in span(B*) cost each client k - r samples and dimensions, and the
    message has the factor ``m'/m`` (docs/laws/wider-rank.md). The angles of the initial B are kept.
    """

    runs = "exact heads, fresh samples, ground truth of rank r < k, m >= k + 2 (low and high from k + 4 on), d >= k + r"
    gives = SecondOrder.gives
    name = SecondOrder.name
    validity = f"{NARROW}{SecondOrder.validity}; {STILL}"
    conditions = (*ROUND, no_message_noise, equal_clients, second_moments, wide_enough)

    def concerns(self) -> bool:
        """Return True for exact heads and a ground truth of rank r < k."""
        k = self.run.algorithm.rank
        return self.run.exact and (self.run.truth_rank or k) < k

    def predict(self) -> Prediction:
        """Return the prediction of the run with r columns, in words about this one."""
        narrow, r = self.narrow(), self.run.truth_rank
        found = first_prediction(narrow, IN_ROUNDS)
        lowered = self.lowered(narrow, found)
        moving = [MOVING.format(above(lowered, MOVED), MOVED)] if lowered > MOVED else []
        words = f"a run with {r} columns, {narrow.samples} samples and dim = {narrow.job.sizes.dim}"
        return replace(
            found,
            source=f"{found.source}, of the equivalent run with {r} columns (docs/laws/wider-rank.md)",
            validity=f"{NARROW}{found.validity}; {STILL}",
            warnings=(*(f"as {words}: {text}" for text in found.warnings), *moving),
            notes=chain_notes(self.run.job),
            _quantities={**found._quantities, **self.floors(narrow, found)},
        )

    def lowered(self, narrow: FedRepRun, found: Prediction) -> float:
        """Return by which share the random moves of the extra columns lower the distance, at most over all rounds.

        In a round they lower the squared sines by the share rho of `motion`. The sines of the narrow run forget this
        as far as they come from the noise of later rounds.
        """
        if isinstance(found._curves, str):
            return 0.0
        squares = np.square(found._curves.distance).reshape(-1, self.run.job.n_rounds + 1)
        most, steps = 0.0, np.broadcast_to(self.run.steps, self.run.job.n_rounds)
        for trial, path in zip(narrow.trials, squares, strict=False):
            share = 0.0
            for step, before, after in zip(steps, path[:-1], path[1:], strict=True):
                rho, pull = self.motion(trial.W, step, before)
                kept = np.square(1.0 - pull * (1.0 - before)) * before / max(after, TINY)
                share = min(kept, 1.0) * share + rho
                most = max(most, share)
        return shortened(most)

    def motion(self, W: Array, step: float, squared: float) -> tuple[float, float]:
        """Return rho and the smallest eigenvalue of the pull on B, for a step size and a squared distance.

        A column of N moves by a Gaussian vector with the variance ``eta^2 v`` per entry,
        ``v = (m - k)/(m^2 (m - k - 1) p) mean_i tau_i^4``, and so takes up the share ``eta^2 v`` of each squared sine.
        """
        run, k = self.run, self.run.algorithm.rank
        m, extra = run.samples, k - (run.truth_rank or k)
        tau = squared * np.square(W).sum(axis=1) + np.square(run.problem.noise_std)
        variance = step**2 * float(np.mean(tau**2)) * (m - k) / (m**2 * (m - k - 1) * run.job.sizes.participants)
        pull = step * (1.0 - k / m) * float(np.linalg.svd(W, compute_uv=False)[-1] ** 2) / len(W)
        return extra * variance / (1.0 + variance * (run.job.sizes.dim - k)), pull

    def floors(self, narrow: FedRepRun, found: Prediction) -> dict[str, Asked]:
        """Return the floor, with a warning for large moves of the extra columns."""
        asked = found._quantities.get("floor")
        if not callable(asked):
            return {}

        def floor() -> Quantity:
            value, step, lowered = asked(), self.run.step("the floor requires"), 0.0
            for trial, distance in zip(narrow.trials, np.atleast_1d(value.value), strict=False):
                rho, pull = self.motion(trial.W, step, float(distance) ** 2)
                lowered = max(lowered, shortened(rho / max(1.0 - np.square(1.0 - pull), TINY)))
            return replace(value, validity=MOVING.format(above(lowered, MOVED), MOVED)) if lowered > MOVED else value

        return {"floor": replace(asked, compute=floor) if isinstance(asked, Slow) else floor}

    def narrow(self) -> FedRepRun:
        """Return the run with r columns."""
        run, job, k, r = self.run, self.run.job, self.run.algorithm.rank, self.run.truth_rank
        assert r is not None
        extra, kept, starts = k - r, job.sizes.dim - (k - r), []
        for trial in run.trials:
            assert trial.B0 is not None
            turned = trial.B0 @ np.linalg.svd(trial.basis.T @ trial.B0)[2][:r].T  # other columns are orthogonal to B*
            N = trial.basis.T @ turned
            outside = turned - trial.basis @ N
            values, vectors = np.linalg.eigh(outside.T @ outside)
            Q = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
            starts.append(np.concatenate([N, Q, np.zeros((kept - 2 * r, r))]))
        algorithm = replace(run.algorithm, rank=r, init=np.stack(starts))
        narrow = replace(
            job,
            algorithm=algorithm,
            problem=GivenTruth(
                B=np.broadcast_to(np.eye(kept, r), (job.trials, kept, r)),
                W=np.stack([trial.W for trial in run.trials]),
                noise_std=run.problem.noise_std,
            ),
            data=FreshSamples(run.samples - extra),
            sizes=replace(job.sizes, dim=kept),
        )
        return FedRepRun(narrow, algorithm, scale=1.0 - extra / run.samples)


FEDREP: tuple[type[Law[FedRepRun]], ...] = (
    WholeSpace,
    NoMovement,
    CompressedMessages,
    EmpiricalMinimum,
    Narrow,
    FewDimensions,
    *IN_ROUNDS,
)
"""All laws of FedRep: first those of special runs, which are exact or about one kind of run."""


def shortened(share: float) -> float:
    """Return by which share a distance falls if a part of its square, relative to the rest, is taken away."""
    return float(1.0 - 1.0 / np.sqrt(1.0 + share))


def minimum_quantity(run: Run[Algorithm]) -> Quantity:
    """Predict the distance of the minimum of the empirical risk from B*."""
    noise_std = check_noise_std(run.problem.noise_std)
    sizes = {"dim": run.job.sizes.dim, "n_samples": run.job.setting.samples}
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        found = [
            fixed_sample_floor(heads_of(truth)[0], noise_std=noise_std, **sizes).distance for truth in run.truths()
        ]
    doubts = "; ".join(dict.fromkeys(str(each.message) for each in records))
    if np.isnan(found).any():
        raise NoPredictionError(f"no prediction of the floor is available: {doubts}")
    return Quantity(np.array(found), "theory.fixed_sample_floor", doubts or MINIMUM, "subspace_distance")


MOST_CROWDED, LARGEST_SHIFT = 0.125, 1.0
"""Largest share of parameters in a client's samples, and largest floor as a Frobenius norm relative to lambda_k, for
which the distance from the truncation is predicted within 10 %."""


def truncation_quantity(run: Run[Algorithm], rank: int) -> Quantity:
    """Predict the distance of the minimum of the empirical risk from the truncation."""
    values = np.array([truncation_floor(truth, rank, run.job.setting.samples)[0] for truth in run.truths()])
    valid = "root mean square over clients, which bounds the mean; first order in 1/m: within 10 %, mostly too low"
    doubts = "; ".join(truncation_doubts(run, rank))
    return Quantity(values, "theory.truncation_floor", doubts or valid, truncation_metric(run.problem, rank))


def truncation_doubts(run: Run[Algorithm], rank: int) -> list[str]:
    """Return warnings if samples are few for the parameters that they determine, or their noise is large.

    Client i's samples determine its head and a share ``||v_i||^2`` of each of the d - k rows of B outside the
    truncation, where v_i (k,) is its row of the right singular vectors. The variance at the minimum grows from first
    order in 1/m like that of least squares with so many parameters. The linear range of the truncation has the size
    ``lambda_k - lambda_(k+1)^2 / lambda_k``.
    """
    m, d, crowd, shift = run.job.setting.samples, run.job.sizes.dim, 0.0, 0.0
    for truth in run.truths():
        _, spectrum, Vt = singular_factors(truth, rank, "the floor requires")
        crowd = max(crowd, (rank + 1 + (d - rank) * float(np.square(Vt[0, :rank]).sum(axis=0).max())) / m)
        least, following = spectrum[0, rank - 1], spectrum[0, rank] if rank < spectrum.shape[1] else 0.0
        moved = float(truncation_floor(truth, rank, m)[0]) * np.sqrt(Vt.shape[-1])
        shift = max(shift, moved * least / (least**2 - following**2))
    found = []
    if crowd > MOST_CROWDED:
        found.append(
            f"n_samples = {m} are few: a client has {above(crowd, MOST_CROWDED)} parameters per sample, above "
            f"{MOST_CROWDED:g}, so the floor, of first order in 1/m, is too low"
        )
    if shift > LARGEST_SHIFT:
        found.append(
            f"the noise of n_samples = {m} moves the model by {above(shift, LARGEST_SHIFT)} times its linear range, "
            f"above {LARGEST_SHIFT:g}, so the floor is only a rough guess, and runs may diverge"
        )
    return found


def truncation_metric(problem: Problem, rank: int) -> str:
    """Return the metric of the distance from the truncation."""
    r = problem.truth_rank
    return "mean_client_error" if r is not None and r <= rank else "mean_truncation_error"
