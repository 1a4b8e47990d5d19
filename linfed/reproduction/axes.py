"""The axes of a grid that a TOML file describes, and the points on them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from linfed.cells.run import Run
from linfed.errors import SizeError, UsageError, shown
from linfed.reproduction.kinds import DATA, PROBLEMS, Sort, a_table, as_value, at, flat, one_line, quoted, sort_of
from linfed.search.tuning import Tuned
from linfed.tables.grid import at_path, changed, check_count, check_path

Changes: TypeAlias = dict[str, Any]
"""Values by dotted path."""

Point: TypeAlias = dict[str, Any]
"""The name of an algorithm, as ``method``, and a value on every axis, as a file writes them."""


def told(value: Any) -> str:
    """Return a value of a file in a few words: a table by its kind."""
    if isinstance(value, dict):
        fields = ", ".join(f"{name}={told(one)}" for name, one in value.items() if name != "kind")
        return f"{value.get('kind')}({fields})" if fields else str(value.get("kind"))
    if isinstance(value, list):
        return f"({', '.join(map(told, value))})"
    return value if isinstance(value, str) else repr(value).lower() if isinstance(value, bool) else repr(value)


def where(point: Point) -> str:
    """Return how messages tell a point."""
    return f" (where {', '.join(f'{name} = {told(value)}' for name, value in point.items())})"


def read_axes(table: object) -> dict[str, list[Changes]]:
    """Return what each value of an axis changes, as written, by the axis's name."""
    axes: dict[str, list[Changes]] = {}
    taken: set[str] = set()
    for axis, values in flat(a_table(table, ("axes",))):
        said, paths = f"[axes] {quoted(axis)}", [path.strip() for path in axis.split(",")]
        if not isinstance(values, list) or not values:
            raise UsageError(f"{said} = {shown(values)} must be an array of at least one value")
        for value in values:
            if len(paths) > 1 and (not isinstance(value, list) or len(value) != len(paths)):
                raise UsageError(f"{said}: {shown(value)} must be an array of {len(paths)} values, one for each name")
        for path in paths:
            if path in taken:
                raise UsageError(f"{said}: {path!r} is on an axis already")
            if path in ("algorithm", "metrics"):
                other = "algorithms are compared by a table each, [algorithms.NAME]"
                raise UsageError(f"{said}: {other if path == 'algorithm' else 'all runs measure the same'}")
            taken.add(path)
        texts = [told(value) for value in values]
        for text in texts:
            if texts.count(text) > 1:
                raise UsageError(f"{said} holds {text} more than once")
        axes[axis] = [dict(zip(paths, value if len(paths) > 1 else [value], strict=True)) for value in values]
    return axes


def grid_of(method: str, run: Run, axes: Mapping[str, list[Changes]]) -> Iterator[tuple[Point, Run]]:
    """Yield the points of the axes, and a run copied to each of them, the last axis fastest."""
    tuned = run.algorithm if isinstance(run.algorithm, Tuned) else None
    plain = run if tuned is None else dataclasses.replace(run, algorithm=tuned.base)
    for axis, places in axes.items():
        for path in places[0]:
            try:
                check_path(plain, path)
            except (TypeError, ValueError) as error:
                own = where({"method": method}) if path.startswith("algorithm.") else ""
                raise UsageError(f"[axes] {one_line(error)}{own}") from None
            if tuned is not None and path in (f"algorithm.{name}" for name in _tried(tuned)):
                raise UsageError(f"[axes] {quoted(axis)}: {at(('algorithms', method, 'tune'))}chooses it already")
    try:
        check_count({axis: len(places) for axis, places in axes.items()})
    except SizeError as error:
        raise UsageError(f"[axes] {error}") from None
    for combination in itertools.product(*axes.values()):
        point = {axis: list(place.values()) for axis, place in zip(axes, combination, strict=True)}
        point = {axis: values if len(values) > 1 else values[0] for axis, values in point.items()}
        changes = {
            path: as_value(value, sort_at(plain, path), ("axes", axis))
            for axis, place in zip(axes, combination, strict=True)
            for path, value in place.items()
        }
        if tuned is not None:
            changes = {path.replace("algorithm.", "algorithm.base.", 1): value for path, value in changes.items()}
        try:
            yield {"method": method, **point}, changed(run, changes)
        except (TypeError, ValueError) as error:
            raise UsageError(f"[axes] {one_line(error)}{where({'method': method, **point})}") from None


def sort_at(base: object, path: str) -> Sort:
    """Return the classes of which the field at a dotted path may hold an instance."""
    parent, _, name = path.rpartition(".")
    if isinstance(base, Run) and not parent:
        return {"problem": PROBLEMS, "data": DATA}.get(name, ())
    try:
        return sort_of(type(at_path(base, parent) if parent else base), name)
    except AttributeError:  # no such field, as its class will say
        return ()


def _tried(tuned: Tuned) -> list[str]:
    """Return the fields that a tuning chooses."""
    return list(tuned.grid if isinstance(tuned.grid, Mapping) else tuned.grid[0])
