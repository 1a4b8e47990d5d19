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
from typing import Any, NamedTuple

from linfed.system.files import replacing

RECORD = Path(__file__).with_name("committed.json.gz")
"""Of each experiment its seconds, and the verdict of each claim by text, statistic and place."""


class Committed(NamedTuple):
    """A committed run: its seconds, None where they are not known, and its verdicts by text, statistic and place."""

    seconds: float | None
    verdicts: dict[tuple[str, str, str], list[str]]


@functools.cache
def committed_runs() -> dict[str, Committed]:
    """Return the committed run of each experiment by its name."""
    known = json.loads(gzip.decompress(RECORD.read_bytes()))
    return {name: Committed(told["seconds"], verdicts_of(told["claims"])) for name, told in known.items()}


def verdicts_of(claims: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[str]]:
    """Return the verdicts of claims, each with text, statistic, where and verdict; those of one key in their order."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for claim in claims:
        found.setdefault((claim["text"], claim["statistic"], claim["where"]), []).append(claim["verdict"])
    return found


def write_record(described: Iterable[tuple[dict[str, Any], bool]], path: Path = RECORD) -> Path:
    """Write the record of runs.

    Parameters
    ----------
    described : iterable of (dict, bool)
        What a run's JSON holds, and whether its seconds are those of all of its cells.
    path : Path
    """
    fields = ("text", "statistic", "where", "verdict")
    record = {
        run["experiment"]: {
            "seconds": round(run["seconds"], 1) if whole else None,
            "claims": [{name: claim[name] for name in fields} for claim in run["claims"]],
        }
        for run, whole in described
    }
    content = json.dumps(record, separators=(",", ":"), sort_keys=True).encode()
    with replacing(path) as file:
        file.write(gzip.compress(content, mtime=0))
    return path


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
