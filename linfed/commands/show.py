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
    from linfed.reproduction.records import (
        captions_of,
        figure_stem,
        is_judged,
        kind_of_run,
        load_findings,
        not_judged,
        read_saved,
    )

    folder = results_folder(given)
    names = [name_of(Path(name)) if name.endswith(".py") else name for name in given.names]
    saved = {name: read_saved(name, folder) for name in names}
    if any(described["quick"] for described in saved.values()):
        print(banner())
    for name, described in saved.items():
        print(end="\n" * (name != names[0]))
        versions = described.get("versions") or {}
        commit = f", commit {described['commit']}" if described.get("commit") else ""
        print(wrapped(f"{name}: {kind_of_run(described)}, linfed {versions.get('linfed', '?')}{commit}"))
        for key, caption in captions_of(described).items():
            print(wrapped(f"{folder / figure_stem(name, key)}.png\n  {caption}"))
        claims = load_findings(described)
        if claims:
            print(claims_text(name, claims, verbose=given.verbose))
        elif not described.get("remarks"):
            print(wrapped(f"{name}: {'no claims' if is_judged(described) else not_judged(described, folder)}"))
        for remark in described.get("remarks", []):
            print(wrapped(f"{name}: {remark}"))
    return 0
