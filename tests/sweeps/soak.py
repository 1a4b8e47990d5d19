"""Does a long sweep survive random kills, and does memory stay flat? An hour that mostly waits.

    python -m tests.sweeps.soak [--minutes 60] [--cells 2000]

A sweep runs in two worker processes. SIGKILL ends a worker, or the sweep, at random moments; the sweep is resumed. Its
table must equal that of an undisturbed sweep bit for bit, no worker may outlive its sweep, and the resident memory of
no process may grow but for the rows that a sweep keeps. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import linfed as lf
from benchmarks.reproduce import family
from linfed.statistics import mean_interval
from tests.sweeps.test_faults import is_running

PROBLEM = lf.SharedRepresentation(n_clients=80, dim=20, rank=2, noise_std=0.1)
FRESH, FIXED = lf.FreshSamples(30), lf.FixedSamples(30)
RUNS = [
    *((lf.FedRep(rank=2, step_size=0.3), FRESH, engine) for engine in ("explicit", "compressed", "projected", "chain")),
    *((lf.FedAvg(rank=2, step_size=0.1, local_steps=3), data, "explicit") for data in (FRESH, FIXED)),
    (lf.FLUTE(rank=2, step_size=0.01), FIXED, "compressed"),
    (lf.AltMin(rank=2), FIXED, "compressed"),
    (lf.Ditto(step_size=0.05, local_steps=2), FIXED, "explicit"),
    (lf.SCAFFOLD(step_size=0.05, local_steps=2), FRESH, "explicit"),
]
WARM_UP = 30.0
"""Seconds of a process that do not count: it imports modules and fills caches."""

BETWEEN_KILLS = 90.0
"""Mean number of seconds between two kills."""


@dataclass(frozen=True, kw_only=True)
class Waiting(lf.Run):
    """A run that waits first, for as many seconds as the environment says, so that an hour needs little computing."""

    def run(self):
        time.sleep(float(os.environ["SOAK_WAIT"]))
        return super().run()


def runs(count):
    """Return this number of cells: the runs in turn, with different seeds."""
    shared = {"problem": PROBLEM, "n_rounds": 30, "trials": 4}
    whole = [Waiting(algorithm=algorithm, data=data, engine=engine, **shared) for algorithm, data, engine in RUNS]
    return [replace(whole[number % len(RUNS)], seed=number // len(RUNS)) for number in range(count)]


def resident(pid):
    """Return the resident kilobytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e3


def workers_of(pid):
    """Return the worker processes of a sweep, which have begun."""
    found = []
    for child in family(pid)[1:]:
        with suppress(OSError):
            found += [child] if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes() else []
    return found


def started(folder, count, workers, wait):
    """Start a sweep in a process of its own, which prints by how many kilobytes it grew."""
    command = [sys.executable, "-m", "tests.sweeps.soak", "--sweep", str(folder), "--cells", str(count)]
    environment = {**os.environ, "SOAK_WAIT": str(wait), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "--workers", str(workers)], env=environment, stdout=subprocess.PIPE, text=True)


def disturbed(folder, count, minutes, chance):
    """Sweep with random kills until all is there; return the memory by process, and the workers left behind."""
    end, memory, left_behind = time.monotonic() + 60 * minutes, defaultdict(list), set()
    status = -signal.SIGKILL
    while status == -signal.SIGKILL:
        missing = count - len(list(folder.glob("*.cell")))
        sweep = started(folder, count, 2, max(0.0, 1.8 * (end - time.monotonic()) / max(missing, 1) - 0.2))
        kill_at, workers = time.monotonic() + chance.expovariate(1 / BETWEEN_KILLS), []
        while sweep.poll() is None:
            now, workers = time.monotonic(), workers_of(sweep.pid)
            for role, pid in [("sweep", sweep.pid), *(("worker", pid) for pid in workers)]:
                with suppress(OSError, IndexError):
                    memory[role, pid].append((now, resident(pid)))
            if now > kill_at and workers:
                killed = chance.choice([sweep.pid, *[chance.choice(workers)] * 4])
                os.kill(killed, signal.SIGKILL)
                print(f"killed {'the sweep' if killed == sweep.pid else 'a worker'}", flush=True)
                kill_at = now + chance.expovariate(1 / BETWEEN_KILLS)
            time.sleep(2.0)
        time.sleep(20.0)  # as long as a worker may take to end
        left_behind |= set(filter(is_running, workers))
        status = sweep.returncode
    return memory, left_behind


def is_flat(memory, role, rows):
    """Print how fast the memory of a role's processes grows beyond its rows, in kB per minute; return whether not."""
    slopes = []
    for (of, _), samples in memory.items():
        times, values = np.array(samples).T
        after = times > times[0] + WARM_UP
        if of == role and after.any() and np.ptp(times[after]) > 60:
            slopes.append(60 * np.polyfit(times[after] - times[0], values[after], 1)[0] - rows)
    mean, low, high = mean_interval(slopes)
    print(f"{role}: {mean:.4g} kB per minute, 95 % interval {low:.4g} to {high:.4g}, {len(slopes)} processes")
    return low <= 0


def main():
    """Return 1 if a table differs, a cell is missing, a worker outlives its sweep, or memory grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the sweep (default 60)")
    parser.add_argument("--cells", type=int, default=2000, help="cells of the sweep (default 2000)")
    parser.add_argument("--sweep", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    cells = runs(asked.cells)
    if asked.sweep:
        before = resident(os.getpid())
        lf.sweep(cells, store=asked.sweep, workers=asked.workers)
        print(resident(os.getpid()) - before)
        return 0
    with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as stopped:
        grown = float(started(calm, asked.cells, 1, 0.0).communicate()[0])
        memory, left_behind = disturbed(Path(stopped), asked.cells, asked.minutes, random.Random(0))
        missing = lf.Store(stopped).missing(cells)
        first, second = (lf.sweep(cells, store=one).payload() for one in (calm, stopped))
    is_same = repr(first[1]) == repr(second[1])
    is_same &= all(array.tobytes() == second[0][name].tobytes() for name, array in first[0].items())
    flat = [is_flat(memory, "sweep", grown / asked.minutes), is_flat(memory, "worker", 0.0)]
    print(f"missing cells: {len(missing)}; workers left behind: {len(left_behind)}; equal tables: {is_same}")
    return int(not (all(flat) and is_same and not missing and not left_behind))


if __name__ == "__main__":
    sys.exit(main())
