"""Sweeps that are killed, run twice at once, stopped, or out of room: nothing lost, nothing twice, nothing torn."""

import contextlib
import io
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import linfed as lf
from tests.helpers import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

KILLS = 20


@dataclass(frozen=True)
class Logs:
    """Takes a moment, about as long as it takes to be written, and says in a file that it was computed to its end."""

    log: str
    number: int
    size: int = 1000
    cost = 1.0  # cells run in their order

    def run(self):
        values = np.random.default_rng(self.number).standard_normal(self.size)
        time.sleep(0.001)
        with open(self.log, "a") as file:
            file.write(f"{self.number}\n")
        return {"value": values}


def finished(cells, folder):
    """Return the numbers of the cells that a store holds; whatever is not what it says would warn."""
    store = lf.Store(folder)
    missing = {cell.number for cell in store.missing(cells)}
    return {cell.number for cell in cells} - missing


def computed(cells):
    """Return how often each cell was computed to its end."""
    log = Path(cells[0].log)
    lines = log.read_text().split() if log.exists() else []
    return [lines.count(str(cell.number)) for cell in cells]


@contextlib.contextmanager
def forked(function, *arguments):
    """Return a context with a process that calls a function; it is waited for."""
    process = get_context("fork").Process(target=function, args=arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process may have threads; the child needs none
        process.start()
    yield process
    process.join()


class Slow(io.FileIO):
    """A file on a disk that takes its time."""

    def write(self, data):
        for start in range(0, len(data), 1000):
            super().write(data[start : start + 1000])
            time.sleep(0.0002)
        return len(data)


def swept(cells, folder):
    """Sweep in a process of its own, on a slow disk."""
    kept = Path.open
    Path.open = lambda path, mode="r", *more, **named: (
        Slow(path, "w") if mode == "wb" else kept(path, mode, *more, **named)
    )
    lf.sweep(cells, store=folder)


@pytest.mark.long
def test_killed_at_twenty_random_moments(tmp_path):
    cells = [Logs(str(tmp_path / "log"), number) for number in range(80)]
    folder, moments = tmp_path / "store", random.Random(0)
    lf.sweep(
        [Logs(str(tmp_path / "other"), 0)], store=tmp_path / "other store"
    )  # what is found once a process is known
    finished_of_all = 0
    for _ in range(KILLS):
        before, times = finished(cells, folder), computed(cells)
        with forked(swept, cells, folder) as process:
            while computed(cells) == times and process.is_alive():
                time.sleep(0.001)
            process.join(moments.uniform(0.0, 0.03))
            process.kill()
        after = finished(cells, folder)
        assert before <= after  # nothing lost
        again = [new - old for new, old in zip(computed(cells), times, strict=True)]
        assert not any(again[number] for number in before)  # nothing twice
        assert sum(again) <= len(after - before) + 1  # but for what was being written
        finished_of_all += len(after - before)
        if len(after) == len(cells):  # the same with others
            cells = [Logs(cell.log, cell.number, cell.size + 1) for cell in cells]
    assert finished_of_all > KILLS
    table = lf.sweep(cells, store=folder)
    assert table["value"].tobytes() == lf.sweep(cells)["value"].tobytes()
    assert not (folder / "aside").exists()  # nothing torn


@pytest.mark.long
def test_two_sweeps_in_one_store_at_once(tmp_path):
    cells = [Logs(str(tmp_path / "log"), number) for number in range(40)]
    folder = tmp_path / "store"
    lf.sweep([Logs(str(tmp_path / "other"), 0)], store=tmp_path / "other store")
    with forked(swept, cells, folder) as one, forked(swept, cells[::-1], folder) as other:
        pass
    assert (one.exitcode, other.exitcode) == (0, 0)
    assert finished(cells, folder) == set(range(40))
    assert len(list(folder.iterdir())) == 40
    assert lf.sweep(cells, store=folder)["value"].tobytes() == lf.sweep(cells)["value"].tobytes()


def limited(cells, folder, bytes_of_a_file):
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_of_a_file, bytes_of_a_file))
    try:
        lf.sweep(cells, store=folder)
    except OSError as error:
        os._exit(9 if "cannot be written: File too large" in str(error) else 1)


def test_files_that_the_system_refuses(tmp_path):
    cells = [Logs(str(tmp_path / "log"), number, size=10 if number < 5 else 10_000) for number in range(10)]
    folder = tmp_path / "store"
    lf.Store(folder).missing(cells)
    with forked(limited, cells, folder, 20_000) as process:
        pass
    assert process.exitcode == 9
    assert finished(cells, folder) == set(range(5))
    assert len(list(folder.iterdir())) == 5
    lf.sweep(cells, store=folder)
    assert finished(cells, folder) == set(range(10))


SCRIPT = """
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

import linfed as lf

@dataclass(frozen=True)
class Cell:
    number: int
    cost = 1.0  # cells run in their order

    def run(self):
        if self.number > 1:
            tqdm(disable=True).close()  # as `lf.simulate` does: it makes a lock
            Path(f"waits-{self.number}").touch()
            time.sleep(600)
        return {"value": self.number}

if __name__ == "__main__":
    import script
    lf.sweep([script.Cell(number) for number in range(9)], store="store", workers=int(sys.argv[1]))
"""


@pytest.mark.long
@pytest.mark.parametrize(("sent", "workers"), [("SIGINT", 2), ("SIGINT", 1), ("SIGTERM", 2)])
def test_a_script_that_is_stopped_ends_at_once_and_keeps_what_is_done(sent, workers, tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    process = subprocess.Popen(
        [sys.executable, "script.py", str(workers)],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (
            len(list(tmp_path.glob("waits-*"))) == workers and len(list(tmp_path.glob("store/*.cell"))) == 2
        ):
            time.sleep(0.02)
        asked = time.monotonic()
        process.send_signal(getattr(signal, sent))
        _, said = process.communicate(timeout=60)
        assert time.monotonic() - asked < 10
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -getattr(signal, sent)
    assert sent == "SIGTERM" or "leaked" not in said  # SIGTERM ends Python at once, and leaves what it had
    assert len(list(tmp_path.glob("store/*"))) == 2
