"""The loop: one algorithm, one problem, all trials and clients at once.

`simulate` checks its arguments, cuts the trials into chunks that fit the memory budget, runs each chunk (here or in
worker processes), and puts the pieces together. Inside a chunk everything is an axis; the only loop is over rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from tqdm.std import tqdm

from linfed._types import Array, Indices, Mask
from linfed._values import readonly
from linfed.algorithms.base import Algorithm, State, check_state, frozen
from linfed.data.batch import Batch
from linfed.data.explicit import ExplicitBatch
from linfed.data.samples import Data, GivenSamples, given_batch
from linfed.errors import check_integer, check_progress
from linfed.numerics.linalg import quiet
from linfed.numerics.streams import Seed, TrialRandom
from linfed.problems import Problem, Truth
from linfed.simulation.engines import open_source
from linfed.simulation.job import Chunks, Job, bytes_per_trial, check_joined, checked_job, trial_chunks
from linfed.simulation.metrics import Metric, MetricTable, Recorder, check_sendable
from linfed.simulation.participation import Participants, Participation
from linfed.simulation.results import Result, Status
from linfed.simulation.start import ResolvedStart
from linfed.system.memory import budget_bytes, check_fits
from linfed.system.processes import in_order, worker_pool

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
    metrics: Sequence[str | Metric] | None = None,
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
    metrics : sequence of str or function, optional
        Names from ``lf.METRICS``, and functions of one's own (see Notes); all names that apply by default, but the
        losses, which cost O(n m d) a recorded round, only where there is no truth.
    record_every : int
        Record the initial state, every so many rounds, and the last.
    engine : str
        How the data are represented: "explicit", "compressed", "projected" or "chain", each exact, in value or in law
        (``lf.ENGINES``); "auto" takes the cheapest that can serve and keeps B itself. `Result.engine` says
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
        If one trial alone would not fit `memory_budget`, or the results of all of them the memory.
    WorkerError
        If a worker process dies.

    Notes
    -----
    An algorithm that does something at the end (fine-tuning) gets a batch of all clients after the last round; this is
    recorded as round ``rounds + 1``, so that the last column of a metric always speaks of `final`.

    A diverging run is a result: its status is ``Status.DIVERGED`` with the round, its state stays at the last finite
    one, and its metrics are NaN from that round on. BLAS runs one thread (small stacks are faster so, and the numbers
    then do not depend on the number of cores).

    Two runs with one seed see the same truth and participants under every engine; the same samples where both have
    explicit rows, or compress fixed ones.

    A metric of one's own is a function ``metric(state, truth)`` that returns one number for each trial, (trials,), and
    is recorded under its ``__name__``. It is given some of the trials at a time, and must not mix them; `truth` is the
    `lf.Truth` of these trials, or None where the data came without one. Under engine "chain" state and truth are both
    told in a frame of r + 2k dimensions that differs from round to round, in which lengths, angles and predictors'
    errors are what they are, but not single coordinates. For several workers the function must be one that a module
    defines.

    **Deviations**: none.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> def head_norm(state, truth):
    ...     return np.linalg.norm(state.W, axis=(-2, -1))
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FixedSamples(n_samples=12), rounds=3,
    ...                      trials=4, metrics=["subspace_distance", head_norm])
    >>> result.metrics
    MetricTable(subspace_distance: (4, 4), head_norm: (4, 4))
    """
    started = time.perf_counter()
    job = checked_job(algorithm, problem, data, rounds, participation, trials, seed, metrics, record_every, engine)
    workers, disable = check_integer("workers", workers), check_progress(progress)
    if workers > 1:
        check_sendable(job.plan.own)
    chunks = trial_chunks(job, workers, budget_bytes(memory_budget))
    check_joined(job, 0.0)
    pieces: list[_Piece] = []
    with tqdm(total=len(chunks) * job.rounds, disable=disable, unit="round") as bar:
        for piece in _run(job, chunks, workers, bar.update):
            if not pieces:
                state = sum(array.size for array in piece.final.arrays().values())
                check_joined(job, state / len(piece.status))
            pieces.append(piece)
    return _joined(job, pieces, time.perf_counter() - started)


def _run(job: Job, chunks: Chunks, workers: int, tick: Callable[[int], Any]) -> Iterator[_Piece]:
    if workers == 1 or len(chunks) == 1:
        for chunk in chunks:
            yield _run_chunk(job, chunk, tick)
        return
    with worker_pool(workers, len(chunks)) as pool:
        for piece in in_order(pool, partial(_run_chunk, job), chunks, 4 * workers):
            tick(job.rounds)
            yield piece


# --- one chunk of trials -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """One round of all trials; round 0 is the initial state.

    `number` counts from 1; `before` and `after` are the states at its two ends, in round 0 both the initial one;
    `alive` (trials,) says which trials have not diverged: the others stay at their last finite state. All arrays are
    read-only.
    """

    number: int
    before: State
    after: State
    alive: Mask
    _batch: Batch | None = field(repr=False)

    @property
    def batch(self) -> Batch:
        """What the clients saw, to be questioned until the next round begins; a ValueError in round 0."""
        if self._batch is None:
            raise ValueError("round 0 is the initial state, which has seen no batch: the first one is that of round 1")
        return self._batch


def iterate(
    algorithm: Algorithm,
    problem: Problem | None = None,
    *,
    data: Data,
    rounds: int,
    participation: Participation = 1.0,
    trials: int | None = None,
    seed: Seed = 0,
    engine: str = "auto",
) -> Iterator[Round]:
    """Run an algorithm round by round, all trials at once, for whoever wants to look at every state and batch.

    Parameters
    ----------
    algorithm, problem, data, rounds, participation, trials, seed, engine
        As in `simulate`; all trials are held at once.

    Yields
    ------
    Round
        The initial state as round 0, then the same rounds, to the last bit, as `simulate` runs with these arguments.
        (What an algorithm does once at the end, such as fine-tuning, comes as one more round.)

    Raises
    ------
    ValueError, TypeError, EngineError, SizeError
        As in `simulate`, at the call.

    Notes
    -----
    Theory is checked with it: the identities of a paper speak of the states and samples of a round. A batch of the
    engines "projected" and "chain" has answered the algorithm and refuses further questions: ask for "explicit" or
    "compressed".

    **Deviations**: none.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> steps = lf.iterate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FixedSamples(n_samples=12), rounds=3)
    >>> [(step.number, step.after.B.shape) for step in steps]
    [(0, (1, 6, 2)), (1, (1, 6, 2)), (2, (1, 6, 2)), (3, (1, 6, 2))]
    """
    job = checked_job(algorithm, problem, data, rounds, participation, trials, seed, [], max(1, rounds), engine)
    check_fits(
        job.trials * bytes_per_trial(job, budget_bytes()) / 8.0,
        f"trials = {job.trials} at once",
        "use fewer, or lf.simulate, which cuts them into chunks",
    )
    return _quiet_rounds(job)


def _quiet_rounds(job: Job) -> Iterator[Round]:
    """Yield the initial state and the rounds of a job; the caller's code runs under its own settings in between."""
    with quiet():
        chunk = _Chunk(job, range(job.trials))
        before = chunk.initial_state()
        steps = chunk.rounds(before)
    yield Round(number=0, before=before, after=before, alive=readonly(chunk.alive), _batch=None)
    while True:
        with quiet():
            step = next(steps, None)
        if step is None:
            return
        number, batch, after = step
        yield Round(number=number, before=before, after=after, alive=readonly(chunk.alive), _batch=batch)
        before = after


class _Chunk:
    """Some trials of a job, ready to run."""

    def __init__(self, job: Job, trials: range) -> None:
        self._job = job
        self.truth = None if job.problem is None else job.problem.truth(job.seed, trials)
        self.source = open_source(job.engine, job.data, self.truth, job.sizes, job.algorithm.columns, job.seed, trials)
        self._start = ResolvedStart(job, trials, self.truth, self.source)
        limit = DIVERGENCE_MULTIPLE * np.maximum(1.0, _scale(job, self.truth, trials))
        self._largest = np.minimum(limit**2, np.finfo(float).max)
        self._participants = Participants(
            job.participation,
            n_clients=job.sizes.n_clients,
            rounds=job.rounds,
            trials=trials,
            n_trials=job.trials,
            seed=job.seed,
        )
        self.alive = np.ones(len(trials), dtype=bool)

    def initial_state(self) -> State:
        """Return the state before the first round; it is not kept here."""
        state = self._checked(self._job.algorithm.initial_state(self._start), "initial_state", self._job.sizes.dim)
        state = self.source.enter(state)
        self.alive = _within(state, self._largest)
        return frozen(state)

    def _checked(self, state: object, method: str, dim: int, like: State | None = None) -> State:
        """Return the state that a method of the algorithm returned, if it is one."""
        algorithm = self._job.algorithm
        return check_state(
            state,
            f"{type(algorithm).__name__}.{method}",
            trials=len(self.alive),
            n_clients=self._job.sizes.n_clients,
            dim=dim,
            columns=algorithm.columns,
            like=like,
        )

    def samples(self, trials: range) -> dict[str, ExplicitBatch]:
        """Return what the losses of the plan are measured on: fixed samples, which no later round takes back."""
        found: dict[str, ExplicitBatch] = {}
        if "train_loss" in self._job.plan.names:
            own = self.source.everyone()
            assert isinstance(own, ExplicitBatch)
            found["train_loss"] = own
        if "test_loss" in self._job.plan.names:
            assert isinstance(self._job.data, GivenSamples)
            assert self._job.data.test is not None
            found["test_loss"] = given_batch(self._job.data.test, trials)
        return found

    def _batches(self) -> Iterator[tuple[int, Batch, Callable[[State, Batch, TrialRandom], State]]]:
        """Yield number, batch and what is to be done with it, while a trial is left."""
        job = self._job
        for round_ in range(1, job.rounds + 1):
            if not self.alive.any():
                break
            yield round_, self.source.round(self._participants.next()), job.algorithm.step
        if job.algorithm.finishes:
            yield job.rounds + 1, self.source.everyone(), job.algorithm.finish

    def rounds(self, state: State) -> Iterator[tuple[int, Batch, State]]:
        """Yield number, batch and new state of each round, from the initial state on; `alive` is kept up to date."""
        everyone = bool(self.alive.all())
        for number, batch, step in self._batches():
            returned = step(state, batch, self._start.rng)
            if number in (1, self._job.rounds + 1) or not isinstance(returned, State):
                method = "step" if number <= self._job.rounds else "finish"
                returned = self._checked(returned, method, state.dim, state)
            new = self.source.settle(returned)
            fine = _within(new, self._largest)
            if not fine.all():
                self.alive = self.alive & fine
                everyone = False
            state = frozen(new if everyone else new.where(self.alive, state))
            yield number, batch, state


def _run_chunk(job: Job, trials: range, tick: Callable[[int], Any] = lambda rounds: None) -> _Piece:
    """Run some trials to the end."""
    count = len(trials)
    with quiet():
        chunk = _Chunk(job, trials)
        state = chunk.initial_state()
        seen = None if chunk.truth is None else chunk.source.seen(chunk.truth)
        rank = 0 if state.B is None else state.B.shape[-1]
        recorder = Recorder(job.plan.names, seen, rank, chunk.samples(trials), job.plan.own)
        history = {name: np.full((count, len(job.recorded)), np.nan) for name in job.plan.names}
        alive = chunk.alive
        status = [Status.COMPLETED if fine else Status.DIVERGED for fine in alive]
        status_round = np.where(alive, job.rounds, 0)
        columns = {int(round_): column for column, round_ in enumerate(job.recorded)}

        def record(round_: int) -> None:
            if round_ in columns:
                for name, values in recorder.measure(state).items():
                    history[name][:, columns[round_]] = values if alive.all() else np.where(alive, values, np.nan)

        record(0)
        done = 0
        for number, batch, new in chunk.rounds(state):
            state = new
            if chunk.alive is not alive or batch.singular.any():
                for trial in np.flatnonzero(alive & ~chunk.alive):
                    status[trial], status_round[trial] = Status.DIVERGED, number
                for trial in np.flatnonzero(chunk.alive & batch.singular):
                    if status[trial] is Status.COMPLETED:
                        status[trial], status_round[trial] = Status.SINGULAR_HEAD, number
                alive = chunk.alive
            record(number)
            if number <= job.rounds:
                tick(1)
                done = number
        tick(job.rounds - done)
    return _Piece(metrics=history, status=status, status_round=status_round, final=state)


def _scale(job: Job, truth: Truth | None, trials: range) -> Array:
    if truth is not None:
        return truth.scale
    assert isinstance(job.data, GivenSamples)
    scale = job.data.scale
    return scale[list(trials)] if len(scale) > 1 else np.broadcast_to(scale, (len(trials),))


def _within(state: State, largest: Array) -> Mask:
    """Return the trials whose parameters are all finite, each array of a squared norm within the largest allowed."""
    fine: Mask | None = None
    for array in state.arrays().values():
        flat = array.reshape(len(largest), -1)
        within: Mask = np.vecdot(flat, flat) <= largest  # false for NaN
        fine = within if fine is None else fine & within
    return np.ones(len(largest), dtype=bool) if fine is None else fine


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
        return frozen(first)  # a worker's copy is not
    parts = {name: np.concatenate([state.arrays()[name] for state in states]) for name in first.arrays()}
    return frozen(first.update(**parts))
