"""Fits of own data against what other people have derived or written: reduced-rank regression, and scikit-learn."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import normal

UNITS, RIDGE = np.array([1.0, 1e-3, 200.0, 7.0]), 0.2
COUNTS = (9, 30, 14, 21)
SITES = np.repeat(["d", "a", "c", "b"], COUNTS)
X = UNITS * (normal(74, 4) + 5.0)
Y = 1000.0 * (X @ (np.array([1.0, -2.0, 0.5, 0.0]) / UNITS) + 0.5 * normal(74, seed=1))
Y += 4000.0 * np.repeat([1.0, -1.0, 0.0, 3.0], COUNTS)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_alternating_minimisation_on_one_design_is_reduced_rank_regression(k):
    """With one X for all clients the minimum has a closed form (Izenman 1975)."""
    n, m, d = 9, 40, 5
    rows = normal(m, d) * np.linspace(0.5, 2.0, d)
    spectrum = np.array([9.0, 3.0, 1.0])
    Theta = np.linalg.qr(normal(d, 3, seed=1))[0] * spectrum @ np.linalg.qr(normal(n, 3, seed=2))[0].T
    labels = rows @ Theta + 0.02 * normal(m, n, seed=3)
    data = lf.GivenSamples(np.repeat(rows[None], n, axis=0), labels.T)
    result = lf.simulate(lf.AltMin(rank=k), data=data, n_rounds=200, record_every=200)
    wanted = ref.reduced_rank_regression(rows, labels, k)
    np.testing.assert_allclose(result.final.predictors()[0], wanted.T, rtol=0, atol=1e-12 * np.abs(wanted).max())
    minimiser = lf.simulate(lf.BurerMonteiro(rank=k), data=data, n_rounds=1)
    np.testing.assert_allclose(minimiser.final.predictors()[0], wanted.T, rtol=0, atol=1e-5 * np.abs(wanted).max())


def split_by_client(data, part, scale):
    """Return the rows in units of `scale`, and the labels, of each client as they were given."""
    preparation, found = data.preparation, []
    for i, count in enumerate(part.counts.astype(int)):
        rows = part.X[0, i, :count] / preparation.factor[0] + preparation.x_mean[0, i]
        found.append((rows / scale, part.y[0, i, :count] * preparation.unit[0] + preparation.y_mean[0, i]))
    return found


@pytest.mark.long
@pytest.mark.parametrize(("x_shift", "y_shift"), [(0.0, 0.0), (10.0 * UNITS, 0.0), (0.0, 1e4)])
def test_local_and_pooled_ridge_are_those_of_scikit_learn(x_shift, y_shift):
    """On equally scaled rows; a dummy variable in a huge unit is an intercept that no ridge penalises."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    data = lf.GivenSamples.from_table(X + x_shift, Y + y_shift, SITES, test_share=0.3)
    scale = 1.0 / data.preparation.factor[0]
    train, test = (split_by_client(data, part, scale) for part in (data, data.test))
    local = lf.simulate(lf.LocalOnly(ridge=RIDGE), data=data, n_rounds=1).errors()["rmse"]
    pooled = lf.simulate(lf.PooledLeastSquares(ridge=RIDGE, weights="samples"), data=data, n_rounds=1).errors()["rmse"]

    def rmse(model, rows, labels):
        return np.sqrt(np.mean((model.predict(rows) - labels) ** 2))

    for i, (rows, labels) in enumerate(train):
        fitted = linear_model.Ridge(alpha=RIDGE * len(rows)).fit(rows, labels)
        assert local[i, 0] == pytest.approx(rmse(fitted, *test[i]), rel=1e-8)

    def with_dummies(rows, i):
        return np.column_stack([rows, 1e6 * np.tile(np.eye(len(COUNTS))[i], (len(rows), 1))])

    rows = np.concatenate([with_dummies(part, i) for i, (part, _) in enumerate(train)])
    labels = np.concatenate([part for _, part in train])
    fitted = linear_model.Ridge(alpha=RIDGE * len(rows), solver="svd").fit(rows, labels)
    for i, (part, truth) in enumerate(test):
        assert pooled[i, 0] == pytest.approx(rmse(fitted, with_dummies(part, i), truth), rel=1e-8)
