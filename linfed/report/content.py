"""Contents of a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from linfed.report.compare import Comparison
from linfed.report.pictures import Picture
from linfed.report.scoreboard import Record, Row
from linfed.report.statements import ordered
from linfed.reproduction.declarations import Declarations
from linfed.reproduction.records import load_findings
from linfed.system.machine import commit_date

HASH = 12
"""Number of digits of a commit to show."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """Contents of a report.

    Parameters
    ----------
    folder : str
        Folder of the runs, or one ``NAME.json`` in it.
    records : dict of str to mapping
        Contents of each ``NAME.json``, by the name of the experiment.
    scoreboard : list of Row
        Rows of the scoreboard.
    declared : dict of str to Declarations
        Declarations of each experiment; empty ones if they are unknown.
    pictures : dict of str to list of Picture
        Figures of each experiment.
    moved : Comparison or None
        Differences from the run `against`.
    against : str
        Name of the run to compare with.
    """

    folder: str
    records: Mapping[str, Record]
    scoreboard: list[Row]
    declared: Mapping[str, Declarations]
    pictures: Mapping[str, list[Picture]]
    moved: Comparison | None = None
    against: str = ""

    @property
    def where(self) -> Path:
        """The folder; that of the file if `folder` is one ``NAME.json``."""
        path = Path(self.folder)
        return path if path.is_dir() else path.parent

    @property
    def quick(self) -> list[str]:
        """Names of the experiments with a quick run."""
        return [name for name, described in self.records.items() if described.get("quick")]

    @property
    def title(self) -> str:
        """Names of the experiments, or their number if there are more than three."""
        *names, last = self.records
        if len(names) > 2:
            return f"linfed: results of {len(self.records)} experiments"
        return f"linfed: results of {' and '.join(filter(None, (', '.join(names), last)))}"

    @property
    def about(self) -> str:
        """Kind, folder, dates and commits of the runs."""
        kind = "Full" if not self.quick else "Quick" if len(self.quick) == len(self.records) else "Full and quick"
        days = sorted(filter(None, {date_of(one) for one in self.records.values()}))
        when = f" of {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
        commits = dict.fromkeys(short(str(one.get("commit") or "unknown")) for one in self.records.values())
        which = f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}"
        return f"{kind} run{'s' * (len(self.records) > 1)}{when} in {self.folder}; {which}. Nothing was recomputed."


def totals(records: Mapping[str, Record]) -> dict[str, int]:
    """Return the number of claims with each verdict, in the order of `Verdict`."""
    return ordered(Counter(claim["verdict"] for described in records.values() for claim in described["claims"]))


def remarks(claim: Record) -> str:
    """Return the remarks about a claim: its note, the reason why it is vacuous, and the failed hypotheses."""
    return load_findings({"claims": [claim]})[0].remarks


def date_of(described: Record) -> str:
    """Return the date of a run, or of its commit if the record has no date."""
    return str(described.get("date") or commit_date(str(described.get("commit") or "")))


def short(commit: str) -> str:
    """Return a text with the hashes of commits shortened."""
    return re.sub(f"(?<=[0-9a-f]{{{HASH}}})[0-9a-f]+", "", commit)


def commit_of(described: Record) -> str:
    """Return the commit of a run, and the commit that judged it if it is another one."""
    commit, judged = str(described.get("commit") or "unknown"), described.get("judged")
    return short(commit if judged in (None, commit) else f"{commit}, judged by {judged}")


def machine_of(described: Record) -> str:
    """Return the machine, versions and BLAS of a run."""
    versions = ", ".join(f"{name} {version}" for name, version in described.get("versions", {}).items())
    blas = "; ".join(dict.fromkeys(described.get("blas", [])))
    return "; ".join(part for part in (str(described.get("machine") or ""), versions, blas) if part)
