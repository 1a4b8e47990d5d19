"""Time and memory of `linfed reproduce fedrep-million`, a full run of a million clients, against fixed limits.

The run uses the default garbage collection, so memory that a round does not release would show.
"""

from __future__ import annotations

import functools
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing import Measurement, NotMeasuredError, Row, Settings, Target

NAME = "fedrep-million"
LIMITS = {"time": 120.0, "memory": 500.0}
"""Limits in seconds and megabytes."""

# A process counts the memory of the one that started it until it runs its own program, so a small one starts it.
STARTER = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def family(pid: int) -> list[int]:
    """Return a process and all its descendants (empty on systems other than Linux)."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += family(int(child))
    return found


def resident(pid: int) -> float:
    """Return the resident megabytes of a process and its descendants; shared memory counts once per process."""
    total = 0.0
    try:
        for member in family(pid):
            pages = int(Path(f"/proc/{member}/statm").read_text().split()[1])
            total += pages * resource.getpagesize() / 1e6
    except (OSError, IndexError):  # the process has ended in the meantime
        return 0.0
    return total


@functools.cache
def run() -> tuple[float, float, str]:
    """Run the command; return the seconds, the megabytes and how the memory was measured."""
    peak = 0.0
    with tempfile.TemporaryDirectory() as out:
        job = [sys.executable, "-m", "linfed.cli", "reproduce", NAME, "--out", out]
        command = [sys.executable, "-c", STARTER, *job]
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while process.poll() is None:
                peak = max(peak, resident(process.pid))
                time.sleep(0.05)
            seconds = time.perf_counter() - started
            assert process.stdout is not None
            assert process.stderr is not None
            printed, errors = process.stdout.read().decode(), process.stderr.read().decode()
    if process.returncode != 0:
        raise NotMeasuredError(
            f"the command failed: {errors.strip().splitlines()[-1] if errors.strip() else 'no message'}"
        )
    # The peak from the kernel is exact, but only for the largest process; sampling covers all of them, every 50 ms.
    kernel = float(printed) * (1 if sys.platform == "darwin" else 1024) / 1e6
    how = f"sum over processes, sampled: {peak:.0f} MB; largest single process, exact: {kernel:.0f} MB"
    return seconds, max(peak, kernel), how


def measured(what: str, settings: Settings) -> Measurement:
    if not settings.full:
        raise NotMeasuredError("takes minutes: --full")
    seconds, megabytes, how = run()
    limit = LIMITS[what]
    if what == "time":
        return Measurement([1e3 * seconds], [1e3 * limit], note=f"wall time of a new process, against {limit:g} s")
    return Measurement([megabytes], [limit], unit="MB", note=how)


ROWS = [
    Row(
        f"linfed reproduce {NAME}: {what}",
        "in full",
        Target("most", 1),
        lambda s, what=what: measured(what, s),
    )
    for what in LIMITS
]
