"""Figures of saved runs, drawn from their tables or read from the PNG files next to the records."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from linfed.errors import UsageError
from linfed.figures.png import shrink_png
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
"""Largest size of an SVG file in a report; larger figures become PNG files."""

PIXELS = 1400
"""Largest width of a PNG file; wider ones are shrunk."""

DPI = 200.0
"""Resolution of PNG files in pixels per inch of the figure."""

SHOWN_DPI = 144.0
"""Resolution on the page in pixels per inch of the figure; text of 8 points is then as large as the page's text."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Figure of an experiment.

    Parameters
    ----------
    stem : str
        Name of the file without its suffix.
    caption : str
        Caption.
    kind : str
        ``image/svg+xml`` or ``image/png``.
    data : bytes
        Contents of the file.
    width, height : int
        Size on the page in pixels.
    """

    stem: str
    caption: str
    kind: str
    data: bytes
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Summary and figures of an experiment, with a one-line remark for each thing that cannot be shown."""

    summary: str = ""
    pictures: list[Picture] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def shown(name: str, described: Record, folder: Path, experiments: Path, names: Iterable[str]) -> Shown:
    """Return the figures of an experiment's saved run.

    Parameters
    ----------
    name : str
        Name of the experiment.
    described : mapping
        Contents of ``NAME.json``.
    folder : Path
        Folder of ``NAME.json``, the tables and possibly PNG files.
    experiments : Path
        Folder of experiments. If the experiment is missing there, only the PNG files in `folder` are shown.
    names : iterable of str
        Names of all experiments, to exclude the PNG files of experiments whose names begin with `name`.

    Returns
    -------
    Shown

    Notes
    -----
    Only the function `plot` of the experiment is run. If it cannot draw the tables (e.g. reduced tables without a
    column, or tables of other code), a remark states the reason.
    """
    remarks: list[str] = []
    module = None if "file" in described else _module(name, experiments, remarks)
    figures, texts = ({}, {}) if module is None else _figures(name, module, folder, remarks)
    texts |= captions_of(described)
    files = _files(name, folder, names)
    summary = str(getattr(module, "SUMMARY", ""))
    pictures = []
    for key in dict.fromkeys([*figures, *files]):
        kind, data, width, height = _render(figures[key]) if key in figures else _read(files[key])
        caption = str(texts.get(key) or summary or name)
        stem = f"{name}-{key}" if key else name
        pictures.append(Picture(stem=stem, caption=caption, kind=kind, data=data, width=width, height=height))
    _close(figures)
    return Shown(summary=summary, pictures=pictures, remarks=remarks)


def _module(name: str, experiments: Path, remarks: list[str]) -> ModuleType | None:
    try:
        return load(name, experiments)
    except UsageError as error:
        remarks.append(f"the figures are the PNG files next to the record: {error}")
        return None


def _figures(
    name: str, module: ModuleType, folder: Path, remarks: list[str]
) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the figures that the experiment draws and their captions; add a remark if it fails."""
    import matplotlib as mpl

    with style(), mpl.rc_context({"figure.max_open_warning": 0}), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # reduced tables are in single precision
        try:
            tables = load_tables(name, folder)[1]
            figures = dict(module.plot(tables))
            return figures, captions(module, tables, figures)
        except Exception as error:  # a plot may raise any error if tables lack something
            why = " ".join(str(error).strip("\"'").split())
            remarks.append(
                f"the figures cannot be drawn from these tables ({type(error).__name__}: {why[:100]}); "
                f"run linfed reproduce {name} to compute and draw all figures"
            )
            return {}, {}


def _files(name: str, folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Return the PNG files next to the records, by the key of the figure."""
    longer = [other for other in names if other.startswith(f"{name}-")]
    found = {}
    for path in [folder / f"{name}.png", *sorted(folder.glob(f"{name}-*.png"))]:
        if path.is_file() and not any(path.stem == one or path.stem.startswith(f"{one}-") for one in longer):
            found[path.stem[len(name) + 1 :]] = path
    return found


def _render(figure: Figure) -> tuple[str, bytes, int, int]:
    """Return a figure as a reproducible file: its kind, its bytes, and its size on the page."""
    import matplotlib as mpl

    width, height = (round(SHOWN_DPI * inches) for inches in figure.get_size_inches())
    into = io.BytesIO()
    with style(), mpl.rc_context({"svg.hashsalt": "linfed"}):  # the style sets the size of ticks on saving
        figure.savefig(into, format="svg", metadata={"Date": None})
        if len(into.getvalue()) <= SVG_BYTES:
            return "image/svg+xml", into.getvalue(), width, height
        into = io.BytesIO()
        figure.savefig(into, format="png", dpi=DPI)
    return "image/png", _small(shrink_png(into, PIXELS)), width, height


def _read(file: Path) -> tuple[str, bytes, int, int]:
    """Return a PNG file, shrunk to at most `PIXELS` wide."""
    image = shrink_png(file, PIXELS)
    return "image/png", _small(image), image.width, image.height


def _small(image: Image) -> bytes:
    into = io.BytesIO()
    image.save(into, format="png", optimize=True)
    return into.getvalue()


def _close(figures: dict[str, Figure]) -> None:
    import matplotlib.pyplot as plt

    for figure in figures.values():
        plt.close(figure)
