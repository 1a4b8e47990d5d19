"""The figures of a sweep whose file is all that is known of it: curves, or ends along an axis, in panels.

Of whatever the cells differ in (``method``, and the axes with more than one value) one lies along x, where that is not
the round; one tells the lines of a panel apart, one the columns of panels, one the rows; of what is left every
combination has a figure of its own. ``[figure]`` of the file names them, and the metric y. By default:

- x is the round, or the first axis of more than `MOST_PANELS` values;
- y is the first metric of the file, or that all algorithms have;
- lines are methods, or if there is one, the last axis;
- columns and rows are the first axis and the second that are left, and have at most `MOST_PANELS` values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from linfed.errors import UsageError, check_choice, is_real, suggestion
from linfed.figures.style import COLUMN_WIDTH, LOOKS, PAGE_WIDTH, SHARES, Look, look, shades
from linfed.plotting.captions import sizes
from linfed.plotting.panels import curves, drawn_from, page, rows_of
from linfed.reproduction.axes import Point, told
from linfed.reproduction.kinds import check_keys, listed
from linfed.statistics.quantiles import quantiles
from linfed.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 8
"""Panels side by side, or one below the other, that are drawn without being asked for."""

MOST_BANDS = 6
"""Lines of a panel that have bands: more would cover each other."""

FIGURES = 24
"""Figures of one sweep that are drawn at most."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What is drawn: `x` is "round", "method" or an axis, `y` a metric, the others are "method" or axes.

    `values` are those of each axis and of "method", in order, by what they are called; every combination of what is in
    `rest` has a figure of its own.
    """

    x: str
    y: str
    by: str
    column: str | None
    row: str | None
    rest: tuple[str, ...]
    values: Mapping[str, Mapping[str, Any]]


def layout(asked: Mapping[str, Any], points: Sequence[Point], measured: Sequence[Sequence[str]]) -> Layout:
    """Return what to draw of cells.

    Parameters
    ----------
    asked : mapping
        The table ``[figure]`` of a file; a UsageError says what in it cannot be drawn.
    points : sequence of dict
        Of each cell.
    measured : sequence of sequence of str
        The metrics of each cell.
    """
    check_keys(asked, ("x", "y", "by", "column", "row"), ("figure",))
    values = {name: {told(point[name]): point[name] for point in points} for name in points[0]}
    metrics = list(dict.fromkeys(name for names in measured for name in names))
    if not metrics:
        raise UsageError("metrics = [] leaves nothing to draw: name one at least")
    shared = [name for name in metrics if all(name in names for names in measured)]
    given: dict[str, str] = {}
    for part in ("x", "by", "column", "row"):
        if part in asked and not (part == "x" and asked[part] == "round"):
            given[part] = _named(part, asked[part], values)
            if list(given.values()).count(given[part]) > 1:
                raise UsageError(f"[figure] {part} = {asked[part]!r} has a place in the figure already")
            if part in ("column", "row") and len(values[given[part]]) > FIGURES:
                raise UsageError(
                    f"[figure] {part} = {asked[part]!r} has more values than {FIGURES} panels: put it on x"
                )
    try:
        y = check_choice("y", asked["y"], metrics) if "y" in asked else (shared or metrics)[0]
    except ValueError as error:
        raise UsageError(f"[figure] {error}") from None
    free = [name for name in values if len(values[name]) > 1 and name not in given.values()]
    if "x" not in asked:
        long = [name for name in free if name != "method" and len(values[name]) > MOST_PANELS]
        given["x"] = (long or ["round"])[0]
        free = [name for name in free if name != given["x"]]
    if "by" not in given:
        given["by"] = "method" if "method" in free or not free else free[-1]
        free = [name for name in free if name != given["by"]]
    for part in ("column", "row"):
        found = [name for name in free if name != "method" and len(values[name]) <= MOST_PANELS]
        if part not in given and found:
            given[part] = found[0]
            free.remove(found[0])
    return Layout(
        x=given.get("x", "round"),
        y=y,
        by=given["by"],
        column=given.get("column"),
        row=given.get("row"),
        rest=tuple(free),
        values=values,
    )


def _named(part: str, name: object, values: Mapping[str, object]) -> str:
    """Return the axis that a name means: its own, one of those that go together on it, or the last part of one."""
    meant = [axis for axis in values if name in (axis, *(one.strip() for one in axis.split(",")))]
    meant = meant or [axis for axis in values if name in [one.rpartition(".")[2] for one in axis.split(",")]]
    if len(meant) != 1:
        allowed = [*values, "round"] if part == "x" else list(values)
        raise UsageError(f"[figure] {part} = {name!r} is no axis{suggestion(name, allowed)}; {listed(allowed)}")
    return meant[0]


def drawn(table: Table, points: Sequence[Point], plan: Layout) -> Iterator[Figure]:
    """Yield the figures of a table with a row for each point, at most `FIGURES`: the caller saves and closes them."""
    words = [{name: told(value) for name, value in point.items()} for point in points]
    rows = [pair for pair in zip(table.rows, words, strict=True) if plan.y in pair[0]]
    names = Table([{**row, **word} for row, word in rows])
    for number, (key, part) in enumerate(names.by(*plan.rest) if plan.rest else [((), names)]):
        if number == FIGURES:
            return
        keys = dict(zip(plan.rest, key if isinstance(key, tuple) else (key,), strict=True))
        own = [row for row, word in rows if all(word[name] == value for name, value in keys.items())]
        yield drawn_from(_figure(part, plan, [_said(name, value) for name, value in keys.items()]), Table(own))


def caption(figure: Figure, plan: Layout) -> str:
    """Return what a figure of `drawn` shows, in words: its lines and panels, and the sizes of its rows."""
    rows = rows_of(figure) or Table()
    measure = plan.y.replace("_", " ") + ("" if plan.x == "round" else " in the last round")
    parts = {"a line": plan.by, "a column of panels": plan.column, "a row of panels": plan.row}
    told_of = [f"{part} for each {short(name)}" for part, name in parts.items() if name and len(plan.values[name]) > 1]
    text = "; ".join([f"{measure} against {short(plan.x)}", *told_of])
    above = figure.legends[0].get_title().get_text().replace(r"\$", "$")
    return f"{text[0].upper()}{text[1:]}{f' ({above})' if above else ''}. {sizes(rows)}".strip()


def short(name: str) -> str:
    """Return the last part of an axis's name, or of each of those that go together."""
    return ", ".join(one.strip().rpartition(".")[2] for one in name.split(","))


def _said(name: str, value: str) -> str:
    return _text(value if name == "method" else f"{short(name)} = {value}")


def _text(text: str) -> str:
    """Return a text that matplotlib shows as it is."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def _figure(table: Table, plan: Layout, told_above: list[str]) -> Figure:
    """Return one figure: panels by column and row."""
    columns = table.values(plan.column) if plan.column else [""]
    lines = table.values(plan.by)
    labels = {value: _said(plan.by, value) for value in lines}
    looks = _looks(plan.values[plan.by])
    rows = table.values(plan.row) if plan.row else [""]
    width = max(PAGE_WIDTH if len(columns) > 1 else 1.4 * COLUMN_WIDTH, 1.7 * len(columns) + 0.6)
    trials = sorted({len(row["diverged"]) for row in table.rows})
    band = plan.x != "round" or len(lines) <= MOST_BANDS
    measure = "median and 10-90 %" if band else "median"
    counted = f"{measure} of {' or '.join(map(str, trials))} trials" if trials[-1] > 1 else ""
    y = plan.y.replace("_", " ") + ("" if plan.x == "round" else ", last round")
    with page(
        table,
        column=plan.column,
        row=plan.row,
        title=lambda value: fill(_said(plan.column, value), int(13 * width / len(columns))) if plan.column else "",
        width=width,
        height=0.75 + (2.2 if len(rows) == 1 else 1.8 * len(rows)),
        sharex="col",
        sharey=True,
    ) as sheet:
        for ax, part in sheet:
            if plan.x == "round":
                curves(ax, part, "round", plan.y, by=plan.by, labels=labels, looks=looks, band=band)
                ax.locator_params(axis="x", integer=True)
            else:
                _ends(ax, part, plan, labels, looks)
        _range([ax for ax, _ in sheet], table, plan)
        beside = [f"{fill(_said(plan.row, row), 28)}\n{y}" if plan.row else y for row in rows]
        sheet.label(_text(short(plan.x)), *beside)
        wide = max(map(len, labels.values()))
        ncols = max(1, min(len(labels), int(width / (0.55 + 0.056 * wide))))
        sheet.legend("; ".join(filter(None, [", ".join(told_above), counted])), ncols=ncols)
    return sheet.figure


def _looks(values: Mapping[str, Any]) -> dict[str, Look]:
    """Return a look for each line: a method's own, shades where all are numbers, and those of other kinds in turns."""
    if all(is_real(value) for value in values.values()):
        return dict(zip(values, shades(values).values(), strict=True))
    others = [name for name in values if name not in LOOKS]
    turns = {name: tuple(look("", turn).values()) for turn, name in enumerate(others)}
    return {name: LOOKS[name] if name in LOOKS else turns[name] for name in values}


def _range(panels: Sequence[Axes], table: Table, plan: Layout) -> None:
    """Cut off the heights to which diverging runs rise."""
    ax = panels[0]  # all share its range
    lost = any(row["diverged"].any() for row in table.rows)
    if plan.x == "round" and lost:
        begin = max(float(np.nanmedian(row[plan.y].values[:, 0])) for row in table.rows)
        if ax.get_ylim()[1] > 1e3 * begin:
            least = min(one.dataLim.y0 for one in panels)
            ax.set_ylim(0.7 * least if least > 0 else None, 1e3 * begin)


def _ends(ax: Axes, table: Table, plan: Layout, labels: Mapping[str, str], looks: Mapping[str, Look]) -> None:
    """Draw what the last round leaves along an axis: medians with 10-90 % bars, joined where the axis is of numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    places, numeric = _places(plan.values[plan.x])
    lines = list(table.by(plan.by))
    for turn, (name, part) in enumerate(lines):
        shift = 0.0 if numeric else 0.12 * (turn - (len(lines) - 1) / 2)
        ends = [(places[row[plan.x]] + shift, *quantiles(row[plan.y].values[:, -1])) for row in part.rows]
        x, middle, low, high = np.array(sorted(end for end in ends if np.isfinite(end[1]))).reshape(-1, 4).T
        if not x.size:  # more than half of the trials diverged, everywhere
            ax.errorbar([], [], label=f"{labels[name]} (diverged)", **look(looks[name]))
            continue
        high = np.where(np.isfinite(high), high, middle.max())
        bars = (middle - low, np.maximum(high - middle, 0.0))
        shape = {"elinewidth": 0.7, "capsize": 1.5, **look(looks[name])} | ({} if numeric else {"linestyle": "none"})
        ax.errorbar(x, middle, yerr=bars, label=labels[name], **shape)
        if (middle > 0).any() and plan.y not in SHARES:
            ax.set_yscale("log")
    positions = np.array(list(places.values()))
    if numeric and positions.min() > 0 and positions.max() >= 8 * positions.min():
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    if len(places) <= MOST_PANELS or not numeric:
        ax.set_xticks(positions, [_text(label.replace("(", "\n(", len(label) > 12)) for label in places])
        ax.set_xticks([], minor=True)
    if not numeric:
        ax.set_xlim(-0.5, len(places) - 0.5)


def _places(values: Mapping[str, Any]) -> tuple[dict[str, float], bool]:
    """Return where the values of an axis lie, and whether by size: those that go together by the first of them."""
    first = [value[0] if isinstance(value, list) else value for value in values.values()]
    numeric = all(is_real(one) for one in first) and len(set(first)) == len(first)
    return dict(zip(values, map(float, first) if numeric else range(len(first)), strict=True)), numeric
