"""Verdicts, settings and times of the committed full runs, from a small file in the package.

``docs/tools/publish.py`` writes the file from ``results/committed/``, which is not part of the package.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections import Counter
from collections.abc import Iterable
from importlib import resources
from typing import NamedTuple, TypeAlias

from linfed.statistics.findings import Finding

FILE = "committed.json.gz"
"""File of the package with the seconds, the settings and the claims' verdicts of each experiment."""

MOST_LISTED = 3
"""Largest number of a setting's values in a message."""

Settings: TypeAlias = dict[str, dict[str, list[str]]]
"""For each table, the values of each field of its cells, and its number of rows under ``rows``; all as text."""

Key: TypeAlias = tuple[str, str, str]
"""Text, statistic and setting of a claim."""


class Committed(NamedTuple):
    """A committed run.

    Parameters
    ----------
    seconds : float
        Time of the run on two processors, at least half of the processor time of all its cells: an earlier run may have
        computed some of them.
    verdicts : dict
        Verdicts by the claim's text, statistic and setting.
    settings : dict, optional
        Known settings.
    """

    seconds: float
    verdicts: dict[Key, list[str]]
    settings: Settings = {}  # noqa: RUF012  (a default that no code changes)


@functools.cache
def committed_runs() -> dict[str, Committed]:
    """Return the committed runs by the name of the experiment."""
    runs = json.loads(gzip.decompress(resources.files(__package__).joinpath(FILE).read_bytes()))
    return {
        name: Committed(
            run["seconds"],
            _by_key((one["claim"], one["statistic"], one["setting"], one["verdict"]) for one in run["claims"]),
            run.get("settings", {}),
        )
        for name, run in runs.items()
    }


def verdicts_of(claims: Iterable[Finding]) -> dict[Key, list[str]]:
    """Return the verdicts of claims by claim, statistic and setting; several verdicts of one key keep their order."""
    return _by_key((one.claim, one.statistic, one.setting, one.verdict.value) for one in claims)


def _by_key(verdicts: Iterable[tuple[str, str, str, str]]) -> dict[Key, list[str]]:
    found: dict[Key, list[str]] = {}
    for claim, statistic, setting, verdict in verdicts:
        found.setdefault((claim, statistic, setting), []).append(verdict)
    return found


def other_settings(name: str, settings: Settings) -> str:
    """Return a line with the settings that differ from the committed run; empty if none differ.

    Only fields that both runs have are compared.
    """
    committed, lines = committed_runs()[name].settings, []
    for key in committed.keys() & settings.keys():
        for field in committed[key].keys() & settings[key].keys():
            before, now = committed[key][field], settings[key][field]
            if before != now:
                lines.append(f"{field} {_listed(now, before)} instead of {_listed(before, now)} in {key!r}")
    return f"{name}: settings differ from the committed run: {'; '.join(sorted(lines))}" if lines else ""


def _listed(values: list[str], others: list[str]) -> str:
    """Return the values that are not among the others, or all values if every one is; list at most `MOST_LISTED`."""
    distinct = [value for value in values if value not in others] or values
    return ", ".join(distinct[:MOST_LISTED]) + (", .." if len(distinct) > MOST_LISTED else "")


def differences(name: str, claims: Iterable[Finding]) -> list[str]:
    """Return a line for each claim whose verdicts differ from the committed run."""
    expected, found = committed_runs()[name].verdicts, verdicts_of(claims)
    lines = []
    for key in {**expected, **found}:
        before, now = expected.get(key, []), found.get(key, [])
        if before != now:
            text, statistic, where = key
            verdicts = f"{_verdict_text(now)} instead of {_verdict_text(before)}"
            lines.append(f"{name}: {verdicts}: {text} ({where}; {statistic})")
    return lines


def _verdict_text(verdicts: list[str]) -> str:
    """Return verdicts as text, with the number of each that occurs several times."""
    counted = Counter(verdicts).items()
    return ", ".join(f"{count} {verdict}" if count > 1 else verdict for verdict, count in counted) or "no such claim"
