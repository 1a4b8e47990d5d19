"""Options that several commands have: where cells are run, where experiments lie, where results are."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from linfed.commands.interrupts import KEPT

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from linfed.errors import SweepError
    from linfed.sweeps.executors import Means

SHARD_DONE = "shard {} is done; copy the cells of all into one folder and run it without --shard"


def add_experiments(command: argparse.ArgumentParser) -> None:
    """Add the option that says where the experiments lie."""
    told = "folder of the experiments (default: ./experiments, that of the checkout, or those that come with linfed)"
    command.add_argument("--experiments", metavar="DIR", help=told)


def add_names(command: argparse.ArgumentParser, every: str) -> None:
    """Add the names of experiments; `every` says what all of them are."""
    text = f"an experiment's name (linfed list), FILE.py, {every}"
    command.add_argument("names", nargs="+", metavar="NAME", help=text)


def add_saved(command: argparse.ArgumentParser) -> None:
    """Add the options that say where a saved run is."""
    command.add_argument("--quick", action="store_true", help="the quick run, of results/quick")
    command.add_argument("--out", metavar="DIR", help="where the run was written (default: results, or results/quick)")


def results_folder(given: argparse.Namespace) -> Path:
    """Return where runs were written, checked (`check_readable`)."""
    folder = Path(given.out or ("results/quick" if given.quick else "results"))
    check_readable(folder)
    return folder


def check_readable(folder: Path) -> None:
    """Raise if a folder is there and is none, or not to be read."""
    from linfed.errors import UsageError

    try:
        if folder.exists():
            os.scandir(folder).close()
    except OSError as error:
        raise UsageError(f"{str(folder)!r} cannot be read ({error.strerror}): name another with --out DIR") from None


def add_means(command: argparse.ArgumentParser) -> None:
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
def means(given: argparse.Namespace) -> Iterator[Means]:
    """Return a context with where cells are to be run, in which warnings are a line each."""
    from linfed.errors import StoreWarning, UsageError
    from linfed.sweeps.executors import Means
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


def failed(name: str, error: SweepError) -> int:
    """Tell of cells that raised: the first as Python does, all in a line each; return the exit status."""
    import traceback

    traceback.print_exception(error.failures[0].error)
    for failure in error.failures:
        print(f"linfed: {name}: {failure}", file=sys.stderr)
    print(f"linfed: {name}: {str(error).partition(',')[0]}; {KEPT}", file=sys.stderr, flush=True)
    return 1
