"""The loop: one algorithm, one problem, all trials and clients at once.

`simulate` checks its arguments, cuts the trials into chunks that fit the memory budget, runs each chunk (here or in
worker processes), and puts the pieces together. Inside a chunk everything is an axis; the only loop is over rounds.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from linfed._types import Array, Indices, Mask
from linfed.algorithms.base import Algorithm, State
from linfed.data.batch import Batch
from linfed.data.samples import Data, GivenSamples
from linfed.engines import open_source
from linfed.errors import check_integer
from linfed.job import Job, budget_bytes, checked_job, trial_chunks
from linfed.linalg import one_blas_thread
from linfed.metrics import MetricTable, Recorder
from linfed.problems import Problem, Truth
from linfed.results import Result, Status
from linfed.start import ResolvedStart
from linfed.streams import Participants, Participation, Seed, TrialRandom

DIVERGENCE_MULTIPLE = 1e12
"""A parameter array whose norm exceeds this multiple of the truth's scale (or that of given labels; at least 1)
has diverged."""


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
    engine: str = "auto",
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
        Every trial's draws are a function of (seed, trial). Algorithms run with one seed see the same truth and
        participants, and the same samples wherever samples are drawn (see Notes).
    metrics : sequence of str, optional
        Names from ``lf.METRICS``; all that apply by default.
    record_every : int
        Record the initial state, every so many rounds, and the last.
    engine : str
        How the data are represented: "explicit", "compressed", "projected" or "chain", each exact, in value or in law
        (``linfed.engines.ENGINES``); "auto" takes the cheapest that can serve and keeps B itself. `Result.engine` says
        which it was.
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
    EngineError
        If the engine that was asked for cannot serve; the message names those that can.
    SizeError
        If one trial alone would not fit `memory_budget`.

    Notes
    -----
    An algorithm that does something at the end (fine-tuning) gets a batch of all clients after the last round; this is
    recorded as round ``rounds + 1``, so that the last column of a metric always speaks of `final`.

    A diverging run is a result: its status is ``Status.DIVERGED`` with the round, its state stays at the last finite
    one, and its metrics are NaN from that round on. BLAS runs one thread (small stacks are faster so, and the numbers
    then do not depend on the number of cores).

    Two runs with one seed see the same truth and participants under every engine; the same samples where both have
    explicit rows, or compress fixed ones.

    **Deviations**: none.
    """
    started = time.perf_counter()
    job = checked_job(algorithm, problem, data, rounds, participation, trials, seed, metrics, record_every, engine)
    workers = check_integer("workers", workers)
    chunks = trial_chunks(job, workers, budget_bytes(memory_budget))
    with tqdm(total=len(chunks) * job.rounds, disable=None if progress is None else not progress, unit="round") as bar:
        pieces = list(_run(job, chunks, workers, bar.update))
    return _joined(job, pieces, time.perf_counter() - started)


def _run(job: Job, chunks: list[range], workers: int, tick: Callable[[int], Any]) -> Iterator[_Piece]:
    if workers == 1 or len(chunks) == 1:
        for chunk in chunks:
            yield _run_chunk(job, chunk, tick)
        return
    context = multiprocessing.get_context("spawn")  # a forked copy of a threaded BLAS may hang
    with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=context) as pool:
        try:
            for piece in pool.map(_run_chunk, [job] * len(chunks), chunks):
                tick(job.rounds)
                yield piece
        except BrokenProcessPool:
            raise RuntimeError(
                f"workers = {workers}: a worker process died at its start; classes that a notebook or a script's own "
                "file defines are not found there: put them into a module, or use workers = 1"
            ) from None


# --- one chunk of trials -------------------------------------------------------------------------------------


def _run_chunk(job: Job, trials: range, tick: Callable[[int], Any] = lambda rounds: None) -> _Piece:
    """Run some trials to the end."""
    count = len(trials)
    with one_blas_thread(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        truth = None if job.problem is None else job.problem.truth(job.seed, trials)
        source = open_source(job.engine, job.data, truth, job.sizes, job.algorithm.columns, job.seed, trials)
        start = ResolvedStart(job, trials, truth, source)
        participants = Participants(
            job.participation,
            n_clients=job.sizes.n_clients,
            rounds=job.rounds,
            trials=trials,
            n_trials=job.trials,
            seed=job.seed,
        )
        state = source.enter(job.algorithm.initial_state(start))
        seen = None if truth is None else source.seen(truth)
        recorder = Recorder(job.plan.names, seen, 0 if state.B is None else state.B.shape[-1])
        limit = DIVERGENCE_MULTIPLE * np.maximum(1.0, _scale(job, truth, trials))
        history = {name: np.full((count, len(job.recorded)), np.nan) for name in job.plan.names}
        alive = _within(state, limit)
        status = [Status.COMPLETED if fine else Status.DIVERGED for fine in alive]
        status_round = np.where(alive, job.rounds, 0)
        columns = {int(round_): column for column, round_ in enumerate(job.recorded)}

        def record(round_: int) -> None:
            if round_ in columns:
                for name, values in recorder.measure(state).items():
                    history[name][:, columns[round_]] = values if alive.all() else np.where(alive, values, np.nan)

        def steps() -> Iterator[tuple[int, Batch, Callable[[State, Batch, TrialRandom], State]]]:
            for round_ in range(1, job.rounds + 1):
                if not alive.any():
                    tick(job.rounds + 1 - round_)
                    break
                yield round_, source.round(participants.next()), job.algorithm.step
                tick(1)
            if job.algorithm.finishes:
                yield job.rounds + 1, source.everyone(), job.algorithm.finish

        record(0)
        for round_, batch, step in steps():
            new = source.settle(step(state, batch, start.rng))
            fine = _within(new, limit)
            if not fine.all() or batch.singular.any():
                for trial in np.flatnonzero(alive & ~fine):
                    status[trial], status_round[trial] = Status.DIVERGED, round_
                for trial in np.flatnonzero(alive & fine & batch.singular):
                    if status[trial] is Status.COMPLETED:
                        status[trial], status_round[trial] = Status.SINGULAR_HEAD, round_
                alive &= fine
            state = new if alive.all() else new.where(alive, state)
            record(round_)
    return _Piece(metrics=history, status=status, status_round=status_round, final=state)


def _scale(job: Job, truth: Truth | None, trials: range) -> Array:
    if truth is not None:
        return truth.scale
    assert isinstance(job.data, GivenSamples)
    scale = job.data.scale
    return scale[list(trials)] if len(scale) > 1 else np.broadcast_to(scale, (len(trials),))


def _within(state: State, limit: Array) -> Mask:
    """Return the trials whose parameters are all finite, each array of a norm within the limit."""
    fine = np.ones(len(limit), dtype=bool)
    largest = np.minimum(limit**2, np.finfo(float).max)
    for array in state.arrays().values():
        flat = array.reshape(len(limit), -1)
        fine &= np.vecdot(flat, flat) <= largest  # false for NaN
    return fine


def _joined(job: Job, pieces: list[_Piece], seconds: float) -> Result:
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
        return first
    parts = {name: np.concatenate([state.arrays()[name] for state in states]) for name in first.arrays()}
    return first.update(**parts)
