"""The predicted error of spectral estimators: its constants as moments of Gaussians, and against draws and runs."""

import functools
import itertools
import math
import warnings

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.fixed_samples.largest_angle import mean_distance
from linfed.theory.spectral import _constants
from tests.helpers import assert_one_line, mostly_long
from tests.worlds import ESTIMATORS


def gaussian_moment(variables, covariance):
    """Return the mean of a product of Gaussian variables (kind, sample), by Isserlis' theorem."""
    if not variables:
        return 1.0
    (first, sample), *rest = variables
    total = 0.0
    for place, (other, of) in enumerate(rest):
        if of == sample and covariance[first, other]:
            total += covariance[first, other] * gaussian_moment(rest[:place] + rest[place + 1 :], covariance)
    return total


def coefficients(name, m):
    """Return c (m, m), where a client's matrix is ``sum_jr c_jr y_j y_r x_j x_r'``."""
    half, eye = m // 2, np.eye(m)
    if name in ("moments", "U-statistic", "local averages"):
        return {"moments": eye / m, "U-statistic": (1 - eye) / (m * (m - 1)), "local averages": 0 * eye + 1 / m**2}[
            name
        ]
    c = np.zeros((m, m))
    c[:half, half : 2 * half] = 1 / half**2
    return c if "sided" in name else (c + c.T) / 2


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_constants_of_the_noise_are_moments_of_gaussians(name):
    """Exactly, of one client with five samples; of three clients, a third of each variance."""
    w, sigma, m = np.array([0.8, -0.5]), 1.3, 5
    s2, c = w @ w + sigma**2, coefficients(name, m)
    covariance = np.eye(5)  # of two coordinates inside span(B*), two outside, and y
    covariance[4, :2] = covariance[:2, 4] = w
    covariance[4, 4] = s2

    @functools.cache
    def of_pattern(samples, entries):
        return gaussian_moment([(4, j) for j in samples] + list(zip(entries, samples, strict=True)), covariance)

    def mean(*entries):
        """Return the mean of a product of entries of the client's matrix."""
        total, pairs = 0.0, [(j, r) for j in range(m) for r in range(m) if c[j, r]]
        for chosen in itertools.product(pairs, repeat=len(entries) // 2):
            samples = sum(chosen, ())
            pattern = tuple(samples.index(j) for j in samples)  # only which of them are equal matters
            total += math.prod(c[pair] for pair in chosen) * of_pattern(pattern, entries)
        return total

    a, b, identity, inside = _constants(ESTIMATORS[name](rank=2), 1.0, float(m))
    assert mean(0, 1) == pytest.approx(a * w[0] * w[1], rel=1e-12)
    assert mean(2, 0, 2, 1) == pytest.approx(b * s2 * w[0] * w[1], rel=1e-12)
    assert mean(2, 0, 2, 0) == pytest.approx(b * s2 * w[0] ** 2 + identity * s2**2, rel=1e-12)
    assert mean(2, 3, 2, 3) == pytest.approx(identity * s2**2, rel=1e-12)
    third = _constants(ESTIMATORS[name](rank=2), 3.0, float(m))
    np.testing.assert_allclose(third, [a, b / 3, identity / 3, inside], rtol=1e-14)


@pytest.mark.parametrize("name", ["U-statistic", "local averages"])
def test_the_predicted_covariance_by_hand(name):
    """Each direction of B* grows by its own factor."""
    d, n, k, m, sigma = 60, 400, 3, 20, 1.2
    W = lf.SharedRepresentation(n_clients=n, dim=d, rank=k).truth(0, range(2)).W * [1.3, 1.0, 0.8]
    estimator = ESTIMATORS[name](rank=k)
    found = lf.theory.spectral_floor(estimator, W, dim=d, n_samples=m, noise_std=sigma)
    a, b, identity, inside = _constants(estimator, float(n), float(m))
    identity *= 1 - inside * k / n
    for trial, heads in enumerate(W):
        s2 = np.array([w @ w + sigma**2 for w in heads])
        V = b * sum(s * np.outer(w, w) for s, w in zip(s2, heads, strict=True)) / n
        V += identity * np.mean(s2**2) * np.eye(k)
        values, vectors = np.linalg.eigh(sum(np.outer(w, w) for w in heads) / n)
        ratios = (d - k) * identity * np.mean(s2**2) / (a * values) ** 2
        T = sum(np.outer(u, u) / x / np.sqrt(1 - r) for u, x, r in zip(vectors.T, values, ratios, strict=True)) / a
        np.testing.assert_allclose(found.covariance[trial], (d - k) * T @ V @ T, rtol=1e-10)
        assert found.ratio[trial] == pytest.approx(ratios.max(), rel=1e-12)
        assert found.distance[trial] == pytest.approx(mean_distance((d - k) * T @ V @ T, d - k), rel=1e-10)
        alone = lf.theory.spectral_floor(estimator, heads, dim=d, n_samples=m, noise_std=sigma)
        np.testing.assert_allclose(alone.covariance, found.covariance[trial], rtol=1e-12)


def test_the_smallest_sizes_with_a_predicted_error():
    heads = np.tile(10 * np.eye(2), (5000, 1))
    for name, least in (("moments", 1), ("local averages", 1), ("U-statistic", 2), ("two replicas", 2)):
        found = floor_of(ESTIMATORS[name](rank=2), W=heads, dim=4, n_samples=least)
        assert 0 < found.distance < 0.5
    flat = np.stack([heads, heads @ [[1.0, 1.0], [0.0, 0.0]]])
    assert_one_line(lambda: floor_of(lf.LocalGram(rank=2), W=flat), ["must span R^k"])


SETTINGS = [  # n, d, k, m, sigma
    *((50, 40, 1, 60, 1.0), (20, 60, 2, 400, 1.0), (3000, 30, 2, 3, 0.3), (5000, 20, 2, 2, 0.0), (3, 40, 3, 1000, 0.1)),
]


@pytest.mark.long
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_predicted_distance_is_that_of_runs(name, setting):
    n, d, k, m, sigma = setting
    problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=sigma, condition_number=1.0)
    algorithm, run = ESTIMATORS[name](rank=k), {"data": lf.FixedSamples(m), "n_rounds": 1, "trials": 40}
    distance = lf.simulate(algorithm, problem, **run, metrics=["subspace_distance"]).metrics["subspace_distance"][:, -1]
    floor = lf.predict(algorithm, problem, **run).floor
    ratio = float(np.max(ratio_of(algorithm, problem, m)))
    assert "20 % too low or too high" in floor.validity if ratio > 0.1 else "first order" in floor.validity
    share = floor.value.mean() / distance.mean()
    error = distance.std() / distance.mean() / np.sqrt(len(distance))
    low, high = (0.93, 1.03) if ratio < 0.05 else (0.87, 1.03) if ratio < 0.2 else (0.75, 1.08)
    assert low - 3 * error < share < high + 3 * error


FEW = {  # n, d, k, m and condition number: as many clients as columns, or a few more
    "as many as columns": (2, 4, 2, 300, 8.0),
    "a weak direction": (3, 8, 3, 1000, 30.0),
    "one more": (4, 12, 3, 1500, 4.0),
    "twice as many": (6, 20, 3, 200, 2.0),
}


@pytest.mark.parametrize("estimator", ["local averages", "U-statistic", "two replicas", "one-sided"])
@pytest.mark.parametrize("name", mostly_long(FEW, "as many as columns", "twice as many"))
def test_the_predicted_distance_for_few_clients_is_that_of_draws(name, estimator):
    """Noise of the clients' averages inside the span of the heads' columns does not turn the estimate."""
    n, d, k, m, condition = FEW[name]
    algorithm = lf.TwoReplica(rank=k, symmetric=False) if estimator == "one-sided" else ESTIMATORS[estimator](rank=k)
    U, V = (np.linalg.qr(np.random.default_rng(seed).standard_normal((size, k)))[0] for seed, size in ((0, n), (1, k)))
    W = np.sqrt(n) * U * np.geomspace(1.0, 1.0 / condition, k) @ V.T
    problem = lf.GivenTruth(B=np.eye(d)[:, :k], W=W, noise_std=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # halves of the samples may be too few for the weakest direction
        floor = lf.theory.spectral_floor(algorithm, W, dim=d, n_samples=m, noise_std=0.1)
    if estimator in ("local averages", "U-statistic"):
        assert floor.ratio < 0.02
    elif floor.ratio > 0.05:
        return
    run = {"data": lf.FixedSamples(m), "n_rounds": 1, "trials": 300, "metrics": ["subspace_distance"]}
    distance = lf.simulate(algorithm, problem, **run).metrics["subspace_distance"][:, -1]
    error = distance.std() / distance.mean() / np.sqrt(len(distance))
    assert abs(floor.distance / distance.mean() - 1) < 0.06 + 3 * error


def ratio_of(algorithm, problem, m):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lf.theory.spectral_floor(
            algorithm, problem.truth(0, range(2)).W, dim=problem.dim, n_samples=m, noise_std=problem.noise_std
        ).ratio


@pytest.mark.long
@pytest.mark.parametrize("m", [6, 4])
def test_near_the_transition_the_distance_is_that_of_runs(m):
    problem = lf.SharedRepresentation(n_clients=200, dim=200, rank=1, noise_std=1.0)
    run = {"data": lf.FixedSamples(m), "n_rounds": 1, "trials": 60, "metrics": ["subspace_distance"]}
    distance = lf.simulate(lf.LocalGram(rank=1), problem, **run).metrics["subspace_distance"][:, -1].mean()
    W = problem.truth(0, [0]).W[0]
    with pytest.warns(RuntimeWarning, match="ratio"):
        found = lf.theory.spectral_floor(lf.LocalGram(rank=1), W, dim=200, n_samples=m, noise_std=1.0)
    first = float(found.covariance[0, 0]) * (1 - float(found.ratio))
    to_first_order = np.sqrt(first / (1 + first))
    assert found.distance == pytest.approx(distance, rel=0.1)
    assert abs(found.distance - distance) < 0.8 * abs(to_first_order - distance)


def test_lengths_outside_the_estimate_are_those_of_the_covariance():
    W = np.array([[1.0, 0.2], [-0.3, 0.9], [0.5, 0.5]])
    found = floor_of(lf.UStatistic(rank=2), W=np.repeat(W, 50, axis=0))
    C = found.covariance
    wanted = np.sqrt([w @ C @ np.linalg.inv(np.eye(2) + C) @ w for w in W])
    np.testing.assert_allclose(found.outside(W), wanted, rtol=1e-12)


def test_below_the_transition_the_estimate_is_lost():
    problem = lf.SharedRepresentation(n_clients=100, dim=100, rank=2, noise_std=1.0)
    W = problem.truth(0, [0]).W[0]
    found = lf.theory.spectral_floor(lf.LocalGram(rank=2), W, dim=100, n_samples=3, noise_std=1.0)  # without a warning
    assert found.ratio > 1
    assert found.distance == 1
    assert np.isinf(found.covariance).all()
    run = lf.simulate(lf.LocalGram(rank=2), problem, data=lf.FixedSamples(3), n_rounds=1)
    assert run.metrics["subspace_distance"][0, -1] > 0.9
    floor = lf.predict(lf.LocalGram(rank=2), problem, data=lf.FixedSamples(3), n_rounds=1).floor
    assert float(floor) == 1.0
    assert "hides a direction of B*" in floor.validity
    assert "too low or too high" not in floor.validity


@pytest.mark.long
def test_lost_directions_are_lost_in_runs():
    """In random settings with a ratio above 1, of all estimators: the mean distance is within 7 % of 1 in most."""
    rng, right, number = np.random.default_rng(5), 0, 0
    while number < 24:
        k, m = int(rng.integers(1, 4)), int(rng.integers(2, 20))
        n, d = int(rng.integers(10, 60)), int(rng.integers(2 * k, 60))
        problem = lf.GivenTruth(B=np.eye(d, k), W=rng.standard_normal((n, k)), noise_std=float(rng.uniform(0.5, 6.0)))
        estimator = list(ESTIMATORS.values())[number % len(ESTIMATORS)](rank=k)
        run = {"data": lf.FixedSamples(m), "n_rounds": 1}
        floor = lf.predict(estimator, problem, **run).floor
        if float(floor) < 1:
            continue
        assert "hides a direction" in floor.validity
        distance = lf.simulate(estimator, problem, **run, trials=40, metrics=["subspace_distance"])
        right += distance.metrics["subspace_distance"][:, -1].mean() > 0.93
        number += 1
    assert right >= 18


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: floor_of(lf.LocalGram(rank=3)), ["rank = 3", "k = 2"]),
        (lambda: floor_of(lf.UStatistic(rank=2), n_samples=1), ["n_samples = 1"]),
        (lambda: floor_of(lf.LocalGram(rank=2), W=np.ones((4, 2))), ["must span R^k"]),
    ],
)
def test_what_has_no_predicted_error_is_one_line(call, words):
    assert_one_line(call, words)


def test_only_spectral_estimators_have_this_error():
    with pytest.raises(TypeError, match=r"must be an lf\.MethodOfMoments"):
        floor_of(lf.FedRep(rank=2, step_size=1.0))


def floor_of(algorithm, W=None, **changes):
    heads = np.eye(2) if W is None else W
    return lf.theory.spectral_floor(algorithm, heads, **{"dim": 9, "n_samples": 5, "noise_std": 0.1} | changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"participation": 0.5}, ["15 of 30 participants"]),
        ({"problem": lf.SharedRepresentation(n_clients=30, dim=8, rank=3)}, ["rank 2"]),
        ({"problem": lf.SharedRepresentation(n_clients=30, dim=8, rank=2, design=lf.Rademacher())}, ["Gaussian"]),
    ],
)
def test_runs_without_a_prediction_say_why(changes, words):
    problem = changes.pop("problem", lf.SharedRepresentation(n_clients=30, dim=8, rank=2))
    run = {"data": lf.FixedSamples(9), "n_rounds": 1} | changes
    with pytest.raises(lf.NoPredictionError) as caught:
        lf.predict(lf.LocalGram(rank=2), problem, **run).floor  # noqa: B018
    assert all(word in str(caught.value) for word in words)
