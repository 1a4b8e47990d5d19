"""Table of results: each row has the fields of a cell and the values that its run returned.

A column has one value in each row: a number, a string, an array with one number per trial, or an array along further
axes. Rows are selected by value, not by position. In a table of one row, a column is its value; in a table of several
rows, the values are stacked.

A table owns its arrays: they are copied in and read-only, and `Table.__getitem__` returns a copy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from linfed._names import is_share
from linfed._types import Json
from linfed.checks import (
    check_bool,
    check_choice,
    check_instance,
    check_sequence,
    check_text,
    check_unmasked,
    short_repr,
    suggestion,
)
from linfed.system import files
from linfed.system.memory import check_fits
from linfed.tables import export
from linfed.tables.grid import Row, checked_cells, fields_of, plain
from linfed.tables.labeled_array import LabeledArray, check_name, same_labels
from linfed.tables.summary import BEST, STATISTICS, Summary, summary

FORMAT = 1
"""Version of the file format."""


NAN = float("nan")
"""Key of the group of rows with NaN."""


class Table:
    """Table of results, as `lf.sweep` returns it; rows are selected by value.

    Parameters
    ----------
    rows : sequence of mapping
        Rows, from column names to values: numbers, strings, tuples of these, arrays (trials,), or `LabeledArray`.

    Raises
    ------
    TypeError
        If `rows` is not a sequence of mappings, or a value has another type.
    ValueError
        If the arrays of a row have different numbers of trials, or different labels along the same axis.

    Notes
    -----
    The column for a field of a field has a dotted name, such as ``problem.n_clients``. Its last part is enough if no
    other column ends in it.

    Arrays are copied in, and a column is a copy: writing into either changes no table.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> table = lf.Table([{"n": n, "rule": r, "error": np.full(3, n / 10)} for n in (1, 2) for r in ("a", "b")])
    >>> table.select(rule="a")["error"].shape      # (rows, trials)
    (2, 3)
    >>> [(n, part["rule"].tolist()) for n, part in table.groupby("n")]
    [(1, ['a', 'b']), (2, ['a', 'b'])]
    """

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        rows = check_sequence("rows", rows, "a sequence of mappings, e.g. [{'n': 1}]")
        for index, row in enumerate(rows):
            check_instance(f"rows[{index}]", row, Mapping, "a mapping from column names to values")
        self.rows: list[dict[str, Any]] = [_checked_row(row) for row in rows]

    @classmethod
    def of(cls, cells: Sequence[object], results: Sequence[Row | Sequence[Row]]) -> Table:
        """Return the table of cells and their results, where each result is one row or a list of rows."""
        rows: list[Row] = []
        made, rows_of_cells = checked_cells(cells), check_sequence("results", results, "a sequence of rows")
        if len(made) != len(rows_of_cells):
            raise ValueError(
                f"results has {len(rows_of_cells)} values, but must have one for each of {len(made)} cells"
            )
        for cell, found in zip(made, rows_of_cells, strict=True):
            fields = dict(fields_of(cell))
            several = [found] if isinstance(found, Mapping) else found
            if not isinstance(several, list | tuple) or not all(isinstance(row, Mapping) for row in several):
                raise TypeError(
                    f"results: {type(cell).__name__}.run must return a mapping or a list of mappings, got "
                    f"{short_repr(found)}"
                )
            rows += [{**fields, **row} for row in several]
        return cls(rows)

    @classmethod
    def joined(cls, tables: Iterable[Table]) -> Table:
        """Return one table with the rows of several tables, in their order.

        Rows are copied, so a table that occurs twice shares no row with itself. Arrays are shared; they are read-only.

        Parameters
        ----------
        tables : iterable of Table

        Returns
        -------
        Table
        """
        return cls._of_rows([dict(row) for table in tables for row in table.rows])

    @classmethod
    def _of_rows(cls, rows: list[dict[str, Any]]) -> Table:
        out = cls()
        out.rows = rows
        return out

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for row in self.rows:
            for value in row.values():
                if isinstance(value, np.ndarray):
                    value.setflags(write=False)  # pickle and copy make writable arrays

    # --- rows ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Table]:
        """Yield each row, as a table of one row."""
        return (Table._of_rows([row]) for row in self.rows)

    def __add__(self, other: Table) -> Table:
        if not isinstance(other, Table):
            return NotImplemented
        return Table._of_rows([*self.rows, *other.rows])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, without the names of axes."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    def select(self, **wanted: Any) -> Table:
        """Select rows by the values of columns.

        Parameters
        ----------
        **wanted
            A value for each column, or a list, array or other iterable of allowed values. A tuple is a list of allowed
            values too, unless the column contains tuples. NaN matches NaN.

        Returns
        -------
        Table
            The rows whose columns all have an allowed value.
        """
        columns = {self._key(name): _allowed(value) for name, value in wanted.items()} if self.rows else {}

        def fits(row: Row) -> bool:
            return all(
                name in row and any(export.same(row[name], one) for one in _one_of(value, row[name]))
                for name, value in columns.items()
            )

        return Table._of_rows([row for row in self.rows if fits(row)])

    def groupby(self, *names: str) -> Iterator[tuple[Any, Table]]:
        """Group rows by the values of columns.

        Parameters
        ----------
        *names : str
            Columns of numbers or strings.

        Yields
        ------
        tuple
            A value of the column (a tuple of values for several columns) and the table of its rows, in the order in
            which the values first occur.
        """
        columns = [self._key(name) for name in names] if self.rows else []
        groups: dict[Any, list[dict[str, Any]]] = {}
        for row in self.rows:
            key = tuple(_key_of(row.get(column)) for column in columns)
            groups.setdefault(key[0] if len(names) == 1 else key, []).append(row)
        for key, rows in groups.items():
            yield key, Table._of_rows(rows)

    def unique(self, name: str) -> list[Any]:
        """Return the different values of a column of numbers or strings, in the order in which they first occur."""
        return [value for value, _ in self.groupby(name)]

    def axes(self, name: str) -> tuple[str, ...]:
        """Return the names of the axes of a column's first array, "trial" first; empty for numbers and strings."""
        column = self._column(name) if self.rows else name
        arrays = (one for row in self.rows if isinstance(one := row.get(column), LabeledArray | np.ndarray))
        first = next(arrays, None)
        return () if first is None else first.names if isinstance(first, LabeledArray) else ("trial",)

    def assign(self, **functions: Callable[[Table], Any]) -> Table:
        """Return a table with additional columns, each computed by a function of one row's table."""
        for name, function in functions.items():
            check_instance(name, function, Callable, "a function of one row's table")  # type: ignore[arg-type]
        return Table(
            [
                {**row, **{name: made(one) for name, made in functions.items()}}
                for row, one in zip(self.rows, self, strict=True)
            ]
        )

    def __getitem__(self, name: str) -> Any:
        """Return a column (the value of a single row, the stacked values of several rows) or the labels of an axis.

        An array is a copy.
        """
        check_instance("column", name, str, "the name of a column; to select rows, use select() or groupby()")
        if not self.rows:
            raise ValueError(f"cannot read column {name!r} of an empty table; did select() match no row?")
        labels = [
            column.axes[name]
            for row in self.rows
            for column in row.values()
            if isinstance(column, LabeledArray) and name in column.axes
        ]
        if labels and name not in self.columns:
            if any(not same_labels(labels[0], other) for other in labels[1:]):
                raise ValueError(f"the rows have different labels along {name!r}; select rows with the same ones first")
            return labels[0].copy()
        column = self._column(name)
        if any(column not in row for row in self.rows):
            raise ValueError(f"some rows have no column {column!r}; select the others first")
        found = [row[column].values if isinstance(row[column], LabeledArray) else row[column] for row in self.rows]
        if len(found) == 1:
            return found[0].copy() if isinstance(found[0], np.ndarray) else found[0]
        try:
            parts = [np.asarray(value) for value in found]
        except ValueError:  # of NumPy, which has no array of them
            raise ValueError(
                f"column {column!r} has tuples of tuples that form no array; use unique() or rows"
            ) from None
        if len({part.shape for part in parts}) > 1:
            raise ValueError(
                f"column {column!r} has a different shape in some rows; select rows of the same shape first"
            )
        texts = [part.dtype.kind == "U" for part in parts]
        return np.stack(parts if any(texts) == all(texts) else [part.astype(object) for part in parts])

    def _key(self, name: str) -> str:
        """Return the full name of a column; raise if it contains arrays, by which rows cannot be selected."""
        column = self._column(name)
        if any(isinstance(row.get(column), LabeledArray | np.ndarray) for row in self.rows):
            raise KeyError(f"column {column!r} contains arrays; select rows by columns of numbers or strings")
        return column

    def _column(self, name: str) -> str:
        """Return the full name of a column, given the name or its last part; raise if it is unknown or ambiguous."""
        columns = self.columns
        check_instance("column", name, str, "the name of a column")
        if name in columns:
            return name
        ending = [column for column in columns if column.endswith(f".{name}")]
        if len(ending) == 1:
            return ending[0]
        axes = {
            axis
            for row in self.rows
            for value in row.values()
            if isinstance(value, LabeledArray)
            for axis in value.axes
        }
        if name in axes:
            raise KeyError(f"{name!r} is an axis, not a column; index the arrays along it instead")
        if ending:
            raise KeyError(f"column {name!r} may be {' or '.join(map(repr, ending))}; use the full name")
        listed = ", ".join(map(repr, columns))
        raise KeyError(f"column {name!r} is unknown{suggestion(name, columns)}; here: {listed}")

    # --- export ----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        names = f": {', '.join(export.varying(self.rows))}" if len(self) > 1 else ""
        return f"<Table of {len(self)} row{'s' * (len(self) != 1)}, {len(self.columns)} columns{names}>"

    def __str__(self) -> str:
        """Return the columns that vary over the rows as text, with medians for arrays."""
        return "\n".join(filter(None, (repr(self), export.text(self.rows))))

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the columns that vary over the rows, with medians for arrays."""
        return export.html(self.rows)

    def to_records(self, *along: str, short: bool = False) -> list[dict[str, Any]]:
        """Return the table as a list of records (dictionaries), one for each row and trial.

        Parameters
        ----------
        *along : str
            Axes, e.g. ``"round"``. If given, there is a record for each of their points. It has the columns with
            exactly these axes, the strings and Booleans of each trial, and the other columns that differ between rows.
            If not given, columns along axes are left out.
        short : bool
            If True, name a column by the last part of its dotted name, e.g. ``n_clients``, unless another column ends
            in the same part.

        Returns
        -------
        list of dict
        """
        return export.records(self._named(short), along)

    def summarize(
        self,
        metric: str,
        *,
        rows: str | Sequence[str],
        columns: str | Sequence[str] = (),
        statistic: str = "median",
        best: str | None = None,
    ) -> Summary:
        """Return a table for a paper: a statistic over trials with its 95 % confidence interval in each entry.

        Parameters
        ----------
        metric : str
            Column with one value per trial, or one per trial and round, of which the last is used.
        rows, columns : str or sequence of str
            Columns of numbers or strings, whose values are the rows and the columns of the summary. Together they must
            identify each row of this table.
        statistic : {"median", "mean"}
            The median has the interval of `linfed.statistics.median_interval`, exact for every distribution and finite
            from 6 trials on. The mean has Student's interval (`linfed.statistics.mean_interval`).
        best : {"smallest", "largest"}, optional
            The best value, by default the largest accuracy and the smallest value of all other metrics. It is bold if
            its interval overlaps no other interval of the same column.

        Returns
        -------
        Summary
            Object with the methods ``to_pandas()``, ``to_markdown()`` and ``to_latex()``.

        Raises
        ------
        KeyError
            If a column is unknown, or `rows` or `columns` names a column of arrays.
        ValueError
            If the metric does not have one number per trial, or several rows of this table belong to the same entry.

        Notes
        -----
        Diverged trials are counted in their entry. They have the worst value: they shift the median, and make a mean
        infinite.

        Examples
        --------
        >>> import numpy as np
        >>> import linfed as lf
        >>> table = lf.Table([{"rule": r, "n": n, "error": np.arange(1.0, 9.0) * n**p}
        ...                   for r, p in (("a", 1), ("b", -1)) for n in (1, 4)])
        >>> print(table.summarize("error", rows="rule", columns="n"))  # doctest: +ELLIPSIS
        | rule | n = 1 | n = 4 |
        | --- | --- | --- |
        | a | 4.00 [1.00, 8.00] | 16.0 [4.0, 32.0] |
        | b | 4.00 [1.00, 8.00] | **1.00 [0.25, 2.00]** |
        <BLANKLINE>
        error: median over 8 trials [confidence interval of level 0.95]; bold: ...
        """
        check_choice("statistic", statistic, STATISTICS)
        if not self.rows:
            raise ValueError("cannot summarize an empty table; did select() match no row?")
        self._column(check_text("metric", metric))
        best = check_choice("best", ("largest" if is_share(metric) else "smallest") if best is None else best, BEST)
        sides = []
        for side, given in (("rows", rows), ("columns", columns)):
            listed = [given] if isinstance(given, str) else check_sequence(side, given, "one or several columns")
            sides.append([self._key(check_text(f"{side}[{turn}]", name)) for turn, name in enumerate(listed)])
        values: dict[Any, Any] = {}
        for row in self:
            key = tuple(tuple(row.rows[0].get(name) for name in side) for side in sides)
            if key in values:
                raise ValueError(self._same_entry([name for side in sides for name in side], row.rows[0]))
            axes = row.axes(metric)
            if axes not in (("trial",), ("trial", "round")):
                raise ValueError(
                    f"metric = {metric!r} must have one value per trial, or one per trial and round, got the axes "
                    f"{axes}; use assign() to add a column with one value per trial"
                )
            values[key] = row[metric] if axes == ("trial",) else row[metric][:, -1]
            if values[key].dtype.kind == "U":
                raise ValueError(f"metric = {metric!r} must have numbers, got {short_repr(values[key][:1].tolist())}")
        short = export.short_names(self.rows)
        names = [[short[name] for name in side] for side in sides]
        return summary(metric, statistic, best, names[0], names[1], values)

    def _same_entry(self, names: Sequence[str], first: Row) -> str:
        """Return the message that several rows agree with `first` in the named columns, and in what they differ."""
        same = [row for row in self.rows if all(row.get(name) == first.get(name) for name in names)]
        words = export.distinguishing(same)
        short = export.short_names(self.rows)
        differ = f" and differ in {', '.join(short[name] for name in words[:3])}" if words else ""
        found = ", ".join(f"{name} = {first.get(name)!r}" for name in names)
        return f"several rows have {found}{differ}; use select(), or name more columns in rows= or columns="

    def to_csv(self, path: str | os.PathLike[str], *, short: bool = False) -> list[Path]:
        """Write `to_records` to CSV files and return their paths.

        Each combination of axes has a separate file, e.g. ``table-round.csv`` next to ``table.csv``.
        """
        return export.to_csv(self._named(short), path)

    def to_pandas(self, *along: str, short: bool = False) -> Any:
        """Return `to_records` as a ``pandas.DataFrame`` (extra ``tables``).

        Metrics of a `Run` have the axis ``round``: ``to_pandas("round")`` contains them.

        Warns
        -----
        UserWarning
            If no axis is given, and columns along axes are therefore left out.
        DivergenceWarning
            If there are metrics of diverged trials. They are NaN, and averages in pandas skip NaN. The column
            ``status`` identifies these trials; ``frame["risk"].fillna(np.inf)`` makes them the worst in a median.
        """
        return export.to_pandas(self._named(short), along)

    def to_xarray(self, *index: str, short: bool = False) -> Any:
        """Return the table as an ``xarray.Dataset`` (extra ``tables``).

        Its dimensions are the trials, the axes of the columns, and the columns in `index`.

        Parameters
        ----------
        *index : str
            Columns of numbers or strings that identify each row; their values become coordinates.
        short : bool
            If True, shorten the names of the other columns as in `to_records`.

        Warns
        -----
        DivergenceWarning
            If trials diverged. Their metrics are NaN, and averages in xarray skip NaN.
        """
        names = export.short_names(self.rows) if check_bool("short", short) else {}
        columns = {name: self._key(name) for name in index}
        for name, column in columns.items():
            if any(column not in row for row in self.rows):
                raise ValueError(f"some rows have no column {name!r}; select the others first")
        return export.to_xarray(self._named(short), {name: names.get(one, one) for name, one in columns.items()})

    def _named(self, short: bool) -> Sequence[Row]:
        """Return the rows, with short or full names of their columns."""
        return export.named(self.rows, export.short_names(self.rows)) if check_bool("short", short) else self.rows

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the table to one ``.npz`` file, atomically, and return its path."""
        return files.write(path, *self.payload())

    def payload(self) -> tuple[dict[str, Any], Json]:
        """Return the arrays of the table and a JSON description of the rest, as `load` reads them."""
        arrays: dict[str, Any] = {}
        described = []
        for number, row in enumerate(self.rows):
            words: dict[str, Any] = {}
            for name, value in row.items():
                key = f"{number}/{name}"
                if isinstance(value, LabeledArray):
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
        """Read a table that `save` wrote.

        Raises
        ------
        ValueError
            If the file is not a table written by linfed.
        """
        arrays, described = files.read(path)
        if not isinstance(described, dict) or described.get("format") != FORMAT or "table" not in described:
            raise ValueError(f"path = {str(path)!r} must be a table written by Table.save")
        try:
            return cls(cls.from_payload(arrays, described).rows)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise files.not_ours(path, error) from None

    @classmethod
    def from_payload(cls, arrays: Mapping[str, Any], described: Json) -> Table:
        """Return the table with this payload, which takes over its arrays."""
        return cls._of_rows(
            [
                {name: _value(f"{i}/{name}", word, arrays) for name, word in row.items()}
                for i, row in enumerate(described["table"])
            ]
        )


def _checked_row(row: Row) -> dict[str, Any]:
    """Convert the values of a row; raise if a name, a value or the shapes are invalid."""
    for name in row:
        if not isinstance(name, str):
            raise TypeError(f"column names must be strings, got {short_repr(name)}")
        if "//" in name:
            raise ValueError(f"column names must not contain '//', got {short_repr(name)}")
        if name.endswith("/"):  # in a file, '//' separates the column from the axis
            raise ValueError(f"column names must not end in '/', got {short_repr(name)}")
        check_name("columns", name)
    kept = {name: _checked(name, value) for name, value in row.items()}
    arrays = {k: v.values if isinstance(v, LabeledArray) else v for k, v in kept.items() if _of_trials(v)}
    counts = {len(array): name for name, array in arrays.items()}
    if len(counts) > 1:
        counts_text = " and ".join(f"{name} {count}" for count, name in counts.items())
        raise ValueError(
            f"all arrays of a row must have the same number of trials, got {counts_text}; for another axis, use "
            f"lf.LabeledArray"
        )
    axes: dict[str, Any] = {}
    taken = {
        "trial",
        *(axis for value in kept.values() if isinstance(value, LabeledArray) for axis in value.axes),
    } & kept.keys()
    if taken:
        raise ValueError(f"a row has a column {min(taken)!r}, which is also the name of an axis; rename the column")
    for name, value in kept.items():
        for axis, labels in value.axes.items() if isinstance(value, LabeledArray) else ():
            if not same_labels(axes.setdefault(axis, labels), labels):
                raise ValueError(f"{name} must have the same labels along {axis!r} as the other columns of its row")
    return kept


def _key_of(value: Any) -> Any:
    """Return a value as the key of a group: NaN, also within tuples, is always the same object."""
    if isinstance(value, tuple):
        return tuple(_key_of(part) for part in value)
    return NAN if isinstance(value, float) and value != value else value


def _allowed(wanted: Any) -> Any:
    """Return the allowed values of a column as a list, a range or a tuple; a single one stays."""
    if isinstance(wanted, np.ndarray):
        check_fits(4.0 * wanted.size, f"a list of {wanted.size} allowed values", "select by fewer values")
        return wanted.tolist()  # the one value of an array without axes
    return (
        list(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, str | bytes | tuple | range) else wanted
    )


def _one_of(wanted: Any, value: Any) -> Any:
    """Return the allowed values of a column that contains `value`, given the result of `_allowed`."""
    several = isinstance(wanted, list | range) or (isinstance(wanted, tuple) and not isinstance(value, tuple))
    return wanted if several else [wanted]


def _of_trials(value: Any) -> bool:
    return value.trials if isinstance(value, LabeledArray) else isinstance(value, np.ndarray)


def _checked(name: str, value: Any) -> Any:
    """Return a value converted for a row; raise if its type or shape is not allowed."""
    if isinstance(value, LabeledArray):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        if check_unmasked(name, value).dtype.kind not in "biufU":
            raise TypeError(f"{name} must be an array of numbers, Booleans or strings, got dtype {value.dtype}")
        if value.ndim > 1:
            raise TypeError(
                f"{name} must have shape (trials,), got shape {value.shape}; for more axes, use "
                "lf.LabeledArray(values, axis=labels)"
            )
        kept = np.array(value)
        kept.setflags(write=False)
        return kept
    if isinstance(value, np.ndarray):
        value = value.item()
    kept = plain(value)
    if isinstance(kept, str) and not isinstance(value, str):
        raise TypeError(
            f"{name} = {short_repr(value)} must be a number, a string, an array (trials,), or lf.LabeledArray"
        )
    return kept


def _value(key: str, word: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    if "value" in word:
        return _tuples(word["value"])
    axes = {axis: arrays[f"{key}//{axis}"] for axis in word["axes"]}
    if axes:
        return LabeledArray.owning(arrays[key], axes)
    arrays[key].setflags(write=False)
    return arrays[key]


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
