"""Odd arguments, in processes of their own: a call works or raises one line that names the argument."""

import os
import random

import numpy as np
import pytest

import linfed as lf

if not hasattr(os, "fork"):
    pytest.skip("the odd calls run in forked processes", allow_module_level=True)

from tests.package import fuzz

SEED = 7
"""Seed of the drawn calls."""


def bad(calls):
    """Return the calls, as text, function and words for the arguments, with a bad outcome, and what happened."""
    found = fuzz.outcomes([lambda call=call, names=names: fuzz.called(call, names) for _, call, names in calls])
    told = [(shown, *outcome) for (shown, _, _), outcome in zip(calls, found, strict=True)]
    return [one for one in told if one[1].startswith("BAD") and not (one[1] in fuzz.LONG and fuzz.MUCH.search(one[0]))]


def drawn(draw, count):
    """Return drawn calls."""
    return [draw(random.Random(f"{SEED} {number}")) for number in range(count)]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


ODD = [5, "a\0b", "\ud800", object(), {"x": 1}, np.array(0.5), np.ones(3), fuzz.MATRIX]


def test_odd_values_for_every_argument_of_every_method():
    calls = [
        (f"{name}({one}={odd!r})", lambda called=called, given=valid | {one: odd}: called(**given), fuzz.words(one))
        for name, (called, valid) in fuzz.METHODS.items()
        for one in valid
        for odd in ODD
    ]
    assert bad(calls) == []


def test_odd_arguments_of_methods():
    assert bad(drawn(fuzz.method_case, 100)) == []


def test_odd_arguments_of_functions_and_constructors():
    known = fuzz.targets()
    assert bad(drawn(lambda chance: fuzz.call_case(chance, known), 150)) == []


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
