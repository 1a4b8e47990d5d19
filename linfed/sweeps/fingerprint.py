"""Canonical description of a value: equal configurations have the same text in every process and on every machine.

The text is strict JSON with sorted keys. Numbers are described by value and type (floats in hexadecimal), arrays by a
hash, dataclasses by their class and fields. Other objects are described by the arguments from which pickle would
rebuild them. Sets are sorted. Mappings keep their order, because it may affect results.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import numpy as np

from linfed._types import Json
from linfed.checks import short_repr

DEPTH = 60
"""Maximum nesting depth; deeper values are assumed to contain themselves."""


def text_of(described: Json) -> str:
    """Return a description as canonical JSON text."""
    return json.dumps(described, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class Fingerprint:
    """Canonical description of a value, and the classes and functions that occur in it.

    Parameters
    ----------
    value : object
        A configuration: numbers, strings, sequences, mappings, sets, arrays, dataclasses, functions and classes defined
        in a module, and objects that consist of these.

    Raises
    ------
    TypeError
        If a part has no unique description: a lambda, a nested function, an open file.
    """

    def __init__(self, value: object) -> None:
        self.owners: set[Any] = set()
        self.json: Json = self._of(value, 0)

    @property
    def text(self) -> str:
        """The description as text."""
        return text_of(self.json)

    def _of(self, value: Any, depth: int) -> Json:
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if depth > DEPTH:
            raise TypeError(
                f"store= cannot describe a {type(value).__name__} nested deeper than {DEPTH} levels; does it contain "
                "itself?"
            )
        within = functools.partial(self._of, depth=depth + 1)
        kind = type(value)
        if kind is complex:
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if kind is bytes:
            return {"bytes": value.hex()}
        if kind is list:
            return [within(part) for part in value]
        if kind is tuple:
            return {"tuple": [within(part) for part in value]}
        if kind in (set, frozenset):
            return {kind.__name__: sorted((within(part) for part in value), key=text_of)}
        if kind is dict:  # in its order, which may affect results: ties between the settings of a grid
            return {"dict": [[within(key), within(part)] for key, part in value.items()]}
        if isinstance(value, np.ndarray | np.generic) and kind.__module__ == "numpy":
            objects = value.dtype.hasobject
            return {"shape": list(value.shape), "objects": within(value.ravel().tolist())} if objects else _array(value)
        if isinstance(value, np.random.Generator | np.random.BitGenerator):
            raise TypeError(f"store= cannot describe {short_repr(value)}, which changes when it is used; pass a seed")
        if isinstance(value, PurePath) and kind.__module__.partition(".")[0] == "pathlib":
            return {"path": kind.__name__, "parts": list(value.parts)}  # Python 3.13 pickles the path as it was written
        if isinstance(value, enum.Enum):
            return {"is": self._named(kind), "name": value.name, "value": within(value.value)}
        if isinstance(value, type) or inspect.isfunction(value):
            return {"named": self._named(value)}
        if inspect.isbuiltin(value) and (value.__self__ is None or inspect.ismodule(value.__self__)):
            return {"named": self._named(value)}
        if inspect.ismethod(value) or inspect.isbuiltin(value):
            return {"method": value.__name__, "of": within(value.__self__)}
        if isinstance(value, functools.partial):
            return {"partial": [within(value.func), within(value.args), within(value.keywords)]}
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            description = {"is": self._named(kind), "fields": {name: within(getattr(value, name)) for name in names}}
            attributes = {name: within(part) for name, part in _attributes(value) if name not in names}
            base = within(tuple(value)) if isinstance(value, tuple) else None
            return description | ({"holds": attributes} if attributes else {}) | ({"tuple": base} if base else {})
        return self._made_of(value, depth + 1)

    def _made_of(self, value: Any, depth: int) -> Json:
        """Describe any other object by the arguments that pickle would rebuild it from, and by its attributes."""
        reducer = copyreg.dispatch_table.get(type(value))
        try:
            made = reducer(value) if reducer is not None else value.__reduce_ex__(4)
        except Exception:
            raise TypeError(
                f"store= cannot describe {short_repr(value)}: pickle does not support {type(value).__name__}"
            ) from None
        kind = self._named(type(value))
        if isinstance(made, str):
            if hasattr(value, "__wrapped__"):  # a function with a cache
                self.owners.add(inspect.unwrap(value))
            return {"is": kind, "named": f"{getattr(value, '__module__', None)}.{made}"}
        make, given, *rest = made
        items = [list(part) if index > 0 and part is not None else part for index, part in enumerate(rest)]
        description = {
            "is": kind,
            "by": self._of(make, depth),
            "of": self._of(given, depth),
            "with": self._of(items, depth),
        }
        attributes = (
            {name: self._of(part, depth) for name, part in _attributes(value)} if rest[:1] in ([], [None]) else {}
        )
        return description | ({"holds": attributes} if attributes else {})

    def _named(self, value: Any) -> str:
        """Return the full name of a class or a function; raise if it is not the object of that name."""
        module, name = getattr(value, "__module__", None) or "builtins", value.__qualname__
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if module in sys.modules and found is not value and not inspect.isbuiltin(value):
            raise TypeError(
                f"store= cannot identify {short_repr(value)} by its name; define it at the top level of a "
                f"module, under its "
                "own name"
            )
        if not inspect.isbuiltin(value):
            self.owners.add(value)
        return f"{module}.{name}"


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of an object's attributes, without cached properties."""
    # private attributes of linfed's objects follow from the fields
    is_linfed = type(value).__module__.partition(".")[0] == "linfed"
    for name, part in getattr(value, "__dict__", {}).items():
        kept = isinstance(getattr(type(value), name, None), functools.cached_property)
        if not kept and not (is_linfed and name.startswith("_")):
            yield name, part


def _array(value: np.ndarray[Any, Any] | np.generic) -> Json:
    plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
    kind = plain.dtype.str if plain.dtype.names is None else str(plain.dtype.descr)
    digest = hashlib.sha256(plain.tobytes()).hexdigest()
    return {"array": digest, "of": kind, "shape": list(value.shape), "scalar": isinstance(value, np.generic)}
