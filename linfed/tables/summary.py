"""Tables for a paper: a statistic over trials with its interval, for each row and column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from linfed._names import axis_label
from linfed._types import Array
from linfed._values import check_fields, converted
from linfed.statistics.intervals import mean_interval, median_interval
from linfed.system.extras import import_optional
from linfed.tables.escaping import latex, markdown, one_line

STATISTICS = {"median": median_interval, "mean": mean_interval}
"""Functions of the trials' values that return a statistic with its 95 % confidence interval."""

PLAIN_POWERS = range(-3, 4)
"""Powers of ten of statistics that are written without a power of ten."""

BEST = ("smallest", "largest")
"""Which value of a column is the best."""


class Entry(NamedTuple):
    """Entry of a `Summary`: a statistic with its 95 % confidence interval.

    Parameters
    ----------
    estimate, low, high : float
        The statistic and its interval.
    trials : int
        Number of trials.
    diverged : int
        Number of diverged trials, whose value is NaN.
    best : bool
        True if the whole interval is better than every other interval of the column.
    """

    estimate: float
    low: float
    high: float
    trials: int
    diverged: int
    best: bool = False


@dataclass(frozen=True, eq=False)
class Summary:
    r"""Table for a paper, made by `Table.summarize`.

    Parameters
    ----------
    metric, statistic, best : str
        Metric, "median" or "mean", and "smallest" or "largest".
    rows, columns : tuple of str
        Columns of the table whose values are the rows and the columns of the summary.
    entries : mapping of (row, column) to Entry
        The entries. A key has the values of `rows` and those of `columns`, each as a tuple.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> table = lf.Table([{"method": name, "error": size * np.arange(1.0, 11.0)} for name, size in zip("ab", (9, 1))])
    >>> summary = table.summarize("error", rows="method", columns=())
    >>> print(*summary.to_markdown().splitlines()[:4], sep="\n")
    | method | error |
    | --- | --- |
    | a | 45.0 [18.0, 81.0] |
    | b | **5.00 [2.00, 9.00]** |
    """

    metric: str
    statistic: str
    best: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    entries: Mapping[tuple[tuple[Any, ...], tuple[Any, ...]], Entry]

    def __post_init__(self) -> None:
        check_fields(self, rows=converted(tuple), columns=converted(tuple), entries=converted(dict))

    @property
    def note(self) -> str:
        """Sentence that explains the entries, for a caption."""
        return self._explained(one_line(self.metric))

    def _explained(self, metric: str) -> str:
        counts = sorted({entry.trials for entry in self.entries.values()})
        trials = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        open_ends = any(math.isinf(end) for entry in self.entries.values() for end in (entry.low, entry.high))
        few = "; an end is infinite if trials are too few or diverge" if open_ends else ""
        return (
            f"{axis_label(metric)}: {self.statistic} over {trials} trials [confidence interval of level "
            f"0.95]; bold: the {self.best} value of the column, if its interval overlaps no other{few}."
        )

    def to_pandas(self) -> Any:
        """Return the numbers as a ``pandas.DataFrame`` (extra ``tables``).

        Returns
        -------
        pandas.DataFrame
            One line for each entry: the values of `rows` and `columns`, then the fields of `Entry`.
        """
        pandas = import_optional("pandas", "tables", "to_pandas()")
        names = (*self.rows, *self.columns)
        return pandas.DataFrame(
            [
                dict(zip(names, (*row, *column), strict=True)) | entry._asdict()
                for (row, column), entry in self.entries.items()
            ]
        )

    def to_markdown(self) -> str:
        """Return the table in Markdown, with `note` below it."""
        lines = [[markdown(word) for word in self._head()]]
        lines.append(["---"] * len(lines[0]))
        for row in self._keys(0):
            texts = [f"**{_text(one, False)}**" if one and one.best else _text(one, False) for one in self._line(row)]
            lines.append([*(markdown(_key(value)) for value in row), *texts])
        note = self._explained(markdown(self.metric))
        return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", note])

    def to_latex(self, **options: Any) -> str:
        r"""Return the table in LaTeX, with the rules of the package booktabs (extra ``tables``).

        Parameters
        ----------
        **options
            Arguments of ``pandas.io.formats.style.Styler.to_latex``, such as ``caption="..."``, ``label="tab:a"`` and
            ``position="t"``.

        Returns
        -------
        str
            A ``tabular``, in a ``table`` if there is a caption, a label or a position.
        """
        pandas = import_optional("pandas", "tables", "to_latex()")
        import_optional("jinja2", "tables", "to_latex()")  # pandas does not name it as a requirement
        texts, bold = [], []
        for row in self._keys(0):
            line = self._line(row)
            texts.append([*(latex(_key(value)) for value in row), *(_text(entry, True) for entry in line)])
            bold.append([""] * len(row) + ["bfseries:;boldmath:;" if entry and entry.best else "" for entry in line])
        titles = [latex(title) for title in self._head()]
        styled = pandas.DataFrame(texts).style.hide(axis="index")
        styled.apply(lambda _: np.array(bold, dtype=object), axis=None)
        styled.format_index(lambda number: titles[number], axis=1)
        side = "l" * len(self.rows) + "r" * (len(titles) - len(self.rows))
        return str(styled.to_latex(**{"hrules": True, "column_format": side} | options))

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __str__(self) -> str:
        return self.to_markdown()

    def _keys(self, side: int) -> list[tuple[Any, ...]]:
        """Return the different rows (side 0) or columns (side 1), in the order in which they first occur."""
        return list(dict.fromkeys(key[side] for key in self.entries))

    def _line(self, row: tuple[Any, ...]) -> list[Entry | None]:
        return [self.entries.get((row, column)) for column in self._keys(1)]

    def _head(self) -> list[str]:
        """Return the titles of all columns; a column of numbers has the name of its value, e.g. "n_clients = 50"."""
        titles = []
        for key in self._keys(1):
            words = [
                value if isinstance(value, str) else f"{name} = {value}"
                for name, value in zip(self.columns, key, strict=True)
            ]
            titles.append(", ".join(words) or self.metric)
        return [*self.rows, *titles]


def summary(
    metric: str,
    statistic: str,
    best: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Mapping[tuple[tuple[Any, ...], tuple[Any, ...]], Array],
) -> Summary:
    """Return the summary of the values (trials,) for each pair of a row and a column."""
    sign = 1.0 if best == "smallest" else -1.0
    entries: dict[tuple[tuple[Any, ...], tuple[Any, ...]], Entry] = {}
    for key, trials in values.items():
        estimate, low, high = STATISTICS[statistic](sign * np.asarray(trials, dtype=float))  # NaN counts as the worst
        low, high = (low, high) if sign > 0 else (-high, -low)
        diverged = int(np.sum(np.isnan(trials)))
        entries[key] = Entry(sign * estimate, low, high, len(trials), diverged)
    for key, entry in entries.items():
        others = [one for (_, column), one in entries.items() if column == key[1] and one is not entry]
        better = [entry.high < one.low if best == "smallest" else entry.low > one.high for one in others]
        entries[key] = entry._replace(best=bool(others) and all(better))
    return Summary(metric, statistic, best, tuple(rows), tuple(columns), entries)


def _key(value: Any) -> str:
    """Return the value of a row as text; empty if the row has no such column."""
    return "" if value is None else str(value)


def _diverged(entry: Entry) -> str:
    return f", {entry.diverged} of {entry.trials} diverged" if entry.diverged else ""


def _text(entry: Entry | None, in_latex: bool) -> str:
    """Return an entry as text: three digits of the statistic, and its interval with the same decimals."""
    if entry is None:
        return ""
    size = abs(entry.estimate)
    power = math.floor(math.log10(size)) if 0 < size < math.inf else 0
    shared = 0 if power in PLAIN_POWERS else power
    decimals = max(0, 2 + shared - power)
    estimate, low, high = (f"{value / 10.0**shared:.{decimals}f}" for value in entry[:3])
    if not in_latex:
        return f"{estimate} [{low}, {high}]{f' x 1e{shared}' if shared else ''}{_diverged(entry)}"
    factor = rf" \cdot 10^{{{shared}}}" if shared else ""
    return rf"${estimate}\ [{low}, {high}]{factor}$".replace("inf", r"\infty") + _diverged(entry)
