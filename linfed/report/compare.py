"""What moved between two runs: verdicts, estimates and what is said, claim by claim."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from linfed.errors import UsageError, suggestion
from linfed.report.scoreboard import Record, measured, record, records

Key: TypeAlias = tuple[str, str, str, str, int]
"""Experiment, text, where, statistic, and which one of those that share them."""

ROUNDING = 1e-6
"""A share of the numbers' size that is no move: of another BLAS, or another order of a sum."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One claim in two runs.

    Parameters
    ----------
    experiment : str
    before, after : mapping
        The claim as ``NAME.json`` of each run has it.
    """

    experiment: str
    before: Record
    after: Record

    @property
    def verdict_moved(self) -> bool:
        """Whether the verdicts differ."""
        return bool(self.before["verdict"] != self.after["verdict"])

    @property
    def said_moved(self) -> bool:
        """Whether the claims say different ranges."""
        return bool(self.before["said"] != self.after["said"])

    @property
    def change(self) -> float:
        """How far the estimate moved, as a share of the largest of both estimates and the ends of what is said."""
        old, new = self.before["estimate"], self.after["estimate"]
        if old is None or new is None:
            return 0.0 if old is new else math.inf
        ends = (self.before["least"], self.before["most"], old, new)
        size = max(abs(end) for end in ends if end is not None)
        return abs(new - old) / size if size else 0.0

    def estimate_moved(self, relative: float | None = None) -> bool:
        """Return whether each estimate is outside of the other's interval, or moved by more than a share.

        One that is there in one run only has moved.
        """
        old, new = self.before["estimate"], self.after["estimate"]
        if old is None or new is None:
            return old is not new
        apart = _outside(new, self.before) and _outside(old, self.after)
        return (apart and self.change > ROUNDING) or (relative is not None and self.change > relative)

    @property
    def told(self) -> tuple[str, str]:
        """The verdict, the estimate and its interval, before and after."""
        before, after = ((claim["verdict"], measured(claim)) for claim in (self.before, self.after))
        return " ".join(before), " ".join(after)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What moved between two runs.

    Parameters
    ----------
    verdicts, estimates, said : list of Pair
        Claims of which the verdict moved; of the others, those of which the estimate moved, or the range that is said.
    before_only, after_only : dict of str to list of mapping
        Claims that only one run has, by experiment.
    remarks : list of str
        What makes the runs differ as a whole: quick ones, experiments that only one has.
    compared : int
        Claims that both have.
    """

    verdicts: list[Pair]
    estimates: list[Pair]
    said: list[Pair]
    before_only: dict[str, list[Record]]
    after_only: dict[str, list[Record]]
    remarks: list[str]
    compared: int


def read(path: str, argument: str = "FOLDER") -> tuple[Path, dict[str, Record]]:
    """Return the folder and the records of a run: those of a folder, or one ``NAME.json``.

    Raises
    ------
    UsageError
        If there is none; the message begins with the name of the argument.
    """
    where = Path(path)
    if where.is_dir():
        found = records(where)
        if not found:
            inside = [part.name for part in sorted(where.iterdir()) if part.is_dir() and any(part.glob("*.json"))]
            near = f"; there are some in {', '.join(str(where / name) for name in inside)}" if inside else ""
            raise UsageError(f"{argument} {path!r} holds no NAME.json that linfed reproduce wrote{near}")
        return where, found
    if not where.exists():
        beside = [part.name for part in where.parent.iterdir()] if where.parent.is_dir() else []
        raise UsageError(f"{argument} {path!r} does not exist{suggestion(where.name, beside)}")
    described = record(where)
    if described is None:
        raise UsageError(f"{argument} {path!r} is not a NAME.json that linfed reproduce wrote")
    return where.parent, {str(described["experiment"]): described}


def compare(before: Mapping[str, Record], after: Mapping[str, Record], *, relative: float | None = None) -> Comparison:
    """Return what moved between two runs.

    Parameters
    ----------
    before, after : mapping of str to mapping
        By the experiment's name what its ``NAME.json`` holds.
    relative : float, optional
        An estimate has moved where each lies outside of the other's interval; with a share, also where it moved by
        more than this share of the numbers' size (`Pair.change`).

    Raises
    ------
    UsageError
        If they have no experiment in common.
    """
    shared = [name for name in after if name in before]
    if not shared:
        raise UsageError(f"the runs have no experiment in common: {', '.join(before)}; and {', '.join(after)}")
    pairs: list[Pair] = []
    only: tuple[dict[str, list[Record]], dict[str, list[Record]]] = ({}, {})
    for name in shared:
        old, new = dict(_keyed(name, before[name])), dict(_keyed(name, after[name]))
        pairs += [Pair(experiment=name, before=old[key], after=new[key]) for key in new if key in old]
        for own, other, into in ((old, new, only[0]), (new, old, only[1])):
            left = [claim for key, claim in own.items() if key not in other]
            if left:
                into[name] = left
    same = [pair for pair in pairs if not pair.verdict_moved]
    return Comparison(
        verdicts=[pair for pair in pairs if pair.verdict_moved],
        estimates=[pair for pair in same if pair.estimate_moved(relative)],
        said=[pair for pair in same if pair.said_moved and not pair.estimate_moved(relative)],
        before_only=only[0],
        after_only=only[1],
        remarks=_remarks(before, after, shared),
        compared=len(pairs),
    )


def told(found: Comparison, before: str, after: str) -> str:
    """Return a comparison as text; `before` and `after` are the runs' names."""
    lines = [f"{before} -> {after}: {found.compared} claims compared", *(f"  {remark}" for remark in found.remarks)]
    for title, pairs in (
        ("verdicts that moved", found.verdicts),
        ("estimates that moved", found.estimates),
        ("said otherwise", found.said),
    ):
        lines += ["", f"{title}: {len(pairs)}"]
        for pair in pairs:
            claim = pair.after
            lines += [f"  {pair.experiment}: {claim['text']}", f"    {claim['where']}; {claim['statistic']}"]
            lines.append(f"    {pair.told[0]} -> {pair.told[1]}")
            if pair.said_moved:
                lines.append(f"    said: {pair.before['said']} -> {pair.after['said']}")
    for name, only in ((before, found.before_only), (after, found.after_only)):
        lines += ["", f"only in {name}: {sum(map(len, only.values()))} claims"]
        lines += [
            f"  {experiment}: {claim['text']} ({claim['where']}; {claim['statistic']}): {claim['verdict']}"
            for experiment, claims in only.items()
            for claim in claims
        ]
    return "\n".join(lines)


def _outside(estimate: float, claim: Record) -> bool:
    """Return whether a number lies outside of a claim's interval; an end that is not finite bounds nothing."""
    low, high = claim["low"], claim["high"]
    return (low is not None and estimate < low) or (high is not None and estimate > high)


def _keyed(name: str, described: Record) -> Iterator[tuple[Key, Record]]:
    """Yield the claims of a run by what names them."""
    seen: dict[tuple[str, str, str, str], int] = {}
    for claim in described["claims"]:
        key = (name, claim["text"], claim["where"], claim["statistic"])
        seen[key] = seen.get(key, -1) + 1
        yield (*key, seen[key]), claim


def _remarks(before: Mapping[str, Record], after: Mapping[str, Record], shared: list[str]) -> list[str]:
    remarks = []
    for told, own, other in (("first", before, after), ("second", after, before)):
        left = [name for name in own if name not in other]
        if left:
            remarks.append(f"only the {told} run has {', '.join(left)}")
    mixed = [name for name in shared if before[name].get("quick") != after[name].get("quick")]
    if mixed:
        remarks.append(f"a quick run against a full one, whose numbers differ: {', '.join(mixed)}")
    unfinished = [name for name in shared if not (before[name]["claims"] and after[name]["claims"])]
    if unfinished:
        remarks.append(f"one of the runs did not end: {', '.join(unfinished)}")
    return remarks
