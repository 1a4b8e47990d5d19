"""Laws of floors after one round or at the minimum: LocalOnly, Oracle, spectral estimators and minimisers."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.baselines.local_only import LocalOnly
from linfed.algorithms.baselines.oracle import Oracle
from linfed.algorithms.one_round.empirical_risk import BurerMonteiro
from linfed.algorithms.one_round.estimators import (
    LocalGram,
    MethodOfMoments,
    SpectralEstimator,
    TwoReplica,
    UStatistic,
)
from linfed.algorithms.representation.altmin import AltMin
from linfed.checks import check_noise_std
from linfed.data.samples import Data, FixedSamples, GivenSamples
from linfed.errors import NoPredictionError
from linfed.prediction.conditions import all_participate, equal_noise, equal_samples, isotropic, not_given
from linfed.prediction.fedrep import MINIMUM, minimum_quantity
from linfed.prediction.law import Law, Run, no_representation
from linfed.prediction.prediction import Curves, Quantity
from linfed.problems import Truth
from linfed.simulation.job import Job
from linfed.simulation.start import checked_reference
from linfed.theory.local import local_mean_risk
from linfed.theory.spectral import spectral_floor

LOST = (
    "the noise of the estimator's matrix hides a direction of B*, whose estimate is random: the distance is 1, within "
    "7 % unless single clients or samples dominate"
)

ONE_ROUND = "only the floor is predicted, since one round suffices"

SERVED = "mean over samples (may be infinite), after every client has participated"

RIDGE = f"{SERVED}; the ridge to order 1/{{0}}: within 3 %, and within 8 % for n_samples near {{0}} and a small ridge"


def closed_form(run: Run[LocalOnly]) -> str:
    """Require heads by least squares."""
    step_size = run.algorithm.step_size
    return "" if step_size is None else f"for step_size = {step_size:g}, only for least squares"


class LeastSquares(Law[Run[LocalOnly]]):
    """Mean risk of least squares or ridge regression in d dimensions."""

    algorithms = (LocalOnly,)
    runs = "least squares or ridge, Gaussian x"
    gives = ("floor",)
    name = "least squares"
    source = "theory.local_mean_risk"
    validity = ONE_ROUND
    range = SERVED
    conditions = (closed_form, not_given, isotropic)

    @classmethod
    def run_of(cls, job: Job) -> Run[LocalOnly]:
        """Return the run of a job."""
        assert isinstance(job.algorithm, LocalOnly)
        return Run(job, job.algorithm)

    def curves(self) -> str:
        """Return that there is no distance."""
        return no_representation(self.subject)

    def floor(self) -> Quantity:
        """Return the mean risk."""
        run, v, ridge = self.run, self.run.variance, self.run.algorithm.ridge
        noise_std, d = run.problem.noise_std, run.job.sizes.dim
        values = [_mean_risk(v * _squares(truth), noise_std, run.job.data, d, ridge, v) for truth in run.truths()]
        return Quantity(np.array(values), self.source, RIDGE.format("dim") if ridge > 0 else SERVED, "risk")


class TrueSubspace(Law[Run[Oracle]]):
    """Mean risk of exact heads on the true subspace, at distance 0.

    A head is a regression in k dimensions. The part of phi_i outside the subspace is independent noise for it.
    """

    algorithms = (Oracle,)
    runs = "Gaussian x"
    gives = ("distance", "floor")
    name = "true subspace"
    source = "theory.local_mean_risk in rank dimensions"
    validity = "exact"
    range = f"distance 0; floor: {SERVED}"
    conditions = (not_given, isotropic)

    @classmethod
    def run_of(cls, job: Job) -> Run[Oracle]:
        """Return the run of a job."""
        assert isinstance(job.algorithm, Oracle)
        return Run(job, job.algorithm)

    def curves(self) -> Curves:
        """Return zeros, or raise as a run does if a trial's regressors span fewer than k dimensions."""
        for truth in self.run.truths():
            checked_reference(self.subject, truth, self.run.algorithm.rank)
        return Curves(np.zeros((self.run.job.trials, self.run.job.n_rounds + 1)))

    def floor(self) -> Quantity:
        """Return the mean risk."""
        run, v, k, ridge, values = self.run, self.run.variance, self.run.algorithm.rank, self.run.algorithm.ridge, []
        for truth in run.truths():
            outside = v * _squares_outside(truth, k)
            inside = np.maximum(v * _squares(truth) - outside, 0.0)
            noise_std = np.sqrt(outside + np.square(run.problem.noise_std))
            values.append(_mean_risk(inside, noise_std, run.job.data, k, ridge, v))
        return Quantity(np.array(values), self.source, RIDGE.format("rank") if ridge > 0 else SERVED, "risk")


class SpectralFloor(Law[Run[SpectralEstimator]]):
    """Subspace distance of a spectral estimator."""

    algorithms = (MethodOfMoments, UStatistic, TwoReplica, LocalGram)
    runs = "Gaussian x, all clients participate"
    gives = ("floor",)
    name = "spectral estimate"
    source = "theory.spectral_floor"
    validity = ONE_ROUND
    range = (
        "mean subspace distance over samples; to first order in the noise of the matrix: within 7 %, within 22 % for "
        "heads of very different lengths"
    )
    conditions = (equal_noise, equal_samples, not_given, isotropic, all_participate)

    @classmethod
    def run_of(cls, job: Job) -> Run[SpectralEstimator]:
        """Return the run of a job."""
        assert isinstance(job.algorithm, SpectralEstimator)
        return Run(job, job.algorithm)

    def floor(self) -> Quantity:
        """Return the mean distance."""
        run, k, d, values, doubts = self.run, self.run.algorithm.rank, self.run.job.sizes.dim, [], []
        missing = f"no prediction of {self.subject} is available"
        if d < 2 * k:
            raise NoPredictionError(f"{missing} for dim = {d}, below 2 rank = {2 * k}")
        for truth in run.truths():
            if truth.S is not None or truth.B is None or truth.W is None or truth.B.shape[-1] != k:
                raise NoPredictionError(f"{missing}: regressors must be B* w with rank {k}")
            heads = truth.W[0] @ np.asarray(np.linalg.qr(truth.B[0], mode="r")).T * np.sqrt(run.variance)
            options = {"dim": d, "n_samples": run.job.setting.samples}
            with warnings.catch_warnings(record=True) as records:
                warnings.simplefilter("always")
                noise_std = check_noise_std(run.problem.noise_std)
                found = spectral_floor(run.algorithm, heads, noise_std=noise_std, **options)
            values.append(found.distance)
            doubts += [LOST] if found.ratio >= 1 else []
            doubts += [str(each.message) for each in records]
        valid = "; ".join(dict.fromkeys(doubts)) or self.range
        return Quantity(np.array(values), self.source, valid, "subspace_distance")


def fixed_samples(run: Run[AltMin | BurerMonteiro]) -> str:
    """Require fixed samples of the problem."""
    data = run.job.data
    return "" if isinstance(data, FixedSamples) else f"for {type(data).__name__}, only for FixedSamples"


def all_samples(run: Run[AltMin | BurerMonteiro]) -> str:
    """Require AltMin with all samples in every round."""
    return "for disjoint_samples = True" if isinstance(run.algorithm, AltMin) and run.algorithm.disjoint_samples else ""


def no_ridge(run: Run[AltMin | BurerMonteiro]) -> str:
    """Require AltMin without a ridge."""
    ridge = getattr(run.algorithm, "ridge", 0.0)
    return f"for ridge = {ridge:g}: it must be 0" if ridge else ""


def rank_of_truth(run: Run[AltMin | BurerMonteiro]) -> str:
    """Require a ground truth of rank k."""
    r, k = run.problem.truth_rank, run.algorithm.rank
    return "" if r == k else f"for a ground truth of rank {r} and rank = {k}: they must be equal"


def enough(run: Run[AltMin | BurerMonteiro]) -> str:
    """Require m >= k + 2 and d >= 2k."""
    m, d, k = run.job.setting.samples, run.job.sizes.dim, run.algorithm.rank
    needed = f"it requires rank + 2 = {k + 2} samples and dim >= 2 rank"
    return f"for n_samples = {m} and dim = {d}: {needed}" if m < k + 2 or d < 2 * k else ""


class Minimizer(Law[Run[AltMin | BurerMonteiro]]):
    """Subspace distance of the minimum of the empirical risk."""

    algorithms = (AltMin, BurerMonteiro)
    runs = "fixed samples, all clients participate"
    gives = ("floor",)
    name = "empirical minimum"
    source = "theory.fixed_sample_floor"
    validity = "only the floor is predicted"
    range = MINIMUM
    conditions = (
        equal_noise,
        equal_samples,
        not_given,
        isotropic,
        fixed_samples,
        all_participate,
        all_samples,
        no_ridge,
        rank_of_truth,
        enough,
    )

    @classmethod
    def run_of(cls, job: Job) -> Run[AltMin | BurerMonteiro]:
        """Return the run of a job."""
        assert isinstance(job.algorithm, AltMin | BurerMonteiro)
        return Run(job, job.algorithm)

    def floor(self) -> Quantity:
        """Return the mean distance."""
        return minimum_quantity(self.run)


def _mean_risk(squares: Array, noise_std: npt.ArrayLike, data: Data, dim: int, ridge: float, variance: float) -> float:
    """Return the mean of `local_mean_risk` over clients, which is linear in the squared lengths and noise variances.

    The squared lengths are multiplied by the variance of x, and the ridge is not.
    """
    assert not isinstance(data, GivenSamples)
    counts = np.broadcast_to(np.asarray(data.n_samples), squares.shape)
    variances, total = np.broadcast_to(np.square(noise_std), squares.shape), 0.0
    for m in np.unique(counts):
        some = counts == m
        length, deviation = np.sqrt(squares[some].mean()), float(np.sqrt(variances[some].mean()))
        try:
            risk = local_mean_risk(length, noise_std=deviation, dim=dim, n_samples=int(m), ridge=ridge / variance)
        except ValueError:
            raise NoPredictionError(
                f"ridge = {ridge:g} is too small for n_samples = {m} in {dim} dimensions: the expansion in "
                f"1/{dim} is not accurate. Use a larger ridge, or 0, which is exact"
            ) from None
        total += float(some.mean() * risk)
    return total


def _squares(truth: Truth) -> Array:
    """Return the squared length of each phi_i of a trial, (n,)."""
    found = rows(truth)
    return np.asarray(np.vecdot(found, found))


def rows(truth: Truth) -> Array:
    """Return the phi_i of a trial as rows, in an orthonormal basis of B if they lie in its span."""
    return truth.dense()[0] if truth.S is not None else np.asarray(truth.orthonormal_heads()[0])


def _squares_outside(truth: Truth, rank: int) -> Array:
    """Return the squared length of each phi_i outside the reference subspace, (n,)."""
    if truth.S is None and truth.subspace is None:  # the top left singular subspace of Phi, or its span
        assert truth.W is not None
        if rank >= truth.W.shape[-1]:
            return np.zeros(truth.W.shape[1])
        Phi = rows(truth)
        basis = np.linalg.svd(Phi, full_matrices=False)[2][:rank].T
    else:
        Phi, basis = truth.dense()[0], truth.reference(rank)[0]
    rest = Phi - Phi @ basis @ basis.T
    return np.asarray(np.vecdot(rest, rest))
