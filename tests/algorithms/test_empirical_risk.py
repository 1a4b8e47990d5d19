"""One round of empirical risk minimisation: the nuclear norm, and L-BFGS over both factors."""

from types import SimpleNamespace

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.one_round import empirical_risk
from tests import references as ref
from tests.helpers import normal
from tests.worlds import draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def mean_loss(world, Theta):
    return np.mean([ref.loss(X, y, theta) for X, y, theta in zip(world.X, world.y, Theta, strict=True)])


def test_the_minimiser_of_both_factors_is_where_alternating_minimisation_ends():
    world = draw_world([12] * 20, 6, 2, noise=0.5, seed=6)
    ends = [
        lf.simulate(algorithm, data=world.data(), n_rounds=rounds).final
        for algorithm, rounds in ((lf.BurerMonteiro(rank=2), 1), (lf.AltMin(rank=2), 300))
    ]
    first, second = (end.B[0] @ end.B[0].T for end in ends)
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ends[0].B[0].T @ ends[0].B[0], np.eye(2), rtol=0, atol=1e-12)
    for X, y, w in zip(world.X, world.y, ends[0].W[0], strict=True):  # both parts of the gradient are 0
        np.testing.assert_allclose(w, ref.least_squares(X @ ends[0].B[0], y), rtol=0, atol=1e-6)
    assert mean_loss(world, ends[0].predictors()[0]) <= mean_loss(world, ends[1].predictors()[0]) + 1e-12


def test_weights_by_samples_count_every_sample_alike():
    """The weighted minimiser is where weighted alternating minimisation ends, and where the gradient on B is 0."""
    world = draw_world([5, 40, 12, 8, 20, 9], 5, 2, noise=0.5, seed=6)
    joint, alternating = (
        lf.simulate(algorithm, data=world.data(), n_rounds=rounds).final
        for algorithm, rounds in (
            (lf.BurerMonteiro(rank=2, weights="samples"), 1),
            (lf.AltMin(rank=2, weights="samples"), 600),
        )
    )
    np.testing.assert_allclose(joint.predictors(), alternating.predictors(), rtol=0, atol=1e-5)
    slope, plain = np.zeros((5, 2)), np.zeros((5, 2))
    for X, y, w, theta in zip(world.X, world.y, alternating.W[0], alternating.predictors()[0], strict=True):
        slope += np.outer(len(y) * ref.gradient(X, y, theta), w)
        plain += np.outer(ref.gradient(X, y, theta), w)
    assert np.abs(slope).max() < 1e-8 * np.abs(plain).max()


def test_the_weighted_nuclear_norm_meets_its_optimality_conditions():
    world = draw_world([2, 7, 30, 4], 5, 2, noise=0.3, seed=7)
    algorithm = lf.NuclearNorm(penalty=0.05, tolerance=1e-11, weights="samples")
    Theta = lf.simulate(algorithm, data=world.data(), n_rounds=1).final.S[0]
    shares = ref.shares(world.y, "samples")
    G = np.array([p * ref.gradient(X, y, t) for p, X, y, t in zip(shares, world.X, world.y, Theta, strict=True)])
    U, s, Vt = np.linalg.svd(Theta, full_matrices=False)
    U, Vt = U[:, s > 1e-8], Vt[s > 1e-8]
    np.testing.assert_allclose(U.T @ G + 0.05 * Vt, 0, atol=1e-7)
    np.testing.assert_allclose(G @ Vt.T + 0.05 * U, 0, atol=1e-7)
    assert np.linalg.norm(G, 2) <= 0.05 + 1e-7


@pytest.mark.parametrize("weight", [0.3, 0.05, pytest.param(0.003, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("counts", "d"), [([9] * 8, 5), ([3] * 8, 6), ([2, 7, 30, 4], 5), ([6], 4), ([4] * 3, 3), ([1] * 30, 4)]
)
def test_the_nuclear_norm_meets_its_optimality_conditions(counts, d, weight):
    world = draw_world(counts, d, 2, noise=0.3, seed=7)
    Theta = lf.simulate(lf.NuclearNorm(penalty=weight, tolerance=1e-11), data=world.data(), n_rounds=1).final.S[0]
    G = np.array([ref.gradient(X, y, t) for X, y, t in zip(world.X, world.y, Theta, strict=True)]) / world.n
    U, s, Vt = np.linalg.svd(Theta, full_matrices=False)
    U, Vt = U[:, s > 1e-8], Vt[s > 1e-8]
    np.testing.assert_allclose(U.T @ G + weight * Vt, 0, atol=1e-7)
    np.testing.assert_allclose(G @ Vt.T + weight * U, 0, atol=1e-7)
    assert np.linalg.norm(G, 2) <= weight + 1e-7


def test_a_weight_of_the_norm_of_the_gradient_leaves_nothing():
    world = draw_world([9] * 8, 5, 2, noise=0.3, seed=7)
    G = np.array([ref.gradient(X, y, np.zeros(5)) for X, y in zip(world.X, world.y, strict=True)]) / 8
    edge = np.linalg.norm(G, 2)
    zero, some = (
        lf.simulate(lf.NuclearNorm(penalty=factor * edge), data=world.data(), n_rounds=1).final.S[0]
        for factor in (1.001, 0.999)
    )
    assert not zero.any()
    assert some.any()


def test_the_default_weight_is_the_published_one():
    world = draw_world([16] * 9, 4, 2, noise=0.3, seed=8)
    weight = 0.3 * (3 + 2) / (9 * 4)
    run = {"data": world.data(), "n_rounds": 1}
    one, other = (lf.simulate(lf.NuclearNorm(**more), **run) for more in ({"noise_std": 0.3}, {"penalty": weight}))
    np.testing.assert_allclose(one.final.S, other.final.S, **TOLERANCE)


def fista(X, y, weight, iterations, tolerance):
    """Return the last of so many accelerated proximal steps, and how many were tried; each must be short enough."""
    n, zeros = len(X), np.zeros((len(X), X[0].shape[1]))

    def slope(Theta):
        return np.array([ref.gradient(X_i, y_i, theta) for X_i, y_i, theta in zip(X, y, Theta, strict=True)]) / n

    first, tried, momentum, Theta, point = slope(zeros), 0, 1.0, zeros, zeros
    curvature = np.sum(first * (slope(first) - first)) / np.sum(first**2)
    for _ in range(iterations):
        while True:
            tried += 1
            U, s, Vt = np.linalg.svd(point - slope(point) / curvature, full_matrices=False)
            new = U * np.maximum(s - weight / curvature, 0.0) @ Vt
            step = new - point
            if np.sum(step * (slope(new) - slope(point))) <= (1 + 1e-12) * curvature * np.sum(step**2):
                break
            curvature *= 2.0
        following = 0.5 + np.sqrt(0.25 + momentum**2)
        forward = np.sum((point - new) * (new - Theta)) <= 0
        point = new + (momentum - 1.0) / following * (new - Theta) if forward else new
        momentum, Theta = following if forward else 1.0, new
        if curvature * np.linalg.norm(step) <= tolerance * np.linalg.norm(first):
            break
    return Theta, tried


def stacked(m, n, d, k):
    """Return samples of two trials, the second of another scale and with strong and weak coordinates."""
    first, second = (draw_world([m] * n, d, k, noise=0.3, seed=seed) for seed in (7, 8))
    second.X = [X * np.linspace(0.3, 3.0, d) for X in second.X]
    return np.array([first.X, second.X]), np.array([first.y, second.y])


@pytest.mark.parametrize(
    ("iterations", "tolerance"), [(1, 1e-9), (2, 1e-9), (3, 1e-9), (6, 1e-9), (40, 1e-9), (400, 0.03), (400, 1e-3)]
)
def test_the_iterations_of_the_nuclear_norm_are_those_of_a_loop(iterations, tolerance):
    X, y = stacked(9, 6, 5, 2)
    algorithm = lf.NuclearNorm(penalty=0.05, iterations=iterations, tolerance=tolerance)
    final = lf.simulate(algorithm, data=lf.GivenSamples(X, y), n_rounds=1).final
    for t in range(2):
        wanted, _ = fista(X[t], y[t], 0.05, iterations, tolerance)
        np.testing.assert_allclose(final.S[t], wanted, rtol=0, atol=1e-10)


def test_the_iterations_of_the_nuclear_norm_end_at_the_tolerance(monkeypatch):
    X, y = stacked(9, 6, 5, 2)
    tried, plain = [], empirical_risk._soft_thresholded
    monkeypatch.setattr(empirical_risk, "_soft_thresholded", lambda *arguments: tried.append(1) or plain(*arguments))
    for t in range(2):
        for tolerance in (0.1, 1e-3, 1e-6):
            tried.clear()
            algorithm = lf.NuclearNorm(penalty=0.05, tolerance=tolerance)
            lf.simulate(algorithm, data=lf.GivenSamples(X[t], y[t]), n_rounds=1)
            assert len(tried) == fista(X[t], y[t], 0.05, 5000, tolerance)[1]


@pytest.fixture
def asked(monkeypatch):
    """Return what SciPy was asked to minimise; it returns the start."""
    asked = {}

    def minimize(objective, start, **options):
        asked.update(options, objective=objective, start=start)
        return SimpleNamespace(x=start, status=0)

    monkeypatch.setattr("scipy.optimize.minimize", minimize)
    return asked


@pytest.mark.parametrize(("n", "k"), [(4, 2), (2, 3)])
def test_the_joint_minimiser_knows_the_slope_of_its_objective(asked, n, k):
    world, d = draw_world([6] * n, 5, k, noise=0.3, seed=2), 5
    algorithm = lf.BurerMonteiro(rank=k, init=world.B, iterations=7, tolerance=1e-3)
    lf.simulate(algorithm, data=world.data(), n_rounds=1)

    def parts(values):
        return values[: d * k].reshape(d, k), values[d * k :].reshape(n, k)

    def objective(values):
        B, W = parts(values)
        losses = [ref.loss(X, y, B @ w) for X, y, w in zip(world.X, world.y, W, strict=True)]
        return sum(losses) + np.sum((B.T @ B - W.T @ W) ** 2) / 8

    at = normal(d * k + n * k, seed=3)
    value, slope = asked["objective"](at)
    assert value == pytest.approx(objective(at), rel=1e-12)
    wanted = [(objective(at + 1e-4 * one) - objective(at - 1e-4 * one)) / 2e-4 for one in np.eye(len(at))]
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-6)
    B, W = parts(asked["start"])
    np.testing.assert_allclose(B.T @ B, W.T @ W, atol=1e-12)
    heads = np.array([ref.least_squares(X @ world.B, y) for X, y in zip(world.X, world.y, strict=True)])
    np.testing.assert_allclose(W @ B.T, heads @ world.B.T, atol=1e-12)
    limits = asked["options"]
    assert (limits["maxiter"], limits["maxfun"], limits["ftol"]) == (7, 14, 0.0)
    assert limits["gtol"] == pytest.approx(1e-3 * np.mean(np.square(world.y)))


def test_the_joint_minimiser_leaves_what_is_not_finite():
    B, W = normal(1, 5, 2), normal(1, 4, 2, seed=1)
    for one, other in ((B, W * np.nan), (B * np.nan, W)):
        found = lf.BurerMonteiro(rank=2)._minimise(None, one, other)
        assert found[0] is one
        assert found[1] is other


@pytest.mark.parametrize("n", [30, 2])
def test_with_a_rank_the_nuclear_norm_has_a_representation(n):
    world = draw_world([9] * n, 5, 2, noise=0.1, seed=9)
    run = {"data": world.data(), "n_rounds": 1}
    final = lf.simulate(lf.NuclearNorm(penalty=0.01, rank=3), **run).final
    Theta = lf.simulate(lf.NuclearNorm(penalty=0.01), **run).final.S[0]
    B = final.B[0]
    np.testing.assert_allclose(B.T @ B, np.eye(3), rtol=0, atol=1e-12)
    rows = np.linalg.svd(Theta, full_matrices=False)[2][: min(3, n)]
    np.testing.assert_allclose(rows @ B @ B.T, rows, rtol=0, atol=1e-8)
    for X, y, w in zip(world.X, world.y, final.W[0], strict=True):
        np.testing.assert_allclose(w, ref.least_squares(X @ B, y), **TOLERANCE)
