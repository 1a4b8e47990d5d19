"""The limit of any schedule with refitted heads, against recursions and a loop over clients."""

import numpy as np
import pytest

from linfed.theory import known_heads_bound, refitted_heads_limit
from tests.helpers import assert_one_line


@pytest.mark.long
def test_refitted_heads_cost_the_share_that_they_absorb_and_their_own_noise():
    sizes = {"dim": 100, "rank": 3, "noise_std": 2.0}
    bound = known_heads_bound(1e5, **sizes)
    np.testing.assert_allclose(bound, np.full(3, 97 * 4.0 / 1e5))
    np.testing.assert_allclose(refitted_heads_limit(1e5, **sizes, n_samples=12) / bound, (1 + 4.0 / 8) / 0.75)
    lam = np.array([0.4, 0.8, 1.8])
    own = refitted_heads_limit(1e5, **sizes, n_samples=12, eigenvalues=lam)
    np.testing.assert_allclose(own / bound, (lam + 0.5) / (0.75 * lam**2))
    for a in (0.8, 1.0, 2.0, 5.0):
        scalar = refitted_heads_limit(1e5, **sizes, n_samples=12, eigenvalues=lam, scale=a)
        slow = a * lam <= 0.5
        assert np.isinf(scalar[slow]).all()
        assert (scalar >= own * (1 - 1e-12)).all()
        # Its recursion, direction by direction.
        v, rounds = 97 * 0.75 * 4.0 * (lam + 0.5) / 1200, 20_000
        q = np.ones(3)
        for t in range(10, rounds):
            q = (1 - a * lam / t) ** 2 * q + (a / (0.75 * t)) ** 2 * v
        wanted = refitted_heads_limit(1200.0 * rounds, **sizes, n_samples=12, eigenvalues=lam, scale=a)
        fast = a * lam > 1.0
        np.testing.assert_allclose(q[fast], wanted[fast], rtol=0.01)
    assert refitted_heads_limit(1e5, **sizes, n_samples=12, scale=1.0) == pytest.approx(bound * 2.0)


def test_the_limit_of_differing_clients_is_that_of_a_loop():
    d, k, samples = 9, 2, 500.0
    lam, counts = np.array([0.4, 1.7]), np.array([5, 9, 30, 4])
    levels, weights = np.array([0.5, 1.0, 0.2, 0.8]), np.array([1.0, 3.0, 0.5, 2.0])
    noise, pull = np.zeros(2), 0.0
    for m, level, weight in zip(counts, levels, weights / weights.mean(), strict=True):
        noise += weight**2 * (1 - k / m) / m * level**2 * (lam + level**2 / (m - k - 1)) / 4
        pull += weight * (1 - k / m) / 4
    wanted = (d - k) / samples * counts.mean() * noise / (pull * lam) ** 2
    told = {"rank": k, "n_samples": counts, "noise_std": levels, "eigenvalues": lam, "weights": weights}
    np.testing.assert_allclose(refitted_heads_limit(samples, dim=d, **told), wanted, rtol=1e-12)
    np.testing.assert_allclose(7 * refitted_heads_limit(samples, dim=3, **told), wanted, rtol=1e-12)
    for a in (2.0, 1.3, 0.8):
        scaled = np.where(a * lam > 0.5, wanted * (a * lam) ** 2 / np.abs(2 * a * lam - 1), np.inf)
        np.testing.assert_allclose(refitted_heads_limit(samples, dim=d, scale=a, **told), scaled, rtol=1e-12)
    one = {"dim": d, "rank": k, "n_samples": 9, "noise_std": 0.5}
    equal = refitted_heads_limit(samples, **one)
    for change in ({"n_samples": [9] * 4}, {"noise_std": [0.5] * 4}, {"weights": [3.0] * 4}, {"eigenvalues": [1, 1]}):
        np.testing.assert_allclose(refitted_heads_limit(samples, **one | change), equal, rtol=1e-12)
    known = known_heads_bound(samples, dim=d, rank=k, noise_std=0.3, eigenvalues=lam)
    np.testing.assert_allclose(known, 7 * 0.09 / (samples * lam), rtol=1e-12)


KNOWN = {"samples": 9, "dim": 9, "rank": 2, "noise_std": 1.0}
REFITTED = {**KNOWN, "n_samples": 5}


@pytest.mark.parametrize(
    ("call", "given", "fragments"),
    [
        (known_heads_bound, KNOWN | {"samples": 0}, ["samples = 0", "positive"]),
        (known_heads_bound, KNOWN | {"eigenvalues": [1, 0]}, ["eigenvalues = [1, 0]", "2 positive numbers"]),
        (known_heads_bound, KNOWN | {"eigenvalues": [1, 1, 1]}, ["eigenvalues = [1, 1, 1]", "2 positive numbers"]),
        (refitted_heads_limit, REFITTED | {"samples": 0}, ["samples = 0", "positive"]),
        (refitted_heads_limit, REFITTED | {"dim": 2}, ["dim = 2", "at least 3"]),
        (refitted_heads_limit, REFITTED | {"n_samples": 3}, ["n_samples = 3", "rank + 2 = 4"]),
        (refitted_heads_limit, REFITTED | {"scale": 0}, ["scale = 0", "positive"]),
    ],
)
def test_invalid_arguments_are_one_line(call, given, fragments):
    assert_one_line(lambda: call(**given), fragments)
