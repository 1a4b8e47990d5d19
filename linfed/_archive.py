"""Configurations and arrays in one npz file, without pickles."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._files import replacing
from linfed._types import Array, Json
from linfed.algorithms import ALGORITHMS
from linfed.algorithms.base import State
from linfed.algorithms.initial import (
    AtDistance,
    GivenFactors,
    GivenSubspace,
    Moments,
    RandomSubspace,
    SmallRandom,
    TrueSubspace,
)
from linfed.data.samples import FixedSamples, FreshSamples, GivenSamples
from linfed.designs import LAWS
from linfed.problems import GivenTruth, SharedRepresentation, SharedWithShortcuts, UnderParameterized

FORMAT = 1
"""Of a result's file; it grows whenever an older linfed could not read what is written, or a newer one what was."""

_KNOWN: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        *ALGORITHMS.values(),
        *LAWS.values(),
        AtDistance,
        FixedSamples,
        FreshSamples,
        GivenFactors,
        GivenSubspace,
        GivenTruth,
        Moments,
        RandomSubspace,
        SharedRepresentation,
        SharedWithShortcuts,
        SmallRandom,
        TrueSubspace,
        UnderParameterized,
    )
}


@dataclasses.dataclass(frozen=True)
class Unknown:
    """What a file says of a class of the user's own: its name and its text."""

    name: str
    text: str

    def __repr__(self) -> str:
        return self.text


def encode(value: Any, name: str, arrays: dict[str, Array]) -> Json:
    """Return a JSON description of a configuration; its arrays go into `arrays` under names that begin with `name`."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, GivenSamples):
        for part in ("X", "y", "counts"):
            arrays[f"{name}/{part}"] = getattr(value, part)
        return {"samples": name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if _KNOWN.get(type(value).__name__) is not type(value):  # a user's own class: keep what it says of itself
            return {"repr": repr(value), "name": type(value).__name__}
        fields = {f.name: encode(getattr(value, f.name), f"{name}/{f.name}", arrays) for f in dataclasses.fields(value)}
        if any("repr" in part for part in fields.values()):
            return {"repr": repr(value), "name": type(value).__name__}
        return {"class": type(value).__name__, "fields": fields}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, tuple):
        parts = [encode(part, f"{name}/{index}", arrays) for index, part in enumerate(value)]
        if not any("repr" in part for part in parts):
            return {"tuple": parts}
    return {"repr": repr(value), "name": type(value).__name__}


def decode(described: Json, arrays: dict[str, Any]) -> Any:
    """Return the configuration that `encode` described; a class it does not know comes back as `Unknown`."""
    if "array" in described:
        return arrays[described["array"]]
    if "tuple" in described:
        return tuple(decode(part, arrays) for part in described["tuple"])
    if "samples" in described:
        samples = GivenSamples.__new__(GivenSamples)
        for part in ("X", "y", "counts"):
            array = arrays[f"{described['samples']}/{part}"]
            array.setflags(write=False)
            setattr(samples, part, array)
        return samples
    if "class" in described:
        parts = {name: decode(part, arrays) for name, part in described["fields"].items()}
        cls = _KNOWN[described["class"]]
        return cls(**parts)
    return Unknown(described["name"], described["repr"]) if "repr" in described else described["value"]


def state_class(name: str) -> type[State]:
    """Return a state class by its name.

    Raises
    ------
    ValueError
        If the module that defines it has not been imported.
    """
    found: list[type[State]] = [State]
    for cls in found:
        if cls.__name__ == name:
            return cls
        found += cls.__subclasses__()
    raise ValueError(f"the result holds a state of class {name!r}: import the module that defines it first")


def with_suffix(path: str | os.PathLike[str]) -> Path:
    """Return the path with ``.npz`` at its end."""
    return Path(path) if Path(path).suffix == ".npz" else Path(f"{os.fspath(path)}.npz")


def write(path: str | os.PathLike[str], arrays: dict[str, Array], described: Json) -> Path:
    """Write arrays and a description by rename: the file is whole, or the old one is still there."""
    target = with_suffix(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path = {str(path)!r}: the folder {str(target.parent)!r} does not exist")
    write_arrays(target, {"description": np.array(json.dumps(described)), **arrays})
    return target


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays into one npz file, by rename; none of objects, which no one could read without pickles."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise ValueError(f"{name} is an array of objects, which a file cannot hold without pickles")
    # Not by np.savez_compressed, which under NumPy 2.0 leaves its archive open where a disk is full.
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Json]:
    """Return the arrays and the description of a file that `write` made."""
    try:
        found = Path(path) if Path(path).exists() else with_suffix(path)
        with found.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return arrays, json.loads(str(arrays.pop("description")))
    except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise not_ours(path, error) from None


def check_format(path: str | os.PathLike[str], described: Json) -> None:
    """Raise unless a result has the format of today.

    Raises
    ------
    ValueError
        If it is older or newer; the message says which, and what to do.
    """
    found = described.get("format")
    if found == FORMAT:
        return
    by = f"linfed {described['version']}" if "version" in described else "an earlier linfed"
    if isinstance(found, int) and found > FORMAT:
        what = f"format {found}, newer than this linfed's, {FORMAT}: load it with a newer one"
    else:
        what = f"{'no format number' if found is None else f'format {found}'}, and this linfed reads format {FORMAT}"
        what += ": load it with the one that wrote it, or run it again"
    raise ValueError(f"path = {str(path)!r} was written by {by} and has {what}")


def not_ours(path: str | os.PathLike[str], error: Exception) -> ValueError:
    """Return the error for a file that linfed did not write."""
    return ValueError(f"path = {str(path)!r} is not a result that linfed wrote ({' '.join(str(error).split())})")
