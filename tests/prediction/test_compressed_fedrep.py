"""Predictions of FedRep with compressed messages."""

import pytest

import linfed as lf
from tests.helpers import assert_one_line

PROBLEM = lf.SharedRepresentation(n_clients=30, dim=12, rank=2, condition_number=2.0, noise_std=0.3)


def compressed(**changes):
    return lf.CompressedFedRep(**{"rank": 2, "step_size": 0.4, "kept_share": 0.5} | changes)


def predict(algorithm, problem=PROBLEM, data=None):
    return lf.predict(algorithm, problem, data=data or lf.FreshSamples(8), rounds=4)


def test_predictions_are_those_of_the_map():
    sizes = {"dim": 12, "n_samples": 8, "compression": 3.0, "shared_mask": True}
    found = predict(compressed(kept_share=0.25, shared_mask=True, step_size=0.2))
    W = PROBLEM.truth(0, [0]).W[0]
    assert found.rate == pytest.approx(lf.theory.near_truth_factor(W, step_size=0.2, **sizes) ** 0.5)
    assert found.stability_edge == pytest.approx(lf.theory.stability_edge(W, **sizes))
    assert found.best_step == pytest.approx(lf.theory.local_best_step(W, **sizes))
    X = lf.theory.near_truth_floor(W, step_size=0.2, noise_std=0.3, **sizes)
    assert found.floor == pytest.approx(lf.theory.median_distance(X, dim=12))
    assert "stability_edge" in predict(compressed(kept_share=0.05, step_size=1.0)).warnings[0]
    same, plain = predict(compressed(kept_share=1.0)), predict(lf.FedRep(rank=2, step_size=0.4))
    assert (same.floor, same.rate) == (pytest.approx(float(plain.floor)), pytest.approx(float(plain.rate)))
    still = predict(compressed(), data=lf.FreshSamples(2)).distance
    assert (still == still[0]).all()


LARGER = lf.UnderParameterized(n_clients=40, dim=30, gap=4.0, gap_after=2)


@pytest.mark.parametrize(
    ("algorithm", "problem", "data", "words"),
    [
        (compressed(), PROBLEM, None, "no prediction of the distance"),
        (compressed(kept_share=None, levels=3), PROBLEM, None, "for levels = 3"),
        (compressed(), PROBLEM, lf.FixedSamples(8), "for FixedSamples"),
        (compressed(), LARGER, None, "for a ground truth of rank 30 and rank = 2"),
        (compressed(heads=lf.GradientHeads()), PROBLEM, None, "for heads = GradientHeads("),
    ],
)
def test_what_cannot_be_predicted_is_named(algorithm, problem, data, words):
    assert_one_line(lambda: predict(algorithm, problem, data).distance, [words], lf.NoPredictionError)
