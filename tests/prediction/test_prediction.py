"""The prediction as an object: its quantities, texts, copies and figures."""

import copy
import pickle
from dataclasses import fields, replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed.prediction.averaging import FixedPoint
from linfed.prediction.dispatch import LAWS
from linfed.prediction.fedrep_rounds import Means
from linfed.prediction.prediction import Curves, Prediction, Quantity, joined
from linfed.prediction.prediction import _as_text as as_text
from tests.helpers import assert_one_line, mostly_long
from tests.prediction.runs import FRESH, PROBLEM, RUNS_OF_THE_TABLE, fedrep, predict


def test_a_quantity_computes_as_its_number():
    found = predict(trials=2).rate
    assert "theory.near_truth_factor" in found.source
    assert "subspace_distance" in repr(found)
    assert np.array_equal(2 * found, 2 * found.value)
    assert np.array_equal(np.sqrt(found), np.sqrt(found.value))
    assert np.array_equal(np.asarray(found), found.value)
    one = predict().rate
    assert one < 1 < 1 / one
    assert f"{float(one):.4g}" in repr(one)


def test_numbers_are_told_to_four_digits_and_several_by_their_ends():
    assert as_text(0.123456) == as_text([0.123456, 0.123461]) == "0.1235"
    assert as_text([2.0, 0.123456, 7.0]) == "0.1235 .. 7"


def test_a_prediction_tells_itself():
    found = predict()
    assert "floor: computed when prediction.floor is read" in repr(found)
    assert f"{float(found.floor):.4g}" not in repr(predict())
    told = repr(found)
    assert told.startswith("<Prediction 'second order', 3 rounds of trial 0>\ndistance: from 0.6 to 0.")
    for part in (
        "10 and 90 % quantiles",
        "floor: 0.",
        "(subspace_distance)",
        "rate: 0.",
        "stability_edge: ",
        "best_step: ",
    ):
        assert part in told
    assert "floor" not in repr(predict(fedrep(step_size=3.0)))  # which is past the edge
    assert "best_step: " in repr(predict(fedrep(step_size=lambda t: 0.5 / t)))  # without a floor and a rate
    assert "distance" not in repr(predict(lf.LocalOnly()))
    assert "3 rounds of trial 0" in repr(predict(trials=1))
    several = predict(trials=4)
    assert several.trials == 4
    for text in (repr(several), several._repr_html_()):
        assert "3 rounds of trials 0 to 3" in text


def test_single_trials_are_joined_with_the_largest_of_their_facts():
    one, two = (
        Curves(np.array([0.5, 0.2]), facts={"a": 1.0, "b": 3.0}),
        Curves(np.array([0.4, 0.3]), facts={"a": 2.0, "b": 1.0}),
    )
    both = joined([one, two])
    assert both.distance.tolist() == [[0.5, 0.2], [0.4, 0.3]]
    assert (both.low, both.high, both.facts) == (None, None, {"a": 2.0, "b": 3.0})
    bands = joined([each._replace(low=each.distance / 2, high=2 * each.distance) for each in (one, two)])
    np.testing.assert_array_equal(4 * bands.low, bands.high)
    assert bands.high[1, 0] == 0.8


def told(prediction, name):
    """Return an attribute of a prediction as comparable values, or the message if it is not available."""
    try:
        found = getattr(prediction, name)
    except lf.NoPredictionError as error:
        return str(error)
    if isinstance(found, Quantity):
        return found.value.tolist(), found.source, found.validity, found.metric
    return np.asarray(found).tolist()


def assert_same_prediction(one, other):
    names = [name for name in dir(Prediction) if not name.startswith("_")]
    assert {"distance", "low", "high", "floor", "rate", "stability_edge", "best_step", "trials"} <= {*names}
    for name in {*names, *(field.name for field in fields(Prediction) if not field.name.startswith("_"))}:
        assert told(one, name) == told(other, name), name
    assert repr(one) == repr(other)


@pytest.mark.parametrize("kind", mostly_long(LAWS, Means, FixedPoint))
def test_a_prediction_is_the_same_after_pickling(kind):
    algorithms, problem, data = RUNS_OF_THE_TABLE[kind]
    for algorithm in algorithms:
        found = lf.predict(algorithm, problem, data=data, n_rounds=3, trials=2)
        fresh = lf.predict(algorithm, problem, data=data, n_rounds=3, trials=2)
        assert_same_prediction(pickle.loads(pickle.dumps(found)), fresh)
        assert_same_prediction(copy.deepcopy(found), found)
        assert_same_prediction(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(found)))), found)


def test_a_prediction_of_functions_and_of_unstable_runs_is_pickled():
    """A step size that is a function cannot be pickled, and past the edge there is no floor."""
    for algorithm in (fedrep(step_size=lambda t: 0.5 / t), fedrep(step_size=3.0)):
        found = predict(algorithm)
        assert_same_prediction(pickle.loads(pickle.dumps(found)), found)
        assert_one_line(lambda found=found: pickle.loads(pickle.dumps(found)).floor, ["floor"], lf.NoPredictionError)


def test_a_quantity_without_memory_does_not_prevent_pickling():
    def floor():
        raise lf.SizeError("no memory for the floor")

    found = replace(predict(), _quantities={"floor": floor, "rate": lambda: Quantity(np.ones(1), "source", "range")})
    again = pickle.loads(pickle.dumps(found))
    assert float(again.rate) == 1.0
    assert_one_line(lambda: again.floor, ["no memory for the floor"], lf.NoPredictionError)


def test_a_plot_draws_the_prediction_that_it_is_given():
    run = lf.simulate(fedrep(), PROBLEM, data=FRESH, n_rounds=3, trials=3)
    found = replace(lf.predict(run), warnings=("a doubt",))
    ax = run.plot("subspace_distance", prediction=found)
    measured, low, high, median = ax.get_lines()
    assert np.array_equal(median.get_ydata(), np.median(found.distance, axis=0))
    assert np.array_equal(low.get_ydata(), np.median(found.low, axis=0))
    assert np.array_equal(high.get_ydata(), np.median(found.high, axis=0))
    assert {line.get_color() for line in (low, high, median)} == {"black"} != {measured.get_color()}
    assert (median.get_label(), median.get_linestyle()) == ("predicted, trials 0 to 2, with warnings", "--")
    run.plot("subspace_distance", prediction=found, ax=ax)
    assert ax.get_legend_handles_labels()[1].count("predicted, trials 0 to 2, with warnings") == 1
    first, longer = predict(n_rounds=5), predict(trials=7)
    for given, words in ((first, "predicted, trial 0"), (longer, "predicted, trials 0 to 6")):
        run.plot("subspace_distance", prediction=replace(given, warnings=()), ax=ax)
        line = ax.get_lines()[-1]
        assert (line.get_label(), line.get_linestyle()) == (words, "-")
        assert np.array_equal(line.get_ydata(), np.median(np.atleast_2d(given.distance), axis=0))
    plain = plt.figure().subplots()
    run.plot("subspace_distance", ax=plain)
    assert len(plain.get_lines()) == 1
    words = ["prediction= requires metric = 'subspace_distance'", "got 'risk'"]
    assert_one_line(lambda: run.plot("risk", prediction=found, ax=plain), words)
    without = predict(lf.LocalOnly())
    assert_one_line(
        lambda: run.plot("subspace_distance", prediction=without, ax=plain), ["no prediction"], lf.NoPredictionError
    )
    assert len(plain.get_lines()) == 1


def test_curves_show_a_predicted_column():
    run = lf.simulate(fedrep(), PROBLEM, data=FRESH, n_rounds=3, trials=3)
    columns = {"error": run.metrics["subspace_distance"], "theory": predict(trials=3).distance}
    row = {name: lf.LabeledArray(values, round=run.rounds) for name, values in columns.items()}
    ax = plt.figure().subplots()
    lf.plot_curves(ax, lf.Table([{"method": "FedRep", **row}]), "round", "error", predicted="theory")
    measured, median = ax.get_lines()
    assert measured.get_label() == "FedRep"
    assert (median.get_label(), median.get_color()) == ("predicted", "black")
    assert np.array_equal(median.get_ydata(), np.median(columns["theory"], axis=0))
