"""Comparison of two runs: changes of verdicts, estimates and claimed ranges, claim by claim."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from linfed.errors import UsageError
from linfed.report.cards import measured
from linfed.reproduction.record import RunRecord
from linfed.statistics.findings import Finding, required

Key: TypeAlias = tuple[str, str, str, str, int]
"""Experiment, text, setting and statistic of a claim, and its number among the claims that share them."""

ROUNDING = 1e-6
"""Relative change that counts as unchanged: another BLAS, or another order of a sum, can cause it."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One claim in two runs.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    before, after : Finding
        Claim in each run.
    """

    experiment: str
    before: Finding
    after: Finding

    @property
    def verdict_moved(self) -> bool:
        """True if the verdicts differ."""
        return self.before.verdict != self.after.verdict

    @property
    def range_moved(self) -> bool:
        """True if the claimed ranges differ."""
        return self.before.claimed_range != self.after.claimed_range

    @property
    def change(self) -> float:
        """Change of the estimate, relative to the largest of both estimates and the ends of the claimed range."""
        old, new = self.before.estimate, self.after.estimate
        if old == new or (math.isnan(old) and math.isnan(new)):
            return 0.0
        if not (math.isfinite(old) and math.isfinite(new)):
            return math.inf
        return abs(new - old) / max(
            abs(end) for end in (self.before.claimed_low, self.before.claimed_high, old, new) if math.isfinite(end)
        )

    def estimate_moved(self, rtol: float | None = None) -> bool:
        """Return True if the estimate changed.

        An estimate has changed if each value lies outside the other's interval, if the relative change exceeds
        `rtol`, or if only one of the values is finite.
        """
        old, new = self.before.estimate, self.after.estimate
        if self.change == math.inf:
            return True
        apart = _outside(new, self.before) and _outside(old, self.after)
        return (apart and self.change > ROUNDING) or (rtol is not None and self.change > rtol)

    @property
    def as_line(self) -> tuple[str, str]:
        """Verdict, estimate and interval as text, before and after."""
        before, after = ((claim.verdict.value, measured(claim)) for claim in (self.before, self.after))
        return " ".join(before), " ".join(after)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Differences between two runs.

    Parameters
    ----------
    verdicts : list of Pair
        Claims with a changed verdict.
    estimates : list of Pair
        Other claims with a changed estimate.
    claimed_range : list of Pair
        Other claims with a changed range.
    before_only, after_only : dict of str to list of Finding
        Claims that only one run has, by experiment.
    other_settings : list of str
        Experiments whose runs have other settings, so that their claims are not compared.
    remarks : list of str
        Remarks about the runs as a whole, e.g. other settings, or experiments that only one run has.
    compared : int
        Number of claims that both runs have.
    """

    verdicts: list[Pair]
    estimates: list[Pair]
    claimed_range: list[Pair]
    before_only: dict[str, list[Finding]]
    after_only: dict[str, list[Finding]]
    other_settings: list[str]
    remarks: list[str]
    compared: int


def compare(
    before: Mapping[str, RunRecord], after: Mapping[str, RunRecord], *, rtol: float | None = None
) -> Comparison:
    """Return the differences between two runs.

    Parameters
    ----------
    before, after : mapping of str to RunRecord
        Records by the name of the experiment.
    rtol : float, optional
        Relative change (`Pair.change`) above which an estimate counts as changed. By default it counts as changed only
        if each estimate lies outside the other's interval.

    Returns
    -------
    Comparison

    Raises
    ------
    UsageError
        If the runs have no experiment in common.
    """
    shared = [name for name in after if name in before]
    if not shared:
        raise UsageError(f"the runs have no experiment in common: {', '.join(before)}; {', '.join(after)}")
    pairs: list[Pair] = []
    only: tuple[dict[str, list[Finding]], dict[str, list[Finding]]] = ({}, {})
    other_settings = [name for name in shared if before[name].kind != after[name].kind]
    for name in (name for name in shared if name not in other_settings):
        old, new = dict(_keyed(before[name])), dict(_keyed(after[name]))
        pairs += [Pair(experiment=name, before=old[key], after=new[key]) for key in new if key in old]
        for claims, other, into in ((old, new, only[0]), (new, old, only[1])):
            left = [claim for key, claim in claims.items() if key not in other]
            if left:
                into[name] = left
    same = [pair for pair in pairs if not pair.verdict_moved]
    return Comparison(
        verdicts=[pair for pair in pairs if pair.verdict_moved],
        estimates=[pair for pair in same if pair.estimate_moved(rtol)],
        claimed_range=[pair for pair in same if pair.range_moved and not pair.estimate_moved(rtol)],
        before_only=only[0],
        after_only=only[1],
        other_settings=other_settings,
        remarks=_remarks(before, after, shared),
        compared=len(pairs),
    )


def format_comparison(found: Comparison, before: str, after: str) -> str:
    """Return a comparison as text; `before` and `after` are the names of the runs."""
    count = f"{found.compared} claim{'s' * (found.compared != 1)} compared"
    lines = [f"{before} -> {after}: {count}", *(f"  {remark}" for remark in found.remarks)]
    for title, pairs in (
        ("changed verdicts", found.verdicts),
        ("changed estimates", found.estimates),
        ("changed required ranges", found.claimed_range),
    ):
        if pairs:
            lines += ["", f"{title}: {len(pairs)}"]
        for pair in pairs:
            claim = pair.after
            lines += [f"  {pair.experiment}: {claim.claim}", f"    {claim.setting}; {claim.statistic}"]
            lines.append(f"    {pair.as_line[0]} -> {pair.as_line[1]}")
            if pair.range_moved:
                before_range, after_range = (required(one.claimed_range) for one in (pair.before, pair.after))
                lines.append(f"    required: {before_range} -> {after_range}")
    for name, only in ((before, found.before_only), (after, found.after_only)):
        number = sum(map(len, only.values()))
        lines += ["", f"only in {name}: {number} claim{'s' * (number != 1)}"] * bool(number)
        lines += [
            f"  {experiment}: {claim.claim} ({claim.setting}; {claim.statistic}): {claim.verdict.value}"
            for experiment, claims in only.items()
            for claim in claims
        ]
    if len(lines) == 1:
        lines.append("  no differences")
    return "\n".join(lines)


def _outside(estimate: float, claim: Finding) -> bool:
    """Return True if a number lies outside a claim's interval; NaN has no effect."""
    return estimate < claim.low or estimate > claim.high


def _keyed(record: RunRecord) -> Iterator[tuple[Key, Finding]]:
    """Yield the claims of a run with their keys."""
    seen: dict[tuple[str, str, str, str], int] = {}
    for claim in record.claims:
        key = (record.experiment, claim.claim, claim.setting, claim.statistic)
        seen[key] = seen.get(key, -1) + 1
        yield (*key, seen[key]), claim


def _remarks(before: Mapping[str, RunRecord], after: Mapping[str, RunRecord], shared: list[str]) -> list[str]:
    remarks = []
    for position, run, other in (("first", before, after), ("second", after, before)):
        left = [name for name in run if name not in other]
        if left:
            remarks.append(f"only the {position} run has {', '.join(left)}")
    for name in shared:
        if before[name].kind != after[name].kind:
            kinds = f"{before[name].kind}; {after[name].kind}"
            remarks.append(f"{name}: the settings differ ({kinds}), so its claims are not compared")
    unfinished = [name for name in shared if not (before[name].is_judged and after[name].is_judged)]
    if unfinished:
        remarks.append(f"one of the runs is not finished: {', '.join(unfinished)}")
    return remarks
