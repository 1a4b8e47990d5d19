"""Replace fields of an experiment's cells, as ``--set dim=30`` does, with one-line errors."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np

from linfed._names import SYMBOLS
from linfed._values import COLUMN, Choice
from linfed.checks import is_integer, short_repr, suggestion
from linfed.errors import SizeError, UsageError
from linfed.search.tuning import Tuned
from linfed.tables.grid import at_path, changed

CellLists: TypeAlias = Mapping[str, Sequence[Any]]
"""Cells by the name of the table that they fill."""


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
        try:
            json.dumps(found[path])
        except (TypeError, ValueError):
            raise UsageError(
                f"--set {text!r} must have a value that the record can hold: a number, a word, a list or a tuple"
            ) from None
    return found


def with_settings(lists: CellLists, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return cells with replaced fields; of cells that then differ only in numbers of trials, one is kept.

    Parameters
    ----------
    lists : mapping of str to sequence
        Cells by table.
    settings : mapping of str to value
        New values by field. A field is a dotted path, as in `linfed.grid`. Cells without the field stay unchanged, and
        so do cells whose field does not allow the value (`linfed.choice`) if another cell's field does.

    Returns
    -------
    dict of str to list
        The new cells by table.

    Raises
    ------
    UsageError
        If no cell has a field, or a cell cannot be made with the values.
    """
    every = [cell for cells in lists.values() for cell in cells]
    paths = dict.fromkeys(path for cell in every for path, _ in _owners(cell))
    for path in settings.keys() - paths.keys():
        raise UsageError(f"--set {path}: the experiment has no such field{_hint(path, list(paths))}")
    fitting = {path for path, value in settings.items() if any(_allows(cell, path, value) for cell in every)}
    return {key: _different([_replaced(cell, settings, fitting) for cell in cells]) for key, cells in lists.items()}


def check_cells(lists: CellLists) -> None:
    """Raise `UsageError` for the first invalid cell.

    A cell is invalid if its ``rank`` is larger than its ``dim``, or if its method ``check()`` raises.
    """
    for cell in (cell for cells in lists.values() for cell in cells):
        dim, rank = getattr(cell, "dim", None), getattr(cell, "rank", None)
        try:
            if is_integer(dim) and is_integer(rank) and rank > dim:
                raise ValueError(f"rank = {rank} must be at most dim = {dim}")
            if callable(getattr(cell, "check", None)):
                cell.check()
        except (SizeError, TypeError, ValueError) as error:
            raise UsageError(f"{_one_line(error)}, in the cell {short_repr(cell)}") from None


def _owners(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path of each field of a dataclass and of the dataclasses within it, and the field's owner."""
    for one in dataclasses.fields(value):
        if one.init:
            inner = getattr(value, one.name)
            yield f"{prefix}{one.name}", value
            if dataclasses.is_dataclass(inner) and not isinstance(inner, type):
                yield from _owners(inner, f"{prefix}{one.name}.")


def _hint(path: str, paths: Sequence[str]) -> str:
    """Return the paths that end like an unknown one, also if it is a letter of the papers, or else similar paths."""
    name = SYMBOLS.get(path, path).rpartition(".")[2]
    ends = [one for one in paths if one.rpartition(".")[2] == name]
    if ends:
        return f" (did you mean {' or '.join(map(repr, ends))}?)"
    return suggestion(path, paths) or f"; choose from: {', '.join(paths)}"


def _declared(cell: Any, path: str) -> Choice | None:
    """Return the declaration of a field by `linfed.choice`, or None."""
    name = path.rpartition(".")[2]
    declared = inspect.getattr_static(dict(_owners(cell)).get(path), name, None)
    return declared if isinstance(declared, Choice) else None


def _allows(cell: Any, path: str, value: Any) -> bool:
    """Return whether the declaration of a field by `linfed.choice` allows a value."""
    declared = _declared(cell, path)
    try:
        return declared is not None and declared.checked(value) == value
    except ValueError:
        return False


def _replaced(cell: Any, settings: Mapping[str, Any], fitting: Set[str]) -> Any:
    """Return a cell with replaced fields; `fitting` are the declared fields whose value some cell allows."""
    own = dict(_owners(cell))
    changes = {path: value for path, value in settings.items() if path in own}
    for path, value in list(changes.items()):
        declared = _declared(cell, path)
        _check_not_tuned(path, cell)
        if declared is not None and not _allows(cell, path, value):
            if path in fitting:
                del changes[path]
        elif _is_label(own[path], path, declared) and value != at_path(cell, path):
            raise UsageError(f"--set {path}: the field only names the values of other fields; set those instead")
    try:
        new = changed(cell, changes)
        getattr(new, "problem", None)  # building the problem checks the sizes
    except ValueError as error:
        raise UsageError(f"--set: {_one_line(error)}") from None
    except (ArithmeticError, LookupError, TypeError) as error:
        given = ", ".join(f"{path} = {short_repr(value)}" for path, value in changes.items())
        raise UsageError(f"--set: {given}: {type(error).__name__}: {_one_line(error)}") from None
    return new


def _is_label(owner: Any, path: str, declared: Choice | None) -> bool:
    """Return whether a field only names its object, or the values of other fields."""
    names = {one.name for one in dataclasses.fields(owner) if COLUMN in one.metadata}
    return (declared is not None and declared.label) or path.rpartition(".")[2] in names


def _check_not_tuned(path: str, cell: Any) -> None:
    """Raise `UsageError` for a field that the tuning of an algorithm chooses."""
    tuned = getattr(cell, "algorithm", None)
    name = path.removeprefix("algorithm.base.")
    if isinstance(tuned, Tuned) and name != path:
        grids = [tuned.grid] if isinstance(tuned.grid, Mapping) else tuned.grid
        if any(name in one for one in grids):
            raise UsageError(f"--set {path}: the field is tuned over algorithm.grid = {short_repr(tuned.grid)}")


def _different(cells: list[Any]) -> list[Any]:
    """Return the different cells, in the order of their first appearance.

    Sizes can have their own numbers of trials. Of cells that differ only in these, the one with the most is returned.
    """
    found: list[Any] = []
    for cell in cells:
        same = next((place for place, one in enumerate(found) if _without_trials(one) == _without_trials(cell)), None)
        if same is None:
            found.append(cell)
        elif (getattr(cell, "trials", None) or 0) > (getattr(found[same], "trials", None) or 0):
            found[same] = cell
    return found


def _without_trials(cell: Any) -> Any:
    """Return a cell's class and fields, except numbers of trials, with arrays as lists."""
    named = [(one.name, getattr(cell, one.name)) for one in dataclasses.fields(cell) if not one.name.endswith("trials")]
    return type(cell), [(name, value.tolist() if isinstance(value, np.ndarray) else value) for name, value in named]


def _tuples(value: Any) -> Any:
    """Return a value with its lists, also nested ones, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, tuple | list) else value


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
