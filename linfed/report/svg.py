"""A chart as HTML: an SVG for each panel, a legend of buttons, and the numbers that a small script shows on hover."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

from linfed._types import Array
from linfed.report.lines import Chart, Curve, Panel, Ticks
from linfed.report.looks import Entry

WIDTH, HEIGHT = 240, 165
"""Of a panel's inside, in units of which a panel of usual width has one a pixel."""
TOP, UNTITLED, RIGHT, BOTTOM = 24, 8, 18, 40
LETTER, LINE = 5.7, 13
"""Width and height of a tick's label, of a letter and of a line."""


def chart(found: Chart) -> str:
    """Return a chart as HTML; `symbols` must be in the same page."""
    legend = "".join(_button(number, entry) for number, entry in enumerate(found.legend))
    values = json.dumps([_values(panel, found.legend) for panel in found.panels], separators=(",", ":"))
    values = values.replace("</", "<\\/")
    return (
        '<div class="chart">'
        + (f'<p class="about">{escape(found.about)}</p>' if found.about else "")
        + (f'<div class="legend" role="group" aria-label="lines shown">{legend}</div>' if legend else "")
        + f'<div class="panels" style="--columns:{found.columns}">{"".join(map(_panel, found.panels))}</div>'
        + f'<script type="application/json">{values}</script></div>'
    )


def symbols(charts: Iterable[Chart]) -> str:
    """Return the markers of these charts, each once."""
    from matplotlib.markers import MarkerStyle

    found = {curve.marker: "" for one in charts for panel in one.panels for curve in panel.curves if len(curve.marked)}
    found |= {entry.marker: "" for one in charts for entry in one.legend}
    for marker in found:
        style = MarkerStyle(marker or "o")
        path = style.get_path().transformed(style.get_transform())
        parts = []
        for corners, code in path.iter_segments(curves=False, simplify=False):
            points = " ".join(f"{x:.2f} {-y:.2f}" for x, y in np.reshape(corners, (-1, 2)))
            parts.append({1: f"M{points}", 2: f"L{points}", 79: "Z"}[int(code)])
        found[marker] = f'<path id="{_id(marker)}" vector-effect="non-scaling-stroke" d="{"".join(parts)}"/>'
    return f'<svg class="symbols" width="0" height="0" aria-hidden="true"><defs>{"".join(found.values())}</defs></svg>'


def _id(marker: str) -> str:
    return f"mark-{(marker or 'o').encode().hex()}"


def _button(number: int, entry: Entry) -> str:
    """Return the legend's entry: a button that shows and hides its lines."""
    line = "" if entry.dashes == "none" else f'<path d="M1 7H27"{_dashed(entry.dashes)}/>'
    mark = f'<use href="#{_id(entry.marker)}" transform="translate(14 7) scale(7)"/>' if entry.marker else ""
    swatch = f'<svg width="28" height="14" aria-hidden="true"{_ink(entry.colour)}>{line}{mark}</svg>'
    return f'<button type="button" aria-pressed="true" data-group="{number}">{swatch}{escape(entry.label)}</button>'


def _dashed(dashes: str) -> str:
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _ink(colour: str, *, fill: bool = False) -> str:
    """Return the attributes of a colour; black and greys are the text's colour, which a dark page has light."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    if max(red, green, blue) - min(red, green, blue) < 16:
        opacity = f' opacity="{1 - 0.8 * red / 255:.2g}"'
        return (' fill="currentColor"' if fill else ' stroke="currentColor"') + opacity
    return f' fill="{colour}"' if fill else f' stroke="{colour}" color="{colour}"'


def _panel(panel: Panel) -> str:
    """Return a panel; what is drawn in it lies in an inner SVG, which cuts it off at the frame."""
    left = round(min(max([4.0, *(LETTER * len(text) for text in panel.y.labels)]), 140)) + 12
    left += 16 if panel.ylabel else 0
    tall = max(HEIGHT, LINE * len(panel.y.labels))
    top = TOP if panel.title else UNTITLED
    width, height = left + WIDTH + RIGHT, top + tall + BOTTOM
    about = " against ".join(text for text in (panel.ylabel, panel.xlabel) if text)
    told = escape(": ".join(text for text in (panel.title, about) if text) or "panel")
    parts = [
        f'<g class="axes"><rect x="{left}" y="{top}" width="{WIDTH}" height="{tall}"/>',
        *_down(panel.x, left, top, tall),
        *_across(panel.y, left, top, tall),
        f'<text class="title" x="{left + WIDTH / 2:g}" y="15">{escape(panel.title)}</text>',
        f'<text class="label" x="{left + WIDTH / 2:g}" y="{height - 6}">{escape(panel.xlabel)}</text>',
        f'<text class="label" transform="translate(12 {top + tall / 2:g}) rotate(-90)">{escape(panel.ylabel)}</text>',
        "</g>",
        f'<svg class="inside" x="{left}" y="{top}" width="{WIDTH}" height="{tall}">',
        *(_area(area.pieces, area.colour, area.opacity, area.group, tall) for area in panel.areas),
        *(_curve(curve, number, tall) for number, curve in enumerate(panel.curves)),
        '<path class="cross" d=""/></svg>',
        *(
            f'<text class="note" x="{left + WIDTH * x:.1f}" y="{top + tall * (1 - y):.1f}">{escape(text)}</text>'
            for x, y, text in panel.texts
        ),
    ]
    return (
        f'<div class="panel" tabindex="0" role="group" aria-label="{told}; arrow keys move along the lines">'
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{told}">{"".join(parts)}</svg>'
        '<div class="tip" role="status" hidden></div></div>'
    )


def _down(ticks: Ticks, left: int, top: int, tall: float) -> Iterable[str]:
    """Yield the horizontal axis: a line and a label for each tick, but labels that would touch."""
    free = -math.inf
    for at, text in sorted(zip(ticks.places, ticks.labels, strict=True)):
        x, half = left + WIDTH * at, LETTER * len(text) / 2
        yield f'<path class="grid" d="M{x:.1f} {top}v{tall}"/>'
        if x - half > free:
            free = x + half + 4
            yield f'<text x="{x:.1f}" y="{top + tall + 14}">{escape(text)}</text>'


def _across(ticks: Ticks, left: int, top: int, tall: float) -> Iterable[str]:
    """Yield the vertical axis."""
    free = -math.inf
    for at, text in sorted(zip(ticks.places, ticks.labels, strict=True)):
        y = top + tall * (1 - at)
        yield f'<path class="grid" d="M{left} {y:.1f}h{WIDTH}"/>'
        if tall * at > free:
            free = tall * at + 0.75 * LINE
            short = text if LETTER * len(text) <= 140 else f"{text[:23]}…"
            yield f'<text class="y" x="{left - 5}" y="{y + 3.5:.1f}">{escape(short)}</text>'


def _area(pieces: list[Array], colour: str, opacity: float, group: int | None, tall: float) -> str:
    """Return bands and patches, or where nothing is filled, lines."""
    path = "".join(_path(piece, tall) + ("Z" if opacity else "") for piece in pieces)
    if not path:
        return ""
    if opacity:
        return f'<path{_of(group)} fill-opacity="{min(opacity, 0.5):.2g}"{_ink(colour, fill=True)} d="{path}"/>'
    return f'<path{_of(group)} fill="none" stroke-width="1"{_ink(colour)} d="{path}"/>'


def _of(group: int | None) -> str:
    return "" if group is None else f' data-group="{group}"'


def _curve(curve: Curve, number: int, tall: float) -> str:
    """Return a line and its markers."""
    drawn = ' stroke="none"' if curve.dashes == "none" else _dashed(curve.dashes)
    path = f'<path data-curve="{number}"{drawn} d="{_path(curve.places, tall)}"/>'
    scale, mark = f"scale({1.15 * curve.size:g})", _id(curve.marker)
    marks = "".join(
        f'<use href="#{mark}" transform="translate({WIDTH * x:.1f} {tall * (1 - y):.1f}) {scale}"/>'
        for x, y in curve.places[curve.marked]
        if np.isfinite([x, y]).all()
    )
    hollow = ' fill-opacity="0"' if curve.hollow else ""
    marks = f'<g class="marks"{hollow}>{marks}</g>' if marks else ""
    look = f'stroke-width="{1.25 * curve.width:.2g}"{_ink(curve.colour)}'
    return f'<g class="curve"{_of(curve.group)} {look}>{path}{marks}</g>'


def _path(places: Array, tall: float) -> str:
    """Return the points as a path that begins anew after a gap."""
    told, pen = [], "M"
    for x, y in places:
        if np.isfinite([x, y]).all():
            told.append(f"{pen}{WIDTH * x:.1f} {tall * (1 - y):.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(told)


def _values(panel: Panel, legend: list[Entry]) -> dict[str, Any]:
    """Return what the script shows of a panel: its lines' numbers at the points of their paths, in that order."""
    found = []
    for number, curve in enumerate(panel.curves):
        if curve.values is None:
            continue
        there = np.isfinite(curve.places).all(axis=1)
        name = "" if curve.group is None else legend[curve.group].label
        told: dict[str, Any] = {"c": number, "g": curve.group, "n": name, "k": curve.colour}
        told |= {"x": _short(curve.values[there, 0]), "y": _short(curve.values[there, 1])}
        if curve.low is not None and curve.high is not None:
            told |= {"l": _short(curve.low[there]), "h": _short(curve.high[there])}
        found.append(told)
    return {"x": panel.xlabel, "y": panel.ylabel, "lines": found}


def _short(values: Array) -> list[float | None]:
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]
