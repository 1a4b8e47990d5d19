"""Startup time of linfed: its import, and ``linfed --help``, against the import of NumPy."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.timing import Measurement, Row, Settings, Target


def seconds_of(*arguments: str) -> float:
    """Return the wall time of a new Python process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def measured(settings: Settings, *arguments: str) -> Measurement:
    pairs = [(seconds_of(*arguments), seconds_of("-c", "import numpy")) for _ in range(settings.repetitions)]
    ours, other = ([1e3 * pair[side] for pair in pairs] for side in (0, 1))
    return Measurement(ours, other, note="new processes, the interpreter's own start in both")


ROWS = [
    Row("import linfed against import numpy", "-", Target("most", 1), lambda s: measured(s, "-c", "import linfed")),
    Row("linfed --help against import numpy", "-", Target("most", 1), lambda s: measured(s, "-m", "linfed", "--help")),
]
