"""Which objects are equal, and that no caller can change a cell, a tuning or a claim through its arguments."""

import copy
import dataclasses
import pickle
import re
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

import linfed as lf
from linfed._values import EqualByValue, owned
from linfed.simulation.job import checked_job
from tests.helpers import ROOT, each, normal

sys.path.insert(0, str(ROOT / "docs"))
import reference

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=5, rank=2)
FRESH = lf.FreshSamples(6)
FEDREP = lf.FedRep(rank=2, step_size=0.3)
ARRAYS = re.compile(r"\bArray\b|Indices|ndarray|Participation|Grid\b")


@dataclass(frozen=True, kw_only=True, repr=False)
class Moving(lf.State):
    """A state of a user's algorithm."""

    direction: np.ndarray


def subclasses(kind):
    found = type.__subclasses__(kind)
    return [*found, *(each for one in found for each in subclasses(one))]


def public_dataclasses():
    names = [name for group in reference.GROUPS.values() for name in group.names]
    objects = []
    for name in names:
        found = lf
        for part in name.split("."):
            found = getattr(found, part)
        objects.append(found)
    kinds = {one for one in objects if isinstance(one, type)}
    kinds |= {one for kind in (lf.State, lf.Truth, lf.Result, lf.Run) for one in (kind, *subclasses(kind))}
    return sorted((one for one in kinds if dataclasses.is_dataclass(one)), key=lambda one: one.__qualname__)


def test_no_comparison_of_public_objects_compares_arrays_as_truth_values():
    allowed = (object.__eq__, EqualByValue.__eq__, lf.prediction.Quantity.__eq__)  # a quantity compares as its array
    for kind in public_dataclasses():
        holds_arrays = any(ARRAYS.search(str(field.type)) for field in dataclasses.fields(kind))
        assert not holds_arrays or kind.__eq__ in allowed, kind
    assert {"State", "Moving", "Truth", "TuningResult", "Run"} <= {kind.__name__ for kind in public_dataclasses()}


def tuned(**changes):
    options = {"grid": {"step_size": (0.1, 0.3)}, "data": FRESH, "rounds": 3, "trials": 2} | changes
    return lf.tune(FEDREP, PROBLEM, extend=False, **options)


COMPARED = {
    "state": (
        lambda: lf.simulate(FEDREP, PROBLEM, data=FRESH, rounds=2).final,
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
    "tuning": (tuned, lambda one: tuned(rounds=4)),
    "run": (lambda: RUN, lambda one: replace(one, participation=np.array([[0], [1], [3]]))),
    "run with other metrics": (lambda: RUN, lambda one: replace(one, metrics=["risk"])),
    "tuned": (
        lambda: lf.Tuned(base=FEDREP, grid={"weights": [np.ones(6), np.arange(1.0, 7.0)]}),
        lambda one: replace(one, grid={"weights": [np.ones(6), np.arange(2.0, 8.0)]}),
    ),
}
RUN = lf.Run(
    algorithm=FEDREP,
    problem=PROBLEM,
    data=FRESH,
    rounds=3,
    participation=np.array([[0], [1], [2]]),
    metrics=["risk", "subspace_distance"],
)


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
@each("name", COMPARED)
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


def of_run(**changes):
    return replace(RUN, **changes)


def change_list(value):
    value[0] = value.pop()


def change_array(value):
    value[...] = value[..., ::-1] + (value.shape[-1] == 1)


def finding(hypotheses):
    words = dict.fromkeys(("claim", "setting", "statistic", "source"), "text")
    return lf.Finding(**words, estimate=1.0, low=0.5, high=2.0, claimed_low=0.1, hypotheses=hypotheses)


OWN = {
    "participants": (
        lambda: np.array([[0, 1], [1, 2], [3, 4]]),
        lambda value: of_run(participation=value),
        change_array,
    ),
    "a view of participants": (
        lambda: np.arange(6).reshape(3, 2)[:, ::1],
        lambda value: of_run(participation=value),
        lambda value: change_array(value.base),
    ),
    "lists of participants": (
        lambda: [[0, 1], [1, 2], [3, 4]],
        lambda value: of_run(participation=value),
        lambda value: change_list(value[0]),
    ),
    "metrics": (lambda: ["risk", "subspace_distance"], lambda value: of_run(metrics=value), change_list),
    "seed": (lambda: [3, 4], lambda value: of_run(seed=value), change_list),
    "grid": (lambda: {"step_size": [0.1, 0.3]}, of_grid, lambda value: value.update(step_size=[0.5])),
    "values of a grid": (lambda: {"step_size": [0.1, 0.3]}, of_grid, lambda value: change_list(value["step_size"])),
    "array of a grid": (
        lambda: {"step_size": np.array([0.1, 0.3])},
        of_grid,
        lambda value: change_array(value["step_size"]),
    ),
    "settings of a grid": (
        lambda: [{"step_size": 0.1}, {"step_size": 0.3}],
        of_grid,
        lambda value: value[0].update(step_size=0.7),
    ),
    "array in settings": (
        lambda: [{"weights": np.arange(1.0, 7.0)}],
        of_grid,
        lambda value: change_array(value[0]["weights"]),
    ),
    "hypotheses": (
        lambda: [lf.statistics.Hypothesis(text=text, left=1.0, right=2.0) for text in "mn"],
        finding,
        change_list,
    ),
}


@each("name", OWN)
def test_a_caller_cannot_change_what_it_has_handed_over(name):
    make, build, change = OWN[name]
    value = make()
    made, expected = build(value), build(make())
    change(value)
    assert made == expected
    assert build(value) != expected


def test_a_run_uses_the_participants_it_was_made_with():
    given = np.array([[0, 1], [1, 2], [3, 4]])
    run, before = of_run(participation=given), of_run(participation=given.copy()).run()
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
    kept = {"a": [array, (array, 1)], "b": None}
    found = owned(kept)
    assert [type(part) for part in (found, found["a"], found["a"][1])] == [dict, list, tuple]
    assert not any(part.flags.writeable for part in (found["a"][0], found["a"][1][0]))


def test_a_run_with_lists_is_the_run_with_the_same_job():
    job = checked_job(RUN.algorithm, **RUN._options())
    assert np.array_equal(job.participation, RUN.participation)
    assert of_run(participation=[[0], [1], [2]]).run()["risk"].values.tolist() == RUN.run()["risk"].values.tolist()
