"""Parts of a long cell: cells that its ``run()`` needs, which a sweep spreads over workers and saves one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from linfed.checks import short_repr
from linfed.tables.grid import Cell, Row, checked_cells, field_names
from linfed.tables.table import Table

PartsRunner: TypeAlias = Callable[[Sequence[Cell]], list[Row]]

_RUNNER: ContextVar[PartsRunner | None] = ContextVar("run_parts", default=None)
"""Runs the parts of the cell that runs now; None outside of a sweep."""


def run_parts(cells: Sequence[Cell]) -> list[Row]:
    """Return the rows of several cells, in the ``run()`` of another cell.

    Parameters
    ----------
    cells : sequence of cells
        Cells that return one row each.

    Returns
    -------
    list of mapping
        The row of each cell, in their order, without columns that have the name of a field.

    Raises
    ------
    TypeError
        If an element is not a cell, or a cell returns several rows.

    Notes
    -----
    `linfed.sweep` calls ``run()`` of a cell with an attribute ``divides = True`` in a thread of the main process, if it
    has a store or workers. The cells passed to `run_parts` are then computed like cells of the sweep: spread over the
    workers and saved one by one, so that an interrupted sweep resumes within the long cell. All else in ``run()``
    should be quick, and must not change the state of the process, such as filters of warnings, around `run_parts`:
    other cells run in between. Everywhere else, also in other threads, the cells run here, one by one, with equal rows.
    The saved parts belong to the cell and are removed when it has finished. With ``keeps_parts = True`` they are stored
    like cells of a sweep, shared with all others, and remain.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import linfed as lf
    >>> @dataclass(frozen=True)
    ... class Square:
    ...     number: int
    ...     def run(self):
    ...         return {"square": self.number**2}
    >>> @dataclass(frozen=True)
    ... class SumOfSquares:
    ...     numbers: tuple[int, ...]
    ...     divides = True
    ...     def run(self):
    ...         return {"sum": sum(row["square"] for row in lf.run_parts([Square(n) for n in self.numbers]))}
    >>> lf.sweep([SumOfSquares((1, 2, 3))])["sum"]
    14
    """
    return (_RUNNER.get() or one_by_one)(checked_cells(cells))


def one_by_one(cells: Sequence[Cell]) -> list[Row]:
    """Run cells in this thread and return their rows."""
    rows: list[Row] = []
    for cell in cells:
        row = cell.run()
        if not isinstance(row, Mapping):
            raise TypeError(f"{short_repr(cell)}: run() must return a mapping, got {short_repr(row)}")
        rows.append(without_fields(cell, Table([row]).rows[0]))  # a copy: the next cell may use the same arrays
    return rows


def without_fields(cell: Cell, row: Row) -> Row:
    """Return a row without the fields of its cell."""
    fields = field_names(cell)
    return {name: value for name, value in row.items() if name not in fields}


@contextmanager
def in_cell(runner: PartsRunner) -> Iterator[None]:
    """Return a context in which a cell runs, and `run_parts` calls the given function."""
    token = _RUNNER.set(runner)
    try:
        yield
    finally:
        _RUNNER.reset(token)


def is_in_cell() -> bool:
    """Return whether a cell of a sweep is running in this thread."""
    return _RUNNER.get() is not None


def parts_are_spread() -> bool:
    """Return whether a sweep computes and saves the parts of the running cell one by one."""
    return _RUNNER.get() not in (None, one_by_one)
