"""Statements: the claims of a run that differ only in their setting, judged together.

A statement agrees with the runs if no setting contradicts it and at least half of the settings in which it could be
judged support it. It is contradicted if at least one setting contradicts it, and undecided otherwise.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from linfed.report.scoreboard import counted, measured
from linfed.reproduction.declarations import Declarations
from linfed.reproduction.record import RunRecord
from linfed.statistics.findings import AGAINST, FOR, NOT_JUDGED, OWN_PREDICTION, Finding, Verdict, required


@dataclass(frozen=True)
class Statement:
    """Claims with the same text, source and statistic, one per setting.

    Parameters
    ----------
    claims : list of Finding
        Claims; at least one.
    """

    claims: list[Finding]

    @property
    def claim(self) -> str:
        """Text of the claim."""
        return self.claims[0].claim

    @property
    def source(self) -> str:
        """Source of the claim."""
        return self.claims[0].source

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of settings with each verdict, in the order of `Verdict`."""
        return ordered(Counter(claim.verdict.value for claim in self.claims))

    @property
    def verdict(self) -> str:
        """Verdicts as text."""
        return counted(self.verdicts)

    @property
    def worst(self) -> Finding:
        """Claim in the setting that fails by the largest amount, or else is nearest to failing."""
        judged = [claim for claim in self.claims if claim.verdict.kind != NOT_JUDGED]
        failed = [claim for claim in judged if claim.verdict.kind == AGAINST]
        return min(failed or judged or self.claims, key=slack)

    @property
    def setting(self) -> str:
        """Setting that is nearest to failing."""
        return self.worst.setting

    @property
    def required(self) -> str:
        """Required range in the setting nearest to failing."""
        return required(self.worst.claimed_range)

    @property
    def measured(self) -> str:
        """Statistic, estimate and interval in the setting nearest to failing, and the required range."""
        return f"{self.worst.statistic}: {measured(self.worst)}; required: {self.required}"

    @property
    def is_theoretical(self) -> bool:
        """True if the claim is judged as a theorem, its source is a theorem, or this project derived it."""
        theorem = any(claim.theorem for claim in self.claims)
        return theorem or self.source.startswith(OWN_PREDICTION) or bool(re.search(r"Theorem \d", self.source))


def statements(record: RunRecord) -> list[Statement]:
    """Return the statements of a run."""
    found: dict[tuple[str, str, str], list[Finding]] = {}
    for claim in record.claims:
        found.setdefault((claim.claim, claim.source, claim.statistic), []).append(claim)
    return [Statement(group) for group in found.values()]


def sections(
    records: Mapping[str, RunRecord], declared: Mapping[str, Declarations]
) -> dict[str, dict[str, list[Statement]]]:
    """Return the theoretical statements of runs by section and experiment, without experiments that have none.

    Parameters
    ----------
    records : mapping of str to RunRecord
        Records by the name of the experiment.
    declared : mapping of str to Declarations
        Declarations of the experiments, in the order of the pages.
    """
    found: dict[str, dict[str, list[Statement]]] = {one.section: {} for one in declared.values()}
    for name in sorted(records):
        if group := [one for one in statements(records[name]) if one.is_theoretical]:
            found[declared[name].section][name] = group
    return {section: groups for section, groups in found.items() if groups}


def ordered(verdicts: Mapping[str, int]) -> dict[str, int]:
    """Return the verdicts that occur with their numbers, in the order of `Verdict`."""
    return {verdict.value: verdicts[verdict.value] for verdict in Verdict if verdicts.get(verdict.value)}


def outcome(verdicts: Mapping[str, int]) -> str:
    """Return ``agrees``, ``contradicts`` or ``undecided`` for the verdicts of a statement.

    >>> outcome({"HOLDS": 2, "INCONCLUSIVE": 2}), outcome({"SUPPORTED": 9, "NOT SUPPORTED": 1}), outcome({"VACUOUS": 1})
    ('agrees', 'contradicts', 'undecided')
    """
    supported, contradicted = (
        sum(count for verdict, count in verdicts.items() if Verdict(verdict).kind == kind) for kind in (FOR, AGAINST)
    )
    if contradicted:
        return "contradicts"
    return "agrees" if supported and supported >= verdicts.get("INCONCLUSIVE", 0) else "undecided"


def slack(claim: Finding) -> float:
    """Return the distance of the interval from the ends of the claimed range, relative to them if they are not 0.

    It is negative if the interval is not inside the range.
    """
    size = max(abs(end) for end in (0.0, claim.claimed_low, claim.claimed_high) if math.isfinite(end)) or 1.0
    below = (claim.low - claim.claimed_low) / size if math.isfinite(claim.claimed_low) else math.inf
    above = (claim.claimed_high - claim.high) / size if math.isfinite(claim.claimed_high) else math.inf
    return -math.inf if math.isnan(below + above) else min(below, above)
