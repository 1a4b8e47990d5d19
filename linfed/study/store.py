"""Where cells are run, and kept: each one's rows in a file of its own.

A cell's rows are written by rename as soon as they are there, so a sweep that is killed loses nothing that was
computed, and the next one with the same cells takes it up where it stopped.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import pickle
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm.std import tqdm

import linfed
from linfed.errors import EdgeWarning, check_progress, shown
from linfed.study.grid import Cell
from linfed.study.table import Table
from linfed.system.processes import worker_pool


class Cells(NamedTuple):
    """The table of each cell, and how many of them were taken from files of an earlier run."""

    tables: list[Table]
    reused: int


def run_cells(
    cells: Sequence[Cell],
    *,
    folder: Path | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    progress: bool | None = None,
    label: str = "",
) -> Cells:
    """Run every cell that `folder` does not hold yet.

    Parameters
    ----------
    cells : sequence of Cell
        Picklable. Those with the largest attribute ``cost``, if they have one, are started first.
    folder : Path, optional
        Where each cell's file is kept; without it nothing is.
    workers : int
        Worker processes; 1 runs here.
    executor : concurrent.futures.Executor, optional
        Runs the cells instead (a cluster's executor, for instance); it is not shut down.
    progress : bool or None
        Show a progress bar on standard error; None shows it on a terminal only.
    label : str
        Text before the progress bar.

    Returns
    -------
    Cells
        A table for each cell in their order, and how many were there before.

    Raises
    ------
    WorkerError
        If a worker process dies; what was finished is kept.

    Notes
    -----
    A file is used again only while the cell, linfed's code, and the modules of the cell's classes and functions are the
    same to the letter; with them those below their folder that they import, or whose names begin with an underscore.
    """
    paths: list[Path | None] = [None] * len(cells)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        digests: dict[frozenset[Any], str] = {}
        paths = [folder / f"{_key(cell, digests)}.npz" for cell in cells]
    missing = [index for index, path in enumerate(paths) if path is None or not path.exists()]
    missing.sort(key=lambda index: -getattr(cells[index], "cost", 0.0))
    reused = len(cells) - len(missing)
    found: dict[int, Table] = {}
    bar = tqdm(total=len(cells), initial=reused, desc=label, unit="cell", disable=check_progress(progress))
    with bar, ExitStack() as stack:
        if len(missing) > 1 and executor is None and workers > 1:
            executor = stack.enter_context(worker_pool(workers, len(missing)))
        if executor is None:
            for index in missing:
                found[index] = _compute(cells[index], paths[index])
                bar.update()
        else:
            started: dict[Future[Table], int] = {}
            try:
                for index in missing:
                    started[executor.submit(_compute, cells[index], paths[index])] = index
                for done in as_completed(started):
                    found[started[done]] = done.result()
                    bar.update()
            except BaseException:
                for future in started:
                    future.cancel()
                raise
    for index, path in enumerate(paths):
        if index not in found and path is not None:
            found[index] = Table.load(path)
    return Cells([found[index] for index in range(len(cells))], reused)


def _compute(cell: Cell, path: Path | None) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgeWarning)  # the column `at_edge` says it
        try:
            table = Table.of([cell], [cell.run()])
        except Exception as error:
            error.add_note(f"in the cell {shown(cell)}")
            raise
    if path is not None:
        table.save(path)
    return table


def _key(cell: Cell, digests: dict[frozenset[Any], str]) -> str:
    """Return a name for a cell's file: a digest of the cell and of the code that computes it."""
    kind, made_of = type(cell), frozenset(_owners(cell))
    if made_of not in digests:
        digests[made_of] = _code_digest(made_of)
    text = "\n".join((kind.__module__, kind.__qualname__, np.__version__, digests[made_of]))
    return hashlib.sha256(text.encode() + pickle.dumps(cell, protocol=4)).hexdigest()[:24]


def _owners(value: Any) -> Iterator[Any]:
    """Yield the classes and functions that a cell is made of, where they are not linfed's own."""
    if isinstance(value, functools.partial):
        yield from _owners([value.func, value.args, value.keywords])
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _owners(part)
    elif isinstance(value, dict):
        yield from _owners(list(value.values()))
    elif dataclasses.is_dataclass(value) or callable(value):
        owners = [value] if inspect.isfunction(value) or isinstance(value, type) else type(value).__mro__[:-1]
        for own in owners:
            if own.__module__.partition(".")[0] not in ("linfed", "abc", "typing", "builtins"):
                yield own
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                yield from _owners(getattr(value, field.name))


def _file_of(own: Any) -> Path:
    """Return the file of a class or a function, or raise."""
    try:
        return Path(inspect.getfile(own))
    except (OSError, TypeError):
        raise ValueError(
            f"store= needs the code of {shown(own)}, which has no file: put it into a module or drop store="
        ) from None


def _with_imported(path: Path, name: str) -> set[Path]:
    """Return a module's file, and the files below its folder of what it has imported, and so on."""
    found, waiting = {path}, [name]
    for one in waiting:
        for value in list(vars(sys.modules[one]).values()) if one in sys.modules else []:
            other = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
            file = getattr(sys.modules.get(other or ""), "__file__", None)
            if file and other not in waiting and path.parent in Path(file).parents and "site-packages" not in file:
                found.add(Path(file))
                waiting.append(str(other))
    return found


def _code_digest(owners: frozenset[Any]) -> str:
    """Return a digest of the code that a cell's rows rest on: linfed, the modules of its owners and their helpers."""
    digest = hashlib.sha256()
    modules = {path for own in owners for path in _with_imported(_file_of(own), own.__module__)}
    beside = {helper for module in modules for helper in module.parent.glob("_*.py")}  # what experiments share
    for path in [*sorted(Path(linfed.__file__).parent.rglob("*.py")), *sorted({*modules, *beside})]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
