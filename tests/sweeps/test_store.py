"""The store: what names a cell, what is believed of its file, and what a sweep takes from it."""

import contextvars
import functools
import hashlib
import importlib
import json
import os
import pkgutil
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from enum import KEEP, Enum, Flag
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import linfed
import linfed as lf
from linfed._values import Configuration, EqualByValue
from linfed.cells.run import Part
from linfed.errors import WriteError
from linfed.sweeps.scheduler import run_cells
from linfed.sweeps.store import keys_of
from linfed.system.description import describe
from linfed.system.files import replacing
from tests.helpers import assert_one_line, each

RAN = []


@dataclass(frozen=True)
class Square:
    number: int
    fails: bool = False
    seed: int = 0

    def run(self):
        RAN.append(self.number)
        if self.fails:
            raise RuntimeError("unlucky")
        return {"value": self.number**2, "each": np.arange(3.0) * self.number}


@dataclass(frozen=True)
class Costly(Square):
    @property
    def cost(self):
        return self.number


@dataclass(frozen=True)
class Of:
    part: object

    def run(self):
        RAN.append(self.part)
        return {"value": 1}


@pytest.fixture(autouse=True)
def fresh():
    RAN.clear()


def values(table):
    return [row["value"] for row in table]


def ran(cells, store, **options):
    """Return how many cells a sweep computed."""
    RAN.clear()
    lf.sweep(cells, store=store, **options)
    return len(RAN)


# --- what names a cell ---------------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1
    BLUE = 2


class Kept(Flag, boundary=KEEP):
    ONE = 1


@dataclass(frozen=True)
class Given:
    n: int

    def __init__(self, n, more):
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "more", more)


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
    (Square(1), Costly(1)),
    (Given(1, 2), Given(1, 3)),
    (Square, Costly),
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


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_values_have_one_text(one, other):
    assert describe(one).text == describe(other).text
    json.loads(describe(one).text, parse_constant=pytest.fail)


@each(("one", "other"), DIFFERENT)
def test_different_values_have_different_texts(one, other):
    assert describe(one).text != describe(other).text


def test_a_description_is_the_same_everywhere():
    """On every machine, in every process, and wherever a class of linfed stands."""
    array = np.arange(3, dtype="<i4")
    content = hashlib.sha256(b"<i4 [3] \0\0\0\0\1\0\0\0\2\0\0\0").hexdigest()
    assert describe((lf.FreshSamples(5), 0.5, {"b": None, "a": array})).text == (
        '{"tuple":[{"fields":{"n_samples":5},"is":"linfed.FreshSamples"},{"float":"0x1.0000000000000p-1"},'
        '{"dict":[["b",null],["a",{"array":"' + content + '","of":"<i4","scalar":false,"shape":[3]}]]}]}'
    )
    names = [cls.__qualname__ for cls in configurations()]
    assert len(names) == len({*names}) > 80


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


def test_what_cannot_be_told_from_others_is_refused(tmp_path):
    def inner():
        pass

    itself = []
    itself.append(itself)

    class Inner:
        pass

    wrapped = functools.wraps(ran)(lambda: 1)
    unnamed = (lambda: 1, inner, Inner, Inner(), wrapped, type("Square", (), {"__module__": __name__}))
    for value in (*unnamed, np.frompyfunc(lambda x: 2 * x, 1, 1), functools.cache(lambda: 1)):
        assert_one_line(lambda v=value: describe(v).text, ["store= cannot identify", "level of a module"], TypeError)
    assert_one_line(lambda: describe(np.random.default_rng(0)), ["Generator", "pass a seed"], TypeError)
    assert_one_line(lambda: describe(itself), ["contain itself"], TypeError)
    with (tmp_path / "open").open("w") as file:
        assert_one_line(lambda: describe(file), ["store= cannot describe", "TextIOWrapper"], TypeError)
    assert_one_line(lambda: lf.sweep([Of(lambda: 1)], store=tmp_path), ["store= cannot identify"], TypeError)
    assert values(lf.sweep([Of(lambda: 1)])) == [1]


def test_a_cell_of_a_class_without_a_file_needs_no_store(tmp_path):
    namespace = {"__name__": "nowhere"}
    exec("class Own:\n    def run(self):\n        return {'value': 1}", namespace)
    own = dataclass(frozen=True)(namespace["Own"])()
    assert values(lf.sweep([own])) == [1]
    assert_one_line(lambda: lf.sweep([own], store=tmp_path), ["store= requires the source file of", "which has none"])


# --- other code ----------------------------------------------------------------------------------------------

OWN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Own:
    n: int = 1

    def run(self):
        return {{"value": {factor} * self.n}}
"""


@pytest.fixture
def own_cells(tmp_path, monkeypatch):
    """Return a function that writes and imports a cell whose value is a factor, and returns two cells."""
    monkeypatch.syspath_prepend(tmp_path)

    def cells(factor):
        (tmp_path / "own_cell.py").write_text(OWN.format(factor=factor))
        sys.modules.pop("own_cell", None)
        importlib.invalidate_caches()
        return lf.grid(importlib.import_module("own_cell").Own(), n=(1, 2))

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield cells
    sys.modules.pop("own_cell", None)


def test_cells_of_an_earlier_version_are_computed_again_and_named_once(tmp_path):
    cells = [Square(number) for number in range(3)]
    assert ran(cells, tmp_path) == 3
    for path in tmp_path.glob("*.cell"):
        path.rename(tmp_path / path.name.replace(".2.cell", ".cell"))
    with pytest.warns(lf.StoreWarning, match=r"3 cells of an earlier version .*can be deleted") as caught:
        assert ran(cells, tmp_path) == 3
    assert len(caught) == 1
    assert ran(cells, tmp_path) == 0  # nothing is missing, and nothing is said


def test_keep_takes_the_newest_that_other_code_computed_and_says_so(own_cells, tmp_path):
    store = tmp_path / "store"
    first = own_cells(2)
    assert values(lf.sweep(first, store=store)) == [2, 4]
    second = own_cells(5)
    with pytest.warns(lf.StoreWarning, match="1 of 1 cells .* and are recomputed; reuse_stale="):
        assert values(lf.sweep(second[:1], store=store)) == [5]
    third = own_cells(7)
    assert len(lf.Store(store).missing(third)) == 2
    with pytest.warns(lf.StoreWarning, match="2 of 2 cells were computed by another version of the code"):
        assert values(lf.sweep(third, store=store, reuse_stale=True)) == [5, 4]
    lf.sweep(third[:1], store=store, recompute=True)
    with pytest.warns(lf.StoreWarning, match="1 of 2 cells"):
        lf.sweep(third, store=store, reuse_stale=True)


def test_fresh_computes_what_is_there(tmp_path):
    cells = [Square(1), Square(2)]
    assert [ran(cells, tmp_path), ran(cells, tmp_path, recompute=True), ran(cells, tmp_path)] == [2, 2, 0]
    assert len(list(tmp_path.glob("*.cell"))) == len(list(tmp_path.glob("aside/*.cell"))) == 2


def test_shards_that_recompute_keep_what_the_others_have_computed(tmp_path):
    cells = [Square(n) for n in (-1, -2, -1, -3)]  # of one cost; the third is the first, and of the same shard
    lf.sweep(cells, store=tmp_path)
    assert [ran(cells, tmp_path, shard=(i, 2), recompute=True) for i in (1, 2)] == [1, 2]
    assert ran(cells, tmp_path) == 0
    assert ran(cells, tmp_path, shard=(3, 3), recompute=True) == 0  # the shard of the equal cell has the first one
    assert ran(cells, tmp_path) == 0


# --- what is believed of a file ------------------------------------------------------------------------------

CELLS = [Square(3), Square(1), Square(2)]


def torn(path):
    path.write_bytes(path.read_bytes()[:-5])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def told_otherwise(path):
    path.write_bytes(path.read_bytes().replace(b'"seed": 0', b'"seed": 1'))


def of_another(path):
    other = next(one for one in path.parent.glob("*.cell") if one != path)
    shutil.copy(other, path)


def of_another_format(path):
    path.write_bytes(path.read_bytes().replace(b"linfed cell 2 ", b"linfed cell 1 "))


@pytest.mark.long
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (torn, "is damaged"),
        (flipped, "is damaged"),
        (told_otherwise, "is damaged"),
        (lambda path: path.write_bytes(b""), "is not a cell written by linfed"),
        (lambda path: path.write_bytes(bytes(range(256)) * 2), "is not a cell written by linfed"),
        (of_another, "contains a cell that does not match its name"),
        (of_another_format, "has format 1, but this version of linfed reads format 2"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_set_aside_and_computed_anew(spoil, told, tmp_path):
    table = lf.sweep(CELLS, store=tmp_path)
    path = tmp_path / keys_of(CELLS)[1].name
    spoil(path)
    spoiled = path.read_bytes()
    RAN.clear()
    with pytest.warns(lf.StoreWarning, match=f"{path.name}' {told}.*: set aside in") as caught:
        again = lf.sweep(CELLS, store=tmp_path)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    assert RAN == [1]
    assert again.payload()[1] == table.payload()[1]
    assert (tmp_path / "aside" / path.name).read_bytes() == spoiled
    assert ran(CELLS, tmp_path) == 0


def test_every_place_where_a_file_may_end_is_found_out(tmp_path):
    lf.sweep([Square(3)], store=tmp_path)
    (path,) = tmp_path.glob("*.cell")
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.warns(lf.StoreWarning):
            assert lf.Store(tmp_path).missing([Square(3)])


@pytest.mark.parametrize("make", [Path.mkdir, getattr(os, "mkfifo", Path.mkdir)])
def test_what_is_not_a_file_is_set_aside(make, tmp_path):
    """Of a pipe nothing is read: that would wait for its writer."""
    make(tmp_path / keys_of(CELLS)[0].name)
    with pytest.warns(lf.StoreWarning, match="is not a regular file: set aside in"):
        assert values(lf.sweep(CELLS, store=tmp_path)) == [9, 1, 4]


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


def test_the_processor_time_of_a_sweep_covers_reused_cells_and_equal_cells_once(tmp_path):
    store = lf.Store(tmp_path)
    cells = [Square(1), Square(2), Square(1)]
    first = run_cells(cells, store).processor_seconds
    stored = [one["processor_seconds"] for one in store.records(cells[:2])]
    assert first == pytest.approx(sum(stored), abs=1e-4)
    assert run_cells(cells, store).processor_seconds == pytest.approx(first, abs=1e-4)
    keys = keys_of(cells)
    done = store.read(keys[:1])[0]
    store.write(keys[0], done._replace(record={k: v for k, v in done.record.items() if k != "processor_seconds"}))
    assert run_cells(cells, store).processor_seconds is None


def test_missing_cells_and_the_table_of_what_is_there(tmp_path):
    store = lf.Store(tmp_path)
    lf.sweep(CELLS[:2], store=store)
    RAN.clear()
    assert store.missing(CELLS) == CELLS[2:]
    assert values(store.table(CELLS[:2])) == [9, 1]
    assert values(store.table(CELLS, incomplete=True)) == [9, 1]
    assert_one_line(lambda: store.table(CELLS), ["1 of 3 cells are missing", "incomplete=True"])
    assert RAN == []
    for path in (tmp_path / "file", ""):
        (tmp_path / "file").write_text("")
        assert_one_line(lambda path=path: lf.Store(path), ["store = ", "must be a folder"])


def test_stores_merge_by_copying(tmp_path):
    one, other = (lf.sweep(CELLS, store=tmp_path / str(i), shard=(i, 2)) for i in (1, 2))
    assert (values(one), values(other)) == ([9, 1], [4])
    for path in (tmp_path / "2").iterdir():
        shutil.copy(path, tmp_path / "1")
    assert ran(CELLS, tmp_path / "1") == 0
    assert values(lf.Store(tmp_path / "1").table(CELLS)) == [9, 1, 4]


def test_what_another_process_is_writing_is_neither_read_nor_removed(tmp_path):
    unfinished = tmp_path / f".{keys_of(CELLS)[0].name}.0123456789ab"
    unfinished.write_text("half")
    os.utime(unfinished, (0, 0))
    assert [ran(CELLS, tmp_path), ran(CELLS, tmp_path)] == [3, 0]
    assert unfinished.read_text() == "half"
    assert len(list(tmp_path.iterdir())) == 4  # and nothing else is left


def test_a_store_that_cannot_be_written_is_one_line_and_keeps_what_is_there(tmp_path, monkeypatch):
    lf.sweep(CELLS[:1], store=tmp_path)
    kept = Path.open

    def full(path, mode="r", *arguments, **options):
        if "w" in mode:
            raise OSError(28, "No space left on device")
        return kept(path, mode, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full)
        assert_one_line(
            lambda: lf.sweep(CELLS, store=tmp_path), ["cannot be written: No space left on device"], WriteError
        )
    assert lf.Store(tmp_path).missing(CELLS) == CELLS[1:]
    assert values(lf.sweep(CELLS, store=tmp_path)) == [9, 1, 4]


def test_a_finished_store_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    lf.sweep(CELLS, store=tmp_path)

    def refuses(*_, **__):
        raise OSError(30, "Read-only file system")

    kept = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode="r", *more: refuses() if "w" in mode else kept(path, mode, *more)
    )
    for name in ("replace", "unlink"):
        monkeypatch.setattr(os, name, refuses)
    assert values(lf.sweep(CELLS, store=tmp_path)) == [9, 1, 4]
    assert_one_line(
        lambda: lf.sweep([*CELLS, Square(5)], store=tmp_path), ["cannot be written: Read-only file system"], WriteError
    )


def test_an_unfinished_file_that_cannot_be_removed_hides_no_error(tmp_path, monkeypatch):
    def refuses(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuses)
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "file"):
        raise KeyboardInterrupt
    with pytest.raises(WriteError, match="cannot be written: No space left"), replacing(tmp_path / "file"):
        raise OSError(28, "No space left on device")


# --- what a sweep does ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, 2])
def test_results_come_in_the_order_of_the_cells(tmp_path, threads):
    if threads:
        with ThreadPoolExecutor(threads) as executor:
            table = lf.sweep(CELLS, store=tmp_path, executor=executor)
    else:
        table = lf.sweep(CELLS, store=tmp_path)
    assert values(table) == [9, 1, 4]
    assert sorted(RAN) == [1, 2, 3]
    assert values(lf.sweep([Square(2), Square(4)], store=tmp_path)) == [4, 16]
    assert sorted(RAN) == [1, 2, 3, 4]


def test_equal_cells_are_computed_once_where_they_are_kept(tmp_path):
    assert values(lf.sweep([Square(3)] * 3, store=tmp_path)) == [9] * 3
    assert RAN == [3]
    assert len(list(tmp_path.iterdir())) == 1
    assert values(lf.sweep([Square(3)] * 2)) == [9, 9]
    assert RAN == [3] * 3


@pytest.mark.parametrize("threads", [0, 1])
def test_a_cell_that_raises_costs_no_other_cell_anything(tmp_path, threads):
    cells = [Square(1), Square(2, fails=True), Square(3), Square(4, fails=True)]
    with ThreadPoolExecutor(1) as executor, pytest.raises(lf.SweepError) as caught:
        lf.sweep(cells, store=tmp_path, executor=executor if threads else None)
    error = caught.value
    assert str(error).startswith("2 of 4 cells raised, the others are finished: RuntimeError: unlucky (")
    assert "test_store.py:" in str(error)
    assert "in the cell Square(number=2, fails=True, seed=0); RuntimeError" in str(error)
    assert "\n" not in str(error)
    assert [failure.cell for failure in error.failures] == [cells[1], cells[3]]
    assert values(error.table) == [1, 9]
    assert isinstance(error.__cause__, RuntimeError)
    assert ran([cells[0], cells[2]], tmp_path) == 0


def test_the_longest_cells_start_first(tmp_path):
    assert values(lf.sweep([Costly(2), Costly(5), Costly(3)], store=tmp_path)) == [4, 25, 9]
    assert RAN == [5, 3, 2]


RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5, init="random"),
    problem=lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.1),
    data=lf.FreshSamples(n_samples=6),
    rounds=12,
    trials=7,
    participation=0.5,
)


TUNED = replace(RUN, algorithm=lf.Tuned(base=RUN.algorithm, grid={"step_size": (0.1, 0.5, 2.0)}, trials=5))


@pytest.fixture
def slow(monkeypatch):
    """As if two trials of `RUN` took a second."""
    from linfed.simulation import job

    monkeypatch.setattr(job, "SECONDS_PER_FLOAT", 0.5 / job.seconds_of_a_trial(RUN._job()) * job.SECONDS_PER_FLOAT)


@pytest.fixture
def made(monkeypatch):
    """Return a list of the trials that are simulated in pieces."""
    from linfed.cells import run as cells
    from linfed.search import grid_search as search

    trials = []
    for module in (cells, search):
        plain = module.simulate_trials
        monkeypatch.setattr(
            module, "simulate_trials", lambda job, chosen, plain=plain: trials.append(chosen) or plain(job, chosen)
        )
    return trials


def distance(result):
    """A function of a whole result: its trials are not to be cut."""
    return np.linalg.norm(result.final.B[:, 2:], axis=(-2, -1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("run", "pieces"),
    [
        (RUN, [(0, 1), (1, 3), (3, 5), (5, 7)]),
        # Three settings of five trials, and then the run.
        (TUNED, [(0, 1), (1, 3), (3, 5)] * 3 + [(0, 1), (1, 3), (3, 5), (5, 7)]),
        (
            replace(TUNED, algorithm=replace(TUNED.algorithm, metric=distance)),
            [(0, 5)] * 3 + [(0, 1), (1, 3), (3, 5), (5, 7)],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_the_pieces_of_a_long_run_are_joined_bit_for_bit(run, pieces, slow, made, tmp_path):
    whole = lf.sweep([run])
    assert made == []
    again = lf.sweep([run], store=tmp_path)
    assert [(trials.start, trials.stop) for trials in made] == pieces
    assert repr(whole.payload()[1]) == repr(again.payload()[1])
    for name, array in whole.payload()[0].items():
        assert array.tobytes() == again.payload()[0][name].tobytes()
    assert [path.name for path in tmp_path.iterdir()] == [keys_of([run])[0].name]
    assert lf.Store(tmp_path).records([run])[0]["parts"] == len(pieces)


@pytest.mark.long
def test_a_tuning_that_widens_its_grid_is_cut_as_well(slow, made, tmp_path):
    run = replace(TUNED, algorithm=replace(TUNED.algorithm, grid={"step_size": (0.02, 0.04)}, extend=True))
    whole, again = lf.sweep([run]), lf.sweep([run], store=tmp_path)
    assert len(whole["tried_step_size"]) > 2
    assert len(made) == 3 * len(whole["tried_step_size"]) + 4
    for name in ("tried_step_size", "score", "risk"):
        assert whole[name].tobytes() == again[name].tobytes()


@pytest.mark.long
def test_short_settings_go_together(made, monkeypatch, tmp_path):
    from linfed.simulation import job

    run = replace(TUNED, algorithm=replace(TUNED.algorithm, grid={"step_size": tuple(np.geomspace(0.01, 20, 12))}))
    each = 5 * job.seconds_of_a_trial(RUN._job())
    monkeypatch.setattr(job, "SECONDS_PER_FLOAT", 0.24 / each * job.SECONDS_PER_FLOAT)
    tries = run.algorithm.tries(run.problem, rounds=run.rounds, **run._shared())
    assert [len(part.algorithms) for part in tries.divided()] == [4, 4, 4]
    assert lf.sweep([run], store=tmp_path)["score"].tobytes() == lf.sweep([run])["score"].tobytes()


def test_a_cell_that_another_sweep_has_just_finished_is_not_of_other_code(tmp_path):
    lf.sweep([Square(1)], store=tmp_path)
    lf.Store(tmp_path).warn_of_others(keys_of([Square(1), Square(2)]))  # a warning is an error here


def left_of(cell, parts, folder):
    """Save parts like a sweep that was stopped within a cell, and return their records."""
    lf.sweep(parts, store=folder)
    store, owner = lf.Store(folder), keys_of([cell])[0]
    for key, done in zip(keys_of(parts), store.read(keys_of(parts)), strict=True):
        store.write(key.part_of(owner), done)
    known = store.records(parts)
    store.remove(keys_of(parts))
    return known


@pytest.mark.long
def test_the_pieces_of_a_run_that_was_stopped_are_taken_up(slow, made, tmp_path):
    pieces = [Part(part_of=RUN, part_first=one, part_last=two) for one, two in [(0, 1), (1, 3), (3, 5), (5, 7)]]
    known = left_of(RUN, [*pieces[:2], pieces[3]], tmp_path)
    made.clear()
    table = lf.sweep([RUN], store=tmp_path)
    assert made == [range(3, 5)]
    record = lf.Store(tmp_path).records([RUN])[0]
    for name in ("seconds", "processor_seconds"):
        assert record[name] > sum(one[name] for one in known) > 0
    assert table["risk"].tobytes() == lf.sweep([RUN])["risk"].tobytes()
    left_of(RUN, pieces, tmp_path / "all")
    made.clear()
    assert lf.sweep([RUN], store=tmp_path / "all")["risk"].tobytes() == table["risk"].tobytes()
    assert made == []


def test_a_short_run_is_not_cut():
    assert not RUN.divides
    assert not TUNED.divides


@dataclass(frozen=True)
class Sum:
    """A long cell of one's own, which may raise on its way, or go on after a part that raises."""

    raises: int = -1
    goes_on: bool = False

    divides = True

    def run(self):
        total = 0
        for stage in range(3):
            if self.raises == stage:
                raise RuntimeError("unlucky")
            squares = [Square(10 * stage + n, fails=self.raises == 10 * stage + n) for n in range(stage)]
            try:
                total += sum(row["value"] for row in lf.run_parts(squares))
            except RuntimeError:
                if not self.goes_on:
                    raise
        return {"total": total}


class KeepingSum(Sum):
    keeps_parts = True


@pytest.mark.parametrize("threads", [0, 2])
def test_a_cell_of_ones_own_in_parts(threads, tmp_path):
    with ThreadPoolExecutor(2) as executor:
        options = {"executor": executor if threads else None}
        assert lf.sweep([Sum()], store=tmp_path, **options)["total"] == 100 + 400 + 441
        assert sorted(RAN) == [10, 20, 21]
        assert len(list(tmp_path.iterdir())) == 1  # the parts are removed
        assert ran([Sum()], tmp_path) == 0
        for raises in (0, 1, 10, 21):
            with pytest.raises(
                lf.SweepError, match=r"1 of 2 cells raised.*unlucky \(.*test_store.py:\d+\), in"
            ) as caught:
                lf.sweep([Sum(raises), Square(3)], store=tmp_path / str(raises), **options)
            assert values(caught.value.table) == [9]


def test_parts_that_are_of_no_use_are_not_computed(tmp_path):
    with pytest.raises(lf.SweepError):
        lf.sweep([Sum(20), Square(3)], store=tmp_path)
    assert RAN == [10, 20, 3]  # and not 21


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("threads", [0, 2])
def test_a_cell_may_handle_the_error_of_a_part(store, threads, tmp_path):
    """Alone, and in every sweep."""
    assert Sum(10, goes_on=True).run() == {"total": 400 + 441}
    with ThreadPoolExecutor(2) as executor:
        options = {"executor": executor if threads else None, "store": tmp_path if store else None}
        assert lf.sweep([Sum(10, goes_on=True)], **options)["total"] == 400 + 441


def test_parts_are_spread_and_saved_only_if_there_is_where(tmp_path):
    threads = []

    @dataclass(frozen=True)
    class Where:
        divides = True

        def run(self):
            threads.append(threading.current_thread())
            return {"values": len(lf.run_parts([Square(1)]))}

    lf.sweep([Where()])
    with ThreadPoolExecutor(1) as executor:
        lf.sweep([Where()], executor=executor)
    assert [one is threading.main_thread() for one in threads] == [True, False]
    threads[1].join(60.0)
    assert not threads[1].is_alive()


def test_run_of_a_cell_in_parts_has_the_context_of_the_sweep(tmp_path):
    said = contextvars.ContextVar("said", default="")

    @dataclass(frozen=True)
    class Where:
        divides = True

        def run(self):
            return {"said": said.get(), "value": len(lf.run_parts([Square(1)]))}

    said.set("outside")
    with ThreadPoolExecutor(1) as executor:
        assert lf.sweep([Where()], executor=executor)["said"] == "outside"


def test_parts_belong_to_their_cell_unless_they_are_kept(tmp_path):
    parts = [Square(10), Square(20), Square(21)]
    lf.sweep([Square(20)], store=tmp_path)
    lf.sweep([Sum(), Square(10)], store=tmp_path)
    assert sorted(RAN) == [10, 10, 20, 20, 21]  # 10 and 20 as parts and as cells
    assert lf.Store(tmp_path).missing(parts) == [Square(21)]
    with pytest.raises(lf.SweepError):
        lf.sweep([Sum(20)], store=tmp_path / "other")
    lf.sweep([Square(10)], store=tmp_path / "other")  # which has 10 as a part of an unfinished cell
    lf.sweep([Sum(20, goes_on=True)], store=tmp_path / "other")
    assert lf.Store(tmp_path / "other").missing(parts) == [Square(20), Square(21)]
    lf.sweep([KeepingSum()], store=tmp_path)
    assert ran(parts, tmp_path) == 0


@dataclass(frozen=True)
class Threaded:
    numbers: tuple[int, ...] = (2, 1, 5, 3, 4)
    divides = True

    def run(self):
        with ThreadPoolExecutor(5) as threads:
            call = contextvars.copy_context
            asked = [threads.submit(call().run, lf.run_parts, [Square(n)]) for n in self.numbers]
            return {"values": str([one.result()[0]["value"] for one in asked])}


@pytest.mark.parametrize("store", [True, False])
def test_threads_of_a_cell_run_their_parts_themselves(store, tmp_path):
    with ThreadPoolExecutor(2) as executor:
        found = lf.sweep([Threaded()], executor=None if store else executor, store=tmp_path if store else None)
    assert found["values"] == "[4, 1, 25, 9, 16]"


@dataclass(frozen=True)
class Stops:
    divides = True

    def run(self):
        return next(iter(()))


def test_a_cell_that_stops_an_iteration_has_failed(tmp_path):
    with pytest.raises(lf.SweepError, match=r"StopIteration: \(.*test_store.py:\d+\), in"):
        lf.sweep([Stops(), Square(3)], store=tmp_path)


@dataclass(frozen=True)
class Huge:
    def run(self):
        return {"value": 10**5000}


@dataclass(frozen=True)
class AsksForHuge:
    divides = True

    def run(self):
        return {"value": len(lf.run_parts([Huge()]))}


def test_a_part_that_no_file_can_hold_fails_alone(tmp_path):
    with pytest.raises(lf.SweepError, match="1 of 2 cells raised") as caught:
        lf.sweep([AsksForHuge(), Square(3)], store=tmp_path)
    assert values(caught.value.table) == [9]


def test_a_part_has_one_row(tmp_path):
    @dataclass(frozen=True)
    class Two:
        divides = True

        def run(self):
            return {"value": len(lf.run_parts([Square(1), Does("has_two_rows")]))}

    with pytest.raises(TypeError, match="must return a mapping"):
        Two().run()
    with ThreadPoolExecutor(1) as executor, pytest.raises(lf.SweepError, match="a part of a cell must return one row"):
        lf.sweep([Two()], executor=executor)


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
    lf.sweep([Square(3)])  # a warning would be an error
    assert lf.sweep([RUN])["engine"] != RUN.engine  # the one that was used


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

    def is_silent(self):
        raise ValueError

    def is_long(self):
        raise ValueError("a word " * 1000)

    def has_two_rows(self):
        return [{"value": 1}, {"value": 2}]

    def has_a_number_for_a_name(self):
        return {1: 2.0}

    def has_an_axis_for_a_name(self):
        return {"a//b": 2.0}

    def changes_itself(self):
        object.__setattr__(self, "values", (1,))
        return {"value": 1}

    def moves_away(self):
        os.chdir("/")
        return {"value": 1}


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("exits", r"RuntimeError: SystemExit: 0 \("),
        ("breaks", r"RuntimeError: BrokenProcessPool: an inner pool \("),
        ("is_silent", r"ValueError: ValueError\(\) \("),
        ("is_long", r"ValueError: (a word )+.{0,10}\.\.\. \("),
        ("has_a_number_for_a_name", "TypeError: column names must be strings, got 1"),
        ("has_an_axis_for_a_name", "ValueError: column names must not contain '//', got 'a//b'"),
        ("changes_itself", r"ValueError: run\(\) has changed the cell's fields"),
    ],
)
@pytest.mark.parametrize("threads", [0, 1])
def test_whatever_a_cell_does_costs_no_other_cell_anything(what, told, threads, tmp_path):
    with ThreadPoolExecutor(1) as executor, pytest.raises(lf.SweepError, match=told) as caught:
        lf.sweep([Square(1), Does(what), Square(3)], store=tmp_path, executor=executor if threads else None)
    assert values(caught.value.table) == [1, 9]
    assert len(str(caught.value)) < 1000


def test_a_relative_store_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lf.sweep([Does("moves_away"), Square(2)], store="here")
    assert len(list((tmp_path / "here").iterdir())) == 2


def test_a_file_that_cannot_be_read_now_stays_where_it_is(tmp_path, monkeypatch):
    lf.sweep(CELLS, store=tmp_path)

    def fails(path):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fails)
        with pytest.warns(lf.StoreWarning, match="cannot be read .Too many open files"):
            assert len(lf.Store(tmp_path).missing(CELLS)) == 3
    assert lf.Store(tmp_path).missing(CELLS) == []


@dataclass(frozen=True, kw_only=True)
class Double(lf.Run):
    """A run that says otherwise what its row is."""

    def run(self):
        return {**super().run(), "double": 2 * self.rounds}


def test_a_run_of_ones_own_class_is_run_as_it_says(slow, tmp_path):
    run = Double(**{name: getattr(RUN, name) for name in RUN.__dataclass_fields__})
    assert lf.sweep([run], store=tmp_path)["double"] == 24


def last(state, truth):
    return np.arange(len(state.B), dtype=float)


def test_given_participants_and_metrics_of_any_name_go_in_pieces(slow, tmp_path):
    given = np.random.default_rng(0).permuted(np.tile(np.arange(20), (7, 12, 1)), axis=-1)[:, :, :4]
    run = replace(RUN, participation=given, metrics=["risk", last])
    whole, again = lf.sweep([run]), lf.sweep([run], store=tmp_path)
    assert whole["risk"].tobytes() == again["risk"].tobytes()
    assert again["last"].shape == (7, 13)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_threads_do_not_silence_what_comes_after(tmp_path):
    import warnings

    run = replace(RUN, algorithm=lf.Tuned(base=RUN.algorithm, grid={"step_size": (0.01, 0.02)}, trials=2), trials=2)
    before = list(warnings.filters)
    with ThreadPoolExecutor(4) as executor:
        lf.sweep(lf.grid(run, seed=range(8)), executor=executor)
    assert warnings.filters == before


def test_a_worker_with_other_code_is_refused(tmp_path, monkeypatch):
    from linfed.sweeps import store

    with ThreadPoolExecutor(1) as executor:
        assert len(lf.sweep([Square(1)], store=tmp_path, executor=executor)) == 1
        sent = store.code_digest

        def other(owners):
            return sent(owners) if threading.current_thread() is threading.main_thread() else "of yesterday"

        monkeypatch.setattr(store, "code_digest", other)
        with pytest.raises(lf.SweepError, match="this worker runs a different version of the code"):
            lf.sweep([Square(2)], store=tmp_path, executor=executor)


@pytest.mark.parametrize(
    ("options", "fragments", "error"),
    [
        ({"progress": "yes"}, ["progress = 'yes' must be True, False, or None"], ValueError),
        ({"workers": 0}, ["workers = 0", "at least 1"], ValueError),
        ({"max_pending": 0}, ["max_pending = 0", "at least 1"], ValueError),
        ({"shard": 3}, ["shard = 3 must be (i, n)"], ValueError),
        ({"shard": (3, 2)}, ["shard[0] = 3 must be an integer from 1 to 2"], ValueError),
        ({"shard": (0, 2)}, ["shard[0] = 0"], ValueError),
        ({"reuse_stale": True}, ["reuse_stale = True requires store="], ValueError),
        ({"recompute": True}, ["recompute = True requires store="], ValueError),
        (
            {"reuse_stale": True, "recompute": True, "store": "here"},
            ["reuse_stale = True cannot be combined with recompute = True"],
            ValueError,
        ),
        ({"reuse_stale": 1, "store": "here"}, ["reuse_stale = 1 must be True or False"], ValueError),
        ({"executor": 3}, ["executor = 3 must have a method submit"], TypeError),
        ({"executor": ThreadPoolExecutor}, ["must have a method submit"], TypeError),
        ({"store": 5}, ["store = 5 must be a folder"], ValueError),
        ({"store": "a\0b"}, ["store = 'a\\x00b' must be a folder"], ValueError),
    ],
)
def test_wrong_options_are_one_line_before_anything_runs(options, fragments, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_one_line(lambda: lf.sweep(CELLS, **options), fragments, error)
    assert RAN == []
