"""Scoreboard: the most important claims of the papers, each with its measurement and verdict."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linfed.errors import UsageError
from linfed.reproduction.declarations import Declarations, Headline
from linfed.reproduction.record import RunRecord
from linfed.statistics.findings import NOT_JUDGED, Finding, required


@dataclass(frozen=True, kw_only=True)
class Row:
    """Claim of a paper with its measurement and verdicts.

    Attributes
    ----------
    paper : str
        Source, e.g. "FedRep paper, Figure 1".
    wording : str
        Wording of the claim, in quotation marks if it is a quotation; empty if `judged` contains it.
    judged : str
        Precise claim that was judged.
    measured : str
        Estimate and 95 % interval of `statistic` in the setting `setting`, which is the paper's setting if there is
        one.
    statistic, required, setting : str
        Measured quantity, the range that the claim requires, e.g. "> 0.5", and the setting.
    experiment : str
        Name of the experiment.
    claims : list of Finding
        Claims in the counted settings.
    """

    paper: str
    wording: str
    judged: str
    measured: str
    statistic: str
    required: str
    setting: str
    experiment: str
    claims: list[Finding]

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of settings with each verdict, the most frequent first."""
        return dict(Counter(claim.verdict.value for claim in self.claims).most_common())

    @property
    def verdict(self) -> str:
        """Verdicts as text (`counted`)."""
        return counted(self.verdicts)


def rows(records: Mapping[str, RunRecord], declared: Mapping[str, Declarations]) -> list[Row]:
    """Return the rows of all headlines that these runs judge.

    Parameters
    ----------
    records : mapping of str to RunRecord
        Records by the name of the experiment.
    declared : mapping of str to Declarations
        Declarations of experiments by name, in the order of the rows. Those without a run have no rows.

    Returns
    -------
    list of Row

    Raises
    ------
    UsageError
        If a run has claims, but not that of a headline. Quick runs and runs with changed fields may lack claims.
    """
    found = []
    for name, one in declared.items():
        record = records.get(name)
        if record is None or not record.claims:
            continue
        if not record.is_partial and (missing := one.missing_headline(record.claims)):
            raise UsageError(f"{name}: {missing}; linfed replot judges an older run again")
        for headline in one.headlines:
            if claims := headline.found_in(record.claims):
                found.append(_row(name, headline, claims))
    return found


def _row(name: str, headline: Headline, claims: list[Finding]) -> Row:
    judged = [claim for claim in claims if claim.verdict.kind != NOT_JUDGED] or claims
    example = next((claim for claim in judged if claim.setting == headline.setting), judged[0])
    quoted = re.search(r'"(.+)"', example.source)
    return Row(
        paper=place_of(example.source),
        wording=headline.wording or (f"“{quoted[1]}”" if quoted else ""),
        judged=", ".join(filter(None, (example.claim, headline.among[1]))),
        measured=measured(example),
        statistic=example.statistic,
        required=required(example.claimed_range),
        setting=example.setting,
        experiment=name,
        claims=[claim for claim in claims if claim.statistic == example.statistic],
    )


def place_of(source: str) -> str:
    """Return the source of a claim without its quotation and remarks."""
    return re.split(r': "|;|, which', source)[0].rstrip()


def counted(verdicts: Mapping[str, int]) -> str:
    """Return verdicts as text, with their counts if there are several settings.

    >>> counted({"HOLDS": 1}), counted({"HOLDS": 2, "VACUOUS": 1})
    ('HOLDS', 'HOLDS 2, VACUOUS 1')
    """
    if sum(verdicts.values()) == 1:
        return next(iter(verdicts))
    return ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())


def measured(claim: Finding) -> str:
    """Return the estimate and the interval of a claim as text."""
    return f"{number(claim.estimate)} [{number(claim.low)}, {number(claim.high)}]"


def number(value: float) -> str:
    """Return a number of a claim with three digits, "-" for NaN.

    >>> [number(value) for value in (0.5, 18256.1, 1.23456e-5, float("inf"), float("nan"))]
    ['0.5', '18,300', '1.23e-05', 'inf', '-']
    """
    if math.isnan(value):
        return "-"
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if 1000 <= abs(value) < 1e6 else digits


def markdown(table: Iterable[Row], link: str = "") -> str:
    """Return the rows as a Markdown table.

    Parameters
    ----------
    table : iterable of Row
    link : str
        Address of an experiment's page, with ``{}`` for its name; empty for no links.
    """
    header = ["claim", "statistic and required range", "measured (95 % CI)", "verdicts over settings", "experiment"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for row in table:
        wording = f": {row.wording}" if row.wording else ""
        name = f"[{row.experiment}]({link.format(row.experiment)})" if link else row.experiment
        setting = f"; setting: {row.setting}" if row.setting else ""
        statistic = f"{row.statistic}{setting}; required: {row.required}"
        cells = [f"{row.judged} ({row.paper}{wording})", statistic, row.measured, row.verdict, name]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
