"""Configurations are equal by value, and no caller can change one through an object that it was made from."""

import collections
import copy
import dataclasses
import pickle
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

import linfed as lf
from docs.tools import reference
from linfed._values import EqualByValue, owned
from linfed.system.description import describe
from tests.helpers import finding, normal

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=5, rank=2)
FRESH = lf.FreshSamples(6)
FEDREP = lf.FedRep(rank=2, step_size=0.3)
ARRAYS = re.compile(r"\bArray\b|Indices|ndarray|Participation|Grid\b")


@dataclass(frozen=True, kw_only=True, repr=False)
class Moving(lf.State):
    """A state of a user's algorithm."""

    direction: np.ndarray


def with_subclasses(kind):
    return {kind, *(one for below in type.__subclasses__(kind) for one in with_subclasses(below))}


def public_dataclasses():
    kinds = set()
    for name in (name for group in reference.GROUPS.values() for name in group.names):
        found = lf
        for part in name.split("."):
            found = getattr(found, part)
        kinds |= {found} if isinstance(found, type) else set()
    for kind in (lf.State, lf.Truth, lf.Result, lf.Run):
        kinds |= with_subclasses(kind)
    return [one for one in kinds if dataclasses.is_dataclass(one)]


def test_no_public_class_with_arrays_compares_them_as_truth_values():
    allowed = (object.__eq__, EqualByValue.__eq__, lf.prediction.Quantity.__eq__)  # a quantity compares as its array
    for kind in public_dataclasses():
        holds_arrays = any(ARRAYS.search(str(field.type)) for field in dataclasses.fields(kind))
        assert not holds_arrays or kind.__eq__ in allowed, kind
    assert {"State", "Moving", "Truth", "TuningResult", "Run"} <= {kind.__name__ for kind in public_dataclasses()}


def tuned(**changes):
    options = {"grid": {"step_size": (0.1, 0.3)}, "data": FRESH, "n_rounds": 3, "trials": 2} | changes
    return lf.tune(FEDREP, PROBLEM, extend=False, **options)


RUN = lf.Run(
    algorithm=FEDREP,
    problem=PROBLEM,
    data=FRESH,
    n_rounds=3,
    participation=np.array([[0], [1], [2]]),
    metrics=["risk", "subspace_distance"],
)


COMPARED = {
    "state": (
        lambda: lf.simulate(FEDREP, PROBLEM, data=FRESH, n_rounds=2).final,
        lambda one: one.update(W=one.W + 1e-16 + (one.W == 0)),
    ),
    "state of a user": (
        lambda: Moving(B=np.ones((1, 3, 2)), direction=np.zeros((1, 3))),
        lambda one: replace(one, direction=np.ones((1, 3))),
    ),
    "state with another array": (lambda: lf.State(S=np.ones((1, 2, 3))), lambda one: lf.State(shared=one.S)),
    "state of another shape": (lambda: lf.State(S=np.ones((1, 2, 3))), lambda one: lf.State(S=np.ones((1, 3, 2)))),
    "state of another class": (lambda: lf.State(B=np.ones((1, 3, 2))), lambda one: Moving(B=one.B, direction=one.B)),
    "truth": (lambda: PROBLEM.truth(0, [0, 1]), lambda one: PROBLEM.truth(1, [0, 1])),
    "tuning": (tuned, lambda one: tuned(n_rounds=4)),
    "run": (lambda: RUN, lambda one: replace(one, participation=np.array([[0], [1], [3]]))),
    "run with other metrics": (lambda: RUN, lambda one: replace(one, metrics=["risk"])),
    "tuned": (
        lambda: lf.Tuned(base=FEDREP, grid={"weights": [np.ones(6), np.arange(1.0, 7.0)]}),
        lambda one: replace(one, grid={"weights": [np.ones(6), np.arange(2.0, 8.0)]}),
    ),
}


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
@pytest.mark.parametrize("name", COMPARED)
def test_equal_are_objects_with_equal_fields(name):
    make, change = COMPARED[name]
    one, other = make(), change(make())
    for same in (one, make(), pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert (one == same) is True
        assert (one != same) is False
        assert hash(one) == hash(same)
    assert (one == other) is False
    assert (other == one) is False
    assert (one == "another") is False


def test_missing_numbers_and_signs_of_zero_count_as_equal():
    for one, other in ((np.nan, np.nan), (0.0, -0.0)):
        assert lf.State(B=np.full((1, 3, 2), one)) == lf.State(B=np.full((1, 3, 2), other))
    assert lf.State(B=np.full((1, 3, 2), np.nan)) != lf.State(B=np.zeros((1, 3, 2)))


# --- arguments that a caller changes later -------------------------------------------------------------------------


def of_grid(grid):
    return lf.Tuned(base=FEDREP, grid=grid)


def of_run(name):
    return lambda value: replace(RUN, **{name: value})


def change_list(value):
    value[0] = value.pop()


def change_array(value):
    value[...] = value[..., ::-1] + (value.shape[-1] == 1)


HYPOTHESES = [lf.statistics.Hypothesis(text=text, left=1.0, right=2.0) for text in "mn"]
HANDED_OVER = {
    "an array": (lambda: np.array([[0, 1], [1, 2], [3, 4]]), of_run("participation"), change_array),
    "a view": (
        lambda: np.arange(6).reshape(3, 2)[:, ::1],
        of_run("participation"),
        lambda value: change_array(value.base),
    ),
    "lists": (lambda: [[0, 1], [1, 2], [3, 4]], of_run("participation"), lambda value: change_list(value[0])),
    "a list": (lambda: ["risk", "subspace_distance"], of_run("metrics"), change_list),
    "a user's list": (lambda: collections.UserList(["risk", "subspace_distance"]), of_run("metrics"), change_list),
    "a seed": (lambda: [3, 4], of_run("seed"), change_list),
    "a grid": (lambda: {"step_size": [0.1, 0.3]}, of_grid, lambda value: value.update(step_size=[0.5])),
    "a user's mapping": (
        lambda: collections.UserDict(step_size=[0.1, 0.3]),
        of_grid,
        lambda value: value.update(step_size=[0.5]),
    ),
    "values of a grid": (lambda: {"step_size": [0.1, 0.3]}, of_grid, lambda value: change_list(value["step_size"])),
    "an array of a grid": (
        lambda: {"step_size": np.array([0.1, 0.3])},
        of_grid,
        lambda value: change_array(value["step_size"]),
    ),
    "settings of a grid": (
        lambda: [{"step_size": 0.1}, {"step_size": 0.3}],
        of_grid,
        lambda value: value[0].update(step_size=0.7),
    ),
    "an array in settings": (
        lambda: [{"weights": np.arange(1.0, 7.0)}],
        of_grid,
        lambda value: change_array(value[0]["weights"]),
    ),
    "hypotheses": (lambda: list(HYPOTHESES), lambda value: finding(hypotheses=value), change_list),
}


@pytest.mark.parametrize("name", HANDED_OVER)
def test_a_caller_cannot_change_what_it_has_handed_over(name):
    make, build, change = HANDED_OVER[name]
    value = make()
    made, expected = build(value), build(make())
    change(value)
    assert made == expected
    assert build(value) != expected
    assert describe(made).text == describe(expected).text


def test_a_run_with_a_list_has_the_key_of_one_with_a_tuple():
    one, other = (replace(RUN, metrics=names) for names in (["risk"], ("risk",)))
    assert one == other
    assert describe(one).text == describe(other).text


def test_a_run_uses_the_participants_it_was_made_with():
    given = np.array([[0, 1], [1, 2], [3, 4]])
    run, before = of_run("participation")(given), of_run("participation")(given.tolist()).run()
    given[:] = 5
    assert np.array_equal(run.run()["risk"].values, before["risk"].values)
    with pytest.raises(ValueError, match="read-only"):
        run.participation[0, 0] = 5


def test_copies_are_read_only_and_made_once():
    array = normal(3, 2)
    one = owned(array)
    assert owned(one) is one
    assert owned(one[:2]) is not one
    assert one.dtype == array.dtype
    assert not one.flags.writeable
    assert array.flags.writeable
    found = owned({"a": [array, (array, 1)], "b": None})
    assert [type(part) for part in (found, found["a"], found["a"][1])] == [dict, list, tuple]
    assert not any(part.flags.writeable for part in (found["a"][0], found["a"][1][0]))
