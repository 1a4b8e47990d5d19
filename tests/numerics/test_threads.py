"""Threads: the same bits for any number of them, and how many a run uses."""

import multiprocessing
import os
import threading
import time
import warnings

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info

import linfed as lf
from linfed.data import rows
from linfed.numerics import linalg
from linfed.numerics.threads import VARIABLE, map_threads, thread_count
from linfed.simulation import job as jobs
from linfed.simulation import run
from linfed.system.machine import processors
from tests.helpers import assert_one_line

REGRESSION = lf.SharedRepresentation(n_clients=9, dim=7, rank=2, noise_std=0.1)
CLASSES = lf.Classes(n_clients=6, dim=5, rank=2, n_classes=3, classes_per_client=2)
RUNS = {
    "FedRep, fixed": (lf.FedRep(rank=2, step_size=0.3), REGRESSION, lf.FixedSamples(n_samples=6)),
    "FedRep, fresh": (lf.FedRep(rank=2, step_size=0.3), REGRESSION, lf.FreshSamples(n_samples=6)),
    "FedRep, gradient heads": (
        lf.FedRep(rank=2, step_size=0.3, heads=lf.GradientHeads(steps=3, step_size=0.1)),
        REGRESSION,
        lf.FixedSamples(n_samples=6),
    ),
    "FLUTE": (lf.FLUTE(rank=2, step_size=0.01, gamma1=0.25, gamma2=0.25), REGRESSION, lf.FixedSamples(n_samples=6)),
    "FedAvg": (lf.FedAvg(step_size=0.1, local_steps=2), REGRESSION, lf.FixedSamples(n_samples=6)),
    "classes": (
        lf.FedRep(rank=2, step_size=0.3, heads=lf.GradientHeads(steps=3, step_size=0.1), init="random"),
        CLASSES,
        lf.FixedSamples(n_samples=6),
    ),
}


def simulated(name, threads, monkeypatch, **options):
    monkeypatch.setenv(VARIABLE, str(threads))
    algorithm, problem, data = RUNS[name]
    engine = "explicit" if problem is REGRESSION else "auto"
    return lf.simulate(algorithm, problem, data=data, n_rounds=4, seed=1, engine=engine, **options)


def threads_for_anything(monkeypatch):
    monkeypatch.setattr(jobs, "THREAD_BYTES", 1.0)
    monkeypatch.setattr(jobs, "DRAWN_THREAD_BYTES", 1.0)


def same_bits(one, other):
    pairs = [(values, other.metrics[name]) for name, values in one.metrics.items()]
    pairs += [(array, other.final.arrays()[name]) for name, array in one.final.arrays().items()]
    return all(first.dtype == second.dtype and first.tobytes() == second.tobytes() for first, second in pairs)


@pytest.fixture
def pools(monkeypatch):
    """The threads of each call of `map_threads`."""
    used = []

    def counted(function, items, threads):
        used.append(threads)
        return map_threads(function, items, threads)

    monkeypatch.setattr(rows, "map_threads", counted)
    monkeypatch.setattr(run, "map_threads", counted)
    return used


@pytest.mark.long
@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("name", RUNS)
def test_threads_over_blocks_of_clients_change_no_bit(name, participation, monkeypatch, pools):
    monkeypatch.setattr(rows, "LARGE", 1)
    monkeypatch.setattr(rows, "FEW_CLIENTS", 1)
    monkeypatch.setattr(linalg, "CACHE_VALUES", 90)  # two or three clients in a block
    runs = [simulated(name, threads, monkeypatch, participation=participation) for threads in (1, 2, 3)]
    assert same_bits(runs[0], runs[1])
    assert same_bits(runs[0], runs[2])
    assert set(pools) == (set() if name == "classes" else {2, 3})


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_threads_over_trials_change_no_bit(name, monkeypatch, pools):
    threads_for_anything(monkeypatch)
    runs = [simulated(name, threads, monkeypatch, trials=5, progress=threads == 2) for threads in (1, 2, 8)]
    assert same_bits(runs[0], runs[1])
    assert same_bits(runs[0], runs[2])
    assert pools == [2, 5]


def test_small_rounds_and_functions_of_the_user_run_in_one_thread(monkeypatch, pools):
    simulated("FedRep, fixed", 4, monkeypatch, trials=5)
    threads_for_anything(monkeypatch)
    where = set()

    def metric(state, truth):
        where.add(threading.get_ident())
        return np.zeros(len(state.B))

    simulated("FedRep, fixed", 4, monkeypatch, trials=5, metrics=["subspace_distance", metric])
    assert (pools, where) == ([], {threading.get_ident()})


def test_the_number_of_threads(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert thread_count() == processors()
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "a process")
    assert thread_count() == 1  # in a worker process
    monkeypatch.setenv(VARIABLE, "3")
    assert thread_count() == 3
    assert list(map_threads(lambda item: thread_count(), range(3), 2)) == [1, 1, 1]


@pytest.mark.parametrize("value", ["0", "two", "1.5", ""])
def test_a_wrong_number_of_threads_is_refused(value, monkeypatch):
    monkeypatch.setenv(VARIABLE, value)
    assert_one_line(thread_count, [f"LINFED_NUM_THREADS = '{value}'", "positive integer"])


def test_results_come_in_order_with_the_callers_floating_point_warnings():
    def slow_first(item):
        time.sleep(0.02 if item == 0 else 0.0)
        return item, np.float64(1e200) ** 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(over="ignore"):
            assert [item for item, _ in map_threads(slow_first, range(6), 2)] == list(range(6))
        with np.errstate(over="raise"), pytest.raises(FloatingPointError):
            list(map_threads(slow_first, range(6), 2))


def test_blas_has_one_thread_meanwhile():
    def blas_threads(item):
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with ThreadpoolController().limit(limits=2, user_api="blas"):
        assert blas_threads(0) == {2}
        assert all(found == {1} for found in map_threads(blas_threads, range(4), 2))
        assert blas_threads(0) == {2}


def test_an_error_stops_the_other_threads(monkeypatch):
    """The second half of the trials would take minutes."""
    threads_for_anything(monkeypatch)
    monkeypatch.setenv(VARIABLE, "2")
    real, started = run.run_chunk, time.perf_counter()

    def fails_first(job, chunk, tick):
        if chunk.start == 0:
            time.sleep(0.1)
            raise KeyboardInterrupt
        return real(job, chunk, tick)

    monkeypatch.setattr(run, "run_chunk", fails_first)
    algorithm, problem, data = RUNS["FedRep, fixed"]
    with pytest.raises(KeyboardInterrupt):
        lf.simulate(algorithm, problem, data=data, n_rounds=10**6, trials=2, engine="explicit", record_every=10**6)
    both = threading.Barrier(2, timeout=10)  # both threads are free again
    assert sorted(map_threads(lambda _: both.wait(), range(2), 2)) == [0, 1]
    assert time.perf_counter() - started < 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_threads_of_its_own():
    assert list(map_threads(abs, [-1, 2], 2)) == [1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: this process has threads
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply_async(mapped).get(timeout=60) == [1, 2]


def mapped():
    return list(map_threads(abs, [-1, 2], 2))


def test_threads_keep_to_the_memory_budget(monkeypatch, pools):
    threads_for_anything(monkeypatch)
    with pytest.raises(lf.SizeError) as caught:
        simulated("FedRep, fixed", 1, monkeypatch, trials=5, memory_budget=1.0)
    number, unit = str(caught.value).split("about ")[1].split(" ")[:2]
    each = float(number) * 1000.0 ** ["B", "kB"].index(unit)
    for budget, threads in ((1.1, []), (2.1, [2]), (3.5, [3])):
        pools.clear()
        simulated("FedRep, fixed", 4, monkeypatch, trials=5, memory_budget=budget * each)
        assert pools == threads
