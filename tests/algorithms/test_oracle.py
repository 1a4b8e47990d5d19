"""The oracle: exact heads at the best subspace of the ground truth."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import normal

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("m", [1, 2, 9])
@pytest.mark.parametrize("rank", [2, 3])
def test_the_oracle_has_the_heads_of_fedrep_at_distance_zero(rank, m):
    """The bases differ by a rotation, the predictors do not; a truth of larger rank is cut to its best subspace."""
    problem = lf.SharedRepresentation(n_clients=6, dim=7, rank=3, noise_std=0.4)
    setting = {"data": lf.FixedSamples(m), "trials": 2, "participation": 4}
    fedrep = lf.FedRep(rank=rank, step_size=0.1, init=lf.AtDistance(0.0))
    start = lf.simulate(fedrep, problem, n_rounds=0, **setting).final.B
    oracle = lf.simulate(lf.Oracle(rank=rank), problem, n_rounds=1, **setting)
    first = lf.simulate(fedrep, problem, n_rounds=1, **setting).final.W
    np.testing.assert_allclose(oracle.final.predictors(), first @ np.swapaxes(start, -1, -2), **TOLERANCE)
    assert oracle.metrics["subspace_distance"].max() < 1e-13
    for B, Phi in zip(oracle.final.B, problem.truth(0, range(2)).dense(), strict=True):
        assert ref.subspace_distance(ref.top_left_subspace(Phi, rank), B) < 1e-10


def test_the_oracle_keeps_to_a_given_subspace():
    B, Phi = normal(6, 2), normal(4, 6, seed=1)
    result = lf.simulate(lf.Oracle(rank=2), lf.GivenTruth(Phi=Phi, B=B), data=lf.FixedSamples(5), n_rounds=1)
    np.testing.assert_allclose(result.final.B[0], ref.qr_positive(B)[0], **TOLERANCE)
