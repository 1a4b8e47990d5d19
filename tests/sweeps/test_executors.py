"""One sweep on every executor: the same table to the last bit, and what becomes of a worker that dies."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import linfed as lf
from linfed.errors import WorkerError
from linfed.simulation import job
from linfed.sweeps.scheduler import compute, key_of_part
from linfed.sweeps.store import keys_of
from linfed.system import processes
from tests.helpers import ROOT, assert_one_line
from tests.sweeps.some_cells import CELLS, RAN, RUN, Raises, Square, Waits


def bits(table):
    """Return all that a table holds, as bytes."""
    arrays, described = table.payload()
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}, repr(described)


@pytest.fixture(scope="module")
def serial():
    return bits(lf.sweep(CELLS))


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let other processes import this module."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


# --- the same table --------------------------------------------------------------------------------------------------


def test_worker_processes(serial, tmp_path):
    assert bits(lf.sweep(CELLS, workers=2, store=tmp_path)) == serial
    assert bits(lf.sweep(CELLS, store=tmp_path)) == serial
    assert bits(lf.Store(tmp_path).table(CELLS)) == serial


def test_a_users_executor_is_not_shut_down(serial):
    with ThreadPoolExecutor(2) as threads:
        assert bits(lf.sweep(CELLS, executor=threads)) == serial
        threads.submit(int)


class Backwards:
    """Computes once all is there, the last first."""

    def __init__(self, count):
        self.waiting, self.count = [], count

    def submit(self, function):
        future = Future()
        self.waiting.append((future, function))
        if len(self.waiting) == self.count:
            while self.waiting:
                ended, called = self.waiting.pop()
                ended.set_result(called())
        return future


def test_parts_are_joined_in_their_order_whichever_ends_first(monkeypatch):
    monkeypatch.setattr(job, "SECONDS_PER_FLOAT", 1.0)
    assert RUN.divides
    whole = lf.sweep([RUN])
    assert bits(lf.sweep([RUN], executor=Backwards(3))) == bits(whole)
    assert len(np.unique(whole["risk"][:, -1])) == 3


@pytest.mark.long
def test_loky(serial):
    loky = pytest.importorskip("loky")
    executor = loky.ProcessPoolExecutor(2)
    try:
        assert bits(lf.sweep(CELLS, executor=executor)) == serial
    finally:
        executor.shutdown()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the cluster
def test_a_dask_cluster_whose_worker_is_killed_half_way(serial, tmp_path):
    distributed = pytest.importorskip("distributed")
    cells = [*CELLS, *(Waits(str(tmp_path), number, 0.2) for number in range(12))]
    killed = []

    def kill():
        """Kill a worker at its third cell: the first has been fetched."""
        begun, latest = Counter(), time.monotonic() + 60
        while not begun or begun.most_common(1)[0][1] < 3:
            assert time.monotonic() < latest, "no worker began three cells in a minute"
            time.sleep(0.02)
            begun = Counter(pid for log in tmp_path.glob("ran-*") for pid in log.read_text().split())
        killed.append(int(begun.most_common(1)[0][0]))
        os.kill(killed[0], 9)

    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None, silence_logs=60) as cluster,
        distributed.Client(cluster) as client,
    ):
        killer = threading.Thread(target=kill)
        killer.start()
        table = lf.sweep(cells, store=tmp_path / "store", executor=client.get_executor(pure=False))
        killer.join()
        assert client.submit(int).result() == 0
    waited = table.select(number=list(range(12)))
    assert len(set(waited["pid"])) >= 2
    assert killed[0] in waited["pid"]
    assert waited["number"].tolist() == list(range(12))
    assert bits(lf.Store(tmp_path / "store").table(CELLS)) == serial


MPI = """
from mpi4py.futures import MPIPoolExecutor
import linfed as lf
from tests.sweeps.some_cells import CELLS
if __name__ == "__main__":
    with MPIPoolExecutor() as executor:
        lf.sweep(CELLS, store="store", executor=executor)
        executor.submit(int).result()
"""


@pytest.mark.long
def test_mpi(serial, tmp_path):
    mpiexec = shutil.which("mpiexec") or shutil.which("mpiexec", path=Path(sys.executable).parent)
    if mpiexec is None:
        pytest.skip("there is no mpiexec here")
    pytest.importorskip("mpi4py", exc_type=ImportError)
    (tmp_path / "script.py").write_text(MPI)
    command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py.futures", "script.py"]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert bits(lf.Store(tmp_path / "store").table(CELLS)) == serial


NOTEBOOK = """
import os
import linfed as lf
from dataclasses import dataclass
from tests.sweeps.some_cells import CELLS

@dataclass(frozen=True)
class Here:
    n: int
    def run(self):
        return {"value": self.n ** 2, "pid": os.getpid()}

lf.sweep(CELLS, workers=2, store="store")
table = lf.sweep([Here(n) for n in range(4)], workers=2)
assert table["value"].tolist() == [0, 1, 4, 9]
assert os.getpid() not in table["pid"]
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the kernel's client
def test_a_notebook(serial, tmp_path):
    """Also cells of a class that the notebook itself defines."""
    pytest.importorskip("loky")
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert bits(lf.Store(tmp_path / "store").table(CELLS)) == serial


# --- how many at a time ----------------------------------------------------------------------------------------------


class Counting(ThreadPoolExecutor):
    """Counts what is pending at a time."""

    pending = most = 0
    lock = threading.Lock()

    def submit(self, function):
        with self.lock:
            self.pending += 1
            self.most = max(self.most, self.pending)
        future = super().submit(function)
        future.add_done_callback(self.ended)
        return future

    def ended(self, _):
        with self.lock:
            self.pending -= 1


@pytest.mark.parametrize(("pending", "most"), [(None, 6), (5, 5), (1, 1)])
def test_a_bounded_number_of_cells_is_pending(pending, most, tmp_path):
    with Counting(3) as executor:
        lf.sweep([Waits(str(tmp_path), number, 0.002) for number in range(40)], executor=executor, max_pending=pending)
    assert executor.most == most


def test_what_is_finished_is_kept_before_more_is_submitted(tmp_path):
    kept = []

    class Here:
        """Computes at once, and does not say how many workers it has."""

        def submit(self, function):
            kept.append(len(list(tmp_path.glob("store/*.cell"))))
            future = Future()
            future.set_result(function())
            return future

    lf.sweep([Waits(str(tmp_path), number) for number in range(4)], store=tmp_path / "store", executor=Here())
    assert kept == [0, 1, 2, 3]


def test_an_interrupt_cancels_what_is_pending(tmp_path):
    started = []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, function):
            if len(started) == 3:
                raise KeyboardInterrupt
            started.append(super().submit(function))
            return started[-1]

    with Interrupted(1) as executor, pytest.raises(KeyboardInterrupt):
        lf.sweep([Waits(str(tmp_path), number, 0.1) for number in range(9)], executor=executor, max_pending=5)
    assert [future.cancelled() for future in started] == [False, True, True]
    assert [path.name for path in tmp_path.glob("ran-*")] == ["ran-8"]  # the largest cell, which starts first


def test_one_blas_thread_in_each_cell():
    import threadpoolctl

    @dataclass(frozen=True)
    class Threads:
        def run(self):
            pools = threadpoolctl.threadpool_info()
            return {"threads": max(pool["num_threads"] for pool in pools if pool["user_api"] == "blas")}

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert lf.sweep([Threads()])["threads"] == 1
        assert compute(Threads()).table["threads"] == 1  # as in a worker


# --- workers that die and errors that cannot be sent -----------------------------------------------------------------


class Mortal:
    """A pool in this process, whose workers die as often as given for each cell, or for any call."""

    def __init__(self, deaths):
        self.deaths = deaths

    def submit(self, call):
        future, number = Future(), getattr(call.args[0], "number", None)
        if self.deaths.get(number, self.deaths["any"]) > 0:
            self.deaths[number] = self.deaths.get(number, self.deaths["any"]) - 1
            future.set_exception(BrokenProcessPool("died"))
        else:
            future.set_result(call())
        return future


@pytest.fixture
def mortal(monkeypatch):
    """Return a function that replaces worker processes by pools whose workers die."""

    def replace(deaths):
        left = {"any": 0} | deaths
        monkeypatch.setattr(processes, "_is_interactive", lambda: False)  # then loky serves, if it is installed
        monkeypatch.setattr(processes, "_process_pool", lambda workers, tasks: nullcontext(Mortal(left)))

    return replace


SQUARES = [Square(number) for number in range(1, 10)]


@pytest.mark.parametrize(
    ("deaths", "failed"),
    [
        ({5: 1}, []),  # once is bad luck
        ({5: 99, 3: 1}, [5]),
        ({9: 99, 8: 99}, [8, 9]),  # before any cell has finished
    ],
)
@pytest.mark.parametrize("pending", [1, 4])
def test_a_cell_whose_worker_dies_twice_fails_alone(deaths, failed, pending, mortal, tmp_path):
    mortal(deaths)
    if failed:
        with pytest.raises(lf.SweepError, match=f"{len(failed)} of 9 cells raised.*WorkerError: .* died, and again"):
            lf.sweep(SQUARES, workers=2, store=tmp_path, max_pending=pending)
    else:
        lf.sweep(SQUARES, workers=2, store=tmp_path, max_pending=pending)
    assert [cell.number for cell in lf.Store(tmp_path).missing(SQUARES)] == failed
    assert sorted(RAN) == [number for number in range(1, 10) if number not in failed]  # none twice


def test_workers_that_never_answer_are_an_error_of_the_sweep(mortal):
    mortal({"any": 99})
    with pytest.raises(WorkerError, match="workers = 2: a worker process died"):
        lf.sweep(SQUARES, workers=2)
    assert RAN == []


def test_a_single_cell_needs_no_worker(mortal):
    mortal({"any": 99})
    assert lf.sweep([Square(2)], workers=2)["value"] == 4


@pytest.mark.long
def test_a_worker_that_dies_costs_what_it_was_computing(tmp_path):
    """One dies once; with another it happens again, which is told when all others are finished."""
    deaths = {3: 1, 5: 99}
    cells = [Waits(str(tmp_path), number, 0.01, deaths=deaths.get(number, 0)) for number in range(9)]
    with pytest.raises(lf.SweepError, match=r"1 of 9 cells raised.*WorkerError: workers = 2: a worker process died"):
        lf.sweep(cells, workers=2, store=tmp_path / "store", max_pending=2)
    assert lf.Store(tmp_path / "store").missing(cells) == [cells[5]]
    assert (cells[3].times(), cells[5].times()) == (2, 2)
    assert sum(cell.times() for cell in cells) <= 9 + 2 * 2  # no more than were pending


@dataclass(frozen=True)
class InParts:
    """A long cell, with a part that may end its process."""

    folder: str
    deaths: int

    divides = True

    def parts(self):
        return [Waits(self.folder, 10 + number, deaths=self.deaths if number == 1 else 0) for number in range(4)]

    def run(self):
        return {"value": os.getpid() not in {row["pid"] for row in lf.run_parts(self.parts())}}


@pytest.mark.long
def test_a_part_whose_worker_dies_is_repeated_alone(tmp_path):
    """Its cell is not computed by workers: they have no class of this name."""
    cells = [InParts(str(tmp_path), 1), Waits(str(tmp_path), 0)]
    assert lf.sweep(cells, workers=2, store=tmp_path / "store")["value"].tolist() == [True, 0]
    cells = [InParts(str(tmp_path), 99), Waits(str(tmp_path), 0)]
    with pytest.raises(lf.SweepError, match=r"1 of 2 cells raised.*WorkerError: .* died, and again.*InParts"):
        lf.sweep(cells, workers=2, store=tmp_path / "other")
    owner, other, *keys = keys_of([*cells, *cells[0].parts()])
    names = {key_of_part(key, owner).name for key in (keys[0], *keys[2:])}
    assert {path.name for path in (tmp_path / "other").iterdir()} == {other.name, *names}


@pytest.mark.long
def test_an_error_that_cannot_be_sent_is_told(tmp_path):
    cells = [Raises(number) for number in range(4)]
    with pytest.raises(lf.SweepError, match=r"1 of 4 .*OddError: this and that \(.*some_cells.py:\d+\), in"):
        lf.sweep(cells, workers=2, store=tmp_path)
    assert lf.Store(tmp_path).missing(cells) == [cells[1]]


@pytest.mark.long
def test_a_class_that_cannot_be_sent_is_told(monkeypatch):
    monkeypatch.setattr(processes, "_is_interactive", lambda: False)

    @dataclass(frozen=True)
    class Local:
        n: int

        def run(self):
            return {}

    with pytest.raises(lf.SweepError, match=r"2 of 2 cells raised.*(pickle|get) local object"):
        lf.sweep([Local(1), Local(2)], workers=2)


# --- executors that fail ---------------------------------------------------------------------------------------------


class Broken:
    """An executor whose workers are gone."""

    def submit(self, function):
        future = Future()
        future.set_exception(BrokenExecutor("they are gone"))
        return future


class NoFuture:
    def submit(self, function):
        return {"value": 1}


def test_an_executor_that_fails_is_named():
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    for executor, fragments, error in (
        (Broken(), ["is broken", "they are gone"], WorkerError),
        (closed, ["accepts no more tasks"], WorkerError),
        (NoFuture(), ["submit must return a future"], TypeError),
    ):
        assert_one_line(
            lambda executor=executor: lf.sweep(CELLS, executor=executor), ["executor = ", *fragments], error
        )
