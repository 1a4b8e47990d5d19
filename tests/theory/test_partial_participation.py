"""Averaging where a part of the clients takes part: moments over all subsets, and against simulated runs."""

import itertools

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line
from tests.worlds import draw_world

STEPS = {"step_size": 0.3, "local_steps": 4}


@pytest.fixture(scope="module")
def world():
    return draw_world([9] * 5, 3, 2, noise=0.4, seed=3)


def all_rounds(world, algorithm, states, p):
    """Return one round of the algorithm from each state, for every set of p participants."""
    found = []
    for active in itertools.combinations(range(5), p):
        step = lf.iterate(algorithm, world.problem(), data=world.data(), n_rounds=1, participation=np.array([active]))
        next(step)
        batch = next(step).batch
        found.append([algorithm.step(state, batch, None) for state in states])
    return found


def affine(world, algorithm, begin, p, read):
    """Return matrix and offset of a round for every set of participants, from rounds at 0 and at unit vectors."""
    rounds = all_rounds(world, algorithm, begin, p)
    values = np.array([[read(state) for state in one] for one in rounds])
    offsets = values[:, 0]
    return (values[:, 1:] - offsets[:, None]).transpose(0, 2, 1), offsets


@pytest.mark.parametrize("mu", [0.0, 0.6])
@pytest.mark.parametrize("p", [1, 2, 5])
def test_the_covariance_is_that_of_all_sets_of_participants(world, p, mu):
    algorithm = lf.FedProx(mu=mu, server_step_size=0.8, **STEPS)
    begin = [lf.State(S=row[None, None]) for row in np.vstack([np.zeros(3), np.eye(3)])]
    M, v = affine(world, algorithm, begin, p, lambda state: state.S[0, 0])
    end = np.linalg.solve(np.eye(3) - M.mean(axis=0), v.mean(axis=0))
    A, b = world.data().normal_equations()
    np.testing.assert_allclose(lf.theory.fedavg_fixed_point(A, b, mu=mu, **STEPS), end, rtol=0, atol=1e-13)
    u = M @ end + v - end
    squares = sum(np.kron(one, one) for one in M) / len(M)
    wanted = np.linalg.solve(np.eye(9) - squares, (u.T @ u).ravel() / len(M)).reshape(3, 3)
    found = lf.theory.fedavg_stationary_covariance(A, b, participants=p, mu=mu, server_step_size=0.8, **STEPS)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-14)
    assert (np.abs(found).max() > 1e-3) == (p < 5)


@pytest.mark.parametrize("mu", [0.0, 0.6])
@pytest.mark.parametrize("p", [2, 5])
def test_scaffolds_matrix_is_the_mean_over_all_sets_of_participants(world, p, mu):
    """With mu that of FedSCAVAR, whatever it remembers of its clusters."""
    algorithm = lf.SCAFFOLD(server_step_size=0.8, **STEPS)
    if mu:
        algorithm = lf.FedSCAVAR(server_step_size=0.8, mu=mu, clusters=5, **STEPS)
    first = lf.simulate(algorithm, world.problem(), data=world.data(), n_rounds=0).final

    def state(vector):
        controls = vector[3:].reshape(1, 5, 3)
        return first.update(S=vector[None, None, :3], controls=controls, control=controls.mean(axis=1, keepdims=True))

    begin = [state(vector) for vector in np.vstack([np.zeros(18), np.eye(18)])]
    M, _ = affine(world, algorithm, begin, p, lambda one: np.concatenate([one.S[0, 0], one.controls[0].ravel()]))
    A, _ = world.data().normal_equations()
    found = lf.theory.scaffold_iteration_matrix(A, participants=p, mu=mu, server_step_size=0.8, **STEPS)
    np.testing.assert_allclose(found, M.mean(axis=0), rtol=0, atol=1e-14)


def test_steps_at_which_the_mean_converges_and_the_square_does_not_are_told(world):
    A, b = world.data().normal_equations()
    largest = np.linalg.eigvalsh(A.mean(axis=0)).max()
    step = {"step_size": 1.9 / largest}
    lf.theory.fedavg_fixed_point(A, b, **step)
    assert_one_line(
        lambda: lf.theory.fedavg_stationary_covariance(A, b, participants=1, **step),
        ["participants = 1", "second moment grows", "smaller step"],
    )
    assert_one_line(
        lambda: lf.theory.fedavg_stationary_covariance(A, b, participants=6, **STEPS), ["participants", "6", "5"]
    )


def test_by_default_clients_take_one_step_and_the_server_the_whole_of_it(world):
    A, b = world.data().normal_equations()
    given, every = {"step_size": 0.3, "participants": 2}, {"local_steps": 1, "mu": 0.0, "server_step_size": 1.0}
    for call in (
        lambda **more: lf.theory.fedavg_stationary_covariance(A, b, **given, **more),
        lambda **more: lf.theory.scaffold_iteration_matrix(A, **given, **more),
    ):
        np.testing.assert_array_equal(call(), call(**every))


def test_one_client_does_not_fluctuate_and_directions_without_samples_neither(world):
    A, b = world.data().normal_equations()
    alone = lf.theory.fedavg_stationary_covariance(A[:1], b[:1], participants=1, **STEPS)
    np.testing.assert_array_equal(alone, np.zeros((3, 3)))
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 3)))[0]
    seen, whole = (
        lf.theory.fedavg_stationary_covariance(*given, participants=2, **STEPS)
        for given in ((A, b), (turn @ A @ turn.T, b @ turn.T))
    )
    np.testing.assert_allclose(whole, turn @ seen @ turn.T, rtol=0, atol=1e-11)


def test_a_server_step_at_which_the_mean_diverges_is_told(world):
    A, b = world.data().normal_equations()
    edge = 2.0 / np.linalg.eigvalsh(0.1 * A.mean(axis=0)).max()
    given = {"step_size": 0.1, "participants": 5}
    assert not lf.theory.fedavg_stationary_covariance(A, b, server_step_size=0.99 * edge, **given).any()
    assert_one_line(
        lambda: lf.theory.fedavg_stationary_covariance(A, b, server_step_size=1.01 * edge, **given),
        ["server_step_size", "the mean diverges"],
    )
