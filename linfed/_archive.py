"""Configurations and arrays in one npz file, without pickles."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from linfed._types import Array, Json
from linfed.algorithms import ALGORITHMS
from linfed.algorithms.base import State
from linfed.algorithms.initial import AtDistance, GivenSubspace, Moments, RandomSubspace
from linfed.data.sources import FixedSamples, FreshSamples, GivenSamples
from linfed.designs import LAWS
from linfed.problems import GivenTruth, SharedRepresentation

_KNOWN: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        *ALGORITHMS.values(),
        *LAWS.values(),
        AtDistance,
        FixedSamples,
        FreshSamples,
        GivenSubspace,
        GivenTruth,
        Moments,
        RandomSubspace,
        SharedRepresentation,
    )
}


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
            return {"repr": repr(value)}
        parts = {f.name: encode(getattr(value, f.name), f"{name}/{f.name}", arrays) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": parts}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    return {"repr": repr(value)}


def decode(described: Json, arrays: dict[str, Any]) -> Any:
    """Return the configuration that `encode` described; a class it does not know comes back as its text."""
    if "array" in described:
        return arrays[described["array"]]
    if "samples" in described:
        samples = GivenSamples.__new__(GivenSamples)
        for part in ("X", "y", "counts"):
            setattr(samples, part, arrays[f"{described['samples']}/{part}"])
        return samples
    if "class" in described:
        parts = {name: decode(part, arrays) for name, part in described["fields"].items()}
        cls = _KNOWN[described["class"]]
        return cls(**parts)
    return described.get("value", described.get("repr"))


def state_class(name: str) -> type[State]:
    """Return a state class by its name."""
    classes: list[type[State]] = [State, *State.__subclasses__()]
    return {cls.__name__: cls for cls in classes}[name]


def write(path: str | os.PathLike[str], arrays: dict[str, Array], described: str) -> Path:
    """Write arrays and a description by rename: the file is whole, or the old one is still there."""
    target = Path(path)
    if target.suffix != ".npz":
        target = target.with_name(target.name + ".npz")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path = {str(path)!r}: the folder {str(target.parent)!r} does not exist")
    handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, description=np.array(described), **arrays)  # type: ignore[arg-type]
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    return target


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], str]:
    """Return the arrays and the description of a file that `write` made."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return arrays, str(arrays.pop("description"))
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"path = {str(path)!r} is not a result that linfed wrote: {error}") from None
