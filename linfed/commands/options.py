"""Options that several commands share: execution of cells, folder of experiments, folder of results."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from linfed.commands.interrupts import KEPT

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from linfed.errors import SweepError
    from linfed.reproduction.record import ResultsFolder
    from linfed.sweeps.executors import ExecutionOptions

SHARD_DONE = "shard {} is done; when all are, copy their cells into one folder and run the command without --shard"


def add_experiments(command: argparse.ArgumentParser) -> None:
    """Add the option for the folder of experiments."""
    text = "folder of experiments (default: ./experiments, the checkout's, or the one installed with linfed)"
    command.add_argument("--experiments", metavar="DIR", help=text)


def add_names(command: argparse.ArgumentParser, every: str) -> None:
    """Add the argument for the names of experiments; `every` is the end of its help text, about the name ``all``."""
    text = f"name of an experiment (see linfed list), FILE.py, {every}"
    command.add_argument("names", nargs="+", metavar="NAME", help=text)


def add_saved(command: argparse.ArgumentParser) -> None:
    """Add the options that select a saved run."""
    command.add_argument("--quick", action="store_true", help="use the quick run, in results/quick")
    command.add_argument("--out", metavar="DIR", help="folder of the saved run (default: results, or results/quick)")


def results_folder(given: argparse.Namespace) -> ResultsFolder:
    """Return the folder of saved runs; raise `UsageError` if it cannot be read."""
    from linfed.reproduction.record import ResultsFolder

    folder = ResultsFolder(Path(given.out)) if given.out else ResultsFolder().part(quick=given.quick)
    folder.check_readable()
    return folder


def add_execution(command: argparse.ArgumentParser) -> None:
    """Add the options for the execution of cells."""
    command.add_argument("--workers", type=int, metavar="N", help="worker processes (default: one per processor)")
    command.add_argument("--dask", metavar="ADDRESS", help="run the cells on a Dask cluster, e.g. tcp://host:8786")
    command.add_argument(
        "--mpi",
        action="store_true",
        help="run the cells on MPI; start with mpiexec -n 9 python -m mpi4py.futures -m linfed reproduce",
    )
    command.add_argument("--shard", metavar="I/N", help="run only the I-th of N parts of the cells")
    command.add_argument(
        "--reuse-stale", action="store_true", help="reuse finished cells even if the code has changed since"
    )
    command.add_argument("--recompute", action="store_true", help="recompute every cell")


@contextmanager
def execution_options(given: argparse.Namespace) -> Iterator[ExecutionOptions]:
    """Return a context with the execution options; within it, each warning is printed on one line."""
    from linfed.errors import StoreWarning, UsageError
    from linfed.sweeps.executors import ExecutionOptions
    from linfed.system.machine import processors

    if given.workers is not None and given.workers < 1:
        raise UsageError(f"--workers {given.workers} must be at least 1")
    for one, other in itertools.combinations(("dask", "mpi", "workers"), 2):
        if getattr(given, one) and getattr(given, other):
            raise UsageError(f"--{one} and --{other} cannot be combined")
    if given.dask == "":
        raise UsageError("--dask requires the address of a scheduler, e.g. tcp://host:8786")
    if given.reuse_stale and given.recompute:
        raise UsageError("--reuse-stale and --recompute cannot be combined")
    options = {"shard": _shard(given.shard), "reuse_stale": given.reuse_stale, "recompute": given.recompute}
    with warnings.catch_warnings():
        warnings.simplefilter("always", StoreWarning)
        warnings.showwarning = _one_line
        with _executor(given) as executor:
            workers = 1 if executor is not None else given.workers or processors()
            yield ExecutionOptions(executor=executor, workers=workers, **options)


@contextmanager
def _executor(given: argparse.Namespace) -> Iterator[Executor | None]:
    """Return a context with the Dask or MPI executor, or None without one; the context closes it at its end."""
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
    """Print a warning on one line, without its place in the code."""
    print(f"linfed: {message}", file=sys.stderr, flush=True)


def _shard(given: str | None) -> tuple[int, int] | None:
    """Return I and N of ``--shard I/N``, or None without the option."""
    from linfed.errors import UsageError

    if given is None:
        return None
    found = re.fullmatch("([0-9]+)/([0-9]+)", given)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--shard {given} must be I/N with I from 1 to N, e.g. 1/2")
    return int(found[1]), int(found[2])


def failed(name: str, error: SweepError, changes: Mapping[str, object]) -> int:
    """Print the traceback of the first failed cell and one line for each failed cell; return the exit status.

    If the options changed fields of an experiment of the package, and its cells reject the values, print one line with
    the reason instead.
    """
    import traceback

    rejected = all(isinstance(failure.error, TypeError | ValueError) for failure in error.failures)
    another_seed = all(name == "seed" and isinstance(value, int) for name, value in changes.items())
    if rejected and not another_seed:
        settings = ", ".join(f"{field} = {value}" for field, value in changes.items())
        reason = " ".join(str(error.failures[0].error).split())
        cells = f"{len(error.failures)} cell{'s' * (len(error.failures) > 1)}"
        print(f"linfed: {name}: {cells} cannot run with {settings}: {reason}", file=sys.stderr, flush=True)
        return 1
    traceback.print_exception(error.failures[0].error)
    for failure in error.failures:
        print(f"linfed: {name}: {failure}", file=sys.stderr)
    print(f"linfed: {name}: {str(error).partition(',')[0]}; {KEPT}", file=sys.stderr, flush=True)
    return 1
