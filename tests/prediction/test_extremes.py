"""Predictions at the ends of their range: finite, distances inside [0, 1], or one line."""

import functools

import numpy as np
import pytest

import linfed as lf
from tests.helpers import basis, mostly_long
from tests.theory.test_extremes import CASES, Case, few_draws, found_or_said  # noqa: F401

FRESH, FIXED = lf.FreshSamples, lf.FixedSamples
START = lf.AtDistance(0.5)
RUNS = {
    "exact heads": (lambda k: lf.FedRep(rank=k, step_size=0.05, init=START), FRESH),
    "exact heads, random start": (lambda k: lf.FedRep(rank=k, step_size=0.05, init="random"), FRESH),
    "gradient heads": (lambda k: lf.FedRep(rank=k, step_size=0.05, init=START, heads=lf.GradientHeads()), FRESH),
    "exact heads, fixed samples": (lambda k: lf.FedRep(rank=k, step_size=0.05, init=START), FIXED),
    "FedAvg": (lambda k: lf.FedAvg(step_size=0.05, local_steps=2), FIXED),
    "LocalOnly": (lambda k: lf.LocalOnly(), FIXED),
    "Oracle": (lambda k: lf.Oracle(rank=k), FIXED),
    "FLUTE": (lambda k: lf.FLUTE(rank=k, step_size=0.01), FIXED),
}


@pytest.mark.parametrize("run", mostly_long(RUNS, "exact heads", "exact heads, fixed samples", "Oracle"))
@pytest.mark.parametrize("below", [False, True], ids=["rank k", "rank above k"])
@pytest.mark.usefixtures("few_draws")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_all_that_is_predicted_is_finite_or_one_line(run, below):
    algorithm, data = RUNS[run]
    for name in CASES:
        case = Case(name)
        W = case.V[:, : min(case.k + 2, case.d)] if below else case.W
        problem = lf.GivenTruth(B=basis(case.d, W.shape[1], 1), W=W)
        settings = {"data": data(case.m), "n_rounds": 5, "participation": case.p or 1.0}
        asked = functools.partial(lf.predict, algorithm(case.k), problem, **settings)
        prediction = found_or_said(asked)
        if prediction is None:
            continue
        for what in ("distance", "rate", "floor", "stability_edge", "best_step"):
            found = found_or_said(lambda what=what, prediction=prediction: getattr(prediction, what))
            if found is None:
                continue
            found = np.asarray(found, dtype=float)
            risk = what == "floor" and run in ("FedAvg", "LocalOnly", "Oracle")
            assert np.isfinite(found).all() or (risk and np.isposinf(found).all()), (name, what)
            assert found.min() >= 0.0, (name, what)
            if what == "distance":
                assert found.max() <= 1.0, name
