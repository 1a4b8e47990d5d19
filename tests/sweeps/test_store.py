"""The store: which cells it has, what it believes of their files, and what a sweep takes from it."""

import importlib
import os
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import linfed as lf
from linfed.errors import WriteError
from linfed.sweeps import store as store_module
from linfed.sweeps.executors import ExecutionOptions
from linfed.sweeps.scheduler import _Sweep
from linfed.sweeps.store import keys_of
from tests.helpers import assert_one_line
from tests.sweeps.some_cells import RAN, Square, computed, values

CELLS = [Square(3), Square(1), Square(2)]


# --- cells that are there --------------------------------------------------------------------------------------------


def test_missing_cells_and_the_table_of_what_is_there(tmp_path):
    store = lf.Store(tmp_path)
    lf.sweep(CELLS[:2], store=store)
    RAN.clear()
    assert store.missing(CELLS) == CELLS[2:]
    assert values(store.table(CELLS[:2])) == [9, 1]
    assert values(store.table(CELLS, incomplete=True)) == [9, 1]
    assert_one_line(lambda: store.table(CELLS), ["1 of 3 cells are missing", "incomplete=True"])
    assert RAN == []


def test_a_record_says_how_a_cell_was_computed(tmp_path):
    lf.sweep([Square(3, seed=7)], store=tmp_path)
    record, none = lf.Store(tmp_path).records([Square(3, seed=7), Square(4)])
    assert none is None
    assert record["seed"] == 7
    assert record["config"]["fields"] == {"number": 3, "fails": False, "seed": 7}
    assert record["versions"]["numpy"] == np.__version__
    assert "processors (" in record["machine"]
    assert 0 <= record["seconds"] < 10
    assert 0 <= record["processor_seconds"] < 10
    assert record["blas"]
    assert {"commit", "ended"} <= record.keys()


def test_stores_merge_by_copying(tmp_path):
    one, other = (lf.sweep(CELLS, store=tmp_path / str(i), shard=(i, 2)) for i in (1, 2))
    assert (values(one), values(other)) == ([9, 1], [4])
    for path in (tmp_path / "2").iterdir():
        shutil.copy(path, tmp_path / "1")
    assert computed(CELLS, tmp_path / "1") == []
    assert values(lf.Store(tmp_path / "1").table(CELLS)) == [9, 1, 4]


def test_what_another_process_is_writing_is_neither_read_nor_removed(tmp_path):
    unfinished = tmp_path / f".{keys_of(CELLS)[0].name}.0123456789ab"
    unfinished.write_text("half")
    os.utime(unfinished, (0, 0))
    assert [len(computed(CELLS, tmp_path)) for _ in range(2)] == [3, 0]
    assert unfinished.read_text() == "half"
    assert len(list(tmp_path.iterdir())) == 4  # and nothing else is left


def test_recompute_computes_what_is_there(tmp_path):
    assert [len(computed(CELLS, tmp_path, recompute=again)) for again in (False, True, False)] == [3, 3, 0]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_recompute_that_is_interrupted_resumes_without_the_option(tmp_path):
    lf.sweep(CELLS, store=tmp_path)
    stopped = ThreadPoolExecutor(1)
    stopped.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        lf.sweep(CELLS[:2], store=tmp_path, recompute=True, executor=stopped)
    assert computed(CELLS, tmp_path) == [3, 1]


def test_a_recompute_with_an_invalid_cell_removes_nothing(tmp_path):
    lf.sweep(CELLS, store=tmp_path)
    with pytest.raises(ValueError, match="cannot be"):
        lf.sweep([*CELLS, Checked(3)], store=tmp_path, recompute=True)
    assert computed(CELLS, tmp_path) == []


def test_shards_that_recompute_keep_what_the_others_have_computed(tmp_path):
    cells = [Square(n) for n in (-1, -2, -1, -3)]  # of one cost; the third is the first, and counts once
    lf.sweep(cells, store=tmp_path)
    assert [len(computed(cells, tmp_path, shard=(i, 2), recompute=True)) for i in (1, 2)] == [2, 1]
    assert computed(cells, tmp_path) == []
    assert len(computed(cells, tmp_path, shard=(3, 3), recompute=True)) == 1
    assert computed(cells, tmp_path) == []


@dataclass(frozen=True)
class Checked(Square):
    def check(self):
        raise ValueError(f"number = {self.number} cannot be")


@dataclass(frozen=True)
class Of:
    part: object

    def run(self):
        return {"value": 1}


def test_cells_without_a_key_need_no_store(tmp_path):
    namespace = {"__name__": "nowhere"}
    exec("class Own:\n    def run(self):\n        return {'value': 1}", namespace)
    nowhere = dataclass(frozen=True)(namespace["Own"])()
    unnamed = Of(lambda: 1)
    assert values(lf.sweep([unnamed, nowhere])) == [1, 1]
    assert_one_line(lambda: lf.sweep([unnamed], store=tmp_path), ["store= cannot identify"], TypeError)
    assert_one_line(lambda: lf.sweep([nowhere], store=tmp_path), ["store= requires the source file of", "none"])


# --- other code ------------------------------------------------------------------------------------------------------


@pytest.fixture
def own_cells(tmp_path, monkeypatch):
    """Return a function that writes and imports a cell whose value is a factor, and returns two cells."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def cells(factor):
        lines = ["from dataclasses import dataclass", "@dataclass(frozen=True)", "class Own:", "    n: int = 1"]
        lines += ["    def run(self):", f"        return {{'value': {factor} * self.n}}"]
        (tmp_path / "own_cell.py").write_text("\n".join(lines))
        sys.modules.pop("own_cell", None)
        importlib.invalidate_caches()
        return lf.grid(importlib.import_module("own_cell").Own(), n=(1, 2))

    yield cells
    sys.modules.pop("own_cell", None)


def test_stale_cells_are_recomputed_or_the_newest_is_reused(own_cells, tmp_path):
    store = tmp_path / "store"
    assert values(lf.sweep(own_cells(2), store=store)) == [2, 4]
    second = own_cells(5)
    with pytest.warns(lf.StoreWarning, match="1 of 1 cells .* and are recomputed; reuse_stale="):
        assert values(lf.sweep(second[:1], store=store)) == [5]
    for factor in (7, 11, 13, 17):  # the names of their files have no order
        third = own_cells(factor)
        assert len(lf.Store(store).missing(third)) == 2
        with pytest.warns(lf.StoreWarning, match="2 of 2 cells were computed by other code, or with other"):
            assert values(lf.sweep(third, store=store, reuse_stale=True)) == [5, 4]
    lf.sweep(third[:1], store=store, recompute=True)
    with pytest.warns(lf.StoreWarning, match="1 of 2 cells"):
        lf.sweep(third, store=store, reuse_stale=True)


def test_no_cell_is_repeated_if_its_code_has_changed(own_cells, tmp_path):
    """A process that starts then would import the new code."""
    state = _Sweep(own_cells(2), lf.Store(tmp_path / "store"), ExecutionOptions())
    state._check_restart()
    path = tmp_path / "own_cell.py"
    path.write_text(path.read_text().replace("2 * self.n", "3 * self.n"))
    assert_one_line(state._check_restart, ["'own_cell'", "has changed since it was imported"])


def test_a_file_of_other_code_under_the_present_name_is_not_believed(own_cells, tmp_path):
    first = own_cells(2)[:1]
    lf.sweep(first, store=tmp_path / "store")
    (path,) = (tmp_path / "store" / key.name for key in keys_of(first))
    second = own_cells(5)[:1]
    path.rename(path.with_name(keys_of(second)[0].name))
    with pytest.warns(lf.StoreWarning, match="does not match its name"):
        assert values(lf.sweep(second, store=tmp_path / "store")) == [5]


def test_a_cell_that_another_sweep_has_just_finished_is_not_stale(tmp_path):
    lf.sweep(CELLS[:1], store=tmp_path)
    lf.Store(tmp_path).warn_of_others(keys_of(CELLS))  # a warning is an error here


def test_cells_of_an_earlier_format_are_computed_again_and_named_once(tmp_path):
    lf.sweep(CELLS, store=tmp_path)
    for path in tmp_path.glob("*.cell"):
        path.rename(tmp_path / path.name.replace(".2.cell", ".cell"))
    with pytest.warns(lf.StoreWarning, match=r"3 cells of an earlier version .*can be deleted") as caught:
        assert len(computed(CELLS, tmp_path)) == 3
    assert len(caught) == 1
    assert computed(CELLS, tmp_path) == []  # nothing is missing, and nothing is said


def test_a_worker_with_other_code_is_refused(tmp_path, monkeypatch):
    sent = store_module.code_key

    def other(owners):
        return sent(owners) if threading.current_thread() is threading.main_thread() else "of yesterday"

    monkeypatch.setattr(store_module, "code_key", other)
    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(lf.SweepError, match="this worker runs a different version of the code"):
            lf.sweep([Square(2)], store=tmp_path, executor=executor)
        assert values(lf.sweep([Square(2)], executor=executor)) == [4]


# --- what is believed of a file --------------------------------------------------------------------------------------


def flipped(content):
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


SPOILT = {
    "torn": (lambda content: content[:-5], "is damaged"),
    "flipped": (flipped, "is damaged"),
    "of another seed": (lambda content: content.replace(b'"seed": 0', b'"seed": 1'), "is damaged"),
    "empty": (lambda content: b"", "is not a cell"),
    "no text": (lambda content: bytes(range(256)) * 2, "is not a cell"),
    "of another format": (lambda content: content.replace(b"cell 2 ", b"cell 1 ", 1), "is not a cell of format 2"),
    "another cell": (None, "does not match its name"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_damaged_or_foreign_file_is_replaced_when_its_cell_is_computed_anew(how, tmp_path):
    spoil, said = SPOILT[how]
    table = lf.sweep(CELLS, store=tmp_path)
    path, other = (tmp_path / key.name for key in keys_of(CELLS[1:]))
    spoilt = other.read_bytes() if spoil is None else spoil(path.read_bytes())
    path.write_bytes(spoilt)
    RAN.clear()
    with pytest.warns(lf.StoreWarning, match=f"{path.name}' .*{said}.*: its cell counts as missing") as caught:
        again = lf.sweep(CELLS, store=tmp_path)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert RAN == [1]
    assert again.payload()[1] == table.payload()[1]
    assert computed(CELLS, tmp_path) == []


def test_every_place_where_a_file_may_end_is_found_out(tmp_path):
    lf.sweep([Square(3)], store=tmp_path)
    (path,) = tmp_path.glob("*.cell")
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.warns(lf.StoreWarning):
            assert lf.Store(tmp_path).missing([Square(3)])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_of_a_pipe_nothing_is_read(tmp_path):
    """That would wait for its writer."""
    os.mkfifo(tmp_path / keys_of(CELLS)[0].name)
    with pytest.warns(lf.StoreWarning, match="is not a regular file: its cell counts as missing"):
        assert values(lf.sweep(CELLS, store=tmp_path)) == [9, 1, 4]
    assert computed(CELLS, tmp_path) == []


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    (tmp_path / keys_of(CELLS)[0].name).mkdir()
    with pytest.warns(lf.StoreWarning, match="is not a regular file"):
        assert_one_line(lambda: lf.sweep(CELLS, store=tmp_path), ["cannot be written"], WriteError)


def test_a_file_that_cannot_be_read_now_may_be_read_later(tmp_path, monkeypatch):
    lf.sweep(CELLS, store=tmp_path)

    def fails(path):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fails)
        with pytest.warns(lf.StoreWarning, match="cannot be read .Too many open files"):
            assert len(lf.Store(tmp_path).missing(CELLS)) == 3
    assert lf.Store(tmp_path).missing(CELLS) == []


# --- where nothing can be written ------------------------------------------------------------------------------------


@contextmanager
def read_only():
    """Return a context in which no file can be written, renamed or removed."""
    plain = Path.open

    def refuses(*_, **__):
        raise OSError(30, "Read-only file system")

    def opened(path, mode="r", *more):
        return refuses() if "w" in mode else plain(path, mode, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", opened)
        for name in ("replace", "unlink"):
            patch.setattr(os, name, refuses)
        yield


def test_a_finished_store_is_read_where_nothing_can_be_written(tmp_path):
    lf.sweep(CELLS, store=tmp_path)
    with read_only():
        assert values(lf.sweep(CELLS, store=tmp_path)) == [9, 1, 4]


def test_a_store_that_cannot_be_written_is_named_and_keeps_what_is_there(tmp_path):
    lf.sweep(CELLS[:1], store=tmp_path)
    with read_only():
        assert_one_line(
            lambda: lf.sweep(CELLS, store=tmp_path), ["cannot be written: Read-only file system"], WriteError
        )
    assert lf.Store(tmp_path).missing(CELLS) == CELLS[1:]
    assert values(lf.sweep(CELLS, store=tmp_path)) == [9, 1, 4]
