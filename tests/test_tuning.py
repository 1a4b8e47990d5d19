"""Tuning: the grid, its separate trials, its scores."""

import numpy as np
import pytest

import linfed as lf

PROBLEM = lf.SharedRepresentation(n_clients=20, dim=8, rank=2)
SETTING = {"data": lf.FreshSamples(8), "rounds": 30, "trials": 5}


def test_best_of_a_grid_is_the_least_score():
    grid = {"step_size": [0.05, 0.5, 40.0]}
    tuning = lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid=grid, **SETTING)
    assert tuning.settings == [{"step_size": step} for step in grid["step_size"]]
    assert tuning.best == np.argmin(tuning.scores) == 1
    assert tuning.algorithm == lf.FedRep(rank=2, step_size=0.5)
    assert tuning.curves.shape == (3, 31)
    assert tuning.at_edge == ()
    logs = np.log10(tuning.curves)
    np.testing.assert_allclose(tuning.scores, logs[:, 1:].mean(axis=1))


def test_edge_of_the_grid_is_reported():
    tuning = lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid={"step_size": [0.05, 0.5]}, **SETTING)
    assert tuning.at_edge == ("step_size",)


def test_tuning_trials_are_not_the_runs():
    algorithm = lf.FedRep(rank=2, step_size=0.5, init="random")
    tuning = lf.tune(algorithm, PROBLEM, grid={"step_size": [0.5]}, seed=3, **SETTING)
    run = lf.simulate(algorithm, PROBLEM, seed=3, metrics=["subspace_distance"], **SETTING)
    assert not np.isin(tuning.curves[0], run.metrics["subspace_distance"]).any()
    nested = lf.tune(algorithm, PROBLEM, grid={"step_size": [0.5]}, seed=(3, 1), **SETTING)
    assert not np.array_equal(nested.curves, tuning.curves)


def test_all_combinations_and_listed_settings():
    algorithm = lf.FedRep(rank=2, step_size=0.5, head_solver="gradient")
    both = lf.tune(algorithm, PROBLEM, grid={"step_size": [0.3, 0.5], "head_step_size": [0.2, 0.4]}, **SETTING)
    assert len(both.settings) == 4
    listed = lf.tune(algorithm, PROBLEM, grid=both.settings[1:3], **SETTING)
    np.testing.assert_array_equal(listed.scores, both.scores[1:3])


def test_diverged_settings_never_win():
    algorithm = lf.FedRep(rank=2, step_size=0.1, orthonormalize=False, head_solver="gradient", head_step_size=0.1)
    tuning = lf.tune(algorithm, PROBLEM, grid={"step_size": [1e6, 0.1]}, **SETTING)
    assert tuning.scores[0] == np.inf
    assert tuning.best == 1
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        lf.tune(algorithm, PROBLEM, grid={"step_size": [1e6, 1e7]}, **SETTING)


def test_scores_final_and_own():
    grid = {"step_size": [0.05, 0.5]}
    final = lf.tune(lf.FedRep(rank=2, step_size=1.0), PROBLEM, grid=grid, score="final", **SETTING)
    np.testing.assert_array_equal(final.scores, final.curves[:, -1])
    own = lf.tune(
        lf.FedRep(rank=2, step_size=1.0), PROBLEM, grid=grid, score=lambda rounds, curve: -curve[-1], **SETTING
    )
    assert own.best == np.argmax(final.scores)


@pytest.mark.parametrize(
    ("grid", "fragment"),
    [
        ({"step_sizes": [0.1]}, "did you mean 'step_size'"),
        ({"step_size": []}, "empty"),
        ({}, "names no hyper-parameter"),
        ([], "names no hyper-parameter"),
        ([{"step_size": 0.1}, {"head_steps": 2}], "different fields"),
    ],
)
def test_bad_grids(grid, fragment):
    with pytest.raises(ValueError, match=fragment):
        lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, grid=grid, **SETTING)


@pytest.mark.parametrize("algorithm", ["FedRep", lf.FedRep, None])
def test_an_algorithm_is_needed(algorithm):
    with pytest.raises(TypeError, match=r"algorithm = .* must be an algorithm, e.g. lf.FedRep\(rank=2"):
        lf.tune(algorithm, PROBLEM, grid={"step_size": [0.1]}, **SETTING)


# --- a metric of one's own -----------------------------------------------------------------------------------


def median_risk(result):
    return np.median(result.new_clients([4], clients=30), axis=(1, 2))


def test_a_metric_of_ones_own_is_measured_once_at_the_end():
    calls = []

    def metric(result):
        calls.append(result)
        return median_risk(result)

    grid = {"head_ridge": [1e-6, 0.05, 5.0]}
    problem = lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.5)
    tuning = lf.tune(lf.FedRep(rank=2, step_size=0.3), problem, grid=grid, metric=metric, seed=6, **SETTING)
    assert len(calls) == 3
    assert tuning.curves.shape == (3, 1)
    assert tuning.rounds.tolist() == [30]
    np.testing.assert_allclose(tuning.scores, np.log10(tuning.curves[:, 0]), rtol=1e-12)
    for result, curve, ridge in zip(calls, tuning.curves, grid["head_ridge"], strict=True):
        assert result.algorithm.head_ridge == ridge
        assert list(result.metrics) == []
        assert np.sort(median_risk(result))[2] == curve[0]  # the middle of five trials
        again = lf.simulate(result.algorithm, problem, seed=result.seed, **SETTING)
        assert np.array_equal(median_risk(again), median_risk(result))
    assert tuning.best == np.argmin(tuning.curves[:, 0]) == 1
    assert tuning.algorithm == lf.FedRep(rank=2, step_size=0.3, head_ridge=0.05)
    final = lf.tune(
        lf.FedRep(rank=2, step_size=0.3), problem, grid=grid, metric=metric, score="final", seed=6, **SETTING
    )
    np.testing.assert_array_equal(final.scores, tuning.curves[:, 0])
    assert final.algorithm == tuning.algorithm


def test_a_metric_of_ones_own_speaks_of_the_fine_tuned_state():
    algorithm = lf.FedAvg(step_size=0.1, rank=2, fine_tune="exact")

    def metric(result):
        assert result.final.W.shape == (5, 20, 2)
        return result.client_risks().mean(axis=1)

    arguments = {"grid": {"step_size": [0.05, 0.1]}, **SETTING, "data": lf.FixedSamples(8)}
    own = lf.tune(algorithm, PROBLEM, metric=metric, **arguments)
    assert own.rounds.tolist() == [31]
    known = lf.tune(algorithm, PROBLEM, metric="risk", score="final", **arguments)
    assert known.rounds.tolist() == list(range(32))
    np.testing.assert_allclose(own.curves[:, 0], known.curves[:, -1], rtol=1e-12)


def test_a_metric_of_ones_own_and_diverged_trials():
    algorithm = lf.FedPer(rank=2, step_size=0.1)
    arguments = {**SETTING, "metric": lambda result: result.client_risks().mean(axis=1)}
    tuning = lf.tune(algorithm, PROBLEM, grid={"step_size": [1e6, 0.1]}, **arguments)
    assert tuning.scores[0] == np.inf
    assert tuning.best == 1
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        lf.tune(algorithm, PROBLEM, grid={"step_size": [1e6, 1e7]}, **arguments)


def test_a_metric_of_ones_own_without_rounds():
    init = [np.eye(8)[:, :2], np.eye(8)[:, 2:4]]
    tuning = lf.tune(
        lf.FedRep(rank=2, step_size=0.1),
        PROBLEM,
        grid={"init": init},
        metric=lambda result: result.final.B[:, 0, 0],
        score="final",
        **SETTING | {"rounds": 0},
    )
    assert tuning.rounds.tolist() == [0]
    assert tuning.curves.tolist() == [[1.0], [0.0]]
    assert np.array_equal(tuning.algorithm.init.array, init[1])


@pytest.mark.parametrize(
    ("value", "shape"),
    [(np.ones((5, 2)), r"\(5, 2\)"), (np.ones(4), r"\(4,\)"), (1.0, r"\(\)"), (np.ones((5, 1)), "1")],
)
def test_a_metric_of_another_shape(value, shape):
    with pytest.raises(ValueError, match=rf"metric returned shape .*{shape}.*one value per trial, \(5,\)"):
        lf.tune(lf.LocalOnly(), PROBLEM, grid={"ridge": [0.1]}, metric=lambda result: value, **SETTING)


def test_a_metric_that_is_unknown():
    with pytest.raises(ValueError, match="did you mean 'risk'"):
        lf.tune(lf.LocalOnly(), PROBLEM, grid={"ridge": [0.1]}, metric="risks", **SETTING)


def test_unknown_score():
    with pytest.raises(ValueError, match="did you mean 'final'"):
        lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, grid={"step_size": [0.1]}, score="finale", **SETTING)
