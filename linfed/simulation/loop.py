"""The loop over rounds, for all trials and clients of a chunk at once.

Trials and clients are array axes; the only Python loop is over rounds. `run_in_turns` records metrics and yields after
every round, `run_chunk` runs it to the end, and `iterate` yields states and batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed._values import is_from_linfed, readonly
from linfed.algorithms.parts.base import Algorithm, State, frozen, separate
from linfed.algorithms.parts.checked import check_state, has_form_of
from linfed.checks import LARGEST_INTEGER
from linfed.data.batch import Batch
from linfed.data.samples import Data, FreshSamples, GivenSamples
from linfed.data.sources import Source
from linfed.numerics.linalg import quiet
from linfed.numerics.streams import Seed, TrialRandom
from linfed.problems import Problem, Truth
from linfed.simulation.engines import open_source
from linfed.simulation.evaluation_samples import measured_samples
from linfed.simulation.job import Job, bytes_per_trial, checked_job
from linfed.simulation.metrics import Recorder
from linfed.simulation.outcomes import doubts
from linfed.simulation.participation import Participants, Participation
from linfed.simulation.start import ResolvedStart
from linfed.simulation.status import Status
from linfed.system.memory import budget_bytes, check_fits

DIVERGENCE_MULTIPLE = 1e12
"""A trial has diverged if the norm of a parameter array exceeds this multiple of the scale of the ground truth (or of
predictors for given samples), where the scale counts as at least 1."""


Held: TypeAlias = dict[tuple[str, range], tuple[Truth | None, Source]]
"""Ground truths and held samples by engine and trials, which jobs that differ only in their algorithm share."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """One round of all trials, as `iterate` yields it. All arrays are read-only.

    Parameters
    ----------
    number : int
        Number of the round; 0 is the initial state.
    before, after : State
        States before and after the round; in round 0 both are the initial state.
    alive : ndarray of bool (trials,)
        True for the trials that have not diverged. The others keep their last finite state.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> steps = lf.iterate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FixedSamples(n_samples=12), n_rounds=3)
    >>> initial, first = next(steps), next(steps)
    >>> first.number, first.after.B.shape, first.batch.active.shape
    (1, (1, 6, 2), (1, 20))
    """

    number: int
    before: State
    after: State
    alive: Mask
    _batch: Batch | None = field(repr=False)

    @property
    def batch(self) -> Batch:
        """Batch of the clients' samples, valid until the next round begins; round 0 raises a ValueError."""
        if self._batch is None:
            raise ValueError("round 0 is the initial state and has no batch: use a later round")
        return self._batch


def iterate(
    algorithm: Algorithm,
    problem: Problem | None = None,
    *,
    data: Data,
    n_rounds: int,
    participation: Participation = 1.0,
    trials: int | None = None,
    seed: Seed = 0,
    engine: str = "auto",
) -> Iterator[Round]:
    """Run an algorithm round by round, with access to every state and batch.

    Parameters
    ----------
    algorithm, problem, data, n_rounds, participation, trials, seed, engine
        As in `simulate`. All trials are kept in memory at once.

    Yields
    ------
    Round
        The initial state as round 0, then each round, bit-equal to the rounds of `simulate` with these arguments.
        A final step of the algorithm, such as fine-tuning, is one more round.

    Raises
    ------
    ValueError, TypeError, EngineError, SizeError
        As in `simulate`, when `iterate` is called.

    Notes
    -----
    Use it to check the identities of a paper, which relate the states and samples of a round. Batches of the engines
    "projected" and "chain" do not support further computations after the round; use "explicit" or "compressed".

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> steps = lf.iterate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FixedSamples(n_samples=12), n_rounds=3)
    >>> [(step.number, step.after.B.shape) for step in steps]
    [(0, (1, 6, 2)), (1, (1, 6, 2)), (2, (1, 6, 2)), (3, (1, 6, 2))]
    """
    job = checked_job(algorithm, problem, data, n_rounds, participation, trials, seed, [], LARGEST_INTEGER, engine)
    check_fits(
        job.trials * bytes_per_trial(job, budget_bytes()) / 8.0,
        f"trials = {job.trials} at once",
        "use fewer trials, or lf.simulate, which divides them into chunks",
    )
    return _quiet_rounds(job)


def _quiet_rounds(job: Job) -> Iterator[Round]:
    """Yield the initial state and the rounds of a job; NumPy's error settings change only while a round is computed."""
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
    """Chunk of a job's trials, with ground truth, data and participants."""

    def __init__(self, job: Job, trials: range, held: Held | None = None) -> None:
        self._job = job
        self.truth, self.source = _opened(job, trials) if held is None else _shared(job, trials, held)
        self._start = ResolvedStart(job, trials, self.truth, self.source)
        limit = DIVERGENCE_MULTIPLE * np.maximum(1.0, _scale(job, self.truth, trials))
        self._largest = np.minimum(limit**2, np.finfo(float).max)
        self._participants = Participants(
            job.participation,
            n_clients=job.sizes.n_clients,
            n_rounds=job.n_rounds,
            trials=trials,
            n_trials=job.trials,
            seed=job.seed,
        )
        self.alive = np.ones(len(trials), dtype=bool)
        self._may_keep = not is_from_linfed(job.algorithm)

    def initial_state(self) -> State:
        """Return the state before the first round."""
        state = self._checked(self._job.algorithm.initial_state(self._start), "initial_state", self._job.sizes.dim)
        state = self.source.to_frame(separate(frozen(state)) if self._may_keep else state)
        self.alive = _within(state, self._largest)
        return frozen(state)

    def _checked(self, state: object, method: str, dim: int, like: State | None = None) -> State:
        """Return the state that a method of the algorithm returned, or raise an error if it is invalid."""
        algorithm = self._job.algorithm
        return check_state(
            state,
            f"{type(algorithm).__name__}.{method}",
            trials=len(self.alive),
            n_clients=self._job.sizes.n_clients,
            dim=dim,
            columns=algorithm.learned_rank,
            classes=self._job.sizes.classes,
            like=like,
        )

    def _batches(self) -> Iterator[tuple[int, Batch, Callable[[State, Batch, TrialRandom], State]]]:
        """Yield the number, the batch and the update of each round, until all trials have diverged."""
        job = self._job
        for round_ in range(1, job.n_rounds + 1):
            if not np.count_nonzero(self.alive):  # faster than `any`, in every round
                break
            yield round_, self.source.round(self._participants.next(), round_), job.algorithm.step
        if job.algorithm.finishes:
            yield job.n_rounds + 1, self.source.all_clients(job.n_rounds + 1), job.algorithm.finish

    def rounds(self, state: State) -> Iterator[tuple[int, Batch, State]]:
        """Yield the number, the batch and the new state of each round, starting from `state`; update `alive`."""
        everyone = bool(self.alive.all())
        for number, batch, step in self._batches():
            returned = step(state, batch, self._start.rng)
            if number in (1, self._job.n_rounds + 1) or not has_form_of(returned, state):
                method = "step" if number <= self._job.n_rounds else "finish"
                returned = self._checked(returned, method, state.dim, state)
            if self._may_keep:
                returned = separate(frozen(returned), state)
            new = self.source.reframe(returned)
            fine = _within(new, self._largest)
            if np.count_nonzero(fine) < len(fine):
                self.alive = self.alive & fine
                everyone = False
            state = frozen(new if everyone else new.where(self.alive, state))
            yield number, batch, state


@dataclass(kw_only=True)
class ChunkResult:
    """Metrics, outcomes and final state of a chunk of trials."""

    metrics: dict[str, Array]
    status: list[Status]
    status_round: Indices
    final: State


def first_state(job: Job, trial: int) -> State:
    """Return the initial state of a trial."""
    with quiet():
        return _Chunk(job, range(trial, trial + 1)).initial_state()


def run_chunk(job: Job, trials: range, tick: Callable[[int], Any] = lambda rounds: None) -> ChunkResult:
    """Run all rounds of some trials; call `tick` with the number of completed rounds."""
    done = 0
    with quiet():
        for number, result in run_in_turns(job, trials):
            found = result
            if done < number <= job.n_rounds:
                tick(1)
                done = number
        tick(job.n_rounds - done)
    return found


def run_in_turns(job: Job, trials: range, held: Held | None = None) -> Iterator[tuple[int, ChunkResult]]:
    """Run some trials, and yield each round's number, from 0 on, and the results so far.

    The caller may advance several jobs in turns, or stop early. It calls this within `quiet`.

    Parameters
    ----------
    job : Job
    trials : range
        Numbers of the trials.
    held : dict, optional
        Fixed samples of other jobs, which may differ only in their algorithm. New ones are added.

    Yields
    ------
    int, ChunkResult
        The result is one object, updated in each round. Metrics are NaN in the rounds to come.
    """
    count = len(trials)
    chunk = _Chunk(job, trials, held)
    state = chunk.initial_state()
    seen = None if chunk.truth is None else chunk.source.truth_in_frame(chunk.truth)
    learned = state.for_prediction().B
    rank = 0 if learned is None else learned.shape[-1]
    samples = measured_samples(job, chunk.truth, chunk.source, trials)
    recorder = Recorder(job.plan.names, seen, rank, samples, job.plan.functions)
    history = {name: np.full((count, len(job.recorded)), np.nan) for name in job.plan.names}
    alive = chunk.alive
    status = [Status.COMPLETED if fine else Status.DIVERGED for fine in alive]
    status_round = np.where(alive, job.n_rounds, 0)
    columns = {int(round_): column for column, round_ in enumerate(job.recorded)}
    found = ChunkResult(metrics=history, status=status, status_round=status_round, final=state)

    def record(round_: int) -> ChunkResult:
        found.final = state
        if round_ in columns:
            for name, values in recorder.measure(state).items():
                history[name][:, columns[round_]] = values if alive.all() else np.where(alive, values, np.nan)
        return found

    yield 0, record(0)
    first = state
    for number, batch, new in chunk.rounds(state):
        state = new
        if chunk.alive is not alive or np.count_nonzero(batch.singular):
            for trial in np.flatnonzero(alive & ~chunk.alive):
                status[trial], status_round[trial] = Status.DIVERGED, number
            for trial in np.flatnonzero(chunk.alive & batch.singular):
                if status[trial] is Status.COMPLETED:
                    status[trial], status_round[trial] = Status.SINGULAR_HEAD, number
            alive = chunk.alive
        if number == job.n_rounds:
            for outcome, those in doubts(job, first, state, batch, chunk.source, chunk.truth):
                for trial in np.flatnonzero(alive & those):
                    if status[trial] is Status.COMPLETED:
                        status[trial] = outcome
        yield number, record(number)


def _opened(job: Job, trials: range) -> tuple[Truth | None, Source]:
    """Return the ground truth and the samples of some trials."""
    truth = None if job.problem is None else job.problem.truth(job.seed, trials)
    return truth, open_source(job.engine, job.data, truth, job.sizes, job.algorithm.learned_rank, job.seed, trials)


def _shared(job: Job, trials: range, held: Held) -> tuple[Truth | None, Source]:
    """Return the ground truth and the samples of some trials, from `held` if they are fixed; add new ones to it."""
    if isinstance(job.data, FreshSamples):
        return _opened(job, trials)
    place = job.engine, trials
    if place not in held:
        held[place] = _opened(job, trials)
    return held[place]


def _scale(job: Job, truth: Truth | None, trials: range) -> Array:
    if truth is not None:
        return truth.scale
    assert isinstance(job.data, GivenSamples)
    scale = job.data.predictor_scale
    return scale[list(trials)] if len(scale) > 1 else np.broadcast_to(scale, (len(trials),))


def _within(state: State, largest: Array) -> Mask:
    """Return the trials whose parameters are finite, with the squared norm of each array at most `largest`."""
    fine: Mask | None = None
    for array in state.arrays().values():
        flat = array.reshape(len(largest), -1)
        within: Mask = np.vecdot(flat, flat) <= largest  # false for NaN
        fine = within if fine is None else fine & within
    return np.ones(len(largest), dtype=bool) if fine is None else fine
