"""Selection of the prediction for a run of FedRep."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from linfed._types import Indices
from linfed.algorithms.initial import AtDistance, TrueSubspace
from linfed.algorithms.parts.heads import GradientHeads
from linfed.algorithms.representation.compressed_fedrep import CompressedFedRep
from linfed.algorithms.representation.fedrep import FedRep
from linfed.checks import check_noise_std, short_repr
from linfed.data.samples import FixedSamples, FreshSamples
from linfed.errors import NoPredictionError
from linfed.numerics.linalg import distance_from
from linfed.prediction.cases import FedRepRun, heads_of
from linfed.prediction.laws import (
    COMPRESSED,
    GRADIENT_HEADS,
    LARGEST_RANK,
    MEANS,
    NEAR,
    NOISE_ALONE,
    NOISY_MESSAGES,
    SECOND_ORDER,
    STEP_OF_MEANS,
    UNDER_PARAMETERISED,
    WITHOUT_QR,
    Law,
    near_truth,
    step_doubts,
)
from linfed.prediction.prediction import Curves, Prediction, Quantity
from linfed.problems import Problem, Truth
from linfed.problems.designs import is_gaussian
from linfed.problems.given import GivenTruth
from linfed.simulation.engines import obstacle
from linfed.simulation.job import Job, no_reference, seconds_of_a_trial
from linfed.simulation.loop import first_state
from linfed.theory.fedrep.fixed_samples.minimum import fixed_sample_floor
from linfed.theory.flute.low_rank import truncation_floor

CHAIN_CLIENTS = 1000
"""Number of clients up to which some hundred runs with engine "chain" cost about as much as a prediction."""

CHAIN_TRIALS = 300

RIGHT_ANGLE = (
    "no prediction of the distance is available from an initial distance of 1: at a right angle the mean of a round "
    "does not move B, so chance determines when the distance falls; use a smaller initial distance"
)

NARROW = "as a run with r columns, m - (k - r) samples and d - (k - r) dimensions: "

STILL = "exact in every run in which no client has linearly dependent features (probability 1 for continuous x)"

MINIMUM = "minimum of the empirical risk near B*, mean over samples; for a replicon radius of at most 0.9"


def predicted(job: Job, algorithm: FedRep) -> Prediction:
    """Predict a run of FedRep, or raise a NoPredictionError."""
    if job.problem is None:
        raise NoPredictionError("predictions require a ground truth: give problem=")
    if algorithm.split or algorithm.whiten is not None:
        raise NoPredictionError("no prediction is available for split = True or a whitened gradient")
    case = FedRepRun(job, algorithm, job.problem)
    rounds = np.arange(job.rounds + 1)
    if job.sizes.dim == algorithm.rank and not no_reference(case.problem, algorithm.rank):
        return Prediction(
            law="whole space",
            source="the distance of B from itself",
            validity="exact: B spans the whole space",
            rounds=rounds,
            _curves=Curves(np.zeros((job.trials, len(rounds)))),
        )
    if case.exact and case.samples <= algorithm.rank and not case.message_noise_std:
        return Prediction(
            law="no movement",
            source="the residual of exact heads on m <= k samples vanishes, and with it the gradient",
            validity=STILL,
            rounds=rounds,
            _curves=_still(case),
        )
    if isinstance(algorithm, CompressedFedRep) and algorithm.kept_share != 1:
        return _compressed(case, algorithm, rounds)
    unchanged = case.exact and algorithm.representation_steps == 1 and case.clip is None and not case.message_noise_std
    if isinstance(job.data, FixedSamples) and unchanged:
        return _at_fixed(case, rounds)
    if case.exact and (case.truth_rank or algorithm.rank) < algorithm.rank:
        return _as_narrow(case)
    if case.exact and algorithm.rank < job.sizes.dim < 2 * algorithm.rank:
        return _near_truth(case, rounds)
    return _by_laws(case)


def _by_laws(case: FedRepRun) -> Prediction:
    """Predict the distance in every round by the first prediction that is available, or raise a NoPredictionError."""
    laws, trials, reasons = laws_of(case), case.trials, []
    for law in laws:
        try:
            curves = law.curves(case, trials)
        except (ValueError, OverflowError) as error:  # valid for runs but not for this prediction
            reasons.append(f"the prediction {law.name!r} is not available: {error}")
            continue
        quantities, orthogonal = law.near(case), bool(np.max(curves.distance[..., 0]) > 1.0 - 1e-12)
        if orthogonal and not quantities:
            raise NoPredictionError(RIGHT_ANGLE)
        return Prediction(
            law=law.name,
            source=law.source,
            validity=law.validity,
            rounds=np.arange(case.job.rounds + 1),
            warnings=() if orthogonal else (*law.doubts(case, curves), *reasons),
            notes=_notes(case.job),
            _curves=RIGHT_ANGLE if orthogonal else curves,
            _quantities=quantities,
        )
    raise NoPredictionError(reasons[-1])


def _compressed(case: FedRepRun, algorithm: CompressedFedRep, rounds: Indices) -> Prediction:
    """Predict what is known near B* if messages are sparsified, or raise a NoPredictionError."""
    if algorithm.levels is not None:
        raise NoPredictionError(
            f"no prediction is available for levels = {algorithm.levels}: the variance of quantisation depends on the "
            "messages; measure it and use lf.theory.near_truth_factor(compression=...)"
        )
    missing = next(_missing(case, near=True), None)
    if missing or not case.exact or case.truth_rank != algorithm.rank:
        raise NoPredictionError(
            "no prediction of FedRep with compressed messages is available "
            + (missing or "except for exact heads and a ground truth of rank k")
        )
    return Prediction(
        law="compressed messages",
        source="theory.near_truth_factor and near_truth_floor with compression",
        validity=COMPRESSED,
        rounds=rounds,
        warnings=tuple(step_doubts(case, STEP_OF_MEANS)),
        _curves="no prediction of the distance is available for compressed messages",
        _quantities=near_truth(case),
    )


def _near_truth(case: FedRepRun, rounds: Indices) -> Prediction:
    """Predict the quantities near B* for d below 2k, where fewer than k angles differ from 0."""
    missing = next(_missing(case, near=True), None)
    if missing or case.truth_rank != case.algorithm.rank or case.samples <= case.algorithm.rank:
        raise NoPredictionError(
            "no prediction of FedRep's distance is available "
            + (missing or f"for dim = {case.job.sizes.dim} below 2 rank, except with n_samples above rank")
        )
    return Prediction(
        law="near the truth",
        source="theory.near_truth_factor and near_truth_floor",
        validity=NEAR,
        rounds=rounds,
        warnings=tuple(step_doubts(case, STEP_OF_MEANS)),
        _curves=f"no prediction of FedRep's distance is available for dim = {case.job.sizes.dim} below 2 rank = "
        f"{2 * case.algorithm.rank}, only of its floor, rate, stability edge and best step",
        _quantities=near_truth(case),
    )


def _as_narrow(case: FedRepRun) -> Prediction:
    """Predict a run with more columns than the rank r of the ground truth by a run with r columns.

    The k - r columns of B without a component in span(B*) cost each client k - r samples and dimensions, and the
    message has the factor ``m'/m`` (docs/laws/wider-rank.md). The angles of the initial B are kept.
    """
    job, algorithm, k, r = case.job, case.algorithm, case.algorithm.rank, case.truth_rank
    assert r is not None
    extra, sizes = k - r, case.job.sizes
    missing = next(_missing(case, wide=True), None)
    if missing or sizes.dim < k + r:
        raise NoPredictionError(
            "no prediction of FedRep's distance is available "
            + (missing or f"for dim = {sizes.dim} below rank + {r} = {k + r}, with a ground truth of rank {r}")
        )
    kept, starts = sizes.dim - extra, []
    for trial in case.trials:
        assert trial.B0 is not None
        turned = trial.B0 @ np.linalg.svd(trial.basis.T @ trial.B0)[2][:r].T  # the other columns are orthogonal to B*
        N = trial.basis.T @ turned
        outside = turned - trial.basis @ N
        values, vectors = np.linalg.eigh(outside.T @ outside)
        Q = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        starts.append(np.concatenate([N, Q, np.zeros((kept - 2 * r, r))]))
    narrow = replace(
        job,
        algorithm=replace(algorithm, rank=r, init=np.stack(starts)),
        problem=GivenTruth(
            B=np.broadcast_to(np.eye(kept, r), (job.trials, kept, r)),
            W=np.stack([trial.W for trial in case.trials]),
            noise_std=case.problem.noise_std,
        ),
        data=FreshSamples(case.samples - extra),
        sizes=replace(sizes, dim=kept),
    )
    assert isinstance(narrow.algorithm, FedRep)
    assert narrow.problem is not None
    share = 1.0 - extra / case.samples
    found = _by_laws(FedRepRun(narrow, narrow.algorithm, narrow.problem, scale=share))
    words = f"a run with {r} columns, {case.samples - extra} samples and dim = {kept}"
    return replace(
        found,
        source=f"{found.source}, of the equivalent run with {r} columns (docs/laws/wider-rank.md)",
        validity=f"{NARROW}{found.validity}",
        warnings=tuple(f"as {words}: {text}" for text in found.warnings),
        notes=_notes(job),
    )


def laws_of(case: FedRepRun) -> list[Law]:
    """Return the predictions that apply to a run, the best first, or raise a NoPredictionError with the reason."""
    missing = next(_missing(case), None)
    if missing:
        raise NoPredictionError(f"no prediction of FedRep's distance is available {missing}")
    if not case.exact:
        return [GRADIENT_HEADS]
    assert case.truth_rank is not None
    if case.truth_rank > case.algorithm.rank:
        return [UNDER_PARAMETERISED]
    if not case.algorithm.orthonormalize:
        return [WITHOUT_QR]
    if case.message_noise_std and case.samples <= case.algorithm.rank:
        return [NOISE_ALONE]
    if case.message_noise_std:
        return [NOISY_MESSAGES]
    k = case.algorithm.rank
    return [SECOND_ORDER, MEANS] if case.fewest > k + 3 and k <= LARGEST_RANK else [MEANS]


def _missing(case: FedRepRun, *, near: bool = False, wide: bool = False) -> Iterator[str]:
    """Yield the reasons why a run cannot be predicted: near B* if `near`, with more than r columns if `wide`.

    By default they are the reasons why its distance cannot be predicted.
    """
    algorithm, problem, data, sizes = case.algorithm, case.problem, case.job.data, case.job.sizes
    (k, m), r, design = (algorithm.rank, case.samples), case.truth_rank, problem.design
    if not isinstance(data, FreshSamples):
        yield f"for {type(data).__name__}: rounds share their samples"
    if not is_gaussian(design) or design.variance is None:
        yield f"for design = {short_repr(design)}: x must be Gaussian and isotropic"
    gradient = isinstance(algorithm.heads, GradientHeads)
    if not case.exact and not gradient:
        yield f"for heads = {short_repr(algorithm.heads)}"
    if gradient and algorithm.rotate_heads:
        yield "for gradient heads with rotate_heads = True"
    if case.clip is not None:
        yield f"for clip = {case.clip:g}"
    if case.message_noise_std and (gradient or (r is not None and r != k)):
        yield "for noise on messages, except with exact heads and a ground truth of rank k"
    if algorithm.representation_steps > 1:
        yield f"for representation_steps = {algorithm.representation_steps}"
    if not algorithm.orthonormalize:
        yield from _missing_without_qr(case, near=near)
    if sizes.participants < sizes.n_clients and not isinstance(case.job.participation, float | int | np.number):
        yield "for given participants: they must be drawn at random"
    if r is None:
        yield f"for {type(problem).__name__}: the reference of B is other than the top-k subspace of the regressors"
    elif (r < k and not wide) or (r > k and gradient):
        yield f"for a ground truth of rank {r} and rank = {k}"
    if sizes.dim < 2 * k and not (near or wide):
        yield f"for dim = {sizes.dim} below 2 rank = {2 * k}"
    if m == k + 1 and not gradient:
        yield f"for n_samples = rank + 1 = {m}: heads have no second moments"
    if case.differing and (gradient or (r is not None and r != k)):
        heads = "gradient heads" if gradient else f"a ground truth of rank {r} and rank = {k}"
        yield f"for {heads} and clients with different {case.differing}"
    if case.fewest < min(m, k + 2) and not (case.message_noise_std and m <= k):
        yield f"for a client with n_samples = {case.fewest}, fewer than rank + 2 = {k + 2}"


def _missing_without_qr(case: FedRepRun, *, near: bool) -> Iterator[str]:
    """Yield the reasons why a run without QR cannot be predicted."""
    others = {
        "gradient heads": isinstance(case.algorithm.heads, GradientHeads),
        "noise on messages": case.message_noise_std > 0,
        f"dim = {case.job.sizes.dim} below 2 rank": near and not case.compression,
        "sparsified messages": bool(case.compression),
        f"a ground truth of rank {case.truth_rank} and rank = {case.algorithm.rank}": case.truth_rank
        != case.algorithm.rank,
        f"clients with different {case.differing}": bool(case.differing),
        "a schedule of step sizes": case.steps.ndim > 0,
    }
    for what, found in others.items():
        if found:
            yield f"for orthonormalize = False and {what}"


def _still(case: FedRepRun) -> Curves:
    """Return the initial distance in every round."""
    k, init = case.algorithm.rank, case.algorithm.initialization
    if reason := no_reference(case.problem, k):
        raise NoPredictionError(f"the distance cannot be predicted: {reason}")
    found = []
    for number in range(case.job.trials):
        if isinstance(init, AtDistance | TrueSubspace):
            found.append(init.delta if isinstance(init, AtDistance) else 0.0)
            continue
        reference = case.problem.truth(case.job.seed, [number]).reference(k)
        found.append(float(distance_from(reference, first_state(case.job, number).array("B"))[0]))
    return Curves(np.repeat(np.array(found)[:, None], case.job.rounds + 1, axis=1))


def _at_fixed(case: FedRepRun, rounds: Indices) -> Prediction:
    """Predict the floor on fixed samples, at the minimum of the empirical risk."""
    missing, rank, design = next(_missing(case)), case.algorithm.rank, case.problem.design
    sizes = case.job.sizes
    some = f"no prediction of the floor is available for {sizes.participants} of {sizes.n_clients} participants"
    well_specified = case.problem.truth_rank == rank and is_gaussian(design) and design.variance is not None

    def floor() -> Quantity:
        weighted = "" if case.algorithm.weights is None else "weights"
        differing = case.differing if well_specified else weighted
        if differing:
            raise NoPredictionError(f"no prediction of the floor is available for clients with different {differing}")
        truths = [case.problem.truth(case.job.seed, [number]) for number in range(case.job.trials)]
        if not well_specified:
            return truncation_quantity(case.problem, truths, rank, case.samples)
        return minimum_quantity(case.problem, truths, case.samples)

    return Prediction(
        law="empirical minimum",
        source="fixed points of FedRep with exact heads are stationary points of the empirical risk",
        validity="only the floor is predicted, for runs that converge",
        rounds=rounds,
        warnings=tuple(_edge_doubts(case)),
        _curves=f"no prediction of FedRep's distance is available {missing}",
        _quantities={"floor": floor if sizes.participants == sizes.n_clients else some},
    )


def _edge_doubts(case: FedRepRun) -> Iterator[str]:
    """Yield a warning if the last step size is not below the stability edge near the minimum, for isotropic x.

    With a ground truth of rank k, a round multiplies the components of B outside span(B*) by ``1 - eta c lambda l``,
    where l is an eigenvalue of a Marchenko-Pastur distribution (see `fixed_samples_needed`). With a higher rank it is
    the population's edge.
    """
    design, sizes, m, k = case.problem.design, case.job.sizes, case.samples, case.algorithm.rank
    n, d = sizes.n_clients, sizes.dim
    if not is_gaussian(design) or design.variance is None or m <= k:
        return
    W = heads_of(case.problem.truth(case.job.seed, [0]))[0]
    curvatures, last = np.linalg.eigvalsh(W.T @ W / len(W)), float(case.steps.ravel()[-1])
    if len(curvatures) == k:
        largest = curvatures[-1] * (1 - k / m) * (1 + np.sqrt((d - k) * k / (n * (m - k)))) ** 2
        where = f"for n_samples = {m}"
    else:
        largest = curvatures[-1] - (curvatures[0] if len(curvatures) == d else 0.0)
        where = "for large n_samples"
    if last * largest >= 2.0:  # `largest` is 0 for equal singular values or heads of 0
        yield (
            f"step_size = {last / case.unit:.4g} is not below {2.0 / largest / case.unit:.4g}, about the "
            f"largest stable one {where}: runs may not converge"
        )


def minimum_quantity(problem: Problem, truths: Sequence[Truth], n_samples: int) -> Quantity:
    """Predict the distance of the minimum of the empirical risk from B*."""
    noise_std = check_noise_std(problem.noise_std)
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        found = [
            fixed_sample_floor(heads_of(truth)[0], dim=problem.dim, n_samples=n_samples, noise_std=noise_std).distance
            for truth in truths
        ]
    doubts = "; ".join(dict.fromkeys(str(each.message) for each in records))
    if np.isnan(found).any():
        raise NoPredictionError(f"no prediction of the floor is available: {doubts}")
    return Quantity(np.array(found), "theory.fixed_sample_floor", doubts or MINIMUM, "subspace_distance")


def truncation_quantity(problem: Problem, truths: Sequence[Truth], rank: int, n_samples: int) -> Quantity:
    """Predict the distance of the minimum of the empirical risk from the truncation."""
    values = np.array([truncation_floor(truth, rank, n_samples)[0] for truth in truths])
    valid = "root mean square over clients, which bounds the mean; first order in 1/m: 5 % too low at m = 20, k = 3"
    return Quantity(values, "theory.truncation_floor", valid, truncation_metric(problem, rank))


def truncation_metric(problem: Problem, rank: int) -> str:
    """Return the metric of the distance from the truncation."""
    r = problem.truth_rank
    return "mean_client_error" if r is not None and r <= rank else "mean_truncation_error"


def _notes(job: Job) -> tuple[str, ...]:
    """Return notes on exact alternatives of similar cost."""
    if job.sizes.n_clients > CHAIN_CLIENTS or obstacle("chain", job.setting):
        return ()
    seconds = CHAIN_TRIALS * seconds_of_a_trial(replace(job, engine="chain"))
    return (
        f"{CHAIN_TRIALS} runs, exact in distribution, take about {max(1.0, float(f'{seconds:.1g}')):g} s: "
        f"lf.simulate(..., trials={CHAIN_TRIALS}, engine='chain')",
    )
