"""Predictions where the regressors do not determine k directions."""

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.linalg import distance_from


def test_a_prediction_without_movement_uses_the_same_reference():
    """With m = rank samples B never moves: its distance is the start's, to the span of the regressors."""
    algorithm = lf.FedRep(rank=2, step_size=0.3, init="random")
    problem, data = lf.GivenTruth(Phi=np.ones((6, 5))), lf.FreshSamples(2)
    run = lf.simulate(algorithm, problem, data=data, rounds=3).metrics["subspace_distance"][0]
    np.testing.assert_allclose(lf.predict(algorithm, problem, data=data, rounds=3).distance, run, rtol=0, atol=1e-12)
    reference, B = problem.truth(0, [0]).reference(2), np.eye(5)[None, :, :2]
    np.testing.assert_allclose([distance_from(reference, B), distance_from(B, reference)], np.sqrt(3 / 5), rtol=1e-12)


def test_no_prediction_without_a_unique_reference():
    problem = lf.GivenTruth(Phi=np.zeros((6, 5)))
    algorithm = lf.FedRep(rank=2, step_size=0.3, init="random")
    with pytest.raises(lf.NoPredictionError, match="the distance cannot be predicted: "):
        lf.predict(algorithm, problem, data=lf.FreshSamples(2), rounds=3).distance  # noqa: B018
