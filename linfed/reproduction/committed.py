"""What the committed full runs said and how long they took: a small file that ships with the package.

``docs/publish.py`` writes it from ``results/committed/``; in the package there is nothing else of those runs.
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
"""Of each experiment its seconds, its settings, and the verdict of each claim by text, statistic and place."""

MOST_LISTED = 3
"""Values of a setting that a message names."""

Settings: TypeAlias = dict[str, dict[str, list[str]]]
"""Of each table the values of each field of its cells, and under ``rows`` how many rows it has, all as text."""


class Committed(NamedTuple):
    """A committed run: its seconds, None where they are not known, its verdicts by text, statistic and place.

    Settings that are not known are left out.
    """

    seconds: float | None
    verdicts: dict[tuple[str, str, str], list[str]]
    settings: Settings = {}  # noqa: RUF012  (of a tuple, which nobody changes)


@functools.cache
def committed_runs() -> dict[str, Committed]:
    """Return the committed run of each experiment by its name."""
    known = json.loads(gzip.decompress(RECORD.read_bytes()))
    return {
        name: Committed(told["seconds"], verdicts_of(told["claims"]), told.get("settings", {}))
        for name, told in known.items()
    }


def verdicts_of(claims: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[str]]:
    """Return the verdicts of claims, each with text, statistic, where and verdict; those of one key in their order."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for claim in claims:
        found.setdefault((claim["text"], claim["statistic"], claim["where"]), []).append(claim["verdict"])
    return found


def write_record(described: Iterable[tuple[dict[str, Any], bool, Settings]], path: Path = RECORD) -> Path:
    """Write the record of runs.

    Parameters
    ----------
    described : iterable of (dict, bool, dict)
        What a run's JSON holds, whether its seconds are those of all of its cells, and its settings.
    path : Path
    """
    fields = ("text", "statistic", "where", "verdict")
    record = {
        run["experiment"]: {
            "seconds": round(run["seconds"], 1) if whole else None,
            "settings": settings,
            "claims": [{name: claim[name] for name in fields} for claim in run["claims"]],
        }
        for run, whole, settings in described
    }
    content = json.dumps(record, separators=(",", ":"), sort_keys=True).encode()
    with replacing(path) as file:
        file.write(gzip.compress(content, mtime=0))
    return path


def other_settings(name: str, settings: Settings) -> str:
    """Return in what the settings of a run are others than those of the committed run, or nothing.

    What only one of the two has, as a field that was added since, is not compared.
    """
    known, told = committed_runs()[name].settings, []
    for key in known.keys() & settings.keys():
        for field in known[key].keys() & settings[key].keys():
            before, now = known[key][field], settings[key][field]
            if before != now:
                told.append(f"{field} {_listed(now, before)} instead of {_listed(before, now)} in {key!r}")
    return f"{name}: other settings than the committed run: {'; '.join(sorted(told))}" if told else ""


def _listed(values: list[str], others: list[str]) -> str:
    """Return those of the values that are not among the others, or all of them, at most three."""
    shown = [value for value in values if value not in others] or values
    return ", ".join(shown[:MOST_LISTED]) + (", .." if len(shown) > MOST_LISTED else "")


def differences(name: str, claims: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return in what the verdicts of a run are others than those of the committed run, a line each."""
    expected, found = committed_runs()[name].verdicts, verdicts_of(claims)
    told = []
    for key in {**expected, **found}:
        before, now = expected.get(key, []), found.get(key, [])
        if before != now:
            text, statistic, where = key
            verdicts = f"{_told(now)} instead of {_told(before)}"
            told.append(f"{name}: {verdicts}: {text} ({where}; {statistic})")
    return told


def _told(verdicts: list[str]) -> str:
    counted = Counter(verdicts).items()
    return ", ".join(f"{count} {verdict}" if count > 1 else verdict for verdict, count in counted) or "no such claim"
