"""The table of a study: rows of cells with what their runs returned.

A column holds one value in each row: a number or a word, an array with one number per trial, or an array along further
axes. Rows are chosen by value, never by position; one row gives its value, several rows give theirs stacked, so that
nothing is ever reshaped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linfed._types import Json
from linfed.errors import check_instance, check_unmasked, shown, suggestion
from linfed.system import files
from linfed.tables import export
from linfed.tables.grid import Row, fields_of, plain
from linfed.tables.labeled_array import Along

FORMAT = 1
"""Of a table's file."""


NAN = float("nan")
"""Stands for every NaN by which rows are grouped."""


class Table:
    """Rows by value: what `lf.sweep` returns, and what figures and judges take.

    Parameters
    ----------
    rows : sequence of mapping
        From column names to values: numbers, words, tuples of them, arrays (trials,), or `Along`.

    Raises
    ------
    TypeError
        If `rows` is not a sequence of mappings, or a value is of another kind.
    ValueError
        For a row whose arrays have different numbers of trials, or different labels along one axis.

    Notes
    -----
    A column of a dataclass's field within a field has a dotted name, ``problem.n_clients``; its last part is enough
    where no other column ends in it.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> table = lf.Table([{"n": n, "rule": r, "error": np.full(3, n / 10)} for n in (1, 2) for r in ("a", "b")])
    >>> table.where(rule="a")["error"].shape      # (rows, trials)
    (2, 3)
    >>> [(n, part["rule"].tolist()) for n, part in table.by("n")]
    [(1, ['a', 'b']), (2, ['a', 'b'])]
    """

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        if not isinstance(rows, Iterable) or isinstance(rows, str | Mapping):
            raise TypeError(f"rows = {shown(rows)} must be a sequence of mappings, e.g. [{{'n': 1}}]")
        rows = list(rows)
        for index, row in enumerate(rows):
            check_instance(f"rows[{index}]", row, Mapping, "a mapping from names of columns to values")
        self.rows: list[dict[str, Any]] = [_checked_row(row) for row in rows]

    @classmethod
    def of(cls, cells: Sequence[object], results: Sequence[Row | Sequence[Row]]) -> Table:
        """Return the table of cells and of what their runs returned, a row or several for each."""
        rows: list[Row] = []
        for cell, found in zip(cells, results, strict=True):
            fields = dict(fields_of(cell))
            several = [found] if isinstance(found, Mapping) else found
            if not isinstance(several, list | tuple) or not all(isinstance(row, Mapping) for row in several):
                raise TypeError(
                    f"{type(cell).__name__}.run returned {shown(found)}, expected a mapping, or a list of mappings"
                )
            rows += [{**fields, **row} for row in several]
        return cls(rows)

    @classmethod
    def _of_rows(cls, rows: list[dict[str, Any]]) -> Table:
        out = cls()
        out.rows = rows
        return out

    # --- rows ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Table]:
        """Yield each row, as a table of one."""
        return (Table._of_rows([row]) for row in self.rows)

    def __add__(self, other: Table) -> Table:
        if not isinstance(other, Table):
            return NotImplemented
        return Table._of_rows([*self.rows, *other.rows])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, without those of axes."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    def where(self, **wanted: Any) -> Table:
        """Return the rows whose columns have the wanted values; of a list, a range, a set or an array, one of them.

        So of a tuple, in a column that does not hold tuples. NaN is a value like others here.
        """
        columns = {self._key(name): value for name, value in wanted.items()} if self.rows else {}

        def fits(row: Row) -> bool:
            return all(
                name in row and any(export.same(row[name], one) for one in _one_of(value, row[name]))
                for name, value in columns.items()
            )

        return Table._of_rows([row for row in self.rows if fits(row)])

    def by(self, *names: str) -> Iterator[tuple[Any, Table]]:
        """Yield each value of a column (a tuple of several columns) with its rows, in the order of first sight."""
        columns = [self._key(name) for name in names] if self.rows else []
        groups: dict[Any, list[dict[str, Any]]] = {}
        for row in self.rows:
            key = tuple(NAN if _is_nan(row.get(column)) else row.get(column) for column in columns)
            groups.setdefault(key[0] if len(names) == 1 else key, []).append(row)
        for key, rows in groups.items():
            yield key, Table._of_rows(rows)

    def values(self, name: str) -> list[Any]:
        """Return the different values of a column of numbers or words, in the order of first sight."""
        return [value for value, _ in self.by(name)]

    def axes(self, name: str) -> tuple[str, ...]:
        """Return the names of the axes of a column, "trial" first; none for numbers and words."""
        value = self.rows[0].get(self._column(name)) if self.rows else None
        return value.names if isinstance(value, Along) else ("trial",) if isinstance(value, np.ndarray) else ()

    def assign(self, **functions: Callable[[Table], Any]) -> Table:
        """Return the table with further columns, each a function of one row's table."""
        for name, function in functions.items():
            check_instance(name, function, Callable, "a function of one row's table")  # type: ignore[arg-type]
        return Table(
            [
                {**row, **{name: made(one) for name, made in functions.items()}}
                for row, one in zip(self.rows, self, strict=True)
            ]
        )

    def __getitem__(self, name: str) -> Any:
        """Return a column: of one row its value, of several rows their values stacked; or the labels of an axis."""
        check_instance("column", name, str, "the name of a column; rows are chosen by value, with where() and by()")
        if not self.rows:
            raise ValueError(f"no row is left to take {name!r} from: a value asked for with where() does not occur")
        labels = [
            column.axes[name]
            for row in self.rows
            for column in row.values()
            if isinstance(column, Along) and name in column.axes
        ]
        if labels and name not in self.columns:
            if any(not np.array_equal(labels[0], other) for other in labels[1:]):
                raise ValueError(f"the rows differ along {name!r}: choose some of them first")
            return labels[0]
        column = self._column(name)
        if any(column not in row for row in self.rows):
            raise ValueError(f"some of the rows have no {column!r}: choose the others first")
        found = [row[column].values if isinstance(row[column], Along) else row[column] for row in self.rows]
        if len(found) == 1:
            return found[0]
        if len({np.shape(value) for value in found}) > 1:
            raise ValueError(f"the rows have {column!r} of different shapes: choose some of them first")
        return np.stack([np.asarray(value) for value in found])

    def _key(self, name: str) -> str:
        """Return a column by which rows can be chosen, or raise for one of arrays."""
        column = self._column(name)
        if any(isinstance(row.get(column), Along | np.ndarray) for row in self.rows):
            raise KeyError(f"column {column!r} holds arrays: rows are chosen by numbers and words")
        return column

    def _column(self, name: str) -> str:
        """Return the column of a name, which may be the last part of its own, or raise."""
        columns = self.columns
        if name in columns:
            return name
        ending = [column for column in columns if column.endswith(f".{name}")]
        if len(ending) == 1:
            return ending[0]
        axes = {axis for row in self.rows for value in row.values() if isinstance(value, Along) for axis in value.axes}
        if name in axes:
            raise KeyError(f"{name!r} is an axis, along which rows cannot be chosen; take it from the arrays")
        if ending:
            raise KeyError(f"column {name!r} may be {' or '.join(map(repr, ending))}: give the whole name")
        known = ", ".join(map(repr, columns))
        raise KeyError(f"column {name!r} is unknown{suggestion(name, columns)}; here: {known}")

    # --- outside ---------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        names = export.varying(self.rows) if len(self) > 1 else self.columns
        return f"<Table of {len(self)} rows, {len(self.columns)} columns: {', '.join(names)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the columns that vary over the rows, of arrays their medians."""
        return export.html(self.rows)

    def records(self, *along: str, short: bool = False) -> list[dict[str, Any]]:
        """Return a record for each row and trial: its numbers and words, and each trial's own.

        Parameters
        ----------
        *along : str
            Axes, e.g. ``"round"``: then there is a record for each of their points, with what lies along just these,
            each trial's words and truth values, and of the other columns those that differ between rows.
        short : bool
            Name a column by the last part of its dotted name where no other column ends in it: ``n_clients``.
        """
        return export.records(self._named(short), along)

    def to_csv(self, path: str | os.PathLike[str], *, short: bool = False) -> list[Path]:
        """Write `records` to ``path``, and those along each combination of axes beside it, as ``path-round.csv``."""
        return export.to_csv(self._named(short), path)

    def to_pandas(self, *along: str, short: bool = False) -> Any:
        """Return `records` as a ``pandas.DataFrame`` (extra ``tables``).

        Warns
        -----
        DivergenceWarning
            If there are metrics of trials that diverged: they are NaN, and averages in pandas skip NaN. The column
            ``status`` tells them apart; ``frame["risk"].fillna(np.inf)`` counts them as the worst in a median.
        """
        return export.to_pandas(self._named(short), along)

    def to_xarray(self, *index: str, short: bool = False) -> Any:
        """Return an ``xarray.Dataset`` over trials, axes, and the columns that tell the rows apart (extra ``tables``).

        Parameters
        ----------
        *index : str
            Columns of numbers or words: their values are coordinates.
        short : bool
            Name the other columns as in `records`.

        Warns
        -----
        DivergenceWarning
            If trials diverged: their metrics are NaN, and averages in xarray skip NaN.
        """
        told = export.short_names(self.rows) if short else {}
        columns = {name: self._column(name) for name in index}
        return export.to_xarray(self._named(short), {name: told.get(one, one) for name, one in columns.items()})

    def _named(self, short: bool) -> Sequence[Row]:
        """Return the rows, by short names of their columns or by whole ones."""
        return export.named(self.rows, export.short_names(self.rows)) if short else self.rows

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to one ``.npz`` file, by rename, and return its path."""
        return files.write(path, *self.payload())

    def payload(self) -> tuple[dict[str, Any], Json]:
        """Return arrays and a description of everything, as `load` reads them."""
        arrays: dict[str, Any] = {}
        described = []
        for number, row in enumerate(self.rows):
            words: dict[str, Any] = {}
            for name, value in row.items():
                key = f"{number}/{name}"
                if isinstance(value, Along):
                    words[name] = {"axes": list(value.axes)}
                    arrays[key] = value.values
                    arrays |= {f"{key}//{axis}": labels for axis, labels in value.axes.items()}
                elif isinstance(value, np.ndarray):
                    words[name], arrays[key] = {"axes": []}, value
                else:
                    words[name] = {"value": value}
            described.append(words)
        return arrays, {"format": FORMAT, "table": described}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Table:
        """Return the table that `save` wrote.

        Raises
        ------
        ValueError
            If the file is not a table that linfed wrote.
        """
        arrays, described = files.read(path)
        if not isinstance(described, dict) or described.get("format") != FORMAT or "table" not in described:
            raise ValueError(f"path = {str(path)!r} is not a table that linfed wrote")
        return cls(cls.from_payload(arrays, described).rows)

    @classmethod
    def from_payload(cls, arrays: Mapping[str, Any], described: Json) -> Table:
        """Return the table of which these are the payload."""
        return cls._of_rows(
            [
                {name: _value(f"{i}/{name}", word, arrays) for name, word in row.items()}
                for i, row in enumerate(described["table"])
            ]
        )


def _checked_row(row: Row) -> dict[str, Any]:
    """Return a row as the table keeps it."""
    for name in row:
        if not isinstance(name, str):
            raise TypeError(f"a row has a column {shown(name)}: names of columns are words")
        if "//" in name:
            raise ValueError(f"a row has a column {shown(name)}: '//' would not be told from an axis in a file")
    kept = {name: _checked(name, value) for name, value in row.items()}
    arrays = {k: v.values if isinstance(v, Along) else v for k, v in kept.items() if _of_trials(v)}
    counts = {len(array): name for name, array in arrays.items()}
    if len(counts) > 1:
        told = " and ".join(f"{name} {count}" for count, name in counts.items())
        raise ValueError(f"a row has arrays of different numbers of trials: {told}; name another axis with lf.Along")
    axes: dict[str, Any] = {}
    taken = {
        "trial",
        *(axis for value in kept.values() if isinstance(value, Along) for axis in value.axes),
    } & kept.keys()
    if taken:
        raise ValueError(f"a row has a column {min(taken)!r}, which is also the name of an axis: give it another one")
    for name, value in kept.items():
        for axis, labels in value.axes.items() if isinstance(value, Along) else ():
            if not np.array_equal(axes.setdefault(axis, labels), labels):
                raise ValueError(f"{name} lies along {axis!r} with other labels than a column of the same row")
    return kept


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _one_of(wanted: Any, held: Any) -> Any:
    """Return the values that are wanted of a column, which holds e.g. `held`."""
    several = isinstance(wanted, list | range | set | frozenset | np.ndarray)
    return wanted if several or (isinstance(wanted, tuple) and not isinstance(held, tuple)) else [wanted]


def _of_trials(value: Any) -> bool:
    return value.trials if isinstance(value, Along) else isinstance(value, np.ndarray)


def _checked(name: str, value: Any) -> Any:
    """Return a value as a row keeps it."""
    if isinstance(value, Along):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        if check_unmasked(name, value).dtype.kind not in "biufU":
            raise TypeError(f"{name} is an array of dtype {value.dtype}; numbers, truth values or words are allowed")
        if value.ndim > 1:
            raise TypeError(
                f"{name} has shape {value.shape}: give an array with more than trials as lf.Along(values, axis=labels)"
            )
        return value
    if isinstance(value, np.ndarray):
        value = value.item()
    kept = plain(value)
    if isinstance(kept, str) and not isinstance(value, str):
        raise TypeError(f"{name} = {shown(value)} must be a number, a word, an array (trials,), or lf.Along")
    return kept


def _value(key: str, word: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    if "value" in word:
        return _tuples(word["value"])
    axes = {axis: arrays[f"{key}//{axis}"] for axis in word["axes"]}
    return Along(arrays[key], **axes) if axes else arrays[key]


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
