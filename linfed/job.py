"""A run before it starts: its arguments checked, its trials cut into chunks that fit the memory."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from linfed._types import Indices
from linfed.algorithms.base import Algorithm, check_algorithm
from linfed.algorithms.initial import AtDistance, Moments, TrueSubspace, given_trials
from linfed.data.samples import Data, FixedSamples, FreshSamples, GivenSamples, check_truthless
from linfed.data.sources import Sizes
from linfed.engines import Setting, choose_engine, floats_per_trial
from linfed.errors import SizeError, check_instance, check_integer, check_number
from linfed.metrics import Plan, plan_metrics
from linfed.problems import Problem, check_problem
from linfed.streams import Participation, Seed, check_participants, check_seed, n_participants

CHUNK_BYTES = 2.0**27
"""Memory that a chunk of trials aims at: more would not run faster."""


MOMENTS_WORK = 1e14
"""Operations of the method of moments, hours of them, beyond which it is out of reach."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that determines a run, checked and picklable; fields as the arguments of `simulate`."""

    algorithm: Algorithm
    problem: Problem | None
    data: Data
    rounds: int
    participation: Participation
    trials: int
    seed: Seed
    recorded: Indices
    plan: Plan
    sizes: Sizes
    engine: str

    @property
    def setting(self) -> Setting:
        """What the choice of an engine depends on."""
        return Setting(algorithm=self.algorithm, problem=self.problem, data=self.data, sizes=self.sizes)


def checked_job(
    algorithm: Algorithm,
    problem: Problem | None,
    data: Data,
    rounds: int,
    participation: Participation,
    trials: int | None,
    seed: Seed,
    metrics: Sequence[str] | None,
    record_every: int,
    engine: str,
) -> Job:
    """Return the job that the arguments of `simulate` describe, or raise for the first that cannot be meant."""
    check_algorithm(algorithm)
    check_instance(
        "data", data, (FreshSamples, FixedSamples, GivenSamples), "lf.FreshSamples, lf.FixedSamples or lf.GivenSamples"
    )
    if problem is None:
        check_truthless(data)
    else:
        check_problem(problem)
    rounds = check_integer("rounds", rounds, minimum=0)
    record_every = check_integer("record_every", record_every)
    recorded = rounds // record_every
    if 8.0 * recorded > _physical_memory():
        raise SizeError(
            f"rounds = {rounds} with record_every = {record_every} would record {recorded:.3g} rounds, more than the "
            "memory holds: give a larger record_every"
        )
    seed = check_seed(seed)
    n, dim = _sizes(problem, data)
    algorithm.check(n_clients=n, dim=dim)
    trials = _n_trials(trials, algorithm, problem, data)
    if 8.0 * trials > _physical_memory():
        raise SizeError(f"trials = {trials} are more than the memory holds one number of: give fewer trials")
    if isinstance(participation, float | int | np.number):
        p = n_participants(participation, n)
    else:
        participation = check_participants(participation, n, rounds, trials)
        p = participation.shape[-1]
    _check_init(algorithm, problem, data, n, dim)
    features = 4 * (algorithm.columns + ((problem.truth_rank or 0) if problem is not None else 0)) + 4
    plan = plan_metrics(
        metrics,
        truth=problem is not None,
        reference=problem is not None and problem.subspace_rank is not None,
        columns=algorithm.columns,
        truth_rank=None if problem is None else problem.truth_rank,
        fixed=not isinstance(data, FreshSamples),
        held_out=isinstance(data, GivenSamples) and data.test is not None,
    )
    sizes = Sizes(n_clients=n, dim=dim, participants=p, rounds=rounds, features=features)
    setting = Setting(algorithm=algorithm, problem=problem, data=data, sizes=sizes)
    return Job(
        algorithm=algorithm,
        problem=problem,
        data=data,
        rounds=rounds,
        participation=participation,
        trials=trials,
        seed=seed,
        recorded=np.unique(np.append(np.arange(0, rounds + 1, record_every), [rounds, rounds + algorithm.finishes])),
        plan=plan,
        sizes=sizes,
        engine=choose_engine(engine, setting),
    )


def _sizes(problem: Problem | None, data: Data) -> tuple[int, int]:
    """Return (n, d), after checking that problem and given data agree on them."""
    if isinstance(data, GivenSamples):
        if problem is not None:
            data.check_sizes(problem.n_clients, problem.dim, "the problem has")
        return data.n_clients, data.dim
    assert problem is not None
    return problem.n_clients, problem.dim


def _n_trials(trials: int | None, algorithm: Algorithm, problem: Problem | None, data: Data) -> int:
    """Return the number of trials, after checking it against the arrays that have a trial axis."""
    given = {
        "problem": getattr(problem, "n_trials", None),
        "data": getattr(data, "n_trials", None),
        "init": given_trials(getattr(algorithm, "init", None)),
    }
    named = {name: count for name, count in given.items() if count is not None}
    wanted = check_integer("trials", trials) if trials is not None else next(iter(named.values()), 1)
    for name, count in named.items():
        if count != wanted:
            raise ValueError(f"trials = {wanted}, but {name} has arrays for {count} trials")
    return wanted


def _check_init(algorithm: Algorithm, problem: Problem | None, data: Data, n: int, dim: int) -> None:
    """Raise if the initial representation cannot be made for this problem."""
    init, rank = getattr(algorithm, "init", None), algorithm.columns
    wanted = f"init = {init!r}" if isinstance(init, AtDistance) else type(algorithm).__name__
    if isinstance(init, Moments) and init.clients is not None and init.clients > n:
        raise ValueError(f"clients = {init.clients} of the moments init must be at most n_clients = {n}")
    if isinstance(init, Moments):
        samples = data.counts.sum() if isinstance(data, GivenSamples) else float(n) * data.n_samples
        work = float(samples) * (init.clients or n) / n * dim**2
        if work > MOMENTS_WORK or 24.0 * dim**2 > _physical_memory():
            raise SizeError(
                f"init = {init!r} needs every sample itself, about {work:.1g} operations a trial and a {dim} x {dim} "
                "matrix: take fewer clients, lf.Moments(clients=...), or start at lf.AtDistance(delta) or 'random'"
            )
    if isinstance(init, AtDistance | TrueSubspace):
        if problem is None or problem.subspace_rank is None:
            raise ValueError(f"{wanted} needs a truth with a reference subspace: give problem=")
        if problem.subspace_rank < rank:
            raise ValueError(f"{wanted} needs rank = {rank} at most the truth's, {problem.subspace_rank}")
    if isinstance(init, AtDistance) and dim < 2 * rank:
        raise ValueError(f"{wanted} needs dim >= 2 rank; got dim = {dim}, rank = {rank}")


def _physical_memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not on every system
        return 8e9


def budget_bytes(memory_budget: float | None) -> float:
    """Return the bytes that arrays may take: as given, or half of the machine's memory."""
    if memory_budget is None:
        return _physical_memory() / 2
    return check_number("memory_budget", memory_budget, positive=True)


def trial_chunks(job: Job, workers: int, budget: float) -> list[range]:
    """Cut the trials into chunks that fit the budget, at least one for each worker."""
    n, dim = job.sizes.n_clients, job.sizes.dim
    truth = 0 if job.problem is None else job.problem.floats_per_trial()
    state = job.algorithm.floats_per_trial(n_clients=n, dim=dim, participants=job.sizes.participants)
    data = floats_per_trial(job.engine, job.setting)
    if job.algorithm.finishes:  # with a batch of all clients
        everyone = replace(job.setting, sizes=replace(job.sizes, participants=n))
        data = max(data, floats_per_trial(job.engine, everyone))
    if isinstance(getattr(job.algorithm, "init", None), Moments):
        data += 3 * dim**2  # the moment matrix and its decomposition
    history = len(job.plan.names) * len(job.recorded)
    # Beside the state: the next one, the one before, and the metrics' temporaries.
    each = 8.0 * max(1, data + 3 * truth + 6 * state + history)
    if each > budget:
        raise SizeError(
            f"one trial needs about {_bytes(each)} at once (data {_bytes(8.0 * data)}, truth and state "
            f"{_bytes(8.0 * (3 * truth + 6 * state))}), but memory_budget is {_bytes(budget)}: use fewer samples "
            "(n_samples), clients (n_clients, participation) or dimensions (dim), or give a larger memory_budget"
        )
    size = max(1, int(min(budget / workers, CHUNK_BYTES) // each))
    number = max(math.ceil(job.trials / size), min(workers, job.trials))
    edges = [round(job.trials * piece / number) for piece in range(number + 1)]
    return [range(a, b) for a, b in itertools.pairwise(edges)]


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
