"""The store under random sequences of sweeps, interruptions, kills, damage, and changes of code."""

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
"""Number of the cell that is computed in pieces."""

ALL = [(number, seed) for number in (0, 1, 2, 3, LONG) for seed in (0, 1)]
PIECES = {(LONG, seed): [[(10, seed)], [(11, seed), (12, seed)]] for seed in (0, 1)}
FORKS = sys.platform != "win32"

chosen = st.lists(st.sampled_from(ALL), min_size=1, max_size=6)
places = st.integers(0, 5)


class CellError(Exception):
    """Error of a cell."""


def expected(name, version):
    """Return the rows of a cell as (value, each)."""
    parts = [piece for stage in PIECES.get(name, [[name]]) for piece in stage]
    value = sum(1000.0 * version + 10.0 * number + seed for number, seed in parts)
    return [(value, [value, value + 1, value + 2])] * (2 if name[0] == 3 else 1)


class States(RuleBasedStateMachine):
    """A store next to a model of it: which files it must have, of which version, and when each was written."""

    def __init__(self):
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.folder, self.log = self.home / "store", self.home / "log"
        self.log.touch()
        self.saved: dict[tuple[int, tuple[int, int]], int] = {}  # order of writing, by version and cell
        self.damaged: dict[tuple[int, tuple[int, int]], bytes | None] = {}
        self.names: dict[tuple[int, tuple[int, int]], str] = {}
        self.unfinished = 0  # temporary files of killed processes
        self.turn = 0
        self.closing = ExitStack()
        patch = self.closing.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(code_key, "_own_files", dict)  # linfed itself does not change here
        patch.syspath_prepend(self.home)
        patch.setattr(sys, "dont_write_bytecode", True)

    def teardown(self):
        self.closing.close()
        sys.modules.pop(MODULE, None)
        shutil.rmtree(self.home)

    # --- the code ------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self):
        self.write_code(0)
        self.sweep([(0, 0)])  # finds what a process finds once, such as the commit
        self.delete_the_folder()

    def write_code(self, version):
        self.version, self.turn = version, self.turn + 1
        path = self.home / f"{MODULE}.py"
        path.write_text(TEXT.format(version=version))
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()
        self.module = importlib.import_module(MODULE)
        for name in ALL:
            self.names[version, name] = keys_of([self.cell(name)])[0].name
        for name, stages in PIECES.items():
            owner, *keys = keys_of([self.cell(one) for one in (name, *itertools.chain(*stages))])
            for piece, key in zip(itertools.chain(*stages), keys, strict=True):
                self.names[version, piece] = key.part_of(owner).name

    def cell(self, name):
        return (self.module.Long if name[0] == LONG else self.module.Cell)(*name)

    @rule(version=st.integers(0, 2))
    def change_the_code(self, version):
        self.write_code(version)

    # --- what a sweep must do ------------------------------------------------------------------------------------

    def fresh(self, name):
        """Return whether the store has a cell of the current version that is not damaged."""
        return (self.version, name) in self.saved

    def set_aside(self, names):
        for name in names:
            self.saved.pop((self.version, name), None)
            self.damaged.pop((self.version, name), None)

    def looked_at(self, name, reuse_stale=False):
        """Return the version that a sweep must return for a cell, or None; count damaged and stale files."""
        self.damages += self.damaged.pop((self.version, name), None) is not None
        if self.fresh(name):
            return self.version
        if reuse_stale:
            pairs = {pair for pair in {*self.saved, *self.damaged} if pair[1] == name and pair[0] != self.version}
            for pair in sorted(pairs, key=lambda pair: -self.order[pair]):
                if pair in self.saved:
                    self.stale += 1
                    return pair[0]
                self.damages += self.damaged.pop(pair, None) is not None
        return None

    def model(self, names, stop=None, ends=True, reuse_stale=False, recompute=False, shard=None):
        """Return the versions of the cells in the table, the cells to compute in order, and the failed ones.

        `stop` is the cell that is interrupted. If `ends` is True, the interruption ends the sweep.
        """
        self.damages = self.stale = 0
        share = list(range(len(names)))[shard[0] - 1 :: shard[1]] if shard else range(len(names))
        mine = [names[place] for place in share if names.index(names[place]) == place]
        if recompute:
            self.set_aside(mine)
        versions = {name: self.looked_at(name, reuse_stale) for name in dict.fromkeys(names)}
        missing = [name for name in mine if versions[name] is None]
        files = [] if recompute else [name for version, name in {*self.saved, *self.damaged} if version != self.version]
        self.others = len([name for name in missing if name in files]), len(missing)
        computed, failed = [], []
        for name in mine:
            if versions[name] is not None:
                continue
            pieces = PIECES.get(name, [[name]])
            for stage in pieces:
                if recompute and name in PIECES:
                    self.set_aside(stage)
                if name in PIECES:
                    stage = [piece for piece in stage if self.looked_at(piece) is None]
                for piece in stage:
                    computed.append(piece)
                    if piece == stop:
                        if ends:
                            return versions, computed, failed
                        failed.append(name)
                        break
                    self.save(piece)
                if failed[-1:] == [name]:
                    break
            else:
                versions[name] = self.version
                if name in PIECES:
                    self.save(name)
                    for piece in itertools.chain(*pieces):
                        self.saved.pop((self.version, piece), None)
        return versions, computed, failed

    def save(self, name):
        self.turn += 1
        self.saved[self.version, name] = self.order[self.version, name] = self.turn

    @property
    def order(self):
        return self.__dict__.setdefault("_order", {})

    # --- sweeps --------------------------------------------------------------------------------------------------

    def sweep(self, names, stop=None, how=None, **options):
        """Run a sweep, in which `how` happens to the cell `stop`; return the table or the error."""
        before = len(self.log.read_text().splitlines())

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
        lines = self.log.read_text().splitlines()[before:]
        self.computed = [tuple(map(int, line.split())) for line in lines]
        return out

    def check_warnings(self, distinct):
        wanted = ["set aside in"] * self.damages
        if self.stale:
            wanted.append(
                f"{self.stale} of {distinct} cells were computed by another version of the code and are reused"
            )
        if self.others[0]:
            wanted.append(
                "{} of {} cells were computed by another version of the code and are recomputed".format(*self.others)
            )
        assert len(self.said) == len(wanted), self.said
        assert all(sum(text in line for line in self.said) == wanted.count(text) for text in wanted), self.said

    def check_table(self, table, names, versions):
        rows = [(row["value"], row["each"].tolist()) for row in table.rows]
        assert rows == [row for name in names if versions[name] is not None for row in expected(name, versions[name])]

    @rule(
        names=chosen,
        reuse=st.sampled_from(["no", "no", "reuse_stale", "recompute"]),
        shard=st.sampled_from([None, None, (1, 2), (2, 2)]),
        threads=st.booleans(),
    )
    def sweep_undisturbed(self, names, reuse, shard, threads):
        options = {"shard": shard} | ({} if reuse == "no" else {reuse: True})
        versions, computed, _ = self.model(names, **options)
        with ThreadPoolExecutor(2) as executor:
            table = self.sweep(names, executor=executor if threads else None, **options)
        self.check_table(table, names, versions)
        assert sorted(self.computed) == sorted(computed)
        assert threads or self.computed == computed
        self.check_warnings(len(set(names)))

    @rule(names=chosen, place=places, reuse=st.sampled_from(["no", "recompute"]))
    def sweep_with_a_cell_that_raises(self, names, place, reuse):
        options = {} if reuse == "no" else {reuse: True}
        stop = self.a_piece(names, place)

        def how():
            raise (CellError, SystemExit)[place % 2]("a test")

        versions, computed, failed = self.model(names, stop, ends=False, **options)
        out = self.sweep(names, stop, how, **options)
        assert self.computed == computed
        if failed:
            assert isinstance(out, lf.SweepError)
            assert [failure.cell for failure in out.failures] == [self.cell(name) for name in failed]
        self.check_table(out.table if failed else out, names, versions)

    @rule(names=chosen, place=places, full=st.booleans(), reuse=st.sampled_from(["no", "recompute"]))
    def sweep_that_is_interrupted(self, names, place, full, reuse):
        """By an interrupt in a cell, or by a full disk when its file is written."""
        options = {} if reuse == "no" else {reuse: True}
        stop = self.a_piece(names, place)
        versions, computed, _ = self.model(names, stop, **options)
        with pytest.MonkeyPatch.context() as patch:

            def how():
                if not full:
                    raise KeyboardInterrupt
                patch.setattr(files.os, "replace", no_room)

            out = self.sweep(names, stop, how, **options)
        assert self.computed == computed
        if stop in computed:
            assert isinstance(out, WriteError if full else KeyboardInterrupt)
        else:
            self.check_table(out, names, versions)

    def a_piece(self, names, place):
        parts = [piece for name in names for stage in PIECES.get(name, [[name]]) for piece in stage]
        return parts[place % len(parts)]

    # --- processes -----------------------------------------------------------------------------------------------

    def forked(self, function):
        process = get_context("fork").Process(target=function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # this process may have had threads
            process.start()
        return process

    @precondition(lambda self: FORKS)
    @rule(names=chosen, place=places, when=st.sampled_from(["computing", "torn", "before renaming", "renamed"]))
    def sweep_that_is_killed(self, names, place, when):
        stop = self.a_piece(names, place)
        replace = os.replace

        def killed(one, other):
            if when == "torn":
                with Path(one).open("r+b") as file:
                    file.truncate(100)
            if when == "renamed":
                replace(one, other)
            os.kill(os.getpid(), signal.SIGKILL)

        def how():
            if when == "computing":
                os.kill(os.getpid(), signal.SIGKILL)
            files.os.replace = killed

        def in_the_child():
            self.sweep(names, stop, how)
            os._exit(0)

        _, computed, _ = self.model(names, stop)
        process = self.forked(in_the_child)
        process.join(60)
        process.kill()  # nothing happens if it has ended
        process.join()
        assert process.exitcode == (-signal.SIGKILL if stop in computed else 0)
        if stop in computed:
            if when == "renamed":
                self.save(stop)
            self.unfinished += when in ("torn", "before renaming")

    @precondition(lambda self: FORKS)
    @rule(names=chosen)
    def two_sweeps_at_once(self, names):
        def in_the_child():
            self.sweep(names[::-1])
            os._exit(0)

        versions, computed, _ = self.model(names)
        process = self.forked(in_the_child)
        table = self.sweep(names)
        process.join(60)
        process.kill()  # nothing happens if it has ended
        process.join()
        assert process.exitcode == 0
        self.check_table(table, names, versions)
        lines = self.log.read_text().splitlines()[self.lines :]
        both = {tuple(map(int, line.split())) for line in lines}
        # One sweep may remove the pieces of a long cell that is finished before the other one looks for them.
        pieces = {piece for name in names for stage in PIECES.get(name, []) for piece in stage}
        assert set(computed) <= both <= {*computed, *pieces}
        assert all(lines.count(line) <= 2 for line in lines)

    # --- what happens to files -----------------------------------------------------------------------------------

    def a_file(self, place):
        pairs = sorted(self.saved)
        return pairs[place % len(pairs)]

    @precondition(lambda self: self.saved)
    @rule(place=st.integers(0, 50), share=st.floats(0, 1), how=st.sampled_from(["torn", "flipped", "of another"]))
    def damage_a_file(self, place, share, how):
        pair = self.a_file(place)
        path = self.folder / self.names[pair]
        content = bytearray(path.read_bytes())
        where = int(share * (len(content) - 1))
        if how == "torn":
            del content[where:]
        elif how == "flipped":
            content[where] ^= 1
        else:
            other = self.a_file(place + 1)
            if other == pair:
                return
            content = (self.folder / self.names[other]).read_bytes()
        path.write_bytes(content)
        del self.saved[pair]
        self.damaged[pair] = bytes(content)

    @precondition(lambda self: self.saved)
    @rule(place=st.integers(0, 50))
    def delete_a_file(self, place):
        pair = self.a_file(place)
        (self.folder / self.names[pair]).unlink()
        del self.saved[pair]

    @rule()
    def delete_the_folder(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.saved.clear()
        self.damaged.clear()
        self.unfinished = 0

    @rule(names=chosen)
    def read_without_computing(self, names):
        self.damages, self.stale, self.others = 0, 0, (0, 0)
        versions = {name: self.looked_at(name) for name in dict.fromkeys(names)}
        cells, store = [self.cell(name) for name in names], lf.Store(self.folder)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            missing = store.missing(cells)
            table = store.table(cells, incomplete=True)
            records = store.records(cells)
        self.said = [str(one.message) for one in said]
        self.check_warnings(len(set(names)))
        assert missing == [cell for cell, name in zip(cells, names, strict=True) if versions[name] is None]
        self.check_table(table, names, versions)
        assert [record and record["seed"] for record in records] == [
            None if versions[name] is None else name[1] for name in names
        ]

    # --- what always holds ---------------------------------------------------------------------------------------

    @invariant()
    def the_folder_has_what_the_model_has(self):
        found = {path.name for path in self.folder.glob("*")} if self.folder.exists() else set()
        hidden = {name for name in found if name.startswith(".")}
        assert len(hidden) == self.unfinished, hidden
        names = {self.names[pair] for pair in {**self.saved, **self.damaged}}
        assert found - hidden - {"aside"} == names
        for pair in [*self.saved, *self.damaged]:  # times of writing that no clock makes equal
            os.utime(self.folder / self.names[pair], (self.order[pair],) * 2)
        self.lines = len(self.log.read_text().splitlines())


def no_room(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.long
@pytest.mark.parametrize("steps", [10, 40])
def test_a_store_does_what_its_model_does(steps):
    run_state_machine_as_test(States, settings=settings(stateful_step_count=steps))
