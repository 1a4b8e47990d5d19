"""``linfed list``: list experiments, with the time of a full run and the saved runs, or algorithms."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linfed.commands.options import add_experiments, results_folder

if TYPE_CHECKING:
    from linfed.reproduction.record import ResultsFolder


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "list",
        help="list experiments or algorithms",
        description="List experiments, one per line, with the time of a full run on two processors and the saved runs.",
    )
    command.add_argument("--algorithms", action="store_true", help="list algorithms instead")
    command.add_argument("--out", metavar="DIR", help="folder of saved runs (default: results)")
    add_experiments(command)
    command.set_defaults(run=run, quick=False)


def run(given: argparse.Namespace) -> int:
    """Print the experiments by section, or the algorithms."""
    if given.algorithms:
        from linfed.algorithms import ALGORITHMS
        from linfed.errors import UsageError

        if given.out or given.experiments:
            raise UsageError("--algorithms lists algorithms: leave out --out and --experiments")

        about = [(name, algorithm.description) for name, algorithm in ALGORITHMS.items()]
        print(*_table([("algorithm", "about"), *about]), sep="\n")
        return 0
    from linfed.reproduction.committed import committed_runs
    from linfed.reproduction.experiments import declared_in, experiments_folder
    from linfed.sweeps.progress import format_duration

    folder, results = experiments_folder(given.experiments), results_folder(given)
    committed, declared = committed_runs(), declared_in(folder)
    times = {name: format_duration(run.seconds).removeprefix("about ") for name, run in committed.items()}
    states = {name: _states(name, results) for name in declared}
    saved = [states] * any(states.values())  # without saved runs, the column is left out
    rows = [
        (
            name,
            times.get(name, "-"),
            *(states[name] for states in saved),
            one.summary.removeprefix(f"{one.section} paper, "),
        )
        for name, one in declared.items()
    ]
    head, *lines = _table([("experiment", "time", *("saved" for _ in saved), "about"), *rows])
    section = ""
    print(head)
    for one, line in zip(declared.values(), lines, strict=True):
        if one.section != section:
            section = one.section
            print(section)
        print(line)
    return 0


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows in aligned columns, each on one line that is cut at the width of the terminal."""
    width = shutil.get_terminal_size().columns
    columns = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    lines = []
    for *cells, text in rows:
        line = "  " + "".join(f"{cell:<{size + 2}}" for cell, size in zip(cells, columns, strict=True)) + (text or "-")
        lines.append(line if len(line) <= width else line[: width - 3].rstrip() + "...")
    return lines


def _states(name: str, results: ResultsFolder) -> str:
    """Return the kinds of an experiment's saved runs, e.g. ``full, quick``, or an empty text without any."""
    found = dict.fromkeys(results.part(quick=quick).status(name) for quick in (False, True))
    return ", ".join(state for state in found if state)
