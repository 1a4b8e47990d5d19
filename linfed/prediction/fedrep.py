"""FedRep's laws: which one serves a run, its curves, and what is known near B*."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from linfed._types import Array, Indices
from linfed.algorithms.fedrep import FedRep
from linfed.algorithms.heads import ExactHeads
from linfed.algorithms.initial import AtDistance, TrueSubspace
from linfed.data.samples import FixedSamples, FreshSamples
from linfed.errors import LawError, shown
from linfed.numerics.linalg import qr_positive
from linfed.prediction.answers import Asked, Curves, Prediction, Quantity, joined
from linfed.problems import Problem
from linfed.problems.designs import is_gaussian
from linfed.simulation.engines import obstacle
from linfed.simulation.job import Job, seconds_of_a_trial
from linfed.simulation.loop import first_state
from linfed.simulation.metrics import subspace_distance
from linfed.theory.fedrep.any_heads import LocalMap, typical_distance
from linfed.theory.fedrep.state_evolution import ORTHONORMAL_TOLERANCE, HeadMoments, state_evolution
from linfed.theory.flute.low_rank import truncation_floor

FEW_PARTICIPANTS = 20
"""Clients of a round below which a typical run is not what the means say."""

FAR_START = 0.97
"""Distance from which a start is left when chance has it."""

LARGE_STEP = 1.4
"""Multiple of the best step from which few and rare rounds rule the means."""

CHAIN_CLIENTS = 1000
"""Clients up to which some hundred runs of the chain cost about what a prediction does."""

CHAIN_TRIALS = 300

NEAR = "near B*, in mean square; single runs fall a little faster, clearly so where d is small"


@dataclass(frozen=True)
class Trial:
    """A trial's heads (n, r) in the coordinates of the orthonormal B*, for x of variance 1, and its start."""

    W: Array
    start: Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A run of FedRep of which a law is asked."""

    job: Job
    algorithm: FedRep
    problem: Problem

    @property
    def exact(self) -> bool:
        """Whether heads are least squares."""
        return isinstance(self.algorithm.heads, ExactHeads) and self.algorithm.heads.ridge == 0

    @property
    def samples(self) -> int:
        """m, the most of a client."""
        return self.job.setting.samples

    @property
    def summed(self) -> int:
        """The step along the participants' mean gradient, in units of the algorithm's."""
        return self.job.sizes.participants if self.algorithm.aggregate == "sum" else 1

    @property
    def sizes(self) -> dict[str, int]:
        """What laws call dim, n_samples and participants."""
        sizes = self.job.sizes
        return {"dim": sizes.dim, "n_samples": self.samples, "participants": sizes.participants}

    @property
    def setting(self) -> dict[str, Any]:
        """What laws are told beside heads and start."""
        step_size = self.algorithm.step_size * self.summed
        return {**self.sizes, "step_size": step_size, "rounds": self.job.rounds, "noise_std": self.problem.noise_std}

    @cached_property
    def trials(self) -> list[Trial]:
        """Every trial's heads and start."""
        return [self._trial(number) for number in range(self.job.trials)]

    def _trial(self, number: int) -> Trial:
        truth = self.problem.truth(self.job.seed, [number])
        assert truth.B is not None
        assert truth.W is not None
        basis, R = qr_positive(truth.B[0])
        W = np.sqrt(self.problem.design.variance or 1.0) * truth.W[0] @ R.T
        init = self.algorithm.initialisation
        if isinstance(init, AtDistance | TrueSubspace) and R.shape[0] == self.algorithm.rank:
            return Trial(W, {"delta": init.delta if isinstance(init, AtDistance) else 0.0})
        B0 = first_state(self.job, number).array("B")[0]
        if np.abs(B0.T @ B0 - np.eye(B0.shape[1])).max() > ORTHONORMAL_TOLERANCE:
            raise LawError(
                f"no law of the first round is known for init = {shown(init)}, whose columns are not orthonormal: give "
                "its Q factor"
            )
        return Trial(W, {"B0": B0, "B_star": basis})

    @cached_property
    def maps(self) -> list[LocalMap]:
        """What a round does near B*, for every trial's heads."""
        n = self.job.sizes.n_clients
        return [LocalMap.of(HeadMoments.of(trial.W), n_clients=n, **self.sizes) for trial in self.trials]


@dataclass(frozen=True)
class Law:
    """A law of the distance: its name, its source, where it holds, its curves for one trial, and what it warns of."""

    name: str
    source: str
    validity: str
    curves: Callable[[Case, Trial], Curves]
    quantities: Callable[[Case], dict[str, Asked]]
    warnings: Callable[[Case, Curves], list[str]]


def _means(case: Case, trial: Trial) -> Curves:
    return Curves(state_evolution(trial.W, **case.setting, **trial.start).distance)


def _near(case: Case) -> dict[str, Asked]:
    """Return what is known near B* with exact heads and a truth of rank k."""
    noise_std, step_size, d = case.problem.noise_std, case.setting["step_size"], case.job.sizes.dim

    def of_maps(asked: Callable[[LocalMap], float], source: str, validity: str = NEAR, metric: str = "") -> Quantity:
        return Quantity(np.array([asked(each) for each in case.maps]), f"theory.{source}", validity, metric)

    def floor() -> Quantity:
        def typical(each: LocalMap) -> float:
            return float(typical_distance(each.floor(step_size, noise_std, d), dim=d))

        return of_maps(typical, "local_floor", "leading order in the noise, steps below the edge", "subspace_distance")

    return {
        "floor": floor,
        "rate": lambda: of_maps(lambda each: each.factor(step_size) ** 0.5, "local_factor", metric="subspace_distance"),
        "stability_edge": lambda: of_maps(lambda each: each.edge() / case.summed, "stability_edge"),
        "best_step": lambda: of_maps(lambda each: each.best() / case.summed, "local_best_step"),
    }


def _doubts(case: Case, curves: Curves) -> list[str]:
    """Return where the picture fails with exact heads and a truth of rank k."""
    m, k, p = case.samples, case.algorithm.rank, case.job.sizes.participants
    found = []
    if m <= k + 3:
        found.append(
            f"n_samples = {m} is at most rank + 3 = {k + 3}: heads have no fourth moments, rare rounds rule the means"
        )
    if p < FEW_PARTICIPANTS:
        found.append(
            f"{p} clients take part in a round, fewer than {FEW_PARTICIPANTS}: a round fluctuates, and a typical run "
            "stays below the mean square"
        )
    start = np.max(curves.distance[..., 0])
    if start > FAR_START:
        found.append(
            f"the start at distance {start:.3g} is above {FAR_START}: when a run leaves it is a matter of chance"
        )
    best = min((each.best() for each in case.maps), default=np.inf)
    if case.setting["step_size"] > LARGE_STEP * best:
        found.append(
            f"step_size = {case.algorithm.step_size:g} is {case.setting['step_size'] / best:.2g} times best_step: rare "
            "rounds rule the mean square, and typical runs do better"
        )
    return found


def _still(case: Case) -> Curves:
    """Return the start's distance in every round."""
    k, init = case.algorithm.rank, case.algorithm.initialisation
    found = []
    for number in range(case.job.trials):
        if isinstance(init, AtDistance | TrueSubspace):
            found.append(init.delta if isinstance(init, AtDistance) else 0.0)
            continue
        reference = case.problem.truth(case.job.seed, [number]).reference(k)
        found.append(float(subspace_distance(first_state(case.job, number).array("B"), reference)[0]))
    return Curves(np.repeat(np.array(found)[:, None], case.job.rounds + 1, axis=1))


MEANS = Law(
    "means",
    "theory.state_evolution: the exact means of a round, iterated",
    "for m > k + 3, 20 clients a round or more, steps up to 1.1 best_step and starts up to 0.9: 1 to 15 % below the "
    "median of runs; without a band",
    _means,
    _near,
    _doubts,
)


def law_of(case: Case) -> Law:
    """Return the law that serves a run, or raise a LawError that says which is missing."""
    for there, what in _missing(case):
        if there:
            raise LawError(f"no law of FedRep's distance is known {what}")
    return MEANS


def _missing(case: Case) -> list[tuple[bool, str]]:
    """Return what no law serves, and whether the run has it."""
    algorithm, problem, (d, k, m) = (
        case.algorithm,
        case.problem,
        (case.job.sizes.dim, case.algorithm.rank, case.samples),
    )
    r, p = problem.truth_rank, case.job.sizes.participants
    design, data = problem.design, case.job.data
    given = not isinstance(case.job.participation, float | int | np.number)
    return [
        (not isinstance(data, FreshSamples), f"for {type(data).__name__}: rounds share their samples"),
        (not is_gaussian(design), f"for design = {shown(design)}: x must be Gaussian"),
        (design.variance is None, f"for design = {shown(design)}: x must be isotropic"),
        (not case.exact, f"for heads = {shown(algorithm.heads)}"),
        (algorithm.representation_steps > 1, f"for representation_steps = {algorithm.representation_steps}"),
        (not algorithm.orthonormalize, "for orthonormalize = False"),
        (given and p < case.job.sizes.n_clients, "for given participants: they must be drawn at random"),
        (r is None, f"for {type(problem).__name__}: regressors must be B* w_i*, in factors"),
        (r is not None and r != k, f"for a truth of rank {r} and rank = {k}"),
        (d < 2 * k, f"for dim = {d} below 2 rank = {2 * k}"),
        (m == k + 1, f"for n_samples = rank + 1 = {m}: heads have no second moments"),
    ]


def predicted(job: Job, algorithm: FedRep) -> Prediction:
    """Return what is known of a run of FedRep, or raise a LawError."""
    if job.problem is None:
        raise LawError("no law is known without a truth: give problem=")
    case = Case(job, algorithm, job.problem)
    rounds = np.arange(job.rounds + 1)
    if case.exact and case.samples <= algorithm.rank:
        return Prediction(
            law="no movement",
            source="the residual of exact heads on m <= k samples vanishes, and with it the gradient",
            validity="exact, in every run and for every law of x",
            rounds=rounds,
            _curves=_still(case),
        )
    if isinstance(job.data, FixedSamples) and case.exact and algorithm.representation_steps == 1:
        return _at_fixed(case, rounds)
    law = law_of(case)
    try:
        curves = joined([law.curves(case, trial) for trial in case.trials])
    except ValueError as error:  # of arguments that a run allows and the law does not
        raise LawError(f"the law {law.name!r} does not serve: {error}") from None
    return Prediction(
        law=law.name,
        source=law.source,
        validity=law.validity,
        rounds=rounds,
        warnings=tuple(law.warnings(case, curves)),
        notes=_notes(job),
        _curves=curves,
        _quantities=law.quantities(case),
    )


def _notes(job: Job) -> tuple[str, ...]:
    """Return what would be as cheap, and exact."""
    if job.sizes.n_clients > CHAIN_CLIENTS or obstacle("chain", job.setting):
        return ()
    seconds = CHAIN_TRIALS * seconds_of_a_trial(replace(job, engine="chain"))
    return (
        f"{CHAIN_TRIALS} runs, exact in law, take about {seconds:.1g} s: "
        f"lf.simulate(..., trials={CHAIN_TRIALS}, engine='chain')",
    )


def _at_fixed(case: Case, rounds: Indices) -> Prediction:
    """Return what is known on fixed samples: where the empirical risk has its minimum."""
    (_, what), *_ = _missing(case)

    def floor() -> Quantity:
        truths = (case.problem.truth(case.job.seed, [number]) for number in range(case.job.trials))
        values = [truncation_floor(truth, case.algorithm.rank, case.samples)[0] for truth in truths]
        return Quantity(
            np.array(values),
            "theory.truncation_floor",
            "the root mean square of the same over clients, to first order in 1/m",
            truncation_metric(case.problem, case.algorithm.rank),
        )

    return Prediction(
        law="empirical minimum",
        source="theory.truncation_floor: fixed points are stationary points of the empirical risk",
        validity="the floor alone",
        rounds=rounds,
        _curves=f"no law of FedRep's distance is known {what}",
        _quantities={"floor": floor},
    )


def truncation_metric(problem: Problem, rank: int) -> str:
    """Return the metric that `truncation_floor` speaks of."""
    r = problem.truth_rank
    return "mean_client_error" if r is not None and r <= rank else "mean_truncation_error"
