"""Running an experiment: compute its cells, save their tables, draw them and judge the claims.

Everything is saved before anything is drawn; a saved run can be drawn and judged anew.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from linfed.errors import SweepError, UsageError
from linfed.plotting.captions import captions, write_caption
from linfed.reproduction.committed import Settings
from linfed.reproduction.default_figure import default_figure
from linfed.reproduction.experiments import cells_of, in_package, load_file, name_of
from linfed.reproduction.own_settings import check_cells, with_settings
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
    set: Mapping[str, Any] = field(default_factory=dict)
    out: str | None = None
    draw: bool = False
    means: Means = field(default_factory=Means)

    @property
    def folder(self) -> str:
        """Where to write, `default_folder` where nothing else is asked."""
        return self.out or default_folder(quick=self.quick, own=bool(self.set))


def default_folder(*, quick: bool, own: bool = False) -> str:
    """Return where runs are written: neither quick ones nor those of own settings overwrite the full run."""
    return "/".join(("results", *["set"] * own, *["quick"] * quick))


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What a run left: files in the order written, the claims, its settings, and whether it was a quick one.

    `claims` is None where an experiment judges nothing. `captions` are those of the figures, and `remarks` say what own
    settings do not permit.
    """

    files: list[Path]
    claims: list[Finding] | None
    captions: Mapping[str, str]
    remarks: list[str]
    settings: Settings
    quick: bool
    cells: int
    reused: int
    seconds: float


def reproduce(file: Path, options: Options) -> Reproduction | None:
    """Run one experiment from its cells to its claims, or take its tables from an earlier run.

    Parameters
    ----------
    file : Path
        The experiment's module.
    options : Options
        Trials, seed, own settings and so on; what is not asked stays as the experiment's cells have it.

    Returns
    -------
    Reproduction or None
        None where a shard is done and cells of others are still missing.

    Raises
    ------
    SweepError
        If cells raised; the others are kept.
    UsageError
        For settings that the cells cannot have, before anything is computed.

    Notes
    -----
    Cells are kept in ``OUT/cells`` and used again by a later run with the same configuration.
    """
    started = time.perf_counter()
    name, module = name_of(file), load_file(file)
    out = writable_folder(options.folder)
    if options.draw:
        described, tables = load_tables(name, out)
        lists = _lists(module, quick=described["quick"], changes=described.get("set", {}), saved=True)
        cells, reused, files = 0, 0, list[Path]()
    else:
        _check_own(out / f"{name}.json", file)
        lists = cells_ready(file, options)
        everything = [cell for cells in lists.values() for cell in cells]
        done = run_cells(everything, store_in(out), options.means, label=name)
        if done.failures:
            raise SweepError(told_failures(done), done.failures) from done.failures[0].error
        if None in done.tables:
            return None
        found = iter([table for table in done.tables if table is not None])
        tables = {key: sum((next(found) for _ in own), Table()) for key, own in lists.items()}
        cells, reused, files = len(everything), done.reused, save_tables(name, tables, out)
        described = _described(file, options, tables)
        described |= {"cells": cells, "reused": reused}
        described["seconds"] = round(time.perf_counter() - started, 3)
        _save_json(name, described, [], out)  # so that a mistake in what follows costs no computation
    claims: list[Finding] | None = None
    remarks, drawn, texts = list[str](), list[Path](), dict[str, str]()
    if hasattr(module, "claims"):
        say(name, "judging the claims", options.means.progress)
        with _own_settings_permit("its claims cannot be judged", described, remarks):
            claims = by_sentence(module.claims(tables))
    described["judged"] = commit(file.parent)
    files.append(_save_json(name, described, claims or [], out))
    say(name, "drawing the figures", options.means.progress)
    with _own_settings_permit("its figures cannot be drawn", described, remarks):
        drawn, texts = _draw(name, module, tables, lists, out)
    described["figures"] = texts
    _save_json(name, described, claims or [], out)
    files += drawn
    seconds = time.perf_counter() - started
    quick = bool(described["quick"])
    settings = settings_of(tables, lists)
    told: dict[str, Any] = {"quick": quick, "cells": cells, "reused": reused, "seconds": seconds}
    told |= {"captions": texts, "remarks": remarks}
    return Reproduction(files=files, claims=claims, settings=settings, **told)


@contextmanager
def _own_settings_permit(what: str, described: Mapping[str, Any], remarks: list[str]) -> Iterator[None]:
    """Return a context in which an error under own settings becomes a remark: a claim may need all of an axis."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if not described.get("set", {}).keys() - {"trials", "seed"}:
            raise
        message = " ".join(str(error).split())
        remarks.append(f"{what} with these settings ({type(error).__name__}: {message})")


def cells_ready(file: Path, options: Options) -> dict[str, list[Any]]:
    """Return the cells of a run by table, with what the options change; each is checked.

    Raises
    ------
    UsageError
        For a field or a value that they cannot have.
    """
    lists = _lists(load_file(file), quick=options.quick, changes=changes_of(options))
    check_cells(lists)
    return lists


def changes_of(options: Options) -> dict[str, Any]:
    """Return the fields of cells that options change, with their values."""
    own = {"trials": options.trials, "seed": options.seed}
    return {key: value for key, value in own.items() if value is not None} | dict(options.set)


def _lists(module: ModuleType, *, quick: bool, changes: Mapping[str, Any], saved: bool = False) -> dict[str, list[Any]]:
    """Return an experiment's cells by table with changes; where these are not possible (any more), saved, without."""
    lists = cells_of(module, quick=quick)
    if not changes:
        return lists
    try:
        return with_settings(lists, changes)
    except UsageError:
        if not saved:
            raise
        return lists


def _check_own(record: Path, file: Path) -> None:
    """Raise if a record is of another file of this name that is still there: its results would be written over."""
    try:
        other = Path(json.loads(record.read_text(encoding="utf-8"))["file"])
        same = not other.exists() or other.samefile(file)
    except (OSError, ValueError, TypeError, KeyError):  # no record, or none of a file
        return
    if not same:
        raise UsageError(
            f"{str(record.parent)!r} has the results of {str(other)!r}: give another folder with --out DIR"
        )


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


def _described(file: Path, options: Options, tables: Tables) -> dict[str, Any]:
    """Return what is kept of a run beside its tables: what all rows of a table share, and what computed it."""

    def shared(table: Table) -> dict[str, Any]:
        other = set(export.varying(table.rows)) if len(table) > 1 else set[str]()
        first = table.rows[0] if len(table) else {}
        numbers = {key: value for key, value in first.items() if key not in other}
        return {key: value for key, value in numbers.items() if not isinstance(value, Along | np.ndarray)}

    changes = changes_of(options)
    return {
        "experiment": name_of(file),
        **({} if in_package(file) else {"file": str(file.resolve())}),
        "quick": options.quick,
        **({"set": changes} if changes else {}),
        "tables": {key: {"rows": len(table), "shared": shared(table)} for key, table in tables.items()},
        "seconds": 0.0,
        **provenance(),
        "commit": commit(file.parent),
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


def _draw(
    name: str, module: ModuleType, tables: Tables, lists: Mapping[str, list[Any]], out: Path
) -> tuple[list[Path], dict[str, str]]:
    """Write the figures with their captions beside them; return the paths, and the captions by the figures' keys."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from linfed.figures.style import saved, style

    files: list[Path] = []
    with style(), mpl.rc_context({"figure.max_open_warning": 0}):  # all are closed once they are written
        if hasattr(module, "plot"):
            figures = module.plot(tables)
            told = captions(module, tables, figures)
        else:
            pairs = {key: default_figure(table, lists.get(key, [])) for key, table in tables.items()}
            found = {key if len(tables) > 1 else "": pair for key, pair in pairs.items() if pair is not None}
            figures, told = {key: pair[0] for key, pair in found.items()}, {key: pair[1] for key, pair in found.items()}
        for key, figure in figures.items():
            stem = str(out / f"{name}{'-' + key if key else ''}")
            files += [*saved(figure, stem), write_caption(Path(f"{stem}.txt"), told[key])]
            plt.close(figure)
    return files, told
