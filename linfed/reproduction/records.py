"""Saved runs, read from their JSON alone: what describes them, their claims and the captions of their figures."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from linfed.errors import UsageError, shown, suggestion
from linfed.reproduction.committed import committed_runs
from linfed.statistics.findings import Finding, Hypothesis, Verdict

ENDS = (-math.inf, math.nan, math.inf)
"""What the null of an interval's end may have been."""


def read_saved(name: str, folder: Path) -> dict[str, Any]:
    """Return what the JSON of a saved run holds.

    Parameters
    ----------
    name : str
        The experiment's name.
    folder : Path
        Where the run was written.

    Raises
    ------
    UsageError
        If there is none, or if it cannot be read; the message says what to do.
    """
    path = folder / f"{name}.json"
    try:
        described = read_record(path)
        if not isinstance(described["claims"], list) or not isinstance(described["quick"], bool):
            raise ValueError("no claims")
    except FileNotFoundError:
        raise UsageError(f"no saved run of {name!r} in {str(folder.resolve())!r}: {_way_out(name, folder)}") from None
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError) as error:
        told = " ".join(str(error).split())
        raise UsageError(f"{str(path)!r} is no record of a run ({told}): linfed reproduce {name} writes it") from None
    return dict(described)


TEXTS = ("text", "where", "statistic", "source", "said", "detail", "note", "vacuous")
NUMBERS = ("estimate", "low", "high", "least", "most")
"""Fields of a recorded claim."""


def read_record(path: Path) -> Any:
    """Return what a JSON file holds; a run's record is checked (`check_record`).

    Raises
    ------
    ValueError
        If it is not JSON, or a run's record with fields of wrong types.
    OSError
        If it cannot be read.
    """
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if isinstance(described, dict) and {"experiment", "claims"} <= described.keys():
        check_record(described)
    return described


def check_record(described: Mapping[str, Any]) -> None:
    """Raise ValueError unless the fields of a run's record have the types that `linfed reproduce` writes."""
    optional: dict[str, Any] = {"quick": bool, "seconds": int | float, "versions": dict, "blas": list, "tables": dict}
    optional |= {"figures": dict, "set": dict, "file": str}
    _check_types(described, {"experiment": str, "claims": list}, "")
    _check_types(described, {name: kind for name, kind in optional.items() if name in described}, "")
    if not re.fullmatch(r"\w[\w-]*", described["experiment"]):
        raise ValueError(f"experiment = {shown(described['experiment'])} is not the name of an experiment")
    for place, one in enumerate(described.get("blas", [])):
        if not isinstance(one, str):
            raise ValueError(f"blas[{place}] = {shown(one)} has the wrong type")
    for number, claim in enumerate(described["claims"]):
        of = f"claims[{number}]."
        if not isinstance(claim, dict):
            raise ValueError(f"claims[{number}] is not an object")
        _check_types(claim, dict.fromkeys(TEXTS, str) | dict.fromkeys(NUMBERS, int | float | None), of)
        _check_types(claim, {"verdict": str, "hypotheses": list}, of)
        if claim["verdict"] not in [verdict.value for verdict in Verdict]:
            raise ValueError(f"{of}verdict = {shown(claim['verdict'])} is unknown")
        for place, one in enumerate(claim["hypotheses"]):
            if not isinstance(one, dict):
                raise ValueError(f"{of}hypotheses[{place}] is not an object")
            numbers = dict.fromkeys(("left", "right"), int | float | None)
            _check_types(one, {"text": str, **numbers}, f"{of}hypotheses[{place}].")


def _check_types(fields: Mapping[str, Any], kinds: Mapping[str, Any], of: str) -> None:
    for name, kind in kinds.items():
        if name not in fields:
            raise ValueError(f"{of}{name} is missing")
        if not isinstance(fields[name], kind) or (isinstance(fields[name], bool) and kind is not bool):
            raise ValueError(f"{of}{name} = {shown(fields[name])} has the wrong type")


def _way_out(name: str, folder: Path) -> str:
    """Return what to do where there is no saved run."""
    if (folder / "quick" / f"{name}.json").exists():
        return "there is a quick one, which --quick takes"
    if folder.name == "quick" and (folder.parent / f"{name}.json").exists():
        return "there is a full one, which is taken without --quick"
    known = {*(path.stem for path in folder.glob("*.json")), *committed_runs()}
    if near := "" if name in known else suggestion(name, sorted(known)):
        return near.strip(" ()")
    return f"linfed reproduce {name} makes one, --out DIR names another folder"


def recorded(claim: Finding) -> dict[str, Any]:
    """Return all that a finding holds, and its verdict, as it is kept."""
    return {**asdict(claim), "said": claim.said, "verdict": claim.verdict.value}


def claims_of(described: Mapping[str, Any]) -> list[Finding]:
    """Return the claims of a saved run as findings.

    JSON has null for numbers that are not finite: the ends of an interval become those that its verdict asks for.
    """
    return [_finding(claim) for claim in described["claims"]]


def _finding(claim: Mapping[str, Any]) -> Finding:
    own = {field.name: claim[field.name] for field in fields(Finding) if field.name in claim}
    own["least"] = -math.inf if own["least"] is None else own["least"]
    own["most"] = math.inf if own["most"] is None else own["most"]
    own["hypotheses"] = tuple(_hypothesis(one) for one in claim["hypotheses"])
    lows, highs = (ENDS if own[end] is None else (own[end],) for end in ("low", "high"))
    tried = []
    for low, high in itertools.product(lows, reversed(highs)):
        estimate = own["estimate"] if own["estimate"] is not None else low if low == high else math.nan
        tried.append(Finding(**{**own, "estimate": estimate, "low": low, "high": high}))
    return next((finding for finding in tried if finding.verdict.value == claim["verdict"]), tried[0])


def _hypothesis(told: Mapping[str, Any]) -> Hypothesis:
    left, right = (math.inf if told[side] is None else told[side] for side in ("left", "right"))
    return Hypothesis(text=told["text"], left=left, right=right)


def captions_of(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the captions of a saved run's figures by their keys; nothing where none were kept."""
    figures = described.get("figures")
    return {str(key): str(text) for key, text in figures.items()} if isinstance(figures, dict) else {}


def state_of(name: str, folder: Path) -> str:
    """Return how a saved run stands: ``full``, ``quick``, ``unfinished``, ``unreadable``, or nothing without one."""
    if not (folder / f"{name}.json").exists():
        return ""
    try:
        described = read_saved(name, folder)
    except UsageError:
        return "unreadable"
    if not described["claims"] and "judged" not in described:
        return "unfinished"
    return "quick" if described["quick"] else "full"


def kind_of_run(described: Mapping[str, Any]) -> str:
    """Return which run a record is of: a full or a quick one, and the fields of its cells that were set."""
    return f"{'quick' if described.get('quick') else 'full'} run{set_in(described)}"


def set_in(described: Mapping[str, Any]) -> str:
    """Return the fields of a run's cells that were set, after a comma each."""
    return "".join(f", {name} = {value}" for name, value in described.get("set", {}).items())
