"""One sweep on every executor: the same table to the last bit, and what becomes of a worker that dies."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections import Counter
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import linfed as lf
from linfed.errors import WorkerError
from linfed.simulation import job
from linfed.sweeps.scheduler import compute
from linfed.sweeps.store import keys_of
from linfed.system import processes
from tests.helpers import ROOT, assert_one_line
from tests.sweeps.some_cells import CELLS, RUN, Raises, Waits


def bits(table):
    """Return all that a table holds, as bytes."""
    arrays, described = table.payload()
    return {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}, repr(described)


@pytest.fixture(scope="module")
def serial():
    return bits(lf.sweep(CELLS))


def assert_serial(serial, table):
    assert bits(table) == serial


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let other processes import this module."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_worker_processes(serial, tmp_path):
    assert_serial(serial, lf.sweep(CELLS, workers=2, store=tmp_path))
    assert_serial(serial, lf.sweep(CELLS, store=tmp_path))
    assert_serial(serial, lf.Store(tmp_path).table(CELLS))


def test_two_shards(serial, tmp_path):
    for number in (1, 2):
        lf.sweep(CELLS, store=tmp_path, shard=(number, 2))
    assert_serial(serial, lf.Store(tmp_path).table(CELLS))


def test_an_executor_of_ones_own_is_not_shut_down(serial):
    with ThreadPoolExecutor(2) as threads:
        assert_serial(serial, lf.sweep(CELLS, executor=threads))
        threads.submit(int)


class Backwards:
    """Computes once all is there, the last first."""

    def __init__(self, count):
        self.waiting, self.count = [], count

    def submit(self, function, *arguments):
        self.waiting.append((Future(), function, arguments))
        future = self.waiting[-1][0]
        if len(self.waiting) == self.count:
            while self.waiting:
                ended, called, given = self.waiting.pop()
                ended.set_result(called(*given))
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
        assert_serial(serial, lf.sweep(CELLS, executor=executor))
    finally:
        executor.shutdown()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the cluster
def test_a_dask_cluster_whose_worker_is_killed_half_way(serial, tmp_path):
    distributed = pytest.importorskip("distributed")
    cells = [*CELLS, *(Waits(str(tmp_path), number, 0.2) for number in range(12))]
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None, silence_logs=60) as cluster,
        distributed.Client(cluster) as client,
    ):
        store = tmp_path / "store"
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

        killer = threading.Thread(target=kill)
        killer.start()
        table = lf.sweep(cells, store=store, executor=client.get_executor(pure=False))
        killer.join()
        assert client.submit(int).result() == 0
    assert len(set(table.select(number=list(range(12)))["pid"])) >= 2
    assert killed[0] in table.select(number=list(range(12)))["pid"]
    assert [row["number"] for row in table.rows[-12:]] == list(range(12))
    assert_serial(serial, lf.Store(store).table(CELLS))


@pytest.mark.long
def test_mpi(serial, tmp_path):
    mpiexec = shutil.which("mpiexec") or shutil.which("mpiexec", path=Path(sys.executable).parent)
    if mpiexec is None:
        pytest.skip("there is no mpiexec here")
    pytest.importorskip("mpi4py", exc_type=ImportError)
    script = """
    from mpi4py.futures import MPIPoolExecutor
    import linfed as lf
    from tests.sweeps.some_cells import CELLS
    if __name__ == "__main__":
        with MPIPoolExecutor() as executor:
            lf.sweep(CELLS, store="store", executor=executor)
            executor.submit(int).result()
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py.futures", "script.py"]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert_serial(serial, lf.Store(tmp_path / "store").table(CELLS))


NOTEBOOK = """
import linfed as lf
from dataclasses import dataclass
from tests.sweeps.some_cells import CELLS

@dataclass(frozen=True)
class Here:
    n: int
    def run(self):
        import os
        return {"value": self.n ** 2, "pid": os.getpid()}

lf.sweep(CELLS, workers=2, store="store")
table = lf.sweep([Here(n) for n in range(4)], workers=2)
import os
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
    assert_serial(serial, lf.Store(tmp_path / "store").table(CELLS))


# --- how many at a time, and what is left of them -------------------------------------------------------------


class Counting(ThreadPoolExecutor):
    """Counts what is pending at a time."""

    def __init__(self, workers, told=True):
        super().__init__(workers)
        self.pending, self.most, self.lock = 0, 0, threading.Lock()
        if not told:
            self.__dict__["_max_workers"] = workers
        self.told = told

    def submit(self, function, *arguments):
        with self.lock:
            self.pending += 1
            self.most = max(self.most, self.pending)
        future = super().submit(function, *arguments)
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


@pytest.mark.long
def test_an_error_that_cannot_be_sent_is_told(tmp_path):
    cells = [Raises(number) for number in range(4)]
    with pytest.raises(lf.SweepError, match=r"1 of 4 .*OddError: this and that \(.*some_cells.py:\d+\), in"):
        lf.sweep(cells, workers=2, store=tmp_path)
    assert lf.Store(tmp_path).missing(cells) == [cells[1]]


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


@pytest.mark.long
def test_cells_whose_workers_die_at_once_cost_no_other_cell(tmp_path):
    """Before any cell has finished: a call that does nothing shows that workers can start."""
    cells = [Waits(str(tmp_path), number, deaths=99 if number < 2 else 0) for number in range(6)]
    with pytest.raises(
        lf.SweepError, match=r"2 of 6 cells raised.*WorkerError: .* died, and again.*Waits.*Waits"
    ) as caught:
        lf.sweep(cells, workers=2, store=tmp_path / "store")
    assert [failure.cell for failure in caught.value.failures] == cells[:2]
    assert lf.Store(tmp_path / "store").missing(cells) == cells[:2]
    assert all(cell.times() <= 2 for cell in cells[:2])


@dataclass(frozen=True)
class InParts:
    """A long cell, with a part that may end its process."""

    folder: str
    deaths: int

    divides = True

    def run(self):
        parts = [Waits(self.folder, 10 + number, deaths=self.deaths if number == 1 else 0) for number in range(4)]
        pids = {row["pid"] for row in lf.run_parts(parts)}
        return {"value": os.getpid() not in pids}


@pytest.mark.long
@pytest.mark.parametrize("deaths", [1, 99])
def test_a_part_whose_worker_dies_is_repeated_alone(deaths, tmp_path):
    """Its cell is not computed by workers: they have no class of this name."""
    cells = [InParts(str(tmp_path), deaths), Waits(str(tmp_path), 0)]
    if deaths == 1:
        assert lf.sweep(cells, workers=2, store=tmp_path / "store")["value"].tolist() == [True, 0]
        return
    with pytest.raises(lf.SweepError, match=r"1 of 2 cells raised.*WorkerError: .* died, and again.*InParts"):
        lf.sweep(cells, workers=2, store=tmp_path / "store")
    parts = [Waits(str(tmp_path), 10 + number, deaths=deaths if number == 1 else 0) for number in range(4)]
    owner, other, *keys = keys_of([*cells, *parts])
    names = {key.part_of(owner).name for key in (*keys[:1], *keys[2:])}
    assert {path.name for path in (tmp_path / "store").iterdir()} == {other.name, *names}


def in_a_daemon(connection):
    said = []
    for call in (
        lambda: lf.sweep([RUN, RUN], workers=2),
        lambda: lf.simulate(RUN.algorithm, RUN.problem, data=RUN.data, rounds=2, trials=4, workers=2),
    ):
        try:
            call()
        except WorkerError as error:
            said.append(str(error))
    connection.send(said)


@pytest.mark.long
def test_workers_of_a_daemon_are_refused_in_one_line():
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=in_a_daemon, args=(there,), daemon=True)
    process.start()
    assert here.poll(60)
    one, other = here.recv()
    process.join()
    assert one == other
    assert one.startswith("workers = 2 cannot be used in a worker of multiprocessing.Pool")
    assert one.endswith("use workers = 1")


NO_MODULE = """
import sys
sys.modules["loky"] = None
import linfed as lf
from dataclasses import dataclass

@dataclass(frozen=True)
class Cell:
    n: int
    def run(self):
        return {}

lf.sweep([Cell(1), Cell(2)], workers=2)
"""


@pytest.mark.long
def test_workers_that_cannot_start_are_one_line():
    done = subprocess.run([sys.executable, "-c", NO_MODULE], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("linfed.errors.WorkerError: workers = 2: a worker process died: ")
    assert "classes and functions defined in a notebook" in last
    assert last.endswith("use workers = 1, or pip install 'linfed[parallel]')")


@pytest.mark.parametrize("file", [True, False])
def test_advice_is_of_where_the_function_is_defined(monkeypatch, file):
    """A script is not helped by loky, which a notebook is."""
    main = types.SimpleNamespace(**({"__file__": "script.py"} if file else {}))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(sys.modules, "loky", None)
    monkeypatch.setattr(processes, "_process_pool", lambda workers, tasks: nullcontext())
    with pytest.raises(WorkerError) as raised, processes.worker_pool(2, 2):
        raise BrokenProcessPool
    assert ("linfed[parallel]" in str(raised.value)) is not file
    assert ("below if __name__ == '__main__'" in str(raised.value)) is file


OF_A_NOTEBOOK = """
import linfed as lf

def half(state, truth):
    return 0.5 * lf.subspace_distance(state.B, truth.B)

problem = lf.SharedRepresentation(n_clients=6, dim=4, rank=2)
run = {"data": lf.FreshSamples(5), "rounds": 2, "trials": 4, "metrics": [half, "subspace_distance"]}
metrics = lf.simulate(lf.FedRep(rank=2, step_size=0.3), problem, workers=2, **run).metrics
assert abs(2 * metrics["half"] - metrics["subspace_distance"]).max() < 1e-12
"""


ALREADY_REMOVED = (
    r".*loky.backend.resource_tracker\.py:\d+: UserWarning: resource_tracker: There appear to be 1 leaked semlock .*\n"
    r" +warnings\.warn\(\n.*resource_tracker: /loky-\S+: FileNotFoundError\(.*\n +warnings\.warn\(.*\n"
)
"""Two warnings of loky, which sometimes ends between removing a semaphore and reporting it: nothing leaks."""


@pytest.mark.long
def test_a_notebooks_own_metric_is_found_by_workers():
    pytest.importorskip("loky")
    done = subprocess.run(
        [sys.executable, "-c", OF_A_NOTEBOOK], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, re.sub(ALREADY_REMOVED, "", done.stderr)) == (0, "")


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


class Broken:
    """An executor whose workers are gone."""

    def submit(self, function, *arguments):
        future = Future()
        future.set_exception(BrokenExecutor("they are gone"))
        return future


@pytest.mark.long
def test_an_executor_that_is_broken_is_one_line():
    assert_one_line(
        lambda: lf.sweep(CELLS, executor=Broken()), ["executor = ", "is broken", "they are gone"], WorkerError
    )
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert len(lf.sweep(CELLS[:2], executor=pool)) == 2


def test_an_executor_that_takes_no_more_is_one_line():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    assert_one_line(lambda: lf.sweep(CELLS, executor=executor), ["executor = ", "accepts no more tasks"], WorkerError)

    class Calls:
        def submit(self, function):
            return {"value": 1}

    assert_one_line(lambda: lf.sweep(CELLS, executor=Calls()), ["submit must return a future"], TypeError)


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
