"""Theorem 1 of the FedRep paper: the bound, its rounds and its sample sizes by hand, its constants by brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.theory.fedrep.theorem1 import bound as theory
from linfed.theory.fedrep.theorem1 import judges, runs
from tests.helpers import assert_one_line, normal
from tests.theory.fedrep.theorem1.made import simulated


def test_bound_by_hand():
    """eta E0 sigma^2 / 2 = 0.2 * 0.75 * 0.64 / 2 = 0.048."""
    said = {"step_size": 0.2, "start": 0.5, "smallest": 0.8}
    np.testing.assert_allclose(theory.fedrep_bound([0, 2, 5], **said), [0.5, 0.5 * 0.952, 0.5 * 0.952**2.5])
    np.testing.assert_allclose(theory.fedrep_bound([2], exponent=1.0, **said), [0.5 * 0.952**2])
    many = theory.fedrep_bound([0, 1], step_size=0.2, start=[0.5, 1.0, 0.0], smallest=[0.0, 1.0, 1.0])
    np.testing.assert_allclose(many, [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]])
    assert theory.fedrep_bound([1], step_size=100.0, start=0.5, smallest=1.0) == 0.0


def test_sample_sizes_by_hand():
    """81 (8 log 5 + 4 * 10/5) / 0.75^2, and for one participant without the logarithm."""
    sizes = {"dim": 10, "rank": 2, "start": 0.5}
    found = theory.fedrep_least_samples(participants=5, condition=3.0, **sizes)
    assert found == pytest.approx(81 * (8 * math.log(5) + 8) / 0.5625)
    assert theory.fedrep_least_samples(participants=1, condition=1.0, **sizes) == pytest.approx(40 / 0.5625)
    assert theory.fedrep_least_samples(participants=1, condition=np.inf, **sizes) == np.inf
    assert theory.fedrep_least_samples(dim=10, rank=2, participants=5, condition=1.0, start=1.0) == np.inf
    np.testing.assert_allclose(theory.fedrep_step_limit([0.5, 2.0]), [1.0, 1 / 16])


def test_predicted_samples_solve_their_equation():
    """At the predicted m the margin of the first round is z standard deviations, and near B* rates are equal."""
    said = {"dim": 10, "rank": 2, "step_size": 0.2, "participants": 20, "exponent": 0.5}
    s, low, z = 0.6, 0.3, stats.norm.ppf(0.98)
    m = theory.fedrep_predicted_samples(smallest=low, start=s, allowed=0.02, **said)
    near = 0.2 * 2 * 9 / (20 * (2 - 0.5 * 0.64 - 0.2))
    first = m - 3 - near
    sigma = s * math.sqrt(2 / (20 * first) * (low**2 + s**2 * 2 / first))
    assert z * sigma == pytest.approx(0.75 * s * math.sqrt(1 - s**2) * low**2)
    plain = theory.fedrep_predicted_samples(smallest=1.0, start=s, allowed=0.5, **said | {"rank": 1})
    assert plain == pytest.approx(2 + 0.2 * 10 / (20 * 1.48))


@pytest.mark.long
def test_predicted_samples_are_those_that_runs_need():
    """Kappa 6: chance in the first rounds decides; at d = 200, k = 2 and n = 12 all three parts count."""
    for kappa, dim, start in ((6.0, 10, 0.5), (2.0, 200, 0.9)):
        problem = lf.SharedRepresentation(n_clients=12, dim=dim, rank=2, condition_number=kappa)
        smallest, largest, _ = runs.theorem1_constants(problem, rank=2, n_rounds=1, trials=1)
        step = 0.999 * float(theory.fedrep_step_limit(largest[0]))
        sizes = {"dim": dim, "rank": 2, "participants": 12, "start": start, "step_size": step}
        m = theory.fedrep_predicted_samples(smallest=smallest[0], **sizes)
        world = {"problem": problem, "step": step, "delta": start, "engine": "chain", "trials": 60}
        few, many = (
            judges.beyond_bound(runs.theorem1_run(simulated(m=round(factor * m), **world))).mean()
            for factor in (0.5, 2.5)
        )
        assert few > 0.15
        assert many <= 0.05


def test_failure_probability_by_hand():
    probability = theory.fedrep_failure_probability
    assert probability(7, dim=9, rank=1, participants=2) == pytest.approx(7 * 2.0**-100)
    assert probability(3, dim=1, rank=9, participants=50) == pytest.approx(3 * math.exp(-100))
    assert probability(5, dim=9, rank=3, participants=1) == 1.0
    assert probability(0, dim=9, rank=3, participants=1) == 0.0


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_singular_values_over_all_subsets_by_brute_force(p):
    W = normal(2, 5, 3)
    subsets = np.array(list(itertools.combinations(range(5), p)))
    smallest, largest = theory.head_singular_values(W, np.stack([subsets] * 2))
    for trial, heads in enumerate(W):
        grams = [heads[list(subset)].T @ heads[list(subset)] / p for subset in subsets]
        values = np.array([np.linalg.eigvalsh(gram) for gram in grams])
        assert largest[trial] == pytest.approx(math.sqrt(values.max()))
        if p < 3:
            assert smallest[trial] == 0.0  # a plain SVD of p rows has no third value
        else:
            assert smallest[trial] ** 2 == pytest.approx(values.min(), abs=1e-14)


@pytest.mark.parametrize("p", [2, 4])
def test_searched_sets_are_the_extreme_ones_of_small_problems(p):
    W = normal(3, 7, 2)
    subsets = np.array(list(itertools.combinations(range(7), p)))
    every = theory.head_singular_values(W, np.stack([subsets] * 3))
    for found, exact in zip(theory.searched_singular_values(W, p), every, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-9)
    assert theory.searched_singular_values(W, 1)[0].tolist() == [0.0] * 3


def bound_rounds(level=0.05, **changes):
    return theory.fedrep_bound_rounds(level, **{"step_size": 0.2, "start": 0.8, "smallest": 0.9} | changes)


def test_the_bounds_rounds_invert_the_bound():
    bound = theory.fedrep_bound([bound_rounds()], step_size=0.2, start=0.8, smallest=0.9)
    assert bound == pytest.approx(0.05)
    assert bound_rounds(0.8) == 0.0


def bound(**changes):
    return theory.fedrep_bound([1], **{"step_size": 0.1, "start": 0.5, "smallest": 1.0} | changes)


def least_samples(**changes):
    given = {"dim": 10, "rank": 2, "participants": 5, "start": 0.5, "condition": 1.0}
    return theory.fedrep_least_samples(**given | changes)


def predicted_samples(**changes):
    given = {"dim": 10, "rank": 2, "step_size": 0.2, "participants": 20, "exponent": 0.5, "start": 0.6, "smallest": 0.3}
    return theory.fedrep_predicted_samples(**given | changes)


@pytest.mark.parametrize(
    ("call", "changes", "words"),
    [
        (bound, {"start": 1.5}, "start = 1.5"),
        (bound, {"start": -0.5}, "start = -0.5"),
        (bound_rounds, {"start": 1.0}, "start"),
        (bound_rounds, {"start": 0.01}, "at most 0.01"),
        (bound_rounds, {"smallest": 0.0}, "smallest"),
        (least_samples, {"condition": 0.5}, "condition = 0.5"),
        (predicted_samples, {"start": 1.0}, "start = 1"),
        (predicted_samples, {"exponent": 2.0}, "exponent = 2"),
        (predicted_samples, {"step_size": 1.9}, "step_size = 1.9"),
        (predicted_samples, {"step_size": 1.25, "exponent": 1.0, "start": 0.5}, "step_size = 1.25"),
        (predicted_samples, {"allowed": 0.9}, "allowed = 0.9"),
        (theory.fedrep_step_limit, {"largest": [1.0, -1.0]}, "largest"),
    ],
)
def test_invalid_arguments_are_one_line(call, changes, words):
    assert_one_line(lambda: call(**changes), [words])
