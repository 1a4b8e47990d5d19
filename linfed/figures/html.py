"""HTML for notebooks: small tables and figures in the colours of the page, light or dark; all text is escaped."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from linfed._types import Indices
from linfed.figures import style as plotting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 80
"""Maximum number of points per curve, as many as a figure of this size can resolve."""

_INK = "#010203"
"""Placeholder for the page's colour of text; no look may use this colour."""


def points(count: int) -> Indices:
    """Return the indices of at most `POINTS` of `count` points, evenly spaced, including the first and the last."""
    return np.unique(np.linspace(0, max(count - 1, 0), min(count, POINTS)).round().astype(np.int64))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table of strings."""
    title = f"<thead><tr>{_cells('th', head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table>{title}<tbody>{body}</tbody></table>"


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Return an HTML table of names and descriptions; rows with an empty description are left out."""
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows
        if text
    )
    return f"<table><tbody>{body}</tbody></table>"


def paragraph(text: str) -> str:
    """Return an HTML paragraph; an empty string for an empty text."""
    return f"<p>{escape(text)}</p>" if text else ""


def beside(*parts: str) -> str:
    """Arrange parts side by side, or one below the other if the page is narrow."""
    inner = "".join(f"<div>{part}</div>" for part in parts if part)
    return f'<div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">{inner}</div>'


def figure(draw: Callable[[Axes], object]) -> str:
    """Return a small SVG figure that the function `draw` fills; black becomes the page's colour of text."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: Any = dict.fromkeys(ink, _INK)
    with plotting.style(), mpl.rc_context(settings):
        figure = Figure(figsize=(plotting.COLUMN_WIDTH, 0.62 * plotting.COLUMN_WIDTH))
        figure.subplots_adjust(left=0.2, right=0.97, bottom=0.2, top=0.96)  # a layout engine would double the run time
        ax = figure.subplots()
        ax.grid(color="0.5", alpha=0.3)
        draw(ax)
        _few_ticks(ax)
        file = io.StringIO()
        figure.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _of_page(file.getvalue())


def _few_ticks(ax: Axes) -> None:
    """Label about four ticks of each axis with plain numbers, or with powers of ten if the range has enough of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = ax.get_ylim()
    decades = ax.get_yscale() == "log" and high / low > 100
    ax.yaxis.set_major_locator(LogLocator(numticks=5) if decades else MaxNLocator(4))
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_minor_locator(NullLocator())
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.5g}"))


def _of_page(svg: str) -> str:
    """Return an SVG file for embedding in a page, without style sheets and identifiers that would affect the page."""
    svg = svg[svg.index("<svg") :]
    for pattern in (r"<metadata>.*?</metadata>\s*", r"<style.*?</style>\s*", r' id="[A-Za-z]+_\d+"', r"<!--.*?-->\s*"):
        svg = re.sub(pattern, "", svg, flags=re.DOTALL)
    svg = re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), svg)  # enough for screens
    svg = re.sub(rf"{_INK}|#000000", "currentColor", svg)
    return svg.replace("<svg", '<svg style="max-width:100%;stroke-linejoin:round;stroke-linecap:butt"', 1)


def _cells(kind: str, values: Sequence[str]) -> str:
    return "".join(f"<{kind}>{escape(value)}</{kind}>" for value in values)
