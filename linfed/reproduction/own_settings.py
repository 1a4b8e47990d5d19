"""Own settings in an experiment: ``--set dim=30`` replaces a field of its cells; every mistake is one line."""

from __future__ import annotations

import ast
import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from linfed._values import Configuration
from linfed.errors import SizeError, UsageError, is_real, shown, suggestion
from linfed.search.tuning import Tuned
from linfed.tables.grid import changed

CellLists: TypeAlias = Mapping[str, Sequence[Any]]
"""The cells of each table."""

WORDS: Mapping[Any, str] = {bool: "True or False", int: "an integer", float: "a finite number", str: "a word"}


class Field(NamedTuple):
    """A field of a cell, or of a field of it: the dataclass that has it, its name there, its value."""

    owner: Any
    name: str
    value: Any


def read_settings(given: Sequence[str]) -> dict[str, Any]:
    """Return the values by field of texts ``FIELD=VALUE``: Python literals, other texts as they are."""
    found: dict[str, Any] = {}
    for text in given:
        path, equals, value = (part.strip() for part in text.partition("="))
        if not path or not equals or not value:
            raise UsageError(f"--set {text!r} must be FIELD=VALUE, e.g. --set dim=30")
        if path in found:
            raise UsageError(f"--set {path} is given twice: a field has one value")
        try:
            found[path] = _tuples(ast.literal_eval(value))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            found[path] = value
    return found


def with_settings(lists: CellLists, settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return cells with fields replaced, each table without the cells that have become equal to one before.

    Parameters
    ----------
    lists : mapping of str to sequence
        The cells of each table.
    settings : mapping
        From fields to values. A field is a dotted path (`linfed.grid`); some of its parts in their order are enough
        where they are those of one field. Cells without it stay as they are.

    Raises
    ------
    UsageError
        For a field that no cell has, one that is not clear, and a value that it cannot have.
    """
    fields = {key: [dict(_fields(cell)) for cell in cells] for key, cells in lists.items()}
    known = dict.fromkeys(path for of_cells in fields.values() for one in of_cells for path in one)
    least = {key: _least(of_cells) for key, of_cells in fields.items()}
    for path in settings:
        if not any(_resolved(path, one) for of_cells in fields.values() for one in of_cells):
            shorter = dict.fromkeys([*known, *(one.rpartition(".")[2] for one in known)])
            hint = suggestion(path, shorter) or f"; there are: {', '.join(known)}"
            raise UsageError(f"--set {path}: no cell has this field{hint}")
    found: dict[str, list[Any]] = {}
    for key, cells in lists.items():
        new = []
        for cell, own in zip(cells, fields[key], strict=True):
            paths = {path: _resolved(path, own) for path in settings}
            changes = {full: settings[path] for path, full in paths.items() if full}
            for full, value in changes.items():
                _check_value(full, value, own[full], least[key].get(full))
                _check_not_tuned(full, cell)
            try:
                new.append(changed(cell, changes))
                getattr(new[-1], "problem", None)  # which raises where a cell's sizes allow none
            except (TypeError, ValueError) as error:
                raise UsageError(f"--set: {_one_line(error)}") from None
        found[key] = _different(new)
    return found


def check_cells(lists: CellLists) -> None:
    """Raise for the first cell that cannot run: by its method ``check()``, if it has one, or by its plain sizes."""
    for cell in (cell for cells in lists.values() for cell in cells):
        dim, rank = getattr(cell, "dim", None), getattr(cell, "rank", None)
        try:
            if isinstance(dim, int) and isinstance(rank, int) and rank > dim:
                raise ValueError(f"rank = {rank} must be at most dim = {dim}")
            if callable(getattr(cell, "check", None)):
                cell.check()
        except (SizeError, TypeError, ValueError) as error:
            raise UsageError(f"{_one_line(error)}, in the cell {shown(cell)}") from None


def _fields(value: Any, prefix: str = "") -> Iterator[tuple[str, Field]]:
    """Yield the fields that a dataclass is given, and those of its fields, by dotted path."""
    for one in dataclasses.fields(value):
        if one.init:
            inner = getattr(value, one.name)
            yield f"{prefix}{one.name}", Field(value, one.name, inner)
            if dataclasses.is_dataclass(inner) and not isinstance(inner, type):
                yield from _fields(inner, f"{prefix}{one.name}.")


def _resolved(path: str, own: Mapping[str, Field]) -> str | None:
    """Return the full path of the field that is meant, if there is one."""
    if path in own:
        return path
    parts = path.split(".")
    found = []
    for full in own:
        names = iter(full.split("."))
        if full.rpartition(".")[2] == parts[-1] and all(part in names for part in parts):
            found.append(full)
    if len(found) > 1:
        raise UsageError(f"--set {path} may be {' or '.join(found)}: write which")
    return found[0] if found else None


def _least(of_cells: Sequence[Mapping[str, Field]]) -> dict[str, float]:
    """Return the least number in each field over cells."""
    found: dict[str, float] = {}
    for own in of_cells:
        for path, field in own.items():
            if is_real(field.value):
                found[path] = min(found.get(path, field.value), field.value)
    return found


def _check_value(path: str, value: Any, field: Field, least: float | None) -> None:
    """Raise for a value of another type than the field's, or a size that is none; linfed's classes check their own."""
    if isinstance(field.owner, Configuration):
        return
    try:
        hint = typing.get_type_hints(type(field.owner)).get(field.name, Any)
    except Exception:  # of names that are there for type checking only
        hint = Any if field.value is None else type(field.value)
    if not _is_of(value, hint):
        allowed = WORDS.get(hint, f"of the type {getattr(hint, '__name__', hint) if hint in (tuple,) else hint}")
        raise UsageError(f"--set: {path} = {shown(value)} must be {allowed}, such as {shown(field.value)}")
    if is_real(value) and least is not None:
        lowest = 1 if isinstance(value, int) and isinstance(least, int) and least >= 1 else 0
        if least >= 0 and value < lowest:
            raise UsageError(f"--set: {path} = {shown(value)} must be at least {lowest}")


def _is_of(value: Any, hint: Any) -> bool:
    """Return whether a literal is of a type as annotations write it; what is no literal's type is not checked."""
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
    """Raise for a field of a tuned algorithm that the tuning chooses."""
    tuned = getattr(cell, "algorithm", None)
    name = path.removeprefix("algorithm.base.")
    if isinstance(tuned, Tuned) and name != path:
        grids = [tuned.grid] if isinstance(tuned.grid, Mapping) else tuned.grid
        if any(name in one for one in grids):
            raise UsageError(f"--set {path}: the tuning chooses it from algorithm.grid = {shown(tuned.grid)}")


def _different(cells: list[Any]) -> list[Any]:
    """Return cells without those that are equal to one before."""
    try:
        return list(dict.fromkeys(cells))
    except TypeError:  # fields that have no hash
        return [cell for place, cell in enumerate(cells) if cell not in cells[:place]]


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, tuple | list) else value


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
