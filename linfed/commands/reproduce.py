"""``linfed reproduce``: run experiments and grids of one's own, draw their figures, judge their claims."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from linfed.commands.interrupts import interrupt, signals
from linfed.commands.options import (
    SHARD_DONE,
    add_experiments,
    add_means,
    add_names,
    check_readable,
    failed,
    means,
    results_folder,
)

if TYPE_CHECKING:
    from linfed.reproduction.run import Options, Reproduction


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "reproduce",
        help="run experiments: data, figures and verdicts",
        description="Run experiments and write PNG, PDF, CSV, npz and JSON; then print the claims table. FILE.py is a "
        "Python file with cells(quick), which returns a list of cells; plot, claims and SUMMARY are optional.",
    )
    add_names(command, "or all")
    command.add_argument("--quick", action="store_true", help="fewer trials and smaller sizes, the same meaning")
    command.add_argument("--draw", action="store_true", help="compute nothing: as linfed replot")
    command.add_argument("--trials", type=int, metavar="T", help="trials of each setting")
    command.add_argument("--seed", type=int, metavar="S", help="seed of the run")
    text = "replace a field of the cells, e.g. --set dim=30; may be repeated"
    command.add_argument("--set", action="append", metavar="FIELD=VALUE", default=[], help=text)
    text = "where to write (default: results, results/quick, and results/set for --set)"
    command.add_argument("--out", metavar="DIR", help=text)
    add_experiments(command)
    add_printed(command)
    add_means(command)
    command.set_defaults(run=run)


def add_printed(command: argparse.ArgumentParser) -> None:
    """Add the options that say what is printed, and what the exit status says."""
    command.add_argument("--verbose", action="store_true", help="list every file that is written")
    told = (
        "exit status 1 where a verdict is not that of the committed full run, or a run has other settings; a line each"
    )
    command.add_argument("--strict", action="store_true", help=told)


def run(given: argparse.Namespace) -> int:
    """Run the experiments, or draw and judge what earlier runs saved."""
    from linfed.errors import UsageError
    from linfed.reproduction.own_settings import read_settings
    from linfed.reproduction.run import Options, cells_ready, default_folder, writable_folder

    for name, minimum in (("trials", 1), ("seed", 0)):
        value = getattr(given, name)
        if value is not None and value < minimum:
            raise UsageError(f"--{name} {value} must be at least {minimum}")
        if value is not None and given.draw:
            raise UsageError(f"--draw takes what an earlier run saved: --{name} {value} changes nothing in it")
    settings = read_settings(given.set)
    for name in settings.keys() & {"trials", "seed"}:
        if getattr(given, name) is not None:
            raise UsageError(f"--{name} and --set {name} exclude each other")
    for name in ("fresh", "keep", "shard", "dask", "mpi", "set"):
        if getattr(given, name) and given.draw:
            raise UsageError(f"--draw takes what an earlier run saved and computes nothing: leave out --{name}")
    if given.draw:
        return redraw(given)
    files = wanted(given)
    check_strict(given, files)
    out = Path(given.out or default_folder(quick=given.quick, own=bool(settings)))
    options = Options(quick=given.quick, trials=given.trials, seed=given.seed, set=settings, out=str(out))
    for file in files.values():
        cells_ready(file, options)
    check_readable(out)
    writable_folder(str(out))
    with means(given) as where, signals(interrupt):
        return through(files, dataclasses.replace(options, means=where), given)


def redraw(given: argparse.Namespace) -> int:
    """Draw and judge what earlier runs saved; all is those that there are."""
    from linfed.errors import UsageError
    from linfed.reproduction.records import state_of
    from linfed.reproduction.run import Options, load_tables, writable_folder

    out = results_folder(given)
    files = wanted(given, lambda name: bool(state_of(name, out)))
    check_strict(given, files)
    if not files:
        raise UsageError(
            f"no saved run in {str(out.resolve())!r}: linfed reproduce NAME makes one, --out DIR has others"
        )
    for name in files:
        load_tables(name, out)
    writable_folder(str(out))
    with signals(interrupt):
        return through(files, Options(quick=given.quick, out=str(out), draw=True), given)


def wanted(given: argparse.Namespace, of_all: Callable[[str], bool] = bool) -> dict[str, Path]:
    """Return the files of the experiments that are asked for by their names, all of them imported once.

    ``all`` is those of the folder of whose names `of_all` is true.
    """
    from linfed.errors import UsageError
    from linfed.reproduction.experiments import experiment_files, experiments_folder, find, load_file, name_of

    alone = all(asked.endswith(".py") for asked in given.names)
    folder = Path() if alone else experiments_folder(given.experiments)
    files: dict[str, Path] = {}
    for asked in (asked for asked in given.names if asked != "all"):
        file = find(asked, folder)
        if files.setdefault(name_of(file), file).resolve() != file.resolve():
            raise UsageError(f"{str(file)!r} and {str(files[name_of(file)])!r} have the same name: run them one by one")
    if "all" in given.names:
        files |= {name: file for name, file in experiment_files(folder).items() if of_all(name)}
    for file in files.values():
        load_file(file)
    return files


def check_strict(given: argparse.Namespace, names: Iterable[str]) -> None:
    """Raise where there are no verdicts to compare with."""
    from linfed.errors import UsageError
    from linfed.reproduction.committed import committed_runs

    if not given.strict:
        return
    if given.quick:
        raise UsageError("--strict compares with the verdicts of full runs: leave out --quick")
    for name in names:
        if name not in committed_runs():
            raise UsageError(f"--strict: linfed knows of no committed run of {name!r} to compare with")


def through(files: Mapping[str, Path], options: Options, given: argparse.Namespace) -> int:
    """Run one experiment after the other, print what came of each and of all, and return the exit status."""
    from linfed.commands.printed import banner, report, summary, written
    from linfed.errors import SweepError
    from linfed.reproduction.run import reproduce
    from linfed.sweeps.progress import say

    os.environ["MPLBACKEND"] = "Agg"  # figures go to files, whatever shows them elsewhere
    status, runs = 0, dict[str, "Reproduction"]()
    if options.quick and not options.draw:
        print(banner(), flush=True)
    for number, (name, file) in enumerate(files.items(), start=1):
        say(name, _ahead(name, options, f"{number} of {len(files)}"), options.means.progress)
        try:
            done = reproduce(file, options)
        except SweepError as error:
            status = failed(name, error)
            continue
        if done is None:
            print(f"{name}: {SHARD_DONE.format(given.shard)}", flush=True)
            continue
        runs[name] = done
        print(report(name, done, verbose=given.verbose), flush=True)
    if len(runs) > 1:
        print(f"\n{summary(runs)}")
    if runs:
        print(f"\n{written(runs, Path(options.folder))}", flush=True)
    return max(status, _compared(runs)) if given.strict else status


def _ahead(name: str, options: Options, place: str) -> str:
    """Return which run comes now, and how long the committed one took, if it is the same."""
    from linfed.reproduction.committed import committed_runs
    from linfed.sweeps.progress import about

    known = committed_runs().get(name)
    same = not (options.quick or options.draw or options.trials or options.set)
    took = f"; the committed run took {about(known.seconds)} on two processors" if known and known.seconds else ""
    return f"experiment {place}{took if same else ''}"


def _compared(runs: dict[str, Reproduction]) -> int:
    """Print where settings or verdicts are not those of the committed runs, and return the exit status.

    Where settings differ, verdicts may, and say nothing of the code: they are not compared.
    """
    from linfed.errors import UsageError
    from linfed.reproduction.committed import differences, other_settings
    from linfed.reproduction.records import recorded

    told, others = [], []
    for name, done in runs.items():
        if done.quick:
            raise UsageError(f"--strict compares with the verdicts of full runs, and that of {name!r} is a quick one")
        if other := other_settings(name, done.settings):
            others.append(other)
        else:
            told += differences(name, [recorded(claim) for claim in done.claims or []])
    print(*others, *told, sep="\n", end="\n" * bool(others or told), file=sys.stderr)
    verdicts = f"{len(told)} verdict{'s' * (len(told) != 1)} other than" if told else "all verdicts as"
    found = [f"{verdicts} in the committed runs"] if len(others) < len(runs) else []
    found += [f"not compared, with other settings: {len(others)} of {len(runs)} runs"] if others else []
    print(f"--strict: {'; '.join(found)}")
    return int(bool(told or others))
