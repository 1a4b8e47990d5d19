"""The loop: one algorithm, one problem, all trials and clients at once.

Inside a chunk of trials everything is an axis; the only loop is over rounds. `run_chunk` goes through it to the end and
keeps what is measured, `iterate` hands out every round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed._values import readonly
from linfed.algorithms.base import Algorithm, State, frozen
from linfed.algorithms.checked import check_state
from linfed.data.batch import Batch
from linfed.data.samples import Data, GivenSamples
from linfed.numerics.linalg import quiet
from linfed.numerics.streams import Seed, TrialRandom
from linfed.problems import Problem, Truth
from linfed.simulation.engines import open_source
from linfed.simulation.job import Job, bytes_per_trial, checked_job
from linfed.simulation.measured import measured_samples
from linfed.simulation.metrics import Recorder
from linfed.simulation.participation import Participants, Participation
from linfed.simulation.start import ResolvedStart
from linfed.simulation.status import Status
from linfed.system.memory import budget_bytes, check_fits

DIVERGENCE_MULTIPLE = 1e12
"""A parameter array whose norm exceeds this multiple of the truth's scale (or that of given labels; at least 1)
has diverged."""


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
            classes=self._job.sizes.classes,
            like=like,
        )

    def _batches(self) -> Iterator[tuple[int, Batch, Callable[[State, Batch, TrialRandom], State]]]:
        """Yield number, batch and what is to be done with it, while a trial is left."""
        job = self._job
        for round_ in range(1, job.rounds + 1):
            if not self.alive.any():
                break
            yield round_, self.source.round(self._participants.next(), round_), job.algorithm.step
        if job.algorithm.finishes:
            yield job.rounds + 1, self.source.everyone(job.rounds + 1), job.algorithm.finish

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


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What a chunk of trials gives back."""

    metrics: dict[str, Array]
    status: list[Status]
    status_round: Indices
    final: State


def first_state(job: Job, trial: int) -> State:
    """Return the state with which a trial's run begins."""
    with quiet():
        return _Chunk(job, range(trial, trial + 1)).initial_state()


def run_chunk(job: Job, trials: range, tick: Callable[[int], Any] = lambda rounds: None) -> Piece:
    """Run some trials to the end."""
    count = len(trials)
    with quiet():
        chunk = _Chunk(job, trials)
        state = chunk.initial_state()
        seen = None if chunk.truth is None else chunk.source.seen(chunk.truth)
        learned = state.served().B
        rank = 0 if learned is None else learned.shape[-1]
        samples = measured_samples(job, chunk.truth, chunk.source, trials)
        recorder = Recorder(job.plan.names, seen, rank, samples, job.plan.own)
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
    return Piece(metrics=history, status=status, status_round=status_round, final=state)


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
