"""The probability that the bound fails in the first round, against runs, closed forms and draws."""

import math

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.theory.fedrep.theorem1 import bound as theory
from linfed.theory.fedrep.theorem1 import tail
from tests.helpers import assert_one_line


@pytest.mark.parametrize(("p", "d", "m", "start", "step"), [(2, 4, 4, 0.5, 0.25), (3, 5, 5, 0.8, 0.1)])
def test_tail_of_the_first_round_is_that_of_runs(p, d, m, start, step):
    problem = lf.SharedRepresentation(n_clients=p, dim=d, rank=1)
    algorithm = lf.FedRep(rank=1, step_size=step, init=lf.AtDistance(start))
    run = {"data": lf.FreshSamples(m), "n_rounds": 1, "metrics": ["subspace_distance"], "trials": 2000, "seed": 1}
    after = lf.simulate(algorithm, problem, engine="explicit", **run).metrics["subspace_distance"][:, 1]
    share = np.mean(after > theory.fedrep_bound([1], step_size=step, start=start, smallest=1.0))
    found, error = tail.first_round_failure(dim=d, participants=p, n_samples=m, start=start, step_size=step, draws=4000)
    assert abs(math.exp(found) - share) < 4 * math.hypot(math.exp(found) * error, math.sqrt(share * (1 - share) / 2000))
    assert 0.02 < share < 0.5


def test_tail_far_out():
    """With w = 1 in the limit of a small angle, d = 2: P(sum of p chi^2_{m-1} < p m x), x where the bound is met."""
    p, m, start, eta = 2, 60, 1e-3, 0.25
    found, error = tail.first_round_failure(dim=2, participants=p, n_samples=m, start=start, draws=8000)
    needed = p * m * (1 - math.sqrt(1 - eta / 2)) / eta
    assert found == pytest.approx(stats.chi2.logcdf(needed, p * (m - 1)), abs=4 * error + 0.01)
    assert error < 0.1
    assert found < -30
    nothing = tail.first_round_failure(dim=2, participants=p, n_samples=m, start=start, exponent=1e-9, draws=100)
    assert nothing[0] == -math.inf
    assert math.isnan(nothing[1])


def test_tail_where_failures_are_common_is_that_of_draws():
    """Of the exact law of a client's message, with as many draws as tell 5 %."""
    p, d, m, s, eta, draws = 3, 200, 5, 0.8, 0.1, 60_000
    rng = np.random.default_rng(2)
    w = math.sqrt(1 - s**2) + s * rng.standard_normal((draws, p)) / np.sqrt(rng.chisquare(m, (draws, p)))
    x = rng.chisquare(m - 1, (draws, p))
    along = eta * s / (p * m) * np.sum(w * x, axis=1)
    across = (eta * s / (p * m)) ** 2 * np.sum(w * w * x, axis=1) * rng.chisquare(d - 2, draws)
    cosine = (math.sqrt(1 - s**2) + along * s) / np.sqrt(1 + along**2 + across)
    share = np.mean(np.sqrt(1 - cosine**2) > s * math.sqrt(1 - eta * (1 - s**2) / 2))
    found, error = tail.first_round_failure(dim=d, participants=p, n_samples=m, start=s, step_size=eta, draws=40_000)
    assert 0.05 < share < 0.5
    assert math.exp(found) == pytest.approx(share, abs=4 * math.hypot(error * share, math.sqrt(share / draws)))
    assert error < 0.02


def test_tail_has_the_error_of_its_seeds_and_its_defaults():
    given = {"dim": 3, "participants": 2, "n_samples": 5, "start": 0.5}
    many = [tail.first_round_failure(**given, draws=320, seed=seed) for seed in range(20)]
    values, errors = np.exp([one for one, _ in many]), np.array([error for _, error in many])
    assert values.std() / values.mean() == pytest.approx(errors.mean(), rel=0.5)
    told = {"step_size": 0.25, "exponent": 0.5, "draws": 20_000, "seed": 0}
    plain = tail.first_round_failure(**given)
    assert plain == tail.first_round_failure(**given, **told)
    assert plain != tail.first_round_failure(**given, **told | {"draws": 20_016})
    for name, value in (("dim", 1), ("n_samples", 1), ("draws", 1), ("start", 0.0), ("start", 1.1), ("step_size", 0)):
        assert_one_line(lambda one={name: value}: tail.first_round_failure(**given | one), [f"{name} = {value}"])
