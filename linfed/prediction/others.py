"""Predictions for FLUTE, LocalOnly and Oracle: rates, floors and stability edges."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.baselines.local_only import LocalOnly
from linfed.algorithms.baselines.oracle import Oracle
from linfed.algorithms.one_round.empirical_risk import BurerMonteiro
from linfed.algorithms.one_round.estimators import SpectralEstimator
from linfed.algorithms.parts.step_size import one_step
from linfed.algorithms.representation.altmin import AltMin
from linfed.algorithms.representation.flute import FLUTE
from linfed.checks import check_noise_std, short_repr
from linfed.data.samples import Data, FixedSamples, FreshSamples, GivenSamples
from linfed.errors import NoPredictionError
from linfed.prediction.fedrep import minimum_quantity, truncation_metric, truncation_quantity
from linfed.prediction.prediction import Asked, Curves, Prediction, Quantity
from linfed.problems import Problem, Truth
from linfed.problems.designs import is_gaussian
from linfed.simulation.job import Job
from linfed.theory.flute.low_rank import truncation_floor
from linfed.theory.flute.mean_square import flute_stability_edge
from linfed.theory.flute.theorems import flute_gap, flute_local_rate
from linfed.theory.local import local_mean_risk
from linfed.theory.spectral import spectral_floor

SERVED = "mean over samples (may be infinite), after every client has participated"

RIDGE = f"{SERVED}; the ridge to order 1/{{0}}: within 3 %, and within 8 % for n_samples near {{0}} and a small ridge"

SPECTRAL = (
    "mean subspace distance over samples; to first order in the noise of the matrix: within 7 %, within 22 % for heads "
    "of very different lengths"
)

NO_B = "no prediction of the distance is available for {}, which learns no representation B"


def of_local_only(job: Job, algorithm: LocalOnly) -> Prediction:
    """Predict the mean risk of least squares or ridge regression in d dimensions."""
    if algorithm.step_size is not None:
        raise NoPredictionError(
            f"no prediction of LocalOnly is available for step_size = {algorithm.step_size:g}, only for least squares"
        )
    problem, v = _gaussian_clients(job, "local least squares")

    def floor() -> Quantity:
        values = [
            _mean_risk(v * _squares(truth), problem.noise_std, job.data, job.sizes.dim, algorithm.ridge / v)
            for truth in _truths(job)
        ]
        valid = RIDGE.format("dim") if algorithm.ridge > 0 else SERVED
        return Quantity(np.array(values), "theory.local_mean_risk", valid, "risk")

    return Prediction(
        law="least squares",
        source="theory.local_mean_risk",
        validity="only the floor is predicted, since one round suffices",
        rounds=np.arange(job.rounds + 1),
        _curves=NO_B.format("LocalOnly"),
        _quantities={"floor": floor},
    )


def of_oracle(job: Job, algorithm: Oracle) -> Prediction:
    """Predict the mean risk of exact heads on the true subspace, at distance 0.

    A head is a regression in k dimensions. The part of phi_i outside the subspace is independent noise for it.
    """
    (problem, v), k = _gaussian_clients(job, "exact heads"), algorithm.rank

    def floor() -> Quantity:
        values = []
        for truth in _truths(job):
            outside = v * _squares_outside(truth, k)
            inside = np.maximum(v * _squares(truth) - outside, 0.0)
            noise_std = np.sqrt(outside + np.square(problem.noise_std))
            values.append(_mean_risk(inside, noise_std, job.data, k, algorithm.ridge / v))
        valid = RIDGE.format("rank") if algorithm.ridge > 0 else SERVED
        return Quantity(np.array(values), "theory.local_mean_risk in rank dimensions", valid, "risk")

    return Prediction(
        law="true subspace",
        source="theory.local_mean_risk in rank dimensions",
        validity="exact",
        rounds=np.arange(job.rounds + 1),
        _curves=Curves(np.zeros((job.trials, job.rounds + 1))),
        _quantities={"floor": floor},
    )


def _mean_risk(squares: Array, noise_std: npt.ArrayLike, data: Data, dim: int, ridge: float) -> float:
    """Return the mean of `local_mean_risk` over clients, which is linear in the squared lengths and noise variances."""
    assert not isinstance(data, GivenSamples)
    counts = np.broadcast_to(np.asarray(data.n_samples), squares.shape)
    variances, total = np.broadcast_to(np.square(noise_std), squares.shape), 0.0
    for m in np.unique(counts):
        some = counts == m
        length, deviation = np.sqrt(squares[some].mean()), float(np.sqrt(variances[some].mean()))
        risk = local_mean_risk(length, noise_std=deviation, dim=dim, n_samples=int(m), ridge=ridge)
        total += float(some.mean() * risk)
    return total


def of_spectral(job: Job, algorithm: SpectralEstimator) -> Prediction:
    """Predict the subspace distance of a spectral estimator."""
    name, k = type(algorithm).__name__, algorithm.rank
    problem, v = _gaussian_clients(job, name)
    if job.sizes.participants < job.sizes.n_clients:
        raise NoPredictionError(
            f"no prediction of {name} is available for {job.sizes.participants} of {job.sizes.n_clients} participants: "
            "all clients must participate"
        )

    def floor() -> Quantity:
        if job.sizes.dim < 2 * k:
            raise NoPredictionError(
                f"no prediction of {name} is available for dim = {job.sizes.dim}, below 2 rank = {2 * k}"
            )
        values, doubts = [], []
        for truth in _truths(job):
            if truth.S is not None or truth.B is None or truth.B.shape[-1] != k:
                raise NoPredictionError(f"no prediction of {name} is available: regressors must be B* w with rank {k}")
            heads = truth.W[0] @ np.asarray(np.linalg.qr(truth.B[0], mode="r")).T * np.sqrt(v)
            with warnings.catch_warnings(record=True) as records:
                warnings.simplefilter("always")
                sizes = {"dim": job.sizes.dim, "n_samples": job.setting.samples}
                values.append(
                    spectral_floor(algorithm, heads, noise_std=check_noise_std(problem.noise_std), **sizes).distance
                )
            doubts += [str(each.message) for each in records]
        valid = "; ".join(dict.fromkeys(doubts)) or SPECTRAL
        return Quantity(np.array(values), "theory.spectral_floor", valid, "subspace_distance")

    return Prediction(
        law="spectral estimate",
        source="theory.spectral_floor",
        validity="only the floor is predicted, since one round suffices",
        rounds=np.arange(job.rounds + 1),
        _curves=f"no prediction of {name}'s distance in every round is available, only of its floor",
        _quantities={"floor": floor},
    )


def of_minimiser(job: Job, algorithm: AltMin | BurerMonteiro) -> Prediction:
    """Predict the subspace distance of the minimum of the empirical risk."""
    name = type(algorithm).__name__
    problem, _ = _gaussian_clients(job, name)
    missing = next(_no_minimum(job, algorithm, problem), "")
    if missing:
        raise NoPredictionError(f"no prediction of {name} is available {missing}")

    def floor() -> Quantity:
        return minimum_quantity(problem, list(_truths(job)), job.setting.samples)

    return Prediction(
        law="empirical minimum",
        source="theory.fixed_sample_floor",
        validity="only the floor is predicted",
        rounds=np.arange(job.rounds + 1),
        _curves=f"no prediction of {name}'s distance in every round is available, only of its floor",
        _quantities={"floor": floor},
    )


def _no_minimum(job: Job, algorithm: AltMin | BurerMonteiro, problem: Problem) -> Iterator[str]:
    """Yield the reasons why a run does not end at the minimum that is predicted."""
    sizes, k, m = job.sizes, algorithm.rank, job.setting.samples
    if not isinstance(job.data, FixedSamples):
        yield f"for {type(job.data).__name__}, only for FixedSamples"
    if sizes.participants < sizes.n_clients:
        yield f"for {sizes.participants} of {sizes.n_clients} participants: all clients must participate"
    if isinstance(algorithm, AltMin) and algorithm.split:
        yield "for split = True"
    if problem.truth_rank != k:
        yield f"for a ground truth of rank {problem.truth_rank} and rank = {k}"
    if m < k + 2 or sizes.dim < 2 * k:
        yield f"for n_samples = {m} and dim = {sizes.dim}: it requires rank + 2 = {k + 2} samples and dim >= 2 rank"


def of_flute(job: Job, algorithm: FLUTE) -> Prediction:
    """Predict FLUTE's rate, step sizes and floor near the truncation; on fresh samples the edge is in mean square."""
    if job.problem is None:
        raise NoPredictionError("predictions require a ground truth: give problem=")
    problem, k = job.problem, algorithm.rank
    step = one_step(algorithm.step_size, "predictions of FLUTE require", NoPredictionError) * algorithm.gradient_factor
    weights = (algorithm.gamma1, algorithm.gamma2, algorithm.step_ratio)
    if weights != (0.25, 0.125, 1.0):
        raise NoPredictionError(
            f"no prediction of FLUTE is available for gamma1, gamma2 and step ratio = {weights}: they must be 0.25, "
            "0.125 and 1"
        )
    if job.sizes.participants < job.sizes.n_clients:
        raise NoPredictionError(
            f"no prediction of FLUTE is available for participation = {short_repr(job.participation)}: all clients "
            "must participate"
        )
    if problem.design.variance != 1.0:
        raise NoPredictionError(
            f"no prediction of FLUTE is available for design = {short_repr(problem.design)}: x must have covariance I"
        )
    near = "near the truncation, at population (large n_samples)"

    def spectra() -> Array:
        return np.array([_spectrum(truth) for truth in _truths(job)])

    def rate() -> Quantity:
        return Quantity(
            flute_local_rate(spectra(), k, step), "theory.flute_local_rate", near, truncation_metric(problem, k)
        )

    def edge() -> Quantity:
        if fresh:
            return _fresh_edge(job, algorithm)
        return Quantity(1.0 / spectra()[:, 0] / algorithm.gradient_factor, "theory.flute_local_rate: 1/lambda_1", near)

    def best() -> Quantity:
        values = spectra()
        steps = 2.0 / (2.0 * values[:, 0] + 0.5 * flute_gap(values, k))
        return Quantity(steps / algorithm.gradient_factor, "minimum of theory.flute_local_rate", near)

    def floor() -> Quantity:
        if fresh:
            return _fresh_floor(job, algorithm, step)
        limit = float((1.0 / spectra()[:, 0]).min())
        if step >= limit:
            raise NoPredictionError(
                f"no prediction of FLUTE's floor is available for step_size = {step / algorithm.gradient_factor:g}: "
                f"runs converge only below stability_edge = {limit / algorithm.gradient_factor:.4g}"
            )
        return truncation_quantity(problem, list(_truths(job)), k, job.setting.samples)

    fixed, fresh = isinstance(job.data, FixedSamples), isinstance(job.data, FreshSamples)
    missing = f"no prediction of FLUTE's floor is available for {type(job.data).__name__}"
    none = "no prediction of FLUTE's best step is available for FreshSamples: the floor falls with the step size too"
    quantities: dict[str, Asked] = {"rate": rate, "stability_edge": edge, "best_step": none if fresh else best}
    return Prediction(
        law="truncation",
        source="theory.flute_local_rate, theory.truncation_floor",
        validity="near the truncation Phi_k; the approach to it is not predicted",
        rounds=np.arange(job.rounds + 1),
        _curves="no prediction of FLUTE's distance in every round is available",
        _quantities={**quantities, "floor": floor if fixed or fresh else missing},
    )


def _fresh_edge(job: Job, algorithm: FLUTE) -> Quantity:
    """Predict the step size at which FLUTE's second moments grow on fresh samples."""
    try:
        found = [flute_stability_edge(truth, algorithm.rank, job.setting.samples)[0] for truth in _truths(job)]
    except ValueError as error:
        raise NoPredictionError(f"no prediction of FLUTE's stability edge is available: {error}") from None
    valid = "near the ground truth, in mean square; single runs can converge above this step size"
    return Quantity(np.array(found) / algorithm.gradient_factor, "theory.flute_stability_edge", valid)


def _fresh_floor(job: Job, algorithm: FLUTE, step: float) -> Quantity:
    """Predict FLUTE's stationary distance from the truncation on fresh samples."""
    assert job.problem is not None
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        try:
            found = [
                truncation_floor(truth, algorithm.rank, job.setting.samples, step_size=step)[0]
                for truth in _truths(job)
            ]
        except ValueError as error:
            raise NoPredictionError(f"no prediction of FLUTE's floor is available: {error}") from None
    valid = "root mean square over clients and rounds, which bounds the mean; first order in 1/m"
    return Quantity(
        np.array(found),
        "theory.truncation_floor",
        "; ".join(dict.fromkeys(str(each.message) for each in records)) or valid,
        truncation_metric(job.problem, algorithm.rank),
    )


def _truths(job: Job) -> Iterator[Truth]:
    assert job.problem is not None
    for trial in range(job.trials):
        yield job.problem.truth(job.seed, [trial])


def _gaussian_clients(job: Job, what: str) -> tuple[Problem, float]:
    """Return the problem and the variance of x for isotropic Gaussian samples, or raise."""
    if job.problem is None:
        raise NoPredictionError("predictions require a ground truth: give problem=")
    if isinstance(job.data, GivenSamples):
        raise NoPredictionError(f"no prediction of {what} is available for GivenSamples; simulate one round instead")
    design = job.problem.design
    if not is_gaussian(design) or design.variance is None:
        raise NoPredictionError(
            f"no prediction of {what} is available for design = {short_repr(design)}: x must be Gaussian and isotropic"
        )
    return job.problem, design.variance


def _spectrum(truth: Truth) -> Array:
    """Return the singular values of Phi of a trial."""
    return np.asarray(np.linalg.svd(_rows(truth), compute_uv=False))


def _squares(truth: Truth) -> Array:
    """Return the squared length of each phi_i of a trial, (n,)."""
    rows = _rows(truth)
    return np.asarray(np.vecdot(rows, rows))


def _rows(truth: Truth) -> Array:
    """Return the phi_i of a trial as rows, in an orthonormal basis of B if they lie in its span."""
    if truth.S is not None:
        return truth.dense()[0]
    assert truth.B is not None
    assert truth.W is not None
    return truth.W[0] @ np.asarray(np.linalg.qr(truth.B[0], mode="r")).T


def _squares_outside(truth: Truth, rank: int) -> Array:
    """Return the squared length of each phi_i outside the reference subspace, (n,)."""
    if truth.S is None and truth.subspace is None:  # the top left singular subspace of Phi, or its span
        assert truth.B is not None
        assert truth.W is not None
        if rank >= truth.W.shape[-1]:
            return np.zeros(truth.W.shape[1])
        rows = truth.W[0] @ np.asarray(np.linalg.qr(truth.B[0], mode="r")).T
        basis = np.linalg.svd(rows, full_matrices=False)[2][:rank].T
    else:
        rows, basis = truth.dense()[0], truth.reference(rank)[0]
    rest = rows - rows @ basis @ basis.T
    return np.asarray(np.vecdot(rest, rest))
