"""Samples that are drawn without a run, and the normal equations of given ones."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_same, normal
from tests.worlds import draw_world


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("trials", [1, 3])
def test_drawn_samples_are_those_that_a_run_sees(trials, noise):
    problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=noise, design=lf.Rademacher(covariance=2.0))
    data = lf.FixedSamples(3)
    given = data.draw(problem, trials=trials, seed=(2, 5))
    run = {"rounds": 1, "seed": (2, 5)}
    *_, step = lf.iterate(lf.PooledLeastSquares(), problem, data=data, trials=trials, **run)
    assert np.array_equal(given.X, step.batch.X)
    assert np.array_equal(given.y, step.batch.y)
    assert (given.n_trials, given.counts.tolist()) == (trials, [3.0] * 5)
    one, two = (lf.simulate(lf.PooledLeastSquares(), problem, data=d, trials=trials, **run) for d in (given, data))
    assert_same(one, two)
    assert not np.isin(data.draw(problem, trials=trials).y, given.y).any()


@pytest.mark.parametrize("form", ["lists", "array", "trials"])
def test_normal_equations_of_given_samples(form):
    if form == "lists":
        world = draw_world([1, 4, 2, 7], 3, 2, noise=0.3)
        given, X, y = world.data(), [world.X], [world.y]
    else:
        X, y = normal(3, 4, 5, 3), normal(3, 4, 5, seed=1)
        if form == "array":
            X, y = X[:1], y[:1]
        given = lf.GivenSamples(X, y) if form == "trials" else lf.GivenSamples(X[0], y[0])
    A, b = given.normal_equations()
    assert A.ndim == (4 if form == "trials" else 3)
    for t, (rows, labels) in enumerate(zip(X, y, strict=True)):
        for i, (X_i, y_i) in enumerate(zip(rows, labels, strict=True)):
            index = (t, i) if form == "trials" else i
            np.testing.assert_allclose(A[index], X_i.T @ X_i / len(y_i), rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(b[index], X_i.T @ y_i / len(y_i), rtol=1e-10, atol=1e-10)
