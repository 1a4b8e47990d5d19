"""One description of a value: for the key of a stored cell, for a result's file, and for the text in a table's row.

`describe` turns a value into JSON and arrays, and `rebuild` turns these into the value again. Equal values have the
same JSON in every process and on every machine. Numbers are described by value and type (floats in hexadecimal), and
arrays by a hash of their content. Dataclasses and plain objects are described by their class and attributes, other
objects by the arguments from which pickle would rebuild them. Sets are sorted. Mappings keep their order, because it
may affect results. A class of linfed has a name without its module, so that moving it within linfed changes no
description.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import pathlib
import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from linfed._types import Array, Json
from linfed._values import COLUMN, Configuration, EqualByValue
from linfed.checks import short_repr

FORMAT = 2
"""Version of the descriptions. It must grow when a value gets another description."""

DEPTH = 60
"""Maximum nesting depth; deeper values are assumed to contain themselves."""


class NotRestorableError(LookupError):
    """Raised if a description names a class that is not imported or has changed, or code instead of a value."""


def describe(value: object) -> Description:
    """Return the description of a value.

    Parameters
    ----------
    value : object
        A configuration: numbers, strings, sequences, mappings, sets, arrays, dataclasses, functions and classes defined
        in a module, and objects that consist of these.

    Raises
    ------
    TypeError
        If a part cannot be described: an open file, a random generator, a value that contains itself.
    """
    return Description(value)


class Description:
    """Description of a value; see `describe`.

    Attributes
    ----------
    json : object
        The description, without the content of arrays.
    arrays : dict of str to ndarray
        The arrays of the value by their hashes.
    owners : set
        The classes and functions that occur in the value.
    """

    def __init__(self, value: object) -> None:
        self.owners: set[Any] = set()
        self.arrays: dict[str, Array] = {}
        self._anonymous = ""
        self.json: Json = self._of(value, 0)

    @property
    def text(self) -> str:
        """The description as text, which identifies the value.

        Raises
        ------
        TypeError
            If a part is a class or a function that its name does not identify: a lambda, or a nested one.
        """
        if self._anonymous:
            raise TypeError(self._anonymous)
        return text_of(self.json)

    @property
    def digest(self) -> str:
        """A hash of the description."""
        return hashlib.sha256(text_of(self.json).encode()).hexdigest()

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
        if kind in (np.ndarray, np.memmap) or (isinstance(value, np.generic) and kind.__module__ == "numpy"):
            if value.dtype.hasobject:
                return {"shape": list(value.shape), "objects": within(value.ravel().tolist())}
            return self._array(value)
        if isinstance(value, np.random.Generator | np.random.BitGenerator):
            raise TypeError(f"store= cannot describe {short_repr(value)}, which changes when it is used; pass a seed")
        if isinstance(value, pathlib.PurePath) and kind.__module__.partition(".")[0] == "pathlib":
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
            names = {field.name: field.metadata.get(COLUMN) for field in dataclasses.fields(value)}
            fields = {name: getattr(value, name) for name in names}
            kept = {name: within(part) for name, part in fields.items() if not (names[name] and part == "")}
            description = {"is": self._named(kind), "fields": kept}
            attributes = {name: within(part) for name, part in _attributes(value) if name not in names}
            base = within(tuple(value)) if isinstance(value, tuple) else None
            return description | ({"holds": attributes} if attributes else {}) | ({"tuple": base} if base else {})
        return self._made_of(value, depth + 1)

    def _made_of(self, value: Any, depth: int) -> Json:
        """Describe any other object by its attributes, or by the arguments from which pickle would rebuild it."""
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
            module: str = pickle.whichmodule(value, made)  # type: ignore[attr-defined]
            self._check_name(value, module, made)
            return {"is": kind, "named": f"{module}.{made}"}
        make, given, *rest = made
        if _is_plain(value, made):
            return {"is": kind, "holds": {name: self._of(part, depth) for name, part in _attributes(value)}}
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

    def _array(self, value: np.ndarray[Any, Any] | np.generic) -> Json:
        plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        kind = plain.dtype.str if plain.dtype.names is None else str(plain.dtype.descr)
        shape = list(value.shape)
        digest = hashlib.sha256(f"{kind} {shape} ".encode() + plain.tobytes()).hexdigest()
        self.arrays[digest] = np.asarray(value)
        return {"array": digest, "of": kind, "shape": shape, "scalar": isinstance(value, np.generic)}

    def _check_name(self, value: object, module: str, name: str) -> None:
        """Note if a value is not the object of this name in an imported module."""
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if module in sys.modules and found is not value:
            self._anonymous = self._anonymous or (
                f"store= cannot identify {short_repr(value)} by its name; define it at the top level of a module, "
                "under its own name"
            )

    def _named(self, value: Any) -> str:
        """Return the full name of a class or a function; note if it is not the object of that name."""
        module, name = getattr(value, "__module__", None) or "builtins", value.__qualname__
        if not inspect.isbuiltin(value):
            self._check_name(value, module, name)
            self.owners.add(value)
        return f"linfed.{name}" if isinstance(value, type) and _is_linfed(value) else f"{module}.{name}"


def text_of(described: Json) -> str:
    """Return a description as canonical JSON text."""
    return json.dumps(described, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of an object's attributes, without cached properties."""
    is_linfed = _is_linfed(type(value))  # private attributes of linfed's objects follow from the others
    for name, part in getattr(value, "__dict__", {}).items():
        kept = isinstance(getattr(type(value), name, None), functools.cached_property)
        if not kept and not (is_linfed and name.startswith("_")):
            yield name, part


def _is_plain(value: Any, made: tuple[Any, ...]) -> bool:
    """Return whether an object consists of its attributes only; `made` is what pickle would make it from."""
    (make, given, *rest), cls = made, type(value)
    state, *items = rest or [None]
    if make is not copyreg.__newobj__ or given != (cls,) or any(part is not None for part in items):  # type: ignore[attr-defined]
        return False
    own_state = any("__getstate__" in vars(base) for base in cls.__mro__[:-1])
    return not own_state and (state is None or type(state) is dict)


def _is_linfed(cls: type[Any]) -> bool:
    return cls.__module__.partition(".")[0] == "linfed"


# --- and back ------------------------------------------------------------------------------------------------


def rebuild(described: Json, arrays: Mapping[str, Array]) -> Any:
    """Return the value that `describe` described; its arrays are read-only.

    Only values are rebuilt: numbers, texts, sequences, mappings, sets, arrays, paths, and objects of dataclasses,
    enumerations and linfed's classes. No code is imported or called except the constructors of dataclasses.

    Parameters
    ----------
    described : object
        The description, as JSON.
    arrays : mapping of str to ndarray
        The arrays by their hashes.

    Raises
    ------
    NotRestorableError
        If a class is not imported, does not accept the fields, or a part is code.
    """
    within = functools.partial(rebuild, arrays=arrays)
    match described:
        case None | bool() | int() | str():
            return described
        case list():
            return [within(part) for part in described]
        case {"float": text}:
            return float.fromhex(text)
        case {"complex": [real, imaginary]}:
            return complex(float.fromhex(real), float.fromhex(imaginary))
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"set": parts}:
            return {within(part) for part in parts}
        case {"frozenset": parts}:
            return frozenset(within(part) for part in parts)
        case {"dict": pairs}:
            return {within(key): within(part) for key, part in pairs}
        case {"array": digest, "scalar": scalar}:
            array = arrays[digest]
            array.setflags(write=False)
            return array[()] if scalar else array
        case {"objects": parts, "shape": shape}:
            objects = np.empty(len(parts), dtype=object)
            objects[:] = [within(part) for part in parts]
            return objects.reshape(shape)
        case {"path": str() as kind, "parts": parts} if issubclass(getattr(pathlib, kind, str), pathlib.PurePath):
            return getattr(pathlib, kind)(*parts)
        case {"is": str() as name, "fields": dict() as fields} if "tuple" not in described:
            return made(name, {field: within(part) for field, part in fields.items()})
        case {"is": str() as name, "holds": dict() as parts} if "by" not in described:
            return _with_attributes(name, {field: within(part) for field, part in parts.items()})
        case {"is": str() as name, "value": value}:
            cls = class_named(name)
            if cls is not None and issubclass(cls, enum.Enum):
                return cls(within(value))
        case {"tuple": parts}:
            return tuple(within(part) for part in parts)
    raise NotRestorableError(f"{short_repr(described)} cannot be rebuilt")


def made(name: str, fields: Mapping[str, Any]) -> Any:
    """Return an object of the dataclass with this name; raise if it is not imported or does not accept the fields."""
    cls = class_named(name)
    if cls is None or not dataclasses.is_dataclass(cls):
        raise NotRestorableError(f"the class {name} is not imported")
    derived = {field.name for field in dataclasses.fields(cls) if not field.init}
    try:
        return cls(**{field: value for field, value in fields.items() if field not in derived})
    except (TypeError, ValueError) as error:
        raise NotRestorableError(f"the class {name} has changed: {error}") from None


def _with_attributes(name: str, attributes: Mapping[str, Any]) -> Any:
    """Return an object of linfed with these attributes."""
    cls = class_named(name)
    if cls is None or not _is_linfed(cls):
        raise NotRestorableError(f"{name} is not a dataclass")
    found = object.__new__(cls)
    vars(found).update(attributes)
    return found


def class_named(name: str) -> type[Any] | None:
    """Return the class with a name as in a description, or None if it is not imported; this imports no module."""
    package, _, rest = name.partition(".")
    if package == "linfed":
        modules = [module for key, module in sys.modules.items() if key.startswith("linfed.")]
        found = [one for module in modules if isinstance(one := vars(module).get(rest), type) and _is_linfed(one)]
        if found:  # the class of a value, if laws and other classes have the same name
            return next((one for one in found if issubclass(one, (Configuration, EqualByValue))), found[0])
    return _users_class(name)


def _users_class(name: str) -> type[Any] | None:
    """Return the imported class with this module and name, or None."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:cut]))
        for part in parts[cut:]:
            found = getattr(found, part, None)
        if isinstance(found, type):
            return found
    bases: list[type[Any]] = [Configuration, EqualByValue]  # the class may be defined inside a function
    for base in bases:
        bases += [cls for cls in base.__subclasses__() if "_placeholder" not in vars(cls) and cls not in bases]
    return next((cls for cls in reversed(bases) if f"{cls.__module__}.{cls.__qualname__}" == name), None)
