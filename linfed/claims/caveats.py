"""Caveats of findings: diverged trials, step sizes at the edge of their grid, curves that are not stationary."""

from __future__ import annotations

import numpy as np

from linfed.figures.style import label
from linfed.numerics.quantiles import quantiles
from linfed.statistics.findings import join_notes
from linfed.tables.table import Table

EDGE = "at the edge of the grid"
"""Words of every note on a hyper-parameter whose chosen value is the smallest or largest one of its grid."""


def edge_note(table: Table, by: str = "method") -> str:
    """Return a note on the methods whose best hyper-parameters are at the edges of their grids; empty without one.

    Parameters
    ----------
    table : Table
        Rows with the columns of a tuning (`TuningResult.columns`); other rows have no note.
    by : str, optional
        Column with the names of the methods.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> c.edge_note(lf.Table([{"method": "FedAvg", "at_grid_edge": "step_size"}, {"at_grid_edge": "t0"}]))
    'the best step of FedAvg lies at the edge of the grid; the best t0 lies at the edge of the grid'
    >>> c.edge_note(lf.Table([{"method": "FedAvg", "at_grid_edge": "step_size, fine_tune.steps, rank"}]))
    'the best step, fine_tune.steps and rank of FedAvg lie at the edge of the grid'
    """
    methods: dict[str, dict[str, None]] = {}
    for row in table.rows:
        if names := row.get("at_grid_edge"):
            methods.setdefault(names, {})[label(str(row.get(by, "")))] = None
    notes = []
    for names, found in methods.items():
        *others, last = ("step" if name == "step_size" else name for name in names.split(", "))
        tuned, verb = (f"{', '.join(others)} and {last}", "lie") if others else (last, "lies")
        whose = " and ".join(filter(None, found))
        notes.append(f"the best {tuned}{' of ' * bool(whose)}{whose} {verb} {EDGE}")
    return join_notes(*notes)


def diverged_note(table: Table, place: str = "its best step", by: str = "method") -> str:
    """Return a note with the number of diverged trials of each method; empty without one.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> c.diverged_note(lf.Table([{"method": "FedAvg", "diverged": [True, False, True]}]))
    '2 trials of FedAvg diverged at its best step'
    """
    counts = [(label(str(row[by])), int(np.sum(row["diverged"]))) for row in table]
    told = ((f"{count} trial{'s' * (count > 1)}", name) for name, count in counts if count)
    return join_notes(*(f"{trials} of {name} diverged at {place}" for trials, name in told))


def unsettled_note(table: Table, column: str, *, by: str = "method", change: float = 0.01) -> str:
    """Return a note on the methods whose median still changes by more than a share `change`; empty without one.

    The change is measured over the second half of the rounds.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> error = lf.LabeledArray([[1.0, 0.5, 0.4, 0.3, 0.2]] * 3, round=range(5))
    >>> c.unsettled_note(lf.Table([{"method": "FedAvg", "error": error}]), "error")
    'not converged: over the second half of the rounds the error of FedAvg falls'
    """
    trends = []
    for row in table:
        rounds, curve = row["round"], quantiles(row[column])[0]
        late = curve[2 * rounds >= rounds[-1]]
        with np.errstate(divide="ignore", invalid="ignore"):  # a median of 0
            moved = late[-1] / late[0] - 1 if np.isfinite(late[-1]) else 0.0
        if abs(moved) > change:
            trends.append(f"{label(str(row[by]))} {'rises' if moved > 0 else 'falls'}")
    return (
        f"not converged: over the second half of the rounds the {column} of {' and that of '.join(trends)}"
        if trends
        else ""
    )
