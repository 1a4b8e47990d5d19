"""Complete runs: all trials of a job, in chunks that fit the memory, in this process or in worker processes."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np

from linfed._types import Array
from linfed.algorithms.parts.base import Algorithm, State, frozen
from linfed.checks import check_integer, check_progress
from linfed.data.preparation import unusual
from linfed.data.samples import Data, GivenSamples
from linfed.numerics.streams import Seed
from linfed.numerics.threads import map_threads
from linfed.problems import Problem, n_classes
from linfed.simulation.job import Chunks, Job, check_joined, checked_job, trial_chunks, trial_threads
from linfed.simulation.loop import ChunkResult, Held, run_chunk, run_in_turns
from linfed.simulation.metrics import MetricFunction, MetricTable, check_sendable
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result
from linfed.simulation.status import Status
from linfed.system.memory import budget_bytes
from linfed.system.processes import in_order, worker_pool

T = TypeVar("T")


def simulate(
    algorithm: Algorithm,
    problem: Problem | None = None,
    *,
    data: Data,
    n_rounds: int,
    participation: Participation = 1.0,
    trials: int | None = None,
    seed: Seed = 0,
    metrics: Sequence[str | MetricFunction] | None = None,
    record_every: int = 1,
    engine: str = "auto",
    workers: int = 1,
    memory_budget: float | None = None,
    progress: bool | None = False,
) -> Result:
    """Run an algorithm on independent trials of a problem and record metrics.

    Parameters
    ----------
    algorithm : Algorithm
        Algorithm to run, e.g. ``lf.FedRep(rank=2, step_size=0.5)``.
    problem : Problem, optional
        Ground truth of the clients. It may be omitted with `GivenSamples`; then metrics that require it are absent.
    data : FreshSamples, FixedSamples, GivenSamples or GivenClasses
        Samples of the clients.
    n_rounds : int
        Communication rounds T >= 0.
    participation : float, int or integer array
        Participants per round: a share r in (0, 1] as a float (``max(1, floor(r n + 1/2))`` clients), a count as an
        int, or client indices, (n_rounds, p) or (trials, n_rounds, p). So ``1.0`` means all clients and ``1`` means one
        client.
    trials : int, optional
        Independent repetitions; by default 1, or the number of trials of given arrays.
    seed : int or tuple of int
        Seed of the random numbers, which depend only on (seed, trial). Algorithms run with one seed get the same ground
        truth and participants, and usually the same samples (see Notes).
    metrics : sequence of str or function, optional
        Names from ``lf.METRICS`` and custom functions (see Notes). By default all names that apply. For a regression
        with a ground truth this excludes the losses, which cost O(n m d) in each recorded round.
    record_every : int
        Interval between recorded rounds. The initial state and the last round are always recorded.
    engine : str
        Representation of the data: "explicit", "compressed", "projected" or "chain"
        (``linfed.simulation.engines.ENGINES``). All are exact, in value or in distribution. "auto" selects the cheapest
        one that supports the run and keeps B itself; `Result.engine` is the one used.
    workers : int
        Number of worker processes; 1 runs in this process. (A script with more needs the usual
        ``if __name__ == "__main__":`` guard.)
    memory_budget : float, optional
        Bytes that the arrays may take at once; half of the machine's memory by default.
    progress : bool or None
        If True, show a progress bar on standard error; None shows it only on a terminal.

    Returns
    -------
    Result

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid. The message names the argument, its value and what is allowed.
    EngineError
        If `engine` does not support the run. The message names the engines that do.
    SizeError
        If one trial does not fit `memory_budget`, or the results of all trials do not fit the memory.
    linfed.errors.WorkerError
        If a worker process dies.

    Warns
    -----
    UserWarning
        If given data without a trial axis make all trials identical. If an algorithm learns a shared B on given samples
        whose features or labels are far from mean 0 or scale 1, without a ground truth.

    Notes
    -----
    If an algorithm has a final step (fine-tuning), it gets a batch of all clients after the last round. The final step
    is recorded as round ``n_rounds + 1``, so the last column of a metric always belongs to `final`.

    A trial diverges if a parameter array is infinite or NaN, or if its norm exceeds 1e12 times the scale of the ground
    truth (at least 1). For given samples it is the scale of the labels, divided by the smallest column of x. No error
    is raised: the trial's entry in `Result.status` is ``Status.DIVERGED``, `Result.status_round` has the round, its
    state stays at the last finite one, and its metrics are NaN from that round on.

    A trial that ran all rounds can have an outcome other than ``Status.COMPLETED``, too. ``SINGULAR_HEAD`` marks
    linearly dependent features in an exact fit. ``UNSTABLE`` marks a last step size beyond the stability edge where QR,
    or a bounded gradient, hides it: `FedRep` and its variants, `AltGDmin`, `FedRepShortcut`, and the gradient steps of
    `LocalOnly`. This is known after 10 rounds or more. Large fixed samples are looked at again only after 50 rounds of
    all clients. ``STALLED`` marks a B that could not move, and ``ITERATION_LIMIT`` a minimiser that ended too early.

    Large rounds are shared by threads: blocks of clients, or chunks of trials. BLAS uses one thread, because small
    stacks are faster this way. The numbers do not depend on the number of threads. The environment variable
    ``LINFED_NUM_THREADS`` sets the largest number; by default it is the number of processors that the process may use,
    and 1 in worker processes. Custom metrics, and algorithms and problems defined outside linfed, run in one thread.

    Two runs with one seed get the same ground truth and participants under every engine. They get the same samples if
    both use explicit samples, or both compress fixed ones.

    A custom metric is a function ``metric(state, truth)`` that returns one number per trial, (trials,). It is recorded
    under its ``__name__``. It is called with some of the trials at a time and must not mix them. `truth` is the
    `lf.Truth` of these trials, or None if the run has no ground truth. `state` has only the B, W and S of the clients'
    predictors (`State.for_prediction`), not the other arrays of an algorithm's own state. Under engine "chain", state
    and ground truth are both expressed in a frame of r + 2k dimensions that changes from round to round: lengths,
    angles and errors of predictors are unchanged, but single coordinates are not. With several workers, a module must
    define the function at its top level.

    Examples
    --------
    Run FedRep on fresh samples, with a tenth of the clients in each round:

    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=100, dim=20, rank=2, noise_std=1e-3)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(n_samples=10), n_rounds=50,
    ...                      participation=0.1, trials=4)
    >>> result
    <Result of FedRep: 4 trials, 50 rounds>
    >>> bool(result.metrics["subspace_distance"][:, -1].max() < 1e-3)
    True

    Record a custom metric:

    >>> import numpy as np
    >>> def head_norm(state, truth):
    ...     return np.linalg.norm(state.W, axis=(-2, -1))
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FixedSamples(n_samples=12), n_rounds=3,
    ...                      trials=4, metrics=["subspace_distance", head_norm])
    >>> result.metrics
    MetricTable(subspace_distance: (4, 4), head_norm: (4, 4))
    """
    job = checked_job(algorithm, problem, data, n_rounds, participation, trials, seed, metrics, record_every, engine)
    result = simulate_job(job, workers, memory_budget, progress)
    if note := format_identical(data, (*result.metrics.values(), *result.final.arrays().values())):
        warnings.warn(note, stacklevel=2)
    if note := format_unprepared(algorithm, problem, data):
        warnings.warn(note, stacklevel=2)
    return result


def simulate_job(
    job: Job, workers: int = 1, memory_budget: float | None = None, progress: bool | None = False
) -> Result:
    """Return the result of all trials of a job, without a warning if they are identical."""
    started = time.perf_counter()
    workers, disable = check_integer("workers", workers), check_progress(progress)
    if workers > 1:
        check_sendable(job.plan.functions)
    budget = budget_bytes(memory_budget)
    threads = 1 if workers > 1 else trial_threads(job, budget)
    chunks = trial_chunks(job, max(workers, threads), budget)
    return _result(job, chunks, workers, threads, disable, started)


def simulate_trials(job: Job, trials: range) -> Result:
    """Return the result of a range of a job's trials, bit-equal to these trials in the complete run."""
    started = time.perf_counter()
    return _result(job, trial_chunks(job, 1, budget_bytes(), trials), 1, 1, True, started)


class Turns:
    """Run of a job that the caller advances, in turns with others; it has the metrics of `simulate_job`.

    Parameters
    ----------
    job : Job
    chunks : Chunks
        All trials of the job.
    threads : int
        Number of threads that share the chunks.
    held : dict
        Fixed samples, shared with runs of jobs that differ only in their algorithm.
    """

    def __init__(self, job: Job, chunks: Chunks, threads: int, held: Held) -> None:
        self._names, self._threads = job.plan.names, threads
        self._runs = [run_in_turns(job, trials, held) for trials in chunks]
        self._found: list[ChunkResult | None] = [None] * len(chunks)

    def advance(self, last: int) -> None:
        """Run all rounds up to `last`; the caller does this within `quiet`, with increasing values."""

        def advance_chunk(place: int) -> None:
            for number, found in self._runs[place]:
                self._found[place] = found
                if number >= last:
                    break

        places = range(len(self._runs))
        for _ in map_threads(advance_chunk, places, self._threads) if self._threads > 1 else map(advance_chunk, places):
            pass

    def outcome(self) -> tuple[dict[str, Array], list[Status]]:
        """Return the metrics so far, (trials, R), NaN in the rounds to come, and the trials' status so far."""
        found = [piece for piece in self._found if piece is not None]
        metrics = {name: np.concatenate([piece.metrics[name] for piece in found]) for name in self._names}
        return metrics, [status for piece in found for status in piece.status]


def format_identical(data: Data, arrays: Sequence[Array]) -> str:
    """Return a note if given data without a trial axis make all trials of all arrays equal, or an empty string."""
    if not isinstance(data, GivenSamples) or data.n_trials is not None or not arrays or len(arrays[0]) == 1:
        return ""
    if not all(np.array_equal(one, np.broadcast_to(one[:1], one.shape), equal_nan=True) for one in arrays):
        return ""
    return (
        f"the {len(arrays[0])} trials are identical, because they share the samples and nothing else is random: they "
        "count as one; use trials=1, or give data with a trial axis (lf.GivenSamples.split)"
    )


def format_unprepared(algorithm: Algorithm, problem: Problem | None, data: Data) -> str:
    """Return a note if a shared B is learned on given data that need an intercept or a scale, or an empty string."""
    if not isinstance(data, GivenSamples) or problem is not None or data.preparation is not None:
        return ""
    if not algorithm.learned_rank or n_classes(problem, data):
        return ""
    if not (found := unusual(*(array[0] for array in data.with_trials()))):
        return ""
    return (
        f"{found}, but {type(algorithm).__name__} learns a shared B without intercepts: make the data with "
        "intercept=True and scale=True (lf.GivenSamples)"
    )


def _result(job: Job, chunks: Chunks, workers: int, threads: int, disable: bool, started: float) -> Result:
    check_joined(job, 0.0)
    pieces: list[ChunkResult] = []
    with _progress(len(chunks) * job.n_rounds, disable) as tick:
        for piece in _run(job, chunks, workers, threads, tick):
            if not pieces:
                state = sum(array.size for array in piece.final.arrays().values())
                check_joined(job, state / len(piece.status))
            pieces.append(piece)
    return _joined(job, pieces, time.perf_counter() - started)


@contextmanager
def _progress(total: int, disable: bool) -> Iterator[Callable[[int], Any]]:
    """Return a context with a function that advances a progress bar by a number of rounds."""
    if disable:
        yield lambda rounds: None
        return
    from tqdm.std import tqdm

    with tqdm(total=total, unit="round") as bar:
        yield bar.update


def with_progress(parts: Sequence[T], unit: str, disable: bool) -> Iterable[T]:
    """Return the parts, with a progress bar while they are used."""
    if disable:
        return parts
    from tqdm.std import tqdm

    return tqdm(parts, unit=unit)


def _run(job: Job, chunks: Chunks, workers: int, threads: int, tick: Callable[[int], Any]) -> Iterator[ChunkResult]:
    if threads > 1:
        yield from _run_in_threads(job, chunks, threads, tick)
        return
    if workers == 1 or len(chunks) == 1:
        for chunk in chunks:
            yield run_chunk(job, chunk, tick)
        return
    with worker_pool(workers, len(chunks)) as pool:
        for piece in in_order(pool, partial(run_chunk, job), chunks, 4 * workers):
            tick(job.n_rounds)
            yield piece


def _run_in_threads(job: Job, chunks: Chunks, threads: int, tick: Callable[[int], Any]) -> Iterator[ChunkResult]:
    """Yield the results of the chunks in order; if the caller stops, e.g. by Ctrl-C, the threads stop after a round."""
    stopped = threading.Event()

    def tick_or_stop(n_rounds: int) -> None:
        if stopped.is_set():
            raise StoppedError
        tick(n_rounds)

    try:
        yield from map_threads(lambda chunk: run_chunk(job, chunk, tick_or_stop), chunks, threads)
    finally:
        stopped.set()


class StoppedError(Exception):
    """The run was stopped in another thread."""


def _joined(job: Job, pieces: list[ChunkResult], seconds: float) -> Result:
    metrics = {name: np.concatenate([piece.metrics[name] for piece in pieces]) for name in job.plan.names}
    return Result(
        algorithm=job.algorithm,
        problem=job.problem,
        data=job.data,
        seed=job.seed,
        participation=job.participation,
        participants=job.sizes.participants,
        rounds=job.recorded,
        metrics=MetricTable(metrics, job.plan.absent),
        status=[status for piece in pieces for status in piece.status],
        status_round=np.concatenate([piece.status_round for piece in pieces]),
        engine=job.engine,
        final=_stacked([piece.final for piece in pieces]),
        seconds=seconds,
    )


def _stacked(states: list[State]) -> State:
    first = states[0]
    if len(states) == 1:
        return frozen(first)  # states from workers are writable
    parts = {name: np.concatenate([state.arrays()[name] for state in states]) for name in first.arrays()}
    return frozen(first.update(**parts))
