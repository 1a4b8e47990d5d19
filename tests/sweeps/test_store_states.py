"""The store under random sequences of sweeps, interruptions, kills, damage, and changes of code, next to a model."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import linfed as lf
from linfed.errors import WriteError
from linfed.sweeps import code_key
from linfed.sweeps.scheduler import key_of_part
from linfed.sweeps.store import keys_of
from linfed.system import files

MODULE = "cells_of_states"
TEXT = '''"""Cells whose numbers depend on the version of this file."""
from dataclasses import dataclass
import numpy as np
from linfed import run_parts

VERSION = {version}
DURING = []

@dataclass(frozen=True)
class Cell:
    number: int
    seed: int = 0
    cost = 1.0  # cells run in their order

    def run(self):
        for function in DURING:
            function(self)
        row = {{"value": value(self), "each": value(self) + np.arange(3.0)}}
        return [row, row] if self.number == 3 else row

@dataclass(frozen=True)
class Long:
    number: int
    seed: int = 0

    cost = 1.0
    divides = True

    def run(self):
        rows = run_parts([Cell(10, self.seed)])
        more = run_parts([Cell(11, self.seed), Cell(12, self.seed)])
        total = sum(row["value"] for row in [*rows, *more])
        return {{"value": total, "each": total + np.arange(3.0)}}

def value(cell):
    return 1000.0 * VERSION + 10.0 * cell.number + cell.seed
'''
LONG = 4
"""Number of the cell that is computed in parts."""

ALL = [(number, seed) for number in (0, 1, 2, 3, LONG) for seed in (0, 1)]
PARTS = {(LONG, seed): [[(10, seed)], [(11, seed), (12, seed)]] for seed in (0, 1)}
"""The parts of a long cell, by stages."""

chosen = st.lists(st.sampled_from(ALL), min_size=1, max_size=6)
places = st.integers(0, 50)
ERRORS = {"error": RuntimeError("a test"), "exit": SystemExit(1), "interrupt": KeyboardInterrupt()}
can_fork = precondition(lambda self: sys.platform != "win32")


def parts_of(name):
    return [part for stage in PARTS.get(name, [[name]]) for part in stage]


def expected(name, version):
    """Return the rows of a cell as (value, each)."""
    value = sum(1000.0 * version + 10.0 * number + seed for number, seed in parts_of(name))
    return [(value, [value, value + 1, value + 2])] * (2 if name[0] == 3 else 1)


def no_room(*_):
    raise OSError(28, "No space left on device")


class States(RuleBasedStateMachine):
    """A store next to a model of it: the files that it must have, as pairs of a version of the code and a cell."""

    def __init__(self):
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.folder, self.log = self.home / "store", self.home / "log"
        self.log.touch()
        self.saved, self.damaged = set(), set()
        self.names = {}  # of the files, by pair
        self.turns, self.clock = {}, itertools.count(1)  # when files were written, by pair
        self.unfinished = 0  # temporary files of killed processes
        self.closing = ExitStack()
        patch = self.closing.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(code_key, "_own_files", dict)  # linfed itself does not change here
        patch.syspath_prepend(self.home)
        patch.setattr(sys, "dont_write_bytecode", True)

    def teardown(self):
        self.closing.close()
        sys.modules.pop(MODULE, None)
        shutil.rmtree(self.home)

    @initialize()
    def begin(self):
        self.change_the_code(0)
        self.sweep([(0, 0)])  # finds what a process finds once, such as the commit
        self.delete_the_folder()

    @rule(version=st.integers(0, 2))
    def change_the_code(self, version):
        self.version = version
        (self.home / f"{MODULE}.py").write_text(TEXT.format(version=version))
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()
        self.module = importlib.import_module(MODULE)
        for name in ALL:
            owner, *keys = keys_of([self.cell(one) for one in (name, *parts_of(name))])
            self.names[version, name] = owner.name
            if name in PARTS:
                self.names |= {
                    (version, part): key_of_part(key, owner).name
                    for part, key in zip(parts_of(name), keys, strict=True)
                }

    def cell(self, name):
        return (self.module.Long if name[0] == LONG else self.module.Cell)(*name)

    # --- the model ---------------------------------------------------------------------------------------------------

    def save(self, name):
        self.saved.add((self.version, name))
        self.damaged.discard((self.version, name))
        self.turns[self.version, name] = next(self.clock)

    def remove(self, names):
        pairs = {(self.version, name) for name in names}
        self.saved -= pairs
        self.damaged -= pairs

    def read(self, name, reuse_stale=False):
        """Return the version of a cell that a sweep reads, or None; count the damaged files that it meets."""
        pairs = [(self.version, name)]
        if reuse_stale:
            others = {pair for pair in self.saved | self.damaged if pair[1] == name} - {*pairs}
            pairs += sorted(others, key=self.turns.get, reverse=True)
        for pair in pairs:
            if pair in self.saved:
                return pair[0]
            self.damages += pair in self.damaged
        return None

    def model(self, names, stop=None, ends=True, reuse_stale=False, recompute=False):
        """Return the versions of the rows, the cells and parts to compute in order, and the cells that fail.

        `stop` is the cell or the part that fails. If `ends` is True, the sweep ends with it.
        """
        self.damages, distinct = 0, list(dict.fromkeys(names))
        if recompute:
            self.remove(distinct)
        versions = {name: self.read(name, reuse_stale) for name in distinct}
        computed, failed = [], []
        for name in [name for name in distinct if versions[name] is None]:
            if self.compute(name, stop, recompute, computed):
                versions[name] = self.version
                continue
            failed.append(name)
            if ends:
                break
        return versions, computed, failed

    def compute(self, name, stop, recompute, computed):
        """Compute a cell as a sweep does, and return whether it has finished."""
        for stage in PARTS.get(name, [[name]]):
            if name in PARTS and recompute:
                self.remove(stage)
            for part in [part for part in stage if name not in PARTS or self.read(part) is None]:
                computed.append(part)
                if part == stop:
                    return False
                self.save(part)
        if name in PARTS:
            self.save(name)
            self.saved -= {(self.version, part) for part in parts_of(name)}
        return True

    # --- sweeps ------------------------------------------------------------------------------------------------------

    def sweep(self, names, stop=None, how=None, **options):
        """Run a sweep, in which `how` happens to the cell `stop`; return the table or the error."""
        before = len(self.lines())

        def during(cell):
            with self.log.open("a") as file:
                file.write(f"{cell.number} {cell.seed}\n")
            if (cell.number, cell.seed) == stop:
                how()

        self.module.DURING[:] = [during]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                out = lf.sweep([self.cell(name) for name in names], store=self.folder, **options)
            except (lf.SweepError, WriteError, KeyboardInterrupt) as error:
                out = error
            finally:
                self.module.DURING.clear()
        self.said = [str(one.message) for one in said]
        self.computed = self.lines()[before:]
        return out

    def lines(self):
        """Return the cells and parts that were ever computed, in order."""
        return [tuple(map(int, line.split())) for line in self.log.read_text().splitlines()]

    def check_table(self, table, names, versions):
        rows = [(row["value"], row["each"].tolist()) for row in table.rows]
        assert rows == [row for name in names if versions[name] is not None for row in expected(name, versions[name])]

    def check_warnings(self):
        assert sum("counts as missing" in one for one in self.said) == self.damages

    @rule(
        names=chosen, reuse=st.sampled_from([{}, {}, {"reuse_stale": True}, {"recompute": True}]), threads=st.booleans()
    )
    def sweep_undisturbed(self, names, reuse, threads):
        versions, computed, _ = self.model(names, **reuse)
        with ThreadPoolExecutor(2) as executor:
            table = self.sweep(names, executor=executor if threads else None, **reuse)
        self.check_table(table, names, versions)
        self.check_warnings()
        assert sorted(self.computed) == sorted(computed)
        assert threads or self.computed == computed

    @rule(names=chosen, place=places, recompute=st.booleans(), event=st.sampled_from([*ERRORS, "full disk"]))
    def sweep_that_fails(self, names, place, recompute, event):
        """A cell raises, which is no end of the sweep, or it is interrupted, or the disk is full for its file."""
        stop, ends = self.a_part(names, place), event in ("interrupt", "full disk")
        versions, computed, failed = self.model(names, stop, ends, recompute=recompute)
        with pytest.MonkeyPatch.context() as patch:

            def how():
                if event in ERRORS:
                    raise ERRORS[event]
                patch.setattr(files.os, "replace", no_room)

            out = self.sweep(names, stop, how, recompute=recompute)
        assert self.computed == computed
        if failed and ends:
            assert isinstance(out, WriteError if event == "full disk" else KeyboardInterrupt)
            return
        if failed:
            assert isinstance(out, lf.SweepError)
            assert [failure.cell for failure in out.failures] == [self.cell(name) for name in failed]
        self.check_table(out.table if failed else out, names, versions)
        self.check_warnings()

    def a_part(self, names, place):
        parts = [part for name in names for part in parts_of(name)]
        return parts[place % len(parts)]

    # --- processes ---------------------------------------------------------------------------------------------------

    def forked(self, *arguments):
        """Start a sweep in a process of its own."""

        def in_the_child():
            self.sweep(*arguments)
            os._exit(0)

        process = get_context("fork").Process(target=in_the_child)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # this process may have had threads
            process.start()
        return process

    def status(self, process):
        process.join(60)
        process.kill()  # nothing happens if it has ended
        process.join()
        return process.exitcode

    @can_fork
    @rule(names=chosen, place=places, when=st.sampled_from(["computing", "torn", "before renaming", "renamed"]))
    def sweep_that_is_killed(self, names, place, when):
        stop, replace = self.a_part(names, place), os.replace

        def killed(one, other):
            if when == "torn":
                os.truncate(one, 100)
            if when == "renamed":
                replace(one, other)
            os.kill(os.getpid(), signal.SIGKILL)

        def how():
            if when == "computing":
                os.kill(os.getpid(), signal.SIGKILL)
            files.os.replace = killed

        _, _, failed = self.model(names, stop)
        assert self.status(self.forked(names, stop, how)) == (-signal.SIGKILL if failed else 0)
        if failed and when == "renamed":
            self.save(stop)
        self.unfinished += bool(failed) and when in ("torn", "before renaming")

    @can_fork
    @rule(names=chosen)
    def two_sweeps_at_once(self, names):
        before = len(self.lines())
        versions, computed, _ = self.model(names)
        process = self.forked(names[::-1])
        table = self.sweep(names)
        assert self.status(process) == 0
        self.check_table(table, names, versions)
        both = self.lines()[before:]
        # One sweep may remove the parts of a long cell that is finished before the other one looks for them.
        parts = {part for name in names if name in PARTS for part in parts_of(name)}
        assert {*computed} <= {*both} <= {*computed, *parts}
        assert all(both.count(one) <= 2 for one in both)

    # --- what happens to files ---------------------------------------------------------------------------------------

    def a_file(self, place):
        pairs = sorted(self.saved)
        return pairs[place % len(pairs)]

    @precondition(lambda self: self.saved)
    @rule(place=places, share=st.floats(0, 1), how=st.sampled_from(["torn", "flipped", "of another"]))
    def damage_a_file(self, place, share, how):
        pair, other = self.a_file(place), self.a_file(place + 1)
        path = self.folder / self.names[pair]
        content = bytearray(path.read_bytes())
        where = int(share * (len(content) - 1))
        if how == "torn":
            del content[where:]
        elif how == "flipped":
            content[where] ^= 1
        elif other == pair:
            return
        else:
            content = (self.folder / self.names[other]).read_bytes()
        path.write_bytes(content)
        self.saved.remove(pair)
        self.damaged.add(pair)

    @precondition(lambda self: self.saved)
    @rule(place=places)
    def delete_a_file(self, place):
        pair = self.a_file(place)
        (self.folder / self.names[pair]).unlink()
        self.saved.remove(pair)

    @rule()
    def delete_the_folder(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.saved.clear()
        self.damaged.clear()
        self.unfinished = 0

    @rule(names=chosen)
    def read_without_computing(self, names):
        self.damages = 0
        versions = {name: self.read(name) for name in dict.fromkeys(names)}
        cells, store = [self.cell(name) for name in names], lf.Store(self.folder)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            missing = store.missing(cells)
            self.said = [str(one.message) for one in said]
            table, records = store.table(cells, incomplete=True), store.records(cells)
        self.check_warnings()
        self.check_table(table, names, versions)
        assert missing == [self.cell(name) for name in names if versions[name] is None]
        assert [record and record["seed"] for record in records] == [
            None if versions[name] is None else name[1] for name in names
        ]

    @invariant()
    def the_folder_has_what_the_model_has(self):
        found = {path.name for path in self.folder.glob("*")} if self.folder.exists() else set()
        hidden = {name for name in found if name.startswith(".")}
        assert len(hidden) == self.unfinished, hidden
        pairs = self.saved | self.damaged
        assert found - hidden == {self.names[pair] for pair in pairs}
        for pair in pairs:  # times of writing that no clock makes equal
            os.utime(self.folder / self.names[pair], (self.turns[pair],) * 2)


@pytest.mark.long
@pytest.mark.parametrize("steps", [10, 40])
def test_a_store_does_what_its_model_does(steps):
    run_state_machine_as_test(States, settings=settings(stateful_step_count=steps))
