"""Columns of a table of samples: numbers, and categories that become columns of 0 and 1."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed._values import EqualByValue
from linfed.checks import check_array, is_several, short_repr, suggestion

Values = np.ndarray[Any, Any]
Table = Mapping[Any, Values]
"""Columns by their names, each (samples,)."""

SHOWN = 5
"""Largest number of columns or clients that a message lists."""


@dataclass(frozen=True, kw_only=True)
class TableColumns(EqualByValue):
    """The columns of a table that are features, and the levels of its categories.

    Parameters
    ----------
    names : tuple
        Names of the columns of the table, or their numbers if it is an array.
    levels : tuple
        For each column the levels of a category, as a tuple, or None for a column of numbers.
    clients : object, optional
        Name of the column with each row's client.
    """

    names: tuple[Any, ...]
    levels: tuple[tuple[Any, ...] | None, ...]
    clients: Any = None

    @property
    def titles(self) -> tuple[str, ...]:
        """Names of the features; a level of a category is ``name=level``."""
        found: list[str] = []
        for name, levels in zip(self.names, self.levels, strict=True):
            found += [str(name)] if levels is None else [f"{name}={level}" for level in levels]
        return tuple(found)

    @property
    def is_level(self) -> Mask:
        """Whether each feature is a level of a category, (features,)."""
        counts = [1 if one is None else len(one) for one in self.levels]
        return np.repeat([one is not None for one in self.levels], counts)

    def features(self, argument: str, table: Table, kept: Indices | None = None) -> Array:
        """Return the features of the rows of a table, (samples, features); an unknown level is 0 in all its columns.

        If only some features are `kept`, a column with none of them need not be there, and is 0.
        """
        counts = [1 if one is None else len(one) for one in self.levels]
        owner = np.repeat(np.arange(len(counts)), counts)  # the column of each feature
        read = [name for number, name in enumerate(self.names) if kept is None or number in owner[kept]]
        for name in read:
            if name not in table:
                raise ValueError(f"{argument} has no column {name!r}; it must have the columns of the training rows")
        check_complete(argument, {name: table[name] for name in read})
        samples = len(next(iter(table.values())))
        parts: list[Array] = []
        for name, levels, count in zip(self.names, self.levels, counts, strict=True):
            if name not in read:
                parts.append(np.zeros((samples, count)))
            elif levels is None:
                parts.append(_numbers(f"{argument}[{name!r}]", table[name])[:, None])
            else:
                values = table[name].tolist()
                parts.append(np.array([[one == level for level in levels] for one in values], dtype=np.float64))
        return np.concatenate(parts, axis=1)


def is_table(value: object) -> bool:
    """Return whether a value has named columns."""
    if isinstance(value, np.ndarray):
        return value.dtype.names is not None
    return isinstance(value, Mapping) or (hasattr(value, "columns") and hasattr(value, "__getitem__"))


def read_table(argument: str, table: object) -> Table:
    """Return the columns of a DataFrame, a mapping, a structured array or an array (samples, columns)."""
    found: dict[Any, Values] = {}
    if is_table(table):
        frame: Any = table
        if isinstance(table, np.ndarray):
            names = list(frame.dtype.names)
        else:
            names = list(table) if isinstance(table, Mapping) else list(frame.columns)
        if len(set(names)) < len(names):
            raise ValueError(f"{argument} has two columns of the same name: {short_repr(names)}")
        found = {name: _column(f"{argument}[{name!r}]", frame[name]) for name in names}
    else:
        array = table if isinstance(table, np.ndarray) else check_array(argument, table, [("samples", "d")])
        if array.ndim != 2:
            raise ValueError(
                f"{argument} has shape {array.shape}, expected (samples, d), or a table with named columns"
            )
        found = {number: array[:, number] for number in range(array.shape[1])}
    sizes = {name: len(column) for name, column in found.items()}
    if not sizes or 0 in sizes.values():
        raise ValueError(f"{argument} = {short_repr(table)} has no rows or no columns")
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{argument} has columns of different lengths: {short_repr(sizes)}")
    return found


def named_or_given(argument: str, value: object, table: Table, samples: int) -> tuple[Any, Values]:
    """Return the name and the values of a column of the table; values that are given instead have the name None."""
    if is_several(value) or one_column(value) is not None:
        column = _column(argument, value)
        if len(column) != samples:
            raise ValueError(f"{argument} has shape {column.shape}, expected (samples,) = ({samples},)")
        return None, column
    value = value.item() if isinstance(value, np.generic) else value
    names = [name for name in table if type(name) is type(value) and name == value]
    if not names:
        texts = [name for name in table if isinstance(name, str)]
        raise ValueError(
            f"{argument} = {short_repr(value)} must be an array (samples,), or the name of a column"
            f"{suggestion(value, texts)}; here: {listed(tuple(table))}"
        )
    return names[0], table[names[0]]


def check_complete(argument: str, table: Table) -> None:
    """Raise if values are missing; the message gives their number and what to do."""
    missing = {name: int(is_missing(column).sum()) for name, column in table.items()}
    missing = {name: count for name, count in missing.items() if count}
    if not missing:
        return
    total, each = sum(missing.values()), [f"{count} in {name!r}" for name, count in missing.items()]
    more = f" and {len(each) - SHOWN} more columns" if len(each) > SHOWN else ""
    values = f"{total} missing value{'s' * (total > 1)}"
    raise ValueError(
        f"{argument} has {values} ({', '.join(each[:SHOWN])}{more}): leave these rows out (pandas: table.dropna()), or "
        "fill them, e.g. with medians (table.fillna(table.median(numeric_only=True)))"
    )


def is_missing(column: Values) -> Mask:
    """Return whether each value is masked, NaN, None, an empty text or another value that is not equal to itself."""
    if column.dtype.kind in "fcmM":
        missing = column != column
    elif column.dtype.kind in "OSU":
        missing = np.array([_is_nothing(value) for value in column.tolist()], dtype=bool)
    else:
        missing = np.zeros(len(column), dtype=bool)
    return np.asarray(np.ma.getmaskarray(column) | np.ma.getdata(missing))


def _is_nothing(value: Any) -> bool:
    if value is None or (isinstance(value, str | bytes) and not value.strip()):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # the missing value of pandas has no truth value
        return True


def numbered(argument: str, values: Values) -> tuple[Indices, tuple[Any, ...]]:
    """Return the number of each value, (samples,), and the different values, sorted if they can be compared."""
    each = values.tolist()
    try:
        found = list(dict.fromkeys(each))
    except TypeError as error:
        raise ValueError(f"{argument} must contain numbers, texts or other plain values: {error}") from None
    with contextlib.suppress(TypeError):
        found.sort()
    place = {value: number for number, value in enumerate(found)}
    return np.array([place[value] for value in each], dtype=np.intp), tuple(found)


def listed(names: Sequence[Any]) -> str:
    """Return the first names as text."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more


def one_column(value: Any) -> Values | None:
    """Return an array or a sequence with one axis as an array, and None for anything else."""
    try:
        column: Values = value if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    except ValueError:  # parts of different lengths
        return None
    return column if column.ndim == 1 else None


def _column(title: str, value: Any) -> Values:
    """Return a column as an array (samples,)."""
    if (column := one_column(value)) is None:
        raise ValueError(f"{title} = {short_repr(value)} must be an array with one axis, (samples,)")
    return column


def _numbers(title: str, column: Values) -> Array:
    """Return a column of numbers as floats."""
    values = np.ma.getdata(column)
    texts = [value for value in values.tolist() if isinstance(value, str | bytes)] if values.dtype.kind in "OSU" else []
    if texts:
        raise ValueError(f"{title} holds {short_repr(texts[0])}, which is not a number: name the column in categories=")
    return check_array(title, values, [("samples",)])
