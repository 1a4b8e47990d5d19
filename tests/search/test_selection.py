"""The choice of a setting: scores of curves, ties and their order, the edges of a grid, and grids that widen."""

import numpy as np
import pytest

import linfed as lf
from linfed.search.selection import area, final, quantile_curve, within
from linfed.tables.grid import at_path
from tests.helpers import assert_one_line

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=8, rank=2)
FEDREP = lf.FedRep(rank=2, step_size=0.5)
GRADIENT = lf.FedRep(rank=2, step_size=0.5, heads=lf.GradientHeads(steps=1))


def chosen_of(metric, grid, algorithm=FEDREP, **options):
    """Tune for scores that are a function of the algorithm alone."""
    options = {"score": "final", "n_rounds": 1} | options
    return lf.tune(
        algorithm,
        PROBLEM,
        grid=grid,
        data=lf.FreshSamples(8),
        trials=3,
        metric=lambda result: np.full(result.trials, metric(result.algorithm)),
        **options,
    )


def of_scores(scores, **options):
    """Tune over four steps with the given scores."""
    by_step = dict(zip((0.1, 0.2, 0.3, 0.4), scores, strict=True))
    return chosen_of(lambda algorithm: by_step[algorithm.step_size], {"step_size": list(by_step)}, **options)


# --- scores ----------------------------------------------------------------------------------------------------------


def test_scores_of_a_curve():
    rounds, curve = np.arange(4), np.array([1e3, 1.0, 0.1, 0.01])
    assert area(rounds, curve) == pytest.approx(-1.0)  # without the initial state
    assert area(rounds[:1], curve[:1]) == pytest.approx(3.0)
    assert area(rounds, np.zeros(4)) == pytest.approx(np.log10(np.finfo(float).tiny))
    assert final(rounds, curve) == 0.01


def test_the_score_of_rounds_to_a_level_is_interpolated_and_goes_on_past_the_end():
    score = lf.RoundsTo(0.01)
    rounds = np.array([0, 10, 20])
    assert score(rounds, np.array([1.0, 0.1, 0.001])) == pytest.approx(15.0)
    assert score(rounds, np.array([1.0, 0.01, 0.001])) == pytest.approx(10.0)
    assert score(rounds, np.array([0.005, 0.001, 0.01])) == 0.0
    assert score(rounds, np.array([0.005, 0.1, 1.0])) == pytest.approx(60.0)  # the level is not kept
    assert score(rounds, np.array([0.001, 0.1, 0.001])) == pytest.approx(15.0)
    assert score(rounds, np.array([0.001, np.nan, 0.001])) == 20.0
    assert score(rounds, np.array([1.0, 0.5, 0.1])) == pytest.approx(40.0)
    assert 20.0 < score(rounds, np.array([1.0, 0.5, 0.02])) < 40.0


def test_a_curve_is_a_quantile_with_diverged_trials_as_the_worst():
    values = np.array([[np.nan, 1.0, 2.0, np.nan, 3.0]]).T
    assert [quantile_curve(values, quantile).tolist() for quantile in (0.0, 0.5, 0.6, 0.8)] == [[1], [3], [3], [np.inf]]


# --- ties ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "options", "step"),
    [
        ((9.0, 1.009, 1.0, 1.0), {}, 0.2),
        ((9.0, 1.011, 1.0, 1.009), {}, 0.3),
        ((9.0, 1.011, 1.0, 2.0), {"ties_within": 0.02}, 0.2),
        ((9.0, np.nextafter(1.0, 2.0), 1.0, 2.0), {"ties_within": 0.0}, 0.3),
        ((9.0, -0.995, -1.0, 0.0), {}, 0.2),
        ((9.0, 1e-300, 0.0, 0.0), {}, 0.3),
        ((np.nan, np.nan, 1.0, 2.0), {}, 0.3),
    ],
)
def test_the_smallest_step_of_the_ties_is_taken(scores, options, step):
    tuning = of_scores(scores, **options)
    assert tuning.algorithm.step_size == step
    assert tuning.settings[tuning.best] == tuning.best_params == {"step_size": step}


def test_ties_of_an_area_are_those_of_the_curve():
    """Its score is a mean of log10, near 0 for a curve near 1: a share of the score itself would say nothing."""
    assert of_scores((1.0, 1.0 / 1.011, 1.0 / 1.02, 1.0), score="area", n_rounds=30).algorithm.step_size == 0.2


def test_no_tie_is_infinite_or_missing():
    assert within([np.nan, np.inf]) == []
    assert within([2.0, 1.0, np.nan, 1.01, np.inf]) == [1, 3]
    assert within([2.0, 1.0, 1.011]) == [1]


def test_ties_of_several_fields_go_by_the_first_and_then_the_next():
    def chosen(grid):
        return chosen_of(lambda _: 1.0, grid, lf.FedRep(rank=2, step_size=9.0, heads=lf.GradientHeads(step_size=0.1)))

    grid = {"heads": [lf.GradientHeads()], "heads.step_size": [0.3, 0.1, 0.2], "step_size": [0.5, 0.4, 0.6]}
    tuning = chosen(grid)
    assert tuning.best_params == {"heads": lf.GradientHeads(), "heads.step_size": 0.1, "step_size": 0.4}
    assert tuning.algorithm == lf.FedRep(rank=2, step_size=0.4, heads=lf.GradientHeads(step_size=0.1))
    tuning = chosen({"heads.step_size": [None, 0.3, 0.1], "step_size": [0.5, 0.4]})  # None is no number
    assert tuning.best_params == {"heads.step_size": None, "step_size": 0.4}
    assert tuning.at_grid_edge == ("step_size",)
    assert chosen({"init": [np.eye(8)[:, 2:4], np.eye(8)[:, :2]]}).best == 0
    assert chosen({"orthonormalize": [True, False]}).best == 0


# --- edges and wider grids -------------------------------------------------------------------------------------------


def test_the_best_at_an_edge_is_warned_of():
    with pytest.warns(lf.GridEdgeWarning, match=r"step_size = 0.4 is the largest value of its grid \[0.1, 0.2, 0.3"):
        assert of_scores((5.0, 1.0, 1.0, 0.98)).at_grid_edge == ("step_size",)
    with pytest.warns(lf.GridEdgeWarning, match="step_size = 0.1 is the smallest value"):
        assert of_scores((0.9, 1.0, 1.0, 5.0)).at_grid_edge == ("step_size",)


def test_a_tie_that_reaches_an_edge_does_not_warn():
    """Warnings are errors here: the choice is the grid's first step, but those inside are as good."""
    tuning = of_scores((1.0, 1.0, 0.9999, 5.0))
    assert tuning.algorithm.step_size == 0.1
    assert tuning.at_grid_edge == ("step_size",)
    assert of_scores((5.0, 1.0, 1.0, 0.9999)).at_grid_edge == ()


def extended(field, values, best, algorithm=FEDREP, **options):
    """Tune over a grid that widens itself, for a score with one optimum, at `best` on a logarithmic scale."""
    return chosen_of(
        lambda algorithm: 1.0 + abs(at_path(algorithm, field) - best) / best,
        {field: values},
        algorithm,
        extend=True,
        **options,
    )


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
    tuning = extended(field, values, best, GRADIENT if field == "heads.steps" else FEDREP)
    found = [setting[field] for setting in tuning.settings]
    np.testing.assert_allclose(sorted(found), tried, rtol=1e-14)
    assert found[: len(values)] == values
    assert len(tuning.scores) == len(tuning.curves) == len(found)
    assert tuning.at_grid_edge == ()
    assert at_path(tuning.algorithm, field) == found[tuning.best]
    assert tuning.best == np.argmin(tuning.scores)
    if field == "heads.steps":
        assert all(isinstance(value, int) for value in found)


def test_a_grid_of_two_fields_stays_whole_as_it_widens():
    grid = {"step_size": [0.1, 0.2], "heads.step_size": [0.2, 0.4]}
    tuning = chosen_of(
        lambda a: 1.0 + abs(np.log(a.step_size / 0.8)) + abs(np.log(a.heads.step_size / 0.1)),
        grid,
        GRADIENT,
        extend=True,
    )
    tried = {(setting["step_size"], setting["heads.step_size"]) for setting in tuning.settings}
    assert len(tried) == len(tuning.settings)
    assert tried == {(a, b) for a, _ in tried for _, b in tried}
    np.testing.assert_allclose([tuning.algorithm.step_size, tuning.algorithm.heads.step_size], [0.8, 0.1])
    assert tuning.at_grid_edge == ()


def test_a_grid_stops_widening_after_ten_times_or_where_no_value_is_allowed():
    with pytest.warns(lf.GridEdgeWarning, match="is the largest value of its grid"):
        tuning = extended("step_size", [0.1, 0.11], 1e6, ties_within=0.0)
    assert len(tuning.settings) == 2 + 10
    with pytest.warns(lf.GridEdgeWarning, match="the best heads.steps = 1 is the smallest"):
        tuning = extended("heads.steps", [1, 2, 3], 0.5, GRADIENT)
    assert [setting["heads.steps"] for setting in tuning.settings] == [1, 2, 3]


def test_smaller_settings_are_tried_if_all_diverge():
    tuning = chosen_of(
        lambda algorithm: np.inf if algorithm.step_size > 0.02 else abs(algorithm.step_size - 0.006),
        {"step_size": [0.1, 0.2]},
        extend=True,
        ties_within=0.0,
    )
    found = [setting["step_size"] for setting in tuning.settings]
    np.testing.assert_allclose(found, [0.1, 0.2, 0.05, 0.025, 0.0125, 0.00625, 0.003125])
    assert tuning.algorithm.step_size == found[5]
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        chosen_of(lambda _: np.inf, {"step_size": [0.1, 0.2]}, extend=True)


def test_the_rounds_and_the_curve_of_a_score_have_one_length():
    score = lf.RoundsTo(0.1)
    assert_one_line(lambda: score([0, 1, 2], [1.0, 0.5]), ["curve has shape (2,)", "(3,)"])
    assert_one_line(lambda: score([[0, 1], [2, 3]], [1.0, 0.5]), ["rounds has shape (2, 2)"])
    assert_one_line(lambda: score(3, 1.0), ["rounds has shape ()"])
    assert score(range(3), [np.nan, np.inf, 0.05]) == score([0, 1, 2], [np.inf, np.inf, 0.05])
