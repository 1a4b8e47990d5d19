"""Contents of a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from linfed.report.compare import Comparison
from linfed.report.pictures import Picture
from linfed.report.scoreboard import Row
from linfed.report.statements import ordered
from linfed.reproduction.declarations import Declarations
from linfed.reproduction.record import ResultsFolder, RunRecord
from linfed.system.machine import commit_date

HASH = 12
"""Number of digits of a commit to show."""


@dataclass(frozen=True, kw_only=True)
class Content:
    """Contents of a report.

    Parameters
    ----------
    path : str
        Folder of the runs, or one ``NAME.json`` in it, as it was given.
    folder : ResultsFolder
        Folder of the runs.
    records : dict of str to RunRecord
        Records by the name of the experiment.
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

    path: str
    folder: ResultsFolder
    records: Mapping[str, RunRecord]
    scoreboard: list[Row]
    declared: Mapping[str, Declarations]
    pictures: Mapping[str, list[Picture]]
    moved: Comparison | None = None
    against: str = ""

    @property
    def quick(self) -> list[str]:
        """Names of the experiments with a quick run."""
        return [name for name, record in self.records.items() if record.quick]

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
        commits = dict.fromkeys(short(one.commit or "unknown") for one in self.records.values())
        which = f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}"
        return f"{kind} run{'s' * (len(self.records) > 1)}{when} in {self.path}; {which}. Nothing was recomputed."


def totals(records: Mapping[str, RunRecord]) -> dict[str, int]:
    """Return the number of claims with each verdict, in the order of `Verdict`."""
    return ordered(Counter(claim.verdict.value for record in records.values() for claim in record.claims))


def date_of(record: RunRecord) -> str:
    """Return the date of a run, or of its commit if the record has no date."""
    return record.date or commit_date(record.commit or "")


def short(commit: str) -> str:
    """Return a text with the hashes of commits shortened."""
    return re.sub(f"(?<=[0-9a-f]{{{HASH}}})[0-9a-f]+", "", commit)


def commit_of(record: RunRecord) -> str:
    """Return the commit of a run, and the commit that judged it if it is another one."""
    commit = record.commit or "unknown"
    return short(f"{commit}, judged by {record.judged}" if record.judged not in (None, "", commit) else commit)


def machine_of(record: RunRecord) -> str:
    """Return the machine, versions and BLAS of a run."""
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    return "; ".join(filter(None, (record.machine, versions, "; ".join(dict.fromkeys(record.blas)))))
