"""``linfed report``: one HTML page about saved runs, without new computations."""

from __future__ import annotations

import sys
from pathlib import Path

from tqdm import tqdm

from linfed.checks import check_progress
from linfed.errors import UsageError
from linfed.report.cards import cards_of
from linfed.report.compare import compare
from linfed.report.content import Content
from linfed.report.page import page
from linfed.report.pictures import pictures
from linfed.report.scoreboard import missing, rows
from linfed.reproduction.experiments import experiments_folder
from linfed.reproduction.record import ResultsFolder, read_runs
from linfed.system.files import replacing


def write(folder: str, *, out: str | None = None, baseline: str | None = None) -> Path:
    """Write a report about the saved runs in a folder.

    Parameters
    ----------
    folder : str
        Output folder of `linfed reproduce`, or one ``NAME.json`` in it.
    out : str, optional
        Folder of ``report.html``, or a file whose name ends in ``.html``; `folder` by default.
    baseline : str, optional
        Folder or ``NAME.json`` of a run to compare with.

    Returns
    -------
    Path
        Path of the report.

    Raises
    ------
    UsageError
        If there are no saved runs, or the report cannot be written.
    """
    found = collected(folder, baseline=baseline)
    path = Path(out) if out else found.folder.path
    path = path if path.suffix.lower() == ".html" and not path.is_dir() else path / "report.html"
    ResultsFolder(path.parent).create()
    with replacing(path) as file:
        file.write(page(found).encode())
    return path


def collected(folder: str, *, baseline: str | None = None) -> Content:
    """Return the contents of a report; the parameters are as in `write`."""
    where, records = read_runs(folder)
    before = None if baseline is None else read_runs(baseline, "--baseline")[1]
    try:
        experiments = experiments_folder(None)
    except UsageError:
        experiments = None
    cards = cards_of(records, experiments)
    for line in missing(cards):
        print(f"linfed: {line}; the scoreboard leaves it out", file=sys.stderr)
    return Content(
        path=folder,
        folder=where,
        cards={name: cards[name] for name in records},
        scoreboard=rows(cards),
        pictures={
            name: pictures(record, where, records, cards[name].declared.summary)
            for name, record in tqdm(records.items(), desc="figures", disable=check_progress(None))
        },
        moved=None if before is None else compare(before, records),
        baseline=baseline or "",
    )
