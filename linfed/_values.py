"""Base classes and field checks of frozen configurations, whose fields are keyword-only."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, MutableSequence
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from linfed._names import LETTERS
from linfed.checks import check_bool, check_choice, check_instance, check_number, short_repr, suggestion

A = TypeVar("A", bound=np.ndarray[Any, Any])

COLUMN = "column"
"""Key in the metadata of a field that only names its object: the column of the name in tables.

An empty name has no column, and does not count in the description of the object.
"""

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Configuration:
    """Base of frozen dataclasses of hyper-parameters or sizes; wrong arguments raise and name the right keywords."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args:
            _check_positions(cls, args, kwargs)
        _check_names(cls, kwargs)
        return super().__new__(cls)


@functools.cache
def _parameters(cls: type[Any]) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a class."""
    return tuple(inspect.signature(cls.__init__).parameters.values())[1:]


def _check_names(cls: type[Any], kwargs: Iterable[str]) -> None:
    """Raise if a keyword argument is not a parameter of the class."""
    parameters = _parameters(cls)  # type: ignore[arg-type]  # a class is hashable
    names = [parameter.name for parameter in parameters]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    for name in kwargs:
        if name not in names:
            meant = LETTERS.get(name)
            hint = f" (did you mean {meant!r}?)" if meant in names else suggestion(name, names)
            raise TypeError(
                f"{cls.__name__} got an unexpected keyword argument {name!r}{hint}; allowed: {', '.join(names)}"
            )


def _check_positions(cls: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if there are more positional arguments than the class accepts."""
    parameters = _parameters(cls)  # type: ignore[arg-type]  # a class is hashable
    free = [parameter for parameter in parameters if parameter.kind in _BY_POSITION]
    if len(args) <= len(free) or any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    arguments = ", ".join(
        f"{name}={short_repr(value)}" for name, value in {**dict(zip(names, args, strict=False)), **kwargs}.items()
    )
    right = f"write {cls.__name__}({arguments})" if len(args) <= len(names) else f"its fields are {', '.join(names)}"
    most = f"at most {len(free)} positional argument{'s' * (len(free) > 1)}" if free else "no positional arguments"
    raise TypeError(f"{cls.__name__} takes {most}, got {len(args)}: {right}")


class EqualByValue:
    """An object that equals another of its class if all fields are equal, arrays by their values."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("__eq__", "__hash__"):  # the methods that `dataclass` adds fail for arrays
            if name not in vars(cls):
                setattr(cls, name, getattr(EqualByValue, name))

    def __eq__(self, other: object) -> bool:
        return _fields(self) == _fields(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), _fields(self)))


class ByValue(EqualByValue, Configuration):
    """A configuration that equals another of its class if all fields are equal, arrays by their values."""


def _fields(object_: Any) -> tuple[Any, ...]:
    """Return the values by which an object is compared, in the order of its fields."""
    is_dataclass = dataclasses.is_dataclass(object_)
    names = [field.name for field in dataclasses.fields(object_)] if is_dataclass else sorted(vars(object_))
    return tuple(_value(getattr(object_, name)) for name in names)


def _value(value: Any) -> Any:
    """Return a hashable value for an array, and for a list, tuple or dict that may contain arrays; -0 counts as 0."""
    if isinstance(value, np.ndarray):
        numbers = (value + 0).tobytes() if value.dtype.kind in "iufc" else _value(value.tolist())
        return value.shape, value.dtype.str, numbers
    if isinstance(value, list | tuple):
        return tuple(map(_value, value))
    if isinstance(value, dict):
        return tuple((key, _value(part)) for key, part in value.items())
    return value


def owned(value: Any) -> Any:
    """Return a copy of a sequence, a mapping or an array that nobody else can change; copies of arrays are read-only.

    The copy of a mapping is a dict, and the copy of a sequence other than a tuple is a list.
    """
    if isinstance(value, np.ndarray):
        if value.flags.writeable or value.base is not None:
            value = value.copy(order="K")
            value.setflags(write=False)
        return value
    if type(value) is tuple:
        return tuple(map(owned, value))
    if isinstance(value, MutableSequence) and not isinstance(value, bytearray):
        return list(map(owned, value))
    if isinstance(value, Mapping):
        return {key: owned(part) for key, part in value.items()}
    return value


def is_from_linfed(part: object) -> bool:
    """Return whether an object and all configurations in its fields have classes that linfed defines."""
    if not type(part).__module__.startswith("linfed."):
        return False
    return all(is_from_linfed(value) for value in vars(part).values() if isinstance(value, Configuration))


def declared_last(cls: type[Any], attribute: str, methods: Iterable[str]) -> bool:
    """Return whether a class defines attribute `attribute` at or below the latest definition of the methods `methods`.

    If a subclass overrides one of the methods but not the attribute, the inherited attribute no longer describes it.
    """
    order = cls.__mro__
    return min(i for i, base in enumerate(order) if attribute in vars(base)) <= min(
        i for i, base in enumerate(order) if any(name in vars(base) for name in methods)
    )


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with `count` positional arguments; True if its signature is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


Check: TypeAlias = Callable[[str, Any], Any]
"""Function of a field's name and value; returns the value to store, or raises."""


def check_fields(configuration: object, **checks: Check) -> None:
    """Replace each named field of a frozen configuration by the result of its check, in order."""
    for name, check in checks.items():
        object.__setattr__(configuration, name, check(name, getattr(configuration, name)))


positive: Check = partial(check_number, positive=True)
non_negative: Check = partial(check_number, minimum=0.0)


def one_of(*allowed: str) -> Check:
    """Return a check that the value is one of the allowed names."""
    return lambda name, value: check_choice(name, value, allowed)


class Choice:
    """Field of a dataclass that holds one of a few values, or a tuple of some of them; see `choice`."""

    def __init__(self, allowed: Iterable[object], default: object, several: bool, label: bool) -> None:
        check_instance("allowed", allowed, Iterable, "a sequence of the allowed values")
        self.allowed = () if isinstance(allowed, str) else tuple(allowed)
        if not self.allowed:
            raise ValueError(f"allowed = {short_repr(allowed)} must be a sequence of at least one value")
        self.several, self.label, self.name = check_bool("several", several), check_bool("label", label), "default"
        self.default = default if default is dataclasses.MISSING else self.checked(default)

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        found = self.default if instance is None else vars(instance).get(self.name, dataclasses.MISSING)
        if found is dataclasses.MISSING:
            raise AttributeError(self.name)
        return found

    def __set__(self, instance: object, value: object) -> None:
        vars(instance)[self.name] = self.checked(value)

    def checked(self, value: Any) -> Any:
        """Return a value of the field, or raise if it is not allowed."""
        if not self.several:
            return check_choice(self.name, value, self.allowed)
        if not isinstance(value, tuple) or not value:
            listed = ", ".join(map(repr, self.allowed))
            raise ValueError(f"{self.name} = {short_repr(value)} must be a tuple of some of: {listed}")
        return tuple(check_choice(f"{self.name}[{index}]", one, self.allowed) for index, one in enumerate(value))


def choice(
    allowed: Iterable[object], default: Any = dataclasses.MISSING, *, several: bool = False, label: bool = False
) -> Any:
    """Declare a field of a cell, or of another dataclass, that accepts only some values.

    A cell with another value cannot be made: the constructor, `linfed.grid` and ``linfed reproduce --set`` raise an
    error that lists the allowed values.

    Parameters
    ----------
    allowed : iterable
        The allowed values, usually words; a dict stands for its keys.
    default : object, optional
        Default of the field. Without it, the field is required.
    several : bool, optional
        If True, the field holds a tuple of one or more allowed values instead of a single one.
    label : bool, optional
        If True, the word only names what other fields say, so ``--set`` does not replace it.

    Returns
    -------
    object
        What to assign to the field in the body of the class.

    Raises
    ------
    TypeError, ValueError
        If there are no allowed values, or if `default` is not one of them.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import linfed as lf
    >>> STEPS = {"FedRep": 0.5, "FedAvg": 0.1}
    >>> @dataclass(frozen=True)
    ... class Setting:
    ...     method: str = lf.choice(STEPS, "FedRep")
    >>> Setting().method
    'FedRep'
    >>> Setting("FedAvgs")
    Traceback (most recent call last):
        ...
    ValueError: method = 'FedAvgs' is unknown (did you mean 'FedAvg'?); allowed: 'FedRep', 'FedAvg'
    """
    return Choice(allowed, default, several, label)


def instance(kind: type[Any] | tuple[type[Any], ...], wanted: str) -> Check:
    """Return a check that the value is an instance of `kind`; `wanted` describes it in the message."""

    def check(name: str, value: Any) -> Any:
        check_instance(name, value, kind, wanted)
        return value

    return check


def optional(check: Check) -> Check:
    """Return a check that accepts None and otherwise applies `check`."""
    return lambda name, value: None if value is None else check(name, value)


def converted(convert: Callable[[Any], Any]) -> Check:
    """Return a check that converts the value; errors of `convert` must name the field themselves."""
    return lambda _, value: convert(value)


def readonly(array: A) -> A:
    """Return a read-only view of an array; the array itself stays writable."""
    view = array.view()
    view.setflags(write=False)
    return view
