"""Running an experiment: find it, run its cells, save what was measured, draw it, judge the claims.

An experiment is a module with ``SUMMARY``, ``Config`` (a frozen dataclass with a ``quick()`` method), ``cells(config)``
(the pieces that run on their own), ``run_cell(cell)``, ``tables(config, results)``, ``plot(tables)`` and
``claims(tables)``. Its name is the module's, with hyphens. Tables are tidy structured arrays; everything is saved
before anything is drawn.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib
import io
import json
import math
import os
import platform
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import linfed
from linfed._types import Array
from linfed.errors import UsageError, check_integer, suggestion
from linfed.statistics.findings import Finding, findings_table
from linfed.system.files import replacing, write_arrays

Table: TypeAlias = npt.NDArray[np.void]
Tables: TypeAlias = dict[str, Table]


def experiments_folder(given: str | None) -> Path:
    """Return the folder of experiments: the one given, or ``experiments/`` in the current checkout.

    Raises
    ------
    UsageError
        If there is none; the message says how to get one.
    """
    if given is None:
        folder = _of_checkout(Path.cwd())
        wanted = f"no experiments/ in {Path.cwd()}, nor beside a pyproject.toml of linfed in a folder above"
    else:
        folder, wanted = Path(given), f"--experiments {given}"
    if folder.is_dir() and (folder / "__init__.py").exists():
        return folder.resolve()
    if folder.is_dir():
        raise UsageError(f"{wanted}: {folder} has no __init__.py; experiments are modules of a package")
    raise UsageError(
        f"{wanted}: the experiments lie beside the package, not in it; run this in a checkout of linfed, or name their "
        "folder with --experiments DIR"
    )


def _of_checkout(here: Path) -> Path:
    """Return the folder of experiments here, or of the checkout that a folder lies in."""
    own = here / "experiments"
    above = (folder / "experiments" for folder in here.parents if _is_linfed(folder / "pyproject.toml"))
    return next((folder for folder in (own, *above) if (folder / "__init__.py").exists()), own)


def _is_linfed(path: Path) -> bool:
    try:
        return bool(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] == "linfed")
    except (OSError, KeyError, TypeError, ValueError):
        return False


def experiment_files(folder: Path) -> dict[str, Path]:
    """Return each experiment's name and module file."""
    return {path.stem.replace("_", "-"): path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}


def load(name: str, folder: Path) -> ModuleType:
    """Import an experiment by name; its folder becomes importable, for worker processes too."""
    files = experiment_files(folder)
    if name not in files:
        listed = ", ".join(files) or "none"
        raise UsageError(f"experiment {name!r} is unknown{suggestion(name, files)}; here: {listed}, or all")
    _make_importable(folder)
    return importlib.import_module(f"{folder.name}.{files[name].stem}")


def _make_importable(folder: Path) -> None:
    """Put the folder's parent on the path, unless the folder's name is that of another module."""
    name = folder.name
    imported = Path(getattr(sys.modules.get(name), "__file__", None) or "nowhere").resolve().parent
    if name in sys.stdlib_module_names or (name in sys.modules and imported != folder):
        raise UsageError(f"--experiments {folder}: {name!r} is the name of another module; rename the folder")
    if not name.isidentifier():
        raise UsageError(f"--experiments {folder}: {name!r} cannot be the name of a module; rename the folder")
    root = str(folder.parent)
    if root not in sys.path:
        sys.path.insert(0, root)


def writable_folder(out: str) -> Path:
    """Return the output folder, made and tried before anything is computed."""
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"--out {str(folder)!r} cannot be written: {error.strerror}") from None
    return folder


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks of a run."""

    quick: bool = False
    trials: int | None = None
    seed: int | None = None
    out: str | None = None
    workers: int | None = None

    @property
    def folder(self) -> str:
        """Where to write: by default a quick run does not overwrite a full one."""
        return self.out or ("results/quick" if self.quick else "results")


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What a run left: files in the order written, and the claims."""

    files: list[Path]
    claims: list[Finding]
    cells: int
    reused: int
    seconds: float


def reproduce(name: str, folder: Path, options: Options) -> Reproduction:
    """Run one experiment from its cells to its claims.

    Parameters
    ----------
    name : str
        The experiment's name.
    folder : Path
        Folder of the experiments.
    options : Options
        Trials, seed and so on; what is None stays as the experiment's `Config` has it.

    Notes
    -----
    Cells are kept in ``OUT/cells`` and used again by a later run with the same configuration.
    """
    from linfed.study.store import run_cells

    started = time.perf_counter()
    module = load(name, folder)
    out = writable_folder(options.folder)
    config = module.Config().quick() if options.quick else module.Config()
    changes = {"trials": options.trials, "seed": options.seed}
    config = dataclasses.replace(config, **{key: value for key, value in changes.items() if value is not None})
    workers = default_workers() if options.workers is None else check_integer("workers", options.workers)
    cells: Sequence[Any] = module.cells(config)
    found = run_cells(
        module.run_cell,
        cells,
        folder=out / "cells",
        workers=workers,
        label=name,
    )
    tables: Tables = module.tables(config, found.results)
    files = save_tables(name, tables, out)
    claims: list[Finding] = module.claims(tables)
    seconds = time.perf_counter() - started
    files.append(_save_json(name, config, claims, seconds, out))
    files += _draw(name, module, tables, out)
    return Reproduction(
        files=files, claims=claims, cells=len(cells), reused=found.reused, seconds=time.perf_counter() - started
    )


def default_workers() -> int:
    """Return the number of processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def save_tables(name: str, tables: Tables, out: Path) -> list[Path]:
    """Write each table as CSV, and all of them into one npz file."""
    files = []
    for key, table in tables.items():
        path = out / f"{name}-{key}.csv"
        with replacing(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            writer = csv.writer(text)
            writer.writerow(table.dtype.names or ())
            writer.writerows(table.tolist())
        files.append(path)
    archive = out / f"{name}.npz"
    write_arrays(archive, tables)
    return [*files, archive]


def load_tables(path: Path) -> Tables:
    """Return the tables that `save_tables` wrote into an npz file."""
    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


def _save_json(name: str, config: Any, claims: Sequence[Finding], seconds: float, out: Path) -> Path:
    import matplotlib
    import scipy

    path = out / f"{name}.json"
    described = {
        "experiment": name,
        "config": dataclasses.asdict(config),
        "seconds": round(seconds, 3),
        "versions": {
            "linfed": linfed.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "matplotlib": matplotlib.__version__,
        },
        "claims": [_recorded(claim) for claim in claims],
    }
    with replacing(path) as file:
        file.write((json.dumps(_plain(described), indent=2, allow_nan=False) + "\n").encode())
    return path


def _recorded(claim: Finding) -> dict[str, Any]:
    """Return all that a finding holds, and its verdict."""
    return {**dataclasses.asdict(claim), "said": claim.said, "verdict": claim.verdict.value}


def _plain(value: Any) -> Any:
    """Return a value as strict JSON has it: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _draw(name: str, module: ModuleType, tables: Tables, out: Path) -> list[Path]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from linfed.figures import style as plotting

    files = []
    with plotting.style(), mpl.rc_context({"figure.max_open_warning": 0}):  # all are closed once they are written
        for key, figure in module.plot(tables).items():
            # Without the time of day: the same run gives the same bytes.
            for suffix, metadata in (("png", {}), ("pdf", {"CreationDate": None})):
                path = out / f"{name}{'-' + key if key else ''}.{suffix}"
                with replacing(path) as file:
                    figure.savefig(file, format=suffix, metadata=metadata)
                files.append(path)
            plt.close(figure)
    return files


def report(name: str, done: Reproduction) -> str:
    """Return what to print after a run: the files, then the claims table."""
    reused = f", {done.reused} of {done.cells} cells from an earlier run" if done.reused else ""
    lines = [f"{name}: {done.seconds:.1f} s{reused}", *(f"  wrote {path}" for path in done.files), ""]
    return "\n".join([*lines, findings_table(done.claims)])


def tidy(keys: Mapping[str, Any], axes: Mapping[str, Sequence[Any] | Array], values: Mapping[str, Array]) -> Table:
    """Return a tidy table from arrays: a row for each point of the axes' grid.

    Parameters
    ----------
    keys : mapping
        Columns that are the same in all rows.
    axes : mapping
        Labels along each axis of the values, in order.
    values : mapping
        Arrays whose shapes are the axes' lengths.
    """
    grid = np.meshgrid(*(np.asarray(labels) for labels in axes.values()), indexing="ij")
    columns = {name: np.full(grid[0].size, value) for name, value in keys.items()}
    columns |= {name: labels.ravel() for name, labels in zip(axes, grid, strict=True)}
    columns |= {name: np.broadcast_to(array, grid[0].shape).ravel() for name, array in values.items()}
    out = np.empty(grid[0].size, dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        out[name] = column
    return out


def select(table: Table, **wanted: Any) -> Table:
    """Return the rows of a tidy table whose columns have the wanted values."""
    chosen = np.ones(len(table), dtype=bool)
    for name, value in wanted.items():
        chosen &= table[name] == value
    return table[chosen]


def rows(dtype: Sequence[tuple[str, Any]], records: Sequence[tuple[Any, ...]]) -> Table:
    """Return a tidy table from records, columns named and typed by `dtype`."""
    return np.array(list(records), dtype=list(dtype))
