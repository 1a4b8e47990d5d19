"""Checks of arguments: one clear line that names the argument, its value and what is allowed."""

from __future__ import annotations

import difflib
import math
import numbers
import sys
from collections.abc import Iterable
from typing import Any, TypeGuard, TypeVar

import numpy as np

from linfed._types import Array

T = TypeVar("T")

LARGEST_INTEGER = 2**63 - 1
"""No size or number of steps is larger: arrays could not be."""

LARGEST_NOISE = 1e150
"""No standard deviation is larger: its square still has room for a sum over samples."""

NO_NUMBERS = (bool, np.bool_, np.timedelta64)
"""What Python and NumPy count among the integers, and an argument does not mean."""

SHOWN = 120
"""Characters of a value that a message shows."""


class SizeError(MemoryError):
    """An array set that would not fit in the memory allowed; the message has the estimate and a way out."""


class EngineError(ValueError):
    """A question that the chosen engine cannot answer; the message names those that can."""


class LawError(ValueError):
    """A prediction that no known law makes; the message says which is missing."""


class UsageError(ValueError):
    """A mistake in the command line: the message says what is allowed."""


class WorkerError(RuntimeError):
    """A worker process that died; the message says what may have happened."""


class SweepError(RuntimeError):
    """Cells that raised: `failures` has them and their errors, `table` the rows of all others."""

    def __init__(self, message: str, failures: Any = (), table: Any = None) -> None:
        super().__init__(message)
        self.failures = failures
        self.table = table


class EdgeWarning(UserWarning):
    """The best value of a hyper-parameter is an end of its grid: the optimum may lie outside."""


class DivergenceWarning(UserWarning):
    """Some trials diverged: their metrics are NaN, which averages in pandas skip."""


class StoreWarning(UserWarning):
    """Something of a store that is not as it was left: a file that is torn or foreign, or numbers of other code."""


class WriteError(OSError):
    """A file that could not be written; what was there before is still there."""


def shown(value: object) -> str:
    """Return a value's ``repr`` on one line, shortened where it is long: messages and summaries are lines."""
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"<array of shape {value.shape}>"
    if isinstance(value, tuple) and len(value) > 8 and {*map(type, value)} == {float}:
        return f"<{len(value)} numbers, {value[0]:g} to {value[-1]:g}>"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python prints no integer of thousands of digits
        text = f"a {type(value).__name__} too long to print"
    except Exception:  # of a class of one's own
        text = f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def suggestion(value: object, allowed: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for a near miss of an allowed name, in any case, else an empty string."""
    names = {name.lower(): name for name in allowed}
    close = difflib.get_close_matches(str(value).lower(), names, n=1, cutoff=0.5)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


def check_choice(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return `value` if it is one of the allowed names, else raise with the nearest of them."""
    names = list(allowed)
    if isinstance(value, str) and value in names:
        return value
    listed = ", ".join(repr(item) for item in names)
    raise ValueError(f"{name} = {shown(value)} is unknown{suggestion(value, names)}; allowed: {listed}")


def check_among(name: str, values: Iterable[T], known: Iterable[T], what: str) -> list[T]:
    """Return those of a sequence of values that are known, at least one; `what` says what they are."""
    check_instance(name, values, Iterable, f"a sequence of {what}")
    known = list(known)
    found = [value for value in values if value in known]
    if not found:
        raise ValueError(f"{name} = {shown(values)} has none of the {what}; here: {', '.join(map(str, known))}")
    return found


def check_bool(name: str, value: object) -> bool:
    """Return `value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} = {shown(value)} must be True or False")
    return bool(value)


def check_progress(value: object) -> bool:
    """Return what tqdm calls `disable` for `progress` = True, False or None (shown on a terminal only).

    Without a standard error, as in a daemon, nothing is shown.
    """
    if value is not None and not isinstance(value, bool | np.bool_):
        raise ValueError(f"progress = {shown(value)} must be True, False, or None (on a terminal only)")
    stream = sys.stderr
    if stream is None or getattr(stream, "closed", False):
        return True
    is_terminal = getattr(stream, "isatty", None)
    return not ((is_terminal is not None and is_terminal()) if value is None else value)


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether `value` is an integer; truth values and time differences are none here."""
    return isinstance(value, numbers.Integral) and not isinstance(value, NO_NUMBERS)


def is_real(value: object) -> TypeGuard[float]:
    """Return whether `value` is a real number; truth values and time differences are none here."""
    return isinstance(value, numbers.Real) and not isinstance(value, NO_NUMBERS)


def check_integer(name: str, value: object, minimum: int = 1, maximum: float = LARGEST_INTEGER) -> int:
    """Return `value` as an int of at least `minimum`, and of 64 bits unless told otherwise."""
    if not is_integer(value) or value < minimum:
        raise ValueError(f"{name} = {shown(value)} must be an integer of at least {minimum}")
    if value > maximum:
        raise ValueError(f"{name} = {shown(value)} must be an integer from {minimum} to {maximum}")
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
    elif maximum < math.inf:
        wanted += f" of at most {maximum:g}"
    if not is_real(value):
        raise ValueError(f"{name} = {shown(value)} must be {wanted}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or not minimum <= number <= maximum or (positive and number <= 0):
        raise ValueError(f"{name} = {shown(value)} must be {wanted}")
    return number


def check_noise_std(value: object) -> float:
    """Return a standard deviation of at least 0 whose square, which is in every risk, is finite."""
    number = check_number("noise_std", value, minimum=0.0)
    if number > LARGEST_NOISE:
        raise ValueError(f"noise_std = {shown(value)} must be at most {LARGEST_NOISE:g}: its square would overflow")
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

    Notes
    -----
    NumPy would take the data under a mask, digits in a text, truth values and dates as numbers; here they are refused.
    """
    named = list(shapes)
    listed = " or ".join(f"({shape[0]},)" if len(shape) == 1 else "(" + ", ".join(shape) + ")" for shape in named)
    try:
        reason = _no_numbers(name, value)
        if reason:
            raise ValueError(reason)
        with np.errstate(over="ignore"):  # of a longer float
            array = np.array(value, dtype=np.float64)
    except MemoryError:
        raise SizeError(f"{name} = {shown(value)} is too large: no memory is left for a copy") from None
    except (OverflowError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        if "inhomogeneous" in reason:
            reason = "its parts have different sizes"
        raise ValueError(f"{name} must be an array of numbers of shape {listed}: {reason}") from None
    if array.ndim not in {len(shape) for shape in named}:
        raise ValueError(f"{name} has shape {array.shape}, expected {listed}")
    if 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {listed}; no axis may be empty")
    check_finite(name, array)
    return array


def _no_numbers(name: str, value: object) -> str:
    """Return why a value's entries are no numbers, or an empty string; lists are looked into."""
    if isinstance(value, list | tuple):
        if {*map(type, value)} <= {int, float, np.float64}:
            return ""
        return next((reason for part in value if (reason := _no_numbers(name, part))), "")
    if isinstance(value, np.ma.MaskedArray):
        return f"{name} is masked; fill the masked values, or leave them out"
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind == "c":
        return f"{name} is complex; only real numbers are allowed"
    if kind == "b":
        return f"{name} holds True and False; where they mean 1 and 0, give .astype(float)"
    if kind in "mM":
        return f"{name} holds dates or times ({array.dtype}); give them as numbers in a unit of your own"
    if kind == "O" and (array.ndim or isinstance(value, np.ndarray)):
        return _no_numbers(name, array.ravel().tolist())
    if kind in "iuf" or (kind == "O" and is_real(value)):
        return ""
    return f"{name} holds {shown(next(iter(array.ravel().tolist()), value))}, which is no number"


def check_unmasked(name: str, value: T) -> T:
    """Return `value`, or raise if it or a part of it is a masked array: NumPy would take the data under the mask."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array: fill the masked values, or leave them out")
    if isinstance(value, list | tuple):
        for part in value:
            check_unmasked(name, part)
    return value


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


def check_whole(name: str, array: Array, minimum: float, maximum: float, allowed: str) -> None:
    """Raise unless an array holds whole numbers of a range, which `allowed` tells: the first other, and where it is."""
    bad = (array != np.floor(array)) | (array < minimum) | (array > maximum)
    if bad.any():
        first = tuple(int(index) for index in np.argwhere(bad)[0])
        raise ValueError(f"{name} holds {array[first]} at index {first}; only whole numbers {allowed} are allowed")


def check_shape(name: str, array: Array, expected: tuple[int, ...], meaning: str) -> None:
    """Raise unless `array` has exactly the expected shape."""
    if array.shape != expected:
        raise ValueError(f"{name} has shape {array.shape}, expected {meaning} = {expected}")


def check_square(name: str, value: object, shapes: Iterable[tuple[str, ...]]) -> Array:
    """Return `value` as `check_array` does, and raise unless its last two axes have one length."""
    array = check_array(name, value, shapes)
    check_shape(name, array, (*array.shape[:-1], array.shape[-2]), "a stack of square matrices")
    return array


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
    check_unmasked(f"{name} returned by {source}", array)
    if array.dtype.kind not in kinds:
        raise TypeError(
            f"{source} returned {name} of dtype {array.dtype}, expected real floating-point numbers of shape {wanted}"
        )
    if array.shape != expected:
        raise ValueError(f"{source} returned {name} of shape {array.shape}, expected {wanted}")
