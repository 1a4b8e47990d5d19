"""Replace fields of an experiment's cells, as ``--set dim=30`` does, with one-line errors."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from linfed._names import SYMBOLS
from linfed._values import Choice, Configuration
from linfed.checks import is_real, short_repr, suggestion
from linfed.errors import SizeError, UsageError
from linfed.search.tuning import Tuned
from linfed.tables.grid import changed

CellLists: TypeAlias = Mapping[str, Sequence[Any]]
"""Cells by the name of the table that they fill."""

WORDS: Mapping[Any, str] = {bool: "True or False", int: "an integer", float: "a finite number", str: "a word"}
"""Types of fields in messages."""


class Field(NamedTuple):
    """A field of a cell or of a dataclass within it: the dataclass that has the field, its name and its value."""

    owner: Any
    name: str
    value: Any


def read_settings(given: Sequence[str]) -> dict[str, Any]:
    """Parse texts ``FIELD=VALUE``, and return the values by field.

    A value that is not a Python literal stays a string.
    """
    found: dict[str, Any] = {}
    for text in given:
        path, equals, value = (part.strip() for part in text.partition("="))
        if not path or not equals or not value:
            raise UsageError(f"--set {text!r} must be FIELD=VALUE, e.g. --set dim=30")
        if path in found:
            raise UsageError(f"--set {path} is given twice: give it once")
        try:
            found[path] = _tuples(ast.literal_eval(value))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            found[path] = value
    return found


def with_settings(lists: CellLists, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return cells with replaced fields; of equal cells in a table, only the first is kept.

    Parameters
    ----------
    lists : mapping of str to sequence
        Cells by table.
    settings : mapping of str to value
        New values by field. A field is a dotted path, as in `linfed.grid`. Parts of the path can be left out, except
        the last, if the rest matches only one field. Cells without the field stay unchanged, and so do cells whose
        field does not allow the value (`linfed.choice`) if another cell's field does.

    Returns
    -------
    dict of str to list
        The new cells by table.

    Raises
    ------
    UsageError
        If no cell has a field, a shortened path matches several fields, or a value is invalid.
    """
    fields = {key: [dict(_fields(cell)) for cell in cells] for key, cells in lists.items()}
    all_paths = dict.fromkeys(path for of_cells in fields.values() for one in of_cells for path in one)
    least = {key: _least(of_cells) for key, of_cells in fields.items()}
    for path in settings:
        if not any(_resolved(path, one) for of_cells in fields.values() for one in of_cells):
            shorter = dict.fromkeys([*all_paths, *(one.rpartition(".")[2] for one in all_paths)])
            column = SYMBOLS.get(path, "")  # a letter of the papers
            hint = suggestion(column if column in shorter else path, shorter)
            hint = hint or f"; choose from: {', '.join(all_paths)}"
            raise UsageError(f"--set {path}: no cell has this field{hint}")
    fitting = {path for path, value in settings.items() if _fits_a_cell(path, value, fields)}
    found: dict[str, list[Any]] = {}
    for key, cells in lists.items():
        new = []
        for cell, cell_fields in zip(cells, fields[key], strict=True):
            paths = {path: _resolved(path, cell_fields) for path in settings}
            changes = {
                full: settings[path]
                for path, full in paths.items()
                if full and (path not in fitting or _allows(cell_fields[full], settings[path]))
            }
            for full, value in changes.items():
                _check_label(full, value, cell_fields[full])
                _check_value(full, value, cell_fields[full], least[key].get(full))
                _check_not_tuned(full, cell)
            try:
                new.append(changed(cell, changes))
                getattr(new[-1], "problem", None)  # building the problem checks the sizes
            except (TypeError, ValueError) as error:
                raise UsageError(f"--set: {_one_line(error)}") from None
        found[key] = _different(new)
    return found


def check_cells(lists: CellLists) -> None:
    """Raise `UsageError` for the first invalid cell.

    A cell is invalid if its ``rank`` is larger than its ``dim``, or if its method ``check()`` raises.
    """
    for cell in (cell for cells in lists.values() for cell in cells):
        dim, rank = getattr(cell, "dim", None), getattr(cell, "rank", None)
        try:
            if isinstance(dim, int) and isinstance(rank, int) and rank > dim:
                raise ValueError(f"rank = {rank} must be at most dim = {dim}")
            if callable(getattr(cell, "check", None)):
                cell.check()
        except (SizeError, TypeError, ValueError) as error:
            raise UsageError(f"{_one_line(error)}, in the cell {short_repr(cell)}") from None


def _fields(value: Any, prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yield the dotted paths and fields of a dataclass and of the dataclasses within it."""
    for one in dataclasses.fields(value):
        if one.init:
            inner = getattr(value, one.name)
            yield f"{prefix}{one.name}", Field(value, one.name, inner)
            if dataclasses.is_dataclass(inner) and not isinstance(inner, type):
                yield from _fields(inner, f"{prefix}{one.name}.")


def _resolved(path: str, cell_fields: Mapping[str, Field]) -> str | None:
    """Return the full path of the field that a shortened path matches, or None."""
    if path in cell_fields:
        return path
    parts = path.split(".")
    found = []
    for full in cell_fields:
        names = iter(full.split("."))
        if full.rpartition(".")[2] == parts[-1] and all(part in names for part in parts):
            found.append(full)
    if len(found) > 1:
        raise UsageError(f"--set {path} is ambiguous: use {' or '.join(found)}")
    return found[0] if found else None


def _fits_a_cell(path: str, value: Any, fields: Mapping[str, Sequence[Mapping[str, Field]]]) -> bool:
    """Return whether a field that a shortened path matches allows a value in some cell."""
    cells = (one for of_cells in fields.values() for one in of_cells)
    return any(full and _allows(one[full], value) for one in cells if (full := _resolved(path, one)))


def _allows(field: Field, value: Any) -> bool:
    """Return whether the declaration of a field by `linfed.choice` allows a value; True without a declaration."""
    declared = _declared(field)
    try:
        if declared is not None:
            declared.checked(value)
    except ValueError:
        return False
    return True


def _declared(field: Field) -> Choice | None:
    """Return the declaration of a field by `linfed.choice`, or None."""
    declared = inspect.getattr_static(field.owner, field.name, None)
    return declared if isinstance(declared, Choice) else None


def _least(of_cells: Sequence[Mapping[str, Field]]) -> dict[str, float]:
    """Return the smallest value of each numeric field over cells."""
    found: dict[str, float] = {}
    for cell_fields in of_cells:
        for path, field in cell_fields.items():
            if is_real(field.value):
                found[path] = min(found.get(path, field.value), field.value)
    return found


def _check_value(path: str, value: Any, field: Field, least: float | None) -> None:
    """Raise `UsageError` if a value has the wrong type, or is too small for a count or a nonnegative number.

    Configuration classes of linfed and fields declared by `linfed.choice` check their own values.
    """
    if isinstance(field.owner, Configuration) or _declared(field) is not None:
        return
    try:
        hint = typing.get_type_hints(type(field.owner)).get(field.name, Any)
    except Exception:  # names that are imported only for type checking
        hint = Any if field.value is None else type(field.value)
    if not _is_of(value, hint):
        allowed = WORDS.get(hint, f"of the type {getattr(hint, '__name__', hint) if hint in (tuple,) else hint}")
        raise UsageError(f"--set: {path} = {short_repr(value)} must be {allowed}, such as {short_repr(field.value)}")
    if is_real(value) and least is not None:
        lowest = 1 if isinstance(value, int) and isinstance(least, int) and least >= 1 else 0
        if least >= 0 and value < lowest:
            raise UsageError(f"--set: {path} = {short_repr(value)} must be at least {lowest}")


def _check_label(path: str, value: Any, field: Field) -> None:
    """Raise `UsageError` for another allowed word in a field that only names what other fields say."""
    declared = _declared(field)
    if declared is not None and declared.label and value != field.value and _allows(field, value):
        raise UsageError(f"--set {path}: the field only names the values of other fields; set those instead")


def _is_of(value: Any, hint: Any) -> bool:
    """Return whether a literal has an annotated type; True for types that no literal can have."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is tuple and isinstance(value, tuple):
        return all(_is_of(one, parts[0]) for one in value) if parts[1:] == (...,) else len(value) == len(parts)
    if hint in (None, type(None)):
        return value is None
    if hint is float:
        return is_real(value) and bool(np.isfinite(value))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (bool, str, tuple) or origin is tuple:
        return isinstance(value, origin or hint)
    return hint is Any or not isinstance(hint, type) or isinstance(value, hint)


def _check_not_tuned(path: str, cell: Any) -> None:
    """Raise `UsageError` for a field that the tuning of an algorithm chooses."""
    tuned = getattr(cell, "algorithm", None)
    name = path.removeprefix("algorithm.base.")
    if isinstance(tuned, Tuned) and name != path:
        grids = [tuned.grid] if isinstance(tuned.grid, Mapping) else tuned.grid
        if any(name in one for one in grids):
            raise UsageError(f"--set {path}: the field is tuned over algorithm.grid = {short_repr(tuned.grid)}")


def _different(cells: list[Any]) -> list[Any]:
    """Return the different cells, in the order of their first appearance."""
    try:
        return list(dict.fromkeys(cells))
    except TypeError:  # fields that are not hashable
        return [cell for place, cell in enumerate(cells) if cell not in cells[:place]]


def _tuples(value: Any) -> Any:
    """Return a value with its lists, also nested ones, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, tuple | list) else value


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
