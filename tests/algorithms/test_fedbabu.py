"""FedBABU: averaging of B at a fixed head, which comes from the algorithm's random numbers."""

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.streams import Stream, generators
from linfed.theory import fedavg_fixed_point
from tests import references as ref


@pytest.mark.long
def test_fedbabu_learns_the_direction_of_averaging(world, normal):
    A, b = normal
    w = np.array([0.8, -0.5])
    algorithm = lf.FedBABU(rank=2, step_size=0.2, local_steps=3, head=w)
    steps = list(lf.iterate(algorithm, data=world.data(), n_rounds=2000))
    B = steps[-2].after.B[0]
    theta = fedavg_fixed_point(A, b, step_size=0.2 * w @ w, local_steps=3)
    np.testing.assert_allclose(B @ w, theta, rtol=0, atol=1e-12)
    other = np.array([0.5, 0.8])  # orthogonal to w: B never changes in it
    np.testing.assert_allclose(B @ other, steps[0].after.B[0] @ other, rtol=0, atol=1e-12)
    heads = [ref.least_squares(X @ B, y) for X, y in zip(world.X, world.y, strict=True)]
    np.testing.assert_allclose(steps[-1].after.W[0], heads, rtol=1e-10, atol=1e-10)


def test_the_random_head_of_fedbabu_comes_from_the_stream_of_the_algorithm(world):
    steps = lf.iterate(lf.FedBABU(rank=3, step_size=0.1), data=world.data(), n_rounds=1, trials=2, seed=5)
    for W, rng in zip(next(steps).after.W, generators(5, Stream.ALGORITHM, [0, 1]), strict=True):
        np.testing.assert_allclose(W, rng.standard_normal((1, 3)) / np.sqrt(3), rtol=1e-14)


def test_fedbabu_of_classes_keeps_its_head():
    algorithm = lf.FedBABU(rank=2, step_size=0.2, fine_tune=lf.GradientHeads(steps=3))
    classes = lf.Classes(n_clients=5, dim=4, n_classes=3, classes_per_client=2)
    states = [step.after for step in lf.iterate(algorithm, classes, data=lf.FixedSamples(12), n_rounds=3)]
    assert states[0].W.shape == (1, 1, 3, 3)
    assert not states[0].W[..., -1].any()
    np.testing.assert_array_equal(states[3].W, states[0].W)
    assert np.abs(states[3].B - states[0].B).max() > 1e-3
    assert states[4].W.shape == (1, 5, 3, 3)
