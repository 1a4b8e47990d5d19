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
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the captions and claims of saved runs, and return the exit status."""
    from linfed.commands.printed import claims_table, tally
    from linfed.reproduction.experiments import name_of
    from linfed.reproduction.records import captions_of, kind_of_run, load_findings, read_saved

    folder = results_folder(given)
    names = [name_of(Path(name)) if name.endswith(".py") else name for name in given.names]
    for name, described in {name: read_saved(name, folder) for name in names}.items():
        print(end="\n" * (name != names[0]))
        versions = described.get("versions") or {}
        commit = f", commit {described['commit']}" if described.get("commit") else ""
        print(f"{name}: {kind_of_run(described)}, linfed {versions.get('linfed', '?')}{commit}")
        for key, caption in captions_of(described).items():
            figure = f"{name}-{key}.png" if key else f"{name}.png"
            print(f"\n{folder / figure}\n  {caption}")
        claims = load_findings(described)
        if not claims:
            print(f"\n{name}: no claims")
            continue
        print(f"\n{claims_table(claims, quick=described['quick'])}\n\n{name}: {tally(claims)}")
    return 0
