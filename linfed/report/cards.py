"""Cards of experiments: what the report and the site show of a run. Each page writes them in its own markup.

The claims of a run that differ only in their setting are one statement, judged together. A statement agrees with the
run if no setting contradicts it and at least half of the settings in which it could be judged support it. It is
contradicted if at least one setting contradicts it, and undecided otherwise.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scipy.special import ndtr, ndtri

from linfed.reproduction.declarations import Declarations, page_order, title
from linfed.reproduction.experiments import declared_by, experiment_files
from linfed.reproduction.record import RunRecord
from linfed.statistics.findings import AGAINST, FOR, NOT_JUDGED, Finding, Origin, Verdict, required
from linfed.system.machine import commit_date

HASH = 12
"""Number of digits of a commit to show."""

PAPERS, PREDICTIONS, THRESHOLDS = "What the papers say", "What linfed predicts", "Thresholds and controls"
OTHERS = "Other claims"
WHOSE: dict[Origin | None, str] = {
    Origin.QUOTED: PAPERS,
    Origin.READING: PAPERS,
    Origin.PREDICTION: PREDICTIONS,
    Origin.CONJECTURE: PREDICTIONS,
    Origin.THRESHOLD: THRESHOLDS,
    None: OTHERS,
}
"""Title of the group of claims with each origin, in the order of the pages."""


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
    def statistic(self) -> str:
        """Measured quantity."""
        return self.claims[0].statistic

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Number of settings with each verdict (`counts`)."""
        return counts(self.claims)

    @property
    def verdict(self) -> str:
        """Verdicts as text."""
        return counted(self.verdicts)

    @property
    def outcome(self) -> str:
        """``agrees``, ``contradicts`` or ``undecided``."""
        kinds = Counter(claim.verdict.kind for claim in self.claims)
        if kinds[AGAINST]:
            return "contradicts"
        return "agrees" if kinds[FOR] and kinds[FOR] >= self.verdicts.get(Verdict.INCONCLUSIVE, 0) else "undecided"

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
    def origin(self) -> Origin | None:
        """Whose the claim is; None if unknown."""
        return self.claims[0].origin

    @property
    def is_ours(self) -> bool:
        """Whether the claim is of this project."""
        return self.origin is not None and not self.origin.is_paper


@dataclass(frozen=True, kw_only=True)
class Card:
    """An experiment with its run.

    Parameters
    ----------
    record : RunRecord
        Record of the run.
    declared : Declarations
        Declarations of the experiment; empty ones if they are unknown.
    """

    record: RunRecord
    declared: Declarations = field(default_factory=Declarations)

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.record.experiment

    @property
    def title(self) -> str:
        """Place in a paper if the experiment has its name, otherwise the name."""
        return title(self.name, self.declared)

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Number of claims with each verdict (`counts`)."""
        return counts(self.record.claims)

    @property
    def statements(self) -> list[Statement]:
        """Statements that the run judges."""
        return statements(self.record.claims)

    @property
    def quotations(self) -> list[tuple[str, str]]:
        """Places and words of the quotations in the sources of the claims, without repetitions."""
        return [one for one in dict.fromkeys(claim.quotation for claim in self.record.claims) if any(one)]

    @property
    def settings(self) -> dict[str, str]:
        """For each table, the values that all its rows share, as text."""
        return {
            key: ", ".join(f"{name} = {_plain(value)}" for name, value in table.shared.items())
            for key, table in self.record.tables.items()
        }

    @property
    def date(self) -> str:
        """Date of the run, or of its commit if the record has no date."""
        return self.record.date or commit_date(self.record.commit or "")

    @property
    def commit(self) -> str:
        """Commit of the run, and the commit that judged it if it is another one."""
        commit, judged = self.record.commit or "unknown", self.record.judged
        return short(commit if judged in (None, "", commit) else f"{commit}, judged by {judged}")

    @property
    def machine(self) -> str:
        """Machine, versions and BLAS of the run."""
        blas = "; ".join(dict.fromkeys(self.record.blas))
        return "; ".join(filter(None, (self.record.machine, self.versions, blas)))

    @property
    def versions(self) -> str:
        """Versions of the packages."""
        return ", ".join(f"{name} {version}" for name, version in self.record.versions.items())


def cards_of(records: Mapping[str, RunRecord], experiments: Path | None) -> dict[str, Card]:
    """Return the cards of runs by the name of the experiment, in the order of the pages.

    Parameters
    ----------
    records : mapping of str to RunRecord
        Records by the name of the experiment.
    experiments : Path or None
        Folder of the experiments' modules; None if it does not exist.
    """
    files = {} if experiments is None else experiment_files(experiments)
    declared = {
        name: declared_by(files[name]) if record.file is None and name in files else Declarations()
        for name, record in records.items()
    }
    return {name: Card(record=records[name], declared=declared[name]) for name in page_order(declared)}


def statements(claims: Iterable[Finding]) -> list[Statement]:
    """Return the statements of claims."""
    found: dict[tuple[str, str, str], list[Finding]] = {}
    for claim in claims:
        found.setdefault((claim.claim, claim.source, claim.statistic), []).append(claim)
    return [Statement(group) for group in found.values()]


def by_origin(claims: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return the groups of claims of papers, of this project and of unknown origin that occur, by their titles."""
    found: dict[str, list[Finding]] = {title: [] for title in WHOSE.values()}
    for claim in claims:
        found[WHOSE[claim.origin]].append(claim)
    return {title: group for title, group in found.items() if group}


def decided(claims: Iterable[Finding]) -> list[Finding]:
    """Return the claims with a verdict for or against them."""
    return [claim for claim in claims if claim.verdict.kind in (FOR, AGAINST)]


def expected_errors(claims: Iterable[Finding]) -> float:
    """Return how many verdicts for or against a claim are expected to be wrong by chance.

    An estimate is taken as normal, with the standard error that the interval has on the side of the nearest end of the
    claimed range. The chance that the true value lies on the other side of this end is then ``Phi(-1.96 a / b)``, where
    a is the distance of the estimate from this end, and b the length of this side of the interval. The chance is 0.025
    if the estimate or the interval is not finite.

    >>> from linfed.statistics import judge
    >>> known = {"claim": "x", "setting": "", "statistic": "x", "source": "ours", "claimed_low": 0.0}
    >>> round(expected_errors([judge((1.0, 0.0, 2.0), **known), judge((2.0, 1.0, 3.0), **known)]), 4)
    0.025
    """
    return math.fsum(map(_chance_of_error, decided(claims)))


def errors_sentence(claims: Iterable[Finding]) -> str:
    """Return how many verdicts are for or against a claim, and how many of them are expected to be wrong by chance."""
    claims = list(claims)
    found = expected_errors(claims)
    count = "fewer than one" if found < 1 else f"about {found:.0f}"
    return (
        f"{len(decided(claims)):,} of {len(claims):,} verdicts are for or against a claim; most claims are judged in "
        "several settings. By the distances of their estimates from the required ranges, "
        f"{count} of these verdicts must be expected to be wrong by chance."
    )


def _chance_of_error(claim: Finding) -> float:
    """Return the chance that a verdict for or against a claim is wrong."""
    chances = []
    for end in (claim.claimed_low, claim.claimed_high):
        side = claim.estimate - claim.low if end < claim.estimate else claim.high - claim.estimate
        if math.isinf(end) or side == 0:
            chances.append(0.0)
        elif math.isfinite(side):
            chances.append(float(ndtr(ndtri(0.025) * abs(claim.estimate - end) / side)))
        else:  # the estimate or the interval is not finite: the largest chance that a decided claim can have
            chances.append(0.025)
    return sum(chances) if claim.verdict.kind == FOR else max(chances)


def counts(claims: Iterable[Finding]) -> dict[Verdict, int]:
    """Return the verdicts of claims that occur, with their numbers, in the order of `Verdict`."""
    found = Counter(claim.verdict for claim in claims)
    return {verdict: found[verdict] for verdict in Verdict if found[verdict]}


def counted(verdicts: Mapping[Verdict, int]) -> str:
    """Return verdicts as text, with their numbers if there are several settings.

    >>> counted({Verdict.HOLDS: 1}), counted({Verdict.HOLDS: 2, Verdict.VACUOUS: 1})
    ('HOLDS', 'HOLDS 2, VACUOUS 1')
    """
    if sum(verdicts.values()) == 1:
        return next(iter(verdicts)).value
    return ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())


def measured(claim: Finding) -> str:
    """Return the estimate and the interval of a claim as text."""
    interval = f"[{number(claim.low)}, {number(claim.high)}]"
    if not math.isnan(claim.estimate):
        return f"{number(claim.estimate)} {interval}"
    return "no estimate" if math.isnan(claim.low) and math.isnan(claim.high) else f"no estimate, interval {interval}"


def number(value: float) -> str:
    """Return a number of a claim with three digits, "-" for NaN.

    >>> [number(value) for value in (0.5, 18256.1, 1.23456e-5, float("inf"), float("nan"))]
    ['0.5', '18,300', '1.23e-05', 'inf', '-']
    """
    if math.isnan(value):
        return "-"
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if 1000 <= abs(float(digits)) < 1e6 else digits


def slack(claim: Finding) -> float:
    """Return the distance of the interval from the ends of the claimed range, relative to them if they are not 0.

    It is negative if the interval is not inside the range.
    """
    size = max(abs(end) for end in (0.0, claim.claimed_low, claim.claimed_high) if math.isfinite(end)) or 1.0
    below = (claim.low - claim.claimed_low) / size if math.isfinite(claim.claimed_low) else math.inf
    above = (claim.claimed_high - claim.high) / size if math.isfinite(claim.claimed_high) else math.inf
    return -math.inf if math.isnan(below + above) else min(below, above)


def place_of(source: str) -> str:
    """Return the source of a claim without its quotation and remarks."""
    return re.split(r': "|;|, which', source)[0].rstrip()


def short(commit: str) -> str:
    """Return a text with the hashes of commits shortened."""
    return re.sub(f"(?<=[0-9a-f]{{{HASH}}})[0-9a-f]+", "", commit)


def _plain(value: object) -> str:
    """Return a setting as text, tuples with parentheses."""
    return f"({', '.join(map(_plain, value))})" if isinstance(value, tuple) else str(value)
