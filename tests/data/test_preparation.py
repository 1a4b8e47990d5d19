"""Intercepts and scales of given samples: hand-made centring and scaling, and what is learned from which rows."""

import copy

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal

UNITS = np.array([1.0, 1e-4, 300.0, 5.0])
COUNTS = (4, 9, 6)


def clients(counts=COUNTS, seed=0):
    """Lists of rows with offsets and units, and labels in thousands."""
    X = [UNITS * (normal(m, 4, seed=(seed, i)) + 3 * i) for i, m in enumerate(counts)]
    return X, [1000.0 * (rows @ (1 / UNITS) + 40 + normal(len(rows), seed=(seed, 7, i))) for i, rows in enumerate(X)]


def made(intercept, scale, X, y, test=None):
    return lf.GivenSamples(X, y, test=test, intercept=intercept, scale=scale)


def by_hand(intercept, scale, X, y):
    """Return the means of x and y of each client, the scales of x and the unit of y."""
    means = [(a.mean(axis=0), b.mean()) if intercept else (np.zeros(4), 0.0) for a, b in zip(X, y, strict=True)]
    rows = np.concatenate([a - mean for a, (mean, _) in zip(X, means, strict=True)])
    labels = np.concatenate([b - mean for b, (_, mean) in zip(y, means, strict=True)])
    sizes = (np.sqrt(np.mean(rows**2, axis=0)), np.sqrt(np.mean(labels**2))) if scale else (np.ones(4), 1.0)
    return means, *sizes


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_every_preparation_is_centring_and_scaling_by_hand(intercept, scale):
    (X, y), (test_X, test_y) = clients(), clients((3, 1, 2), seed=1)
    data = made(intercept, scale, X, y, (test_X, test_y))
    means, sizes, unit = by_hand(intercept, scale, X, y)
    for part, rows, labels in ((data, X, y), (data.test, test_X, test_y)):
        for i, (x_mean, y_mean) in enumerate(means):
            count = len(rows[i])
            np.testing.assert_allclose(part.X[i, :count], (rows[i] - x_mean) / sizes, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(part.y[i, :count], (labels[i] - y_mean) / unit, rtol=1e-12, atol=1e-12)
            assert not part.X[i, count:].any()
            assert not part.y[i, count:].any()
    assert (data.preparation is None) == (not intercept and not scale)


def test_data_without_a_preparation_are_the_arrays():
    X, y = normal(3, 5, 4), normal(3, 5, seed=1)
    data = lf.GivenSamples(X, y, intercept=False, scale=False)
    assert np.array_equal(data.X, X)
    assert np.array_equal(data.y, y)
    assert repr(data) == "GivenSamples(X of shape (3, 5, 4), samples per client 5)"


@pytest.mark.parametrize(
    "learner", [lf.LocalOnly(ridge=0.3), lf.PooledLeastSquares(), lf.FedRep(rank=2, step_size=0.1)]
)
def test_offsets_change_nothing_but_the_intercept(learner):
    (X, y), (new_X, new_y) = clients(), clients((2, 3, 4), seed=1)
    found = []
    for x_shift, y_shift in ((0.0, 0.0), (10 * UNITS, 0.0), (0.0, 1e4), (-7 * UNITS, 3e4)):
        rows, new = [a + x_shift for a in X], [a + x_shift for a in new_X]
        data = made(True, True, rows, [b + y_shift for b in y], (new, [b + y_shift for b in new_y]))
        result = lf.simulate(learner, data=data, n_rounds=20)
        flat = np.concatenate(new), np.repeat([0, 1, 2], [2, 3, 4])
        found.append((result.metrics["test_loss"][0, -1], result.predictions(*flat) - y_shift))
    for loss, predictions in found[1:]:
        np.testing.assert_allclose(loss, found[0][0], rtol=1e-8)
        np.testing.assert_allclose(predictions, found[0][1], rtol=1e-8)


def test_a_preparation_of_each_trial_is_learned_from_its_rows():
    (X, y), trials = clients((12, 12, 12)), 3
    data = lf.GivenSamples.from_table(np.concatenate(X), np.concatenate(y), np.repeat([5, 3, 9], 12), trials=trials)
    assert data.client_names == (3, 5, 9)
    plain = lf.GivenSamples.from_table(
        *(np.concatenate(X), np.concatenate(y), np.repeat([5, 3, 9], 12)), trials=trials, intercept=False, scale=False
    )
    for t in range(trials):
        alone = lf.GivenSamples(
            *(plain.X[t], plain.y[t]), test=(plain.test.X[t], plain.test.y[t]), intercept=True, scale=True
        )
        for found, wanted in ((data, alone), (data.test, alone.test)):
            assert np.array_equal(found.X[t], wanted.X)
            assert np.array_equal(found.y[t], wanted.y)


def test_constant_features_are_left_out_and_named():
    X, y = clients()
    X = [np.column_stack([rows, np.full(len(rows), 0.1 + i), np.full(len(rows), 1 / 3)]) for i, rows in enumerate(X)]
    assert made(True, True, X, y).preparation.dropped == (4, 5)  # constant within each client
    assert made(False, True, X, y).preparation.dropped == ()  # a column of ones is an intercept
    assert made(True, False, X, y).X.shape[-1] == 6
    assert str(made(True, True, X, y).preparation) == "an intercept for each client, scaled, without constant 4, 5"
    assert_one_line(
        lambda: made(True, True, [rows[:, 4:] for rows in X], y), ["scale = True", "none of the 2 features"]
    )


def test_a_feature_that_is_constant_in_one_trial_is_zero_there():
    X, y = normal(2, 3, 8, 4), normal(2, 3, 8, seed=1)
    X[1, ..., 2] = 7.0
    test = normal(2, 3, 2, 4, seed=2), normal(2, 3, 2, seed=3)
    data = made(True, True, X, y, test)
    assert data.X.shape == X.shape
    assert not data.X[1, ..., 2].any()
    assert not data.test.X[1, ..., 2].any()
    assert data.test.X[0, ..., 2].any()


def test_samples_that_are_held_out_do_not_prepare_the_others():
    X, y = clients((8, 16, 12))
    data = made(True, True, X, y)
    inner = data.hold_out(0.25, seed=3)
    raw = lf.GivenSamples(X, y).hold_out(0.25, seed=3)
    means, sizes, unit = by_hand(True, True, *(
        [part[i, : int(raw.counts[i])] for i in range(3)] for part in (raw.X, raw.y)
    ))  # fmt: skip
    for found, wanted in ((inner, raw), (inner.test, raw.test)):
        for i, (x_mean, y_mean) in enumerate(means):
            count = int(wanted.counts[i])
            np.testing.assert_allclose(found.X[i, :count], (wanted.X[i, :count] - x_mean) / sizes, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(found.y[i, :count], (wanted.y[i, :count] - y_mean) / unit, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(inner.preparation.unit, unit, rtol=1e-10)
    np.testing.assert_allclose(inner.preparation.factor, 1 / sizes[None], rtol=1e-10)
    np.testing.assert_allclose(inner.preparation.y_mean[0], [mean for _, mean in means], rtol=1e-10)
    np.testing.assert_allclose(inner.preparation.x_mean[0], [mean for mean, _ in means], rtol=1e-8)


def test_each_trial_of_a_hold_out_has_its_own_samples():
    X, y = clients((8, 16, 12))
    data = made(True, True, X, y).hold_out(0.25, trials=4, seed=3)
    assert data.X.shape == (4, 3, 12, 4)
    assert len({part.tobytes() for part in data.X}) == 4
    assert_one_line(lambda: data.hold_out(0.25, trials=3), ["trials = 3", "must be 4"])


def test_classes_are_scaled_about_the_mean_of_all_rows():
    X, _ = clients()
    labels = [np.arange(len(rows)) % 2 for rows in X]
    data = lf.GivenClasses(X, labels, test=(X, labels), scale=True)
    rows = np.concatenate(X)
    for part in (data, data.test):
        found = np.concatenate([part.X[i, : len(one)] for i, one in enumerate(X)])
        np.testing.assert_allclose(found, (rows - rows.mean(axis=0)) / rows.std(axis=0), rtol=1e-12, atol=1e-12)
        assert np.array_equal(part.y[1, :9], labels[1])
    held_out = data.hold_out(0.3, trials=2)
    assert held_out.n_classes == 2
    result = lf.simulate(lf.FedAvg(step_size=0.1), data=data, n_rounds=3)
    assert result.predictions(rows[:5], clients=[0] * 5).tolist() == [
        [float(np.argmax(result.final.predictors()[0, 0] @ np.append(x, 1.0))) for x in found[:5]]
    ]


def test_a_preparation_is_kept_with_the_data(tmp_path):
    data = made(True, True, *clients())
    result = lf.simulate(lf.LocalOnly(), data=data, n_rounds=1)
    assert "an intercept for each client, scaled" in result.summary()
    loaded = lf.Result.load(result.save(tmp_path / "a.npz"))
    assert loaded.data.preparation == data.preparation == copy.deepcopy(data).preparation
    rows = UNITS * normal(3, 4, seed=5)
    assert np.array_equal(loaded.predictions(rows, [0, 1, 2]), result.predictions(rows, [0, 1, 2]))


def test_pseudo_samples_keep_the_preparation():
    X, y = normal(3, 20, 4) + 5, normal(3, 20, seed=1)
    data = lf.GivenSamples(X, y, intercept=True)
    assert data.compressed().preparation == data.preparation


def test_a_ground_truth_belongs_to_samples_as_given():
    problem = lf.GivenTruth(B=np.eye(4)[:, :2], W=normal(3, 2))
    data = made(True, True, *clients())
    assert_one_line(
        lambda: lf.simulate(lf.LocalOnly(), problem, data=data, n_rounds=1), ["problem=", "intercept=False"]
    )


FAR = {
    "labels in thousands": (lambda X: X, lambda y: 1000 * y, "the labels"),
    "labels with a mean": (lambda X: X, lambda y: y + 5, "the labels"),
    "a column with a mean": (lambda X: X + np.array([0, 5, 0]), lambda y: y, "1 of 3 features"),
    "a column in a small unit": (lambda X: X * [1, 1, 1e-3], lambda y: y, "1 of 3 features"),
}


@pytest.mark.parametrize("name", FAR)
def test_unprepared_samples_are_reported_where_a_shared_representation_is_learned(name):
    x_change, y_change, words = FAR[name]
    X, y = normal(4, 10, 3), normal(4, 10, seed=1)
    data = lf.GivenSamples(x_change(X), y_change(y))
    fedrep = lf.FedRep(rank=1, step_size=1e-8, init="random")
    with pytest.warns(UserWarning, match=f"{words}.* far from mean 0 or scale 1.*intercept=True and scale=True"):
        lf.simulate(fedrep, data=data, n_rounds=1)
    with pytest.warns(UserWarning, match="far from mean 0 or scale 1"):
        lf.tune(fedrep, data=data, grid={"step_size": [1e-8]}, n_rounds=1, metric="train_loss", trials=1)
    with pytest.warns(UserWarning, match="far from mean 0 or scale 1"):
        lf.sweep([lf.Run(algorithm=fedrep, data=data, n_rounds=1)])
    lf.simulate(lf.LocalOnly(), data=data, n_rounds=1)  # no shared representation: no warning, which would be an error
    lf.simulate(fedrep, data=lf.GivenSamples(X, y), n_rounds=1)
    lf.simulate(fedrep, data=lf.GivenSamples(x_change(X), y_change(y), intercept=True, scale=True), n_rounds=1)
