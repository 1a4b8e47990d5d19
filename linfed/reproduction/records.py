"""Read the JSON records of saved runs: configuration, claims and captions."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from linfed.checks import short_repr, suggestion
from linfed.errors import UsageError
from linfed.reproduction.committed import committed_runs
from linfed.statistics.findings import Finding, Hypothesis, Verdict
from linfed.system.files import refuse_pipe

ENDS = (-math.inf, math.nan, math.inf)
"""Values that JSON stores as null; candidates for the ends of an interval."""


def read_saved(name: str, folder: Path) -> dict[str, Any]:
    """Read the record of a saved run.

    Parameters
    ----------
    name : str
        Name of the experiment.
    folder : Path
        Folder of the saved run.

    Returns
    -------
    dict
        Content of ``NAME.json``.

    Raises
    ------
    UsageError
        If the file does not exist, cannot be read, or is not the record of a run.
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
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{str(path)!r} is not the record of a run ({reason}): rewrite it with {_reproduce_command(name, folder)}"
        ) from None
    return dict(described)


TEXTS = ("claim", "setting", "statistic", "source", "claimed_range", "detail", "note", "vacuous")
NUMBERS = ("estimate", "low", "high", "claimed_low", "claimed_high")
"""Fields with numbers in a recorded claim; `TEXTS` are those with text."""


def read_record(path: Path) -> Any:
    """Read a JSON file, and check its fields if it is the record of a run.

    Raises
    ------
    ValueError
        If the file is not JSON, or is a record with fields of wrong types.
    OSError
        If the file cannot be read.
    """
    refuse_pipe(path)
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if isinstance(described, dict) and {"experiment", "claims"} <= described.keys():
        check_record(described)
    return described


def check_record(described: Mapping[str, Any]) -> None:
    """Raise `ValueError` if a field of a record is missing or has the wrong type."""
    optional: dict[str, Any] = {"quick": bool, "versions": dict, "blas": list, "tables": dict}
    optional |= dict.fromkeys(("seconds", "processor_seconds"), int | float)
    optional |= {"figures": dict, "set": dict, "file": str, "command": str, "source": dict, "remarks": list}
    _check_types(described, {"experiment": str, "claims": list}, "")
    _check_types(described, {name: kind for name, kind in optional.items() if name in described}, "")
    if not re.fullmatch(r"\w[\w-]*", described["experiment"]):
        raise ValueError(f"experiment = {short_repr(described['experiment'])} is not the name of an experiment")
    for place, one in enumerate(described.get("blas", [])):
        if not isinstance(one, str):
            raise ValueError(f"blas[{place}] = {short_repr(one)} has the wrong type")
    for number, claim in enumerate(described["claims"]):
        of = f"claims[{number}]."
        if not isinstance(claim, dict):
            raise ValueError(f"claims[{number}] is not an object")
        _check_types(claim, dict.fromkeys(TEXTS, str) | dict.fromkeys(NUMBERS, int | float | None), of)
        _check_types(claim, {"verdict": str, "hypotheses": list}, of)
        if claim["verdict"] not in [verdict.value for verdict in Verdict]:
            raise ValueError(f"{of}verdict = {short_repr(claim['verdict'])} is unknown")
        for place, one in enumerate(claim["hypotheses"]):
            if not isinstance(one, dict):
                raise ValueError(f"{of}hypotheses[{place}] is not an object")
            numbers = dict.fromkeys(("left", "right"), int | float | None)
            _check_types(one, {"text": str, **numbers}, f"{of}hypotheses[{place}].")


def _check_types(fields: Mapping[str, Any], kinds: Mapping[str, Any], of: str) -> None:
    """Raise `ValueError` if a field is missing or has the wrong type; `of` is the prefix of its name in the message."""
    for name, kind in kinds.items():
        if name not in fields:
            raise ValueError(f"{of}{name} is missing")
        if not isinstance(fields[name], kind) or (isinstance(fields[name], bool) and kind is not bool):
            raise ValueError(f"{of}{name} = {short_repr(fields[name])} has the wrong type")


def _way_out(name: str, folder: Path) -> str:
    """Return advice for a saved run that does not exist."""
    if (folder / "quick" / f"{name}.json").exists():
        return "there is a quick run; select it with --quick"
    if folder.name == "quick" and (folder.parent / f"{name}.json").exists():
        return "there is a full run; leave out --quick"
    for changed in (folder / "set", folder / "set" / "quick", folder.parent / "set" / "quick"):
        if (changed / f"{name}.json").exists():
            return f"there is a run with changed fields; choose it with --out {changed}"
    known = name in committed_runs() or _own_file(name)
    names = {*(path.stem for path in folder.glob("*.json")), *committed_runs()}
    if near := "" if known else suggestion(name, sorted(names)):
        return near.strip(" ()")
    listed = "" if known else " if linfed list has this name"
    return f"run {_reproduce_command(name, folder)}{listed}, or choose another folder with --out DIR"


def _own_file(name: str) -> str:
    """Return the file in the working folder that defines an experiment without a committed run, or an empty string."""
    files = () if name in committed_runs() else (f"{name}.py", f"{name.replace('-', '_')}.py")
    return next((file for file in files if Path(file).is_file()), "")


def _reproduce_command(name: str, folder: Path) -> str:
    """Return the command that runs an experiment, or a file in the working folder, and writes to a folder."""
    quick = folder == Path("results/quick")
    return _command_in(folder, ["linfed", "reproduce", _own_file(name) or name], quick=quick)


def _command_in(folder: Path | None, words: Sequence[str], *, quick: bool) -> str:
    """Return a command for a folder of full or quick runs; None means the default folder."""
    if folder in (None, Path("results/quick" if quick else "results")):
        return shlex.join([*words, *["--quick"] * quick])
    return shlex.join([*words, "--out", str(folder)])


def finding_to_dict(claim: Finding) -> dict[str, Any]:
    """Return a finding as a dict for the record, with its claimed range and verdict."""
    return {**asdict(claim), "claimed_range": claim.claimed_range, "verdict": claim.verdict.value}


def load_findings(described: Mapping[str, Any]) -> list[Finding]:
    """Return the claims of a saved run as findings.

    JSON stores infinite numbers and NaN as null. For an interval with such an end, the value is restored that leads to
    the recorded verdict. If two such ends have no influence on it, they are NaN.
    """
    return [_finding(claim) for claim in described["claims"]]


def _finding(claim: Mapping[str, Any]) -> Finding:
    """Return a recorded claim as a finding."""
    values = {field.name: claim[field.name] for field in fields(Finding) if field.name in claim}
    values["claimed_low"] = -math.inf if values["claimed_low"] is None else values["claimed_low"]
    values["claimed_high"] = math.inf if values["claimed_high"] is None else values["claimed_high"]
    values["hypotheses"] = tuple(_hypothesis(one) for one in claim["hypotheses"])
    lows, highs = (ENDS if values[end] is None else (values[end],) for end in ("low", "high"))
    unknown = claim["verdict"] in (Verdict.VACUOUS.value, Verdict.HYPOTHESES_FAIL.value) and lows == highs == ENDS
    tried = []
    for low, high in [(math.nan, math.nan)] if unknown else itertools.product(lows, reversed(highs)):
        estimate = values["estimate"] if values["estimate"] is not None else low if low == high else math.nan
        tried.append(Finding(**{**values, "estimate": estimate, "low": low, "high": high}))
    return next((finding for finding in tried if finding.verdict.value == claim["verdict"]), tried[0])


def _hypothesis(entry: Mapping[str, Any]) -> Hypothesis:
    """Return a recorded hypothesis; null becomes infinity."""
    left, right = (math.inf if entry[side] is None else entry[side] for side in ("left", "right"))
    return Hypothesis(text=entry["text"], left=left, right=right)


def captions_of(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the captions of a saved run by the keys of its figures; empty without captions in the record."""
    figures = described.get("figures")
    return {str(key): str(text) for key, text in figures.items()} if isinstance(figures, dict) else {}


def figure_stem(name: str, key: str) -> str:
    """Return the name of a figure's files, without their suffixes."""
    return f"{name}-{key}" if key else name


def run_status(name: str, folder: Path) -> str:
    """Return the status of a saved run: ``full``, ``quick``, ``unfinished``, ``unreadable``, or empty without a run."""
    if not (folder / f"{name}.json").exists():
        return ""
    try:
        described = read_saved(name, folder)
    except UsageError:
        return "unreadable"
    if not is_judged(described):
        return "unfinished"
    return "quick" if described["quick"] else "full"


def own_files(folder: Path) -> dict[str, Path]:
    """Return the files of the user's own experiments with a saved run in a folder, by name, as far as they exist."""
    files = {}
    for path in sorted(folder.glob("*.json")):
        try:
            described = read_saved(path.stem, folder)
        except UsageError:
            continue
        if "file" in described and Path(described["file"]).is_file():
            files[path.stem] = Path(described["file"])
    return files


def is_judged(described: Mapping[str, Any]) -> bool:
    """Return whether the claims of a run were judged; False if the run ended before, e.g. by an error in its claims."""
    return bool(described["claims"]) or "judged" in described


def is_partial(described: Mapping[str, Any]) -> bool:
    """Return whether a run can lack claims or settings: a quick run, or one with changed fields."""
    return bool(described.get("quick") or described.get("set"))


def replot_command(described: Mapping[str, Any], folder: Path | None = None) -> str:
    """Return the command that redraws and judges a saved run in a folder; None for the default folder."""
    file, quick = described.get("file"), bool(described.get("quick"))
    return _command_in(folder, ["linfed", "replot", Path(file).name if file else described["experiment"]], quick=quick)


def not_judged(described: Mapping[str, Any], folder: Path | None = None) -> str:
    """Return a sentence for a run without verdicts: why it has none, and the command that judges it."""
    return (
        "The claims were not judged, because an error occurred or the run was interrupted. Correct the error, and run "
        f"{replot_command(described, folder)}"
    )


def kind_of_run(described: Mapping[str, Any]) -> str:
    """Return the kind of a run, ``full run`` or ``quick run``, followed by its changed fields."""
    return f"{'quick' if described.get('quick') else 'full'} run{set_in(described)}"


def set_in(described: Mapping[str, Any]) -> str:
    """Return the changed fields of a run with their values, each after a comma."""
    return "".join(f", {name} = {value}" for name, value in described.get("set", {}).items())
