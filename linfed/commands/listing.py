"""``linfed list``: algorithms and experiments, how long these take, and which of them were run here."""

from __future__ import annotations

import argparse
from pathlib import Path

from linfed.commands.options import add_experiments, results_folder


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "list",
        help="experiments and algorithms, one line each",
        description="List algorithms, and experiments with the time of a full run and those that were run here.",
    )
    command.add_argument("--out", metavar="DIR", help="where runs were written (default: results)")
    add_experiments(command)
    command.set_defaults(run=run, quick=False)


def run(given: argparse.Namespace) -> int:
    """Print the lists."""
    from linfed.algorithms import ALGORITHMS
    from linfed.reproduction.committed import committed_runs
    from linfed.reproduction.experiments import experiment_files, experiments_folder, summary_of
    from linfed.sweeps.progress import about

    folder, results = experiments_folder(given.experiments), results_folder(given)
    print("algorithms")
    for name, algorithm in ALGORITHMS.items():
        print(f"  {name:<24} {algorithm.summary}")
    print(f"experiments, with the time of the committed full run (two processors) and what was run in {str(results)!r}")
    known = committed_runs()
    for name in experiment_files(folder):
        seconds = known[name].seconds if name in known else None
        time = "-" if seconds is None else about(seconds)
        print(f"  {name:<24} {time:<12} {_states(name, results):<12} {summary_of(name, folder)}")
    return 0


def _states(name: str, results: Path) -> str:
    """Return which runs of an experiment there are, e.g. ``full, quick``."""
    from linfed.reproduction.records import state_of

    found = dict.fromkeys(state_of(name, folder) for folder in (results, results / "quick"))
    return ", ".join(state for state in found if state) or "-"
