"""``linfed list``: list algorithms and experiments, with the time of a full run and the saved runs."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linfed.commands.options import add_experiments, results_folder

if TYPE_CHECKING:
    from linfed.reproduction.record import ResultsFolder


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "list",
        help="list experiments and algorithms",
        description="List algorithms and experiments, with the time of a full run and the saved runs.",
    )
    command.add_argument("--out", metavar="DIR", help="folder of saved runs (default: results)")
    add_experiments(command)
    command.set_defaults(run=run, quick=False)


def run(given: argparse.Namespace) -> int:
    """Print the algorithms and the experiments."""
    from linfed.algorithms import ALGORITHMS
    from linfed.reproduction.committed import committed_runs
    from linfed.reproduction.experiments import declared_in, experiment_files, experiments_folder
    from linfed.sweeps.progress import format_duration

    folder, results = experiments_folder(given.experiments), results_folder(given)
    _print_table("algorithms", [(name, algorithm.summary) for name, algorithm in ALGORITHMS.items()])
    committed, declared = committed_runs(), declared_in(folder)
    rows = []
    for name in experiment_files(folder):
        time = format_duration(committed[name].seconds).removeprefix("about ") if name in committed else "-"
        rows.append((name, time, _states(name, results), declared[name].summary))
    _print_table(f"experiments, time of a full run on two processors, and saved runs in {str(results.path)!r}", rows)
    return 0


def _print_table(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in aligned columns, and wrap the last column to the width of the terminal."""
    width = shutil.get_terminal_size().columns
    print(*textwrap.wrap(title, width), sep="\n")
    columns = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    for *cells, text in rows:
        start = "  " + "".join(f"{cell:<{size + 2}}" for cell, size in zip(cells, columns, strict=True))
        further = " " * min(len(start), width // 2)
        print(
            textwrap.fill(text or "-", width, initial_indent=start, subsequent_indent=further, break_on_hyphens=False)
        )


def _states(name: str, results: ResultsFolder) -> str:
    """Return the kinds of an experiment's saved runs, e.g. ``full, quick``, or ``-`` without any."""
    found = dict.fromkeys(results.part(quick=quick).status(name) for quick in (False, True))
    return ", ".join(state for state in found if state) or "-"
