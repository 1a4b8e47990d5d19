"""``linfed sweep``: the runs that a TOML file asks for, their table, figures and record, and what is printed."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from linfed.errors import DivergenceWarning, EdgeWarning, UsageError
from linfed.plotting.captions import write_caption
from linfed.reproduction.axes import told
from linfed.reproduction.overview import FIGURES, caption, drawn, short
from linfed.reproduction.recipe import Recipe, read_recipe
from linfed.reproduction.run import store_in, writable_folder
from linfed.statistics.quantiles import quantiles
from linfed.sweeps.executors import Means
from linfed.sweeps.scheduler import run_cells
from linfed.sweeps.sweep import whole_table
from linfed.system.files import write_json
from linfed.system.machine import provenance
from linfed.tables.table import Table

PRINTED_ROWS = 60
"""Rows of a report."""


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep left: its recipe and table, the files in the order written, what is to be said of it.

    `reused` counts the cells that were there from an earlier run.
    """

    recipe: Recipe
    table: Table
    files: list[Path]
    notes: list[str]
    reused: int
    seconds: float


def sweep_file(path: str | os.PathLike[str], *, out: str | None = None, means: Means | None = None) -> Swept | None:
    """Run the cells that a TOML file describes (`linfed.reproduction.recipe`), and write what came of them.

    Parameters
    ----------
    path : path
    out : str, optional
        Folder of the results; ``results/<name of the file>`` by default. It keeps every finished cell in ``cells``.
    means : Means, optional
        Where the cells are run; here by default.

    Returns
    -------
    Swept or None
        None where a shard is done and cells of others are still missing.

    Raises
    ------
    UsageError
        For a mistake in the file, before anything is computed; and where `out` is left to its default, and has the
        results of another file of this name.
    SweepError
        If cells raised; the others are kept.

    Notes
    -----
    The table is what `lf.sweep` fills, with a first column ``method``, the name of the algorithm in the file. It is
    written before anything is drawn.
    """
    started = time.perf_counter()
    recipe = read_recipe(os.fspath(path))
    if not out:
        _check_own(Path("results", recipe.name, f"{recipe.name}.json"), os.fspath(path))
    folder = writable_folder(out or os.path.join("results", recipe.name))
    done = run_cells(recipe.cells, store_in(folder), means, label=recipe.name)
    if None in done.tables and not done.failures:
        return None
    with warnings.catch_warnings(record=True) as caught:
        for kind in (DivergenceWarning, EdgeWarning):
            warnings.simplefilter("always", kind)
        found = whole_table(done)
    notes = [str(one.message) for one in caught]
    table = _named(recipe, found)
    stem = str(folder / recipe.name)
    files = [*table.to_csv(f"{stem}.csv"), table.save(f"{stem}.npz")]
    record = Path(f"{stem}.json")
    computed = time.perf_counter() - started
    _save_record(record, recipe, str(path), computed)  # drawing may fail
    figures, told_of = _draw(recipe, table, stem)
    _save_record(record, recipe, str(path), computed, told_of)
    if len(told_of) == FIGURES:
        notes.append(f"no more than {FIGURES} figures are drawn; [figure] says what is in one")
    seconds = time.perf_counter() - started
    files += [record, *figures]
    return Swept(recipe=recipe, table=table, files=files, notes=notes, reused=done.reused, seconds=seconds)


def _check_own(record: Path, source: str) -> None:
    """Raise if a record is of another file that is still there: its results would be written over."""
    try:
        other = json.loads(record.read_text(encoding="utf-8"))["file"]
        same = os.path.samefile(other, source)
    except (OSError, ValueError, TypeError, KeyError):  # no record, or none of ours, or its file is gone
        return
    if not same:
        raise UsageError(
            f"{str(record.parent)!r} has the results of {other!r}: give {source!r} a folder with --out DIR"
        )


def _named(recipe: Recipe, table: Table) -> Table:
    """Return the table with the column ``method``; a tuned algorithm has the columns of all algorithms' axes, too."""
    paths = [path.strip() for axis in recipe.points[0] for path in axis.split(",") if path.startswith("algorithm.")]
    of_base = {path: path.replace("algorithm.", "algorithm.base.", 1) for path in paths}
    rows = []
    for row, point in zip(table.rows, recipe.points, strict=True):
        own = {path: row[base] for path, base in of_base.items() if base in row}
        rows.append({"method": point["method"], **own, **row})
    return Table(rows)


def _save_record(
    path: Path, recipe: Recipe, source: str, seconds: float, figures: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write how the table came about: the file's content, the number of cells, seconds, what computed it; captions."""
    record = {
        "file": source,
        "recipe": recipe.written,
        "cells": len(recipe.cells),
        "seconds": round(seconds, 3),
        **provenance(),
        "figures": dict(figures),
    }
    write_json(path, record)


def _draw(recipe: Recipe, table: Table, stem: str) -> tuple[list[Path], dict[str, str]]:
    """Write the figures, numbered where there are several, with their captions; return the paths, and the captions."""
    import matplotlib.pyplot as plt

    from linfed.figures.style import saved, style

    files, captions = list[Path](), dict[str, str]()
    for number, figure in enumerate(drawn(table, recipe.points, recipe.layout), start=1):
        key = str(number) if recipe.layout.rest else ""
        name = f"{stem}-{key}" if key else stem
        captions[key] = caption(figure, recipe.layout)
        with style():
            files += [*saved(figure, name), write_caption(Path(f"{name}.txt"), captions[key])]
        plt.close(figure)
    return files, captions


def report(done: Swept) -> str:
    """Return what to print after a sweep: the files, and of each row where it lies and how it ended."""
    count = len(done.table)
    reused = f", {done.reused} of them from an earlier run" if done.reused else ""
    lines = [f"{done.recipe.name}: {count} cell{'s' * (count > 1)}{reused}, {done.seconds:.1f} s"]
    lines += [f"  wrote {path}" for path in done.files]
    lines += [f"  note: {note}" for note in done.notes]
    return "\n".join([*lines, "", *_aligned(_summary(done))])


def _summary(done: Swept) -> list[list[str]]:
    """Return a heading, and for each row what tells it apart, what was tuned, and its median in the last round."""
    points, y = done.recipe.points, done.recipe.layout.y
    names = [name for name in points[0] if len({told(point[name]) for point in points}) > 1] or ["method"]
    chosen = list(dict.fromkeys(name for row in done.table.rows for name in row if f"tried_{name}" in row))
    heading = [*map(short, names), *chosen, f"{y} (median, last round)"]
    lost = any(row["diverged"].any() for row in done.table.rows)
    lines = [[*heading, "diverged"] if lost else heading]
    for row, point in list(zip(done.table.rows, points, strict=True))[:PRINTED_ROWS]:
        ends = float(quantiles(row[y].values[:, -1])[0]) if y in row else None
        line = [*(told(point[name]) for name in names), *(_brief(row.get(name)) for name in chosen), _brief(ends)]
        lines.append([*line, f"{row['diverged'].sum()} of {row['diverged'].size}"] if lost else line)
    if len(points) > PRINTED_ROWS:
        lines.append([f"and {len(points) - PRINTED_ROWS} more"])
    return lines


def _brief(value: object) -> str:
    if value == np.inf:
        return "diverged"
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of words in columns."""
    widths = [max(len(line[i]) for line in lines if i < len(line)) for i in range(len(lines[0]))]
    return ["  ".join(word.ljust(width) for word, width in zip(line, widths, strict=False)).rstrip() for line in lines]
