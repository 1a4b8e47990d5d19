"""The noise of the Gaussian mechanism: its definition, adaptive rounds, and an accountant."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.integrate

from linfed.theory import gaussian_mechanism_noise
from tests.helpers import assert_one_line

LEVELS = [(1.0, 1e-6), (0.0, 0.01), (1e-3, 1e-10), (0.5, 0.3), (8.0, 1e-5), (100.0, 1e-8), (2.0, 0.99), (1e-4, 1e-3)]


@pytest.mark.parametrize("level", LEVELS)
def test_the_noise_is_that_of_the_definition(level):
    """The largest ``P(S) - e^eps Q(S)`` of two Gaussians at distance 1 is delta: an integral of their densities."""
    epsilon, delta = level
    s = gaussian_mechanism_noise(epsilon, delta, sensitivity=1.0)
    edge = 0.5 - epsilon * s * s  # the densities at 0 and 1: P exceeds e^eps Q below it, P around 0

    def excess(x):
        first, second = -0.5 * (x / s) ** 2, epsilon - 0.5 * ((x - 1.0) / s) ** 2
        return (np.exp(first) - np.exp(second)) / (s * np.sqrt(2 * np.pi))

    low = min(edge, 0.0) - 14.0 * s
    points = np.linspace(low, edge, 40)
    total = sum(scipy.integrate.quad(excess, a, b, epsabs=0.0, epsrel=1e-10)[0] for a, b in itertools.pairwise(points))
    assert total == pytest.approx(delta, rel=1e-5)


def test_rounds_and_sensitivity_scale_the_noise():
    one = gaussian_mechanism_noise(1.5, 1e-5, sensitivity=1.0)
    assert gaussian_mechanism_noise(1.5, 1e-5, sensitivity=0.02, n_rounds=1000) == pytest.approx(0.02 * 1000**0.5 * one)
    classical = np.sqrt(2 * np.log(1.25 / 1e-5)) / 0.8
    assert 0.7 * classical < gaussian_mechanism_noise(0.8, 1e-5, sensitivity=1.0) < classical
    assert gaussian_mechanism_noise(4.0, 1e-5, sensitivity=1.0) < gaussian_mechanism_noise(3.9, 1e-5, sensitivity=1.0)


@pytest.mark.parametrize("rounds", [1, 5, 200])
def test_the_losses_of_adaptive_rounds_add_up_to_delta(rounds):
    """Each round releases a noisy value whose difference between two neighbours has a sign that the past decides."""
    epsilon, delta, trials, rng = 1.0, 0.05, 20_000, np.random.default_rng(0)
    for wrong in (1.0, 1.4):
        s = gaussian_mechanism_noise(epsilon, delta, sensitivity=1.0, n_rounds=rounds) / wrong
        loss, last = np.zeros(trials), np.zeros(trials)
        for _ in range(rounds):
            difference = np.where(last > 0.3, -1.0, 1.0)
            last = s * rng.standard_normal(trials)  # the release, minus the value of the first neighbour
            loss += ((last - difference) ** 2 - last**2) / (2 * s * s)
        excess = np.maximum(0.0, -np.expm1(epsilon - loss))  # its mean is the smallest delta
        z = (excess.mean() - delta) / (excess.std() / trials**0.5)
        assert (abs(z) < 4) == (wrong == 1.0), (rounds, z)


@pytest.mark.parametrize(("epsilon", "delta", "rounds"), [(1.0, 1e-6, 1), (0.1, 1e-5, 5), (8.0, 1e-6, 40)])
def test_an_accountant_agrees(epsilon, delta, rounds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountants = pytest.importorskip("dp_accounting", reason="pip install 'linfed[privacy]'")
        s = gaussian_mechanism_noise(epsilon, delta, sensitivity=1.0, n_rounds=rounds)
        for factor in (1.0, 0.97):
            accountant = accountants.pld.PLDAccountant()
            accountant.compose(accountants.GaussianDpEvent(factor * s), rounds)
            agrees = accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=2e-3)
            assert agrees == (factor == 1.0), accountant.get_epsilon(delta)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gaussian_mechanism_noise(-1.0, 0.1, sensitivity=1.0), ["epsilon = -1.0"]),
        (lambda: gaussian_mechanism_noise(1.0, 1.0, sensitivity=1.0), ["delta = 1.0", "inside (0, 1)"]),
        (lambda: gaussian_mechanism_noise(1.0, 0.0, sensitivity=1.0), ["delta = 0.0", "inside (0, 1)"]),
        (lambda: gaussian_mechanism_noise(1.0, 0.1, sensitivity=0.0), ["sensitivity = 0.0"]),
        (lambda: gaussian_mechanism_noise(1.0, 0.1, sensitivity=1.0, n_rounds=0), ["n_rounds = 0"]),
    ],
)
def test_an_invalid_argument_is_named(call, words):
    assert_one_line(call, words)
