"""Figures of saved runs: the picture files next to the records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from linfed.errors import UsageError
from linfed.figures.png import small_picture
from linfed.reproduction.record import ResultsFolder, RunRecord


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


def pictures(record: RunRecord, folder: ResultsFolder, names: Iterable[str], summary: str = "") -> list[Picture]:
    """Return the figures of a saved run, in the order of the captions in its record.

    Parameters
    ----------
    record : RunRecord
        Record of the run.
    folder : ResultsFolder
        Folder of the picture files ``NAME.png`` and ``NAME-KEY.png``, or ``.webp``.
    names : iterable of str
        Names of all experiments, to exclude the files of experiments whose names begin with this one.
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
    name = record.experiment
    longer = tuple(f"{other}-" for other in names if other.startswith(f"{name}-"))
    stems = {folder.figure(name, key, "").name: text for key, text in record.figures.items()}
    for path in sorted(folder.path.glob(f"{name}*")):
        if path.stem == name or (path.stem.startswith(f"{name}-") and not f"{path.stem}-".startswith(longer)):
            stems.setdefault(path.stem, summary or name)
    found = []
    for stem, caption in stems.items():
        file = folder.picture(stem)
        if file is not None:
            try:
                data, width, height = small_picture(file)
            except (OSError, SyntaxError) as error:  # Pillow raises both
                reason = " ".join(str(error).split())
                raise UsageError(
                    f"{str(file)!r} is not a complete picture ({reason}): draw it again with {folder.replot(record)}"
                ) from None
            found.append(Picture(stem=stem, caption=caption, data=data, width=width, height=height))
    return found
