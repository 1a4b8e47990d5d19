"""Gap, step limits, rates and bound of FLUTE's theorems by hand, and the local rate against derivatives and runs."""

import math

import numpy as np
import pytest

import linfed as lf
from linfed.theory import flute as theory
from tests.helpers import normal
from tests.theory.flute.made import balanced, made


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_gap_and_the_step_limits(k):
    spectrum = np.array([4.0, 2.5, 1.0])
    primed = 2 * np.append(spectrum, 0.0)
    gap = primed[k - 1] - primed[k]
    assert lf.theory.flute_gap(spectrum, k) == gap
    limit = lf.theory.flute_step_limit(spectrum, k)
    assert limit == pytest.approx(gap**2 / (36 * primed[0] ** 3), rel=1e-14)
    assert lf.theory.flute_step_limit(spectrum, k, constant="printed") == pytest.approx(limit * 288 / 228, rel=1e-14)
    assert lf.theory.flute_rate(spectrum, k, 0.01) == pytest.approx(1 - 0.01 * gap / 16, rel=1e-15)
    stacked = np.stack([spectrum, 2 * spectrum])
    np.testing.assert_allclose(lf.theory.flute_step_limit(stacked, k), [limit, limit / 2], rtol=1e-14)
    wanted = [[s[0] ** 2 * k**0.5 / (0.01 * g**2 * 7**0.5) * (1 - 0.01 * g / 16) ** t for t in (0, 3, 50)]
              for s, g in ((spectrum, gap), (2 * spectrum, 2 * gap))]  # fmt: skip
    np.testing.assert_allclose(lf.theory.flute_bound(stacked, k, 0.01, 7, [0, 3, 50]), wanted, rtol=1e-13)


@pytest.mark.parametrize(("n", "d", "k", "failure"), [(15, 10, 2, 0.05), (3, 4, 1, 0.5), (8, 40, 8, 0.9)])
def test_the_initial_product_stays_below_its_bound(n, d, k, failure):
    """Within the probability, and not by far: a bound without the term for the failures does not hold."""
    rng, alpha, trials = np.random.default_rng(n), 0.3, 4000
    B, W = alpha * rng.standard_normal((trials, d, k)), alpha * rng.standard_normal((trials, n, k))
    largest = np.linalg.svd(B @ W.mT, compute_uv=False)[:, 0]
    bound = lf.theory.flute_start_bound(alpha, k, n_clients=n, dim=d, failure=failure)
    t = math.sqrt(2 * math.log(4 / failure))
    assert bound == pytest.approx(alpha**2 * (d**0.5 + k**0.5 + t) * (n**0.5 + k**0.5 + t), rel=1e-14)
    assert (largest > bound).mean() < failure
    assert largest.max() > 0.3 * bound


def test_a_bound_of_a_step_that_is_too_large_is_0_and_not_negative():
    """The factor 1 - eta Delta / 16 would be -1.5; rounds need not be integers."""
    assert lf.theory.flute_rate([4.0, 0.0], 1, 5.0) == -1.5
    scale = 4.0**2 / (5.0 * 8.0**2 * 7**0.5)
    np.testing.assert_allclose(lf.theory.flute_bound([4.0, 0.0], 1, 5.0, 7, [0, 0.5, 1]), [scale, 0.0, 0.0])


def test_without_a_gap_the_bound_is_infinite_and_a_rate_of_0_covers_all_rounds():
    np.testing.assert_array_equal(lf.theory.flute_bound([1.0, 1.0], 1, 0.01, 7, [0, 5]), [np.inf, np.inf])
    assert lf.theory.flute_rate([2.0, 0.0], 1, 4.0) == 0.0
    assert theory.flute_covered_rounds([2.0, 0.0], 1, 4.0, 5000) == math.inf
    assert lf.theory.flute_gap([2.0, 2.0, 0.0], 2) == 4.0
    for wrong in ([1.0, -1.0], [1.0, 0.5, 0.6]):
        with pytest.raises(ValueError, match="descending order, at least 0"):
            lf.theory.flute_gap(wrong, 1)
    for wrong in ([], 1.0):
        with pytest.raises(ValueError, match=r"spectrum has shape .* at least 1 axes, none of them empty"):
            lf.theory.flute_gap(wrong, 1)


def test_bad_arguments_of_the_rates_are_named():
    with pytest.raises(ValueError, match=r"constant = 'main' is unknown; allowed: 'appendix', 'printed'"):
        lf.theory.flute_step_limit([2.0, 1.0], 1, constant="main")
    with pytest.raises(ValueError, match=r"rank = 3 must be at most the number of singular values, 2"):
        lf.theory.flute_gap([2.0, 1.0], 3)
    for function in (lf.theory.flute_rate, lf.theory.flute_local_rate):
        with pytest.raises(ValueError, match=r"step_size"):
            function([2.0, 1.0], 1, 0.0)


def round_derivative(problem, B, W, eta):
    """Return the derivative of one round at population by central differences, and a basis of the gauge."""
    (d, k), n, h = B.shape, len(W), 1e-5
    size = (n + d) * k
    points = np.concatenate([h * np.eye(size), -h * np.eye(size)]) + np.concatenate([B.ravel(), W.ravel()])
    init = points[:, : d * k].reshape(-1, d, k), points[:, d * k :].reshape(-1, n, k)
    given = lf.GivenSamples.population(problem, trials=1)
    data = lf.GivenSamples(given.X[0], given.y[0])
    final = lf.simulate(lf.FLUTE(rank=k, step_size=eta, init=init), data=data, n_rounds=1, trials=2 * size).final
    flat = np.concatenate([final.B.reshape(2 * size, -1), final.W.reshape(2 * size, -1)], axis=1)
    gauge = []
    for p in range(k):
        for q in range(p):
            turn = np.zeros((k, k))
            turn[p, q], turn[q, p] = 1, -1
            gauge.append(np.concatenate([(B @ turn).ravel(), (W @ turn).ravel()]))
    J = (flat[:size] - flat[size:]).T / (2 * h)
    return J, np.linalg.qr(np.array(gauge).T)[0] if gauge else np.zeros((size, 0))


def measured_rate(problem, k, eta):
    B, W = (part[0] for part in balanced(problem.truth(0, range(1)).truncated(k)))
    J, gauge = round_derivative(problem, B, W, eta)
    np.testing.assert_allclose(J, J.T, rtol=0, atol=1e-8)
    np.testing.assert_allclose(J @ gauge, gauge, rtol=0, atol=1e-8)
    project = np.eye(len(J)) - gauge @ gauge.T
    return np.abs(np.linalg.eigvalsh(project @ J @ project)).max()


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(
    ("shape", "eta"), [*(((4, 5), eta) for eta in (0.02, 0.2, 0.3, 0.34)), ((4, 4), 0.2), ((5, 4), 0.3)]
)
def test_the_local_rate_is_that_of_the_derivative(shape, k, eta):
    problem = made(shape, spectrum=[3.0, 2.0, 0.8])
    rate = lf.theory.flute_local_rate([3.0, 2.0, 0.8], k, eta)
    assert measured_rate(problem, k, eta) == pytest.approx(rate, abs=1e-7)
    assert (rate < 1) == (eta < 1 / 3)
    if (k, eta) == (1, 0.3):  # here the largest direction rules
        assert rate == pytest.approx(0.8)


def test_without_a_direction_beyond_the_local_rate_is_slower_than_the_truth():
    """At k = n = d nothing can leak into a (k+1)-th direction: the slowest factor is 1 - 2 eta lambda_k."""
    problem = made((2, 2), spectrum=[3.0, 2.0])
    assert measured_rate(problem, 2, 0.05) == pytest.approx(1 - 2 * 0.05 * 2, abs=1e-7)
    assert lf.theory.flute_local_rate([3.0, 2.0], 2, 0.05) == pytest.approx(1 - 0.05 * 2)


@pytest.mark.long
def test_runs_fall_at_the_local_rate_and_no_longer_beyond_the_edge():
    problem = made((6, 5), spectrum=[3.0, 2.0, 0.8])
    B, W = balanced(problem.truth(0, range(1)).truncated(2))
    data = lf.GivenSamples.population(problem)
    start = B[0] + 1e-3 * normal(5, 2, seed=1), W[0] + 1e-3 * normal(6, 2, seed=2)

    def errors(eta, n_rounds):
        algorithm = lf.FLUTE(rank=2, step_size=eta, init=start)
        return lf.simulate(algorithm, problem, data=data, n_rounds=n_rounds).metrics["mean_truncation_error"][0]

    for eta in (0.05, 0.32):
        found = errors(eta, 120)
        late = (found[120] / found[100]) ** (1 / 20)
        assert late == pytest.approx(lf.theory.flute_local_rate([3.0, 2.0, 0.8], 2, eta), abs=2e-3)
    assert errors(0.98 / 3, 400)[-1] < 1e-6
    assert not errors(1.02 / 3, 400)[-1] < 0.05


def test_the_covered_rounds_turn_the_condition_on_m_around():
    covered = theory.flute_covered_rounds([1.0, 0.2], 1, 0.01, 5000)
    assert (1 - 0.01 * 1.6 / 16) ** (-2 * covered) == pytest.approx(5000)
    assert theory.flute_covered_rounds([1.0, 0.2], 1, 0.01, 1) == 0
    assert theory.flute_covered_rounds([1.0, 1.0], 1, 0.01, 5000) == math.inf
    assert theory.flute_covered_rounds([1.0, 0.2], 1, 20.0, 5000) == math.inf
    with pytest.raises(ValueError, match="n_samples"):
        theory.flute_covered_rounds([1.0, 0.2], 1, 0.01, 0)
