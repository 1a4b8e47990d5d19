"""The command line: ``linfed list``, ``reproduce`` and ``sweep``. Heavy imports wait until they are needed."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from linfed.errors import SweepError
    from linfed.study.means import Means


SHARD_DONE = "shard {} is done; copy the cells of all into one folder and run it without --shard"

KEPT_FRESH = "what was finished is kept, and the same command without --fresh goes on from there"

KEPT = "what was finished is kept, and the same command goes on from there"


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    top = argparse.ArgumentParser(
        prog="linfed", description="A theory testbed for federated representation learning on linear models."
    )
    top.add_argument("--version", action="store_true", help="print the version and stop")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    listing = commands.add_parser("list", help="experiments and algorithms, one line each")
    listing.add_argument("--experiments", metavar="DIR", help="folder of the experiments (default: ./experiments)")
    run = commands.add_parser(
        "reproduce",
        help="run experiments: data, figures and verdicts",
        description="Run experiments and write PNG, PDF, CSV, npz and JSON; then print the claims table.",
    )
    run.add_argument("names", nargs="+", metavar="NAME", help="an experiment's name, or all")
    run.add_argument("--quick", action="store_true", help="fewer trials and smaller sizes, the same meaning")
    run.add_argument("--draw", action="store_true", help="draw and judge the tables of an earlier run, compute nothing")
    run.add_argument("--trials", type=int, metavar="T", help="trials of each setting")
    run.add_argument("--seed", type=int, metavar="S", help="seed of the run")
    run.add_argument("--out", metavar="DIR", help="where to write (default: results, or results/quick)")
    run.add_argument("--experiments", metavar="DIR", help="folder of the experiments (default: ./experiments)")
    _add_means(run)
    grid = commands.add_parser(
        "sweep",
        help="run a grid of one's own: table and figure",
        description="Run the grid that a TOML file describes (see the README); write CSV, npz, JSON, PNG and PDF.",
    )
    grid.add_argument("file", metavar="FILE", help="problem, data, algorithms and axes, as TOML")
    grid.add_argument("--out", metavar="DIR", help="where to write (default: results/ and the file's name)")
    _add_means(grid)
    _add_reports(commands)
    return top


def _add_reports(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that read saved results."""
    page = commands.add_parser(
        "report",
        help="saved results as one page: scoreboard, figures, claims",
        description="Write report.html and REPORT.md from saved results; nothing is computed anew.",
    )
    page.add_argument("folder", nargs="?", default="results", metavar="FOLDER", help="saved results (default: results)")
    page.add_argument("--out", metavar="DIR", help="where to write (default: FOLDER)")
    page.add_argument("--against", metavar="OTHER", help="results of another run: what moved since then")
    page.add_argument("--experiments", metavar="DIR", help="folder of the experiments (default: ./experiments)")
    both = commands.add_parser(
        "compare",
        help="verdicts and estimates that moved between two runs",
        description="Compare the claims of two runs: folders of saved results, or one NAME.json of each.",
    )
    both.add_argument("before", metavar="A", help="saved results, a folder or NAME.json")
    both.add_argument("after", metavar="B", help="those of another run")
    both.add_argument("--relative", type=float, metavar="SHARE", help="tell also estimates that moved by this share")
    both.add_argument("--strict", action="store_true", help="exit with status 1 if a verdict moved")


def _add_means(command: argparse.ArgumentParser) -> None:
    """Add the options that say where cells are run."""
    command.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one per processor)")
    command.add_argument("--dask", metavar="ADDRESS", help="run the cells on a Dask cluster, e.g. tcp://host:8786")
    command.add_argument(
        "--mpi", action="store_true", help="run them on MPI: mpiexec -n 9 python -m mpi4py.futures -m linfed .."
    )
    command.add_argument("--shard", metavar="I/N", help="run the I-th of N parts of the cells only")
    command.add_argument("--keep", action="store_true", help="take finished cells even if the code has changed since")
    command.add_argument("--fresh", action="store_true", help="compute every cell anew")


@contextmanager
def _means(given: argparse.Namespace) -> Iterator[Means]:
    """Return a context with where cells are to be run, in which warnings are a line each."""
    from linfed.errors import StoreWarning, UsageError
    from linfed.study.means import Means
    from linfed.system.machine import processors

    if given.workers is not None and given.workers < 1:
        raise UsageError(f"--workers {given.workers} must be at least 1")
    for one, other in itertools.combinations(("dask", "mpi", "workers"), 2):
        if getattr(given, one) and getattr(given, other):
            raise UsageError(f"--{one} and --{other} exclude each other")
    if given.dask == "":
        raise UsageError("--dask needs the address of a scheduler, e.g. tcp://host:8786")
    if given.keep and given.fresh:
        raise UsageError("--keep and --fresh contradict each other")
    options = {"shard": _shard(given.shard), "keep": given.keep, "fresh": given.fresh}
    with warnings.catch_warnings():
        warnings.simplefilter("always", StoreWarning)
        warnings.showwarning = _one_line
        with _executor(given) as executor:
            workers = 1 if executor is not None else given.workers or processors()
            yield Means(executor=executor, workers=workers, **options)


@contextmanager
def _executor(given: argparse.Namespace) -> Iterator[Executor | None]:
    """Return a context with the executor that is asked for, if one is; it is closed at the end."""
    from linfed.system.clusters import dask_executor, mpi_executor

    if given.dask is not None:
        with dask_executor(given.dask) as executor:
            yield executor
    elif given.mpi:
        with mpi_executor() as executor:
            yield executor
    else:
        yield None


def _one_line(message: Warning | str, *where: object, **more: object) -> None:
    """Say a warning on one line."""
    print(f"linfed: {message}", file=sys.stderr, flush=True)


def _shard(given: str | None) -> tuple[int, int] | None:
    from linfed.errors import UsageError

    if given is None:
        return None
    found = re.fullmatch("([0-9]+)/([0-9]+)", given)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--shard {given} must be I/N with I from 1 to N, e.g. 1/2")
    return int(found[1]), int(found[2])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    It is 0, 2 for a mistake in the arguments, 1 for a file that cannot be written or a worker process that died, 141
    if nobody reads the output any more, 128 + N if signal N stopped it (130 for Ctrl-C, 143 for SIGTERM).
    """
    # While modules are imported the command ends at once, for some of them swallow what is raised. A caller that gave
    # the arguments itself has work of its own, and gets the exception.
    with _signals(_end if arguments is None else _interrupt):
        try:
            try:
                return _run(arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # said by the status alone, as other tools do
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
            return 128 + 13
        except KeyboardInterrupt as stopped:
            return _stopped("interrupted", 128 + int(stopped.args[0] if stopped.args else signal.SIGINT))


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt(number)


def _end(number: int, frame: object) -> None:
    os._exit(_stopped("interrupted", 128 + number))


@contextmanager
def _signals(act: Callable[[int, object], None]) -> Iterator[None]:
    """Return a context in which Ctrl-C, SIGTERM and SIGHUP act alike; those that are ignored or handled stay so."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    here = threading.current_thread() is threading.main_thread()
    known = (signal.SIG_DFL, signal.default_int_handler, _end)
    before = {number: signal.getsignal(number) for number in numbers if here and signal.getsignal(number) in known}
    for number in before:
        signal.signal(number, act)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped(why: str, status: int) -> int:
    """Say why a run stopped, and return its exit status."""
    kept = KEPT_FRESH if "--fresh" in sys.argv else KEPT
    print(f"linfed: {why}; {kept}", file=sys.stderr, flush=True)
    return status


def _run(arguments: Sequence[str] | None) -> int:
    top = parser()
    given = top.parse_args(arguments)
    if given.version:
        import linfed

        print(linfed.__version__)
        return 0
    if given.command is None:
        top.print_help()
        return 2
    from linfed.errors import UsageError, WorkerError, WriteError

    try:
        does = {"list": _list, "reproduce": _reproduce, "sweep": _sweep, "report": _report, "compare": _compare}
        return does[given.command](given)
    except UsageError as error:
        print(f"linfed: {error}", file=sys.stderr)
        return 2
    except (WorkerError, WriteError) as error:
        return _stopped(str(error), 1)


def _list(given: argparse.Namespace) -> int:
    from linfed.algorithms import ALGORITHMS
    from linfed.errors import UsageError
    from linfed.study.experiments import experiment_files, experiments_folder, load

    print("algorithms")
    for name, algorithm in ALGORITHMS.items():
        print(f"  {name:<24} {algorithm.summary}")
    print("experiments")
    try:
        folder = experiments_folder(given.experiments)
    except UsageError as error:
        print(f"  ({error})")
        return 0 if given.experiments is None else 2
    for name in experiment_files(folder):
        print(f"  {name:<24} {load(name, folder).SUMMARY}")
    return 0


def _reproduce(given: argparse.Namespace) -> int:
    from linfed.errors import SweepError, UsageError
    from linfed.study.experiments import experiment_files, experiments_folder, load
    from linfed.study.run import Options, report, reproduce, writable_folder

    for name, minimum in (("trials", 1), ("seed", 0)):
        value = getattr(given, name)
        if value is not None and value < minimum:
            raise UsageError(f"--{name} {value} must be at least {minimum}")
        if value is not None and given.draw:
            raise UsageError(f"--draw takes what an earlier run saved: --{name} {value} changes nothing in it")
    for name in ("fresh", "keep", "shard", "dask", "mpi"):
        if getattr(given, name) and given.draw:
            raise UsageError(f"--draw takes what an earlier run saved and computes nothing: leave out --{name}")
    folder = experiments_folder(given.experiments)
    everything = list(experiment_files(folder)) if "all" in given.names else []
    for name in dict.fromkeys([*given.names, *everything]):  # every mistake is found before the first computation
        if name != "all":
            load(name, folder)
    names = everything if "all" in given.names else list(dict.fromkeys(given.names))
    writable_folder(Options(quick=given.quick, out=given.out).folder)
    os.environ["MPLBACKEND"] = "Agg"  # figures go to files, whatever shows them elsewhere
    status = 0
    with _means(given) as means, _signals(_interrupt):
        options = Options(
            quick=given.quick,
            trials=given.trials,
            seed=given.seed,
            out=given.out,
            draw=given.draw,
            means=means,
        )
        for name in names:
            try:
                done = reproduce(name, folder, options)
            except SweepError as error:
                status = _failed(name, error)
                continue
            if done is None:
                print(f"{name}: {SHARD_DONE.format(given.shard)}", flush=True)
            else:
                print(report(name, done), flush=True)
    return status


def _failed(name: str, error: SweepError) -> int:
    """Tell of cells that raised: the first as Python does, all in a line each; return the exit status."""
    import traceback

    traceback.print_exception(error.failures[0].error)
    for failure in error.failures:
        print(f"linfed: {name}: {failure}", file=sys.stderr)
    print(f"linfed: {name}: {str(error).partition(',')[0]}; {KEPT}", file=sys.stderr, flush=True)
    return 1


def _sweep(given: argparse.Namespace) -> int:
    from linfed.errors import SweepError
    from linfed.study.swept import report, sweep_file

    os.environ["MPLBACKEND"] = "Agg"
    with _means(given) as means, _signals(_interrupt):
        try:
            done = sweep_file(given.file, out=given.out, means=means)
        except SweepError as error:
            return _failed(given.file, error)
    if done is None:
        print(f"{given.file}: {SHARD_DONE.format(given.shard)}")
    else:
        print(report(done), flush=True)
    return 0


def _report(given: argparse.Namespace) -> int:
    os.environ["MPLBACKEND"] = "Agg"
    from linfed.report.write import write

    for path in write(given.folder, out=given.out, against=given.against, experiments=given.experiments):
        print(f"wrote {path}", flush=True)
    return 0


def _compare(given: argparse.Namespace) -> int:
    from linfed.errors import UsageError
    from linfed.report.compare import compare, read, told

    if given.relative is not None and not given.relative >= 0:
        raise UsageError(f"--relative {given.relative} must be at least 0")
    found = compare(read(given.before, "A")[1], read(given.after, "B")[1], relative=given.relative)
    print(told(found, given.before, given.after), flush=True)
    return int(given.strict and bool(found.verdicts))


if __name__ == "__main__":
    sys.exit(main())
