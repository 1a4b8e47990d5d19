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


def test_unknown_score():
    with pytest.raises(ValueError, match="did you mean 'final'"):
        lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, grid={"step_size": [0.1]}, score="finale", **SETTING)
