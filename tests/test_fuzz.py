"""Odd arguments, in processes of their own: a call works or raises one line that names the argument (`tests.fuzz`)."""

import os
import random

import numpy as np
import pytest

import linfed as lf

if not hasattr(os, "fork"):
    pytest.skip("the odd calls run in forked processes", allow_module_level=True)

from tests import fuzz

SEED = 7
"""Seed of the drawn calls."""


def bad_calls(draw, count):
    """Return the calls with a bad outcome among `count` drawn ones, with what happened."""
    drawn = [draw(random.Random(f"{SEED} {number}")) for number in range(count)]
    found = fuzz.outcomes([lambda call=call, names=names: fuzz.called(call, names) for _, call, names in drawn])
    told = [(shown, *outcome) for (shown, _, _), outcome in zip(drawn, found, strict=True)]
    return [one for one in told if one[1].startswith("BAD") and not (one[1] in fuzz.LONG and fuzz.MUCH.search(one[0]))]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_odd_arguments_of_methods():
    assert not bad_calls(fuzz.method_case, 250)


def test_odd_arguments_of_functions_and_constructors():
    known = fuzz.targets()
    assert not bad_calls(lambda chance: fuzz.call_case(chance, known), 200)


def test_valid_arguments_of_methods_work():
    """Else the odd ones would be hidden."""
    fuzz.TABLE.save("t.npz")
    fuzz.RESULT.save("r.npz")
    cases = [
        lambda called=called, valid=valid: fuzz.called(lambda: called(**valid), [])
        for called, valid in fuzz.METHODS.values()
    ]
    found = dict(zip(fuzz.METHODS, fuzz.outcomes(cases), strict=True))
    assert {name: outcome for name, outcome in found.items() if outcome[0] != "works"} == {}


@pytest.mark.parametrize("kind", fuzz.PROBLEM_KINDS)
def test_trials_are_numbers_of_trials(kind):
    """A matrix once ended in endless recursion, which ends the interpreter: hence in a process of its own."""
    problem, wrong = fuzz.PROBLEM_KINDS[kind], (fuzz.MATRIX, [], 5, [0.5], [True], [-1], "01", np.array(1), None)
    cases = [lambda trials=trials: fuzz.called(lambda: problem.truth(0, trials), ["trials"]) for trials in wrong]
    found = [(kind, told.partition(":")[0]) for kind, told in fuzz.outcomes(cases)]
    assert found == [("one line", "ValueError")] * len(wrong)


def test_trials_in_other_sequences_are_the_same():
    wanted = fuzz.PROBLEM.truth(3, range(2)).B
    for trials in ([0, 1], (0, 1), np.array([0, 1]), [np.int64(0), np.uint8(1)]):
        np.testing.assert_array_equal(fuzz.PROBLEM.truth(3, trials).B, wanted)
    given = lf.GivenTruth(B=np.ones((2, 3, 1)), W=np.ones((2, 4, 1)))
    with pytest.raises(ValueError, match=r"trials = \[0, 2\] must be below 2"):
        given.truth(0, [0, 2])
