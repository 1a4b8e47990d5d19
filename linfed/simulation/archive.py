"""Conversion of configurations and states to arrays and a JSON description, stored without pickles, and back."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from linfed._types import Array, Json
from linfed._values import Configuration
from linfed.algorithms import ALGORITHMS
from linfed.algorithms.initial import INITIALISATIONS
from linfed.algorithms.parts.base import State, frozen
from linfed.algorithms.parts.fine_tuning import AllLayers
from linfed.algorithms.parts.heads import ExactHeads, GradientHeads
from linfed.algorithms.parts.solvers import ClosedForm, GradientSteps
from linfed.data.given_classes import GivenClasses
from linfed.data.samples import FixedSamples, FreshSamples, GivenSamples
from linfed.problems import (
    Classes,
    GivenTruth,
    SharedRepresentation,
    SharedWithShortcuts,
    SimilarRepresentations,
    UnderParameterized,
)
from linfed.problems.designs import LAWS

FORMAT = 1
"""Format number of a result's file. It must grow whenever older and newer versions of linfed cannot read each other's
files."""

_LISTED: tuple[type[Any], ...] = (
    *ALGORITHMS.values(),
    *INITIALISATIONS.values(),
    *LAWS.values(),
    AllLayers,
    Classes,
    ClosedForm,
    ExactHeads,
    FixedSamples,
    FreshSamples,
    GivenTruth,
    GradientHeads,
    GradientSteps,
    SharedRepresentation,
    SharedWithShortcuts,
    SimilarRepresentations,
    UnderParameterized,
)
_KNOWN = {cls.__name__: cls for cls in _LISTED}


@dataclasses.dataclass(frozen=True)
class Unknown:
    """Placeholder for a loaded object whose class is not imported: the name of the class and the text of the object.

    `described` and `arrays` are the complete stored description, so that saving the object again changes nothing.
    """

    name: str
    text: str
    described: Json = dataclasses.field(default=None, compare=False)
    arrays: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return self.text


def encode(value: Any, name: str, arrays: dict[str, Array]) -> Json:
    """Return a JSON description of a configuration; add its arrays to `arrays` under names that begin with `name`."""
    if isinstance(value, Unknown):
        arrays |= value.arrays
        return value.described
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, GivenSamples):
        for part in ("X", "y", "counts"):
            arrays[f"{name}/{part}"] = getattr(value, part)
        classes = {"classes": value.n_classes} if isinstance(value, GivenClasses) else {}
        return {"samples": name, "test": encode(value.test, f"{name}/test", arrays), **classes}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        origin = {} if _KNOWN.get(cls.__name__) is cls else {"module": cls.__module__, "qualname": cls.__qualname__}
        given = (field.name for field in dataclasses.fields(value) if field.init)
        fields = {part: encode(getattr(value, part), f"{name}/{part}", arrays) for part in given}
        if not any("repr" in part for part in fields.values()):
            return {"class": cls.__name__, **origin, "fields": fields, "text": repr(value)}
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, tuple | list):
        parts = [encode(part, f"{name}/{index}", arrays) for index, part in enumerate(value)]
        if not any("repr" in part for part in parts):
            return {"tuple" if isinstance(value, tuple) else "list": parts}
    return {"repr": repr(value), "name": type(value).__name__}


def decode(described: Json, arrays: dict[str, Any]) -> Any:
    """Return the configuration that `encode` described, or an `Unknown` if its class is not imported."""
    if "array" in described:
        return arrays[described["array"]]
    for kind in (tuple, list):
        if kind.__name__ in described:
            return kind(decode(part, arrays) for part in described[kind.__name__])
    if "samples" in described:
        of_classes = "classes" in described
        samples = GivenClasses.__new__(GivenClasses) if of_classes else GivenSamples.__new__(GivenSamples)
        for part in ("X", "y", "counts"):
            array = arrays[f"{described['samples']}/{part}"]
            array.setflags(write=False)
            setattr(samples, part, array)
        samples.test = decode(described["test"], arrays) if "test" in described else None  # missing in older files
        if isinstance(samples, GivenClasses):
            samples.number(described["classes"])
        return samples
    if "class" in described:
        parts = {name: decode(part, arrays) for name, part in described["fields"].items()}
        found = _class(described) if "module" in described else _KNOWN.get(described["class"])
        if found is not None and not any(isinstance(part, Unknown) for part in parts.values()):
            try:
                return found(**parts)
            except (TypeError, ValueError):  # the fields of the class have changed
                if "text" not in described:
                    raise
        return _unknown(described["class"], described.get("text", described["class"]), described, arrays)
    if "repr" in described:
        return _unknown(described["name"], described["repr"], described, arrays)
    return described["value"]


def _unknown(name: str, text: str, described: Json, arrays: dict[str, Any]) -> Unknown:
    return Unknown(name, text, described, {name: arrays[name] for name in _array_names(described)})


def _array_names(described: Json) -> Iterator[str]:
    """Yield the names of the arrays that belong to a description."""
    if "array" in described:
        yield described["array"]
    elif "samples" in described:
        yield from (f"{described['samples']}/{part}" for part in ("X", "y", "counts"))
    else:
        for part in [*described.get("fields", {}).values(), *described.get("tuple", []), *described.get("list", [])]:
            yield from _array_names(part)


def _class(described: Json) -> type[Any] | None:
    """Return the user-defined dataclass that a description names, or None; this imports no module."""
    module, path = described["module"], described["qualname"]
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type):
        return found if dataclasses.is_dataclass(found) else None
    bases: list[type[Any]] = [Configuration, State]  # the class may be defined inside a function
    for base in bases:
        bases += [cls for cls in base.__subclasses__() if "_placeholder" not in vars(cls) and cls not in bases]
    return next((cls for cls in reversed(bases) if (cls.__module__, cls.__qualname__) == (module, path)), None)


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
    if isinstance(described, str):  # the oldest files contain only the name
        classes: list[type[State]] = [State]
        for base in classes:
            classes += base.__subclasses__()
        found = next((cls for cls in classes if cls.__name__ == described), None)
        described = {"class": described, "module": None, "qualname": described, "per_client": State.per_client}
    else:
        found = _class(described)
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
    """Raise unless a result has the current format.

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
        what = f"format {found}, but this version reads only format {FORMAT}: load it with a newer linfed"
    else:
        what = f"{'no format number' if found is None else f'format {found}'}, but this version reads format {FORMAT}"
        what += ": load it with the version that wrote it, or run it again"
    raise ValueError(f"path = {str(path)!r} was written by {by} and has {what}")
