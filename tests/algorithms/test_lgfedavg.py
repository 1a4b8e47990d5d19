"""LG-FedAvg: where it ends, what it reduces to, and that nothing of it is shared but the head."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, normal
from tests.worlds import draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
PROBLEM = lf.SharedRepresentation(n_clients=6, dim=7, rank=2, noise_std=0.2)


def final(world, algorithm, n_rounds, participation=1.0):
    return lf.simulate(algorithm, data=world.data(), n_rounds=n_rounds, participation=participation).final


def lgfedavg(world, **changes):
    return lf.LGFedAvg(**{"rank": 2, "step_size": 0.1, "init": world.B} | changes)


@pytest.mark.parametrize("local_steps", [1, 4])
def test_with_one_client_it_is_the_two_layer_fedavg(local_steps):
    world = draw_world([6], 4, 2, noise=0.5)
    options = {"local_steps": local_steps, "server_step_size": 1.0}
    one = final(world, lgfedavg(world, **options), 9)
    other = final(world, lf.FedAvg(rank=2, step_size=0.1, init=world.B, **options), 9)
    assert np.array_equal(one.own[:, 0], other.B)
    assert np.array_equal(one.W, other.W)


def test_with_identical_clients_it_is_the_two_layer_fedavg():
    world = draw_world([6], 4, 2, noise=0.5)
    world.X, world.y = world.X * 3, world.y * 3
    one = final(world, lgfedavg(world, local_steps=3), 9)
    other = final(world, lf.FedAvg(rank=2, step_size=0.1, local_steps=3, init=world.B), 9)
    np.testing.assert_allclose(one.own, np.repeat(other.B[:, None], 3, axis=1), **TOLERANCE)
    np.testing.assert_allclose(one.W, other.W, **TOLERANCE)


@pytest.mark.long
@pytest.mark.parametrize("counts", [[40] * 5, [30, 40, 60, 25, 35]], ids=["equal", "unequal"])
@pytest.mark.parametrize("p", [5, 3])
def test_it_ends_where_every_client_is_alone(counts, p):
    """A shared head binds nobody: with m >= d every client ends at its own least squares, whoever takes part."""
    world = draw_world(counts, 4, 2, noise=0.5)
    state = final(world, lgfedavg(world, step_size=0.3), 800, draw_participants(5, p, 800))
    alone = final(world, lf.LocalOnly(), 1)
    np.testing.assert_allclose(state.predictors(), alone.S, **TOLERANCE)
    gradients = [ref.gradient(X, y, theta) for X, y, theta in zip(world.X, world.y, state.predictors()[0], strict=True)]
    assert np.abs(gradients).max() < 1e-10
    assert np.abs(state.own[0, 0] - state.own[0, 1]).max() > 0.1  # and the B_i are not one
    assert np.abs(state.W).max() > 0.1


def test_a_point_without_gradients_stays():
    """From the least squares of all clients, whatever the factors, a round changes nothing but rounding."""
    world = draw_world([9, 6, 14], 4, 2, noise=0.5)
    theta, w = final(world, lf.LocalOnly(), 1).S[0], np.array([0.6, -1.1])
    own = np.array([normal(4, 2, seed=i) for i in range(3)])
    own += (theta - own @ w)[..., None] * w / (w @ w)  # B_i w = theta_i
    state = next(lf.iterate(lgfedavg(world), data=world.data(), n_rounds=1)).after
    state = state.update(own=own[None], W=w[None, None])
    algorithm = lgfedavg(world, step_size=0.3, local_steps=5)
    for round_ in lf.iterate(algorithm, data=world.data(), n_rounds=1):
        if round_.number:
            new = algorithm.step(state, round_.batch, None)
    np.testing.assert_allclose(new.own, state.own, rtol=0, atol=1e-13)
    np.testing.assert_allclose(new.W, state.W, rtol=0, atol=1e-13)


def test_the_first_round_moves_the_head_alone():
    world = draw_world([6, 2, 9], 4, 2, noise=0.5)
    for local_steps, moves in ((1, False), (2, True)):
        state = final(world, lgfedavg(world, local_steps=local_steps), 1)
        assert np.array_equal(state.own[0], [world.B] * 3) is not moves
        assert state.W.any()


def test_there_is_no_distance_of_subspaces():
    run = {"data": lf.FixedSamples(5), "n_rounds": 3}
    result = lf.simulate(lf.LGFedAvg(rank=2, step_size=0.1), PROBLEM, **run)
    assert set(result.metrics) == {"parameter_error", "mean_client_error", "risk"}
    named = lf.LGFedAvg(rank=2, step_size=0.1)
    assert_one_line(
        lambda: lf.simulate(named, PROBLEM, metrics=["subspace_distance"], **run), ["subspace_distance", "no represent"]
    )
    assert_one_line(lambda: lf.Personalized(base=named, ridge=0.1), ["base", "learns a representation B"])


@pytest.mark.parametrize("init", ["moments", lf.AtDistance(0.3), normal(7, 2)])
def test_every_initialisation_serves(init):
    run = {"data": lf.FixedSamples(5), "n_rounds": 0, "trials": 2}
    own = lf.simulate(lf.LGFedAvg(rank=2, step_size=0.1, init=init), PROBLEM, **run).final.own
    B = lf.simulate(lf.FedPer(rank=2, step_size=0.1, init=init), PROBLEM, **run).final.B
    assert np.array_equal(own, np.repeat(B[:, None], 6, axis=1))
    wide = lf.LGFedAvg(rank=2, step_size=0.1, init=normal(7, 3))
    assert_one_line(lambda: lf.simulate(wide, PROBLEM, **run), ["init has shape (7, 3)", "(7, 2)"])


@pytest.mark.parametrize("kind", [lf.LGFedAvg, lf.FedPer])
def test_the_rank_may_be_the_dimension(kind):
    algorithm = kind(rank=7, step_size=0.1)
    algorithm.check(n_clients=6, dim=7)
    assert_one_line(lambda: algorithm.check(n_clients=6, dim=6), ["rank = 7 must be at most dim = 6"])


def test_new_clients_are_on_their_own():
    result = lf.simulate(lf.LGFedAvg(rank=2, step_size=0.1), PROBLEM, data=lf.FixedSamples(5), n_rounds=3)
    alone = lf.simulate(lf.LocalOnly(), PROBLEM, data=lf.FixedSamples(5), n_rounds=3)
    assert np.array_equal(result.new_clients([2, 9]), alone.new_clients([2, 9]))
