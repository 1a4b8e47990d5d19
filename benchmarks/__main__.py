"""Command line of the benchmarks: print the table of ratios; see ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import (
    bound,
    class_round,
    client_loop,
    engines,
    flute,
    jax_round,
    prediction,
    reproduce,
    shortcut,
    startup,
    sweeps,
    trials,
)
from benchmarks.timing import Measurement, NotMeasuredError, Row, Settings
from linfed.numerics.linalg import one_blas_thread
from linfed.system.files import replacing
from linfed.system.machine import processor_model

ROWS = [
    *bound.ROWS,
    *engines.ROWS,
    *client_loop.ROWS,
    *jax_round.ROWS,
    *flute.ROWS,
    *class_round.ROWS,
    *shortcut.ROWS,
    *trials.ROWS,
    *sweeps.ROWS,
    *prediction.ROWS,
    *reproduce.ROWS,
    *startup.ROWS,
]

METHOD = """\
float64; BLAS at one thread on both sides; linfed and JAX use all cores unless a row says "one core".
Garbage collection is off while timing.
A round of ours is the mean time from step to step within one lf.simulate, metrics at the ends only; trials whole runs.
Repetitions of the two sides alternate; a ratio is the median over pairs, [lower, upper quartile], (least, most)."""


def record_of(row: Row, found: Measurement) -> dict[str, Any]:
    """Return a measured row as a dictionary of plain values."""
    ratios = found.ratios(row.target.kind)
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return {
        "name": row.name,
        "sizes": row.sizes,
        "unit": found.unit,
        "ours": float(np.median(found.ours)),
        "other": float(np.median(found.other)),
        "ratio": float(median),
        "quartiles": [float(low), float(high)],
        "range": [float(ratios.min()), float(ratios.max())],
        "target": str(row.target),
        "verdict": "information" if row.information else "met" if row.target.met(median) else "NOT MET",
        "note": found.note,
        "pairs": [list(pair) for pair in zip(found.ours, found.other, strict=True)],
    }


def line_of(record: dict[str, Any]) -> str:
    """Return the line of the table for a record."""
    head = f"{record['name']:<55} {record['sizes']:<50}"
    if "ratio" not in record:
        return f"{head} {record['verdict']}: {record['note']}"
    (low, high), (least, most) = record["quartiles"], record["range"]
    interval = f"{record['ratio']:.3g} [{low:.3g}, {high:.3g}] ({least:.3g}, {most:.3g})"
    times = " ".join(f"{record[side]:>9.4g} {record['unit']}" for side in ("ours", "other"))
    asked = record["target"] if record["verdict"] != "information" else record["target"].split(" >=")[0]
    return f"{head} {times}  {interval:<36} {asked:<21} {record['verdict']:<11} {record['note']}"


def main(arguments: list[str] | None = None) -> int:
    """Measure the selected rows; return 1 if a target is not met or a row fails."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure the speed of linfed and print a table of ratios."
    )
    parser.add_argument(
        "--only", metavar="SUBSTRING", default="", help="measure only rows whose name or sizes contain this text"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter repetitions, for rough results")
    parser.add_argument("--full", action="store_true", help="also measure the rows that take minutes")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the rows to FILE, replacing rows it contains")
    options = parser.parse_args(arguments)
    settings = Settings(
        repetitions=5 if options.quick else 15, seconds=0.1 if options.quick else 0.4, full=options.full
    )
    chosen = [row for row in ROWS if options.only.lower() in f"{row.name} {row.sizes}".lower()]
    if not chosen:
        parser.error(
            f"--only {options.only!r} matches no row; available rows: " + "; ".join({row.name: None for row in ROWS})
        )
    machine = f"{processor_model()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{machine}\n{METHOD}\n")
    known = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    rows = {(one["name"], one["sizes"]): one for one in known}
    records: list[dict[str, Any]] = []
    with one_blas_thread():
        for row in chosen:
            try:
                records.append(record_of(row, row.measure(settings)))
            except NotMeasuredError as reason:
                records.append({"name": row.name, "sizes": row.sizes, "verdict": "skipped", "note": str(reason)})
            except Exception as error:  # an error in one row must not stop the others
                told = f"{type(error).__name__}: {error}"
                records.append({"name": row.name, "sizes": row.sizes, "verdict": "failed", "note": told})
            print(line_of(records[-1]), flush=True)
            key = row.name, row.sizes
            if options.json and ("ratio" in records[-1] or key not in rows):
                rows[key] = records[-1] | {"machine": machine}
                ordered = [rows[key] for key in ((one.name, one.sizes) for one in ROWS) if key in rows]
                with replacing(options.json) as file:
                    file.write(json.dumps({"method": METHOD, "rows": ordered}, indent=1).encode())
    return int(any(record["verdict"] in ("NOT MET", "failed") for record in records))


if __name__ == "__main__":
    sys.exit(main())
