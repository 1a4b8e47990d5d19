"""Jobs: the memory and the time that a trial needs, and how trials are divided into chunks, threads and pieces."""

import dataclasses
import math

import numpy as np
import pytest

import linfed as lf
from linfed.simulation import job
from linfed.simulation.engines import floats_per_trial
from linfed.simulation.job import Chunks
from linfed.system import memory
from tests.helpers import assert_one_line, normal

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=9, rank=3)
FEDREP = lf.FedRep(rank=2, step_size=0.3, init="random")
FIXED, FRESH = lf.FixedSamples(12), lf.FreshSamples(12)
COPY = 6 * 12 * 9
"""Floats of the second copy of few fixed samples, by feature."""


def made(algorithm=FEDREP, problem=PROBLEM, data=FIXED, **changes):
    """Return a job that records two metrics in rounds 0, 4, 8 and 10, of three clients in each."""
    told = {"n_rounds": 10, "participation": 0.5, "trials": 1, "seed": 0, "metrics": ["risk", "parameter_error"]}
    told |= {"record_every": 4, "engine": "explicit"}
    return job.checked_job(algorithm, problem, data, **told | changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(lf.FedRep):
    """FedRep in a module of the user's."""


# --- memory --------------------------------------------------------------------------------------------------


def test_a_trial_holds_its_samples_truth_states_and_metrics():
    """24 floats of a sample are its features at B and B*, label and noise; one and a half times as many clients."""
    one = made()
    assert one.sizes.features == 4 * (2 + 3) + 4
    rows, truth, state, metrics = (6 + 3) * 12 * (9 + 24), 3 * (6 + 9), 2 * (6 + 9), 2 * 4
    assert job.bytes_per_trial(one, math.inf) == 8 * (rows + COPY + 3 * truth + 6 * state + metrics)
    everyone = made(participation=1.0)
    assert job.bytes_per_trial(everyone, math.inf) == 8 * (6 * 12 * 33 + COPY + 3 * truth + 6 * state + metrics)
    moments = made(dataclasses.replace(FEDREP, init="moments"))
    assert job.bytes_per_trial(moments, math.inf) == job.bytes_per_trial(one, math.inf) + 8 * 3 * 9**2
    alone = made(problem=None, data=lf.GivenSamples(normal(6, 12, 9), normal(6, 12)), metrics=["train_loss"])
    assert alone.sizes.features == 4 * 2 + 4
    shared_rows = 3 * 12 * (9 + 1) + 3 * 12 * 12  # the participants' copies; the given arrays are there anyway
    assert job.bytes_per_trial(alone, math.inf) == 8 * (shared_rows + 6 * state + 4)


def test_a_trial_of_classes_has_a_row_and_a_bias_for_each_class():
    problem = lf.Classes(n_clients=5, n_classes=4, classes_per_client=2, dim=6, rank=2, test_samples=15)
    one = made(lf.GeneralFLUTE(rank=2, step_size=0.1), problem, metrics=["accuracy"], participation=0.4)
    assert one.sizes.features == 4 * (2 + (problem.truth_rank or 0)) + 4 + 4 * 4
    state = one.algorithm.floats_per_trial(n_clients=5 * 4, dim=6 + 1, participants=2 * 4)
    wanted = floats_per_trial("explicit", one.setting) + 3 * problem.floats_per_trial() + 6 * state + 4
    assert job.bytes_per_trial(one, math.inf) == 8 * wanted


def test_the_last_step_of_all_clients_is_counted():
    tuned = lf.FedAvg(rank=2, step_size=0.1, init="random", fine_tune=lf.ExactHeads())
    one = made(tuned, data=FRESH, participation=1)
    state = tuned.floats_per_trial(n_clients=6, dim=9, participants=1)
    metrics = 2 * 5  # also after the last step
    assert one.recorded.tolist() == [0, 4, 8, 10, 11]
    assert job.bytes_per_trial(one, math.inf) == 8 * (7 * 12 * 33 + 3 * 45 + 6 * state + metrics)
    one = made(tuned, participation=1)  # fixed samples are copied for the participants
    assert job.bytes_per_trial(one, math.inf) == 8 * (7 * 12 * 33 + COPY + 3 * 45 + 6 * state + metrics)


def test_a_budget_covers_a_trial_and_one_block_of_rows():
    one = made(dataclasses.replace(FEDREP, init="moments"))
    each, block = job.bytes_per_trial(one, math.inf), 8 * 3 * 6 * 12 * (9 + 1)
    assert job.bytes_per_trial(one, each + block) == each
    wanted = ["one trial needs about 55.5 kB at once", "data 52.9 kB, ground truth and state 2.52 kB"]
    assert_one_line(lambda: job.bytes_per_trial(one, each + block - 1), wanted, lf.SizeError)
    run = {"data": FIXED, "n_rounds": 1, "memory_budget": 1e3}
    assert_one_line(lambda: lf.simulate(FEDREP, PROBLEM, **run), ["memory_budget is 1 kB: use fewer"], MemoryError)
    one = made(dataclasses.replace(FEDREP, init="moments"), data=FRESH)
    assert_one_line(lambda: job.bytes_per_trial(one, 1.0), ["give init='random', which reads no samples"], MemoryError)


def test_results_are_joined_within_half_of_the_memory(monkeypatch):
    """28 floats of a state, two metrics in four rounds, the status and its round; in parts and joined."""
    one = dataclasses.replace(made(), trials=1000)
    needed = 8 * 2 * 1000 * (28 + 2 * 4 + 2)
    monkeypatch.setattr(memory, "physical_memory", lambda: 2.0 * needed)
    job.check_joined(one, 28.0)
    monkeypatch.setattr(memory, "physical_memory", lambda: 2.0 * needed - 1)
    wanted = ["trials = 1000 with 4 recorded rounds: joining the results would take about 608 kB"]
    assert_one_line(lambda: job.check_joined(one, 28.0), wanted, lf.SizeError)


def test_rounds_one_by_one_hold_all_trials_in_half_of_the_memory(monkeypatch):
    needed = 3 * job.bytes_per_trial(made(metrics=[], record_every=10), math.inf)
    run = {"data": FIXED, "n_rounds": 10, "participation": 0.5, "trials": 3, "engine": "explicit"}
    monkeypatch.setattr(memory, "physical_memory", lambda: 2.0 * needed)
    assert len(list(lf.iterate(FEDREP, PROBLEM, **run))) == 11
    monkeypatch.setattr(memory, "physical_memory", lambda: 2.0 * needed - 1)
    assert_one_line(lambda: lf.iterate(FEDREP, PROBLEM, **run), ["trials = 3 at once would take about"], lf.SizeError)


def test_recorded_rounds_fit_into_memory(monkeypatch):
    monkeypatch.setattr(job, "physical_memory", lambda: 800.0)
    assert len(made(n_rounds=100, record_every=1).recorded) == 101
    wanted = ["record_every = 1", "n_rounds = 101", "101 recorded rounds"]
    assert_one_line(lambda: made(n_rounds=101, record_every=1), wanted, lf.SizeError)
    assert len(made(n_rounds=201, record_every=2).recorded) == 102


def test_the_number_of_a_round_is_an_exact_float():
    assert made(n_rounds=2**53, record_every=2**53).recorded.tolist() == [0, 2**53]
    assert_one_line(lambda: made(n_rounds=2**53 + 1, record_every=2**53), [f"must be at most {2**53}"])


# --- chunks, threads and pieces ------------------------------------------------------------------------------


def test_chunks_are_ranges_of_nearly_equal_length():
    assert list(Chunks(10, 3, 5)) == [range(5, 8), range(8, 11), range(11, 15)]
    assert list(Chunks(4, 4)) == [range(place, place + 1) for place in range(4)]
    assert len(Chunks(10, 3, 5)) == 3


@pytest.mark.parametrize(
    ("trials", "workers", "budget", "number"),
    [(10, 1, 99.0, 3), (8, 1, 99.0, 2), (10, 2, 5.0, 5), (10, 4, 99.0, 4), (3, 8, 99.0, 3), (10, 1, 1.0, 10)],
)
def test_a_chunk_has_as_many_trials_as_fit(trials, workers, budget, number, monkeypatch):
    """Four trials in a chunk, or fewer in a worker's share of the budget; a chunk for each worker, if there are."""
    one = dataclasses.replace(made(), trials=trials)
    each = job.bytes_per_trial(one, math.inf)
    monkeypatch.setattr(job, "CHUNK_BYTES", 4.5 * each)
    chunks = job.trial_chunks(one, workers, budget * each)
    assert (chunks.trials, chunks.number, chunks.first) == (trials, number, 0)


def test_chunks_of_some_trials_begin_at_the_first_of_them():
    one = dataclasses.replace(made(), trials=10)
    assert list(job.trial_chunks(one, 2, math.inf, range(3, 8))) == [range(3, 5), range(5, 8)]


def test_a_chunk_takes_at_most_two_to_the_27th_bytes():
    each = job.bytes_per_trial(made(), math.inf)
    many = dataclasses.replace(made(), trials=int(2.5 * 2**27 / each))
    assert len(job.trial_chunks(many, 1, math.inf)) == 3


def test_chunks_are_made_when_their_turn_comes(monkeypatch):
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    chunks = job.trial_chunks(dataclasses.replace(made(), trials=10**12), 2, 1e9)
    assert (len(chunks), next(iter(chunks))) == (10**12, range(1))


@pytest.mark.parametrize(
    ("data", "engine", "least"),
    [(FIXED, "explicit", 2**24), (FRESH, "explicit", 2**22), (FRESH, "projected", 2**24)],
)
def test_threads_share_trials_that_take_enough_memory(data, engine, least, monkeypatch):
    """Rows that are drawn in every round are worth a thread earlier."""
    monkeypatch.setattr(job, "thread_count", lambda: 4)
    one = made(data=data, engine=engine)
    each = job.bytes_per_trial(one, math.inf)
    for share, threads in ((0.5, 1), (1.5, 1), (2.5, 2), (3.5, 3), (9.0, 4)):
        several = dataclasses.replace(one, trials=int(share * least / each) + 1)
        assert job.trial_threads(several, math.inf) == threads
    many = dataclasses.replace(one, trials=10**6)
    each += job.block_bytes(one)
    assert job.trial_threads(many, 3.5 * each) == 3
    assert job.trial_threads(many, 1.5 * each) == 1


def test_a_thread_has_a_trial_of_linfeds_own_classes(monkeypatch):
    monkeypatch.setattr(job, "thread_count", lambda: 4)
    monkeypatch.setattr(job, "THREAD_BYTES", 1.0)

    def threads(trials=9, **changes):
        return job.trial_threads(dataclasses.replace(made(**changes), trials=trials), math.inf)

    def metric(state, truth):
        return np.zeros(len(state.B))

    assert [threads(), threads(trials=3), threads(trials=1)] == [4, 3, 1]
    assert threads(metrics=[metric]) == threads(algorithm=Own(rank=2, step_size=0.3, init="random")) == 1
    given = lf.GivenSamples(normal(6, 12, 9), normal(6, 12))
    assert threads(problem=None, data=given, metrics=["train_loss"]) == 4
    monkeypatch.setattr(job, "thread_count", lambda: 1)
    assert threads() == 1


def test_a_float_takes_six_nanoseconds_in_a_round():
    for rounds, counted in ((10, 10), (1, 1), (0, 1)):
        one = made(n_rounds=rounds)
        wanted = job.bytes_per_trial(one, math.inf) / 8 * counted * 6e-9
        assert job.seconds_of_a_trial(one) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("seconds", "trials", "most", "number"),
    [(0.3, 10, 99, 3), (0.3, 2, 99, 1), (5.0, 10, 99, 10), (5.0, 10, 4, 4), (0.0, 10, 99, 1), (1e-9, 1, 99, 1)],
)
def test_pieces_of_a_run_take_about_a_second(seconds, trials, most, number, monkeypatch):
    monkeypatch.setattr(job, "seconds_of_a_trial", lambda job: seconds)
    monkeypatch.setattr(job, "MOST_PIECES", most)
    pieces = job.trials_of_a_second(dataclasses.replace(made(), trials=trials))
    assert (pieces.trials, pieces.number, pieces.first) == (trials, number, 0)


@pytest.mark.long
def test_final_states_beyond_memory_are_found_after_the_first_chunk(monkeypatch):
    """The size of a trial's result is known by then: B (9, 2) and W (6, 2), 30 numbers, and its status."""
    arguments = {"data": FRESH, "n_rounds": 1, "metrics": [], "trials": 1000}
    monkeypatch.setattr(job, "CHUNK_BYTES", 1e5)
    monkeypatch.setattr(memory, "physical_memory", lambda: 2 * 2 * 8 * 1000 * 31.9)
    assert_one_line(lambda: lf.simulate(FEDREP, PROBLEM, **arguments), ["trials = 1000", "512 kB"], lf.SizeError)
    monkeypatch.setattr(memory, "physical_memory", lambda: 2 * 2 * 8 * 1000 * 32.1)
    assert lf.simulate(FEDREP, PROBLEM, **arguments).trials == 1000
