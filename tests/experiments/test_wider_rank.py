"""Representations wider than the truth: FedRep equals a narrow run on fewer samples, and ANIL forgets what is left."""

import math

import numpy as np
import pytest

import linfed as lf


def wide_and_narrow(*, k, r, d, n, trials, distance, sigma, seed=0):
    """Return the problem and initial B of a wide run and of its narrow equivalent, with equal angles to B*."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n, r))
    out = []
    for dim in (d, d - (k - r)):
        B = np.zeros((dim, r))
        B[:r] = np.sqrt(1 - distance**2) * np.eye(r)
        B[r : 2 * r] = distance * np.eye(r)
        if dim == d:
            B = np.concatenate([B, np.eye(d)[:, 2 * r : k + r]], axis=1)
        out += [lf.GivenTruth(B=np.eye(dim)[:, :r], W=W, noise_std=sigma), np.repeat(B[None], trials, axis=0)]
    return out


def test_at_population_the_runs_are_equal():
    wide, B, narrow, b = wide_and_narrow(k=5, r=2, d=12, n=6, trials=1, distance=0.95, sigma=0.3)
    found = []
    for problem, start in ((wide, B), (narrow, b)):
        algorithm = lf.FedRep(rank=start.shape[-1], step_size=0.4, init=start)
        data = lf.GivenSamples.population(problem)
        found.append(lf.simulate(algorithm, problem, data=data, n_rounds=60).metrics["subspace_distance"][0])
    np.testing.assert_allclose(*found, atol=1e-10)
    assert found[0][0] > 0.9
    assert found[0][-1] < 0.1


ROUNDS = {
    "noise": {"k": 4, "d": 9, "m": 9, "sigma": 0.2},
    "no noise": {"k": 4, "d": 9, "m": 9, "sigma": 0.0},
    "m = k + 2": {"k": 5, "d": 9, "m": 7, "sigma": 0.1},
    "one client": {"k": 3, "d": 6, "m": 8, "sigma": 0.1, "n": 1},
    "k = d - 1": {"k": 7, "d": 8, "m": 14, "sigma": 0.1},
}


def after_a_round(setting, *, narrow, scaled=True, trials=6000):
    """Return the squared distances after a round from distance 0.03, of the wide run or of the narrow one."""
    k, d, m, extra = setting["k"], setting["d"], setting["m"], setting["k"] - 1
    pairs = wide_and_narrow(k=k, r=1, d=d, n=setting.get("n", 3), trials=trials, distance=0.03, sigma=setting["sigma"])
    problem, B = pairs[2:] if narrow else pairs[:2]
    count = m - extra if narrow else m
    step = 0.5 * (count / m if scaled else 1.0)
    algorithm = lf.FedRep(rank=B.shape[-1], step_size=step, init=B)
    run = {"data": lf.FreshSamples(count), "n_rounds": 1, "trials": trials, "engine": "explicit", "seed": int(narrow)}
    return lf.simulate(algorithm, problem, metrics=["subspace_distance"], **run).metrics["subspace_distance"][:, 1] ** 2


def difference(first, second):
    """Return the difference of two means in standard errors, and the relative standard error."""
    error = math.hypot(first.std(), second.std()) / math.sqrt(len(first))
    return (first.mean() - second.mean()) / error, error / second.mean()


@pytest.mark.long
@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_near_the_truth_is_that_of_fewer_columns_samples_and_dimensions(name):
    deviation, error = difference(*(after_a_round(ROUNDS[name], narrow=narrow) for narrow in (False, True)))
    assert abs(deviation) < 4.5
    assert error < 0.07


@pytest.mark.long
def test_a_step_size_without_its_factor_is_seen():
    wide = after_a_round(ROUNDS["noise"], narrow=False)
    deviation, _ = difference(wide, after_a_round(ROUNDS["noise"], narrow=True, scaled=False))
    assert abs(deviation) > 8


@pytest.mark.long
def test_anil_shortens_an_extra_direction_by_the_cube():
    """Of one round on other samples: the mean change of the direction is -beta alpha^2 v s^3."""
    n, d, m, trials, alpha, beta, sigma, s = 5, 4, 3, 8_000, 0.5, 0.7, 0.4, 1.3
    W = np.random.default_rng(3).standard_normal((n, 1))
    problem = lf.GivenTruth(B=np.eye(d)[:, :1], W=W, noise_std=sigma)
    B = np.zeros((trials, d, 2))
    B[:, 0, 0], B[:, 1, 1] = 1.1, s
    algorithm = lf.ANIL(rank=2, step_size=beta, adaptation_step_size=alpha, init=B, disjoint_samples=True)
    run = {"data": lf.FreshSamples(2 * m), "n_rounds": 1, "trials": trials, "metrics": []}
    change = lf.simulate(algorithm, problem, **run).final.B[:, 1, 1] - s
    predicted = -beta * alpha**2 * ((W**2).mean() + sigma**2) / m * s**3
    error = change.std() / math.sqrt(trials)
    assert abs(change.mean() - predicted) < 4.5 * error
    assert error < 0.04 * abs(predicted)


@pytest.mark.long
def test_anil_on_the_same_samples_adds_a_linear_term():
    """To leading order in 1/m, and so at many samples: with label noise the direction grows where s is small."""
    n, d, m, trials, alpha, beta, sigma, s, length = 5, 4, 160, 10_000, 0.5, 0.7, 1.0, 0.4, 1.2
    W = np.random.default_rng(3).standard_normal((n, 1))
    problem = lf.GivenTruth(B=np.eye(d)[:, :1], W=W, noise_std=sigma)
    B = np.zeros((trials, d, 2))
    B[:, 0, 0], B[:, 1, 1] = length, s
    algorithm = lf.ANIL(rank=2, step_size=beta, adaptation_step_size=alpha, init=B)
    run = {"data": lf.FreshSamples(m), "n_rounds": 1, "trials": trials, "metrics": []}
    change = lf.simulate(algorithm, problem, **run).final.B[:, 1, 1] - s
    square, head = (W**2).mean() + sigma**2, (W**2).mean()
    predicted = beta * alpha * s / m * (square - alpha * length**2 * head - alpha * square * s**2)
    error = change.std() / math.sqrt(trials)
    assert abs(change.mean() - predicted) < 4.5 * error + 0.03 * predicted
    assert error < 0.01 * predicted
