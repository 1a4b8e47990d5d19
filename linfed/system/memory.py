"""Memory of the machine, and errors for arrays that do not fit into it."""

from __future__ import annotations

import os

import numpy as np

from linfed.checks import check_number
from linfed.errors import SizeError


def physical_memory() -> float:
    """Return the machine's physical memory in bytes."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not available on all systems
        return 8e9


def budget_bytes(memory_budget: float | None = None) -> float:
    """Return the allowed memory of arrays in bytes: as given, or half of the machine's memory."""
    if memory_budget is None:
        return physical_memory() / 2
    return check_number("memory_budget", memory_budget, positive=True)


def format_bytes(count: float) -> str:
    """Return a number of bytes as text, e.g. "22.2 kB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if float(f"{count:.3g}") < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def check_copy(name: str, value: object) -> None:
    """Raise `SizeError` if a float copy of an array does not fit into memory; a view can have any size."""
    if isinstance(value, np.ndarray) and 8.0 * value.size > physical_memory():
        raise SizeError(
            f"{name} has shape {value.shape}: a copy would take {format_bytes(8.0 * value.size)}, but the machine has "
            f"{format_bytes(physical_memory())} of memory"
        )


def check_fits(values: float, what: str, way_out: str) -> None:
    """Raise unless `values` floats fit into half of the machine's memory.

    Raises
    ------
    SizeError
        ``{what} would take about .., but half of the memory is ..: {way_out}``.
    """
    if 8.0 * values > budget_bytes():
        raise SizeError(
            f"{what} would take about {format_bytes(8.0 * values)}, but half of the memory is "
            f"{format_bytes(budget_bytes())}: {way_out}"
        )
