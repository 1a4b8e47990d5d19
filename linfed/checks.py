"""Argument checks: a failed check raises a one-line error that gives the name, the value and what is allowed."""

from __future__ import annotations

import math
import numbers
import re
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np

from linfed._types import Array, Indices
from linfed.errors import SizeError

T = TypeVar("T")

LARGEST_INTEGER = 2**63 - 1
"""Largest allowed size or number of steps: the limit of array sizes."""

LARGEST_NOISE = 1e70
"""Largest allowed standard deviation of noise: its fourth power, which predictions contain, does not overflow."""

NO_NUMBERS = (bool, np.bool_, np.timedelta64)
"""Types that Python or NumPy treat as integers and that the checks refuse as numbers."""

SYMMETRIC = 1e-10
"""Largest difference of a symmetric matrix from its symmetric part, as a share of the largest entry."""

SHOWN = 120
"""Largest number of characters of a value in a message."""


def short_repr(value: object) -> str:
    """Return a value's ``repr`` on one line, shortened to `SHOWN` characters."""
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"<array of shape {value.shape}>"
    if isinstance(value, tuple) and len(value) > 8 and {*map(type, value)} == {float}:
        return f"<{len(value)} numbers, {value[0]:g} to {value[-1]:g}>"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python prints no integer of thousands of digits
        text = f"a {type(value).__name__} too long to print"
    except Exception:  # a user-defined ``__repr__`` may raise anything
        text = f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def suggestion(value: object, allowed: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` if `value` is a mistyped or shortened allowed name, else ``""``.

    Case and separators do not count. A word may be mistyped, but not be another word: ``batch_size`` does
    not suggest ``step_size``, ``FedPer`` not ``FedRep`` and ``fig2`` not ``fig1``.
    """
    given = _words(str(value)[:SHOWN])
    near = [name for name in allowed if given and _is_near(given, _words(name))]
    closest = min(near, key=lambda name: _edits("".join(given), "".join(_words(name))), default=None)
    return "" if closest is None else f" (did you mean {closest!r}?)"


def _words(name: str) -> list[str]:
    """Return the words and numbers of a name in lower case, e.g. ["fed", "avg"] for "FedAvg"."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


def _is_near(given: list[str], words: list[str]) -> bool:
    """Return whether `given` are the words of a name with typing errors, or its first words."""
    joined = "".join(given), "".join(words)
    long = min(map(len, joined)) > 2
    if long and words[: len(given)] == given:
        return True
    if [word for word in given if word.isdigit()] != [word for word in words if word.isdigit()]:
        return False
    mistyped = len(given) == len(words) and all(
        _edits(*pair) <= min(2, (min(map(len, pair)) + 1) // 3) for pair in zip(given, words, strict=True)
    )
    return mistyped or (long and _edits(*joined) <= 1)


def _edits(one: str, other: str) -> int:
    """Return how many letters are inserted, removed, replaced, or swapped with their neighbours between two texts."""
    rows = [[*range(len(other) + 1)]]
    for i, letter in enumerate(one, start=1):
        row = [i]
        for j, wanted in enumerate(other, start=1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and one[i - 2 : i] == other[j - 1] + other[j - 2]:
                row[-1] = min(row[-1], rows[-2][j - 2] + 1)
        rows.append(row)
    return rows[-1][-1]


def check_choice(name: str, value: object, allowed: Iterable[T]) -> T:
    """Return the allowed value that `value` equals, also in its kind, else raise and suggest the nearest word."""
    choices = list(allowed)
    plain = value.item() if isinstance(value, np.generic) else value
    for one in choices:
        if isinstance(plain, type(one)) and isinstance(plain, bool) == isinstance(one, bool) and plain == one:
            return one
    listed, words = ", ".join(map(repr, choices)), [one for one in choices if isinstance(one, str)]
    raise ValueError(f"{name} = {short_repr(value)} is unknown{suggestion(value, words)}; allowed: {listed}")


def is_several(value: object) -> TypeGuard[Sequence[Any]]:
    """Return whether `value` is a list, a tuple, another sequence or an array with axes; texts do not count."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview)


def check_sequence(name: str, value: object, wanted: str) -> list[Any]:
    """Return the parts of a sequence, or raise if `value` is a single value, a text or a mapping."""
    single = isinstance(value, str | bytes | memoryview | Mapping) or (isinstance(value, np.ndarray) and not value.ndim)
    if single or not isinstance(value, Iterable):
        raise TypeError(f"{name} = {short_repr(value)} must be {wanted}")
    return list(value)


def check_text(name: str, value: object) -> str:
    """Return `value` if it is a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} = {short_repr(value)} must be a string")
    return value


def check_among(name: str, values: Iterable[T], allowed: Iterable[T], what: str) -> list[T]:
    """Return the allowed values of a sequence, or raise if it has no allowed value; the message calls them `what`."""
    allowed = list(allowed)
    parts = check_sequence(name, values, f"a sequence of {what}")
    found: list[T] = [value for value in parts if isinstance(value, Hashable) and value in allowed]
    if not found:
        raise ValueError(
            f"{name} = {short_repr(values)} must contain some of the {what}: {', '.join(map(str, allowed))}"
        )
    return found


def check_bool(name: str, value: object) -> bool:
    """Return `value` as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} = {short_repr(value)} must be True or False")
    return bool(value)


def check_progress(value: object) -> bool:
    """Return tqdm's argument `disable` for `progress` = True, False or None (show on a terminal only).

    The bar is also disabled without a standard error, as in a daemon.
    """
    if value is not None and not isinstance(value, bool | np.bool_):
        raise ValueError(f"progress = {short_repr(value)} must be True, False, or None (on a terminal only)")
    stream = sys.stderr
    if stream is None or getattr(stream, "closed", False):
        return True
    is_terminal = getattr(stream, "isatty", None)
    return not ((is_terminal is not None and is_terminal()) if value is None else value)


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether `value` is an integer; truth values and time differences do not count."""
    return isinstance(value, numbers.Integral) and not isinstance(value, NO_NUMBERS)


def is_real(value: object) -> TypeGuard[float]:
    """Return whether `value` is a real number; truth values and time differences do not count."""
    return isinstance(value, numbers.Real) and not isinstance(value, NO_NUMBERS)


def _plain(value: object) -> object:
    """Return the number in an array without axes, and any other value as it is."""
    if isinstance(value, np.ndarray) and not value.ndim and not isinstance(value, np.ma.MaskedArray):
        return value[()]
    return value


def check_integer(name: str, value: object, minimum: int = 1, maximum: float = LARGEST_INTEGER) -> int:
    """Return `value` as an int within ``[minimum, maximum]``; by default `maximum` is the largest 64-bit integer."""
    value = _plain(value)
    if not is_integer(value) or value < minimum:
        raise ValueError(f"{name} = {short_repr(value)} must be an integer of at least {minimum}")
    if value > maximum:
        raise ValueError(f"{name} = {short_repr(value)} must be an integer from {minimum} to {maximum}")
    return int(value)


def check_number(
    name: str, value: object, *, positive: bool = False, minimum: float = -math.inf, maximum: float = math.inf
) -> float:
    """Return `value` as a finite float within ``[minimum, maximum]`` (and above 0 if `positive`)."""
    value = _plain(value)
    try:
        number = float(value) if is_real(value) else math.nan
    except OverflowError:
        number = math.inf
    if math.isfinite(number) and minimum <= number <= maximum and (number > 0 or not positive):
        return number
    wanted = "a positive finite number" if positive else "a finite number"
    if minimum > -math.inf and maximum < math.inf:
        wanted += f" from {minimum:g} to {maximum:g}"
    elif minimum > -math.inf:
        wanted += f" of at least {minimum:g}"
    elif maximum < math.inf:
        wanted += f" of at most {maximum:g}"
    raise ValueError(f"{name} = {short_repr(value)} must be {wanted}")


def check_inside(name: str, value: object) -> float:
    """Return `value` as a float inside (0, 1)."""
    number = check_number(name, value)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{name} = {short_repr(value)} must be inside (0, 1)")
    return number


def check_noise_std(value: object, name: str = "noise_std") -> float:
    """Return `value` as a standard deviation of at least 0 whose fourth power does not overflow."""
    number = check_number(name, value, minimum=0.0)
    if number > LARGEST_NOISE:
        raise ValueError(f"{name} = {short_repr(value)} must be at most {LARGEST_NOISE:g}: its powers would overflow")
    return number


def check_noise_stds(value: object, n_clients: int) -> float | tuple[float, ...]:
    """Return `value` as a standard deviation of all clients, or as a tuple with one for each client."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return check_noise_std(value)
    if len(value) != n_clients:
        raise ValueError(
            f"noise_std has {len(value)} numbers, but must have one for each of the n_clients = {n_clients} clients"
        )
    return tuple(check_noise_std(each, f"noise_std[{client}]") for client, each in enumerate(value))


def check_weights(name: str, value: object) -> tuple[float, ...]:
    """Return `value` as a tuple of positive finite weights, one for each client."""
    found = check_array(name, value, [("n",)])
    if not found.size or found.min() <= 0 or not math.isfinite(float(found.sum())):
        raise ValueError(
            f"{name} = {short_repr(value)} must be positive numbers with a finite sum, one for each client"
        )
    return tuple(found.tolist())


def check_array(name: str, value: object, shapes: Iterable[tuple[str, ...]]) -> Array:
    """Return `value` as a finite float array whose number of axes fits one of the named shapes.

    Parameters
    ----------
    name : str
        Name of the argument, for the message.
    value : array_like
        The user's argument.
    shapes : iterable of tuple of str
        The allowed shapes by the names of their axes, e.g. ``("n", "m", "d")``.

    Returns
    -------
    ndarray of float64
        A copy of the argument.

    Raises
    ------
    SizeError
        If no memory is left for the copy.
    ValueError
        If `value` is not numeric, not finite, empty, or has another number of axes.

    Notes
    -----
    NumPy would convert the data under a mask, strings of digits, truth values and dates to numbers; they are refused
    here.
    """
    named = list(shapes)
    listed = " or ".join(f"({shape[0]},)" if len(shape) == 1 else "(" + ", ".join(shape) + ")" for shape in named)
    try:
        reason = _no_numbers(name, value)
        if reason:
            raise ValueError(reason)
        with np.errstate(over="ignore"):  # a longer float may overflow
            array = np.array(value, dtype=np.float64, order="C")
    except MemoryError:
        raise SizeError(f"{name} = {short_repr(value)} is too large: no memory is left for a copy") from None
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


def check_numbers(name: str, value: object, axes: int = 0) -> Array:
    """Return `value` as a float array of any shape with at least `axes` axes; NaN and infinity are allowed.

    The array is contiguous, so that a broadcast value of any size is refused here (`SizeError`).
    """
    try:
        reason = _no_numbers(name, value)
        array = np.asarray(() if reason else value, dtype=np.float64, order="C")
    except MemoryError:
        raise SizeError(f"{name} = {short_repr(value)} is too large: no memory is left for a copy") from None
    except (OverflowError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
    if reason:
        raise ValueError(f"{name} = {short_repr(value)} must be an array of numbers: {reason}")
    if array.ndim < axes or (axes and 0 in array.shape):
        raise ValueError(f"{name} has shape {array.shape}, expected at least {axes} axes, none of them empty")
    return array


def _no_numbers(name: str, value: object) -> str:
    """Return the reason why a value's entries are not numbers, or an empty string; lists are searched recursively."""
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
        return f"{name} holds True and False; if they mean 1 and 0, use .astype(float)"
    if kind in "mM":
        return f"{name} holds dates or times ({array.dtype}); convert them to numbers in a unit of your choice"
    if kind == "O" and (array.ndim or isinstance(value, np.ndarray)):
        return _no_numbers(name, array.ravel().tolist())
    if kind in "iuf" or (kind == "O" and is_real(value)):
        return ""
    return f"{name} holds {short_repr(next(iter(array.ravel().tolist()), value))}, which is not a number"


def check_times(name: str, value: object) -> Array:
    """Return numbers of rounds (R,), which need not be integers; raise if one is negative or NaN."""
    found = check_numbers(name, value)
    if found.ndim > 1:
        raise ValueError(f"{name} has shape {found.shape}, expected (R,)")
    if not (found >= 0).all():
        raise ValueError(f"{name} = {short_repr(value)} must be at least 0")
    return found


def check_unmasked(name: str, value: T) -> T:
    """Return `value`, or raise if it or a part of it is a masked array: NumPy would use the data under the mask."""
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array: fill the masked values, or leave them out")
    if isinstance(value, list | tuple):
        for part in value:
            check_unmasked(name, part)
    return value


def check_finite(name: str, array: Array) -> None:
    """Raise if `array` holds NaN or infinity; the message gives their number and the index of the first."""
    bad = ~np.isfinite(array)
    count = int(np.count_nonzero(bad))
    if count:
        first = tuple(int(index) for index in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} holds {count} value{'s' if count > 1 else ''} that {'are' if count > 1 else 'is'} NaN or "
            f"infinite, the first at index {first}; only finite numbers are allowed"
        )


def check_whole(name: str, array: Array, minimum: float, maximum: float, allowed: str) -> None:
    """Raise unless `array` holds only integers from `minimum` to `maximum`; `allowed` describes the range."""
    bad = (array != np.floor(array)) | (array < minimum) | (array > maximum)
    if bad.any():
        first = tuple(int(index) for index in np.argwhere(bad)[0])
        raise ValueError(f"{name} holds {array[first]} at index {first}; only whole numbers {allowed} are allowed")


def check_shape(name: str, array: Array, expected: tuple[int, ...], meaning: str) -> None:
    """Raise unless `array` has exactly the expected shape."""
    if array.shape != expected:
        raise ValueError(f"{name} has shape {array.shape}, expected {meaning} = {expected}")


def check_square(name: str, value: object, shapes: Iterable[tuple[str, ...]]) -> Array:
    """Return `value` as `check_array` does, and raise unless it holds square, symmetric matrices."""
    array = check_array(name, value, shapes)
    check_shape(name, array, (*array.shape[:-1], array.shape[-2]), "a stack of square matrices")
    if (np.abs(array / 2 - array.mT / 2) > SYMMETRIC * np.abs(array).max()).any():
        raise ValueError(f"{name} of shape {array.shape} must hold symmetric matrices, such as X'X/m")
    return array


def check_broadcast(arrays: Mapping[str, Array]) -> None:
    """Raise unless named arrays have equal shapes, or shapes that NumPy broadcasts to one."""
    shapes = {name: array.shape for name, array in arrays.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"the shapes of {listed} must agree") from None


def check_instance(name: str, value: object, kind: type[T] | tuple[type, ...], wanted: str) -> None:
    """Raise unless `value` is an instance of `kind`; `wanted` describes it in the message."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} = {short_repr(value)} must be {wanted}")


def check_clients(clients: object, n_clients: float) -> Indices:
    """Return the argument `clients` as an array of distinct numbers from 0 to ``n_clients - 1``, in any order."""
    check_unmasked("clients", clients)
    try:
        found = np.array(clients)
    except ValueError:  # rows of different lengths
        found = np.array(None)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise ValueError(f"clients = {short_repr(clients)} must be a slice or a sequence of numbers of clients")
    _check_range("clients", found, n_clients)
    if len(np.unique(found)) < len(found):
        raise ValueError(f"clients = {short_repr(clients)} contains a client twice")
    return found.astype(np.intp)


def check_active(active: object, trials: int, n_clients: float) -> None:
    """Raise unless `active` (trials, p) has the participants of each trial, ascending.

    The numbers in a read-only array are not checked: it is a batch's, and steps come here in every round.
    """
    if not (isinstance(active, np.ndarray) and active.dtype.kind in "iu" and active.ndim == 2):
        raise ValueError(f"active = {short_repr(active)} must be an integer array (trials, p), e.g. batch.active")
    if len(active) != trials:
        raise ValueError(f"active has shape {active.shape}, expected (trials, p) = ({trials}, p)")
    if active.flags.writeable:
        _check_range("active", active, n_clients)
        if (active[:, 1:] <= active[:, :-1]).any():
            raise ValueError(f"active = {short_repr(active)} must be ascending in each trial, without repetitions")


def _check_range(name: str, numbers: Indices, n_clients: float) -> None:
    """Raise if a client's number is not from 0 to ``n_clients - 1``."""
    wrong = numbers[(numbers < 0) | (numbers >= n_clients)]
    if wrong.size:
        most = f"to n_clients - 1 = {n_clients - 1}" if n_clients < math.inf else "or more"
        raise ValueError(f"{name} contains the number {wrong.flat[0]}, allowed: 0 {most}")


def check_returned(
    source: str, name: str, array: object, expected: tuple[int, ...], meaning: str, kinds: str = "f"
) -> None:
    """Raise unless an array returned by an algorithm or an initialisation is real and has the expected shape."""
    wanted = f"{meaning} = {expected}"
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{source} returned {name} = {short_repr(array)}, expected an array of shape {wanted}")
    check_unmasked(f"{name} returned by {source}", array)
    if array.dtype.kind not in kinds:
        raise TypeError(
            f"{source} returned {name} of dtype {array.dtype}, expected real floating-point numbers of shape {wanted}"
        )
    if array.shape != expected:
        raise ValueError(f"{source} returned {name} of shape {array.shape}, expected {wanted}")
