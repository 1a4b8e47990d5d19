"""``linfed report``: saved runs as one page, without computing anything anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm

from linfed.errors import check_progress
from linfed.report import scoreboard
from linfed.report.compare import compare, read
from linfed.report.content import Content
from linfed.report.page import page
from linfed.report.pictures import shown
from linfed.report.scoreboard import Record, Row
from linfed.report.theory import sections
from linfed.reproduction.experiments import experiments_folder
from linfed.reproduction.run import writable_folder
from linfed.system.files import replacing


def write(folder: str, *, out: str | None = None, against: str | None = None, experiments: str | None = None) -> Path:
    """Write ``report.html`` from the runs that are saved in a folder, and return its path.

    Parameters
    ----------
    folder : str
        What `linfed reproduce` filled, or one ``NAME.json`` in it.
    out : str, optional
        Where to write; into the folder by default.
    against : str, optional
        A folder, or ``NAME.json``, of a run to compare with.
    experiments : str, optional
        Folder of the experiments, by default those of the checkout one is in, or that come with linfed. The figures
        of an experiment that is not there are the PNG files in `folder`.

    Returns
    -------
    Path

    Raises
    ------
    UsageError
        If there are no saved runs, or the report cannot be written there.
    """
    found = collected(folder, against=against, experiments=experiments)
    path = writable_folder(out or str(read(folder)[0])) / "report.html"
    with replacing(path) as file:
        file.write(page(found).encode())
    return path


def collected(folder: str, *, against: str | None = None, experiments: str | None = None) -> Content:
    """Return what a report of these runs holds."""
    where, records = read(folder)
    before = None if against is None else read(against, "--against")[1]
    modules = experiments_folder(experiments)
    return Content(
        title=f"linfed: results in {folder}",
        about="From saved runs; nothing was computed anew.",
        records=records,
        scoreboard=_scoreboard(records),
        shown={
            name: shown(name, described, where, modules, records)
            for name, described in tqdm(records.items(), desc="figures", disable=check_progress(None))
        },
        theory=sections(records),
        moved=None if before is None else compare(before, records),
        against=against or "",
    )


def _scoreboard(records: Mapping[str, Record]) -> list[Row]:
    """Return the rows of the scoreboard; of runs of older code without a sentence, those of the others."""
    try:
        return scoreboard.rows(records)
    except ValueError:
        found = []
        for name in records:
            try:
                found += scoreboard.rows({name: records[name]})
            except ValueError:
                continue
        return found
