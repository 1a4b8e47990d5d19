"""A grid of runs from a TOML file: what it says, as cells; every mistake in it is found before anything is computed.

::

    rounds = 200                          # and whatever else lf.Run takes by these names
    trials = 20
    participation = 0.1
    metrics = ["subspace_distance"]

    [problem]
    kind = "SharedRepresentation"         # a public class of linfed; the other keys are its fields
    n_clients = 100
    dim = 20
    rank = 2
    design = { kind = "Rademacher", covariance = 2.0 }

    [data]
    kind = "FreshSamples"
    n_samples = 10

    [algorithms.FedRep]                   # a name for the table and the figure; the kind, where none is given
    rank = 2
    step_size = 0.5

    [algorithms."FedRep, tuned"]
    kind = "FedRep"
    rank = 2
    tune = { grid.step_size = [0.1, 0.3, 0.9], trials = 10, extend = true }     # fields of lf.Tuned

    [axes]                                # as in lf.grid, an array of values each
    "problem.n_clients" = [50, 100]
    "algorithm.rank" = [2, 3]             # of every algorithm
    "rounds, trials" = [[50, 20], [200, 5]]

    [figure]                              # optional: see linfed.reproduction.overview
    x = "round"
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linfed.algorithms import Algorithm
from linfed.cells.run import Run
from linfed.errors import SizeError, UsageError, shown
from linfed.reproduction import kinds
from linfed.reproduction.axes import Changes, Point, grid_of, read_axes, sort_at, where
from linfed.reproduction.kinds import Keys, at, one_line, quoted
from linfed.reproduction.overview import Layout, layout
from linfed.search.selection import RoundsTo
from linfed.search.tuning import Tuned
from linfed.simulation.job import bytes_per_trial, checked_job
from linfed.system.memory import budget_bytes

OPTIONS = tuple(field.name for field in dataclasses.fields(Run) if field.name not in ("algorithm", "problem", "data"))
"""Keys of the file itself."""

TABLES = ("problem", "data", "algorithms", "axes", "figure")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a file says.

    Parameters
    ----------
    name : str
        The file's, without its ending.
    written : dict
        The whole of it, as read.
    cells : list of Run
        Algorithm by algorithm, for each what `lf.grid` makes of the axes.
    points : list of dict
        Of each cell the name of its algorithm, ``method``, and its value on every axis, as written.
    layout : Layout
        What is drawn.
    """

    name: str
    written: dict[str, Any]
    cells: list[Run]
    points: list[Point]
    layout: Layout


def read_recipe(path: str | Path) -> Recipe:
    """Return the cells that a TOML file describes, each of them checked as its run would be.

    Raises
    ------
    UsageError
        One line that names the file, the place in it, the value and what is allowed.
    """
    try:
        written = tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {one_line(error)}") from None
    try:
        return recipe(Path(path).stem, written)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def recipe(name: str, written: dict[str, Any]) -> Recipe:
    """Return what the content of a file says (`read_recipe`)."""
    kinds.check_keys(written, (*OPTIONS, *TABLES), ())
    axes = read_axes(written.get("axes", {}))
    standing = {path: value for points in axes.values() for path, value in points[0].items()}
    shared = {key: kinds.as_value(written[key], (), (key,)) for key in OPTIONS if key in written}
    if "rounds" not in {*shared, *standing}:
        raise UsageError("rounds is missing: the number of rounds, above the first [table], or an axis of this name")
    shared.setdefault("rounds", standing.get("rounds"))
    for key, sort in (("problem", kinds.PROBLEMS), ("data", kinds.DATA)):
        if key in written:
            shared[key] = kinds.made(written[key], sort, (key,), standing=kinds.inner(standing, key), above=OPTIONS)
        elif key == "data" or kinds.a_table(written.get("data", {}), ("data",)).get("kind") != "GivenSamples":
            raise UsageError(f"[{key}] is missing: a table with kind and its fields")
    cells: list[Run] = []
    points: list[Point] = []
    for method, algorithm in _algorithms(written.get("algorithms", {}), kinds.inner(standing, "algorithm")):
        for point, cell in grid_of(method, Run(algorithm=algorithm, **shared), axes):
            cells.append(cell)
            points.append(point)
    measured = _checked(written, cells, points)
    plan = layout(kinds.a_table(written.get("figure", {}), ("figure",)), points, measured)
    return Recipe(name=name, written=written, cells=cells, points=points, layout=plan)


# --- algorithms ----------------------------------------------------------------------------------------------


def _algorithms(tables: object, standing: Changes) -> Iterator[tuple[str, Algorithm | Tuned]]:
    """Yield every algorithm with its name; `standing` is what axes say of all of them."""
    tables = kinds.a_table(tables, ("algorithms",))
    if not tables:
        raise UsageError("[algorithms.NAME] is missing: a table for each algorithm")
    for name, table in tables.items():
        keys = ("algorithms", name)
        if not isinstance(table, dict):
            raise UsageError(
                f"[algorithms] {quoted(name)} = {shown(table)}: every algorithm is a table, [algorithms.NAME]"
            )
        if not name.strip() or not name.isprintable():
            raise UsageError(f"{at(keys)}the name must be one that a figure can show")
        own = {key: value for key, value in table.items() if key != "tune"}
        if "tune" in table:
            yield name, _tuned(name, own, kinds.a_table(table["tune"], (*keys, "tune")), standing)
        else:
            yield name, _algorithm(name, own, standing)


def _algorithm(name: str, table: Mapping[str, Any], standing: Changes) -> Algorithm:
    own: dict[str, Any] = {"default": name, "standing": standing, "beside": ("tune",), "above": OPTIONS}
    found: Algorithm = kinds.made(table, (Algorithm,), ("algorithms", name), **own)
    return found


def _tuned(name: str, table: Changes, tune: Changes, standing: Changes) -> Tuned:
    """Return an algorithm that is tuned: of the fields in its grid the first value stands in its table."""
    keys = ("algorithms", name, "tune")
    known = [field.name for field in dataclasses.fields(Tuned) if field.name != "base"]
    for key, value in tune.items():
        if key not in known and isinstance(value, list):
            raise UsageError(f"{at(keys)}{quoted(key)} = {shown(value)}: values to try are written grid.{key} = ...")
    kinds.check_keys(tune, known, keys)
    if "grid" not in tune:
        raise UsageError(f"{at(keys)}grid is missing: the values to try, such as grid.step_size = [0.1, 0.3, 0.9]")
    fields = kinds.parameters(kinds.kind_of(table, (Algorithm,), keys[:2], default=name))
    settings = _settings(tune["grid"], fields, (*keys, "grid"))
    one = isinstance(tune["grid"], dict)
    first = {path: value[0] if one else value for path, value in settings[0].items()}
    for path, value in kinds.flat(table, into_kinds=True):
        if path in first:
            said = f"{at(keys[:2])}{path} = {shown(value)}"
            raise UsageError(f"{said} is in the grid of {at(keys)}too: leave one of them out")
    base = _algorithm(name, table, standing | first)
    grid = [{k: kinds.as_value(v, sort_at(base, k), (*keys, "grid")) for k, v in part.items()} for part in settings]
    sorts: dict[str, kinds.Sort] = {"score": (RoundsTo,)}
    own = {k: kinds.as_value(v, sorts.get(k, ()), (*keys, k)) for k, v in tune.items() if k != "grid"}
    try:
        tuned = Tuned(base=base, grid=grid[0] if one else grid, **own)
        tuned.algorithms()
    except (TypeError, ValueError) as error:
        raise UsageError(f"{at(keys)}{one_line(error)}") from None
    return tuned


def _settings(grid: object, known: Collection[str], keys: Keys) -> list[Changes]:
    """Return the table of a grid, or the tables of all its settings, by dotted paths."""
    parts = [grid] if isinstance(grid, dict) else grid
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) and part for part in parts):
        wanted = "a table of fields and the values to try, such as { step_size = [0.1, 0.3, 0.9] }"
        raise UsageError(f"{at(keys[:-1])}grid = {shown(grid)} must be {wanted}")
    settings = [dict(kinds.flat(part)) for part in parts]
    for path, value in (item for setting in settings for item in setting.items()):
        kinds.check_keys({path.partition(".")[0]: value}, known, keys)
        if isinstance(grid, dict) and (not isinstance(value, list) or not value):
            raise UsageError(f"{at(keys)}{quoted(path)} = {shown(value)} must be an array of at least one value")
    return settings


# --- cells ---------------------------------------------------------------------------------------------------


def _checked(written: Mapping[str, Any], cells: Sequence[Run], points: Sequence[Point]) -> list[tuple[str, ...]]:
    """Return the metrics that each cell will have, or raise what the first one that cannot run would raise."""
    measured, failed = list[tuple[str, ...]](), dict[str, list[Point]]()
    for cell, point in zip(cells, points, strict=True):
        try:
            measured.append(_metrics_of(cell, ("algorithms", point["method"], "tune")))
        except (SizeError, TypeError, ValueError) as error:
            failed.setdefault(one_line(error), []).append(point)
    if failed:
        message, found = next(iter(failed.items()))
        name = message.partition(" ")[0]
        if len(found) < len(cells) or name not in OPTIONS:
            own = written["algorithms"].get(found[0]["method"], {})
            raise UsageError(message + where(found[0]) + kinds.axis_hint(f"algorithm.{name}", own.get(name), message))
        raise UsageError(message + kinds.axis_hint(name, written.get(name), message))
    return measured


def _metrics_of(cell: Run, tune: Keys) -> tuple[str, ...]:
    """Return the metrics that a cell will have, or raise as its run would before the first round."""
    own = {field.name: getattr(cell, field.name) for field in dataclasses.fields(cell)}
    tuned = cell.algorithm if isinstance(cell.algorithm, Tuned) else None
    job = checked_job(**own | {"algorithm": cell.algorithm if tuned is None else tuned.base})
    bytes_per_trial(job, budget_bytes())
    if tuned is not None:
        rounds = cell.rounds if tuned.rounds is None else tuned.rounds
        own |= {"metrics": [tuned.metric], "trials": tuned.trials, "rounds": rounds, "record_every": 1}
        for algorithm in tuned.algorithms():
            try:
                bytes_per_trial(checked_job(**own | {"algorithm": algorithm}), budget_bytes())
            except (SizeError, TypeError, ValueError) as error:
                raise UsageError(f"{at(tune)}{one_line(error).replace('metrics =', 'metric =', 1)}") from None
    return job.plan.names
