"""Figures of a table: a grid of panels with curves, tuning curves, bars or heat maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from linfed._names import is_share
from linfed.checks import (
    check_among,
    check_bool,
    check_instance,
    check_integer,
    check_number,
    check_text,
    short_repr,
    suggestion,
)
from linfed.figures.curves import draw_curve, draw_prediction
from linfed.figures.style import (
    LOOKS,
    PAGE_WIDTH,
    Look,
    format_texts,
    inches,
    label,
    line_properties,
    line_style,
    plain_ticks,
    style,
)
from linfed.numerics.quantiles import quantiles
from linfed.tables.export import distinguishing, short_names, varying
from linfed.tables.labeled_array import LabeledArray
from linfed.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Figures: TypeAlias = "dict[str, Figure]"
"""Figures of an experiment, by the suffix of their file names."""


SIZE_LABELS = {
    "n_clients": "clients n",
    "n_samples": "samples m",
    "dim": "dimension d",
    "rank": "rank k",
    "participants": "participants p",
    "condition": "condition number",
    "noise_std": "noise std",
    "n_rounds": "rounds T",
}
"""Texts of the horizontal axes, by the column of the size."""

_TURNS_OF: WeakKeyDictionary[Any, dict[Any, int]] = WeakKeyDictionary()
"""For each figure: the index of the look of every line without a fixed look, the same in all panels."""

_ROWS_OF: WeakKeyDictionary[Any, Table] = WeakKeyDictionary()
"""For each figure: the rows of the table from which it was drawn."""


def drawn_from(figure: Figure, table: Table) -> Figure:
    """Record the table from which a finished figure was drawn, for its caption, and return the figure.

    Mathematical symbols in its texts become italics, and long numbers have commas. `panels` does all this.
    """
    _ROWS_OF[figure] = table
    format_texts(figure)
    return figure


def rows_of(figure: Figure) -> Table | None:
    """Return the rows from which a figure was drawn; None unless `panels` or `drawn_from` recorded them."""
    return _ROWS_OF.get(figure)


@dataclass(frozen=True)
class PanelGrid:
    """Figure with a grid of panels, and the part of the table that each panel shows.

    Parameters
    ----------
    figure : Figure
        The matplotlib figure.
    axes : ndarray of Axes (rows, columns)
        The panels.
    parts : list of lists of Table
        The part of the table for each panel, arranged as `axes`.
    """

    figure: Figure
    axes: Any
    parts: list[list[Table]]

    def __iter__(self) -> Iterator[tuple[Axes, Table]]:
        """Yield each panel with its part of the table, row by row; skip panels whose part is empty."""
        for line in range(len(self.parts)):
            yield from self.row(line)

    def row(self, number: int) -> Iterator[tuple[Axes, Table]]:
        """Yield the panels of one row with their parts of the table; skip panels whose part is empty."""
        number = check_integer("number", number, minimum=0, maximum=len(self.parts) - 1)
        return ((ax, part) for ax, part in zip(self.axes[number], self.parts[number], strict=True) if len(part))

    def curves(self, x: str, y: str, **options: Any) -> None:
        """Plot a column against an axis in every panel; arguments as in `plot_curves`."""
        for ax, part in self:
            plot_curves(ax, part, x, y, **options)

    def label(self, x: str = "", *y: str, **options: Any) -> None:
        """Label the x axes of the last row and the y axis of each row; set the `options` of ``Axes.set`` everywhere."""
        for ax in self.axes.ravel():
            ax.set(**options)
        for ax in self.axes[-1]:
            ax.set_xlabel(x)
        for ax, text in zip(self.axes[:, 0], y, strict=False):
            ax.set_ylabel(text)

    def legend(self, title: str = "", *, ncols: int | None = None) -> None:
        """Add one legend above the figure, with the labels of all panels."""
        check_text("title", title)
        handles, texts = legend_entries(self.axes)
        columns = len(handles) if ncols is None else check_integer("ncols", ncols)
        self.figure.legend(handles, texts, loc="outside upper center", ncols=columns, title=title)


def legend_entries(axes: Any) -> tuple[list[Any], list[str]]:
    """Return the handles and labels of an array of panels, without repetition."""
    found = [ax.get_legend_handles_labels() for ax in axes.ravel()]
    handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
    return list(handles.values()), list(handles)


@contextmanager
def panels(
    table: Table,
    *,
    column: str | int | None = None,
    row: str | int | None = None,
    title: str | Callable[[Any], str] | None = None,
    width: float | str = PAGE_WIDTH,
    height: float = 2.4,
    **options: Any,
) -> Iterator[PanelGrid]:
    """Make a figure with a grid of panels, one for each value of a column of the table, in linfed's style.

    Use it in a ``with`` statement: what is plotted inside has the style.

    Parameters
    ----------
    table : Table
        The table to plot.
    column : str or int, optional
        Column of the table; the figure has one column of panels for each of its values, by default one in all. An
        integer is the number of columns, which all show the same parts of the table.
    row : str or int, optional
        Column of the table; the figure has one row of panels for each of its values, by default one in all. An integer
        is the number of rows, which all show the same parts of the table.
    title : str or callable, optional
        Title of each column of panels: a format string for the value of `column`, or a function of it. The default is
        e.g. ``"n_samples = {}"``.
    width : float or {"column", "page"}
        Width in inches, or of a column (3.35) or a page (6.9) of a paper with two columns.
    height : float
        Height in inches.
    **options
        Further arguments of ``matplotlib.pyplot.subplots``, such as ``sharey=True``.

    Yields
    ------
    PanelGrid
        The panels. Their `figure` keeps the style after the context has ended; ``lf.save_figure(sheet.figure, "name")``
        writes it as PNG and PDF.

    Raises
    ------
    ValueError
        If the table has no rows, or a size is not positive.
    TypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import linfed as lf
    >>> table = lf.Table([{"m": m, "error": lf.LabeledArray([[m, 1.0]], round=[0, 1])} for m in (5, 10)])
    >>> with lf.panels(table, column="m") as sheet:
    ...     sheet.curves("round", "error", by="m")
    ...     sheet.label("round", "error")
    >>> sheet.axes.shape
    (1, 2)
    """
    check_instance("table", table, Table, "a lf.Table")
    check_instance("title", title or "", (str, Callable), "a text or a function")  # type: ignore[arg-type]
    if taken := [name for name in ("nrows", "ncols", "figsize", "squeeze", "layout", "FigureClass") if name in options]:
        raise TypeError(f"panels() sets {taken[0]} itself: use row=, column=, width= and height= instead")
    size = inches(width), check_number("height", height, positive=True)
    column, row = (
        one if one is None or isinstance(one, str) else check_integer(name, one)
        for name, one in (("column", column), ("row", row))
    )
    import matplotlib.pyplot as plt

    from linfed.figures.figure import StyledFigure

    if not len(table):
        raise ValueError(f"table = {short_repr(table)} must have at least one row")
    format_title = title if callable(title) else _titled(title or f"{column} = {{}}")
    columns: list[Any] = [*table.groupby(column)] if isinstance(column, str) else [(None, table)] * (column or 1)
    keys: list[Any] = table.unique(row) if isinstance(row, str) else [None] * (row or 1)
    with style():
        figure, axes = plt.subplots(
            len(keys),
            len(columns),
            figsize=size,
            layout="constrained",
            squeeze=False,
            FigureClass=StyledFigure,
            **options,
        )
        for ax, (value, _) in zip(axes[0], columns, strict=True):
            if isinstance(column, str) or title:
                ax.set_title(format_title(value))
        parts = [[part.select(**{row: key}) if isinstance(row, str) else part for _, part in columns] for key in keys]
        try:
            yield PanelGrid(figure, axes, parts)
            for ax in axes.ravel():
                plain_ticks(ax)
            drawn_from(figure, table)
        except BaseException:
            plt.close(figure)
            raise


def _titled(title: str) -> Callable[[Any], str]:
    """Return a function that formats a value; a title that is not a valid format string stays as it is."""

    def format_title(value: Any) -> str:
        try:
            return title.format(value)
        except (AttributeError, LookupError, TypeError, ValueError):
            return title

    return format_title


def plot_curves(
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
    """Plot a column against an axis for each method: the median over trials and a 10-90 % band.

    Parameters
    ----------
    ax : Axes
        Matplotlib axes to plot into.
    table : Table
        Table with one row for each line.
    x, y : str
        The axis (R,) to plot against, or a column along it such as ``"floats_sent"``, and the column to plot, (trials,
        R), along the same axis.
    by : str
        The column that distinguishes the lines, by default the method.
    scale : callable, optional
        Function that is applied to the values of `y` before plotting.
    at : index, optional
        Indices along the axis to plot; all by default.
    band : bool
        If True, draw the band.
    labels : mapping, optional
        Labels in the legend, by the value of `by`. Other keys are ignored, so one mapping serves several panels.
    looks : mapping, optional
        Looks by the value of `by`, as `labels`: the name of a method in `linfed.figures.style.LOOKS`, or a tuple of
        colour, marker and line style. By default the look of the method itself.
    order : sequence, optional
        The values of `by` to plot, in this order; all by default.
    predicted : str, optional
        Column of predictions, (trials, R), such as ``lf.predict(..., trials=10).distance``. Its median is a thin black
        line.
    **line_options
        Properties of a matplotlib line.

    Examples
    --------
    >>> import linfed as lf
    >>> import matplotlib.pyplot as plt
    >>> run = lf.Run(
    ...     algorithm=lf.FedRep(rank=2, step_size=0.5),
    ...     problem=lf.SharedRepresentation(n_clients=30, dim=10, rank=2),
    ...     data=lf.FreshSamples(n_samples=6),
    ...     n_rounds=10,
    ...     trials=5,
    ... )
    >>> table = lf.sweep(lf.grid(run, **{"data.n_samples": (6, 12)}))
    >>> figure, ax = plt.subplots()
    >>> lf.plot_curves(ax, table, "round", "subspace_distance", by="n_samples")
    >>> [line.get_label() for line in ax.lines]
    ['n_samples = 6', 'n_samples = 12']
    >>> plt.close(figure)
    """
    from matplotlib.axes import Axes

    check_instance("ax", ax, Axes, "matplotlib Axes")
    check_instance("table", table, Table, "a lf.Table")
    band = check_bool("band", band)
    for name, text in (("x", x), ("y", y), ("by", by)):
        check_text(name, text)
    for name, mapping in (("labels", labels), ("looks", looks)):
        check_instance(name, mapping, (Mapping, NoneType), f"a mapping by the values of {by!r}")
    for name, look in (looks or {}).items():
        _check_look(f"looks[{name!r}]", look)
    check_instance("scale", scale, Callable, "a function of the values")  # type: ignore[arg-type]
    line_options = line_properties(line_options)
    chosen = slice(None) if at is None else at
    if by == "method" and not any(name.rpartition(".")[2] == by for name in table.columns):
        words = [short_names(table.rows)[name] for name in distinguishing(table.rows)[:3]]
        differ = f", e.g. {', '.join(map(repr, words))}" if words else ""
        raise KeyError(f"table has no column 'method': set by= to the column that distinguishes the lines{differ}")
    parts = dict(table.groupby(by))
    turns = _TURNS_OF.setdefault(ax.figure, {})
    for name in parts if order is None else check_among("order", order, parts, f"values of {by!r}"):
        _check_curve(parts[name], x, y, by, name)
        shape = (looks or {}).get(name, str(name) if str(name) in LOOKS else "")
        if not shape:
            shape = tuple(line_style("", turns.setdefault(name, len(turns))).values())
        _check_places(chosen, len(parts[name][x]))
        values = scale(parts[name][y])[:, chosen]
        if not np.isfinite(values).any():  # all trials diverged
            continue
        draw_curve(
            parts[name][x][chosen],
            values,
            ax=ax,
            label=(labels or {}).get(name, label(name) if isinstance(name, str) else f"{by} = {name}"),
            ylabel=y,
            log=not is_share(y),
            band=band,
            method=shape,
            options=line_options,
        )
        if predicted is not None:
            _check_curve(parts[name], x, predicted, by, name)
            draw_prediction(ax, parts[name][x][chosen], scale(parts[name][predicted])[:, chosen])


def label_ends(ax: Axes, *, gap: float = 0.075) -> None:
    """Write the label of each line at its last point inside the panel, in its colour (darker if it is pale).

    The legend does not have these labels.

    Call it after the limits are set. Labels at the right end are moved apart to `gap` for each of their lines, a share
    of the panel's height, and stay below its top.
    """
    to_share = ax.transData + ax.transAxes.inverted()
    ends = []
    for line in ax.lines:
        text = str(line.get_label())
        points = to_share.transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
        inside = np.flatnonzero(((points >= -0.01) & (points <= 1.01)).all(axis=1))
        if not text.startswith("_") and inside.size:
            ends.append((*points[inside[-1]], text, _for_text(line.get_color())))
            line.set_label(f"_{text}")
    ends.sort(key=lambda end: end[1])
    at_right = [end for end in ends if end[0] > 0.9]
    heights = _moved_apart([y for _, y, *_ in at_right], [gap * (text.count("\n") + 1) for *_, text, _ in at_right])
    shape: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 6}
    for (_, _, text, colour), height in zip(at_right, heights, strict=True):
        ax.annotate(text, (1.0, height), xytext=(3, 0), color=colour, verticalalignment="center", **shape)
    for x, y, text, colour in ends:
        if x <= 0.9:
            ax.annotate(text, (x, y), xytext=(3, 0), color=colour, verticalalignment="bottom", **shape)


def _for_text(colour: Any) -> tuple[float, ...]:
    """Return a colour whose luminance is at most 0.3, so that small text in it can be read on white."""
    from matplotlib.colors import to_rgb

    parts = np.array(to_rgb(colour))
    luminance = float(parts**2.2 @ (0.2126, 0.7152, 0.0722))
    return tuple(parts * min(1.0, (0.3 / max(luminance, 0.3)) ** (1 / 2.2)))


def _moved_apart(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return increasing places of the middles of boxes, moved up, or down from 1, until no two boxes overlap.

    >>> _moved_apart([0.2, 0.3, 0.9, 0.9], [0.2, 0.2, 0.2, 0.2])
    [0.2, 0.4, 0.8, 1.0]
    """
    found = list(places)
    for turn in range(1, len(found)):
        found[turn] = max(found[turn], found[turn - 1] + (heights[turn - 1] + heights[turn]) / 2)
    if found and found[-1] > 1.0:
        found[-1] = max(places[-1], 1.0)
    for turn in range(len(found) - 2, -1, -1):
        found[turn] = min(found[turn], found[turn + 1] - (heights[turn] + heights[turn + 1]) / 2)
    return [round(place, 6) for place in found]


def as_one(ax: Axes, table: Table, x: str, y: str, names: Sequence[str], *, by: str = "method") -> None:
    """Plot coinciding lines as one: the median and the 10-90 % band of all their trials, in the look of the first.

    `names` lists the lines to join; names that the table does not have are ignored. The other arguments are as in
    `plot_curves`.
    """
    names = [name for name in names if name in table.unique(by)]
    parts = [table.select(**{by: name}) for name in names]
    for name, part in zip(names, parts, strict=True):
        _check_curve(part, x, y, by, name)
    if parts:
        text = "; ".join(label(part.rows[0][by]) for part in parts)
        values = np.concatenate([part[y] for part in parts])
        draw_curve(parts[0][x], values, ax=ax, label=text, ylabel=y, log=not is_share(y), method=parts[0].rows[0][by])


def _check_look(name: str, look: object) -> None:
    """Raise unless a look is the name of a method that has one, or a tuple of three parts."""
    if not (look in LOOKS if isinstance(look, str) else isinstance(look, tuple | list) and len(look) == 3):
        near = suggestion(look, LOOKS) if isinstance(look, str) else ""
        wanted = "a method in linfed.figures.style.LOOKS, or a tuple of colour, marker and line style"
        raise ValueError(f"{name} = {short_repr(look)} must be {wanted}{near}")


def _check_places(at: Any, points: int) -> None:
    """Raise unless indices choose some of a number of points along an axis."""
    try:
        fits = np.ndim(np.arange(points)[at]) == 1
    except (IndexError, OverflowError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"at = {short_repr(at)} must be a slice or a sequence of indices below {points}")


def _check_curve(part: Table, x: str, y: str, by: str, name: Any) -> None:
    """Raise unless the line has exactly one row and its column `y` has the axis x."""
    if len(part) > 1:
        differ = [one for one in varying(part.rows) if not isinstance(part.rows[0].get(one), LabeledArray | np.ndarray)]
        raise ValueError(
            f"{len(part)} rows have {by} = {name!r}, but a line shows one row; use select(), or set by= to "
            f"{' or '.join(map(repr, differ)) or 'another column'}"
        )
    axes = part.axes(y)
    along = len(axes) == 2 and x in part.columns and part.axes(x) == axes[1:]
    if not along and (len(axes) != 2 or axes[1] != x):
        raise ValueError(f"{y!r} must have the axes ('trial', {x!r}), got {axes}")


def bars(ax: Axes, x: Any, values: Any, method: str | Look, *, label: str = "", **options: Any) -> None:
    """Plot medians with 10-90 % bars against x (X,), over the trials of values (trials, X) that are not NaN.

    Points without such a trial are left out, and so is a method without any point.
    """
    known = ~np.isnan(values).all(axis=0)
    if not known.any():
        return
    found = [np.quantile(part[~np.isnan(part)], (0.1, 0.5, 0.9), method="inverted_cdf") for part in values.T[known]]
    low, middle, high = np.array(found).T
    shape = {"elinewidth": 0.7, "capsize": 1.5, **line_style(method), **options}
    ax.errorbar(np.asarray(x)[known], middle, yerr=(middle - low, high - middle), label=label or str(method), **shape)


def intervals(ax: Axes, x: Any, values: Any, method: str | Look, *, label: str = "", **options: Any) -> None:
    """Plot estimates with their intervals against x (X,), without ends that are 0 or infinite.

    Parameters
    ----------
    ax : Axes
        Matplotlib axes to plot into.
    x : array_like (X,)
        Places of the points.
    values : array_like (X, 3)
        Estimate, lower and upper end at each place, as the intervals of `linfed.statistics`. Points without a finite
        estimate are left out.
    method : str or Look
        Method whose look the points have.
    label : str, optional
        Label in the legend; by default the name of the method.
    **options
        Properties of the points, as in `matplotlib.axes.Axes.errorbar`.
    """
    places, found = np.asarray(x), np.reshape(values, (-1, 3))
    known = np.isfinite(found[:, 0])
    middle, low, high = found[known].T
    ends = np.where(low > 0, low, middle), np.where(np.isfinite(high), high, middle)
    reach = np.maximum([middle - ends[0], ends[1] - middle], 0.0)
    shape = {"elinewidth": 0.7, "capsize": 1.5, **line_style(method), "linestyle": "none", **options}
    ax.errorbar(places[known], middle, yerr=reach, label=label or str(method), **shape)


def draw_predicted(ax: Axes, x: Any, values: Any, *, label: str = "predicted", **options: Any) -> None:
    """Plot predictions (X,) against x as a dotted black line, in the order of x."""
    order = np.argsort(x)
    shape = {"color": "black", "linewidth": 0.9, "linestyle": ":", "zorder": 3, **options}
    ax.plot(np.asarray(x)[order], np.asarray(values)[order], label=label, **shape)


def steps(
    ax: Axes,
    table: Table,
    *,
    x: str = "tried_step_size",
    by: str = "method",
    labels: Mapping[Any, str] | None = None,
    looks: Mapping[Any, str | Look] | None = None,
) -> None:
    """Plot each method's tuning score against the settings tried (`TuningResult.columns`), with the chosen one circled.

    Methods without tuning and settings that diverged or were stopped are left out. If several settings have the same x,
    the best score is shown.
    """
    for name, part in table.groupby(by):
        if "score" not in part.columns:
            continue
        tried, scores, best = np.asarray(part[x]), part["score"], int(part["best"])
        if "stopped" in part.columns:
            scores = np.where(part["stopped"], np.inf, scores)
        shape = line_style((looks or {}).get(name, str(name)))
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
    legend_title: str = "90 % of the tuning trials lie below; circled: the chosen step",
    ncols: int | None = None,
    log: bool = False,
    height: float = 2.3,
    sharey: bool = True,
    **options: Any,
) -> Figure:
    """Plot tuning curves, one panel per value of a column, below `legend_title`; `options` as in `steps`."""
    with panels(table, column=column, title=title, height=height, sharey=sharey) as sheet:
        for ax, part in sheet:
            steps(ax, part, **options)
        sheet.label(xlabel, ylabel, **({"yscale": "log"} if log else {}))
        sheet.legend(legend_title, ncols=ncols)
    return sheet.figure


def heat_map(ax: Axes, values: Any, columns: Sequence[str], rows: Sequence[str], **options: Any) -> AxesImage:
    """Plot shares (rows, columns) from 0 to 1 as an image with evenly spaced cells, and return the image."""
    shape = {"origin": "lower", "aspect": "auto", "cmap": "Blues", "vmin": 0, "vmax": 1, **options}
    image = ax.imshow(values, **shape)
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(visible=False)
    return image


def place(labels: Sequence[float], values: Any) -> Any:
    """Return the positions of values on an axis of a heat map, as (median, 10 %, 90 %) over trials."""
    places = np.interp(values, labels, np.arange(len(labels)))
    return np.array(quantiles(places)) if np.ndim(places) else np.full(3, places)


def level(ax: Axes, x: Any, places: Any, **shape: Any) -> None:
    """Draw a line with a white halo over a heat map: medians with 10-90 % bars, (points, 3) as `place` returns them."""
    from matplotlib import patheffects

    middle, low, high = np.transpose(places)
    halo = [patheffects.withStroke(linewidth=3.0, foreground="white")]
    ax.plot(x, middle, path_effects=halo, **shape)
    if (high > low).any():
        ax.errorbar(x, middle, yerr=[middle - low, high - middle], fmt="none", color=shape["color"], capsize=1.5)
