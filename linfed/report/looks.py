"""How lines look, and which entry of a figure's legend each belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SYMBOLS = {
    **{"eta": "η", "kappa": "κ", "sigma": "σ", "gamma": "γ", "alpha": "α", "rho": "ρ"},  # noqa: RUF001
    **{"lambda": "λ", "delta": "δ", "theta": "θ", "mu": "μ", "Delta": "Δ", "Phi": "Φ", "Theta": "Θ"},
    **{"leq": "≤", "geq": "≥", "Vert": "‖", "times": "×", "cdot": "·", "sqrt": "√", "infty": "∞"},  # noqa: RUF001
    **{"mathdefault": "", "mathrm": "", "log": "log"},
}
"""Of matplotlib's mathematics what figures here have; other names stay as they are."""
RAISED = str.maketrans("0123456789+-\N{MINUS SIGN}", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
LOWERED = str.maketrans("0123456789k", "₀₁₂₃₄₅₆₇₈₉ₖ")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of the legend, and the look of its lines."""

    label: str
    colour: str
    dashes: str
    marker: str


class Legend:
    """Which entry of the legend an artist belongs to: by its label, else by its look, else by its colour alone."""

    def __init__(self, figure: Figure, used: Sequence[Axes]) -> None:
        self.entries: list[Entry] = []
        self._labels: dict[int, str] = {}
        self._looks: dict[tuple[str, ...], set[int]] = {}
        for ax in used:
            for container in ax.containers:
                parts = [part for part in _flat(container.get_children()) if part is not None]
                self._labels |= {id(part): str(container.get_label()) for part in parts}
            for line in ax.lines:
                self._add(line, self._label(line))
        for legend in (*figure.legends, *(found for ax in used if (found := ax.get_legend()) is not None)):
            for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
                if hasattr(handle, "get_marker"):
                    self._add(handle, text.get_text())

    def _label(self, artist: Any) -> str:
        label = self._labels.get(id(artist), str(artist.get_label()))
        return "" if label.startswith("_") else plain(label)

    def _add(self, line: Any, label: str) -> None:
        if not label or label.startswith("_"):
            return
        names = [entry.label for entry in self.entries]
        if plain(label) not in names:
            entry = Entry(
                label=plain(label), colour=colour_of(line.get_color()), dashes=dashes_of(line), marker=marker_of(line)
            )
            self.entries.append(entry)
            names.append(plain(label))
        for look in _looks(line):
            self._looks.setdefault(look, set()).add(names.index(plain(label)))

    def group(self, artist: Any) -> int | None:
        """Return the entry of a line or a collection, or None."""
        label, names = self._label(artist), [entry.label for entry in self.entries]
        if label in names:
            return names.index(label)
        looks = _looks(artist) if hasattr(artist, "get_marker") else [(filling_of(artist)[0],)]
        found = (self._looks.get(look, set()) for look in looks)
        return next((next(iter(groups)) for groups in found if len(groups) == 1), None)


def _flat(parts: Iterable[Any]) -> list[Any]:
    return [each for part in parts for each in (_flat(part) if isinstance(part, list | tuple) else [part])]


def colour_of(colour: Any) -> str:
    """Return a colour of matplotlib as ``#rrggbb``."""
    from matplotlib.colors import to_hex

    return to_hex(colour)


def _looks(line: Any) -> list[tuple[str, ...]]:
    """Return a line's look, from what tells most to its colour alone."""
    colour = colour_of(line.get_color())
    return [(colour, dashes_of(line), marker_of(line)), (colour,)]


def marker_of(line: Any) -> str:
    """Return a line's marker, empty where it has none."""
    marker = line.get_marker()
    return "" if marker in (None, "None", "none", "", " ") else str(marker)


def dashes_of(line: Any) -> str:
    """Return the lengths of dashes and gaps as SVG has them; matplotlib calls every pattern of one's own ``--``."""
    named = {"-": "", "--": "5 2.5", ":": "1.5 2", "-.": "6 2 1.5 2"}
    return named.get(line.get_linestyle(), "none")


def filling_of(part: Any) -> tuple[str, float]:
    """Return the colour of what is no line, and how opaque it is filled: 0 where only its edge is drawn."""
    from matplotlib.colors import to_rgba_array

    for colours, filled in ((part.get_facecolor(), True), (part.get_edgecolor(), False)):
        found = to_rgba_array(colours)
        if len(found) and found[0, 3] > 0:
            return colour_of(found[0, :3]), float(found[0, 3]) if filled else 0.0
    return "#000000", 0.0


def is_hollow(line: Any) -> bool:
    """Return whether a line's markers are drawn, not filled."""
    from matplotlib.colors import to_rgba
    from matplotlib.markers import MarkerStyle

    filled = line.get_fillstyle() != "none" and MarkerStyle(line.get_marker()).is_filled()
    return not filled or to_rgba(line.get_markerfacecolor())[3] == 0


def plain(text: str) -> str:
    r"""Return a text of matplotlib without its mathematics.

    >>> plain(r"$\mathdefault{10^{-2}}$"), plain(r"truncation $\Phi_k$"), plain("steps")
    ('10⁻²', 'truncation Φₖ', 'steps')
    """

    def mathematics(found: re.Match[str]) -> str:
        inside = re.sub(r"\\([A-Za-z]+) ?", lambda name: SYMBOLS.get(name[1], name[1]), found[1])
        inside = re.sub(r"\^(\{[^{}]*\}|.)", lambda part: part[1].strip("{}").translate(RAISED), inside)
        inside = re.sub(r"_(\{[^{}]*\}|.)", lambda part: _lowered(part[1].strip("{}")), inside)
        return re.sub(r"[{}]", "", inside)

    return re.sub(r"\s+", " ", re.sub(r"\$([^$]*)\$", mathematics, text)).strip()


def _lowered(text: str) -> str:
    found = text.translate(LOWERED)
    return found if found != text else f"_{text}"
