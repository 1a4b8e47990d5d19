"""Closed forms of FedRep near B* at equal heads: factor, best step, edge and floor, against means and runs."""

import math

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line

SIZES = {
    "one column": {"dim": 20, "rank": 1, "n_clients": 10, "n_samples": 6, "participants": 4},
    "everybody": {"dim": 30, "rank": 3, "n_clients": 12, "n_samples": 9},
    "some": {"dim": 30, "rank": 3, "n_clients": 12, "n_samples": 9, "participants": 5},
    "one client": {"dim": 30, "rank": 3, "n_clients": 12, "n_samples": 40, "participants": 1},
}


@pytest.mark.parametrize("size", SIZES)
def test_the_best_step_has_the_least_factor_and_twice_it_is_the_edge(size):
    sizes = SIZES[size]
    best = lf.theory.best_step_size(**sizes)
    least = lf.theory.one_round_factor(best, **sizes)
    assert least == pytest.approx(1 - (1 - sizes["rank"] / sizes["n_samples"]) * best, rel=1e-12)
    for change in (0.99, 1.01):
        assert lf.theory.one_round_factor(change * best, **sizes) > least
    assert lf.theory.one_round_factor(2 * best, **sizes) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("n", "p"), [(50, 50), (200, 50), (40, 40)])
def test_near_the_truth_the_factor_of_a_round_is_one_at_the_threshold(n, p):
    sizes = {"dim": 2000, "rank": 3, "n_clients": n, "participants": p}
    m = lf.theory.near_truth_threshold(0.25, **sizes)
    below, above = (
        lf.theory.one_round_factor(0.25, n_samples=found, **sizes) for found in (math.floor(m), math.ceil(m))
    )
    assert above < 1.0 < below
    if p == n:
        assert p * m == pytest.approx((2000 - 3 + 1) * 3 / (7 + 3 / m))
    assert lf.theory.near_truth_threshold(0.25, **sizes | {"dim": 20}) == 5
    assert lf.theory.near_truth_threshold(2.0, **sizes) == math.inf


@pytest.mark.parametrize(("eta", "p"), [(0.25, 50), (0.6, 12), (1.3, 30)])
def test_the_threshold_solves_the_equation_of_the_factor(eta, p):
    d, k, n = 2000, 3, 50
    m = lf.theory.near_truth_threshold(eta, dim=d, rank=k, n_clients=n, participants=p)
    c, f, g = 1 - k / m, (k - 1) * (n - p) / (p * (n - 1)), (d - k + 1) * k / (p * m)
    assert (1 - eta * c) ** 2 + eta**2 * c * (c * f + g) == pytest.approx(1.0, rel=1e-12)
    assert m > k + 2


def test_beyond_the_largest_step_few_samples_can_be_better_than_many():
    sizes = {"dim": 20, "rank": 2, "n_clients": 100}
    factors = [lf.theory.one_round_factor(2.2, n_samples=m, **sizes) for m in (4, 5, 8, 20, 1000)]
    assert factors == sorted(factors)
    assert factors[2] < 1 < factors[3]
    assert lf.theory.near_truth_threshold(2.2, **sizes) == 4
    assert lf.theory.near_truth_threshold(2.2, **sizes | {"dim": 200, "n_clients": 20}) == math.inf


def factor(step_size=0.5, **changes):
    return lf.theory.one_round_factor(step_size, **SIZES["some"] | changes)


def best(**changes):
    return lf.theory.best_step_size(**SIZES["some"] | changes)


def floor(step_size=0.5, **changes):
    return lf.theory.noise_floor(step_size, **{"noise_std": 0.1} | SIZES["some"] | changes)


def test_a_floor_exists_up_to_twice_the_best_step():
    edge = 2.0 * float(best())
    assert floor(0.5, noise_std=0.0) == 0.0 < floor(0.9 * edge) < floor(0.999 * edge) < np.inf
    for step in (edge, 1.001 * edge):
        assert_one_line(lambda step=step: floor(step), ["2 best_step_size", f"{edge:g}", "no floor"])


def threshold(step_size):
    return lf.theory.near_truth_threshold(step_size, dim=20, rank=3, n_clients=9)


@pytest.mark.parametrize(
    ("call", "changes", "fragments"),
    [
        (best, {"dim": 5}, ["dim = 5"]),
        (best, {"n_clients": 2, "participants": 1}, ["n_clients = 2", "at least 3"]),
        (factor, {"n_samples": 4}, ["n_samples = 4"]),
        (factor, {"step_size": "1"}, ["step_size = '1'"]),
        (floor, {"participants": 13}, ["participants = 13"]),
        (floor, {"noise_std": -0.1}, ["noise_std = -0.1"]),
        (threshold, {"step_size": -1.0}, ["-1.0", "positive"]),
    ],
)
def test_invalid_arguments_are_one_line(call, changes, fragments):
    assert_one_line(lambda: call(**changes), fragments)
