"""``linfed show``: print captions and claims of saved runs, or the claims that an experiment declares."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from linfed.commands.options import add_experiments, add_saved, results_folder

if TYPE_CHECKING:
    from linfed.reproduction.record import ResultsFolder, RunRecord


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "show",
        help="print captions and claims of saved runs",
        description="Print the captions of the figures and the claims of saved runs. With --claims, print the declared "
        "claims of experiments. Nothing is computed or written.",
    )
    text = "name of an experiment, its FILE.py, or saved results: a folder or one NAME.json"
    command.add_argument("names", nargs="+", metavar="NAME", help=text)
    add_saved(command)
    command.add_argument("--verbose", action="store_true", help="print the verdicts in each setting")
    text = (
        "print the claims that the experiment declares: sentence, source, statistic and required range; without a run"
    )
    command.add_argument("--claims", action="store_true", help=text)
    add_experiments(command)
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print captions and claims of saved runs, or declared claims, and return the exit status."""
    if given.claims:
        return _declared(given)
    from linfed.commands.printed import banner, claims_text, wrapped
    from linfed.errors import UsageError
    from linfed.reproduction.experiments import relative_path

    if given.experiments:
        raise UsageError(f"--experiments {given.experiments} is for --claims: leave it out, or add --claims")
    saved = [run for argument in given.names for run in _runs(argument, results_folder(given))]
    if any(record.quick for _, record in saved):
        print(banner())
    for number, (folder, record) in enumerate(saved):
        print(end="\n" * (number > 0))
        name = record.experiment
        commit = f", commit {record.commit}" if record.commit else ""
        file = f", {relative_path(record.file)}" if record.file else ""
        print(wrapped(f"{name}: {record.kind}, linfed {record.versions.get('linfed', '?')}{commit}{file}"))
        for key, caption in record.figures.items():
            drawn = folder.picture(name, key) or f"{folder.figure(name, key, '').name} (no picture in this folder)"
            print(wrapped(f"{drawn}\n  {caption}"))
        if record.claims:
            print(claims_text(name, record.claims, verbose=given.verbose))
        elif not record.remarks:
            print(wrapped(f"{name}: {'no claims' if record.is_judged else folder.not_judged(record)}"))
        for remark in record.remarks:
            print(wrapped(f"{name}: {remark}"))
    return 0


def _declared(given: argparse.Namespace) -> int:
    """Print the claims that experiments declare, and return the exit status."""
    from linfed.claims import claims_text
    from linfed.commands.printed import wrapped
    from linfed.commands.reproduce import wanted
    from linfed.errors import UsageError
    from linfed.reproduction.experiments import experiment_files, load_file
    from linfed.reproduction.judging import claims_of

    if given.quick or given.out or given.verbose:
        raise UsageError("--claims prints declared claims: leave out --quick, --out and --verbose")
    for number, (name, file) in enumerate(wanted(given, experiment_files).items()):
        module = load_file(file)
        computed = "its function claims(tables) judges them after a run" if hasattr(module, "claims") else "no claims"
        claims = claims_of(file, module)
        print(end="\n" * (number > 0))
        print(wrapped(f"{name}: {claims_text(claims) if claims else computed}"))
        if claims and hasattr(module, "claims"):
            print(wrapped(f"\n{name}: further claims: {computed}"))
    return 0


def _runs(argument: str, folder: ResultsFolder) -> list[tuple[ResultsFolder, RunRecord]]:
    """Return the runs that an argument names, with their folders."""
    from linfed.reproduction.experiments import name_of
    from linfed.reproduction.record import read_runs

    if argument.endswith(".json") or (Path(argument).is_dir() and not folder.record(argument).exists()):
        folder, records = read_runs(argument, "NAME")
        return [(folder, record) for record in records.values()]
    if not argument.endswith(".py"):
        return [(folder, folder.read(argument))]
    record = folder.read(name_of(Path(argument)))
    if Path(argument).is_file():
        folder.check_same_file(record, Path(argument))
    return [(folder, record)]
