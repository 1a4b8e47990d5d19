"""The figures of saved runs: drawn from their tables, or else the PNG files beside the records."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from linfed.errors import UsageError
from linfed.figures.png import shrunk
from linfed.figures.style import style
from linfed.plotting.captions import captions
from linfed.report.scoreboard import Record
from linfed.reproduction.experiments import load
from linfed.reproduction.records import captions_of
from linfed.reproduction.run import load_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

SVG_BYTES = 200_000
"""Size of the largest SVG file that a report takes; a larger figure becomes a PNG."""

PIXELS = 1400
"""Width to which wider PNG files are reduced."""

DPI = 200.0
"""Pixels of a PNG for each inch of its figure."""

SHOWN_DPI = 144.0
"""Pixels of the page for each inch of a figure: a text of 8 points is then as large as the page's own."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of an experiment.

    Parameters
    ----------
    stem : str
        The name of its file, without the ending.
    caption : str
    kind : str
        ``image/svg+xml`` or ``image/png``.
    data : bytes
        The file.
    width, height : int
        Its size on the page, in pixels.
    """

    stem: str
    caption: str
    kind: str
    data: bytes
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What there is to see of an experiment: a line of summary, its figures, and what cannot be shown, a line each."""

    summary: str = ""
    pictures: list[Picture] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def shown(name: str, described: Record, folder: Path, experiments: Path, names: Iterable[str]) -> Shown:
    """Return the figures of an experiment's saved run.

    Parameters
    ----------
    name : str
    described : mapping
        What ``NAME.json`` holds.
    folder : Path
        Where it lies, with its tables and perhaps its PNG files.
    experiments : Path
        The folder of experiments; of one that is not there, there are only the PNG files in `folder`.
    names : iterable of str
        The other experiments, whose PNG files are not this one's though their names begin alike.

    Notes
    -----
    Nothing is computed but what `plot` computes. Where it cannot draw these tables, such as reduced ones without a
    column, or of other code, the reason is a remark.
    """
    remarks: list[str] = []
    module = None if "file" in described else _module(name, experiments, remarks)
    figures, told = ({}, {}) if module is None else _figures(name, module, folder, remarks)
    told |= captions_of(described)
    files = _files(name, folder, names)
    summary = str(getattr(module, "SUMMARY", ""))
    pictures = []
    for key in dict.fromkeys([*figures, *files]):
        kind, data, width, height = _drawn(figures[key]) if key in figures else _read(files[key])
        caption = str(told.get(key) or summary or name)
        stem = f"{name}-{key}" if key else name
        pictures.append(Picture(stem=stem, caption=caption, kind=kind, data=data, width=width, height=height))
    _close(figures)
    return Shown(summary=summary, pictures=pictures, remarks=remarks)


def _module(name: str, experiments: Path, remarks: list[str]) -> ModuleType | None:
    try:
        return load(name, experiments)
    except UsageError as error:
        remarks.append(f"its figures are the PNG files beside its record: {error}")
        return None


def _figures(
    name: str, module: ModuleType, folder: Path, remarks: list[str]
) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the figures as the experiment draws them, and their captions; or none and a remark."""
    import matplotlib as mpl

    with style(), mpl.rc_context({"figure.max_open_warning": 0}), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of reduced tables, whose numbers are in single precision
        try:
            tables = load_tables(name, folder)[1]
            figures = dict(module.plot(tables))
            return figures, captions(module, tables, figures)
        except Exception as error:  # whatever a plot says of tables that lack something
            why = " ".join(str(error).strip("\"'").split())
            remarks.append(
                f"its figures cannot be drawn from these tables ({type(error).__name__}: {why[:100]}); "
                f"linfed reproduce {name} computes and draws all of them"
            )
            return {}, {}


def _files(name: str, folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the PNG files beside the records, by the figure's key."""
    longer = [f"{other}-" for other in names if other.startswith(f"{name}-")] + [
        other for other in names if other.startswith(f"{name}-")
    ]
    found = {}
    for path in [folder / f"{name}.png", *sorted(folder.glob(f"{name}-*.png"))]:
        if path.is_file() and not any(path.stem == one or path.stem.startswith(f"{one}-") for one in longer):
            found[path.stem[len(name) + 1 :]] = path
    return found


def _drawn(figure: Figure) -> tuple[str, bytes, int, int]:
    """Return a figure as a file that is the same each time: its kind, its bytes, and its size on the page."""
    import matplotlib as mpl

    width, height = (round(SHOWN_DPI * inches) for inches in figure.get_size_inches())
    into = io.BytesIO()
    with style(), mpl.rc_context({"svg.hashsalt": "linfed"}):  # ticks take their size when the figure is saved
        figure.savefig(into, format="svg", metadata={"Date": None})
        if len(into.getvalue()) <= SVG_BYTES:
            return "image/svg+xml", into.getvalue(), width, height
        into = io.BytesIO()
        figure.savefig(into, format="png", dpi=DPI)
    return "image/png", _small(shrunk(into, PIXELS)), width, height


def _read(file: Path) -> tuple[str, bytes, int, int]:
    """Return a PNG file, not too wide."""
    image = shrunk(file, PIXELS)
    return "image/png", _small(image), image.width, image.height


def _small(image: Image) -> bytes:
    into = io.BytesIO()
    image.save(into, format="png", optimize=True)
    return into.getvalue()


def _close(figures: dict[str, Figure]) -> None:
    import matplotlib.pyplot as plt

    for figure in figures.values():
        plt.close(figure)
