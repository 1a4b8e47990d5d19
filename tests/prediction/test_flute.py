"""Predictions of FLUTE: rate, edge, best step and floor on fixed and on fresh samples."""

import numpy as np

import linfed as lf
from tests.helpers import assert_one_line

THEORY = lf.theory


def flute(step_size, problem, data, **weights):
    algorithm = lf.FLUTE(rank=2, step_size=step_size, **weights)
    return lf.predict(algorithm, problem, data=data, n_rounds=9, trials=2)


def twice(step_size, problem, data):
    """Return the prediction of the same rounds by gradients of twice the size and half the step size."""
    return flute(step_size / 2, problem, data, server_step_size=step_size, gradient_factor=2)


def test_flute_has_its_rate_edge_best_step_and_floor_on_fixed_samples():
    problem, data = lf.UnderParameterized(n_clients=30, dim=10, gap=4.0, gap_after=2), lf.FixedSamples(200)
    truth = problem.truth(0, range(2))
    values = np.linalg.svd(truth.dense(), compute_uv=False)
    found, other = flute(0.01, problem, data), twice(0.01, problem, data)
    np.testing.assert_allclose(found.rate, THEORY.flute_local_rate(values, 2, 0.01), rtol=1e-12)
    np.testing.assert_allclose(found.stability_edge, 1 / values[:, 0], rtol=1e-12)
    # 1 - eta (lambda_k - lambda_(k+1)) = 2 eta lambda_1 - 1
    best = 2 / (2 * values[:, 0] + values[:, 1] - values[:, 2])
    np.testing.assert_allclose(found.best_step, best, rtol=1e-12)
    for row, step in zip(values, best, strict=True):
        least = THEORY.flute_local_rate(row, 2, step)
        assert all(THEORY.flute_local_rate(row, 2, share * step) > least for share in (0.99, 1.01))
    np.testing.assert_allclose(found.floor, THEORY.truncation_floor(truth, 2, 200), rtol=1e-12)
    assert found.floor.metric == "mean_truncation_error"
    np.testing.assert_array_equal(other.rate, found.rate)
    np.testing.assert_allclose(2 * other.stability_edge, found.stability_edge, rtol=1e-12)
    np.testing.assert_allclose(2 * other.best_step, found.best_step, rtol=1e-12)
    fedrep = lf.predict(lf.FedRep(rank=2, step_size=0.01), problem, data=data, n_rounds=9, trials=2)
    np.testing.assert_array_equal(fedrep.floor, found.floor)
    edge = float(found.stability_edge.value.min())
    assert flute(0.999 * edge, problem, data).floor.value.shape == (2,)
    beyond = flute(edge, problem, data)
    assert_one_line(lambda: beyond.floor, [f"stability_edge = {edge:.4g}"], lf.NoPredictionError)


def test_flute_has_a_floor_and_an_edge_on_fresh_samples():
    problem = lf.UnderParameterized(n_clients=15, dim=8, gap=4.0, gap_after=2, noise_std=0.3)
    quiet = lf.UnderParameterized(n_clients=15, dim=8, spectrum=[2.0, 1.0])
    data = lf.FreshSamples(20)
    found, other = flute(0.005, problem, data), twice(0.005, problem, data)
    floor = THEORY.truncation_floor(problem.truth(0, range(2)), 2, 20, step_size=0.005)
    for one in (found, other):
        np.testing.assert_allclose(one.floor, floor)
    assert found.floor.metric == "mean_truncation_error"
    assert "first order" in found.floor.validity
    words = ["only for a ground truth of rank = 2 without label noise"]
    assert_one_line(lambda: found.stability_edge, words, lf.NoPredictionError)
    edge = THEORY.flute_stability_edge(quiet.truth(0, range(2)), 2, 20)
    np.testing.assert_allclose(flute(0.005, quiet, data).stability_edge, edge)
    np.testing.assert_allclose(twice(0.005, quiet, data).stability_edge, edge / 2)
    assert "too low" in flute(0.05, problem, lf.FreshSamples(2)).floor.validity
