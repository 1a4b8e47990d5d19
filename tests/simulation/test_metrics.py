"""Metrics: the runs that they apply to, and functions as metrics."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed._names import is_share
from linfed.simulation.engines import ENGINES
from linfed.simulation.metrics import MetricFacts, classification, plan_metrics
from tests.helpers import assert_one_line, assert_same, normal

PROBLEM = lf.SharedRepresentation(n_clients=8, dim=9, rank=2, noise_std=0.1)
FEDREP = lf.FedRep(rank=2, step_size=0.3)
RUN = {"data": lf.FreshSamples(5), "n_rounds": 6, "trials": 5, "seed": 3, "participation": 0.5}


def run(metrics, **changes):
    arguments = RUN | changes
    return lf.simulate(
        arguments.pop("algorithm", FEDREP), arguments.pop("problem", PROBLEM), metrics=metrics, **arguments
    )


OF_CLASSES = {name for name, metric in lf.METRICS.items() if classification in metric.needs}


# --- the runs that they apply to -----------------------------------------------------------------------------


def test_a_subset_of_metrics_has_the_same_numbers():
    every, some = run(None), run(["risk", "subspace_distance", "risk"])
    assert list(some.metrics) == ["risk", "subspace_distance"]
    for name in some.metrics:
        assert np.array_equal(some.metrics[name], every.metrics[name])
    with pytest.raises(KeyError, match="absent: it was not requested"):
        some.metrics["parameter_error"]
    assert list(run("risk", trials=1).metrics) == ["risk"]
    assert list(run([], trials=1).metrics) == []


def test_metrics_of_given_data_without_a_truth():
    result = lf.simulate(FEDREP, data=lf.GivenSamples(normal(8, 5, 9), normal(8, 5)), n_rounds=3)
    assert result.final.B.shape == (1, 9, 2)
    assert list(result.metrics) == ["train_loss"]
    for name in lf.METRICS.keys() - {"train_loss", "test_loss", *OF_CLASSES}:
        with pytest.raises(KeyError, match="absent: it requires the ground truth"):
            result.metrics[name]


@pytest.mark.parametrize(
    ("algorithm", "absent"),
    [
        (lf.LocalOnly(), {"subspace_distance": "no representation", "mean_truncation_error": "no representation"}),
        (FEDREP, {"mean_truncation_error": "the ground truth has rank 2 <= k"}),
    ],
)
def test_a_metric_that_does_not_apply_is_absent(algorithm, absent):
    result = lf.simulate(algorithm, PROBLEM, data=lf.FreshSamples(5), n_rounds=1)
    absent = absent | dict.fromkeys(["train_loss", "test_loss"], "samples are fresh")
    assert set(result.metrics) == set(lf.METRICS) - set(absent) - OF_CLASSES
    for name, reason in absent.items():
        with pytest.raises(KeyError, match=f"absent: .*{reason}"):
            result.metrics[name]


def test_a_plan_is_for_regression_and_a_unique_subspace_by_default():
    run = MetricFacts(truth=True, reference=True, columns=2, truth_rank=3, fixed=True, held_out=True)

    def plan(wanted=None, argument="metrics", **changes):
        return plan_metrics(wanted, dataclasses.replace(run, **changes), argument=argument)

    errors = ("subspace_distance", "parameter_error", "mean_client_error", "mean_truncation_error", "risk")
    assert (plan().names, plan().functions) == (errors, {})
    assert plan() == plan(no_reference="", classes=0)
    wider = plan(truth_rank=2)
    assert wider.names == tuple(name for name in errors if name != "mean_truncation_error")
    assert plan(truth_rank=None).names == errors
    assert plan(columns=1, truth_rank=2).names == errors
    alone = plan(truth=False, reference=False)
    assert alone.names == ("train_loss", "test_loss")
    with pytest.raises(ValueError, match=r"^metrics = 'accuracy' does not apply: it exists only for classification$"):
        plan(["accuracy"])
    wanted = r"^metric = 'accuracy' does not apply: .*; use metric = 'subspace_distance' or .* or 'test_loss'$"
    with pytest.raises(ValueError, match=wanted):
        plan(["accuracy"], argument="metric")
    for name in ("subspace_distance", "mean_truncation_error"):
        assert plan(no_reference="equal").absent[name] == "equal"
        assert "no representation B" in plan(columns=0).absent[name]


def test_metrics_say_what_they_are():
    """The label and the axis of a metric follow from its name, so that a table of a file has them, too."""
    assert {name for name, metric in lf.METRICS.items() if metric.is_share} == {
        "accuracy",
        "own_class_accuracy",
        "train_accuracy",
    }
    for name, metric in lf.METRICS.items():
        assert (metric.name, metric.label) == (name, name.replace("_", " "))
    assert [is_share(name) for name in ("of.accuracy", "my_accuracy", "inaccuracy", "accuracy_of")] == [1, 1, 0, 0]
    with pytest.raises(TypeError):
        lf.METRICS["risk"] = None


# --- functions as metrics ------------------------------------------------------------------------------------


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
    with pytest.raises(KeyError, match="did you mean 'error_of_all'"):
        result.metrics["eror_of_all"]


def test_every_state_is_measured_once_at_recorded_rounds():
    seen = []

    def keeps(state, truth):
        seen.append(state)
        return np.arange(len(state.W))

    result = run([keeps], n_rounds=5, record_every=2)
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


@pytest.mark.parametrize("engine", ["explicit", "projected", "chain"])
def test_a_function_of_a_trial_does_not_depend_on_chunks_and_other_trials(engine, monkeypatch):
    wanted = [error_of_all, "risk", largest_head]
    whole = run(wanted, engine=engine)
    assert_same(run(wanted, engine=engine, trials=2), whole, second=slice(2))
    monkeypatch.setattr("linfed.simulation.job.CHUNK_BYTES", 1.0)
    assert_same(run(wanted, engine=engine), whole)


@pytest.mark.long
def test_a_function_has_the_same_values_in_worker_processes():
    wanted = [error_of_all, "risk", largest_head]
    assert_same(run(wanted, engine="chain", workers=2), run(wanted, engine="chain"))


def test_a_diverged_trial_is_nan_and_the_others_do_not_notice():
    B, W = 0.5 * normal(4, 9, 2), 0.5 * normal(4, 8, 2, seed=1)
    B[1] *= 40.0
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=(B, W))
    result = run(
        [error_of_all, "parameter_error"], algorithm=algorithm, data=lf.FixedSamples(12), trials=4, n_rounds=12
    )
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


def returning(value):
    def own(state, truth):
        return value

    return own


class Callable:
    def __call__(self, state, truth):
        return np.zeros(5)


def risk(state, truth):
    return np.zeros(len(state.W))


BAD = {
    "a lambda": ([lambda state, truth: np.zeros(5)], ["metrics contains <function", "no name"]),
    "an object": ([Callable()], ["metrics contains <", "no name"]),
    "a name of linfed's": ([risk], ["'risk', a built-in metric"]),
    "the function of that name": ([lf.subspace_distance], ["'subspace_distance', a built-in metric"]),
    "two of one name": ([returning(1), returning(2)], ["two functions named 'own'"]),
    "a typo beside it": ([largest_head, "risks"], ["metrics = 'risks'", "did you mean 'risk'?"]),
    "no function": ([largest_head, 3], ["metrics = 3"]),
    "a set": ({largest_head}, ["metrics = {"]),
    "one number": ([returning(1.0)], ["metric 'own' returned values = 1.0", "(trials,) = (5,)"]),
    "a list": ([returning([0.0] * 5)], ["metric 'own' returned values = [0.0", "(trials,) = (5,)"]),
    "nothing": ([returning(None)], ["metric 'own' returned values = None"]),
    "a number per client": ([returning(np.zeros((5, 8)))], ["metric 'own' returned values of shape (5, 8)", "(5,)"]),
    "truth values": ([returning(np.zeros(5, dtype=bool))], ["metric 'own' returned values of dtype bool"]),
    "texts": ([returning(np.array(["a"] * 5))], ["metric 'own' returned values of dtype <U1"]),
}


@pytest.mark.parametrize("name", BAD)
def test_a_function_that_cannot_be_a_metric_is_refused(name):
    metrics, fragments = BAD[name]
    assert_one_line(lambda: run(metrics), fragments, (TypeError, ValueError))


def test_a_local_function_cannot_be_sent_to_workers():
    fragments = ["metrics contains 'own'", "workers = 1", "module"]
    assert_one_line(lambda: run([returning(np.zeros(5))], workers=2), fragments)
    assert_one_line(lambda: run([returning(1.0)], workers=1), ["metric 'own'"], errors=TypeError)


def test_metrics_may_be_an_array_of_names():
    one, other = (lf.simulate(FEDREP, PROBLEM, metrics=metrics, **RUN) for metrics in (["risk"], np.array(["risk"])))
    assert list(one.metrics) == list(other.metrics) == ["risk"]
    assert_one_line(lambda: lf.simulate(FEDREP, PROBLEM, metrics=3, **RUN), ["metrics = 3"], TypeError)


def test_the_shortcut_error_is_that_of_the_predictors():
    problem = lf.SharedWithShortcuts(n_clients=8, dim=9, rank=2, shortcut_norm=0.5)
    algorithm = lf.APFL(step_size=0.1, mix=0.5)
    result = lf.simulate(algorithm, problem, metrics=[lf.shortcut_error], **RUN)
    truth = problem.truth(RUN["seed"], range(RUN["trials"]))
    assert np.array_equal(lf.shortcut_error(result.final, truth), result.metrics["shortcut_error"][:, -1])


def test_bases_of_different_numbers_of_trials_are_refused():
    call = lambda one, other: lf.subspace_distance(normal(one, 5, 2), normal(other, 5, 2, seed=1))  # noqa: E731
    assert_one_line(lambda: call(3, 4), ["(3, 5, 2) and (4, 5, 2)", "trials must agree"])
    assert call(1, 4).shape == (4,)
