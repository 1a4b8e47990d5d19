"""Contents of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from linfed.report.compare import Comparison
from linfed.report.pictures import Shown
from linfed.report.scoreboard import Record, Row
from linfed.report.theory import Statement
from linfed.reproduction.records import load_findings
from linfed.statistics.findings import Verdict


@dataclass(frozen=True, kw_only=True)
class Content:
    """Contents of a report.

    Parameters
    ----------
    title, about : str
        Title and subtitle.
    records : dict of str to mapping
        Contents of each ``NAME.json``, by the name of the experiment.
    scoreboard : list of Row
        Rows of the scoreboard.
    shown : dict of str to Shown
        Figures of each experiment.
    theory : dict of str to dict of str to list of Statement
        Theoretical statements by section and experiment.
    moved : Comparison or None
        Differences from the run `against`.
    against : str
        Name of the run to compare with.
    """

    title: str
    about: str
    records: Mapping[str, Record]
    scoreboard: list[Row]
    shown: Mapping[str, Shown]
    theory: Mapping[str, Mapping[str, list[Statement]]]
    moved: Comparison | None = None
    against: str = ""

    @property
    def quick(self) -> list[str]:
        """Names of the experiments with a quick run."""
        return [name for name, described in self.records.items() if described.get("quick")]


def totals(records: Mapping[str, Record]) -> dict[str, int]:
    """Return the number of claims with each verdict, in the order of `Verdict`."""
    found = Counter(claim["verdict"] for described in records.values() for claim in described["claims"])
    return {verdict.value: found[verdict.value] for verdict in Verdict if found[verdict.value]}


def remarks(claim: Record) -> str:
    """Return the remarks about a claim: its note, the reason why it is vacuous, and the failed hypotheses."""
    return load_findings({"claims": [claim]})[0].remarks


def commit_of(described: Record) -> str:
    """Return the commit of a run, and the commit that judged it if it is another one."""
    commit, judged = str(described.get("commit") or "unknown"), described.get("judged")
    return commit if judged in (None, commit) else f"{commit}, judged by {judged}"


def machine_of(described: Record) -> str:
    """Return the machine, versions and BLAS of a run."""
    versions = ", ".join(f"{name} {version}" for name, version in described.get("versions", {}).items())
    blas = "; ".join(dict.fromkeys(described.get("blas", [])))
    return "; ".join(part for part in (str(described.get("machine") or ""), versions, blas) if part)
