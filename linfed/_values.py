"""Base classes and field checks of frozen configurations, whose fields are keyword-only."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from linfed.errors import check_choice, check_instance, check_number, short_repr, suggestion

A = TypeVar("A", bound=np.ndarray[Any, Any])

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Configuration:
    """Base of frozen dataclasses of hyper-parameters or sizes; wrong arguments raise and name the right keywords."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args:
            _check_positions(cls, args, kwargs)
        _check_names(cls, kwargs)
        return super().__new__(cls)


LETTERS = {"k": "rank", "d": "dim", "n": "n_clients", "m": "n_samples", "eta": "step_size", "lr": "step_size"}
"""Fields by the letters of the papers, for messages."""


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


class ByValue(Configuration):
    """A configuration that equals another of its class if all fields are equal, arrays by their values."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("__eq__", "__hash__"):  # the methods that `dataclass` adds fail for arrays
            if name not in vars(cls):
                setattr(cls, name, getattr(ByValue, name))

    def __eq__(self, other: object) -> bool:
        return _value(self) == _value(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), _value(self)))


def _value(configuration: Any) -> tuple[Any, ...]:
    """Return the hashable values by which a configuration is compared; -0 counts as 0."""
    is_dataclass = dataclasses.is_dataclass(configuration)
    names = [field.name for field in dataclasses.fields(configuration)] if is_dataclass else sorted(vars(configuration))
    values = (getattr(configuration, name) for name in names)
    return tuple(
        (value.shape, value.dtype.str, (value + 0).tobytes()) if isinstance(value, np.ndarray) else value
        for value in values
    )


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
