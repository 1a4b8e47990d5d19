"""FedRep: what it reduces to, and the facts of its theory."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import linfed as lf
from linfed.data import sources
from linfed.numerics import linalg
from tests import references as ref
from tests.loops import assert_rounds_are_the_loop
from tests.worlds import LEARNERS, draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.fixture
def world():
    return draw_world([7] * 5, 6, 2, noise=0.2)


def run(world, n_rounds=1, participation=1.0, **options):
    arguments = {"rank": world.k, "step_size": 0.1, "init": world.B, **options}
    return lf.simulate(lf.FedRep(**arguments), data=world.data(), n_rounds=n_rounds, participation=participation).final


def assert_same_state(one, other):
    for key, array in one.arrays().items():
        np.testing.assert_allclose(other.arrays()[key], array, **TOLERANCE)


@pytest.mark.parametrize("data", [lf.FreshSamples(6), lf.FixedSamples(6)], ids=repr)
def test_rows_that_are_drawn_when_they_are_read_go_through_the_loop(data, monkeypatch):
    monkeypatch.setattr(sources, "CACHE_VALUES", 0)
    monkeypatch.setattr(linalg, "CACHE_VALUES", 2 * 6 * 7)
    problem = lf.SharedRepresentation(n_clients=5, dim=7, rank=2, noise_std=0.3)
    run = {"data": data, "participation": 3, "trials": 2}
    assert assert_rounds_are_the_loop(LEARNERS["FedRep"], problem, n_rounds=4, **run) == 8


EXACT = [{}, {"representation_steps": 3}, {"orthonormalize": False}, {"aggregate": "sum"}, {"rotate_heads": True}]


@pytest.mark.parametrize("options", EXACT, ids=str)
def test_a_run_from_the_true_subspace_stays_there(options):
    problem = lf.SharedRepresentation(n_clients=6, dim=9, rank=2)
    algorithm = lf.FedRep(rank=2, step_size=0.1, init=lf.AtDistance(0.0), **options)
    result = lf.simulate(algorithm, problem, data=lf.FreshSamples(5), n_rounds=20, participation=0.5, trials=3)
    assert result.metrics["subspace_distance"].max() < 1e-13


# --- reductions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[7] * 5, [2, 9, 4, 3, 7]], ids=["equal", "unequal"])
@pytest.mark.parametrize("heads", [lf.ExactHeads(), lf.GradientHeads(steps=3)], ids=["exact", "gradient"])
def test_one_local_step_is_algorithm_2(heads, counts):
    """Algorithm 1's server averages the B_i; Algorithm 2's takes one step along the averaged gradient."""
    world = draw_world(counts, 6, 2, noise=0.2)
    final = run(world, 20, heads=heads)
    B, W = world.B, np.zeros((5, 2))
    for _ in range(20):
        _, W = ref.fedrep_round(B, W, world.X, world.y, range(5), step_size=0.1, heads=heads)
        gradients = [np.outer(ref.gradient(X, y, B @ w), w) for X, y, w in zip(world.X, world.y, W, strict=True)]
        B = ref.qr_positive(B - 0.1 * np.mean(gradients, axis=0))[0]
    np.testing.assert_allclose(final.B[0], B, **TOLERANCE)
    np.testing.assert_allclose(final.W[0], W, **TOLERANCE)


@pytest.mark.parametrize("p", [1, 3, 5])
@pytest.mark.parametrize("heads", [lf.ExactHeads(), lf.GradientHeads(step_size=0.2)], ids=["exact", "gradient"])
def test_sum_with_a_share_of_the_step_is_the_mean(world, p, heads):
    """Gradient heads have a step of their own: by default it would shrink with the step on B."""
    options = {"heads": heads}
    participation = draw_participants(5, p, 20)
    mean = run(world, 20, participation, **options)
    assert_same_state(mean, run(world, 20, participation, aggregate="sum", step_size=0.1 / p, **options))


@pytest.mark.parametrize("orthonormalize", [True, False])
def test_many_gradient_steps_reach_the_exact_heads(orthonormalize):
    world = draw_world([12] * 5, 6, 2, noise=0.2)
    exact = run(world, 3, orthonormalize=orthonormalize)
    errors = []
    for steps in (5, 50, 500):
        state = run(world, 3, heads=lf.GradientHeads(steps=steps, step_size=0.3), orthonormalize=orthonormalize)
        errors.append(max(np.abs(state.B - exact.B).max(), np.abs(state.W - exact.W).max()))
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-10


@pytest.mark.parametrize("p", [5, 2], ids=["all", "some"])
def test_rotating_heads_keeps_predictors(world, p):
    participants = draw_participants(5, p, 3)
    options = {"heads": lf.GradientHeads(), "step_size": 0.4}
    before, after = (run(world, r, participants[:r], rotate_heads=True, **options) for r in (2, 3))
    active = participants[2]
    chosen = [world.X[i] for i in active], [world.y[i] for i in active]
    B, W = ref.fedrep_round(before.B[0], before.W[0], *chosen, active, orthonormalize=False, **options)
    np.testing.assert_allclose(after.predictors()[0], W @ B.T, **TOLERANCE)
    np.testing.assert_allclose(after.B[0].T @ after.B[0], np.eye(2), atol=1e-12)
    assert np.abs(B.T @ B - np.eye(2)).max() > 1e-3


def test_rotating_heads_matters_to_gradient_heads_only(world):
    for heads, same in ((lf.ExactHeads(), True), (lf.GradientHeads(), False)):
        one, other = (run(world, 10, heads=heads, step_size=0.4, rotate_heads=r) for r in (False, True))
        assert np.allclose(one.B, other.B, **TOLERANCE) is same


def test_a_vanishing_ridge_is_none_and_a_huge_one_leaves_nothing(world):
    assert_same_state(run(world, 5), run(world, 5, heads=lf.ExactHeads(ridge=1e-13)))
    for ridge in (1e6, 1e12):
        S = lf.simulate(lf.LocalOnly(ridge=ridge), data=world.data(), n_rounds=1).final.S[0]
        moments = [X.T @ y / len(y) for X, y in zip(world.X, world.y, strict=True)]
        np.testing.assert_allclose(ridge * S, moments, rtol=1e-3 * 1e6 / ridge * 10 + 1e-6)
        state = run(world, heads=lf.ExactHeads(ridge=ridge))
        assert np.abs(state.W).max() < 100 / ridge
        np.testing.assert_allclose(state.B[0], ref.qr_positive(world.B)[0], atol=100 / ridge)


# --- facts of the theory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[7] * 5, [2, 9, 4, 3, 7]], ids=["equal", "unequal"])
def test_exact_heads_make_the_gradient_orthogonal_to_b(counts):
    eta, world = 0.7, draw_world(counts, 6, 3, noise=0.5)
    world.B = ref.qr_positive(world.B)[0]

    def round_(**options):
        moved = run(world, step_size=eta, orthonormalize=False, **options).B[0]
        return moved, (world.B - moved) / eta

    moved, G = round_()
    assert np.abs(G).max() > 1e-2
    np.testing.assert_allclose(world.B.T @ G, 0, atol=1e-13)
    B = run(world, step_size=eta).B[0]
    R = B.T @ moved
    np.testing.assert_allclose(R, np.triu(R), atol=1e-13)
    assert (np.diag(R) > 0).all()
    np.testing.assert_allclose(R.T @ R, np.eye(3) + eta**2 * G.T @ G, rtol=1e-12, atol=1e-12)
    assert scipy.linalg.svdvals(np.linalg.inv(R))[0] <= 1 + 1e-13
    # Other heads do not solve the normal equations.
    for options in ({"heads": lf.GradientHeads()}, {"heads": lf.ExactHeads(ridge=0.2)}):
        assert np.abs(world.B.T @ round_(**options)[1]).max() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"aggregate": "sum"}, {"rotate_heads": True}, {"representation_steps": 3}])
@pytest.mark.parametrize("counts", [[1] * 5, [2] * 5, [3] * 5, [3, 1, 2, 3, 1]], ids=str)
def test_at_most_k_samples_freeze_b(counts, options):
    world = draw_world(counts, 6, 3, noise=0.5)
    options = {**options, "step_size": 5.0}
    participation = draw_participants(5, 3, 50)
    plain = {**options, "rotate_heads": False, "orthonormalize": False}
    unnormalised = run(world, 50, participation, **plain)
    assert np.array_equal(unnormalised.B[0], world.B)
    assert unnormalised.W.any()
    world.B = ref.qr_positive(world.B)[0]
    np.testing.assert_allclose(run(world, 50, participation, **options).B[0], world.B, rtol=0, atol=1e-14)


def test_one_client_with_more_than_k_samples_is_enough_to_move_b():
    world = draw_world([2, 3, 4, 1, 3], 6, 3, noise=0.5)
    assert np.abs(run(world, orthonormalize=False).B[0] - world.B).max() > 1e-4
