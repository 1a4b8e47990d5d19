"""Sweeps: rows in the order of the cells, failed cells that cost no other cell anything, warnings, and options."""

import os
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.sweeps.scheduler import run_cells
from linfed.sweeps.store import keys_of
from tests.helpers import assert_one_line
from tests.sweeps.some_cells import RAN, RUN, Square, computed, values

CELLS = [Square(3), Square(1), Square(2)]


@pytest.fixture(params=["here", "in a thread"])
def executor(request):
    with nullcontext() if request.param == "here" else ThreadPoolExecutor(1) as found:
        yield found


@dataclass(frozen=True)
class Costly(Square):
    @property
    def cost(self):
        return self.number


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_come_in_the_order_of_the_cells(tmp_path, executor):
    assert values(lf.sweep(CELLS, store=tmp_path, executor=executor)) == [9, 1, 4]
    assert sorted(RAN) == [1, 2, 3]
    assert values(lf.sweep([Square(2), Square(4)], store=tmp_path)) == [4, 16]
    assert sorted(RAN) == [1, 2, 3, 4]
    assert len(lf.sweep([])) == 0


def test_the_longest_cells_start_first():
    assert values(lf.sweep([Costly(2), Costly(5), Costly(3)])) == [4, 25, 9]
    assert RAN == [5, 3, 2]


def test_equal_cells_are_computed_once_where_they_are_kept(tmp_path):
    with ThreadPoolExecutor(4) as executor:
        assert values(lf.sweep([Square(3)] * 8, store=tmp_path, executor=executor)) == [9] * 8
    assert RAN == [3]
    assert len(list(tmp_path.iterdir())) == 1
    assert values(lf.sweep([Square(3)] * 2)) == [9, 9]
    assert RAN == [3] * 3


BUFFER = np.zeros(3)


@dataclass(frozen=True)
class Reuses:
    """A cell that returns a buffer, which the next cell overwrites, in several forms and rows."""

    number: int

    def run(self):
        BUFFER[:] = self.number
        path = lf.LabeledArray(BUFFER[:, None], step=BUFFER[:1])
        return [{"each": BUFFER, "path": path}, {"each": BUFFER[::-1], "path": path}]


def test_a_buffer_that_is_used_again_changes_no_row(tmp_path, executor):
    cells = [Reuses(number) for number in (0, 1, 2, 1)]
    for store in (None, tmp_path, tmp_path):
        table = lf.sweep(cells, store=store, executor=executor)
        assert [row["each"].tolist() for row in table] == [[number] * 3 for number in (0, 0, 1, 1, 2, 2, 1, 1)]
        assert [row["step"].tolist() for row in table] == [[number] for number in (0, 0, 1, 1, 2, 2, 1, 1)]


def test_the_processor_time_covers_reused_cells_and_equal_cells_once(tmp_path):
    store = lf.Store(tmp_path)
    cells = [Square(1), Square(2), Square(1)]
    first = run_cells(cells, store).processor_seconds
    stored = [one["processor_seconds"] for one in store.records(cells[:2])]
    assert first == pytest.approx(sum(stored), abs=1e-4)
    assert run_cells(cells, store).processor_seconds == pytest.approx(first, abs=1e-4)
    (key,) = keys_of(cells[:1])
    (done,) = store.read([key])
    store.write(key, done._replace(record={k: v for k, v in done.record.items() if k != "processor_seconds"}))
    assert run_cells(cells, store).processor_seconds is None


# --- cells that fail -------------------------------------------------------------------------------------------------


def test_a_cell_that_raises_costs_no_other_cell_anything(tmp_path, executor):
    cells = [Square(1), Square(2, fails=True), Square(3), Square(4, fails=True)]
    with pytest.raises(lf.SweepError) as caught:
        lf.sweep(cells, store=tmp_path, executor=executor)
    error = caught.value
    assert str(error).startswith("2 of 4 cells raised, the others are finished: RuntimeError: unlucky (")
    assert "some_cells.py:" in str(error)
    assert "in the cell Square(number=2, fails=True, seed=0); RuntimeError" in str(error)
    assert "\n" not in str(error)
    assert [failure.cell for failure in error.failures] == [cells[1], cells[3]]
    assert values(error.table) == [1, 9]
    assert isinstance(error.__cause__, RuntimeError)
    assert computed([cells[0], cells[2]], tmp_path) == []


def test_five_failures_are_listed():
    for count, more in ((5, ""), (7, "; and 2 more")):
        with pytest.raises(lf.SweepError) as caught:
            lf.sweep([Square(number, fails=True) for number in range(count)])
        assert str(caught.value).count("unlucky") == 5
        assert str(caught.value).endswith(f"in the cell Square(number=4, fails=True, seed=0){more}")


@dataclass(frozen=True)
class Does:
    """Does what it is told."""

    what: str
    values: tuple = ()

    def run(self):
        return getattr(self, self.what)()

    def exits(self):
        raise SystemExit(0)

    def breaks(self):
        raise BrokenProcessPool("an inner pool")

    def stops(self):
        return next(iter(()))

    def is_silent(self):
        raise ValueError

    def is_long(self):
        raise ValueError("a word " * 1000)

    def has_a_number_for_a_name(self):
        return {1: 2.0}

    def returns_a_number(self):
        return 3

    def changes_itself(self):
        object.__setattr__(self, "values", (1,))
        return {"value": 1}

    def moves_away(self):
        os.chdir("/")
        return {"value": 1}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("exits", r"RuntimeError: SystemExit: 0 \("),
        ("breaks", r"RuntimeError: BrokenProcessPool: an inner pool \("),
        ("stops", r"RuntimeError: StopIteration: \("),
        ("is_silent", r"ValueError: ValueError\(\) \("),
        ("is_long", r"ValueError: (a word )+.{0,10}\.\.\. \("),
        ("has_a_number_for_a_name", "TypeError: column names must be strings, got 1"),
        ("returns_a_number", "TypeError: .*Does.run must return a mapping"),
        ("changes_itself", r"ValueError: run\(\) has changed the cell's fields"),
    ],
)
def test_whatever_a_cell_does_costs_no_other_cell_anything(what, said, executor, tmp_path):
    with pytest.raises(lf.SweepError, match=said) as caught:
        lf.sweep([Square(1), Does(what), Square(3)], store=tmp_path, executor=executor)
    assert values(caught.value.table) == [1, 9]
    assert len(str(caught.value)) < 1000


def test_a_relative_store_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lf.sweep([Does("moves_away"), Square(2)], store="here")
    assert len(list((tmp_path / "here").iterdir())) == 2


# --- warnings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Renames:
    number: int
    other: float = float("nan")

    def run(self):
        if self.number < 0:
            return [{"number": self.number, "value": 1}, {"number": 2 * self.number, "value": 2}]
        return {"number": 10 * self.number, "other": self.other, "value": 1}


def test_a_column_with_the_name_of_a_field_is_refused(tmp_path):
    with pytest.warns(UserWarning, match=r"^run\(\) of Renames returned a column 'number', which is a field") as caught:
        table = lf.sweep([Renames(5), Renames(6), Renames(-1)], store=tmp_path)
    assert (len(caught), caught[0].filename) == (1, __file__)  # and not of 'other', which is the same
    assert table["number"].tolist() == [5, 6, -1, -1]
    assert values(table) == [1, 1, 1, 2]
    assert lf.sweep([RUN])["engine"] != RUN.engine  # a run may: it has the one that was used


class Noted(Square):
    """A cell that warns of its rows."""

    @staticmethod
    def notes(done):
        return [UserWarning(f"{len(done)} cells of {sum(row['value'] for _, table in done for row in table.rows)}")]


class Annotated(Noted):
    notes = staticmethod(lambda done: Noted.notes(done))


def test_a_class_of_cells_warns_of_its_rows_once(tmp_path):
    with pytest.warns(UserWarning, match=r"^5 cells of 119$") as caught:
        lf.sweep([Noted(2), Square(9), Noted(3), Annotated(4), Annotated(3)], store=tmp_path)
    assert (len(caught), caught[0].filename) == (1, __file__)
    with pytest.warns(UserWarning, match=r"^2 cells of 13$"):
        lf.sweep([Noted(2), Noted(3)], store=tmp_path)


# --- options ---------------------------------------------------------------------------------------------------------

INVALID = {
    "progress": ({"progress": "yes"}, ["progress = 'yes'", "True, False, or None"], ValueError),
    "no workers": ({"workers": 0}, ["workers = 0", "at least 1"], ValueError),
    "nothing pending": ({"max_pending": 0}, ["max_pending = 0", "at least 1"], ValueError),
    "half a shard": ({"shard": 3}, ["shard = 3", "(i, n)"], ValueError),
    "a shard beyond the last": ({"shard": (3, 2)}, ["shard[0] = 3", "from 1 to 2"], ValueError),
    "a shard before the first": ({"shard": (0, 2)}, ["shard[0] = 0"], ValueError),
    "stale cells of no store": ({"reuse_stale": True}, ["reuse_stale = True requires store="], ValueError),
    "to recompute no store": ({"recompute": True}, ["recompute = True requires store="], ValueError),
    "to reuse and recompute": (
        {"reuse_stale": True, "recompute": True, "store": "here"},
        ["reuse_stale = True", "recompute = True"],
        ValueError,
    ),
    "a number to reuse": ({"reuse_stale": 1, "store": "here"}, ["reuse_stale = 1", "True or False"], ValueError),
    "a number as executor": ({"executor": 3}, ["executor = 3", "submit"], TypeError),
    "a class as executor": ({"executor": ThreadPoolExecutor}, ["executor = ", "submit"], TypeError),
    "a number as store": ({"store": 5}, ["store = 5 must be a folder"], ValueError),
    "an empty path": ({"store": ""}, ["store = '' must be a folder"], ValueError),
    "a file as store": ({"store": "file"}, ["store = 'file' must be a folder"], ValueError),
    "a null character": ({"store": "a\0b"}, ["store = 'a\\x00b' must be a folder"], ValueError),
    "one cell": ({"cells": RUN}, ["cells = Run(", "lf.grid(run, ...)"], TypeError),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_options_are_named_before_anything_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    options, fragments, error = INVALID[name]
    assert_one_line(lambda: lf.sweep(**{"cells": CELLS} | options), fragments, error)
    assert RAN == []
