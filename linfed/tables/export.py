"""Export of tables to records, CSV, pandas, xarray and HTML."""

from __future__ import annotations

import csv
import io
import os
import textwrap
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from linfed.checks import check_text, short_repr
from linfed.errors import warn_diverged
from linfed.figures import html as page
from linfed.numerics.quantiles import quantiles
from linfed.system.extras import import_optional
from linfed.system.files import named_file, replacing
from linfed.tables.escaping import one_line
from linfed.tables.grid import Row
from linfed.tables.labeled_array import LabeledArray

Rows: TypeAlias = Sequence[Row]

SHOWN_ROWS = 20
"""Maximum number of rows shown in a notebook."""

SHOWN_WORDS = 3
"""Maximum number of different strings of a column shown in a notebook, the most frequent ones."""

SUMMARISED = "arrays are shown by their median over trials, at the end of each axis"
"""Note below a table in a notebook."""


def columns(rows: Rows) -> list[str]:
    """Return the names of all columns, without duplicates."""
    return list(dict.fromkeys(name for row in rows for name in row))


def varying(rows: Rows) -> list[str]:
    """Return the names of columns that contain arrays, or numbers or strings that differ between rows."""
    return [name for name in columns(rows) if not _constant(rows, name)]


def distinguishing(rows: Rows) -> list[str]:
    """Return the names of columns of numbers or strings that differ between rows."""
    arrays = {name for row in rows for name, value in row.items() if isinstance(value, LabeledArray | np.ndarray)}
    return [name for name in varying(rows) if name not in arrays]


def _constant(rows: Rows, name: str) -> bool:
    first, *others = (row.get(name) for row in rows)
    if any(isinstance(value, LabeledArray | np.ndarray) for value in (first, *others)):
        return False
    return all(same(other, first) for other in others)


def same(first: Any, second: Any) -> bool:
    """Return whether two numbers, strings or tuples of these are equal; NaN equals NaN."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first is second or first == second or (first != first and second != second))


def short_names(rows: Rows) -> dict[str, str]:
    """Map each column's dotted name to its last part, or to itself if another column or axis ends in the same part."""
    names = columns(rows)
    axes = {"trial", *(axis for along in shapes(rows) for axis in along)}
    ends = Counter(name.rpartition(".")[2] for name in (*names, *axes))
    return {name: end if ends[end := name.rpartition(".")[2]] == 1 else name for name in names}


def named(rows: Rows, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return rows with renamed columns."""
    return [{names[name]: value for name, value in row.items()} for row in rows]


def shapes(rows: Rows) -> list[tuple[str, ...]]:
    """Return all combinations of axes along which there are arrays, without duplicates."""
    return list(dict.fromkeys(tuple(v.axes) for row in rows for v in row.values() if isinstance(v, LabeledArray)))


def records(rows: Rows, along: Sequence[str]) -> list[dict[str, Any]]:
    """Return a record for each row and trial, or for each point of axes (`Table.to_records`)."""
    for axis in along:
        check_text("along", axis)
    if along and tuple(along) not in shapes(rows):
        raise KeyError(f"no column has the axes {tuple(along)}; here: {', '.join(map(str, shapes(rows))) or 'no axes'}")
    if rows and not along and not _plain(rows):
        axes = " or ".join(f"to_records({', '.join(map(repr, each))})" for each in shapes(rows))
        raise ValueError(f"to_records() requires the name of an axis, because every column has one: {axes}")
    kept = varying(rows) if along else columns(rows)
    out: list[dict[str, Any]] = []
    for row in rows:
        scalars = {
            name: row[name] for name in kept if name in row and not isinstance(row[name], LabeledArray | np.ndarray)
        }
        if along:
            arrays = {k: v for k, v in row.items() if isinstance(v, LabeledArray) and tuple(v.axes) == tuple(along)}
            each = {name: v for name, v in row.items() if isinstance(v, np.ndarray) and v.dtype.kind in "bU"}
            out += _long(scalars, arrays, each)
            continue
        each = {name: value.tolist() for name, value in row.items() if isinstance(value, np.ndarray)}
        trials = range(max(map(len, each.values()), default=0))
        out += [{**scalars, "trial": t, **{name: value[t] for name, value in each.items()}} for t in trials] or [
            scalars
        ]
    return out


def _plain(rows: Rows) -> bool:
    """Return whether a row has a column without axes other than trials, or no row has a column."""
    return any(not isinstance(value, LabeledArray) for row in rows for value in row.values()) or not any(rows)


def _long(scalars: Row, arrays: Mapping[str, LabeledArray], each: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a record for each trial, if there are trials, and for each point of the axes that the arrays share.

    `each` contains strings and Booleans of each trial, which are repeated along the axes.
    """
    out: list[dict[str, Any]] = []
    for trials in (True, False):
        chosen = {name: array for name, array in arrays.items() if array.trials == trials}
        if not chosen:
            continue
        first = next(iter(chosen.values()))
        labels = {"trial": np.arange(len(first.values)), **first.axes} if trials else first.axes
        places = np.meshgrid(*labels.values(), indexing="ij")
        repeated = {name: values[places[0]] for name, values in each.items()} if trials else {}
        names = [*labels, *repeated, *chosen]
        parts = (*places, *repeated.values(), *(array.values for array in chosen.values()))
        lists = [part.ravel().tolist() for part in parts]
        out += [{**scalars, **dict(zip(names, point, strict=True))} for point in zip(*lists, strict=True)]
    return out


def to_csv(rows: Rows, path: str | os.PathLike[str]) -> list[Path]:
    """Write records to CSV files, one for each combination of axes (`Table.to_csv`)."""
    stem = os.fspath(named_file(path, ".csv")).removesuffix(".csv")
    written = []
    targets: dict[Path, tuple[str, ...]] = {}
    for along in [()] * _plain(rows) + shapes(rows):
        target = Path("-".join([stem, *along]) + ".csv")
        if target in targets:
            raise ValueError(
                f"{str(target)!r} would be the file of the axes {targets[target]} and of {along}; rename one"
            )
        targets[target] = along
    for target, along in targets.items():
        lines = records(rows, along)
        with replacing(target) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            names, writer = columns(lines), csv.writer(text)
            writer.writerow(names)
            writer.writerows([line.get(name) for name in names] for line in lines)
        written.append(target)
    return written


def to_xarray(rows: Rows, index: Mapping[str, str]) -> Any:
    """Return a dataset; `index` maps the names of coordinates to columns (`Table.to_xarray`)."""
    xarray = import_optional("xarray", "tables", "to_xarray()")
    _warn_of_divergence(rows)
    parts = []
    keys = [tuple(row[column] for column in index.values()) for row in rows]
    for number, key in enumerate(keys):
        if key in keys[:number]:
            labels = ", ".join(f"{name} = {value!r}" for name, value in zip(index, key, strict=True)) or "no index"
            raise ValueError(f"rows {keys.index(key)} and {number} have {labels}; name columns that identify each row")
    others = [name for name in varying(rows) if name not in index.values()] if len(rows) > 1 else []
    for row in rows:
        numbers = {
            name: row[name] for name in others if not isinstance(row.get(name), LabeledArray | np.ndarray | None)
        }
        found = numbers | {
            name: xarray.DataArray(value.values.copy(), dims=value.names, coords=dict(value.axes))
            if isinstance(value, LabeledArray)
            else xarray.DataArray(value.copy(), dims="trial")
            for name, value in row.items()
            if isinstance(value, LabeledArray | np.ndarray)
        }
        parts.append(xarray.Dataset(found).expand_dims({name: [row[column]] for name, column in index.items()}))
    return xarray.combine_by_coords(parts)


def to_pandas(rows: Rows, along: Sequence[str]) -> Any:
    """Return records as a data frame (`Table.to_pandas`); warn of left-out columns and metrics of diverged trials."""
    frame = import_optional("pandas", "tables", "to_pandas()").DataFrame(records(rows, along))
    if along:
        _warn_of_divergence(rows)
    elif left_out := _left_out(rows):
        warnings.warn(left_out, stacklevel=3)
    return frame


def _left_out(rows: Rows) -> str:
    """Return a note on the columns along axes, which records without axes leave out, or an empty string."""
    notes = []
    for axes in shapes(rows):
        arrays = (k for row in rows for k, v in row.items() if isinstance(v, LabeledArray) and tuple(v.axes) == axes)
        names, call = ", ".join(dict.fromkeys(arrays)), ", ".join(map(repr, axes))
        notes.append(f"columns along {', '.join(axes)} are left out: {names}; to_pandas({call}) has them")
    return "; ".join(notes)


def _warn_of_divergence(rows: Rows) -> None:
    """Warn the caller of a table's method if trials diverged."""
    if found := format_diverged(rows):
        warn_diverged(found, stacklevel=4)


def format_diverged(rows: Rows) -> str:
    """Return a note on the number of trials and rows with the status "DIVERGED"; empty if there are none."""
    diverged = [int((row["status"] == "DIVERGED").sum()) for row in rows if isinstance(row.get("status"), np.ndarray)]
    if not any(diverged):
        return ""
    trials = sum(len(row["status"]) for row in rows if isinstance(row.get("status"), np.ndarray))
    in_rows = sum(count > 0 for count in diverged)
    return f"{sum(diverged)} of {trials} trials diverged, in {in_rows} of {len(rows)} rows (column 'status')"


def html(rows: Rows) -> str:
    """Return an HTML table of the columns that vary over the rows, with arrays summarised as in `_brief`."""
    if len(rows) == 1:
        return page.facts([(name, _brief(value)) for name, value in rows[0].items()]) + page.paragraph(SUMMARISED)
    names = varying(rows)
    lines = _shown(rows, names)
    more = len(rows) - SHOWN_ROWS
    left_out = f", the first {SHOWN_ROWS} shown" if more > 0 else ""
    summary = f"{len(rows)} rows{left_out}; {SUMMARISED}"
    same_in_all = "; ".join(f"{name} = {_brief(rows[0].get(name, ''))}" for name in columns(rows) if name not in names)
    return (
        f'<div style="overflow-x:auto">{page.table(names, lines)}</div>'
        + page.paragraph(summary)
        + page.paragraph(same_in_all and f"The same in all rows: {same_in_all}")
    )


def text(rows: Rows) -> str:
    """Return the columns that vary over the rows as text, with arrays summarised as in `_brief`.

    Of a single row, the columns without a dot in their name, without empty ones and those along axes.
    """
    if len(rows) == 1:
        shown = {
            name: _brief(value)
            for name, value in rows[0].items()
            if not ("." in name or value is None or (isinstance(value, LabeledArray) and not value.trials))
        }
        return textwrap.fill(", ".join(f"{name} = {value}" for name, value in shown.items() if value), 100)
    names = varying(rows)
    lines = [names, *_shown(rows, names)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    aligned = ["  ".join(map(str.rjust, line, widths)) for line in lines]
    more = len(rows) - SHOWN_ROWS
    return "\n".join([*aligned, *[f"{more} more rows"] * (more > 0)])


def _shown(rows: Rows, names: list[str]) -> list[list[str]]:
    """Return the short texts of the columns in the rows that are shown."""
    return [[_brief(row.get(name, "")) for name in names] for row in rows[:SHOWN_ROWS]]


def _brief(value: Any) -> str:
    """Return a short text for a value: for an array over trials, the median at the end of every other axis."""
    if isinstance(value, LabeledArray) and not value.trials:
        return f"{value.values.size} values"
    if isinstance(value, LabeledArray | np.ndarray):
        array = value.values if isinstance(value, LabeledArray) else value
        if not array.size:
            return "empty"
        array = array.reshape(len(array), -1)[:, -1]
        if array.dtype.kind == "b":
            return f"{array.sum()} of {array.size}"
        if array.dtype.kind == "U":
            return ", ".join(f"{count} {word}" for word, count in Counter(array.tolist()).most_common(SHOWN_WORDS))
        if array.dtype.kind == "f" and np.isnan(array).all():
            return "nan"
        return f"{quantiles(array)[0]:.4g}" if array.dtype.kind in "fiu" else short_repr(array)
    return f"{value:g}" if isinstance(value, float) else one_line(str(value))
