"""Grids of cells. A cell is a frozen dataclass with ``run()``: its fields name it, its result fills rows of a table."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from linfed.data.samples import GivenSamples
from linfed.errors import SizeError, shown, suggestion

Row: TypeAlias = Mapping[str, Any]


class Cell(Protocol):
    """One piece of a study that runs on its own: a frozen dataclass, whose result is a pure function of its fields."""

    def run(self) -> Row | Sequence[Row]:
        """Return what was measured, a mapping for one row of the table, or several of them.

        A value is a number or a word, an array with one number per trial, or a `linfed.Along`.
        """
        ...


def checked_cells(cells: Any) -> list[Cell]:
    """Return cells as a list, or raise for what is none."""
    if isinstance(cells, str) or not isinstance(cells, Iterable):
        raise TypeError(f"cells = {shown(cells)} must be a sequence of cells, e.g. [lf.Run(...)] or lf.grid(run, ...)")
    checked: list[Cell] = []
    for index, cell in enumerate(cells):  # which may never end
        if not hasattr(cell, "run") or not hasattr(cell, "__dataclass_fields__") or isinstance(cell, type):
            raise TypeError(f"cells[{index}] = {shown(cell)} must be a lf.Run, or a dataclass of one's own with run()")
        checked.append(cell)
    return checked


C = TypeVar("C")

MOST_CELLS = 1_000_000
"""Cells of a grid: more could not be made, named and kept in a table within reason."""


def check_count(lengths: Mapping[str, int]) -> None:
    """Raise a `SizeError` if a grid with axes of these lengths has too many cells."""
    count = math.prod(lengths.values())
    if count > MOST_CELLS:
        told = ", ".join(f"{axis} ({length})" for axis, length in lengths.items())
        raise SizeError(f"a grid over {told} has {count} cells; at most {MOST_CELLS} are allowed: use fewer values")


def grid(base: C, /, **axes: Sequence[Any]) -> list[C]:
    """Return copies of a frozen dataclass, a cell or an algorithm, at every point of a grid, the last axis fastest.

    Parameters
    ----------
    base : dataclass
        Its other fields stay as they are.
    **axes : sequence
        Values of a field. A dotted path reaches a field of a field, ``**{"problem.n_clients": (50, 100)}``; names with
        commas between them go together, and their values are tuples, ``**{"rounds, trials": [(50, 20), (200, 5)]}``.

    Returns
    -------
    list of dataclass

    Raises
    ------
    TypeError
        For something that is no dataclass, or values that are no sequence.
    ValueError
        For a name that is no field, an axis without values, or a tuple of the wrong length; and whatever the dataclass
        raises for a value that it does not allow.
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
    for points in changes:
        for path in points[0]:
            check_path(base, path)
    return [changed(base, {k: v for part in point for k, v in part.items()}) for point in itertools.product(*changes)]


def _check_axis(axis: str, values: Sequence[Any]) -> None:
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence | np.ndarray):
        raise TypeError(f"{axis} = {shown(values)} must be a sequence of values, e.g. {axis}=({shown(values)},)")
    if len(values) == 0:
        raise ValueError(f"{axis} is empty; give at least one value")


def _points(axis: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what each value of an axis changes, by path."""
    paths = [path.strip() for path in axis.split(",")]
    if len(paths) == 1:
        return [{paths[0]: value} for value in values]
    for value in values:
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(paths):
            raise ValueError(
                f"{axis!r} names {len(paths)} fields that go together, and its value {shown(value)} does not"
            )
    return [dict(zip(paths, value, strict=True)) for value in values]


def check_path(base: object, path: str) -> None:
    """Raise unless a dotted path names a field that a dataclass is given."""
    found, names = base, path.split(".")
    for depth, name in enumerate(names):
        if not dataclasses.is_dataclass(found) or isinstance(found, type):
            where = f"{'.'.join(names[:depth])} = {shown(found)}" if depth else f"base = {shown(found)}"
            raise TypeError(f"{where} has no fields to replace: it must be a dataclass")
        known = [field.name for field in dataclasses.fields(found) if field.init]
        if name not in known:
            deeper = [one for one, _ in fields_of(base) if one.endswith(f".{path}")]
            meant = f" (did you mean {deeper[0]!r}?)" if deeper else suggestion(name, known)
            raise ValueError(
                f"{path!r}: {type(found).__name__} has no field {name!r}{meant}; allowed: "
                + ", ".join(repr(field) for field in known)
            )
        found = getattr(found, name)


def changed(base: C, changes: Mapping[str, Any]) -> C:
    """Return a copy of a dataclass with the fields at some dotted paths replaced, all at once."""
    own = {path: value for path, value in changes.items() if "." not in path}
    inner: dict[str, dict[str, Any]] = {}
    for path in changes.keys() - own.keys():
        first, _, rest = path.partition(".")
        inner.setdefault(first, {})[rest] = changes[path]
    parts = {name: changed(own.get(name, getattr(base, name)), rest) for name, rest in inner.items()}
    return dataclasses.replace(base, **{**own, **parts})  # type: ignore[type-var]


def at_path(base: object, path: str) -> Any:
    """Return the value of the field at a dotted path."""
    return functools.reduce(getattr, path.split("."), base)


def differing(values: Sequence[object], prefix: str = "") -> list[str]:
    """Return the paths at which dataclasses of one class differ, into fields that are of one class in all."""
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


def fields_of(value: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a dataclass by dotted name, those of its fields after its class's name.

    Numbers, words and tuples of them are themselves, everything else its text.
    """
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        name, inner = f"{prefix}{field.name}", getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            yield name, type(inner).__name__
            yield from fields_of(inner, f"{name}.")
        else:
            yield name, plain(inner)


def plain(value: Any) -> Any:
    """Return a value as a table keeps it: a number, a word, None, or a tuple of them; the name or text of others."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(plain(part) for part in value)
    return getattr(value, "__name__", None) or _text(value)


def _text(value: Any) -> str:
    """Return the text of a value, with a digest where two of one text may differ."""
    arrays = [value] if isinstance(value, np.ndarray) else [value.X, value.y] if isinstance(value, GivenSamples) else []
    whole = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays) or repr(value).encode()
    text = shown(value)
    return f"{text} #{zlib.crc32(whole):08x}" if arrays or text.endswith("...") else text
