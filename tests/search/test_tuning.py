"""Tuning: every setting of a grid on trials of its own, measured by a metric, on held-out samples if asked."""

import warnings
from dataclasses import fields, replace

import numpy as np
import pytest

import linfed as lf
from linfed.search.tuning import tuning_seed
from tests.helpers import assert_one_line, basis, normal

PROBLEM = lf.SharedRepresentation(n_clients=20, dim=8, rank=2)
FEDREP = lf.FedRep(rank=2, step_size=9.0)
SETTING = {"data": lf.FreshSamples(8), "n_rounds": 30, "trials": 5}
edges = pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")  # two values have no inside


def tuned(grid, algorithm=FEDREP, problem=PROBLEM, **options):
    grid = {"step_size": grid} if isinstance(grid, list) and {*map(type, grid)} == {float} else grid
    return lf.tune(algorithm, problem, grid=grid, **SETTING | options)


def test_the_best_of_a_grid_has_the_least_score():
    steps = [0.05, 0.5, 40.0]
    tuning = tuned(steps)
    assert tuning.settings == [{"step_size": step} for step in steps]
    assert tuning.best == np.argmin(tuning.scores) == 1
    assert tuning.algorithm == lf.FedRep(rank=2, step_size=0.5)
    assert tuning.curves.shape == (3, 31)
    assert tuning.at_grid_edge == ()
    np.testing.assert_allclose(tuning.scores, np.log10(tuning.curves)[:, 1:].mean(axis=1))


@edges
def test_a_grid_is_a_mapping_or_settings_or_algorithms():
    algorithm = lf.FedRep(rank=2, step_size=0.5, heads=lf.GradientHeads())
    both = tuned({"step_size": [0.3, 0.5], "heads.step_size": [0.2, 0.4]}, algorithm)
    assert len(both.settings) == 4
    listed = tuned(both.settings[1:3], algorithm)
    np.testing.assert_array_equal(listed.scores, both.scores[1:3])
    given = tuned(None, lf.grid(algorithm, **{"step_size": (0.3, 0.5), "heads.step_size": (0.2, 0.4)}))
    assert (given.settings, given.algorithm) == (both.settings, both.algorithm)
    np.testing.assert_array_equal(given.scores, both.scores)


@edges
def test_a_score_may_be_the_end_of_a_curve_or_a_function():
    final = tuned([0.05, 0.5], score="final")
    np.testing.assert_array_equal(final.scores, final.curves[:, -1])
    own = tuned([0.05, 0.5], score=lambda rounds, curve: -curve[-1])
    assert own.best == np.argmax(final.scores)


def test_columns_have_the_chosen_setting_and_all_that_were_tried():
    tuning = tuned([0.5, 40.0, 0.05])
    own = tuning.columns()
    assert (own["step_size"], own["best"], own["at_grid_edge"]) == (0.5, 0, "")
    assert own["tried_step_size"].values.tolist() == [0.5, 40.0, 0.05]
    other = tuning.columns([{"percent": 100 * step, "size": size} for step, size in ((0.5, 1), (40.0, 2), (0.05, 3))])
    assert (other["percent"], other["size"], other["best"], other["at_grid_edge"]) == (50.0, 1, 0, "size")
    assert other["tried_percent"].values.tolist() == [50.0, 4000.0, 5.0]
    assert np.array_equal(other["score"].values, own["score"].values)
    with pytest.raises(ValueError, match="settings has 1 mappings, but must have 3"):
        tuning.columns([{}])


@pytest.mark.long
def test_exact_heads_on_fixed_data_end_at_one_point_whatever_the_step():
    """What rounding prefers among them is not what tuning takes."""
    problem = lf.SharedRepresentation(n_clients=30, dim=8, rank=2, noise_std=0.1)
    options = {"data": lf.FixedSamples(10), "n_rounds": 300, "metric": "risk", "score": "final", "record_every": 300}
    tuning = tuned([1.0, 0.01, 0.3, 0.5, 0.7], problem=problem, **options)
    np.testing.assert_allclose(tuning.scores[[0, 2, 3, 4]], tuning.scores[2], rtol=1e-9)
    assert tuning.scores[1] > 1.01 * tuning.scores[2]
    assert tuning.algorithm.step_size == 0.3
    assert tuning.at_grid_edge == ()


# --- trials of its own -----------------------------------------------------------------------------------------------


def test_tuning_trials_are_not_the_runs():
    algorithm = lf.FedRep(rank=2, step_size=0.5, init="random")
    tuning = tuned([0.5], algorithm, seed=3)
    run = lf.simulate(algorithm, PROBLEM, seed=3, metrics=["subspace_distance"], **SETTING)
    assert not np.isin(tuning.curves[0], run.metrics["subspace_distance"]).any()
    assert not np.array_equal(tuned([0.5], algorithm, seed=(3, 1)).curves, tuning.curves)


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


@pytest.mark.long
def test_a_wider_grid_sees_the_same_trials():
    wide = tuned([0.05, 0.1], extend=True, score="final")
    assert wide.at_grid_edge == ()
    assert len(wide.settings) > 3
    whole = tuned(wide.settings, score="final")
    assert np.array_equal(whole.curves, wide.curves)
    assert whole.best == wide.best


# --- settings that cannot win ----------------------------------------------------------------------------------------


def test_scores_that_are_nan_never_win():
    """Below 0.1 the score is NaN: the steps that get there are out, whatever their place in the grid."""

    def score(n_rounds, curve):
        return np.nan if curve[-1] < 0.1 else curve[-1]

    tuning = tuned([0.5, 1e-3, 0.02, 0.4], score=score)
    assert np.isnan(tuning.scores).tolist() == [True, False, False, True]
    assert tuning.best == 2
    assert tuning.at_grid_edge == ()
    with pytest.raises(ValueError, match="diverged or has no score"):
        tuned([0.5, 0.4], score=score)


@edges
@pytest.mark.parametrize("metric", ["subspace_distance", lambda result: result.client_risks().mean(axis=1)])
def test_settings_that_diverge_never_win(metric):
    algorithm = lf.FedRep(rank=2, step_size=0.1, orthonormalize=False, heads=lf.GradientHeads(step_size=0.1))
    tuning = tuned([1e6, 0.1], algorithm, metric=metric)
    assert tuning.scores[0] == np.inf
    assert tuning.best == 1
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        tuned([1e6, 1e7], algorithm, metric=metric)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*far from mean 0 or scale 1")
def test_a_grid_is_extended_to_steps_that_fit_labels_of_another_unit():
    """All three steps of the grid are unstable for labels a thousand times as large."""
    X, B, W = normal(20, 30, 8), basis(8, 2, seed=1), normal(20, 2, seed=2)
    y = np.einsum("nmd,dk,nk->nm", X, B, W) + 0.1 * normal(20, 30, seed=3)
    losses = []
    for factor in (1.0, 1000.0):
        options = {"data": lf.GivenSamples(X, factor * y), "n_rounds": 60}
        found = tuned([0.1, 0.3, 0.9], problem=None, metric="train_loss", trials=1, extend=True, **options)
        losses.append(lf.simulate(found.algorithm, **options).metrics["train_loss"][0, -1] / factor**2)
    assert losses[1] < 1.1 * losses[0]
    assert found.at_grid_edge == ()
    assert np.isinf(found.scores[:3]).all()
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        tuned([0.1, 0.3], problem=None, metric="train_loss", trials=1, **options)


def test_a_level_that_no_setting_reaches_is_a_warning():
    """One trial of one setting that reaches the level is enough."""

    def reached(level):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            tuning = tuned([0.1, 0.3, 0.2], score=lf.RoundsTo(level), quantile=1.0)
        return tuning, [str(one.message) for one in found if one.category is UserWarning]

    tuning, (message,) = reached(1e-12)
    assert message.startswith("no setting reaches 1e-12 in 30 rounds: ")
    result = lf.simulate(tuning.algorithm, PROBLEM, **SETTING | {"seed": tuning_seed(0)})
    lowest = float(result.metrics["subspace_distance"].min())
    assert lowest < tuning.curves.min()
    assert reached(lowest)[1] == []
    assert len(reached(0.99 * lowest)[1]) == 1


# --- metrics ---------------------------------------------------------------------------------------------------------


def median_risk(result):
    return np.median(result.new_clients([4], clients=30), axis=(1, 2))


def test_a_function_of_the_result_is_measured_once_at_the_end():
    calls = []

    def metric(result):
        calls.append(result)
        return median_risk(result)

    grid = {"heads.ridge": [1e-6, 0.05, 5.0]}
    problem = lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.5)
    options = {"algorithm": lf.FedRep(rank=2, step_size=0.3), "problem": problem, "metric": metric, "seed": 6}
    tuning = tuned(grid, **options)
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
    final = tuned(grid, score="final", **options)
    np.testing.assert_array_equal(final.scores, tuning.curves[:, 0])


def test_a_function_of_the_result_sees_the_fine_tuned_state():
    algorithm = lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.ExactHeads())

    def metric(result):
        assert result.final.W.shape == (5, 20, 2)
        return result.client_risks().mean(axis=1)

    own = tuned([0.05, 0.1], algorithm, data=lf.FixedSamples(8), metric=metric)
    assert own.rounds.tolist() == [31]
    known = tuned([0.05, 0.1], algorithm, data=lf.FixedSamples(8), metric="risk", score="final")
    assert known.rounds.tolist() == list(range(32))
    np.testing.assert_allclose(own.curves[:, 0], known.curves[:, -1], rtol=1e-12)


def test_diverged_trials_are_the_worst_of_a_curve():
    """Two of five have no number: the median is the largest of the others, as if these were infinite."""
    values = np.array([np.nan, 1.0, 2.0, np.nan, 3.0])
    options = {"algorithm": lf.LocalOnly(), "metric": lambda result: values}
    assert tuned({"ridge": [0.1]}, **options).curves.tolist() == [[3.0]]
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        tuned({"ridge": [0.1]}, quantile=0.8, **options)


def test_a_tuning_without_rounds_measures_the_initial_state():
    init = [np.eye(8)[:, :2], np.eye(8)[:, 2:4]]
    tuning = tuned({"init": init}, metric=lambda result: result.final.B[:, 0, 0], score="final", n_rounds=0)
    assert tuning.rounds.tolist() == [0]
    assert tuning.curves.tolist() == [[1.0], [0.0]]
    assert np.array_equal(tuning.algorithm.init.array, init[1])


def outside(state, truth):
    """Return the squared sines between B and B*: a metric as `simulate` takes it."""
    B = state.array("B")
    left = B - truth.B @ (truth.B.mT @ B)
    return np.square(left).sum(axis=(-2, -1))


@edges
def test_a_function_of_state_and_truth_has_a_curve_and_a_column():
    tuning = tuned([0.1, 0.4], metric=outside)
    assert tuning.curves.shape == (2, SETTING["n_rounds"] + 1)
    assert (np.diff(tuning.curves[1]) < 0).any()
    tuned_before = lf.Tuned(base=FEDREP, grid={"step_size": (0.1, 0.4)}, metric=outside, trials=SETTING["trials"])
    options = {"problem": PROBLEM, "data": SETTING["data"], "n_rounds": SETTING["n_rounds"], "trials": 3}
    table = lf.sweep([lf.Run(algorithm=tuned_before, metrics=(outside,), **options)])
    assert table["step_size"] == tuning.algorithm.step_size
    plain = lf.simulate(tuning.algorithm, metrics=[outside], **options).metrics["outside"]
    np.testing.assert_array_equal(table["outside"], plain)


@pytest.mark.parametrize("metric", [lambda result: 1 - result.per_client("accuracy").mean(axis=1), "test_loss"])
def test_classifiers_are_tuned_by_what_is_to_be_small(metric):
    problem = lf.Classes(n_clients=5, n_classes=4, classes_per_client=[1, 2, 3, 4, 2], dim=6, rank=2, test_samples=15)
    options = {"data": lf.FixedSamples(9), "n_rounds": 20, "trials": 2, "score": "final"}
    fedper = lf.FedPer(rank=2, step_size=0.1)
    assert tuned([0.01, 1.0, 1e250], fedper, problem, metric=metric, **options).algorithm.step_size == 1.0
    message = "metric = 'accuracy' must be a metric to minimise.*'test_loss'"
    for call in (lf.tune, lambda base, problem, grid, **_: lf.Tuned(base=base, grid=grid, metric="accuracy")):
        with pytest.raises(ValueError, match=message):
            call(fedper, problem, grid={"step_size": (0.01, 1.0)}, **options | {"metric": "accuracy"})


# --- validation ------------------------------------------------------------------------------------------------------

RIDGES = {"ridge": (0.01, 0.1, 1.0, 10.0)}
ON_TEST = {"metric": "test_loss", "score": "final", "n_rounds": 1, "trials": 1}


@pytest.fixture(scope="module")
def given():
    """Samples of 20 training and 10 test samples per client."""
    rng = np.random.default_rng(2)
    X, theta = rng.normal(size=(6, 30, 8)), rng.normal(size=(6, 8))
    y = np.einsum("nmd,nd->nm", X, theta) + rng.normal(size=(6, 30))
    return lf.GivenSamples(X[:, :20], y[:, :20], test=(X[:, 20:], y[:, 20:]))


def validated(data, **options):
    return tuned(RIDGES, lf.LocalOnly(), None, data=data, **ON_TEST | options)


@edges
def test_a_tuning_on_the_test_samples_warns_unless_they_are_said_to_be_for_validation(given):
    with pytest.warns(lf.ValidationWarning, match=r"validation_share=0\.25"):
        warned = validated(given)
    said = validated(given, validation_share=0)
    assert np.array_equal(said.curves, warned.curves)
    validated(given, metric="train_loss", ties_within=0.0)  # a warning would be an error


@edges
def test_a_tuning_holds_out_training_samples(given):
    found = validated(given, validation_share=0.25, seed=5)
    divided = given.hold_out(0.25, seed=tuning_seed(5))
    runs = [lf.simulate(one, data=divided, n_rounds=1) for one in lf.grid(lf.LocalOnly(), **RIDGES)]
    assert found.curves[:, -1].tolist() == [run.metrics["test_loss"][0, -1] for run in runs]
    other = lf.GivenSamples(given.X, given.y, test=(-given.test.X, given.test.y))  # the test samples do not matter
    assert np.array_equal(validated(other, validation_share=0.25, seed=5).curves, found.curves)


@edges
def test_each_trial_of_a_tuning_holds_out_its_own_samples(given):
    found = validated(given, validation_share=0.25, trials=6, seed=5)
    divided = given.hold_out(0.25, trials=6, seed=tuning_seed(5))
    assert len({part.tobytes() for part in divided.X}) == 6
    for place, one in enumerate(lf.grid(lf.LocalOnly(), **RIDGES)):
        losses = lf.simulate(one, data=divided, n_rounds=1).metrics["test_loss"][:, -1]
        assert len(set(losses)) == 6
        assert found.curves[place, -1] == np.sort(losses)[2]  # the lower of the two middle values
    prepared = lf.GivenSamples(given.X + 3, given.y + 5, intercept=True, scale=True)
    assert np.isfinite(validated(prepared, validation_share=0.25, trials=6).scores).all()


@edges
def test_samples_with_trials_have_as_many_tuning_trials(given):
    several = given.hold_out(0.2, trials=3)
    options = {"data": several, "n_rounds": 1, "metric": "test_loss", "score": "final", "validation_share": 0.25}
    found = lf.tune(lf.LocalOnly(), grid=RIDGES, **options)
    assert np.array_equal(found.curves, lf.tune(lf.LocalOnly(), grid=RIDGES, trials=3, **options).curves)
    cell = lf.Tuned(base=lf.LocalOnly(), grid=RIDGES, metric="test_loss", score="final", validation_share=0.25)
    assert lf.sweep([lf.Run(algorithm=cell, data=several, n_rounds=1)])["score"].tolist() == found.scores.tolist()
    with pytest.raises(ValueError, match="trials = 4 must be 3"):
        lf.tune(lf.LocalOnly(), grid=RIDGES, trials=4, **options)


@edges
def test_identical_trials_of_a_tuning_are_reported(given):
    with pytest.warns(UserWarning, match="the 4 trials are identical"):
        validated(given, validation_share=0, trials=4)


@edges
def test_a_progress_bar_counts_settings(given, capsys):
    validated(given, validation_share=0.25, progress=True)
    assert "4/4" in capsys.readouterr().err
    validated(given, validation_share=0.25)
    assert capsys.readouterr().err == ""


class Divided(lf.Run):
    """A run that is divided into parts, however short it is."""

    divides = True


@edges
def test_a_tuned_run_of_a_sweep_is_validated_likewise(given):
    before = lf.Tuned(
        base=lf.LocalOnly(), grid=RIDGES, trials=1, metric="test_loss", score="final", validation_share=0.25
    )
    run = lf.Run(algorithm=before, data=given, n_rounds=1)
    expected = validated(given, validation_share=0.25)
    for cell in (run, Divided(**{field.name: getattr(run, field.name) for field in fields(run)})):
        assert lf.sweep([cell])["score"].tolist() == expected.scores.tolist()
    with pytest.warns(lf.ValidationWarning):
        lf.sweep([replace(run, algorithm=replace(before, validation_share=None))])


# --- invalid arguments -----------------------------------------------------------------------------------------------


def of_metric(value):
    return {"metric": lambda result: value}


INVALID = {
    "an unknown field": ({"grid": {"step_sizes": [0.1]}}, "did you mean 'step_size'"),
    "an unknown field of a field": ({"grid": {"heads.step_size": [0.1]}}, "no field 'step_size'; allowed: 'ridge'"),
    "no values": ({"grid": {"step_size": []}}, "must have at least one value"),
    "a number as values": ({"grid": {"step_size": 0.1}}, r"grid\['step_size'\] = 0.1"),
    "an empty mapping": ({"grid": {}}, "must name at least one hyper-parameter"),
    "no settings": ({"grid": []}, "must name at least one hyper-parameter"),
    "no grid": ({"grid": None}, "grid = None"),
    "settings of other fields": ({"grid": [{"step_size": 0.1}, {"rank": 2}]}, "must have the same fields"),
    "a list of numbers": ({"grid": (0.1, 0.2)}, "^grid = .* must map fields"),
    "a number": ({"grid": 0.1}, "^grid = .* must map fields"),
    "a word": ({"grid": "step_size"}, "^grid = .* must map fields"),
    "a setting and a number": ({"grid": [{"step_size": 0.1}, 0.2]}, "^grid = .* must map fields"),
    "a grid of algorithms": ({"algorithm": [FEDREP]}, "cannot be combined with a sequence"),
    "two classes": ({"algorithm": [FEDREP, lf.LocalOnly()], "grid": None}, "of the same class"),
    "no number above 0": ({"ties_within": -0.1}, "ties_within = -0.1"),
    "a quantile above 1": ({"quantile": 1.5}, "quantile = 1.5"),
    "a number to extend": ({"extend": 1}, "extend = 1 must be True or False"),
    "settings to extend": ({"extend": True, "grid": [{"step_size": 0.1}]}, "extend = True requires a grid that maps"),
    "words to extend": ({"extend": True, "grid": {"aggregate": ["mean"]}}, r"grid\['aggregate'\] contains 'mean'"),
    "None to extend": ({"extend": True, "grid": {"heads.ridge": [0.1, None]}}, "contains None"),
    "True to extend": ({"extend": True, "grid": {"orthonormalize": [True, False]}}, "contains True"),
    "an unknown score": ({"score": "finale"}, "did you mean 'final'"),
    "a score of rounds of one value": ({"score": lf.RoundsTo(0.1)} | of_metric(np.ones(5)), "RoundsTo requires"),
    "an unknown metric": ({"metric": "risks"}, "did you mean 'risk'"),
    "a metric of another shape": (of_metric(np.ones((5, 2))), r"shape \(5,\), got shape \(5, 2\)"),
    "a metric of other trials": (of_metric(np.ones(4)), r"shape \(5,\), got shape \(4,\)"),
    "a metric of one number": (of_metric(1.0), r"shape \(5,\), got shape \(\)"),
    "samples that are drawn": ({"validation_share": 0.25}, r"validation_share = 0\.25 requires given samples"),
    "a negative share": ({"validation_share": -0.1}, "validation_share = -0.1"),
    "a share above 1": ({"validation_share": 1.5}, "validation_share = 1.5"),
}
INVALID_TYPES = {
    "a name": ({"algorithm": "FedRep"}, "algorithm = .* must be an algorithm"),
    "a class": ({"algorithm": lf.FedRep}, "algorithm = .* must be an algorithm"),
    "None": ({"algorithm": None}, "algorithm = .* must be an algorithm"),
    "a metric of three": ({"metric": lambda a, b, c: 0}, "metric = .* must be a function of state and truth"),
    "a score of one": ({"score": lambda r: 1}, "score = .* must be a function of two arguments"),
    "a score of words": ({"score": lambda rounds, curve: "a"}, "score must return a number, got 'a'"),
    "a score of nothing": ({"score": lambda rounds, curve: None}, "score must return a number, got None"),
}


@pytest.mark.parametrize(
    ("error", "name"), [(ValueError, one) for one in INVALID] + [(TypeError, one) for one in INVALID_TYPES]
)
def test_invalid_arguments_are_named(error, name):
    changes, said = (INVALID if error is ValueError else INVALID_TYPES)[name]
    with pytest.raises(error, match=said):
        tuned(**{"grid": [0.1]} | changes)


def test_a_level_must_be_positive():
    with pytest.raises(ValueError, match=r"level = 0 must be a positive finite number"):
        lf.RoundsTo(0)


def test_a_metric_that_does_not_apply_is_named_as_the_argument_of_tune():
    wanted = "metric = 'subspace_distance' does not apply: the algorithm learns no .* B; use metric = .*'risk'"
    average = lf.FedAvg(step_size=0.1)
    with pytest.raises(ValueError, match=f"^{wanted}"):
        tuned([0.1], average)
    run = lf.Run(
        algorithm=lf.Tuned(base=average, grid={"step_size": [0.1]}), problem=PROBLEM, data=SETTING["data"], n_rounds=2
    )
    with pytest.raises(lf.SweepError, match=wanted):
        lf.sweep([run])


GIVEN = {
    "the ground truth": (FEDREP, lf.GivenTruth(B=basis(8, 2), W=normal(3, 20, 2))),
    "the start": (replace(FEDREP, init=np.stack([basis(8, 2, seed=seed) for seed in range(3)])), PROBLEM),
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_by_default_a_tuning_has_the_trials_of_any_given_arrays(name):
    algorithm, problem = GIVEN[name]
    options = {"grid": {"step_size": (0.1, 0.3, 0.9)}, "data": lf.FreshSamples(8), "n_rounds": 5}
    one, other = (lf.tune(algorithm, problem, **options | more) for more in ({}, {"trials": 3}))
    assert one == other


def test_names_in_a_grid_are_texts():
    assert_one_line(lambda: lf.tune(FEDREP, PROBLEM, grid={1: [0.1]}, **SETTING), ["grid names 1", "'step_size'"])


def unnamed(result_or_state, truth):
    return truth


def test_messages_about_the_metric_of_a_tuning_name_it():
    unnamed.__name__ = "risk"
    call = lambda: lf.tune(FEDREP, PROBLEM, grid={"step_size": (0.1, 0.3)}, metric=unnamed, **SETTING)  # noqa: E731
    assert_one_line(call, ["metric contains a function named 'risk'"])
