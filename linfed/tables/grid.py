"""Grids of cells. A cell is a frozen dataclass with a method ``run()``, which returns one or more rows of a table."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from linfed._values import COLUMN
from linfed.checks import is_several, short_repr, suggestion
from linfed.errors import SizeError
from linfed.system.description import describe

Row: TypeAlias = Mapping[str, Any]


class Cell(Protocol):
    """Unit of a sweep: a frozen dataclass whose result is a pure function of its fields.

    A class of cells may also have

    - ``check()``, which raises if the fields are invalid; it is called before any cell of a sweep runs;
    - ``cost``, a number: cells with a larger cost start first, and the progress bar counts costs; by default, the
      product of the positive whole numbers among the fields (numbers of clients, rounds, trials) except ``seed``;
    - ``divides = True``, if ``run()`` calls `linfed.run_parts`, and ``keeps_parts = True``, if the parts stay in the
      store when the cell is finished;
    - ``notes(done)``, a static function that returns a list of warnings, given all (cell, table) pairs of a sweep;
    - ``overrides_fields = True``, if rows may have columns with names of fields.
    """

    def run(self) -> Row | Sequence[Row]:
        """Compute the cell and return one row of the table, a mapping from column names to values, or several rows.

        A value is a number, a string, an array with one number per trial, or a `linfed.LabeledArray`.
        """
        ...


def checked_cells(cells: Any) -> list[Cell]:
    """Return cells as a list; raise if an element is not a cell."""
    single = isinstance(cells, np.ndarray) and not cells.ndim
    if single or isinstance(cells, str) or not isinstance(cells, Iterable):
        raise TypeError(
            f"cells = {short_repr(cells)} must be a sequence of cells, e.g. [lf.Run(...)] or lf.grid(run, ...)"
        )
    checked: list[Cell] = []
    for index, cell in enumerate(cells):  # which may never end
        if not hasattr(cell, "run") or not hasattr(cell, "__dataclass_fields__") or isinstance(cell, type):
            raise TypeError(f"cells[{index}] = {short_repr(cell)} must be an lf.Run or a custom dataclass with run()")
        checked.append(cell)
    return checked


C = TypeVar("C")

MOST_CELLS = 1_000_000
"""Maximum number of cells of a grid, to limit time and memory."""


def check_count(lengths: Mapping[str, int]) -> None:
    """Raise a `SizeError` if a grid with axes of these lengths has too many cells."""
    count = math.prod(lengths.values())
    if count > MOST_CELLS:
        axes = ", ".join(f"{axis} ({length})" for axis, length in lengths.items())
        raise SizeError(f"a grid over {axes} has {count} cells; at most {MOST_CELLS} are allowed, use fewer values")


def grid(base: C, /, **axes: Sequence[Any]) -> list[C]:
    """Copy a cell, an algorithm or another frozen dataclass with all combinations of values for some fields.

    Parameters
    ----------
    base : dataclass
        The dataclass to copy; fields that `axes` does not name stay as they are.
    **axes : sequence
        Values of a field. A dotted path names a field of a field: ``**{"problem.n_clients": (50, 100)}``. Names joined
        by commas vary together, with tuples as values: ``**{"n_rounds, trials": [(50, 20), (200, 5)]}``.

    Returns
    -------
    list of dataclass
        One copy for each point of the grid; the last axis varies fastest.

    Raises
    ------
    TypeError
        If `base` is not a dataclass, or the values are not a sequence.
    ValueError
        If a name is not a field or is named twice, an axis has no values, a tuple has the wrong length, or the
        dataclass does not allow a value.
    SizeError
        If the grid has more than a million cells.

    Examples
    --------
    >>> import linfed as lf
    >>> [a.step_size for a in lf.grid(lf.FedRep(rank=2, step_size=1.0), step_size=(0.1, 0.3))]
    [0.1, 0.3]
    """
    for axis, values in axes.items():
        _check_axis(axis, values)
    check_count({axis: len(values) for axis, values in axes.items()})
    changes = [_points(axis, values) for axis, values in axes.items()]
    named = [path.strip() for axis in axes for path in axis.split(",")]
    if twice := [path for path in named if named.count(path) > 1]:
        raise ValueError(f"axes {', '.join(map(repr, axes))} name the field {twice[0]!r} twice; name it in one axis")
    for points in changes:
        for path in points[0]:
            check_path(base, path)
    return [changed(base, {k: v for part in point for k, v in part.items()}) for point in itertools.product(*changes)]


def _check_axis(axis: str, values: Sequence[Any]) -> None:
    if not is_several(values):
        raise TypeError(
            f"{axis} = {short_repr(values)} must be a sequence of values, e.g. {axis}=({short_repr(values)},)"
        )
    if len(values) == 0:
        raise ValueError(f"{axis} must have at least one value")


def _points(axis: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the changes for each value of an axis, from paths to values."""
    paths = [path.strip() for path in axis.split(",")]
    if len(paths) == 1:
        return [{paths[0]: value} for value in values]
    for value in values:
        if not is_several(value) or len(value) != len(paths):
            raise ValueError(
                f"{axis!r} names {len(paths)} fields, so each value must be a tuple of this length, got "
                f"{short_repr(value)}"
            )
    return [dict(zip(paths, value, strict=True)) for value in values]


def check_path(base: object, path: str) -> None:
    """Raise unless a dotted path names an init field of a dataclass."""
    if not isinstance(path, str):
        raise TypeError(f"path = {short_repr(path)} must be a string, e.g. 'data.n_samples'")
    found, names = base, path.split(".")
    for depth, name in enumerate(names):
        if not dataclasses.is_dataclass(found) or isinstance(found, type):
            where = f"{'.'.join(names[:depth])} = {short_repr(found)}" if depth else f"base = {short_repr(found)}"
            raise TypeError(f"{where} must be a dataclass")
        field_names = [field.name for field in dataclasses.fields(found) if field.init]
        if name not in field_names:
            deeper = [one for one, _ in fields_of(base) if one.endswith(f".{path}")]
            meant = f" (did you mean {deeper[0]!r}?)" if deeper else suggestion(name, field_names)
            raise ValueError(
                f"{path!r}: {type(found).__name__} has no field {name!r}{meant}; allowed: "
                + ", ".join(repr(field) for field in field_names)
            )
        found = getattr(found, name)


def changed(base: C, changes: Mapping[str, Any]) -> C:
    """Return a copy of a dataclass with the fields at the given dotted paths replaced, all at once."""
    outer = {path: value for path, value in changes.items() if "." not in path}
    inner: dict[str, dict[str, Any]] = {}
    for path in changes.keys() - outer.keys():
        first, _, rest = path.partition(".")
        inner.setdefault(first, {})[rest] = changes[path]
    parts = {name: changed(outer.get(name, getattr(base, name)), rest) for name, rest in inner.items()}
    return dataclasses.replace(base, **{**outer, **parts})  # type: ignore[type-var]


def at_path(base: object, path: str) -> Any:
    """Return the value of the field at a dotted path."""
    return functools.reduce(getattr, path.split("."), base)


def differing(values: Sequence[object], prefix: str = "") -> list[str]:
    """Return the dotted paths of fields that differ between dataclasses of the same class.

    A path continues into a field if it is a dataclass of the same class in all of them.
    """
    paths = []
    for field in dataclasses.fields(values[0]):  # type: ignore[arg-type]
        found = [getattr(value, field.name) for value in values]
        if all(_equal(one, found[0]) for one in found):
            continue
        within = dataclasses.is_dataclass(found[0]) and len({type(one) for one in found}) == 1
        paths += differing(found, f"{prefix}{field.name}.") if within else [prefix + field.name]
    return paths


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.array_equal(first, second)
    return bool(first == second)


def fields_of(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and values of a dataclass's fields, and of the fields of these.

    The value of a field that is a dataclass is the name of its class. Other values are converted with `plain`.
    """
    for name, inner in _fields(value):
        yield name, type(inner).__name__ if dataclasses.is_dataclass(inner) else plain(inner)


def field_names(value: object) -> set[str]:
    """Return the dotted names of a dataclass's fields, and of the fields of these."""
    return {name for name, _ in _fields(value)}


def _fields(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        inner, column = getattr(value, field.name), field.metadata.get(COLUMN)
        if column and inner == "":
            continue
        name = f"{prefix}{column or field.name}"
        yield name, inner
        if dataclasses.is_dataclass(inner):
            yield from _fields(inner, f"{name}.")


def unwrapped(value: Any) -> Any:
    """Return NumPy's numbers and texts as Python's, also within lists, tuples and dicts, so that they have one key."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(unwrapped, value))
    return {key: unwrapped(part) for key, part in value.items()} if type(value) is dict else value


PLAIN = (bool, int, float, str)
"""Types of numbers and strings in a row."""

_CONVERSIONS: dict[type, Callable[[Any], Any]] = {int: int.__int__, float: float.__float__, str: str.__str__}


def plain(value: Any) -> Any:
    """Convert a value to a number, a string, None or a tuple of these; other objects to their name or text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in PLAIN:
        return value
    for kind in PLAIN:  # a subclass such as enum.IntEnum would not come back from a file
        if isinstance(value, kind):
            return _CONVERSIONS[kind](value)
    if isinstance(value, tuple | list):
        return tuple(plain(part) for part in value)
    return getattr(value, "__name__", None) or _text(value)


def _text(value: Any) -> str:
    """Return the text of a value, with a checksum if different values may have the same text."""
    text = short_repr(value)
    try:
        found = describe(value)
    except TypeError:  # an open file, for example, has no description
        return f"{text} #{zlib.crc32(repr(value).encode()):08x}" if text.endswith("...") else text
    return f"{text} #{found.digest[:8]}" if found.arrays or text.endswith("...") else text
