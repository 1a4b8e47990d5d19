"""Arrays with names for what lies along their axes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed.errors import check_unmasked


class Along:
    """An array along named axes: of trials and these, or of these alone.

    Parameters
    ----------
    values : array_like (trials, len(axis), ..) or (len(axis), ..)
    **axes : array_like
        Labels along each axis after the trials, in order, e.g. ``round=result.rounds``. They are columns too.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.Along([[1.0, 0.5, 0.2]], round=[0, 1, 2])
    Along((1, 3), trial, round)
    """

    def __init__(self, values: npt.ArrayLike, /, **axes: npt.ArrayLike) -> None:
        self.values = np.asarray(check_unmasked("values", values))
        if self.values.dtype.kind not in "biufU":
            raise TypeError(f"values are of dtype {self.values.dtype}; numbers, truth values or words are allowed")
        if "trial" in axes:
            raise ValueError("trial is the name of the first axis, which has no labels: name the others")
        self.axes = {name: np.asarray(check_unmasked(name, labels)) for name, labels in axes.items()}
        lengths = tuple(len(labels) for labels in self.axes.values())
        self.trials = self.values.ndim == len(lengths) + 1
        if not lengths or self.values.shape[1 if self.trials else 0 :] != lengths:
            raise ValueError(
                f"values has shape {self.values.shape}, expected {lengths} along {', '.join(axes) or 'an axis'}, "
                "with or without trials before it"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the array's axes."""
        return ("trial", *self.axes) if self.trials else tuple(self.axes)

    def __repr__(self) -> str:
        return f"Along({self.values.shape}, {', '.join(self.names)})"
