"""The subspace metrics where the regressors do not determine k directions."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal


def run(problem, rank=2, n_rounds=60, **options):
    algorithm = lf.FedRep(rank=rank, step_size=0.3, init="random")
    return lf.simulate(algorithm, problem, data=lf.FreshSamples(10), n_rounds=n_rounds, **options)


V = np.array([1.0, -2.0, 0.5])
LOW = {"B": normal(5, 3), "W": np.outer(np.ones(6), V * 5**0.5 / np.linalg.norm(normal(5, 3) @ V))}
RANK_ONE = {"Phi": {"Phi": np.ones((6, 5))}, "three columns of rank one": LOW}


@pytest.mark.parametrize("form", RANK_ONE)
def test_the_distance_is_from_the_span_of_the_regressors(form):
    """As for a truth in factors B (d, 1): no direction that the regressors do not have."""
    problem = lf.GivenTruth(**RANK_ONE[form])
    Phi = problem.truth(0, [0]).dense()[0]
    in_factors = lf.GivenTruth(B=Phi[:1].T, W=Phi @ Phi[0][:, None] / (Phi[0] @ Phi[0]))
    result, expected = run(problem, metrics=["subspace_distance"]), run(in_factors, metrics=["subspace_distance"])
    assert expected.metrics["subspace_distance"][0, -1] < 1e-3
    np.testing.assert_allclose(
        result.metrics["subspace_distance"], expected.metrics["subspace_distance"], rtol=1e-6, atol=1e-12
    )


def test_trials_of_different_rank_each_have_their_own_reference():
    """A trial's distance is the one it has alone, to the last bit."""
    one, two = np.ones((6, 5)), normal(6, 5)
    both = run(lf.GivenTruth(Phi=np.stack([one, two])), n_rounds=5).metrics["subspace_distance"]
    alone = [run(lf.GivenTruth(Phi=np.stack([Phi] * 2)), n_rounds=5).metrics["subspace_distance"] for Phi in (one, two)]
    assert np.array_equal(both, [alone[0][0], alone[1][1]])


def test_the_reference_has_zeros_for_directions_that_the_regressors_lack():
    truth = lf.GivenTruth(Phi=np.ones((6, 5)), design=lf.Gaussian(covariance=np.diag([4.0, 1, 1, 1, 1]))).truth(0, [0])
    reference = truth.reference(2)[0]
    assert reference.shape == (5, 2)
    assert not reference[:, 1].any()
    np.testing.assert_allclose(np.abs(reference[:, 0]), np.full(5, 5**-0.5))


def test_a_start_at_a_distance_needs_as_many_directions():
    run = {"data": lf.FreshSamples(9), "n_rounds": 1}
    algorithm = lf.FedRep(rank=2, step_size=0.3, init=lf.AtDistance(0.5))
    for problem, fragments in (
        (lf.GivenTruth(Phi=np.ones((6, 5))), ["rank = 2", "the rank of the ground truth, 1"]),
        (lf.GivenTruth(**LOW), ["reference subspace of rank 2", "rank 1"]),
    ):
        assert_one_line(lambda problem=problem: lf.simulate(algorithm, problem, **run), fragments)


def flat(**more):
    return lf.UnderParameterized(n_clients=12, dim=9, spectrum=[3.0, 2.0, 2.0, 1.0], **more)


NO_REFERENCE = {
    "zero": (lf.GivenTruth(Phi=np.zeros((6, 5))), "all regressors are 0"),
    "zero in one trial": (lf.GivenTruth(Phi=normal(2, 6, 5) * np.array([1.0, 0])[:, None, None]), "0 in trial 1"),
    "heads of zeros": (lf.GivenTruth(B=normal(5, 3), W=np.zeros((6, 3))), "all regressors are 0"),
    "equal singular values": (lf.GivenTruth(Phi=np.eye(6, 5)), "singular values 2 and 3 of the regressors are equal"),
    "of a spectrum": (flat(), "singular values 2 and 3 of the regressors are equal"),
    "of a condition number": (
        lf.SharedRepresentation(n_clients=12, dim=9, rank=3, condition_number=1.0),
        "singular values 2 and 3 of the regressors are equal",
    ),
}


@pytest.mark.parametrize("name", NO_REFERENCE)
def test_where_there_is_no_reference_the_metric_says_why(name):
    problem, reason = NO_REFERENCE[name]
    result = run(problem, n_rounds=2)
    assert "risk" in result.metrics
    for metric in ("subspace_distance", "mean_truncation_error"):
        assert_one_line(lambda metric=metric: result.metrics[metric], [reason], KeyError)
    assert_one_line(lambda: run(problem, n_rounds=2, metrics=["subspace_distance"]), ["'subspace_distance'", reason])


@pytest.mark.parametrize(
    ("problem", "rank"),
    [
        (flat(), 1),
        (flat(gap=1.0, gap_after=2), 2),
        (lf.SharedRepresentation(n_clients=12, dim=9, rank=3, condition_number=1.0), 3),
        (lf.GivenTruth(Phi=np.eye(6, 5)), 5),
        (lf.GivenTruth(Phi=np.eye(6, 5), B=normal(5, 2)), 2),
    ],
)
def test_elsewhere_it_is_measured(problem, rank):
    assert "subspace_distance" in run(problem, rank=rank, n_rounds=2).metrics
