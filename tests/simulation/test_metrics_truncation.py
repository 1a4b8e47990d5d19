"""The metric `mean_truncation_error` against dense arrays; test_metrics.py has the runs without it."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.problems.test_underparameterized import DENSE, problem, svd


def assert_dense_metric(result, problem_, k):
    Phi = problem_.truth(result.seed, range(result.trials)).dense()
    for trial in range(result.trials):
        Theta = result.final.predictors()[trial]
        left, values, right = svd(Phi[trial])
        best = (right[:, :k] * values[:k]) @ left[:, :k].T
        wanted = ref.mean_client_error(Theta, best)
        assert result.metrics["mean_truncation_error"][trial, -1] == pytest.approx(wanted, rel=1e-11)
        error = ref.mean_client_error(Theta, Phi[trial])
        assert result.metrics["mean_client_error"][trial, -1] == pytest.approx(error, rel=1e-11)
        assert abs(wanted - error) > 1e-6
        if not (isinstance(problem_, lf.GivenTruth) and problem_.B is not None):
            distance = ref.subspace_distance(left[:, :k], result.final.B[trial])
            assert result.metrics["subspace_distance"][trial, -1] == pytest.approx(distance, rel=1e-9)


@pytest.mark.parametrize("name", DENSE)
def test_the_error_to_the_truncation_is_the_dense_one(name):
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
    result = lf.simulate(algorithm, DENSE[name], data=lf.FixedSamples(12), n_rounds=4, trials=3, seed=2)
    assert_dense_metric(result, DENSE[name], 2)


def test_the_chain_measures_the_error_to_the_truncation():
    """In its frame as in the full dimension: the first round is that of the projected engine."""
    made = problem(7, 12, spectrum=(4, 3, 2, 1))
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
    results = [
        lf.simulate(algorithm, made, data=lf.FreshSamples(5), n_rounds=0, trials=3, engine=engine)
        for engine in ("chain", "projected")
    ]
    for name, values in results[1].metrics.items():
        np.testing.assert_allclose(results[0].metrics[name], values, rtol=1e-12)
    assert_dense_metric(results[1], made, 2)
