"""Predictions for FLUTE, LocalOnly and Oracle: rates, floors and stability edges."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from linfed._types import Array
from linfed.algorithms.altmin import AltMin
from linfed.algorithms.empirical_risk import BurerMonteiro
from linfed.algorithms.estimators import SpectralEstimator
from linfed.algorithms.flute import FLUTE
from linfed.algorithms.local_only import LocalOnly
from linfed.algorithms.oracle import Oracle
from linfed.algorithms.step_size import one_step
from linfed.data.samples import FixedSamples, FreshSamples, GivenSamples
from linfed.errors import NoPredictionError, check_noise_std, short_repr
from linfed.prediction.fedrep import minimum_quantity, truncation_metric, truncation_quantity
from linfed.prediction.prediction import Asked, Curves, Prediction, Quantity
from linfed.problems import Problem, Truth
from linfed.problems.designs import is_gaussian
from linfed.simulation.job import Job
from linfed.theory.flute.low_rank import truncation_floor
from linfed.theory.flute.mean_square import flute_stability_edge
from linfed.theory.flute.theorems import flute_gap, flute_local_rate
from linfed.theory.local import local_mean_risk
from linfed.theory.new_clients import new_client_mean_risk
from linfed.theory.spectral import spectral_floor

SERVED = "mean over samples (may be infinite), after every client has participated"

RIDGE = (
    f"{SERVED}; the ridge to order 1/dim: the risk within 3 %, and within 8 % for n_samples near dim and a small ridge"
)

SPECTRAL = "mean subspace distance over samples; to first order in the noise of the matrix"

NO_B = "no prediction of the distance is available for {}, which learns no representation B"


def of_local_only(job: Job, algorithm: LocalOnly) -> Prediction:
    """Predict the mean risk of least squares or ridge regression in d dimensions."""
    if algorithm.step_size is not None:
        raise NoPredictionError(
            f"no prediction of LocalOnly is available for step_size = {algorithm.step_size:g}, only for least squares"
        )
    problem, v = _gaussian_clients(job, "local least squares")
    d, m = job.sizes.dim, job.setting.samples

    def floor() -> Quantity:
        lengths = np.array([truth.scale[0] for truth in _truths(job)]) * np.sqrt(v)
        risk = local_mean_risk(
            lengths, noise_std=check_noise_std(problem.noise_std), dim=d, n_samples=m, ridge=algorithm.ridge / v
        )
        return Quantity(risk, "theory.local_mean_risk", RIDGE if algorithm.ridge > 0 else SERVED, "risk")

    return Prediction(
        law="least squares",
        source="theory.local_mean_risk",
        validity="only the floor is predicted, since one round suffices",
        rounds=np.arange(job.rounds + 1),
        _curves=NO_B.format("LocalOnly"),
        _quantities={"floor": floor},
    )


def of_oracle(job: Job, algorithm: Oracle) -> Prediction:
    """Predict the mean risk of exact heads on the true subspace, at distance 0."""
    (problem, v), k = _gaussian_clients(job, "exact heads"), algorithm.rank
    missing = f"no prediction of exact heads is available for ridge = {algorithm.ridge:g}"

    def floor() -> Quantity:
        outside = [np.sqrt(v) * _outside(truth, k) for truth in _truths(job)]
        risk = new_client_mean_risk(
            outside, noise_std=check_noise_std(problem.noise_std), rank=k, n_samples=job.setting.samples
        )
        return Quantity(risk, "theory.new_client_mean_risk", SERVED, "risk")

    return Prediction(
        law="true subspace",
        source="theory.new_client_mean_risk",
        validity="exact",
        rounds=np.arange(job.rounds + 1),
        _curves=Curves(np.zeros((job.trials, job.rounds + 1))),
        _quantities={"floor": missing if algorithm.ridge > 0 else floor},
    )


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
    if truth.S is None:
        assert truth.B is not None
        assert truth.W is not None
        rows = truth.W[0] @ np.asarray(np.linalg.qr(truth.B[0], mode="r")).T
    else:
        rows = truth.dense()[0]
    return np.linalg.svd(rows, compute_uv=False)


def _outside(truth: Truth, rank: int) -> float:
    """Return the root mean square length of the phi_i outside the reference subspace."""
    if truth.S is None and truth.subspace is None:  # the top left singular subspace of Phi, or its span
        assert truth.W is not None
        return float(np.sqrt(np.sum(_spectrum(truth)[rank:] ** 2) / truth.W.shape[1]))
    Phi, basis = truth.dense()[0], truth.reference(rank)[0]
    return float(np.sqrt(np.square(Phi - Phi @ basis @ basis.T).sum(axis=-1).mean()))
