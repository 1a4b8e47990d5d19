"""Verdicts, settings and times of the committed full runs, from a small file in the package.

``docs/publish.py`` writes the file from ``results/committed/``, which is not part of the package.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from linfed.system.files import replacing

RECORD = Path(__file__).with_name("committed.json.gz")
"""File with the seconds, the settings and the claims' verdicts of each experiment."""

MOST_LISTED = 3
"""Largest number of a setting's values in a message."""

Settings: TypeAlias = dict[str, dict[str, list[str]]]
"""For each table, the values of each field of its cells, and its number of rows under ``rows``; all as text."""


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
    verdicts: dict[tuple[str, str, str], list[str]]
    settings: Settings = {}  # noqa: RUF012  (a default that no code changes)


@functools.cache
def committed_runs() -> dict[str, Committed]:
    """Return the committed runs by the name of the experiment."""
    records = json.loads(gzip.decompress(RECORD.read_bytes()))
    return {
        name: Committed(record["seconds"], verdicts_of(record["claims"]), record.get("settings", {}))
        for name, record in records.items()
    }


def verdicts_of(claims: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[str]]:
    """Return the verdicts of claims by claim, statistic and setting; several verdicts of one key keep their order."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for claim in claims:
        found.setdefault((claim["claim"], claim["statistic"], claim["setting"]), []).append(claim["verdict"])
    return found


def write_record(described: Iterable[tuple[dict[str, Any], Settings]], path: Path = RECORD) -> Path:
    """Write the file of committed runs, and return its path.

    Parameters
    ----------
    described : iterable of (dict, dict)
        For each run the content of its JSON and its settings.
    path : Path, optional
        The file to write; by default the one in the package.
    """
    fields = ("claim", "statistic", "setting", "verdict")
    record = {
        run["experiment"]: {
            "seconds": round(max(run["seconds"], run.get("processor_seconds", 0.0) / 2), 1),
            "settings": settings,
            "claims": [{name: claim[name] for name in fields} for claim in run["claims"]],
        }
        for run, settings in described
    }
    content = json.dumps(record, separators=(",", ":"), sort_keys=True).encode()
    with replacing(path) as file:
        file.write(gzip.compress(content, mtime=0))
    return path


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


def differences(name: str, claims: Iterable[Mapping[str, Any]]) -> list[str]:
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
