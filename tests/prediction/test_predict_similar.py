"""Predictions for ground truths with a part of full dimension: risks and floors of runs, and what is refused."""

import math

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line
from tests.problems.test_shared import assert_mean


def similar(**changes):
    return lf.SimilarRepresentations(
        **{"n_clients": 20, "dim": 7, "rank": 3, "deviation": 0.3, "outliers": 0.2} | changes
    )


SIZES = {"n_clients": 30, "dim": 12, "rank": 2}


WITH_PARTS = {
    "similar": similar(**SIZES),
    "outliers": similar(**SIZES, deviation=0.0),
    "shortcuts": lf.SharedWithShortcuts(**SIZES, shortcut_norm=0.5),
}


def given(name):
    """Return one ground truth for all trials."""
    truth = WITH_PARTS[name].truth(0, [0])
    return lf.GivenTruth(B=truth.B[0], W=truth.W[0], S=truth.S[0], noise_std=0.3)


def with_a_subspace():
    Phi = WITH_PARTS["similar"].truth(0, [0]).dense()[0]
    return lf.GivenTruth(Phi=Phi, B=np.eye(12, 2), noise_std=0.3)


@pytest.mark.long
@pytest.mark.parametrize("data", [lf.FreshSamples(8), lf.FixedSamples(8)])
@pytest.mark.parametrize("name", [*WITH_PARTS, "a subspace"])
def test_predicted_risks_with_a_full_dimensional_part(name, data):
    """The oracle's heads are fitted at the reference subspace, which is not the best one of these regressors."""
    problem = with_a_subspace() if name == "a subspace" else given(name)
    for algorithm in (lf.Oracle(rank=2), lf.LocalOnly()):
        floor = lf.predict(algorithm, problem, data=data, rounds=1).floor
        risks = lf.simulate(algorithm, problem, data=data, rounds=1, trials=600).metrics["risk"][:, -1]
        assert_mean(risks, float(floor))
        assert risks.std() / math.sqrt(600) < 0.02 * risks.mean()


REFUSED = {
    "FedRep": (lf.FedRep(rank=2, step_size=0.1), lf.FreshSamples(9), "distance", "other than the top-k subspace"),
    "FedRep, gradient heads": (
        lf.FedRep(rank=2, step_size=0.1, heads=lf.GradientHeads()), lf.FreshSamples(9), "distance",
        "other than the top-k subspace",
    ),
    "FedRep, fixed samples": (lf.FedRep(rank=2, step_size=0.1), lf.FixedSamples(9), "distance", "FixedSamples"),
    "moments": (lf.MethodOfMoments(rank=2), lf.FreshSamples(9), "floor", "must be B* w with rank 2"),
}  # fmt: skip


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("name", ["similar", "outliers"])
def test_predictions_that_do_not_apply_are_refused_in_one_line(name, refused):
    algorithm, data, quantity, reason = REFUSED[refused]
    assert_one_line(
        lambda: getattr(lf.predict(algorithm, WITH_PARTS[name], data=data, rounds=5), quantity),
        [reason],
        lf.NoPredictionError,
    )


@pytest.mark.parametrize("name", ["similar", pytest.param("outliers", marks=pytest.mark.long)])
def test_the_predicted_floor_on_fixed_samples_is_that_of_runs(name):
    """From the truncation of all regressors to rank k, outliers included; to first order in 1/m."""
    problem = given(name)
    fedrep, data = lf.FedRep(rank=2, step_size=0.3, init=lf.TrueSubspace()), lf.FixedSamples(400)
    floor = float(lf.predict(fedrep, problem, data=data, rounds=5).floor)
    result = lf.simulate(fedrep, problem, data=data, rounds=100, trials=40, metrics=[truncation_error])
    assert np.sqrt(np.square(result.metrics["truncation_error"][:, -1]).mean()) == pytest.approx(floor, rel=0.05)


def truncation_error(state, truth):
    """Return the root mean square distance of the clients' predictors from the truncation to rank 2."""
    cut = truth.truncated(2).dense()
    return np.sqrt(np.square(state.predictors() - cut).sum(axis=-1).mean(axis=-1))
