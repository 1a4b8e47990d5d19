"""What a client can do by itself: the mean risks of least squares, of its minimum norm and of a ridge."""

import numpy as np
import pytest
from scipy.optimize import brentq

import linfed as lf
from tests.helpers import assert_one_line, normal

DIM, LENGTH, NOISE = 8, 2.0, 0.7
CASES = {
    "m > d": (14, 0.0),
    "m < d": (3, 0.0),
    "m > d, ridge": (12, 0.3),
    "m = d, ridge": (8, 0.4),
    "m < d, ridge": (4, 0.6),
}


def risk(m, ridge=0.0, *, length=LENGTH, noise_std=NOISE, dim=DIM):
    return float(lf.theory.local_mean_risk(length, noise_std=noise_std, dim=dim, n_samples=m, ridge=ridge))


def measured(m, ridge, *, clients=1500, trials=2):
    """Return the mean over clients and its standard error."""
    problem = lf.SharedRepresentation(n_clients=clients, dim=DIM, rank=3, noise_std=NOISE, head_norm=LENGTH)
    run = {"data": lf.FreshSamples(m), "n_rounds": 1, "trials": trials, "seed": 3}
    risks = lf.simulate(lf.LocalOnly(ridge=ridge), problem, **run).client_risks()
    return risks.mean(), risks.std() / np.sqrt(risks.size)


def wrong(m, ridge):
    """Return laws that are nearly right."""
    variance, c = NOISE**2, DIM / m
    if ridge == 0 and m > DIM:
        return [0.5 * variance * (1 + DIM / (m - DIM)), 0.5 * variance * (1 + DIM / m)]
    if ridge == 0:
        bias = (1 - m / DIM) * LENGTH**2
        return [0.5 * (bias + variance), 0.5 * (bias**2 / LENGTH**2 + variance * (1 + m / (DIM - m - 1)))]
    s = np.sqrt((1 - c + ridge) ** 2 + 4 * c * ridge)
    best_alone = 0.5 * variance * (1 + c * 2 / (s + 1 - c + ridge))  # what the best ridge would have
    return [best_alone, risk(m, ridge * m), risk(m, 3 * ridge)]


@pytest.mark.parametrize("case", CASES)
def test_the_mean_risk_is_that_of_many_clients(case):
    m, ridge = CASES[case]
    found, error = measured(m, ridge)
    near = 0.01 * found if ridge else 0.0  # to the order 1/d^2
    assert abs(found - risk(m, ridge)) < 4 * error + near
    for other in wrong(m, ridge):
        assert abs(found - other) > 5 * error + near


def test_the_ridge_has_its_second_term():
    """Of Wishart matrices of dimension 8: the limit is 7 % low, the expansion right to half a per cent."""
    d, m, lam = 8, 12, 0.2
    X = normal(8_000, m, d)
    s = np.linalg.eigvalsh(X.mT @ X / m)
    mean = 0.5 * ((LENGTH**2 * lam**2 / d + NOISE**2 * s / m) / (s + lam) ** 2).sum(axis=1).mean()
    assert risk(m, lam, dim=d) - 0.5 * NOISE**2 == pytest.approx(mean, rel=0.01)
    limit = risk(1000 * m, lam, dim=1000 * d)  # of the same d/m
    assert limit - 0.5 * NOISE**2 < 0.94 * mean


def expansion(lam, m, d=DIM):
    """Return t1, in the limit and as its correction of order 1/d, for real or complex lam."""
    c, p = d / m, 1 + d / m + lam
    s = np.sqrt(p**2 - 4 * c)
    return 2 / (s + 1 - c + lam), (p / s**2 - 1 / s) / (2 * d)


def minus_slope(lam, m):
    """Return minus the derivatives of both parts, by a complex step."""
    return [-np.imag(part) / 1e-30 for part in expansion(lam + 1e-30j, m)]


@pytest.mark.parametrize(("m", "lam"), [(12, 0.3), (8, 0.4), (4, 0.6), (3, 2.5), (40, 0.05)])
def test_the_risk_of_a_ridge_is_that_of_the_expansion(m, lam):
    t1, t2, c = sum(expansion(lam, m)), sum(minus_slope(lam, m)), DIM / m
    excess = LENGTH**2 * lam**2 * t2 + NOISE**2 * c * (t1 - lam * t2)
    assert risk(m, lam) == pytest.approx(0.5 * (excess + NOISE**2), rel=1e-12)


def test_the_expansion_serves_until_its_correction_is_three_tenths():
    m, c = 8, 1.0

    def share(lam):
        (t1, more1), (t2, more2) = expansion(lam, m), minus_slope(lam, m)
        limit = LENGTH**2 * lam**2 * t2 + NOISE**2 * c * (t1 - lam * t2)
        return (LENGTH**2 * lam**2 * abs(more2) + NOISE**2 * c * (abs(more1) + lam * abs(more2))) / limit

    edge = brentq(lambda lam: share(lam) - 0.3, 1e-3, 0.4)
    assert np.isfinite(risk(m, 1.001 * edge))
    assert_one_line(lambda: risk(m, 0.999 * edge), ["is too small for m = 8 samples in d = 8 dimensions"])


def test_a_regressor_of_0_has_only_the_noise():
    assert risk(14, length=0.0) == pytest.approx(0.5 * NOISE**2 * (1 + DIM / 5), rel=1e-13)
    assert risk(3, length=0.0) == pytest.approx(0.5 * NOISE**2 * (1 + 3 / 4), rel=1e-13)
    best = lf.theory.best_local_ridge([0.0, 1.0, 3.0], noise_std=NOISE, dim=DIM, n_samples=5)
    assert best == pytest.approx(NOISE**2 * DIM / (5 * 10 / 3), rel=1e-13)


@pytest.mark.parametrize("m", [100, 700])
def test_a_small_ridge_is_none(m):
    assert risk(m, 1e-7, dim=300) == pytest.approx(risk(m, dim=300), rel=1e-3)


def test_limits():
    assert risk(10**7) - 0.5 * NOISE**2 == pytest.approx(0.5 * NOISE**2 * DIM / 10**7, rel=1e-5)
    assert risk(10**7, 1e-7) == pytest.approx(risk(10**7), rel=1e-9)
    assert risk(5, 1e9) == pytest.approx(0.5 * (LENGTH**2 + NOISE**2), rel=1e-6)
    assert risk(3, noise_std=0.0) == 0.5 * (1 - 3 / DIM) * LENGTH**2
    for m in (DIM - 1, DIM, DIM + 1):
        assert risk(m) == np.inf
        assert risk(m, noise_std=0.0) == 0.5 * max(0, 1 - m / DIM) * LENGTH**2
        assert np.isfinite(risk(m, 0.3))
    assert risk(DIM + 2) == pytest.approx(0.5 * NOISE**2 * (1 + DIM))


@pytest.mark.parametrize("m", [4, 14, 20])
def test_the_best_ridge_is_the_best(m):
    best = lf.theory.best_local_ridge([LENGTH, LENGTH], noise_std=NOISE, dim=DIM, n_samples=m)
    assert best == pytest.approx(NOISE**2 * DIM / (m * LENGTH**2))
    for factor in (0.7, 0.97, 1.03, 1.4):
        assert risk(m, best) < risk(m, factor * best)
    c, lam = DIM / m, best  # there the risk is sigma^2 (d/m) t1 / 2, with t1 of the limit here
    s = np.sqrt((1 - c + lam) ** 2 + 4 * c * lam)
    limit = 0.5 * NOISE**2 * (1 + c * 2 / (s + 1 - c + lam))
    assert risk(1000 * m, best, dim=1000 * DIM) == pytest.approx(limit, rel=1e-3)


def test_lengths_are_taken_one_by_one_and_best_for_nothing_is_no_ridge():
    found = lf.theory.local_mean_risk([[1.0, 2.0]], noise_std=0.3, dim=9, n_samples=4)
    assert found.shape == (1, 2)
    assert found[0, 1] == risk(4, length=2.0, noise_std=0.3, dim=9)
    best = lf.theory.best_local_ridge
    assert_one_line(lambda: best(0.0, noise_std=0.5, dim=8, n_samples=4), ["length is 0"])


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"length": -1.0}, ["length", "at least 0"]),
        ({"ridge": -1.0}, ["ridge = -1.0"]),
        ({"ridge": 1e-6, "n_samples": 8}, ["ridge = 1e-06", "d = 8", "m = 8"]),
    ],
)
def test_invalid_arguments_are_one_line(changes, fragments):
    arguments = {"length": 1.0, "noise_std": 0.5, "dim": 8, "n_samples": 4} | changes
    assert_one_line(lambda: lf.theory.local_mean_risk(arguments.pop("length"), **arguments), fragments)
