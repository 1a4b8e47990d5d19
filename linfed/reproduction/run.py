"""Running an experiment: compute its cells, save their tables, draw them and judge the claims.

Everything is saved before anything is drawn; a saved run can be drawn and judged anew.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from linfed.errors import SweepError, UsageError
from linfed.plotting.captions import captions, write_caption
from linfed.reproduction.committed import Settings
from linfed.reproduction.experiments import load
from linfed.reproduction.records import read_saved, recorded
from linfed.statistics.findings import Finding, by_sentence
from linfed.sweeps.executors import Means
from linfed.sweeps.progress import say
from linfed.sweeps.scheduler import run_cells
from linfed.sweeps.store import Store
from linfed.sweeps.sweep import told_failures
from linfed.system.files import write_json
from linfed.system.machine import commit, provenance
from linfed.tables import export
from linfed.tables.grid import fields_of
from linfed.tables.labeled_array import Along
from linfed.tables.table import Table

Tables: TypeAlias = dict[str, Table]


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


def store_in(folder: Path) -> Store:
    """Return the store in an output folder."""
    try:
        return Store(folder / "cells")
    except ValueError as error:
        raise UsageError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks of a run."""

    quick: bool = False
    trials: int | None = None
    seed: int | None = None
    out: str | None = None
    draw: bool = False
    means: Means = field(default_factory=Means)

    @property
    def folder(self) -> str:
        """Where to write: by default a quick run does not overwrite a full one."""
        return self.out or ("results/quick" if self.quick else "results")


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What a run left: files in the order written, the claims, its settings, and whether it was a quick one."""

    files: list[Path]
    claims: list[Finding]
    settings: Settings
    quick: bool
    cells: int
    reused: int
    seconds: float


def reproduce(name: str, folder: Path, options: Options) -> Reproduction | None:
    """Run one experiment from its cells to its claims, or take its tables from an earlier run.

    Parameters
    ----------
    name : str
        The experiment's name.
    folder : Path
        Folder of the experiments.
    options : Options
        Trials, seed and so on; what is None stays as the experiment's cells have it.

    Returns
    -------
    Reproduction or None
        None where a shard is done and cells of others are still missing.

    Raises
    ------
    SweepError
        If cells raised; the others are kept.

    Notes
    -----
    Cells are kept in ``OUT/cells`` and used again by a later run with the same configuration.
    """
    started = time.perf_counter()
    module = load(name, folder)
    out = writable_folder(options.folder)
    if options.draw:
        described, tables = load_tables(name, out)
        cells, reused, files = 0, 0, list[Path]()
    else:
        lists = _cells(module, options)
        everything = [cell for cells in lists.values() for cell in cells]
        done = run_cells(everything, store_in(out), options.means, label=name)
        if done.failures:
            raise SweepError(told_failures(done), done.failures) from done.failures[0].error
        if None in done.tables:
            return None
        found = iter([table for table in done.tables if table is not None])
        tables = {key: sum((next(found) for _ in own), Table()) for key, own in lists.items()}
        cells, reused, files = len(everything), done.reused, save_tables(name, tables, out)
        described = _described(name, folder, options, tables)
        described |= {"cells": cells, "reused": reused}
        described["seconds"] = round(time.perf_counter() - started, 3)
        _save_json(name, described, [], out)  # so that a mistake in what follows costs no computation
    say(name, "judging the claims", options.means.progress)
    claims = by_sentence(module.claims(tables))
    described["judged"] = commit(folder)
    files.append(_save_json(name, described, claims, out))
    say(name, "drawing the figures", options.means.progress)
    drawn, described["figures"] = _draw(name, module, tables, out)
    _save_json(name, described, claims, out)
    files += drawn
    seconds = time.perf_counter() - started
    quick = bool(described["quick"])
    settings = settings_of(tables, module.cells(False))
    told: dict[str, Any] = {"quick": quick, "cells": cells, "reused": reused, "seconds": seconds}
    return Reproduction(files=files, claims=claims, settings=settings, **told)


def _cells(module: ModuleType, options: Options) -> dict[str, list[Any]]:
    """Return an experiment's cells by table, with the options' changes."""
    changes = {"trials": options.trials, "seed": options.seed}
    return {key: [_changed(cell, changes) for cell in cells] for key, cells in module.cells(options.quick).items()}


def _changed(cell: Any, changes: dict[str, Any]) -> Any:
    """Return a cell with those of the changes that are told and that are fields of it."""
    names = {field.name for field in dataclasses.fields(cell)}
    return dataclasses.replace(cell, **{k: v for k, v in changes.items() if v is not None and k in names})


def settings_of(tables: Mapping[str, Table], cells: Mapping[str, Sequence[object]]) -> Settings:
    """Return the settings of a run.

    Parameters
    ----------
    tables : mapping of str to Table
        The run's, whose columns hold the fields of its cells.
    cells : mapping of str to sequence
        Cells of the same classes by table, for the names of their fields; their values do not matter.

    Returns
    -------
    dict
        Of each table the different values of each field, sorted, and the number of rows under ``rows``.
    """
    found: Settings = {}
    for key, table in tables.items():
        names = dict.fromkeys(name for cell in cells.get(key, ()) for name, _ in fields_of(cell))
        values = {name: {repr(row[name]) for row in table.rows if name in row} for name in names}
        found[key] = {name: sorted(texts) for name, texts in values.items() if texts} | {"rows": [str(len(table))]}
    return found


def save_tables(name: str, tables: Tables, out: Path) -> list[Path]:
    """Write each table as CSV and as npz."""
    files = []
    for key, table in tables.items():
        files += [*table.to_csv(out / f"{name}-{key}.csv"), table.save(out / f"{name}-{key}.npz")]
    return files


def load_tables(name: str, out: Path) -> tuple[dict[str, Any], Tables]:
    """Return what describes an earlier run of an experiment, and its tables.

    Raises
    ------
    UsageError
        If there is none.
    """
    described = read_saved(name, out)
    try:
        return described, {key: Table.load(out / f"{name}-{key}.npz") for key in described["tables"]}
    except (OSError, KeyError, TypeError, ValueError) as error:
        told = " ".join(str(error).split())
        raise UsageError(
            f"{str(out)!r} holds no tables of {name} ({told}): linfed reproduce {name} makes them"
        ) from None


def _described(name: str, folder: Path, options: Options, tables: Tables) -> dict[str, Any]:
    """Return what is kept of a run beside its tables: what all rows of a table share, and what computed it."""

    def shared(table: Table) -> dict[str, Any]:
        other = set(export.varying(table.rows)) if len(table) > 1 else set[str]()
        first = table.rows[0] if len(table) else {}
        numbers = {key: value for key, value in first.items() if key not in other}
        return {key: value for key, value in numbers.items() if not isinstance(value, Along | np.ndarray)}

    return {
        "experiment": name,
        "quick": options.quick,
        "tables": {key: {"rows": len(table), "shared": shared(table)} for key, table in tables.items()},
        "seconds": 0.0,
        **provenance(),
        "commit": commit(folder),
    }


def _save_json(name: str, described: dict[str, Any], claims: Sequence[Finding], out: Path) -> Path:
    path = out / f"{name}.json"
    whole = {**described, "claims": [recorded(claim) for claim in claims]}
    return write_json(path, _plain(whole))


def _plain(value: Any) -> Any:
    """Return a value as strict JSON has it: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _draw(name: str, module: ModuleType, tables: Tables, out: Path) -> tuple[list[Path], dict[str, str]]:
    """Write the figures with their captions beside them; return the paths, and the captions by the figures' keys."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from linfed.figures.style import saved, style

    files: list[Path] = []
    with style(), mpl.rc_context({"figure.max_open_warning": 0}):  # all are closed once they are written
        figures = module.plot(tables)
        told = captions(module, tables, figures)
        for key, figure in figures.items():
            stem = str(out / f"{name}{'-' + key if key else ''}")
            files += [*saved(figure, stem), write_caption(Path(f"{stem}.txt"), told[key])]
            plt.close(figure)
    return files, told
