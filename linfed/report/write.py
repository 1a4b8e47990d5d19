"""``linfed report``: one HTML page about saved runs, without new computations."""

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
    """Write ``report.html`` about the saved runs in a folder.

    Parameters
    ----------
    folder : str
        Output folder of `linfed reproduce`, or one ``NAME.json`` in it.
    out : str, optional
        Folder of the report; `folder` by default.
    against : str, optional
        Folder or ``NAME.json`` of a run to compare with.
    experiments : str, optional
        Folder of the experiments. By default the experiments of the current checkout, or those included in linfed. If
        an experiment is missing there, the report shows the PNG files in `folder`.

    Returns
    -------
    Path
        Path of the report.

    Raises
    ------
    UsageError
        If there are no saved runs, or the report cannot be written.
    """
    found = collected(folder, against=against, experiments=experiments)
    path = writable_folder(out or str(read(folder)[0])) / "report.html"
    with replacing(path) as file:
        file.write(page(found).encode())
    return path


def collected(folder: str, *, against: str | None = None, experiments: str | None = None) -> Content:
    """Return the contents of a report; the parameters are as in `write`."""
    where, records = read(folder)
    before = None if against is None else read(against, "--baseline")[1]
    modules = experiments_folder(experiments)
    return Content(
        title=f"linfed: results in {folder}",
        about="This report shows saved runs; nothing was recomputed.",
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
    """Return the rows of the scoreboard, without runs of older code that lack a claim."""
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
