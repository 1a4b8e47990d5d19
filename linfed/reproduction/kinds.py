"""Values of linfed's classes from the tables of a TOML file: ``kind`` names the class, the other keys are its fields.

Every mistake is a `UsageError` of one line that names the table, the key, its value and what is allowed.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

import linfed
from linfed._values import Configuration
from linfed.data.samples import Data
from linfed.errors import UsageError, shown, suggestion
from linfed.problems import Classes, GivenTruth, SharedRepresentation, UnderParameterized

Keys: TypeAlias = tuple[str, ...]
"""Where in a file something stands: the keys that lead to it."""

Sort: TypeAlias = tuple[type[Any], ...]
"""Classes of which a value may be an instance; none for a value that is no table."""

ONE_NUMBER = "must be an? (integer|share|(positive )?finite number)|expected one for each round"
"""What messages say of several values where one was expected, or as many as there are rounds."""

PROBLEMS: Sort = (SharedRepresentation, UnderParameterized, Classes, GivenTruth)
DATA: Sort = typing.get_args(Data)


def quoted(key: str) -> str:
    """Return a key as a file writes it."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def at(keys: Keys) -> str:
    """Return the header of a table, as in ``[algorithms.FedRep] ``, before what is said of it; none for the file's."""
    return f"[{'.'.join(map(quoted, keys))}] " if keys else ""


def listed(names: Collection[str]) -> str:
    """Return what is allowed."""
    return "allowed: " + ", ".join(map(repr, names))


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line."""
    return " ".join(str(error).split())


def a_table(value: object, keys: Keys) -> dict[str, Any]:
    """Return a value if it is a table."""
    if isinstance(value, dict):
        return value
    raise UsageError(f"{at(keys[:-1])}{quoted(keys[-1])} = {shown(value)} must be a table, [{at(keys)[1:-2]}]")


def check_keys(table: Mapping[str, Any], allowed: Collection[str], keys: Keys, above: Collection[str] = ()) -> None:
    """Raise for a key that is not allowed; keys of the table `above` may have slipped under this header."""
    for key, value in table.items():
        if key in allowed:
            continue
        hint = suggestion(key, allowed)
        if keys and key in above:
            hint = " (if the whole file's is meant, write it above the first [table])"
        said = f"{at(keys)}{quoted(key)} = {shown(value)}: there is no such key"
        if isinstance(value, dict):
            said = f"{at((*keys, key))}is unknown"
        raise UsageError(f"{said}{hint}; {listed(allowed)}")


def kinds(sort: Sort) -> dict[str, type[Any]]:
    """Return the public classes of a sort that can be made, by their names."""
    public = {name: getattr(linfed, name) for name in linfed.__all__}
    return {
        name: value
        for name, value in public.items()
        if inspect.isclass(value) and issubclass(value, sort) and not inspect.isabstract(value)
    }


def sort_of(kind: type[Any], field: str) -> Sort:
    """Return the classes of which a field of a class may hold an instance."""
    if not dataclasses.is_dataclass(kind):
        return ()
    hint = typing.get_type_hints(kind).get(field)
    parts = typing.get_args(hint) or (hint,)
    return tuple(part for part in parts if isinstance(part, type) and issubclass(part, Configuration))


def inner(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what dotted paths name within a field."""
    return {path.partition(".")[2]: value for path, value in values.items() if path.startswith(f"{name}.")}


def flat(table: Mapping[str, Any], *, into_kinds: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the dotted paths and values of tables within tables, where ``a.b = 1`` and ``"a.b" = 1`` mean the same.

    A table with a kind is a value, unless told otherwise.
    """
    for key, value in table.items():
        if isinstance(value, dict) and (into_kinds or "kind" not in value):
            yield from ((f"{key}.{rest}", one) for rest, one in flat(value, into_kinds=into_kinds))
        else:
            yield key, value


def as_value(value: Any, sort: Sort, keys: Keys, standing: Mapping[str, Any] | None = None) -> Any:
    """Return what a value of a file stands for: a table one of the classes, an array a tuple, others themselves."""
    if isinstance(value, list):
        return tuple(as_value(part, sort, keys) for part in value)
    if not isinstance(value, dict):
        return value
    if not sort:
        raise UsageError(f"{at(keys[:-1])}{quoted(keys[-1])} = {shown(value)} is a table, where no class is expected")
    return made(value, sort, keys, standing=standing)


def kind_of(table: Mapping[str, Any], sort: Sort, keys: Keys, *, default: str | None = None) -> type[Any]:
    """Return the class that a table names; by default the one that is called `default`."""
    known, kind = kinds(sort), table.get("kind", default)
    if kind is None:
        raise UsageError(f"{at(keys)}kind is missing; {listed(known)}")
    if isinstance(kind, str) and kind in known:
        return known[kind]
    said = f"kind = {shown(kind)} is unknown" if "kind" in table else f"kind is missing, and the name {kind!r} is none"
    raise UsageError(f"{at(keys)}{said}{suggestion(kind, known)}; {listed(known)}")


def parameters(cls: type[Any]) -> dict[str, bool]:
    """Return the fields that a class is given, and whether it needs them."""
    found = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return {parameter.name: parameter.default is parameter.empty for parameter in found}


def made(
    table: object,
    sort: Sort,
    keys: Keys,
    *,
    default: str | None = None,
    standing: Mapping[str, Any] | None = None,
    beside: Collection[str] = (),
    above: Collection[str] = (),
) -> Any:
    """Return an instance of the class that a table describes.

    Parameters
    ----------
    table : dict
        As it was read.
    sort : tuple of classes
        Those of which it may be an instance.
    keys : tuple of str
        Where it stands.
    default : str, optional
        Its kind, where it does not say.
    standing : mapping, optional
        From dotted paths to values that stand in for required fields which the table leaves out.
    beside, above : collection of str
        Keys that may stand there beside the kind and its fields (the caller has taken them out), and `check_keys`'s.

    Raises
    ------
    UsageError
        For an unknown kind or key, a field that is missing, and whatever the class raises for a value.
    """
    table, standing = a_table(table, keys), standing or {}
    cls = kind_of(table, sort, keys, default=default)
    wanted = parameters(cls)
    check_keys(table, ["kind", *beside, *wanted], keys, above)
    given = {key: value for key, value in table.items() if key != "kind"}
    for name, required in wanted.items():
        if required and name not in given:
            if name not in standing:
                raise UsageError(f"{at(keys)}{name} is missing: {cls.__name__} needs it")
            given[name] = standing[name]
    values = {
        name: as_value(value, sort_of(cls, name), (*keys, name), inner(standing, name)) for name, value in given.items()
    }
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{at(keys)}{one_line(error)}{_hint(cls, given, keys, str(error))}") from None


def _hint(cls: type[Any], given: Mapping[str, Any], keys: Keys, message: str) -> str:
    """Return what a file could say instead of a field's value that its class refuses."""
    name = message.partition(" ")[0]
    value, sort = given.get(name), sort_of(cls, name)
    if isinstance(value, str) and sort:
        return f"; or a table, {name} = {{ kind = ... }}, {listed(kinds(sort))}"
    path = ("algorithm", *keys[2:]) if keys[0] == "algorithms" else keys
    return "" if keys[0] == "axes" else axis_hint(".".join((*path, name)), value, message)


def axis_hint(path: str, value: object, message: str) -> str:
    """Return where several values belong, if a message asks for one number."""
    if not isinstance(value, list) or not re.search(ONE_NUMBER, message):
        return ""
    return f"; values to run one after the other are an axis: [axes] {quoted(path)} = {shown(value)}"
