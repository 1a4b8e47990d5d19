"""Descriptions of values: equal for equal values, in every process, and different for all others."""

import functools
import hashlib
import importlib
import json
import pkgutil
import sys
from dataclasses import dataclass
from enum import KEEP, Enum, Flag
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import linfed
import linfed as lf
from linfed._values import Configuration, EqualByValue
from linfed.prediction import law, others
from linfed.system.description import NotRestorableError, describe, rebuild
from tests.helpers import assert_one_line


class Colour(Enum):
    RED = 1
    BLUE = 2


class Kept(Flag, boundary=KEEP):
    ONE = 1


@dataclass(frozen=True)
class One:
    n: int


class Other(One):
    pass


class Plain:
    """Neither a dataclass nor of linfed."""


@dataclass(frozen=True)
class Given:
    n: int

    def __init__(self, n, more):
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "more", more)


class Cached:
    """An object that pickle stores without what it can compute again."""

    def __init__(self, n, cache):
        self.n, self.cache = n, cache

    def __getstate__(self):
        return {"n": self.n}


EQUAL = [
    (frozenset([0, 8]), frozenset([8, 0])),  # in another order
    ("a" * 30, "".join(["a"] * 30)),
    (frozenset(["x", "yy", "zzz"]), frozenset(["zzz", "yy", "x"])),
    (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    (np.arange(3.0), np.arange(3.0).astype(">f8")),
    ((lf.FedRep(rank=2, step_size=1),), (lf.FedRep(rank=2, step_size=1.0),)),
    (float("nan"), -float("nan")),
    (Fraction(2, 4), Fraction(1, 2)),
    (Path("a/b"), Path("a") / "b"),
    (Cached(1, cache=2), Cached(1, cache=3)),
]
DIFFERENT = [
    ({"a": 1, "b": 2.0}, {"b": 2.0, "a": 1}),  # the order of a grid's fields decides ties
    (0.5, np.float32(0.5)),
    (np.uint8(200), 200),
    (np.timedelta64(5, "ns"), np.timedelta64(5, "s")),
    (np.zeros(2, [("a", int), ("b", float)]), np.zeros(2, [("b", int), ("a", float)])),
    (np.empty((0, 2), object), np.empty((0, 3), object)),
    ({"a": 1}.get, {"a": 2}.get),
    (np.arange(3).take, np.ones(3).take),
    (Kept(8), Kept(16)),
    (frozenset([1]), {1}),
    (1, 1.0),
    (1, True),
    ("1", 1),
    (None, "None"),
    ((1, 2), [1, 2]),
    (0.1, 0.1 + 2**-56),
    ({"a": 1}, {"a": 2}),
    (np.arange(3), np.arange(3.0)),
    (np.arange(4.0), np.arange(4.0).reshape(2, 2)),
    (Colour.RED, Colour.BLUE),
    (One(1), Other(1)),
    (Given(1, 2), Given(1, 3)),
    (Cached(1, cache=2), Cached(2, cache=2)),
    (One, Other),
    (len, max),
    (functools.partial(max, 1), functools.partial(max, 2)),
    (lf.FedRep(rank=2, step_size=1.0), lf.FedRep(rank=2, step_size=1.1)),
    (Fraction(1, 2), Fraction(1, 3)),
    (b"1", "1"),
    ("\ud83d", "?"),
    (np.sin, np.cos),
    (np.zeros(2, [("a", float)]), np.zeros(2, [("a", float)]).view(np.recarray)),
    (1j, 1.0),
]


def test_equal_values_have_one_text():
    for one, other in EQUAL:
        assert describe(one).text == describe(other).text, one
        json.loads(describe(one).text, parse_constant=pytest.fail)


def test_different_values_have_different_texts():
    for one, other in DIFFERENT:
        assert describe(one).text != describe(other).text, one


def configurations():
    """Return the classes of linfed whose objects can be part of a configuration."""
    for module in pkgutil.walk_packages(linfed.__path__, "linfed."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    bases, found = [Configuration, EqualByValue, lf.GivenSamples], set()
    for base in bases:
        found.add(base)
        bases += base.__subclasses__()
    return [cls for cls in found if cls.__module__.startswith("linfed.")]


def test_a_description_is_the_same_on_every_machine_and_wherever_a_class_of_linfed_stands():
    array = np.arange(3, dtype="<i4")
    content = hashlib.sha256(b"<i4 [3] \0\0\0\0\1\0\0\0\2\0\0\0").hexdigest()
    assert describe((lf.FreshSamples(5), 0.5, {"b": None, "a": array})).text == (
        '{"tuple":[{"fields":{"n_samples":5},"is":"linfed.FreshSamples"},{"float":"0x1.0000000000000p-1"},'
        '{"dict":[["b",null],["a",{"array":"' + content + '","of":"<i4","scalar":false,"shape":[3]}]]}]}'
    )
    names = [cls.__qualname__ for cls in configurations()]
    assert len(names) == len({*names}) > 80


def test_what_cannot_be_told_from_others_is_refused(tmp_path):
    def inner():
        pass

    class Inner:
        pass

    wrapped = functools.wraps(describe)(lambda: 1)
    unnamed = (lambda: 1, inner, Inner, Inner(), wrapped, type("One", (), {"__module__": __name__}))
    for value in (*unnamed, np.frompyfunc(lambda x: 2 * x, 1, 1), functools.cache(lambda: 1)):
        assert_one_line(lambda v=value: describe(v).text, ["cannot identify", "level of a module"], TypeError)
    itself = []
    itself.append(itself)
    assert_one_line(lambda: describe(np.random.default_rng(0)), ["Generator", "pass a seed"], TypeError)
    assert_one_line(lambda: describe(itself), ["contain itself"], TypeError)
    with (tmp_path / "open").open("w") as file:
        assert_one_line(lambda: describe(file), ["cannot describe", "TextIOWrapper"], TypeError)


VALUES = [
    *(None, True, 3, "a", 0.1, float("nan"), 1j, b"x", [1, (2, "b")], {1, 2}, frozenset([3]), {"b": 1, "a": (2,)}),
    *(np.arange(6.0).reshape(2, 3), np.float32(0.5), np.array([None, "a"], dtype=object), Path("a/b")),
    *(Colour.RED, One(3), lf.FedRep(rank=2, step_size=0.5), lf.GivenSubspace(np.eye(3)[:, :1])),
    lf.GivenSamples(np.ones((2, 3, 4)), np.ones((2, 3))),
]


def test_what_is_described_is_rebuilt():
    for value in VALUES:
        found = describe(value)
        back = rebuild(json.loads(found.text), found.arrays)
        assert type(back) is type(value)
        assert describe(back).text == found.text


@pytest.mark.parametrize("ordered", [list, reversed])
def test_a_law_of_the_same_name_is_not_taken_for_the_class_of_a_value(ordered, monkeypatch):
    """Whichever module was imported first."""
    assert others.TrueSubspace is not lf.TrueSubspace
    assert law.Run is not lf.Run
    monkeypatch.setattr(sys, "modules", dict(ordered(list(sys.modules.items()))))
    problem = lf.SharedRepresentation(n_clients=3, dim=2, rank=1)
    run = lf.Run(algorithm=lf.Oracle(rank=1), problem=problem, data=lf.FreshSamples(2), n_rounds=1)
    for value in (lf.TrueSubspace(), run):
        assert rebuild(describe(value).json, describe(value).arrays) == value


@pytest.mark.parametrize(
    "described",
    [
        describe(len).json,
        describe(functools.partial(max, 1)).json,
        describe(Fraction(1, 2)).json,
        {"is": "some.where.One", "fields": {}},
        {"is": f"{__name__}.One", "fields": {"other": 1}},
        {"is": f"{__name__}.Plain", "holds": {}},
        {"is": f"{__name__}.One", "name": "n", "value": 3},
    ],
)
def test_code_and_classes_that_are_gone_or_have_changed_are_not_rebuilt(described):
    with pytest.raises(NotRestorableError):
        rebuild(described, {})
