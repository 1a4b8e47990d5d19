"""Runs round by round: the bits of `simulate`, the states at both ends, and batches that can be used in between."""

import dataclasses

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import linfed as lf
from linfed.simulation.engines import ENGINES
from linfed.simulation.loop import Round
from linfed.simulation.metrics import Recorder
from tests.helpers import assert_one_line, assert_same, normal, rounds_of

SHARED = lf.SharedRepresentation(n_clients=6, dim=9, rank=2, noise_std=0.3)
DENSE = lf.UnderParameterized(n_clients=6, dim=9, noise_std=0.3)
FLUTE = lf.FLUTE(rank=2, step_size=0.05, init=lf.SmallRandom(0.5))
FEDREP = lf.FedRep(rank=2, step_size=0.3)
RUNS = {
    "FLUTE, explicit": (FLUTE, DENSE, lf.FixedSamples(12), {"engine": "explicit"}),
    "FLUTE, fresh, some take part": (FLUTE, DENSE, lf.FreshSamples(4), {"participation": 0.5}),
    "FLUTE, projected": (FLUTE, SHARED, lf.FreshSamples(4), {"engine": "projected"}),
    "FLUTE, chain": (FLUTE, SHARED, lf.FreshSamples(4), {"engine": "chain", "participation": 2}),
    "FedRep": (FEDREP, SHARED, lf.FixedSamples(5), {"participation": 0.5}),
    "FedRep, chain": (FEDREP, SHARED, lf.FreshSamples(5), {"engine": "chain"}),
    "FedAvg, fine-tuned": (
        lf.FedAvg(step_size=0.05, rank=2, fine_tune=lf.ExactHeads(), init="random"),
        SHARED,
        lf.FixedSamples(5),
        {"participation": 0.5},
    ),
    "FedAvg, fine-tuned, fresh": (
        lf.FedAvg(step_size=0.05, rank=2, fine_tune=lf.GradientHeads(steps=10), init="random"),
        SHARED,
        lf.FreshSamples(12),
        {"engine": "compressed"},
    ),
    "FedRoD": (
        lf.FedRoD(rank=2, step_size=0.05, fine_tune=lf.ExactHeads()),
        SHARED,
        lf.FreshSamples(12),
        {"engine": "compressed"},
    ),
}


ARGUMENTS = {"n_rounds": 6, "trials": 3, "seed": (4, 2)}


def both(name, **changes):
    algorithm, problem, data, more = RUNS[name]
    arguments = ARGUMENTS | more | changes
    result = lf.simulate(algorithm, problem, data=data, **arguments)
    return result, lf.iterate(algorithm, problem, data=data, **arguments)


def same(one, other):
    arrays, others = one.arrays(), other.arrays()
    assert type(one) is type(other)
    assert arrays.keys() == others.keys()
    return all(
        np.ascontiguousarray(array).tobytes() == np.ascontiguousarray(others[key]).tobytes()
        for key, array in arrays.items()
    )


# --- the rounds of simulate ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_the_rounds_are_those_of_simulate_to_the_last_bit(name):
    result, steps = both(name)
    steps = list(steps)
    assert [step.number for step in steps] == result.rounds.tolist()
    assert same(steps[-1].after, result.final)
    assert all(step.alive.all() for step in steps)
    if result.engine != "chain":
        truth = result.problem.truth(result.seed, range(3))
        B = steps[0].after.B
        recorder = Recorder(list(result.metrics), truth, 0 if B is None else B.shape[-1])
        for column, step in enumerate(steps):
            for metric, values in recorder.measure(step.after).items():
                assert values.tobytes() == np.ascontiguousarray(result.metrics[metric][:, column]).tobytes()


@pytest.mark.parametrize("name", RUNS)
def test_a_round_begins_where_the_last_one_ended(name):
    kept, last = [], None
    for step in both(name)[1]:
        assert step.before is (step.after if last is None else last)
        last = step.after
        kept.append((last, {key: array.copy() for key, array in last.arrays().items()}))
    for state, arrays in kept:  # earlier states survive the run
        assert all(np.array_equal(array, arrays[key]) for key, array in state.arrays().items())
    assert not same(kept[0][0], kept[-1][0])


def test_a_chunk_is_no_part_of_the_rounds(monkeypatch):
    """`simulate` may cut its trials into chunks; `iterate` holds them all."""
    monkeypatch.setattr("linfed.simulation.job.CHUNK_BYTES", 1.0)
    result, steps = both("FLUTE, fresh, some take part")
    last = list(steps)[-1]
    assert last.after.B.shape[0] == 3
    assert same(last.after, result.final)


def test_the_initial_state_is_round_0_and_has_no_batch():
    steps = both("FLUTE, explicit")[1]
    initial, first = next(steps), next(steps)
    for number, step in enumerate([initial, first]):
        assert isinstance(step, Round)
        assert (step.number, step.alive.shape, step.alive.dtype) == (number, (3,), np.dtype(bool))
        assert not step.alive.flags.writeable
        assert not step.after.B.flags.writeable
        assert "batch" not in repr(step)
    assert first.before is initial.after is initial.before
    assert first.batch.active.shape == (3, 6)
    assert_one_line(lambda: initial.batch, ["round 0 is the initial state", "no batch", "a later round"])


@pytest.mark.parametrize("name", ["FLUTE, explicit", "FedAvg, fine-tuned"])
def test_no_rounds(name):
    result, steps = both(name, n_rounds=0)
    steps = list(steps)
    assert [step.number for step in steps] == list(range(1 + result.algorithm.finishes))
    assert same(steps[-1].after, result.final)


def test_the_end_sees_all_clients():
    steps = list(both("FedAvg, fine-tuned")[1])[1:]
    assert [step.batch.active.shape for step in steps] == [(3, 3)] * 6 + [(3, 6)]
    assert steps[-1].before.W.shape == (3, 1, 2)
    assert steps[-1].after.W.shape == (3, 6, 2)
    assert np.array_equal(steps[-1].after.B, steps[-1].before.B)


def test_two_runs_at_once_do_not_disturb_each_other():
    wanted = [list(both(name)[1])[-1].after for name in ("FLUTE, fresh, some take part", "FedRep, chain")]
    pair = [both(name)[1] for name in ("FLUTE, fresh, some take part", "FedRep, chain")]
    for steps in zip(*pair, strict=True):
        last = [step.after for step in steps]
    assert all(same(one, other) for one, other in zip(last, wanted, strict=True))


class Counting(lf.Algorithm):
    """Returns views of one array, into which it writes in every round."""

    requires = lf.Requires.ROWS

    def __init__(self):
        self.models = np.zeros((1, 6, 9))

    def initial_state(self, start):
        return lf.State(S=self.models[:])

    def step(self, state, batch, rng):
        self.models += 1.0
        return lf.State(S=self.models[:])


def test_states_do_not_change_if_the_algorithm_writes_into_an_array_that_it_returned():
    rounds = lf.iterate(Counting(), SHARED, data=lf.FixedSamples(5), n_rounds=2)
    assert [one.after.S[0, 0, 0] for one in list(rounds)] == [0.0, 1.0, 2.0]


def test_one_may_stop_early():
    steps = both("FLUTE, explicit")[1]
    third = [next(steps) for _ in range(4)][-1]
    steps.close()
    assert list(steps) == []
    assert same(third.after, list(both("FLUTE, explicit", n_rounds=3)[1])[-1].after)


def test_given_samples_without_a_truth():
    data = lf.FixedSamples(12).draw(DENSE, trials=3, seed=(4, 2))
    last = list(lf.iterate(FLUTE, data=data, n_rounds=6, seed=(4, 2), engine="explicit"))[-1]
    assert same(last.after, both("FLUTE, explicit")[0].final)


# --- divergence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
def test_a_diverged_trial_stays_at_its_last_finite_state_and_the_others_do_not_notice(engine):
    B, W = 0.5 * normal(4, 9, 2), 0.5 * normal(4, 6, 2, seed=1)
    large = B * np.array([1.0, 40.0, 1.0, 1.0])[:, None, None]  # too large for the step
    arguments = {"data": lf.FixedSamples(12), "n_rounds": 12, "seed": 1, "engine": engine}
    calm, algorithm = (lf.FLUTE(rank=2, step_size=0.02, init=(one, W)) for one in (B, large))
    result = lf.simulate(algorithm, DENSE, **arguments)
    others = [0, 2, 3]
    assert [status is lf.Status.DIVERGED for status in result.status] == [False, True, False, False]
    fatal = result.status_round[1]
    assert 1 < fatal < 12
    steps = list(lf.iterate(algorithm, DENSE, **arguments))
    assert len(steps) == 13
    for step in steps:
        assert step.alive.tolist() == [True, step.number < fatal, True, True]
        if step.number >= fatal:
            assert np.array_equal(step.before.B[1], step.after.B[1])
            assert np.array_equal(step.before.W[1], step.after.W[1])
        assert np.isfinite(step.after.B).all()
    assert same(steps[-1].after, result.final)
    for name, values in result.metrics.items():
        assert np.isnan(values[1, fatal:]).all(), name
        assert np.isfinite(values[1, :fatal]).all(), name
        assert np.isfinite(values[others]).all(), name
    expected = lf.simulate(calm, DENSE, **arguments)
    assert expected.status == [lf.Status.COMPLETED] * 4
    for trial in others:
        assert_same(result, expected, [trial], [trial], n_rounds=13)
        assert np.array_equal(result.final.B[trial], expected.final.B[trial])


@pytest.mark.parametrize("engine", ENGINES)
def test_rounds_end_when_every_trial_has_diverged(engine):
    algorithm = lf.FLUTE(rank=2, step_size=100.0, init=lf.SmallRandom(1.0))
    arguments = {"data": lf.FreshSamples(12), "n_rounds": 50, "trials": 3, "engine": engine}
    result = lf.simulate(algorithm, SHARED, **arguments)
    assert result.status == [lf.Status.DIVERGED] * 3
    steps = list(lf.iterate(algorithm, SHARED, **arguments))
    assert steps[-1].number == result.status_round.max() < 50
    assert not steps[-1].alive.any()
    assert same(steps[-1].after, result.final)
    assert np.isfinite(result.final.B).all()


def test_a_start_beyond_the_limit_has_diverged_in_round_0():
    algorithm = lf.FLUTE(rank=2, step_size=0.1, init=(1e200 * normal(9, 2), normal(6, 2)))
    result = lf.simulate(algorithm, DENSE, data=lf.FixedSamples(5), n_rounds=5)
    assert (result.status, result.status_round.tolist()) == ([lf.Status.DIVERGED], [0])
    assert all(np.isnan(values).all() for values in result.metrics.values())
    (initial,) = lf.iterate(algorithm, DENSE, data=lf.FixedSamples(5), n_rounds=5)
    assert initial.alive.tolist() == [False]
    assert same(initial.after, result.final)


# --- batches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True], ids=["drawn ahead", "drawn when read"])
@pytest.mark.parametrize("data", [lf.FreshSamples(12), lf.FixedSamples(12)], ids=["fresh", "fixed"])
@pytest.mark.parametrize("engine", ["explicit", "compressed"])
@pytest.mark.parametrize("algorithm", [FLUTE, FEDREP], ids=["FLUTE", "FedRep"])
def test_a_batch_can_be_used_until_the_next_round_and_changes_nothing(algorithm, data, engine, streamed, monkeypatch):
    if streamed:
        monkeypatch.setattr("linfed.data.sources.CACHE_VALUES", 0)
        monkeypatch.setattr("linfed.numerics.linalg.CACHE_VALUES", 200)
    arguments = {"data": data, "n_rounds": 5, "trials": 2, "participation": 0.5, "engine": engine}
    final = lf.simulate(algorithm, DENSE, **arguments).final
    before = None
    for step in rounds_of(algorithm, DENSE, **arguments):
        batch = step.batch
        chosen = step.before.take_clients("W", batch.active)
        theta = chosen @ np.swapaxes(step.before.B, -1, -2)
        messages = batch.gradient(theta)
        X, y = batch.X, batch.y
        A, b = batch.normal_equations()
        np.testing.assert_allclose(messages, (A @ theta[..., None])[..., 0] - b, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(A, np.swapaxes(X, -1, -2) @ X / 12, rtol=1e-10, atol=1e-10)
        assert batch.loss(theta).shape == y.shape[:2]
        if algorithm is FLUTE:  # the step of these very rows
            balance = np.swapaxes(step.before.B, -1, -2) @ step.before.B - np.swapaxes(chosen, -1, -2) @ chosen
            moved = step.before.B - 0.05 * np.swapaxes(messages, -1, -2) @ chosen - 0.025 * step.before.B @ balance
            np.testing.assert_allclose(step.after.B, moved, rtol=1e-10, atol=1e-12)
        assert before is None or not np.array_equal(before, X) or isinstance(data, lf.FixedSamples)
        before = X.copy()
        last = step
    assert same(last.after, final)


@pytest.mark.parametrize("engine", ["projected", "chain"])
def test_a_batch_that_has_no_samples_says_so(engine):
    step = next(rounds_of(FLUTE, SHARED, data=lf.FreshSamples(5), n_rounds=1, engine=engine))
    for question in (
        lambda: step.batch.gradient(np.zeros((1, 1, 9))),
        lambda: step.batch.project(step.after.B),
        lambda: step.batch.normal_equations(),
    ):
        with pytest.raises(lf.EngineError, match="does not support batch"):
            question()


# --- settings of the caller ----------------------------------------------------------------------------------


def threads():
    return [pool["num_threads"] for pool in ThreadpoolController().info() if pool["user_api"] == "blas"]


def test_the_callers_settings_are_its_own_between_the_rounds():
    algorithm = lf.FLUTE(rank=2, step_size=100.0, init=lf.SmallRandom(1.0))
    outside, handling = threads(), np.geterr()
    with np.errstate(over="raise", invalid="raise", divide="raise", under="ignore"):
        inside = np.geterr()
        steps = lf.iterate(algorithm, SHARED, data=lf.FreshSamples(12), n_rounds=50, engine="explicit")
        assert (np.geterr(), threads()) == (inside, outside)
        count = 0
        for _step in steps:
            count += 1
            assert (np.geterr(), threads()) == (inside, outside)
            with pytest.raises(FloatingPointError):
                np.float64(1.0) / np.float64(0.0)
        assert count > 1
        assert (np.geterr(), threads()) == (inside, outside)
    assert (np.geterr(), threads()) == (handling, outside)


def test_a_limit_of_the_callers_own_survives():
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        wanted = threads()
        for _step in both("FLUTE, explicit")[1]:
            assert threads() == wanted
        steps = both("FLUTE, explicit")[1]
        next(steps)
        steps.close()
        assert threads() == wanted


def test_settings_survive_a_step_that_raises():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Failing(lf.FLUTE):
        def step(self, state, batch, rng):
            raise RuntimeError("a step of the user's own")

    outside, handling = threads(), np.geterr()
    steps = rounds_of(Failing(rank=2, step_size=0.1), DENSE, data=lf.FreshSamples(5), n_rounds=3)
    with pytest.raises(RuntimeError, match="user's own"):
        next(steps)
    assert (np.geterr(), threads()) == (handling, outside)


# --- invalid arguments ---------------------------------------------------------------------------------------

BAD = {
    "no algorithm": ({"algorithm": "FLUTE"}, ["algorithm = 'FLUTE'"]),
    "engine that cannot": ({"engine": "compressed"}, ["m = 5 is at most d"]),
    "one trial too large": (
        {"problem": lf.UnderParameterized(n_clients=10**7, dim=10**5, rank=3), "data": lf.FixedSamples(10**5)},
        ["one trial needs about"],
    ),
}
"""One argument of each check of `simulate`, which checks them all."""


@pytest.mark.parametrize("name", BAD)
def test_invalid_arguments_raise_at_the_call(name):
    changes, fragments = BAD[name]
    arguments = {"algorithm": FLUTE, "problem": DENSE, "data": lf.FreshSamples(5), "n_rounds": 3} | changes
    assert_one_line(lambda: lf.iterate(**arguments), fragments, (TypeError, ValueError, lf.EngineError, lf.SizeError))


def test_rounds_have_no_metrics():
    with pytest.raises(TypeError, match="metrics"):
        lf.iterate(FLUTE, DENSE, data=lf.FreshSamples(5), n_rounds=3, metrics=["risk"])
