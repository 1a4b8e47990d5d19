"""Predictions of FedRep with noise on the messages."""

import numpy as np
import pytest

import linfed as lf
from linfed.theory import near_truth_floor
from tests.helpers import assert_one_line

PROBLEM = lf.SharedRepresentation(n_clients=30, dim=12, rank=2, condition_number=2.0, noise_std=0.3)


def private(**changes):
    return lf.PrivateFedRep(**{"rank": 2, "step_size": 0.5, "init": lf.AtDistance(0.6)} | changes)


def predict(algorithm, problem=PROBLEM, data=None):
    return lf.predict(algorithm, problem, data=data or lf.FreshSamples(8), rounds=4)


def test_predictions_of_the_noisy_run():
    found, plain = predict(private(message_noise_std=0.02)), predict(private())
    W = PROBLEM.truth(0, [0]).W[0]
    sizes = {"dim": 12, "n_samples": 8, "noise_std": 0.3, "step_size": 0.5, "message_noise_std": 0.02}
    path = lf.theory.state_evolution(W, rounds=4, delta=0.6, **sizes).distance
    np.testing.assert_allclose(found.distance, path)
    assert found.law == "means"
    X = near_truth_floor(W, **sizes)
    assert found.floor == pytest.approx(lf.theory.median_distance(X, dim=12))
    assert found.floor > 1.1 * plain.floor
    assert (found.stability_edge, found.best_step) == (plain.stability_edge, plain.best_step)
    assert np.array_equal(plain.distance, predict(lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.6))).distance)
    summed = predict(private(message_noise_std=0.02 * 30, step_size=0.5 / 30, aggregate="sum"))
    assert summed.floor == pytest.approx(found.floor)
    np.testing.assert_allclose(summed.distance, found.distance)


LARGER = lf.UnderParameterized(n_clients=40, dim=30, gap=4.0, gap_after=2)


@pytest.mark.parametrize(
    ("algorithm", "problem", "data", "words"),
    [
        (private(clip=3.0), PROBLEM, None, "for clip = 3"),
        (private(clip=3.0), PROBLEM, lf.FixedSamples(8), "for FixedSamples"),
        (private(message_noise_std=0.1), PROBLEM, lf.FixedSamples(8), "for FixedSamples"),
        (private(message_noise_std=0.1), PROBLEM, lf.FreshSamples(3), "n_samples = rank + 1 = 3"),
        (private(message_noise_std=0.1), LARGER, None, "ground truth of rank k"),
        (private(message_noise_std=0.1, heads=lf.GradientHeads()), PROBLEM, None, "exact heads"),
    ],
)
def test_what_cannot_be_predicted_is_named(algorithm, problem, data, words):
    assert_one_line(lambda: predict(algorithm, problem, data).distance, [words], lf.NoPredictionError)
