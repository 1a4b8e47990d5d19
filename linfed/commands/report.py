"""``linfed report``: write saved results as one HTML page."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "report",
        help="write saved results as one HTML page",
        description="Write report.html, with the figures and claims of saved results. Nothing is computed or drawn.",
    )
    text = "folder of saved results, or one NAME.json (default: results)"
    command.add_argument("folder", nargs="?", default="results", metavar="FOLDER", help=text)
    command.add_argument(
        "--out", metavar="OUT", help="folder of report.html, or a file whose name ends in .html (default: FOLDER)"
    )
    command.add_argument(
        "--baseline", metavar="OTHER", help="results of an earlier run; the report lists the differences"
    )
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Write the report, and return the exit status."""
    from linfed.report.write import write

    path = write(given.folder, out=given.out, baseline=given.baseline)
    print(f"wrote {path}", flush=True)
    return 0
