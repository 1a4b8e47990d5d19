"""Record of a run, ``NAME.json``, and the folder that has it next to the run's tables, figures and captions."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import re
import shlex
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from enum import EnumType
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from linfed._types import Json
from linfed.checks import short_repr, suggestion
from linfed.errors import UsageError
from linfed.reproduction.committed import committed_runs
from linfed.reproduction.experiments import is_named, relative_path
from linfed.statistics.findings import Finding
from linfed.system.files import refuse_pipe, write_json

FORMAT = 2
"""Format of the record. Format 1 had null for infinite numbers and NaN; it is read without its claims."""

PICTURES = (".png", ".webp")
"""Suffixes of the files of figures; the first one that exists is shown."""

HALF_PAIR = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON allows, but no encoding."""


@dataclass(frozen=True, kw_only=True)
class TableRecord:
    """Size of a saved table, and the values of the columns that are equal in all rows."""

    rows: int
    shared: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Record of a run of an experiment: how it was computed, and its judged claims.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    file : str or None
        Path of the file if it is your own or a copy; None for an experiment that is found by its name.
    command, date, machine, configuration : str
        Command, day and machine of the run, and the hash of its cells' fields.
    commit : str or None
        Commit of the code that computed the cells; None if unknown.
    source, versions : dict of str to str
        Hashes of the code, and versions of the packages.
    blas : tuple of str
        BLAS libraries.
    quick : bool
        Whether the run was quick.
    set : dict
        Changed fields of the cells with their values.
    tables : dict of str to TableRecord
        Saved tables by name.
    cells, reused : int
        Number of cells, and the number of them reused from earlier runs.
    seconds : float
        Run time.
    processor_seconds : float or None
        Processor time of all cells; None if unknown.
    judged : str or None
        Commit of the code that judged the claims, empty if unknown; None if the claims were not judged.
    figures : dict of str to str
        Captions of the figures by their keys.
    remarks : tuple of str
        Reasons why claims or figures are missing.
    claims : tuple of Finding
        Judged claims.
    """

    experiment: str
    file: str | None = None
    command: str = ""
    source: dict[str, str] = field(default_factory=dict)
    quick: bool
    set: dict[str, object] = field(default_factory=dict)
    tables: dict[str, TableRecord] = field(default_factory=dict)
    date: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    blas: tuple[str, ...] = ()
    machine: str = ""
    commit: str | None = None
    configuration: str = ""
    cells: int = 0
    reused: int = 0
    processor_seconds: float | None = None
    judged: str | None = None
    figures: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    claims: tuple[Finding, ...] = ()

    @property
    def is_judged(self) -> bool:
        """Whether the claims were judged; False if the run ended before, e.g. by an error in its claims."""
        return bool(self.claims) or self.judged is not None

    @property
    def is_partial(self) -> bool:
        """Whether claims or settings can be missing: in quick runs, and in runs with changed fields."""
        return self.quick or bool(self.set)

    @property
    def kind(self) -> str:
        """``full run`` or ``quick run``, followed by the changed fields."""
        changes = "".join(f", {name} = {value}" for name, value in self.set.items())
        return f"{'quick' if self.quick else 'full'} run{changes}"

    def to_json(self) -> Json:
        """Return the record for strict JSON; each claim also has its verdict, for other readers."""
        claims = [dataclasses.asdict(one) | {"verdict": one.verdict.value} for one in self.claims]
        return _written({"format": FORMAT, **dataclasses.asdict(self), "claims": claims})

    @classmethod
    def from_json(cls, value: Json, *, with_claims: bool = True) -> RunRecord:
        """Return the record that `to_json` wrote.

        Parameters
        ----------
        value : dict
            Content of ``NAME.json``.
        with_claims : bool, optional
            If False, leave out the claims. The record can then also have an earlier format.

        Raises
        ------
        ValueError
            If the format is another one, a field is missing or has a wrong type, or the verdict of a claim contradicts
            its numbers.
        """
        if not with_claims:
            value = {**value, "claims": []}
        written_as = value.get("format", 1)
        if written_as not in (range(1, FORMAT + 1) if not with_claims else (FORMAT,)):
            raise ValueError(f"its format is {short_repr(written_as)} instead of {FORMAT}")
        record: RunRecord = _read(cls, value, "")
        if not re.fullmatch(r"\w[\w-]*", record.experiment):
            raise ValueError(f"experiment = {short_repr(record.experiment)} is not the name of an experiment")
        for key in (*record.tables, *record.figures):
            if re.search(r"[/\\\0]", key):  # a file of another folder
                raise ValueError(f"{short_repr(key)} is not the name of a table or figure")
        for number, (claim, written) in enumerate(zip(record.claims, value.get("claims", []), strict=True)):
            if written.get("verdict") != claim.verdict.value:
                found = short_repr(written.get("verdict"))
                raise ValueError(f"claims[{number}].verdict = {found}, but its numbers give {claim.verdict.value}")
        return record


def _written(value: Json) -> Json:
    """Return a value for strict JSON, with infinite numbers and NaN as text, and subclasses of str as str."""
    if isinstance(value, dict):
        return {key: _written(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_written(part) for part in value]
    is_text = isinstance(value, str) or (isinstance(value, float) and not math.isfinite(value))
    return str(value) if is_text else value


def _read(kind: Any, value: Json, place: str) -> Any:
    """Return a JSON value as an object of a type: a dataclass, tuple, dict, enumeration, optional or plain type.

    Raises
    ------
    ValueError
        If the value has another type; the message names its place in the record.
    """
    container, parts = get_origin(kind) or kind, get_args(kind)
    if container is UnionType:  # always with None
        return None if value is None else _read(parts[0], value, place)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _read_fields(kind, value, place)
    if container is tuple and isinstance(value, list):
        return tuple(_read(parts[0], one, f"{place}[{number}]") for number, one in enumerate(value))
    if container is dict and isinstance(value, dict):
        return {_read(str, key, place): _read(parts[1], one, f"{place}.{key}") for key, one in value.items()}
    if isinstance(kind, EnumType):
        with suppress(ValueError):
            return kind(value)
    if kind is object and isinstance(value, dict | list):
        return _read(dict[str, object] if isinstance(value, dict) else tuple[object, ...], value, place)
    if kind is float and (value in ("nan", "inf", "-inf") or type(value) is int):
        return float(value)
    if kind is not object and type(value) is not kind:
        raise ValueError(f"{place} = {short_repr(value)} has the wrong type")
    if isinstance(value, str) and HALF_PAIR.search(value):
        raise ValueError(f"{place} = {short_repr(value)} cannot be printed")
    return value


def _read_fields(kind: Any, value: dict[str, Json], place: str) -> Any:
    """Return a JSON object as a dataclass; fields that it does not have are left out."""
    prefix, found = f"{place}." if place else "", {}
    for name, (hint, needed) in _hints(kind).items():
        if name in value:
            found[name] = _read(hint, value[name], prefix + name)
        elif needed:
            raise ValueError(f"{prefix}{name} is missing")
    try:
        return kind(**found)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


@functools.cache
def _hints(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return the types of a dataclass's fields, and whether a field has no default."""
    hints, missing = get_type_hints(kind), dataclasses.MISSING
    return {
        one.name: (hints[one.name], one.default is missing and one.default_factory is missing)
        for one in dataclasses.fields(kind)
    }


@dataclass(frozen=True)
class ResultsFolder:
    """Folder with the records, tables and figures of runs.

    A folder has the full runs of experiments, and its subfolders the other runs: ``quick``, and ``set`` for runs with
    changed fields.

    Parameters
    ----------
    path : Path
    """

    path: Path = Path("results")

    def part(self, *, quick: bool, changed: bool = False) -> ResultsFolder:
        """Return this folder, or its subfolder for quick runs or runs with changed fields."""
        return ResultsFolder(self.path.joinpath(*["set"] * changed, *["quick"] * quick))

    @property
    def cells(self) -> Path:
        """Folder of the store of finished cells."""
        return self.path / "cells"

    def record(self, name: str) -> Path:
        """Return the path of a record."""
        return self.path / f"{name}.json"

    def table(self, name: str, key: str, suffix: str = ".npz") -> Path:
        """Return the path of a table."""
        return self.path / f"{name}-{key}{suffix}"

    def figure(self, name: str, key: str, suffix: str = ".png") -> Path:
        """Return the path of a figure or, with the suffix ``.txt``, of its caption."""
        return self.path / f"{name}{'-' * bool(key)}{key}{suffix}"

    def picture(self, name: str, key: str = "") -> Path | None:
        """Return the file of a drawn figure, or None if there is none."""
        files = (self.figure(name, key, suffix) for suffix in PICTURES)
        return next((file for file in files if file.is_file()), None)

    def create(self) -> None:
        """Create the folder if needed; raise `UsageError` if it is not writable."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise UsageError(f"--out {str(self.path)!r} cannot be written: {error.strerror}") from None

    def check_readable(self) -> None:
        """Raise `UsageError` if the path exists but is not a readable folder."""
        try:
            if self.path.exists():
                os.scandir(self.path).close()
        except OSError as error:
            raise UsageError(
                f"{str(self.path)!r} cannot be read ({error.strerror}): choose another folder with --out DIR"
            ) from None

    def write(self, record: RunRecord) -> Path:
        """Write a record, and return its path."""
        return write_json(self.record(record.experiment), record.to_json())

    def read(self, name: str, *, with_claims: bool = True) -> RunRecord:
        """Return the record of a run; raise `UsageError` if it does not exist or cannot be read.

        If not `with_claims`, the claims are left out; they may have another format, or contradict themselves.
        """
        if not self.record(name).exists():
            raise UsageError(f"no saved run of {name!r} in {str(self.path.resolve())!r}: {self._way_out(name)}")
        found = read_record(self.record(name), with_claims=with_claims)
        if found is None:
            raise UsageError(
                f"{str(self.record(name))!r} is not a valid record of a run: rewrite it with "
                f"{self.command('reproduce', own_file(name) or name)}"
            )
        return found

    def records(self) -> dict[str, RunRecord]:
        """Return the records by experiment, without other JSON files; raise `UsageError` if one cannot be read."""
        found: dict[str, RunRecord] = {}
        for path in sorted(self.path.glob("*.json")):
            record = read_record(path)
            if record is not None and record.experiment in found:
                raise UsageError(
                    f"{str(path)!r} is a second record of {record.experiment!r} in this folder: move one of them away"
                )
            found |= {} if record is None else {record.experiment: record}
        return found

    def status(self, name: str) -> str:
        """Return ``full``, ``quick``, ``unfinished``, ``unreadable``, or an empty text without a run.

        A run of another file with this name, such as a copy, does not count.
        """
        if not self.record(name).exists():
            return ""
        try:
            record = self.read(name)
        except UsageError:
            return "unreadable"
        if record.file is not None:
            return ""
        return ("quick" if record.quick else "full") if record.is_judged else "unfinished"

    def own_files(self) -> dict[str, Path]:
        """Return your own files with a saved run here by the name of the experiment, as far as they exist."""
        files = {}
        for path in sorted(self.path.glob("*.json")):
            try:
                record = read_record(path, with_claims=False)
            except UsageError:
                continue
            if record is not None and record.file is not None and Path(record.file).is_file():
                files[path.stem] = Path(record.file)
        return files

    def command(self, word: str, experiment: str) -> str:
        """Return the command ``linfed WORD`` for an experiment, given by its name or file, with this folder."""
        default = {ResultsFolder().path: [], ResultsFolder().part(quick=True).path: ["--quick"]}
        return shlex.join(["linfed", word, experiment, *default.get(self.path, ["--out", str(self.path)])])

    def replot(self, record: RunRecord) -> str:
        """Return the command that draws and judges a saved run again."""
        return self.command("replot", relative_path(record.file) if record.file else record.experiment)

    def check_same_file(self, record: RunRecord, file: Path) -> None:
        """Raise `UsageError` if a record in this folder is not of the experiment in a file, but of another one.

        The other one has the same name: it is a copy, or an experiment that is found by its name.
        """
        own = record.file is None if is_named(file) else record.file is not None
        if own and (record.file is None or not Path(record.file).exists() or Path(record.file).samefile(file)):
            return
        other = relative_path(record.file) if record.file else f"experiment {record.experiment}"
        raise UsageError(f"{str(self.path)!r} has the results of {other!r}: choose another folder with --out DIR")

    def not_judged(self, record: RunRecord) -> str:
        """Return a sentence for a run without verdicts: why it has none, and the command that judges it."""
        return (
            "The claims were not judged, because an error occurred or the run was interrupted. Correct the error, and "
            f"run {self.replot(record)}"
        )

    def _way_out(self, name: str) -> str:
        """Return advice for a saved run that does not exist."""
        above = self.path.parent if self.path.name == "quick" else self.path
        top = ResultsFolder(above.parent if above.name == "set" else above)
        others = {"a quick run": top.part(quick=True), "a full run": top}
        others |= {"a run with changed fields": top.part(quick=False, changed=True)}
        others |= {"a quick run with changed fields": top.part(quick=True, changed=True)}
        for kind, other in others.items():
            if other.record(name).exists():
                return f"there is {kind}; choose it with --out {shlex.quote(str(other.path))}"
        known = name in committed_runs() or own_file(name)
        names = {*(path.stem for path in self.path.glob("*.json")), *committed_runs()}
        if near := "" if known else suggestion(name, sorted(names)):
            return near.strip(" ()")
        listed = "" if known else " if linfed list has this name"
        run = self.command("reproduce", own_file(name) or name)
        committed = ResultsFolder(Path("results/committed"))
        if committed.record(name).exists():
            return f"run {run}, or see the committed run with {committed.command('show', name)}"
        return f"run {run}{listed}, or choose another folder with --out DIR"


def read_record(path: Path, *, with_claims: bool = True) -> RunRecord | None:
    """Return the record of a run in a file, or None if the file is JSON of something else.

    Raises
    ------
    UsageError
        If the file cannot be read, or the record is invalid. The message has the command that rewrites it:
        ``linfed replot`` if only its claims are invalid.
    """
    try:
        refuse_pipe(path)
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict) or not {"experiment", "claims"} <= value.keys():
            return None
        return RunRecord.from_json(value, with_claims=with_claims)
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except RecursionError:
        reason = "it is nested too deeply"
    except (OverflowError, ValueError) as error:
        reason = " ".join(str(error).split())
    word = "reproduce"
    if with_claims:
        with suppress(UsageError):
            word = "replot" if read_record(path, with_claims=False) else "reproduce"
    again = ResultsFolder(path.parent).command(word, own_file(path.stem) or path.stem)
    raise UsageError(f"{str(path)!r} is not a valid record of a run ({reason}): rewrite it with {again}")


def read_runs(path: str, argument: str = "FOLDER") -> tuple[ResultsFolder, dict[str, RunRecord]]:
    """Return the folder and the records of runs.

    Parameters
    ----------
    path : str
        Folder of records, or one ``NAME.json``.
    argument : str
        Name of the argument in error messages.

    Returns
    -------
    folder : ResultsFolder
    records : dict of str to RunRecord
        Records by the name of the experiment.

    Raises
    ------
    UsageError
        If there are no records, or one cannot be read.
    """
    where = Path(path)
    if where.is_dir():
        found = ResultsFolder(where).records()
        if not found:
            inside = [part.name for part in sorted(where.iterdir()) if part.is_dir() and any(part.glob("*.json"))]
            near = f"; these folders do: {', '.join(str(where / name) for name in inside)}" if inside else ""
            raise UsageError(f"{argument} {path!r} does not contain a NAME.json from linfed reproduce{near}")
        return ResultsFolder(where), found
    if not where.exists():
        siblings = [part.name for part in where.parent.iterdir()] if where.parent.is_dir() else []
        raise UsageError(f"{argument} {path!r} does not exist{suggestion(where.name, siblings)}")
    record = read_record(where)
    if record is None:
        raise UsageError(f"{argument} {path!r} is not a NAME.json from linfed reproduce")
    return ResultsFolder(where.parent), {record.experiment: record}


def own_file(name: str) -> str:
    """Return the file in the working folder that defines an experiment without a committed run, or an empty text."""
    files = () if name in committed_runs() else (f"{name}.py", f"{name.replace('-', '_')}.py")
    return next((file for file in files if Path(file).is_file()), "")
