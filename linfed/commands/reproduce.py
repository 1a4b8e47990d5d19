"""``linfed reproduce``: run experiments, or your own file of cells; draw the figures and judge the claims."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from linfed.commands.interrupts import interrupt, signals
from linfed.commands.options import (
    SHARD_DONE,
    add_execution,
    add_experiments,
    add_names,
    execution_options,
    failed,
    results_folder,
)

if TYPE_CHECKING:
    from linfed.reproduction.run import ReproduceOptions, Reproduction


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "reproduce",
        help="run experiments: write data and figures, print verdicts",
        description="Run experiments, write tables (CSV, npz), figures (PNG, PDF) and a record (JSON), and print the "
        "claims with their verdicts. FILE.py is your own experiment: a Python file with a function cells(quick) that "
        "returns a list of cells; CLAIMS, plot and SUMMARY are optional.",
    )
    add_names(command, "or all for all experiments")
    command.add_argument(
        "--quick", action="store_true", help="use fewer trials and smaller sizes, for a check of the code"
    )
    command.add_argument("--trials", type=int, metavar="T", help="number of trials of each cell")
    command.add_argument("--seed", type=int, metavar="S", help="seed of the run")
    text = "replace a field of the cells, e.g. --set dim=30; may be repeated"
    command.add_argument("--set", action="append", metavar="FIELD=VALUE", default=[], help=text)
    text = (
        "folder to write to (default: results, or results/quick with --quick; results/set or results/set/quick with "
        "--trials, --seed or --set)"
    )
    command.add_argument("--out", metavar="DIR", help=text)
    add_experiments(command)
    add_printed(command)
    add_execution(command)
    command.set_defaults(run=run)


def add_printed(command: argparse.ArgumentParser) -> None:
    """Add the options for the printed text and the exit status."""
    command.add_argument(
        "--verbose", action="store_true", help="list all written files, and the verdicts in each setting"
    )
    text = "compare with the committed full runs; exit with status 1 if verdicts or settings differ"
    command.add_argument("--strict", action="store_true", help=text)


def run(given: argparse.Namespace) -> int:
    """Run the experiments, or redraw and judge saved runs; return the exit status."""
    from linfed.errors import UsageError
    from linfed.reproduction.experiments import experiment_files
    from linfed.reproduction.own_settings import read_settings
    from linfed.reproduction.run import ReproduceOptions, cells_ready

    for name, minimum in (("trials", 1), ("seed", 0)):
        value = getattr(given, name)
        if value is not None and value < minimum:
            raise UsageError(f"--{name} {value} must be at least {minimum}")
    settings = read_settings(given.set)
    for name in settings.keys() & {"trials", "seed"}:
        if getattr(given, name) is not None:
            raise UsageError(f"--{name} and --set {name} cannot be combined")
    if given.strict and given.shard:
        raise UsageError("--strict and --shard cannot be combined: a shard has no verdicts")
    files = wanted(given, experiment_files)
    check_strict(given, files)
    options = ReproduceOptions(quick=given.quick, trials=given.trials, seed=given.seed, set=settings, out=given.out)
    for file in files.values():
        cells_ready(file, options)
    options.folder.check_readable()
    options.folder.create()
    with execution_options(given) as where, signals(interrupt):
        return through(files, dataclasses.replace(options, execution=where), given)


def redraw(given: argparse.Namespace) -> int:
    """Redraw and judge saved runs, and return the exit status; ``all`` means all saved runs."""
    from linfed.errors import UsageError
    from linfed.reproduction.experiments import experiment_files
    from linfed.reproduction.run import ReproduceOptions, load_tables

    out = results_folder(given)

    def saved(folder: Path) -> dict[str, Path]:
        of_folder = {name: file for name, file in experiment_files(folder).items() if out.status(name)}
        return of_folder if given.strict else out.own_files() | of_folder  # no committed run of one's own file

    files = wanted(given, saved)
    check_strict(given, files)
    if not files:
        raise UsageError(
            f"no saved run in {str(out.path.resolve())!r}: run linfed reproduce NAME, or choose a folder with --out DIR"
        )
    for name in files:
        load_tables(out.read(name, with_claims=False), out)
    out.create()
    with signals(interrupt):
        return through(files, ReproduceOptions(quick=given.quick, out=str(out.path), draw=True), given)


def wanted(given: argparse.Namespace, every: Callable[[Path], Mapping[str, Path]]) -> dict[str, Path]:
    """Return the files of the requested experiments by name, after importing each.

    ``all`` stands for the files that `every` returns for the folder of experiments.
    """
    from linfed.errors import UsageError
    from linfed.reproduction.experiments import experiments_folder, find, load_file, name_of

    alone = all(argument.endswith(".py") for argument in given.names)
    folder = Path() if alone else experiments_folder(given.experiments)
    asked = [(name_of(file), file) for file in (find(one, folder) for one in given.names if one != "all")]
    asked += every(folder).items() if "all" in given.names else []
    files: dict[str, Path] = {}
    for name, file in asked:
        if files.setdefault(name, file).resolve() != file.resolve():
            raise UsageError(f"{str(file)!r} and {str(files[name])!r} have the same name: run them separately")
    for file in files.values():
        load_file(file)
    return files


def check_strict(given: argparse.Namespace, files: Mapping[str, Path]) -> None:
    """Raise `UsageError` if ``--strict`` is given but there are no committed verdicts to compare with."""
    from linfed.errors import UsageError
    from linfed.reproduction.committed import committed_runs
    from linfed.reproduction.experiments import is_named

    if not given.strict:
        return
    if given.quick:
        raise UsageError("--strict compares the verdicts of full runs: leave out --quick")
    for name, file in files.items():
        if name not in committed_runs() or not is_named(file):
            raise UsageError(f"--strict requires a committed run, but there is none of {name!r}: leave it out")


def through(files: Mapping[str, Path], options: ReproduceOptions, given: argparse.Namespace) -> int:
    """Run experiments in turn, print the report of each and a summary, and return the exit status."""
    from linfed.commands.printed import banner, report, summary, written
    from linfed.errors import SweepError
    from linfed.reproduction.experiments import is_named
    from linfed.reproduction.run import changes_of, reproduce
    from linfed.sweeps.progress import log_status

    os.environ["MPLBACKEND"] = "Agg"  # figures are only written to files
    status, runs = 0, dict[str, "Reproduction"]()
    if options.quick:
        print(banner(), flush=True)
    for number, (name, file) in enumerate(files.items(), start=1):
        log_status(
            name,
            _ahead(name if is_named(file) else "", options, f"{number} of {len(files)}"),
            options.execution.progress,
        )
        try:
            done = reproduce(file, options)
        except SweepError as error:
            status = failed(name, error, changes_of(options) if is_named(file) else {})
            continue
        if done is None:
            print(f"{name}: {SHARD_DONE.format(given.shard)}", flush=True)
            continue
        if done.quick and not (options.quick or any(one.quick for one in runs.values())):
            print(banner())
        runs[name] = done
        status = status if done.complete else 2
        print(report(name, done, verbose=given.verbose), flush=True)
    if len(runs) > 1:
        print(f"\n{summary(runs)}")
    if runs:
        print(written(runs, options.folder.path, verbose=given.verbose), flush=True)
    return max(status, _compared(runs)) if given.strict and runs else status


def _ahead(name: str, options: ReproduceOptions, place: str) -> str:
    """Return the position of the next experiment, and the time of its committed run if the settings are the same."""
    from linfed.reproduction.committed import committed_runs
    from linfed.sweeps.progress import format_duration

    committed_run = committed_runs().get(name)
    same = not (options.quick or options.draw or options.trials or options.set)
    took = (
        f"; the committed run took {format_duration(committed_run.seconds)} on two processors" if committed_run else ""
    )
    return f"experiment {place}{took if same else ''}"


def _compared(runs: dict[str, Reproduction]) -> int:
    """Print differences in settings and verdicts from the committed runs, and return the exit status.

    If the settings differ, the verdicts are not compared: a difference would not come from the code.
    """
    from linfed.errors import UsageError
    from linfed.reproduction.committed import differences, other_settings

    changed_verdicts, others = [], []
    for name, done in runs.items():
        if done.quick:
            raise UsageError(f"--strict compares the verdicts of full runs, but the saved run of {name!r} is quick")
        if other := other_settings(name, done.settings):
            others.append(other)
        else:
            changed_verdicts += differences(name, done.claims or [])
    print(*others, *changed_verdicts, sep="\n", end="\n" * bool(others or changed_verdicts), file=sys.stderr)
    differ = (
        f"{len(changed_verdicts)} verdict{'s differ' if len(changed_verdicts) > 1 else ' differs'} from"
        if changed_verdicts
        else "all verdicts as in"
    )
    found = [f"{differ} the committed runs"] if len(others) < len(runs) else []
    found += [f"{len(others)} of {len(runs)} runs not compared, because their settings differ"] if others else []
    print(f"--strict: {'; '.join(found)}")
    return int(bool(changed_verdicts or others))
