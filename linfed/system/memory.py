"""What fits into the machine's memory, and how it is said that something does not."""

from __future__ import annotations

import math
import os
import sys

import numpy as np

from linfed.errors import SizeError, check_number


def physical_memory() -> float:
    """Return the bytes of the machine's memory."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not on every system
        return 8e9


def peak_memory() -> float:
    """Return the largest number of bytes that this process has held at a time; NaN where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    # In bytes on macOS, in kilobytes elsewhere.
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def budget_bytes(memory_budget: float | None = None) -> float:
    """Return the bytes that arrays may take: as given, or half of the machine's memory."""
    if memory_budget is None:
        return physical_memory() / 2
    return check_number("memory_budget", memory_budget, positive=True)


def told(count: float) -> str:
    """Return a number of bytes as text."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def check_copy(name: str, value: object) -> None:
    """Raise a `SizeError` if a copy of an array, as floats, would not fit the memory; views may be of any size."""
    if isinstance(value, np.ndarray) and 8.0 * value.size > physical_memory():
        raise SizeError(
            f"{name} has shape {value.shape}: a copy would take {told(8.0 * value.size)}, and the memory is "
            f"{told(physical_memory())}"
        )


def check_fits(values: float, what: str, way_out: str) -> None:
    """Raise unless so many numbers fit into half of the machine's memory.

    Raises
    ------
    SizeError
        ``{what} would take about .., and half of the memory is ..: {way_out}``.
    """
    if 8.0 * values > budget_bytes():
        raise SizeError(
            f"{what} would take about {told(8.0 * values)}, and half of the memory is {told(budget_bytes())}: {way_out}"
        )
