"""What rank k can reach: the truncation's error, the population's minimiser, and floors on fixed samples."""

import math

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal
from tests.theory.flute.made import EXACT, SHAPES, TRUTHS, balanced, made, world


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_error_of_the_truncation_is_the_dense_one(shape, k):
    for more in TRUTHS.values():
        truth = made(shape, **more).truth(1, range(2))
        found = lf.theory.truncation_error(truth, k)
        for value, Phi in zip(found, truth.dense(), strict=True):
            U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
            s[k:] = 0
            assert value == pytest.approx(np.linalg.norm((U * s) @ Vt - Phi, axis=1).mean(), abs=1e-13)


def test_the_average_of_clients_of_different_lengths_by_hand():
    values, U = [3.0, 2.0, 2.0, 0.5], np.linalg.qr(normal(6, 4))[0]
    for power in (0.3, 1.0, 1.7):
        mean = sum(value / value**power * u for value, u in zip(values, U.T, strict=True)) / 4
        wanted = math.sqrt(1 - (mean @ U[:, 0] / np.linalg.norm(mean)) ** 2)
        assert lf.theory.average_direction_distance(values, power) == pytest.approx(wanted, rel=1e-12)
    assert lf.theory.average_direction_distance([2.0], 0.3) == 0.0
    for wrong in ([1.0, 0.0], [1.0, 2.0]):
        words = ["positive and in descending order"]
        assert_one_line(lambda wrong=wrong: lf.theory.average_direction_distance(wrong, 0.3), words)


POINTS = {
    "defaults": (0.25, 0.125, 1.0, 1),
    "shrunk": (0.1, 0.25, 1.0, 1),
    "grown": (0.4, 0.1, 1.0, 1),
    "no shrinking": (0.2, 0.0, 1.0, 1),
    "a server's step": (0.3, 0.25, 0.5, 1),
    "factor 2": (0.4, 0.1, 1.0, 2),
    "factor 2, a server's step": (0.6, 0.02, 1.4, 2),
    "no server": (0.4, 0.1, 0.0, 1),
}


@pytest.mark.parametrize(
    ("name", "shape"), [*((name, "n < d") for name in POINTS), ("shrunk", "n == d"), ("factor 2", "n > d")]
)
def test_a_step_from_the_population_minimiser_moves_nothing(name, shape):
    gamma1, gamma2, share, factor = POINTS[name]
    problem = made(shape)
    truth, data = problem.truth(0, range(2)), lf.GivenSamples.population(problem, trials=2)
    base = lf.FLUTE(
        rank=2,
        step_size=0.1,
        server_step_size=0.1 * share,
        gamma1=gamma1,
        gamma2=gamma2,
        gradient_factor=factor,
    )
    assert base.step_ratio == pytest.approx(share / factor)
    least = lf.theory.flute_population_minimizer(truth, 2, gamma1=gamma1, gamma2=gamma2, step_ratio=base.step_ratio)

    def moved(cut):
        B, W = balanced(cut)
        algorithm = lf.FLUTE(**{name: getattr(base, name) for name in
                                ("rank", "step_size", "server_step_size", "gamma1", "gamma2", "gradient_factor")},
                             init=(B, W))  # fmt: skip
        final = lf.simulate(algorithm, problem, data=data, n_rounds=1, trials=2).final
        return max(np.abs(final.B - B).max(), np.abs(final.W - W).max())

    assert moved(least) < 1e-12
    if share and gamma1 != 2 * gamma2:
        assert moved(truth.truncated(2)) > 1e-2
        other = lf.theory.flute_population_minimizer(
            truth, 2, gamma1=gamma1, gamma2=gamma2, step_ratio=0.5 * base.step_ratio
        )
        assert moved(other) > 1e-3
    else:
        np.testing.assert_allclose(least.dense(), truth.truncated(2).dense(), **EXACT)


def test_there_is_no_minimiser_beyond_the_edge():
    truth = made("n < d").truth(0, range(1))
    for gamma1, gamma2, ratio in ((0.75, 0.125, 1.0), (1.0, 0.0, 0.5), (1.5, 0.5, 1.0)):
        with pytest.raises(ValueError, match=r"step_ratio \(2 gamma1 - 4 gamma2\) must be below 1"):
            lf.theory.flute_population_minimizer(truth, 1, gamma1=gamma1, gamma2=gamma2, step_ratio=ratio)
        lf.theory.flute_population_minimizer(truth, 1, gamma1=gamma1, gamma2=gamma2, step_ratio=0.99 * ratio)


def test_the_threshold_is_half_the_least_eigenvalue():
    _, _, A = world()
    least = min(np.linalg.svd(A_i, compute_uv=False)[-1] for A_i in A)
    assert lf.theory.flute_divergence_threshold(A) == pytest.approx(least / 2, rel=1e-12)
    assert lf.theory.flute_divergence_threshold(A, step_ratio=0.4) == pytest.approx(least / 0.8, rel=1e-12)
    np.testing.assert_allclose(lf.theory.flute_divergence_threshold(np.stack([A, 3 * A])), [least / 2, 1.5 * least])
    assert lf.theory.flute_divergence_threshold(np.eye(3)[None]) == 0.5
    few = lf.GivenSamples([*world()[0][:3], normal(3, 4)], [*world()[1][:3], normal(3)])
    assert 0 <= lf.theory.flute_divergence_threshold(few.normal_equations()[0]) < 1e-15
    with pytest.raises(ValueError, match=r"A has shape"):
        lf.theory.flute_divergence_threshold(np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match=r"step_ratio"):
        lf.theory.flute_divergence_threshold(A, step_ratio=0.0)


# --- the floor on fixed samples ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "k"), [*(("n < d", k) for k in (1, 2, 3, 4)), *(("n == d", k) for k in (2, 4)), ("n > d", 4)]
)
def test_the_floor_on_one_data_set_is_that_of_the_derivative_of_the_truncation(shape, k):
    """By differences, in every direction of the noise, whose size differs between clients."""
    (n, d), m = SHAPES[shape], 50
    sigma = np.linspace(0.1, 0.7, n)
    truth = made(shape, spectrum=[4.0, 3.0, 2.0, 1.0], noise_std=sigma).truth(5, range(2))

    def cut(matrices):
        U, s, Vt = np.linalg.svd(matrices, full_matrices=False)
        return (U[..., :k] * s[..., None, :k]) @ Vt[..., :k, :]

    found = lf.theory.truncation_floor(truth, k, m)
    for floor, Phi in zip(found, np.swapaxes(truth.dense(), -1, -2), strict=True):
        E, noise = cut(Phi) - Phi, np.zeros((n, d, d, n))
        for i in range(n):
            covariance = (sigma[i] ** 2 + E[:, i] @ E[:, i]) * np.eye(d) + np.outer(E[:, i], E[:, i])
            noise[i, :, :, i] = np.linalg.cholesky(covariance / m).T
        moved = (cut(Phi + 1e-5 * noise) - cut(Phi - 1e-5 * noise)) / 2e-5
        assert floor**2 == pytest.approx((moved**2).sum() / n, rel=1e-7)


FLOORS = {
    "n < d": ((4, 6), 10**6),
    "n == d": ((5, 5), 10**6),
    "n > d": ((7, 4), 10**6),
    "n > d, m = 10^4": ((7, 4), 10**4),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FLOORS)
def test_runs_end_at_the_floor(name):
    """The mean of the squared ratio over 200 trials is 1, within 4.5 standard errors."""
    shape, m = FLOORS[name]
    problem = made(shape, spectrum=[3.0, 2.2, 1.0, 0.5], noise_std=0.5)
    truth = problem.truth(0, range(200))
    init = balanced(truth.truncated(2))
    algorithm = lf.FLUTE(rank=2, step_size=0.2, init=init)
    data = lf.FixedSamples(m, in_law=True)
    result = lf.simulate(algorithm, problem, data=data, n_rounds=80, trials=200, metrics=[])
    off = ((result.final.predictors() - truth.truncated(2).dense()) ** 2).sum((1, 2)) / shape[0]
    ratio = off / lf.theory.truncation_floor(truth, 2, m) ** 2
    error = ratio.std() / math.sqrt(200)
    assert abs(ratio.mean() - 1) < 4.5 * error
    assert error < 0.05


@pytest.mark.parametrize("shape", SHAPES)
def test_the_floor_in_homogeneous_noise(shape):
    n, d = SHAPES[shape]
    for k in (1, 2):
        truth = made(shape, spectrum=[2.0, 1.0][:k], noise_std=0.7).truth(0, range(2))
        wanted = math.sqrt(0.49 * k * (d + n - k) / (n * 300))
        np.testing.assert_allclose(lf.theory.truncation_floor(truth, k, 300), wanted, rtol=1e-12)
    full = min(n, d)
    truth = made(shape, noise_std=0.7).truth(0, range(1))
    found = lf.theory.truncation_floor(truth, full, 300)
    np.testing.assert_allclose(found, math.sqrt(0.49 * full * max(n, d) / (n * 300)), rtol=1e-12)


def test_the_floor_grows_as_the_gap_closes_and_has_no_value_without_one():
    def floor(rank, *spectrum, seed=0):
        truth = made((6, 5), spectrum=spectrum, noise_std=0.1).truth(seed, range(1))
        return float(lf.theory.truncation_floor(truth, rank, 100)[0])

    floors = [floor(1, 2.0, second) for second in (1.0, 1.8, 1.98)]
    assert floors[0] < floors[1] < floors[2]
    assert floors[2] / floors[1] == pytest.approx(10, rel=0.1)
    assert_one_line(lambda: floor(1, 2.0, 2.0), ["lambda_k and lambda_(k+1) coincide"])
    assert_one_line(lambda: floor(6, 2.0, 1.0), ["rank = 6 must be at most min(d, n) = 5"])
    for seed in range(5):  # singular values 3 and 4 are 0 up to rounding
        assert_one_line(lambda seed=seed: floor(3, 2.0, 1.0, seed=seed), ["rank = 3"])
