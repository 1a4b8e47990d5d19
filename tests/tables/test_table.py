"""Tables: what a row may hold, how rows are selected and grouped, and that a table owns its arrays."""

import copy
import enum
import pickle
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal

# --- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    n: int

    def run(self):
        return {}


def test_the_rows_of_cells_have_their_fields_and_results():
    table = lf.Table.of([Cell(1), Cell(2)], [{"error": normal(2)}, [{"rule": "a"}, {"rule": "b", "n": 7}]])
    assert table.columns == ("n", "error", "rule")
    assert [row["n"] for row in table] == [1, 2, 7]
    assert table.select(rule=["a", "b"])["rule"].tolist() == ["a", "b"]
    assert len(lf.Table.of([], [])) == 0


def test_a_column_is_one_value_or_an_array_over_the_rows(table):
    assert table.columns == ("size", "low", "inner", "inner.rate", "sizes", "error", "path")
    assert len(table) == 4
    assert table["size"].tolist() == [3, 3, 4, 4]
    assert table["rate"].tolist() == table["inner.rate"].tolist() == [0.5, 2.0] * 2
    assert (table["error"].shape, table["path"].shape) == ((4, 2), (4, 2, 3))
    assert table["round"].tolist() == [0, 1, 2]
    assert [table.axes(name) for name in ("size", "error", "path")] == [(), ("trial",), ("trial", "round")]
    (one,) = table.select(size=4, rate=2.0)
    assert one["error"].tolist() == [8.0, 8.0]
    assert one["size"] == 4


def test_a_column_of_numbers_and_strings_keeps_both():
    assert lf.Table([{"n": 1}, {"n": "x"}, {"n": None}])["n"].tolist() == [1, "x", None]


def test_values_in_rows_are_plain_numbers_and_strings():
    class Level(enum.IntEnum):
        HIGH = 2

    class Word(enum.StrEnum):
        LOW = "low"

    given = {"a": np.float64(0.5), "b": np.array(3), "c": np.bool_(True), "d": (np.int64(1), [2.0])}
    given |= {"e": Level.HIGH, "f": Word.LOW, "g": (Level.HIGH,)}
    (row,) = lf.Table([given]).rows
    assert row == {"a": 0.5, "b": 3, "c": True, "d": (1, (2.0,)), "e": 2, "f": "low", "g": (2,)}
    assert [type(value) for value in row.values()] == [float, int, bool, tuple, int, str, tuple]
    assert type(row["g"][0]) is int


def labelled(**values):
    """Return a row of arrays without trials along one axis, with the given labels."""
    return {name: lf.LabeledArray(np.ones(len(labels)), r=labels) for name, labels in values.items()}


INVALID = {
    "a table of trials": (
        [{"x": normal(2, 3)}],
        ["x must have shape (trials,)", "(2, 3)", "lf.LabeledArray"],
        TypeError,
    ),
    "two numbers of trials": ([{"x": normal(2), "y": normal(3)}], ["x 2 and y 3"], ValueError),
    "other labels": ([labelled(x=[0, 1], y=[0, 2])], ["y must have the same labels along 'r'"], ValueError),
    "an object": ([{"x": object()}], ["x = <object", "lf.LabeledArray"], TypeError),
    "an array of objects": ([{"x": np.array([None, 1.0])}], ["x must be an array of numbers", "object"], TypeError),
    "complex numbers": ([{"x": np.array([1j])}], ["x must be an array of numbers", "complex"], TypeError),
    "the axis of trials": ([{"trial": 5, **labelled(a=[0, 1])}], ["a column 'trial'", "axis"], ValueError),
    "the name of an axis": ([{"r": 5, **labelled(a=[0, 1])}], ["a column 'r'", "axis"], ValueError),
    "a null character": ([{"a\0b": 1}], ["names of columns", "'a\\x00b'"], ValueError),
    "half a surrogate pair": ([{"\ud800": 1}], ["names of columns", "'\\ud800'"], ValueError),
    "a slash at the end": ([{"a/": 1}], ["must not end in '/'", "'a/'"], ValueError),  # as "a" with an axis "/x"
    "two slashes": ([{"a//b": 1}], ["'//'", "'a//b'"], ValueError),
    "a number as a name": ([{1: 2.0}], ["column names must be strings", "got 1"], TypeError),
    "no mapping": ([3], ["rows[0] = 3", "mapping"], TypeError),
    "one mapping": ({"n": 1}, ["rows = {'n': 1}", "sequence of mappings"], TypeError),
}


@pytest.mark.parametrize("name", INVALID)
def test_rows_that_a_table_cannot_hold_are_refused(name):
    rows, fragments, error = INVALID[name]
    assert_one_line(lambda: lf.Table(rows), fragments, error)


def test_results_that_are_no_rows_of_cells_are_refused():
    for result in (None, 3, "text", ("a", "b")):
        assert_one_line(lambda result=result: lf.Table.of([Cell(1)], [result]), ["Cell.run must return"], TypeError)
    assert_one_line(lambda: lf.Table.of([Cell(1)], []), ["results has 0 values", "1 cells"])
    for cell in (3, Cell, object()):
        assert_one_line(lambda cell=cell: lf.Table.of([Cell(1), cell], [{}] * 2), ["cells[1] = ", "run()"], TypeError)
    assert_one_line(lambda: lf.Table.of(Cell(1), [{}]), ["cells = Cell(n=1)", "sequence of cells"], TypeError)


# --- selection -------------------------------------------------------------------------------------------------------


def test_rows_are_selected_by_value(table):
    assert table.select(size=[3, 4], rate=0.5)["size"].tolist() == [3, 4]
    assert table.select(sizes=(1, 2))["size"].tolist() == [3, 3, 4, 4]
    assert len(table.select(size=5)) == 0
    assert (table.select(size=4) + table.select(size=3))["size"].tolist() == [4, 4, 3, 3]


def test_several_values_are_selected_by_any_collection():
    table = lf.Table([{"n": n, "t": (n, 1), "x": x} for n, x in ((1, 0.5), (2, np.nan), (3, np.nan))])
    for several in ((1, 3), [1, 3], {1, 3}, range(1, 4, 2), np.array([1.0, 3.0])):
        assert table.select(n=several)["n"].tolist() == [1, 3]
    assert table.select(n=np.array(2))["n"] == 2
    assert table.select(t=(2, 1))["n"] == 2
    assert table.select(t=[(2, 1), (3, 1)])["n"].tolist() == [2, 3]


def test_nan_equals_nan():
    table = lf.Table([{"x": x, "pair": (1, (float("nan"), "a")), "n": n} for n, x in enumerate((0.5, np.nan, np.nan))])
    assert table.select(x=np.nan)["n"].tolist() == [1, 2]
    assert [len(part) for _, part in table.groupby("x")] == [1, 2]
    assert len(table.select(pair=[(1, (float("nan"), "a"))])) == 3
    assert [len(part) for _, part in table.groupby("pair")] == [3]
    assert "pair" not in repr(table)  # it does not vary


def test_rows_are_grouped_in_their_order(table):
    assert table.unique("rate") == [0.5, 2.0]
    assert [(key, part["size"].tolist()) for key, part in table.groupby("rate")] == [(0.5, [3, 4]), (2.0, [3, 4])]
    assert [key for key, _ in table.groupby("size", "rate")] == [(3, 0.5), (3, 2.0), (4, 0.5), (4, 2.0)]


def test_columns_are_added_row_by_row(table):
    twice = table.assign(double=lambda row: 2 * row["size"], mean=lambda row: row["error"].mean())
    assert twice["double"].tolist() == [6, 6, 8, 8]
    assert twice["mean"].tolist() == [1.5, 6.0, 2.0, 8.0]
    assert "double" not in table.columns


def test_rows_may_have_different_columns():
    table = lf.Table([{"a": 1, "x": 2.0}, {"a": 2, "y": "w"}])
    assert table.select(x=2.0)["a"] == 1
    assert table.select(y="w")["a"] == 2
    assert [key for key, _ in table.groupby("y")] == [None, "w"]
    assert_one_line(lambda: table["x"], ["some rows have no column 'x'"], ValueError)


AMBIGUOUS = lf.Table([{"a.x": 1, "b.c.x": 2}])
RAGGED = lf.Table([{"e": lf.LabeledArray(normal(2, n), round=range(n)), "n": (1, (2,) * n)} for n in (2, 3)])
UNREADABLE = {
    "an unknown column": (lambda t: t["eror"], ["'eror'", "did you mean 'error'", "'size'"], KeyError),
    "an unknown column to select": (lambda t: t.select(siz=3), ["'siz'", "did you mean 'size'"], KeyError),
    "an axis": (lambda t: t.select(round=3), ["'round' is an axis"], KeyError),
    "an empty table": (lambda t: t.select(size=5)["error"], ["empty table", "'error'"], ValueError),
    "arrays to select": (lambda t: t.select(error=1.5), ["'error' contains arrays"], KeyError),
    "arrays to group": (lambda t: list(t.groupby("path")), ["'path' contains arrays"], KeyError),
    "an ambiguous name": (lambda t: AMBIGUOUS["x"], ["'x' may be 'a.x' or 'b.c.x'"], KeyError),
    "an ambiguous name to group": (lambda t: AMBIGUOUS.unique("x"), ["'a.x' or 'b.c.x'"], KeyError),
    "different shapes": (lambda t: RAGGED["e"], ["'e' has a different shape"], ValueError),
    "different labels": (lambda t: RAGGED["round"], ["different labels along 'round'"], ValueError),
    "ragged tuples": (lambda t: RAGGED["n"], ["column 'n'", "unique()"], ValueError),
    "a row by its place": (lambda t: t[0], ["column = 0"], TypeError),
    "no function": (lambda t: t.assign(double=2), ["double = 2"], TypeError),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_a_table_does_not_have_is_named(name, table):
    call, fragments, error = UNREADABLE[name]
    assert_one_line(lambda: call(table), fragments, error)


def test_labels_with_nan_are_the_same_in_all_rows():
    table = lf.Table([labelled(p=[0.5, np.nan], q=[0.5, np.nan]), labelled(p=[0.5, np.nan])])
    np.testing.assert_array_equal(table["r"], [0.5, np.nan])


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_saved_table_has_the_same_columns(table, tmp_path):
    odd = lf.Table([{"a@r": np.zeros(2), "a": lf.LabeledArray([[1, 2], [3, 4]], r=[7, 8]), "b": (1, (2.0, None))}])
    for one in (table, odd):
        found = lf.Table.load(one.save(tmp_path / "t.npz"))
        assert found.columns == one.columns
        assert found.payload()[1] == one.payload()[1]
        for name, array in one.payload()[0].items():
            assert np.array_equal(found.payload()[0][name], array)
    assert found.rows[0]["b"] == (1, (2.0, None))


def test_a_file_of_something_else_is_no_table(tmp_path):
    problem = lf.SharedRepresentation(n_clients=3, dim=4, rank=2)
    run = lf.simulate(lf.LocalOnly(), problem, data=lf.FixedSamples(5), n_rounds=1)
    assert_one_line(lambda: lf.Table.load(run.save(tmp_path / "run.npz")), ["run.npz", "must be a table"], ValueError)
    (tmp_path / "torn.npz").write_bytes(b"PK")
    assert_one_line(lambda: lf.Table.load(tmp_path / "torn.npz"), ["torn.npz"], ValueError)


# --- a table owns its arrays -----------------------------------------------------------------------------------------


def test_arrays_are_copied_into_a_table():
    given = {"each": normal(3), "word": np.array(["a", "b", "c"]), "fixed": normal(3, seed=1)}
    given["fixed"].setflags(write=False)
    tables = (
        lf.Table([given]),
        lf.Table.of([Cell(1)], [given]),
        lf.Table([{}]).assign(**{name: lambda _, value=value: value for name, value in given.items()}),
    )
    expected = {name: value.copy() for name, value in given.items()}
    given["fixed"].setflags(write=True)
    for array in given.values():
        array[:] = array[::-1].copy()
    for table in tables:
        for name, value in expected.items():
            assert np.array_equal(table[name], value)


MADE = {
    "new": lambda table, folder: table,
    "pickled": lambda table, folder: pickle.loads(pickle.dumps(table)),
    "copied": lambda table, folder: copy.deepcopy(table),
    "loaded": lambda table, folder: lf.Table.load(table.save(folder / "table.npz")),
    "joined": lambda table, folder: list(lf.Table.joined([table, table]))[1],
}


@pytest.mark.parametrize("how", MADE)
def test_what_is_read_from_a_table_changes_no_table(how, tmp_path):
    row = {"each": normal(3), "path": lf.LabeledArray(normal(3, 2), step=[1, 2])}
    table = MADE[how](lf.Table([row]), tmp_path)
    for name in ("each", "path", "step"):
        before = table[name]
        table[name][:] = -1
        assert np.array_equal(table[name], before)
    held = table.rows[0]
    for array in (held["each"], held["path"].values, held["path"].axes["step"]):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = -1
    assert np.array_equal(table["each"], row["each"])
    assert np.array_equal(table["path"], row["path"].values)


def test_rows_of_a_joined_table_are_its_own():
    table = lf.Table([{"n": 1}])
    joined = lf.Table.joined([table, table])
    joined.rows[0]["n"] = 2
    assert (table["n"], joined["n"].tolist()) == (1, [2, 1])


def test_any_iterable_but_a_text_has_several_values():
    table = lf.Table([{"n": n, "rule": rule} for n in (1, 2, 3) for rule in ("a", "b")])
    for allowed in (
        {1: "x", 3: "y"}.keys(),
        deque([1, 3]),
        (n for n in (1, 3)),
        {1, 3},
        np.array([1, 3]),
        range(1, 4, 2),
    ):
        assert table.select(n=allowed)["n"].tolist() == [1, 1, 3, 3]
    pandas = pytest.importorskip("pandas")
    assert table.select(n=pandas.Series([1, 3]))["n"].tolist() == [1, 1, 3, 3]
    assert len(table.select(rule="a")) == 3


def test_axes_are_those_of_the_first_array():
    rows = [{"n": 1}, {"n": 2, "error": np.ones(3)}, {"n": 3, "error": lf.LabeledArray([[1.0, 2.0]], round=[0, 1])}]
    assert lf.Table(rows).axes("error") == ("trial",)
    assert lf.Table(rows[::-1]).axes("error") == ("trial", "round")
    assert lf.Table(rows).axes("n") == ()


def test_a_summary_needs_numbers():
    table = lf.Table([{"n": n, "status": np.array(["COMPLETED", "DIVERGED"])} for n in (1, 2)])
    assert_one_line(lambda: table.summarize("status", rows="n"), ["metric = 'status'", "must have numbers"])
