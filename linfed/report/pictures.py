"""Figures of saved runs: the picture files next to the records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from linfed.errors import UsageError
from linfed.figures.png import small_picture
from linfed.report.scoreboard import Record
from linfed.reproduction.records import captions_of, figure_stem, replot_command

SUFFIXES = (".png", ".webp")
"""Suffixes of picture files; the first one that exists is shown."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Figure of an experiment.

    Parameters
    ----------
    stem : str
        Name of the file without its suffix.
    caption : str
        Caption.
    data : bytes
        Contents of a WebP file.
    width, height : int
        Size in pixels.
    """

    stem: str
    caption: str
    data: bytes
    width: int
    height: int


def pictures(name: str, described: Record, folder: Path, names: Iterable[str], summary: str = "") -> list[Picture]:
    """Return the figures of a saved run, in the order of the captions in its record.

    Parameters
    ----------
    name : str
        Name of the experiment.
    described : mapping
        Contents of ``NAME.json``.
    folder : Path
        Folder of the picture files ``NAME.png`` and ``NAME-KEY.png``, or ``.webp``.
    names : iterable of str
        Names of all experiments, to exclude the files of experiments whose names begin with `name`.
    summary : str
        Caption of the figures without a caption in the record.

    Returns
    -------
    list of Picture

    Raises
    ------
    UsageError
        If a file is not a complete picture.
    """
    longer = tuple(f"{other}-" for other in names if other.startswith(f"{name}-"))
    texts = captions_of(described)
    stems = {figure_stem(name, key): text for key, text in texts.items()}
    for path in sorted(folder.glob(f"{name}*")):
        if path.stem == name or (path.stem.startswith(f"{name}-") and not f"{path.stem}-".startswith(longer)):
            stems.setdefault(path.stem, summary or name)
    found = []
    for stem, caption in stems.items():
        file = next((path for path in (folder / f"{stem}{suffix}" for suffix in SUFFIXES) if path.is_file()), None)
        if file is not None:
            try:
                data, width, height = small_picture(file)
            except (OSError, SyntaxError) as error:  # Pillow raises both
                reason = " ".join(str(error).split())
                raise UsageError(
                    f"{str(file)!r} is not a complete picture ({reason}): draw it again with "
                    f"{replot_command(described, folder)}"
                ) from None
            found.append(Picture(stem=stem, caption=caption, data=data, width=width, height=height))
    return found
