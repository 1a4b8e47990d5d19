"""Worker processes and signals, with real processes: nobody is left behind, and what is done is kept."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

PATIENCE = 60.0
"""Seconds to wait for what should take a few, on a busy machine."""

LONG = '''
"""Work that does not end by itself, told by files named after the processes that do it."""
import os, sys, time
from dataclasses import dataclass
from pathlib import Path
import linfed as lf

def work():
    Path(f"working-{os.getpid()}").touch()
    time.sleep(600)

@dataclass(frozen=True, kw_only=True)
class Long(lf.FedRep):
    def step(self, state, batch, rng):
        work()

@dataclass(frozen=True)
class Cell:
    number: int

    def run(self):
        if self.number > 0:
            work()
        return {"value": self.number}

if __name__ == "__main__":
    import long
    if sys.argv[1] == "simulate":
        problem = lf.SharedRepresentation(n_clients=4, dim=4, rank=2)
        algorithm = long.Long(rank=2, step_size=0.1, init="random")
        lf.simulate(algorithm, problem, data=lf.FreshSamples(3), rounds=2, trials=2, workers=2)
    else:
        lf.sweep([long.Cell(1), long.Cell(2)], store="cells", workers=2)
'''

EXPERIMENT = '''
"""An experiment of two cells, of which the second does not end by itself."""
import multiprocessing, time
from pathlib import Path
import long

SUMMARY = "waits"
class Cell(long.Cell):
    """Of this module, which workers import for it."""

def wait(name):
    if Path(f"wait-{name}").exists():
        Path(f"waiting-{name}").touch()
        time.sleep(600)

wait("main" if multiprocessing.parent_process() is None else "worker")

def cells(quick):
    return {"values": [Cell(0), Cell(1)]}
'''


def running(pid):
    """Return whether a process is there and has not ended (a child that nobody waits for stays as a zombie)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(what):
    """Return the first true answer."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = what()
        if answer:
            return answer
        time.sleep(0.01)
    return what()


def interruptible():
    """Let a child end by signals that its parent ignores: SIGINT in a shell's background, SIGHUP under ``nohup``."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Started:
    """A process group of its own in a folder; ended whatever happens."""

    def __init__(self, folder, *arguments, **environment):
        self.folder = folder
        path = os.pathsep.join([str(ROOT), str(folder)])
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, **environment},
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

        def ids():
            found = [int(path.name.removeprefix("working-")) for path in self.folder.glob("working-*")]
            return found if len(found) >= count else []

        found = wait_for(ids)
        assert len(found) == count, self.process.communicate(timeout=1) if self.process.poll() is not None else found
        return found

    def ended(self):
        """Return the status and what was written on standard error."""
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "long.py").write_text(LONG)
    package = tmp_path / "waiting"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "slow.py").write_text(EXPERIMENT)
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize(("pool", "sent"), [("cells", "SIGKILL"), ("simulate", "SIGKILL")])
def test_workers_end_with_a_main_process_that_is_killed_alone(pool, sent, folder):
    with Started(folder, "long.py", pool) as started:
        workers = started.workers(2)
        assert started.process.pid not in workers
        started.process.send_signal(getattr(signal, sent))
        assert wait_for(lambda: not any(map(running, workers)))


REPRODUCE = ("-m", "linfed", "reproduce", "slow", "--experiments", "waiting", "--out", "out", "--workers")
KEPT = "linfed: interrupted; finished cells are saved; run the same command again to resume\n"


@pytest.mark.long
@pytest.mark.parametrize(("workers", "sent", "status"), [(2, "SIGTERM", 143), (1, "SIGINT", 130), (1, "SIGHUP", 129)])
def test_a_stopped_command_says_so_in_one_line_and_keeps_what_is_done(workers, sent, status, folder):
    with Started(folder, *REPRODUCE, workers) as started:
        busy = started.workers(1)
        assert wait_for(lambda: list(folder.glob("out/cells/*.cell")))
        started.process.send_signal(getattr(signal, sent))
        assert started.ended() == (status, KEPT)
        assert wait_for(lambda: not any(map(running, busy)))
    assert [path.suffix for path in (folder / "out/cells").iterdir()] == [".cell"]


@pytest.mark.long
@pytest.mark.parametrize("process", ["main", "worker"])
def test_an_interrupt_while_modules_are_imported_is_one_line(process, folder):
    (folder / f"wait-{process}").touch()
    with Started(folder, *REPRODUCE, 2) as started:
        assert wait_for((folder / f"waiting-{process}").exists)
        os.killpg(started.process.pid, signal.SIGINT)  # as a terminal does
        assert started.ended() == (130, KEPT)


@pytest.mark.long
def test_a_cell_whose_worker_is_killed_twice_is_told(folder):
    """Whoever kills it, a memory that ran out, say: once is bad luck, and the cell is run again."""
    with Started(folder, *REPRODUCE, 2) as started:
        for count in (1, 2):
            (busy,) = wait_for(lambda count=count: [pid for pid in started.workers(count) if running(pid)])
            assert wait_for(lambda: list(folder.glob("out/cells/*.cell")))
            os.kill(busy, signal.SIGKILL)
        status, errors = started.ended()
    assert status == 1
    *_, failed, last = errors.strip().splitlines()
    assert failed.startswith("linfed: slow: WorkerError: workers = 2: a worker process died")
    assert failed.endswith("in the cell Cell(number=1)")
    assert last == "linfed: slow: 1 of 2 cells raised; finished cells are saved; run the same command again to resume"
    assert [path.suffix for path in (folder / "out/cells").iterdir()] == [".cell"]
