"""``linfed show``: print the captions and claims of saved runs, read from their JSON records."""

from __future__ import annotations

import argparse
from pathlib import Path

from linfed.commands.options import add_saved, results_folder


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "show",
        help="print captions and claims of saved runs",
        description="Print the captions of the figures and the claims of saved runs. Nothing is computed or written.",
    )
    command.add_argument("names", nargs="+", metavar="NAME", help="name of an experiment, or its FILE.py")
    add_saved(command)
    command.add_argument("--verbose", action="store_true", help="print the verdicts in each setting")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the captions and claims of saved runs, and return the exit status."""
    from linfed.commands.printed import banner, claims_text, wrapped
    from linfed.reproduction.experiments import name_of

    folder = results_folder(given)
    names = [name_of(Path(name)) if name.endswith(".py") else name for name in given.names]
    saved = {name: folder.read(name) for name in names}
    if any(record.quick for record in saved.values()):
        print(banner())
    for name, record in saved.items():
        print(end="\n" * (name != names[0]))
        commit = f", commit {record.commit}" if record.commit else ""
        print(wrapped(f"{name}: {record.kind}, linfed {record.versions.get('linfed', '?')}{commit}"))
        for key, caption in record.figures.items():
            print(wrapped(f"{folder.figure(name, key)}\n  {caption}"))
        if record.claims:
            print(claims_text(name, record.claims, verbose=given.verbose))
        elif not record.remarks:
            print(wrapped(f"{name}: {'no claims' if record.is_judged else folder.not_judged(record)}"))
        for remark in record.remarks:
            print(wrapped(f"{name}: {remark}"))
    return 0
