"""``linfed sweep``: a grid of one's own, as a TOML file."""

from __future__ import annotations

import argparse
import os

from linfed.commands.interrupts import interrupt, signals
from linfed.commands.options import SHARD_DONE, add_means, failed, means


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    grid = commands.add_parser(
        "sweep",
        help="run a grid of one's own: table and figure",
        description="Run the grid of a TOML file (see docs/guide/sweeps.md); write CSV, npz, JSON, PNG and PDF.",
    )
    grid.add_argument("file", metavar="FILE", help="problem, data, algorithms and axes, as TOML")
    grid.add_argument("--out", metavar="DIR", help="where to write (default: results/ and the file's name)")
    add_means(grid)
    grid.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run the grid, and print what came of it."""
    from linfed.errors import SweepError
    from linfed.reproduction.swept import report, sweep_file

    os.environ["MPLBACKEND"] = "Agg"
    with means(given) as where, signals(interrupt):
        try:
            done = sweep_file(given.file, out=given.out, means=where)
        except SweepError as error:
            return failed(given.file, error)
    if done is None:
        print(f"{given.file}: {SHARD_DONE.format(given.shard)}")
    else:
        print(report(done), flush=True)
    return 0
