"""Runs of classification, and arguments that only regression supports."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, assert_same

OWN = [1, 2, 3, 4, 2]
PROBLEM = lf.Classes(n_clients=5, n_classes=4, classes_per_client=OWN, dim=6, rank=2, test_samples=15)
DATA = lf.FixedSamples(9)
FLUTE = lf.GeneralFLUTE(rank=2, step_size=0.2, local_steps=2)


def run(algorithm=FLUTE, problem=PROBLEM, **changes):
    return lf.simulate(algorithm, problem, **{"data": DATA, "n_rounds": 6, "trials": 2, "seed": 4} | changes)


@pytest.mark.parametrize("algorithm", [lf.FedPer(rank=2, step_size=1e200), lf.FedAvg(step_size=1e308, local_steps=3)])
def test_a_run_that_diverges_is_a_result(algorithm):
    result = run(algorithm, n_rounds=30)
    assert [status.name for status in result.status] == ["DIVERGED"] * 2
    assert (result.status_round < 30).all()
    assert np.isnan(result.metrics["accuracy"][:, -1]).all()
    assert np.isfinite(result.metrics["accuracy"][:, 0]).all()
    assert np.isnan(result.per_client("accuracy")).all()
    assert result.engine == "explicit"


@pytest.mark.long
def test_trials_in_workers_are_those_of_one_process():
    for data in (DATA, lf.FreshSamples(9)):
        one, other = (run(data=data, participation=0.6, trials=4, workers=workers) for workers in (1, 2))
        assert_same(one, other)


def test_metrics_of_clients_with_schedules_and_given_participants():
    steps, who = np.linspace(0.3, 0.1, 4), np.tile([[0, 2, 3]], (4, 1))
    result = run(lf.GeneralFLUTE(rank=2, step_size=steps), n_rounds=4, participation=who)
    for metric in ("accuracy", "global_nc2"):
        assert np.allclose(result.per_client(metric).mean(axis=1), result.metrics[metric][:, -1], rtol=1e-12)


SQUARES = lf.SharedRepresentation(n_clients=4, dim=6, rank=2)
OF_SQUARES = {"algorithm": lf.FedPer(rank=2, step_size=0.1), "problem": SQUARES, "n_rounds": 1}
GIVEN = lf.GivenSamples(np.zeros((5, 3, 6)), np.zeros((5, 3)))
MOMENTS = lf.FedRep(rank=2, step_size=0.2, heads=lf.GradientHeads())
ROTATED = lf.FedRep(rank=2, step_size=0.2, init="random", heads=lf.GradientHeads(), rotate_heads=True)
BAD = {
    "projected": (lambda: run(engine="projected"), ["engine = 'projected'", "more than one B"]),
    "in law": (lambda: run(data=lf.FixedSamples(9, in_law=True)), ["in_law = True"]),
    "labels of regression": (lambda: run(data=GIVEN), ["4 classes", "regression labels"]),
    "moments": (lambda: run(MOMENTS), ["only regression", "init = 'random'"]),
    "rotated heads": (lambda: run(ROTATED), ["rotate_heads = True", "only regression", "4 classes"]),
    "new clients": (lambda: run().new_clients([5]), ["new_clients()", "only regression"]),
    "new clients of a regression": (lambda: run().new_clients([5], problem=SQUARES), ["only regression"]),
    "new clients of classes": (lambda: run(**OF_SQUARES).new_clients([5], problem=PROBLEM), ["only regression"]),
}


@pytest.mark.parametrize("name", BAD)
def test_arguments_that_only_regression_supports_are_refused(name):
    assert_one_line(*BAD[name])
