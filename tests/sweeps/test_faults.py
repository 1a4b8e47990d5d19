"""Sweeps that are killed or stopped: nothing is lost, computed twice or torn, and no process is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import ROOT

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")]

PATIENCE = 60.0
"""Seconds to wait for what should take a few, on a busy machine."""


# --- stopped by a signal ---------------------------------------------------------------------------------------------

MODULE = '''
"""Cells that do not end by themselves but for the first, and an experiment of them."""
import multiprocessing, os, sys, time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

import linfed as lf

def work():
    tqdm(disable=True).close()  # as `lf.simulate` does: it makes a lock
    Path(f"working-{os.getpid()}").touch()
    time.sleep(600)

@dataclass(frozen=True, kw_only=True)
class Long(lf.FedRep):
    def step(self, state, batch, rng):
        work()

@dataclass(frozen=True)
class Cell:
    number: int
    cost = 1.0  # cells run in their order

    def run(self):
        if self.number > 0:
            work()
        return {"value": self.number}

SUMMARY = "waits"
def cells(quick):
    return {"values": [Cell(number) for number in range(4)]}

def wait(name):
    if Path(f"wait-{name}").exists():
        Path(f"waiting-{name}").touch()
        time.sleep(600)

wait("main" if multiprocessing.parent_process() is None else "worker")

if __name__ == "__main__":
    from waiting import slow
    what, workers = sys.argv[1], int(sys.argv[2])
    if what == "simulate":
        problem = lf.SharedRepresentation(n_clients=4, dim=4, rank=2)
        algorithm = slow.Long(rank=2, step_size=0.1, init="random")
        lf.simulate(algorithm, problem, data=lf.FreshSamples(3), n_rounds=2, trials=2, workers=workers)
    else:
        lf.sweep(slow.cells(False)["values"], store="out/cells", workers=workers)
'''
SCRIPT = ("waiting/slow.py",)
COMMAND = ("-m", "linfed", "reproduce", "slow", "--experiments", "waiting", "--out", "out", "--workers")
KEPT = "linfed: interrupted; finished cells are saved; run the same command again to resume\n"


@pytest.fixture
def folder(tmp_path):
    package = tmp_path / "waiting"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "slow.py").write_text(MODULE)
    return tmp_path


def is_running(pid):
    """Return whether a process has not ended; one that nobody waits for stays as a zombie."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(what):
    """Return the first true answer."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if answer := what():
            return answer
        time.sleep(0.01)
    return what()


def interruptible():
    """Let a child end by signals that its parent ignores: SIGINT in a shell's background, SIGHUP under ``nohup``."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Started:
    """A process group of its own in a folder; ended whatever happens."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=interruptible,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def workers(self, count):
        """Return the ids of the processes that have begun to work."""
        found = wait_for(lambda: ids if len(ids := [*self.folder.glob("working-*")]) >= count else [])
        assert len(found) == count, self.process.communicate(timeout=1) if self.process.poll() is not None else found
        return [int(path.name.removeprefix("working-")) for path in found]

    def wait_for_a_cell(self):
        assert wait_for(lambda: [*self.folder.glob("out/cells/*.cell")])

    def stored(self):
        return [path.suffix for path in self.folder.glob("out/cells/*")]

    def ended(self):
        """Return the status and what was written on standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


@pytest.mark.parametrize("what", ["sweep", "simulate"])
def test_workers_end_with_a_main_process_that_is_killed_alone(what, folder):
    with Started(folder, *SCRIPT, what, 2) as started:
        workers = started.workers(2)
        assert started.process.pid not in workers
        started.process.send_signal(signal.SIGKILL)
        assert wait_for(lambda: not any(map(is_running, workers)))


@pytest.mark.parametrize(("sent", "workers"), [("SIGINT", 2), ("SIGINT", 1), ("SIGTERM", 2)])
def test_a_script_that_is_stopped_ends_at_once_and_keeps_what_is_done(sent, workers, folder):
    with Started(folder, *SCRIPT, "sweep", workers) as started:
        busy = started.workers(workers)
        started.wait_for_a_cell()
        asked = time.monotonic()
        started.process.send_signal(getattr(signal, sent))
        status, said = started.ended()
        assert time.monotonic() - asked < 10
        assert wait_for(lambda: not any(map(is_running, busy)))
    assert status == -getattr(signal, sent)
    assert sent == "SIGTERM" or "leaked" not in said  # SIGTERM ends Python at once, and leaves what it had
    assert started.stored() == [".cell"]


@pytest.mark.parametrize(("workers", "sent", "status"), [(2, "SIGTERM", 143), (1, "SIGINT", 130), (1, "SIGHUP", 129)])
def test_a_command_that_is_stopped_says_so_in_one_line_and_keeps_what_is_done(workers, sent, status, folder):
    with Started(folder, *COMMAND, workers) as started:
        busy = started.workers(workers)
        started.wait_for_a_cell()
        started.process.send_signal(getattr(signal, sent))
        assert started.ended() == (status, KEPT)
        assert wait_for(lambda: not any(map(is_running, busy)))
    assert started.stored() == [".cell"]


@pytest.mark.parametrize("process", ["main", "worker"])
def test_an_interrupt_while_modules_are_imported_is_one_line(process, folder):
    (folder / f"wait-{process}").touch()
    with Started(folder, *COMMAND, 2) as started:
        assert wait_for((folder / f"waiting-{process}").exists)
        os.killpg(started.process.pid, signal.SIGINT)  # as a terminal does
        assert started.ended() == (130, KEPT)
