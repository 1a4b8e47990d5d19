"""``linfed compare``: print the verdicts and estimates that differ between two runs."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "compare",
        help="compare the verdicts and estimates of two runs",
        description="Compare the claims of two runs, and print the verdicts and estimates that differ. Each run is a "
        "folder of saved results or one NAME.json.",
    )
    command.add_argument("before", metavar="BEFORE", help="saved results of the first run: a folder or NAME.json")
    command.add_argument("after", metavar="AFTER", help="saved results of the second run: a folder or NAME.json")
    text = (
        "also list estimates that differ by more than this share of their size; by default those that lie outside of "
        "each other's interval"
    )
    command.add_argument("--rtol", type=float, metavar="SHARE", help=text)
    text = (
        "exit with status 1 if a verdict or the settings differ, if only one run has a claim, or if only AFTER has an "
        "experiment; AFTER may lack experiments of BEFORE"
    )
    command.add_argument("--strict", action="store_true", help=text)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the differences between two runs, and return the exit status."""
    from linfed.commands.printed import wrapped
    from linfed.errors import UsageError
    from linfed.report.compare import compare, format_comparison
    from linfed.reproduction.record import read_runs

    if given.rtol is not None and not given.rtol >= 0:
        raise UsageError(f"--rtol {given.rtol} must be at least 0")
    before, after = read_runs(given.before, "BEFORE")[1], read_runs(given.after, "AFTER")[1]
    found = compare(before, after, rtol=given.rtol)
    print(wrapped(format_comparison(found, given.before, given.after)))
    if not given.strict:
        return 0
    count = len(found.verdicts)
    alone = sum(len(claims) for only in (found.before_only, found.after_only) for claims in only.values())
    others, new = len(found.other_settings), len(after.keys() - before.keys())
    lacking = len(before.keys() - after.keys())
    differ = int(count + alone + others + new > 0)
    counts = f"{count} changed verdict{'s' * (count != 1)}, {alone} claim{'s' * (alone != 1)} in one run alone"
    counts += f", {others} experiment{'s' * (others != 1)} with other settings" * (others > 0)
    counts += f", {new} experiment{'s' * (new != 1)} in AFTER only" * (new > 0)
    counts += f", {lacking} experiment{'s' * (lacking != 1)} in BEFORE only (allowed)" * (lacking > 0)
    print(f"--strict: {counts}, so the exit status is {differ}", flush=True)
    return differ
