"""ANIL and MAML: the derivative through the clients' own step, and what they reduce to."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.worlds import draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("adapts", ["head", "both"])
def test_the_reference_is_the_derivative_of_the_loss_after_the_own_step(adapts):
    """By differences of the loss: the own step on the first half of the samples, the loss on the second."""
    (X,), (y,) = (world := draw_world([14], 5, 2, noise=0.3, seed=11)).X, world.y
    B, w, alpha = world.B, np.array([0.7, -0.4]), 0.3
    theta, moves = np.concatenate([B.ravel(), w]), np.arange(12) >= (10 if adapts == "head" else 0)

    def after(at):
        slope, _ = ref.two_layer_derivatives(at, X[:7], y[:7], 5, 2)
        own = at - alpha * moves * slope
        return ref.loss(X[7:], y[7:], own[:10].reshape(5, 2) @ own[10:])

    sides = [[after(theta + side * 1e-5 * one) for one in np.eye(12)] for side in (1, -1)]
    slope = (np.array(sides[0]) - sides[1]) / 2e-5
    new_B, new_w = ref.maml_round(
        B, w, [X], [y], step_size=1.0, adaptation_step_size=alpha, hessian=True, disjoint_samples=True, adapts=adapts
    )
    np.testing.assert_allclose(theta - np.concatenate([new_B.ravel(), new_w]), slope, rtol=0, atol=1e-8)


@pytest.mark.parametrize("hessian", [False, True])
@pytest.mark.parametrize("kind", [lf.ANIL, lf.MAML])
def test_without_an_own_step_the_average_loss_is_minimised(kind, hessian):
    world = draw_world([9] * 6, 7, 2, noise=0.2, seed=3)
    run = {"data": world.data(), "n_rounds": 20, "metrics": ["train_loss"]}
    meta = kind(rank=2, step_size=0.1, adaptation_step_size=1e-300, hessian=hessian, init=world.B)
    one, other = (
        lf.simulate(algorithm, **run).final for algorithm in (meta, lf.FedAvg(rank=2, step_size=0.1, init=world.B))
    )
    np.testing.assert_allclose(one.B, other.B, **TOLERANCE)
    np.testing.assert_allclose(one.shared, other.W, **TOLERANCE)
    assert np.abs(other.B - world.B).max() > 0.05


def test_two_local_steps_are_a_step_of_maml_after_a_step_of_the_average_loss():
    """The change in a round of FedAvg with K = 2 is the sum of the changes of both, from one model."""
    world = draw_world([9] * 6, 7, 2, noise=0.2, seed=3)
    step = {"rank": 2, "step_size": 0.2}
    *_, last = lf.iterate(lf.FedAvg(local_steps=2, init=world.B, **step), data=world.data(), n_rounds=4)
    B, w = last.before.B[0], last.before.W[0, 0]
    assert np.abs(w).max() > 0.05
    (B1, w1), (B2, w2) = (
        ref.maml_round(B, w, world.X, world.y, step_size=0.2, adaptation_step_size=size) for size in (0.0, 0.2)
    )
    np.testing.assert_allclose(last.after.B[0] - B, B1 + B2 - 2 * B, **TOLERANCE)
    np.testing.assert_allclose(last.after.W[0, 0] - w, w1 + w2 - 2 * w, **TOLERANCE)


def test_anil_learns_classes():
    mixture = lf.Classes(n_clients=6, dim=5, n_classes=3, classes_per_client=2)
    run = {"data": lf.FixedSamples(12), "n_rounds": 30}
    algorithm = lf.ANIL(rank=2, step_size=0.5, adaptation_step_size=0.5)
    accuracy = lf.simulate(algorithm, mixture, **run).metrics["own_class_accuracy"][0]
    assert accuracy[-1] > accuracy[0] + 0.2
