"""FedRoD: the averaging that it is, the heads beside it, and what they are at the end and for new clients."""

import numpy as np
import pytest
import scipy.linalg

import linfed as lf
from tests import references as ref
from tests.helpers import normal
from tests.worlds import draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
PROBLEM = lf.SharedRepresentation(n_clients=6, dim=7, rank=2, noise_std=0.2)
PERSONAL = {
    "gradient": lf.GradientHeads(),
    "gradient, 4 steps": lf.GradientHeads(steps=4, step_size=0.2),
    "exact": lf.ExactHeads(),
    "ridge": lf.ExactHeads(ridge=0.3),
}


def final(world, algorithm, n_rounds, participation=1.0, **more):
    return lf.simulate(algorithm, data=world.data(), n_rounds=n_rounds, participation=participation, **more).final


def fedrod(world, **changes):
    return lf.FedRoD(**{"rank": world.B.shape[1], "step_size": 0.1, "init": world.B} | changes)


@pytest.mark.parametrize(
    "local", [{"local_steps": 3, "server_step_size": 0.7, "weights": "samples"}, {"local_epochs": 2, "batch_size": 2}]
)
@pytest.mark.parametrize("personal", PERSONAL)
def test_the_averaged_model_is_that_of_fedavg(personal, local):
    """Bit for bit, with minibatches, too: personal heads leave (B, w) and the order of the samples alone."""
    world = draw_world([3, 9, 4, 2, 6], 6, 2, noise=0.3)
    participants = draw_participants(5, 3, 8)
    one = final(world, fedrod(world, personal=PERSONAL[personal], **local), 8, participants)
    other = final(world, lf.FedAvg(rank=2, step_size=0.1, init=world.B, **local), 8, participants)
    assert np.array_equal(one.B, other.B)
    assert np.array_equal(one.W, other.W)
    assert one.V.any()


@pytest.mark.parametrize("counts", [[7] * 5, [3, 9, 4, 2, 6]], ids=["equal", "unequal"])
def test_exact_heads_are_those_of_fedrep_at_the_rounds_representation(counts):
    world = draw_world(counts, 6, 2, noise=0.3)
    participants = draw_participants(5, 3, 9)
    algorithm = fedrod(world, personal=lf.ExactHeads(), local_steps=2)
    before, after = (final(world, algorithm, r, participants[:r]) for r in (8, 9))
    fedrep = lf.FedRep(rank=2, step_size=0.1, init=before.B[0])
    heads = final(world, fedrep, 1, participants[8:]).W
    active = np.sort(participants[8])
    found = (before.W + after.V)[0, active]
    np.testing.assert_allclose(found, heads[0, active], rtol=0, atol=1e-12)
    assert np.abs((after.W + after.V)[0, active] - found).max() > 1e-3  # w has moved since, and B


def test_with_few_samples_the_exact_head_is_the_solution_nearest_to_the_generic_one():
    world = draw_world([2] * 5, 6, 3, noise=0.3)
    before, after = (final(world, fedrod(world, personal=lf.ExactHeads()), r) for r in (8, 9))
    shortest = final(world, lf.FedRep(rank=3, step_size=0.1, init=before.B[0]), 1).W
    for X, y, v, u in zip(world.X, world.y, after.V[0], shortest[0], strict=True):
        Z, w = X @ before.B[0], before.W[0, 0]
        np.testing.assert_allclose(Z @ (w + v), y, **TOLERANCE)
        np.testing.assert_allclose(Z @ u, y, **TOLERANCE)
        np.testing.assert_allclose(scipy.linalg.null_space(Z).T @ v, 0, atol=1e-12)
        assert np.abs(w + v - u).max() > 1e-2  # which FedRep's, the one nearest to 0, is not


def test_a_ridge_holds_the_client_near_the_generic_head():
    world = draw_world([7] * 5, 6, 2, noise=0.3)
    sizes = [np.abs(final(world, fedrod(world, personal=lf.ExactHeads(ridge=r)), 8).V).max() for r in (0.1, 1e3, 1e9)]
    assert sizes[0] > 0.1
    assert sizes[1] < 1e-2
    assert sizes[2] < 1e-8


def test_exact_fine_tuning_makes_it_fine_tuned_fedavg():
    world = draw_world([7] * 5, 6, 2, noise=0.3)
    both = (
        final(world, kind(rank=2, step_size=0.1, init=world.B, fine_tune=lf.ExactHeads()), 8)
        for kind in (lf.FedRoD, lf.FedAvg)
    )
    one, other = (state.predictors() for state in both)
    np.testing.assert_allclose(one, other, **TOLERANCE)


@pytest.mark.parametrize("name", PERSONAL)
@pytest.mark.parametrize("fine_tune", [None, lf.ExactHeads(ridge=0.7)])
def test_new_clients_fit_a_head_beside_the_generic_one(name, fine_tune):
    algorithm = lf.FedRoD(rank=2, step_size=0.1, personal=PERSONAL[name], fine_tune=fine_tune)
    result = lf.simulate(algorithm, PROBLEM, data=lf.FixedSamples(5), n_rounds=6, trials=2)
    X, y = normal(2, 3, 4, 7), normal(2, 3, 4, seed=1)
    found = result.adapt(X, y)
    ridge = 0.7 if fine_tune else getattr(PERSONAL[name], "ridge", 0.0)
    for t in range(2):
        B, w = result.final.B[t], result.final.W[t, 0]
        heads = [w + ref.least_squares(X_i @ B, y_i - X_i @ B @ w, ridge) for X_i, y_i in zip(X[t], y[t], strict=True)]
        np.testing.assert_allclose(found.state.W[t], heads, **TOLERANCE)
        np.testing.assert_allclose(found.predictors()[t], heads @ B.T, **TOLERANCE)


def test_schedules_reach_the_personal_heads():
    world = draw_world([7] * 5, 6, 2, noise=0.3)
    steps = [0.2, 0.05, 0.1]
    state = final(world, fedrod(world, step_size=steps, fine_tune=lf.GradientHeads(steps=2)), 3)
    B, w, V = world.B, np.zeros(2), np.zeros((5, 2))
    for step in steps:
        B, w, V = ref.fedrod_round(B, w, V, world.X, world.y, range(5), personal=lf.GradientHeads(), step_size=step)
    V = ref.fedrod_round(B, w, V, world.X, world.y, range(5), personal=lf.GradientHeads(steps=2), step_size=0.1)[2]
    np.testing.assert_allclose(state.V[0], V, **TOLERANCE)


def test_no_law_of_averaging_is_told_of_it():
    with pytest.raises(lf.NoPredictionError, match="no prediction is available for algorithm = FedRoD"):
        lf.predict(lf.FedRoD(rank=2, step_size=0.1), PROBLEM, data=lf.FixedSamples(9), n_rounds=5)
