"""Does a long sweep survive random kills, and does memory stay flat? An hour that mostly waits.

    python -m tests.sweeps.soak [--minutes 60] [--cells 2000] [--simulations 500]

First, simulations of several algorithms and engines, with figures, run in this process. Then a sweep runs in two worker
processes. SIGKILL ends a worker, or the sweep, at random moments; the sweep is resumed. Its table must equal that of an
undisturbed sweep bit for bit, and no worker may outlive its sweep. Memory is resident memory. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import linfed as lf
from benchmarks.reproduce import family
from linfed.statistics import mean_interval

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


@dataclass(frozen=True, kw_only=True)
class Waiting(lf.Run):
    """A run that waits first, for as many seconds as the environment says, so that an hour needs little computing."""

    def run(self):
        time.sleep(float(os.environ["SOAK_WAIT"]))
        return super().run()


def runs(count):
    """Return this number of cells: the runs in turn, with different seeds."""
    shared = {"problem": PROBLEM, "rounds": 30, "trials": 4}
    whole = [Waiting(algorithm=algorithm, data=data, engine=engine, **shared) for algorithm, data, engine in RUNS]
    return [replace(whole[number % len(RUNS)], seed=number // len(RUNS)) for number in range(count)]


def resident(pid):
    """Return the resident megabytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def is_running(pid):
    """Return whether a process has not ended; one that nobody waits for stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def workers_of(pid):
    """Return the worker processes of a sweep, which have begun."""
    found = []
    for child in family(pid)[1:]:
        with suppress(OSError):
            found += [child] if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes() else []
    return found


def told(what, slopes, unit):
    """Print a slope with its interval; return whether the memory is flat: the interval contains 0, or less."""
    mean, low, high = mean_interval(slopes)
    print(f"{what}: {mean:.4g} {unit}, 95 % interval {low:.4g} to {high:.4g}, from {len(slopes)} values", flush=True)
    return low <= 0


def simulations(count):
    """Make simulations, with their figures, in this process; the first half warms up."""
    memory = []
    for number, run in enumerate(runs(count)):
        result = run.simulate()
        result.plot(next(iter(result.metrics)))
        plt.gcf().savefig(os.devnull, format="png")
        plt.close("all")
        if number % len(RUNS) == len(RUNS) - 1:
            memory.append(resident(os.getpid()))
    print(f"{count} simulations: {memory[0]:.1f} MB after {len(RUNS)}, {memory[-1]:.1f} MB after all")
    return told("simulations", 1e3 * np.diff(memory[len(memory) // 2 :]) / len(RUNS), "kB per simulation")


def bits(row):
    """Return a row's columns with the bits of their values."""
    return {name: np.asarray(getattr(value, "values", value)).tobytes() for name, value in row.items()}


def started(folder, count, workers, wait, stdout=subprocess.DEVNULL):
    """Start a sweep in a process of its own, which prints by how many megabytes it grew."""
    command = [sys.executable, "-m", "tests.sweeps.soak", "--sweep", str(folder), "--cells", str(count)]
    environment = {**os.environ, "SOAK_WAIT": str(wait), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "--workers", str(workers)], env=environment, stdout=stdout)


def disturbed(folder, count, minutes, chance):
    """Sweep with random kills; return the kills, the workers that outlived their sweep, and the memory by process."""
    end, kills, survivors, memory = time.monotonic() + 60 * minutes, Counter(), set(), defaultdict(list)
    while True:
        missing = count - len(list(folder.glob("*.cell")))
        left = end - time.monotonic()
        sweep = started(folder, count, 2, max(0.0, 1.8 * left / max(missing, 1) - 0.2))
        kill_at, now, workers = time.monotonic() + chance.expovariate(1 / 90), 0.0, []
        while sweep.poll() is None:
            now, workers = time.monotonic(), workers_of(sweep.pid)
            for role, pid in [("sweep", sweep.pid), *(("worker", pid) for pid in workers)]:
                with suppress(OSError, IndexError):
                    memory[role, pid].append((now, resident(pid)))
            if now > kill_at and workers:
                role, pid = chance.choice([("sweep", sweep.pid), *(("worker", chance.choice(workers)),) * 4])
                os.kill(pid, signal.SIGKILL)
                kills[role] += 1
                kill_at = now + chance.expovariate(1 / 90)
            with suppress(subprocess.TimeoutExpired):
                sweep.wait(2.0)
        patience = time.monotonic() + 20.0
        while (left_over := {pid for pid in workers if is_running(pid)}) and time.monotonic() < patience:
            time.sleep(0.5)
        survivors |= left_over
        print(f"sweep ended with status {sweep.returncode} after {dict(kills)}", flush=True)
        if sweep.returncode != -signal.SIGKILL:
            return kills, survivors, memory


def slopes(memory, role):
    """Return the slope, in kB per minute, of each process of a role that was seen for a minute after its warm-up."""
    found = []
    for (of, _), samples in memory.items():
        times, values = np.array(samples).T
        after = times > times[0] + WARM_UP
        if of == role and after.any() and np.ptp(times[after]) > 60:
            found.append(6e4 * np.polyfit(times[after] - times[0], values[after], 1)[0])
    return np.array(found)


def main():
    """Run both parts; return 1 if a table differs, a worker outlives its sweep, a sweep fails or memory grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the sweep (default 60)")
    parser.add_argument("--cells", type=int, default=2000, help="cells of the sweep (default 2000)")
    parser.add_argument("--simulations", type=int, default=500, help="simulations in one process (default 500)")
    parser.add_argument("--sweep", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    cells = runs(asked.cells)
    if asked.sweep:
        before = resident(os.getpid())
        table = lf.sweep(cells, store=asked.sweep, workers=asked.workers)
        print(resident(os.getpid()) - before if len(table.rows) == asked.cells else np.nan)
        return 0
    flat = simulations(asked.simulations)
    with tempfile.TemporaryDirectory() as folder:
        calm, stopped = Path(folder, "calm"), Path(folder, "stopped")
        calm.mkdir()
        stopped.mkdir()
        with started(calm, asked.cells, 1, 0.0) as undisturbed:
            kills, survivors, memory = disturbed(stopped, asked.cells, asked.minutes, random.Random(0))
        with started(stopped, asked.cells, 1, 0.0, stdout=subprocess.PIPE) as finished:  # a sweep keeps its rows
            rows = float(finished.communicate()[0])
        kept = {"sweep": 1e3 * rows / asked.minutes, "worker": 0.0}
        for role in ("sweep", "worker"):
            largest = max((value for (of, _), samples in memory.items() if of == role for _, value in samples))
            print(f"{role}: at most {largest:.1f} MB in {sum(of == role for of, _ in memory)} processes")
            flat &= told(role, slopes(memory, role) - kept[role], f"kB per minute, beyond {kept[role]:.0f} of rows")
        left = [len(lf.Store(one).missing(cells)) for one in (calm, stopped)]
        first, second = (lf.sweep(cells, store=one) for one in (calm, stopped))
    same = [bits(row) for row in first.rows] == [bits(row) for row in second.rows]
    print(f"undisturbed: status {undisturbed.returncode}; missing cells: {left}; kills: {dict(kills)}")
    print(f"surviving workers: {len(survivors)}; table {'equal' if same else 'DIFFERENT'}; memory flat: {flat}")
    return int(not (flat and same and left == [0, 0] and not survivors))


if __name__ == "__main__":
    sys.exit(main())
