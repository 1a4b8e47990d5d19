"""``linfed list``: list algorithms and experiments, with the time of a full run and the saved runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from linfed.commands.options import add_experiments, results_folder


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "list",
        help="list experiments and algorithms",
        description="List algorithms and experiments, one line each. For an experiment, the line has the time of a "
        "full run and the saved runs.",
    )
    command.add_argument("--out", metavar="DIR", help="folder of saved runs (default: results)")
    add_experiments(command)
    command.set_defaults(run=run, quick=False)


def run(given: argparse.Namespace) -> int:
    """Print the algorithms and the experiments."""
    from linfed.algorithms import ALGORITHMS
    from linfed.reproduction.committed import committed_runs
    from linfed.reproduction.experiments import experiment_files, experiments_folder, summary_of
    from linfed.sweeps.progress import format_duration

    folder, results = experiments_folder(given.experiments), results_folder(given)
    print("algorithms")
    for name, algorithm in ALGORITHMS.items():
        print(f"  {name:<24} {algorithm.summary}")
    print(f"experiments, with the time of a full run on two processors and the saved runs in {str(results)!r}")
    committed = committed_runs()
    for name in experiment_files(folder):
        seconds = committed[name].seconds if name in committed else None
        time = "-" if seconds is None else format_duration(seconds)
        print(f"  {name:<24} {time:<12} {_states(name, results):<12} {summary_of(name, folder)}")
    return 0


def _states(name: str, results: Path) -> str:
    """Return the kinds of an experiment's saved runs, e.g. ``full, quick``, or ``-`` without any."""
    from linfed.reproduction.records import run_status

    found = dict.fromkeys(run_status(name, folder) for folder in (results, results / "quick"))
    return ", ".join(state for state in found if state) or "-"
