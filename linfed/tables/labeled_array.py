"""Arrays with named and labelled axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from linfed.checks import check_unmasked, short_repr


class LabeledArray:
    """Array with named and labelled axes, as a value in a row of a `Table`.

    Parameters
    ----------
    values : array_like (trials, len(axis), ..) or (len(axis), ..)
        The values, with or without an axis of trials before the named axes.
    **axes : array_like
        Labels of each axis after the trials, in order, e.g. ``round=result.rounds``. In a table, they can be read like
        a column.

    Attributes
    ----------
    values : ndarray
        Read-only copy of the values.
    axes : dict of str to ndarray
        Read-only copies of the labels by the names of the axes.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.LabeledArray([[1.0, 0.5, 0.2]], round=[0, 1, 2])
    LabeledArray((1, 3), trial, round)
    """

    def __init__(self, values: npt.ArrayLike, /, **axes: npt.ArrayLike) -> None:
        self._hold(_copy("values", values), {name: _copy(name, labels) for name, labels in axes.items()})

    @classmethod
    def owning(cls, values: npt.NDArray[Any], axes: dict[str, npt.NDArray[Any]]) -> LabeledArray:
        """Return an array that takes over its values and labels without a copy, because nobody else has them.

        Parameters
        ----------
        values : ndarray (trials, len(axis), ..) or (len(axis), ..)
        axes : dict of str to ndarray
            Labels by the name of the axis.

        Raises
        ------
        TypeError, ValueError
            As for a new array.
        """
        out = cls.__new__(cls)
        out._hold(values, axes)
        return out

    def _hold(self, values: npt.NDArray[Any], axes: dict[str, npt.NDArray[Any]]) -> None:
        """Store arrays that nobody else can change, and check their shapes."""
        self.values, self.axes = values, axes
        if values.dtype.kind not in "biufU":
            raise TypeError(f"values must be numbers, Booleans or strings, got dtype {values.dtype}")
        if "trial" in axes:
            raise ValueError("axes must not contain 'trial', which is the first axis and has no labels")
        for name, labels in axes.items():
            check_name("axes", name)
            if labels.ndim != 1 or labels.dtype.kind not in "biufU":
                raise TypeError(
                    f"{name} must be one-dimensional, with numbers, Booleans or strings as labels, got shape "
                    f"{labels.shape} and dtype {labels.dtype}"
                )
        lengths = tuple(len(labels) for labels in axes.values())
        self.trials = values.ndim == len(lengths) + 1
        if not lengths or values.shape[1 if self.trials else 0 :] != lengths:
            raise ValueError(
                f"values must have shape {lengths} along {', '.join(axes) or 'an axis'}, or this after an axis of "
                f"trials, got shape {values.shape}"
            )
        self._lock()

    def _lock(self) -> None:
        for array in (self.values, *self.axes.values()):
            array.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock()  # pickle and copy make writable arrays

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the array's axes."""
        return ("trial", *self.axes) if self.trials else tuple(self.axes)

    def __repr__(self) -> str:
        return f"LabeledArray({self.values.shape}, {', '.join(self.names)})"


def _copy(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return values as an array of which nobody else has a part; raise if they are masked or form none."""
    try:
        return np.array(check_unmasked(name, values), order="C")
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{name} = {short_repr(values)} must be an array: its parts have different sizes") from None


def check_name(what: str, name: str) -> None:
    """Raise if the name of a column or an axis cannot be stored: it has a null character or half a surrogate pair."""
    if "\0" in name or any("\ud800" <= one <= "\udfff" for one in name):
        raise ValueError(f"names of {what} must not contain a null character or a lone surrogate, got {name!r}")


def same_labels(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Return whether two axes have the same labels; NaN equals NaN."""
    numbers = one.dtype.kind == other.dtype.kind == "f"
    return np.array_equal(one, other, equal_nan=numbers)
