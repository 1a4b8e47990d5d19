"""Theoretical claims in saved runs, each with its source and the setting in which it is nearest to failing.

A claim is theoretical if it is judged as a theorem, its source is a theorem, or this project derived it. Claims with
the same text, source and statistic are combined.
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
"""Title of each section, by the first part of an experiment's name."""


class Statement(NamedTuple):
    """Theoretical claim with its verdicts in all settings.

    `verdicts` contains the number of settings with each verdict. `measured` belongs to the setting `setting`, in which
    the claim is nearest to failing or fails by the largest amount.
    """

    claim: str
    source: str
    verdicts: dict[str, int]
    measured: str
    setting: str

    @property
    def verdict(self) -> str:
        """Verdicts as text."""
        return counted(self.verdicts)


def statements(described: Record) -> list[Statement]:
    """Return the theoretical claims of a run."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for claim in described["claims"]:
        if claim["theorem"] or claim["source"].startswith(OWN_PREDICTION) or re.search(r"Theorem \d", claim["source"]):
            found.setdefault((claim["claim"], claim["source"], claim["statistic"]), []).append(claim)
    return [_statement(group) for group in found.values()]


def sections(records: Mapping[str, Record]) -> dict[str, dict[str, list[Statement]]]:
    """Return the theoretical claims of runs by section and experiment, without experiments that have none."""
    found: dict[str, dict[str, list[Statement]]] = {}
    for start, title in PAPERS.items():
        by_experiment = {name: statements(records[name]) for name in sorted(records) if name.startswith(f"{start}-")}
        found.setdefault(title, {}).update({name: claims for name, claims in by_experiment.items() if claims})
    return found


def slack(claim: Record) -> float:
    """Return the distance of the interval from the ends of the claimed range, relative to the largest number.

    It is negative if the interval is not inside the range.
    """
    low, high, least, most = (claim[name] for name in ("low", "high", "claimed_low", "claimed_high"))
    size = max((abs(value) for value in (low, high, least, most) if value is not None), default=1.0) or 1.0
    below = math.inf if least is None else -math.inf if low is None else (low - least) / size
    above = math.inf if most is None else -math.inf if high is None else (most - high) / size
    return min(below, above)


def _statement(group: list[Record]) -> Statement:
    judged = [claim for claim in group if claim["verdict"] not in NOT_JUDGED] or group
    worst = min(judged, key=slack)
    verdicts = Counter(claim["verdict"] for claim in group)
    measurement = f"{worst['statistic']}: {measured(worst)}; claimed: {worst['claimed_range']}"
    return Statement(worst["claim"], worst["source"], dict(verdicts), measurement, worst["setting"])
