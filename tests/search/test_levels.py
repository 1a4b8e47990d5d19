"""Levels to reach: by how many decades a value misses them, and which rounds count."""

import functools

import numpy as np
import pytest

import linfed as lf


def test_above_is_below_upside_down():
    assert lf.above("error", 2.0).shortfalls([20.0, 2.0, 0.2, np.nan]).tolist() == [-1.0, 0.0, 1.0, np.inf]
    assert lf.below("error", 2.0).shortfalls([20.0, 2.0, 0.2, np.nan]).tolist() == [1.0, 0.0, -1.0, np.inf]


def test_a_level_counts_in_the_last_round_or_in_any():
    assert lf.below("error", 1.0, ever=True).misses([[1.0, 5.0]]).tolist() == [0.0]
    assert lf.below("error", 5.0).misses([[1.0, 50.0]]).tolist() == [1.0]
    assert lf.below("error", 5.0).misses([5.0, 50.0]).tolist() == [0.0, 1.0]


def test_a_negative_value_is_below_any_level():
    below, above = lf.below("gap", 0.1), lf.above("gap", 0.1)
    np.testing.assert_array_equal(below.shortfalls([-1e-3, 0.0, np.nan]), [-np.inf, -np.inf, np.inf])
    np.testing.assert_array_equal(above.shortfalls([-1e-3, 0.0, np.nan]), [np.inf, np.inf, np.inf])


INVALID = {
    "a level of zero": (lambda: lf.below("error", 0), ValueError, "level = 0 must be a positive"),
    "a function of one argument": (
        lambda: lf.below(lambda state: 1.0, 0.1),
        TypeError,
        "metric = .* must be a function of two arguments",
    ),
    "a function without a name": (
        lambda: lf.below(functools.partial(lambda state, truth: 1.0), 0.1),
        TypeError,
        "metric = .* must have a name",
    ),
    "no metric": (lambda: lf.below("", 0.1), TypeError, "metric = '' must be the name of a column"),
    "too many axes": (
        lambda: lf.below("error", 1.0).misses(np.ones((2, 2, 2))),
        ValueError,
        r"values has shape \(2, 2, 2\)",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments_are_named(name):
    call, error, said = INVALID[name]
    with pytest.raises(error, match=said):
        call()
