"""Result files: configurations and states as arrays and a JSON description, stored without pickles, and back."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from linfed._types import Array, Json
from linfed.algorithms.parts.base import State, frozen
from linfed.system.description import NotRestorableError, class_named, describe, rebuild

FORMAT = 2
"""Format number of a result's file. It must grow whenever older and newer versions of linfed cannot read each other's
files."""

PREFIX = "arrays/"
"""Beginning of the names of a configuration's arrays in a file; the rest is their hash."""

NO_VALUE: Json = {"named": ""}
"""Description of an object that cannot be described, such as an open file; only its text is stored."""


@dataclasses.dataclass(frozen=True)
class Unknown:
    """Placeholder for a loaded object whose class is not imported: the name of the class and the text of the object.

    `described` and `arrays` are the complete stored description, so that saving the object again changes nothing.
    """

    name: str
    text: str
    described: Json = dataclasses.field(default=None, compare=False)
    arrays: dict[str, Array] = dataclasses.field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return self.text


def encode(value: object, arrays: dict[str, Array]) -> Json:
    """Return a JSON description of a configuration, with the name of its class and its text; add its arrays."""
    if isinstance(value, Unknown):
        arrays |= value.arrays
        return {"name": value.name, "text": value.text, "value": value.described}
    try:
        found = describe(value)
        described = found.json
        arrays |= {f"{PREFIX}{digest}": array for digest, array in found.arrays.items()}
    except TypeError:  # what has no description, such as an open file, has a text only
        described = NO_VALUE
    return {"name": type(value).__name__, "text": repr(value), "value": described}


def decode(described: Json, arrays: dict[str, Any]) -> Any:
    """Return the configuration that `encode` described, or an `Unknown` if its class is not imported."""
    stored = {key.removeprefix(PREFIX): array for key, array in arrays.items() if key.startswith(PREFIX)}
    try:
        return rebuild(described["value"], stored)
    except NotRestorableError:
        kept = {f"{PREFIX}{digest}": stored[digest] for digest in _digests(described["value"])}
        return Unknown(described["name"], described["text"], described["value"], kept)


def _digests(described: Json) -> Iterator[str]:
    """Yield the hashes of the arrays that belong to a description."""
    if isinstance(described, dict):
        yield from [described["array"]] if "array" in described else []
        described = list(described.values())
    for part in described if isinstance(described, list) else ():
        yield from _digests(part)


def encode_state(state: State) -> Json:
    """Return a description of a state's class."""
    cls = type(state)
    return {
        "class": cls.__name__,
        "module": cls.__module__,
        "qualname": cls.__qualname__,
        "per_client": sorted(cls.per_client),
        "derived": cls.for_prediction is not State.for_prediction,
    }


def decode_state(described: Json, arrays: dict[str, Any]) -> State:
    """Return a state of the class that `encode_state` described, or of a new placeholder class if it is unknown."""
    in_linfed = described["module"].partition(".")[0] == "linfed"  # whichever module it is in now
    found = class_named(f"{'linfed' if in_linfed else described['module']}.{described['qualname']}")
    if found is not None and issubclass(found, State):
        try:
            return frozen(found(**arrays))
        except TypeError:  # the fields of the class have changed
            pass
    names = {"__qualname__": described["qualname"], "_placeholder": True}
    if described.get("derived"):
        names["for_prediction"] = _not_for_prediction
    fields = {field.name for field in dataclasses.fields(State)}
    made: type[State] = dataclasses.make_dataclass(
        described["class"],
        [(name, Any, None) for name in arrays if name not in fields],
        bases=(State,),
        namespace={"per_client": frozenset(described["per_client"]), **names},
        frozen=True,
        kw_only=True,
        repr=False,
    )
    made.__module__ = described["module"]  # not in the namespace: Python 3.12 and later overwrite it there
    return frozen(made(**arrays))


def _not_for_prediction(state: State) -> State:
    """Raise an error: only the missing class can compute the clients' predictors from the arrays."""
    cls = type(state)
    raise ValueError(
        f"the class {cls.__module__}.{cls.__qualname__} of the final state is not imported, so the clients' predictors "
        "cannot be computed: import it before loading the result (its arrays are available)"
    )


def check_format(path: str | os.PathLike[str], described: Json) -> None:
    """Raise unless a result has a format that this version reads.

    Raises
    ------
    ValueError
        If the format is older or newer. The message states which and how to load the file.
    """
    found = described.get("format")
    if found == FORMAT:
        return
    by = f"linfed {described['version']}" if "version" in described else "an earlier linfed"
    if isinstance(found, int) and found > FORMAT:
        what = f"format {found}, but this version reads format {FORMAT}: load it with a newer linfed"
    else:
        what = "no format number" if found is None else f"format {found}"
        what += f", but this version reads format {FORMAT}"
        what += ": load it with the version that wrote it, or run it again"
    raise ValueError(f"path = {str(path)!r} was written by {by} and has {what}")
