"""``linfed report``: saved results as one page."""

from __future__ import annotations

import argparse
import os

from linfed.commands.options import add_experiments


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "report",
        help="saved results as one page: scoreboard, figures, claims",
        description="Write report.html from saved results; nothing is computed anew.",
    )
    told = "saved results, or one NAME.json (default: results)"
    command.add_argument("folder", nargs="?", default="results", metavar="FOLDER", help=told)
    command.add_argument("--out", metavar="DIR", help="where to write (default: FOLDER)")
    command.add_argument("--against", metavar="OTHER", help="results of another run: what moved since then")
    add_experiments(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Write the report."""
    os.environ["MPLBACKEND"] = "Agg"  # figures go to files, whatever shows them elsewhere
    from linfed.report.write import write

    path = write(given.folder, out=given.out, against=given.against, experiments=given.experiments)
    print(f"wrote {path}", flush=True)
    return 0
