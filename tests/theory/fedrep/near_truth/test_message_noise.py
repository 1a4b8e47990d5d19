"""FedRep with noise on the mean message: the mean of a round, the floor near B*, and the best schedule."""

import numpy as np
import pytest

import linfed as lf
from linfed.theory import near_truth_floor, noise_floor, one_round_means
from tests.helpers import basis, normal

ROUNDS = {
    "all clients": {},
    "one participant": {"participation": 1, "message_noise_std": 1.0},
    "no label noise": {"noise_std": 0.0},
    "few samples": {"n_samples": 5},
    "large noise": {"message_noise_std": 1.0},
    "half the dimension": {"dim": 4},
}


@pytest.mark.long
@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_has_the_predicted_mean(name):
    """Before QR, within 4 standard errors; without the noise, or with d in place of d - k, it is not."""
    given = {"participation": 12, "noise_std": 0.2, "n_samples": 8, "message_noise_std": 0.3, "dim": 10} | ROUNDS[name]
    d, m, added, p = (given[key] for key in ("dim", "n_samples", "message_noise_std", "participation"))
    W, step = normal(12, 2) * [1.5, 0.7], 0.4
    problem = lf.GivenTruth(B=np.eye(d, 2), W=W, noise_std=given["noise_std"])
    B0 = basis(d, 2, seed=3)
    algorithm = lf.PrivateFedRep(rank=2, step_size=step, init=B0, message_noise_std=added, orthonormalize=False)
    B = lf.simulate(
        algorithm, problem, data=lf.FreshSamples(m), n_rounds=1, participation=p, trials=3000, engine="projected"
    ).final.B
    squares = np.square(B[:, 2:]).sum(axis=(-2, -1))
    N, outside = B0[:2], B0[2:].T @ B0[2:]
    sizes = {"dim": d, "n_samples": m, "step_size": step, "noise_std": given["noise_std"], "participants": p}

    def z(noise):
        mean = np.trace(one_round_means(N, outside, W, message_noise_std=noise, **sizes)[1])
        return (squares.mean() - mean) / (squares.std() / len(squares) ** 0.5)

    assert abs(z(added)) < 4
    assert abs(z(0.0)) > 4
    assert abs(z(added * np.sqrt(d / (d - 2)))) > 4
    inside = (B[:, :2] - one_round_means(N, outside, W, message_noise_std=added, **sizes)[0]).mean(axis=0)
    assert (np.abs(inside) < 4.5 * B[:, :2].std(axis=0) / len(B) ** 0.5).all()


def test_isotropic_heads_have_the_closed_form():
    W = np.tile(np.sqrt(3) * np.eye(3), (6, 1))
    some = {"dim": 20, "n_samples": 8, "participants": 7, "noise_std": 0.2, "message_noise_std": 0.01}
    X = near_truth_floor(W, step_size=0.4, **some)
    floor = noise_floor(0.4, rank=3, n_clients=18, **some)
    np.testing.assert_allclose(X, floor**2 * np.eye(3), rtol=1e-9, atol=1e-15)
    alone = noise_floor(0.4, rank=3, n_clients=18, **some | {"noise_std": 0.0})
    label = noise_floor(0.4, rank=3, n_clients=18, **some | {"message_noise_std": 0.0})
    assert alone**2 + label**2 == pytest.approx(floor**2)
    path = lf.theory.mean_squared_sine(0.4, rank=3, n_clients=18, n_rounds=1000, delta=0.3, **some)
    assert path[-1] == pytest.approx(floor**2, rel=0.02)


SCHEDULED = {"dim": 50, "rank": 2, "n_clients": 40, "n_samples": 6, "noise_std": 0.3, "participants": 30}


def test_the_best_schedule_takes_the_noise_into_account():
    run = {**SCHEDULED, "message_noise_std": 0.05, "n_rounds": 30, "delta": 0.8}
    steps = lf.theory.best_step_schedule(**run)
    end = lf.theory.mean_squared_sine(steps, **run)[-1]
    without = lf.theory.best_step_schedule(**run | {"message_noise_std": 0.0})
    assert end < 0.98 * lf.theory.mean_squared_sine(without, **run)[-1]
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = lf.theory.mean_squared_sine(steps * np.exp(rng.normal(scale=0.05, size=30)), **run)[-1]
        assert other > end
    W = lf.SharedRepresentation(n_clients=40, dim=50, rank=2, condition_number=1.0).truth(0, [0]).W[0]
    own = {name: run[name] for name in ("dim", "n_samples", "noise_std", "participants", "message_noise_std")}
    path = lf.theory.state_evolution(W, step_size=steps, n_rounds=30, delta=0.8, **own).distance ** 2
    np.testing.assert_allclose(lf.theory.mean_squared_sine(steps, **run), path, rtol=1e-8)


def tangents(state, truth):
    """Return the mean square of the tangents of B at B*."""
    inside = truth.B.mT @ state.B
    outside = state.B - truth.B @ inside
    return np.square(outside @ np.linalg.inv(inside)).sum(axis=(-2, -1))


FLOORS = {
    "isotropic": ({"condition_number": 1.0}, {}),
    "general heads": ({"condition_number": 3.0}, {}),
    "one participant": ({"condition_number": 1.5}, {"participation": 1, "step_size": 0.1, "n_rounds": 160}),
    "no label noise": ({"condition_number": 2.0, "noise_std": 0.0}, {}),
    "m = k + 2": ({"condition_number": 1.0, "noise_std": 0.0}, {"n_samples": 4}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FLOORS)
def test_runs_have_the_predicted_floor(name):
    """Within 6 % and 4 standard errors; without the noise, or with (d-k) (k+1)/k in place of d - k, it is not."""
    changes, own = FLOORS[name]
    problem = lf.SharedRepresentation(**{"n_clients": 24, "dim": 30, "rank": 2, "noise_std": 0.02} | changes)
    given = {"step_size": 0.3, "n_samples": 8, "participation": 24, "n_rounds": 80} | own
    step, m, p, rounds = (given[key] for key in ("step_size", "n_samples", "participation", "n_rounds"))
    algorithm = lf.PrivateFedRep(rank=2, step_size=step, message_noise_std=0.005, init=lf.AtDistance(0.01))
    world = {"data": lf.FreshSamples(m), "n_rounds": rounds, "participation": p, "trials": 40, "engine": "projected"}
    result = lf.simulate(algorithm, problem, metrics=[tangents], seed=2, record_every=4, **world)
    settled = result.metrics["tangents"][:, result.rounds > rounds / 2]
    W = problem.truth(2, range(40)).W
    sizes = {"dim": 30, "n_samples": m, "step_size": step, "participants": p, "noise_std": problem.noise_std}

    def ratios(noise):
        X = near_truth_floor(W, message_noise_std=noise, **sizes)
        return settled.mean(axis=1) / np.trace(X, axis1=-2, axis2=-1)

    def apart(noise):
        found = ratios(noise)
        return abs(found.mean() - 1.0) > 0.02 + 4 * found.std() / 40**0.5

    assert abs(ratios(0.005).mean() - 1.0) < 0.06
    assert not apart(0.005)
    assert problem.noise_std == 0 or apart(0.0)
    assert apart(0.005 * np.sqrt(1.5))


@pytest.mark.long
def test_many_rounds_of_the_best_schedule_cost_nothing():
    """The noise for 1,000 rounds leaves (d-k) (s_1/c)^2, s_1 the noise for one round; without c, it does not."""
    d, m, n = 12, 6, 40
    first = 0.0015
    sizes = {"dim": d, "n_samples": m, "noise_std": 0.0, "message_noise_std": first * 1000**0.5, "n_rounds": 1000}
    steps = lf.theory.best_step_schedule(rank=1, n_clients=n, delta=0.5, **sizes)
    problem = lf.GivenTruth(B=np.eye(d, 1), W=np.tile([[1.0], [-1.0]], (n // 2, 1)))
    algorithm = lf.PrivateFedRep(
        init=lf.AtDistance(0.5), rank=1, step_size=steps, message_noise_std=sizes["message_noise_std"]
    )
    world = {"data": lf.FreshSamples(m), "n_rounds": 1000, "record_every": 1000, "trials": 80, "engine": "projected"}
    squares = lf.simulate(algorithm, problem, metrics=[tangents], **world).metrics["tangents"][:, -1]
    error = squares.std() / 80**0.5
    limit = (d - 1) * (first / (1.0 - 1.0 / m)) ** 2
    assert abs(squares.mean() - limit) < 4 * error
    assert abs(squares.mean() - limit * (1.0 - 1.0 / m) ** 2) > 4 * error
