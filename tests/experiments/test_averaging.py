"""The experiments on averaging and on MAML: their words, starts, clusters and tuned steps."""

import numpy as np
import pytest

import linfed as lf
from tests.experiments.judged import module

FAMILY, LEARNS = module("averaging-family"), module("fedavg-learns")


def test_a_final_distance_is_over_the_second_half_of_the_rounds_and_says_so():
    one = FAMILY.Family(n_rounds=20, trials=1).trial(0)
    assert one["end"] == pytest.approx(np.median(one["to_best"][10:]))
    assert one["settled"] == pytest.approx(np.mean(one["to_own"][10:] ** 2))
    words = {claim.statistic.words for claim in FAMILY.CLAIMS}
    late = {text for text in words if "over the second half of the rounds" in text}
    assert {text for text in late if "median distance" in text} | {
        text for text in late if "mean square" in text
    } == late
    assert words - late == {FAMILY.FEWER}


def test_alike_clients_have_the_ground_truth_of_their_cluster():
    (alike, _), (others, _) = (FAMILY.Family(alike=value).data(0) for value in (True, False))
    cluster = np.arange(20) % 5
    np.testing.assert_array_equal(alike.Phi, others.Phi[:5][cluster])
    assert len(np.unique(others.Phi, axis=0)) == 20


def test_clusters_that_ignore_the_data_are_named_and_alike_clients_judged_apart():
    rows = [
        {"method": method, "settled": [settled] * 8, "setting": f"alike: {alike}", "alike": alike}
        | {"participants": 5, "n_clients": 20}
        for alike, settled in ((True, 1.0), (False, 3.0))
        for method, settled in ((FAMILY.CLUSTER, settled), (FAMILY.AVG, 2.0))
    ]
    claims = [one for one in FAMILY.CLAIMS if one.sentence.startswith("ClusterFedVARP")][:2]
    found = [(one.setting, one.verdict.value) for claim in claims for one in claim.findings({"runs": lf.Table(rows)})]
    assert found == [("alike: True", "SUPPORTED"), ("alike: False", "NOT SUPPORTED")]
    assert ["ignore" in one.sentence for one in claims] == [False, True]


@pytest.mark.parametrize(("name", "cell"), [("maml-samples", "Sampled"), ("maml-rates", "Meta")])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_the_initial_b_has_the_given_scale(name, cell, scale):
    one = getattr(module(name), cell)(method="MAML, first order", alpha=0.1, scale=scale)
    problem = lf.SharedRepresentation(n_clients=10, dim=one.dim, rank=one.rank)
    start = lf.simulate(one.algorithm(0.2), problem, data=lf.FixedSamples(10), n_rounds=0, trials=2, seed=0)
    B = start.final.array("B")
    np.testing.assert_allclose(0.1 * B.mT @ B, np.broadcast_to(scale * np.eye(one.rank), (2, 3, 3)), atol=1e-12)


@pytest.mark.long
def test_a_tuned_step_has_the_fewest_rounds_counted_one_by_one():
    few = {"n_clients": 20, "dim": 6, "rank": 2, "trials": 3, "evaluations": 800}
    tuned = LEARNS.Averaged(method="K = 2, best step", local_steps=2, steps=(0.3, 0.6, 3.0), **few)
    found = tuned.run()
    assert found["chosen_step"] == 0.6
    data = lf.GivenSamples.population(problem := tuned.problem(tuned.heads()), trials=3)
    run = lf.simulate(
        tuned.algorithm(0.6), problem, data=data, n_rounds=400, trials=3, seed=0, metrics=["subspace_distance"]
    )
    first = (run.metrics["subspace_distance"] <= LEARNS.CLOSE).argmax(axis=1)
    np.testing.assert_array_equal(found["reached"], run.rounds[first])
    assert len(found["distance"].axes["round"]) == 201
