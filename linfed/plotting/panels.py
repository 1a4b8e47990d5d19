"""Figures from a table: a page of panels by column and row, in them curves, tuning curves, bars, heat maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from linfed.errors import check_among, check_bool, check_instance, check_integer, check_number, shown
from linfed.figures.style import (
    LOOKS,
    PAGE_WIDTH,
    Look,
    draw_curve,
    draw_level,
    draw_prediction,
    label,
    look,
    plain_ticks,
    style,
)
from linfed.statistics.quantiles import quantiles
from linfed.tables.export import varying
from linfed.tables.labeled_array import Along
from linfed.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Figures: TypeAlias = "dict[str, Figure]"
"""What an experiment draws, by what its files' names end in."""


_TURNS_OF: WeakKeyDictionary[Any, dict[Any, int]] = WeakKeyDictionary()
"""Of each figure: whose turn of the looks a line without one of its own has, the same in all panels."""

_ROWS_OF: WeakKeyDictionary[Any, Table] = WeakKeyDictionary()
"""Of each figure: the rows that it was drawn from."""


def drawn_from(figure: Figure, table: Table) -> Figure:
    """Remember what a figure that is no page was drawn from, for its caption, and return it."""
    _ROWS_OF[figure] = table
    return figure


def rows_of(figure: Figure) -> Table | None:
    """Return the rows that a figure was drawn from, as far as `page` or `drawn_from` was told."""
    return _ROWS_OF.get(figure)


@dataclass(frozen=True)
class Page:
    """A figure with a panel for each row and column, and the rows of the table that belong to it.

    Parameters
    ----------
    figure : Figure
    axes : ndarray of Axes (rows, columns)
    parts : list of lists of Table
        As `axes`.
    """

    figure: Figure
    axes: Any
    parts: list[list[Table]]

    def __iter__(self) -> Iterator[tuple[Axes, Table]]:
        """Yield each panel with its part of the table, row by row; those without a row of the table are left out."""
        for line in range(len(self.parts)):
            yield from self.row(line)

    def row(self, number: int) -> Iterator[tuple[Axes, Table]]:
        """Yield the panels of one row with their parts."""
        return ((ax, part) for ax, part in zip(self.axes[number], self.parts[number], strict=True) if len(part))

    def curves(self, x: str, y: str, **options: Any) -> None:
        """Draw a column against an axis in every panel (`curves`)."""
        for ax, part in self:
            curves(ax, part, x, y, **options)

    def label(self, x: str = "", *y: str, **options: Any) -> None:
        """Write x below the last row and a y at the left of each row; `options` are set on every panel."""
        for ax in self.axes.ravel():
            ax.set(**options)
        for ax in self.axes[-1]:
            ax.set_xlabel(x)
        for ax, text in zip(self.axes[:, 0], y, strict=False):
            ax.set_ylabel(text)

    def legend(self, title: str = "", *, ncols: int | None = None) -> None:
        """Put one legend above the figure: the labels of all panels, each once."""
        found = [ax.get_legend_handles_labels() for ax in self.axes.ravel()]
        handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
        self.figure.legend(
            handles.values(), handles.keys(), loc="outside upper center", ncols=ncols or len(handles), title=title
        )


@contextmanager
def page(
    table: Table,
    *,
    column: str | None = None,
    row: str | int | None = None,
    title: str | Callable[[Any], str] | None = None,
    width: float = PAGE_WIDTH,
    height: float = 2.4,
    **options: Any,
) -> Iterator[Page]:
    """Return a context with a figure in linfed's style: a column of panels for each value of a column of the table.

    Parameters
    ----------
    table : Table
    column, row : str, optional
        Columns of the table, by whose values the panels lie side by side and one below the other; without them there
        is one. A number of rows has the same parts in each.
    title : str or callable, optional
        Of a column of panels: a format of its value, or a function of it; ``"n_samples = {}"``, by default.
    width, height : float
        Inches; a paper's page is 6.9 wide, one of its columns 3.35.
    **options
        Of ``matplotlib.pyplot.subplots``.

    Yields
    ------
    Page
        Its `figure` is drawn and saved in this style, also after the context has ended:
        ``sheet.figure.savefig("name.pdf")`` embeds TrueType fonts.

    Raises
    ------
    ValueError, TypeError
        For a table without rows, and arguments of another kind.

    Examples
    --------
    >>> import linfed as lf
    >>> table = lf.Table([{"m": m, "error": lf.Along([[m, 1.0]], round=[0, 1])} for m in (5, 10)])
    >>> with lf.page(table, column="m") as sheet:
    ...     sheet.curves("round", "error", by="m")
    ...     sheet.label("round", "error")
    >>> sheet.axes.shape
    (1, 2)
    """
    check_instance("table", table, Table, "a lf.Table")
    check_instance("title", title or "", (str, Callable), "a text or a function")  # type: ignore[arg-type]
    for name, size in (("width", width), ("height", height)):
        check_number(name, size, positive=True)
    if row is not None and not isinstance(row, str):
        check_integer("row", row)
    import matplotlib.pyplot as plt

    from linfed.figures.figure import StyledFigure

    if not len(table):
        raise ValueError(f"table = {shown(table)} has no rows to draw")
    told = title if callable(title) else _titled(title or f"{column} = {{}}")
    columns = [(value, part) for value, part in table.by(column)] if column else [(None, table)]
    keys: list[Any] = table.values(row) if isinstance(row, str) else [None] * (row or 1)
    with style():
        figure, axes = plt.subplots(
            len(keys),
            len(columns),
            figsize=(width, height),
            layout="constrained",
            squeeze=False,
            FigureClass=StyledFigure,
            **options,
        )
        drawn_from(figure, table)
        for ax, (value, _) in zip(axes[0], columns, strict=True):
            if column or title:
                ax.set_title(told(value))
        parts = [[part.where(**{row: key}) if isinstance(row, str) else part for _, part in columns] for key in keys]
        try:
            yield Page(figure, axes, parts)
            for ax in axes.ravel():
                plain_ticks(ax)
        except BaseException:
            plt.close(figure)
            raise


def _titled(title: str) -> Callable[[Any], str]:
    """Return a format of a value; a text that is none stays as it is."""

    def told(value: Any) -> str:
        try:
            return title.format(value)
        except (IndexError, KeyError, ValueError):
            return title

    return told


def curves(
    ax: Axes,
    table: Table,
    x: str,
    y: str,
    *,
    by: str = "method",
    scale: Callable[[Any], Any] = lambda values: values,
    at: Any = None,
    band: bool = True,
    labels: Mapping[Any, str] | None = None,
    looks: Mapping[Any, str | Look] | None = None,
    order: Sequence[Any] | None = None,
    predicted: str | None = None,
    **line_options: Any,
) -> None:
    """Draw a column against an axis for each method: the median over trials and a 10-90 % band.

    Parameters
    ----------
    ax : Axes
    table : Table
        One row for each method.
    x, y : str
        An axis (R,), or a column along it such as ``"floats_sent"``, and a column (trials, R) along the same.
    by : str
        The column that tells methods, or other lines, apart.
    scale : callable, optional
        What is drawn of y.
    at : index, optional
        Which places along the axis; all by default.
    band : bool
        Draw the band.
    labels, looks : mapping, optional
        What the legend calls a line, and whose look (`linfed.figures.style.LOOKS`) it has, or which, where not its own.
    order : sequence, optional
        Which lines, in which order; all by default.
    predicted : str, optional
        A column like y, (trials, R), of what theory predicts, e.g. ``lf.predict(..., trials=10).distance``: its median
        is a thin black line.
    **line_options
        Of a matplotlib line.
    """
    from matplotlib.axes import Axes

    check_instance("ax", ax, Axes, "matplotlib Axes")
    check_instance("table", table, Table, "a lf.Table")
    check_bool("band", band)
    chosen = slice(None) if at is None else at
    parts = dict(table.by(by))
    turns = _TURNS_OF.setdefault(ax.figure, {})
    for name in parts if order is None else check_among("order", order, parts, f"values of {by!r}"):
        _check_curve(parts[name], x, y, by, name)
        shape = (looks or {}).get(name, str(name) if str(name) in LOOKS else "")
        if not shape:
            shape = tuple(look("", turns.setdefault(name, len(turns))).values())
        values = scale(parts[name][y])[:, chosen]
        if not np.isfinite(values).any():  # all trials diverged
            continue
        draw_curve(
            parts[name][x][chosen],
            values,
            ax=ax,
            label=(labels or {}).get(name, label(name) if isinstance(name, str) else f"{by} = {name}"),
            ylabel=y,
            band=band,
            method=shape,
            options=line_options,
        )
        if predicted is not None:
            _check_curve(parts[name], x, predicted, by, name)
            draw_prediction(ax, parts[name][x][chosen], scale(parts[name][predicted])[:, chosen])


def as_one(ax: Axes, table: Table, x: str, y: str, names: Sequence[str], *, by: str = "method") -> None:
    """Draw lines that lie on each other as one: the median and the 10-90 % band of all their trials, in the first look.

    Those of the `names` that the table has are joined; the other arguments are as those of `curves`.
    """
    parts = [table.where(**{by: name}) for name in names if name in table.values(by)]
    for name, part in zip(names, parts, strict=False):
        _check_curve(part, x, y, by, name)
    if parts:
        text = "; ".join(label(part.rows[0][by]) for part in parts)
        values = np.concatenate([part[y] for part in parts])
        draw_curve(parts[0][x], values, ax=ax, label=text, ylabel=y, method=parts[0].rows[0][by])


def _check_curve(part: Table, x: str, y: str, by: str, name: Any) -> None:
    """Raise unless a line is one row, and its column lies along x."""
    if len(part) > 1:
        differ = [one for one in varying(part.rows) if not isinstance(part.rows[0].get(one), Along | np.ndarray)]
        raise ValueError(
            f"{len(part)} rows have {by} = {name!r}, and a line is one row: choose some with where(), or tell them "
            f"apart by {' or '.join(map(repr, differ)) or 'another column'}"
        )
    axes = part.axes(y)
    along = len(axes) == 2 and x in part.columns and part.axes(x) == axes[1:]
    if not along and (len(axes) != 2 or axes[1] != x):
        raise ValueError(f"{y!r} lies along {axes}, and a curve needs an array over trials and {x!r}")


def bars(ax: Axes, x: Any, values: Any, method: str, *, label: str = "", **options: Any) -> None:
    """Draw medians with 10-90 % bars against x (X,), each over the trials of values (trials, X) that are not NaN."""
    found = [np.quantile(part[~np.isnan(part)], (0.1, 0.5, 0.9), method="inverted_cdf") for part in values.T]
    low, middle, high = np.array(found).T
    shape = {"elinewidth": 0.7, "capsize": 1.5, **look(method), **options}
    ax.errorbar(x, middle, yerr=(middle - low, high - middle), label=label or method, **shape)


def steps(
    ax: Axes,
    table: Table,
    *,
    x: str = "tried_step_size",
    by: str = "method",
    labels: Mapping[Any, str] | None = None,
    looks: Mapping[Any, str | Look] | None = None,
) -> None:
    """Draw each method's score against the settings that were tried, the chosen one circled (`Tuning.columns`).

    Methods without a tuning and settings that diverged are left out; of several settings with one x the best counts.
    """
    for name, part in table.by(by):
        if "score" not in part.columns:
            continue
        tried, scores, best = np.asarray(part[x]), part["score"], int(part["best"])
        shape = look((looks or {}).get(name, str(name)))
        at = np.unique(tried)
        least = np.array([np.min(scores[tried == step]) for step in at])
        fine = np.isfinite(least)
        if not fine.any():
            continue
        ax.plot(at[fine], least[fine], label=(labels or {}).get(name, label(str(name))), **shape)
        ax.plot(tried[best], scores[best], "o", color=shape["color"], markersize=8, fillstyle="none")
    ax.set(xscale="log")


def tuning_figure(
    table: Table,
    ylabel: str,
    *,
    column: str,
    title: str,
    xlabel: str = "step size",
    told: str = "90 % of the tuning trials lie below; circled: the chosen step",
    ncols: int | None = None,
    log: bool = False,
    height: float = 2.3,
    sharey: bool = True,
    **options: Any,
) -> Figure:
    """Return a page of tuning curves: panels by a column of the table, `told` above, `options` those of `steps`."""
    with page(table, column=column, title=title, height=height, sharey=sharey) as sheet:
        for ax, part in sheet:
            steps(ax, part, **options)
        sheet.label(xlabel, ylabel, **({"yscale": "log"} if log else {}))
        sheet.legend(told, ncols=ncols)
    return sheet.figure


def median_level(ax: Axes, row: Table, column: str, text: str, **options: Any) -> None:
    """Draw the median of one row's column over its trials as a level, named in the first column of panels alone.

    `options` are those of `linfed.figures.style.draw_level`.
    """
    place = ax.get_subplotspec()
    named = place is None or place.is_first_col()
    draw_level(ax, float(np.median(row[column])), text if named else "", **options)


def heat_map(ax: Axes, values: Any, columns: Sequence[str], rows: Sequence[str], **options: Any) -> AxesImage:
    """Draw shares (rows, columns) from 0 to 1, evenly spaced whatever their labels say, and return the image."""
    shape = {"origin": "lower", "aspect": "auto", "cmap": "Blues", "vmin": 0, "vmax": 1, **options}
    image = ax.imshow(values, **shape)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(visible=False)
    return image


def place(labels: Sequence[float], values: Any) -> Any:
    """Return where values lie between the labels of a heat map's rows or columns, (median, 10 %, 90 %) over trials."""
    places = np.interp(values, labels, np.arange(len(labels)))
    return np.array(quantiles(places)) if np.ndim(places) else np.full(3, places)


def level(ax: Axes, x: Any, places: Any, **shape: Any) -> None:
    """Draw a line over a heat map, in a white halo: medians with 10-90 % bars, (points, 3) as `place` returns them."""
    from matplotlib import patheffects

    middle, low, high = np.transpose(places)
    halo = [patheffects.withStroke(linewidth=3.0, foreground="white")]
    ax.plot(x, middle, path_effects=halo, **shape)
    if (high > low).any():
        ax.errorbar(x, middle, yerr=[middle - low, high - middle], fmt="none", color=shape["color"], capsize=1.5)
