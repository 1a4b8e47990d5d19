"""Jobs: the checked arguments of a run, and the division of its trials into chunks that fit the memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from linfed._types import Indices
from linfed._values import is_from_linfed
from linfed.algorithms.initial import Initialization, Moments, TruncatedAverages
from linfed.algorithms.parts.base import Algorithm, check_algorithm
from linfed.checks import check_instance, check_integer, is_real
from linfed.data.samples import Data, FixedSamples, FreshSamples, GivenSamples, check_truthless
from linfed.data.sources import Sizes
from linfed.errors import SizeError
from linfed.numerics.streams import Seed, check_seed
from linfed.numerics.threads import thread_count
from linfed.problems import Classes, Problem, check_problem, n_classes
from linfed.simulation.engines import (
    EngineQuery,
    block_floats,
    choose_engine,
    first_batch_floats,
    floats_per_trial,
    rows_per_client,
)
from linfed.simulation.metrics import MetricFacts, MetricFunction, Plan, plan_metrics
from linfed.simulation.participation import Participation, check_participants, n_participants, plain_participation
from linfed.system.memory import check_fits, format_bytes, physical_memory

CHUNK_BYTES = 2.0**27
"""Target memory of a chunk of trials; larger chunks would not run faster."""

THREAD_BYTES = 2.0**24
"""Least memory of the trials of one thread; measured: with less, two threads may be slower than one."""

DRAWN_THREAD_BYTES = 2.0**22
"""The same where rows are drawn in every round, which takes most of the time in few long calls."""

SECONDS_PER_FLOAT = 6e-9
"""Run time of a round divided by the number of floats of a trial; measured: 1 to 15 ns, by engine and algorithm."""

MOST_PIECES = 10_000
"""Largest number of chunks of a run that is split by run time; each has a key, and all keys are made at once."""

MOST_ROUNDS = 2**53
"""Largest number of rounds: the number of a round must be exact as a 64-bit integer and as a float."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Checked and picklable arguments of a run; the fields are as in `simulate`."""

    algorithm: Algorithm
    problem: Problem | None
    data: Data
    n_rounds: int
    participation: Participation
    trials: int
    seed: Seed
    recorded: Indices
    plan: Plan
    sizes: Sizes
    engine: str

    @property
    def setting(self) -> EngineQuery:
        """Properties of the run that determine the choice of its engine."""
        return EngineQuery(algorithm=self.algorithm, problem=self.problem, data=self.data, sizes=self.sizes)


def checked_job(
    algorithm: Algorithm,
    problem: Problem | None,
    data: Data,
    n_rounds: int,
    participation: Participation,
    trials: int | None,
    seed: Seed,
    metrics: Sequence[str | MetricFunction] | None,
    record_every: int,
    engine: str,
    *,
    argument: str = "metrics",
) -> Job:
    """Return the job for the arguments of `simulate`, or raise an error for the first invalid one.

    Messages call the metrics `argument`.
    """
    check_algorithm(algorithm)
    check_instance(
        "data", data, (FreshSamples, FixedSamples, GivenSamples), "lf.FreshSamples, lf.FixedSamples or lf.GivenSamples"
    )
    if problem is None:
        check_truthless(data)
    else:
        check_problem(problem)
    n_rounds = check_integer("n_rounds", n_rounds, minimum=0)
    if n_rounds > MOST_ROUNDS:
        raise ValueError(f"n_rounds = {n_rounds} must be at most {MOST_ROUNDS}")
    algorithm = algorithm.for_rounds(n_rounds)
    record_every = min(check_integer("record_every", record_every, maximum=math.inf), max(1, n_rounds))
    recorded = n_rounds // record_every
    if 8.0 * recorded > physical_memory():
        raise SizeError(
            f"record_every = {record_every} must be larger: with n_rounds = {n_rounds} the {recorded:.3g} recorded "
            "rounds do not fit in memory"
        )
    seed = check_seed(seed)
    n, dim = _sizes(problem, data)
    algorithm.check(n_clients=n, dim=dim)
    classes = _classes(problem, data)
    algorithm.check_loss(classes)
    trials = _n_trials(trials, algorithm, problem, data)
    participation = plain_participation(participation)
    if is_real(participation):
        p = n_participants(participation, n)
    else:
        participation = check_participants(participation, n, n_rounds, trials)
        p = participation.shape[-1]
    if algorithm.initialization is not None:
        check_initialization(algorithm.initialization, algorithm.initial_columns, algorithm, problem, data)
    features = (
        4 * (algorithm.learned_rank + ((problem.truth_rank or 0) if problem is not None else 0)) + 4 + 4 * classes
    )
    facts = MetricFacts(
        truth=problem is not None,
        reference=problem is not None and problem.subspace_rank is not None,
        no_reference=no_reference(problem, algorithm.learned_rank),
        columns=algorithm.learned_rank,
        truth_rank=None if problem is None else problem.truth_rank,
        fixed=not isinstance(data, FreshSamples),
        held_out=data.test is not None if isinstance(data, GivenSamples) else classes > 0,
        classes=classes,
    )
    plan = plan_metrics(metrics, facts, argument=argument)
    check_fits(
        2.0 * n_rounds / record_every,
        f"n_rounds = {n_rounds}, of which each {record_every}th is recorded",
        "record fewer",
    )
    sizes = Sizes(n_clients=n, dim=dim, participants=p, n_rounds=n_rounds, features=features, classes=classes)
    setting = EngineQuery(algorithm=algorithm, problem=problem, data=data, sizes=sizes)
    return Job(
        algorithm=algorithm,
        problem=problem,
        data=data,
        n_rounds=n_rounds,
        participation=participation,
        trials=trials,
        seed=seed,
        recorded=np.unique(
            np.append(np.arange(0, n_rounds + 1, record_every), [n_rounds, n_rounds + algorithm.finishes])
        ),
        plan=plan,
        sizes=sizes,
        engine=choose_engine(engine, setting),
    )


def no_reference(problem: Problem | None, columns: int) -> str:
    """Return the reason why `columns` columns have no unique reference subspace, or an empty string."""
    get_reason: Callable[[int], str] | None = getattr(problem, "no_reference", None)
    return get_reason(columns) if columns and get_reason is not None else ""


def _sizes(problem: Problem | None, data: Data) -> tuple[int, int]:
    """Return (n, d), after checking that the problem and given data agree."""
    if isinstance(data, GivenSamples):
        if problem is not None:
            data.check_sizes(problem.n_clients, problem.dim, "the problem has")
            if data.preparation is not None:
                raise ValueError(
                    "problem= cannot be combined with prepared samples, because the ground truth belongs to the "
                    "samples as given: leave it out, or give the samples with intercept=False and scale=False"
                )
        return data.n_clients, data.dim
    assert problem is not None
    if isinstance(data.n_samples, tuple) and len(data.n_samples) != problem.n_clients:
        found = f"n_samples has {len(data.n_samples)} numbers"
        raise ValueError(f"{found}, but must have one for each of the n_clients = {problem.n_clients} clients")
    return problem.n_clients, problem.dim


def _classes(problem: Problem | None, data: Data) -> int:
    """Return the number of classes, 0 for regression, after checking that the problem and given data agree."""
    classes = n_classes(problem, data)
    if problem is not None and isinstance(data, GivenSamples) and n_classes(problem) != n_classes(data):
        kinds = [f"{c} classes" if c else "regression labels" for c in (n_classes(problem), n_classes(data))]
        raise ValueError(f"problem has {kinds[0]}, but data has {kinds[1]}: they must agree")
    if isinstance(problem, Classes) and isinstance(data, FreshSamples | FixedSamples):
        samples, held = np.broadcast_arrays(data.n_samples, problem.classes_per_client)
        if np.any(samples < held):
            i = int(np.argmax(samples < held))
            client = f" of client {i}" if samples.ndim else ""
            raise ValueError(
                f"n_samples = {samples.flat[i]}{client} must be at least classes_per_client = {held.flat[i]}"
            )
    return classes


def given_trials(algorithm: Algorithm, problem: Problem | None, data: Data) -> dict[str, int]:
    """Return the number of trials of the arguments whose arrays have a trial axis, by their names."""
    given = {
        "problem": getattr(problem, "n_trials", None),
        "data": getattr(data, "n_trials", None),
        "init": None if algorithm.initialization is None else algorithm.initialization.n_trials,
    }
    return {name: count for name, count in given.items() if count is not None}


def _n_trials(trials: int | None, algorithm: Algorithm, problem: Problem | None, data: Data) -> int:
    """Return the number of trials, after checking it against the arrays that have a trial axis."""
    named = given_trials(algorithm, problem, data)
    wanted = check_integer("trials", trials) if trials is not None else next(iter(named.values()), 1)
    for name, count in named.items():
        if count != wanted:
            raise ValueError(f"trials = {wanted} must be {count}: {name} has arrays for {count} trials")
    return wanted


def check_initialization(
    init: Initialization, rank: int, algorithm: Algorithm, problem: Problem | None, data: Data
) -> None:
    """Raise if an initialisation does not support `rank` columns in an algorithm's run."""
    n, dim = _sizes(problem, data)
    if init.needs_truth:
        name = describe_initialization(init, algorithm)
        if problem is None or problem.subspace_rank is None:
            raise missing_reference(name)
        if problem.subspace_rank < rank:
            raise ValueError(
                f"{name} requires rank = {rank} to be at most the rank of the ground truth, {problem.subspace_rank}"
            )
    counts = data.counts if isinstance(data, GivenSamples) else data.n_samples
    samples = float(n) * counts if isinstance(counts, int) else float(np.sum(counts))
    init.check(rank=rank, n_clients=n, dim=dim, samples=samples, memory=physical_memory())


def missing_reference(name: str) -> ValueError:
    """Return the error for an initialisation that requires a reference subspace if there is none."""
    return ValueError(f"{name} requires a ground truth with a reference subspace: give problem=")


def describe_initialization(init: Initialization, algorithm: Algorithm) -> str:
    """Return the name of an initialisation in messages; without fields, it is named after its algorithm."""
    return f"init = {init!r}" if vars(init) else type(algorithm).__name__


def bytes_per_trial(job: Job, budget: float) -> float:
    """Return the bytes that one trial needs at once, or raise `SizeError` if they exceed the budget."""
    n, dim = job.sizes.n_clients, job.sizes.dim
    truth = 0 if job.problem is None else job.problem.floats_per_trial()
    # In classification each client has a row for each class, and a bias.
    rows, bias = max(1, job.sizes.classes), job.sizes.classes > 0
    state = job.algorithm.floats_per_trial(
        n_clients=n * rows, dim=dim + bias, participants=job.sizes.participants * rows
    )
    data = floats_per_trial(job.engine, job.setting)
    if job.algorithm.finishes:  # the final step uses a batch of all clients; fresh ones have arrays of their own
        everyone = floats_per_trial(job.engine, replace(job.setting, sizes=replace(job.sizes, participants=n)))
        data = data + everyone if isinstance(job.data, FreshSamples) else max(data, everyone)
    data += job.algorithm.floats_per_step(
        n_clients=n,
        dim=dim,
        participants=job.sizes.participants,
        samples=rows_per_client(job.engine, job.setting),
    )
    init = job.algorithm.initialization
    if init is not None:
        data += init.floats_per_trial(rank=job.algorithm.initial_columns, n_clients=n, dim=dim)
        data += first_batch_floats(job.engine, job.setting) if init.needs_batch else 0
    history = len(job.plan.names) * len(job.recorded)
    block = block_bytes(job)
    # The factor 6 covers the state, the next and the previous one, and the temporary arrays of the metrics.
    each = 8.0 * max(1, data + 3 * truth + 6 * state + history)
    if each + block > budget:
        reads_all = isinstance(init, Moments | TruncatedAverages) or (init is not None and init.needs_batch)
        fresh = isinstance(job.data, FreshSamples)
        advice = "give init='random', which reads no samples, or " if reads_all and fresh else ""
        parts = (
            f"data {format_bytes(8.0 * data + block)}, ground truth and state "
            f"{format_bytes(8.0 * (3 * truth + 6 * state))}"
        )
        raise SizeError(
            f"one trial needs about {format_bytes(each + block)} at once ({parts}), but "
            f"memory_budget is {format_bytes(budget)}: "
            f"{advice}use fewer samples (n_samples), clients (n_clients, participation) or dimensions (dim), or a "
            "larger memory_budget"
        )
    return each


def block_bytes(job: Job) -> float:
    """Return the bytes of the block of rows that is read at a time, for any number of trials."""
    moments = isinstance(job.algorithm.initialization, Moments | TruncatedAverages)
    return 8.0 * block_floats(job.engine, job.setting, moments)


@dataclass(frozen=True)
class Chunks:
    """Consecutive ranges of trials, created one by one."""

    trials: int
    number: int
    first: int = 0

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[range]:
        for piece in range(self.number):
            ends = (self.first + self.trials * place // self.number for place in (piece, piece + 1))
            yield range(*ends)


def trial_chunks(job: Job, workers: int, budget: float, chosen: range | None = None) -> Chunks:
    """Divide the trials, or the range `chosen`, into chunks that fit the budget, at least one for each worker."""
    trials = range(job.trials) if chosen is None else chosen
    each = bytes_per_trial(job, budget)
    size = max(1, int(min(budget / workers - block_bytes(job), CHUNK_BYTES) // each))
    return Chunks(len(trials), max(-(-len(trials) // size), min(workers, len(trials))), trials.start)


def bytes_at_once(jobs: Sequence[Job]) -> float:
    """Return the bytes of all trials of several jobs at once; fixed samples count once for each engine."""
    total, held = max(map(block_bytes, jobs)), set[str]()
    for job in jobs:
        each = bytes_per_trial(job, math.inf)
        if job.engine in held:
            each -= 8.0 * floats_per_trial(job.engine, job.setting)
        if not isinstance(job.data, FreshSamples):
            held.add(job.engine)
        total += job.trials * each
    return total


def trial_threads(job: Job, budget: float) -> int:
    """Return the number of threads that share the trials of a job; small rounds have one.

    Functions and classes from outside linfed run in a single thread, as they may share data.
    """
    most = min(thread_count(), job.trials)
    parts = [part for part in (job.algorithm, job.problem) if part is not None]
    if most == 1 or job.plan.functions or not all(map(is_from_linfed, parts)):
        return 1
    each = bytes_per_trial(job, budget)
    least = DRAWN_THREAD_BYTES if job.engine == "explicit" and isinstance(job.data, FreshSamples) else THREAD_BYTES
    return max(1, int(min(most, job.trials * each / least, budget / (each + block_bytes(job)))))


def seconds_of_a_trial(job: Job) -> float:
    """Return an estimate of a trial's run time in seconds; it depends only on sizes, not on the machine."""
    return bytes_per_trial(job, math.inf) / 8 * max(1, job.n_rounds) * SECONDS_PER_FLOAT


def trials_of_a_second(job: Job) -> Chunks:
    """Divide the trials into chunks of about a second each, or longer if there would be more than `MOST_PIECES`."""
    wanted = max(1, math.ceil(job.trials * seconds_of_a_trial(job)))
    return Chunks(job.trials, min(job.trials, wanted, MOST_PIECES))


def check_joined(job: Job, state: float) -> None:
    """Raise unless the joined result fits the memory; `state` is the number of floats per trial of the final state."""
    each = state + len(job.plan.names) * len(job.recorded) + 2  # the status and its round
    check_fits(
        2 * job.trials * each,  # once in parts and once joined
        f"trials = {job.trials} with {len(job.recorded)} recorded rounds: joining the results",
        "use fewer trials (in several runs with different seeds), fewer metrics, or a larger record_every",
    )
