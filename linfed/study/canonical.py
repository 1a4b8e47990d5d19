"""The canonical description of a value: equal configurations have one text, in every process and on every machine.

It is strict JSON. Numbers are told by value and type (floats in hexadecimal), arrays by a digest, dataclasses by their
class and fields, other objects by what they are made of; mappings and sets are sorted.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import hashlib
import inspect
import json
from typing import Any

import numpy as np

from linfed._types import Json
from linfed.errors import shown

DEPTH = 60
"""Values within values; more is a value that holds itself."""


def text_of(described: Json) -> str:
    """Return a description as text, always the same."""
    return json.dumps(described, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


class Description:
    """A value's description, and the classes and functions that it is made of.

    Parameters
    ----------
    value : object
        A configuration: numbers, words, sequences, mappings, sets, arrays, dataclasses, functions and classes that a
        module defines, and objects made of such.

    Raises
    ------
    TypeError
        For what cannot be told from others of its kind: a lambda, a function within a function, an open file.
    """

    def __init__(self, value: object) -> None:
        self.owners: set[Any] = set()
        self.json: Json = self._of(value, 0)

    @property
    def text(self) -> str:
        """The description as text."""
        return text_of(self.json)

    def _of(self, value: Any, depth: int) -> Json:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return {"float": value.hex()}
        if type(value) is complex:
            return {"complex": [value.real.hex(), value.imag.hex()]}
        if type(value) is bytes:
            return {"bytes": value.hex()}
        if depth > DEPTH:
            raise TypeError(f"store= cannot describe {type(value).__name__}, which holds itself")
        within = functools.partial(self._of, depth=depth + 1)
        if type(value) is list:
            return [within(part) for part in value]
        if type(value) is tuple:
            return {"tuple": [within(part) for part in value]}
        if type(value) in (set, frozenset):
            return {"set": sorted((within(part) for part in value), key=text_of)}
        if type(value) is dict:
            pairs: list[Json] = [[within(key), within(part)] for key, part in value.items()]
            return {"dict": sorted(pairs, key=text_of)}
        if type(value) is np.ndarray:
            return _array(value) if not value.dtype.hasobject else {"objects": within(value.tolist())}
        if isinstance(value, enum.Enum):
            return {"is": self._named(type(value)), "name": value.name}
        if isinstance(value, type) or inspect.isfunction(value) or inspect.isbuiltin(value):
            return {"named": self._named(value)}
        if inspect.ismethod(value):
            return {"method": value.__name__, "of": within(value.__self__)}
        if isinstance(value, functools.partial):
            return {"partial": [within(value.func), within(value.args), within(value.keywords)]}
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return {"is": self._named(type(value)), "fields": {name: within(getattr(value, name)) for name in names}}
        return self._made_of(value, depth + 1)

    def _made_of(self, value: Any, depth: int) -> Json:
        """Return the description of an object of another kind: what a copy of it would be made from."""
        known = copyreg.dispatch_table.get(type(value))
        try:
            made = known(value) if known is not None else value.__reduce_ex__(4)
        except Exception:
            raise TypeError(f"store= cannot describe {shown(value)}, a {type(value).__name__}") from None
        kind = self._named(type(value))
        if isinstance(made, str):
            return {"is": kind, "named": made}
        make, given, *rest = made
        items = [list(part) if index > 0 and part is not None else part for index, part in enumerate(rest)]
        return {"is": kind, "by": self._of(make, depth), "of": self._of(given, depth), "with": self._of(items, depth)}

    def _named(self, value: Any) -> str:
        """Return the whole name of a class or a function."""
        name = f"{getattr(value, '__module__', None) or 'builtins'}.{value.__qualname__}"
        if "<lambda>" in name or ("<locals>" in name and inspect.isfunction(value)):
            raise TypeError(
                f"store= cannot tell {shown(value)} from others of its name: give a function that a module defines"
            )
        if not inspect.isbuiltin(value):
            self.owners.add(value)
        return name


def _array(value: np.ndarray[Any, Any]) -> Json:
    plain = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
    return {"array": hashlib.sha256(plain.tobytes()).hexdigest(), "of": plain.dtype.str, "shape": list(value.shape)}
