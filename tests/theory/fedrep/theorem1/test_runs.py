"""The constants and hypotheses of Theorem 1 of the FedRep paper, computed for runs."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.theorem1 import runs
from tests.helpers import assert_one_line, basis, normal
from tests.theory.fedrep.theorem1.made import PROBLEM, simulated


@pytest.mark.parametrize("participation", [0.5, 3, 1.0, np.array([[0, 1], [2, 3], [4, 5], [6, 7]])])
def test_participant_sets_are_those_that_ran(participation):
    run = {"n_rounds": 4, "trials": 3, "seed": (4, 5)}
    algorithm, data = lf.FedRep(rank=2, step_size=0.1, init="random"), lf.FreshSamples(5)
    steps = lf.iterate(algorithm, PROBLEM, data=data, participation=participation, **run)
    active = np.stack([step.batch.active for step in steps if step.number], axis=1)
    sets = runs.participant_sets(participation, n_clients=12, **run)
    if sets is None:
        assert participation == 1.0
        sets = np.broadcast_to(np.arange(12), active.shape)
    np.testing.assert_array_equal(sets, active)


def test_run_computes_every_constant():
    problem = lf.SharedRepresentation(n_clients=12, dim=10, rank=2, noise_std=0.3, condition_number=2.0)
    run = runs.theorem1_run(simulated(problem, trials=3, n_rounds=6, participation=0.5))
    assert (run.dim, run.rank, run.n_clients, run.participants, run.n_samples) == (10, 2, 12, 6, 60)
    assert (run.noise_std, run.batch_rounds, run.head_steps, run.ridge) == (0.3, 1, 0, 0.0)
    np.testing.assert_allclose(run.start, 0.5)
    assert run.bound().shape == run.distance.shape == (3, 7)
    W = problem.truth(0, range(3)).W
    sets = runs.participant_sets(0.5, n_clients=12, n_rounds=6, trials=3, seed=0)
    for trial in range(3):
        values = [np.linalg.svd(W[trial][chosen], compute_uv=False) / math.sqrt(6) for chosen in sets[trial]]
        assert run.smallest[trial] == pytest.approx(np.min(values))
        assert run.largest[trial] == pytest.approx(np.max(values))
    assert run.condition.min() > 2.0
    whole = runs.theorem1_run(simulated(problem, trials=3, n_rounds=2))
    np.testing.assert_allclose(whole.condition, 2.0)
    assert whole.unequal.max() < 1e-9


def test_constants_of_clients_that_differ_are_the_worst():
    rng, W = np.random.default_rng(0), normal(12, 2, seed=3)
    problem, counts = lf.GivenTruth(B=basis(10, 2), W=W, noise_std=(0.1,) * 11 + (0.4,)), (20,) * 11 + (15,)
    given = lf.GivenSamples([rng.standard_normal((m, 10)) for m in counts], [rng.standard_normal(m) for m in counts])
    for data, shared in ((lf.FreshSamples(counts), 1), (given, 3), (lf.FixedSamples(15), 3)):
        run = runs.theorem1_run(simulated(problem, m=data, n_rounds=3, trials=1))
        assert (run.n_samples, run.noise_std, run.batch_rounds) == (15, 0.4, shared)
        assert run.unequal[0] == pytest.approx(np.abs(np.linalg.norm(W, axis=1) / math.sqrt(2) - 1).max())
    assert runs.theorem1_run(simulated(m=lf.FixedSamples(60), n_rounds=0, trials=1)).batch_rounds == 1
    ridge = runs.theorem1_run(simulated(heads=lf.ExactHeads(ridge=0.2), n_rounds=1, trials=1))
    assert (ridge.ridge, ridge.head_steps) == (0.2, 0)


def test_constants_are_those_of_everybody_and_of_seed_0_unless_told():
    problem = lf.SharedRepresentation(n_clients=12, dim=10, rank=2)
    run = {"rank": 2, "n_rounds": 3, "trials": 2}
    plain = runs.theorem1_constants(problem, **run)
    for one, other in zip(plain, runs.theorem1_constants(problem, participation=1.0, seed=0, **run), strict=True):
        np.testing.assert_array_equal(one, other)
    assert runs.participant_sets(0.5, n_clients=12, n_rounds=0, trials=2, seed=0) is None
    assert runs.participant_sets(0.5, n_clients=12, n_rounds=1, trials=2, seed=0).shape == (2, 1, 6)


def test_heads_are_told_in_the_coordinates_of_an_orthonormal_truth():
    B, W, T = basis(10, 2), normal(12, 2), np.array([[2.0, 0.3], [0.0, 0.5]])
    W *= math.sqrt(2) / np.linalg.norm(W, axis=1, keepdims=True)
    found = [
        runs.theorem1_run(simulated(lf.GivenTruth(B=left, W=right), trials=1, n_rounds=1))
        for left, right in ((B, W), (B @ T, W @ np.linalg.inv(T).T))
    ]
    np.testing.assert_allclose(found[1].smallest, found[0].smallest)
    assert found[1].unequal.max() < 1e-9


@dataclass(frozen=True, kw_only=True)
class Heavy(lf.Design):
    """Student's t with 3 degrees of freedom, of variance 1."""

    def draw(self, rng, out):
        out[...] = rng.standard_t(3, size=out.shape) / math.sqrt(3)


ONE = simulated(trials=1, n_rounds=1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"orthonormalize": False}, "orthonormalize"),
        ({"disjoint_samples": True}, "disjoint_samples = False"),
        ({"whiten": "pooled"}, "whiten = None"),
        ({"aggregate": "sum"}, "aggregate"),
        ({"representation_steps": 2}, "representation_steps"),
    ],
)
def test_other_options_of_fedrep_are_refused(changes, words):
    other = replace(ONE, algorithm=replace(ONE.algorithm, **changes))
    assert_one_line(lambda: runs.theorem1_run(other), [words, "for Theorem 1"])


@pytest.mark.parametrize(
    "algorithm",
    [
        lf.LocalOnly(),
        lf.PrivateFedRep(rank=2, step_size=0.2, message_noise_std=0.1),
        lf.CompressedFedRep(rank=2, step_size=0.2, kept_share=0.5),
    ],
)
def test_other_algorithms_are_refused(algorithm):
    other = replace(ONE, algorithm=algorithm)
    assert_one_line(lambda: runs.theorem1_run(other), [type(algorithm).__name__])


SIZES = {"n_clients": 12, "dim": 10, "rank": 2}


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (lf.SharedRepresentation(**SIZES, design=Heavy()), ["Heavy", "sub-Gaussian", "lf.Rademacher"]),
        (lf.SharedRepresentation(**SIZES | {"rank": 3}), ["rank 3", "rank = 2"]),
        (lf.SharedWithShortcuts(**SIZES, shortcut_norm=0.5), ["B* w_i*"]),
        (lf.SharedRepresentation(**SIZES, design=lf.Gaussian(covariance=2.0)), ["variance 1"]),
    ],
)
def test_other_ground_truths_and_distributions_are_refused(problem, words):
    assert_one_line(lambda: runs.theorem1_run(simulated(problem, trials=1, n_rounds=1)), words)
