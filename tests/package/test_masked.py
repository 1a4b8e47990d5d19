"""Masked arrays, whose data under the mask NumPy would take for numbers, are refused wherever arrays come in."""

import numpy as np
import pytest

import linfed as lf
from linfed.statistics.findings import judge_failures, judge_identity, judge_share
from tests.helpers import assert_one_line

PROBLEM = lf.SharedRepresentation(n_clients=2, dim=6, rank=1)
FEDREP = lf.FedRep(rank=1, step_size=0.3, init="random")
WHO = np.ma.array([[0, 1]] * 3, mask=[[0, 1]] * 3)


def run(**options):
    return lf.simulate(FEDREP, PROBLEM, **{"data": lf.FreshSamples(8), "rounds": 3} | options)


def masked_metric(state, truth):
    return np.ma.array(np.ones(len(state.W)), mask=True)


class MaskedStart(lf.Initial):
    def resolve(self, start, rank):
        return np.ma.array(np.ones((start.trials, start.dim, rank)), mask=True)


VALUES = np.ma.array([[1.0, 0.5]], mask=[[0, 1]])

MASKED = {
    "participation": (lambda: run(participation=WHO), "participation must not be a masked array"),
    "participation, a list": (lambda: run(participation=list(WHO)), "participation must not be a masked array"),
    "a metric": (lambda: run(metrics=[masked_metric]), "values returned by metric 'masked_metric' must"),
    "an initialisation": (
        lambda: lf.simulate(
            lf.FedRep(rank=1, step_size=0.3, init=MaskedStart()), PROBLEM, data=lf.FreshSamples(8), rounds=1
        ),
        "B returned by MaskedStart.resolve must",
    ),
    "values along an axis": (lambda: lf.LabeledArray(VALUES, round=[0, 1]), "values must not be a masked array"),
    "labels of an axis": (
        lambda: lf.LabeledArray([[1.0, 0.5]], round=np.ma.array([0, 1], mask=[0, 1])),
        "round must not be a masked array",
    ),
    "a column": (lambda: lf.Table([{"x": VALUES[0]}]), "x must not be a masked array"),
    "a score": (
        lambda: lf.tune(
            FEDREP,
            PROBLEM,
            data=lf.FreshSamples(8),
            rounds=1,
            grid={"step_size": [0.1, 0.2, 0.3]},
            trials=1,
            metric=lambda result: np.ma.array([1.0], mask=True),
        ),
        "values returned by metric must",
    ),
    "hits": (lambda: judge_share(np.ma.array([True, False], mask=[0, 1]), 0.5), "hits must not be a masked array"),
    "failures": (
        lambda: judge_failures(np.ma.array([True, False], mask=[0, 1]), allowed=0.5),
        "failed must not be a masked array",
    ),
    "premises": (
        lambda: judge_failures([True, False], allowed=0.5, premise=np.ma.array([True, True], mask=[0, 1])),
        "premise must not be a masked array",
    ),
    "gaps": (lambda: judge_identity(VALUES, tolerance=0.1), "gaps must not be a masked array"),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_masked_array_is_refused(name):
    call, said = MASKED[name]
    assert_one_line(call, [said, "fill the masked values, or leave them out"])
