"""Cells: independent pieces of an experiment, each a pure function of its configuration, kept in a file of its own.

A cell's result is written by rename as soon as it is there, so a run that is killed loses nothing that was computed,
and the next run with the same cells takes it up where it stopped.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from tqdm.std import tqdm

import linfed
from linfed.errors import check_progress
from linfed.system import files
from linfed.system.processes import worker_pool

if TYPE_CHECKING:
    import numpy.typing as npt

Cell = TypeVar("Cell")
Arrays: TypeAlias = "dict[str, npt.NDArray[Any]]"


class Cells(NamedTuple):
    """Results of cells, and how many of them were taken from files of an earlier run."""

    results: list[Arrays]
    reused: int


def run_cells(
    function: Callable[[Cell], Arrays],
    cells: Sequence[Cell],
    *,
    folder: Path,
    workers: int = 1,
    executor: Executor | None = None,
    progress: bool | None = None,
    label: str = "",
) -> Cells:
    """Return ``function(cell)`` for every cell, computing those that `folder` does not hold yet.

    Parameters
    ----------
    function : callable
        A pure function at the top level of a module, from a cell to a dict of arrays.
    cells : sequence
        Picklable configurations (frozen dataclasses). They are started in this order: put the long ones first.
    folder : Path
        Where each cell's file is kept.
    workers : int
        Worker processes; 1 runs here.
    executor : concurrent.futures.Executor, optional
        Runs the cells instead (a cluster's executor, for instance).
    progress : bool or None
        Show a progress bar on standard error; None shows it on a terminal only.
    label : str
        Text before the progress bar.

    Returns
    -------
    Cells
        The results in the order of the cells, and how many were there before.

    Raises
    ------
    WorkerError
        If a worker process dies; what was finished is kept.

    Notes
    -----
    A file is used again only while the cell, linfed's code, the function's module and the modules beside it whose names
    begin with an underscore are the same to the letter.
    """
    folder.mkdir(parents=True, exist_ok=True)
    code = _code_digest(function)
    paths = [folder / f"{_key(function, cell, code)}.npz" for cell in cells]
    missing = [index for index, path in enumerate(paths) if not path.exists()]
    bar = tqdm(
        total=len(cells), initial=len(cells) - len(missing), desc=label, unit="cell", disable=check_progress(progress)
    )
    with bar, ExitStack() as stack:
        if missing and executor is None and workers > 1:
            executor = stack.enter_context(worker_pool(workers, len(missing)))
        if executor is None:
            for index in missing:
                _compute(function, cells[index], paths[index])
                bar.update()
        else:
            started: list[Future[None]] = [
                executor.submit(_compute, function, cells[index], paths[index]) for index in missing
            ]
            try:
                for done in as_completed(started):
                    done.result()
                    bar.update()
            except BaseException:
                for future in started:
                    future.cancel()
                raise
    return Cells([files.read(path)[0] for path in paths], len(cells) - len(missing))


def _compute(function: Callable[[Cell], Arrays], cell: Cell, path: Path) -> None:
    arrays = function(cell)
    files.write(path, arrays, {"cell": repr(cell), "version": linfed.__version__})


def _key(function: Callable[..., Any], cell: object, code: str) -> str:
    """Return a name for a cell's file: a digest of the function, the cell and the code that computes it."""
    text = "\n".join((function.__module__, function.__qualname__, np.__version__, code))
    return hashlib.sha256(text.encode() + pickle.dumps(cell, protocol=4)).hexdigest()[:24]


def _code_digest(function: Callable[..., Any]) -> str:
    """Return a digest of the code that a cell's result rests on: linfed, the function's module and its helpers."""
    digest = hashlib.sha256()
    module = Path(inspect.getfile(function))
    shared = sorted(module.parent.glob("_*.py"))  # what experiments of one folder share
    for path in [*sorted(Path(linfed.__file__).parent.rglob("*.py")), *shared, module]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
