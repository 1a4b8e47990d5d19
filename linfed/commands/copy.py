"""``linfed copy``: copy an experiment with the modules that it shares with others, to change it."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
from pathlib import Path

from linfed.commands.options import add_experiments


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "copy",
        help="copy an experiment to a folder, to change it",
        description="Copy the file of an experiment, and the modules that it shares with others, to a new folder.",
    )
    command.add_argument("name", metavar="NAME", help="name of an experiment (see linfed list)")
    command.add_argument("folder", metavar="DIR", nargs="?", default="mine", help="new folder (default: mine)")
    add_experiments(command)
    command.set_defaults(run=run)


def _is_free(name: str) -> bool:
    """Return whether a new package can have a name, and no other module has it."""
    if not name.isidentifier() or keyword.iskeyword(name) or name == "experiments":
        return False
    try:
        return importlib.util.find_spec(name) is None
    except ValueError:  # __main__
        return False


def run(given: argparse.Namespace) -> int:
    """Copy the files, print how to run the copy, and return the exit status."""
    from linfed.errors import UsageError
    from linfed.reproduction.experiments import copied_files, experiments_folder, find

    file, folder = find(given.name, experiments_folder(given.experiments)), Path(given.folder)
    if not _is_free(folder.name) or folder.exists():
        raise UsageError(f"DIR = {given.folder!r} must be a new folder with the name of a Python package, e.g. mine")
    try:
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f'"""Copy of the experiment {given.name}."""\n', encoding="utf-8")
        for path in copied_files(file):
            content = path.read_bytes()
            if path.suffix == ".py":  # all modules are in one folder now
                content = re.sub(rb"(?m)^( *from )\.\.\w+\.?", rb"\1.", content)
            (folder / path.name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{str(folder)!r} cannot be written: {error.strerror}") from None
    print(f"Change {folder / file.name}, and run linfed reproduce {folder / file.name} --out {folder / 'results'}")
    return 0
