"""Metrics of one's own: a function of state and truth among the names."""

import functools

import numpy as np
import pytest

import linfed as lf
from linfed.simulation.engines import ENGINES
from tests.helpers import assert_one_line, assert_same, each, normal

PROBLEM = lf.SharedRepresentation(n_clients=8, dim=9, rank=2, noise_std=0.1)
FEDREP = lf.FedRep(rank=2, step_size=0.3)
RUN = {"data": lf.FreshSamples(5), "rounds": 6, "trials": 5, "seed": 3, "participation": 0.5}


def error_of_all(state, truth):
    """Return what the metric parameter_error is, in dense form."""
    return np.linalg.norm(state.predictors() - truth.dense(), axis=(-2, -1))


def largest_head(state, truth):
    return np.abs(state.W).max(axis=(-2, -1))


def without_truth(state, truth):
    assert truth is None
    return np.linalg.norm(state.B, axis=(-2, -1))


def spoils_state(state, truth):
    state.W[:] = 0.0
    return np.zeros(len(state.W))


def spoils_truth(state, truth):
    truth.B[:] = 0.0
    return np.zeros(len(truth.B))


def run(metrics, **changes):
    arguments = RUN | changes
    return lf.simulate(
        arguments.pop("algorithm", FEDREP), arguments.pop("problem", PROBLEM), metrics=metrics, **arguments
    )


# --- what is recorded ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_function_is_recorded_beside_the_names(engine):
    data = lf.FixedSamples(12) if engine == "compressed" else lf.FreshSamples(5)
    result = run(["risk", error_of_all, "parameter_error", largest_head], engine=engine, data=data)
    assert list(result.metrics) == ["risk", "error_of_all", "parameter_error", "largest_head"]
    np.testing.assert_allclose(result.metrics["error_of_all"], result.metrics["parameter_error"], rtol=1e-10)
    assert np.array_equal(result.metrics["largest_head"][:, -1], np.abs(result.final.W).max(axis=(-2, -1)))
    named = run(["risk", "parameter_error"], engine=engine, data=data)
    for name, values in named.metrics.items():
        assert values.tobytes() == result.metrics[name].tobytes()


def test_a_function_alone_and_twice():
    assert list(run(error_of_all).metrics) == ["error_of_all"]
    result = run([error_of_all, "risk", error_of_all])
    assert list(result.metrics) == ["error_of_all", "risk"]
    with pytest.raises(KeyError, match="subspace_distance' is absent: it was not requested"):
        result.metrics["subspace_distance"]
    with pytest.raises(KeyError, match="did you mean 'error_of_all'"):
        result.metrics["eror_of_all"]


def test_every_state_is_measured_once_at_recorded_rounds():
    seen = []

    def keeps(state, truth):
        seen.append(state)
        return np.arange(len(state.W))

    result = run([keeps], rounds=5, record_every=2)
    assert result.rounds.tolist() == [0, 2, 4, 5]
    assert len(seen) == 4
    assert seen[-1] is result.final
    assert np.array_equal(result.metrics["keeps"], np.tile(np.arange(5.0)[:, None], (1, 4)))
    assert result.metrics["keeps"].dtype == np.float64


def test_data_without_a_truth():
    data = lf.GivenSamples(normal(8, 5, 9), normal(8, 5))
    result = run([without_truth, "train_loss"], problem=None, data=data)
    assert list(result.metrics) == ["without_truth", "train_loss"]
    assert np.isfinite(result.metrics["without_truth"]).all()


def test_the_end_is_measured():
    result = run([largest_head], algorithm=lf.FedAvg(step_size=0.05, rank=2, fine_tune=lf.ExactHeads(), init="random"))
    assert result.rounds[-1] == 7
    assert np.array_equal(result.metrics["largest_head"][:, -1], np.abs(result.final.W).max(axis=(-2, -1)))


# --- trials are on their own ---------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["explicit", "projected", "chain"])
def test_chunks_and_numbers_of_trials_change_no_bit(engine, monkeypatch):
    wanted = [error_of_all, "risk", largest_head]
    whole = run(wanted, engine=engine)
    assert_same(run(wanted, engine=engine, trials=2), whole, slice(None), slice(2))
    monkeypatch.setattr("linfed.simulation.job.CHUNK_BYTES", 1.0)
    assert_same(run(wanted, engine=engine), whole)


@pytest.mark.long
def test_worker_processes_change_no_bit():
    wanted = [error_of_all, "risk", largest_head]
    assert_same(run(wanted, engine="chain", workers=2), run(wanted, engine="chain"))


def test_a_diverged_trial_is_nan_and_the_others_do_not_notice():
    B, W = 0.5 * normal(4, 9, 2), 0.5 * normal(4, 8, 2, seed=1)
    B[1] *= 40.0
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=(B, W))
    result = run([error_of_all, "parameter_error"], algorithm=algorithm, data=lf.FixedSamples(12), trials=4, rounds=12)
    assert [status is lf.Status.DIVERGED for status in result.status] == [False, True, False, False]
    own, known = result.metrics["error_of_all"], result.metrics["parameter_error"]
    assert np.array_equal(np.isnan(own), np.isnan(known))
    assert np.isnan(own[1, result.status_round[1] :]).all()
    np.testing.assert_allclose(own, known, rtol=1e-10)


@pytest.mark.parametrize("engine", ["explicit", "chain"])
@pytest.mark.parametrize("spoils", [spoils_state, spoils_truth])
def test_a_metric_cannot_write(spoils, engine):
    with pytest.raises(ValueError, match="read-only"):
        run([spoils], engine=engine)


# --- the result ----------------------------------------------------------------------------------------------


def test_the_result_keeps_shows_and_draws_it(tmp_path):
    result = run([error_of_all, "risk"])
    loaded = lf.Result.load(result.save(tmp_path / "run.npz"))
    assert_same(loaded, result)
    assert loaded.metrics.absent == result.metrics.absent
    assert loaded.summary() == result.summary()
    assert "\nerror_of_all  " in result.summary()
    records = [record for record in result.to_records() if record["metric"] == "error_of_all"]
    assert [record["value"] for record in records] == result.metrics["error_of_all"].ravel().tolist()
    ax = loaded.plot("error_of_all")
    assert ax.get_ylabel() == "error of all"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.median(result.metrics["error_of_all"], axis=0))


def test_a_long_name_stands_in_its_column():
    def a_metric_of_a_rather_long_name(state, truth):
        return np.ones(len(state.W))

    *_, head, first, second = run(["risk", a_metric_of_a_rather_long_name]).summary().splitlines()
    assert len(head) == len(first) == len(second)


# --- bad functions -------------------------------------------------------------------------------------------


def risk(state, truth):
    return np.zeros(len(state.W))


@pytest.mark.parametrize("algorithm", [lf.LocalOnly(), lf.FedRep(rank=2, step_size=0.1)], ids=["local", "none"])
def test_the_shortcut_error_is_of_the_full_dimensional_part_alone(algorithm):
    problem = lf.SharedWithShortcuts(n_clients=8, dim=6, rank=2, shortcut_norm=0.5)
    run = {"data": lf.FixedSamples(9), "rounds": 2, "trials": 3, "metrics": [lf.shortcut_error]}
    result, S = lf.simulate(algorithm, problem, **run), problem.truth(0, range(3)).S
    left = (result.final.predictors() if isinstance(algorithm, lf.LocalOnly) else 0.0) - S
    wanted = np.sqrt(np.sum(left**2, axis=(1, 2)))
    np.testing.assert_allclose(result.metrics["shortcut_error"][:, -1], wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="requires a ground truth with shortcuts"):
        lf.shortcut_error(result.final, None)


def returning(value):
    def own(state, truth):
        return value

    return own


class Callable:
    def __call__(self, state, truth):
        return np.zeros(5)


BAD = {
    "a lambda": ([lambda state, truth: np.zeros(5)], ["metrics contains <function", "no name", "def"]),
    "a partial": ([functools.partial(largest_head, truth=None)], ["metrics contains functools.partial", "no name"]),
    "an object": ([Callable()], ["metrics contains <", "no name"]),
    "a name of linfed's": ([risk], ["'risk', a built-in metric", "rename the function"]),
    "the function of that name": ([lf.subspace_distance], ["'subspace_distance', a built-in metric", "pass the name"]),
    "two of one name": ([returning(1), returning(2)], ["two functions named 'own'"]),
    "a typo beside it": ([largest_head, "risks"], ["metrics = 'risks'", "did you mean 'risk'?"]),
    "no function": ([largest_head, 3], ["metrics = 3", "allowed"]),
    "a set": ({largest_head}, ["metrics = {", "names or functions"]),
    "one number": ([returning(1.0)], ["metric 'own' returned values = 1.0", "(trials,) = (5,)"]),
    "a list": ([returning([0.0] * 5)], ["metric 'own' returned values = [0.0", "(trials,) = (5,)"]),
    "nothing": ([returning(None)], ["metric 'own' returned values = None"]),
    "a number per client": ([returning(np.zeros((5, 8)))], ["metric 'own' returned values of shape (5, 8)", "(5,)"]),
    "too few": ([returning(np.zeros(4))], ["metric 'own' returned values of shape (4,)"]),
    "truth values": ([returning(np.zeros(5, dtype=bool))], ["metric 'own' returned values of dtype bool"]),
    "complex": ([returning(np.zeros(5, dtype=complex))], ["metric 'own' returned values of dtype complex128"]),
    "texts": ([returning(np.array(["a"] * 5))], ["metric 'own' returned values of dtype <U1"]),
}


@each("name", BAD)
def test_a_function_that_cannot_be_a_metric_raises_one_line(name):
    metrics, fragments = BAD[name]
    assert_one_line(lambda: run(metrics), fragments, errors=(TypeError, ValueError))


def test_workers_cannot_be_told_of_a_local_function():
    fragments = ["metrics contains 'own'", "workers = 1", "module"]
    assert_one_line(lambda: run([returning(np.zeros(5))], workers=2), fragments)
    assert_one_line(lambda: run([returning(1.0)], workers=1), ["metric 'own'"], errors=TypeError)
