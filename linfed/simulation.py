"""The loop: one algorithm, one problem, all trials and clients at once.

`simulate` checks its arguments, cuts the trials into chunks that fit the memory budget, runs each chunk (here or in
worker processes), and puts the pieces together. Inside a chunk everything is an axis; the only loop is over rounds.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from linfed._types import Array, Indices, Mask
from linfed.algorithms.base import Algorithm, State
from linfed.algorithms.initial import AtDistance, GivenSubspace, Initial, Moments
from linfed.data.sources import (
    Data,
    FixedSamples,
    FreshSamples,
    GivenSamples,
    Sizes,
    Source,
    check_truthless,
    second_moment,
)
from linfed.errors import SizeError, check_instance, check_integer, check_number, shown
from linfed.linalg import one_blas_thread, orthonormalize, top_eigenvectors
from linfed.metrics import MetricTable, Plan, Recorder, plan_metrics
from linfed.problems import Problem, Truth
from linfed.results import Result, Status
from linfed.streams import (
    Participants,
    Participation,
    Seed,
    Stream,
    TrialRandom,
    check_participants,
    check_seed,
    generators,
    n_participants,
)

DIVERGENCE_MULTIPLE = 1e12
"""A parameter beyond this multiple of the scale of the truth (or of given labels; at least 1) counts as diverged."""

CHUNK_BYTES = 2.0**27
"""Memory that a chunk of trials aims at: more would not run faster."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    """Everything that determines a run, checked and picklable."""

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


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """What a chunk of trials gives back."""

    metrics: dict[str, Array]
    status: list[Status]
    status_round: Indices
    final: State


def simulate(
    algorithm: Algorithm,
    problem: Problem | None = None,
    *,
    data: Data,
    rounds: int,
    participation: Participation = 1.0,
    trials: int | None = None,
    seed: Seed = 0,
    metrics: Sequence[str] | None = None,
    record_every: int = 1,
    workers: int = 1,
    memory_budget: float | None = None,
    progress: bool | None = False,
) -> Result:
    """Run an algorithm on independent trials of a problem and record how it fares.

    Parameters
    ----------
    algorithm : Algorithm
        What learns, e.g. ``lf.FedRep(rank=2, step_size=0.5)``.
    problem : Problem, optional
        What is true; may be left out with `GivenSamples`, and then nothing is measured against it.
    data : FreshSamples, FixedSamples or GivenSamples
        What the clients see.
    rounds : int
        Communication rounds T >= 0.
    participation : float, int or integer array
        Clients per round: a share in (0, 1] as a float (``max(1, floor(r n + 1/2))`` clients), a count as an int, or
        the indices themselves, (rounds, p) or (trials, rounds, p). So ``1.0`` is everybody and ``1`` is one client.
    trials : int, optional
        Independent repetitions; 1 by default, or as many as given arrays have.
    seed : int or tuple of int
        Every trial's draws are a function of (seed, trial). Algorithms run with one seed see the same truth, data and
        participants.
    metrics : sequence of str, optional
        Names from ``lf.METRICS``; all that apply by default.
    record_every : int
        Record the initial state, every so many rounds, and the last.
    workers : int
        Worker processes over chunks of trials; 1 runs here. (A script that asks for more needs the usual
        ``if __name__ == "__main__":`` guard.)
    memory_budget : float, optional
        Bytes that the arrays may take at once; half of the machine's memory by default.
    progress : bool or None
        Show a progress bar on standard error; None shows it on a terminal only.

    Returns
    -------
    Result

    Raises
    ------
    ValueError, TypeError
        For arguments that cannot be meant; the message names the argument, its value and what is allowed.
    SizeError
        If one trial alone would not fit `memory_budget`.

    Notes
    -----
    A diverging run is a result: its status is ``Status.DIVERGED`` with the round, its state stays at the last finite
    one, and its metrics are NaN from that round on. BLAS runs one thread (small stacks are faster so, and the numbers
    then do not depend on the number of cores).

    **Deviations**: none.
    """
    started = time.perf_counter()
    job = _checked(algorithm, problem, data, rounds, participation, trials, seed, metrics, record_every)
    workers = check_integer("workers", workers)
    chunks = _chunks(job, workers, _budget(memory_budget))
    with tqdm(total=len(chunks) * job.rounds, disable=None if progress is None else not progress, unit="round") as bar:
        pieces = list(_run(job, chunks, workers, bar.update))
    return _joined(job, pieces, time.perf_counter() - started)


def _run(job: _Job, chunks: list[range], workers: int, tick: Callable[[int], Any]) -> Iterator[_Piece]:
    if workers == 1 or len(chunks) == 1:
        for chunk in chunks:
            yield _run_chunk(job, chunk, tick)
        return
    context = multiprocessing.get_context("spawn")  # a forked copy of a threaded BLAS may hang
    with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=context) as pool:
        for piece in pool.map(_run_chunk, [job] * len(chunks), chunks):
            tick(job.rounds)
            yield piece


# --- one chunk of trials -------------------------------------------------------------------------------------


class _Start:
    """Answers an algorithm's questions before the first round."""

    def __init__(self, job: _Job, trials: range, truth: Truth | None, source: Source) -> None:
        self._job, self._trials, self._truth, self._source = job, trials, truth, source
        self.trials, self.n_clients, self.dim = len(trials), job.sizes.n_clients, job.sizes.dim
        self.rng = TrialRandom(generators(job.seed, Stream.ALGORITHM, trials))

    def representation(self, init: Initial, rank: int) -> Array:
        """Return the initial representation (trials, d, rank)."""
        if isinstance(init, GivenSubspace):
            array = init.array
            if array.ndim == 3:
                return array[list(self._trials)]
            return np.broadcast_to(array, (self.trials, *array.shape)).copy()
        if isinstance(init, Moments):
            clients = np.arange(self.n_clients if init.clients is None else init.clients)
            return top_eigenvectors(second_moment(self._source, clients, self.trials, self.dim), rank)
        rngs = generators(self._job.seed, Stream.INIT, self._trials)
        random = np.stack([rng.standard_normal((self.dim, rank)) for rng in rngs])
        if not isinstance(init, AtDistance):
            return orthonormalize(random)
        reference = self._truth.reference(rank) if self._truth is not None else None
        assert reference is not None
        if reference.shape[-1] != rank:
            raise ValueError(f"init = {init!r} needs a reference subspace of rank {rank}, not {reference.shape[-1]}")
        # Twice is enough: the second projection removes what rounding left of the first.
        for _ in range(2):
            random = orthonormalize(random - reference @ (np.swapaxes(reference, -1, -2) @ random))
        turn = orthonormalize(np.stack([rng.standard_normal((rank, rank)) for rng in rngs]))
        return math.sqrt(1.0 - init.delta**2) * (reference @ turn) + init.delta * random


def _run_chunk(job: _Job, trials: range, tick: Callable[[int], Any] | None = None) -> _Piece:
    """Run some trials to the end."""
    count = len(trials)
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        truth = None if job.problem is None else job.problem.truth(job.seed, trials)
        source = _open(job, truth, trials)
        start = _Start(job, trials, truth, source)
        participants = Participants(
            job.participation,
            n_clients=job.sizes.n_clients,
            rounds=job.rounds,
            trials=trials,
            n_trials=job.trials,
            seed=job.seed,
        )
        state = job.algorithm.initial_state(start)
        recorder = Recorder(job.plan.names, truth, 0 if state.B is None else state.B.shape[-1])
        limit = DIVERGENCE_MULTIPLE * np.maximum(1.0, _scale(job, truth, trials))
        history = {name: np.full((count, len(job.recorded)), np.nan) for name in job.plan.names}
        alive = _within(state, limit)
        status = [Status.COMPLETED if fine else Status.DIVERGED for fine in alive]
        status_round = np.where(alive, job.rounds, 0)
        columns = {int(round_): column for column, round_ in enumerate(job.recorded)}

        def record(round_: int) -> None:
            if round_ in columns:
                for name, values in recorder.measure(state).items():
                    history[name][:, columns[round_]] = np.where(alive, values, np.nan)

        record(0)
        for round_ in range(1, job.rounds + 1):
            batch = source.round(participants.next())
            new = job.algorithm.step(state, batch, start.rng)
            fine = _within(new, limit)
            for trial in np.flatnonzero(alive & ~fine):
                status[trial], status_round[trial] = Status.DIVERGED, round_
            for trial in np.flatnonzero(alive & fine & batch.singular):
                if status[trial] is Status.COMPLETED:
                    status[trial], status_round[trial] = Status.SINGULAR_HEAD, round_
            alive &= fine
            state = new if alive.all() else new.where(alive, state)
            record(round_)
            if tick is not None:
                tick(1)
            if not alive.any():
                if tick is not None:
                    tick(job.rounds - round_)
                break
    return _Piece(metrics=history, status=status, status_round=status_round, final=state)


def _open(job: _Job, truth: Truth | None, trials: range) -> Source:
    if isinstance(job.data, GivenSamples):
        return job.data.open(truth, job.sizes, job.seed, trials)
    assert truth is not None
    return job.data.open(truth, job.sizes, job.seed, trials)


def _scale(job: _Job, truth: Truth | None, trials: range) -> Array:
    if truth is not None:
        return truth.scale
    assert isinstance(job.data, GivenSamples)
    scale = job.data.scale
    return scale[list(trials)] if len(scale) > 1 else np.broadcast_to(scale, (len(trials),))


def _within(state: State, limit: Array) -> Mask:
    """Return the trials whose parameters are all finite and within the limit."""
    fine = np.ones(len(limit), dtype=bool)
    for array in state.arrays().values():
        flat = array.reshape(len(limit), -1)
        fine &= (flat.max(axis=-1) <= limit) & (flat.min(axis=-1) >= -limit)  # false for NaN
    return fine


# --- before and after ----------------------------------------------------------------------------------------


def _checked(
    algorithm: Algorithm,
    problem: Problem | None,
    data: Data,
    rounds: int,
    participation: Participation,
    trials: int | None,
    seed: Seed,
    metrics: Sequence[str] | None,
    record_every: int,
) -> _Job:
    check_instance("algorithm", algorithm, Algorithm, "an algorithm, e.g. lf.FedRep(rank=2, step_size=0.5)")
    check_instance(
        "data", data, (FreshSamples, FixedSamples, GivenSamples), "lf.FreshSamples, lf.FixedSamples or lf.GivenSamples"
    )
    if problem is None:
        check_truthless(data)
    elif not hasattr(problem, "truth"):
        raise TypeError(f"problem = {shown(problem)} must be a problem, e.g. lf.SharedRepresentation(...)")
    rounds = check_integer("rounds", rounds, minimum=0)
    record_every = check_integer("record_every", record_every)
    seed = check_seed(seed)
    n, dim = _sizes(problem, data)
    algorithm.check(n_clients=n, dim=dim)
    trials = _n_trials(trials, algorithm, problem, data)
    if isinstance(participation, float | int | np.number):
        p = n_participants(participation, n)
    else:
        participation = check_participants(participation, n, rounds, trials)
        p = participation.shape[-1]
    _check_init(algorithm, problem, n, dim)
    plan = plan_metrics(
        metrics,
        truth=problem is not None,
        reference=problem is not None and problem.subspace_rank is not None,
        representation=hasattr(algorithm, "rank"),
    )
    return _Job(
        algorithm=algorithm,
        problem=problem,
        data=data,
        rounds=rounds,
        participation=participation,
        trials=trials,
        seed=seed,
        recorded=np.unique(np.append(np.arange(0, rounds + 1, record_every), rounds)),
        plan=plan,
        sizes=Sizes(n_clients=n, dim=dim, participants=p, rounds=rounds),
    )


def _sizes(problem: Problem | None, data: Data) -> tuple[int, int]:
    """Return (n, d), after checking that problem and given data agree on them."""
    if isinstance(data, GivenSamples):
        if problem is not None and (problem.n_clients, problem.dim) != (data.n_clients, data.dim):
            raise ValueError(
                f"X has shape {data.X.shape}, expected n = {problem.n_clients} clients of dimension d = {problem.dim} "
                "as the problem has"
            )
        return data.n_clients, data.dim
    assert problem is not None
    return problem.n_clients, problem.dim


def _n_trials(trials: int | None, algorithm: Algorithm, problem: Problem | None, data: Data) -> int:
    """Return the number of trials, after checking it against the arrays that have a trial axis."""
    init = getattr(algorithm, "init", None)
    given = {
        "problem": getattr(problem, "n_trials", None),
        "data": getattr(data, "n_trials", None),
        "init": init.array.shape[0] if isinstance(init, GivenSubspace) and init.array.ndim == 3 else None,
    }
    named = {name: count for name, count in given.items() if count is not None}
    wanted = check_integer("trials", trials) if trials is not None else next(iter(named.values()), 1)
    for name, count in named.items():
        if count != wanted:
            raise ValueError(f"trials = {wanted}, but {name} has arrays for {count} trials")
    return wanted


def _check_init(algorithm: Algorithm, problem: Problem | None, n: int, dim: int) -> None:
    """Raise if the initial representation cannot be made for this problem."""
    init, rank = getattr(algorithm, "init", None), int(getattr(algorithm, "rank", 0))
    if isinstance(init, Moments) and init.clients is not None and init.clients > n:
        raise ValueError(f"clients = {init.clients} of the moments init must be at most n_clients = {n}")
    if isinstance(init, AtDistance):
        if problem is None or problem.subspace_rank is None:
            raise ValueError(f"init = {init!r} needs a truth with a reference subspace: give problem=")
        if problem.subspace_rank < rank:
            raise ValueError(f"init = {init!r} needs rank = {rank} at most the truth's, {problem.subspace_rank}")
        if dim < 2 * rank:
            raise ValueError(f"init = {init!r} needs dim >= 2 rank; got dim = {dim}, rank = {rank}")


def _physical_memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not on every system
        return 8e9


def _budget(memory_budget: float | None) -> float:
    if memory_budget is None:
        return _physical_memory() / 2
    return check_number("memory_budget", memory_budget, positive=True)


def _chunks(job: _Job, workers: int, budget: float) -> list[range]:
    """Cut the trials into chunks that fit the budget, at least one for each worker."""
    n, dim = job.sizes.n_clients, job.sizes.dim
    truth = 0 if job.problem is None else job.problem.floats_per_trial()
    state = job.algorithm.floats_per_trial(n_clients=n, dim=dim)
    data = job.data.floats_per_trial(job.sizes)
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


def _joined(job: _Job, pieces: list[_Piece], seconds: float) -> Result:
    metrics = {name: np.concatenate([piece.metrics[name] for piece in pieces]) for name in job.plan.names}
    return Result(
        algorithm=job.algorithm,
        problem=job.problem,
        data=job.data,
        seed=job.seed,
        participants=job.sizes.participants,
        rounds=job.recorded,
        metrics=MetricTable(metrics, job.plan.absent),
        status=[status for piece in pieces for status in piece.status],
        status_round=np.concatenate([piece.status_round for piece in pieces]),
        final=_stacked([piece.final for piece in pieces]),
        seconds=seconds,
    )


def _stacked(states: list[State]) -> State:
    first = states[0]
    if len(states) == 1:
        return first
    parts = {name: np.concatenate([state.arrays()[name] for state in states]) for name in first.arrays()}
    return first.update(**parts)
