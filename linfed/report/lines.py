"""What a figure draws, read from matplotlib: panels of lines with their bands and bars, as shares of the panel.

Nothing here knows an experiment: whatever `plot` returns is read, and a figure with a map in it (an image, a mesh,
contours) is left to its picture.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from linfed._types import Array
from linfed.report.looks import Entry, Legend, colour_of, dashes_of, filling_of, is_hollow, marker_of, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

PLACES = 240
"""Along a panel's width: of longer lines one point is kept for each."""
FAR = 8.0
"""Points beyond a panel lie at most so many times its size away: a logarithm of zero is somewhere below."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line of a panel.

    Parameters
    ----------
    group : int or None
        Which entry of the legend it belongs to.
    places : ndarray (P, 2)
        Its points as shares of the panel from the lower left corner; NaN between pieces.
    values : ndarray (P, 2) or None
        The numbers there; None for a line that lies at no data, such as a level across the panel.
    low, high : ndarray (P,) or None
        Ends of its band or bars there, NaN where there is none.
    colour, dashes : str
        ``#rrggbb``, and lengths of dashes, empty for a whole line and ``none`` for markers alone.
    width : float
    marker : str
        As matplotlib has it, empty without one.
    size : float
        The marker's, in points.
    hollow : bool
        Whether the marker is only drawn, not filled.
    marked : ndarray of int
        Which points have a marker.
    """

    group: int | None
    places: Array
    values: Array | None
    low: Array | None
    high: Array | None
    colour: str
    dashes: str
    width: float
    marker: str
    size: float
    hollow: bool
    marked: Any


@dataclass(frozen=True, kw_only=True)
class Area:
    """A band or patch, filled (`opacity` above 0), or pieces of lines that belong to no single curve, such as bars."""

    group: int | None
    pieces: list[Array]
    colour: str
    opacity: float


@dataclass(frozen=True, kw_only=True)
class Ticks:
    """Where an axis has ticks, as shares of the panel, and what stands there."""

    places: list[float]
    labels: list[str]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel: titles, ticks, and what is drawn in it. Texts are (share across, share up, text)."""

    title: str
    xlabel: str
    ylabel: str
    x: Ticks
    y: Ticks
    curves: list[Curve] = field(default_factory=list)
    areas: list[Area] = field(default_factory=list)
    texts: list[tuple[float, float, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A figure's panels, in so many columns, and its legend; `about` is the legend's title."""

    panels: list[Panel]
    columns: int
    legend: list[Entry]
    about: str


def read(figure: Figure) -> Chart | None:
    """Return a figure that has been drawn as panels of lines, or None where it has a map in it, or no line."""
    used = [ax for ax in figure.axes if ax.get_visible() and (ax.lines or ax.collections or ax.images or ax.texts)]
    if any(_is_map(ax) for ax in used):
        return None
    legend = Legend(figure, used)
    panels = [_panel(ax, figure, legend) for ax in used if ax.axison]
    if not any(curve.values is not None and len(curve.values) > 1 for panel in panels for curve in panel.curves):
        return None
    found = [each for ax in used if (each := ax.get_legend()) is not None]
    titles = [plain(each.get_title().get_text()) for each in (*figure.legends, *found)]
    about = next((title for title in titles if title), "")
    places = [place for ax in used if (place := ax.get_subplotspec()) is not None]
    columns = max((place.get_gridspec().ncols for place in places), default=1)
    return Chart(panels=panels, columns=min(columns, len(panels)), legend=legend.entries, about=about)


def _is_map(ax: Axes) -> bool:
    from matplotlib.collections import QuadMesh
    from matplotlib.contour import ContourSet

    return bool(ax.images) or any(isinstance(part, QuadMesh | ContourSet) for part in ax.collections)


def _panel(ax: Axes, figure: Figure, legend: Legend) -> Panel:
    from matplotlib.container import ErrorbarContainer

    title, xlabel, ylabel = _titles(ax, figure)
    panel = Panel(title=title, xlabel=xlabel, ylabel=ylabel, x=_ticks(ax.xaxis), y=_ticks(ax.yaxis))
    bars = {id(one.lines[0]): one for one in ax.containers if isinstance(one, ErrorbarContainer)}
    caps = {id(cap) for one in bars.values() for cap in one.lines[1]}
    line: Any = None
    part: Any
    for part in ax.get_children():  # in the order in which they were drawn: a band comes after its line
        if part in ax.lines and id(part) not in caps and part.get_visible():
            line = part
            panel.curves.append(_curve(ax, line, legend.group(line), bars.get(id(line))))
        elif part in ax.collections or part in ax.patches:
            colour, opacity = filling_of(part)
            band = line is not None and opacity > 0 and colour == colour_of(line.get_color())
            if band and isinstance(panel.curves[-1].values, np.ndarray):
                low, high = _band(panel.curves[-1].values, part)
                panel.curves[-1] = replace(panel.curves[-1], low=low, high=high)
            group = panel.curves[-1].group if band else legend.group(part)
            paths = part.get_paths() if part in ax.collections else [part.get_path()]
            pieces = [_shares(ax, part.get_transform(), path.vertices) for path in paths]
            pieces = [piece[kept(piece)] if opacity == 0 else piece for piece in pieces if len(piece)]
            panel.areas.append(Area(group=group, pieces=pieces, colour=colour, opacity=opacity))
    inverse = ax.transAxes.inverted()
    for text in ax.texts:
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent()
            across, up = inverse.transform((box.x0, (box.y0 + box.y1) / 2))
            panel.texts.append((float(across), float(up), plain(text.get_text())))
    return panel


def _titles(ax: Axes, figure: Figure) -> tuple[str, str, str]:
    """Return title and labels, where they stand at another panel of the same row or column from there."""
    place = ax.get_subplotspec()
    others = [(other, spec) for other in figure.axes if (spec := other.get_subplotspec()) is not None]
    columns = [other for other, spec in others if place is not None and spec.colspan == place.colspan]
    rows = [other for other, spec in others if place is not None and spec.rowspan == place.rowspan]
    title = next((text for one in (ax, *columns[:1]) if (text := one.get_title())), "")
    xlabel = next((text for one in (ax, *columns[::-1]) if (text := one.get_xlabel())), "")
    ylabel = next((text for one in (ax, *rows) if (text := one.get_ylabel())), "")
    return plain(title), plain(xlabel), plain(ylabel)


def _ticks(axis: Axis) -> Ticks:
    """Return the ticks with a label that lie within the panel, also where a neighbour's labels stand for them."""
    found: dict[float, str] = {}
    for place, formatter in (
        (axis.get_majorticklocs(), axis.get_major_formatter()),
        (axis.get_minorticklocs(), axis.get_minor_formatter()),
    ):
        for at, label in zip(place, formatter.format_ticks(list(place)), strict=True):
            found.setdefault(float(at), plain(label))
    which = 0 if axis is axis.axes.xaxis else 1
    values = np.array(list(found), dtype=float)
    places = _shares(axis.axes, axis.axes.transData, np.column_stack([values, values]))[:, which]
    inside = [(float(at), text) for at, text in zip(places, found.values(), strict=True) if text and -0.01 < at < 1.01]
    return Ticks(places=[at for at, _ in inside], labels=[text for _, text in inside])


def _shares(ax: Any, transform: Any, points: Any) -> Array:
    """Return points as shares of the panel; those far beyond it, or at no logarithm, lie not so far."""
    with np.errstate(all="ignore"):
        found = ax.transAxes.inverted().transform(transform.transform(np.asarray(points, dtype=float).reshape(-1, 2)))
    return np.clip(found, -FAR, FAR)


def kept(places: Array) -> Any:
    """Return the indices of points that are kept: all of a short line, else one for each place along the panel."""
    if len(places) <= PLACES:
        return np.arange(len(places))
    across = places[:, 0]
    if (np.diff(across) < 0).any():  # a path, not a function
        return np.unique(np.linspace(0, len(places) - 1, PLACES).round().astype(int))
    first = np.unique((across * PLACES).astype(int), return_index=True)[1]
    return np.union1d(first, [len(places) - 1])


def _curve(ax: Any, line: Any, group: int | None, bars: Any) -> Curve:
    values = np.asarray(line.get_xydata(), dtype=float).reshape(-1, 2)
    places = _shares(ax, line.get_transform(), values)
    own = line.get_transform().contains_branch_seperately(ax.transData)
    ends: dict[str, Any] = {"low": None, "high": None}
    if bars is not None and bars.has_yerr:
        pieces = bars.lines[2][-1].get_segments()
        if len(pieces) == len(values):
            ends = {"low": np.array([p[0, 1] for p in pieces]), "high": np.array([p[-1, 1] for p in pieces])}
    chosen = kept(places)
    marked = _marked(line, len(values)) if marker_of(line) else np.array([], dtype=int)
    if len(chosen) < len(values):
        chosen = np.union1d(chosen, marked)
    return Curve(
        group=group,
        places=places[chosen],
        values=values[chosen] if all(own) else None,
        **{name: None if end is None else end[chosen] for name, end in ends.items()},
        colour=colour_of(line.get_color()),
        dashes=dashes_of(line),
        width=float(line.get_linewidth()),
        marker=marker_of(line),
        size=float(line.get_markersize()),
        hollow=is_hollow(line),
        marked=np.flatnonzero(np.isin(chosen, marked)),
    )


def _marked(line: Any, count: int) -> Any:
    """Return which of a line's points have a marker."""
    every = line.get_markevery()
    if isinstance(every, int | np.integer):
        every = (0, int(every))
    if isinstance(every, tuple) and all(isinstance(part, int | np.integer) for part in every):
        return np.arange(int(every[0]), count, int(every[1]))
    return np.arange(count) if every is None else np.arange(count)[every]


def _band(values: Array, part: Any) -> tuple[Array, Array]:
    """Return the ends of a band at a line's points, NaN beside it."""
    corners = np.concatenate([path.vertices for path in part.get_paths()] or [np.empty((0, 2))])
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    order = np.argsort(corners[:, 0], kind="stable")
    first, last = (np.searchsorted(corners[order, 0], values[:, 0], side=side) for side in ("left", "right"))
    for index in np.flatnonzero(first < last):
        there = corners[order[first[index] : last[index]], 1]
        low[index], high[index] = there.min(), there.max()
    return low, high
