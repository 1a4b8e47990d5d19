"""What a reader should know of a setting before its verdict: trials that diverged, steps at the edge of their grid."""

from __future__ import annotations

import numpy as np

from linfed.figures.style import label
from linfed.statistics.findings import joined
from linfed.study.table import Table


def edges(table: Table, by: str = "method") -> str:
    """Return the note that the best step of these rows' methods lies at the edge of the grid, or nothing."""
    names = [label(str(row[by])) for row in table.rows if row.get("at_edge")]
    return f"the best step of {' and '.join(dict.fromkeys(names))} lies at the edge of the grid" if names else ""


def lost(table: Table, told: str = "its best step", by: str = "method") -> str:
    """Return how many trials of each of these rows' methods diverged, or nothing."""
    counts = [(label(str(row[by])), int(np.sum(row["diverged"]))) for row in table.rows]
    return joined(*(f"{count} trials of {name} diverged at {told}" for name, count in counts if count))
