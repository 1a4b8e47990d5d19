"""The figures of saved runs: pictures that lie beside the records, else drawn from the tables, and what they draw."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from linfed.errors import UsageError
from linfed.figures.png import shrunk
from linfed.figures.style import style
from linfed.plotting.captions import captions
from linfed.report.lines import Chart, read
from linfed.report.scoreboard import Record
from linfed.reproduction.experiments import load
from linfed.reproduction.records import captions_of
from linfed.reproduction.run import load_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS = 1400
"""Width to which wider pictures are reduced."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of an experiment.

    Parameters
    ----------
    stem : str
        The name of its file, without the ending.
    caption : str
    png : bytes
    width, height : int
        Pixels.
    chart : Chart or None
        What is drawn in it, where that are lines.
    """

    stem: str
    caption: str
    png: bytes
    width: int
    height: int
    chart: Chart | None


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
        Where it lies, with its tables and perhaps its pictures.
    experiments : Path
        The folder of experiments; of one that is not there, there are only the pictures that lie in `folder`.
    names : iterable of str
        The other experiments, whose pictures are not this one's though their names begin alike.

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
    with style():  # ticks that are first drawn when a figure is saved take their size from the style
        pictures = [
            _picture(name, key, str(told.get(key) or summary or name), files.get(key), figures.get(key))
            for key in dict.fromkeys([*figures, *files])
        ]
    _close(figures)
    return Shown(summary=summary, pictures=pictures, remarks=remarks)


def _module(name: str, experiments: Path, remarks: list[str]) -> ModuleType | None:
    try:
        return load(name, experiments)
    except UsageError as error:
        remarks.append(f"no values on hover, and no figures but those that lie there: {error}")
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
    """Return the pictures that lie beside the records, by the figure's key."""
    longer = [f"{other}-" for other in names if other.startswith(f"{name}-")] + [
        other for other in names if other.startswith(f"{name}-")
    ]
    found = {}
    for path in [folder / f"{name}.png", *sorted(folder.glob(f"{name}-*.png"))]:
        if path.is_file() and not any(path.stem == one or path.stem.startswith(f"{one}-") for one in longer):
            found[path.stem[len(name) + 1 :]] = path
    return found


def _picture(name: str, key: str, caption: str, file: Path | None, figure: Figure | None) -> Picture:
    drawn: Any = file
    if file is None and figure is not None:
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=min(300.0, PIXELS / figure.get_figwidth()))
    elif figure is not None:
        figure.draw_without_rendering()
    image = shrunk(drawn, PIXELS)
    into = io.BytesIO()
    image.save(into, format="png", optimize=True)
    return Picture(
        stem=f"{name}-{key}" if key else name,
        caption=caption,
        png=into.getvalue(),
        width=image.width,
        height=image.height,
        chart=None if figure is None else read(figure),
    )


def _close(figures: dict[str, Figure]) -> None:
    import matplotlib.pyplot as plt

    for figure in figures.values():
        plt.close(figure)
