"""Predictions, losses and errors on rows that are given after a run, for training clients and for new ones."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal

SITES = np.repeat(["a", "b", "c"], [12, 20, 9])
X = normal(41, 3) * [1.0, 50.0, 0.1] + [0.0, 300.0, 2.0]
Y = 1000.0 * (7 + X[:, 0] + X[:, 1] / 50 + 3 * (SITES == "b") + 0.3 * normal(41, seed=1))
TABLE = {"one": X[:, 0], "two": X[:, 1], "three": X[:, 2], "site": SITES, "y": Y}
RIDGE = 0.3


def from_table(trials=2, **more):
    return lf.GivenSamples.from_table(TABLE, "y", "site", trials=trials, **more)


def local(data, **more):
    return lf.simulate(lf.LocalOnly(ridge=RIDGE, **more), data=data, n_rounds=1)


def training_rows(data, trial, client):
    """Return the rows and labels of a client as they were given."""
    count, preparation = int(data.counts[client]), data.preparation
    scaled = data.X[trial, client, :count] / preparation.factor[trial]
    rows = scaled + preparation.x_mean[trial, client]
    return rows, data.y[trial, client, :count] * preparation.unit[trial] + preparation.y_mean[trial, client]


def ridge_by_hand(rows, labels, scale, new):
    """Return the predictions of ridge regression with a free intercept, at features in units of `scale`."""
    Z, centre = rows / scale, rows.mean(axis=0) / scale
    gram = (Z - centre).T @ (Z - centre) / len(Z) + RIDGE * np.eye(3)
    slope = np.linalg.solve(gram, (Z - centre).T @ (labels - labels.mean()) / len(Z))
    return labels.mean() + (new / scale - centre) @ slope


def test_predictions_are_those_of_a_ridge_with_a_free_intercept():
    data = from_table()
    result = local(data)
    found = result.predictions(TABLE)
    assert np.array_equal(found, result.predictions(TABLE, np.str_("site")))
    assert np.array_equal(found, result.predictions({name: TABLE[name] for name in ("three", "one", "two")}, SITES))
    for trial in range(2):
        scale = 1 / data.preparation.factor[trial]
        for client, site in enumerate(data.client_names):
            wanted = ridge_by_hand(*training_rows(data, trial, client), scale, X[site == SITES])
            np.testing.assert_allclose(found[trial, site == SITES], wanted, rtol=1e-10)


def test_errors_are_those_of_the_predictions():
    data = from_table(trials=3, test_share=0.25)
    result = local(data)
    table = result.errors()
    assert table["client"].tolist() == ["a", "b", "c"]
    assert table["samples"].tolist() == data.test.counts.tolist()
    squares, counts, labels = np.zeros((3, 3)), data.test.counts, []
    for trial in range(3):
        labels.append([])
        for client, site in enumerate(data.client_names):
            part, count = data.preparation, int(counts[client])
            rows = data.test.X[trial, client, :count] / part.factor[trial] + part.x_mean[trial, client]
            y = data.test.y[trial, client, :count] * part.unit[trial] + part.y_mean[trial, client]
            error = result.predictions(rows_of(rows), [site] * count)[trial] - y
            row = table.select(client=site)
            np.testing.assert_allclose(row["rmse"][trial], np.sqrt(np.mean(error**2)), rtol=1e-10)
            np.testing.assert_allclose(row["r2"][trial], 1 - np.sum(error**2) / np.sum((y - y.mean()) ** 2), rtol=1e-9)
            squares[trial, client] = np.sum(error**2)
            labels[-1].append(y)
    methods = lf.error_table({"local": result})
    rmse = np.sqrt(squares / counts)
    spread = [np.sum((np.concatenate(one) - np.concatenate(one).mean()) ** 2) for one in labels]
    wanted = {
        "rmse": rmse.mean(axis=1),
        "median_rmse": np.median(rmse, axis=1),
        "q90_rmse": np.quantile(rmse, 0.9, axis=1),
        "worst_rmse": rmse.max(axis=1),
        "rows_rmse": np.sqrt(squares.sum(axis=1) / counts.sum()),
        "r2": np.mean(table["r2"], axis=0),
        "rows_r2": 1 - squares.sum(axis=1) / spread,
    }
    assert {*methods.columns} == {"method", *wanted}
    for name, values in wanted.items():
        np.testing.assert_allclose(methods[name], values, rtol=1e-9)


def test_a_column_that_was_left_out_is_not_needed():
    table = TABLE | {"year": np.full(41, 2024), "unit": np.array(["mg"] * 41)}
    result = local(lf.GivenSamples.from_table(table, "y", "site", categories=["unit"]))
    assert result.data.preparation.dropped == ("year", "unit=mg")
    assert np.array_equal(result.predictions(TABLE), result.predictions(table))
    assert np.array_equal(result.predictions(TABLE | {"year": [np.nan] * 41}), result.predictions(table))


def rows_of(array):
    return dict(zip(("one", "two", "three"), array.T, strict=True))


def test_rows_of_a_table_have_the_losses_of_their_clients():
    data, (rows, labels) = from_table(), (X[::2], Y[::2])
    result = local(data)
    parts = [[values[SITES[::2] == site] for site in "abc"] for values in (rows, labels)]
    found = result.losses({name: values[::2] for name, values in TABLE.items()}, "y", "site")
    np.testing.assert_allclose(found, result.losses(*parts), rtol=1e-12)
    errors = result.errors({name: values[::2] for name, values in TABLE.items()}, "y")
    unit = data.preparation.unit
    np.testing.assert_allclose(np.sqrt(2 * found) * unit[:, None], errors["rmse"].T, rtol=1e-10)
    some = result.losses({name: values[:12] for name, values in TABLE.items()}, "y", "site")
    assert np.isnan(some).tolist() == [[False, True, True]] * 2


LEARNERS = (lf.LocalOnly(ridge=RIDGE), lf.FedRep(rank=1, step_size=0.2), lf.PooledLeastSquares())


@pytest.mark.parametrize("learner", LEARNERS)
def test_new_clients_have_intercepts_of_their_own(learner):
    result = lf.simulate(learner, data=from_table(), n_rounds=20)
    names = np.where(SITES == "a", "new", "x")
    first, last = ({name: values[part] for name, values in TABLE.items()} for part in (np.s_[:30], np.s_[30:]))
    adapted = result.adapt(first, "y", names[:30])
    assert adapted.names == ("new", "x")
    higher = result.adapt(first | {"y": first["y"] + 500.0}, "y", names[:30])
    shift = higher.predictions(last, names[30:]) - adapted.predictions(last, names[30:])
    np.testing.assert_allclose(shift, 500.0, rtol=1e-8)
    parts = [[values[:30][names[:30] == name] for name in adapted.names] for values in (X, Y)]
    again = result.adapt(*parts)
    np.testing.assert_allclose(again.predictors(), adapted.predictors(), rtol=1e-12, atol=1e-12)
    later = [[values[30:][names[30:] == name] for name in adapted.names] for values in (X, Y)]
    np.testing.assert_allclose(again.losses(*later)[:, 1], adapted.losses(last, "y", names[30:])[:, 1], rtol=1e-12)
    error = adapted.predictions(last, names[30:]) - last["y"]
    found = adapted.errors(last, "y", names[30:]).select(client="x")
    np.testing.assert_allclose(found["rmse"], np.sqrt(np.mean(error**2, axis=1)), rtol=1e-9)


def test_data_without_names_count_their_clients():
    rows, y = normal(4, 9, 3), normal(4, 9, seed=1)
    result = lf.simulate(lf.LocalOnly(), data=lf.GivenSamples(rows, y, test=(rows, y)), n_rounds=1)
    theta = result.final.predictors()[0]
    np.testing.assert_allclose(result.predictions(rows[2], [2] * 9)[0], rows[2] @ theta[2], rtol=1e-12)
    assert result.errors()["client"].tolist() == [0, 1, 2, 3]
    fresh = lf.simulate(
        lf.FedAvg(step_size=0.1),
        lf.SharedRepresentation(n_clients=4, dim=3, rank=1),
        data=lf.FreshSamples(5),
        n_rounds=2,
    )
    np.testing.assert_allclose(fresh.predictions(rows[2], [2] * 9)[0], rows[2] @ fresh.final.S[0, 0], rtol=1e-12)
    assert_one_line(fresh.errors, ["errors() without X", "held-out samples"])


def test_clients_without_held_out_samples_do_not_count():
    rows, y = normal(3, 9, 3), normal(3, 9, seed=1)
    test = [rows[0][:4], np.zeros((0, 3)), rows[2][:1]], [y[0][:4], [], y[2][:1]]
    result = lf.simulate(lf.LocalOnly(ridge=1.0), data=lf.GivenSamples(rows, y, test=test), n_rounds=1)
    table = result.errors()
    assert table["samples"].tolist() == [4, 0, 1]
    assert np.isnan(table["rmse"][:, 0]).tolist() == [False, True, False]
    assert np.isnan(table["r2"][:, 0]).tolist() == [False, True, True]
    over = lf.error_table({"a": result})
    np.testing.assert_allclose(over["rmse"], np.nanmean(table["rmse"], axis=0))
    np.testing.assert_allclose(over["r2"], table["r2"][0])


def test_a_diverged_trial_has_no_predictions_and_no_errors():
    rows, y = normal(2, 4, 9, 3) * np.array([1.0, 30.0])[:, None, None, None], normal(2, 4, 9, seed=1)
    data = lf.GivenSamples(rows, y, test=(rows, y))
    result = lf.simulate(lf.FedAvg(step_size=0.1), data=data, n_rounds=300)
    assert result.status[1] is lf.Status.DIVERGED
    assert np.isnan(result.predictions(rows[0, 0], [0] * 9)).all(axis=1).tolist() == [False, True]
    table = lf.error_table({"a": result})
    for name in set(table.columns) - {"method"}:
        assert np.isnan(table[name]).tolist() == [False, True], name


def test_accuracies_of_classes_are_reported():
    labels = (np.arange(41) * 7) % 3
    data = lf.GivenClasses.from_table(X, labels, SITES, trials=2, test_share=0.3)
    result = lf.simulate(lf.FedAvg(step_size=0.1), data=data, n_rounds=5)
    table, over = result.errors(), lf.error_table({"a": result})
    accuracy, counts = result.per_client("accuracy"), data.test.counts
    assert np.array_equal(table["accuracy"].T, accuracy)
    assert np.array_equal(table["samples"], counts.max(axis=0))
    np.testing.assert_allclose(over["accuracy"], accuracy.mean(axis=1))
    np.testing.assert_allclose(over["worst_accuracy"], accuracy.min(axis=1))
    np.testing.assert_allclose(over["rows_accuracy"], (accuracy * counts).sum(axis=1) / counts.sum(axis=1))
    assert over.summarize("rows_accuracy", rows="method").best == "largest"
    assert lf.error_table({"a": local(from_table())}).summarize("r2", rows="method").best == "largest"
    assert_one_line(lambda: result.errors(X, labels, SITES), ["3 classes"])


WRONG = {
    "an unknown client": (
        lambda: local(from_table()).predictions(TABLE, np.array(["d"] * 41)),
        ["clients contains 'd'", "'a', 'b', 'c'", "Result.adapt"],
    ),
    "no clients": (
        lambda: local(from_table()).predictions(rows_of(X)),
        ["clients = None", "an array (samples,)"],
    ),
    "a column is missing": (lambda: local(from_table()).predictions({"one": X[:, 0]}), ["X has no column 'two'"]),
    "another dimension": (
        lambda: local(lf.GivenSamples(normal(2, 9, 3), normal(2, 9))).predictions(normal(4, 2), [0] * 4),
        ["X has shape (4, 2)", "(4, 3)"],
    ),
    "a method that is no result": (lambda: lf.error_table({"a": 3}), ["results['a'] = 3", "a result"]),
    "a list of results": (lambda: lf.error_table([local(from_table())]), ["results", "a mapping"]),
    "the number of a client": (
        lambda: local(lf.GivenSamples(normal(2, 9, 3), normal(2, 9))).predictions(normal(4, 3), [0, 1, 2, 0]),
        ["clients contains 2", "0, 1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rows_are_refused_in_one_line(name):
    assert_one_line(*WRONG[name], (ValueError, TypeError))
