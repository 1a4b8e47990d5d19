"""FLUTE's objective: its gradient, the ray along which it is unbounded, and runs on it."""

import math

import numpy as np
import pytest

import linfed as lf
from tests.helpers import normal
from tests.theory.flute.made import COUNTS, made, world


def objective(B, W, X, y, ratio, gamma1, gamma2):
    """Return what FLUTE descends on, its data gradient's factor taken into the ratio of the steps."""
    loss = sum(np.sum((X_i @ B @ w - y_i) ** 2) / (2 * len(y_i)) for X_i, y_i, w in zip(X, y, W, strict=True))
    product, squares = np.sum((B @ W.T) ** 2), np.sum((B.T @ B) ** 2) + np.sum((W.T @ W) ** 2)
    return loss - ratio * (gamma1 * product - gamma2 * squares)


def ray(A):
    """Return the worst client and its least eigenvector."""
    worst = int(np.argmin([np.linalg.eigvalsh(A_i)[0] for A_i in A]))
    return worst, np.linalg.eigh(A[worst])[1][:, 0]


@pytest.mark.parametrize("gamma2", [0.0, 0.1])
@pytest.mark.parametrize("ratio", [1.0, 0.4])
def test_the_objective_along_the_worst_ray_turns_at_the_threshold(ratio, gamma2):
    X, y, A = world()
    worst, v = ray(A)
    edge = float(lf.theory.flute_divergence_threshold(A, step_ratio=ratio))

    def along(scale, excess, client=worst):
        B, W = np.zeros((4, 2)), np.zeros((4, 2))
        B[:, 0], W[client, 0] = math.sqrt(scale) * v, math.sqrt(scale)
        return objective(B, W, X, y, ratio, 2 * gamma2 + excess, gamma2)

    below, above = ([along(10.0**p, share * edge) for p in range(3, 8)] for share in (0.99, 1.01))
    assert np.all(np.diff(below) > 0)
    assert np.all(np.diff(above) < 0)
    assert below[-1] > 1e9
    assert above[-1] < -1e9
    # Elsewhere nothing is lower than the ray below the threshold, far out.
    rng = np.random.default_rng(0)
    for _ in range(200):
        B, W = rng.standard_normal((4, 2)), rng.standard_normal((4, 2)) * 10.0 ** rng.uniform(-3, 0, (4, 1))
        product = np.linalg.norm(B @ W.T)
        B, W = (part * 1e3 / math.sqrt(product) for part in (B, W))
        assert objective(B, W, X, y, ratio, 2 * gamma2 + 0.99 * edge, gamma2) > 0


def test_the_worst_ray_is_that_of_the_worst_client():
    A = world()[2]
    worst, v = ray(A)
    B, W = lf.theory.flute_worst_ray(A, 2, square=9.0)
    assert (B.shape, W.shape) == ((4, 2), (len(COUNTS), 2))
    np.testing.assert_allclose(np.abs(B[:, 0]), 3.0 * np.abs(v))
    assert W[worst, 0] == 3.0
    assert np.count_nonzero(W) == 1
    assert not B[:, 1].any()
    stacked = lf.theory.flute_worst_ray(np.stack([A, A]), 2, square=9.0)
    for one, trials in zip((B, W), stacked, strict=True):
        np.testing.assert_array_equal(np.stack([one, one]), trials)
    with pytest.raises(ValueError, match=r"A has shape"):
        lf.theory.flute_worst_ray(np.ones((2, 3, 4)), 2)
    with pytest.raises(ValueError, match=r"square"):
        lf.theory.flute_worst_ray(A, 2, square=0.0)


def test_the_defaults_are_the_papers_weights():
    truth, (X, y, A) = made("n < d").truth(0, range(2)), world()
    np.testing.assert_allclose(
        lf.theory.flute_population_minimizer(truth, 2).dense(), truth.truncated(2).dense(), rtol=0, atol=1e-13
    )
    for changes, scale in (({"gamma1": 0.1}, 1.3), ({"gamma2": 0.2}, 1.3), ({"gamma2": 0.2, "step_ratio": 2.0}, 1.6)):
        found = lf.theory.flute_population_minimizer(truth, 2, **changes).dense()
        np.testing.assert_allclose(scale * found, truth.truncated(2).dense(), rtol=0, atol=1e-13)
    b, point = lf.GivenSamples(X, y).normal_equations()[1], normal(8, 2, seed=3)
    every = {"gamma1": 0.25, "gamma2": 0.125, "step_ratio": 1.0}
    one, other = (lf.theory.flute_relative_gradient(point[:4], point[4:], A, b, **more) for more in ({}, every))
    assert one == other
    B, W = lf.theory.flute_worst_ray(A, 4)
    assert np.linalg.norm(B) == pytest.approx(1.0, rel=1e-14)
    assert np.linalg.norm(W) == 1.0
    with pytest.raises(ValueError, match="rank = 5"):
        lf.theory.flute_worst_ray(A, 5)


def test_the_relative_gradient_is_that_of_the_objective():
    X, y, _ = world()
    A, b = lf.GivenSamples(X, y).normal_equations()
    weights = {"gamma1": 0.3, "gamma2": 0.1, "step_ratio": 0.4}
    point = normal(8, 2, seed=3)

    def at(flat):
        parts = flat.reshape(8, 2)
        return objective(parts[:4], parts[4:], X, y, 0.4, 0.3, 0.1)

    slopes = [(at(point.ravel() + 1e-5 * e) - at(point.ravel() - 1e-5 * e)) / 2e-5 for e in np.eye(16)]
    found = lf.theory.flute_relative_gradient(point[:4], point[4:], A, b, **weights)
    assert found == pytest.approx(np.linalg.norm(slopes) / np.linalg.norm(point), rel=1e-8)
    stacked = lf.theory.flute_relative_gradient(*(np.stack([part, part]) for part in (point[:4], point[4:], A, b)))
    assert stacked.shape == (2,)
    assert np.isnan(lf.theory.flute_relative_gradient(np.inf * point[:4], point[4:], A, b))
    for name, value in (("gamma1", -0.1), ("gamma2", np.nan), ("step_ratio", 0.0)):
        with pytest.raises(ValueError, match=f"^{name} = "):
            lf.theory.flute_relative_gradient(point[:4], point[4:], A, b, **{name: value})


@pytest.mark.long
@pytest.mark.parametrize("factor", [1, 2])
def test_runs_far_out_on_the_ray_diverge_above_the_threshold_only(factor):
    X, y, A = world()
    (worst, v), scale = ray(A), 1e3
    B, W = np.zeros((4, 2)), np.zeros((4, 2))
    B[:, 0], W[worst, 0] = math.sqrt(scale) * v, math.sqrt(scale)
    for share, wanted in ((0.9, lf.Status.COMPLETED), (1.1, lf.Status.DIVERGED)):
        step = 0.1 / scale / factor
        base = {"rank": 2, "step_size": step, "server_step_size": 0.6 * step, "gradient_factor": factor}
        edge = float(lf.theory.flute_divergence_threshold(A, step_ratio=lf.FLUTE(**base).step_ratio))
        algorithm = lf.FLUTE(**base, gamma2=0.1, gamma1=0.2 + share * edge, init=(B, W))
        result = lf.simulate(algorithm, data=lf.GivenSamples(X, y), n_rounds=1500)
        assert result.status == [wanted]
        if share < 1:
            assert np.linalg.norm(result.final.B) < np.linalg.norm(B)
