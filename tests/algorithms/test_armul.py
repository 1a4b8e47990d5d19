"""ARMUL: conditions of optimality at its end, the limits of the penalty, far clients, new clients and options."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line
from tests.worlds import draw_world, of_classes


@pytest.fixture(scope="module")
def world():
    """Eight clients with similar regressors, and one that is far away."""
    world = draw_world([12] * 9, 4, 1, noise=0.5, seed=3)
    world.W_star[:] = 1.0
    world.y = [y_i + X_i @ (world.B_star[:, 0] - phi) for X_i, y_i, phi in zip(
        world.X, world.y, draw_world([12] * 9, 4, 1, noise=0.5, seed=3).Phi, strict=True)]  # fmt: skip
    world.y[8] = world.y[8] + world.X[8] @ np.array([0.0, 5.0, 0.0, 0.0])
    return world


def end(world, algorithm, n_rounds=1000, **more):
    return lf.simulate(algorithm, data=world.data(), n_rounds=n_rounds, metrics=[], **more).final


def slopes(world, Theta):
    return np.array([ref.gradient(*one) for one in zip(world.X, world.y, Theta, strict=True)])


def assert_optimal(parts, slopes, penalty):
    """Assert that each part is 0 and its client's gradient short, or the gradient has length `penalty` against it."""
    for s, slope in zip(parts, slopes, strict=True):
        if s.any():
            np.testing.assert_allclose(slope, -penalty * s / np.linalg.norm(s), rtol=0, atol=1e-10)
        else:
            assert np.linalg.norm(slope) <= penalty


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("steps", [{}, {"personal_steps": 2, "personal_step_size": 0.1}])
def test_the_end_is_the_minimiser(world, steps, weights):
    penalty = 0.4
    final = end(world, lf.ARMUL(step_size=0.3, penalty=penalty, weights=weights, **steps))
    parts, found = final.parts[0], slopes(world, final.predictors()[0])
    assert 0 < np.count_nonzero(parts.any(axis=1)) < 9  # some are equal to the common model, some are not
    assert parts[8].any()
    assert_optimal(parts, found, penalty)
    np.testing.assert_allclose(found.mean(axis=0), 0.0, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "steps", [{}, pytest.param({"personal_steps": 2, "personal_step_size": 0.1}, marks=pytest.mark.long)]
)
def test_the_end_with_a_subspace_is_stationary(world, steps):
    penalty = 0.4
    final = end(world, lf.ARMUL(step_size=0.2, penalty=penalty, rank=1, **steps), 1200)
    (B,), (W,), (S,) = final.B, final.W, final.S
    found = slopes(world, final.predictors()[0])
    assert 0 < np.count_nonzero(S.any(axis=1)) < 9
    assert_optimal(S, found, penalty)
    np.testing.assert_allclose(found @ B, 0.0, rtol=0, atol=1e-10)
    np.testing.assert_allclose((np.eye(4) - B @ B.T) @ found.T @ W, 0.0, rtol=0, atol=1e-9)


def test_exact_parts_never_raise_the_objective(world):
    algorithm, last = lf.ARMUL(step_size=0.15, penalty=0.3), np.inf
    for step in lf.iterate(algorithm, data=world.data(), n_rounds=60):
        theta = step.before.shared[0, 0]
        if step.number:
            parts = step.after.parts[0]
            losses = [ref.loss(*one) for one in zip(world.X, world.y, theta + parts, strict=True)]
            now = sum(losses) + 0.3 * np.linalg.norm(parts, axis=1).sum()
            assert now <= last * (1 + 1e-12)
            last = now


@pytest.mark.parametrize("participation", [1.0, 3])
def test_a_large_penalty_is_averaging_or_fedrep(world, participation):
    run = {"n_rounds": 20, "participation": participation}
    common = end(world, lf.ARMUL(step_size=0.3, penalty=1e6), **run)
    assert not common.parts.any()
    np.testing.assert_allclose(common.shared, end(world, lf.FedAvg(step_size=0.3), **run).S, rtol=0, atol=1e-13)
    near = end(world, lf.ARMUL(step_size=0.3, penalty=1e6, rank=2), **run)
    fedrep = end(world, lf.FedRep(step_size=0.3, rank=2), **run)
    assert not near.S.any()
    np.testing.assert_allclose(near.B, fedrep.B, rtol=0, atol=1e-12)
    np.testing.assert_allclose(near.W, fedrep.W, rtol=0, atol=1e-12)


def test_a_large_penalty_ends_at_pooled_least_squares(world):
    common = end(world, lf.ARMUL(step_size=0.3, penalty=1e6))
    pooled = end(world, lf.PooledLeastSquares(), n_rounds=1)
    np.testing.assert_allclose(common.predictors(), np.repeat(pooled.S, 9, axis=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("m", [3, 12])
@pytest.mark.parametrize("rank", [None, 2])
def test_without_a_penalty_clients_are_alone(m, rank):
    world = draw_world([m] * 6, 4, 2, noise=0.5, seed=4)
    alone = end(world, lf.LocalOnly(), n_rounds=1)
    found = end(world, lf.ARMUL(step_size=0.3, penalty=0.0, rank=rank), n_rounds=1)
    if m >= 4 or rank is None:
        np.testing.assert_allclose(found.predictors(), alone.S, rtol=0, atol=1e-11)
    losses = [ref.loss(*one) for one in zip(world.X, world.y, found.predictors()[0], strict=True)]
    best = [ref.loss(*one) for one in zip(world.X, world.y, alone.S[0], strict=True)]
    np.testing.assert_allclose(losses, best, rtol=0, atol=1e-12)


@pytest.mark.long
def test_a_far_client_has_a_bounded_influence(world):
    """The client moves from far to a million times as far: theta moves by no more than a gradient of penalty."""

    def common(distance):
        y = [*world.y[:8], world.y[8] + distance * world.X[8][:, 1]]
        data = lf.GivenSamples(world.X, y)
        return lf.simulate(lf.ARMUL(step_size=0.3, penalty=0.4), data=data, n_rounds=1000, metrics=[]).final.shared[
            0, 0
        ]

    far, farther, squared = common(1e4), common(1e8), []
    np.testing.assert_allclose(far, farther, rtol=0, atol=1e-5)
    for distance in (1e4, 1e8):
        data = lf.GivenSamples(world.X, [*world.y[:8], world.y[8] + distance * world.X[8][:, 1]])
        squared.append(lf.simulate(lf.PFedMe(step_size=0.1, local_steps=1, penalty=0.4, inner_steps=None),
                                   data=data, n_rounds=300).final.shared[0, 0])  # fmt: skip
    assert np.linalg.norm(squared[1] - squared[0]) > 1e6


@pytest.mark.parametrize("penalty", [0.0, 0.4])
@pytest.mark.parametrize("rank", [None, 1])
def test_new_clients_are_fitted_exactly(world, rank, penalty):
    result = lf.simulate(lf.ARMUL(step_size=0.2, penalty=penalty, rank=rank), data=world.data(), n_rounds=50)
    new = draw_world([9, 9], 4, 1, noise=0.5, seed=8)
    found = result.adapt(np.array(new.X), np.array(new.y)).predictors()[0]
    for theta, X_i, y_i in zip(found, new.X, new.y, strict=True):
        if rank is None:
            shared = result.final.shared[0, 0]
            expected = shared + ref.personal_part(X_i, y_i - X_i @ shared, penalty)
        elif penalty == 0:
            expected = ref.least_squares(X_i, y_i)
        else:
            B = result.final.B[0]
            w, s = ref.head_and_personal_part(X_i, y_i, B, penalty)
            expected = B @ w + s
        np.testing.assert_allclose(theta, expected, rtol=0, atol=1e-11)


def run(**options):
    return lf.ARMUL(**{"step_size": 0.1, "penalty": 1.0} | options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: run(init="random"), ["init = ", "requires rank="]),
        (lambda: run(personal_step_size=0.1), ["personal_step_size = 0.1 requires personal_steps="]),
        (lambda: of_classes(run()), ["ARMUL supports only regression", "2 classes"]),
    ],
)
def test_an_invalid_option_is_named(call, words):
    assert_one_line(call, words)
