"""Checks of arguments: one clear line that names the argument, its value and what is allowed."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from linfed._types import Array

T = TypeVar("T")

SHOWN = 120
"""Characters of a value that a message shows."""


class SizeError(MemoryError):
    """An array set that would not fit in the memory allowed; the message has the estimate and a way out."""


class EngineError(ValueError):
    """A question that the chosen engine cannot answer; the message names those that can."""


class UsageError(ValueError):
    """A mistake in the command line: the message says what is allowed."""


def shown(value: object) -> str:
    """Return a value's ``repr`` on one line, shortened where it is long: messages and summaries are lines."""
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"<array of shape {value.shape}>"
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def suggestion(value: object, allowed: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for a near miss of an allowed name, else an empty string."""
    close = difflib.get_close_matches(str(value).lower(), list(allowed), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check_choice(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of the allowed names, else raise with the nearest of them."""
    names = list(allowed)
    if isinstance(value, str) and value in names:
        return value
    listed = ", ".join(repr(item) for item in names)
    raise ValueError(f"{name} = {shown(value)} is unknown{suggestion(value, names)}; allowed: {listed}")


def check_bool(name: str, value: object) -> bool:
    """Return `value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} = {shown(value)} must be True or False")
    return bool(value)


def check_integer(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral) or value < minimum:
        raise ValueError(f"{name} = {shown(value)} must be an integer of at least {minimum}")
    return int(value)


def check_number(
    name: str, value: object, *, positive: bool = False, minimum: float = -math.inf, maximum: float = math.inf
) -> float:
    """Return `value` as a finite float within ``[minimum, maximum]`` (and above 0 if `positive`)."""
    wanted = "a positive finite number" if positive else "a finite number"
    if minimum > -math.inf and maximum < math.inf:
        wanted += f" from {minimum:g} to {maximum:g}"
    elif minimum > -math.inf:
        wanted += f" of at least {minimum:g}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} = {shown(value)} must be {wanted}")
    number = float(value)
    if not math.isfinite(number) or not minimum <= number <= maximum or (positive and number <= 0):
        raise ValueError(f"{name} = {shown(value)} must be {wanted}")
    return number


def check_array(name: str, value: object, shapes: Iterable[tuple[str, ...]]) -> Array:
    """Return `value` as a finite float array whose number of axes fits one of the named shapes.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : array_like
        What the user gave.
    shapes : iterable of tuple of str
        The allowed shapes by the names of their axes, e.g. ``("n", "m", "d")``.
    """
    named = list(shapes)
    listed = " or ".join(f"({shape[0]},)" if len(shape) == 1 else "(" + ", ".join(shape) + ")" for shape in named)
    try:
        if np.asarray(value).dtype.kind == "c":
            raise ValueError(f"{name} is complex; only real numbers are allowed")
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name} must be an array of numbers of shape {listed}: {reason}") from None
    if array.ndim not in {len(shape) for shape in named}:
        raise ValueError(f"{name} has shape {array.shape}, expected {listed}")
    if 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {listed}; no axis may be empty")
    check_finite(name, array)
    return array


def check_finite(name: str, array: Array) -> None:
    """Raise if `array` holds NaN or infinity: how many, and where the first one is."""
    bad = ~np.isfinite(array)
    count = int(np.count_nonzero(bad))
    if count:
        first = tuple(int(index) for index in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} holds {count} value{'s' if count > 1 else ''} that {'are' if count > 1 else 'is'} NaN or "
            f"infinite, the first at index {first}; only finite numbers are allowed"
        )


def check_shape(name: str, array: Array, expected: tuple[int, ...], meaning: str) -> None:
    """Raise unless `array` has exactly the expected shape."""
    if array.shape != expected:
        raise ValueError(f"{name} has shape {array.shape}, expected {meaning} = {expected}")


def check_instance(name: str, value: object, kind: type[T] | tuple[type, ...], wanted: str) -> None:
    """Raise unless `value` is of the wanted kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} = {shown(value)} must be {wanted}")


def check_returned(
    source: str, name: str, array: object, expected: tuple[int, ...], meaning: str, kinds: str = "f"
) -> None:
    """Raise unless an array that an algorithm or an initialisation returned is real, of the expected shape."""
    wanted = f"{meaning} = {expected}"
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{source} returned {name} = {shown(array)}, expected an array of shape {wanted}")
    if array.dtype.kind not in kinds:
        raise TypeError(
            f"{source} returned {name} of dtype {array.dtype}, expected real floating-point numbers of shape {wanted}"
        )
    if array.shape != expected:
        raise ValueError(f"{source} returned {name} of shape {array.shape}, expected {wanted}")
