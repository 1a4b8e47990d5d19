"""The predicted floor of FedAvg on fixed samples, under a covariance of x."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import basis


@pytest.mark.long
def test_the_predicted_floor_of_fedavg_under_a_covariance_is_the_risk_at_its_fixed_point():
    """A full covariance: the square root of the spread is 0, with other axes than the covariance."""
    turn = basis(4, 4)
    covariance = turn @ (np.geomspace(1.0, 9.0, 4)[:, None] * turn.T)
    one = lf.SharedRepresentation(n_clients=6, dim=4, rank=2, design=lf.Gaussian(covariance=covariance))
    setting = {"data": lf.FixedSamples(8), "rounds": 1500}
    for share in (1.0, 0.5):
        algorithm = lf.FedAvg(step_size=0.02, local_steps=2)
        floor = lf.predict(algorithm, one, participation=share, **setting).floor
        result = lf.simulate(algorithm, one, participation=share, **setting)
        measured = result.metrics["risk"][0, 500:].mean()
        np.testing.assert_allclose(np.mean(floor), measured, rtol=1e-6 if share == 1 else 0.1)
