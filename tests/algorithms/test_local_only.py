"""Clients on their own: many gradient steps end at least squares, and at ridge regression."""

import numpy as np
import pytest

import linfed as lf


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_many_gradient_steps_end_at_the_closed_form(ridge):
    problem = lf.SharedRepresentation(n_clients=6, dim=4, rank=2, noise_std=0.5)
    run = {"data": lf.FixedSamples(30), "trials": 2}
    steps = lf.simulate(lf.LocalOnly(ridge=ridge, step_size=0.5, local_steps=5), problem, n_rounds=300, **run)
    exact = lf.simulate(lf.LocalOnly(ridge=ridge), problem, n_rounds=1, **run)
    np.testing.assert_allclose(steps.final.S, exact.final.S, rtol=1e-10, atol=1e-10)
