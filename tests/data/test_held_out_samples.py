"""Held-out samples of given data, and samples whose trials differ in shape: invalid arguments."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal
from tests.simulation.held_out import D, N, drawn


def empty():
    return [np.zeros((0, D))] * N, [np.zeros(0)] * N


X, Y = drawn(N, 15)


RAGGED = [[normal(2, D), normal(3, D)], [normal(3, D), normal(4, D)]]


CALLS = {
    "test is no pair": (lambda: lf.GivenSamples(X, Y, test=X), ["test", "(X, y)"]),
    "test of three": (lambda: lf.GivenSamples(X, Y, test=(X, Y, Y)), ["test", "(X, y)"]),
    "test a word": (lambda: lf.GivenSamples(X, Y, test="xy"), ["test = 'xy'", "(X, y)"]),
    "test of other clients": (lambda: lf.GivenSamples(X, Y, test=(X[:4], Y[:4])), ["test X has shape (4, 15, 7)"]),
    "test of another dimension": (lambda: lf.GivenSamples(X, Y, test=(X[..., :5], Y)), ["test X has shape (6, 15, 5)"]),
    "test of other trials": (
        lambda: lf.GivenSamples(*drawn(3, N, 15), test=drawn(2, N, 15)),
        ["test X has arrays for 2 trials", "X for 3"],
    ),
    "test of empty clients": (lambda: lf.GivenSamples(X, Y, test=empty()), ["test X", "no axis may be empty"]),
    "test lists of no samples": (
        lambda: lf.GivenSamples(X, Y, test=([np.zeros((0, D)), []] * 3, [[]] * N)),
        ["test X contains no samples"],
    ),
    "test of an empty client of another dimension": (
        lambda: lf.GivenSamples(X, Y, test=([np.zeros((0, 3)), *X[1:]], [[], *Y[1:]])),
        ["test X[0]", "(0, 3)", "(0, 7)"],
    ),
    "test labels of an empty client": (
        lambda: lf.GivenSamples(X, Y, test=([np.zeros((0, D)), *X[1:]], list(Y))),
        ["test y[0]", "(15,)", "(0,)"],
    ),
    "NaN in test": (
        lambda: lf.GivenSamples(X, Y, test=(X, np.where(Y[1, 2] == Y, np.nan, Y))),
        ["test y holds 1 value ", "(1, 2)"],
    ),
    **{
        name: (
            lambda X=X: lf.GivenSamples(X, [[np.ones(len(rows)) for rows in trial] for trial in X]),
            ["X has trials", "different", "(trials, n, m, d)"],
        )
        for name, X in {
            "ragged trials": RAGGED,
            "ragged trials as tuples": tuple(tuple(trial) for trial in RAGGED),
            "ragged trials as plain lists": [[part.tolist() for part in trial] for trial in RAGGED],
            "trials of unequal counts": [normal(2, 3, D), normal(2, 4, D)],
            "trials of unequal clients": [normal(2, 3, D), normal(3, 3, D)],
            "one ragged trial": RAGGED[:1],
        }.items()
    },
    "ragged held-out trials": (
        lambda: lf.GivenSamples(*drawn(2, 2, 3), test=(RAGGED, [[rows[:, 0] for rows in t] for t in RAGGED])),
        ["test X has trials", "different", "(trials, n, m, d)"],
    ),
    "ragged labels": (
        lambda: lf.GivenSamples(*drawn(2, 2, 3)[:1], [[np.ones(2), np.ones(3)], [np.ones(3), np.ones(4)]]),
        ["y", "(n, m)", "parts have different sizes"],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_invalid_arguments_are_named(name):
    assert_one_line(*CALLS[name])
