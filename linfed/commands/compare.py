"""``linfed compare``: verdicts and estimates that moved between two runs."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "compare",
        help="verdicts and estimates that moved between two runs",
        description="Compare the claims of two runs: folders of saved results, or one NAME.json of each.",
    )
    command.add_argument("before", metavar="A", help="saved results, a folder or NAME.json")
    command.add_argument("after", metavar="B", help="those of another run")
    command.add_argument("--relative", type=float, metavar="SHARE", help="tell also estimates that moved by this share")
    command.add_argument("--strict", action="store_true", help="exit with status 1 if a verdict moved")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print what moved."""
    from linfed.errors import UsageError
    from linfed.report.compare import compare, read, told

    if given.relative is not None and not given.relative >= 0:
        raise UsageError(f"--relative {given.relative} must be at least 0")
    found = compare(read(given.before, "A")[1], read(given.after, "B")[1], relative=given.relative)
    print(told(found, given.before, given.after), flush=True)
    return int(given.strict and bool(found.verdicts))
