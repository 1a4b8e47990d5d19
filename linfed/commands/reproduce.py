"""``linfed reproduce``: run experiments, draw their figures, judge their claims."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from linfed.commands.interrupts import interrupt, signals
from linfed.commands.options import SHARD_DONE, add_experiments, add_means, failed, means, results_folder

if TYPE_CHECKING:
    from linfed.reproduction.run import Options, Reproduction


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "reproduce",
        help="run experiments: data, figures and verdicts",
        description="Run experiments and write PNG, PDF, CSV, npz and JSON; then print the claims table.",
    )
    command.add_argument("names", nargs="+", metavar="NAME", help="an experiment's name (linfed list), or all")
    command.add_argument("--quick", action="store_true", help="fewer trials and smaller sizes, the same meaning")
    command.add_argument("--draw", action="store_true", help="compute nothing: as linfed replot")
    command.add_argument("--trials", type=int, metavar="T", help="trials of each setting")
    command.add_argument("--seed", type=int, metavar="S", help="seed of the run")
    command.add_argument("--out", metavar="DIR", help="where to write (default: results, or results/quick)")
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
    from linfed.reproduction.experiments import experiment_files, experiments_folder
    from linfed.reproduction.run import Options, writable_folder

    for name, minimum in (("trials", 1), ("seed", 0)):
        value = getattr(given, name)
        if value is not None and value < minimum:
            raise UsageError(f"--{name} {value} must be at least {minimum}")
        if value is not None and given.draw:
            raise UsageError(f"--draw takes what an earlier run saved: --{name} {value} changes nothing in it")
    for name in ("fresh", "keep", "shard", "dask", "mpi"):
        if getattr(given, name) and given.draw:
            raise UsageError(f"--draw takes what an earlier run saved and computes nothing: leave out --{name}")
    if given.draw:
        return redraw(given)
    folder = experiments_folder(given.experiments)
    names = wanted(given.names, list(experiment_files(folder)), folder)
    check_strict(given, names)
    out = results_folder(given)
    writable_folder(str(out))
    with means(given) as where, signals(interrupt):
        options = Options(quick=given.quick, trials=given.trials, seed=given.seed, out=str(out), means=where)
        return through(names, folder, options, given)


def redraw(given: argparse.Namespace) -> int:
    """Draw and judge what earlier runs saved; all is those that there are."""
    from linfed.errors import UsageError
    from linfed.reproduction.experiments import experiment_files, experiments_folder
    from linfed.reproduction.records import state_of
    from linfed.reproduction.run import Options, load_tables, writable_folder

    folder, out = experiments_folder(given.experiments), results_folder(given)
    saved = [name for name in experiment_files(folder) if state_of(name, out)]
    names = wanted(given.names, saved, folder)
    check_strict(given, names)
    if not names:
        raise UsageError(
            f"no saved run in {str(out.resolve())!r}: linfed reproduce NAME makes one, --out DIR has others"
        )
    for name in names:
        load_tables(name, out)
    writable_folder(str(out))
    with signals(interrupt):
        return through(names, folder, Options(quick=given.quick, out=str(out), draw=True), given)


def wanted(names: Sequence[str], everything: Sequence[str], folder: Path) -> list[str]:
    """Return the experiments that are asked for; every mistake is found before the first computation."""
    from linfed.reproduction.experiments import check_known, load

    for name in names:
        if name != "all":
            check_known(name, folder)
    chosen = list(everything) if "all" in names else list(dict.fromkeys(names))
    for name in chosen:
        load(name, folder)
    return chosen


def check_strict(given: argparse.Namespace, names: Sequence[str]) -> None:
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


def through(names: Sequence[str], folder: Path, options: Options, given: argparse.Namespace) -> int:
    """Run one experiment after the other, print what came of each and of all, and return the exit status."""
    from linfed.commands.printed import banner, report, summary, written
    from linfed.errors import SweepError
    from linfed.reproduction.run import reproduce
    from linfed.sweeps.progress import say

    os.environ["MPLBACKEND"] = "Agg"  # figures go to files, whatever shows them elsewhere
    status, runs = 0, dict[str, "Reproduction"]()
    if options.quick and not options.draw:
        print(banner(), flush=True)
    for number, name in enumerate(names, start=1):
        say(name, _ahead(name, options, f"{number} of {len(names)}"), options.means.progress)
        try:
            done = reproduce(name, folder, options)
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
    same = not (options.quick or options.draw or options.trials)
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
            told += differences(name, [recorded(claim) for claim in done.claims])
    print(*others, *told, sep="\n", end="\n" * bool(others or told), file=sys.stderr)
    verdicts = f"{len(told)} verdict{'s' * (len(told) != 1)} other than" if told else "all verdicts as"
    found = [f"{verdicts} in the committed runs"] if len(others) < len(runs) else []
    found += [f"not compared, with other settings: {len(others)} of {len(runs)} runs"] if others else []
    print(f"--strict: {'; '.join(found)}")
    return int(bool(told or others))
