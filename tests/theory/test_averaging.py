"""Where federated averaging goes: fixed points, matrices and rates of a round, against the plain loop."""

from fractions import Fraction

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, normal
from tests.worlds import draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}

INF = float("inf")

WEIGHTS = ["uniform", "samples"]

WORLDS = {"n m > d": ([9, 3, 14, 6], 4), "n m < d": ([2, 1, 2, 1], 16)}


def averaging(world, K, weights="uniform"):
    """Return the world, A_i, b_i, and the settings of theory and of the loop."""
    (counts, d), eta = WORLDS[world], 0.06
    drawn = draw_world(counts, d, 2, noise=0.5)
    shares = None if weights == "uniform" else counts
    theory = {"step_size": eta, "local_steps": K, "weights": shares}
    return drawn, *drawn.data().normal_equations(), theory, {"step_size": eta, "local_steps": K, "weights": weights}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("K", [1, 7])
@pytest.mark.parametrize("world", WORLDS)
def test_a_round_of_the_loop_stays_at_the_fixed_point_and_maps_errors_by_the_matrix(world, K, weights):
    drawn, A, b, theory, loop = averaging(world, K, weights)
    theta = lf.theory.fedavg_fixed_point(A, b, **theory)
    error = normal(len(theta), seed=1)
    for server_step_size in (1.0, 0.4, 1.7):
        matrix = lf.theory.fedavg_iteration_matrix(A, server_step_size=server_step_size, **theory)
        stayed, moved = (
            ref.fedavg_round(start, drawn.X, drawn.y, server_step_size=server_step_size, **loop)
            for start in (theta, theta + error)
        )
        np.testing.assert_allclose(stayed, theta, rtol=0, atol=2e-14)
        np.testing.assert_allclose(moved - theta, matrix @ error, rtol=0, atol=1e-12)
    other = lf.theory.fedavg_fixed_point(A, b, **theory | {"local_steps": K + 1})
    if world == "n m > d":
        pooled = ref.stacked_least_squares(drawn.X, drawn.y, ref.shares(drawn.y, weights))
        assert np.allclose(theta, pooled, **TOLERANCE) == (K == 1)
        assert np.abs(other - theta).max() > 1e-4
    else:  # whatever K, the shortest that explains all samples
        shortest = np.linalg.pinv(np.concatenate(drawn.X)) @ np.concatenate(drawn.y)
        np.testing.assert_allclose(theta, shortest, **TOLERANCE)
        np.testing.assert_allclose(other, shortest, **TOLERANCE)


def exact_fixed_point(A, b, step, K):
    """Return the fixed point in rational numbers, for two dimensions."""
    matrix, target = [[Fraction(0)] * 2 for _ in range(2)], [Fraction(0)] * 2
    for A_i, b_i in zip(A, b, strict=True):
        for column in range(3):  # K steps on each unit vector without labels, and from 0 with them
            start = [Fraction(int(column == row)) for row in range(2)]
            theta, labels = list(start), [Fraction(float(v)) * (column == 2) for v in b_i]
            for _ in range(K):
                pushed = [sum(Fraction(float(a)) * x for a, x in zip(row, theta, strict=True)) for row in A_i]
                theta = [x - Fraction(step) * (p - q) for x, p, q in zip(theta, pushed, labels, strict=True)]
            for row in range(2):
                if column < 2:
                    matrix[row][column] += start[row] - theta[row]
                else:
                    target[row] += theta[row]
    (a, c), (e, f) = matrix
    return [
        float((target[0] * f - c * target[1]) / (a * f - c * e)),
        float((a * target[1] - e * target[0]) / (a * f - c * e)),
    ]


@pytest.mark.parametrize("step", [1e-300, 1e-14, 1e-9, 1e-4, 0.1])
def test_the_fixed_point_keeps_its_digits_however_small_the_step(step):
    A, b = lf.GivenSamples(normal(3, 4, 2), normal(3, 4, seed=1)).normal_equations()
    for K in (1, 2, 6, 11):
        theta = lf.theory.fedavg_fixed_point(A, b, step_size=step, local_steps=K)
        np.testing.assert_allclose(theta, exact_fixed_point(A, b, step, K), rtol=1e-13)
        if step < 1e-13:
            np.testing.assert_allclose(theta, np.linalg.solve(A.sum(axis=0), b.sum(axis=0)), rtol=1e-12)


@pytest.mark.parametrize(("K", "diverging"), [(1, 1.01), (3, 1.01), (4, 1.01), (1, 40.0)])
def test_a_fixed_point_that_is_not_reached_is_refused(K, diverging):
    """A client alone: the edge is at 2 over its largest eigenvalue, whatever K; at an even K the sum turns negative."""
    A, b = lf.GivenSamples(normal(1, 9, 4), normal(1, 9, seed=1)).normal_equations()
    edge = 2.0 / np.linalg.eigvalsh(A[0])[-1]
    wanted = np.linalg.solve(A[0], b[0])
    setting = {"local_steps": K}
    np.testing.assert_allclose(lf.theory.fedavg_fixed_point(A, b, step_size=0.99 * edge, **setting), wanted, rtol=1e-9)
    step = diverging * edge
    radius = np.abs(np.linalg.eigvals(lf.theory.fedavg_iteration_matrix(A, step_size=step, **setting))).max()
    assert radius > 1
    said = rf"step_size = .* with local_steps = {K} diverges.*radius {radius:.4g}: .*stable=False"
    with pytest.raises(ValueError, match=said):
        lf.theory.fedavg_fixed_point(A, b, step_size=step, **setting)
    point = lf.theory.fedavg_fixed_point(A, b, step_size=step, stable=False, **setting)
    np.testing.assert_allclose(point, wanted, rtol=1e-9)
    both = [np.stack([array, array * scale]) for array, scale in ((A, 1e-3), (b, 1e-3))]
    with pytest.raises(ValueError, match="diverges"):  # in one trial of two
        lf.theory.fedavg_fixed_point(*both, step_size=step, **setting)


def test_a_fixed_point_that_overflows_is_refused():
    A, b = lf.GivenSamples(normal(2, 9, 4), normal(2, 9, seed=1)).normal_equations()
    for stable in (True, False):
        with pytest.raises(ValueError, match=r"step_size = 1e\+200 with local_steps = 9 overflows"):
            lf.theory.fedavg_fixed_point(A, b, step_size=1e200, local_steps=9, stable=stable)


def test_trials_are_an_axis_of_fixed_point_and_matrix():
    X, y = normal(3, 5, 8, 4), normal(3, 5, 8, seed=1)
    A, b = lf.GivenSamples(X, y).normal_equations()
    setting = {"step_size": 0.1, "local_steps": 3, "weights": [1.0, 2.0, 0.0, 1.0, 5.0]}
    points = lf.theory.fedavg_fixed_point(A, b, **setting)
    matrices = lf.theory.fedavg_iteration_matrix(A, server_step_size=0.5, **setting)
    assert (points.shape, matrices.shape) == ((3, 4), (3, 4, 4))
    for t in range(3):
        np.testing.assert_allclose(points[t], lf.theory.fedavg_fixed_point(A[t], b[t], **setting), **TOLERANCE)
        one = lf.theory.fedavg_iteration_matrix(A[t], server_step_size=0.5, **setting)
        np.testing.assert_allclose(matrices[t], one, **TOLERANCE)
        rates = lf.theory.fedavg_rate(A, server_step_size=0.5, **setting)
        assert rates[t] == pytest.approx(np.abs(np.linalg.eigvals(one)).max(), rel=1e-12)
    result = lf.simulate(lf.FedAvg(step_size=0.1, local_steps=3), data=lf.GivenSamples(X, y), n_rounds=800)
    equal = lf.theory.fedavg_fixed_point(A, b, step_size=0.1, local_steps=3)
    np.testing.assert_allclose(result.final.S[:, 0], equal, **TOLERANCE)


def test_weights_are_shares():
    _, A, b, theory, _ = averaging("n m > d", 3, "samples")
    one = lf.theory.fedavg_fixed_point(A, b, **theory)
    theory["weights"] = np.array(theory["weights"]) / 7
    np.testing.assert_allclose(lf.theory.fedavg_fixed_point(A, b, **theory), one, **TOLERANCE)
    theory["weights"] = [0, 0, 1, 0]  # one client alone: its own least squares, whatever K
    alone = np.linalg.solve(A[2], b[2])
    np.testing.assert_allclose(lf.theory.fedavg_fixed_point(A, b, **theory), alone, **TOLERANCE)


def test_by_default_clients_take_one_step_and_count_alike():
    _, A, b, _, _ = averaging("n m > d", 1)
    mean = A.mean(axis=0)
    point = lf.theory.fedavg_fixed_point(A, b, step_size=0.06)
    np.testing.assert_allclose(point, np.linalg.solve(mean, b.mean(axis=0)), rtol=1e-12)
    matrix = np.eye(4) - 0.06 * mean
    np.testing.assert_allclose(lf.theory.fedavg_iteration_matrix(A, step_size=0.06), matrix, rtol=0, atol=1e-15)
    assert lf.theory.fedavg_rate(A, step_size=0.06) == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-13)


def test_where_numbers_overflow_the_rate_is_infinite_and_a_client_without_weight_does_not_count():
    _, A, b, _, _ = averaging("n m > d", 1)
    setting = {"step_size": 0.06, "local_steps": 9}
    rates = lf.theory.fedavg_rate(np.stack([A, 1e200 * A]), **setting)
    assert rates.tolist() == [lf.theory.fedavg_rate(A, **setting), INF]
    large = np.concatenate([1e200 * A[:1], A[1:]])
    point = lf.theory.fedavg_fixed_point(large, b, weights=[0.0, 1.0, 1.0, 1.0], **setting)
    np.testing.assert_allclose(point, lf.theory.fedavg_fixed_point(A[1:], b[1:], **setting), rtol=1e-12)
    rate = lf.theory.fedavg_rate(large, weights=[0.0, 1.0, 1.0, 1.0], **setting)
    assert rate == pytest.approx(lf.theory.fedavg_rate(A[1:], **setting), rel=1e-12)


# --- invalid calls -----------------------------------------------------------------------------------------------


def point(**changes):
    return lf.theory.fedavg_fixed_point(
        **{"A": np.tile(np.eye(3), (4, 1, 1)), "b": np.ones((4, 3)), "step_size": 0.1} | changes
    )


def matrix(**changes):
    return lf.theory.fedavg_iteration_matrix(**{"A": np.tile(np.eye(3), (4, 1, 1)), "step_size": 0.1} | changes)


BAD = [
    (point, {"step_size": -1.0}, ["step_size = -1.0"]),
    (point, {"local_steps": 1.5}, ["local_steps = 1.5"]),
    (point, {"stable": 1}, ["stable = 1", "True or False"]),
    (matrix, {"server_step_size": 0.0}, ["server_step_size = 0.0", "positive"]),
    (matrix, {"A": np.eye(3)}, ["A has shape (3, 3)", "(n, d, d)"]),
    (matrix, {"A": np.ones((4, 3, 2))}, ["A has shape (4, 3, 2)", "square"]),
    (point, {"b": np.ones(3)}, ["b has shape (3,)", "(n, d)"]),
    (point, {"b": np.ones((5, 3))}, ["b has shape (5, 3)", "(4, 3)"]),
    (point, {"A": np.ones((2, 4, 3, 3))}, ["b has shape (4, 3)", "(2, 4, 3)"]),
    (point, {"weights": np.ones(3)}, ["weights has shape (3,)", "(4,)"]),
    (matrix, {"weights": np.ones((1, 4))}, ["weights", "(1, 4)", "(n,)"]),
    (point, {"weights": [1, 1, 1, -1]}, ["weights must not be negative"]),
    (matrix, {"weights": np.zeros(4)}, ["weights", "at least one must be positive"]),
]


@pytest.mark.parametrize(("call", "changes", "fragments"), BAD)
def test_invalid_arguments_are_one_line(call, changes, fragments):
    call()
    assert_one_line(lambda: call(**changes), fragments)
