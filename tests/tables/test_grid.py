"""Grids of cells: every combination of the values, and a column for each field of a cell and of its fields."""

import itertools
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import linfed as lf
from linfed._values import COLUMN
from linfed.tables.grid import differing, fields_of
from tests.helpers import assert_one_line, normal

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5, init="random"),
    problem=lf.SharedRepresentation(n_clients=10, dim=8, rank=2),
    data=lf.FreshSamples(n_samples=6),
    n_rounds=2,
)


@dataclass(frozen=True)
class Inner:
    rate: float = 1.0
    name: str = "a"


@dataclass(frozen=True)
class Outer:
    size: int = 3
    low: int = 0
    inner: Inner = Inner()
    sizes: tuple[int, ...] = (1, 2)

    def __post_init__(self):
        if self.low > self.size:
            raise ValueError(f"low = {self.low} must be at most size = {self.size}")


def test_the_last_axis_varies_fastest():
    found = lf.grid(Outer(), size=(3, 4), **{"inner.rate": (0.1, 0.2)})
    assert [(one.size, one.inner.rate) for one in found] == [(3, 0.1), (3, 0.2), (4, 0.1), (4, 0.2)]
    assert all(one.inner.name == "a" for one in found)
    assert lf.grid(Outer()) == [Outer()]
    assert lf.grid(Outer(), size=range(3, 5)) == lf.grid(Outer(), size=np.array([3, 4])) == [Outer(3), Outer(4)]


@given(
    st.lists(st.integers(0), min_size=1, max_size=4),
    st.lists(st.sampled_from(["", "a", "bc"]), min_size=1, max_size=3),
    st.lists(st.floats(), min_size=1, max_size=3),
)
def test_a_grid_is_the_product_of_its_axes(sizes, names, rates):
    cells = lf.grid(Outer(), size=sizes, **{"inner.name": names, "inner.rate": rates})
    found = [(cell.size, cell.inner.name, cell.inner.rate) for cell in cells]
    assert repr(found) == repr(list(itertools.product(sizes, names, rates)))
    pairs = list(zip(sizes, names, strict=False))
    together = lf.grid(Outer(), **{"size, inner.name": pairs, "inner.rate": rates})
    found = [(cell.size, cell.inner.name, cell.inner.rate) for cell in together]
    assert repr(found) == repr([(*pair, rate) for pair, rate in itertools.product(pairs, rates)])


def test_fields_joined_by_commas_change_at_once():
    found = lf.grid(Outer(), **{"size, low, inner.name": [(2, 2, "x"), (9, 7, "y")]})
    assert [(one.size, one.low, one.inner.name) for one in found] == [(2, 2, "x"), (9, 7, "y")]
    assert lf.grid(Outer(), size=(9,), low=(9,)) == [Outer(size=9, low=9)]  # low alone would raise
    assert lf.grid(Outer(), **{"inner": (Inner(2.0),), "inner.name": ("z",)})[0].inner == Inner(2.0, "z")


def test_a_field_may_be_called_base():
    fit = lf.Personalized(base=RUN.algorithm, ridge=0.1)
    assert [one.base.step_size for one in lf.grid(fit, base=lf.grid(RUN.algorithm, step_size=(0.1, 0.2)))] == [0.1, 0.2]


INVALID = {
    "an unknown field": (Outer(), {"siez": (1,)}, ["'siez'", "did you mean 'size'"], ValueError),
    "an unknown inner field": (Outer(), {"inner.rat": (1,)}, ["'inner.rat'", "did you mean 'rate'"], ValueError),
    "a field of a field": (RUN, {"n_clients": (3,)}, ["did you mean 'problem.n_clients'"], ValueError),
    "a field of a number": (Outer(), {"size.x": (1,)}, ["size = 3 must be a dataclass"], TypeError),
    "no values": (Outer(), {"size": ()}, ["size must have at least one value"], ValueError),
    "a number": (Outer(), {"size": 3}, ["size = 3", "size=(3,)"], TypeError),
    "a string": (Outer(), {"inner.name": "abc"}, ["inner.name = 'abc'"], TypeError),
    "too long a tuple": (Outer(), {"size, low": [(1, 2, 3)]}, ["'size, low' names 2 fields", "(1, 2, 3)"], ValueError),
    "no tuple": (Outer(), {"size, low": [3]}, ["'size, low' names 2 fields"], ValueError),
    "no dataclass": ({"size": 3}, {"size": (1,)}, ["base = {'size': 3}", "dataclass"], TypeError),
    "a class": (Outer, {"size": (1,)}, ["base = ", "dataclass"], TypeError),
    "a value that is not allowed": (Outer(), {"low": (5,)}, ["low = 5"], ValueError),
    "too many cells": (Outer(), {"size": range(1001), "low": range(1000)}, ["1001000 cells", "1000000"], lf.SizeError),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_grid_is_refused(name):
    base, axes, fragments, error = INVALID[name]
    assert_one_line(lambda: lf.grid(base, **axes), fragments, error)


def test_fields_have_dotted_names():
    assert dict(fields_of(Outer())) == {
        "size": 3,
        "low": 0,
        "inner": "Inner",
        "inner.rate": 1.0,
        "inner.name": "a",
        "sizes": (1, 2),
    }


def test_differing_fields_are_found_within_fields():
    assert differing([Outer(), Outer(size=4), Outer(inner=Inner(2.0))]) == ["size", "inner.rate"]
    assert differing([Outer(), Outer(inner=RUN)]) == ["inner"]  # of another class
    arrays = [
        lf.GivenSubspace(np.eye(3)[:, :1]),
        lf.GivenSubspace(np.eye(3)[:, :1]),
        lf.GivenSubspace(np.eye(3)[:, 1:2]),
    ]
    assert [differing(arrays[:2]), differing(arrays)] == [[], ["B"]]


def test_values_with_the_same_text_are_told_apart():
    given = [lf.GivenSamples(normal(2, 3, 4, seed=seed), normal(2, 3, seed=seed)) for seed in (0, 1, 0)]
    inits = [lf.GivenSubspace(normal(8, 2, seed=seed)) for seed in (0, 1)]
    for path, values, name in (("data", given, "data"), ("algorithm.init", inits, "algorithm.init.B")):
        cells = lf.grid(RUN, **{path: values})
        assert len({dict(fields_of(cell))[name] for cell in cells}) == 2


@dataclass(frozen=True)
class Named:
    name: str = field(default="", metadata={COLUMN: "method"})
    n: int = 1


def test_a_field_that_only_names_its_cell_has_a_column_if_it_is_set():
    assert list(fields_of(Named())) == [("n", 1)]
    assert list(fields_of(Named("mine"))) == [("method", "mine"), ("n", 1)]
    names = [name for name, _ in fields_of(RUN)]
    assert not {"name", "method"} & {*names}
    assert dict(fields_of(replace(RUN, name="mine")))["method"] == "mine"


TWICE = [
    {"trials, trials": [(1, 2)]},
    {"trials": [1, 2], "n_rounds, trials": [(3, 4)]},
    {"n_rounds": [1], " n_rounds ": [2]},
    {"problem.dim": [9], "problem.dim,trials": [(10, 3)]},
]


@pytest.mark.parametrize("axes", TWICE)
def test_a_field_is_named_in_one_axis(axes):
    assert_one_line(lambda: lf.grid(RUN, **axes), ["name the field", "twice"])


def test_tied_values_may_be_the_rows_of_an_array():
    axis = [[5, 2], [7, 3]]
    cells = lf.grid(RUN, **{"n_rounds, trials": np.array(axis)})
    assert cells == lf.grid(RUN, **{"n_rounds, trials": axis})
    assert_one_line(lambda: lf.grid(RUN, **{"n_rounds, trials": np.ones((2, 3))}), ["names 2 fields"])
