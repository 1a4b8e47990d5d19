"""Progress of a sweep: a bar over the summed cost of its cells, and messages about durations."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, cast

from linfed.checks import check_progress, is_integer, is_real
from linfed.tables.grid import Cell

if TYPE_CHECKING:
    from tqdm.std import tqdm

FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left{postfix}"


def costs_of(cells: Sequence[Cell]) -> list[float]:
    """Return the cost of each cell, for the order of a sweep and its progress bar.

    The cost is the cell's attribute ``cost`` if this is a positive number. The other cells have estimates from their
    sizes (`size_of`). If both occur, the estimates are scaled to the mean of the given costs, whose unit is unknown.
    """
    given, sizes = [given_cost(cell) for cell in cells], [size_of(cell) for cell in cells]
    known = [cost for cost in given if cost]
    estimated = [size for size, cost in zip(sizes, given, strict=True) if not cost]
    scale = math.fsum(known) / len(known) * len(estimated) / math.fsum(estimated) if known and estimated else 1.0
    return [cost or size * scale for size, cost in zip(sizes, given, strict=True)]


def given_cost(cell: Cell) -> float:
    """Return a cell's attribute ``cost``, or 0 if it has none or is invalid."""
    with suppress(Exception):  # an invalid cell raises when it is checked or run
        cost = getattr(cell, "cost", 0.0)
        return float(cost) if is_real(cost) and 0 < cost < math.inf else 0.0
    return 0.0


def size_of(cell: Cell) -> float:
    """Return the product of a cell's positive whole numbers, except its seed."""
    sizes = {one.name: getattr(cell, one.name) for one in dataclasses.fields(cast(Any, cell)) if one.name != "seed"}
    with suppress(OverflowError):
        product = math.prod(float(size) for size in sizes.values() if is_integer(size) and size > 0)
        return product if product < math.inf else 1.0
    return 1.0


def progress_bar(label: str, total: float, progress: bool | None) -> tqdm[NoReturn]:
    """Return a progress bar over the total cost of the cells to run."""
    from tqdm.std import tqdm

    return tqdm(total=total, desc=label, disable=not is_shown(progress), bar_format=FORMAT, smoothing=0.0, miniters=0)


def is_shown(progress: bool | None) -> bool:
    """Return whether to show progress; None shows it on a terminal only."""
    return not check_progress(progress)


def log_status(label: str, what: str, progress: bool | None = None) -> None:
    """Print a status line on standard error, if a progress bar would be shown."""
    if is_shown(progress):
        print(f"{label}: {what}", file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """Format a duration approximately, e.g. ``about 4 min``."""
    if seconds < 1:
        return "about 1 s"
    if seconds < 90:
        return f"about {seconds if seconds < 10 else 5 * round(seconds / 5):.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
