"""Tuning: the grid, its separate trials, its scores."""

import dataclasses
import warnings
from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed.search.tuning import tuning_seed
from linfed.tables.grid import at_path

PROBLEM = lf.SharedRepresentation(n_clients=20, dim=8, rank=2)
SETTING = {"data": lf.FreshSamples(8), "rounds": 30, "trials": 5}


def test_best_of_a_grid_is_the_least_score():
    grid = {"step_size": [0.05, 0.5, 40.0]}
    tuning = lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid=grid, **SETTING)
    assert tuning.settings == [{"step_size": step} for step in grid["step_size"]]
    assert tuning.best == np.argmin(tuning.scores) == 1
    assert tuning.algorithm == lf.FedRep(rank=2, step_size=0.5)
    assert tuning.curves.shape == (3, 31)
    assert tuning.at_grid_edge == ()
    logs = np.log10(tuning.curves)
    np.testing.assert_allclose(tuning.scores, logs[:, 1:].mean(axis=1))


def test_columns_tell_the_settings_in_other_terms():
    tuning = lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid={"step_size": [0.5, 40.0, 0.05]}, **SETTING)
    own = tuning.columns()
    told = tuning.columns([{"per_cent": 100 * step, "size": size} for step, size in ((0.5, 1), (40.0, 2), (0.05, 3))])
    assert (told["per_cent"], told["size"], told["best"], own["at_grid_edge"], told["at_grid_edge"]) == (
        50.0,
        1,
        0,
        "",
        "size",
    )
    assert told["tried_per_cent"].values.tolist() == [50.0, 4000.0, 5.0]
    assert np.array_equal(told["score"].values, own["score"].values)


def test_edge_of_the_grid_is_reported():
    said = r"best step_size = 0.5 is the largest value of its grid \[0.05, 0.5\].*outside.*extend=True"
    with pytest.warns(lf.GridEdgeWarning, match=said):
        tuning = lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid={"step_size": [0.5, 0.05]}, **SETTING)
    assert tuning.at_grid_edge == ("step_size",)
    with pytest.warns(lf.GridEdgeWarning, match="best step_size = 0.5 is the smallest value of its grid"):
        lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid={"step_size": [0.5, 40.0]}, **SETTING)


# --- ties ----------------------------------------------------------------------------------------------------


def final_of(scores, margin=None):
    """Tune over steps whose final scores are given: the metric only looks them up."""
    by_step = dict(zip((0.1, 0.2, 0.3, 0.4), scores, strict=True))
    return lf.tune(
        lf.FedRep(rank=2, step_size=9.0),
        PROBLEM,
        grid={"step_size": list(by_step)},
        metric=lambda result: np.full(result.trials, by_step[result.algorithm.step_size]),
        score="final",
        **({} if margin is None else {"margin": margin}),
        **SETTING | {"rounds": 1},
    )


@pytest.mark.parametrize(
    ("scores", "margin", "step"),
    [
        ((9.0, 1.009, 1.0, 1.0), None, 0.2),
        ((9.0, 1.011, 1.0, 1.009), None, 0.3),
        ((9.0, 1.011, 1.0, 2.0), 0.02, 0.2),
        ((9.0, np.nextafter(1.0, 2.0), 1.0, 2.0), 0.0, 0.3),
        ((9.0, -0.995, -1.0, 0.0), None, 0.2),
        ((9.0, 1e-300, 0.0, 0.0), None, 0.3),
        ((np.nan, np.nan, 1.0, 2.0), None, 0.3),
    ],
)
def test_the_smallest_step_within_the_margin_is_taken(scores, margin, step):
    tuning = final_of(scores, margin)
    assert tuning.algorithm.step_size == step
    assert tuning.settings[tuning.best] == {"step_size": step}


def test_a_tie_that_reaches_an_edge_does_not_warn():
    """Warnings are errors here: the choice is the grid's first step, but those inside are as good."""
    tuning = final_of((1.0, 1.0, 0.9999, 5.0))
    assert tuning.algorithm.step_size == 0.1
    assert tuning.at_grid_edge == ("step_size",)
    assert final_of((5.0, 1.0, 1.0, 0.9999)).at_grid_edge == ()
    with pytest.warns(lf.GridEdgeWarning, match="0.4 is the largest"):
        assert final_of((5.0, 1.0, 1.0, 0.98)).at_grid_edge == ("step_size",)


@pytest.mark.long
def test_exact_heads_on_fixed_data_end_at_one_point_whatever_the_step():
    """What rounding prefers among them is not what tuning takes."""
    problem = lf.SharedRepresentation(n_clients=30, dim=8, rank=2, noise_std=0.1)
    grid = [1.0, 0.01, 0.3, 0.5, 0.7]
    tuning = lf.tune(
        lf.FedRep(rank=2, step_size=1.0),
        problem,
        grid={"step_size": grid},
        data=lf.FixedSamples(10),
        rounds=300,
        metric="risk",
        score="final",
        trials=4,
        record_every=300,
    )
    np.testing.assert_allclose(tuning.scores[[0, 2, 3, 4]], tuning.scores[2], rtol=1e-9)
    assert tuning.scores[1] > 1.01 * tuning.scores[2]
    assert tuning.algorithm.step_size == 0.3
    assert tuning.at_grid_edge == ()


def test_the_margin_of_an_area_is_one_of_the_curve():
    """Its score is a mean of log10, near 0 for a curve near 1: a share of the score itself would say nothing."""
    by_step = {0.1: 1.0, 0.2: 1.0 / 1.011, 0.3: 1.0 / 1.02, 0.4: 1.0}
    tuning = lf.tune(
        lf.FedRep(rank=2, step_size=9.0),
        PROBLEM,
        grid={"step_size": list(by_step)},
        metric=lambda result: np.full(result.trials, by_step[result.algorithm.step_size]),
        **SETTING,
    )
    assert tuning.algorithm.step_size == 0.2


def test_ties_of_several_fields_go_by_the_first_and_then_the_next():
    algorithm = lf.FedRep(rank=2, step_size=9.0, heads=lf.GradientHeads(step_size=0.1))
    equal = {"metric": lambda result: np.ones(result.trials), "score": "final", **SETTING, "rounds": 1}
    grid = {"heads": [lf.GradientHeads()], "heads.step_size": [0.3, 0.1, 0.2], "step_size": [0.5, 0.4, 0.6]}
    tuning = lf.tune(algorithm, PROBLEM, grid=grid, **equal)
    assert tuning.settings[tuning.best] == {"heads": lf.GradientHeads(), "heads.step_size": 0.1, "step_size": 0.4}
    assert tuning.algorithm == lf.FedRep(rank=2, step_size=0.4, heads=lf.GradientHeads(step_size=0.1))
    grid = {"heads.step_size": [None, 0.3, 0.1], "step_size": [0.5, 0.4]}  # None is no number
    tuning = lf.tune(algorithm, PROBLEM, grid=grid, **equal)
    assert tuning.settings[tuning.best] == {"heads.step_size": None, "step_size": 0.4}
    assert tuning.at_grid_edge == ("step_size",)
    inits = [np.eye(8)[:, 2:4], np.eye(8)[:, :2]]
    assert lf.tune(algorithm, PROBLEM, grid={"init": inits}, **equal).best == 0
    assert lf.tune(algorithm, PROBLEM, grid={"orthonormalize": [True, False]}, **equal).best == 0


def test_scores_that_are_nan_never_win():
    """Below 0.1 the score is NaN: the steps that get there are out, whatever their place in the grid."""

    def score(rounds, curve):
        return np.nan if curve[-1] < 0.1 else curve[-1]

    options = {"score": score, **SETTING}
    tuning = lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid={"step_size": [0.5, 1e-3, 0.02, 0.4]}, **options)
    assert np.isnan(tuning.scores).tolist() == [True, False, False, True]
    assert tuning.best == 2
    assert tuning.at_grid_edge == ()
    with pytest.raises(ValueError, match="diverged or has no score"):
        lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid={"step_size": [0.5, 0.4]}, **options)


# --- a wider grid --------------------------------------------------------------------------------------------


def extended(field, values, best, algorithm=None, **options):
    """Tune over a grid that widens itself, for a score with one optimum, at `best` on a logarithmic scale."""
    return lf.tune(
        algorithm or lf.FedRep(rank=2, step_size=0.5),
        PROBLEM,
        grid={field: values},
        metric=lambda result: np.full(result.trials, 1.0 + abs(at_path(result.algorithm, field) - best) / best),
        score="final",
        extend=True,
        **SETTING | {"rounds": 1} | options,
    )


GRADIENT = lf.FedRep(rank=2, step_size=0.5, heads=lf.GradientHeads(steps=1))


@pytest.mark.parametrize(
    ("field", "values", "best", "tried"),
    [
        ("step_size", [0.1, 0.2], 1.0, [0.1, 0.2, 0.4, 0.8, 1.6]),
        ("step_size", [2.0, 1.0], 0.3, [0.125, 0.25, 0.5, 1.0, 2.0]),
        ("step_size", [1, 2], 0.3, [0.125, 0.25, 0.5, 1.0, 2.0]),
        ("heads.ridge", [0.0, 0.1, 0.3], 0.6, [0.0, 0.1, 0.3, 0.5, 0.7]),
        ("heads.steps", [1, 2, 4], 15, [1, 2, 4, 8, 16, 32]),
        ("heads.steps", [1, 3, 4], 6, [1, 3, 4, 5, 6, 7]),
        ("heads.steps", [12, 8], 4, [2, 4, 8, 12]),
        ("step_size", [0.1, 0.2, 0.4], 0.2, [0.1, 0.2, 0.4]),
    ],
)
def test_a_grid_widens_itself_until_the_best_is_inside(field, values, best, tried):
    tuning = extended(field, values, best, GRADIENT if field == "heads.steps" else None)
    found = [setting[field] for setting in tuning.settings]
    np.testing.assert_allclose(sorted(found), tried, rtol=1e-14)
    assert found[: len(values)] == values
    assert len(tuning.scores) == len(tuning.curves) == len(found)
    assert tuning.at_grid_edge == ()
    assert at_path(tuning.algorithm, field) == found[tuning.best]
    assert tuning.best == np.argmin(tuning.scores)
    if field == "heads.steps":
        assert all(isinstance(value, int) for value in found)


@pytest.mark.long
def test_a_wider_grid_sees_the_same_trials():
    options = {"score": "final", **SETTING}
    wide = lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid={"step_size": [0.05, 0.1]}, extend=True, **options)
    assert wide.at_grid_edge == ()
    assert len(wide.settings) > 3
    whole = lf.tune(lf.FedRep(rank=2, step_size=9.0), PROBLEM, grid=wide.settings, **options)
    assert np.array_equal(whole.curves, wide.curves)
    assert whole.best == wide.best


def test_a_grid_of_two_fields_stays_whole_as_it_widens():
    def metric(result):
        a = result.algorithm
        return np.full(result.trials, 1.0 + abs(np.log(a.step_size / 0.8)) + abs(np.log(a.heads.step_size / 0.1)))

    grid = {"step_size": [0.1, 0.2], "heads.step_size": [0.2, 0.4]}
    tuning = lf.tune(
        lf.FedRep(rank=2, step_size=0.5, heads=lf.GradientHeads()),
        PROBLEM,
        grid=grid,
        metric=metric,
        score="final",
        extend=True,
        **SETTING | {"rounds": 1},
    )
    tried = {(setting["step_size"], setting["heads.step_size"]) for setting in tuning.settings}
    assert len(tried) == len(tuning.settings)
    assert tried == {(a, b) for a, _ in tried for _, b in tried}
    np.testing.assert_allclose([tuning.algorithm.step_size, tuning.algorithm.heads.step_size], [0.8, 0.1])
    assert tuning.at_grid_edge == ()


def test_a_grid_stops_widening():
    with pytest.warns(lf.GridEdgeWarning, match="is the largest value of its grid"):
        tuning = extended("step_size", [0.1, 0.11], 1e6, margin=0.0)
    assert len(tuning.settings) == 2 + 10
    with pytest.warns(lf.GridEdgeWarning, match="the best heads.steps = 1 is the smallest"):
        tuning = extended("heads.steps", [1, 2, 3], 0.5, GRADIENT)
    assert [setting["heads.steps"] for setting in tuning.settings] == [1, 2, 3]


@pytest.mark.parametrize(
    ("grid", "fragment"),
    [
        ([{"step_size": 0.1}, {"step_size": 0.2}], "extend = True requires a grid that maps fields to values"),
        ({"step_size": [0.1, 0.2], "aggregate": ["mean"]}, r"numbers, but grid\['aggregate'\] contains 'mean'"),
        ({"heads": [lf.ExactHeads()]}, r"requires numbers, but grid\['heads'\] contains ExactHeads"),
        ({"heads.ridge": [0.1, None]}, r"requires numbers, but grid\['heads.ridge'\] contains None"),
        ({"orthonormalize": [True, False]}, r"requires numbers, but grid\['orthonormalize'\] contains True"),
    ],
)
def test_grids_that_cannot_widen(grid, fragment):
    with pytest.raises(ValueError, match=fragment):
        lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, grid=grid, extend=True, **SETTING)


@pytest.mark.parametrize(
    ("bad", "fragment"), [({"margin": -0.1}, "margin = -0.1"), ({"extend": 1}, "extend = 1 must be True or False")]
)
def test_bad_margins(bad, fragment):
    with pytest.raises(ValueError, match=fragment):
        lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, grid={"step_size": [0.1]}, **bad, **SETTING)


# --- the grid and its trials ---------------------------------------------------------------------------------


def test_tuning_trials_are_not_the_runs():
    algorithm = lf.FedRep(rank=2, step_size=0.5, init="random")
    tuning = lf.tune(algorithm, PROBLEM, grid={"step_size": [0.5]}, seed=3, **SETTING)
    run = lf.simulate(algorithm, PROBLEM, seed=3, metrics=["subspace_distance"], **SETTING)
    assert not np.isin(tuning.curves[0], run.metrics["subspace_distance"]).any()
    nested = lf.tune(algorithm, PROBLEM, grid={"step_size": [0.5]}, seed=(3, 1), **SETTING)
    assert not np.array_equal(nested.curves, tuning.curves)


@pytest.mark.parametrize("seed", [0, 3, 2**32 - 1, 2**32, 2**70])
def test_the_seed_of_tuning_trials_never_changes(seed):
    keys = (np.random.SeedSequence(entropy, spawn_key=(3, 1)) for entropy in ((2, seed, 0x74756E65), tuning_seed(seed)))
    first, second = (key.generate_state(4).tolist() for key in keys)
    assert first == second


def test_each_seed_has_tuning_trials_of_its_own():
    seeds = [0, 1, 2, 2**32, 2**32 + 1, 2**64, (0,), (1,), (0, 0), (2**32,), (0, 1)]
    made = [tuning_seed(seed) for seed in seeds]
    assert len({*seeds, *made}) == 2 * len(seeds)
    assert min(seed for seed in made if isinstance(seed, int)) > 2**94


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")  # two values have no inside
def test_all_combinations_and_listed_settings():
    algorithm = lf.FedRep(rank=2, step_size=0.5, heads=lf.GradientHeads())
    both = lf.tune(algorithm, PROBLEM, grid={"step_size": [0.3, 0.5], "heads.step_size": [0.2, 0.4]}, **SETTING)
    assert len(both.settings) == 4
    listed = lf.tune(algorithm, PROBLEM, grid=both.settings[1:3], **SETTING)
    np.testing.assert_array_equal(listed.scores, both.scores[1:3])


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")  # two values have no inside
def test_diverged_settings_never_win():
    algorithm = lf.FedRep(rank=2, step_size=0.1, orthonormalize=False, heads=lf.GradientHeads(step_size=0.1))
    tuning = lf.tune(algorithm, PROBLEM, grid={"step_size": [1e6, 0.1]}, **SETTING)
    assert tuning.scores[0] == np.inf
    assert tuning.best == 1
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        lf.tune(algorithm, PROBLEM, grid={"step_size": [1e6, 1e7]}, **SETTING)


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")  # two values have no inside
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
        ({"heads.step_size": [0.1]}, "ExactHeads has no field 'step_size'; allowed: 'ridge'"),
        ({"step_size": []}, "must have at least one value"),
        ({}, "must name at least one hyper-parameter"),
        ([], "must name at least one hyper-parameter"),
        ([{"step_size": 0.1}, {"representation_steps": 2}], "must have the same fields"),
    ],
)
def test_bad_grids(grid, fragment):
    with pytest.raises(ValueError, match=fragment):
        lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, grid=grid, **SETTING)


def test_the_score_of_rounds_to_a_level_is_interpolated_and_goes_on_past_the_end():
    score = lf.RoundsTo(0.01)
    rounds = np.array([0, 10, 20])
    assert score(rounds, np.array([1.0, 0.1, 0.001])) == pytest.approx(15.0)
    assert score(rounds, np.array([0.005, 0.1, 1.0])) == 0.0
    assert score(rounds, np.array([1.0, 0.5, 0.1])) == pytest.approx(40.0)
    assert score(rounds, np.array([1.0, 0.5, 0.02])) < 40.0
    with pytest.raises(ValueError, match=r"level = 0 must be a positive finite number"):
        lf.RoundsTo(0)


@pytest.mark.long
def test_a_level_that_no_setting_reaches_is_a_warning():
    """One trial of one setting that reaches the level is enough."""
    search = {"grid": {"step_size": (0.1, 0.3, 0.2)}, "quantile": 1.0} | SETTING

    def tuned(level):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            tuning = lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, score=lf.RoundsTo(level), **search)
        return tuning, [str(one.message) for one in found if one.category is UserWarning]

    tuning, (message,) = tuned(1e-12)
    assert message.startswith("no setting reaches 1e-12 in 30 rounds: ")
    result = lf.simulate(tuning.algorithm, PROBLEM, **SETTING | {"seed": tuning_seed(0)})
    lowest = float(result.metrics["subspace_distance"].min())
    assert lowest < tuning.curves.min()
    assert tuned(lowest)[1] == []
    assert len(tuned(0.99 * lowest)[1]) == 1


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

    grid = {"heads.ridge": [1e-6, 0.05, 5.0]}
    problem = lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.5)
    tuning = lf.tune(lf.FedRep(rank=2, step_size=0.3), problem, grid=grid, metric=metric, seed=6, **SETTING)
    assert len(calls) == 3
    assert tuning.curves.shape == (3, 1)
    assert tuning.rounds.tolist() == [30]
    np.testing.assert_allclose(tuning.scores, np.log10(tuning.curves[:, 0]), rtol=1e-12)
    for result, curve, ridge in zip(calls, tuning.curves, grid["heads.ridge"], strict=True):
        assert result.algorithm.heads.ridge == ridge
        assert list(result.metrics) == []
        assert np.sort(median_risk(result))[2] == curve[0]  # the middle of five trials
        again = lf.simulate(result.algorithm, problem, seed=result.seed, **SETTING)
        assert np.array_equal(median_risk(again), median_risk(result))
    assert tuning.best == np.argmin(tuning.curves[:, 0]) == 1
    assert tuning.algorithm == lf.FedRep(rank=2, step_size=0.3, heads=lf.ExactHeads(ridge=0.05))
    final = lf.tune(
        lf.FedRep(rank=2, step_size=0.3), problem, grid=grid, metric=metric, score="final", seed=6, **SETTING
    )
    np.testing.assert_array_equal(final.scores, tuning.curves[:, 0])
    assert final.algorithm == tuning.algorithm


def test_a_metric_of_ones_own_speaks_of_the_fine_tuned_state():
    algorithm = lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.ExactHeads())

    def metric(result):
        assert result.final.W.shape == (5, 20, 2)
        return result.client_risks().mean(axis=1)

    arguments = {"grid": {"step_size": [0.05, 0.1]}, **SETTING, "data": lf.FixedSamples(8)}
    own = lf.tune(algorithm, PROBLEM, metric=metric, **arguments)
    assert own.rounds.tolist() == [31]
    known = lf.tune(algorithm, PROBLEM, metric="risk", score="final", **arguments)
    assert known.rounds.tolist() == list(range(32))
    np.testing.assert_allclose(own.curves[:, 0], known.curves[:, -1], rtol=1e-12)


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")  # two values have no inside
def test_a_metric_of_ones_own_and_diverged_trials():
    algorithm = lf.FedPer(rank=2, step_size=0.1)
    arguments = {**SETTING, "metric": lambda result: result.client_risks().mean(axis=1)}
    tuning = lf.tune(algorithm, PROBLEM, grid={"step_size": [1e6, 0.1]}, **arguments)
    assert tuning.scores[0] == np.inf
    assert tuning.best == 1
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        lf.tune(algorithm, PROBLEM, grid={"step_size": [1e6, 1e7]}, **arguments)


def test_diverged_trials_are_the_worst_of_a_curve():
    """Two of five have no number: the median is the largest of the others, as if these were infinite."""
    values = np.array([np.nan, 1.0, 2.0, np.nan, 3.0])
    arguments = {"grid": {"ridge": [0.1]}, "metric": lambda result: values, **SETTING}
    assert lf.tune(lf.LocalOnly(), PROBLEM, **arguments).curves.tolist() == [[3.0]]
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        lf.tune(lf.LocalOnly(), PROBLEM, quantile=0.8, **arguments)


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
    with pytest.raises(ValueError, match=rf"metric must return one value per trial, shape \(5,\), got shape .*{shape}"):
        lf.tune(lf.LocalOnly(), PROBLEM, grid={"ridge": [0.1]}, metric=lambda result: value, **SETTING)


def outside(state, truth):
    """Return the squared sines between B and B*: a metric as `simulate` takes it."""
    B = state.array("B")
    left = B - truth.B @ (truth.B.mT @ B)
    return np.square(left).sum(axis=(-2, -1))


@pytest.mark.long
def test_a_function_of_state_and_truth_is_the_same_metric_everywhere(tmp_path):
    """`simulate`, `Run`, `tune`, `Tuned` and `find_smallest` take one form; in `tune` it has a curve."""
    fedrep, data = lf.FedRep(rank=2, step_size=0.1), SETTING["data"]
    with pytest.warns(lf.GridEdgeWarning):
        tuning = lf.tune(fedrep, PROBLEM, grid={"step_size": [0.1, 0.4]}, metric=outside, **SETTING)
    assert tuning.curves.shape == (2, SETTING["rounds"] + 1)
    assert (np.diff(tuning.curves[1]) < 0).any()
    tuned = lf.Tuned(base=fedrep, grid={"step_size": (0.1, 0.4)}, metric=outside, trials=SETTING["trials"])
    run = lf.Run(algorithm=tuned, problem=PROBLEM, data=data, rounds=SETTING["rounds"], metrics=(outside,), trials=3)
    with pytest.warns(lf.GridEdgeWarning):
        table = lf.sweep([run], store=tmp_path)
    assert table["step_size"] == tuning.algorithm.step_size
    plain = lf.simulate(
        tuning.algorithm, PROBLEM, data=data, rounds=SETTING["rounds"], metrics=[outside], trials=3
    ).metrics["outside"]
    np.testing.assert_array_equal(table["outside"], plain)
    run = replace(run, algorithm=tuning.algorithm, metrics=None, rounds=30)
    squared = lf.find_smallest("data.n_samples", run, reaches=lf.below(outside, 0.04), trials=8)
    assert squared["low"] < squared["crossing"] <= squared["high"]


WRONG_FUNCTIONS = {
    "metric of three": ({"metric": lambda a, b, c: 0}, "metric = .* must be a function of state and truth"),
    "score of one": ({"score": lambda r: 1}, "score = .* must be a function of two arguments"),
    "score of words": ({"score": lambda rounds, curve: "a"}, "score must return a number, got 'a'"),
    "score of nothing": ({"score": lambda rounds, curve: None}, "score must return a number, got None"),
}


@pytest.mark.parametrize("name", WRONG_FUNCTIONS)
def test_functions_of_another_signature_are_named(name):
    changes, said = WRONG_FUNCTIONS[name]
    with pytest.raises(TypeError, match=said):
        lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, grid={"step_size": [0.1]}, **SETTING | changes)


def test_a_metric_that_is_unknown():
    with pytest.raises(ValueError, match="did you mean 'risk'"):
        lf.tune(lf.LocalOnly(), PROBLEM, grid={"ridge": [0.1]}, metric="risks", **SETTING)


def test_a_metric_that_does_not_apply_is_named_as_the_argument_of_tune():
    wanted = "^metric = 'subspace_distance' does not apply: the algorithm learns no .* B; use metric = .*'risk'"
    average, grid, data = lf.FedAvg(step_size=0.1), {"step_size": [0.1]}, lf.FreshSamples(5)
    with pytest.raises(ValueError, match=wanted):
        lf.tune(average, PROBLEM, grid=grid, data=data, rounds=2)
    run = lf.Run(algorithm=lf.Tuned(base=average, grid=grid), problem=PROBLEM, data=data, rounds=2)
    with pytest.raises(lf.SweepError, match=wanted.removeprefix("^")):
        lf.sweep([run])


@pytest.mark.parametrize("grid", [[0.1, 0.2], 0.1, "step_size", [{"step_size": 0.1}, 0.2]])
def test_a_grid_that_maps_no_fields(grid):
    for call in (lf.tune, lambda base, grid, **_: lf.Tuned(base=base, grid=grid)):
        with pytest.raises(
            ValueError, match=r"^grid = .* must map fields to the values to try, .*sequence of mappings"
        ):
            call(lf.FedAvg(step_size=0.1), grid=grid, data=lf.FixedSamples(5), rounds=2)


def test_unknown_score():
    with pytest.raises(ValueError, match="did you mean 'final'"):
        lf.tune(lf.FedRep(rank=2, step_size=0.1), PROBLEM, grid={"step_size": [0.1]}, score="finale", **SETTING)


# --- validation ----------------------------------------------------------------------------------------------


def validated():
    """Given samples of 20 training and 10 test samples per client, and options of a tuning on them."""
    rng = np.random.default_rng(2)
    X, theta = rng.normal(size=(6, 30, 8)), rng.normal(size=(6, 8))
    y = np.einsum("nmd,nd->nm", X, theta) + rng.normal(size=(6, 30))
    data = lf.GivenSamples(X[:, :20], y[:, :20], test=(X[:, 20:], y[:, 20:]))
    return data, {"grid": {"ridge": (0.01, 0.1, 1.0, 10.0)}, "metric": "test_loss", "score": "final"}


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_a_tuning_on_the_test_samples_warns_unless_they_are_said_to_be_for_validation():
    data, options = validated()
    with pytest.warns(lf.ValidationWarning, match=r"validation_share=0\.25"):
        warned = lf.tune(lf.LocalOnly(), data=data, rounds=1, trials=1, **options)
    said = lf.tune(lf.LocalOnly(), data=data, rounds=1, trials=1, validation_share=0, **options)
    assert np.array_equal(said.curves, warned.curves)
    trained = lf.tune(lf.LocalOnly(), data=data, rounds=1, trials=1, **options | {"metric": "train_loss"}, margin=0.0)
    assert trained.curves.shape == said.curves.shape


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_a_tuning_holds_out_training_samples():
    data, options = validated()
    found = lf.tune(lf.LocalOnly(), data=data, rounds=1, trials=1, validation_share=0.25, seed=5, **options)
    divided = data.hold_out(0.25, seed=tuning_seed(5))
    runs = [lf.simulate(one, data=divided, rounds=1) for one in lf.grid(lf.LocalOnly(), **options["grid"])]
    assert found.curves[:, -1].tolist() == [run.metrics["test_loss"][0, -1] for run in runs]
    other = lf.GivenSamples(data.X, data.y, test=(-data.test.X, data.test.y))  # the test samples do not matter
    again = lf.tune(lf.LocalOnly(), data=other, rounds=1, trials=1, validation_share=0.25, seed=5, **options)
    assert np.array_equal(again.curves, found.curves)


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_a_tuned_run_of_a_sweep_is_validated_likewise():
    data, options = validated()
    tuned = lf.Tuned(base=lf.LocalOnly(), trials=1, validation_share=0.25, **options)
    run = lf.Run(algorithm=tuned, data=data, rounds=1)
    expected = lf.tune(lf.LocalOnly(), data=data, rounds=1, trials=1, validation_share=0.25, **options)
    for cell in (run, OneSecond(**{field.name: getattr(run, field.name) for field in dataclasses.fields(run)})):
        table = lf.sweep([cell])
        assert table["score"].tolist() == expected.scores.tolist()
    with pytest.warns(lf.ValidationWarning):
        lf.sweep([replace(run, algorithm=replace(tuned, validation_share=None))])


class OneSecond(lf.Run):
    """A run that is divided into parts, however short it is."""

    divides = True


@pytest.mark.parametrize("share", [-0.1, 1.5, "some"])
def test_a_share_that_is_none_is_refused(share):
    data, options = validated()
    for call in (
        lambda: lf.tune(lf.LocalOnly(), data=data, rounds=1, validation_share=share, **options),
        lambda: lf.Tuned(base=lf.LocalOnly(), validation_share=share, **options),
    ):
        with pytest.raises((ValueError, TypeError), match="validation_share = "):
            call()


def test_samples_that_are_drawn_have_nothing_to_hold_out():
    with pytest.raises(ValueError, match=r"validation_share = 0\.25 requires given samples"):
        lf.tune(lf.FedRep(rank=2, step_size=1.0), PROBLEM, grid={"step_size": [0.1]}, validation_share=0.25, **SETTING)
