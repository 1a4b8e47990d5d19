"""Runs without a prediction: classification, and gradient steps of clients without federation."""

import pytest

import linfed as lf
from tests.helpers import assert_one_line
from tests.worlds import LEARNERS, names

PROBLEM = lf.Classes(n_clients=5, n_classes=4, classes_per_client=2, dim=6, rank=2, test_samples=15)


@pytest.mark.parametrize("name", names("classification"))
def test_classes_have_no_prediction(name):
    algorithm, wanted = LEARNERS[name].make(), ["no prediction is available for 4 classes"]
    data = lf.FixedSamples(9)
    assert_one_line(lambda: lf.predict(algorithm, PROBLEM, data=data, rounds=3), wanted, lf.NoPredictionError)


def test_a_result_of_classes_has_no_prediction():
    result = lf.simulate(lf.FedAvg(step_size=0.2), PROBLEM, data=lf.FixedSamples(9), rounds=1)
    assert_one_line(lambda: lf.predict(result), ["4 classes"], lf.NoPredictionError)


def test_gradient_steps_without_federation_have_no_prediction():
    problem = lf.SharedRepresentation(n_clients=5, dim=6, rank=2)
    assert_one_line(
        lambda: lf.predict(lf.LocalOnly(step_size=0.1), problem, data=lf.FixedSamples(20), rounds=3),
        ["LocalOnly", "step_size = 0.1", "least squares"],
        lf.NoPredictionError,
    )
