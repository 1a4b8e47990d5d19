"""Equal arrays are one number: predictions of runs that say the same in another way."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from tests.prediction.runs import PROBLEM, fedrep, predict, vars_of

SAME = {
    "weights": (fedrep(weights=np.full(40, 7.0)), {}),
    "noise": (fedrep(), {"problem": replace(PROBLEM, noise_std=np.full(40, 0.1))}),
    "samples": (fedrep(), {"data": lf.FreshSamples(np.full(40, 10))}),
    "steps": (fedrep(step_size=np.full(3, 0.5)), {}),
    "a constant function": (fedrep(step_size=lambda t: 0.5), {}),
    "no ridge": (fedrep(heads=lf.ExactHeads(ridge=np.zeros(3))), {}),
    "one covariance": (
        fedrep(),
        {"problem": replace(PROBLEM, design=lf.Gaussian(covariance=np.broadcast_to(np.eye(30), (40, 30, 30))))},
    ),
    "whole messages": (lf.CompressedFedRep(**vars_of(fedrep()), kept_share=1.0, shared_mask=True), {}),
    "plain messages": (lf.PrivateFedRep(**vars_of(fedrep())), {}),
    "a clip that never acts": (lf.PrivateFedRep(**vars_of(fedrep()), clip=1e6), {}),
    "all of it": (
        fedrep(weights=[2.0] * 40, step_size=[0.5] * 3),
        {"problem": replace(PROBLEM, noise_std=[0.1] * 40), "data": lf.FreshSamples([10] * 40)},
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_numbers_are_one_number(name):
    """Bit for bit."""
    algorithm, changes = SAME[name]
    one, other = predict(), predict(algorithm, **changes)
    assert (one.law, one.validity, one.warnings) == (other.law, other.validity, other.warnings)
    slow = ("floor",) if name == "all of it" else ()
    for what in ("distance", "low", "high", "rate", "stability_edge", "best_step", *slow):
        np.testing.assert_array_equal(getattr(one, what), getattr(other, what))


SAME_FLOORS = {
    "Oracle": (lf.Oracle(rank=3), {}, {"noise_std": [0.1] * 40}),
    "LocalOnly": (lf.LocalOnly(), {}, {"noise_std": [0.1] * 40}),
    "AltMin": (lf.AltMin(rank=3), {}, {"noise_std": [0.1] * 40}),
    "UStatistic": (lf.UStatistic(rank=3), {}, {"noise_std": [0.1] * 40}),
    "FedRep": (fedrep(), {"weights": [2.0] * 40}, {"noise_std": [0.1] * 40}),
    "FedAvg": (lf.FedAvg(step_size=0.1), {"step_size": [0.1] * 3}, {}),
    "Ditto": (lf.Ditto(step_size=0.1), {"step_size": lambda t: 0.1}, {}),
    "FLUTE": (lf.FLUTE(rank=3, step_size=0.001), {"step_size": [0.001] * 3}, {"noise_std": [0.1] * 40}),
    "no round": (fedrep(), {"step_size": lambda t: 0.5 / t}, {}),
}


@pytest.mark.parametrize("name", SAME_FLOORS)
def test_equal_numbers_have_one_floor_on_fixed_samples(name):
    algorithm, own, changes = SAME_FLOORS[name]
    rounds = 0 if name == "no round" else 3
    floors = [
        float(predict(one, problem, data=lf.FixedSamples(40), n_rounds=rounds).floor)
        for one, problem in ((algorithm, PROBLEM), (replace(algorithm, **own), replace(PROBLEM, **changes)))
    ]
    assert floors[0] == floors[1] > 0
