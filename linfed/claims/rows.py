"""Rows that a claim is about (``where=``), and the groups of rows that give one finding each (``over=``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

from linfed.tables.table import Table

Parts: TypeAlias = tuple[Table, ...]
"""Rows of one finding: a table, or several, e.g. the rows of two successive sizes."""

Over: TypeAlias = Callable[[Table], Iterator[Parts]]
"""Function that divides a table into the rows of each finding."""

Where: TypeAlias = Callable[[Table], Table]
"""Function that chooses rows of a table."""


# --- groups of rows --------------------------------------------------------------------------------------------------


def whole(table: Table) -> Iterator[Parts]:
    """Yield the table: one finding for all rows.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"method": "A", "n": 10}, {"method": "B", "n": 10}, {"method": "A", "n": 20}])
    >>> [len(rows) for (rows,) in c.whole(table)]
    [3]
    """
    yield (table,)


def each_row(table: Table) -> Iterator[Parts]:
    """Yield the rows one by one: one finding for each.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> [row["n"] for (row,) in c.each_row(lf.Table([{"n": 10}, {"n": 20}]))]
    [10, 20]
    """
    yield from ((row,) for row in table)


def each(*columns: str) -> Over:
    """Return a function that yields the rows of each combination of the columns' values, the first one outermost.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"n": 10, "error": 2.0}, {"n": 20, "error": 1.0}])
    >>> [rows["n"] for (rows,) in c.each("n")(table)]
    [10, 20]
    """
    if not columns:
        raise ValueError("each() needs the name of a column")

    def over(table: Table) -> Iterator[Parts]:
        for _, part in table.groupby(columns[0]):
            yield from each(*columns[1:])(part) if columns[1:] else ((part,),)

    return over


def successive(column: str, within: Over = whole, *, descending: bool = False) -> Over:
    """Return a function that yields the rows of each two successive values of a column, in each group of `within`.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"n": 10}, {"n": 40}, {"n": 20}])
    >>> [(small["n"], large["n"]) for small, large in c.successive("n")(table)]
    [(10, 20), (20, 40)]
    """
    return lambda table: (
        pair for part in _alone(within, table) for pair in pairwise(_groups(part, column, descending=descending))
    )


def ends(column: str, within: Over = whole) -> Over:
    """Return a function that yields the rows of the smallest and of the largest value of a column, if they differ.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"n": 10}, {"n": 40}, {"n": 20}])
    >>> [(small["n"], large["n"]) for small, large in c.ends("n")(table)]
    [(10, 40)]
    """

    def over(table: Table) -> Iterator[Parts]:
        for part in _alone(within, table):
            groups = _groups(part, column)
            if len(groups) > 1:
                yield groups[0], groups[-1]

    return over


def _alone(within: Over, table: Table) -> Iterator[Table]:
    """Yield the tables of groups that consist of one table each."""
    for parts in within(table):
        if len(parts) != 1:
            raise ValueError(
                f"within= yields groups of {len(parts)} tables, but must yield single ones, as each(..) does"
            )
        yield parts[0]


def _groups(table: Table, column: str, *, descending: bool = False) -> list[Table]:
    return [part for _, part in sorted(table.groupby(column), key=lambda group: group[0], reverse=descending)]


# --- choice of rows --------------------------------------------------------------------------------------------------


def of(**values: Any) -> Where:
    """Return a function that chooses rows by the values of columns, as `Table.select` does.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"method": "A", "n": 10}, {"method": "B", "n": 10}, {"method": "A", "n": 20}])
    >>> c.of(method="A")(table)["n"].tolist()
    [10, 20]
    """
    return lambda table: table.select(**values)


def only(holds: Callable[[Table], Any]) -> Where:
    """Return a function that chooses the rows for which a condition holds; it is called with one row at a time.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"method": "A", "n": 10}, {"method": "B", "n": 10}, {"method": "A", "n": 20}])
    >>> c.only(lambda row: row["n"] > 10)(table).unique("method")
    ['A']
    """
    return lambda table: Table([row for row, one in zip(table.rows, table, strict=True) if holds(one)])


def smallest(column: str) -> Where:
    """Return a function that chooses the rows with the smallest value of a column.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"method": "A", "n": 10}, {"method": "B", "n": 10}, {"method": "A", "n": 20}])
    >>> c.smallest("n")(table).unique("method")
    ['A', 'B']
    """
    return lambda table: table.select(**{column: min(table.unique(column))}) if len(table) else table


def largest(column: str) -> Where:
    """Return a function that chooses the rows with the largest value of a column.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"method": "A", "n": 10}, {"method": "B", "n": 10}, {"method": "A", "n": 20}])
    >>> c.largest("n")(table).unique("method")
    ['A']
    """
    return lambda table: table.select(**{column: max(table.unique(column))}) if len(table) else table


def sorted_by(column: str) -> Where:
    """Return a function that sorts the rows by a column.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"n": 20}, {"n": 10}])
    >>> c.sorted_by("n")(table)["n"].tolist()
    [10, 20]
    """
    return lambda table: Table([part.rows[0] for part in sorted(table, key=lambda one: one[column])])
