"""The statements of theory in saved runs: their sources, and the setting in which each is nearest to failing.

A statement is of theory if its verdict has a theorem's words, its source is a theorem, or this project derived it.
Those of one sentence, source and statistic are one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from linfed.report.scoreboard import NOT_JUDGED, Record, counted, measured
from linfed.statistics.findings import OWN_PREDICTION

PAPERS = {
    "fedrep": "FedRep",
    "flute": "FLUTE",
    "shortcut": "The shortcut draft",
    "fedavg": "Averaging",
    "averaging": "Averaging",
}
"""Sections, by the beginning of an experiment's name."""


class Statement(NamedTuple):
    """A statement of theory in all settings in which it was judged.

    `verdicts` are how often which was given; `measured` is of the setting `where`, in which it is nearest to failing or
    fails by most.
    """

    text: str
    source: str
    verdicts: dict[str, int]
    measured: str
    where: str

    @property
    def verdict(self) -> str:
        """The verdicts in words."""
        return counted(self.verdicts)


def statements(described: Record) -> list[Statement]:
    """Return the statements of theory of a run."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for claim in described["claims"]:
        if claim["theorem"] or claim["source"].startswith(OWN_PREDICTION) or re.search(r"Theorem \d", claim["source"]):
            found.setdefault((claim["text"], claim["source"], claim["statistic"]), []).append(claim)
    return [_statement(group) for group in found.values()]


def sections(records: Mapping[str, Record]) -> dict[str, dict[str, list[Statement]]]:
    """Return the statements of runs by section and experiment; experiments without one are left out."""
    found: dict[str, dict[str, list[Statement]]] = {}
    for start, title in PAPERS.items():
        own = {name: statements(records[name]) for name in sorted(records) if name.startswith(f"{start}-")}
        found.setdefault(title, {}).update({name: said for name, said in own.items() if said})
    return found


def slack(claim: Record) -> float:
    """Return how far the interval is inside what is said, as a share of the numbers' size."""
    low, high, least, most = (claim[name] for name in ("low", "high", "least", "most"))
    size = max((abs(value) for value in (low, high, least, most) if value is not None), default=1.0) or 1.0
    below = math.inf if least is None else -math.inf if low is None else (low - least) / size
    above = math.inf if most is None else -math.inf if high is None else (most - high) / size
    return min(below, above)


def _statement(group: list[Record]) -> Statement:
    judged = [claim for claim in group if claim["verdict"] not in NOT_JUDGED] or group
    worst = min(judged, key=slack)
    verdicts = Counter(claim["verdict"] for claim in group)
    told = f"{worst['statistic']}: {measured(worst)}; said: {worst['said']}"
    return Statement(worst["text"], worst["source"], dict(verdicts), told, worst["where"])
